"""Edge cases: inputs with zeros, ties, thresholds and extremes, which random inputs hardly have.

Random inputs hardly ever hold two equal numbers, a zero, or a number beyond four deviations.  These
do, and values around each constant with which the model compares its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto

from xflow.feeds.input_roles import indexed_dimensions
from xflow.feeds.inputs import (
    FLOAT_MASK,
    SHORT_FLOATS,
    Feeder,
    Shapes,
    Sizes,
    default_shapes,
    free_dimensions,
    free_lengths,
)
from xflow.feeds.meetings import Meeting, meetings

ROUNDS = 3
"""How often the random ones among the edge cases are drawn anew, where there is time."""
MOST_OFFSETS = 6
"""Subtracted constants that get inputs of their own."""
MOST_TURNS = 64
"""Sets of inputs among which the rows of a table are shared out, if there are enough."""
MOST_COMPARED = 4
"""Constants around which sizes are tried."""
MOST_SIZES = 12
"""Settings of the shapes that this makes at most."""
COMPARED_ELEMENTS = 2**20
"""Most elements of inputs at these."""
MOST_EMPTY = 4
"""Dynamic dimensions that are made empty, one after the other."""
CONVERSIONS = ("DequantizeLinear", "QuantizeLinear")
"""Operators from codes and to codes."""
BEYOND_CODES = 1000
"""A size at which sums of Booleans are beyond codes of 8 bits."""
NARROW_TYPES = (TensorProto.INT8, TensorProto.UINT8)
THOUSANDS_OF_SUMS = 3000
"""The largest magnitude of integers that may be sums of codes."""
SMALL_INTEGERS = 9
"""The largest magnitude of integers without a known role, where they are to stay small."""
THOUSANDS, MILLIONS = "numbers of a thousand", "numbers of a million"
OFFSET, MAGNITUDES = "large numbers with small differences", "numbers of all magnitudes"
WHOLE, MILLIONTHS = "whole numbers", "numbers of a millionth"
EXTREME = (THOUSANDS, MILLIONS, MILLIONTHS, OFFSET, MAGNITUDES, WHOLE)
"""Names of the sets of inputs on which rounding errors are larger, as tolerances consider."""

GOLDEN = 0.618
"""The part of a round of turns by which the next one is ahead, so that early ones lie far apart."""

Generator = np.random.Generator
Draw = Callable[[ValueInfoProto, Generator], np.ndarray | None]
"""Makes values for an input, or None for one that it leaves as it is."""


@dataclass(frozen=True)
class InputSet:
    """Values for all inputs of a model; `what` describes them, as in "differs on WHAT"."""

    what: str
    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    ordinary: bool = False
    """Whether they are usual for the model, as random and real ones are."""
    resized: bool = False
    """Whether they have other sizes than the model is checked at."""
    planted: bool = False
    """Whether there are NaN and infinities among them."""
    extreme: bool = False
    """Whether their magnitudes make rounding errors larger."""


def other_sizes(
    model: ModelProto,
    shapes: Shapes,
    chosen: Mapping[str, tuple[int, ...]],
    base: Sizes,
    *,
    empty: bool,
    compared: Sequence[int] = (),
) -> list[tuple[str, dict[str, tuple[int, ...]]]]:
    """Return other shapes for the inputs where `shapes` leaves them open, with descriptions.

    `chosen` are those that the model is checked at, by the sizes `base`.  The first
    ones are those to try if there is little time.  Around the constants `compared`, single
    dimensions get the sizes on both sides.  With `empty`, dimensions of size 0 come last.
    """
    found: list[tuple[str, dict[str, tuple[int, ...]]]] = []
    tables = indexed_dimensions(model)

    def add(what: str, sizes: Sizes, most: float = math.inf) -> None:
        made = default_shapes(model, shapes, sizes=sizes, tables=tables)
        if sum(map(math.prod, made.values())) > most:
            return
        if made != chosen and all(made != each for _, each in found):
            found.append((what, made))

    names = free_dimensions(model, shapes)
    if not names:
        return []
    more = Sizes(base.batch + 1, base.length + base.length // 2, base.image + 32)
    add("other sizes", more)
    add("sizes of one", Sizes(1, 1, base.image))
    lengths = free_lengths(model, shapes, tables)
    if len(lengths) > 1:
        own = {name: base.length + 3 * number for number, name in enumerate(lengths, 1)}
        add("sizes that differ", replace(base, given={**base.given, **own}))
    add("odd sizes", Sizes(3, base.length + 5, base.image + 1))
    around = [
        (name, constant + side)
        for side in (1, 0, -1)
        for constant in compared[:MOST_COMPARED]
        for name in names
    ]
    for name, size in around[:MOST_SIZES]:
        single = replace(base, given={**base.given, name: size})
        add(f"size {size} of {name!r}", single, COMPARED_ELEMENTS)
    for name in names[:MOST_EMPTY] if empty else ():
        add(f"no elements along {name!r}", replace(base, given={name: 0}))
    return found


def sizes_of_sums(model: ModelProto) -> tuple[int, ...]:
    """Sizes at which sums are beyond codes of 8 bits, for a model that makes reals of such sums.

    Nothing for others: the zero points of their conversions are constants of 8 bits. Nor for
    models whose inputs are all wider, which are beyond these codes by themselves: at such sizes a
    run may take all memory that there is.
    """
    given = {tensor.name: tensor for tensor in model.graph.initializer}
    constants = dict(given)
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute:
            constants[node.output[0]] = node.attribute[0].t
    narrow = {name for name, each in constants.items() if each.data_type in NARROW_TYPES}
    sums = (
        node
        for node in model.graph.node
        if node.op_type == CONVERSIONS[0] and node.input[0] not in constants
    )
    wide = any(narrow.isdisjoint(node.input[2:]) for node in sums)
    small = any(
        each.type.tensor_type.elem_type in (*NARROW_TYPES, TensorProto.BOOL)
        for each in model.graph.input
        if each.name not in given
    )
    return (BEYOND_CODES,) if wide and small else ()


class EdgeCases:
    """The edge cases of one model, at one setting of the shapes of its inputs.

    With `planted`, there are NaN and infinities among the real numbers.  `aimed` are indices for
    some of the inputs that are tried first.  Indices in general take turns, so that sets of inputs
    read different rows of a table.
    """

    def __init__(
        self,
        model: ModelProto,
        feeder: Feeder,
        *,
        planted: bool,
        aimed: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.feeder = feeder
        self.planted = planted
        tensors = [item for item in feeder.inputs if _is_tensor(item)]
        self.reals = {item.name for item in tensors if self._is_real(item)}
        self.floats = {item.name for item in tensors if _is_float(item)}
        self.integers = {item.name for item in tensors if self._is_integer(item)}
        self.masks = {item.name for item in tensors if self._is_mask(item)}
        self.bools = {item.name for item in tensors if _kind(item) == TensorProto.BOOL}
        self.indices = {
            item.name
            for item in tensors
            if _is_int(item) and feeder.role(item.name).high is not None
        }
        self.aimed = {name: rows for name, rows in (aimed or {}).items() if name in self.indices}
        self.turns = 0
        self.has_codes = any(node.op_type in CONVERSIONS for node in model.graph.node)
        followed = sorted(self.reals | self.integers)
        self.meetings = meetings(model, feeder.shapes, followed) if followed else {}

    def draw(self, seed: int, *, through: bool = True) -> Iterator[InputSet]:
        """Yield all of them, those first that find the most differences.

        With `through`, further indices come last, until tables have been gone through.
        """
        for number in range(ROUNDS):
            for place, (what, drawing) in enumerate(self._kinds(number)):
                made = self._set(seed + 1000 * number + place, what, drawing)
                yield replace(made, extreme=what in EXTREME)
        while through and self.turns < min(MOST_TURNS, self._rounds()):
            yield self._set(seed + 1000 * ROUNDS + self.turns, "indices in turn", _nothing)

    def _set(self, seed: int, what: str, drawing: Draw) -> InputSet:
        base = self.feeder.random(seed)
        turn = self.turns

        def draw(item: ValueInfoProto, generator: Generator) -> np.ndarray:
            made = drawing(item, generator)
            if made is None and item.name in self.indices:
                self.turns = turn + 1
                return self._in_turn(item, turn, generator)
            return base[item.name] if made is None else made

        values = self.feeder.values(seed, draw)
        lists = {item.name for item in self.feeder.inputs if not _is_tensor(item)}
        kept = {name: base[name] if name in lists else values[name] for name in values}
        numbers = [kept[name] for name in self.reals]
        planted = any(not np.isfinite(each.astype(np.float64)).all() for each in numbers)
        return InputSet(what, kept, self.feeder.shapes, planted=planted)

    def _kinds(self, number: int) -> Iterator[tuple[str, Draw]]:
        """Yield the kinds of edge cases that these inputs have; some only in the first round."""
        first = number == 0
        if self.aimed:
            yield "indices of rows that differ", self._at_rows(number)
        if any(map(_thresholds, self.meetings.values())):
            yield "values around the model's constants", self._around(exact=False)
        if self.reals:
            yield "rows of zeros and single zeros", self._of(self.reals, _with_zeros)
        if self.integers:
            yield "small integers", self._of(self.integers, _small_integers)
        if self.integers and self.has_codes:  # sums that no code of 8 bits holds
            yield "integers of both signs", self._of(self.integers, _thousands)
        if self.reals:
            yield THOUSANDS, self._of(self.reals, _scaled(1e3))
            yield MILLIONTHS, self._of(self.reals, _scaled(1e-6))
        for place in range(self._offsets() if first else 0):
            yield "small differences from what is subtracted", self._differences(place)
        if self.reals and first:
            yield "equal elements", self._of(self.reals, _ties)
            yield "zeros", self._of(self.reals, _constant(0.0))
        if first and any(each.sharp for found in self.meetings.values() for each in found):
            yield "the model's constants", self._around(exact=True)
        if self.masks and first:
            yield "masks of ones", self._of(self.masks, _constant(1))
            yield "masks of zeros", self._of(self.masks, _constant(0))
        if self.masks:
            yield "masks with holes", self._of(self.masks, _holes)
        if self.bools and first:
            yield "false", self._of(self.bools, _constant(0))
            yield "true", self._of(self.bools, _constant(1))
        if self.reals:
            yield MILLIONS, self._of(self.reals, _scaled(1e6))
            yield OFFSET, self._of(self.reals, _offset)
            yield MAGNITUDES, self._of(self.reals, _magnitudes)
            yield WHOLE, self._of(self.reals, _whole)
        if self.indices:
            yield "indices from the end", self._of(self.indices, self._backwards)
            if first:
                yield "the last index", self._of(self.indices, self._last)
                yield "the first index", self._of(self.indices, self._first)
        if self.integers:
            yield "integers of the whole range", self._of(self.integers, _whole_range)
            yield "integers up to 100", self._of(self.integers, _hundreds)
        if self.planted and self.reals and first:
            for value, what in ((np.nan, "a NaN"), (np.inf, "an infinity"), (-np.inf, "-infinity")):
                yield what, self._of(self.reals, _planted(value))
        if self.planted and self.reals and not first:
            yield "NaN and infinities", self._of(self.reals, _planted(np.nan, np.inf, -np.inf))

    def _is_real(self, item: ValueInfoProto) -> bool:
        free = self.feeder.role(item.name).fixed is None
        return _is_float(item) and free and not FLOAT_MASK.search(item.name.lower())

    def _is_integer(self, item: ValueInfoProto) -> bool:
        role = self.feeder.role(item.name)
        known = role.high is not None or role.length is not None or role.fixed is not None
        return _is_int(item) and not (
            known or role.extent or role.mask or "mask" in item.name.lower()
        )

    def _is_mask(self, item: ValueInfoProto) -> bool:
        if _is_float(item):
            return bool(FLOAT_MASK.search(item.name.lower()))
        role = self.feeder.role(item.name)
        free = role.high is None and role.fixed is None and role.length is None
        named = role.mask or "mask" in item.name.lower()
        return free and named and (_is_int(item) or _kind(item) == TensorProto.BOOL)

    def _of(
        self,
        names: set[str],
        make: Callable[[np.dtype[Any], tuple[int, ...], Generator, str], np.ndarray],
    ) -> Draw:
        def draw(item: ValueInfoProto, generator: Generator) -> np.ndarray | None:
            if item.name not in names:
                return None
            return make(_dtype(item), self.feeder.shapes[item.name], generator, item.name)

        return draw

    def _around(self, *, exact: bool) -> Draw:
        """Values at, next to and near the constants that each element meets, and others among them.

        With `exact`, exactly where the result is discontinuous.
        """

        def draw(item: ValueInfoProto, generator: Generator) -> np.ndarray | None:
            found = _thresholds(self.meetings.get(item.name, ()))
            if exact:
                found = [each for each in found if each.sharp]
            if not found:
                return None
            shape, dtype = self.feeder.shapes[item.name], _dtype(item)
            chosen = generator.integers(0, len(found), shape)
            centers, sharp = np.full(shape, np.nan), np.zeros(shape, bool)
            for number, each in enumerate(found):
                centers = np.where(chosen == number, each.centers, centers)
                sharp |= (chosen == number) & each.sharp
            others = generator.standard_normal(shape)
            if dtype.kind in "iu":
                others = generator.integers(0, 2, shape).astype(np.float64)
                steps = 0 if exact else generator.integers(-1, 2, shape)
                values = np.where(np.isnan(centers), others, np.round(centers) + steps)
                return _cast(values, dtype)
            at = _cast(np.where(np.isnan(centers), others, centers), dtype)
            return at if exact else _beside(at, sharp, generator)

        return draw

    def _offsets(self) -> int:
        """How many sets of inputs differ by little from subtracted constants."""
        most = max((len(_subtracted(each)) for each in self.meetings.values()), default=0)
        return min(MOST_OFFSETS, most)

    def _differences(self, place: int) -> Draw:
        """Values that differ from the constant at this place by the usual spread there."""

        def draw(item: ValueInfoProto, generator: Generator) -> np.ndarray | None:
            found = _subtracted(self.meetings.get(item.name, ()))
            if not found:
                return None
            meeting = found[min(place, len(found) - 1)]
            assert meeting.spread is not None
            normal = generator.standard_normal(self.feeder.shapes[item.name])
            near = meeting.centers + meeting.spread * normal
            return _cast(np.where(np.isnan(near), normal, near), _dtype(item))

        return draw

    def _backwards(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, name: str
    ) -> np.ndarray:
        """Indices counted from the end where valid; integers without a role are drawn anew."""
        role = self.feeder.role(name)
        assert role.high is not None
        low = -role.high - 1 if role.bound and role.low == 0 and dtype.kind == "i" else role.low
        high = role.high if role.bound else 2
        return generator.integers(low or 0, high, shape, endpoint=True).astype(dtype)

    def _span(self, name: str) -> tuple[int, int]:
        """The least of the indices that an input may hold, and how many there are."""
        role = self.feeder.role(name)
        assert role.high is not None
        low = role.low or 0
        return low, max(1, role.high - low + 1)

    def _rounds(self) -> int:
        """How many sets of inputs read every row of the largest table."""
        sizes = [
            -(-self._span(name)[1] // max(1, math.prod(self.feeder.shapes[name])))
            for name in self.indices
        ]
        return max(sizes, default=0)

    def _in_turn(self, item: ValueInfoProto, turn: int, generator: Generator) -> np.ndarray:
        """Indices of other rows in each turn, which come from all parts of the table."""
        shape = self.feeder.shapes[item.name]
        low, count = self._span(item.name)
        some = max(1, math.prod(shape))
        rounds = -(-count // some)
        step = next(n for n in range(int(GOLDEN * rounds) + 1, 0, -1) if math.gcd(n, rounds) == 1)
        rows = (turn * step % rounds + rounds * np.arange(math.prod(shape))) % count
        return generator.permutation(low + rows).reshape(shape).astype(_dtype(item))

    def _at_rows(self, number: int) -> Draw:
        """The indices that are aimed at, others of them in each round."""

        def draw(item: ValueInfoProto, generator: Generator) -> np.ndarray | None:
            rows = self.aimed.get(item.name)
            if rows is None:
                return None
            low, count = self._span(item.name)
            rows = rows[(rows >= low) & (rows < low + count)]
            if not rows.size:
                return None
            shape = self.feeder.shapes[item.name]
            some = math.prod(shape)
            sets = -(-len(rows) // max(1, some))
            chosen = rows[(number % sets + sets * np.arange(some)) % len(rows)]
            return generator.permutation(chosen).reshape(shape).astype(_dtype(item))

        return draw

    def _last(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, name: str
    ) -> np.ndarray:
        return np.full(shape, self.feeder.role(name).high, dtype)

    def _first(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, name: str
    ) -> np.ndarray:
        return np.full(shape, self.feeder.role(name).low or 0, dtype)


def _nothing(item: ValueInfoProto, generator: Generator) -> None:
    """Leaves all inputs as they are drawn in general."""


def _thresholds(found: Sequence[Meeting]) -> list[Meeting]:
    return [each for each in found if each.spread is None]


def _subtracted(found: Sequence[Meeting]) -> list[Meeting]:
    return [each for each in found if each.spread is not None]


def _kind(item: ValueInfoProto) -> int:
    return int(item.type.tensor_type.elem_type)


def _is_tensor(item: ValueInfoProto) -> bool:
    return bool(item.type.WhichOneof("value") == "tensor_type")


def _dtype(item: ValueInfoProto) -> np.dtype[Any]:
    made: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(_kind(item)))
    return made


def _is_float(item: ValueInfoProto) -> bool:
    kind = _kind(item)
    real = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
    return kind in real or kind in SHORT_FLOATS


def _is_int(item: ValueInfoProto) -> bool:
    return _kind(item) not in (TensorProto.STRING, TensorProto.BOOL) and _dtype(item).kind in "iu"


def _largest(dtype: np.dtype[Any]) -> float:
    """The largest magnitude that is not extreme for a type: its square does not overflow."""
    return float(min(1e6, np.sqrt(float(ml_dtypes.finfo(dtype).max))))  # type: ignore[no-untyped-call]


def _cast(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The values in a type, kept inside its range."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        # In float64, the largest 64-bit integer rounds to one more.
        inside = np.clip(np.nan_to_num(values), float(info.min), float(info.max))
        return np.where(inside >= float(info.max), info.max, inside.astype(object)).astype(dtype)
    most = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    return np.asarray(np.clip(values, -most, most)).astype(dtype)


def _beside(values: np.ndarray, sharp: np.ndarray, generator: Generator) -> np.ndarray:
    """Some of the values as they are, others one step or some digits beside, some far away."""
    dtype, shape = values.dtype, values.shape
    how = generator.integers(0, 6, shape)
    wide = values.astype(np.float64)
    near = _cast(wide * (1 + 1e-3 * generator.standard_normal(shape)), dtype)
    far = wide + np.maximum(np.abs(wide), 1.0) * generator.standard_normal(shape)
    up = down = near
    if dtype.kind == "f":
        up, down = (
            np.where(sharp, np.nextafter(values, np.asarray(to, dtype)), near)
            for to in (np.inf, -np.inf)
        )
    parts = [values, up, down, near, _cast(far, dtype)]
    parts.append(_cast(generator.standard_normal(shape), dtype))
    result = values.copy()
    for number, part in enumerate(parts):
        result = np.where(how == number, part, result)
    return result.astype(dtype)


def _with_zeros(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
) -> np.ndarray:
    """Normal numbers, a third of them zero, and half of the rows altogether."""
    values = generator.standard_normal(shape)
    values = np.where(generator.random(shape) < 1 / 3, 0.0, values)
    if len(shape) > 1:
        rows = generator.random((*shape[:-1], 1)) < 0.5
        rows.reshape(-1)[:1] = True
        values = np.where(rows, 0.0, values)
    return values.astype(dtype)


def _scaled(
    size: float,
) -> Callable[[np.dtype[Any], tuple[int, ...], Generator, str], np.ndarray]:
    def make(
        dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
    ) -> np.ndarray:
        return _cast(min(size, _largest(dtype)) * generator.standard_normal(shape), dtype)

    return make


def _constant(
    value: float,
) -> Callable[[np.dtype[Any], tuple[int, ...], Generator, str], np.ndarray]:
    def make(
        dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
    ) -> np.ndarray:
        return np.full(shape, value).astype(dtype)

    return make


def _ties(dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str) -> np.ndarray:
    """Few different numbers, and rows that hold one only; the same in all inputs of a shape."""
    generator = np.random.default_rng([len(shape), *shape])
    values = generator.choice(np.array([-1.5, -1.0, 0.0, 0.5, 1.0, 2.0]), shape)
    if len(shape) > 1:
        rows = generator.random((*shape[:-1], 1)) < 0.5
        values = np.where(rows, values[..., :1], values)
    return values.astype(dtype)


def _whole(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
) -> np.ndarray:
    """Integers in floats."""
    return generator.integers(-10, 256, shape).astype(dtype)


def _offset(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
) -> np.ndarray:
    """Large numbers that differ by a hundred units in the last place: 5e6 +- 50 in float32."""
    rounding = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    center = min(5e6, 5 * _largest(dtype))
    spread = max(50.0, 100 * rounding * center) if center == 5e6 else 100 * rounding * center
    return _cast(center + spread * generator.standard_normal(shape), dtype)


def _magnitudes(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
) -> np.ndarray:
    """Numbers from 1e-6 to the largest usual one, all magnitudes equally often."""
    exponents = generator.uniform(-6, np.log10(_largest(dtype)), shape)
    signs = generator.choice(np.array([-1.0, 1.0]), shape)
    return _cast(signs * 10.0**exponents, dtype)


def _planted(
    *values: float,
) -> Callable[[np.dtype[Any], tuple[int, ...], Generator, str], np.ndarray]:
    """Normal numbers, with values that are no numbers in a few elements."""

    def make(
        dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
    ) -> np.ndarray:
        made = np.asarray(generator.standard_normal(shape)).astype(dtype)
        flat = made.reshape(-1)
        for value in values:
            if flat.size:
                flat[generator.integers(0, flat.size)] = value
        return made

    return make


def _holes(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
) -> np.ndarray:
    """Masks of random zeros and ones; of several rows, the first is all zero."""
    values = generator.integers(0, 2, shape)
    if len(shape) > 1 and shape[0] > 1:
        values[0] = 0
    return values.astype(dtype)


def _small_integers(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
) -> np.ndarray:
    low = 0 if dtype.kind == "u" else -SMALL_INTEGERS
    return generator.integers(low, SMALL_INTEGERS, shape, endpoint=True).astype(dtype)


def _hundreds(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
) -> np.ndarray:
    return generator.integers(0, 100, shape, endpoint=True).astype(dtype)


def _thousands(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
) -> np.ndarray:
    info, most = np.iinfo(dtype), THOUSANDS_OF_SUMS
    low, high = max(info.min, -most), min(info.max, most)
    return generator.integers(low, high, shape, endpoint=True).astype(dtype)


def _whole_range(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: Generator, _: str
) -> np.ndarray:
    """All integers of a type, and its ends."""
    info = np.iinfo(dtype)
    values = generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    flat = np.asarray(values).reshape(-1)
    places = generator.permutation(flat.size)
    for place, end in zip(places, (info.max, info.min, 0), strict=False):
        flat[place] = end
    return flat.reshape(shape)
