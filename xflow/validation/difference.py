"""Comparison of two values of a model's output: their difference, judged by tolerances.

Tolerances are relative: to each element, to the typical magnitude of its row, and to that of the
output.  Where a more exact value of the output is known, it separates the runtime's rounding errors
in the input model from errors of a rewrite.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

ROUNDINGS = 8
"""An output's own type may be too coarse for `rtol`: so many roundings are allowed."""
ROW = 8
"""Elements along the last axis from which on they are a row with a magnitude of its own."""
SAMPLED = 1024
"""Elements of a row from which its typical magnitude is estimated."""
AS_NEAR = 4.0
"""A rewritten model may be so many times as far from the exact result as the input model is."""
AMPLIFIED = 1000.0
"""The same on extreme inputs: models of many layers amplify rounding there, and a kernel that sums
up in another order rounds by a hundred times as much."""
MEANINGFUL = 0.25
"""The largest error of the input model, relative to the largest exact element, at which its result
counts as an approximation, and not as a value on the other side of a threshold."""
RESIDUE = 1e-4
"""Elements below this may be rounding errors of differences that are zero."""
AS_MANY = 4
"""And in so many times as many elements."""
TURN = 8.0
"""A sign or an order of largest elements may turn within so many times what is allowed so."""
FLOOR = 1e-3
"""The error of one rounding that is assumed for that at most, relative to the row's maximum."""
EXACTLY = 1e-6
"""By how much results in float64 that are the same may differ, relative to an element."""
NEARER = 1e-4
"""Or relative to how far they are apart in their own type: 64 bits have 29 digits more than 32."""
CODES = 4 / 255
"""By how much of its largest element an output of a model with codes of 8 bits may differ where the
runtime fuses other operators: some of what it rounds to codes lies half-way between two."""
ROUNDED = 2.0**-10
"""What rounded factors (TF32, of 11 digits) may add to that, as a part of the largest element."""
SIGMOID = 3e-7
"""By how much two results of the runtime's Sigmoid may differ where its arguments hardly do: it is
one half and a rational function, and up to 1.7e-7 off, also where its results are small."""
TOP = 5
"""Largest elements of a row whose order is compared."""


@dataclass(frozen=True)
class Difference:
    """How two values of one output differ; `reason` is empty if they agree well enough.

    `own` is the largest relative error of the value before, against the more exact one; None where
    there is none.  `doubtful`: with a more exact value, the verdict may be another one.
    `refined`: the only difference is that elements are numbers that were none before.
    `tolerated`: all elements are within the tolerances, and what differs is more than rounding
    explains.
    """

    max_abs: float = 0.0
    max_rel: float = 0.0
    reason: str = ""
    own: float | None = None
    doubtful: bool = False
    refined: bool = False
    tolerated: bool = False


@dataclass(frozen=True)
class Allowance:
    """The tolerances of a comparison.

    A real element may differ by max(rtol * max(|before|, row), atol * min(1, largest)), where `row`
    is the lower quartile of the nonzero magnitudes of the element's row along the last axis (if it
    has at least 8 elements; else of the output), and `largest` the largest magnitude of the output:
    `atol` is absolute for outputs around 1 and above, and relative to small ones.  An output that
    is zero everywhere has no magnitude: there, it is absolute, too.  At least 8 roundings of the
    output's type are allowed.  With `refines`, elements that are no numbers before may be anything;
    else they must stay the same.

    `precise`: the more exact values are in float64 throughout.  Then they judge what is within
    these tolerances, too: signs, the order of the largest elements, and elements that only `atol`
    permits.
    The result after may be `near` times as far from them as the one before.

    `kernel`: how far apart two results of the kernel that makes the output may be.
    """

    rtol: float = 1e-3
    atol: float = 1e-5
    refines: bool = False
    precise: bool = False
    near: float = AS_NEAR
    kernel: float = 0.0


