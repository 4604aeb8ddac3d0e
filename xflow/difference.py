"""How much two values of a model's output differ, and whether that is too much."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

ROUNDINGS = 8  # an output's own type may be too coarse for `rtol`: so many roundings are allowed


@dataclass(frozen=True)
class Difference:
    """How two values of one output differ; `reason` is empty if they agree well enough."""

    max_abs: float = 0.0
    max_rel: float = 0.0
    reason: str = ""


def difference(before: Any, after: Any, rtol: float, atol: float) -> Difference:
    """Compare two values of one output: arrays, or lists and dictionaries of them.

    Real numbers agree if |before - after| <= max(atol, rtol * max(|before|, scale)), where `scale`
    is the lower quartile of the nonzero |before|; all else, NaNs and infinities too, must be equal.
    """
    if isinstance(before, list | dict) or isinstance(after, list | dict):
        return _nested_difference(before, after, rtol, atol)
    if before is None or after is None:
        same = before is None and after is None
        return Difference(reason="" if same else "is present in only one of the models")
    a, b = np.asarray(before), np.asarray(after)
    if a.dtype != b.dtype:
        return Difference(reason=f"has type {a.dtype} before and {b.dtype} after")
    if a.shape != b.shape:
        return Difference(reason=f"has shape {list(a.shape)} before and {list(b.shape)} after")
    if a.dtype.kind not in "fcV":  # integers, booleans, strings
        return _exact_difference(a, b)
    rtol = max(rtol, ROUNDINGS * _epsilon(a.dtype))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return _real_difference(a.astype(wide), b.astype(wide), rtol, atol)


def _nested_difference(before: Any, after: Any, rtol: float, atol: float) -> Difference:
    if type(before) is not type(after) or len(before) != len(after):
        return Difference(reason="has another number of elements")
    if isinstance(before, dict):
        if before.keys() != after.keys():
            return Difference(reason="has other keys")
        pairs = [(value, after[key]) for key, value in before.items()]
    else:
        pairs = list(zip(before, after, strict=True))
    found = [difference(a, b, rtol, atol) for a, b in pairs]
    return Difference(
        max((each.max_abs for each in found), default=0.0),
        max((each.max_rel for each in found), default=0.0),
        next((each.reason for each in found if each.reason), ""),
    )


def _exact_difference(a: np.ndarray, b: np.ndarray) -> Difference:
    wrong = a != b
    if not wrong.any():
        return Difference()
    reason = f"differs in {int(wrong.sum())} of {wrong.size} elements{_first(wrong, a, b)}"
    if a.dtype.kind not in "iu":
        return Difference(reason=reason)
    return Difference(float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()), 0.0, reason)


def _real_difference(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> Difference:
    wrong = np.isnan(a) != np.isnan(b)
    if wrong.any():
        return Difference(reason=f"is NaN in only one of the models{_first(wrong, a, b)}")
    infinite = np.isinf(a) | np.isinf(b)
    wrong = infinite & (a != b)
    if wrong.any():
        return Difference(reason=f"is infinite in only one of the models{_first(wrong, a, b)}")
    finite = np.isfinite(a)
    error = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0))
    if not error.size:
        return Difference()
    size = np.abs(np.where(finite, a, 0))
    nonzero = size[size > 0]
    scale = float(np.percentile(nonzero, 25)) if nonzero.size else 0.0
    # An output that is all zero has no scale but the one at which errors start to matter.
    floor = scale or (atol / rtol if rtol > 0 and atol > 0 else 1.0)
    worst = float((error / np.maximum(size, floor)).max())
    wrong = error > np.maximum(atol, rtol * np.maximum(size, scale))
    reason = ""
    if wrong.any():
        reason = f"differs by {worst:.2g} relative, {rtol:.2g} is allowed{_first(wrong, a, b)}"
    return Difference(float(error.max()), worst, reason)


def _epsilon(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of a type, numpy's own or an extension."""
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def _first(wrong: np.ndarray, a: np.ndarray, b: np.ndarray) -> str:
    """Say where the first wrong element is and what it holds."""
    index = tuple(int(each) for each in np.argwhere(wrong)[0])
    return f": element {list(index)} is {_show(a[index])} before and {_show(b[index])} after"


def _show(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | complex) else str(value)
