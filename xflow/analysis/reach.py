"""The float inputs of a model from which a value is computed, in several senses.

*By elements*: through elementwise operators and movements alone. *As a mask*: so that elements of
the input that are -inf may make elements of the value -inf. *In any way*, and *at all*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from xflow.analysis.elements import element_of, names_of
from xflow.analysis.opaque import FACTORS, MOVES, Made, kind_of
from xflow.core.errors import ShapeError
from xflow.core.fold import ConstantLookup, Folder
from xflow.core.node import Leaf, Node, Opaque, Value
from xflow.core.registry import Array, Operator
from xflow.core.sorts import FLOATS
from xflow.core.spec import (
    Call,
    Element,
    If,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
)
from xflow.ops.shape import Movement

FOLDED = 2**20
"""Most elements of a constant that are examined."""


_Inputs: TypeAlias = dict[Value, frozenset[Value]]
"""Inputs by the values that depend on them."""


class Reach:
    """The float inputs behind values, in a graph whose constants `constants` serves."""

    def __init__(self, constants: ConstantLookup) -> None:
        self._fold = Folder(constants)
        self._passing: dict[Node, tuple[Value, ...]] = {}
        self._by_elements: _Inputs = {}
        self._as_masks: _Inputs = {}
        self._in_any_way: _Inputs = {}
        self._at_all: _Inputs = {}

    def by_elements(self, value: Value) -> frozenset[Value]:
        """The inputs of which single elements make each element of a value."""
        return _behind(value, lambda node: node.inputs if carries(node) else (), self._by_elements)

    def as_masks(self, value: Value) -> frozenset[Value]:
        """The inputs of which elements that are -inf may make elements of a value -inf.

        Not those that are factors of a product with another input: a scale of scores is no mask.
        Nor is what is summed with weights of which some are negative: these make +inf of -inf.
        """
        return _behind(value, self.passing, self._as_masks)

    def in_any_way(self, value: Value) -> frozenset[Value]:
        """The inputs that a value depends on; behind weights of a softmax those `in_scores`."""

        def follow(node: Node) -> Iterable[Value]:
            if isinstance(node.op, Opaque) and kind_of(node.op.op_type) is Made.NUMBERS:
                return ()
            is_weight = isinstance(node.op, Operator) and node.op.weights_along is not None
            return self.in_scores(node.inputs[0]) if is_weight else node.inputs

        return _behind(value, follow, self._in_any_way)

    def at_all(self, value: Value) -> frozenset[Value]:
        """The inputs that a value depends on, also through weights of a softmax."""
        return _behind(value, lambda node: node.inputs, self._at_all)

    def in_scores(self, scores: Value) -> frozenset[Value]:
        """The inputs that what a softmax reads is made of by elements, or as masks."""
        return self.by_elements(scores) | self.as_masks(scores)

    def passing(self, node: Node) -> tuple[Value, ...]:
        """The inputs of an operator of which an element that is -inf may make a result -inf."""
        found = self._passing.get(node)
        if found is None:
            found = self._passing[node] = tuple(dict.fromkeys(self._passed_by(node)))
        return found

    def _passed_by(self, node: Node) -> Sequence[Value]:
        floats = [value for value in node.inputs if value.type.dtype in FLOATS]
        if isinstance(node.op, Opaque):
            return self._passed_by_opaque(node.op.op_type, floats)
        if not isinstance(node.op, Operator) or node.role == "attention":
            return ()
        if isinstance(node.op, Movement):
            return floats
        names = names_of(node.inputs)
        of = dict(zip(names, node.inputs, strict=True))
        reading = _Reading(of, self._has_negative)
        try:
            passed = frozenset[str]().union(*(reading.passed(element_of(v)) for v in node.outputs))
        except ShapeError:
            return floats
        return [value for value in floats if any(of[name] == value for name in passed)]

    def _passed_by_opaque(self, op_type: str, floats: Sequence[Value]) -> Sequence[Value]:
        """As `passing`, for an operator of which the name is known alone."""
        if kind_of(op_type) is Made.NUMBERS:
            return ()
        count = FACTORS.get(op_type, 0)
        factors, others = floats[:count], floats[count:]
        computed = [value for value in factors if not value.is_constant]
        weights = [value for value in factors if value.is_constant]
        if len(computed) > 1 or any(map(self._has_negative, weights)):
            return others
        return floats

    def _has_negative(self, value: Value) -> bool:
        """Whether an element of a constant is negative; of a large one, among the first."""
        data = self.data(value)
        if data is None and not value.is_leaf and isinstance(value.node.op, Movement):
            return any(map(self._has_negative, value.node.inputs))
        return data is not None and bool(np.any(data.reshape(-1)[:FOLDED] < 0))

    def data(self, value: Value) -> Array | None:
        """The data of a constant that is a leaf or small."""
        return self._fold.up_to(FOLDED, value)


def back(value: Value, follow: Callable[[Node], Iterable[Value]]) -> set[Value]:
    """The values that are no constants and are met from a value on the way back."""
    seen, stack = {value}, [value]
    while stack:
        below = follow(stack.pop().node)
        new = [each for each in below if not each.is_constant and each not in seen]
        seen.update(new)
        stack += new
    return seen


def _behind(
    value: Value, follow: Callable[[Node], Iterable[Value]], known: _Inputs
) -> frozenset[Value]:
    """The float inputs that are met from a value on the way back.

    Those of each value on the way are kept in `known`, which is for one `follow`: all values of a
    graph together take one walk, and not one each.
    """
    stack = [value]
    while stack:
        each = stack[-1]
        below = [source for source in follow(each.node) if not source.is_constant]
        missing = [source for source in below if source not in known]
        if each not in known and missing:
            stack += missing
            continue
        stack.pop()
        if each not in known:
            is_input = isinstance(each.node.op, Leaf) and not each.is_constant
            own = {each} if is_input and each.type.dtype in FLOATS else ()
            known[each] = frozenset(own).union(*(known[source] for source in below))
    return known[value]


def carries(node: Node) -> bool:
    """Whether each element of an operator's results is made of one element of each input."""
    if isinstance(node.op, Opaque):
        return node.op.op_type in MOVES or node.op.op_type == "Cast"
    return isinstance(node.op, Operator) and (node.op.elementwise or isinstance(node.op, Movement))


