"""Directions of rules: equality saturation applies each rule from either side.

A proved rule is an equation, so it can also be read from right to left at sizes at which its
conditions hold and its left side is defined. Often a match of the right side does not determine
the left side: ``Concat(Split(x)[0], Split(x)[1]) = x`` leaves open where to split. Then a part of
the left side is matched, too: ``x`` is such a concat if the e-graph has ``Split(x)`` already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from xflow.core.graph import walk
from xflow.core.node import Value
from xflow.core.registry import Operator
from xflow.core.size import Expr, free_symbols
from xflow.rewriting.index import operators_of
from xflow.rewriting.instance import Instance, leaves_of
from xflow.rewriting.rule import Rule


def both_ways(rule: Rule) -> tuple[Rule, Rule]:
    """A rule from left to right and from right to left."""
    forward, *reverse = rule.directions()
    turned = replace(forward, lhs=forward.rhs, rhs=forward.lhs)
    return forward, reverse[0] if reverse else turned


def anchored(instance: Instance) -> Instance | None:
    """`instance` such that a match determines the right side; None if that is not possible.

    Where the left side alone does not, the smallest part of the right side that does is added in
    front, on both sides.
    """
    if _says_all(instance):
        return instance
    roots = {value.node for value in instance.rhs}
    for node in walk(instance.rhs):
        if isinstance(node.op, Operator) and node not in roots:
            part = node.outputs[0]
            larger = replace(instance, lhs=(part, *instance.lhs), rhs=(part, *instance.rhs))
            if leaves_of([part]) and _says_all(larger):
                return larger
    return None


def _says_all(instance: Instance) -> bool:
    """Whether a match gives every symbol a value; an extent ``m + k`` alone gives none."""
    if not instance.is_determined:
        return False
    leaves = () if instance.broadcast else leaves_of(instance.lhs)
    waiting = [free_symbols(size) for leaf in leaves for size in leaf.shape]
    for node in walk(instance.lhs):
        for attribute in node.attributes.values():
            parts = attribute if isinstance(attribute, tuple) else (attribute,)
            waiting += [free_symbols(part) for part in parts if isinstance(part, Expr)]
    known: set[str] = set()
    while any(len(names - known) == 1 for names in waiting):
        known |= {name for names in waiting if len(names - known) == 1 for name in names}
    return all(names <= known for names in waiting)


@dataclass(frozen=True, eq=False)
class Direction:
    """A rule to be used from left to right."""

    rule: Rule
    name: str
    """That of the rule, without a direction."""

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """The rule at every rank, see `anchored`."""
        found = map(anchored, self.rule.usable_instances())
        return tuple(instance for instance in found if instance is not None)

    @cached_property
    def _first(self) -> Instance:
        first = self.rule.instance(self.rule.ranks[0])
        return anchored(first) or first

    @cached_property
    def operators(self) -> frozenset[Operator]:
        """The operators that must be there for the left side to match."""
        return _operators(self._first.lhs)

    @cached_property
    def vocabulary(self) -> frozenset[Operator]:
        """The operators on both sides."""
        return self.operators | _operators(self._first.rhs)

    @cached_property
    def depth(self) -> int:
        """How many nodes lie above one another in the left side."""
        return max(map(_depth, self._first.lhs))

    @cached_property
    def growth(self) -> int:
        """How many nodes it makes beyond those that it reads."""
        return len(list(walk(self._first.rhs))) - len(list(walk(self._first.lhs)))

    @property
    def root(self) -> object:
        """The operator of the first output; a leaf if the left side is just an input."""
        return self._first.lhs[0].node.op

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return len(self._first.lhs)

    @cached_property
    def is_disconnected(self) -> bool:
        """Whether an output has no input in common with those before it."""
        known: frozenset[Value] = frozenset()
        for value in self._first.lhs:
            inputs = leaves_of([value])
            if known and not known & inputs:
                return True
            known |= inputs
        return False


def _depth(value: Value) -> int:
    return 1 + max(map(_depth, value.node.inputs), default=-1)


def _operators(values: Iterable[Value]) -> frozenset[Operator]:
    return operators_of(walk(values))


class Database:
    """Rules in both directions, prepared for matching in an e-graph."""

    def __init__(self, directions: Iterable[Direction]):
        self.directions = tuple(directions)

    @staticmethod
    def of(rules: Iterable[Rule]) -> Database:
        """Both directions of some rules."""
        return Database(Direction(one, rule.name) for rule in rules for one in both_ways(rule))

    def joined(self, other: Database) -> Database:
        """The rules of both."""
        return Database((*self.directions, *other.directions))

    def only(self, names: Iterable[str]) -> Database:
        """The rules of these names alone; of several with one name each."""
        wanted = frozenset(names)
        return Database(item for item in self.directions if item.name in wanted)

    def within(self, values: Iterable[Value]) -> Database:
        """The rules that have no other operators than those under `values`."""
        known = _operators(values)
        return Database(item for item in self.directions if item.vocabulary <= known)