def difference(
    before: Any, after: Any, rtol: float, atol: float, *, refines: bool = False
) -> Difference:
    """Compare two values of one output: arrays, or lists and dictionaries of them."""
    return compare(before, after, Allowance(rtol, atol, refines))


def compare(before: Any, after: Any, allowance: Allowance, exact: Any = None) -> Difference:
    """Compare two values of one output; `exact` is a more exact value, if there is one.

    A larger difference is accepted if the value after is as near to the exact value as the value
    before: the element within the factor `near`, or all elements together, the k-th largest error
    of the one at most so many times the k/4-th largest of the other.
    """
    if isinstance(before, list | dict) or isinstance(after, list | dict):
        return _nested_difference(before, after, allowance, exact)
    if before is None or after is None:
        same = before is None and after is None
        return Difference(reason="" if same else "is present in only one of the models")
    a, b = np.asarray(before), np.asarray(after)
    if a.dtype != b.dtype:
        return Difference(reason=f"has type {a.dtype} before and {b.dtype} after")
    e = None if exact is None else np.asarray(exact)
    if e is not None and e.shape != a.shape:
        # How many elements there are depends on rounding, as of boxes that do not overlap.
        return Difference()
    if a.shape != b.shape:
        reason = f"has shape {list(a.shape)} before and {list(b.shape)} after"
        return Difference(reason=reason, doubtful=e is None)
    if e is None and a.dtype.kind != "O" and a.tobytes() == b.tobytes():
        return Difference()
    if a.dtype.kind not in "fcV":  # integers, booleans, strings
        return _exact_difference(a, b, e)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    kind = ml_dtypes.finfo(a.dtype)  # type: ignore[no-untyped-call]
    return _Real(
        a.astype(wide),
        b.astype(wide),
        None if e is None else e.astype(wide),
        allowance,
        float(kind.eps),
        float(kind.smallest_subnormal),
    ).difference()


def is_by_rounding(before: Any, after: Any, exact: Any, other: Any) -> bool:
    """Whether two values of an output differ by rounding: their float64 forms hardly do."""
    if any(isinstance(each, list | dict) or each is None for each in (before, exact, other)):
        return False
    a, b, one, two = map(np.asarray, (before, after, exact, other))
    if not a.shape == b.shape == one.shape == two.shape or one.dtype != two.dtype:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, two))
    numbers = np.isfinite(one) & np.isfinite(a) & np.isfinite(b)
    a, b, one, two = (each[numbers].astype(np.float64) for each in (a, b, one, two))
    size = np.abs(one)
    floor = ROUNDINGS**2 * np.finfo(np.float64).eps * size.max(initial=0.0)
    allowed = np.maximum(np.maximum(EXACTLY * size, NEARER * np.abs(a - b)), floor)
    return bool((np.abs(one - two) <= allowed).all())


def error_of(value: Any, exact: Any) -> float:
    """The largest error of an output of reals or codes, relative to its largest exact element.

    0 for what is neither.
    """
    if isinstance(value, list | dict) or value is None or isinstance(exact, list | dict):
        return 0.0
    a, e = np.asarray(value), np.asarray(exact)
    if a.shape != e.shape or not (a.dtype.kind == "f" or _are_codes(a)):
        return 0.0
    both = np.isfinite(a) & np.isfinite(e)
    codes = _are_codes(a)
    a, e = (np.where(both, each, 0).astype(np.float64) for each in (a, e))
    largest = 255.0 if codes else float(np.abs(e).max(initial=0.0))
    return float(np.abs(a - e).max(initial=0.0)) / largest if largest else 0.0


def is_as_finite(before: Any, after: Any) -> bool:
    """Whether an output has a number wherever the one before has; what is no tensor always does."""
    if any(isinstance(each, list | dict) or each is None for each in (before, after)):
        return True
    a, b = np.asarray(before), np.asarray(after)
    if a.dtype.kind != "f" or a.shape != b.shape:
        return a.shape == b.shape
    return bool(np.isfinite(b[np.isfinite(a)]).all())


