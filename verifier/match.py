"""Equality of normal forms: sums are matched by bijections of their bound variables.

To show that a sum of terms is 0 the terms are grouped: every term that an affine map with
determinant +-1 takes to the same product as the first one joins its group, and the group vanishes
if the weighted sum of the guards is 0 everywhere. A map is only a hint: products are compared and
guards decided again after it was applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import islice, permutations, product

from xflow.constraint import equal
from xflow.ops.spec import Element
from xflow.size import Size, coefficient_of, divide, free_symbols, substitute, symbol
from xflow.verifier.arithmetic import Arithmetic
from xflow.verifier.normal import Normalizer, TooLargeError
from xflow.verifier.terms import (
    Base,
    Function,
    Group,
    Guards,
    Maximum,
    Normal,
    Option,
    Powers,
    SizeAtom,
    Term,
    base_key,
    elements,
    free_of_base,
    make_normal,
    make_term,
    map_powers,
    scale,
    shape_of,
    substitute_normal,
    substitute_term,
)

MAX_MAPS = 24
MAX_CHOICES = 64


class Equality:
    """Decides equality of normal forms under the assumptions of an `Arithmetic`.

    `maps` records the substitutions of bound variables that a successful proof used.
    """

    def __init__(self, arithmetic: Arithmetic):
        self.arithmetic = arithmetic
        self.normalizer = Normalizer(arithmetic)
        self.maps: list[dict[str, str]] = []
        self._both_defined = True
        """Whether both sides of the present comparison are defined wherever its guards hold."""

    def equal(self, left: Normal, right: Normal, guards: Guards = ()) -> bool:
        """Whether both are equal wherever `guards` hold."""
        if left == right:
            return True
        return self.vanishes([*left.terms, *scale(right.terms, Fraction(-1))], guards)

    def vanishes(self, terms: Sequence[Term], guards: Guards = ()) -> bool:
        """Whether a sum of terms is 0 wherever `guards` hold."""
        with self.arithmetic.assuming(guards):
            return self._vanishes(list(make_normal(self.normalizer.simplify(terms)).terms))

    def _vanishes(self, terms: list[Term]) -> bool:
        if self._groups_vanish(terms):
            return True
        terms = self._with_shared_denominators(terms)
        base = self._denominator(terms)
        if base is None:
            return False
        inside, outside = self._where_defined(base, terms)
        return self._vanishes(self._cleared(base, inside)) and self._vanishes(outside)

    def _groups_vanish(self, rest: list[Term]) -> bool:
        while rest:
            group, rest = self._group(rest)
            if not self._group_vanishes(group):
                return False
        return True

    def _group(self, terms: list[Term]) -> tuple[list[Term], list[Term]]:
        """The terms that might have the same product as the first one, and the others."""
        first = profile(terms[0])
        group = [term for term in terms if profile(term) == first]
        return group, [term for term in terms if profile(term) != first]

    def _group_vanishes(self, group: list[Term]) -> bool:
        """Whether terms of one profile sum to 0; they may fall into several products."""
        rest = group
        while rest:
            first, others = rest[0], rest[1:]
            choices: list[tuple[Term, list[dict[str, Size]]]] = []
            left_over: list[Term] = []
            for term in others:
                maps = list(islice(self._maps(term, first), MAX_MAPS))
                if maps:
                    choices.append((term, maps))
                else:
                    left_over.append(term)
            if not self._cancel(first, choices):
                return False
            rest = left_over
        return True

    def _cancel(self, first: Term, choices: list[tuple[Term, list[dict[str, Size]]]]) -> bool:
        for maps in islice(product(*(maps for _, maps in choices)), MAX_CHOICES):
            weighted = [(first.coefficient, first.guards)]
            for (term, _), mapping in zip(choices, maps, strict=True):
                moved = substitute_term(term, mapping)
                weighted.append((moved.coefficient, moved.guards))
            if self.arithmetic.vanishes(weighted):
                for mapping in maps:
                    if mapping:
                        self.maps.append({k: str(v) for k, v in mapping.items()})
                return True
        return False

    # Maps --------------------------------------------------------------------------------------

    def _maps(self, source: Term, target: Term) -> Iterator[dict[str, Size]]:
        """Bijections of the bound variables of `source` that make its product the target's."""
        if len(source.variables) != len(target.variables):
            return
        renamed = {name: f"{name}'" for name in source.variables}
        fresh = substitute_term(source, {old: symbol(new) for old, new in renamed.items()})
        unknown = frozenset(renamed.values())
        seen: set[tuple[tuple[str, str], ...]] = set()
        for solution in self._solutions(fresh, target, unknown):
            mapping = {old: solution[new] for old, new in renamed.items()}
            key = tuple((k, str(v)) for k, v in mapping.items())
            if key in seen or not is_bijection(mapping, target.variables):
                continue
            seen.add(key)
            moved = substitute_term(source, mapping)
            # Under the guards of the moved term alone: then any two terms of a group agree where
            # both of them count, also where the target does not.
            with self._comparing(moved.powers, target.guards, moved.guards):
                same = self.same_product(moved.powers, target.powers, moved.guards)
            if same:
                yield mapping

    def _solutions(
        self, source: Term, target: Term, unknown: frozenset[str]
    ) -> Iterator[dict[str, Size]]:
        """Values of `unknown` that take accesses of `source` to accesses of `target`."""
        sources, targets = list(elements(source.powers)), list(elements(target.powers))
        # Variables that occur in guards alone are paired off in every order.
        loose = sorted(unknown - free_symbols_of(sources))
        partners = [v for v in target.variables if v not in free_symbols_of(targets)]
        if not loose:
            yield from self._solve(sources, targets, unknown, {})
        elif len(loose) == len(partners):
            for order in permutations(partners):
                known = dict(zip(loose, map(symbol, order), strict=True))
                yield from self._solve(sources, targets, unknown, dict(known))

    @contextmanager
    def _comparing(self, powers: Powers, needed: Guards, guards: Guards) -> Iterator[None]:
        """Note whether the other side, which is read where `needed` hold, is read at `guards`."""
        outer = self._both_defined
        if any(not isinstance(base, Element | SizeAtom) for base, _ in powers):
            self._both_defined = outer and all(self.arithmetic.implied(g, guards) for g in needed)
        try:
            yield
        finally:
            self._both_defined = outer

    def _solve(
        self,
        sources: list[Element],
        targets: list[Element],
        unknown: frozenset[str],
        known: dict[str, Size],
    ) -> Iterator[dict[str, Size]]:
        """Solve for `unknown` by equating indices of accesses to the same tensor."""
        if not unknown - known.keys():
            yield known
            return
        for position, source in enumerate(sources):
            names = frozenset().union(*map(free_symbols, source.index))
            if not names & (unknown - known.keys()):
                continue
            for target in dict.fromkeys(targets):
                if target.tensor != source.tensor or len(target.index) != len(source.index):
                    continue
                solution = solve_indices(source.index, target.index, unknown, known)
                if solution is not None and len(solution) > len(known):
                    yield from self._solve(sources[position + 1 :], targets, unknown, solution)
            # An access from which nothing could be learnt may be passed over.

    # Products ----------------------------------------------------------------------------------

    def same_product(self, left: Powers, right: Powers, guards: Guards) -> bool:
        """Whether two products are factor by factor the same where `guards` hold."""
        if left == right:
            return True
        rest = list(right)
        for base, exponent in left:
            for candidate in rest:
                if candidate[1] == exponent and self.same_base(base, candidate[0], guards):
                    rest.remove(candidate)
                    break
            else:
                return False
        return not rest

    def same_base(self, left: Base, right: Base, guards: Guards) -> bool:
        """Whether two factors are the same where `guards` hold."""
        if left == right:
            return True
        match left, right:
            case Element(), Element():
                return left.tensor == right.tensor and all(
                    a == b or self.arithmetic.implied(equal(a, b), guards)
                    for a, b in zip(left.index, right.index, strict=True)
                )
            case SizeAtom(), SizeAtom():
                return self.arithmetic.implied(equal(left.size, right.size), guards)
            case Function(), Function():
                return left.name == right.name and all(
                    self.equal(a, b, guards) for a, b in zip(left.args, right.args, strict=True)
                )
            case Group(), Group():
                return self.equal(left.body, right.body, guards)
            case Maximum(), Maximum():
                return self._covers(left, right, guards) and self._covers(right, left, guards)
        return False

    def _covers(self, covering: Maximum, covered: Maximum, guards: Guards) -> bool:
        """Whether each value of `covered` is among those of `covering`."""
        return all(
            self._option_covered(option, covering.options, guards) for option in covered.options
        )

    def _option_covered(self, option: Option, options: Sequence[Option], guards: Guards) -> bool:
        """Whether at each point of `option` some option has the same body and holds."""
        witnesses: list[Guards] = []
        for other in options:
            for mapping in islice(self._witnesses(other, option), MAX_MAPS):
                body = substitute_normal(other.body, mapping)
                needed = tuple(g.substitute(mapping) for g in other.guards)
                here = (*guards, *option.guards)
                powers = tuple(power for term in body.terms for power in term.powers)
                with self._comparing(powers, needed, here):
                    same = self.equal(body, option.body, here)
                if same:
                    witnesses.append(needed)
        return self.arithmetic.covered((*guards, *option.guards), witnesses)

    def _witnesses(self, other: Option, option: Option) -> Iterator[dict[str, Size]]:
        """Values of the variables of `other`, over those of `option`, to try."""
        names = {name: f"{name}'" for name in other.variables}
        body = substitute_normal(other.body, {old: symbol(new) for old, new in names.items()})
        unknown = frozenset(names.values())
        sources = [e for term in body.terms for e in elements(term.powers)]
        targets = [e for term in option.body.terms for e in elements(term.powers)]
        found = False
        for solution in self._solve(sources, targets, unknown, {}):
            found = True
            yield {old: solution[new] for old, new in names.items()}
        if found or free_symbols_of(sources) & unknown:
            return
        # No access tells: the body is the same at every point, and a least point will do.
        yield from least_points(other.variables, other.guards)

    # Denominators ------------------------------------------------------------------------------

    def _with_shared_denominators(self, terms: list[Term]) -> list[Term]:
        """The terms with equal denominators written alike."""
        found: list[Group] = []

        def shared(base: Base) -> Base:
            if not isinstance(base, Group) or has_bound(base) or base in found:
                return base
            for other in found:
                if self.equal(base.body, other.body):
                    return other
            found.append(base)
            return base

        return list(
            make_normal(
                make_term(t.coefficient, t.variables, t.guards, map_powers(t.powers, shared))
                for t in terms
            ).terms
        )

    def _denominator(self, terms: list[Term]) -> Group | None:
        """A sum by which to multiply `terms`; None where there is none."""
        if len(terms) < 2 or not self._both_defined:
            return None
        found = {
            base
            for term in terms
            for base, exponent in term.powers
            if exponent < 0 and isinstance(base, Group) and not has_bound(base)
        }
        return min(found, key=base_key, default=None)

    def _where_defined(self, base: Group, terms: list[Term]) -> tuple[list[Term], list[Term]]:
        """The terms that count only where `base` is known not to be 0, and the others.

        It is not 0 where a term that divides by it is read. Elsewhere it may be, and to multiply
        by it would make anything vanish.
        """
        dividing = [t for t in terms if any(b == base and e < 0 for b, e in t.powers)]
        known = [guards for term in dividing for guards in self._read_at(term)]
        inside, outside = list(dividing), list[Term]()
        for term in terms:
            if term in dividing:
                continue
            safe = any(all(self.arithmetic.implied(g, term.guards) for g in gs) for gs in known)
            (inside if safe else outside).append(term)
        return inside, outside

    def _read_at(self, term: Term) -> Iterator[Guards]:
        """Conditions without bound variables under which `term` has a summand that is read."""
        for mapping in least_points(term.variables, term.guards):
            guards = tuple(g.substitute(mapping) for g in term.guards)
            if not any(g.symbols & set(term.variables) for g in guards):
                yield guards

    def _cleared(self, base: Group, terms: list[Term]) -> list[Term]:
        """The terms multiplied by the highest power of `base` that divides one of them."""
        highest = max(-dict(term.powers).get(base, 0) for term in terms)
        cleared: list[Term] = []
        for term in terms:
            powers = dict(term.powers)
            missing = highest + powers.pop(base, 0)
            parts = [make_term(term.coefficient, term.variables, term.guards, powers)]
            for _ in range(missing):
                parts = [
                    made
                    for part in parts
                    for factor in base.body.terms
                    for made in self.normalizer.times([part], [factor])
                ]
                if len(parts) > 400:
                    raise TooLargeError("a common denominator of more than 400 terms")
            cleared += parts
        return list(make_normal(self.normalizer.simplify(cleared)).terms)


