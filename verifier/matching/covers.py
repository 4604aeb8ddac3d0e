"""Equality of maxima: each value of one is among those of the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Protocol

from xflow.core.constraint import at_least
from xflow.core.size import Size, floor_divide, free_symbols, substitute, symbol
from xflow.core.spec import Element
from xflow.verifier.algebra.affine import eliminate, free_symbols_of, least_points, linear_in
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.terms import (
    Guards,
    Maximum,
    Normal,
    Option,
    Powers,
    elements,
    free_of_normal,
    substitute_normal,
)
from xflow.verifier.algebra.totality import is_total_normal
from xflow.verifier.certificate import Recorder
from xflow.verifier.matching.witness import named_points

MAX_WITNESSES = 24


class Compares(Protocol):
    """The part of `Equality` that is used for maxima."""

    arithmetic: Arithmetic
    recorder: Recorder

    def equal(self, left: Normal, right: Normal, guards: Guards = ()) -> bool: ...

    def comparing(
        self, powers: Powers, needed: Guards, guards: Guards
    ) -> AbstractContextManager[None]: ...

    def solve(
        self,
        sources: list[Element],
        targets: list[Element],
        unknown: frozenset[str],
        known: dict[str, Size],
    ) -> Iterator[dict[str, Size]]: ...


class Covers:
    """Compares maxima for an `Equality`."""

    def __init__(self, equality: Compares):
        self._equality = equality

    def same(self, left: Maximum, right: Maximum, guards: Guards) -> bool:
        """Whether two maxima are equal wherever `guards` hold and both are read."""
        return self._covers(left, right, guards) and self._covers(right, left, guards)

    def _covers(self, covering: Maximum, covered: Maximum, guards: Guards) -> bool:
        """Whether each value of `covered` is among those of `covering`."""
        return all(
            self._option_covered(option, covering.options, guards) for option in covered.options
        )

    def _option_covered(self, option: Option, options: Sequence[Option], guards: Guards) -> bool:
        """Whether at each point of `option` some option has the same body and holds."""
        witnesses: list[Guards] = []
        for other in options:
            for mapping in islice(self._witnesses(other, option, guards), MAX_WITNESSES):
                body = substitute_normal(other.body, mapping)
                needed = tuple(g.substitute(mapping) for g in other.guards)
                here = (*guards, *option.guards)
                powers = tuple(power for term in body.terms for power in term.powers)
                with self._equality.comparing(powers, needed, here):
                    same = self._equality.equal(body, option.body, here)
                if same:
                    self._equality.recorder.witness(mapping)
                    witnesses.append(needed)
        if self._equality.arithmetic.covered((*guards, *option.guards), witnesses):
            return True
        return any(self._covers_by_axes(other, option, guards) for other in options)

    def _covers_by_axes(self, other: Option, option: Option, guards: Guards) -> bool:
        """Whether `other` alone covers `option`, found for each group of its variables apart.

        Where no guard has variables of two groups, a value for each group's variables that
        satisfies the group's guards is a value for all, so the groups' cases need not be combined.
        """
        names = {name: f"{name}'" for name in other.variables}
        fresh: dict[str, Size] = {old: symbol(new) for old, new in names.items()}
        body = substitute_normal(other.body, fresh)
        unknown = frozenset(names.values())
        sources = [e for term in body.terms for e in elements(term.powers)]
        targets = [e for term in option.body.terms for e in elements(term.powers)]
        here = (*guards, *option.guards)
        needed = tuple(g.substitute(fresh) for g in other.guards)
        for part in self._partial(sources, targets, unknown):
            groups = list(self._groups(part, unknown, needed))
            # The body must be the same whatever the variables are that are still open.
            same_body = substitute_normal(body, part)
            if len(groups) < 2 or free_of_normal(same_body) & unknown:
                continue
            if not is_total_normal(same_body):
                continue
            same = self._equality.equal(same_body, option.body, here)
            if same and all(self._group_covered(*group, here) for group in groups):
                return True
        return False

    def _groups(
        self, part: dict[str, Size], unknown: frozenset[str], needed: Guards
    ) -> Iterator[tuple[frozenset[str], Guards]]:
        """Groups of open variables, with the guards that have these variables."""
        rest = [guard.substitute(part) for guard in needed]
        while rest:
            names, chosen = rest[0].symbols & unknown, [rest.pop(0)]
            while joined := [g for g in rest if g.symbols & names]:
                chosen += joined
                rest = [g for g in rest if g not in joined]
                names |= frozenset[str]().union(*(g.symbols & unknown for g in joined))
            yield names, tuple(chosen)

    def _group_covered(self, names: frozenset[str], needed: Guards, here: Guards) -> bool:
        values = islice(self._completed({}, names, needed, here), MAX_WITNESSES)
        witnesses = [tuple(g.substitute(value) for g in needed) for value in values]
        return self._equality.arithmetic.covered(here, witnesses)

    def _witnesses(
        self, other: Option, option: Option, guards: Guards
    ) -> Iterator[dict[str, Size]]:
        """Values of the variables of `other`, over those of `option`, to try."""
        names = {name: f"{name}'" for name in other.variables}
        body = substitute_normal(other.body, {old: symbol(new) for old, new in names.items()})
        unknown = frozenset(names.values())
        sources = [e for term in body.terms for e in elements(term.powers)]
        targets = [e for term in option.body.terms for e in elements(term.powers)]
        found = False
        for solution in self._equality.solve(sources, targets, unknown, {}):
            found = True
            yield {old: solution[new] for old, new in names.items()}
        if found:
            return
        if not free_symbols_of(sources) & unknown:
            # Without accesses the body is the same at every point, and a least point will do.
            yield from least_points(other.variables, other.guards)
            yield from named_points(other.variables, self._equality.arithmetic.assumed)
            return
        fresh: dict[str, Size] = {old: symbol(new) for old, new in names.items()}
        needed = tuple(g.substitute(fresh) for g in other.guards)
        here = (*guards, *option.guards)
        for part in self._partial(sources, targets, unknown):
            for solution in self._completed(part, unknown, needed, here):
                yield {old: solution[new] for old, new in names.items()}

    def _partial(
        self, sources: Sequence[Element], targets: Sequence[Element], unknown: frozenset[str]
    ) -> Iterator[dict[str, Size]]:
        """Values of some of `unknown`, by the others, that take an access to one of the targets."""
        for source in dict.fromkeys(sources):
            for target in dict.fromkeys(targets):
                if target.tensor == source.tensor and len(target.index) == len(source.index):
                    yield eliminate(source.index, target.index, unknown)

    def _completed(
        self, part: dict[str, Size], unknown: frozenset[str], needed: Guards, here: Guards
    ) -> Iterator[dict[str, Size]]:
        """`part` with the unknowns that it leaves open at the ends of the ranges they may have.

        Wherever there is a value that satisfies linear bounds, the greatest lower bound does.
        """
        left = sorted(unknown - part.keys())
        guards = tuple(g.substitute(part) for g in needed)
        if not left:
            yield part
            return
        name = next((n for n in left if any(n in g.symbols for g in guards)), left[0])
        for value in dict.fromkeys(self._bounds(name, guards, unknown, here)):
            known = {n: substitute(v, {name: value}) for n, v in part.items()}
            yield from self._completed({**known, name: value}, unknown, needed, here)

    def _bounds(
        self, name: str, guards: Guards, unknown: frozenset[str], here: Guards
    ) -> Iterator[Size]:
        """The least values, then the greatest, that one of `guards` lets `name` have."""
        greatest: list[Size] = []
        for guard in guards:
            split = linear_in(guard.difference, name)
            if split is None or any(free_symbols(part) & unknown for part in split):
                continue
            slope, rest = split
            if self._equality.arithmetic.implied(at_least(slope, 1), here):
                yield -floor_divide(rest, slope)  # slope * v + rest >= 0
            elif self._equality.arithmetic.implied(at_least(-slope, 1), here):
                greatest.append(floor_divide(rest, -slope))
        yield from greatest
