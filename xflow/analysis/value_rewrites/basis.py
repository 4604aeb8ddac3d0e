"""What a rewrite rests on: a proved rule, the data of a constant, a range, or floating point."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from xflow.analysis.value_rewrites import (
    equal_halves,
    least_float_masks,
    masked_scores,
    nan_tests,
)


class Basis(Enum):
    """Why what a rewrite puts there is what stood there; its value is its name in reports."""

    RULE = "rule"
    CONSTANT_DATA = "constant data"
    RANGES = "interval analysis"
    FLOATING_POINT = "floating point"

    @property
    def sentence(self) -> str:
        """What it says of a rewrite, in a few words."""
        return _SENTENCES[self]


_SENTENCES = {
    Basis.RULE: "rules, each proved for all sizes",
    Basis.CONSTANT_DATA: "the data of a constant: both halves of a table are equal",
    Basis.RANGES: "interval analysis: a test that no element can pass is false",
    Basis.FLOATING_POINT: "floating point: a score is lost beside the number that masks it, or a "
    "mask is raised by one unit in the last place",
}

BASES: Mapping[str, Basis] = {
    equal_halves.FACT: Basis.CONSTANT_DATA,
    masked_scores.FACT: Basis.FLOATING_POINT,
    least_float_masks.RAISED: Basis.FLOATING_POINT,
    **{name: Basis.RANGES for name, _ in nan_tests.TESTS.values()},
}
"""What each fact about values rests on, by its name in reports."""


def bases_of(fact: str, *, by_rules: bool) -> tuple[Basis, ...]:
    """What a rewrite rests on that goes by rules, by a fact, or by both. Raises KeyError."""
    return ((Basis.RULE,) if by_rules else ()) + ((BASES[fact],) if fact else ())
