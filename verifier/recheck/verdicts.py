"""The verdicts of a recheck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Confirmed:
    """Each step follows, by rules and solver calls that owe nothing to the prover."""

    questions: int = 0
    """How often the solver was asked."""
    points: int = 0
    """At how many output elements both sides were evaluated."""

    def __str__(self) -> str:
        return "confirmed"


@dataclass(frozen=True)
class NotConfirmed:
    """A step has no replay, or the solver did not get through; the rule may well be true."""

    reason: str

    def __str__(self) -> str:
        return f"not confirmed: {self.reason}"


@dataclass(frozen=True)
class Wrong:
    """The certificate is not one of this rule, a step does not follow, or the sides differ."""

    step: str

    def __str__(self) -> str:
        return f"wrong: {self.step}"


Verdict: TypeAlias = Confirmed | NotConfirmed | Wrong


class StepError(Exception):
    """A step of the certificate that does not follow."""
