"""Steps: what the rules can do at the nodes of a graph, worked out once for each node.

What a rule with a single output does at a node depends only on what lies below the node, and nodes
are shared by all graphs that contain them, so the answer is remembered.

Rules whose two sides consist of the same operators, such as associativity, only rearrange. They are
no steps of their own where they gain nothing: the other rules are tried on all arrangements of a
node, and nodes that are arrangements of each other have one name, by which graphs that were seen
before are known. A sum of four would else be fifteen graphs, each to be searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from xflow.graph import Graph, Leaf, Node, Opaque, Value, apply, walk
from xflow.match import ConstantLookup, Match, NoMatch, find_matches, replacement
from xflow.ops.registry import Operator
from xflow.rule import Instance, Rule

ARRANGEMENTS = 8
"""Most arrangements of a node that are considered."""


class RuleIndex:
    """Rules by the operator at the root of their left side.

    Left out: sides that are a mere input, since they match everywhere, and instances whose right
    side has sizes that the left side does not determine.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.single: dict[Operator, list[tuple[str, Instance]]] = {}
        self.several: dict[Operator, list[tuple[str, Instance]]] = {}
        """Rules of several outputs."""
        self.arranging: dict[Operator, list[tuple[str, Instance]]] = {}
        """Rules of one output that have the same operators on both sides."""
        for rule in rules:
            self._add(rule)
            if rule.reverse is not None:
                self._add(rule.reversed())

    def _add(self, rule: Rule) -> None:
        for instance in rule.instances():
            op = instance.lhs[0].node.op
            if not isinstance(op, Operator) or instance.free_symbols:
                continue
            if len(instance.lhs) > 1:
                index = self.several
            elif _operators(instance.lhs) == _operators(instance.rhs):
                index = self.arranging
            else:
                index = self.single
            index.setdefault(op, []).append((rule.name, instance))

    def __bool__(self) -> bool:
        return bool(self.single or self.several or self.arranging)


def _operators(values: Iterable[Value]) -> Counter[Operator]:
    return Counter(node.op for node in walk(values) if isinstance(node.op, Operator))


@dataclass(frozen=True)
class Step:
    """Values of a graph, what they can be replaced by, and the rules that say so."""

    rules: tuple[str, ...]
    before: tuple[Value, ...]
    after: tuple[Value, ...]
    near: frozenset[Node]
    """The nodes concerned: those that match, and those that the rules' inputs come from."""
    made: tuple[Node, ...]
    """The nodes of what stands there afterwards, as far as the rules put them there."""


@dataclass(frozen=True)
class _Arrangement:
    """A value equal to a node's by rearranging; `made` are its new nodes, inputs first."""

    value: Value
    made: tuple[Node, ...]
    rules: tuple[str, ...]
    near: frozenset[Node]