def least_points(variables: Sequence[str], guards: Guards) -> Iterator[dict[str, Size]]:
    """Values of `variables` at which some guard of each is just satisfied."""
    lows = [
        [
            -split[1]
            for guard in guards
            if (split := coefficient_of(guard.difference, name))
            and split[0] == 1
            and not free_symbols(split[1]) & set(variables)
        ]
        for name in variables
    ]
    for choice in product(*lows):
        yield dict(zip(variables, choice, strict=True))


def profile(term: Term) -> tuple[object, ...]:
    """What two terms share if an affine map can make their products equal."""
    shapes = sorted((shape_of(base), exponent) for base, exponent in term.powers)
    return (len(term.variables), tuple(shapes))


def has_bound(base: Base) -> bool:
    """Whether a bound variable from outside occurs in `base`."""
    return any(name.startswith("_k") for name in free_of_base(base))


def free_symbols_of(accesses: Sequence[Element]) -> frozenset[str]:
    """The symbols in the indices of some accesses."""
    return frozenset().union(*(free_symbols(i) for e in accesses for i in e.index))


def solve_indices(
    source: Sequence[Size],
    target: Sequence[Size],
    unknown: frozenset[str],
    known: dict[str, Size],
) -> dict[str, Size] | None:
    """Values of `unknown` that make the `source` indices the `target` ones; None if impossible.

    Equations that are not linear in one remaining unknown are left aside: the caller compares
    the products afterwards anyway.
    """
    solution = dict(known)
    equations = [a - b for a, b in zip(source, target, strict=True)]
    progress = True
    while progress:
        progress = False
        for equation in equations:
            rest = substitute(equation, solution)
            names = free_symbols(rest) & unknown
            if len(names) != 1:
                continue
            (name,) = names
            value = solve_for(rest, name)
            if value is not None:
                solution[name] = value
                progress = True
    return solution


