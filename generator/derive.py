"""One family: enumerate, propose, generalise, minimise and prove, smaller equations first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from xflow.verifier.prove import Proved, Refuted, prove

from xflow.generator.definitions import definitional_rules
from xflow.generator.enumerate import enumerate_terms
from xflow.generator.generalize import Generalizer, is_determined, plausible, split_rules
from xflow.generator.minimize import Reducer, is_linear, is_permutation
from xflow.generator.propose import propose
from xflow.generator.vocabulary import Family, Vocabulary
from xflow.generator.wording import rule_name
from xflow.rule import Rule, parse_rules

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
    result = Derivation(family.name)
    reducer = Reducer()
    for rule in known:
        reducer.add(rule)
    seen: set[tuple[str, str, str]] = set()
    if family.definitions:
        for rule in definitional_rules(seed):
            result.counts["proposed"] += 1
            try_rule(rule, seed, result, reducer, seen)
    for vocabulary in family.vocabularies:
        _derive(vocabulary, seed, max_ops, result, reducer, seen, notice)
    result.counts["kept"] = len(result.kept)
    result.seconds = time.monotonic() - start
    return result


def _derive(
    vocabulary: Vocabulary,
    seed: int,
    max_ops: int,
    result: Derivation,
    reducer: Reducer,
    seen: set[tuple[str, str, str]],
    notice: Notice,
) -> None:
    found = enumerate_terms(vocabulary, seed, max_ops)
    proposals = propose(found.candidates, vocabulary)
    result.counts.update(graphs=found.graphs, classes=found.classes, proposed=len(proposals))
    generalizer = Generalizer(vocabulary, seed)
    for number, proposal in enumerate(proposals):
        if number % 20 == 0:
            notice(f"{vocabulary.name} {number}/{len(proposals)}, {len(result.kept)} rules")
        # An equation that saves nothing only helps search to get elsewhere: keep the plain ones.
        source, target = proposal.source, proposal.target
        if proposal.saves_nothing and (
            not (is_linear(source) and is_linear(target)) or is_permutation(source, target)
        ):
            result.counts["idle"] += 1
            continue
        if reducer.reduces(proposal.source, vocabulary):
            result.counts["derived"] += 1
            continue
        for rule in generalizer.rules(proposal.skeleton, proposal.points):
            if try_rule(rule, seed, result, reducer, seen):
                break


def try_rule(
    rule: Rule,
    seed: int,
    result: Derivation,
    reducer: Reducer,
    seen: set[tuple[str, str, str]],
) -> bool:
    """Prove a plausible rule and keep it, with those of several outputs that follow."""
    (rule,) = parse_rules(str(rule))
    identity = (rule.inputs, rule.lhs, rule.rhs)
    if identity in seen:
        return True
    seen.add(identity)
    verdict = prove(rule)
    if isinstance(verdict, Refuted):
        result.counts["refuted"] += 1
        return False
    if not isinstance(verdict, Proved):
        result.counts["unknown"] += 1
        result.unknown.append((str(rule), str(verdict)))
        return False
    result.counts["proved"] += 1
    rule = replace(rule, name=rule_name(rule), where=verdict.where, reverse=verdict.reverse)
    if not is_determined(rule)[1]:
        rule = replace(rule, reverse=None)
    result.kept.append(Kept(rule, verdict.certificate))
    reducer.add(rule)
    for split in split_rules([rule]):
        if plausible(split, seed):
            try_rule(split, seed, result, reducer, seen)
    return True