def _are_codes(array: np.ndarray) -> bool:
    """Whether an output is integers of 8 bits."""
    return array.dtype.kind in "iu" and array.dtype.itemsize == 1


def is_same(one: Any, other: Any) -> bool:
    """Whether two values of an output are the same tensor to the bit."""
    if any(isinstance(each, list | dict) or each is None for each in (one, other)):
        return False
    a, b = map(np.asarray, (one, other))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def is_served_otherwise(before: Any, after: Any, one: Any, other: Any, error: float) -> bool:
    """Whether two values of an output differ since the runtime fuses other operators alone.

    `one` and `other` are those of the two models without the runtime's optimizations, and are the
    same to the bit. With them, a real number of the model before is off by up to `error`, see
    `error_of`: that of the one after may be so by `AS_NEAR` times as much, or by `CODES`. Integers,
    codes among them, are those of the model before, with optimizations or without.
    """
    if not is_same(one, other) or any(isinstance(v, list | dict) for v in (before, after)):
        return False
    a, b, e = map(np.asarray, (before, after, one))
    if not a.dtype == b.dtype == e.dtype or not a.shape == b.shape == e.shape:
        return False
    if a.dtype.kind != "f":
        return bool(((b == a) | (b == e)).all())
    finite = np.isfinite(e)
    if not np.isfinite(b[finite]).all() or (~_same_kind(b, e) & ~_same_kind(b, a)).any():
        return False
    return error_of(b, e) <= max(AS_NEAR * error, CODES) or bool((b == e).all())


def is_another(value: Any, exact: Any) -> bool:
    """Whether a supposedly exact value of an output is so far off that it is not its exact form."""
    if isinstance(value, list | dict) or value is None or exact is None:
        return type(value) is not type(exact) or (
            isinstance(value, list | dict) and len(value) != len(exact)
        )
    a, e = np.asarray(value), np.asarray(exact)
    if a.dtype.kind not in "fV":
        return False
    if a.shape != e.shape:
        return True
    both = np.isfinite(a.astype(np.float64)) & np.isfinite(e)
    error = np.abs(np.where(both, a, 0).astype(np.float64) - np.where(both, e, 0))
    size = np.abs(np.where(both, e, 0))
    return bool(both.any()) and bool(error.max() > MEANINGFUL * max(size.max(), RESIDUE))


def _nested_difference(before: Any, after: Any, allowance: Allowance, exact: Any) -> Difference:
    if type(before) is not type(after) or len(before) != len(after):
        return Difference(reason="has another number of elements")
    if isinstance(before, dict):
        if before.keys() != after.keys():
            return Difference(reason="has other keys")
        keys: Any = before.keys()
        fits = isinstance(exact, dict) and exact.keys() == keys
    else:
        keys = range(len(before))
        fits = isinstance(exact, list) and len(exact) == len(before)
    found = [compare(before[k], after[k], allowance, exact[k] if fits else None) for k in keys]
    own = [each.own for each in found if each.own is not None]
    bad = [each for each in found if each.reason]
    return Difference(
        max((each.max_abs for each in found), default=0.0),
        max((each.max_rel for each in found), default=0.0),
        bad[0].reason if bad else "",
        max(own) if own else None,
        any(each.doubtful for each in found),
        bool(bad) and all(each.refined for each in bad),
        bool(bad) and all(each.tolerated for each in bad),
    )


def _exact_difference(a: np.ndarray, b: np.ndarray, e: np.ndarray | None) -> Difference:
    """Compare what must be equal; where it is not, it may be what the exact value is.

    Where the value before is itself not the exact one in some elements, the one after may be so in
    up to four times as many; and as to quantized values, of eight bits, by as much.
    """
    wrong = a != b
    if not wrong.any():
        return Difference()
    doubtful = e is None
    count = int(wrong.sum())
    if e is not None and e.dtype == a.dtype:
        wrong &= b != e
        if a.dtype.kind in "iu" and a.dtype.itemsize == 1:
            ours, own = (np.abs(x.astype(np.float64) - e.astype(np.float64)) for x in (b, a))
            excused = _is_dominated(ours[ours > 0], own, 1.0)
        else:
            excused = int((b != e).sum()) <= AS_MANY * int((a != e).sum())
        if excused:
            wrong = np.zeros_like(wrong)
    size = 0.0
    if a.dtype.kind in "iu":
        size = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())
    if not wrong.any():
        return Difference(size)
    reason = f"differs in {count} of {wrong.size} elements{_first(wrong, a, b)}"
    return Difference(size, 0.0, reason, doubtful=doubtful)


