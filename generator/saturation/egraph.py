"""An e-graph: classes of equal terms, with the reason for each equality.

Terms are the hash-consed values of `xflow.core.node`. A *class* holds terms that are known to be
equal; it is named by its oldest term. Two nodes of one operator with equal attributes whose inputs
are in the same classes are congruent, so their outputs are put into one class, too
(`EGraph.rebuild`). The order of the inputs of a commutative operator does not count.

Every union keeps its reason in a proof forest (Nieuwenhuis and Oliveras, "Proof-producing
congruence closure", 2005; egg's explanations, Willsey et al., 2021): the edges are rules that were
applied and congruences, an edge is never removed, and so the path between two terms consists of
edges that are older than anything that was concluded from it. `EGraph.explain` follows it and
returns a chain of whole terms, each of which becomes the next by one rule at one place.

Why not egglog: our rules match attributes by solving equations of sizes, have vectors of axes,
broadcasting, conditions on sizes and facts about values, all of which `xflow.rewriting.match` knows
and egglog would have to be told a second time. So its matcher reads this graph as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from xflow.core.node import Node, Value, apply
from xflow.core.registry import Operator
from xflow.core.sorts import ELEMENT


@dataclass(frozen=True)
class Congruence:
    """Equal because the inputs are: input k of one node is input ``order[k]`` of the other."""

    order: tuple[int, ...]


@dataclass(frozen=True)
class Applied:
    """Equal by a rule."""

    rule: str


@dataclass(frozen=True)
class Computed:
    """Equal by arithmetic with numbers."""


Reason: TypeAlias = Congruence | Applied | Computed


@dataclass(frozen=True)
class Step:
    """One application of a rule at one place of a term.

    `rule` is None where numbers are computed or the inputs of a commutative operator change places.
    """

    rule: str | None
    before: Value
    after: Value


@dataclass
class _Class:
    """A class of equal values: its nodes by operator, and the nodes that read it."""

    nodes: dict[object, list[Value]] = field(default_factory=dict)
    users: list[Node] = field(default_factory=list)


class EGraph:
    """Classes of equal values. Call `rebuild` after unions and before looking anything up."""

    def __init__(self) -> None:
        self._terms: list[Value] = []
        """By number. The outputs of a node have numbers in a row."""
        self._numbers: dict[Node, int] = {}
        """The number of a node's output 0."""
        self._parents: list[int] = []
        """The union-find; the root of a class is its smallest number."""
        self._reasons: list[tuple[int, Reason] | None] = []
        """The proof forest."""
        self._classes: dict[int, _Class] = {}
        self._table: dict[Hashable, Node] = {}
        self._keys: dict[Node, Hashable] = {}
        """The key under which a node stands in the table; none for one that is congruent."""
        self._statics: dict[Node, Hashable] = {}
        self._worklist: list[Node] = []
        self._touched: set[int] = set()

    # Looking up

    def __len__(self) -> int:
        """The number of nodes, congruent ones counted once."""
        return len(self._keys)

    def __contains__(self, value: Value) -> bool:
        return value.node in self._numbers

    def canonical(self, value: Value) -> Value:
        """The term that names the class of `value`, which must have been added."""
        return self._terms[self._find(self._numbers[value.node] + value.index)]

    def are_equal(self, left: Value, right: Value) -> bool:
        """Whether two values, which must have been added, are in one class."""
        return self.canonical(left) is self.canonical(right)

    def classes(self) -> Iterator[Value]:
        """The canonical terms of all classes, the oldest first."""
        return (self._terms[root] for root in sorted(self._classes))

    def members(self, value: Value, op: object) -> Sequence[Value]:
        """The outputs of nodes of `op` in the class of a canonical term."""
        return self._classes[self._number(value)].nodes.get(op, ())

    def operators(self, value: Value) -> Iterator[object]:
        """The operators, or leaves, of the nodes in the class of a canonical term."""
        return (op for op, nodes in self._classes[self._number(value)].nodes.items() if nodes)

    def users(self, value: Value) -> Iterator[Node]:
        """The nodes that read the class of a canonical term."""
        users = self._classes[self._number(value)].users
        return (node for node in dict.fromkeys(users) if node in self._keys)

    def find(self, pattern: Node, inputs: Sequence[Value]) -> Node | None:
        """A node like `pattern` that reads these classes; None where none is found.

        The attributes of `pattern` must be numbers and its inputs say its type, see
        `says_its_type`.
        """
        static = (pattern.op, tuple(sorted(pattern.attributes.items())), None)
        return self._table.get(self._key(static, pattern.op, inputs))

    def take_touched(self) -> list[Value]:
        """The classes that are new or have grown since the last call, by canonical terms."""
        roots = sorted({self._find(number) for number in self._touched})
        self._touched.clear()
        return [self._terms[root] for root in roots]

    # Changing

    def add(self, value: Value) -> Value:
        """Add a term with all that it is made of; its class, by the canonical term."""
        self._add(value.node)
        return self.canonical(value)

    def _add(self, node: Node) -> None:
        if node in self._numbers:
            return
        for source in node.inputs:
            self._add(source.node)
        first = len(self._terms)
        self._numbers[node] = first
        for number, output in enumerate(node.outputs, first):
            self._terms.append(output)
            self._parents.append(number)
            self._reasons.append(None)
            self._classes[number] = _Class()
        attributes = tuple(sorted(node.attributes.items()))
        types = None if says_its_type(node) else node.types
        self._statics[node] = (node.op, attributes, types)
        self._enter(node)
        if node in self._keys:
            for index in range(len(node.types)):
                nodes = self._classes[self._find(first + index)].nodes
                nodes.setdefault(node.op, []).append(self._terms[first + index])
                self._touched.add(first + index)
            for source in dict.fromkeys(map(self.canonical, node.inputs)):
                self._classes[self._number(source)].users.append(node)

    def union(self, left: Value, right: Value, reason: Reason) -> bool:
        """Put two values, which must have been added, into one class; False if they were."""
        return self._union(self._number(left), self._number(right), reason)

    def rebuild(self) -> None:
        """Unite the classes of nodes that have become congruent."""
        while self._worklist:
            nodes, self._worklist = list(dict.fromkeys(self._worklist)), []
            for node in nodes:
                key = self._keys.pop(node, None)
                if key is None:
                    continue  # it is congruent with another node, which is looked after
                del self._table[key]
                self._enter(node)
                if node not in self._keys:
                    self._drop(node)

    def _enter(self, node: Node) -> None:
        """Put a node into the table, or unite it with the one that stands there."""
        key = self._key(self._statics[node], node.op, node.inputs)
        other = self._table.setdefault(key, node)
        if other is node:
            self._keys[node] = key
            return
        order = self._order(node, other)
        for index in range(len(node.types)):
            left, right = self._numbers[node] + index, self._numbers[other] + index
            self._union(left, right, Congruence(order))

    def _key(self, static: Hashable, op: object, inputs: Sequence[Value]) -> Hashable:
        """A key that is equal for congruent nodes."""
        numbers = [self._find(self._numbers[value.node] + value.index) for value in inputs]
        if isinstance(op, Operator) and op.commutative:
            numbers.sort()
        return (static, tuple(numbers))

    def _order(self, node: Node, other: Node) -> tuple[int, ...]:
        """Which input of `other` each input of `node`, congruent with it, equals."""
        free = list(range(len(other.inputs)))
        order: list[int] = []
        for source in node.inputs:
            place = next(k for k in free if self.are_equal(source, other.inputs[k]))
            free.remove(place)
            order.append(place)
        return tuple(order)

    def _drop(self, node: Node) -> None:
        """Forget a node that has become congruent with another one."""
        for index in range(len(node.types)):
            root = self._find(self._numbers[node] + index)
            nodes = self._classes[root].nodes[node.op]
            nodes[:] = [value for value in nodes if value.node is not node]

    def _union(self, left: int, right: int, reason: Reason) -> bool:
        roots = self._find(left), self._find(right)
        if roots[0] == roots[1]:
            return False
        self._turn(left)
        self._reasons[left] = (right, reason)
        older, younger = min(roots), max(roots)
        self._parents[younger] = older
        kept, lost = self._classes[older], self._classes.pop(younger)
        for op, nodes in lost.nodes.items():
            kept.nodes.setdefault(op, []).extend(nodes)
        self._worklist += lost.users
        kept.users += lost.users
        self._touched.add(older)
        return True

    def _turn(self, number: int) -> None:
        """Make a term the root of its tree in the proof forest."""
        edge = self._reasons[number]
        self._reasons[number] = None
        while edge is not None:
            above, reason = edge
            following = self._reasons[above]
            self._reasons[above] = (number, _turned(reason))
            number, edge = above, following

    def _find(self, number: int) -> int:
        parents = self._parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    def _number(self, value: Value) -> int:
        return self._numbers[value.node] + value.index

    # Explaining

    def explain(self, left: Value, right: Value) -> list[Step]:
        """A chain of steps from `left` to `right`, which must be equal; each used rule is in it."""
        return _without_loops(self._chain(left, right, {}))

    def _chain(
        self, left: Value, right: Value, known: dict[tuple[Value, Value], list[Step]]
    ) -> list[Step]:
        if left == right:
            return []
        if (left, right) in known:
            return known[left, right]
        steps: list[Step] = []
        for start, reason, end in self._path(self._number(left), self._number(right)):
            before, after = self._terms[start], self._terms[end]
            match reason:
                case Applied(rule):
                    steps.append(Step(rule, before, after))
                case Computed():
                    steps.append(Step(None, before, after))
                case Congruence(order):
                    steps += self._by_congruence(before, after, order, known)
        known[left, right] = _without_loops(steps)
        return known[left, right]

    def _by_congruence(
        self,
        before: Value,
        after: Value,
        order: tuple[int, ...],
        known: dict[tuple[Value, Value], list[Step]],
    ) -> Iterator[Step]:
        """The steps that turn the inputs of one node into those of a congruent one."""
        term = before
        for position, place in enumerate(order):
            source, goal = before.node.inputs[position], after.node.inputs[place]
            for step in self._chain(source, goal, known):
                changed = _with_input(term, position, step.after)
                yield Step(step.rule, term, changed)
                term = changed
        if term != after:
            yield Step(None, term, after)

    def _path(self, start: int, end: int) -> Iterator[tuple[int, Reason, int]]:
        """The edges of the proof forest between two terms."""
        behind = [start]
        while (edge := self._reasons[behind[-1]]) is not None:
            behind.append(edge[0])
        places = {number: k for k, number in enumerate(behind)}
        ahead: list[tuple[int, Reason, int]] = []
        number = end
        while number not in places:
            edge = self._reasons[number]
            assert edge is not None, "the terms are not equal"
            ahead.append((edge[0], _turned(edge[1]), number))
            number = edge[0]
        for below, above in pairwise(behind[: places[number] + 1]):
            edge = self._reasons[below]
            assert edge is not None
            yield below, edge[1], above
        yield from reversed(ahead)


