"""Backtracking search in one region: states are graphs, steps are applications of rules.

A state survives if its cost is below alpha times the best. Three things keep the number of states
small. States that are equal up to the order of commutative arguments and up to how weights are
computed from the same weights count once. A path is local: behind its first step each step has to
touch what the path has made, or what that reads, since steps elsewhere are found on their own; a
state that beats all others starts afresh. And single-output rules are matched once per node, for
all states that contain it.
"""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xflow.graph import Graph, Leaf, Node, Opaque, Value, apply, walk
from xflow.match import ConstantLookup, Match, NoMatch, find_matches, replacement
from xflow.ops.registry import Operator
from xflow.rule import Instance, Rule


@dataclass(frozen=True)
class Limits:
    """What bounds the search of a region; the first three make it the same on any machine."""

    alpha: float = 1.5
    expansions: int = 400
    states: int = 4000
    deadline: float = float("inf")
    """In time.monotonic's seconds."""


@dataclass(frozen=True)
class State:
    """A graph that was reached: its estimated cost and the rules that led to it."""

    graph: Graph
    cost: float
    path: tuple[str, ...] = ()
    focus: frozenset[Node] | None = field(default=None, repr=False)
    """The nodes that the next step must be near; None: any."""
    depth: int = 0
    """Steps since the search last started afresh."""


class RuleIndex:
    """Rules by the operator at the root of their left side.

    Left out: sides that are a mere input, since they match everywhere, and instances whose right
    side has sizes that the left side does not determine.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.single: dict[Operator, list[tuple[str, Instance]]] = {}
        self.several: dict[Operator, list[tuple[str, Instance]]] = {}
        for rule in rules:
            self._add(rule)
            if rule.reverse is not None:
                self._add(rule.reversed())

    def _add(self, rule: Rule) -> None:
        for instance in rule.instances():
            op = instance.lhs[0].node.op
            if isinstance(op, Operator) and not instance.free_symbols:
                index = self.single if len(instance.lhs) == 1 else self.several
                index.setdefault(op, []).append((rule.name, instance))

    def __bool__(self) -> bool:
        return bool(self.single or self.several)


@dataclass(frozen=True)
class _Step:
    rule: str
    before: tuple[Value, ...]
    after: tuple[Value, ...]
    near: frozenset[Node]
    """The nodes matched, and those that the rule's inputs come from."""


class Explorer:
    """Searches one region. `estimate` prices graphs; `constants` serves their leaves."""

    def __init__(
        self,
        rules: RuleIndex,
        estimate: Callable[[Graph], float],
        constants: ConstantLookup,
        limits: Limits,
        seed: int = 0,
    ) -> None:
        self.rules = rules
        self.estimate = estimate
        self.constants = constants
        self.limits = limits
        self.random = random.Random(seed)
        self.exhausted = False
        """Whether nothing was left to explore when the search ended."""
        self._local: dict[Node, tuple[_Step, ...]] = {}
        self._numbers: dict[object, int] = {}
        self._names: dict[Node, int] = {}

    def explore(self, graph: Graph, keep: int) -> list[State]:
        """The cheapest states that were found, the given graph first, then by cost.

        At most `keep` besides the given graph; no two consist of the same operators.
        """
        root = State(graph, self.estimate(graph))
        best = root.cost
        queue = _Queue(self.random)
        queue.push(root)
        seen = {self._key(graph)}
        found: dict[object, State] = {_signature(graph): root}
        for _ in range(self.limits.expansions):
            state = queue.pop(self.limits.alpha * best)
            if state is None:
                self.exhausted = True
                break
            for after in self._successors(state):
                if time.monotonic() > self.limits.deadline or len(seen) >= self.limits.states:
                    return _cheapest(found, root, keep)
                key = self._key(after.graph)
                if key in seen:
                    continue
                seen.add(key)
                cost = self.estimate(after.graph)
                if cost > self.limits.alpha * best:
                    continue
                better = cost < best * (1 - 1e-6)
                new = State(
                    after.graph,
                    cost,
                    after.path,
                    None if better else after.focus,
                    0 if better else after.depth,
                )
                best = min(best, cost)
                queue.push(new)
                signature = _signature(new.graph)
                if signature not in found or found[signature].cost > cost:
                    found[signature] = new
        return _cheapest(found, root, keep)

    def _successors(self, state: State) -> Iterator[State]:
        present = set(state.graph.nodes)
        zone = None if state.focus is None else _around(state.focus)
        for step in self._steps(state.graph):
            if zone is not None and zone.isdisjoint(step.near):
                continue
            mapping = dict(zip(step.before, step.after, strict=True))
            graph, moved = _replace(state.graph, mapping)
            made = [node for node in walk(step.after) if node not in present]
            created = {node for node in made if not node.constant}
            created = created or {value.node for value in step.after}
            kept = set(graph.nodes)
            old = {moved.get(node, node) for node in state.focus or ()} & kept
            yield State(
                graph,
                0.0,
                (*state.path, step.rule),
                frozenset(created | old),
                state.depth + 1,
            )

    def _steps(self, graph: Graph) -> Iterator[_Step]:
        for node in graph.nodes:
            if not node.constant and isinstance(node.op, Operator):
                if node not in self._local:
                    self._local[node] = tuple(self._single(node, graph))
                yield from self._local[node]
                for name, instance in self.rules.several.get(node.op, ()):
                    yield from self._at(node, graph, name, instance)

    def _single(self, node: Node, graph: Graph) -> Iterator[_Step]:
        done: set[tuple[int, ...]] = set()
        assert isinstance(node.op, Operator)
        for name, instance in self.rules.single.get(node.op, ()):
            for step in self._at(node, graph, name, instance):
                key = tuple(self._name(value.node) for value in (*step.before, *step.after))
                if key not in done:
                    done.add(key)
                    yield step

    def _at(self, node: Node, graph: Graph, name: str, instance: Instance) -> Iterator[_Step]:
        at = [Value(node, instance.lhs[0].index)]
        if at[0].index >= len(node.types):
            return
        for match in find_matches(instance, graph, self.constants, at):
            if any(value.is_constant for value in match.roots):
                continue
            after = replacement(instance, match)
            if not isinstance(after, NoMatch):
                yield _Step(name, match.roots, after, _near(match))

    def _key(self, graph: Graph) -> tuple[tuple[int, int], ...]:
        return tuple((self._name(value.node), value.index) for value in graph.outputs)

    def _name(self, node: Node) -> int:
        """A number that nodes share which are equal for the search."""
        known = self._names.get(node)
        if known is not None:
            return known
        for inner in walk([Value(node, 0)]):
            if inner not in self._names:
                key = self._describe(inner)
                self._names[inner] = self._numbers.setdefault(key, len(self._numbers))
        return self._names[node]

    def _describe(self, node: Node) -> object:
        if isinstance(node.op, Leaf | Opaque):
            return node
        if node.constant and node.inputs:
            weights = frozenset(n for n in walk([Value(node, 0)]) if isinstance(n.op, Leaf))
            return weights, node.types
        inputs = [(self._names[value.node], value.index) for value in node.inputs]
        if node.op.commutative:
            inputs.sort()
        return node.op, tuple(inputs), tuple(sorted(node.attributes.items())), node.types


