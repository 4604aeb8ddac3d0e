"""Inputs whose NaN or infinities a kernel may turn into numbers, unlike its specification.

A proof about specifications is not enough then: at run time the left side may be a number where its
definition has none. So an element that it reads there counts as hidden, as one that is lost on the
way, see `xflow.verifier.proof.reads`, unless the right side has as many of these operators.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Operator
from xflow.core.sorts import REAL


def hidden_inputs(left: Value, right: Value) -> frozenset[str]:
    """The inputs of a rule whose NaN or infinities the left side may hide at run time.

    Without those of which the right side hides as much, by operators of the same names.
    """
    before, after = _counts(left), _counts(right)
    return frozenset(name for name, count in before.items() if count - after[name])


def bounded_inputs(side: Value) -> frozenset[str]:
    """The inputs that kernels other than those of attention may hide where they are -inf."""
    return _under(node for node, op in _hiding(side) if op.role != "attention")


def hides_alike(left: Value, right: Value) -> bool:
    """Whether both sides hide the same of the same inputs."""
    return _counts(left) == _counts(right)


def _counts(side: Value) -> defaultdict[str, Counter[str]]:
    """For each input, how many operators of each name hide something of it."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for node, op in _hiding(side):
        for name in _under([node]):
            found[name][op.name] += 1
    return found


def _hiding(side: Value) -> Iterator[tuple[Node, Operator]]:
    for node in walk([side]):
        if isinstance(node.op, Operator) and _hidden(node):
            yield node, node.op


def _hidden(node: Node) -> tuple[int, ...]:
    assert isinstance(node.op, Operator)
    return node.op.hides([value.shape for value in node.inputs], node.attributes)


def _under(nodes: Iterable[Node]) -> frozenset[str]:
    sources = [node.inputs[position] for node in nodes for position in _hidden(node)]
    return frozenset(
        node.op.key
        for node in walk(sources)
        if isinstance(node.op, Leaf) and node.types[0].dtype == REAL
    )
