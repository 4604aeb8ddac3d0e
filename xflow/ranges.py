"""What the elements of computed tensors can be: an abstract interpretation by intervals.

Proofs are about real numbers; what is none, a NaN or an infinity, lies outside. So no rule can ever
say that ``Where(IsNaN(p), 0, p)`` is ``p``. What can be said is a fact about one `p` of one model:
that no element of it is a NaN, whatever the model is given. This module finds such facts. It reads
the operators' own specifications (`at`), with an interval in the place of each element.

Known are the elements of constants, and that integers and Booleans are numbers. Nothing is assumed
of inputs of floats: a caller may pass infinities. Unless that is asked for: then they are numbers
where they enter a product or a normalization, as images and features do, by themselves or by way of
what is elementwise or moves them. Masks are added, and stay as unknown as they are. One thing is
assumed of what is computed, as in proofs, that it does not overflow by itself: what is made of
numbers below `moderate` stays so.
Large constants are not trusted so far: two masks of the least float do overflow when they are
added, and a row of the sum may then be -inf throughout.

Elements that may be -inf are followed only as far as masks need it, see `Range.reached`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from xflow.bounds import FUNCTIONS, Range, power
from xflow.errors import ShapeError
from xflow.fold import ConstantLookup, Folder
from xflow.graph import Leaf, Opaque, TensorType, Value, apply, leaf, walk
from xflow.ops.composite import Composite
from xflow.ops.registry import Array, Operator, Reader
from xflow.ops.sorts import BOOL, FLOATS, INTEGERS, integer_range
from xflow.ops.spec import (
    ONE,
    ZERO,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    OfSize,
    Plus,
    Scalar,
    SumOver,
    Times,
    truth,
)
from xflow.size import product, symbol

FOLDED = 2**22
"""Most elements of a constant expression that is computed so as to look at them."""

READERS = frozenset({"contraction", "convolution", "normalization"})
"""The roles of operators whose inputs are numbers, where they are inputs of the model."""
ENDS = READERS | {"softmax", "attention"}
"""The roles of operators whose results are no inputs any more, however they are made."""

ARITHMETIC = frozenset({"Add", "Sub", "Mul"})
"""Operators of ONNX whose names say what they do to elements, at every opset and of all sizes."""

LARGEST = {
    "FLOAT": 2.0**128 * (1 - 2.0**-24),
    "DOUBLE": 2.0**1023 * (2 - 2.0**-52),
    "FLOAT16": 65504.0,
    "BFLOAT16": 2.0**127 * (2 - 2.0**-7),
}
"""The largest number of each type of floats."""


def moderate(dtype: str) -> float:
    """What is computed from numbers below this magnitude is taken to stay below it.

    A product of two of them does not overflow, nor the least float with one of them added; in 16
    bits that does.
    """
    return 2.0**10 if dtype == "FLOAT16" else 2.0**63


Known: TypeAlias = Range | None
"""None: an element may be anything, NaN and infinities among it."""


class Ranges:
    """What is known of the values of a graph whose constants `constants` serves.

    With `given`, inputs of floats are numbers where `READERS` read them.
    """

    def __init__(self, constants: ConstantLookup, *, given: bool = False) -> None:
        self._constants = constants
        self._fold = Folder(constants)
        self._known: dict[Value, Known] = {}
        self._given: dict[Value, Known] = {}
        """The ranges if inputs of floats are numbers, of what is made of these before `READERS`."""
        self._trusts = given
        self._cut = False
        """Whether an exponential in the operator at hand may overflow, see `_Reading.cut`."""

    def of(self, value: Value) -> Known:
        """The range of a value of any type."""
        if value not in self._known:
            for node in walk([value]):
                for output in node.outputs:
                    if output not in self._known:
                        self._known[output] = self._of(output)
                        if self._trusts:
                            self._given[output] = self._as_given(output)
        return self._known[value]

    def _of(self, value: Value) -> Known:
        node, dtype = value.node, value.type.dtype
        array = self.data(value)
        if array is not None:
            return of_array(array)
        if dtype == BOOL or dtype in INTEGERS:
            low, high = integer_range(dtype)
            return Range(low, high)
        if isinstance(node.op, Opaque):
            return self._opaque(value)
        if dtype not in FLOATS or isinstance(node.op, Leaf):
            return None
        self._cut = False
        known = [self._known[source] for source in node.inputs]
        if self._trusts and node.role in READERS:
            given = [self._given[source] for source in node.inputs]
            known = [a if a is not None else b for a, b in zip(known, given, strict=True)]
        return self._computed(value, known, dtype)

    def _as_given(self, value: Value) -> Known:
        """The range that `READERS` take for granted, for what is not known by itself."""
        node, dtype = value.node, value.type.dtype
        if self._known[value] is not None or dtype not in FLOATS:
            return self._known[value]
        if isinstance(node.op, Leaf):
            return None if value.is_constant else Range(-moderate(dtype), moderate(dtype))
        if isinstance(node.op, Opaque) or node.role in ENDS:
            return None
        self._cut = False
        return self._computed(value, [self._given[source] for source in node.inputs], dtype)

    def _opaque(self, value: Value) -> Known:
        """The range of floats that an operator makes of which only its name is known.

        Integers that are made floats, such as positions; arithmetic on tensors whose sizes are not
        known to go together. None for all else.
        """
        node, dtype = value.node, value.type.dtype
        if not isinstance(node.op, Opaque) or dtype not in FLOATS:
            return None
        known = [self._known[source] for source in node.inputs]
        if node.op.op_type in ARITHMETIC and len(known) == 2:
            leaves = [leaf(name, TensorType(dtype, ())) for name in "ab"]
            (element,) = apply(node.op.op_type, leaves, {})
            found = self._computed(element, known, dtype)
            return found if found is not None and found.is_real else None
        if node.op.op_type != "Cast" or node.inputs[0].type.dtype not in INTEGERS:
            return None
        (whole,) = known
        return whole if whole is not None and whole.within(LARGEST[dtype]) else None

    def data(self, value: Value) -> Array | None:
        """The data of a constant, if it is a leaf or small."""
        if value.is_leaf:
            return self._constants(value) if value.is_constant else None
        size = product(value.shape)
        small = isinstance(size, int) and size <= FOLDED
        return self._fold(value) if value.is_constant and small else None

    def _computed(self, value: Value, inputs: Sequence[Known], dtype: str) -> Known:
        """The range of an operator's output, from those of its inputs."""
        node = value.node
        assert isinstance(node.op, Operator)
        if node.op.weights_along is not None:
            (line,) = inputs
            axis = node.attributes[node.op.weights_along]
            assert isinstance(axis, int)
            if line is None:
                return None
            told = line.reached is None or axis - len(value.shape) in line.reached
            return Range(0.0, 1.0) if told else None
        if isinstance(node.op, Composite):
            return self._composite(value, inputs, dtype)
        if not node.op.elementwise:
            return self._read(_Reading(value, inputs, dtype))
        for position, source in enumerate(node.inputs):
            array = self.data(source) if source.type.dtype == BOOL else None
            if array is not None and array.size:
                return _chosen(value, inputs, dtype, position, array)
        return _elementwise(value, inputs, dtype, self._read(_Reading(value, inputs, dtype)))

    def _read(self, reading: _Reading) -> Known:
        reading.cut = self._cut
        found = reading.range()
        self._cut = reading.cut
        return found

    def _composite(self, value: Value, inputs: Sequence[Known], dtype: str) -> Known:
        """The range of an operator that is defined by others."""
        node = value.node
        assert isinstance(node.op, Composite)
        leaves, outputs = node.op.definition([v.shape for v in node.inputs], node.attributes)
        inner = dict(zip(leaves, inputs, strict=True))
        for part in walk(outputs):
            for output in part.outputs:
                if output not in inner:
                    inner[output] = self._computed(output, [inner[v] for v in part.inputs], dtype)
        return inner[outputs[value.index]]


