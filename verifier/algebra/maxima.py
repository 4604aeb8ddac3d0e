"""Maxima in normal form: the options, or values, that they range over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeGuard

from xflow.core.constraint import in_range
from xflow.core.size import Size, symbol
from xflow.core.spec import (
    Bottom,
    Call,
    If,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    free_of_scalar,
    substitute_scalar,
)
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.choices import branches
from xflow.verifier.algebra.factors import canonical_option, common_content
from xflow.verifier.algebra.integers import Ranges
from xflow.verifier.algebra.terms import (
    Guards,
    Maximum,
    Normal,
    Option,
    Term,
    TooLargeError,
    make_normal,
    make_term,
    scale,
)
from xflow.verifier.algebra.tropical import Tropical


class Normalizes(Protocol):
    """The part of `Normalizer` that is used for maxima."""

    arithmetic: Arithmetic
    facts: Mapping[str, str]
    ranges: Ranges
    tropical: bool

    def times(self, left: list[Term], right: list[Term]) -> list[Term]: ...

    def normal(self, scalar: Scalar, path: Guards = ()) -> Normal: ...

    def split(self, scalar: Scalar, path: Guards) -> list[tuple[Guards, Scalar]]: ...

    def written_out(self, extent: Size) -> TypeGuard[int]: ...

    def values(self, extent: int) -> Iterator[int]: ...


class Maxima:
    """Brings maxima to normal form for a `Normalizer`."""

    def __init__(self, normalizer: Normalizes):
        self._normalizer = normalizer
        self._arithmetic = normalizer.arithmetic
        self._tropical = Tropical(normalizer)

    def normal(self, scalar: Scalar, path: Guards) -> list[Term]:
        """The terms of a maximum of several values or over a range. Raises TooLargeError."""
        kept = self._possible(self._options(scalar, path), path)
        if self._normalizer.tropical:
            return self._tropical.maximum(kept, path)
        return self._maximum(kept)

    def _options(self, scalar: Scalar, path: Guards, *, inside: bool = False) -> list[Option]:
        """The options of a maximum; `inside` of another one it may have no values at some index.

        That is so where one window of a pool is read as a maximum for each axis.
        """
        match scalar:
            case Bottom():
                return []
            case Call("max", args):
                return [
                    option for arg in args for option in self._options(arg, path, inside=inside)
                ]
            case MaxOver() if (
                self._normalizer.tropical and not inside and (least := outer_minimum(scalar))
            ):
                scalar = least
            case MaxOver(variable, extent, body):
                if self._normalizer.written_out(extent):
                    return [
                        option
                        for k in self._normalizer.values(extent)
                        for option in self._options(
                            substitute_scalar(body, {variable: k}), path, inside=True
                        )
                    ]
                span = in_range(symbol(variable), extent)
                return [
                    Option((variable, *o.variables), (*span, *o.guards), o.body)
                    for o in self._options(body, (*path, *span), inside=True)
                ]
            case If(conditions, then, other):
                return [
                    Option(o.variables, (*guards, *o.guards), o.body)
                    for guards, branch in branches(conditions, then, other)
                    if not self._arithmetic.contradictory((*path, *guards))
                    for o in self._options(branch, (*path, *guards), inside=inside)
                ]
        if self._normalizer.tropical:
            # A choice in a summand, as of a mask that is added, makes options of its own.
            try:
                cases = self._normalizer.split(scalar, path)
            except TooLargeError:
                cases = []
            if len(cases) > 1:
                return [
                    Option(o.variables, (*guards, *o.guards), o.body)
                    for guards, case in cases
                    for o in self._options(case, (*path, *guards), inside=inside)
                ]
        normal = self._normalizer.normal(scalar, path)
        if len(normal.terms) == 1:
            (term,) = normal.terms
            if len(term.powers) == 1 and not term.variables and not term.guards:
                base, exponent = term.powers[0]
                if isinstance(base, Maximum) and exponent == 1 and term.coefficient > 0:
                    return [
                        Option(
                            o.variables,
                            o.guards,
                            make_normal(scale(o.body.terms, term.coefficient)),
                        )
                        for o in base.options
                    ]
        return [Option((), (), normal)]

    def _possible(self, options: list[Option], path: Guards) -> list[Option]:
        kept: dict[Option, None] = {}
        for option in options:
            if not self._arithmetic.contradictory((*path, *option.guards)):
                kept[option] = None
        if not kept:
            raise TooLargeError("a maximum over nothing")
        return list(kept)

    def _maximum(self, kept: list[Option]) -> list[Term]:
        if len(kept) == 1:
            (option,) = kept
            if not option.variables and not option.guards:
                return list(option.body.terms)
        content = common_content(o.body for o in kept)
        unit = [
            Option(o.variables, o.guards, make_normal(scale(o.body.terms, 1 / content)))
            for o in kept
        ]
        base = Maximum(tuple(sorted(map(canonical_option, unit), key=lambda o: o.key)))
        return [make_term(content, powers=[(base, 1)])]


def has_maximum(scalar: Scalar) -> bool:
    """Whether a maximum, or a function that is read apart as those are, occurs in `scalar`."""
    match scalar:
        case MaxOver():
            return True
        case SumOver(_, _, body) | ProductOver(_, _, body):
            return has_maximum(body)
        case Plus(args) | Times(args):
            return any(map(has_maximum, args))
        case If(_, then, other):
            return has_maximum(then) or has_maximum(other)
        case Call(function, args):
            return function in ("max", "min", "abs", "sqrt", "log") or any(map(has_maximum, args))
    return False


def outer_minimum(scalar: Scalar, bound: frozenset[str] = frozenset()) -> Scalar | None:
    """``max_k min(a_k, b)`` as ``min(max_k a_k, b)``; None where there is no such b.

    It holds for the values of k that there are, of which there is at least one wherever a maximum
    is read. `bound` holds the variables of the maxima around `scalar`.
    """
    match scalar:
        case MaxOver(variable, extent, body):
            inner = outer_minimum(body, bound | {variable})
            if isinstance(inner, Call):
                return Call("min", (MaxOver(variable, extent, inner.args[0]), *inner.args[1:]))
        case If(conditions, then, Bottom()):
            inner = outer_minimum(then, bound)
            if isinstance(inner, Call):
                kept = If(conditions, inner.args[0], Bottom())
                return Call("min", (kept, *inner.args[1:]))
        case Call("min", args):
            dependent = tuple(a for a in args if free_of_scalar(a) & bound)
            others = tuple(a for a in args if not free_of_scalar(a) & bound)
            if dependent and others:
                first = dependent[0] if len(dependent) == 1 else Call("min", dependent)
                return Call("min", (first, *others))
    return None
