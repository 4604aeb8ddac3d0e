"""Productions of vocabularies: an operator that is applied to terms of some sorts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from xflow.core.registry import Attribute, Attributes

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


def choices(**lists: Sequence[Attribute]) -> tuple[Attributes, ...]:
    """Every combination of the given values of attributes."""
    return combined([{name: value} for value in values] for name, values in lists.items())


def combined(options: Iterable[Sequence[Attributes]]) -> tuple[Attributes, ...]:
    """Every combination of one of each of the options, whose attributes are joined."""
    made: list[Attributes] = [{}]
    for option in options:
        made = [{**known, **more} for known in made for more in option]
    return tuple(made)
