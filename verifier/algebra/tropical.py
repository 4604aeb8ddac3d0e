"""Maxima as tropical polynomials: summands and factors that all options share are taken out.

With this a maximum is flat, has no option that another one dominates, no summand and no
non-negative factor that all options share: ``max{a + c, b + c} = c + max{a, b}`` and
``max{c a, c b} = c max{a, b}`` for ``c >= 0``. Minima are negated maxima, so clips and absolute
values become sums of maxima of two values, and products of these are multiplied out.

Each step is an equation of real numbers that holds whatever finite value an expression is given
where it is not defined; but an expression may only be taken out of an option if it is defined
wherever the maximum is read, since expressions outside are assumed to be defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, islice
from typing import Protocol

from xflow.core.spec import fresh_name
from xflow.verifier.algebra.affine import least_points
from xflow.verifier.algebra.arithmetic import Arithmetic, Effort
from xflow.verifier.algebra.factors import (
    canonical_option,
    common_content,
    common_powers,
    without_powers,
)
from xflow.verifier.algebra.functions import apply_function
from xflow.verifier.algebra.integers import Ranges
from xflow.verifier.algebra.signs import Signs, difference, option_apart, rename_option
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Guards,
    Maximum,
    Normal,
    Option,
    Term,
    free_of_normal,
    make_normal,
    make_term,
    multiply,
    rename,
    scale,
)
from xflow.verifier.algebra.totality import is_total, is_total_term

MAX_ROUNDS = 8
MAX_OPTIONS = 24
MAX_TOGETHER = 6
MAX_POINTS = 4
"""Points at which an option over a range is looked for."""
ONE = Fraction(1)


class Multiplies(Protocol):
    """The part of `Normalizer` that is used for products of maxima."""

    arithmetic: Arithmetic
    facts: Mapping[str, str]
    ranges: Ranges

    def times(self, left: list[Term], right: list[Term]) -> list[Term]: ...


class Tropical:
    """Simplifies maxima for a `Normalizer`."""

    def __init__(self, normalizer: Multiplies):
        self._normalizer = normalizer

    def signs(self) -> Signs:
        """The signs that are known of normal forms."""
        known = self._normalizer
        return Signs(known.arithmetic, known.facts, ranges=known.ranges)

    def maximum(self, options: Sequence[Option], path: Guards) -> list[Term]:
        """The terms of the maximum of `options`, of which one is there wherever it is read."""
        outside: list[Term] = []
        options = [canonical_option(option) for option in options]
        for _ in range(MAX_ROUNDS):
            absolute = self._absolute(options, path)
            if absolute is not None:
                return [*apart(outside), *absolute]
            # Common summands first: max{M + a, M + b} for a maximum M is M + max{a, b}.
            shift = common_summand(options)
            outside += shift
            before = options
            options = [without_summand(option, shift) for option in options]
            options = self._undominated(self._flattened(options, path), path)
            if options == before:
                break
        if len(options) == 1 and not options[0].variables and not options[0].guards:
            return apart([*outside, *options[0].body.terms])
        if not any(option.body.terms for option in options):
            return apart(outside)  # one of the options is there, and it is 0
        factor, divided = self._factored(options, path)
        if factor.powers:  # the quotients may have more in common
            return [*apart(outside), *self._normalizer.times([factor], self.maximum(divided, path))]
        content = common_content(option.body for option in options)
        unit = [
            Option(o.variables, o.guards, make_normal(scale(o.body.terms, 1 / content)))
            for o in options
        ]
        options = sorted(map(canonical_option, unit), key=lambda o: o.key)
        base = make_term(content, powers=[(Maximum(tuple(options)), 1)])
        return [*apart(outside), base]

    def _absolute(self, options: Sequence[Option], path: Guards) -> list[Term] | None:
        """``max{m, -m}`` for a product m as the product of the absolute values of its factors."""
        if len(options) != 2 or any(o.variables or o.guards for o in options):
            return None
        first, second = (o.body for o in options)
        if len(first.terms) != 1 or make_normal((*first.terms, *second.terms)).terms:
            return None
        (term,) = first.terms
        if term.variables or term.guards or not term.powers:
            return None
        result = [Term(abs(term.coefficient))]
        for base, exponent in term.powers:
            result = self._normalizer.times(result, self._absolute_power(base, exponent, path))
        return result

    def _absolute_power(self, base: Base, exponent: int, path: Guards) -> list[Term]:
        """``|b|^e``, that is ``b^e`` for an even e and ``b^(e - 1) |b|`` for an odd one."""
        if self.signs().is_power_nonnegative(base, exponent, path):
            return [make_term(ONE, powers=[(base, exponent)])]
        values = (make_normal([make_term(c, powers=[(base, 1)])]) for c in (ONE, -ONE))
        options = [canonical_option(Option((), (), value)) for value in values]
        absolute = Maximum(tuple(sorted(options, key=lambda o: o.key)))
        return [make_term(ONE, powers=[(base, exponent - 1), (absolute, 1)])]

    def squared(self, term: Term) -> list[Term] | None:
        """A term with ``max{a, b}^2 = (a + b) max{a, b} - a b``, from ``(M - a)(M - b) = 0``."""
        for base, exponent in term.powers:
            if not isinstance(base, Maximum) or exponent < 2 or len(base.options) != 2:
                continue
            if any(option.variables or option.guards for option in base.options):
                continue
            a, b = (list(option.body.terms) for option in base.options)
            times = self._normalizer.times
            rest = [(x, e) for x, e in term.powers if x != base]
            left = [make_term(term.coefficient, term.variables, term.guards, rest)]
            for _ in range(exponent - 2):
                left = times(left, [make_term(ONE, powers=[(base, 1)])])
            linear = times([*a, *b], [make_term(ONE, powers=[(base, 1)])])
            return times(left, [*linear, *scale(times(a, b), -ONE)])
        return None

    def exponential(self, normal: Normal, path: Guards) -> list[Term]:
        """``exp`` of a sum, with ``exp(max{a, b}) = max{exp(a), exp(b)}``: it is increasing."""
        rest: list[Term] = []
        result = [Term(ONE)]
        for term in normal.terms:
            base = term.powers[0][0] if len(term.powers) == 1 else None
            if (
                not isinstance(base, Maximum)
                or term.powers[0][1] != 1
                or term.variables
                or term.guards
                or len(base.options) != 2
                or any(option.variables or option.guards for option in base.options)
            ):
                rest.append(term)
                continue
            bodies = (scale(o.body.terms, abs(term.coefficient)) for o in base.options)
            values = [make_normal(apply_function("exp", make_normal(body))) for body in bodies]
            greatest = self.maximum([Option((), (), value) for value in values], path)
            if term.coefficient < 0:
                greatest = apply_function("reciprocal", make_normal(greatest))
            result = self._normalizer.times(result, greatest)
        if not rest:
            return result
        return self._normalizer.times(result, apply_function("exp", make_normal(rest)))

    def inverted(self, term: Term) -> list[Term] | None:
        """A term with ``1 / max{a, b} = 1/a + 1/b - max{a, b} / (a b)`` for positive a and b.

        Both sides times ``a b`` are ``min{a, b} = a + b - max{a, b}``.
        """
        for base, exponent in term.powers:
            if not isinstance(base, Maximum) or exponent > -1 or len(base.options) != 2:
                continue
            if not all(map(is_positive_product, base.options)):
                continue
            a, b = (apply_function("reciprocal", option.body) for option in base.options)
            times = self._normalizer.times
            rest = [(x, e) for x, e in term.powers if x != base]
            left = [make_term(term.coefficient, term.variables, term.guards, rest)]
            greatest = [make_term(ONE, powers=[(base, 1)])]
            inverse = [*a, *b, *scale(times(times(a, b), greatest), -ONE)]
            for _ in range(-exponent):
                left = times(left, inverse)
            return left
        return None

    def root(self, normal: Normal, path: Guards) -> list[Term] | None:
        """The square root of ``c^2 a`` as ``|c| sqrt(a)`` for ``a >= 0``; None if there is no c.

        Every term of `normal` has the factor ``c^2``, in which none of its variables occurs.
        """
        common = common_powers(normal.terms)
        squares = {base: exponent for base, exponent in common.items() if exponent % 2 == 0}
        rest = without_powers(normal, squares)
        # sqrt(c^2 a) may be defined where a is negative, for c = 0: not then.
        if not squares or not self.signs().is_nonnegative(rest, path):
            return None
        result = apply_function("sqrt", rest)
        for base, exponent in squares.items():
            power = self._absolute_power(base, exponent // 2, path)
            result = self._normalizer.times(power, result)
        return result

    # Flattening ----------------------------------------------------------------------------------

    def _flattened(self, options: Sequence[Option], path: Guards) -> list[Option]:
        """The options with maxima that are summands, with a factor ``c >= 0``, written out."""
        rest, done = list(options), list[Option]()
        while rest:
            option = rest.pop(0)
            values = self._values(option, path)
            if values is None or len(done) + len(rest) + len(values) > MAX_OPTIONS:
                done.append(option)
            else:
                rest = [*values, *rest]
        return list(dict.fromkeys(map(canonical_option, done)))

    def _values(self, option: Option, path: Guards) -> list[Option] | None:
        """``c max{a, b} + d`` as the options ``c a + d`` and ``c b + d``."""
        option = option_apart(option, path)
        signs, inside = self.signs(), (*path, *option.guards)
        for term in option.body.terms:
            if term.variables or term.guards or term.coefficient < 0:
                continue
            inner = [base for base, _ in term.powers if isinstance(base, Maximum)]
            if len(inner) != 1:  # of a product of maxima it would be arbitrary which to take
                continue
            (base,) = inner
            factor = make_term(
                term.coefficient, powers=[(b, e) for b, e in term.powers if b != base]
            )
            if dict(term.powers)[base] != 1 or not signs.is_nonnegative(
                make_normal([factor]), inside
            ):
                continue
            others = [t for t in option.body.terms if t is not term]
            values = []
            for inner_option in base.options:
                names = {name: fresh_name() for name in inner_option.variables}
                value = rename_option(inner_option, names)
                product = [multiply(factor, t) for t in value.body.terms]
                values.append(
                    Option(
                        (*option.variables, *value.variables),
                        (*option.guards, *value.guards),
                        make_normal((*others, *product)),
                    )
                )
            return values
        return None

    # Dominated options ---------------------------------------------------------------------------

    def _undominated(self, options: Sequence[Option], path: Guards) -> list[Option]:
        """The options without those that never exceed another one that is there."""
        if len(options) > MAX_OPTIONS:
            return list(options)
        kept = list(options)
        for option in options:
            others = [o for o in kept if o is not option]
            if len(others) < len(kept) and (
                any(self._dominates(other, option, path) for other in others)
                or self._dominate_together(others, option, path)
            ):
                kept = others
        return kept

    def _dominate_together(self, others: Sequence[Option], option: Option, path: Guards) -> bool:
        """Whether an option never exceeds the mean of two that are always there, as 0 in |x|."""
        option = option_apart(option, path)
        always = [o for o in others if not o.variables and not o.guards]
        return any(
            self.signs().is_nonnegative(
                make_normal(
                    (*a.body.terms, *b.body.terms, *scale(option.body.terms, Fraction(-2)))
                ),
                (*path, *option.guards),
                0,
            )
            for a, b in combinations(always[:MAX_TOGETHER], 2)
            if not (free_of_normal(a.body) | free_of_normal(b.body)) & set(option.variables)
        )

    def _dominates(self, other: Option, option: Option, path: Guards) -> bool:
        if not is_small(other, option) or free_of_normal(other.body) & set(option.variables):
            return False
        option = option_apart(option, path)
        inside = (*path, *option.guards)
        if other.variables:
            return self._all_dominate(other, option, inside)
        return all(
            self._normalizer.arithmetic.implied(guard, inside) for guard in other.guards
        ) and self.signs().is_nonnegative(difference(other.body, option.body), inside)

    def _all_dominate(self, other: Option, option: Option, path: Guards) -> bool:
        """Whether an option over a range has a value, and all of them are at least another one.

        That takes bounds of the values, which are known of integers in a range alone.
        """
        if not self._normalizer.ranges:
            return False
        other = option_apart(other, path)
        return self._has_values(other, path) and self.signs().is_nonnegative(
            difference(other.body, option.body), (*path, *other.guards)
        )

    def _has_values(self, option: Option, path: Guards) -> bool:
        """Whether one of the points just within the guards of an option is always within all.

        A window of a pool has its first element, or where that is in the border the first behind.
        """
        points = islice(least_points(option.variables, option.guards), MAX_POINTS)
        needed = [tuple(g.substitute(point) for g in option.guards) for point in points]
        return bool(needed) and not self._may_all_fail(needed, path)

    def _may_all_fail(self, needed: Sequence[Guards], path: Guards) -> bool:
        """Whether it may be that of each of `needed` a condition does not hold."""
        if self._normalizer.arithmetic.contradictory(path, Effort.LEMMAS):
            return False
        return not needed or any(
            self._may_all_fail(needed[1:], (*path, piece))
            for guard in needed[0]
            for piece in guard.negation()
        )

    # Common factors ------------------------------------------------------------------------------

    def _factored(self, options: Sequence[Option], path: Guards) -> tuple[Term, list[Option]]:
        """``(c, options)``: ``max{c a, c b}`` is ``c max{a, b}``, with the greatest ``c >= 0``."""
        bound = frozenset(name for option in options for name in option.variables)
        common = common_powers((term for o in options for term in o.body.terms), bound)
        signs = self.signs()
        powers: dict[Base, int] = {}
        for base, exponent in common.items():
            nonnegative = signs.is_power_nonnegative(base, exponent, path)
            # Of an odd power an even one is left.
            kept = exponent if nonnegative else exponent - (1 if exponent > 0 else -1)
            if kept and self._is_read(base, kept, options):
                powers[base] = kept
        divided = [Option(o.variables, o.guards, without_powers(o.body, powers)) for o in options]
        return make_term(ONE, powers=powers), divided

    def _is_read(self, base: Base, exponent: int, options: Sequence[Option]) -> bool:
        """Whether a common factor is defined wherever the maximum is read."""
        return (exponent > 0 and is_total(base)) or all(
            o.body.terms or (not o.guards and not o.variables) for o in options
        )


def is_positive_product(option: Option) -> bool:
    """Whether an option is always there, and a positive number times exponentials."""
    if option.variables or option.guards or len(option.body.terms) != 1:
        return False
    (term,) = option.body.terms
    return (
        term.coefficient > 0
        and not term.variables
        and not term.guards
        and all(isinstance(base, Function) and base.name == "exp" for base, _ in term.powers)
    )


def common_summand(options: Sequence[Option]) -> list[Term]:
    """The sum that leaves each coefficient 0 in one option, positive in others, if subtracted.

    It is the same for ``max{a + c, b + c}`` as for ``max{a, b}``, but for the c. Terms in which a
    variable of an option occurs are no part of it, and no term that is not known to be defined
    wherever the maximum is read.
    """
    bound = {name for option in options for name in option.variables}
    found: dict[Term, list[tuple[Fraction, Option]]] = {}
    for option in options:
        for term in option.body.terms:
            unit = Term(ONE, term.variables, term.guards, term.powers)
            if not free_of_normal(Normal((unit,))) & bound:
                found.setdefault(unit, []).append((term.coefficient, option))
    shift = []
    for unit, uses in found.items():
        least = min(c for c, _ in uses)
        if len(uses) < len(options):
            least = min(least, Fraction(0))
            always = any(not o.guards and not o.variables for _, o in uses)
            if not always and not is_total_term(unit):
                continue
        if least:
            shift.append(Term(least, unit.variables, unit.guards, unit.powers))
    return shift


def without_summand(option: Option, shift: Sequence[Term]) -> Option:
    """The option less a sum of terms."""
    body = make_normal((*option.body.terms, *scale(shift, -ONE)))
    return Option(option.variables, option.guards, body)


def apart(terms: Iterable[Term]) -> list[Term]:
    """Terms from inside of a maximum, with names of their own for their bound variables."""
    return [rename(t, {v: fresh_name() for v in t.variables}) if t.variables else t for t in terms]


def is_small(left: Option, right: Option) -> bool:
    """Whether a difference of two options has few enough terms to ask for its sign."""
    return len(left.body.terms) + len(right.body.terms) <= MAX_OPTIONS
