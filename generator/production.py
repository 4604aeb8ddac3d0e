"""Productions of vocabularies: an operator that is applied to terms of some sorts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from xflow.core.registry import Attribute

SYMBOL = Fraction(3, 8)
OTHER_SYMBOL = Fraction(5, 8)
"""Numbers that stand for real symbols: no sum or product of few numbers meets them by chance."""


@dataclass(frozen=True)
class Production:
    """Applies an operator to terms of the sorts `args`; makes terms of sort `result`."""

    op: str
    args: tuple[str, ...]
    result: str
    choices: tuple[Mapping[str, Attribute], ...] = ({},)
    then: str = ""
    """An operator that is applied to the result at no cost: an activation that is fused."""


def choices(**lists: Sequence[Attribute]) -> tuple[dict[str, Attribute], ...]:
    """Every combination of the given values of attributes."""
    made: list[dict[str, Attribute]] = [{}]
    for name, values in lists.items():
        made = [{**known, name: value} for known in made for value in values]
    return tuple(made)
