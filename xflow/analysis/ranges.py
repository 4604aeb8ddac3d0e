"""Range analysis of computed tensors: an abstract interpretation by intervals.

Proofs are about real numbers, NaN and infinities excluded. Whether a rule that is proved for
numbers may be applied at a place of a model depends on whether an element that is computed there
may be NaN or infinite. This module decides it. It evaluates the operators' own specifications
(`at`), with a `Range` in the place of each element.

Known are the data of constants, and that integers and Booleans are numbers. Further facts are
assumed by an `Assumption`:

- ``none``: nothing. A caller may pass infinities, and sums may overflow.
- ``finite-inputs``: inputs of floats are numbers, as images and features are, but for those that
  the model tests and for masks, see `xflow.analysis.inputs`.
- ``moderate``: besides, these are at most `moderate` in magnitude, and sums, products and quotients
  of what is moderate (and not 0, as a divisor) stay so. Exponentials, and powers, quotients by what
  may be 0, logarithms and roots are bounded by intervals alone, whatever is assumed.

Large constants do not count as moderate: two masks of the least float do overflow when they are
added, and a row of the sum may then be -inf throughout. The product of one and 1 minus a mask does
not, see `xflow.analysis.complements`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from xflow.analysis.complements import range_of_mask
from xflow.analysis.elements import element_of, likeness, names_of, own_index
from xflow.analysis.opaque import Made, kind_of
from xflow.analysis.quotients import bound_of_quotient
from xflow.core.assumptions import DEFAULT, Assumption, moderate
from xflow.core.composite import Composite
from xflow.core.constraint import Constraint, at_least, is_true
from xflow.core.errors import ShapeError
from xflow.core.fold import ConstantLookup, Folder
from xflow.core.graph import walk
from xflow.core.intervals import ANYTHING, FUNCTIONS, NOWHERE, Floats, Range, negated
from xflow.core.node import Leaf, MayBe, Node, Opaque, TensorType, Value, apply, leaf
from xflow.core.registry import Array, Operator, broadcast_index
from xflow.core.size import INDEX, free_symbols, opaque_integers, replace_opaque, symbol
from xflow.core.sorts import BOOL, FLOATS, INTEGERS, integer_range
from xflow.core.spec import (
    ONE,
    ZERO,
    Bottom,
    Call,
    Element,
    If,
    Index,
    Literal,
    MaxOver,
    OfSize,
    Order,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    plus,
    times,
)
from xflow.ops import operator
from xflow.ops.shape import Movement

FOLDED = 2**22
"""Most elements of a constant expression whose data is computed."""

LARGEST = {
    "FLOAT": 2.0**128 * (1 - 2.0**-24),
    "DOUBLE": 2.0**1023 * (2 - 2.0**-52),
    "FLOAT16": 65504.0,
    "BFLOAT16": 2.0**127 * (2 - 2.0**-7),
}
"""The largest number of each type of floats."""

ROUNDING = {"FLOAT": 2.0**-24, "DOUBLE": 2.0**-52, "FLOAT16": 2.0**-11, "BFLOAT16": 2.0**-8}
"""The relative error of a rounding to each of them; of the longest, in which bounds are computed,
twice as much."""

TINY = {"FLOAT": 2.0**-150, "DOUBLE": 2.0**-1074, "FLOAT16": 2.0**-25, "BFLOAT16": 2.0**-134}
"""The absolute error of a rounding where numbers are too small for a relative one: half of the
smallest number."""


QUOTIENT = 64.0
"""By how many roundings a normalized element may exceed its bound, see `quotients`."""
ROOM = 64.0
"""By which factor numbers have to be less than the largest float where a kernel may go other ways
than a definition."""
VAST = LARGEST["FLOAT"] / ROOM
"""The magnitude from which elements are masks, such that a sum of two of them may overflow."""
GUARDED = 6
"""Most operators between the value that a choice tests and those that it chooses from."""


class Ranges:
    """The ranges of the values of a graph whose constants `constants` serves, cached.

    They hold under `assumption`.
    """

    def __init__(self, constants: ConstantLookup, assumption: Assumption = DEFAULT) -> None:
        self.constants = constants
        self.assumption = assumption
        self._fold = Folder(constants, stepwise=True)
        self._known: dict[Value, Range] = {}
        self._of_alike: dict[object, Range] = {}
        """By all that `_computed` depends on: most values of a search are like others."""

    def of(self, value: Value) -> Range:
        """The range of a value of any type."""
        if value not in self._known:
            for node in walk([value], self._known):
                for output in node.outputs:
                    if output not in self._known:
                        self._known[output] = self._of(output)
        return self._known[value]

    def _of(self, value: Value) -> Range:
        node, dtype = value.node, value.type.dtype
        if value.is_constant and (source := _permuted(value)) != value:
            known = self.of(source)
            if known.is_real and self.data(source) is not None:
                return known.plain  # the same elements: weights are large, and moved all over
        array = self.data(value)
        if array is not None:
            return of_array(array)
        if dtype == BOOL or dtype in INTEGERS:
            return _of_integers(dtype)
        if dtype not in FLOATS:
            return ANYTHING
        if isinstance(node.op, Leaf):
            return node.op.known or self._of_input(value, node.op)
        return self._made(value, [self._known[source] for source in node.inputs])

    def _of_input(self, value: Value, op: Leaf) -> Range:
        """The range that is assumed of a float input."""
        unknown = self.assumption is Assumption.NONE or value.is_constant
        if unknown or op.may_be is MayBe.ANYTHING:
            return ANYTHING
        numbers = self._numbers(value.type.dtype)
        masks = op.may_be is MayBe.NEGATIVE_INFINITY
        return replace(numbers, reached=NOWHERE) if masks else numbers

    def _numbers(self, dtype: str) -> Range:
        """The range of numbers of which only the assumption is known."""
        assumed = self.assumption >= Assumption.MODERATE
        bound = moderate(dtype) if assumed else LARGEST[dtype]
        return Range(-bound, bound)

    def of_numbers(self, value: Value, part: Scalar) -> Range:
        """The range of a part of an operator's specification where its inputs are numbers.

        See `element_of`. The numbers are those that are known of the inputs.
        """
        inputs = []
        for source in value.node.inputs:
            known = self.of(source)
            if source.type.dtype in FLOATS and known.low <= known.high:
                most = LARGEST[source.type.dtype]
                known = Range(max(known.low, -most), min(known.high, most), nonzero=known.nonzero)
            inputs.append(known)
        return _Reading(value, inputs, self.floats(_float_type(value.type.dtype))).part(part)

    def without_nan(self, value: Value, part: Scalar) -> Range:
        """The same where no element of its inputs is NaN; infinite ones may be."""
        inputs = [replace(self.of(source), nan=False) for source in value.node.inputs]
        return _Reading(value, inputs, self.floats(_float_type(value.type.dtype))).part(part)

    def with_numbers(self, value: Value, sources: Collection[Value]) -> Range:
        """The range of a value if numbers were in `sources` where an element may be -inf.

        Of other nodes than those on the way from `sources` nothing changes.
        """
        known = {source: self.of(source) for source in sources}
        for source, before in known.items():
            if before.minus and source.type.dtype in FLOATS:
                low, high = (before.low, before.high) if before.low <= before.high else (0.0, 0.0)
                known[source] = Range(low, high, nan=before.nan, plus=before.plus)
        for node in walk([value], known):
            changed = any(known[v] != self.of(v) for v in node.inputs)
            inputs = [known[v] for v in node.inputs]
            for output in node.outputs:
                known[output] = self._computed(output, inputs) if changed else self.of(output)
        return known[value]

    def is_real_with(self, node: Node, value: Value, other: Range) -> bool:
        """Whether an operator's results stay numbers, as far as they are, if `value` is `other`."""
        for output in node.outputs:
            if output.type.dtype in FLOATS and self.of(output).is_real:
                inputs = [other if v == value else self.of(v) for v in node.inputs]
                if not self._computed(output, inputs).is_real:
                    return False
        return True

    def floats(self, dtype: str) -> Floats:
        """The assumed arithmetic of a type of floats."""
        assumed = self.assumption >= Assumption.MODERATE
        return Floats(
            LARGEST[dtype], moderate(dtype) if assumed else None, ROUNDING[dtype], TINY[dtype]
        )

    def data(self, value: Value) -> Array | None:
        """The data of a constant, if it is a leaf or small."""
        return self._fold.up_to(FOLDED, value)

    def _made(self, value: Value, inputs: Sequence[Range]) -> Range:
        """The range of an operator's output, from those of its inputs."""
        node = value.node
        if isinstance(node.op, Opaque):
            return self._opaque(value, inputs)
        bound = bound_of_quotient(value, self._known.__getitem__)
        if bound is not None:
            floats = self.floats(_float_type(value.type.dtype))
            return Range(*floats.rounded(-bound, bound, QUOTIENT))
        if self.assumption >= Assumption.MODERATE:
            mask = range_of_mask(value, self._known.__getitem__)
            if mask is not None and not mask.within(moderate(_float_type(value.type.dtype))):
                return mask
        chosen = self._chosen(value, inputs, self._known)
        return self._computed(value, inputs) if chosen is None else chosen

    def _opaque(self, value: Value, inputs: Sequence[Range]) -> Range:
        """The range of floats that an operator makes of which only its name is known."""
        node, dtype = value.node, value.type.dtype
        assert isinstance(node.op, Opaque)
        name = node.op.op_type
        if node.op.known is not None:
            return node.op.known
        if name == "Cast" and node.inputs[0].type.dtype != BOOL and len(inputs) == 1:
            (whole,) = inputs
            return self.floats(dtype).closed(
                whole.low, whole.high, (whole,),
                minus=whole.minus, plus=whole.plus, nan=whole.nan,
            )  # fmt: skip
        if name in ARITHMETIC and len(inputs) == 2:
            leaves = [leaf(name, TensorType(dtype, ())) for name in "ab"]
            if node.inputs[0] == node.inputs[1]:
                leaves = leaves[:1] * 2
            (element,) = apply(operator(name), leaves, {})
            return self._computed(element, inputs).plain
        if name == "Pad" and dtype in FLOATS:
            return self._padded(node, inputs)
        kind = kind_of(name)
        floats = [
            known.plain
            for known, source in zip(inputs, node.inputs, strict=True)
            if source.type.dtype in FLOATS
        ]
        if kind is Made.NUMBERS or (kind is Made.SUMS and self._sums_are_numbers(node, inputs)):
            return self._numbers(dtype)
        if kind is Made.ELEMENTS and floats:
            found = Range(0.0, 0.0)
            for each in floats:
                found = found.join(each)
            if name == "Clip" and found.is_infinite:  # bounds that are left out are numbers
                found = replace(found, low=-LARGEST[dtype], high=LARGEST[dtype])
            return found
        return ANYTHING

    def _padded(self, node: Node, inputs: Sequence[Range]) -> Range:
        """The range of a tensor with a border of any elements, as before a pooling by maximum.

        The widths and what they consist of are inputs since opset 11; before, they are unknown.
        """
        others = list(zip(node.inputs, inputs, strict=True))[1:]
        widths = [self.data(v) for v, _ in others if v.type.dtype not in FLOATS]
        values = [known for v, known in others if v.type.dtype in FLOATS]
        if not widths or len(values) > 1:
            return ANYTHING
        inner, value = inputs[0].plain, values[0] if values else Range(0.0, 0.0)
        found = inner.join(value.plain)
        rank = len(node.inputs[0].shape)
        if inner.minus or widths[0] is None or widths[0].size != 2 * rank or len(widths) > 1:
            return found
        begins, ends = np.maximum(widths[0].reshape(2, rank), 0).astype(int).tolist()
        return replace(found, border=tuple(zip(begins, ends, strict=True)))

    def _sums_are_numbers(self, node: Node, inputs: Sequence[Range]) -> bool:
        dtypes = {*(value.type.dtype for value in node.inputs), *(t.dtype for t in node.types)}
        least = min(map(moderate, dtypes.intersection(FLOATS)), default=0.0)
        return self.assumption >= Assumption.MODERATE and all(
            known.is_real and (source.type.dtype not in FLOATS or known.within(least))
            for known, source in zip(inputs, node.inputs, strict=True)
        )

    def _computed(self, value: Value, inputs: Sequence[Range], within: str = "") -> Range:
        """The range of a registered operator's output, `within` a definition in that type."""
        dtype = value.type.dtype
        if dtype == BOOL or dtype in INTEGERS:
            return _of_integers(dtype)
        if _below_maximum(value) is not None:  # what its inputs are made of tells more
            return self._read(value, inputs, within)
        key = _alike(value, inputs, within)
        found = self._of_alike.get(key)
        if found is None:
            found = self._of_alike[key] = self._read(value, inputs, within)
        return found

    def _read(self, value: Value, inputs: Sequence[Range], within: str) -> Range:
        """The range of an operator's output of floats, from its specification."""
        node, dtype = value.node, value.type.dtype
        assert isinstance(node.op, Operator)
        floats = self.floats(_float_type(within or dtype))
        shapes = [source.shape for source in node.inputs]
        special = node.op.bounds(inputs, shapes, node.attributes, floats)
        if special is not None:
            return special
        if isinstance(node.op, Composite):
            return self._composite(value, inputs, within or dtype)
        reading = _Reading(value, inputs, floats)
        found = reading.range()
        if not node.op.elementwise:
            return found
        return _elementwise(reading, found)

    def _composite(self, value: Value, inputs: Sequence[Range], dtype: str) -> Range:
        """The range of an operator that is defined by others, which compute in the same type.

        On the way, its kernel may compute larger numbers than the definition does, as where halves
        are taken last.
        """
        node = value.node
        assert isinstance(node.op, Composite)
        leaves, outputs = node.op.definition([v.shape for v in node.inputs], node.attributes)
        inner = dict(zip(leaves, inputs, strict=True))
        for part in walk(outputs):
            for output in part.outputs:
                if output not in inner:
                    below = [inner[v] for v in part.inputs]
                    inner[output] = self._computed(output, below, dtype)
        found = inner[outputs[value.index]]
        near = LARGEST[_float_type(dtype)] / ROOM
        is_safe = not found.is_real or found.within(near) or not any(map(_computes, walk(outputs)))
        return found if is_safe else ANYTHING

    # Choices ------------------------------------------------------------------------------------

    def _chosen(
        self, value: Value, inputs: Sequence[Range], known: Mapping[Value, Range]
    ) -> Range | None:
        """The range of an elementwise operator that has a condition; None for all others.

        Each of its readings knows what the condition says of what it tests.
        """
        node = value.node
        if not isinstance(node.op, Operator) or not node.op.elementwise or not node.inputs:
            return None
        tests = [k for k, v in enumerate(node.inputs) if v.type.dtype == BOOL]
        if len(tests) != 1 or value.type.dtype not in FLOATS:
            return None
        (position,) = tests
        condition = node.inputs[position]
        array = self.data(condition)
        found: dict[bool, Range] = {}
        for holds in (True, False):
            if array is not None and array.size and not np.any(array.astype(bool) == holds):
                continue
            told = told_by(condition, holds, known)
            sides = [
                self._under(v, told, known, GUARDED) if told and k != position else inputs[k]
                for k, v in enumerate(node.inputs)
            ]
            floats = self.floats(_float_type(value.type.dtype))
            reading = _Reading(value, sides, floats, ((position, holds),))
            found[holds] = _elementwise(reading, reading.range())
        if len(found) == 1:
            return next(iter(found.values()))
        yes, no = found[True], found[False]
        both = yes.join(no)
        if array is None:
            return both
        if both.low <= -VAST and yes.is_real and no.is_real and yes.low != no.low:
            scores = array.astype(bool) if yes.low > no.low else ~array.astype(bool)
            bound = max(yes.low, no.low)
            return replace(both, least=tuple((axis, bound) for axis in _reached(scores)))
        if not both.minus or yes.minus == no.minus:
            return both
        number = ~array.astype(bool) if yes.minus else array.astype(bool)
        return replace(both, reached=frozenset(_reached(number)))

    def _under(
        self, value: Value, told: Mapping[Value, Range], known: Mapping[Value, Range], depth: int
    ) -> Range:
        """The range of a value where values that it reads element by element have ranges `told`."""
        if value in told:
            return known[value].meet(told[value])
        node = value.node
        if (
            not depth
            or not isinstance(node.op, Operator)
            or not node.op.elementwise
            or value.is_constant
            or value.type.dtype not in FLOATS
            or not any(v in told or v.node.inputs for v in node.inputs)
        ):
            return known[value]
        inputs = [self._under(v, told, known, depth - 1) for v in node.inputs]
        if all(new is known[v] for new, v in zip(inputs, node.inputs, strict=True)):
            return known[value]
        return self._computed(value, inputs).meet(known[value])


