"""Inputs whose NaN or infinities a kernel may turn into numbers, unlike its specification.

A proof about specifications is not enough then: at run time the left side may be a number where its
definition has none. So an element that it reads there counts as hidden, as one that is lost on the
way, see `xflow.verifier.proof.reads`, unless the right side makes the same of it. It does so where
both sides are equal whatever number a kernel makes of what it computes, and where the element
itself is what the kernels read, on both sides: nothing else was made of a NaN on the way there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from xflow.core.evaluation import read
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Operator
from xflow.core.size import symbol
from xflow.core.sorts import REAL
from xflow.core.spec import Element, If, Index, Literal, Scalar, call
from xflow.verifier.proof.exact import read_operations


def hidden_inputs(left: Value, right: Value, alike: bool) -> frozenset[str]:
    """The inputs of a rule whose NaN or infinities the left side may hide at run time.

    `alike` says that both sides are equal as `read_kernels` reads them.
    """
    hidden = _under(_hiding(left))
    return hidden - _moved(left) & _moved(right) if alike else hidden


def bounded_inputs(left: Value, right: Value, alike: bool) -> frozenset[str]:
    """The inputs that kernels other than those of attention may hide where they are -inf.

    Without those of which both sides make the same, see `hidden_inputs`.
    """
    sides = (left, right)
    kernels = [each for side in sides for each in _hiding(side) if _role(each) != "attention"]
    bounded = _under(kernels)
    return bounded - _moved(left) & _moved(right) if alike else bounded


def hides(value: Value) -> bool:
    """Whether a kernel under `value` may hide something."""
    return any(True for _ in _hiding(value))


def read_kernels(value: Value, index: Index) -> Scalar:
    """`xflow.core.evaluation.read` where a kernel that hides something may give any number.

    All that is known of it is that it gives the same where its operator's specification does.
    """
    return read(value, index, _by_any_function)


def _by_any_function(node: Node, made: Scalar) -> Scalar:
    assert isinstance(node.op, Operator)
    return call("any", Literal(_number(node.op)), made) if _hidden(node) else made


def _number(op: Operator) -> Fraction:
    """A number for each operator."""
    return Fraction(int.from_bytes(op.name.encode(), "big"))


def _hiding(side: Value) -> Iterator[Node]:
    for node in walk([side]):
        if isinstance(node.op, Operator) and _hidden(node):
            yield node


def _hidden(node: Node) -> tuple[int, ...]:
    assert isinstance(node.op, Operator)
    return node.op.hides([value.shape for value in node.inputs], node.attributes)


def _role(node: Node) -> str:
    assert isinstance(node.op, Operator)
    return node.op.role


def _under(nodes: Iterable[Node]) -> frozenset[str]:
    sources = [node.inputs[position] for node in nodes for position in _hidden(node)]
    return _leaves(sources)


def _leaves(values: Iterable[Value]) -> frozenset[str]:
    return frozenset(
        node.op.key
        for node in walk(values)
        if isinstance(node.op, Leaf) and node.types[0].dtype == REAL
    )


def _moved(side: Value) -> frozenset[str]:
    """The inputs whose elements are what all kernels that hide them read, selected or moved."""
    sources = [node.inputs[k] for node in _hiding(side) for k in _hidden(node)]
    others = frozenset[str]()
    for source in sources:
        index = tuple(symbol(f"_h{axis}") for axis in range(len(source.shape)))
        others |= _leaves([source]) - _selected(read_operations(source, index))
    return _leaves(sources) - others


def _selected(scalar: Scalar) -> frozenset[str]:
    """The tensors of which `scalar` is an element, depending on sizes and Booleans alone."""
    match scalar:
        case Element(name, _):
            return frozenset({name})
        case If(_, then, other):
            return _selected(then) | _selected(other)
    return frozenset()
