"""Decides equations and inequations between sums of terms by cvc5's real arithmetic.

Elements of inputs in `unbounded` may be -inf, where exponentials of them are 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from xflow.core.constraint import Constraint
from xflow.verifier.recheck.comparisons import signs_in
from xflow.verifier.recheck.forms import Apply, Factor, Most, Nested, Sum, Term
from xflow.verifier.recheck.solver import require_solver
from xflow.verifier.recheck.unknowns import Compares, Unknowns

Guards = tuple[Constraint, ...]


def vanishes(
    total: Sum,
    path: Guards,
    comparing: Compares,
    defined: Iterable[Factor] = (),
    limit: int | None = None,
) -> bool:
    """Whether `total` is 0 wherever `path` holds; none of `defined` is 0 there.

    `limit` counts steps of the solver.
    """
    require_solver()
    return Unknowns(path, comparing, limit=limit).refute("DISTINCT", total, defined)


def is_nonnegative(
    total: Sum, path: Guards, comparing: Compares, unbounded: frozenset[str] = frozenset()
) -> bool:
    """Whether `total` is at least 0 wherever `path` holds."""
    require_solver()
    return Unknowns(path, comparing, unbounded=unbounded).refute("LT", total)


def is_positive(
    total: Sum, path: Guards, comparing: Compares, unbounded: frozenset[str] = frozenset()
) -> bool:
    """Whether `total` is greater than 0 wherever `path` holds."""
    require_solver()
    return Unknowns(path, comparing, unbounded=unbounded).refute("LEQ", total)


def is_not_zero(
    total: Sum, path: Guards, comparing: Compares, unbounded: frozenset[str] = frozenset()
) -> bool:
    """Whether `total` is nowhere 0 where `path` holds."""
    require_solver()
    return Unknowns(path, comparing, unbounded=unbounded).refute("EQUAL", total)


def is_within_reach(terms: Iterable[Term]) -> bool:
    """Whether there is anything in `terms` that other steps do not deal with."""
    return any(
        any(isinstance(f, Most | Apply | Nested) for f, _ in t.factors)
        or any(True for g in t.guards for _ in signs_in(g.difference))
        for t in terms
    )
