"""Steps: what the rules can do at the nodes of a graph, worked out once for each node.

What a rule with a single output does at a node depends only on what lies below the node, and nodes
are shared by all graphs that contain them, so the answer is remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from xflow.graph import Graph, Leaf, Node, Opaque, Value, walk
from xflow.match import ConstantLookup, Match, NoMatch, find_matches, replacement
from xflow.numerics import EVERYWHERE
from xflow.ops.registry import Operator
from xflow.rule import Instance, Rule

Index: TypeAlias = dict[tuple[Operator, int | None], list[tuple[str, Instance, frozenset[str]]]]
"""By root operator and the number of axes of its output, None where it may be any. With each rule
go the element types in which it loses too many digits, see `xflow.numerics`."""


class RuleIndex:
    """Rules by the operator at the root of their left side.

    Left out: sides that are a mere input, since they match everywhere, instances whose right side
    needs what the left side does not determine, directions that rounding forbids everywhere, and
    elementwise rules that only add operators: there are many of these, they apply everywhere, and
    what they lead to is cheaper to reach by rules that move operators without adding any.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.single: Index = {}
        self.several: Index = {}
        """Rules of several outputs."""
        self.renamings: set[str] = set()
        """Rules that put elementwise operators in the place of others, one for one. There is such
        a place at nearly every operator, and a detour over another name leads nowhere: they are
        taken only where that alone gains."""
        for rule in rules:
            for direction in rule.directions():
                self._add(direction)

    def _add(self, rule: Rule) -> None:
        refused = rule.numerics.refused if rule.numerics else frozenset[str]()
        if refused >= EVERYWHERE:
            return
        for instance in rule.usable_instances():
            op = instance.lhs[0].node.op
            if not isinstance(op, Operator) or not instance.is_determined or _only_grows(instance):
                continue
            if _renames(instance):
                self.renamings.add(rule.name)
            index = self.single if len(instance.lhs) == 1 else self.several
            rank = None if instance.broadcast else len(instance.lhs[0].shape)
            index.setdefault((op, rank), []).append((rule.name, instance, refused))

    def __bool__(self) -> bool:
        return bool(self.single or self.several)


def _only_grows(instance: Instance) -> bool:
    """Whether both sides act on elements alone and the right one has more operators."""
    left, right = _operators(instance.lhs), _operators(instance.rhs)
    return all(op.elementwise for op in (*left, *right)) and len(right) > len(left)


def _renames(instance: Instance) -> bool:
    """Whether both sides act on elements alone, with as many operators, but not the same ones."""
    left, right = _operators(instance.lhs), _operators(instance.rhs)
    return (
        all(op.elementwise for op in (*left, *right))
        and len(right) == len(left)
        and Counter(left) != Counter(right)
    )


def _operators(values: Iterable[Value]) -> list[Operator]:
    """The operators of one side of a rule, those left out that are constants."""
    return [node.op for node in walk(values) if isinstance(node.op, Operator) and node.inputs]


@dataclass(frozen=True)
class Step:
    """Values of a graph, what they can be replaced by, and the rule that says so."""

    rule: str
    before: tuple[Value, ...]
    after: tuple[Value, ...]
    near: frozenset[Node]
    """The nodes concerned: those that match, and those that the rule's inputs come from."""
    made: tuple[Node, ...]
    """The nodes of what stands there afterwards, as far as the rule puts them there."""


class Steps:
    """The steps in graphs over the same leaves. `constants` serves these leaves."""

    def __init__(self, rules: RuleIndex, constants: ConstantLookup) -> None:
        self.rules = rules
        self.constants = constants
        self._of: dict[Node, tuple[Step, ...]] = {}
        self._numbers: dict[object, int] = {}
        self._names: dict[Node, int] = {}
        self._weights: dict[Node, frozenset[Node]] = {}

    def of(self, graph: Graph) -> Iterator[Step]:
        """All steps in `graph`, outside of constant expressions."""
        computed = [node for node in graph.nodes if not node.constant]
        present: Counter[object] = Counter(node.op for node in computed)
        for node in computed:
            if isinstance(node.op, Operator):
                if node not in self._of:
                    self._of[node] = tuple(self._matches(node, graph, self.rules.single))
                yield from self._of[node]
                yield from self._matches(node, graph, self.rules.several, present)

    def key(self, graph: Graph) -> object:
        """What graphs share that are equal for the search.

        They are equal up to the order of commutative arguments, and up to how weights are computed
        from the same weights.
        """
        return tuple((self.name(value.node), value.index) for value in graph.outputs)

    def name(self, node: Node) -> int:
        """A number that nodes share which are equal for the search, see `key`."""
        stack = [node]
        while node not in self._names:
            inner = stack[-1]
            unknown = [v.node for v in inner.inputs if v.node not in self._names]
            if unknown:
                stack.extend(unknown)
                continue
            self._names[inner] = self._numbers.setdefault(self._describe(inner), len(self._numbers))
            stack.pop()
        return self._names[node]

    def _describe(self, node: Node) -> object:
        if isinstance(node.op, Leaf | Opaque):
            return node
        if node.constant and node.inputs:
            return self._weights_of(node), node.types
        inputs = [(self._names[value.node], value.index) for value in node.inputs]
        if node.op.commutative:
            inputs.sort()
        return node.op, tuple(inputs), tuple(sorted(node.attributes.items())), node.types

    def _weights_of(self, node: Node) -> frozenset[Node]:
        """The leaves that a constant is computed from."""
        if node not in self._weights:
            found = (self._weights_of(value.node) for value in node.inputs)
            own = {node} if isinstance(node.op, Leaf) else set()
            self._weights[node] = frozenset(own).union(*found)
        return self._weights[node]

    def _matches(
        self, node: Node, graph: Graph, rules: Index, present: Counter[object] | None = None
    ) -> Iterator[Step]:
        """What `rules` say of `node`; skipped are those with a root operator not `present`."""
        assert isinstance(node.op, Operator)
        rank = len(node.types[0].shape)
        found = (*rules.get((node.op, rank), ()), *rules.get((node.op, None), ()))
        for name, instance, refused in found:
            if present is not None and not Counter(v.node.op for v in instance.lhs) <= present:
                continue
            at = [Value(node, instance.lhs[0].index)]
            if at[0].index >= len(node.types):
                continue
            for match in find_matches(instance, graph, self.constants, at):
                if any(value.is_constant for value in match.roots):
                    continue
                if refused and any(value.type.dtype in refused for value in _touched(match)):
                    continue
                after = replacement(instance, match)
                if not isinstance(after, NoMatch):
                    yield Step(name, match.roots, after.values, _near(match), after.nodes)


def _touched(match: Match) -> tuple[Value, ...]:
    """The values that the match reads and gives."""
    return (*match.roots, *match.bindings.values())


def _near(match: Match) -> frozenset[Node]:
    sources = (value.node for value in match.bindings.values())
    return match.nodes | {node for node in sources if not node.constant}
