"""Mixed radix: quotients of indices resolved, indices of composite extent split into digits.

Reshape reads its input at ``k // m`` and ``k % m``. Where ``k`` is ``q*m + r`` with ``0 <= r < m``
these are q and r, so a variable k that runs over a composite extent is replaced by its digits q
and r: a bijection for every ``m >= 1``. Specifications are rewritten, before they become normal
forms, so that indices inside of functions and maxima are rewritten, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import lcm

from xflow.core.constraint import Constraint, at_least, in_range, less
from xflow.core.size import (
    Atom,
    Expr,
    Quotient,
    Size,
    divide,
    floor_divide,
    free_symbols,
    product,
    substitute,
    symbol,
)
from xflow.core.spec import (
    ONE,
    ZERO,
    Bottom,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    OfSize,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    fresh_name,
    plus,
    scalar,
    substitute_scalar,
    times,
    where,
)
from xflow.verifier.algebra.arithmetic import Arithmetic, Guards

MAX_SPLITS = 8
"""Most splits in one scalar; remaining quotients are compared as they are."""


NEUTRAL: dict[type[Scalar], Scalar] = {SumOver: ZERO, ProductOver: ONE, MaxOver: Bottom()}
"""The neutral element of a sum, a product or a maximum."""


@dataclass(frozen=True)
class Split:
    """That ``variable = radix * high + low`` with ``0 <= low < radix``."""

    variable: str
    radix: Size
    high: str
    low: str

    @property
    def value(self) -> Size:
        """The variable, in its digits."""
        return self.radix * symbol(self.high) + symbol(self.low)


class Radix:
    """Rewrites scalars under the assumptions of an `Arithmetic`; see `rewrite`."""

    def __init__(self, arithmetic: Arithmetic):
        self.arithmetic = arithmetic
        self._resolved: dict[tuple[object, ...], Size] = {}
        self._splits_left = MAX_SPLITS

    def rewrite(self, expression: Scalar, path: Guards = ()) -> Scalar:
        """`expression` with quotients resolved and bound variables split where `path` holds."""
        self._splits_left = MAX_SPLITS
        return self._rewrite(expression, path) if has_quotient(expression) else expression

    def output_split(
        self, expressions: Sequence[Scalar], variables: Sequence[str], path: Guards
    ) -> Split | None:
        """A split of one of `variables`, which are not bound, that resolves some quotient."""
        quotients = [q for e in expressions for q in quotients_in(e)]
        for variable in variables:
            radix = self._radix(variable, quotients, path)
            if radix is not None:
                return Split(variable, radix, f"{variable}q", f"{variable}r")
        return None

    def _rewrite(self, expression: Scalar, path: Guards) -> Scalar:
        match expression:
            case OfSize(size):
                return scalar(self.size(size, path))
            case Element(tensor, index):
                return Element(tensor, tuple(self.size(i, path) for i in index))
            case Plus(args):
                return plus(*(self._rewrite(arg, path) for arg in args))
            case Times(args):
                return times(*(self._rewrite(arg, path) for arg in args))
            case SumOver() | MaxOver() | ProductOver():
                return self._over(expression, path)
            case If(conditions, then, other):
                simpler = tuple(
                    Constraint(self.size(c.difference, path), c.relation) for c in conditions
                )
                inside = (*path, *(c for c in simpler if c.decided is None))
                return where(simpler, self._rewrite(then, inside), self._rewrite(other, path))
            case Call(function, args):
                return Call(function, tuple(self._rewrite(arg, path) for arg in args))
        return expression

    def _over(self, expression: SumOver | MaxOver | ProductOver, path: Guards) -> Scalar:
        extent = self.size(expression.extent, path)
        variable = expression.variable
        inside = (*path, *in_range(symbol(variable), extent))
        body = self._rewrite(expression.body, inside)
        whole = replace(expression, extent=extent, body=body)
        if self._splits_left == 0:
            return whole
        radix = self._radix(variable, list(quotients_in(body)), inside)
        if radix is None or radix == extent:
            return whole
        self._splits_left -= 1
        # Sound: k <-> (q, r) is a bijection between 0 <= k < extent and the points with
        # 0 <= r < radix and 0 <= radix*q + r < extent. The radix is at least 1 wherever the
        # range is not empty; where it is empty, so is the new one, whatever the radix.
        split = Split(variable, radix, fresh_name(), fresh_name())
        empty = NEUTRAL[type(expression)]
        moved = substitute_scalar(body, {variable: split.value})
        exact, rest = divide(extent, radix)
        if rest != 0:
            exact = floor_divide(extent + radix - 1, radix)
            moved = where((less(split.value, extent),), moved, empty)
        low = replace(expression, variable=split.low, extent=radix, body=moved)
        high = replace(expression, variable=split.high, extent=exact, body=low)
        return self._rewrite(high, path)

    def _radix(self, variable: str, quotients: Sequence[Quotient], path: Guards) -> Size | None:
        """The least radix of `variable` that one of `quotients` asks for, if it is positive."""
        found = {radix for quotient in quotients for radix in _radices(variable, quotient)}
        for radix in sorted(found, key=_weight):
            if radix != 1 and self.arithmetic.implied(at_least(radix, 1), path):
                return radix
        return None

    # Quotients ---------------------------------------------------------------------------------

    def size(self, size: Size, path: Guards) -> Size:
        """`size` with the quotients resolved that `path` determines."""
        if isinstance(size, int) or not any(
            isinstance(atom, Quotient) for monomial, _ in size.terms for atom in monomial
        ):
            return size
        key = (size, path, self.arithmetic.assumed)
        if key not in self._resolved:
            total: Size = 0
            for monomial, coefficient in size.terms:
                total = total + coefficient * product(self._atom(a, path) for a in monomial)
            self._resolved[key] = total
        return self._resolved[key]

    def _atom(self, atom: Atom, path: Guards) -> Size:
        if not isinstance(atom, Quotient):
            return Expr((((atom,), 1),))
        numerator = self.size(atom.numerator, path)
        denominator = self.size(atom.denominator, path)
        made = floor_divide(numerator, denominator)
        if isinstance(made, int):
            return made
        # floor_divide may have split off whole multiples; the rest is one quotient.
        total: Size = 0
        for monomial, coefficient in made.terms:
            part: Size = coefficient
            for inner in monomial:
                known = self._resolve(inner, path) if isinstance(inner, Quotient) else None
                part = part * (Expr((((inner,), 1),)) if known is None else known)
            total = total + part
        return total

    def _resolve(self, quotient: Quotient, path: Guards) -> Size | None:
        numerator, denominator = quotient.numerator, quotient.denominator
        if not self._positive(denominator, path):
            return None
        flat = self._flattened(numerator, denominator, path)
        if flat is not None:
            return self.size(flat, path)
        for factor in _factors(denominator):
            if not self._positive(factor, path):
                continue
            whole, rest = multiples(numerator, factor)
            for offset in (0, -1, 1):
                # (factor*whole + rest) // (factor*d) = (whole + offset) // d, since
                # floor(floor(n / factor) / d) = floor(n / (factor*d)) for positive integers.
                low = at_least(rest, offset * factor)
                high = less(rest, (offset + 1) * factor)
                if all(self.arithmetic.implied(c, path) for c in (low, high)):
                    cofactor, _ = divide(denominator, factor)
                    return self.size(floor_divide(whole + offset, cofactor), path)
        return None

    def _flattened(self, numerator: Size, denominator: Size, path: Guards) -> Size | None:
        """``(n // d + t) // D`` as ``(n + t*d) // (d*D)``, for positive d and D."""
        if isinstance(numerator, int):
            return None
        for monomial, coefficient in numerator.terms:
            if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Quotient):
                inner = monomial[0]
                rest = numerator - Expr((((inner,), 1),))
                if inner in _quotients(rest) or not self._positive(inner.denominator, path):
                    continue
                return floor_divide(
                    inner.numerator + rest * inner.denominator, inner.denominator * denominator
                )
        return None

    def _positive(self, size: Size, path: Guards) -> bool:
        return self.arithmetic.implied(at_least(size, 1), path)


