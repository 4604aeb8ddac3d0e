"""Checks that sums have finitely many summands.

Otherwise a change of variables would prove ``1 + 1 + ... = 1 + (1 + 1 + ...)``.
"""

from __future__ import annotations

from xflow.core.constraint import Constraint, at_least
from xflow.core.size import free_symbols, substitute, symbol
from xflow.verifier.recheck.forms import Apply, Factor, Most, Nested, Sum, Term, fresh
from xflow.verifier.recheck.solver import Questions


def is_finite(total: Sum, questions: Questions) -> bool:
    """Whether every sum in `total`, also inside factors, has finitely many summands."""
    return all(
        _has_finite_range(t, questions) and all(_is_finite(f, questions) for f, _ in t.factors)
        for t in total.terms
    )


def _is_finite(factor: Factor, questions: Questions) -> bool:
    match factor:
        case Apply(_, args):
            return all(is_finite(arg, questions) for arg in args)
        case Nested(body):
            return is_finite(body, questions)
        case Most(choices):
            return all(is_finite(c.body, questions) for c in choices)
    return True


def _has_finite_range(part: Term, questions: Questions) -> bool:
    """Whether guards bound the variables: the polyhedron contains no unbounded direction."""
    steps = {v: symbol(fresh()) for v in part.variables}
    ahead = {v: symbol(v) + step for v, step in steps.items()}
    kept = []
    for guard in part.guards:
        change = substitute(guard.difference, ahead) - guard.difference
        if not free_symbols(change) & set(part.variables):
            kept.append(Constraint(change, guard.relation))
    return all(
        questions.contradictory((*kept, at_least(step * direction, 1)))
        for step in steps.values()
        for direction in (1, -1)
    )
