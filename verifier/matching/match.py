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

from xflow.core.constraint import equal
from xflow.core.size import Size, free_symbols, symbol
from xflow.core.spec import Element
from xflow.verifier.algebra.affine import (
    free_symbols_of,
    is_bijection,
    least_points,
    solve_indices,
)
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.comparisons import Comparisons
from xflow.verifier.algebra.normal import Normalizer
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Group,
    Guards,
    Maximum,
    Normal,
    Powers,
    SizeAtom,
    Term,
    TooLargeError,
    base_key,
    elements,
    free_of_base,
    make_normal,
    make_term,
    map_powers,
    scale,
    shape_of,
    substitute_term,
)
from xflow.verifier.certificate import Recorder
from xflow.verifier.matching.covers import Covers
from xflow.verifier.matching.equality_cases import cut_at_ties

MAX_MAPS = 24
MAX_CHOICES = 64
MAX_PARTS = 60
"""Terms into which a sum is cut at ties of what its guards compare."""


class Equality:
    """Decides equality of normal forms under the assumptions of an `Arithmetic`.

    `recorder` keeps what a successful proof found, for the certificate.
    """

    def __init__(self, arithmetic: Arithmetic):
        self.arithmetic = arithmetic
        self.normalizer = Normalizer(arithmetic)
        self.comparisons = Comparisons(self)
        self._covers = Covers(self)
        self.recorder = Recorder()
        self.remembers = False
        """Whether what was shown is not shown again: for questions of which no record is kept."""
        self._shown: set[tuple[object, ...]] = set()
        self._both_defined = True
        """Whether both sides of the present comparison are defined wherever its guards hold."""

    def equal(self, left: Normal, right: Normal, guards: Guards = ()) -> bool:
        """Whether both are equal wherever `guards` hold."""
        if left == right:
            return True
        if not self.remembers:
            return self._differ_by_nothing(left, right, guards)
        pair = frozenset((left, right))
        what = self.arithmetic.assumed, pair, self._both_defined
        if (*what, guards) in self._shown or (*what, ()) in self._shown:
            return True
        found = self._differ_by_nothing(left, right, guards)
        if found:
            self._shown.add((*what, guards))
        return found

    def _differ_by_nothing(self, left: Normal, right: Normal, guards: Guards) -> bool:
        return self.vanishes([*left.terms, *scale(right.terms, Fraction(-1))], guards)

    def vanishes(self, terms: Sequence[Term], guards: Guards = ()) -> bool:
        """Whether a sum of terms is 0 wherever `guards` hold."""
        mark = self.recorder.mark()
        with self.arithmetic.assuming(guards):
            shown = self._vanishes(list(make_normal(self.normalizer.simplify(terms)).terms))
        if not shown:
            self.recorder.rewind(mark)
        return shown

    def _vanishes(self, terms: list[Term]) -> bool:
        if self._groups_vanish(terms):
            return True
        cut = [cut_at_ties(term, self.normalizer) for term in terms]
        apart = [
            part
            for term, parts in zip(terms, cut, strict=True)
            for part in ([term] if parts is None else parts)
        ]
        # Each cut leaves less to cut, so that this ends.
        if (
            any(parts is not None for parts in cut)
            and len(apart) <= MAX_PARTS
            and self._vanishes(list(make_normal(self.normalizer.simplify(apart)).terms))
        ):
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
        # All others are moved to the product of the first, each where its own guards hold: the
        # fewer guards the first has, the more of them agree with it there.
        rest = sorted(group, key=lambda term: len(term.guards))
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
                moves = ((term, m) for (term, _), m in zip(choices, maps, strict=True))
                self.recorder.group(first, moves)
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
            with self.comparing(moved.powers, target.guards, moved.guards):
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
            yield from self.solve(sources, targets, unknown, {})
        elif len(loose) == len(partners):
            for order in permutations(partners):
                known = dict(zip(loose, map(symbol, order), strict=True))
                yield from self.solve(sources, targets, unknown, dict(known))

    @contextmanager
    def comparing(self, powers: Powers, needed: Guards, guards: Guards) -> Iterator[None]:
        """Note whether the other side, which is read where `needed` hold, is read at `guards`."""
        outer = self._both_defined
        if any(not isinstance(base, Element | SizeAtom) for base, _ in powers):
            self._both_defined = outer and all(self.arithmetic.implied(g, guards) for g in needed)
        try:
            yield
        finally:
            self._both_defined = outer

    def solve(
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
        stuck: list[Element] = []
        for position, source in enumerate(sources):
            names = frozenset().union(*map(free_symbols, source.index))
            if not names & (unknown - known.keys()):
                continue
            learnt = False
            for target in dict.fromkeys(targets):
                if target.tensor != source.tensor or len(target.index) != len(source.index):
                    continue
                solution = solve_indices(source.index, target.index, unknown, known)
                if solution is not None and len(solution) > len(known):
                    learnt = True
                    rest = [*stuck, *sources[position + 1 :]]
                    yield from self.solve(rest, targets, unknown, solution)
            if not learnt:  # it may determine one once others are known, or be skipped
                stuck.append(source)

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
                return self._covers.same(left, right, guards)
        return False

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


def profile(term: Term) -> tuple[object, ...]:
    """A key that is equal for terms whose products an affine map may make equal."""
    shapes = sorted((shape_of(base), exponent) for base, exponent in term.powers)
    return (len(term.variables), tuple(shapes))


def has_bound(base: Base) -> bool:
    """Whether a bound variable from outside occurs in `base`."""
    return any(name.startswith("_k") for name in free_of_base(base))
