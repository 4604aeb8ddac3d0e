"""Why a rule does not apply: where it nearly matches, and what is not as it says.

As the interpreter of MLIR's PDL and onnxscript's rewriter can say of their patterns. The matcher
says no more than that something differs; here it is watched, and of all ways to match at a node the
one is told that got farthest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xflow.core.fold import ConstantLookup, Folder
from xflow.core.graph import Graph, walk
from xflow.core.node import Leaf, Node, Opaque, Value
from xflow.core.registry import Operator
from xflow.core.sorts import REAL
from xflow.rewriting.admission import Places
from xflow.rewriting.folding import NO_NUMBERS, loses_numbers
from xflow.rewriting.instance import Instance
from xflow.rewriting.match import Match, Matcher, NoMatch, fits
from xflow.rewriting.replay import lost_digits, refusal
from xflow.rewriting.rewrite import replacement
from xflow.rewriting.rule import Rule
from xflow.rewriting.unify import may_equal


@dataclass(frozen=True)
class NearMatch:
    """How far a direction of a rule matches at a node of a graph."""

    node: Node
    """The node that the root of the rule's left side is held against."""
    matched: int
    """How many of the left side's operators are there."""
    operators: int
    """How many it has."""
    reason: str
    """What is not as the rule says; nothing where it applies."""
    at: Node | None = None
    """The node at which it is not so, if it is a single one."""

    @property
    def applies(self) -> bool:
        """Whether the rule may be applied there."""
        return not self.reason


def near_matches(
    rule: Rule, graph: Graph, constants: ConstantLookup, places: Places
) -> Iterator[NearMatch]:
    """How far a rule matches from left to right at each node with the operator of its root.

    The nodes come in the graph's order. `places` tells what the places of the graph allow.
    """
    look = _Look(rule, graph, constants, places)
    instances = [rule.instance(rank) for rank in rule.usable_ranks]
    for node in graph.nodes:
        if node.constant or not isinstance(node.op, Operator):
            continue
        found = [look.at(node, each) for each in instances if fits(each.lhs[0].node, node)]
        if found:
            yield max(found, key=lambda near: (near.applies, near.matched))


@dataclass(frozen=True)
class _Look:
    """A rule, and a graph in which it is looked for."""

    rule: Rule
    graph: Graph
    constants: ConstantLookup
    places: Places

    def at(self, node: Node, instance: Instance) -> NearMatch:
        """The way to match at a node that gets farthest."""
        watched = _Watched(instance, self.graph, self.constants)
        total = sum(isinstance(each.op, Operator) for each in walk(instance.lhs))
        index = instance.lhs[0].index
        if index >= len(node.outputs):
            return NearMatch(node, 0, total, watched.reason)
        best: NearMatch | None = None
        for roots in watched.outputs((), node.outputs[index]):
            match = watched.finish(roots)
            reason = match.reason if isinstance(match, NoMatch) else self.objection(instance, match)
            if best is None or not reason:
                best = NearMatch(node, total, total, reason)
            if not reason:
                break
        return best or NearMatch(node, watched.farthest, total, watched.reason, watched.at)

    def objection(self, instance: Instance, match: Match) -> str:
        """Why the rule may not be applied where its left side is."""
        after = replacement(instance, match)
        if isinstance(after, NoMatch):
            return after.reason
        graph, rule, places = self.graph, self.rule, self.places
        reason = refusal(graph, rule, instance, match, after.values, places=places) or lost_digits(
            graph, rule, instance, match, constants=self.constants, places=places
        )
        inputs, folder = [*match.bindings.values()], Folder(self.constants)
        if not reason and loses_numbers(match.roots, after.values, inputs, folder):
            return NO_NUMBERS
        return reason


class _Watched(Matcher):
    """A matcher that notes where it got farthest, and what was not as the rule says there."""

    def __init__(self, instance: Instance, graph: Graph, constants: ConstantLookup) -> None:
        super().__init__(instance, graph, constants)
        self.farthest = 0
        """Operators that were matched at the same time."""
        self.reason = "the root of the rule is another output"
        self.at: Node | None = None

    def value(self, pattern: Value, target: Value) -> Iterator[None]:
        fits = False
        for _ in super().value(pattern, target):
            fits = True
            yield
        matched = len(self.nodes)
        if not fits and (matched > self.farthest or self.at is None):
            self.farthest, self.at = matched, target.node
            self.reason = self._difference(pattern, target)

    def candidates(self, pattern: Value) -> list[Value]:
        found = super().candidates(pattern)
        if not found and (len(self.nodes) > self.farthest or self.at is None):
            self.farthest = len(self.nodes)
            self.at = None
            self.reason = f"there is no {_name(pattern.node)} beside it that reads the same"
        return found

    def _difference(self, pattern: Value, target: Value) -> str:
        """Why a value is not what a value of the left side stands for."""
        node, other = pattern.node, target.node
        if isinstance(node.op, Leaf):
            return self._of_leaf(pattern, target)
        if node in self.nodes or node in self.data:
            return f"{pattern} occurs twice in the rule, and is not the same twice here"
        if node.constant and not fits(node, other):
            if not other.constant:
                return f"the rule has the constant {pattern} here, and the model computes a value"
            return f"the data of the constant {target} is not looked at: it is too large"
        if not fits(node, other):
            return f"the rule has {_name(node)} here, and the model {_name(other)}"
        if pattern.index != target.index:
            return f"the rule reads another output of {_name(node)}"
        if len(node.inputs) != len(other.inputs):
            counts = f"{len(other.inputs)} inputs here, and {len(node.inputs)} in the rule"
            return f"{_name(node)} has {counts}"
        for name, wanted in node.attributes.items():
            if not may_equal(wanted, other.attributes[name], other.types[0].dtype):
                return f"{name} of {_name(node)} is {other.attributes[name]} and not {wanted}"
        return "what it reads is not what the rule says"

    def _of_leaf(self, pattern: Value, target: Value) -> str:
        """Why a value is not what an input of the rule stands for."""
        if pattern in self.leaves:
            return f"{pattern} occurs twice in the rule, and is not the same twice here"
        if not self.is_of_sort(pattern, target):
            types = self.instance.types if pattern.type.dtype == REAL else pattern.type.dtype
            return f"{pattern} is of type {target.type.dtype}, and the rule is shown for {types}"
        return f"{pattern} has {len(pattern.shape)} axes in the rule, and {len(target.shape)} here"


def _name(node: Node) -> str:
    """What a node is, in a word or two."""
    match node.op:
        case Operator(name=name):
            return name
        case Opaque(key=key, op_type=op_type):
            return op_type or key
    return "a constant" if node.constant else "an input"