def of_array(array: Array) -> Known:
    """The range of known data."""
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        return None
    if array.dtype.kind in "biu":
        return Range(float(array.min()), float(array.max())) if array.size else Range(0.0, 0.0)
    if not array.size:
        return Range(0.0, 0.0)
    low, high = float(array.min()), float(array.max())
    if math.isnan(low) or math.isnan(high) or high == math.inf:
        return None
    if low > -math.inf:
        return Range(low, high)
    finite = np.isfinite(array)
    axes = range(-array.ndim, 0)
    reached = frozenset(axis for axis in axes if np.all(finite.any(axis=axis)))
    least = float(np.min(array, where=finite, initial=math.inf))
    return Range(least, high, reached=reached)


def _elementwise(value: Value, inputs: Sequence[Known], dtype: str, found: Known) -> Known:
    """The range of an elementwise operator's output, of which its specification says `found`.

    Where only one input has elements that are -inf, and otherwise the result is a number, it is one
    wherever that input is.
    """
    if found is None or found.is_real:
        return found
    masks = {
        source: (position, given)
        for position, (source, given) in enumerate(zip(value.node.inputs, inputs, strict=True))
        if given is not None and given.reached is not None
    }
    if len(masks) != 1:
        return found
    (source, (position, mask)) = next(iter(masks.items()))
    others = [
        None if given is None else replace(given, reached=None) if v == source else given
        for v, given in zip(value.node.inputs, inputs, strict=True)
    ]
    finite = others[position]
    assert finite is not None
    assert mask.reached is not None
    if finite.low > finite.high:  # nothing of it is a number
        return found
    if (without := _Reading(value, others, dtype).range()) is None or not without.is_real:
        return found
    return replace(found, reached=mask.reached)


