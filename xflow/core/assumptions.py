"""Assumptions of an analysis about a model's inputs and about computations with them.

The levels are ordered: each assumes what those before it do. A fact is worth more the less it
assumes, and reports name the least level that a rewrite needs.
"""

from __future__ import annotations

from enum import IntEnum


class Assumption(IntEnum):
    """A level of assumptions."""

    NONE = 0
    FINITE_INPUTS = 1
    MODERATE = 2
    NORMWISE = 3

    @property
    def option(self) -> str:
        """Its name on the command line and in reports."""
        return self.name.lower().replace("_", "-")

    @property
    def sentence(self) -> str:
        """The assumption in a sentence."""
        return _SENTENCES[self]

    @classmethod
    def named(cls, option: str) -> Assumption:
        """The level with that option. Raises KeyError."""
        return cls[option.upper().replace("-", "_")]


_NUMBERS = (
    "float inputs hold numbers, unless the model tests them for NaN or infinities; masks that it "
    "adds to scores may hold -inf"
)
_MODERATE = (
    f"{_NUMBERS}; sums, products, quotients and casts of numbers of moderate size are of moderate "
    "size, too, and do not overflow; 1 minus a mask that is multiplied by a larger number is 0 or 1"
)
_SENTENCES = {
    Assumption.NONE: "nothing is assumed of the inputs",
    Assumption.FINITE_INPUTS: _NUMBERS,
    Assumption.MODERATE: _MODERATE,
    Assumption.NORMWISE: (
        f"{_MODERATE}; errors of rounding are measured by the largest elements of a tensor, not by "
        "each element"
    ),
}

DEFAULT = Assumption.MODERATE
"""The weakest level at which the benchmark's models gain what they do."""


def moderate(dtype: str) -> float:
    """The magnitude up to which numbers of a type of floats are moderate.

    A product of two of them does not overflow, nor the least float with one of them added; in 16
    bits that does.
    """
    return 2.0**10 if dtype == "FLOAT16" else 2.0**63
