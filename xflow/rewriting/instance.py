"""A rule spelled out at one rank: graphs of both sides, and what it asks for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from xflow.core.constraint import Constraint
from xflow.core.graph import in_order, requirements, walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import RealSymbol
from xflow.core.size import free_symbols, symbol
from xflow.core.sorts import BOOL, CODE, INT, REALS_ONLY
from xflow.core.value_conditions import Fact

ANY_SHAPE = (symbol("any"),)
"""Shape of an input ``x[...]`` in an instance: elementwise operators treat all axes alike, so one
symbolic axis stands for any number of them."""


@dataclass(frozen=True)
class Instance:
    """A rule spelled out at one rank: two lists of values over the same leaves."""

    rank: int
    inputs: tuple[Value, ...]
    broadcast: bool
    """The inputs have any shapes that broadcast; their `ANY_SHAPE` is not to be matched."""
    lhs: tuple[Value, ...]
    rhs: tuple[Value, ...]
    where: tuple[Constraint, ...]
    types: str = REALS_ONLY
    """The element types for which it holds, one of `HOLDS_FOR`."""
    facts: tuple[Fact, ...] = ()
    """What `where` says of the values of inputs and real attributes."""
    exact: str | None = None
    """One of `EXACT`; None: the sides may differ by roundings."""
    limits: frozenset[str] = frozenset()
    """The inputs of which elements may be -inf."""

    @cached_property
    def free_symbols(self) -> frozenset[str]:
        """Names of size symbols that occur in the right side's attributes but nowhere left."""
        known = _symbols_in(self.lhs_nodes).union(
            *(free_symbols(size) for leaf in self._leaves[0] for size in leaf.shape)
        )
        return _symbols_in(self.rhs_nodes) - known

    @cached_property
    def is_schematic(self) -> bool:
        """Whether it speaks of any operator with some property."""
        return any(node.is_schematic for node in (*self.lhs_nodes, *self.rhs_nodes))

    @cached_property
    def is_discrete(self) -> bool:
        """Whether all values on either side are integers or Booleans, of which nothing rounds."""
        nodes = walk((*self.lhs, *self.rhs))
        return all(kind.dtype in (INT, CODE, BOOL) for node in nodes for kind in node.types)

    @cached_property
    def requirements(self) -> tuple[Constraint, ...]:
        """What the operators of the left side require of sizes."""
        return tuple(requirements(self.lhs))

    @cached_property
    def lhs_nodes(self) -> tuple[Node, ...]:
        """The nodes of the left side, inputs first."""
        return in_order(self.lhs)

    @cached_property
    def rhs_nodes(self) -> tuple[Node, ...]:
        """The nodes of the right side, inputs first."""
        return in_order(self.rhs)

    @cached_property
    def _leaves(self) -> tuple[frozenset[Value], frozenset[Value]]:
        """The inputs that the left side reads, and those that the right side reads."""
        left, right = _leaves_in(self.lhs_nodes), _leaves_in(self.rhs_nodes)
        return left, right

    @property
    def _reads_no_more(self) -> bool:
        left, right = self._leaves
        return right <= left

    @cached_property
    def is_determined(self) -> bool:
        """Whether a match of the left side says everything that the right side needs."""
        return not self.free_symbols and self._reads_no_more

    @cached_property
    def is_fillable(self) -> bool:
        """Whether all that a match of the left side leaves open is one size."""
        return len(self.free_symbols) == 1 and self._reads_no_more


def attribute_symbols(values: Iterable[Value]) -> frozenset[str]:
    """Names of the size symbols in attributes of nodes under `values`."""
    return _symbols_in(walk(values))


def _symbols_in(nodes: Iterable[Node]) -> frozenset[str]:
    names: set[str] = set()
    for node in nodes:
        for attribute in node.attributes.values():
            parts: tuple[Any, ...] = attribute if isinstance(attribute, tuple) else (attribute,)
            for part in parts:
                if not isinstance(part, Fraction | RealSymbol | str):
                    names |= free_symbols(part)
    return frozenset(names)


def leaves_of(values: Iterable[Value]) -> frozenset[Value]:
    """The inputs of a rule that `values` read."""
    return _leaves_in(walk(values))


def _leaves_in(nodes: Iterable[Node]) -> frozenset[Value]:
    return frozenset(node.outputs[0] for node in nodes if isinstance(node.op, Leaf))


def leaf_name(value: Value) -> str:
    """The name of a rule's input."""
    assert isinstance(value.node.op, Leaf)
    return value.node.op.key
