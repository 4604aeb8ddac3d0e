"""Replays the matching that a certificate records, to show that a sum of terms vanishes.

The certificate says which terms belong together and which change of variables takes one to
another. Each is checked: the change is a bijection of Z^n, the products agree after it, and the
guards with their weights cancel.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from xflow.core.constraint import equal
from xflow.core.size import Size, coefficient_of, free_symbols, substitute, symbol
from xflow.verifier.recheck.abstraction import is_within_reach, vanishes
from xflow.verifier.recheck.forms import (
    Apply,
    Atom,
    Choice,
    Factor,
    Most,
    Nested,
    Read,
    Sum,
    Term,
    collect,
    factor_key,
    free_in_factor,
    free_in_sum,
    fresh,
    product,
    rebound,
    renamed_apart,
    replace_sum,
    scaled,
    term,
)
from xflow.verifier.recheck.groups import (
    Change,
    Group,
    Guards,
    apart_choice,
    apart_group,
    gathered,
    is_bijection,
    least_point,
    least_values,
    occurring,
)
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.tidy import Tidying, written_out, written_out_choice
from xflow.verifier.recheck.unknowns import LAST_LIMIT, Given

MAX_DEPTH = 12
MAX_ORDERS = 24
"""Orders in which the variables of two terms are paired without a record."""
MAX_ABSTRACTED = 2
"""How deep inside of terms real arithmetic is asked."""
MAX_WITNESSES = 6
"""Orders in which the variables of two maxima are paired."""
MAX_DIGITS = 4
"""How often bound variables are split into digits."""
MAX_PATHS = 48
"""Paths that are kept, for recorded groups that were not needed."""


@dataclass
class Replay:
    """Checks that sums vanish, with the recorded groups and witnesses as the only hints.

    `failure` says of the last sum that did not, why.
    """

    questions: Questions
    tidying: Tidying
    groups: Sequence[Group] = ()
    witnesses: Sequence[Change] = ()
    hints: Sequence[Change] = ()
    """Changes of variables to try where there are no groups."""
    specified: Sequence[Term] = ()
    """The terms of both specifications: a denominator is not 0 where one of these divides by it."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Relations to 0 of all elements of some inputs."""
    given: Sequence[Given] = ()
    """Facts that hold because the left side is defined."""
    nonnegative: dict[object, bool] = field(default_factory=dict)
    """Answers that were found already."""
    failure: str = ""
    _depth: int = field(default=0)

    @cached_property
    def _summands(self) -> list[Term]:
        """The terms of both specifications, and their summands over a few values."""
        apart = (renamed_apart(t) for t in self.specified)
        return list(dict.fromkeys(each for t in apart for each in (t, *written_out(t))))

    def __post_init__(self) -> None:
        self._taken = set[str]().union(*(c.symbols for c in self.questions.assumed))
        self._by_key: dict[str, list[Group]] = {}
        self._open: dict[int, str] = {}
        self._paths: dict[tuple[str, ...], Guards] = {(): ()}
        """Under which conditions sums were asked about."""
        self._apart_groups = list(map(apart_group, self.groups))
        for number, group in enumerate(self._apart_groups):
            self._open[number] = ""
            group = replace(group, number=number)  # noqa: PLW2901
            self._by_key.setdefault(group.members[0][0].key, []).append(group)

    def equal(self, left: Sum, right: Sum, path: Guards, *, defined: bool = False) -> bool:
        """Whether two sums are equal wherever `path` holds.

        `defined` says that both have a value there; only then a denominator may be cleared.
        """
        return self.vanishes((*left.terms, *scaled(right, Fraction(-1)).terms), path, defined)

    def vanishes(self, terms: Sequence[Term], path: Guards, defined: bool = False) -> bool:
        """Whether the terms sum to 0 wherever `path` holds."""
        if self._depth > MAX_DEPTH:
            return False
        if len(self._paths) < MAX_PATHS:
            self._paths.setdefault(tuple(map(str, path)), path)
        self._depth += 1
        try:
            rest = self._tidied(self._apart(terms, path), path)
            rest = self._by_groups(rest, path)
            rest = self._by_factors(rest, path)
            rest = self._by_quotients(rest, path)
            rest = self._by_pairs(rest, path)
            rest = self._by_digits(rest, path)
            rest = self._by_values(rest, path)
            if rest and defined:
                rest = self._by_denominators(rest, path)
            if rest and self._depth <= MAX_ABSTRACTED and is_within_reach(rest):
                known = self._not_zero(path) if defined else []
                limit = LAST_LIMIT if defined else None
                if vanishes(Sum(tuple(rest)), path, self, known, limit):
                    rest = []
                rest = self._by_summands(rest, path)
        finally:
            self._depth -= 1
        if rest:
            self.failure = f"nothing shows that {_short(rest[0])} cancels"
        return not rest

    def _apart(self, terms: Sequence[Term], path: Guards) -> list[Term]:
        """The terms with no bound variable named like anything that occurs unbound."""
        taken = (
            self._taken | set().union(*(g.symbols for g in path)) | free_in_sum(Sum(tuple(terms)))
        )
        return [renamed_apart(t) if taken & set(t.variables) else t for t in terms]

    def _tidied(self, terms: Sequence[Term], path: Guards) -> list[Term]:
        return [t for part in terms for t in self.tidying.tidy(part, path)]

    # Recorded groups ---------------------------------------------------------------------------

    def _by_groups(self, terms: list[Term], path: Guards) -> list[Term]:
        """The terms left when recorded groups that occur among `terms` are taken out."""
        rest = list(terms)
        for part in terms:
            for group in self._by_key.get(part.key, ()):
                found = occurring(group, part, rest)
                if found is None:
                    continue
                if self._group_vanishes(group, path):
                    self._open.pop(group.number, None)
                    rest = [t for t in rest if not any(t is other for other in found)]
                    break
                if group.number in self._open:
                    self._open[group.number] = self.failure
        return list(collect(rest).terms)

    def _group_vanishes(self, group: Group, path: Guards) -> bool:
        (first, _), *others = group.members
        weighted = [(first.coefficient, first.guards)]
        for part, change in others:
            moved = self.moved(part, change, first, path)
            if moved is None:
                return False
            weighted.append((moved.coefficient, moved.guards))
        self.failure = f"the terms with {_short(first)} do not cancel"
        return self.cancels(weighted, path)

    def refused(self) -> str | None:
        """Why a recorded group is not shown to hold; None if each is.

        One that was not needed on the way must hold under some conditions that came up there: the
        record does not say under which it was used, as inside of a maximum.
        """
        for number, failure in self._open.items():
            group = self._apart_groups[number]
            if not any(self._group_vanishes(group, path) for path in self._paths.values()):
                return failure or self.failure
        return None

    def moved(self, part: Term, change: Change, target: Term, path: Guards) -> Term | None:
        """The term after a change of variables, with the product of `target`; None if it fails."""
        if change.keys() != set(part.variables) or not is_bijection(
            [change[v] for v in part.variables], target.variables
        ):
            self.failure = f"{_change(change)} is no bijection of the integers"
            return None
        moved = rebound(part, target.variables, change)
        if not self.same_product(moved.factors, target.factors, (*path, *moved.guards)):
            self.failure = f"{_change(change)} does not take {_short(part)} to {_short(target)}"
            return None
        return moved

    def cancels(self, weighted: Sequence[tuple[Fraction, Guards]], path: Guards) -> bool:
        """Whether guards with weights cancel wherever `path` holds."""
        rest = gathered(weighted)
        if not rest:
            return True
        if len(rest) == 1:
            return self.questions.contradictory((*path, *rest[0][1]))
        return self.questions.vanishes(rest, path)

    # What needs no record ----------------------------------------------------------------------

    def _by_factors(self, terms: list[Term], path: Guards) -> list[Term]:
        """The terms left when those of identical factors cancel and those without points vanish."""
        by_factors: dict[str, list[Term]] = {}
        for part in terms:
            by_factors.setdefault(_factors_key(part), []).append(part)
        rest: list[Term] = []
        for parts in by_factors.values():
            first = parts[0]
            weighted = []
            for part in parts:
                change = dict(zip(part.variables, map(symbol, first.variables), strict=True))
                moved = rebound(part, first.variables, change)
                weighted.append((moved.coefficient, moved.guards))
            if not self.cancels(weighted, path):
                rest += [
                    part
                    for part in parts
                    if not self.questions.contradictory((*path, *part.guards))
                ]
        return rest

    def _by_quotients(self, terms: list[Term], path: Guards) -> list[Term]:
        if not terms:
            return []
        changed = False
        made: list[Term] = []
        for part in terms:
            plain = self.tidying.without_quotients(part, path)
            changed = changed or plain is not None
            made.append(plain or part)
        if not changed:
            return terms
        rest = self._tidied(made, path)
        rest = self._by_factors(self._by_groups(rest, path), path)
        return self._by_quotients(rest, path)

    def _by_values(self, terms: list[Term], path: Guards) -> list[Term]:
        """The terms left when sums over a few values are written out."""
        made = [t for part in terms for t in written_out(part)]
        if len(made) == len(terms):
            return terms
        rest = self._by_factors(self._by_groups(self._tidied(made, path), path), path)
        return self._by_pairs(rest, path)

    def _by_digits(self, terms: list[Term], path: Guards) -> list[Term]:
        """The terms left when bound variables are written in digits."""
        made, changed = list(terms), False
        for _ in range(MAX_DIGITS):
            split = [self.tidying.in_digits(part, path) for part in made]
            if not any(split):
                break
            made = self._tidied([new or old for new, old in zip(split, made, strict=True)], path)
            changed = True
        if not changed:
            return terms
        rest = self._by_factors(self._by_groups(made, path), path)
        return self._by_pairs(self._by_quotients(rest, path), path)

    def _by_pairs(self, terms: list[Term], path: Guards) -> list[Term]:
        """The terms left when those whose factors are provably equal cancel.

        Terms are moved to one before them. Those that are left are moved to any other:
        ``[r <= 0] * x[2*q]`` is ``[r <= 0] * x[2*q + r]``, but ``x[2*q + r]`` without that guard
        is not ``x[2*q]``.
        """
        rest = list(terms)
        left: list[Term] = []
        while rest:
            first = rest.pop(0)
            unlike = self._without_like(first, rest, path)
            if unlike is None:
                left.append(first)
            else:
                rest = unlike
        for place in range(len(left) - 1, 0, -1):
            if place < len(left):
                others = [*left[:place], *left[place + 1 :]]
                unlike = self._without_like(left[place], others, path)
                left = left if unlike is None else unlike
        return left

    def _without_like(self, first: Term, others: list[Term], path: Guards) -> list[Term] | None:
        """The other terms without those that can be moved to `first`; None if all do not cancel."""
        joined, weighted = list[Term](), [(first.coefficient, first.guards)]
        for other in others:
            if _profile(other) != _profile(first):
                continue
            moved = self._paired(other, first, path)
            if moved is not None:
                joined.append(other)
                weighted.append((moved.coefficient, moved.guards))
        if joined and self.cancels(weighted, path):
            return [part for part in others if part not in joined]
        return None

    def _by_summands(self, terms: list[Term], path: Guards) -> list[Term]:
        """The terms left when sums vanish since at each place their summands together do."""
        rest = list(terms)
        for first in terms:
            if not first.variables or first not in rest:
                continue
            together = [t for t in rest if len(t.variables) == len(first.variables)]
            names = [fresh() for _ in first.variables]
            summands = []
            for part in together:
                values = dict(zip(part.variables, map(symbol, names), strict=True))
                summands.append(rebound(part, (), values))
            if self.vanishes(summands, path):
                rest = [t for t in rest if t not in together]
        return rest

    def _paired(self, part: Term, target: Term, path: Guards) -> Term | None:
        """The term with its variables in some order for those of `target`, if its product fits."""
        orders = itertools.permutations(target.variables)
        for names in itertools.islice(orders, MAX_ORDERS if self._depth == 1 else 1):
            change = dict(zip(part.variables, map(symbol, names), strict=True))
            moved = self.moved(part, change, target, path)
            if moved is not None:
                return moved
        for hint in (*self.hints, *filter(None, map(_inverse, self.hints))):
            other = _transferred(hint, part.variables, target.variables)
            moved = None if other is None else self.moved(part, other, target, path)
            if moved is not None:
                return moved
        return None

    # Products ----------------------------------------------------------------------------------

    def same_product(
        self,
        left: Sequence[tuple[Factor, int]],
        right: Sequence[tuple[Factor, int]],
        path: Guards,
    ) -> bool:
        """Whether two products have the same factors wherever `path` holds."""
        rest = [(factor_key(f), e, f) for f, e in right]
        open_factors: list[tuple[Factor, int]] = []
        for factor, exponent in left:
            key = factor_key(factor)
            same = next((r for r in rest if r[:2] == (key, exponent)), None)
            if same is None:
                open_factors.append((factor, exponent))
            else:
                rest.remove(same)
        if len(open_factors) != len(rest):
            return False
        # An element refutes a pairing of variables in one question; a function may take
        # thousands.
        for factor, exponent in sorted(open_factors, key=lambda f: not isinstance(f[0], Read)):
            for candidate in rest:
                if candidate[1] == exponent and self.same_factor(factor, candidate[2], path):
                    rest.remove(candidate)
                    break
            else:
                return False
        return True

    def same_factor(self, left: Factor, right: Factor, path: Guards) -> bool:
        """Whether two factors are equal wherever `path` holds."""
        match left, right:
            case Read(), Read():
                return (
                    left.tensor == right.tensor
                    and len(left.index) == len(right.index)
                    and all(
                        self._same_size(a, b, path)
                        for a, b in zip(left.index, right.index, strict=True)
                    )
                )
            case Atom(), Atom():
                return self._same_size(left.size, right.size, path)
            case Apply(), Apply():
                return (
                    left.name == right.name
                    and len(left.args) == len(right.args)
                    and all(
                        self.equal(a, b, path) for a, b in zip(left.args, right.args, strict=True)
                    )
                )
            case Nested(), Nested():
                return self.equal(left.body, right.body, path)
            case Most(), Most():
                left, right = self._in_digits(left, path), self._in_digits(right, path)
                if self._cover_each_other(left, right, path):
                    return True
                values = _one_by_one(left), _one_by_one(right)
                return values != (left, right) and self._cover_each_other(*values, path)
        return False

    def _same_size(self, left: Size, right: Size, path: Guards) -> bool:
        return left == right or self.questions.implied(equal(left, right), path)

    # Maxima ------------------------------------------------------------------------------------

    def _in_digits(self, factor: Most, path: Guards) -> Most:
        """The same maximum over variables in digits."""
        made = [self._choice_apart(c, path) for c in factor.choices]
        for _ in range(MAX_DIGITS):
            split = [self.tidying.choice_in_digits(c, path) for c in made]
            if not any(split):
                break
            made = [new or old for new, old in zip(split, made, strict=True)]
        return Most(tuple(made))

    def _cover_each_other(self, left: Most, right: Most, path: Guards) -> bool:
        return self._covers(left, right, path) and self._covers(right, left, path)

    def _covers(self, covering: Most, covered: Most, path: Guards) -> bool:
        """Whether each value of `covered` is among those of `covering`."""
        return all(self._choice_covered(c, covering.choices, path) for c in covered.choices)

    def _choice_apart(self, choice: Choice, path: Guards) -> Choice:
        taken = self._taken | set().union(*(g.symbols for g in path))
        return apart_choice(choice) if set(choice.variables) & taken else choice

    def _choice_covered(self, choice: Choice, others: Sequence[Choice], path: Guards) -> bool:
        choice = self._choice_apart(choice, path)
        here = (*path, *choice.guards)
        found: list[Guards] = []
        for other in others:
            for change in self._witnesses(other, choice):
                needed = tuple(g.substitute(change) for g in other.guards)
                if any(g.decided is False for g in needed):
                    continue
                if self.equal(replace_sum(other.body, change), choice.body, here):
                    found.append(needed)
                    if self.questions.covered(here, found):
                        return True
        return bool(self.questions.contradictory(here))

    def _witnesses(self, other: Choice, choice: Choice) -> list[Change]:
        tried: list[Change] = [w for w in self.witnesses if w.keys() == set(other.variables)]
        if len(other.variables) == len(choice.variables):
            orders = itertools.permutations(choice.variables)
            tried = [
                *(
                    dict(zip(other.variables, map(symbol, names), strict=True))
                    for names in itertools.islice(orders, MAX_WITNESSES)
                ),
                *tried,
            ]
        least = least_values(other.variables, other.guards)
        return tried if least is None else [*tried, least]

    def _not_zero(self, path: Guards) -> list[Factor]:
        """Factors by which both specifications divide wherever `path` holds."""
        return [
            f
            for t in self.specified
            if not t.variables and all(self.questions.implied(g, path) for g in t.guards)
            for f, e in t.factors
            if e < 0
        ]

    # Denominators ------------------------------------------------------------------------------

    def _by_denominators(self, terms: list[Term], path: Guards) -> list[Term]:
        """The terms left when all are multiplied by a denominator of theirs.

        Both sides have a value here, so a denominator is not 0 where a term that divides by it is
        read. Only terms that are read nowhere else are multiplied.
        """
        terms = self._shared(terms, path)
        read: dict[str, tuple[list[Term], list[Term]]] = {}
        for part in terms:
            for factor, exponent in part.factors:
                if exponent >= 0 or not isinstance(factor, Nested) or _is_bound(factor, part):
                    continue
                key = factor_key(factor)
                if key not in read:
                    read[key] = self._where_read(factor, terms, path)
                inside, outside = read[key]
                if part not in inside:
                    continue  # multiplied by the factor, nothing would be gained
                cleared = self._cleared(factor, key, inside)
                if self.vanishes(cleared, path, True) and self.vanishes(outside, path, True):
                    return []
        return terms

    def _shared(self, terms: list[Term], path: Guards) -> list[Term]:
        """The terms with equal denominators written alike."""
        known: list[Nested] = []
        made: list[Term] = []
        for part in terms:
            factors: list[tuple[Factor, int]] = []
            for factor, exponent in part.factors:
                if isinstance(factor, Nested) and not _is_bound(factor, part):
                    same = next((k for k in known if self.equal(k.body, factor.body, path)), None)
                    if same is None:
                        known.append(factor)
                    factors.append((same or factor, exponent))
                else:
                    factors.append((factor, exponent))
            made.append(term(part.coefficient, part.variables, part.guards, factors))
        return list(collect(self._tidied(made, path)).terms)

    def _where_read(
        self, factor: Nested, terms: Sequence[Term], path: Guards
    ) -> tuple[list[Term], list[Term]]:
        """The terms that are read only where a specification divides by `factor`, and the others.

        It may be written there as a sum over a few values that is written out here.
        """
        same = {factor_key(factor): True}

        def is_same(other: Factor) -> bool:
            key = factor_key(other)
            if key not in same:
                found = isinstance(other, Nested) and self.equal(other.body, factor.body, path)
                same[key] = found
            return same[key]

        known = [
            reached
            for t in self._summands
            if any(e < 0 and is_same(f) for f, e in t.factors)
            and (reached := least_point(t)) is not None
        ]
        inside, outside = list[Term](), list[Term]()
        for part in terms:
            here = (*path, *part.guards)
            safe = any(all(self.questions.implied(g, here) for g in gs) for gs in known)
            (inside if safe else outside).append(part)
        return inside, outside

    def _cleared(self, factor: Nested, key: str, terms: Sequence[Term]) -> list[Term]:
        highest = max(-e for t in terms for f, e in t.factors if factor_key(f) == key)
        cleared: list[Term] = []
        for part in terms:
            own = sum(e for f, e in part.factors if factor_key(f) == key)
            rest = [(f, e) for f, e in part.factors if factor_key(f) != key]
            made = [term(part.coefficient, part.variables, part.guards, rest)]
            for _ in range(highest + own):
                made = [product(m, t) for m in made for t in factor.body.terms]
            cleared += made
        return cleared


