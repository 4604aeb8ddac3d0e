"""A rule spelled out at one rank: graphs of both sides, and what it asks for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from xflow.core.constraint import Constraint
from xflow.core.graph import requirements, walk
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
        known = attribute_symbols(self.lhs).union(
            *(free_symbols(size) for leaf in leaves_of(self.lhs) for size in leaf.shape)
        )
        return attribute_symbols(self.rhs) - known

    @cached_property
    def is_schematic(self) -> bool:
        """Whether it speaks of any operator with some property."""
        return any(node.is_schematic for node in walk((*self.lhs, *self.rhs)))

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
    def rhs_nodes(self) -> tuple[Node, ...]:
        """The nodes of the right side, inputs first."""
        return tuple(walk(self.rhs))

    @cached_property
    def is_determined(self) -> bool:
        """Whether a match of the left side says everything that the right side needs."""
        return not self.free_symbols and leaves_of(self.rhs) <= leaves_of(self.lhs)

    @cached_property
    def is_fillable(self) -> bool:
        """Whether all that a match of the left side leaves open is one size."""
        return len(self.free_symbols) == 1 and leaves_of(self.rhs) <= leaves_of(self.lhs)


def attribute_symbols(values: Iterable[Value]) -> frozenset[str]:
    """Names of the size symbols in attributes of nodes under `values`."""
    names: set[str] = set()
    for node in walk(values):
        for attribute in node.attributes.values():
            parts: tuple[Any, ...] = attribute if isinstance(attribute, tuple) else (attribute,)
            for part in parts:
                if not isinstance(part, Fraction | RealSymbol | str):
                    names |= free_symbols(part)
    return frozenset(names)


def leaves_of(values: Iterable[Value]) -> frozenset[Value]:
    """The inputs of a rule that `values` read."""
    return frozenset(node.outputs[0] for node in walk(values) if isinstance(node.op, Leaf))


def leaf_name(value: Value) -> str:
    """The name of a rule's input."""
    assert isinstance(value.node.op, Leaf)
    return value.node.op.key