def solve_for(equation: Size, name: str) -> Size | None:
    """The polynomial that `name` must be for ``equation == 0``; None where there is none."""
    split = coefficient_of(equation, name)
    if split is not None:
        coefficient, rest = split
        if abs(coefficient) == 1:
            return -rest * coefficient
        whole, remainder = divide(-rest, coefficient)
        return whole if remainder == 0 else None
    # a symbolic coefficient: name*d + rest, with d dividing rest
    with_one = substitute(equation, {name: 1})
    rest = substitute(equation, {name: 0})
    slope = with_one - rest
    if name in free_symbols(slope) or equation != slope * symbol(name) + rest or slope == 0:
        return None
    whole, remainder = divide(-rest, slope)
    return whole if remainder == 0 else None


def is_bijection(mapping: dict[str, Size], variables: Sequence[str]) -> bool:
    """Whether an affine map is a bijection of Z^n: its matrix has determinant +-1."""
    matrix: list[list[Fraction]] = []
    for value in mapping.values():
        row = []
        for variable in variables:
            split = coefficient_of(value, variable)
            if split is None:
                return False
            row.append(Fraction(split[0]))
        matrix.append(row)
    return abs(determinant(matrix)) == 1


def determinant(matrix: list[list[Fraction]]) -> Fraction:
    """The determinant, by elimination."""
    rows = [list(row) for row in matrix]
    result = Fraction(1)
    for column in range(len(rows)):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != column:
            rows[column], rows[pivot] = rows[pivot], rows[column]
            result = -result
        result *= rows[column][column]
        for r in range(column + 1, len(rows)):
            factor = rows[r][column] / rows[column][column]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[column], strict=True)]
    return result
