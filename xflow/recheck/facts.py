"""Checks of rewrites by facts about values: the new value is compared with the old one.

Each check returns the reason why a rewrite is not confirmed, or an empty text.
`xflow.analysis.value_rewrites.basis` says which check belongs to which fact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from xflow.core.assumptions import Assumption, moderate
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.core.node import Node, Opaque, Value
from xflow.core.registry import Operator
from xflow.core.sorts import BOOL, FLOATS
from xflow.recheck.bounds import Analysis, is_test
from xflow.recheck.interval import PRECISION, Bounds, largest
from xflow.recheck.moved import moved_elsewhere


class Facts:
    """Checks of rewrites in a graph whose constants `constants` serves.

    `assumption` holds where a rewrite is about masks; elsewhere nothing is assumed. That a mask of
    ones and zeros is one holds where it is raised or hides scores, and not where the model tests
    for what is no number.
    """

    def __init__(self, graph: Graph, constants: ConstantLookup, assumption: Assumption) -> None:
        self._strict = Analysis(graph, constants, Assumption.NONE)
        self._assumed = Analysis(graph, constants, assumption)
        self._of_masks = Analysis(graph, constants, assumption, inverted_masks=True)

    # Constant data ------------------------------------------------------------------------------

    def equal_constants(self, before: Value, after: Value) -> str:
        """Whether an operator is applied to the same values, bit by bit, but for how they are made.

        Constants are computed on both sides and compared.
        """
        changed = _changed_inputs(before, after)
        if changed is None:
            return "it is another operator"
        for old, new in changed:
            first, second = self._strict.data(old), self._strict.data(new)
            if first is None or second is None or old.type.dtype != new.type.dtype:
                return "what is read is no constant"
            rank = max(first.ndim, second.ndim)
            shapes = [(1,) * (rank - each.ndim) + each.shape for each in (first, second)]
            if shapes[0] != shapes[1] or first.tobytes() != second.tobytes():
                return "the constants differ"
        return ""

    def written_slices(self, before: Value, after: Value) -> str:
        """Whether elements that are joined are those that are scattered, each in its place."""
        return moved_elsewhere(before, after, self._strict.data)

    # Interval analysis --------------------------------------------------------------------------

    def decided_test(self, before: Value, after: Value) -> str:
        """Whether an operator reads false in place of tests that no element can pass."""
        changed = _changed_inputs(before, after)
        if changed is None:
            return "it is another operator"
        for old, new in changed:
            if not (new.type.dtype == BOOL and _scalar(new) == 0):
                return "a test is put to something else than false"
            reason = self._may_pass(old)
            if reason:
                return reason
        return ""

    def _may_pass(self, test: Value) -> str:
        """Why an element might pass a test; nothing where none can."""
        for name in ("IsNaN", "IsInf"):
            if not is_test(test, name):
                continue
            (tested,) = test.node.inputs
            known = self._of(tested)
            passes = known.nan if name == "IsNaN" else known.plus or known.minus
            return "by the second analysis, an element may pass the test" if passes else ""
        return "it is no test for what is no number"

    def _of(self, tested: Value) -> Bounds:
        """What is known of what is tested; of weights by what may be taken for granted of masks."""
        node = tested.node
        is_weight = isinstance(node.op, Operator) and node.op.weights_along is not None
        if is_weight and not self._assumed.reads_inputs(node.inputs[0]):
            return self._assumed.of(tested)
        return self._strict.of(tested)

    def covered_rows(self, before: Value, after: Value) -> str:
        """Whether weights that are 0 where they are NaN are so where their mask covers a row.

        ``MatMul(Where(IsNaN(p), 0, p), v)`` for ``p = Softmax(s + m)`` is compared with
        ``Where(ReduceMax(m) < l, 0, MatMul(Softmax(s + Max(m, c)), v))``.
        """
        chosen, old = _inputs(after, "Where"), _inputs(before, "MatMul")
        new = _inputs(chosen[2], "MatMul") if chosen is not None else None
        if chosen is None or old is None or new is None or after.type != before.type:
            return "it is no product with a choice in place of another"
        guard = _inputs(old[0], "Where")
        if guard is None or _scalar_of(self._strict, guard[1]) != 0 or _scalar(chosen[1]) != 0:
            return "what has no weight is not 0"
        weights = guard[2]
        if not is_test(guard[0], "IsNaN") or guard[0].node.inputs != (weights,) or old[1] != new[1]:
            return "something else is guarded or multiplied"
        if len(old[1].shape) < 2 or len(weights.shape) < 2:
            return "the rows of the product are not those of the weights"
        sums = [_inputs(each, "Softmax") for each in (weights, new[0])]
        if sums[0] is None or sums[1] is None or not _is_same_operator(weights, new[0]):
            return "the weights are not those of one softmax"
        if weights.node.attributes["axis"] != len(weights.shape) - 1:
            return "the weights do not lie along the last axis"
        summands, others = _inputs(sums[0][0], "Add"), _inputs(sums[1][0], "Add")
        for scores, mask in (summands, summands[::-1]) if summands and others else ():
            raised = [each for each in others or () if each != scores]
            if scores in (others or ()) and len(raised) == 1:
                return self._tells(sums[0][0], scores, mask, raised[0], chosen[0])
        return "the sum is not that of the scores and a mask"

    def _tells(
        self, total: Value, scores: Value, mask: Value, raised: Value, covered: Value
    ) -> str:
        """Why a mask may not tell by itself which rows of a sum are covered; nothing where it does.

        `raised` is to be the mask with a number for -inf, `covered` that a row has nothing else.
        """
        dtype = mask.type.dtype
        parts, compared = _inputs(raised, "Max"), _inputs(covered, "Less")
        if parts is None or mask not in parts or len(parts) != 2 or compared is None:
            return "the mask is not raised, or not asked"
        (lowest,) = (_scalar(each) for each in parts if each != mask)
        limit, most = _scalar(compared[1]), _inputs(compared[0], "ReduceMax")
        last = {"axes": (len(mask.shape) - 1,), "keepdims": 1}
        if most != (mask,) or dict(compared[0].node.attributes) != last:
            return "it is not the largest element of each row of the mask that is asked"
        if dtype not in ("FLOAT", "DOUBLE") or lowest is None or limit is None:
            return "no number stands for -inf"
        analysis = self._strict if self._assumed.reads_inputs(total) else self._assumed
        known, least = analysis.of(scores), analysis.of(mask)
        bound = moderate(dtype)
        if not known.is_finite or known.magnitude > bound or least.nan or least.plus:
            return "by the second analysis, scores or the mask may be none of moderate numbers"
        numbers = max(abs(least.low), abs(least.high)) if least.low <= least.high else 0.0
        # Beside a moderate number, what is so low has no weight, and it stays finite.
        if numbers > bound or not -largest(dtype) < lowest < -largest(dtype) / 4:
            return "what is in the place of -inf may have a weight"
        return "" if lowest < limit < -bound else "what is asked of the mask tells nothing"

    # Floating point -----------------------------------------------------------------------------

    def lost_scores(self, before: Value, after: Value) -> str:
        """Whether a choice is a sum in floats, since scores are lost beside what replaces them.

        ``Where(c, s, m)`` is ``s + Where(c, 0, m)``, and ``Max(s + m, l)`` is ``s + Max(m, l)``;
        ``Where(c, s, m) + n`` is ``s + (Where(c, 0, m) + n)`` if no element of `n` is above 0.
        """
        added = _inputs(after, "Add")
        if added is None or after.type != before.type:
            return "no sum is put in place"
        for scores, made in (added, added[::-1]):
            low = self._replaced_by(before, scores, made)
            if low is not None:
                return self._absorbs(low, scores)
            both, old = _inputs(made, "Add"), _inputs(before, "Add")
            for choice, other in (old, old[::-1]) if both is not None and old is not None else ():
                masks = [each for each in both or () if each != other]
                low = self._replaced_by(choice, scores, masks[0]) if len(masks) == 1 else None
                if low is not None and _inputs(choice, "Where") is not None:
                    return self._absorbs(low, scores) or self._may_raise(other)
        return "the sum is not that of the scores and a mask"

    def _may_raise(self, mask: Value) -> str:
        """Why what is added to another mask may be above 0; nothing where it is not."""
        for analysis in (self._strict, self._of_masks):
            known = analysis.of(mask)
            if not (known.nan or known.plus) and known.low <= known.high <= 0:
                return ""
        return "by the second analysis, an element of the other mask may be above 0"

    def _replaced_by(self, before: Value, scores: Value, made: Value) -> Value | None:
        """The mask beside which scores have to be lost, where the forms are the right ones."""
        chosen, masked = _inputs(before, "Where"), _inputs(made, "Where")
        if chosen is not None and masked is not None and chosen[0] == masked[0]:
            for place in (1, 2):
                low = chosen[3 - place]
                zero = _scalar(masked[place]) == 0
                if chosen[place] == scores and zero and masked[3 - place] == low:
                    return low
        kept, least = _inputs(before, "Max"), _inputs(made, "Max")
        if kept is not None and least is not None and len(kept) == len(least) == 2:
            for total, low in (kept, kept[::-1]):
                summands = _inputs(total, "Add")
                for mask in least if summands is not None and low in least else ():
                    both = {mask, low} == set(least) and {scores, mask} == set(summands or ())
                    if both and mask != low:
                        return low
        return None

    def _absorbs(self, mask: Value, scores: Value) -> str:
        """Why scores may leave a trace beside a mask; nothing where none can."""
        dtype = mask.type.dtype
        data = self._strict.data(mask) if dtype in FLOATS else None
        if data is None or not data.size:
            return "the mask is no constant"
        assumed = not self._strict.depends_on_inputs(scores)
        known = (self._of_masks if assumed else self._strict).of(scores)
        if not known.is_finite:
            return "by the second analysis, a score may be no number"
        wide = data.astype(np.float64)
        if np.isnan(wide).any() or wide.max() >= 0:
            return "an element of the mask is not negative"
        if not np.isfinite(wide.max()):
            return ""
        # Within a quarter of the distance to its neighbours, a number stays what it is.
        digits, _ = PRECISION[dtype]
        _, exponent = math.frexp(float(wide.max()))
        if known.magnitude >= math.ldexp(1, exponent - digits - 2):
            return "a score may leave its trace beside the mask"
        return ""

    def lost_exponentials(self, before: Value, after: Value) -> str:
        """Whether a choice is a Softplus: it is that, or its argument where floats are the same.

        ``Softplus(x)`` is ``x + log(1 + exp(-x))``, and `x` where the exponential is lost beside 1.
        """
        chosen, source = _inputs(before, "Where"), _inputs(after, "Softplus")
        if chosen is None or source is None or after.type != before.type:
            return "it is no choice that a Softplus takes the place of"
        (x,) = source
        condition, *sides = chosen
        if set(sides) != {x, after}:
            return "the choice is not one between a Softplus and its argument"
        for name, swapped in (("Greater", False), ("Less", True)):
            compared = _inputs(condition, name) or _inputs(condition, f"{name}OrEqual")
            if compared is None:
                continue
            high, low = compared[::-1] if swapped else compared
            threshold = low if sides[0] == x else high
            if {high, low} == {x, threshold} and threshold != x:
                return self._is_lost_beyond(threshold)
        return "the argument is not compared with a threshold, or chosen below it"

    def _is_lost_beyond(self, threshold: Value) -> str:
        """Why 1 may not absorb the exponential of the negative of what is beyond a threshold."""
        dtype = threshold.type.dtype
        data = self._strict.data(threshold) if dtype in FLOATS else None
        if data is None or not data.size:
            return "the threshold is no constant"
        digits, _ = PRECISION[dtype]
        # exp(-x) < 2 ** -(digits + 2), a quarter of what 1 keeps, for x > (digits + 2) * log(2).
        absorbed = data.astype(np.float64) > (digits + 2) * math.log(2)
        return "" if absorbed.all() else "an exponential may leave its trace beside 1"

    def raised_masks(self, before: Sequence[Value], after: Sequence[Value]) -> str:
        """Whether values differ in masks alone, in which the least float was raised by one unit."""
        checked: set[tuple[Value, Value]] = set()
        stack = list(zip(before, after, strict=True))
        while stack:
            old, new = stack.pop()
            if old == new or (old, new) in checked:
                continue
            checked.add((old, new))
            if not _is_same_operator(old, new):
                return "more is changed than a mask"
            op = old.node.op
            mask = op.mask if isinstance(op, Operator) else None
            pairs = zip(old.node.inputs, new.node.inputs, strict=True)
            for place, (first, second) in enumerate(pairs):
                inner = second if place != mask or first == second else self._unraised(second)
                if inner is None:
                    return "a mask is not raised by one unit in the last place"
                stack.append((first, inner))
        return ""

    def _unraised(self, value: Value) -> Value | None:
        """The mask of which a value is the one that is raised; the value itself where none is."""
        dtype = value.type.dtype
        if dtype not in FLOATS:
            return None
        digits, exponent = PRECISION[dtype]
        least = -Fraction(largest(dtype))
        above = least + Fraction(2) ** (exponent + 1 - digits)
        greatest, chosen = _inputs(value, "Max"), _inputs(value, "Where")
        if greatest is not None and above in map(_scalar, greatest):
            (mask, *others) = [each for each in greatest if _scalar(each) != above]
            return mask if not others and self._of_masks.of(mask).is_finite else None
        if chosen is not None and _scalar(chosen[1]) == above:
            compared, mask = _inputs(chosen[0], "Equal") or (), chosen[2]
            numbers = [_scalar(each) for each in compared if each != mask]
            return mask if mask in compared and numbers == [least] else None
        return value


def _changed_inputs(before: Value, after: Value) -> list[tuple[Value, Value]] | None:
    """The inputs in which two outputs of one operator differ; None for two operators."""
    if not _is_same_operator(before, after):
        return None
    pairs = zip(before.node.inputs, after.node.inputs, strict=True)
    return [(old, new) for old, new in pairs if old != new]


def _is_same_operator(one: Value, other: Value) -> bool:
    """Whether both are the same output of the same operator, whatever it reads."""
    return one.index == other.index and _signature(one.node) == _signature(other.node)


def _signature(node: Node) -> object:
    """What tells an operator apart, its inputs aside."""
    if isinstance(node.op, Operator | Opaque):
        key = node.op.name if isinstance(node.op, Operator) else node.op.key
        return type(node.op), key, dict(node.attributes), node.types, len(node.inputs)
    return node


def _inputs(value: Value, name: str) -> tuple[Value, ...] | None:
    """The inputs of a value that such an operator makes."""
    node = value.node
    return node.inputs if isinstance(node.op, Operator) and node.op.name == name else None


def _scalar_of(analysis: Analysis, value: Value) -> float | None:
    """The number that a constant of one element holds."""
    data = analysis.data(value)
    return float(data.reshape(-1)[0]) if data is not None and data.size == 1 else None


def _scalar(value: Value) -> Fraction | None:
    """The number that a value is by itself."""
    node = value.node
    if not isinstance(node.op, Operator) or node.op.name != "Scalar":
        return None
    number = node.attributes["value"]
    return number if isinstance(number, Fraction) else None