def _reached(truths: Array) -> list[int]:
    """The axes, counted from the last, along which each line of Booleans has one that is true."""
    return [axis for axis in range(-truths.ndim, 0) if np.all(truths.any(axis=axis))]


def _alike(value: Value, inputs: Sequence[Range], within: str) -> object:
    """A key of what an operator does to elements of these ranges.

    Bounds that differ in the sign of 0 are not the same.
    """
    ranges = tuple(
        [(each, math.copysign(1, each.low), math.copysign(1, each.high)) for each in inputs]
    )
    return likeness(value), ranges, within


def told_by(condition: Value, holds: bool, known: Mapping[Value, Range]) -> dict[Value, Range]:
    """The ranges of the values that a Boolean tests, element by element, where it holds or not.

    `known` are the ranges without that.
    """
    node = condition.node
    if isinstance(node.op, Opaque):
        if node.op.op_type == NAN_TEST and not holds:
            return {node.inputs[0]: replace(ANYTHING, nan=False)}
        return {}
    if not isinstance(node.op, Operator) or not node.op.elementwise or not node.inputs:
        return {}
    if all(source.type.dtype == BOOL for source in node.inputs):
        return _told_by_logic(condition, holds, known)
    if node.op.gives != (BOOL,) or any(v.type.dtype not in FLOATS for v in node.inputs):
        return {}
    try:
        return _told_by_comparison(condition, holds, known)
    except ShapeError:
        return {}


