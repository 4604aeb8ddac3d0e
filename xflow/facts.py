"""Conditions on values: ``s != 0``, ``s > 0``, ``s >= 0`` for every element of an input.

A rule that has one applies only where the input is a constant whose elements satisfy it, or where
a real attribute does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from xflow.expressions import expression

_HOLDS = {"!=": np.not_equal, ">": np.greater, ">=": np.greater_equal}
_SYMBOLS = {ast.NotEq: "!=", ast.Gt: ">", ast.GtE: ">="}


@dataclass(frozen=True)
class Fact:
    """That every element of the input (or the real attribute) `name` is `relation` 0."""

    name: str
    relation: str
    """One of ``!=``, ``>``, ``>=``."""

    def holds(self, values: np.ndarray[Any, Any] | Fraction) -> bool:
        """Whether it is true of a constant's data; NaN satisfies nothing."""
        array = np.asarray(float(values) if isinstance(values, Fraction) else values)
        return bool(np.all(_HOLDS[self.relation](array, 0) & ~np.isnan(array)))

    def __str__(self) -> str:
        return f"{self.name} {self.relation} 0"


def fact_of(text: str, names: Iterable[str]) -> Fact | None:
    """The fact about one of `names` that a condition states; None for one about sizes."""
    match expression(text):
        case ast.Compare(
            left=ast.Name(id=name), ops=[relation], comparators=[ast.Constant(value=0)]
        ) if name in names and type(relation) in _SYMBOLS:
            return Fact(name, _SYMBOLS[type(relation)])
    return None
