"""Derives rules from forms of regions, one after the other; enumeration and proofs run elsewhere.

What follows from the known rules, or from those learned before, is not stated again. As in
`derive`, only that is decided here, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TypeVar

from xflow.core.deadline import NEVER, Deadline
from xflow.core.errors import WorkerError
from xflow.core.graph import walk
from xflow.core.node import Value
from xflow.generator.derive import Derivation, Kept
from xflow.generator.generalization.skeleton import take_apart
from xflow.generator.learning.equals import Equal
from xflow.generator.learning.forms import Form, Lesson
from xflow.generator.learning.numbers import operators_of
from xflow.generator.learning.surroundings import FREE, Relations
from xflow.generator.runner.chunks import Equated, Judge, Judged, Measure, ProposalCode
from xflow.generator.runner.codec import decode, encode
from xflow.generator.runner.desk import Desk, Steps, Ticket, wait_for
from xflow.generator.runner.engine import Urgency
from xflow.generator.saturation.derivation import Derived, derive_claim
from xflow.generator.saturation.directions import Database
from xflow.generator.saturation.gaps import is_gap
from xflow.generator.settle import Fate, Settled
from xflow.generator.vocabulary import Vocabulary
from xflow.rewriting.rule import LEARNED, Rule
from xflow.verifier.proof.defined import is_partial_node

Result = TypeVar("Result")

NAME = LEARNED
AHEAD = 16
"""Regions around which terms are enumerated before their turn."""


class LearnJob:
    """Derives the rules that some lessons teach."""

    def __init__(self, known: Sequence[Rule], desk: Desk, deadline: Deadline = NEVER) -> None:
        self.result = Derivation(NAME)
        self.done = self.total = 0
        """Lessons of the present pass that are through, and how many it has."""
        self.left = 0
        """Lessons for which there was no time."""
        self.failures: list[str] = []
        """Why chunks of work failed, in words."""
        self.desk = desk
        self.deadline = deadline
        self._relations = Relations.of(known)
        self._database = Database.of(known)
        self._seen = {(rule.inputs, rule.lhs, rule.rhs) for rule in known}
        self._met: set[str] = set()
        """Keys of the forms that were learned from."""
        self._asked: dict[str, Ticket[Equated]] = {}
        """Enumerations that were begun ahead of their turn, by the keys of their forms."""

    def steps(self, lessons: Iterable[Lesson]) -> Steps[Derivation]:
        """Learn from all of them, as long as there is time."""
        waiting = [lesson for lesson in lessons if lesson.first.key not in self._met]
        self.left, self.total = 0, len(waiting)
        later = iter(waiting)
        for self.done, lesson in enumerate(waiting):
            if self.deadline.passed:
                self.left = len(waiting) - self.done
                break
            for ahead in islice(later, AHEAD if self.done == 0 else 1):
                self._asked[ahead.first.key] = self._ask(ahead.first)
            yield from self._learn(lesson)
            yield True
        self.result.counts["kept"] = len(self.result.kept)
        return self.result

    @property
    def standing(self) -> Mapping[str, object]:
        """How far the present pass is, and what was learned."""
        return {"region": self.done, "of": self.total, "rules": len(self.result.kept)}

    def named(self) -> list[Rule]:
        """The rules that were learned, each under a name that no other rule has."""
        rules = (item.rule for item in self.result.kept)
        return [replace(rule, name=f"{NAME}-{number}") for number, rule in enumerate(rules)]

    def _ask(self, form: Form) -> Ticket[Equated]:
        relatives = self._relations.relatives(operators_of((form.root,)))
        return self.desk.ask(Equal(form.code(), relatives, self.desk.seed), NAME, Urgency.SOON)

    def _learn(self, lesson: Lesson) -> Steps[None]:
        counts = self.result.counts
        counts["regions"] += 1
        for form in chain([lesson.first], lesson.others):
            if form.key in self._met:
                return
            self._met.add(form.key)
            ticket = self._asked.pop(form.key, None) or self._ask(form)
            ticket = self.desk.ask(ticket.chunk, NAME, Urgency.NOW)
            found = yield from self._result(ticket)
            if found is None:
                continue
            terms = [decode(code)[0] for code in found.terms]
            stated = yield from self._state(form, terms)
            if stated:
                return

    def _result(self, ticket: Ticket[Result]) -> Steps[Result | None]:
        """What a chunk gives; None where it fails: others are learned from all the same."""
        try:
            return (yield from wait_for(ticket))
        except WorkerError as error:
            self.result.counts["failed"] += 1
            self.failures.append(str(error))
            return None
        finally:
            self.desk.forget(ticket)

    def _state(self, form: Form, terms: Sequence[Value]) -> Steps[bool]:
        """Prove what the rules do not explain; whether all of it holds as generally as this."""
        counts = self.result.counts
        tickets: list[tuple[Value, Ticket[Judged]]] = []
        for term in terms:
            counts["proposed"] += 1
            if self._is_open(form.root, term):
                judge = self._judge(form, term)
                tickets.append((term, self.desk.ask(judge, NAME, Urgency.NOW)))
            else:
                counts["derived"] += 1
        every = True
        for term, ticket in tickets:
            judged = yield from self._result(ticket)
            if judged is None:
                every = False
                continue
            if not self._is_open(form.root, term):
                counts["derived"] += 1
                continue
            every &= self._accept(judged)
        return every

    def _is_open(self, source: Value, target: Value) -> bool:
        """Whether the rules do not show that two terms are equal, at the sizes of a form.

        Where a term is not defined for all inputs, a derivation may pass through others that are
        defined for fewer: that is decided about the rule, once it is proved.
        """
        if any(map(is_partial_node, walk([source, target]))):
            return True
        return is_gap(source, target, self._database, full_is_gap=True)

    def _judge(self, form: Form, term: Value) -> Judge:
        vocabulary = Vocabulary(
            NAME,
            form.inputs(),
            (),
            (),
            free=FREE,
            ranks=form.ranks,
            reals=form.reals,
            by_example=True,
            alike=True,
        )
        _, point = take_apart(form.root, term, vocabulary)
        proposal = ProposalCode(encode((form.root, term)), (point,))
        return Judge(vocabulary, proposal, self.desk.seed)

    def _accept(self, judged: Judged) -> bool:
        """Keep the rule that is proved unless others imply it; False where none is proved."""
        counts = self.result.counts
        if not judged.settled:
            counts["implausible"] += 1
        for each in judged.settled:
            counts[each.fate.value] += 1
            if each.fate is Fate.UNKNOWN:
                self.result.unknown.append((str(each.rule), each.reason))
            if each.fate is Fate.PROVED:
                if isinstance(derive_claim(each.rule, self._database, infer=False), Derived):
                    counts["derived"] += 1
                else:
                    self._keep(each)
                return True
        return False

    def _keep(self, settled: Settled) -> None:
        if settled.identity in self._seen or settled.fate is not Fate.PROVED:
            return
        self._seen.add(settled.identity)
        rule = replace(settled.rule, notes={"origin": NAME})
        self.result.kept.append(Kept(rule, settled.certificate))
        self._database = self._database.joined(Database.of(self.named()[-1:]))
        self.desk.ask(Measure(str(settled.rule)), NAME, Urgency.LAST)
        for split in settled.splits:
            self._keep(split)