def _told_by_logic(
    condition: Value, holds: bool, known: Mapping[Value, Range]
) -> dict[Value, Range]:
    """The values of a Boolean operator's operands that follow, and the ranges that these imply."""
    node = condition.node
    fitting = [
        given
        for given in itertools.product((True, False), repeat=len(node.inputs))
        if element_of(condition, tuple(enumerate(given))) == (ONE if holds else ZERO)
    ]
    told: dict[Value, Range] = {}
    for position, source in enumerate(node.inputs):
        values = {given[position] for given in fitting}
        if len(values) == 1:
            for value, found in told_by(source, values.pop(), known).items():
                told[value] = found.meet(told.get(value, ANYTHING))
    return told


def _told_by_comparison(
    condition: Value, holds: bool, known: Mapping[Value, Range]
) -> dict[Value, Range]:
    """The ranges of both sides that a comparison of floats implies; it is false for a NaN."""
    element = element_of(condition)
    names = names_of(condition.node.inputs)
    values = dict(zip(names, condition.node.inputs, strict=True))
    if not isinstance(element, If) or len(element.conditions) != 1 or len(values) != 2:
        if holds and len(values) == 1:  # a value that is equal to itself
            return {condition.node.inputs[0]: replace(ANYTHING, nan=False)}
        return {}
    (test,) = element.conditions
    (order,) = (atom for atom in opaque_integers(test.difference) if isinstance(atom, Order))
    if not isinstance(order.left, Element) or not isinstance(order.right, Element):
        return {}
    # Signs of left - right at which the comparison, as one of numbers, has that result.
    wanted = ONE if holds else ZERO
    signs = {
        sign
        for sign in (-1, 0, 1)
        if (
            element.then
            if Constraint(replace_opaque(test.difference, lambda _: sign), test.relation).decided  # noqa: B023
            else element.other
        )
        == wanted
    }
    left, right = values[order.left.tensor], values[order.right.tensor]
    told: dict[Value, Range] = {}
    for one, other, turned in ((left, right, signs), (right, left, {-sign for sign in signs})):
        bound = known[other]
        if not holds and bound.nan:
            continue  # it may be false since the other one is NaN
        found = replace(ANYTHING, nan=not holds)
        if -1 not in turned and not bound.minus:
            found = replace(found, low=bound.low, reached=None)
        if 1 not in turned:
            high = math.inf if bound.plus else bound.high
            found = replace(found, high=high, plus=bound.plus and 0 in turned)
        if 0 not in turned and _excludes_zero(bound, turned):
            found = replace(found, nonzero=True)
        told[one] = found
    return told