def _transferred(hint: Change, variables: Sequence[str], targets: Sequence[str]) -> Change | None:
    """The change of variables that `hint` is, for others; None where the numbers differ."""
    bound: dict[str, None] = {}
    for value in hint.values():
        bound |= dict.fromkeys(sorted(n for n in free_symbols(value) if n.startswith("_k")))
    if len(hint) != len(variables) or len(bound) != len(targets):
        return None
    names = dict(zip(bound, map(symbol, targets), strict=True))
    return {v: substitute(h, names) for v, h in zip(variables, hint.values(), strict=True)}


def _inverse(hint: Change) -> Change | None:
    """The change of variables back, where each is moved or turned round alone."""
    back: dict[str, Size] = {}
    for name, value in hint.items():
        bound = sorted(n for n in free_symbols(value) if n.startswith("_k"))
        split = coefficient_of(value, bound[0]) if len(bound) == 1 else None
        if split is None or abs(split[0]) != 1 or bound[0] in free_symbols(split[1]):
            return None
        back[bound[0]] = split[0] * (symbol(name) - split[1])
    return back if len(back) == len(hint) else None


def _is_bound(factor: Factor, part: Term) -> bool:
    return bool(free_in_factor(factor) & set(part.variables))


def _factors_key(part: Term) -> str:
    bare = Term(Fraction(1), part.variables, (), part.factors)
    return bare.key


def _profile(part: Term) -> tuple[object, ...]:
    """A key that is equal for terms whose products may be equal."""
    shapes = []
    for factor, exponent in part.factors:
        name = {Read: "tensor", Apply: "name"}.get(type(factor), "")
        shapes.append((type(factor).__name__, getattr(factor, name, "") if name else "", exponent))
    return (len(part.variables), sorted(shapes))


def _one_by_one(factor: Most) -> Most:
    """The same maximum over values one by one, for variables between literal bounds."""
    return Most(tuple(each for choice in factor.choices for each in written_out_choice(choice)))


def _short(part: Term, length: int = 120) -> str:
    text = str(part)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _change(change: Change) -> str:
    return "{" + ", ".join(f"{k} -> {v}" for k, v in change.items()) + "}"