def says_its_type(node: Node) -> bool:
    """Whether operator, attributes and inputs of a node determine the types of its outputs."""
    op = node.op
    if not isinstance(op, Operator) or not node.inputs:
        return False
    takes = {op.taken(position) for position in range(len(node.inputs))}
    return ELEMENT in takes or ELEMENT not in op.gives


def _turned(reason: Reason) -> Reason:
    """The reason read from the other end."""
    if not isinstance(reason, Congruence):
        return reason
    order = reason.order
    return Congruence(tuple(order.index(k) for k in range(len(order))))


def _with_input(term: Value, position: int, source: Value) -> Value:
    """`term` with one input of its node replaced by a value of the same type."""
    node = term.node
    assert isinstance(node.op, Operator)
    inputs = (*node.inputs[:position], source, *node.inputs[position + 1 :])
    return apply(node.op, inputs, node.attributes, dtype=node.types[0].dtype)[term.index]


def _without_loops(steps: list[Step]) -> list[Step]:
    """A chain that comes to no term twice."""
    kept: list[Step] = []
    places: dict[Value, int] = {}
    for step in steps:
        places.setdefault(step.before, len(kept))
        if step.after in places:
            del kept[places[step.after] :]
            places = {old: k for old, k in places.items() if k <= len(kept)}
        else:
            kept.append(step)
    return kept
