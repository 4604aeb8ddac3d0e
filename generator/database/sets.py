"""Divides the rules of all families into the base, shortcuts, and consequences that are dropped.

A family's rules are compared with its own and those of the families before it, so that a family
that is generated again alone gets the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from xflow.generator.derive import Derivation, Dropped, FamilyJob, Kept
from xflow.generator.runner.chunks import Compare, Consequence, FindGaps
from xflow.generator.runner.desk import Desk, Steps, Ticket, wait_for
from xflow.generator.runner.engine import Urgency
from xflow.generator.saturation.directions import Database
from xflow.rewriting.rule import Rule

BATCH = 24
"""Proposals of one chunk in the search for gaps."""


def sort_out(
    derivations: Mapping[str, Derivation],
    others: Mapping[str, Sequence[Rule]],
    order: Iterable[str],
    desk: Desk,
) -> Steps[None]:
    """Drop plain consequences, and record from which rules each other consequence follows.

    `others` are the rules of families that are not generated in this run.
    """
    known: list[Rule] = []
    for family in order:
        derivation = derivations.get(family)
        if derivation is None:
            known += [rule for rule in others.get(family, ()) if rule.explains]
            continue
        apart = [item for item in derivation.kept if item.rule.is_apart]
        derivation.kept = [item for item in derivation.kept if not item.rule.is_apart]
        own = [item.rule for item in derivation.kept]
        known.sort(key=attrgetter("statement"))
        chunk = Compare(_statements(own), _statements(known))
        ticket = desk.ask(chunk, family, Urgency.NOW)
        found = yield from wait_for(ticket)
        everything = [*own, *known]
        kept: list[Kept] = []
        for number, item in enumerate(derivation.kept):
            sources = [everything[i] for i in dict.fromkeys(sources_of(number, found))]
            if number in found and found[number].is_plain:
                derivation.dropped.append(Dropped(item, _because(sources)))
            else:
                keys = tuple(rule.statement for rule in sources)
                kept.append(Kept(item.rule, item.certificate, keys))
        derivation.kept = [*kept, *apart]
        derivation.counts["kept"] = len(derivation.kept)
        derivation.counts["shortcuts"] = len(apart) + sum(bool(item.follows) for item in kept)
        known += [item.rule for item in kept]
        yield True


def sources_of(number: int, found: Mapping[int, Consequence]) -> Iterator[int]:
    """The rules that a rule follows from; for a dropped one, those that it follows from."""
    for source in found[number].numbers if number in found else ():
        if source in found and found[source].is_plain:
            yield from sources_of(source, found)
        else:
            yield source


def _statements(rules: Iterable[Rule]) -> tuple[str, ...]:
    return tuple(rule.statement for rule in rules)


def _because(sources: Iterable[Rule]) -> str:
    return f"follows from {' and '.join(f'{rule.lhs} = {rule.rhs}' for rule in sources)}"


def fill_gaps(
    jobs: Mapping[str, FamilyJob],
    others: Mapping[str, Sequence[Rule]],
    order: Iterable[str],
    rules: Sequence[Rule],
    desk: Desk,
) -> Steps[None]:
    """Add to the base of the families of `jobs` the idle equations that the rules do not derive.

    `rules` are those of all families that the search uses.
    """
    rules = sorted(rules, key=attrgetter("statement"))
    texts = _statements(rules)
    tickets = {name: [*_questions(job, texts, desk)] for name, job in jobs.items()}
    known = Database.of(rules)
    for family in order:
        if family not in jobs:
            gone = [rule for rule in others.get(family, ()) if not rule.is_searched]
            known = known.joined(Database.of(sorted(gone, key=attrgetter("statement"))))
            continue
        gaps: list[bool] = []
        for ticket in tickets[family]:
            gaps += yield from wait_for(ticket)
            desk.forget(ticket)
        job = jobs[family]
        open_ones = [judge for judge, is_gap in zip(job.idle, gaps, strict=True) if is_gap]
        added = yield from job.fill(open_ones, known)
        known = known.joined(Database.of(sorted(added, key=attrgetter("statement"))))


def _questions(
    job: FamilyJob, rules: tuple[str, ...], desk: Desk
) -> Iterator[Ticket[tuple[bool, ...]]]:
    for start in range(0, len(job.idle), BATCH):
        pairs = tuple(judge.proposal.pair for judge in job.idle[start : start + BATCH])
        yield desk.ask(FindGaps(pairs, rules), job.family.name, Urgency.SOON)
