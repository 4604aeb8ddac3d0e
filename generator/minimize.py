"""Minimisation: an equation is redundant if accepted rules already simplify its larger side.

Terms are ordered (operators that cost, then others, then text), and a rule, used in any direction
in which it is proved, *reduces* a term if it makes a smaller one. An equation is dropped if such
steps lead from its larger side to a term that costs no more than its smaller side, which is the
smallest of its class. Every chain of such steps goes downhill, which search follows easily. Where
both sides cost the same, the search may want to go the other way, too: then no step may forget an
input. ``x * k + c = (x + c / k) * k`` follows from a distribution and
``(c / k) * k = c``, but nothing that has c alone leads to its quotient by k.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from xflow.core.graph import Graph, walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Operator
from xflow.generator.vocabulary import Vocabulary
from xflow.rewriting.instance import Instance, leaves_of
from xflow.rewriting.match import NoMatch, find_matches
from xflow.rewriting.rewrite import rewrite
from xflow.rewriting.rule import Rule

MAX_FRONTIER = 40
"""Terms followed at each step."""

MAX_DESCENT = 4
"""Steps downhill within which an equation counts as derived."""

Order = tuple[int, int, int, str]


@dataclass(frozen=True)
class _Usable:
    instance: Instance
    operators: Counter[str]
    rule: Rule
    keeps: bool
    """Whether what it makes has all inputs of what it reads: only then could a rule lead back."""


@dataclass(frozen=True)
class Descent:
    """A smaller term, and whether each step there kept all inputs."""

    term: Value
    keeps: bool


@dataclass
class Reducer:
    """Decides whether the accepted rules derive an equation by steps that make terms smaller."""

    usable: dict[int, list[_Usable]] = field(default_factory=dict)

    def add(self, rule: Rule) -> None:
        """Accept a proven rule."""
        directions = rule.directions()
        for direction in directions:
            for rank in {0, 1} if direction.ranks == (0,) else {1} & set(direction.ranks):
                at = 0 if direction.ranks == (0,) else rank
                instance = direction.instance(at)
                if not _has_operators(instance):
                    continue
                keeps = leaves_of(instance.lhs) <= leaves_of(instance.rhs)
                usable = _Usable(instance, _needed(instance.lhs), rule, keeps)
                self.usable.setdefault(rank, []).append(usable)

    def remove(self, rule: Rule) -> None:
        """Forget an accepted rule."""
        for rank, usable in self.usable.items():
            self.usable[rank] = [item for item in usable if item.rule is not rule]

    def derives(self, source: Value, target: Value, vocabulary: Vocabulary) -> bool:
        """Whether rules lead downhill from `source` to a term that costs no more than `target`.

        An equation that saves one operator of two is not derived by detours without gain: the
        search should make such a simple step at once. One that saves none is only where the steps
        keep all inputs, or where no more than what is free is computed in another way.
        """
        start, goal = order(source, vocabulary), order(target, vocabulary)[:2]
        steps = 1 if goal[0] < start[0] <= 2 else 2
        both_ways = start[0] == goal[0] and not _differ_in_free_parts(source, target, vocabulary)
        term = source
        for _ in range(MAX_DESCENT):
            smaller = self.smaller(term, vocabulary, steps)
            if smaller is None or (both_ways and not smaller.keeps):
                return False
            term = smaller.term
            if order(term, vocabulary)[:2] <= goal:
                return True
        return False

    def smaller(self, value: Value, vocabulary: Vocabulary, steps: int = 2) -> Descent | None:
        """The smallest term that accepted rules make of `value`, on a way that costs no more.

        None where nothing smaller is within `steps`.
        """
        rank = 1 if vocabulary.ranks != (0,) else 0
        start = order(value, vocabulary)
        seen = {value}
        frontier = [Descent(value, keeps=True)]
        for _ in range(steps):
            best = (start, Descent(value, keeps=True))
            below: list[Descent] = []
            for at in frontier:
                for other, keeps in self._neighbours(at.term, rank):
                    place = order(other, vocabulary)
                    reached = Descent(other, at.keeps and keeps)
                    if place < best[0]:
                        best = (place, reached)
                    if place[0] <= start[0] and other not in seen and len(below) < MAX_FRONTIER:
                        seen.add(other)
                        below.append(reached)
            if best[0] < start:
                return best[1]
            frontier = below
        return None

    def _neighbours(self, value: Value, rank: int) -> Iterator[tuple[Value, bool]]:
        graph = Graph((value,))
        present = operators_of(graph.outputs)
        for usable in self.usable.get(rank, ()):
            if any(present[name] < count for name, count in usable.operators.items()):
                continue
            for match in find_matches(usable.instance, graph):
                after = rewrite(graph, usable.instance, match)
                if not isinstance(after, NoMatch):
                    yield after.outputs[0], usable.keeps


def _has_operators(instance: Instance) -> bool:
    """Whether each output of the left side is one of an operator: any value is a mere input."""
    return all(isinstance(value.node.op, Operator) for value in instance.lhs)


def is_linear(value: Value, free: Collection[str] = ()) -> bool:
    """Whether every input is read at most once; those in `free` any number of times."""
    seen: set[Value] = set()

    def read_once(term: Value) -> bool:
        if term.is_leaf:
            first = term not in seen
            seen.add(term)
            assert isinstance(term.node.op, Leaf)
            return first or term.node.op.key in free
        return all(read_once(source) for source in term.node.inputs)

    return read_once(value)


def repeats_itself(value: Value) -> bool:
    """Whether a term of several operators applies one of them to the same value twice.

    A fact about ``f(t, t)`` is an equation of that one operator; larger equations that contain it
    are instances of equations between different inputs, or of no practical use.
    """
    nodes = [node for node in walk([value]) if isinstance(node.op, Operator) and node.inputs]
    return len(nodes) > 1 and any(len(set(node.inputs)) < len(node.inputs) for node in nodes)


def is_permutation(source: Value, target: Value) -> bool:
    """Whether the sides differ in the order of inputs alone, below other than elementwise ones."""

    def shape(text: str, value: Value) -> str:
        for leaf in Graph((value,)).leaves:
            text = re.sub(rf"\b{leaf}\b", "_", text)
        return text

    return shape(str(source), source) == shape(str(target), target) and not all(
        node.op.elementwise for node in walk([source]) if isinstance(node.op, Operator)
    )


def _needed(values: Sequence[Value]) -> Counter[str]:
    """How many nodes of each operator a graph must have in which these are to be found."""
    nodes = (node for node in walk(values) if not node.is_schematic)
    return Counter(node.op.name for node in nodes if isinstance(node.op, Operator))


def operators_of(values: Sequence[Value]) -> Counter[str]:
    """How many nodes of each operator there are under `values`."""
    return Counter(node.op.name for node in walk(values) if isinstance(node.op, Operator))


def _differ_in_free_parts(source: Value, target: Value, vocabulary: Vocabulary) -> bool:
    """Whether two terms are the same, but for how what is free is computed."""
    return _costly(source, vocabulary) == _costly(target, vocabulary)


def _costly(value: Value, vocabulary: Vocabulary) -> object:
    """A term with its largest parts that are free left out."""
    free = {item.name for item in vocabulary.inputs if item.sort in vocabulary.free}

    def costly(term: Value) -> object:
        op = term.node.op
        if isinstance(op, Leaf):
            return None if op.key in free else op.key
        parts = tuple(map(costly, term.node.inputs))
        if not any(part is not None for part in parts):
            return None
        return (term.node.kind, term.index, parts)

    return costly(value)


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