def _excludes_zero(bound: Range, signs: set[int]) -> bool:
    """Whether a number whose difference to `bound` has one of `signs` cannot be 0."""
    if bound.low > bound.high:
        return False
    if signs == {1}:
        return bound.low >= 0 and not bound.minus
    if signs == {-1}:
        return bound.high <= 0 and not bound.plus
    return bound.low == bound.high == 0 and not bound.is_infinite


NAN_TEST = "IsNaN"
"""ONNX's test for NaN."""
ARITHMETIC = frozenset({"Add", "Sub", "Mul"})
"""Operators of ONNX whose names say what they do to elements, at every opset and of all sizes."""


def sums(node: Node) -> bool:
    """Whether an operator's results are sums over a range of elements of its inputs."""
    if not isinstance(node.op, Operator) or node.op.elementwise or not node.inputs:
        return False
    return _has_sum(element_of(node.outputs[0]))


def _has_sum(scalar: Scalar) -> bool:
    match scalar:
        case SumOver(_, extent, body):
            return extent != 1 or _has_sum(body)
        case MaxOver(_, _, body) | ProductOver(_, _, body):
            return _has_sum(body)
        case Plus(args) | Times(args) | Call(_, args):
            return any(map(_has_sum, args))
        case If(_, then, other):
            return _has_sum(then) or _has_sum(other)
    return False


