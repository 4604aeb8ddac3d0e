"""Definitional rules: each composite operator equals what it is declared to be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from xflow.ops.composite import Composite
from xflow.ops.registry import Example, Kind, operators
from xflow.rule import Rule


def composites() -> Iterator[tuple[Composite, Example]]:
    """Every composite operator with each of its examples."""
    for op in operators():
        if isinstance(op, Composite):
            for example in op.examples:
                yield op, example


__all__ = ["Kind", "Rule", "composites", "product"]