@dataclass(frozen=True)
class _Real:
    """Two values of an output of real or complex numbers, and perhaps a more exact one."""

    a: np.ndarray
    b: np.ndarray
    e: np.ndarray | None
    allowance: Allowance
    epsilon: float
    """The distance from 1 to the next number of the output's type."""
    least: float
    """The smallest positive number of that type."""

    @property
    def normal(self) -> float:
        """The smallest number with all digits; those below, and sums of them, are no more exact."""
        return self.least / self.epsilon

    def difference(self) -> Difference:
        a, b = self.a, self.b
        lost = np.isfinite(a) & ~np.isfinite(b)
        other = np.zeros_like(lost) if self.allowance.refines else self._of_another_kind()
        for wrong in (lost, other):
            if wrong.any():
                nan = (np.isnan(a) != np.isnan(b)) & wrong
                what = "NaN" if nan.any() else "infinite"
                first = _first(nan if nan.any() else wrong, a, b)
                reason = f"is {what} in only one of the models{first}"
                # A more exact value does not excuse a number that became NaN or infinite.
                doubtful = self.e is None and not lost.any()
                found = self._of_finite(np.isfinite(a) & np.isfinite(b))
                return Difference(
                    found.max_abs,
                    found.max_rel,
                    reason,
                    found.own,
                    doubtful or found.doubtful,
                    not lost.any() and not found.reason,
                )
        return self._of_finite(np.isfinite(a) & np.isfinite(b))

    def _of_another_kind(self) -> np.ndarray:
        """Elements that are no numbers before, and are not the same after.

        They may also be as in the exact value: then the runtime differs by itself.
        """
        a, b, e = self.a, self.b, self.e
        wrong: np.ndarray = ~np.isfinite(a) & ~_same_kind(a, b)
        if e is not None:
            wrong &= ~_same_kind(b, e)
        return wrong

    def _of_finite(self, finite: np.ndarray) -> Difference:
        """Compare the elements that are numbers in both."""
        if not finite.any():
            return Difference()
        a, b = np.where(finite, self.a, 0), np.where(finite, self.b, 0)
        rtol = max(self.allowance.rtol, ROUNDINGS * self.epsilon)
        size, error = np.abs(a), np.abs(a - b)
        scale, whole = _magnitudes(size)
        # An output that is all zero has no scale but the one at which errors start to matter.
        near = self.allowance.atol * (min(1.0, float(size.max())) or 1.0)
        near = max(near, self.allowance.kernel)
        floor = near / rtol if near > 0 and rtol > 0 else whole or 1.0
        basis = np.maximum(np.maximum(size, scale), self.normal)
        base = np.maximum(basis, floor)
        relative = rtol * basis + ROUNDINGS * self.least
        allowed = np.maximum(relative, near)
        max_abs, max_rel = float(error.max()), float((error / base).max())
        wrong = error > allowed
        own: float | None = None
        if self.e is not None:
            exact = finite & np.isfinite(self.e)
            e = np.where(exact, self.e, 0)
            ours, mine = (np.where(exact, np.abs(x - e), 0.0) for x in (b, a))
            own = float((mine / base).max())
            wrong &= ~(exact & (ours <= allowed))
            # On extreme inputs, models of many layers are no approximations of anything.
            extreme = self.allowance.near > AS_NEAR
            if extreme or mine.max() <= MEANINGFUL * np.abs(e).max():
                wrong &= ~(exact & (ours <= self.allowance.near * mine))
            else:
                exact = np.zeros_like(exact)
            if wrong.any() and (exact | ~wrong).all():
                large = (ours / base)[ours > allowed]
                if _is_dominated(large, mine / base, self.allowance.near):
                    wrong = np.zeros_like(wrong)
        reason, doubtful = "", self.e is None and bool(wrong.any())
        if wrong.any():
            reason = f"differs by {max_rel:.2g} relative, {rtol:.2g} is allowed"
            reason += _first(wrong, self.a, self.b)
        elif a.dtype.kind == "f" and (self.e is None or self.allowance.precise):
            differs = (error > relative) & finite
            found = self._beyond_rounding(a, b, finite, differs, basis)
            doubtful = bool(found) and self.e is None
            reason = "" if self.e is None else found
        tolerated = bool(reason) and not wrong.any()
        return Difference(max_abs, max_rel, reason, own, doubtful, tolerated=tolerated)

    def _beyond_rounding(
        self,
        a: np.ndarray,
        b: np.ndarray,
        finite: np.ndarray,
        differs: np.ndarray,
        basis: np.ndarray,
    ) -> str:
        """Report a difference within the tolerance that rounding does not explain.

        That may be a sign, an order of largest elements, or an element that `differs` by more than
        the relative tolerance to its `basis`.  Without an exact value, the one before stands in for
        it, and the result is only a suspicion.
        """
        # Elements that are no numbers in a model say nothing of how exact the others are.
        exact = a if self.e is None else np.where(finite & np.isfinite(self.e), self.e, a)
        small = self._small_elements(a, b, exact, differs, basis)
        if small:
            return small
        x, y, e, counted = map(_rows, (a, b, exact, finite))
        if not x.size:
            return ""
        error = np.abs(x - e).max(1, keepdims=True)
        if x.shape[1] < ROW:
            error = error.max(keepdims=True)
        rounding = min(ROUNDINGS * self.epsilon, FLOOR) * np.abs(x).max(1, keepdims=True)
        with np.errstate(over="ignore"):  # nothing differs by more than an infinite limit
            limit = TURN * np.maximum(self.allowance.near * error, AS_NEAR * rounding)
        far = np.abs(y - e) > limit
        if not far.any():
            return ""
        signs = (x * y < 0) & (e * x > 0) & far & counted
        if signs.any():
            place = np.unravel_index(int(np.argmax(signs)), signs.shape)
            return f"has another sign: {_element(_index(place, a.shape), a, b)}"
        lines = np.flatnonzero(far.any(1) & counted.all(1))
        for some in np.array_split(lines, len(lines) // SAMPLED + 1):
            turned = _reordered(x[some], y[some], e[some], limit[some])
            if turned is not None:
                row, first, second = turned
                one, two = (_index((some[row], each), a.shape) for each in (first, second))
                return (
                    f"has its largest elements in another order: {list(one)} is above {list(two)} "
                    "before and below it after"
                )
        return ""

    def _small_elements(
        self, a: np.ndarray, b: np.ndarray, e: np.ndarray, differs: np.ndarray, basis: np.ndarray
    ) -> str:
        """Report an element that only `atol` permits, and that was far more exact before.

        Such are the small classes of a softmax, which are as exact as the large ones, or rows that
        are small beside others.  `basis` is what `rtol` is relative to.  Nothing is reported where
        the value before is not so exact itself.
        """
        own = float((np.abs(a - e) / basis).max())
        rounding = min(ROUNDINGS * self.epsilon, FLOOR)
        limit = TURN * max(self.allowance.near * own, AS_NEAR * rounding)
        off = differs & (np.abs(b - e) / basis > limit)
        return f"differs by more than rounding{_first(off, self.a, self.b)}" if off.any() else ""


def _reordered(
    x: np.ndarray, y: np.ndarray, e: np.ndarray, limit: np.ndarray
) -> tuple[int, int, int] | None:
    """The row, and two elements in it of which the first is larger in `x` and less in `y`.

    One is among the largest in `x`, and in the exact `e` they are apart by more than the limit.
    """
    count = min(TOP, x.shape[1])
    if count < 2 or not len(x):
        return None
    places = np.concatenate(
        [np.argpartition(values, -count, axis=1)[:, -count:] for values in (x, y)], axis=1
    )
    mine, ours, true = (
        np.take_along_axis(values, places, axis=1)[:, :, None]
        - np.take_along_axis(values, places, axis=1)[:, None, :]
        for values in (x, y, e)
    )
    far = limit[:, :, None]
    turned = (mine > 0) & (ours < -far) & (true > 2 * far)
    turned[:, count:, count:] = False
    if not turned.any():
        return None
    row, first, second = np.unravel_index(int(np.argmax(turned)), turned.shape)
    return int(row), int(places[row, first]), int(places[row, second])


def _is_dominated(ours: np.ndarray, own: np.ndarray, factor: float) -> bool:
    """Whether the errors `ours`, by size, are at most `factor` times as large as some of `own`.

    That is: the k-th largest of ours and the k/4-th largest of `own`, from 0.
    """
    if not ours.size:
        return True
    ours = np.sort(ours, axis=None)[::-1]
    own = np.sort(own[own > 0], axis=None)[::-1]
    needed = (len(ours) - 1) // AS_MANY + 1
    if len(own) < needed:
        return False
    return bool((ours <= factor * np.repeat(own[:needed], AS_MANY)[: len(ours)]).all())


def _same_kind(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two values are both numbers, both NaN, or the same infinity."""
    same: np.ndarray = (np.isfinite(a) & np.isfinite(b)) | (np.isnan(a) & np.isnan(b)) | (a == b)
    return same


def _rows(values: np.ndarray) -> np.ndarray:
    """The values as a matrix, whose rows go along the last axis."""
    return values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)


def _magnitudes(size: np.ndarray) -> tuple[np.ndarray, float]:
    """The typical magnitude of each element's row, to be broadcast, and that of the output.

    Rows with fewer than 8 elements, and those that are all zero, have none of their own: a lone
    element near zero is judged by the others.
    """
    whole = float(_quartile(size.reshape(1, -1))[0])
    if size.ndim == 0 or size.shape[-1] < ROW:
        return np.full((1,) * size.ndim, whole), whole
    found = _quartile(_rows(size)).reshape(*size.shape[:-1], 1)
    return np.asarray(found), whole


def _quartile(rows: np.ndarray) -> np.ndarray:
    """The lower quartile of the positive elements of each row; 0 where there are none."""
    sampled = SAMPLED if len(rows) > 1 else 2**20
    rows = rows[:, :: max(1, -(-rows.shape[1] // sampled))]
    count = (rows > 0).sum(1)
    ordered = np.sort(np.where(rows > 0, rows, np.inf), axis=1)
    ordered[count == 0] = 0.0
    place = np.maximum(count - 1, 0) / 4
    low, lines = place.astype(np.int64), np.arange(len(rows))
    first = ordered[lines, low]
    second = ordered[lines, np.minimum(low + 1, np.maximum(count - 1, 0))]
    found: np.ndarray = first + (place - low) * (second - first)
    return found


def _index(place: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element, from its row and its place in it."""
    row, column = (int(each) for each in place)
    flat = row * (shape[-1] if shape else 1) + column
    return tuple(int(each) for each in np.unravel_index(flat, shape)) if shape else ()


def _first(wrong: np.ndarray, a: np.ndarray, b: np.ndarray) -> str:
    """Say where the first wrong element is and what it holds."""
    return f": {_element(tuple(int(each) for each in np.argwhere(wrong)[0]), a, b)}"


def _element(index: tuple[int, ...], a: np.ndarray, b: np.ndarray) -> str:
    return f"element {list(index)} is {_show(a[index])} before and {_show(b[index])} after"


def _show(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | complex) else str(value)
