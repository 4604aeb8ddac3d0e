"""A second interval analysis: bounds of values by the names of operators.

`xflow.analysis.ranges` reads an operator's specification; this module knows some fifty operators by
name, and the others by their definitions over these. It is coarser, and does not use the condition
of a choice. Where both have to agree, a mistake in one of them does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from xflow.core.assumptions import Assumption, moderate
from xflow.core.composite import Composite
from xflow.core.fold import ConstantLookup, Folder
from xflow.core.graph import Graph, walk
from xflow.core.node import Leaf, MayBe, Node, Opaque, Value
from xflow.core.registry import Array, Operator
from xflow.core.size import Size, product
from xflow.core.sorts import BOOL, FLOATS, INTEGERS, integer_range
from xflow.ops.shape import Movement
from xflow.recheck.interval import (
    PRECISION,
    UNKNOWN,
    ZERO,
    Bounds,
    greatest,
    joined,
    largest,
    magnitudes,
    negated,
    of_data,
)
from xflow.recheck.normalized import normalized
from xflow.recheck.sources import MOVED, Sources

FOLDED = 2**22
"""Most elements of a constant expression that is computed."""
KERNEL = 64
"""By how many roundings a kernel may be off, besides those of each term of a sum."""
ROOM = 64
"""By which factor numbers have to be less than the largest float where a kernel may go other ways
than a definition."""
SUMS = frozenset(
    (
        *("AveragePool", "Conv", "ConvTranspose", "CumSum", "Einsum", "GlobalAveragePool"),
        *("MatMul", "Mean", "ReduceMean", "ReduceSum", "Sum"),
    )
)
"""Operators that give sums of products of elements, or of elements, where the registry does not
read them."""
NO_LINES = frozenset[int]()


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


MONOTONE: Mapping[str, tuple[Callable[[float], float], float, float]] = {
    "Relu": (lambda x: max(x, 0.0), 0.0, math.inf),
    "Sigmoid": (lambda x: 1 / (1 + _exp(-x)), 0.0, 1.0),
    "Tanh": (math.tanh, -1.0, 1.0),
    "Erf": (math.erf, -1.0, 1.0),
    "Exp": (_exp, 0.0, math.inf),
    "Floor": (math.floor, -math.inf, math.inf),
    "Ceil": (math.ceil, -math.inf, math.inf),
    "Round": (round, -math.inf, math.inf),
    "Sign": (lambda x: math.copysign(1.0, x) if x else 0.0, -1.0, 1.0),
}
"""Functions that do not fall, with their values at both infinities."""
STEPS = frozenset({"Floor", "Ceil", "Round", "Sign", "Relu"})
"""Those that round nothing."""


class Analysis:
    """Bounds of the values of a graph whose constants `constants` serves.

    `assumption` says what the analysis may assume. An input that the model compares or tests, or of
    which an unknown operator reads elements, may hold anything nevertheless; one of which a softmax
    reads elements, or what they are added to, may hold -inf. Where products of moderate numbers are
    taken to be such, `inverted_masks` says whether that of 1 minus a mask and a least float is
    taken for a number, too.
    """

    def __init__(
        self,
        graph: Graph,
        constants: ConstantLookup,
        assumption: Assumption,
        *,
        inverted_masks: bool = False,
    ) -> None:
        self._fold = Folder(constants, stepwise=True)
        self._assumption = assumption
        self._inverted_masks = inverted_masks and assumption >= Assumption.MODERATE
        self._graph = graph
        self._known: dict[Value, Bounds] = {}

    @cached_property
    def _sources(self) -> Sources:
        return Sources(self._graph, self.data)

    def of(self, value: Value) -> Bounds:
        """The bounds of a value of any type."""
        if value not in self._known:
            for node in walk([value], self._known):
                for output in node.outputs:
                    if output not in self._known:
                        inputs = [self._known[source] for source in node.inputs]
                        try:
                            self._known[output] = self._of(output, inputs)
                        except ArithmeticError:  # a bound that Python's floats do not hold
                            self._known[output] = UNKNOWN
        return self._known[value]

    def data(self, value: Value) -> Array | None:
        """The data of a constant, if it is a leaf or small."""
        return self._fold.up_to(FOLDED, value)

    def reads_inputs(self, value: Value) -> bool:
        """Whether a value is made of elements of a float input, one by one, or these are added."""
        return bool(self._sources.in_scores(value))

    def depends_on_inputs(self, value: Value) -> bool:
        """Whether a value depends on a float input in any way, or is none of the graph."""
        behind = self._sources.behind.get(value)
        return behind is None or bool(behind)

    def _of(self, value: Value, inputs: Sequence[Bounds]) -> Bounds:
        node, dtype = value.node, value.type.dtype
        array = self.data(value)
        if array is not None:
            return of_data(array)
        if dtype == BOOL or dtype in INTEGERS:
            least, most = integer_range(dtype)
            return Bounds(float(least), float(most))
        if dtype not in FLOATS:
            return UNKNOWN
        if isinstance(node.op, Leaf):
            return self._of_leaf(value)
        if isinstance(node.op, Opaque):
            return self._opaque(node, node.op.op_type, inputs, dtype)
        if self._inverted_masks and node.op.op_type == "Mul":
            for mask, factor in (node.inputs, node.inputs[::-1]):
                if self._is_complement(mask) and factor.is_constant:
                    large = self._known[factor]
                    if moderate(dtype) < large.magnitude <= largest(dtype):
                        return Bounds(min(large.low, 0.0), max(large.high, 0.0))
        return self._computed(value, inputs, dtype, self._known.__getitem__)

    def _of_leaf(self, value: Value) -> Bounds:
        if self._assumption is Assumption.NONE or value.is_constant:
            return UNKNOWN
        tested, masking = self._sources.special
        if value in tested:
            return UNKNOWN
        dtype = value.type.dtype
        assumed = self._assumption >= Assumption.MODERATE
        most = moderate(dtype) if assumed else largest(dtype)
        return Bounds(-most, most, minus=value in masking)

    def _is_complement(self, value: Value) -> bool:
        """Whether a value is 1 minus an input, as a mask of ones and zeros is inverted.

        The product with a number so large would overflow if it were anything else.
        """
        if not isinstance(value.node.op, Operator) or value.node.op.op_type != "Sub":
            return False
        one, below = value.node.inputs
        if self._known[one] != Bounds(1.0, 1.0):
            return False
        while isinstance(below.node.op, Operator | Opaque):
            if below.node.op.op_type not in ("Cast", "Expand", "Reshape", "Squeeze", "Unsqueeze"):
                return False
            below = below.node.inputs[0]
        leaf = below.node.op
        given = isinstance(leaf, Leaf) and not leaf.constant
        return given and leaf.may_be is not MayBe.ANYTHING  # as in graphs inside operators

    # Operators ----------------------------------------------------------------------------------

    def _computed(
        self,
        value: Value,
        inputs: Sequence[Bounds],
        dtype: str,
        known: Callable[[Value], Bounds],
    ) -> Bounds:
        """The bounds of what an operator of the registry makes; `known` tells those of others."""
        node = value.node
        assert isinstance(node.op, Operator)
        name = node.op.name
        x = inputs[0] if inputs else UNKNOWN
        if node.op.role == "normalization" and not self._squares_fit(value, inputs, dtype):
            return UNKNOWN
        count = normalized(node, dtype, known)
        if count is not None:
            most = 2 * math.sqrt(count)
            return Bounds(-most, most)
        if name in MONOTONE:
            return self._monotone(name, x, dtype)
        if isinstance(node.op, Movement):
            return _moved(node, inputs)
        match name:
            case "Scalar":
                return self._number(node, dtype)
            case "Pi":
                return self._rounded(math.pi, math.pi, dtype, ())
            case "Zeros" | "Ones" | "Eye" | "IdentityKernel":
                return Bounds(float(name == "Ones"), float(name != "Zeros"))
            case "Add":
                found = self._sum(x, inputs[1], dtype)
                if found.minus and x.is_finite and inputs[1].is_finite:
                    return replace(found, lines=self._unmasked(node, inputs, dtype, known))
                return found
            case "Sub":
                return self._sum(x, negated(inputs[1]), dtype)
            case "Identity":
                return x
            case "Neg":
                return negated(x)
            case "Abs":
                return magnitudes(x)
            case "Mul":
                return self._product(node, x, inputs[1], dtype)
            case "Div":
                return self._quotient(x, inputs[1], dtype)
            case "Reciprocal":
                return self._quotient(Bounds(1.0, 1.0), x, dtype)
            case "Pow":
                return self._power(x, inputs[1], dtype)
            case "Sqrt":
                return self._root(x, dtype)
            case "Log":
                return self._logarithm(x, dtype)
            case "Sin" | "Cos":
                return Bounds(-1 - 1 / KERNEL, 1 + 1 / KERNEL, nan=not x.is_finite)
            case "Max":
                return greatest(inputs)
            case "Min":
                return negated(greatest([negated(each) for each in inputs]))
            case "Where":
                return self._choice(node, inputs)
            case "Cast" | "NearestFloat":
                return self._cast(x, dtype)
            case "Softmax":
                return _weights(node, x)
            case "Clip":
                return _clipped(self._defined(value, inputs, dtype), x, dtype)
            case "MatMul":
                return self._sums([x, inputs[1]], node.inputs[0].shape[-1:], dtype)
            case "Conv" | "ConvTranspose":
                kernel = node.inputs[1].shape
                read = kernel[1:] if name == "Conv" else (kernel[0], *kernel[2:])
                found = self._sums([x, inputs[1]], read, dtype)
                return found if len(inputs) < 3 else self._sum(found, inputs[2], dtype)
            case "ReduceSum" | "ReduceMean" | "GlobalAveragePool" | "AveragePool":
                return self._reduced(node, x, dtype)
            case "ReduceMax" | "ReduceMin" | "GlobalMaxPool" | "MaxPool":
                if not x.is_finite:
                    return UNKNOWN
                return replace(x, low=-largest(dtype)) if name == "MaxPool" else x
        if isinstance(node.op, Composite):
            return self._defined(value, inputs, dtype)
        return UNKNOWN

    def _squares_fit(self, value: Value, inputs: Sequence[Bounds], dtype: str) -> bool:
        """Whether a kernel may add up the squares of all elements: it may subtract such sums."""
        if self._within(inputs, dtype):
            return True
        count = product(value.shape)
        if not isinstance(count, int):
            return False
        return inputs[0].magnitude <= math.sqrt(largest(dtype) / (8 * count + 8))

    def _defined(self, value: Value, inputs: Sequence[Bounds], dtype: str) -> Bounds:
        """The bounds of an operator's output by its definition over other operators.

        Where that computes anything, a kernel may go another way, on which nothing overflows, or
        something does.
        """
        node = value.node
        assert isinstance(node.op, Composite)
        leaves, outputs = node.op.definition([v.shape for v in node.inputs], node.attributes)
        inner = dict(zip(leaves, inputs, strict=True))
        for part in walk(outputs):
            below = [inner[source] for source in part.inputs]
            for output in part.outputs:
                if output not in inner:
                    inner[output] = self._computed(output, below, dtype, inner.__getitem__)
        found = inner[outputs[value.index]]
        near = largest(dtype) / ROOM
        fits = found.is_finite and all(each.magnitude < near for each in (found, *inputs))
        return found if fits or not any(map(_computes, walk(outputs))) else UNKNOWN

    def _opaque(self, node: Node, name: str, inputs: Sequence[Bounds], dtype: str) -> Bounds:
        """The bounds of what an operator makes that the registry does not read.

        As where sizes are not known to fit each other: it is not known either which axes do.
        """
        pairs = zip(inputs, node.inputs, strict=True)
        floats = [replace(x, lines=NO_LINES) for x, v in pairs if v.type.dtype in FLOATS]
        if name == "Cast":
            return self._cast(replace(inputs[0], lines=NO_LINES), dtype)
        if name in MOVED and floats:
            return joined([*floats, ZERO])
        if name in SUMS and floats:
            fits = all(each.is_finite for each in floats) and self._within(floats, dtype)
            return Bounds(-moderate(dtype), moderate(dtype)) if fits else UNKNOWN
        if len(inputs) != 2 or len(floats) != 2:
            return UNKNOWN
        x, y = floats
        match name:
            case "Add":
                return self._sum(x, y, dtype)
            case "Sub":
                return self._sum(x, negated(y), dtype)
            case "Mul":
                return self._product(node, x, y, dtype)
            case "Div":
                return self._quotient(x, y, dtype)
        return UNKNOWN

    def _number(self, node: Node, dtype: str) -> Bounds:
        """A number within a definition, rounded to the type."""
        number = node.attributes["value"]
        if not isinstance(number, Fraction):
            return UNKNOWN
        digits, _ = PRECISION[dtype]
        if (number * 2**digits).denominator == 1 and abs(number.numerator) < 2**digits:
            return Bounds(float(number), float(number))
        return self._rounded(float(number), float(number), dtype, ())

    def _within(self, inputs: Sequence[Bounds], dtype: str) -> bool:
        """Whether sums and products of these numbers are assumed to be moderate, as they are."""
        assumed = bool(inputs) and self._assumption >= Assumption.MODERATE
        return assumed and all(each.magnitude <= moderate(dtype) for each in inputs)

    def _rounded(
        self,
        low: float,
        high: float,
        dtype: str,
        inputs: Sequence[Bounds],
        *,
        flags: Bounds | None = None,
        terms: float = 0.0,
    ) -> Bounds:
        """The bounds of a result rounded to a type, with flags; what overflows is infinite.

        `terms` is the number of roundings besides the last one, each of a number as large as the
        bounds. Roundings keep signs; numbers too small for their digits may become 0.
        """
        digits, exponent = PRECISION[dtype]
        most = largest(dtype)
        flags = flags or ZERO
        if math.isnan(low) or math.isnan(high):
            return UNKNOWN
        slack = terms * math.ldexp(1, -digits) * max(abs(low), abs(high)) if terms else 0.0
        low = max(low - slack, 0.0) if low >= 0 else low - slack
        high = min(high + slack, 0.0) if high <= 0 else high + slack
        lines = flags.lines
        if self._within(inputs, dtype) and low <= moderate(dtype) and high >= -moderate(dtype):
            most = moderate(dtype)
            low, high = max(low, -most), min(high, most)
        # From here on it is infinite, also where it is rounded to 32 bits first; Python's own
        # floats are infinite already.
        edge = math.inf
        if dtype != "DOUBLE":
            edge = math.ldexp(2 - math.ldexp(1, -digits), exponent)
            edge *= 1 if dtype == "FLOAT" else 1 - 2.0**-23
        plus, minus = flags.plus or high >= edge, flags.minus or low <= -edge
        if low <= -edge:
            lines = NO_LINES
        unit = math.ldexp(1, 1 - digits)
        low, high = low - unit * abs(low), high + unit * abs(high)
        tiny = math.ldexp(1, 2 * digits - exponent)
        low = 0.0 if 0 < low < tiny else low
        high = 0.0 if -tiny < high < 0 else high
        least = math.ldexp(1, 1 - exponent - digits)  # less than that is rounded to it, or to 0
        low, high = low - least * (low < 0), high + least * (high > 0)
        low, high = (min(max(each, -most), most) for each in (low, high))
        return Bounds(low, high, flags.nan, plus, minus, lines)

    def _sum(self, x: Bounds, y: Bounds, dtype: str) -> Bounds:
        nan = x.nan or y.nan or (x.plus and y.minus) or (x.minus and y.plus)
        lines = y.lines if not x.minus else x.lines if not y.minus else NO_LINES
        flags = Bounds(0.0, 0.0, nan, x.plus or y.plus, x.minus or y.minus, lines)
        return self._rounded(x.low + y.low, x.high + y.high, dtype, (x, y), flags=flags)

    def _unmasked(
        self,
        node: Node,
        inputs: Sequence[Bounds],
        dtype: str,
        known: Callable[[Value], Bounds],
    ) -> frozenset[int]:
        """The axes along which two numbers have a sum in each line that does not overflow."""
        lines: set[int] = set()
        for value, other in zip(node.inputs, inputs[::-1], strict=True):
            for axis, low in self._greatest(value, known).items():
                own = Bounds(low, max(low, known(value).high))
                if not self._sum(own, other, dtype).minus:
                    lines.add(axis)
        return frozenset(lines)

    def _greatest(self, value: Value, known: Callable[[Value], Bounds]) -> Mapping[int, float]:
        """Axes, counted from the last, and what the greatest element of a line is at least.

        Of constants, and of choices whose condition is one.
        """
        data = self.data(value)
        if data is not None:
            axes = range(-data.ndim, 0) if data.size else ()
            return {axis: float(data.max(axis=axis).min()) for axis in axes}
        if not isinstance(value.node.op, Operator) or value.node.op.name != "Where":
            return {}
        condition, yes, no = value.node.inputs
        chosen = self.data(condition)
        if chosen is None or not (known(yes).is_finite and known(no).is_finite):
            return {}
        low, other = known(yes).low, known(no).low
        holds = chosen.astype(bool) if low > other else ~chosen.astype(bool)
        return {
            axis: max(low, other) for axis in range(-holds.ndim, 0) if np.all(holds.any(axis=axis))
        }

    def _product(self, node: Node, x: Bounds, y: Bounds, dtype: str) -> Bounds:
        if not x.is_finite and y.is_finite:
            return self._scaled(x, y, dtype)
        if not y.is_finite and x.is_finite:
            return self._scaled(y, x, dtype)
        if not (x.is_finite and y.is_finite):
            return UNKNOWN
        low, high = _products(x, y)
        if node.inputs[0] == node.inputs[1]:
            low = max(low, 0.0)
        return self._rounded(low, high, dtype, (x, y))

    def _scaled(self, x: Bounds, by: Bounds, dtype: str) -> Bounds:
        """A product of what may be infinite: with what is positive it stays so."""
        if by.low <= 0:
            return UNKNOWN
        return self._rounded(*_products(x, by), dtype, (x, by), flags=x)

    def _quotient(self, x: Bounds, y: Bounds, dtype: str) -> Bounds:
        if y.nan or y.minus or y.low <= 0 or (y.plus and not x.is_finite):
            negative = y.high < 0 and y.is_finite and x.is_finite
            return negated(self._quotient(x, negated(y), dtype)) if negative else UNKNOWN
        corners = [a / b for a in (x.low, x.high) for b in (y.low, y.high)]
        corners += [0.0] * y.plus
        return self._rounded(min(corners), max(corners), dtype, (x, y), flags=x)

    def _power(self, x: Bounds, y: Bounds, dtype: str) -> Bounds:
        if not (x.is_finite and y.is_finite and y.low == y.high):
            return UNKNOWN
        if y.low == 1 / 2:
            return self._root(x, dtype)
        if y.low not in (2, 3):
            return UNKNOWN
        exponent = int(y.low)
        powers = (math.prod([each] * exponent) for each in (x.low, x.high))
        corners = (*powers, *((0.0,) if x.low <= 0 <= x.high else ()))
        granted = (x,) if exponent == 2 or dtype != "FLOAT16" else ()
        return self._rounded(min(corners), max(corners), dtype, granted, terms=KERNEL)

    def _root(self, x: Bounds, dtype: str) -> Bounds:
        low, high = (math.sqrt(max(each, 0.0)) for each in (x.low, x.high))
        flags = replace(x, nan=x.nan or x.minus or x.low < 0, minus=False, lines=NO_LINES)
        return self._rounded(low, high, dtype, (x,), flags=flags, terms=KERNEL)

    def _logarithm(self, x: Bounds, dtype: str) -> Bounds:
        _, exponent = PRECISION[dtype]
        least = -2.0 * exponent
        low = math.log(x.low) if x.low > 0 else least
        high = math.log(x.high) if x.high > 0 else least
        nan, minus = x.nan or x.minus or x.low < 0, x.low <= 0
        flags = Bounds(0.0, 0.0, nan, x.plus, minus)
        return self._rounded(min(low, high) - 1, high + 1, dtype, (), flags=flags, terms=KERNEL)

    def _monotone(self, name: str, x: Bounds, dtype: str) -> Bounds:
        function, first, last = MONOTONE[name]
        if math.isinf(x.low) or math.isinf(x.high):
            low, high = first, last
        else:
            low, high = function(x.low), function(x.high)
        low = min(low, first) if x.minus and math.isfinite(first) else low
        high = max(high, last) if x.plus and math.isfinite(last) else high
        plus, minus = x.plus and math.isinf(last), x.minus and math.isinf(first)
        flags = Bounds(0.0, 0.0, x.nan, plus, minus, x.lines if minus else NO_LINES)
        if name in STEPS:
            most = largest(dtype)
            return replace(flags, low=max(low, -most), high=min(high, most))
        bounded = math.isfinite(last)  # then errors of a kernel are absolute
        error = KERNEL * math.ldexp(1, -PRECISION[dtype][0]) if bounded else 0.0
        low = max(low - error, first) if first == 0 else low - error  # signs are kept
        high += error
        return self._rounded(low, high, dtype, (), flags=flags, terms=0.0 if bounded else KERNEL)

    def _choice(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        condition, _, no = node.inputs
        _, a, b = inputs
        if b.nan and is_test(condition, "IsNaN") and condition.node.inputs[0] == no:
            b = replace(b, nan=False)
        found = joined([a, b])
        data = self.data(condition)
        if data is None or a.minus == b.minus:
            return found
        number = ~data.astype(bool) if a.minus else data.astype(bool)
        axes = (axis for axis in range(-number.ndim, 0) if np.all(number.any(axis=axis)))
        return replace(found, lines=frozenset(axes))

    def _cast(self, x: Bounds, dtype: str) -> Bounds:
        return self._rounded(x.low, x.high, dtype, (x,), flags=x)

    def _sums(self, factors: Sequence[Bounds], extents: Sequence[Size], dtype: str) -> Bounds:
        """Sums of as many products as the product of the extents."""
        if not all(each.is_finite for each in factors):
            return UNKNOWN
        count = product(extents)
        times = float(count) if isinstance(count, int) else math.inf
        most = math.prod(each.magnitude for each in factors)
        most = times * most if most else 0.0
        if math.isinf(most) and self._within(factors, dtype):
            most = moderate(dtype)
        slack = times + KERNEL if math.isfinite(times) else 0.0
        found = self._rounded(-most, most, dtype, factors, terms=slack)
        return found if found.is_finite else UNKNOWN  # inf - inf on the way is NaN

    def _reduced(self, node: Node, x: Bounds, dtype: str) -> Bounds:
        """Sums and means of elements; their sums must not overflow either."""
        assert isinstance(node.op, Operator)
        shape, name = node.inputs[0].shape, node.op.name
        axes = node.attributes.get("axes", tuple(range(len(shape))))
        assert isinstance(axes, tuple)
        named = [shape[axis] for axis in axes if isinstance(axis, int)]
        extents = named if name.startswith("Reduce") else shape[2:]
        total = self._sums([x], extents, dtype)
        if x.is_finite and x.low >= 0 and total.low <= 0:
            total = replace(total, low=0.0, minus=False)
        if name == "ReduceSum" or not total.is_finite:
            return total
        pads = name == "AveragePool"
        low, high = (min(x.low, 0.0), max(x.high, 0.0)) if pads else (x.low, x.high)
        count = product(extents)
        terms = KERNEL + (float(count) if isinstance(count, int) else 2.0**20)
        return self._rounded(low, high, dtype, (x,), terms=terms)


def _products(x: Bounds, y: Bounds) -> tuple[float, float]:
    """The least and the greatest product of elements."""
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    return min(corners), max(corners)


SELECTING = frozenset({"Identity", "Max", "Min", "Scalar", "Where"})
"""Operators that give elements of their inputs, besides those that move them."""


def _computes(node: Node) -> bool:
    """Whether an operator computes new elements."""
    return isinstance(node.op, Operator) and not (
        isinstance(node.op, Movement) or node.op.name in SELECTING
    )


def is_test(value: Value, name: str) -> bool:
    """Whether a value is what ONNX's IsNaN or IsInf says of one input."""
    node = value.node
    return isinstance(node.op, Opaque) and node.op.op_type == name and len(node.inputs) == 1


