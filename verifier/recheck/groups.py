"""Groups of terms that cancel according to a certificate, and parts of the check that they do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TypeAlias

from xflow.core.constraint import Constraint
from xflow.core.size import Size, coefficient_of, free_symbols, substitute, symbol
from xflow.verifier.recheck.forms import (
    Choice,
    Term,
    canonical,
    fresh,
    rebound,
    renamed_apart,
    replace_sum,
)

Guards: TypeAlias = tuple[Constraint, ...]
Change: TypeAlias = Mapping[str, Size]
"""Values of bound variables, over other ones."""


@dataclass(frozen=True)
class Group:
    """Terms that a certificate says vanish together: each with its change of variables.

    The first one's variables are what the others' are changed to.
    """

    members: tuple[tuple[Term, Change], ...]
    number: int = 0

    def weighted(self) -> list[tuple[Fraction, Guards]]:
        """The guards of all terms after the changes, each with its term's coefficient."""
        (first, _), *others = self.members
        moved = [rebound(part, first.variables, change) for part, change in others]
        return gathered([(t.coefficient, t.guards) for t in (first, *moved)])


def least_point(part: Term) -> Guards | None:
    """Conditions under which the term has a summand: the one at least values of its variables."""
    values = least_values(part.variables, part.guards)
    return None if values is None else tuple(g.substitute(values) for g in part.guards)


def least_values(variables: Sequence[str], guards: Guards) -> Change | None:
    """The values of `variables` that their lower bounds allow; None where there are none."""
    values: dict[str, Size] = {}
    for variable in variables:
        for guard in guards:
            split = coefficient_of(guard.difference, variable)
            if split and split[0] == 1 and not free_symbols(split[1]) & set(variables):
                values[variable] = -split[1]
                break
        else:
            return None
    return values


def lower_bounds(variables: Sequence[str], guards: Guards) -> Iterator[Change]:
    """The values of `variables` that one lower bound of each allows, see `least_values`."""
    bounds = [
        [
            -split[1]
            for guard in guards
            if (split := coefficient_of(guard.difference, variable))
            and split[0] == 1
            and not free_symbols(split[1]) & set(variables)
        ]
        for variable in variables
    ]
    for values in product(*bounds):
        yield dict(zip(variables, values, strict=True))


def occurring(group: Group, first: Term, terms: Sequence[Term]) -> list[Term] | None:
    """The terms of the group among others, up to a factor for all; None if one is missing."""
    (leader, _), *others = group.members
    if not leader.coefficient:
        return None
    ratio = first.coefficient / leader.coefficient
    found = [first] if any(t is first for t in terms) else []
    for member, _ in others:
        wanted = ratio * member.coefficient
        for part in terms:
            if (
                part.key == member.key
                and part.coefficient == wanted
                and not any(part is other for other in found)
            ):
                found.append(part)
                break
    return found if len(found) == len(group.members) else None


def gathered(weighted: Iterable[tuple[Fraction, Guards]]) -> list[tuple[Fraction, Guards]]:
    """Guards with weights, those of equal guards added up, without any that are 0, in order."""
    total: dict[frozenset[Constraint], Fraction] = {}
    for weight, guards in weighted:
        if any(g.decided is False for g in guards):
            continue
        key = frozenset(canonical(g) for g in guards if g.decided is None)
        total[key] = total.get(key, Fraction(0)) + weight
    found = [(tuple(sorted(guards, key=str)), weight) for guards, weight in total.items() if weight]
    return [(weight, guards) for guards, weight in sorted(found, key=str)]


def apart_group(group: Group) -> Group:
    """The group with fresh names for all bound variables: none occurs anywhere unbound."""
    (first, _), *others = group.members
    fresh_first = renamed_apart(first)
    names = dict(zip(first.variables, map(symbol, fresh_first.variables), strict=True))
    members: list[tuple[Term, Change]] = [(fresh_first, {})]
    for part, change in others:
        fresh_part = renamed_apart(part)
        values = {
            new: substitute(change[old], names)
            for old, new in zip(part.variables, fresh_part.variables, strict=True)
            if old in change
        }
        values |= {name: value for name, value in change.items() if name not in part.variables}
        members.append((fresh_part, values))
    return Group(tuple(members))


def apart_choice(choice: Choice) -> Choice:
    """The value under a maximum with fresh names for its variables."""
    names = {v: fresh() for v in choice.variables}
    values = {old: symbol(new) for old, new in names.items()}
    return Choice(
        tuple(names.values()),
        tuple(g.substitute(values) for g in choice.guards),
        replace_sum(choice.body, values),
    )


def is_bijection(values: Sequence[Size], variables: Sequence[str]) -> bool:
    """Whether ``variables -> values`` is an affine bijection of Z^n: its determinant is 1 or -1."""
    if len(values) != len(variables) or len(set(variables)) != len(variables):
        return False
    rows: list[list[int]] = []
    for value in values:
        splits = [coefficient_of(value, variable) for variable in variables]
        if any(split is None for split in splits):
            return False
        rows.append([split[0] for split in splits if split is not None])
    return abs(_determinant(rows)) == 1


def _determinant(rows: Sequence[Sequence[int]]) -> int:
    """By expansion along the first row, with minors of zeros left out."""
    if not rows:
        return 1
    first, *below = rows
    total = 0
    for column, value in enumerate(first):
        if value:
            minor = _determinant([[*row[:column], *row[column + 1 :]] for row in below])
            total += (-1) ** column * value * minor
    return total
