"""Which numbers an element type can store without losing them: its limits are those of a model."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from xflow.core.registry import Array

FAR = 2.0**47
"""By what factor an element is larger than the least number where this is never missed."""


@cache
def limits(dtype: str) -> Any:
    """The limits of a type of floats, as numpy's `finfo` has them."""
    return ml_dtypes.finfo(ir.DataType[dtype].numpy())  # type: ignore[no-untyped-call]


@cache
def is_kept(number: Fraction, stored: str, dtype: str) -> bool:
    """Whether a number among elements of type `dtype` may be stored as one of type `stored`.

    It may be rounded, as any element is, where that type has as many digits. It must not become 0,
    infinite or subnormal, where nearly all digits may be lost.
    """
    try:
        with np.errstate(over="ignore"):
            value = float(ir.DataType[stored].numpy().type(float(number)))
    except OverflowError:
        return False
    if math.isfinite(value) and Fraction(value) == number:
        return True
    kind = limits(stored)
    is_narrower = kind.nmant < limits(dtype).nmant
    return not is_narrower and bool(kind.smallest_normal <= abs(value) <= kind.max)


def loses_numbers(rounded: Array, lost: Array, dtype: str) -> bool:
    """Whether a tensor of type `dtype` lacks numbers where digits are `lost` to its least numbers.

    They are not missed beside larger ones: where each slice through the place, as a row and a
    column, has an element with all digits, or one of the slices has an element so much larger that
    nothing of the place shows beside it. In a vector, each element is a slice.
    """
    kind = limits(dtype)
    sizes = np.abs(rounded).reshape([n for n in rounded.shape if n > 1] or [1])
    places = np.nonzero(lost.reshape(sizes.shape))
    axes = range(sizes.ndim)
    slices = [
        sizes.max(axis=tuple(k for k in axes if k != axis))[places[axis]].astype(np.float64)
        for axis in axes
    ]
    least, most = np.min(slices, axis=0), np.max(slices, axis=0)
    far = FAR * float(kind.smallest_subnormal)
    return bool(np.any((least < float(kind.smallest_normal)) & (most < far)))
