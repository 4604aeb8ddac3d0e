"""Sums of codes, which floating-point arithmetic computes exactly: they are small integers.

A code is an integer of 8 bits. So is what is rounded to an integer and cut off between two sums of
codes. A float of any type holds sums of a few of them, so that they may be computed in any order:
two that are equal as integers are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xflow.core.spec import ONE, Call, Element, Literal, Plus, Scalar, Times, plus, times

MOST = 255
"""The largest absolute value of a code."""
EXACT = 2**11
"""Integers up to this are floats of each type but BFLOAT16, in which nothing is quantized."""
INTEGERS = ("round", "floor", "sign")
"""Functions that give integers."""

Terms = dict[Scalar, int]
"""An integer for each term of a sum; `ONE` stands for the constant."""


def marked_sums(
    scalar: Scalar,
    codes: frozenset[str],
    convert: Callable[[Scalar], Scalar],
    mark: Callable[[Scalar], Scalar],
) -> Scalar:
    """`scalar` with `mark` of each largest part that is an exact sum in the place of that part.

    Elements of the tensors `codes` are codes. A sum is written in one way, in which what is
    computed from reals inside is `convert` of it.
    """

    def again(part: Scalar) -> Scalar:
        terms = _terms(part, codes)
        if terms is not None and not isinstance(part, Literal):
            return mark(_written(terms, lambda inner: convert(again_inside(inner))))
        return again_inside(part)

    def again_inside(part: Scalar) -> Scalar:
        match part:
            case Plus(args):
                return Plus(tuple(map(again, args)))
            case Times(args):
                return Times(tuple(map(again, args)))
            case Call(function, args):
                return Call(function, tuple(map(again, args)))
        return part

    return again(scalar)


def _terms(scalar: Scalar, codes: frozenset[str]) -> Terms | None:
    """The terms of a sum of codes that is exact; None where `scalar` is something else."""
    found: Terms = {}
    for part, factor in _summands(scalar, 1):
        if isinstance(part, Literal):
            if part.value.denominator != 1:
                return None
            found[ONE] = found.get(ONE, 0) + factor * int(part.value)
        elif _is_code(part, codes):
            found[part] = found.get(part, 0) + factor
        else:
            return None
    if _extent(found, codes) > EXACT:
        return None
    return {part: n for part, n in found.items() if n}


def _extent(terms: Terms, codes: frozenset[str]) -> int:
    """What the absolute value of a sum is at most."""
    return sum(abs(factor) * _largest(term, codes) for term, factor in terms.items())


def _largest(term: Scalar, codes: frozenset[str]) -> int:
    """The largest absolute value of a term: of what is cut off, that of the two ends."""
    match term:
        case Literal():
            return 1
        case Call("max", (Call("min", (_, most)), least)):
            return max(_extent(_terms(end, codes) or {}, codes) for end in (most, least))
    return MOST


def _summands(scalar: Scalar, factor: int) -> Iterator[tuple[Scalar, int]]:
    match scalar:
        case Plus(args):
            for arg in args:
                yield from _summands(arg, factor)
        case Times((Literal(value), part)) if value.denominator == 1:
            yield from _summands(part, factor * int(value))
        case _:
            yield scalar, factor


def _is_code(scalar: Scalar, codes: frozenset[str]) -> bool:
    """Whether it is a code, or an integer that is cut off at two sums of codes."""
    match scalar:
        case Element(tensor, _):
            return tensor in codes
        case Call("max", (Call("min", (Call(function, _), most)), least)) if function in INTEGERS:
            return all(_terms(end, codes) is not None for end in (most, least))
    return False


def _written(terms: Terms, convert: Callable[[Scalar], Scalar]) -> Scalar:
    """A sum in the one way in which it is written: sorted terms with their factors."""
    made = [(convert(t) if isinstance(t, Call) else t, factor) for t, factor in terms.items()]
    made.sort(key=lambda term: repr(term[0]))
    return plus(*(times(factor, term) for term, factor in made))
