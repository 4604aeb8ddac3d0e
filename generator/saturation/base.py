"""The division of the rules into the base and the working set of the search.

No rule of the *base* follows from the others within a few steps of saturation. The *working set*
is what the search uses. It also has rules that follow from others by a detour through larger terms:
``Conv(x, w) + Conv(x, v) = Conv(x, w + v)`` follows from the rules on concatenations, but a search
would have to concatenate first. Each of these names the rules that it follows from. A rule that
follows without a detour is in neither: the search finds it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from xflow.generator.minimize import operators_of
from xflow.generator.saturation.derivation import (
    Derived,
    NotDerived,
    cases_of,
    derive,
    sampled_ranks,
)
from xflow.generator.saturation.directions import Database, Direction
from xflow.generator.saturation.egraph import Step
from xflow.generator.saturation.saturate import Saturation
from xflow.rewriting.index import adds_operators
from xflow.rewriting.rule import Rule

STEPS = 2
"""A rule that does not follow from others within so many steps of saturation is in the base."""

MAX_NODES = 4_000
"""Nodes of an e-graph at which a derivation is given up; the rule is in the base then."""

MAX_SAVED = 1
"""Most operators saved by a rule that is dropped since it follows from several others without a
detour; what saves more, the search should find in one step, whatever surrounds it."""


@dataclass(frozen=True)
class Follows:
    """That a rule follows from others."""

    rules: tuple[str, ...]
    """Their names."""
    is_plain: bool
    """Whether they lead from side to side, in the directions of the rule, by terms that are no
    larger and within few steps."""


def consequences(rules: Sequence[Rule], known: Sequence[Rule] = ()) -> dict[str, Follows]:
    """By name, those of `rules` that are not in the base, and what they follow from.

    The largest rules are tried first, and of those of one size the last. Each is derived from what
    is in the base or may yet be, and from `known`, so that nothing follows from itself. All names
    differ.
    """
    database = Database.of([*known, *rules])
    steps = {rule.name: _as_searched(rule) for rule in (*known, *rules)}
    gone: dict[str, Follows] = {}
    sizes = [(_size(rule), number) for number, rule in enumerate(rules)]
    for _, number in sorted(sizes, reverse=True):
        rule = rules[number]
        others = Database(
            item for item in database.directions if item.name != rule.name and item.name not in gone
        )
        found = derive(rule, others, STEPS, max_nodes=MAX_NODES)
        if isinstance(found, Derived):
            chosen = Database(item for name in found.rules for item in steps[name])
            gone[rule.name] = Follows(found.rules, _is_plain(rule, found, chosen))
    return gone


def _size(rule: Rule) -> tuple[int, int]:
    """How many operators the sides have, the larger first."""
    instance = rule.instance(rule.ranks[0])
    sizes = [operators_of(side).total() for side in (instance.lhs, instance.rhs)]
    return max(sizes), min(sizes)


def _is_plain(rule: Rule, found: Derived, database: Database) -> bool:
    if any(not i.is_determined for d in rule.directions() for i in d.instances()):
        return False  # the search chooses the numbers, which no rule that it follows from does
    large, small = _size(rule)
    if len(found.rules) > 1 and large - small > MAX_SAVED:
        return False
    modest = Database(item for item in database.directions if not _adds(item.rule))
    return all(map(_stays_small, found.chains)) and all(
        _leads(item.rule, database if _adds(item.rule) else modest, found.steps)
        for item in _as_searched(rule)
    )


def _adds(rule: Rule) -> bool:
    """Whether it adds elementwise operators, which the search does only for a gain at once."""
    return any(map(adds_operators, rule.usable_instances()))


def _as_searched(rule: Rule) -> list[Direction]:
    """The directions in which the search can use a rule; derivations use it from either side.

    The search leaves out patterns that match everywhere or do not determine the replacement.
    """
    return [
        Direction(direction, rule.name)
        for direction in rule.directions()
        if all(i.is_determined and not i.lhs[0].is_leaf for i in direction.usable_instances())
    ]


def _stays_small(chain: Sequence[Step]) -> bool:
    """Whether no term on the way has more operators than the larger end of the way."""
    terms = [*(step.before for step in chain[:1]), *(step.after for step in chain)]
    sizes = [operators_of([term]).total() for term in terms]
    return not sizes or max(sizes) <= max(sizes[0], sizes[-1])


def _leads(rule: Rule, database: Database, steps: int) -> bool:
    """Whether rules lead from the left side alone to the right one, at every rank.

    A derivation may meet in the middle, by rules that are proved in one direction only.
    """
    rng = random.Random(f"{rule.lhs} {rule.rhs}")
    for rank in sampled_ranks(rule):
        cases = cases_of(rule.instance(rank), rng)
        if isinstance(cases, NotDerived):
            return False
        case = cases[0]
        search = Saturation(database, case.left, case.facts, MAX_NODES)
        for _ in range(2 * steps):
            search.step()
        for value in case.right:
            search.egraph.add(value)
        search.egraph.rebuild()
        if not search.has_met(case.pairs):
            return False
    return True
