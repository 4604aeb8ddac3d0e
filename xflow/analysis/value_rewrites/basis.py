"""The basis of a rewrite: a proved rule, the data of a constant, a range, or floating point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from xflow.analysis.ranges import Ranges
from xflow.analysis.value_rewrites import (
    covered_rows,
    least_float_masks,
    masked_scores,
    nan_tests,
    repeated_angles,
    softplus_tails,
    written_slices,
)
from xflow.analysis.value_rewrites.nan_tests import decided
from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.recheck.facts import Facts


class Basis(Enum):
    """Why the new value of a rewrite equals the old one; the value is the name in reports."""

    RULE = "rule"
    CONSTANT_DATA = "constant data"
    RANGES = "interval analysis"
    FLOATING_POINT = "floating point"

    @property
    def sentence(self) -> str:
        """The basis in a few words."""
        return _SENTENCES[self]


_SENTENCES = {
    Basis.RULE: "rules, each proved for all sizes",
    Basis.CONSTANT_DATA: "the data of a constant: a table holds each angle twice, or indices "
    "name a slice",
    Basis.RANGES: "interval analysis: a test that no element can pass is false, or a mask tells "
    "which rows of it are covered",
    Basis.FLOATING_POINT: "floating point: a score is lost beside the number that masks it, an "
    "exponential beside 1, or a mask is raised by one unit in the last place",
}

BASES: Mapping[str, Basis] = {
    repeated_angles.HALVES: Basis.CONSTANT_DATA,
    repeated_angles.NEIGHBOURS: Basis.CONSTANT_DATA,
    written_slices.FACT: Basis.CONSTANT_DATA,
    masked_scores.FACT: Basis.FLOATING_POINT,
    softplus_tails.FACT: Basis.FLOATING_POINT,
    covered_rows.FACT: Basis.RANGES,
    least_float_masks.RAISED: Basis.FLOATING_POINT,
    **{name: Basis.RANGES for name, _ in nan_tests.TESTS.values()},
}
"""The basis of each fact about values, by the fact's name in reports."""


def confirmed(graph: Graph, ranges: Ranges) -> Sequence[tuple[Value, Value, str]]:
    """The rewrites by facts about values of a graph, see `decided`, that checkers confirm."""
    facts = Facts(graph, ranges.constants, ranges.assumption)
    return [each for each in decided(graph, ranges) if not fault(facts, each[2], *each[:2])]


def fault(facts: Facts, name: str, before: Value, after: Value) -> str:
    """Why a fact about values does not hold by the checker of its basis; nothing where it does.

    The checkers are in `xflow.recheck` and share no code with what finds the facts.
    """
    if name == masked_scores.FACT:
        return facts.lost_scores(before, after)
    if name == softplus_tails.FACT:
        return facts.lost_exponentials(before, after)
    if name == written_slices.FACT:
        return facts.written_slices(before, after)
    if name == covered_rows.FACT:
        return facts.covered_rows(before, after)
    checks = {Basis.CONSTANT_DATA: facts.equal_constants, Basis.RANGES: facts.decided_test}
    check = checks.get(BASES.get(name, Basis.RULE))
    return "there is no such fact" if check is None else check(before, after)


def bases_of(fact: str, *, by_rules: bool) -> tuple[Basis, ...]:
    """The bases of a rewrite by rules, by a fact, or by both. Raises KeyError."""
    return ((Basis.RULE,) if by_rules else ()) + ((BASES[fact],) if fact else ())
