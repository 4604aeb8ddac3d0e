"""Values that are rounded already, whatever the inputs are: products with weights, exponentials.

``(x + b) * g`` is exact where x is nearly -b, and ``x * g + b * g`` is not. If x is an input, the
rewrite loses digits there. If x is ``u @ w`` with trained weights, x itself is known to a unit in
the last place only, and nothing is left to lose. The same holds of exponentials, and of sigmoids.

Weights may be such that their products are exact: an identity matrix, integers, a table of which
each row is a large number with a small deviation. So a value counts as rounded only if each column
of the weights has several numbers with digits down to the last places, which differ by a part of
their magnitude.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from xflow.core.fold import ConstantLookup
from xflow.core.node import Value
from xflow.core.registry import Array, Operator
from xflow.core.rounding import limits
from xflow.core.sorts import FLOATS

SAMPLE = 64
"""Rows of the weights that are looked at."""
SEVERAL = 2
"""Numbers that a column needs at least that have all digits."""
SPREAD = 2.0**-6
"""By what part of the largest number in a column the others deviate at least."""
ROUNDED = frozenset({"Erf", "Exp", "Sigmoid", "Softplus", "Tanh"})
"""Functions that have no exact results but at single points."""


def is_rounded(value: Value, constants: ConstantLookup) -> bool:
    """Whether a value differs from what it is for real numbers by a rounding of its magnitude."""
    if isinstance(value.node.op, Operator) and value.node.op.name in ROUNDED:
        return True
    weights = _columns(value, constants)
    if weights is None or value.type.dtype not in FLOATS:
        return False
    return have_all_digits(weights, _digits(value.type.dtype))


def have_all_digits(weights: Array, digits: int) -> bool:
    """Whether sums over the first axis of numbers times `weights` [K, ...] are rounded.

    `digits` is how many binary digits the type of the elements has.
    """
    if not weights.size:
        return False
    picked = np.linspace(0, len(weights) - 1, min(len(weights), SAMPLE)).astype(int)
    sample = np.asarray(weights[picked], np.float64).reshape(len(picked), -1)
    if not np.isfinite(sample).all():
        return False
    fraction = np.ldexp(np.frexp(sample)[0], digits * 2 // 3)
    long = np.count_nonzero(fraction != np.floor(fraction), axis=0)
    numbers = np.count_nonzero(sample, axis=0)
    enough = (long >= SEVERAL) & (2 * long >= numbers)
    return bool(np.all(enough & (sample.std(axis=0) >= SPREAD * np.abs(sample).max(axis=0))))


def may_be_exact(weights: Array) -> bool:
    """Whether sums over any axes of numbers times `weights` may be exact, or cancel to the bit."""
    if not weights.size or not is_float(weights):
        return False
    digits = _digits(ir.DataType.from_numpy(weights.dtype).name)
    by_first = weights.reshape(
        len(weights) if weights.ndim else 1, -1
    ).T  # kernels of a convolution
    by_last = weights.reshape(-1, weights.shape[-1] if weights.ndim else 1)
    columns = [part for part in (by_first, by_last) if len(part) > 1] or [weights.reshape(-1, 1)]
    return not all(have_all_digits(part, digits) for part in columns)


def is_float(array: Array) -> bool:
    """Whether data is of a type of floats."""
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def _digits(dtype: str) -> int:
    """How many binary digits a type of floats has."""
    return int(limits(dtype).nmant) + 1


def _columns(value: Value, constants: ConstantLookup) -> Array | None:
    """The weights [K, ...] of a product over K without a bias; None of other values."""
    node = value.node
    if not isinstance(node.op, Operator) or len(node.inputs) != 2:
        return None
    left, right = node.inputs
    if node.op.name == "MatMul" and left.is_constant != right.is_constant:
        array = constants(right if right.is_constant else left)
        if array is None:
            return None
        along = -1 if left.is_constant or array.ndim == 1 else -2
        return np.moveaxis(array, along, 0)
    if node.op.name == "Conv" and right.is_constant and not left.is_constant:
        array = constants(right)
        return None if array is None else array.reshape(len(array), -1).T
    return None
