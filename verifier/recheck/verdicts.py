"""The verdicts of a recheck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Confirmed:
    """Each step follows, by laws and solver calls that are independent of the prover."""

    questions: int = 0
    """How often the solver was asked."""
    points: int = 0
    """At how many output elements both sides were evaluated."""

    def __str__(self) -> str:
        return "confirmed"


@dataclass(frozen=True)
class NotConfirmed:
    """A step has no replay, or the solver did not decide it; the rule may well be true."""

    reason: str

    def __str__(self) -> str:
        return f"not confirmed: {self.reason}"


SHOWN = 12
"""Elements of the inputs that a counterexample prints."""


@dataclass(frozen=True)
class Difference:
    """Where the sides differ: at one element of an output, with these numbers.

    `left` and `right` are exact, or two numbers whose bounds do not overlap; `right` may be
    undefined.
    """

    rank: int
    sizes: Mapping[str, int]
    inputs: Mapping[str, Any]
    """Arrays of `Fraction`; real symbols of attributes are arrays of shape []."""
    output: int
    index: tuple[int, ...]
    left: str
    right: str

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {value}" for name, value in sorted(self.sizes.items()))
        place = f"with {sizes or 'no sizes'}, output {self.output} at {list(self.index)}"
        text = f"at rank {self.rank}, {place} is {self.left} left and {self.right} right"
        if sum(array.size for array in self.inputs.values()) > SHOWN:
            return text
        shown = (f"{name} = {_plain(array.tolist())}" for name, array in self.inputs.items())
        return f"{text}, where {', '.join(shown)}"


def _plain(numbers: Any) -> str:
    """Nested lists of numbers, or a number."""
    if isinstance(numbers, list):
        return f"[{', '.join(map(_plain, numbers))}]"
    return str(numbers)


@dataclass(frozen=True)
class Wrong:
    """The rule is false, or the document is no certificate of it.

    The rule is false where there is a `difference`, evaluated exactly, and its line `exact` is
    where a run in floats shows other bits. Else the certificate lacks a part that the certificate
    of this rule has, or has another rule's: that is seen by reading it, without a proof. A step
    that is not shown to follow is `NotConfirmed`, whatever may have been done to it.
    """

    step: str
    difference: Difference | None = None

    def __str__(self) -> str:
        return f"wrong: {self.step}"


RecheckVerdict: TypeAlias = Confirmed | NotConfirmed | Wrong


class DocumentError(Exception):
    """A document that is no certificate of the rule, whatever it proves."""


class BitsError(Exception):
    """The sides of a rule differ in a bit where it says that they do not."""