def _computes(node: Node) -> bool:
    """Whether an operator makes other elements than those of its inputs."""
    moves = isinstance(node.op, Movement) or node.role == "view"
    return bool(node.inputs) and not (
        moves or (isinstance(node.op, Operator) and node.op.name in ("Max", "Min"))
    )


def _float_type(dtype: str) -> str:
    """The type of floats in which an element is computed; of rules' sorts, 32 bits."""
    return dtype if dtype in LARGEST else "FLOAT"


def _of_integers(dtype: str) -> Range:
    low, high = integer_range(dtype)
    return Range(float(low), float(high))


def _permuted(value: Value) -> Value:
    """The value whose elements are the same as those of `value`, each once; that itself, or not."""
    while isinstance(value.node.op, Movement) and value.node.op.permutes:
        (value,) = value.node.inputs
    return value


def of_array(array: Array) -> Range:
    """The range of known data."""
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        return ANYTHING
    if not array.size:
        return Range(0.0, 0.0)
    if array.dtype.kind in "biu":
        return Range(float(array.min()), float(array.max()), nonzero=bool(np.all(array != 0)))
    low, high = float(array.min()), float(array.max())
    if -math.inf < low and high < math.inf:
        nonzero = low < 0 < high and bool(np.all(array != 0))
        axes = range(-array.ndim, 0) if low <= -VAST < high else ()
        least = tuple((axis, float(array.max(axis=axis).min())) for axis in axes)
        return Range(low, high, nonzero=nonzero, least=least)
    finite = np.isfinite(array)
    minus, plus = bool(np.isneginf(array).any()), bool(np.isposinf(array).any())
    reached = frozenset(_reached(finite))
    return Range(
        float(np.min(array, where=finite, initial=math.inf)),
        float(np.max(array, where=finite, initial=-math.inf)),
        reached if minus else None,
        plus,
        bool(np.isnan(array).any()),
    )


