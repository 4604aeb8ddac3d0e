"""Simplifies a term by steps each of which is an identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial

from xflow.core.constraint import Constraint, Relation, at_least, less
from xflow.core.size import Expr, Quotient, Size, atom_size, coefficient_of, free_symbols, symbol
from xflow.verifier.recheck.forms import (
    Apply,
    Atom,
    Choice,
    Read,
    Sum,
    Term,
    free_in_factor,
    fresh,
    map_body,
    polynomial,
    product,
    rebound,
    replace_sum,
    sizes_in,
    term,
)
from xflow.verifier.recheck.laws import inverse
from xflow.verifier.recheck.solver import Questions

Guards = tuple[Constraint, ...]

ONE = Fraction(1)
_VALUE = "the value"
"""A function that stands around a value under a maximum, so that no law applies."""
MAX_VALUES = 16
"""Summands that a sum between literal bounds may have to be written out."""


class Tidying:
    """Simplification of terms under the assumptions of some `Questions`."""

    def __init__(self, questions: Questions):
        self._questions = questions

    def tidy(self, part: Term, path: Guards) -> list[Term]:
        """Terms that sum to `part` wherever `path` holds."""
        pending, done = [part], list[Term]()
        while pending:
            part = pending.pop()
            if part.coefficient == 0 or any(g.decided is False for g in part.guards):
                continue
            made = _multiplied_out(part) or _pinned(part) or self._counted(part, path)
            if made is None:
                done.append(part)
            else:
                pending += made
        return done

    def _counted(self, part: Term, path: Guards) -> list[Term] | None:
        """``sum over low <= k < high of t`` is ``(high - low) * t`` if t does not mention k.

        That needs ``high >= low``. Over an empty range t is not read at all, so where it might
        not be defined there, the sum stays guarded by the range having an element.
        """
        for variable in part.variables:
            if any(variable in free_in_factor(f) for f, _ in part.factors):
                continue
            own = [g for g in part.guards if variable in g.symbols]
            bounds = bounds_of(variable, own)
            if bounds is None:
                continue
            length = bounds[1] - bounds[0]
            rest = tuple(g for g in part.guards if g not in own)
            if not self._questions.implied(at_least(length, 0), (*path, *rest)):
                continue
            present = at_least(length, 1)
            if any(e < 0 or not isinstance(f, Read | Atom) for f, e in part.factors) and not (
                self._questions.implied(present, (*path, *rest))
            ):
                rest = (*rest, present)
            variables = tuple(v for v in part.variables if v != variable)
            once = term(part.coefficient, variables, rest, part.factors)
            return [product(once, count) for count in polynomial(length).terms]
        return None

    def without_quotients(self, part: Term, path: Guards) -> Term | None:
        """The term with a quotient replaced that its guards determine; None where none is.

        Where the guards fail the term is 0 anyway; what determined the quotient stays a guard.
        """
        known = (*path, *part.guards)
        for quotient in innermost_quotients(part):
            for value in (0, 1, -1):
                low = at_least(quotient.numerator, value * quotient.denominator)
                high = less(quotient.numerator, (value + 1) * quotient.denominator)
                positive = at_least(quotient.denominator, 1)
                if all(self._questions.implied(c, known) for c in (positive, low, high)):
                    names = free_symbols(atom_size(quotient))
                    plain = map_body(part, partial(put, quotient=quotient, value=value), names)
                    return term(
                        plain.coefficient,
                        plain.variables,
                        (*plain.guards, low, high),
                        plain.factors,
                    )
        return None

    def in_digits(self, part: Term, path: Guards) -> Term | None:
        """The term summed over q and r for k, where it has a quotient ``(k + c) // d``.

        For ``d >= 1`` each integer ``k + c`` is ``d*q + r`` for exactly one q and r with
        ``0 <= r < d``, and that q is the quotient.
        """
        for quotient in innermost_quotients(part):
            for variable in part.variables:
                split = coefficient_of(quotient.numerator, variable)
                if split is None or split[0] != 1 or variable in free_symbols(split[1]):
                    continue
                divisor = quotient.denominator
                if variable in free_symbols(divisor):
                    continue
                # Guards on k may be what makes d positive, but they hold wherever k is summed.
                if not self._questions.implied(at_least(divisor, 1), (*path, *part.guards)):
                    continue
                if not isinstance(divisor, int) and free_symbols(divisor) & set(part.variables):
                    continue
                high, low = fresh(), fresh()
                digits = divisor * symbol(high) + symbol(low)
                place = part.variables.index(variable)
                names = (*part.variables[:place], high, low, *part.variables[place + 1 :])
                made = rebound(part, names, {variable: digits - split[1]})
                rest = Quotient(symbol(low), divisor)
                plain = map_body(made, partial(put, quotient=rest, value=0), frozenset({low}))
                ranges = (at_least(symbol(low), 0), less(symbol(low), divisor))
                present = at_least(divisor, 1)
                return term(
                    plain.coefficient,
                    plain.variables,
                    (*plain.guards, *ranges, *(() if present.decided else (present,))),
                    plain.factors,
                )
        return None

    def choice_in_digits(self, choice: Choice, path: Guards) -> Choice | None:
        """`in_digits` for a value under a maximum: it is the greatest of the same values."""
        whole = Apply(_VALUE, (choice.body,))
        made = self.in_digits(term(ONE, choice.variables, choice.guards, [(whole, 1)]), path)
        if made is None:
            return None
        plain = self.without_quotients(made, path) or made
        match plain.factors:
            case ((Apply(name, (body,)), 1),) if name == _VALUE and plain.coefficient == 1:
                return Choice(plain.variables, plain.guards, body)
        return None


def _multiplied_out(part: Term) -> list[Term] | None:
    """Polynomials over sizes multiplied out, and ``sqrt(x)^2`` as x, where the root is defined."""
    for factor, exponent in part.factors:
        rest = [(f, e) for f, e in part.factors if f is not factor]
        match factor:
            case Atom(size) if exponent > 0 and _is_composite(size):
                rest.append((factor, exponent - 1))
                once = term(part.coefficient, part.variables, part.guards, rest)
                return [product(once, t) for t in polynomial(size).terms]
            case Atom(size) if exponent < 0 and _is_composite(size):
                left = term(part.coefficient, part.variables, part.guards, rest)
                for _ in range(-exponent):
                    left = product(left, inverse(polynomial(size)))
                return [left]
            case Apply("sqrt", (arg,)) if abs(exponent) >= 2:
                step = 2 if exponent > 0 else -2
                rest.append((factor, exponent - step))
                once = term(part.coefficient, part.variables, part.guards, rest)
                squared = arg if step > 0 else Sum((inverse(arg),))
                return [product(once, t) for t in squared.terms]
    return None


def _is_composite(size: Expr) -> bool:
    return len(size.terms) > 1 or size.terms[0][1] != 1 or len(size.terms[0][0]) > 1


def written_out(part: Term) -> list[Term]:
    """The term summand by summand, for variables between literal bounds that are close."""
    for variable in part.variables:
        bounds = _literal_bounds(variable, part.guards)
        if bounds is None:
            continue
        low, high = bounds
        if high - low <= MAX_VALUES:
            rest = tuple(v for v in part.variables if v != variable)
            made = [rebound(part, rest, {variable: value}) for value in range(low, high)]
            return [t for once in made for t in written_out(once)]
    return [part]


def written_out_choice(choice: Choice) -> list[Choice]:
    """The values under a maximum one by one, for variables between literal bounds."""
    for variable in choice.variables:
        bounds = _literal_bounds(variable, choice.guards)
        if bounds is None or bounds[1] - bounds[0] > MAX_VALUES:
            continue
        rest = tuple(v for v in choice.variables if v != variable)
        made: list[Choice] = []
        for value in range(*bounds):
            at: dict[str, Size] = {variable: value}
            guards = tuple(guard.substitute(at) for guard in choice.guards)
            if not any(guard.decided is False for guard in guards):
                kept = tuple(guard for guard in guards if guard.decided is None)
                made += written_out_choice(Choice(rest, kept, replace_sum(choice.body, at)))
        return made
    return [choice]


def _literal_bounds(variable: str, guards: Sequence[Constraint]) -> tuple[int, int] | None:
    """``(low, high)`` where some of the guards say that ``low <= variable < high``."""
    lows, highs = list[int](), list[int]()
    for guard in guards:
        split = coefficient_of(guard.difference, variable)
        if guard.relation is not Relation.AT_LEAST or split is None:
            continue
        slope, rest = split
        if isinstance(rest, int) and slope > 0:
            lows.append(-(rest // slope))
        elif isinstance(rest, int) and slope < 0:
            highs.append(rest // -slope)
    return (max(lows), min(highs) + 1) if lows and highs else None


def pinned_choice(choice: Choice) -> Choice:
    """The same values under a maximum, without variables that can have one value only."""
    found = _pin(choice.variables, choice.guards)
    if found is None:
        return choice
    variable, value = found
    rest = tuple(v for v in choice.variables if v != variable)
    guards = tuple(g.substitute({variable: value}) for g in choice.guards)
    body = replace_sum(choice.body, {variable: value})
    return pinned_choice(Choice(rest, tuple(g for g in guards if g.decided is not True), body))


def _pinned(part: Term) -> list[Term] | None:
    """A sum over the one value of a variable that an equation among the guards leaves."""
    found = _pin(part.variables, part.guards)
    if found is None:
        return None
    variable, value = found
    rest = tuple(v for v in part.variables if v != variable)
    return [rebound(part, rest, {variable: value})]


def _pin(variables: Sequence[str], guards: Sequence[Constraint]) -> tuple[str, Size] | None:
    """A variable with the one value that `guards` leave it."""
    for guard in guards:
        for variable in variables:
            split = coefficient_of(guard.difference, variable)
            if split is None or abs(split[0]) != 1 or variable in free_symbols(split[1]):
                continue
            opposite = Constraint(-guard.difference, Relation.AT_LEAST)
            if guard.relation is Relation.EQUAL or opposite in guards:
                return variable, -split[1] * split[0]
    return None


def bounds_of(variable: str, guards: Sequence[Constraint]) -> tuple[Size, Size] | None:
    """``(low, high)`` where the guards say ``low <= variable < high`` and nothing else."""
    found: dict[int, Size] = {}
    for guard in guards:
        split = coefficient_of(guard.difference, variable)
        if guard.relation is not Relation.AT_LEAST or split is None or abs(split[0]) != 1:
            return None
        if split[0] in found:
            return None
        found[split[0]] = split[1]
    if found.keys() != {1, -1}:
        return None
    return -found[1], found[-1] + 1


def innermost_quotients(part: Term) -> list[Quotient]:
    """The quotients of a term, those inside others first."""
    return list(dict.fromkeys(q for size in sizes_in(part) for q in quotients_in(size)))


def quotients_in(size: Size) -> Iterator[Quotient]:
    """The quotients in a size, those inside others first."""
    for monomial, _ in size.terms if isinstance(size, Expr) else ():
        for atom in monomial:
            if isinstance(atom, Quotient):
                yield from quotients_in(atom.numerator)
                yield from quotients_in(atom.denominator)
                yield atom


def put(size: Size, quotient: Quotient, value: int) -> Size:
    """`size` with a quotient replaced by the integer that it is."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        made: Size = coefficient
        for atom in monomial:
            if atom == quotient:
                made = made * value
            elif isinstance(atom, Quotient):
                numerator = put(atom.numerator, quotient, value)
                made = made * (numerator // put(atom.denominator, quotient, value))
            else:
                made = made * atom_size(atom)
        total = total + made
    return total