def _weight(size: Size) -> tuple[int, int, str]:
    """Smaller for a size that may divide others: fewer factors first."""
    terms = size.terms if isinstance(size, Expr) else ()
    return (len(terms), max((len(monomial) for monomial, _ in terms), default=0), str(size))


def _radices(variable: str, quotient: Quotient) -> Iterator[Size]:
    """The radix in which ``(c*variable + rest) // (c*radix)`` asks for the variable's digits."""
    numerator = quotient.numerator
    if isinstance(numerator, int) or variable not in free_symbols(numerator):
        return
    constant = substitute(numerator, {variable: 0})
    slope = substitute(numerator, {variable: 1}) - constant
    if variable in free_symbols(quotient.denominator) or variable in free_symbols(slope):
        return
    if numerator != slope * symbol(variable) + constant or slope == 0:
        return
    radix, rest = divide(quotient.denominator, slope)
    if rest == 0 and next(_quotients(radix), None) is None:
        yield radix


def _factors(size: Size) -> Iterator[Size]:
    """Factors of a size that are seen from its form, the size itself first, 1 left out."""
    yield size
    if isinstance(size, int) or len(size.terms) != 1:
        return
    monomial, coefficient = size.terms[0]
    seen: set[Size] = {1, size}
    for count in range(len(monomial), -1, -1):
        for chosen in combinations(monomial, count):
            for number in dict.fromkeys((abs(coefficient), 1)):
                factor = product(Expr((((atom,), 1),)) for atom in chosen) * number
                if factor not in seen:
                    seen.add(factor)
                    yield factor