def _clipped(found: Bounds, x: Bounds, dtype: str) -> Bounds:
    """The bounds of a Clip, whose kernel takes the largest floats for bounds that are left out."""
    low = min(found.low, -largest(dtype)) if x.minus and found.minus else found.low
    high = max(found.high, largest(dtype)) if x.plus and found.plus else found.high
    return replace(found, low=low, high=high)


def _weights(node: Node, x: Bounds) -> Bounds:
    """Softmax: a line of which all is -inf gives NaN, as do NaN and inf."""
    axis = node.attributes["axis"]
    assert isinstance(axis, int)
    covered = x.minus and axis - len(node.inputs[0].shape) not in x.lines
    return Bounds(0.0, 1.0, nan=x.nan or x.plus or covered)


def _moved(node: Node, inputs: Sequence[Bounds]) -> Bounds:
    """What is moved, or repeated, and the zeros of a border."""
    assert isinstance(node.op, Operator)
    name, rank = node.op.name, len(node.outputs[0].shape)
    floats = [
        each
        for each, source in zip(inputs, node.inputs, strict=True)
        if name != "Gather" or source == node.inputs[0]
    ]
    found = joined([*floats, ZERO] if name == "Pad" else floats)
    (lines, *others) = (each.lines for each in floats)
    if others or not found.minus:
        return found
    before = len(node.inputs[0].shape)
    to = _axes(node, name, before, rank)
    moved = (to.get(before + line) for line in lines)
    return replace(found, lines=frozenset(axis - rank for axis in moved if axis is not None))


def _axes(node: Node, name: str, before: int, rank: int) -> Mapping[int, int]:
    """Which axis becomes which where all of its elements stay in line."""
    axes = node.attributes.get("perm" if name == "Transpose" else "axes", ())
    assert isinstance(axes, tuple)
    match name:
        case "Expand":
            return {axis: axis + rank - before for axis in range(before)}
        case "Transpose":
            return {axis: k for k, axis in enumerate(axes) if isinstance(axis, int)}
        case "Unsqueeze":
            return dict(enumerate(k for k in range(rank) if k not in axes))
        case "Squeeze":
            return {axis: k for k, axis in enumerate(k for k in range(before) if k not in axes)}
    return {}
