"""Totality: whether an expression is defined at every index and for all values of the inputs."""

from __future__ import annotations

from xflow.core.spec import PARTIAL, Element
from xflow.verifier.algebra.terms import Base, Function, Group, Maximum, Normal, SizeAtom, Term


def is_total(base: Base) -> bool:
    """Whether a factor is defined at every index and for all values of the inputs."""
    match base:
        case Element() | SizeAtom():
            return True
        case Function(name, args):
            return name not in PARTIAL and all(map(is_total_normal, args))
        case Group():
            return False
        case Maximum(options):
            # One with guards may have no value where it is not read.
            return all(
                not o.guards and not o.variables and is_total_normal(o.body) for o in options
            )
    return False


def is_total_normal(normal: Normal) -> bool:
    """Whether a normal form is defined at every index and for all values of the inputs."""
    return all(map(is_total_term, normal.terms))


def is_total_term(term: Term) -> bool:
    """Whether a term is defined at every index and for all values of the inputs."""
    return all(exponent > 0 and is_total(base) for base, exponent in term.powers)