class Steps:
    """The steps in graphs over the same leaves. `constants` serves these leaves."""

    def __init__(self, rules: RuleIndex, constants: ConstantLookup) -> None:
        self.rules = rules
        self.constants = constants
        self._of: dict[Node, tuple[Step, ...]] = {}
        self._plain: dict[Node, tuple[Step, ...]] = {}
        self._moves: dict[Node, tuple[Step, ...]] = {}
        self._arrangements: dict[Node, tuple[_Arrangement, ...]] = {}
        self._numbers: dict[object, int] = {}
        self._names: dict[Node, int] = {}

    def of(self, graph: Graph) -> Iterator[Step]:
        """All steps in `graph`, outside of constant expressions."""
        for node in graph.nodes:
            if not node.constant and isinstance(node.op, Operator):
                if node not in self._of:
                    self._of[node] = tuple(self._at_node(node))
                yield from self._of[node]
                yield from self._matches(node, graph, self.rules.several)

    def key(self, graph: Graph) -> object:
        """What graphs share that are equal for the search.

        They are equal up to arrangement, the order of commutative arguments, and how weights are
        computed from the same weights.
        """
        return tuple((self.name(value.node), value.index) for value in graph.outputs)

    def name(self, node: Node) -> int:
        """A number that nodes share which are equal for the search, see `key`."""
        if node not in self._names:
            for inner in walk([Value(node, 0)]):
                if inner not in self._names:
                    key = self._describe(inner)
                    number = self._numbers.setdefault(key, len(self._numbers))
                    self._names[inner] = number
                    for other in self.arrangements(inner):
                        self._names.setdefault(other.value.node, number)
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

    def arrangements(self, node: Node) -> tuple[_Arrangement, ...]:
        """The other arrangements of a node with one output, at most ARRANGEMENTS."""
        if node not in self._arrangements:
            self._arrangements[node] = tuple(self._arrange(node))
        return self._arrangements[node]

    def _arrange(self, node: Node) -> Iterator[_Arrangement]:
        if node.constant or node.op not in self.rules.arranging or len(node.types) > 1:
            return
        start = Value(node, 0)
        queue = [_Arrangement(start, (node,), (), frozenset({node}))]
        seen = {_unordered(start)}
        for form in queue:
            for inner in form.made:
                for move in self._moves_at(inner):
                    new = _lift(form, move)
                    key = _unordered(new.value)
                    if key in seen:
                        continue
                    seen.add(key)
                    queue.append(new)
                    yield new
                    if len(queue) > ARRANGEMENTS:
                        return

    def _moves_at(self, node: Node) -> tuple[Step, ...]:
        if node not in self._moves:
            self._moves[node] = tuple(
                () if node.constant else self._matches(node, _no_users(node), self.rules.arranging)
            )
        return self._moves[node]

    def _plain_at(self, node: Node) -> tuple[Step, ...]:
        if node not in self._plain:
            self._plain[node] = tuple(
                () if node.constant else self._matches(node, _no_users(node), self.rules.single)
            )
        return self._plain[node]

    def _at_node(self, node: Node) -> Iterator[Step]:
        done: set[object] = set()
        before = (Value(node, 0),)
        forms = self.arrangements(node)
        most = max((_work(form) for form in forms), default=0)
        steps = [*self._plain_at(node), *self._moves_at(node)]
        for form in forms:
            if _work(form) < most:
                steps.append(Step(form.rules, before, (form.value,), form.near, form.made))
            for inner in form.made:
                for step in self._plain_at(inner):
                    lifted = _lift(form, step)
                    steps.append(
                        Step(lifted.rules, before, (lifted.value,), lifted.near, lifted.made)
                    )
        for step in steps:
            key = (step.before, step.after)
            if key not in done:
                done.add(key)
                yield step

    def _matches(
        self, node: Node, graph: Graph, rules: Mapping[Operator, list[tuple[str, Instance]]]
    ) -> Iterator[Step]:
        assert isinstance(node.op, Operator)
        for name, instance in rules.get(node.op, ()):
            at = [Value(node, instance.lhs[0].index)]
            if at[0].index >= len(node.types):
                continue
            for match in find_matches(instance, graph, self.constants, at):
                if any(value.is_constant for value in match.roots):
                    continue
                after = replacement(instance, match)
                if not isinstance(after, NoMatch):
                    yield Step((name,), match.roots, after.values, _near(match), after.nodes)


def _no_users(node: Node) -> Graph:
    return Graph((Value(node, 0),))


def _near(match: Match) -> frozenset[Node]:
    sources = (value.node for value in match.bindings.values())
    return match.nodes | {node for node in sources if not node.constant}


def _lift(form: _Arrangement, step: Step) -> _Arrangement:
    """`form` after a step at one of the nodes that it has made."""
    new: dict[Value, Value] = dict(zip(step.before, step.after, strict=True))
    made = dict.fromkeys(step.made)
    for node in form.made:
        if node is step.before[0].node:
            continue
        inputs = tuple(new.get(value, value) for value in node.inputs)
        assert isinstance(node.op, Operator)
        output = apply(node.op, inputs, node.attributes)[0] if inputs != node.inputs else None
        if output is not None:
            new[Value(node, 0)] = output
        made[node if output is None else output.node] = None
    value = new.get(form.value, form.value)
    alive = {value.node}
    for node in reversed(made):
        if node in alive:
            alive.update(source.node for source in node.inputs)
    return _Arrangement(
        value,
        tuple(node for node in made if node in alive and not node.constant),
        form.rules + step.rules,
        form.near | step.near,
    )


def _unordered(value: Value) -> object:
    """A value up to the order of commutative arguments at its top levels."""
    node = value.node
    if not isinstance(node.op, Operator) or not node.op.commutative:
        return value
    return node.op, frozenset(Counter(map(_unordered, node.inputs)).items())


def _work(form: _Arrangement) -> int:
    """How many of the new nodes the model would have to compute."""
    return len(form.made)
