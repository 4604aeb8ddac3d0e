"""Minimisation: an equation is redundant if accepted rules already simplify its larger side.

Terms are ordered (operators that cost, then others, then text), and a rule, used in any direction
in which it is proved, *reduces* a term if it makes a smaller one. Every class has its smallest
member as representative, and each enumerated member is compared with it; so if a member reduces,
what it reduces to is equal to the representative by an equation that is smaller and has been
dealt with. Every chain of such steps goes downhill, which is what search follows easily.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xflow.generator.vocabulary import Vocabulary
from xflow.graph import Graph, Leaf, Node, Value, walk
from xflow.match import NoMatch, find_matches, rewrite
from xflow.ops.registry import Operator
from xflow.rule import Instance, Rule

MAX_FRONTIER = 40
"""Terms followed at each step."""

Order = tuple[int, int, int, str]


@dataclass(frozen=True)
class _Usable:
    instance: Instance
    operators: Counter[str]


@dataclass
class Reducer:
    """Knows the accepted rules."""

    usable: dict[int, list[_Usable]] = field(default_factory=dict)

    def add(self, rule: Rule) -> None:
        """Accept a proven rule."""
        directions = [rule] if rule.reverse is None else [rule, rule.reversed()]
        for direction in directions:
            for rank in {0, 1} if direction.ranks == (0,) else {1} & set(direction.ranks):
                instance = direction.instance(0 if direction.ranks == (0,) else rank)
                if not all(isinstance(value.node.op, Operator) for value in instance.lhs):
                    continue
                usable = _Usable(instance, operators_of(instance.lhs))
                self.usable.setdefault(rank, []).append(usable)

    def reduces(self, value: Value, vocabulary: Vocabulary, steps: int = 2) -> bool:
        """Whether accepted rules make `value` smaller, on a way of terms that cost no more."""
        rank = 1 if vocabulary.ranks != (0,) else 0
        start = order(value, vocabulary)
        seen = {value}
        frontier = [value]
        for _ in range(steps):
            below: list[Value] = []
            for term in frontier:
                for other in self._neighbours(term, rank):
                    place = order(other, vocabulary)
                    if place < start:
                        return True
                    if place[0] <= start[0] and other not in seen and len(below) < MAX_FRONTIER:
                        seen.add(other)
                        below.append(other)
            frontier = below
        return False

    def _neighbours(self, value: Value, rank: int) -> Iterator[Value]:
        graph = Graph((value,))
        present = operators_of(graph.outputs)
        for usable in self.usable.get(rank, ()):
            if any(present[name] < count for name, count in usable.operators.items()):
                continue
            for match in find_matches(usable.instance, graph):
                after = rewrite(graph, usable.instance, match)
                if not isinstance(after, NoMatch):
                    yield after.outputs[0]


def is_linear(value: Value) -> bool:
    """Whether every input is read once at most."""
    seen: set[Value] = set()

    def read_once(term: Value) -> bool:
        if term.is_leaf:
            first = term not in seen
            seen.add(term)
            return first
        return all(read_once(source) for source in term.node.inputs)

    return read_once(value)


def is_permutation(source: Value, target: Value) -> bool:
    """Whether the sides differ in the order of inputs alone, below other than elementwise ones."""

    def shape(text: str, value: Value) -> str:
        for leaf in Graph((value,)).leaves:
            text = re.sub(rf"\b{leaf}\b", "_", text)
        return text

    return shape(str(source), source) == shape(str(target), target) and not all(
        node.op.elementwise for node in walk([source]) if isinstance(node.op, Operator)
    )


def operators_of(values: Sequence[Value]) -> Counter[str]:
    """How many nodes of each operator there are under `values`."""
    return Counter(node.op.name for node in walk(values) if isinstance(node.op, Operator))


def order(value: Value, vocabulary: Vocabulary) -> Order:
    """Position of a term among all: by operators that cost, other operators, text."""
    free = {item.name for item in vocabulary.inputs if item.sort in vocabulary.free}
    active: dict[Node, bool] = {}
    counts = [0, 0]
    for node in walk([value]):
        if isinstance(node.op, Leaf):
            active[node] = node.op.key not in free
        else:
            active[node] = any(active[source.node] for source in node.inputs)
            counts[not active[node]] += 1
    text = str(value)
    return (counts[0], counts[1], len(text), text)
