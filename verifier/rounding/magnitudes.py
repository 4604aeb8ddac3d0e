"""Inputs on which rounding is measured: ordinary magnitudes, and extreme ones.

Everything is made from uniform random numbers by exact operations, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from xflow.core.node import Leaf, Value
from xflow.core.registry import Array, Shape
from xflow.core.size import evaluate
from xflow.core.sorts import BOOL, REAL
from xflow.core.value_conditions import NONZERO, SIGNS, Fact
from xflow.verifier.rounding.rounded import Precision

JITTER = 4.0
"""`jitter` changes elements by up to this many times the precision's unit."""


@dataclass(frozen=True)
class InputSlot:
    """Where numbers are drawn for: an element type, and which of how many inputs it is."""

    precision: Precision
    number: int
    count: int


Draw = Callable[[np.random.Generator, Shape, InputSlot], Array]


def draw_inputs(
    leaves: Sequence[Value], draw: Draw, rng: np.random.Generator, precision: Precision
) -> dict[str, Array]:
    """An array for the key of each leaf: numbers of that precision, Booleans, or the indices 0, 1.

    Numbers are rounded, which counts as no error of either side, and held as float64.
    """
    inputs: dict[str, Array] = {}
    for number, value in enumerate(leaves):
        assert isinstance(value.node.op, Leaf)
        if value.type.dtype == REAL:
            drawn = precision.round(
                draw(rng, value.shape, InputSlot(precision, number, len(leaves)))
            )
        else:
            drawn = rng.integers(0, 2, size=_extents(value.shape))
            drawn = drawn.astype(bool) if value.type.dtype == BOOL else drawn
        inputs[value.node.op.key] = drawn
    return inputs


def ones(leaves: Sequence[Value]) -> dict[str, Array]:
    """An array of ones for the key of each leaf."""
    types: dict[str, type[np.generic]] = {REAL: np.float64, BOOL: np.bool_}
    inputs: dict[str, Array] = {}
    for value in leaves:
        assert isinstance(value.node.op, Leaf)
        made: Array = np.ones(_extents(value.shape), types.get(value.type.dtype, np.int64))
        inputs[value.node.op.key] = made
    return inputs


def satisfying(fact: Fact, array: Array) -> Array:
    """`array` with the elements changed of which `fact` is not true, at its magnitudes."""
    if fact.relation not in SIGNS:
        return array  # all that is drawn are numbers
    nonzero = np.where(array == 0, 1.0, array)
    return nonzero if fact.relation == NONZERO else np.abs(nonzero)


def jitter(array: Array, rng: np.random.Generator, precision: Precision) -> Array:
    """`array` with each element changed by some units in its last place."""
    if array.dtype.kind != "f":
        return array
    relative = (rng.random(array.shape) * 2 - 1) * (JITTER * precision.unit)
    changed = precision.round(array * (1 + relative))
    return np.where(np.isfinite(changed), changed, array)


def _extents(shape: Shape) -> list[int]:
    return [evaluate(size, {}) for size in shape]


def _signed(rng: np.random.Generator, shape: Shape) -> Array:
    return rng.random(_extents(shape)) * 4 - 2


def _about(exponent: int) -> Draw:
    return lambda rng, shape, place: np.ldexp(_signed(rng, shape), exponent)


def _positive(rng: np.random.Generator, shape: Shape, place: InputSlot) -> Array:
    return np.abs(_signed(rng, shape)) + 0.125


def _mixed(rng: np.random.Generator, shape: Shape, place: InputSlot) -> Array:
    """Each element of a magnitude of its own."""
    value, spread = _signed(rng, shape), place.precision.spread
    return np.ldexp(value, rng.integers(-spread, spread + 1, size=value.shape))


def _mixed_positive(rng: np.random.Generator, shape: Shape, place: InputSlot) -> Array:
    return np.abs(_mixed(rng, shape, place))


def _one_large(which: int) -> Draw:
    """One input large, the others small; which one, counted round."""

    def draw(rng: np.random.Generator, shape: Shape, place: InputSlot) -> Array:
        large = which % place.count == place.number
        spread = place.precision.spread
        return np.ldexp(_signed(rng, shape), spread if large else -spread)

    return draw


def _close(rng: np.random.Generator, shape: Shape, place: InputSlot) -> Array:
    """Large, with differences of about 1 that have half the digits, and one more.

    Squares of such numbers lose nearly all that tells them apart.
    """
    return 2.0 ** (place.precision.digits // 2 - 1) + _signed(rng, shape)


def opposed(signs: Sequence[int]) -> Draw:
    """The same, each input with a sign of its own: what is added cancels then.

    One with the sign 0 is about 1.
    """

    def draw(rng: np.random.Generator, shape: Shape, place: InputSlot) -> Array:
        sign = signs[place.number]
        return sign * _close(rng, shape, place) if sign else _signed(rng, shape)

    return draw


KINDS: tuple[tuple[bool, Draw], ...] = (
    (False, _about(0)),
    (False, _positive),
    (True, _about(7)),
    (True, _about(13)),
    (True, _about(-13)),
    (True, _mixed),
    (True, _mixed_positive),
    (True, _one_large(0)),
    (True, _one_large(1)),
    (True, _one_large(2)),
    (True, _close),
)
"""Whether the magnitudes are extreme, and what draws them."""

FAR: tuple[Draw, ...] = (_about(40), _about(-40))
"""All inputs far from 1: fp32 has room for products of three such numbers, not of four."""
