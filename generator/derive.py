"""Derives the rules of one family: proposals are decided in a fixed order, smaller ones first.

A rule is kept if it is proved and does not follow from the rules kept before. Enumeration, proofs
and measurements are chunks that run elsewhere, also ahead of time; only redundancy and acceptance
are decided here, in that one order, so that the outcome does not depend on when a chunk is
finished. A proof that was made ahead of time and turns out not to be needed is ignored.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from xflow.generator.minimize import Reducer
from xflow.generator.runner.chunks import Explore, Explored, Judge, Judged, Measure, Settle, State
from xflow.generator.runner.codec import decode, digest
from xflow.generator.runner.desk import Desk, Steps, Ticket, complete, wait_for
from xflow.generator.runner.engine import InlineEngine, Urgency
from xflow.generator.saturation.directions import Database
from xflow.generator.saturation.gaps import is_gap
from xflow.generator.settle import Fate, Settled
from xflow.generator.vocabulary import Family
from xflow.rewriting.rule import BASE, Rule

AHEAD = 4
"""Proposals for each worker that are proved ahead of their turn."""


@dataclass(frozen=True)
class Kept:
    """A proven rule and its certificate."""

    rule: Rule
    certificate: dict[str, object]
    follows: tuple[str, ...] = ()
    """Statements of the rules from which it follows; none for a rule of the base."""


@dataclass(frozen=True)
class Dropped:
    """A proven rule that is not kept, and why."""

    item: Kept
    reason: str


@dataclass
class Derivation:
    """The result for one family: rules kept, in the order of acceptance, counts and costs."""

    family: str
    kept: list[Kept] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    """Processor time of its chunks, in whichever processes, and of the decisions."""
    deciding: float = 0.0
    """Of these, seconds spent deciding which proposals follow from rules, sequentially."""
    unknown: list[tuple[str, str]] = field(default_factory=list)
    """Text of plausible rules that were neither proved nor refuted, and the reason."""


def derive(
    family: Family,
    seed: int,
    max_ops: int,
    known: Sequence[Rule] = (),
    notice: Callable[[str], None] = print,
) -> Derivation:
    """The rules of `family` that do not follow from smaller ones or from `known`, found here."""
    desk = Desk(InlineEngine(), seed, max_ops)
    made: list[Derivation] = []
    job = FamilyJob(family, desk)
    job.prefetch(Urgency.NOW)
    complete(desk, {family.name: job.steps(known)}, lambda _, derivation: made.append(derivation))
    notice(f"{family.name}: {len(made[0].kept)} rules")
    complete(desk, {family.name: measure(made[0], desk)}, lambda name, _: None)
    add_costs(made, desk)
    return made[0]


@dataclass
class _Candidate:
    """A proposal that waits for its turn."""

    judge: Judge
    ticket: Ticket[Judged] | None = None
    state: str = ""
    """The digest of the accepted rules (`FamilyJob._state`) for which `derived` was computed."""
    derived: bool = False


class FamilyJob:
    """Derives the rules of one family step by step, while its chunks run elsewhere."""

    def __init__(self, family: Family, desk: Desk) -> None:
        self.family = family
        self.result = Derivation(family.name)
        self._stated_left = 0
        self._desk = desk
        self._reducer = Reducer()
        self._state = ""
        """A digest of the rules added to the reducer and removed from it, in order."""
        self._seen: set[tuple[str, str, str]] = set()
        self._origins: dict[int, Judge] = {}
        """The proposal of each kept rule, by `id`; none for those stated and for split rules."""
        self._explores: deque[Ticket[Explored]] = deque()
        self._line: deque[_Candidate] = deque()
        self.idle: list[Judge] = []
        """Proposals that no search needs, though a derivation may, see `fill`."""
        self._looked: int = 0
        """How many proposals, from the head of the line, were examined ahead of their turn."""

    @property
    def left(self) -> int:
        """Proposals whose turn has not come, of the vocabularies explored so far."""
        ready = (len(ticket.result.proposals) for ticket in self._explores if ticket.ready)
        return self._stated_left + len(self._line) + sum(ready)

    @property
    def unexplored(self) -> int:
        """Vocabularies of which the proposals are not known."""
        return sum(not ticket.ready for ticket in self._explores)

    def prefetch(self, urgency: Urgency) -> None:
        """Request the chunks that do not depend on other families."""
        desk, name = self._desk, self.family.name
        if self.family.states:
            desk.ask(State(self.family.states, desk.seed), name, urgency)
        self._explores.extend(
            desk.ask(Explore(vocabulary, desk.seed, desk.max_ops), name, urgency)
            for vocabulary in self.family.vocabularies
        )

    def steps(self, known: Iterable[Rule] = ()) -> Steps[Derivation]:
        """All work but the measurements of the kept rules, which are requested already.

        `prefetch` must have been called.
        """
        for rule in known:
            self._add(rule)
        if self.family.states:
            yield from self._take_stated()
        while self._explores or self._line:
            if self._line:
                yield from self._take_next()
            else:
                self._desk.ask(self._explores[0].chunk, self.family.name, Urgency.SOON)
                yield from wait_for(self._explores[0])
                self._line_up()
        yield from self._leave_one_out()
        self.result.counts["kept"] = len(self.result.kept)
        return self.result

    def _take_stated(self) -> Steps[None]:
        desk, name = self._desk, self.family.name
        chunk = State(self.family.states, desk.seed)
        texts = yield from wait_for(desk.ask(chunk, name, Urgency.NOW))
        tickets = [desk.ask(Settle(text, desk.seed), name, Urgency.DEFINE) for text in texts]
        self._stated_left = len(tickets)
        for ticket in tickets:
            settled = yield from wait_for(ticket)
            desk.forget(ticket)
            self._stated_left -= 1
            self.result.counts["proposed"] += 1
            self._accept(settled)
            yield True

    def _line_up(self) -> None:
        """Put the proposals of the next vocabulary into the line."""
        ticket = self._explores.popleft()
        found = ticket.result
        self._desk.forget(ticket)
        self.result.counts.update(found.counts)
        chunk = ticket.chunk
        assert isinstance(chunk, Explore)
        for code in found.proposals:
            self._line.append(_Candidate(Judge(chunk.vocabulary, code, self._desk.seed)))
        self.idle += [Judge(chunk.vocabulary, code, self._desk.seed) for code in found.idle]

    def _take_next(self) -> Steps[None]:
        """Decide on the proposal at the head of the line."""
        self._look_ahead()  # so that no worker waits while one after the other is derived
        head = self._line[0]
        if self._is_derived(head):
            self.result.counts["derived"] += 1
            self._leave_line()
            yield True
            return
        if head.ticket is None or not head.ticket.ready:
            head.ticket = self._desk.ask(head.judge, self.family.name, Urgency.NOW)
        while not head.ticket.ready:
            yield self._look_ahead()
        yield from self._commit(head.judge, head.ticket.result)
        self._leave_line()
        yield True

    def _leave_line(self) -> None:
        head = self._line.popleft()
        if head.ticket is not None:
            self._desk.forget(head.ticket)
        self._looked = max(0, self._looked - 1)

    def _look_ahead(self) -> bool:
        """Request the proof of a later proposal that does not follow from the rules known now.

        False where nothing was done: the workers are busy, or far enough ahead.
        """
        engine = self._desk.engine
        if not engine.hungry:
            return False
        self._looked = max(self._looked, 1)
        waiting = sum(
            candidate.ticket is not None
            for candidate, _ in zip(self._line, range(self._looked), strict=False)
        )
        if waiting > AHEAD * engine.usage.workers:
            return False
        if self._looked >= len(self._line):
            if not self._explores or not self._explores[0].ready:
                return False
            self._line_up()
            return True
        candidate = self._line[self._looked]
        self._looked += 1
        if not self._is_derived(candidate):
            candidate.ticket = self._desk.ask(candidate.judge, self.family.name, Urgency.SOON)
        return True

    def _is_derived(self, candidate: _Candidate) -> bool:
        if candidate.state != self._state:
            candidate.state = self._state
            candidate.derived = self._follows(candidate.judge)
        return candidate.derived

    def _follows(self, judge: Judge) -> bool:
        """Whether the rules known now derive a proposal."""

        def answer() -> bool:
            start = time.process_time()
            source, target = decode(judge.proposal.pair)
            found = self._reducer.derives(source, target, judge.vocabulary)
            self.result.deciding += time.process_time() - start
            return found

        return self._desk.decide(digest(self._state, judge.key), answer)

    def _commit(self, judge: Judge, judged: Judged) -> Steps[None]:
        """Keep the most general rule of a proposal that is proved and new."""
        if not judged.settled:
            self.result.counts["implausible"] += 1
        for settled in judged.settled:
            kept = self._accept(settled)
            if kept is not None:
                self._origins[id(kept)] = judge
                return
        for text in judged.further:  # the proved one had been accepted before
            chunk = Settle(text, self._desk.seed)
            ticket = self._desk.ask(chunk, self.family.name, Urgency.NOW)
            kept = self._accept((yield from wait_for(ticket)))
            if kept is not None:
                self._origins[id(kept)] = judge
                return

    def _accept(self, settled: Settled) -> Rule | None:
        """Keep a proven rule, with those of several outputs that follow.

        None where it was not proved, or had been accepted before.
        """
        if settled.identity in self._seen:
            return None
        self._seen.add(settled.identity)
        self.result.counts[settled.fate.value] += 1
        rule = settled.rule
        if settled.fate is Fate.UNKNOWN:
            self.result.unknown.append((str(rule), settled.reason))
        if settled.fate is not Fate.PROVED:
            return None
        self.result.kept.append(Kept(rule, settled.certificate))
        self._add(rule)
        self._desk.ask(Measure(str(rule)), self.family.name, Urgency.LAST)
        for split in settled.splits:
            self._accept(split)
        return rule

    def _leave_one_out(self) -> Steps[None]:
        """Drop the rules that follow from rules accepted later."""
        for item in list(self.result.kept):
            judge = self._origins.get(id(item.rule))
            # A proposal is of one output: that it follows says nothing of the others.
            if judge is None or len(item.rule.instance(item.rule.ranks[0]).lhs) > 1:
                continue
            self._reducer.remove(item.rule)
            self._state = digest(self._state, "without", item.rule.statement)
            if self._follows(judge):
                self.result.kept.remove(item)
                self.result.dropped.append(Dropped(item, "follows from rules kept after it"))
            else:
                self._add(item.rule)
            yield True

    def fill(self, gaps: Sequence[Judge], known: Database) -> Steps[list[Rule]]:
        """Prove the gaps that `known` and the gaps proved before do not derive.

        Returns the rules proved; they belong to the base and are not searched.
        """
        added: list[Rule] = []
        tickets = [self._desk.ask(judge, self.family.name, Urgency.SOON) for judge in gaps]
        for judge, ticket in zip(gaps, tickets, strict=True):
            judged = yield from wait_for(ticket)
            self._desk.forget(ticket)
            if self._is_unexplained(judge, known):
                before = len(self.result.kept)
                for settled in judged.settled:
                    self._accept(settled)
                new = self.result.kept[before:]
                added += [item.rule for item in new]
                known = known.joined(Database.of(item.rule for item in new))
                self.result.kept[before:] = [
                    replace(item, rule=replace(item.rule, notes={"set": BASE})) for item in new
                ]
            yield True
        self.result.counts["gaps"] = len(added)
        self.result.counts["kept"] = len(self.result.kept)
        return added

    def _is_unexplained(self, judge: Judge, rules: Database) -> bool:
        """Whether `rules` do not derive a proposal, see `is_gap`."""
        start = time.process_time()
        source, target = decode(judge.proposal.pair)
        found = is_gap(source, target, rules)
        self.result.deciding += time.process_time() - start
        return found

    def _add(self, rule: Rule) -> None:
        self._reducer.add(rule)
        self._state = digest(self._state, "with", rule.statement)


def measure(derivation: Derivation, desk: Desk) -> Steps[Derivation]:
    """Add its measured `numerics` to each rule that was kept."""
    for number, item in enumerate(derivation.kept):
        chunk = Measure(str(replace(item.rule, notes={})))
        numerics = yield from wait_for(desk.ask(chunk, derivation.family, Urgency.NOW))
        notes = {**item.rule.notes, "numerics": numerics}
        derivation.kept[number] = replace(item, rule=replace(item.rule, notes=notes))
    return derivation


def add_costs(derivations: Iterable[Derivation], desk: Desk) -> None:
    """Fill in the families' processor seconds, once all their chunks are finished."""
    for derivation in derivations:
        chunks = (
            tally.seconds for (name, _), tally in desk.tallies.items() if name == derivation.family
        )
        derivation.seconds = derivation.deciding + sum(chunks)