def coarse(known: Range, dtype: str, *, constant: bool = False) -> Range:
    """A range reduced to the facts that rules ask for.

    So layers of a network whose weights differ have the same: whether bounds are moderate, and on
    which side of 0 they lie, or how far from it. No number lies beyond the largest one, to which a
    mask of the least float comes near: with a moderate score added to it, it is still a number.

    Of a `constant` it is also told whether it keeps within the root of that: nearly all weights do,
    and then a product of several of them with what is moderate does not overflow.
    """
    largest = LARGEST[dtype]
    bounds = _bounds(dtype) if constant else [moderate(dtype)]
    lows = (*(1 / most for most in bounds), 0.0, *(-most for most in bounds))
    highs = (*(-1 / most for most in bounds), 0.0, *bounds)
    if known.low > known.high:
        low, high = known.low, known.high
    else:
        low = next((bound for bound in lows if known.low >= bound), -largest)
        high = next((bound for bound in highs if known.high <= bound), largest)
    return Range(
        low, high, known.reached, known.plus, known.nan, known.nonzero, border=known.border
    )


def _bounds(dtype: str) -> list[float]:
    """The magnitudes up to which constants are told apart, in ascending order."""
    most = moderate(dtype)
    return [2.0 ** (int(math.log2(most)) // 2), most]


def without_sign(known: Range, dtype: str) -> Range:
    """The same range of a constant without information on signs and 0."""
    magnitude = max(abs(known.low), abs(known.high))
    most = next((bound for bound in _bounds(dtype) if magnitude <= bound), moderate(dtype))
    return Range(min(known.low, -most), max(known.high, most))


def _elementwise(reading: _Reading, found: Range) -> Range:
    """The range of an elementwise operator's output, of which its specification says `found`.

    Where only one input has elements that are -inf, and otherwise the result is a number, it is one
    wherever that input is. Where numbers come to -inf, as two masks do in a sum, it is one wherever
    an input is at least what some element of each line is, if that suffices.
    """
    value = reading.value
    lines = reading.lines()
    if lines:
        found = replace(found, least=lines)
    if not found.minus or found.nan or found.plus:
        return found
    masks = {
        source: (position, given)
        for position, (source, given) in enumerate(
            zip(value.node.inputs, reading.inputs, strict=True)
        )
        if given.minus and given.reached
    }
    if not masks and all(given.is_real for given in reading.inputs):
        return replace(found, reached=_where_large(reading))
    if len(masks) != 1:
        return found
    (source, (position, mask)) = next(iter(masks.items()))
    others = [
        replace(given, reached=None) if v == source else given
        for v, given in zip(value.node.inputs, reading.inputs, strict=True)
    ]
    if others[position].low > others[position].high:  # nothing of it is a number
        return found
    without = _Reading(value, others, reading.floats, reading.truths).range()
    return replace(found, reached=mask.reached) if without.is_real else found


def _where_large(reading: _Reading) -> frozenset[int]:
    """The axes along which each line of an elementwise operator's output has no -inf alone.

    An input has an element in each line that is so large that the output is a number there.
    """
    found: set[int] = set()
    sources = reading.value.node.inputs
    for source, given in dict(zip(sources, reading.inputs, strict=True)).items():
        for axis, bound in given.least:
            inputs = [
                replace(each, low=max(each.low, bound), least=()) if v == source else each
                for v, each in zip(sources, reading.inputs, strict=True)
            ]
            if _Reading(reading.value, inputs, reading.floats, reading.truths).range().is_real:
                found.add(axis)
    return frozenset(found)


class _Reading:
    """An operator's specification, read with ranges in the place of elements."""

    def __init__(
        self,
        value: Value,
        inputs: Sequence[Range],
        floats: Floats,
        truths: tuple[tuple[int, bool], ...] = (),
    ) -> None:
        self.value = value
        self.inputs = inputs
        self.floats = floats
        self.truths = truths
        names = names_of(value.node.inputs)
        self._of = dict(zip(names, inputs, strict=True))
        self._shapes = dict(zip(names, (v.shape for v in value.node.inputs), strict=True))
        op = value.node.op
        self._elementwise = isinstance(op, Operator) and op.elementwise

    def range(self) -> Range:
        """The range of the output."""
        try:
            found = self._read(element_of(self.value, self.truths))
        except ShapeError:
            return ANYTHING
        most = self.floats.largest
        if found.low > found.high or (-most <= found.low and found.high <= most):
            return found
        return replace(found, low=max(found.low, -most), high=min(found.high, most))

    def part(self, scalar: Scalar) -> Range:
        """The range of a part of the specification."""
        return self._read(scalar)

    def lines(self) -> tuple[tuple[int, float], ...]:
        """Where the output is how much a value is below its maximum along an axis, see `least`."""
        axis = _below_maximum(self.value)
        return () if axis is None else ((axis, 0.0),)

    def _read(self, e: Scalar) -> Range:
        match e:
            case Literal(value):
                return Range(float(value), float(value))
            case Element(tensor, index):
                known = replace(self._of.get(tensor, ANYTHING), border=())
                return known if self._elementwise else self._moved(known, tensor, index)
            case Bottom():  # neutral under the maximum that it stands under
                return Range(math.inf, -math.inf)
            case OfSize():
                bound = self.floats.moderate or self.floats.largest
                return Range(0.0 if is_true(at_least(e.size, 0)) else -bound, bound)
            case Plus(args):
                total = self.floats.sum([self._read(arg) for arg in args])
                # A kernel may pass over NaN, and give another maximum.
                below = _below_maximum(self.value) is not None and not total.nan
                return replace(total, high=min(total.high, 0.0)) if below else total
            case Times(args):
                return self._product(args)
            case SumOver(variable, extent, body):
                times = extent if isinstance(extent, int) else None
                found = self._read(body)
                return self._above_least(variable, body, found, self.floats.repeated(found, times))
            case MaxOver(_, _, body):
                found = self._read(body)
                return replace(found, reached=NOWHERE, least=()) if found.minus else found.plain
            case ProductOver(_, _, body):
                found = self._read(body)
                most = self.floats.moderate
                if most is not None and found.is_real and found.within(most):
                    return Range(0.0 if found.low >= 0 else -most, most)
                return ANYTHING
            case If(conditions, then, other):
                decided = [condition.decided for condition in conditions]
                if all(decided):
                    return self._read(then)
                if False in decided:
                    return self._read(other)
                return self._read(then).join(self._read(other))
            case Call(function, args):
                if function not in FUNCTIONS:
                    return ANYTHING
                if function == "reciprocal" and self.floats.moderate and _is_count(args[0]):
                    return Range(0.0, 1.0, nonzero=True)
                return FUNCTIONS[function](*map(self._read, args), self.floats)
        return ANYTHING

    def _moved(self, known: Range, tensor: str, index: Index) -> Range:
        """The range of an input whose elements are moved: facts about lines follow their axis."""
        if not known.reached and not known.least:
            return known
        shape, after = self._shapes[tensor], self.value.shape
        axes: dict[int, int] = {}
        for k, extent in enumerate(after):
            name = f"i{k}"
            reading = [a for a, i in enumerate(index) if name in free_symbols(i)]
            whole = len(reading) == 1 and shape[reading[0]] == extent
            if whole and index[reading[0]] == symbol(name):
                axes[reading[0] - len(shape)] = k - len(after)
        return replace(
            known,
            reached=frozenset(axes[a] for a in known.reached or () if a in axes)
            if known.minus
            else None,
            least=tuple((axes[a], bound) for a, bound in known.least if a in axes),
        )

    def _product(self, factors: Sequence[Scalar]) -> Range:
        found: Range | None = None
        for factor in dict.fromkeys(factors):
            part = self._read(factor)
            count = factors.count(factor)
            part = self.floats.power(part, count) if count > 1 else part
            if found is None:
                found = part.plain if len(factors) > 1 else part
            elif found == Range(-1.0, -1.0):
                found = negated(part)
            else:
                found = self.floats.product(found, part)
        assert found is not None
        return found

    def _above_least(self, variable: str, body: Scalar, part: Range, total: Range) -> Range:
        """The range of a sum over a line of numbers, none negative, one of which is known."""
        if not isinstance(body, Element) or not part.is_real or part.low < 0:
            return total
        axes = [k - len(body.index) for k, i in enumerate(body.index) if i == symbol(variable)]
        known = self._of.get(body.tensor, ANYTHING)
        bounds = [bound for axis, bound in known.least if axis in axes]
        return replace(total, low=max(total.low, *bounds)) if bounds else total


def _is_count(e: Scalar) -> bool:
    """Whether an integer is made of extents, and not of indices, as the number in a mean is.

    It is at least 1: each dimension has an element.
    """
    return (
        isinstance(e, OfSize)
        and is_true(at_least(e.size, 0))
        and not any(map(INDEX.fullmatch, free_symbols(e.size)))
    )


def _below_maximum(value: Value) -> int | None:
    """The axis, counted from the last, of ``x - max(x)`` along it; None for others."""
    node = value.node
    if len(node.inputs) != 2 or not isinstance(node.op, Operator) or not node.op.elementwise:
        return None
    x, most = node.inputs
    source = most.node
    if not isinstance(source.op, Operator) or source.inputs != (x,) or x.shape != value.shape:
        return None
    if element_of(value) != plus(*_difference(value)) or source.op.elementwise:
        return None
    found = element_of(most)
    if not isinstance(found, MaxOver) or not isinstance(found.body, Element):
        return None
    rank, index = len(x.shape), found.body.index
    if len(most.shape) != rank or len(index) != rank:
        return None
    bound = symbol(found.variable)
    axes = [k for k, i in enumerate(index) if i == bound]
    plain = all(i == symbol(f"i{k}") for k, i in enumerate(index) if k not in axes)
    return axes[0] - rank if len(axes) == 1 and plain and found.extent == x.shape[axes[0]] else None


def _difference(value: Value) -> tuple[Scalar, Scalar]:
    """The summands of ``x - y`` for the inputs of an elementwise operator."""
    index = own_index(value)
    x, y = value.node.inputs
    return (
        Element("0", broadcast_index(x.shape, index)),
        times(-1, Element("1", broadcast_index(y.shape, index))),
    )