class _Queue:
    """States to expand: by turns the cheapest of all, and the cheapest of the next depth.

    Long paths that first cost and then pay would otherwise wait for all states that are cheap.
    """

    def __init__(self, order: random.Random) -> None:
        self._layers: list[list[tuple[float, float, int, State]]] = []
        self._random = order
        self._count = 0
        self._turn = 0

    def push(self, state: State) -> None:
        while len(self._layers) <= state.depth:
            self._layers.append([])
        self._count += 1
        entry = (state.cost, self._random.random(), self._count, state)
        heapq.heappush(self._layers[state.depth], entry)

    def pop(self, limit: float) -> State | None:
        """The next state whose cost is at most `limit`; dearer ones are forgotten."""
        for layer in self._layers:
            if layer and layer[0][0] > limit:
                layer.clear()
        filled = [depth for depth, layer in enumerate(self._layers) if layer]
        if not filled:
            return None
        self._turn += 1
        if self._turn % 2:
            depth = min(filled, key=lambda d: self._layers[d][0])
        else:
            depth = filled[self._turn // 2 % len(filled)]
        return heapq.heappop(self._layers[depth])[3]


def _near(match: Match) -> frozenset[Node]:
    sources = (value.node for value in match.bindings.values())
    return match.nodes | {
        node for node in sources if not node.constant or not isinstance(node.op, Leaf)
    }


def _around(focus: frozenset[Node]) -> frozenset[Node]:
    """Nodes and those that they read, weights aside."""
    return focus | {v.node for node in focus for v in node.inputs if not v.is_constant}


def _replace(graph: Graph, mapping: Mapping[Value, Value]) -> tuple[Graph, dict[Node, Node]]:
    """`graph` with values replaced, and what became of the nodes that read them."""
    new = dict(mapping)
    moved: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple(new.get(value, value) for value in node.inputs)
        if inputs == node.inputs:
            continue
        assert isinstance(node.op, Operator)
        outputs = apply(node.op, inputs, node.attributes)
        moved[node] = outputs[0].node
        for index, output in enumerate(outputs):
            new.setdefault(Value(node, index), output)
    return Graph(tuple(new.get(value, value) for value in graph.outputs)), moved


def _signature(graph: Graph) -> object:
    """What two graphs share that the runtime would serve alike: operators and their types."""
    counts = Counter(
        (node.op, node.types)
        for node in graph.nodes
        if not node.constant and isinstance(node.op, Operator)
    )
    return frozenset(counts.items())


def _cheapest(found: Mapping[object, State], root: State, keep: int) -> list[State]:
    others: Sequence[State] = [state for state in found.values() if state.path]
    return [root, *sorted(others, key=lambda state: state.cost)[:keep]]