def multiples(size: Size, factor: Size) -> tuple[Size, Size]:
    """``(whole, rest)`` with ``size = factor*whole + rest``, term by term."""
    whole: Size = 0
    rest: Size = 0
    terms = size.terms if isinstance(size, Expr) else (((), size),)
    for monomial, coefficient in terms:
        part = Expr(((monomial, coefficient),)) if monomial else coefficient
        quotient, left = divide(part, factor)
        if left == 0:
            whole = whole + quotient
        else:
            rest = rest + part
    return whole, rest


def _quotients(size: Size) -> Iterator[Quotient]:
    """The quotients in a size, those inside of others included."""
    if isinstance(size, int):
        return
    for monomial, _ in size.terms:
        for atom in monomial:
            if isinstance(atom, Quotient):
                yield from _quotients(atom.numerator)
                yield from _quotients(atom.denominator)
                yield atom


def quotients_in(expression: Scalar) -> Iterator[Quotient]:
    """The quotients in the indices, extents, conditions and sizes of a scalar."""
    match expression:
        case OfSize(size):
            yield from _quotients(size)
        case Element(_, index):
            for i in index:
                yield from _quotients(i)
        case Plus(args) | Times(args) | Call(_, args):
            for arg in args:
                yield from quotients_in(arg)
        case SumOver(_, extent, body) | MaxOver(_, extent, body) | ProductOver(_, extent, body):
            yield from _quotients(extent)
            yield from quotients_in(body)
        case If(conditions, then, other):
            for condition in conditions:
                yield from _quotients(condition.difference)
            yield from quotients_in(then)
            yield from quotients_in(other)
        case Literal() | Bottom():
            pass


def has_quotient(expression: Scalar) -> bool:
    """Whether there is any quotient in a scalar."""
    return next(quotients_in(expression), None) is not None


MOST_REMAINDERS = 4
"""The largest literal radix whose remainders are told apart."""


def has_literal_quotient(expression: Scalar) -> bool:
    """Whether a scalar divides by a literal number of few remainders: digits that are few."""
    return next(_literal_quotients(expression), None) is not None


def _literal_quotients(expression: Scalar) -> Iterator[tuple[Size, int]]:
    """What is divided in a scalar, and by which literal number of few remainders."""
    for quotient in quotients_in(expression):
        radix = quotient.denominator
        if isinstance(radix, int) and radix <= MOST_REMAINDERS:
            yield quotient.numerator, radix


def literal_radices(expressions: Sequence[Scalar], variables: Sequence[str]) -> list[int]:
    """For each variable the literal number that it is divided by, 1 where there is none."""
    found = dict.fromkeys(variables, 1)
    for numerator, radix in (each for e in expressions for each in _literal_quotients(e)):
        for variable in free_symbols(numerator) & found.keys():
            found[variable] = lcm(found[variable], radix)
    return [n if n <= MOST_REMAINDERS else 1 for n in found.values()]
