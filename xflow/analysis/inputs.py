"""The inputs of a model that may hold NaN or infinities, judged by how the model reads them.

Float inputs are taken for numbers, see `xflow.core.assumptions`: images and features are. The
model itself tells of two exceptions. It *tests* an input: asks whether it, or what is computed of
it, is NaN or infinite, compares it with itself, with an infinity or with a largest float, asks
whether ``x - x`` or ``x * 0`` is 0, or gives it to an operator of which nothing is known; such an
input may be anything. And it adds an input, a *mask*, to the input of a softmax: a mask may hold
-inf. Whether weights of a softmax, or its scores, are numbers is a question about masks, and tests
the inputs alone that are in the scores, and not those of which a product makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from xflow.analysis.elements import element_of
from xflow.analysis.opaque import kind_of
from xflow.analysis.reach import Reach, back, carries
from xflow.core.errors import ShapeError
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.core.node import Leaf, MayBe, Node, Opaque, Value
from xflow.core.registry import Operator
from xflow.core.sorts import BOOL, FLOATS
from xflow.core.spec import Call, Element, Literal, MaxOver, Plus, Scalar, SumOver, Times

FARTHEST = 12
"""Most operators between the sum of a mask and scores and the softmax that reads it."""
ENORMOUS = {"FLOAT16": 6.5e4, "BFLOAT16": 1e38, "FLOAT": 1e38, "DOUBLE": 1e308}
"""Magnitude from which a constant in a comparison counts as infinite."""
TESTS = frozenset(("IsNaN", "IsInf", "com.microsoft::IsAllFinite"))
KEEPING = frozenset(("Identity", "Neg", "Cast"))
"""Operators of one input behind which a number and what is none are told apart as before."""


def special_inputs(graph: Graph, constants: ConstantLookup) -> Mapping[str, MayBe]:
    """By the keys of inputs, the values other than numbers that their elements may have."""
    reach = Reach(constants)
    found: dict[str, MayBe] = {}
    for node in graph.nodes:
        for value in _masks(node, reach):
            found.setdefault(_key(value), MayBe.NEGATIVE_INFINITY)
    tests = _Tests(graph, reach)
    for node in graph.nodes:
        for value in tests.of(node):
            found[_key(value)] = MayBe.ANYTHING
    return found


def _key(value: Value) -> str:
    assert isinstance(value.node.op, Leaf)
    return value.node.op.key


class _Tests:
    """The inputs of which the operators of a graph ask whether they are numbers."""

    def __init__(self, graph: Graph, reach: Reach) -> None:
        self._reach = reach
        self._scores = {
            node.inputs[0]
            for node in graph.nodes
            if isinstance(node.op, Operator) and node.op.weights_along is not None
        }
        self._vanishing = frozenset(
            node.outputs[0] for node in graph.nodes if _vanishes(node, reach)
        )

    def of(self, node: Node) -> Iterator[Value]:
        """The inputs that an operator tests."""
        values = [v for v in node.inputs if not v.is_constant and v.type.dtype in FLOATS]
        if isinstance(node.op, Opaque) and not carries(node):
            if node.op.tests or node.op.op_type in TESTS:
                yield from self._asked(values)
            if kind_of(node.op.op_type) is None:
                yield from frozenset[Value]().union(*map(self._reach.by_elements, values))
        if not values or node.types[0].dtype != BOOL:
            return
        own = [self._reach.by_elements(value) for value in values]
        for number, value in enumerate(values):
            others = [*own[:number], *own[number + 1 :]]
            yield from own[number].intersection(frozenset[Value]().union(*others))
            for zero in self._zeros_behind(value):
                yield from self._reach.in_any_way(zero)
        bounds = [v for v in node.inputs if v.is_constant and v.type.dtype in FLOATS]
        if len(set(values)) < len(values) or any(_is_enormous(v, self._reach) for v in bounds):
            yield from self._asked(values)

    def _zeros_behind(self, value: Value) -> Iterable[Value]:
        """The values that are 0 of every number and reach a value, other than as a factor."""
        return back(value, self._reach.passing) & self._vanishing if self._vanishing else ()

    def _asked(self, values: Iterable[Value]) -> Iterator[Value]:
        """The inputs that values are asked about; of scores of a softmax, those in them."""
        for value in values:
            if value in self._scores:
                yield from self._reach.in_scores(value)
            else:
                yield from self._reach.in_any_way(value)


def _vanishes(node: Node, reach: Reach) -> bool:
    """Whether a value is 0, or 1 as a quotient, wherever what it is made of is a number."""
    if not isinstance(node.op, Operator) or len(node.inputs) != 2 or node.constant:
        return False
    if node.op.name in ("Add", "Sub", "Div"):
        one, other = map(_origin, node.inputs)
        return one is other
    if node.op.name != "Mul":
        return False
    factors = [reach.data(value) for value in node.inputs if value.is_constant]
    return any(data is not None and not np.any(data) for data in factors)


def _origin(value: Value) -> Value:
    """What a value is, or the negative of, in the same floats or others."""
    while isinstance(value.node.op, Operator) and value.node.op.name in KEEPING:
        (below,) = value.node.inputs
        if below.type.dtype not in FLOATS or value.type.dtype not in FLOATS:
            break
        value = below
    return value


def _is_enormous(value: Value, reach: Reach) -> bool:
    """Whether an element of a constant is none that a number is compared with."""
    data = reach.data(value)
    if data is None:
        return False
    with np.errstate(invalid="ignore"):
        small = np.abs(data.astype(np.float64)) < ENORMOUS[value.type.dtype]
    return not bool(np.all(small))


def _masks(node: Node, reach: Reach) -> Iterator[Value]:
    """The inputs that are added to what a softmax reads."""
    if not isinstance(node.op, Operator):
        return
    if node.op.role == "attention":
        position = node.op.mask
        if position is not None and position < len(node.inputs):
            yield from reach.in_scores(node.inputs[position])
    elif node.op.weights_along is not None or _takes_exponential(node):
        yield from _added(node.inputs[0], reach)


def _added(scores: Value, reach: Reach) -> Iterator[Value]:
    """The inputs that are added to something else on the way to scores, or put in its place."""
    seen, level = {scores.node}, [scores.node]
    for _ in range(FARTHEST):
        below: dict[Node, None] = {}
        for node in level:
            yield from _beside(node, reach)
            for value in node.inputs if carries(node) else reach.passing(node):
                below[value.node] = None
        level = [node for node in below if node not in seen]
        seen.update(level)


def _beside(node: Node, reach: Reach) -> Iterator[Value]:
    """The inputs of which an operator adds elements to what does not depend on them."""
    passing, adds = reach.passing(node), _adds(node)
    floats = [value for value in node.inputs if value.type.dtype in FLOATS]
    for number, value in enumerate(floats if len(floats) > 1 else ()):
        others = [*floats[:number], *floats[number + 1 :]]
        reached = [reach.in_any_way(v) for v in others if adds or not v.is_constant]
        for source in reach.as_masks(value) if value in passing and reached else ():
            if any(source not in each for each in reached):
                yield source


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
        case Call("exp", (Element() | Times((Literal(), Element())),)):
            return True
        case Plus(args) | Times(args) | Call(_, args):
            return any(map(_is_exponential, args))
        case SumOver(_, _, body) | MaxOver(_, _, body):
            return _is_exponential(body)
    return False
