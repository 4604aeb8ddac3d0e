"""One family: enumerate, propose, generalise, minimise and prove, smaller equations first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from xflow.generator.definitions import definitional_rules
from xflow.generator.enumerate import enumerate_terms
from xflow.generator.generalize import Generalizer, is_determined, plausible, split_rules
from xflow.generator.minimize import Reducer, is_linear, is_permutation, repeats_itself
from xflow.generator.propose import Proposal, propose
from xflow.generator.vocabulary import Family, Vocabulary
from xflow.generator.wording import rule_name
from xflow.rule import Rule, parse_rules
from xflow.verifier.prove import Proved, Refuted, prove
from xflow.verifier.rounding.measure import measure

Notice = Callable[[str], None]


@dataclass(frozen=True)
class Kept:
    """A proven rule and its certificate."""

    rule: Rule
    certificate: dict[str, object]


@dataclass
class Derivation:
    """What a family gave: the rules kept, in the order of acceptance, and how it went."""

    family: str
    kept: list[Kept] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    unknown: list[tuple[str, str]] = field(default_factory=list)
    """Text of plausible rules that were neither proved nor refuted, and the reason."""


def derive(
    family: Family, seed: int, max_ops: int, known: Sequence[Rule] = (), notice: Notice = print
) -> Derivation:
    """The rules of `family` that do not follow from smaller ones or from `known`."""
    start = time.monotonic()
    job = _Job(Derivation(family.name), seed, max_ops, notice)
    for rule in known:
        job.reducer.add(rule)
    if family.definitions:
        for rule in definitional_rules(seed):
            job.result.counts["proposed"] += 1
            job.try_rule(rule)
    for vocabulary in family.vocabularies:
        job.explore(vocabulary)
    job.leave_one_out()
    job.measure()
    job.result.counts["kept"] = len(job.result.kept)
    job.result.seconds = time.monotonic() - start
    return job.result


@dataclass
class _Job:
    result: Derivation
    seed: int
    max_ops: int
    notice: Notice
    reducer: Reducer = field(default_factory=Reducer)
    seen: set[tuple[str, str, str]] = field(default_factory=set)
    origins: dict[int, tuple[Proposal, Vocabulary]] = field(default_factory=dict)
    """By the identity of a kept rule; none for definitions and rules of several outputs."""

    def explore(self, vocabulary: Vocabulary) -> None:
        """Enumerate one vocabulary and keep what is new."""
        found = enumerate_terms(vocabulary, self.seed, self.max_ops)
        proposals = propose(found.candidates, vocabulary)
        counts = self.result.counts
        counts.update(graphs=found.graphs, classes=found.classes, proposed=len(proposals))
        generalizer = Generalizer(vocabulary, self.seed)
        for number, proposal in enumerate(proposals):
            if number % 20 == 0:
                rules = len(self.result.kept)
                self.notice(f"{vocabulary.name} {number}/{len(proposals)}, {rules} rules")
            if _is_idle(proposal):
                counts["idle"] += 1
            elif self.reducer.derives(proposal.source, proposal.target, vocabulary):
                counts["derived"] += 1
            else:
                for rule in generalizer.rules(proposal.skeleton, proposal.points):
                    kept = self.try_rule(rule)
                    if kept is not None:
                        self.origins[id(kept)] = (proposal, vocabulary)
                        break

    def try_rule(self, rule: Rule) -> Rule | None:
        """Prove a plausible rule and keep it, with those of several outputs that follow.

        None where it was not proved, or is there already.
        """
        (rule,) = parse_rules(str(replace(rule, any_rank=False)))
        identity = (rule.inputs, rule.lhs, rule.rhs)
        if identity in self.seen:
            return None
        self.seen.add(identity)
        verdict = prove(rule)
        if isinstance(verdict, Refuted):
            self.result.counts["refuted"] += 1
            return None
        if not isinstance(verdict, Proved):
            self.result.counts["unknown"] += 1
            self.result.unknown.append((str(rule), str(verdict)))
            return None
        self.result.counts["proved"] += 1
        rule = replace(
            rule,
            name=rule_name(rule),
            where=verdict.where,
            reverse=verdict.reverse,
            types=verdict.types,
            any_rank=verdict.any_rank,
        )
        if not is_determined(rule)[1]:
            rule = replace(rule, reverse=None)
        self.result.kept.append(Kept(rule, verdict.certificate))
        self.reducer.add(rule)
        for split in split_rules([rule]):
            if plausible(split, self.seed):
                self.try_rule(split)
        return rule

    def leave_one_out(self) -> None:
        """Drop what follows from rules that were accepted after it."""
        for item in list(self.result.kept):
            origin = self.origins.get(id(item.rule))
            if origin is None:
                continue
            proposal, vocabulary = origin
            self.reducer.remove(item.rule)
            if self.reducer.derives(proposal.source, proposal.target, vocabulary):
                self.result.kept.remove(item)
            else:
                self.reducer.add(item.rule)

    def measure(self) -> None:
        """Note of each rule what rounding does to it."""
        for number, item in enumerate(self.result.kept):
            notes = {**item.rule.notes, "numerics": str(measure(item.rule))}
            self.result.kept[number] = replace(item, rule=replace(item.rule, notes=notes))


def _is_idle(proposal: Proposal) -> bool:
    """Whether an equation saves nothing and is not plain either.

    An equation between sides that cost the same only helps search to get elsewhere; of these
    the ones are kept that read each input once, and do more than exchange inputs.
    """
    source, target = proposal.source, proposal.target
    if repeats_itself(source) or repeats_itself(target):
        return True
    return proposal.saves_nothing and not (
        is_linear(source) and is_linear(target) and not is_permutation(source, target)
    )