class _Reading:
    """A reading of a specification whose tensors are the values `of`."""

    def __init__(self, of: dict[str, Value], has_negative: Callable[[Value], bool]) -> None:
        self._of = of
        self._has_negative = has_negative

    def passed(self, scalar: Scalar, *, summed: bool = False) -> frozenset[str]:
        """The tensors of which an element that is -inf may make `scalar` -inf.

        `summed` says that it is a term of a sum over a range.
        """
        match scalar:
            case Element(tensor):
                return frozenset((tensor,))
            case Plus(args) | Call("max" | "min", args):
                return self._union(args, summed=summed)
            case If(_, then, other):
                return self._union((then, other), summed=summed)
            case SumOver(_, _, body):
                return self.passed(body, summed=True)
            case MaxOver(_, _, body) | ProductOver(_, _, body):
                return self.passed(body, summed=summed)
            case Times(args):
                computed = [arg for arg in args if self._is_computed(arg)]
                weights = [arg.tensor for arg in args if isinstance(arg, Element)]
                constant = [self._of[name] for name in weights if self._of[name].is_constant]
                if len(computed) == 1 and not (summed and any(map(self._has_negative, constant))):
                    return self.passed(computed[0], summed=summed)
        return frozenset()

    def _union(self, args: Sequence[Scalar], *, summed: bool) -> frozenset[str]:
        return frozenset[str]().union(*(self.passed(arg, summed=summed) for arg in args))

    def _is_computed(self, scalar: Scalar) -> bool:
        """Whether floats that are no constants are read."""
        match scalar:
            case Element(tensor):
                value = self._of[tensor]
                return value.type.dtype in FLOATS and not value.is_constant
            case Plus(args) | Times(args) | Call(_, args):
                return any(map(self._is_computed, args))
            case If(_, then, other):
                return self._is_computed(then) or self._is_computed(other)
            case SumOver(_, _, body) | MaxOver(_, _, body) | ProductOver(_, _, body):
                return self._is_computed(body)
        return False
