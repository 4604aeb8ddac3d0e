"""The inputs of a model that may hold NaN or infinities, judged by how the model reads them.

Float inputs are taken for numbers, see `xflow.core.assumptions`: images and features are. The
model itself tells of two exceptions. It *tests* an input: asks whether it is NaN or infinite,
compares it with itself, with an infinity or with a largest float, or gives it to an operator of
which nothing is known; such an input may be anything. And it adds an input, a *mask*, to the input
of a softmax: a mask may hold -inf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from xflow.analysis.elements import element_of
from xflow.analysis.opaque import MOVES, kind_of
from xflow.core.errors import ShapeError
from xflow.core.fold import ConstantLookup, Folder
from xflow.core.graph import Graph
from xflow.core.node import Leaf, MayBe, Node, Opaque, Value
from xflow.core.registry import Operator
from xflow.core.size import product
from xflow.core.sorts import BOOL, FLOATS
from xflow.core.spec import Call, Element, If, Literal, MaxOver, Plus, Scalar, SumOver, Times
from xflow.ops.shape import Movement

FARTHEST = 12
"""Most operators between a mask and the softmax that reads it."""
FOLDED = 2**20
"""Most elements of a constant that is examined."""
ENORMOUS = {"FLOAT16": 6.5e4, "BFLOAT16": 1e38, "FLOAT": 1e38, "DOUBLE": 1e308}
"""Magnitude from which a constant in a comparison counts as infinite."""


def special_inputs(graph: Graph, constants: ConstantLookup) -> Mapping[str, MayBe]:
    """By the keys of inputs, the values other than numbers that their elements may have."""
    sources = Sources(graph)
    found: dict[str, MayBe] = {}
    for node in graph.nodes:
        for value in _masks(node, sources):
            found.setdefault(_key(value), MayBe.NEGATIVE_INFINITY)
    for node in graph.nodes:
        for value in _tested(node, sources, constants):
            found[_key(value)] = MayBe.ANYTHING
    return found


def _key(value: Value) -> str:
    assert isinstance(value.node.op, Leaf)
    return value.node.op.key


class Sources:
    """The float inputs from which each value is computed element by element."""

    def __init__(self, graph: Graph) -> None:
        self._of: dict[Value, frozenset[Value]] = {}
        for node in graph.nodes:
            found = frozenset[Value]()
            if node.inputs and carries(node):
                found = found.union(*(self.of(value) for value in node.inputs))
            for value in node.outputs:
                is_input = isinstance(node.op, Leaf) and not value.is_constant
                own = frozenset((value,)) if is_input and value.type.dtype in FLOATS else found
                if own:
                    self._of[value] = own

    def of(self, value: Value) -> frozenset[Value]:
        """The inputs; none for a sum over a range of elements, or a constant."""
        return self._of.get(value, frozenset())


def carries(node: Node) -> bool:
    """Whether each element of an operator's results is made of one element of each input."""
    if isinstance(node.op, Opaque):
        return node.op.op_type in MOVES or node.op.op_type == "Cast"
    return isinstance(node.op, Operator) and (node.op.elementwise or isinstance(node.op, Movement))


def _tested(node: Node, sources: Sources, constants: ConstantLookup) -> Iterator[Value]:
    """The inputs of which an operator asks whether they are numbers."""
    own = [sources.of(value) for value in node.inputs]
    if isinstance(node.op, Opaque):
        if not carries(node) and kind_of(node.op.op_type) is None:
            yield from frozenset[Value]().union(*own)
    elif node.types and node.types[0].dtype == BOOL and isinstance(node.op, Operator):
        for number, value in enumerate(node.inputs):
            others = [*own[:number], *own[number + 1 :]]
            yield from own[number].intersection(frozenset[Value]().union(*others))
            if value.is_constant and value.type.dtype in FLOATS and _is_enormous(value, constants):
                yield from frozenset[Value]().union(*others)


def _is_enormous(value: Value, constants: ConstantLookup) -> bool:
    """Whether an element of a constant is none that a number is compared with."""
    size = product(value.shape)
    data = Folder(constants)(value) if isinstance(size, int) and size <= FOLDED else None
    if data is None:
        return False
    with np.errstate(invalid="ignore"):
        small = np.abs(data.astype(np.float64)) < ENORMOUS[value.type.dtype]
    return not bool(np.all(small))


def _masks(node: Node, sources: Sources) -> Iterator[Value]:
    """The inputs that are added to what a softmax reads."""
    if not isinstance(node.op, Operator):
        return
    if node.op.role == "attention":
        position = node.op.mask
        if position is not None and position < len(node.inputs):
            yield from sources.of(node.inputs[position])
    elif node.op.weights_along is not None or _takes_exponential(node):
        yield from _added(node.inputs[0], sources, FARTHEST)


def _added(value: Value, sources: Sources, depth: int) -> Iterator[Value]:
    """The inputs that are added to something else on the way to a value."""
    node = value.node
    if not depth or not carries(node):
        return
    if len(node.inputs) > 1 and _adds(node):
        for number, operand in enumerate(node.inputs):
            others = [sources.of(v) for k, v in enumerate(node.inputs) if k != number]
            for source in sources.of(operand).intersection(_passed(operand, depth)):
                if any(source not in other for other in others):
                    yield source
    for operand in node.inputs:
        yield from _added(operand, sources, depth - 1)


def _passed(value: Value, depth: int) -> Iterator[Value]:
    """The inputs of which elements that are -inf may be so in a value.

    Not of a product with another input: a scale of scores is no mask.
    """
    node = value.node
    if not node.inputs:
        yield value
    elif depth and carries(node):
        computed = [each for each in node.inputs if not each.is_constant]
        if len(computed) < 2 or _selects_or_adds(node):
            for operand in computed:
                yield from _passed(operand, depth - 1)


def _selects_or_adds(node: Node) -> bool:
    """Whether each element of an operator's results is one of its inputs' elements, or a sum."""
    if not isinstance(node.op, Operator) or not node.op.elementwise:
        return True
    scalar = _specification(node)
    return scalar is None or _is_no_product(scalar)


def _is_no_product(scalar: Scalar) -> bool:
    match scalar:
        case Plus(args) | Call("max" | "min", args):
            return all(map(_is_no_product, args))
        case If(_, then, other):
            return _is_no_product(then) and _is_no_product(other)
        case Times(args):
            return sum(not isinstance(arg, Literal) for arg in args) < 2
    return isinstance(scalar, Element | Literal)


def _adds(node: Node) -> bool:
    """Whether an operator adds its inputs up, as they are."""
    if not isinstance(node.op, Operator) or not node.op.elementwise:
        return False
    scalar = _specification(node)
    return isinstance(scalar, Plus) and all(isinstance(arg, Element) for arg in scalar.args)


def _takes_exponential(node: Node) -> bool:
    """Whether an operator of one input computes exponentials of its elements."""
    if len(node.inputs) != 1 or node.inputs[0].type.dtype not in FLOATS:
        return False
    scalar = _specification(node)
    return scalar is not None and _is_exponential(scalar)


def _specification(node: Node) -> Scalar | None:
    """An element of an operator's first result; None where it has no reading."""
    try:
        return element_of(node.outputs[0])
    except ShapeError:
        return None


def _is_exponential(scalar: Scalar) -> bool:
    match scalar:
        case Call("exp", (Element(),)):
            return True
        case Plus(args) | Times(args) | Call(_, args):
            return any(map(_is_exponential, args))
        case SumOver(_, _, body) | MaxOver(_, _, body):
            return _is_exponential(body)
    return False
