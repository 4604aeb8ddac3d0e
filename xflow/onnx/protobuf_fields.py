"""Fields of protobuf messages as bytes: each is a number, a wire type and, often, a length.

See https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED_64, DELIMITED, FIXED_32 = 0, 1, 2, 5
"""The wire types of fields; what is bytes or a message is delimited by its length."""
MOST_BITS = 63
"""Of a number, before its last digit."""


def number_of(message: type, field: str) -> int:
    """The number of a message's field."""
    number: int = message.DESCRIPTOR.fields_by_name[field].number  # type: ignore[attr-defined]
    return number


def begin(message: type, field: str, length: int) -> bytes:
    """What stands before the bytes of a field: which one it is, and how many there are."""
    return varint(number_of(message, field) << 3 | DELIMITED) + varint(length)


def varint(number: int) -> bytes:
    """A natural number in protobuf's digits of seven bits, the lowest first."""
    digits = []
    while number >= 1 << 7:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*digits, number))


def fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field's number, and where it begins, what is in it begins, and it ends.

    Raises IndexError and ValueError where there are none.
    """
    while at < end:
        start = at
        tag, at = _read_varint(data, at)
        kind, length = tag & 7, 0
        if kind == VARINT:
            _, inside = _read_varint(data, at)
        elif kind == DELIMITED:
            length, inside = _read_varint(data, at)
        elif kind in (FIXED_64, FIXED_32):
            inside, length = at, 8 if kind == FIXED_64 else 4
        else:
            raise ValueError(f"there is no field of wire type {kind}")
        at = inside + length
        if at > end:
            raise ValueError("a field is longer than what it is in")
        yield tag >> 3, start, inside, at


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """A natural number in digits of seven bits, the lowest first; and where it ends."""
    value = shift = 0
    while True:
        digit = data[at]
        at += 1
        value |= (digit & 0x7F) << shift
        if digit < 1 << 7:
            return value, at
        shift += 7
        if shift > MOST_BITS:
            raise ValueError("a number is longer than any of protobuf's")