def _chosen(
    value: Value, inputs: Sequence[Known], dtype: str, position: int, condition: Array
) -> Known:
    """The range of an elementwise operator's output, one input of which is a known `condition`."""
    yes, no = (_Reading(value, inputs, dtype, {position: told}).range() for told in (ONE, ZERO))
    holds = condition.astype(bool)
    if holds.all():
        return yes
    if not holds.any():
        return no
    if yes is None or no is None:
        return None
    both = yes.join(no)
    if both.is_real or yes.is_real == no.is_real:
        return both
    number = holds if yes.is_real else ~holds
    axes = range(-number.ndim, 0)
    return replace(both, reached=frozenset(axis for axis in axes if np.all(number.any(axis=axis))))


class _Reading:
    """An operator's specification, read with ranges in the place of elements."""

    def __init__(
        self,
        value: Value,
        inputs: Sequence[Known],
        dtype: str,
        truths: Mapping[int, Scalar] | None = None,
    ) -> None:
        self._value = value
        self._truths = truths or {}
        self._largest = LARGEST[dtype]
        self._moderate = moderate(dtype)
        self.cut = False
        """Whether an exponential on the way may overflow. What is its logarithm need not: a
        Softplus of a large number is that number, and an exponential only defines it."""
        self._of: dict[str, Known] = {}
        self._names: dict[Value, str] = {}
        for source, known in zip(value.node.inputs, inputs, strict=True):
            name = self._names.setdefault(source, str(len(self._names)))
            self._of[name] = known

    def range(self) -> Known:
        """The range of the output; None, too, where it may overflow."""
        node = self._value.node
        assert isinstance(node.op, Operator)
        readers = [self._reader(position) for position in range(len(node.inputs))]
        index = tuple(symbol(f"i{axis}") for axis in range(len(self._value.shape)))
        shapes = [source.shape for source in node.inputs]
        try:
            element = node.op.at(readers, shapes, node.attributes, self._value.index, index)
            found = self._read(element)
        except (ShapeError, OverflowError, ZeroDivisionError):
            return None
        fits = found is not None and (found.low > found.high or found.within(self._largest))
        return found if fits else None

    def _reader(self, position: int) -> Reader:
        if position in self._truths:
            return lambda index: self._truths[position]
        source = self._value.node.inputs[position]
        if source.type.dtype == BOOL:
            return lambda index: truth(self._names[source], index)
        return lambda index: Element(self._names[source], index)

    def _read(self, e: Scalar) -> Known:
        match e:
            case Literal(value):
                return Range(float(value), float(value))
            case Element(tensor, _):
                return self._of[tensor]
            case OfSize():
                return Range(-self._moderate, self._moderate)
            case Plus(args):
                return self._sum([self._read(arg) for arg in args])
            case Times(args):
                return self._product(args)
            case SumOver(_, extent, body):
                return self._repeated(self._read(body), extent if isinstance(extent, int) else None)
            case MaxOver(_, _, body):
                found = self._read(body)
                return found if found is None or found.is_real else replace(found, reached=_NOWHERE)
            case If(conditions, then, other):
                decided = [condition.decided for condition in conditions]
                if all(decided):
                    return self._read(then)
                if False in decided:
                    return self._read(other)
                first, second = self._read(then), self._read(other)
                return None if first is None or second is None else first.join(second)
            case Call(function, args):
                return self._called(function, [self._read(arg) for arg in args])
        return None

    def _sum(self, parts: Sequence[Known]) -> Known:
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        total = self._bounded(sum(p.low for p in known), sum(p.high for p in known), known)
        return total if all(p.is_real for p in known) else replace(total, reached=_NOWHERE)

    def _product(self, factors: Sequence[Scalar]) -> Known:
        low = high = 1.0
        read: list[Range] = []
        for factor in dict.fromkeys(factors):
            part = self._read(factor)
            if part is None or not part.is_real:
                return None
            read.append(part)
            count = factors.count(factor)
            ends = power(part, count)
            corners = [a * b for a in (low, high) for b in ends]
            low, high = min(corners), max(corners)
        return self._bounded(low, high, read)

    def _repeated(self, body: Known, times: int | None) -> Known:
        """A sum of so many elements; of any number, if that is None."""
        if body is None or not body.is_real:
            return None
        if times is not None:
            return self._bounded(times * body.low, times * body.high, [body])
        most = self._moderate
        return self._bounded(min(0.0, body.low) * most, max(0.0, body.high) * most, [body])

    def _bounded(self, low: float, high: float, given: Sequence[Range]) -> Range:
        """A result; what is made of moderate numbers alone is taken to be moderate, too."""
        most = self._moderate
        if all(part.low > part.high or part.within(most) for part in given):
            return Range(min(max(low, -most), most), max(min(high, most), -most))
        return Range(low, high)

    def _called(self, function: str, args: Sequence[Known]) -> Known:
        given = [arg for arg in args if arg is not None and arg.is_real and arg.low <= arg.high]
        if len(given) < len(args) or (function == "log" and self.cut):
            return None
        ends = FUNCTIONS[function](*given, self._moderate) if function in FUNCTIONS else None
        if ends is None:
            return None
        self.cut |= function == "exp" and ends[1] > self._moderate**0.5  # as many may be added up
        return self._bounded(*ends, given)


_NOWHERE: frozenset[int] = frozenset()
