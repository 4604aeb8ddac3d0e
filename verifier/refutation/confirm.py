"""Decides whether two sides differ as real numbers, or by a rounding error at a discontinuity.

Where two numbers that are compared are equal, a rounding error of either makes one less than the
other: `x/3 < y` may differ from `x < 3*y` in floating-point arithmetic. So a difference of a rule
with a discontinuity is checked in exact numbers or enclosures. Where the operators' numpy
implementations do not take these, the inputs are changed a little: then rounding errors vanish.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from xflow.core.enclosure import Enclosure, differ
from xflow.core.evaluation import run
from xflow.core.node import Value
from xflow.core.registry import Array

MAX_ELEMENTS = 2000
"""Elements of an input beyond which no exact evaluation is tried."""
NUDGES = 4
"""How often the inputs are changed a little."""
NUDGE = 2.0**-20
"""Relative; zeros stay, since what is not defined at 0 is so there alone."""
TOLERANCE = 1e-9

_enclosed = np.frompyfunc(Enclosure, 1, 1)


def is_real(left: Sequence[Value], right: Sequence[Value], inputs: Mapping[str, Array]) -> bool:
    """Whether two lists of values, which differ in float64, differ as real numbers."""
    exactly = differ_exactly(left, right, inputs)
    return _differs_nearby(left, right, inputs) if exactly is None else exactly


def differ_exactly(
    left: Sequence[Value], right: Sequence[Value], inputs: Mapping[str, Array]
) -> bool | None:
    """Whether they differ where the left one is defined; None where that is undecided.

    It is also undecided where the left one is not defined as a real number.
    """
    if any(array.size > MAX_ELEMENTS for array in inputs.values()):
        return None
    try:
        outputs = [run(side, inputs, _wide) for side in (left, right)]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    unsure = False
    for a, b in zip(*outputs, strict=True):
        if a.shape != b.shape:
            continue
        for x, y in zip(_all_enclosed(a).flat, _all_enclosed(b).flat, strict=True):
            if not x.is_defined:  # the runtime may compute a number there
                unsure = True
                continue
            found = True if not y.is_defined else differ(x, y)
            if found:
                return True
            unsure = unsure or found is None
    return None if unsure else False


def _wide(array: Array) -> Array:
    """Real numbers as enclosed ones; integers and Booleans stay what they are."""
    if array.dtype.kind not in "fO":
        return array
    return _all_enclosed(array)


def _all_enclosed(array: Array) -> Array:
    return np.asarray(_enclosed(array), dtype=object)


def _differs_nearby(
    left: Sequence[Value], right: Sequence[Value], inputs: Mapping[str, Array]
) -> bool:
    """Whether they differ in float64 at each of a few inputs that are almost the same."""
    rng = random.Random(0)
    for _ in range(NUDGES):
        nudged = {name: _nudged(array, rng) for name, array in inputs.items()}
        with np.errstate(all="ignore"):
            outputs = [run(side, nudged) for side in (left, right)]
        if not any(_differ(a, b) for a, b in zip(*outputs, strict=True) if a.shape == b.shape):
            return False
    return True


def _nudged(array: Array, rng: random.Random) -> Array:
    if array.dtype.kind != "f":
        return array
    generator = np.random.default_rng(rng.getrandbits(32))
    return np.asarray(array * (1 + generator.uniform(-NUDGE, NUDGE, array.shape)))


def _differ(before: Array, after: Array) -> bool:
    a, b = (np.asarray(x, dtype=np.float64) for x in (before, after))
    defined = np.isfinite(a)
    magnitude = np.abs(a[defined]).max(initial=1.0)
    with np.errstate(all="ignore"):
        return bool((defined & ~(np.abs(a - b) <= TOLERANCE * magnitude)).any())
