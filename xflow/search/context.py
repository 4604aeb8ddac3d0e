"""What all explorations of one search have in common, whatever the region."""

from __future__ import annotations

from dataclasses import dataclass

from xflow.core.assumptions import DEFAULT, Assumption
from xflow.search.policy import POLICY, Policy


@dataclass(frozen=True)
class Context:
    """How a search goes about it, and what it may take for granted.

    What is found in one context is not remembered for another.
    """

    policy: Policy = POLICY
    seed: int = 0
    opset: int | None = None
    """The version of ONNX that has all operators of what is found; None: any."""
    assumption: Assumption = DEFAULT
    """What analyses may assume of the values of graphs."""


DEFAULTS = Context()
