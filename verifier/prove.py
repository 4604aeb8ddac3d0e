"""The prover: shows that a rule is true at every size, its right side defined where the left is.

Verdicts are values. As in Alive2 it is refinement: what the left side requires is assumed, what
the right side requires must be shown; what cannot be shown becomes a condition, if conditions
may be inferred, and the proof is repeated under it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from xflow.core.graph import walk
from xflow.core.sorts import REAL, REALS_ONLY
from xflow.core.spec import fresh_names
from xflow.core.value_conditions import NONZERO, SIGNS, fact_of, is_need
from xflow.rewriting.declarations import parse_sorts
from xflow.rewriting.instance import Instance, leaves_of
from xflow.rewriting.rule import BITS, Rule
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.certificate import statement
from xflow.verifier.conditions import (
    is_readable,
    lift,
    sampled_conditions,
    sign_conditions,
    simplest,
)
from xflow.verifier.preconditions import left_conditions
from xflow.verifier.proof.defined import is_partial_node
from xflow.verifier.proof.exact import weakest
from xflow.verifier.proof.exact_sums import wanting, without_roundings
from xflow.verifier.proof.instance import Attempt, InstanceProof
from xflow.verifier.proof.ranks import holds_at_any_rank
from xflow.verifier.proof.types import computes_with_integers, types_of
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.planted import search_planted
from xflow.verifier.refutation.refute import CASES, Survived, search_counterexample

MAX_CONDITIONS = 8
MIN_CASES = 4
PLANTED_CASES = 12
"""How often a proof is tried at each rank on inputs with elements that are no numbers."""


@dataclass(frozen=True)
class Proved:
    """Equal for all sizes that satisfy `where`.

    `reverse` holds the conditions under which it may also be used from right to left, None if
    that was not shown (or not asked). `types` are the element types for which it holds.
    """

    certificate: dict[str, object]
    where: tuple[str, ...] = ()
    reverse: tuple[str, ...] | None = None
    types: str = REALS_ONLY
    any_rank: bool = False
    """Whether it holds at all higher ranks than those listed, too."""
    exact: str | None = None
    """Whether the sides agree to the last bit, see `xflow.rewriting.rule`."""
    limits: tuple[str, ...] = ()
    """The inputs of which elements may be -inf; none are named where the sides agree anyway."""


@dataclass(frozen=True)
class Refuted:
    """There are sizes and inputs at which the sides differ."""

    counterexample: Counterexample

    def __str__(self) -> str:
        return f"refuted: {self.counterexample}"


@dataclass(frozen=True)
class Unknown:
    """Neither proved nor refuted."""

    reason: str

    def __str__(self) -> str:
        return f"not shown: {self.reason}"


Verdict: TypeAlias = Proved | Refuted | Unknown


def prove(
    rule: Rule,
    *,
    infer: bool = True,
    both_ways: bool = True,
    weaken: bool = False,
    survived: Survived | None = None,
) -> Verdict:
    """Prove `rule` at each of its ranks; with `infer`, find conditions that it lacks.

    These are what the right side requires and signs of symbols, and from right to left that new
    divisors are not 0. With `weaken` they may also be conditions on values of constants and those
    without which samples refute the rule.

    Every proof is cross-checked by evaluation at random small sizes, on numbers and on inputs of
    which some elements are none; where the rule, as it stands, `survived` `CASES` of the former, it
    is not asked again. A crash of the solver, an exhausted limit and an unforeseen failure, of
    whatever kind, are `Unknown`: never a proof.
    """
    try:
        return _verdict(rule, infer, both_ways, weaken, survived)
    except Exception as error:
        return Unknown(f"{type(error).__name__}: {error}")


def _verdict(
    rule: Rule, infer: bool, both_ways: bool, weaken: bool, survived: Survived | None
) -> Verdict:
    if not rule.ranks:
        return Unknown("vacuous: the rule has no ranks")
    # What is proved as it stands or not at all is sampled first.
    sampled = survived or (None if infer or weaken else _sampled(rule))
    if isinstance(sampled, Refuted):
        return sampled
    found: Proved | Unknown = _found(rule, infer, weaken=False, thorough=False)
    if isinstance(found, Unknown):
        # Samples refute most false rules in less time than a thorough search for a proof takes.
        counterexample = search_counterexample(rule)
        refuted = Refuted(counterexample) if isinstance(counterexample, Counterexample) else None
        if refuted and not weaken:
            return refuted
        found = _found(rule, infer, weaken, thorough=True)
        if isinstance(found, Unknown):
            return refuted or found
    if computes_with_integers(replace(rule, where=found.where)):
        return Unknown("it is shown for real numbers, and its inputs of integers wrap around")
    if sampled is None or found.where != rule.where:
        sampled = _sampled(replace(rule, where=found.where))
        if isinstance(sampled, Refuted):
            return sampled
    if sampled.cases < MIN_CASES * len(rule.ranks):
        return Unknown("vacuous: hardly any sizes satisfy the conditions")
    claimed = replace(rule, where=found.where, exact=found.exact, limits=found.limits)
    planted = search_planted(claimed, cases=PLANTED_CASES)
    if isinstance(planted, Counterexample):
        return Refuted(planted)
    reverse = None
    if both_ways:
        # Only definedness differs, but it is simplest to prove the other direction as a rule.
        where = _without_needs(replace(rule, where=found.where)) + _needs_among(rule)
        backwards = replace(rule, lhs=rule.rhs, rhs=rule.lhs, where=where, reverse=None)
        verdict = prove(backwards, infer=infer, both_ways=False, weaken=weaken)
        if infer and not isinstance(verdict, Proved):
            verdict = _but_for_zeros(backwards) or verdict
        if isinstance(verdict, Proved):
            reverse = verdict.where
            found.certificate["reverse"] = verdict.certificate
            found = _of_both(rule, found, verdict)
    found = replace(found, reverse=reverse, types=types_of(replace(rule, where=found.where)))
    if rule.any_rank or rule.names.vectors:
        found = replace(found, any_rank=_at_any_rank(rule, found))
    if rule.any_rank and not found.any_rank:
        return Unknown("it is shown at the listed ranks alone, not at all higher ones")
    return found


def _sampled(rule: Rule) -> Survived | Refuted:
    """What evaluation at random small sizes says of a rule."""
    found = search_counterexample(rule, cases=CASES)
    return Refuted(found) if isinstance(found, Counterexample) else found


def _but_for_zeros(rule: Rule) -> Proved | None:
    """A proof of `rule`, which was shown from right to left, where its new divisors are not 0.

    Under other conditions on values a rule might be an accidental equality; this one holds wherever
    its right side is defined. None where no search could use it: the left side is an input, or does
    not have all inputs of the right one.
    """
    instance = rule.instance(rule.ranks[0])
    known = leaves_of(instance.lhs)
    if not known.isdisjoint(instance.lhs) or not leaves_of(instance.rhs) <= known:
        return None
    left, right = (sum(map(is_partial_node, walk(side))) for side in (instance.lhs, instance.rhs))
    if right <= left:
        return None
    verdict = prove(rule, both_ways=False, weaken=True)
    if not isinstance(verdict, Proved):
        return None
    further = {fact_of(text, rule.value_names) for text in set(verdict.where) - set(rule.where)}
    suits = all(fact is not None and fact.relation == NONZERO for fact in further)
    return verdict if suits else None


def _of_both(rule: Rule, found: Proved, backwards: Proved) -> Proved:
    """`found` with how the sides agree in both directions, of which one line speaks."""
    exact = weakest((found.exact, backwards.exact))
    limits: tuple[str, ...] = ()
    if exact != BITS:
        kept = [set(v.limits) if v.exact != BITS else None for v in (found, backwards)]
        limits = tuple(
            name
            for name, sort in parse_sorts(rule.inputs).items()
            if sort == REAL and all(names is None or name in names for names in kept)
        )
    claimed = statement(replace(rule, where=found.where, exact=exact, limits=limits))
    parts = {key: found.certificate[key] for key in ("ranks", "reverse")}
    certificate = {"rule": rule.name, **claimed, **parts}
    return replace(found, exact=exact, limits=limits, certificate=certificate)


def _at_any_rank(rule: Rule, found: Proved) -> bool:
    proved = replace(rule, where=found.where, reverse=found.reverse)
    return all(map(holds_at_any_rank, proved.directions()))


def _found(rule: Rule, infer: bool, weaken: bool, thorough: bool) -> Proved | Unknown:
    """A proof of `rule`, or of it under further conditions."""
    search = _Search(infer, weaken, thorough)
    try:
        found, where = search.conditions(rule)
        if isinstance(found, Proved) or not weaken:
            return found
        rule = replace(rule, where=where)
        sampled = sampled_conditions(rule)
        if not sampled:
            return found
        under, _ = search.conditions(replace(rule, where=(*where, *sampled)))
        if isinstance(under, Unknown):
            return found
        weakest = search.weakest(
            replace(rule, where=tuple(t for t in under.where if t not in sampled)), sampled
        )
        if weakest is None:
            return under
        again, _ = search.conditions(replace(rule, where=weakest))
        return again if isinstance(again, Proved) else under
    except Exception as error:  # there may be a counterexample all the same
        return Unknown(f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class _Search:
    """A search for a proof, and for conditions under which there is one.

    `thorough` asks for all ways to read the sides, not only for those that are cheap.
    """

    infer: bool
    weaken: bool
    thorough: bool

    def conditions(self, rule: Rule) -> tuple[Proved | Unknown, tuple[str, ...]]:
        """The outcome, and the conditions under which it was reached."""
        given = rule.where
        rule, attempt = self.with_needs(rule)
        while self.infer and attempt.failure is not None:
            if len(_without_needs(rule)) >= MAX_CONDITIONS:
                break
            wanted = [c for c in map(simplest, attempt.missing) if is_readable(c)]
            if len(wanted) < len(attempt.missing):
                break
            extra = [*lift(wanted, rule), *(attempt.facts if self.weaken else ())]
            extra = [text for text in extra if text not in rule.where]
            if not extra:
                break
            rule, attempt = self.with_needs(replace(rule, where=(*rule.where, *extra)))
        for low in (0, 1) if self.infer and not attempt.missing else ():
            if attempt.failure is None or (low == 1 and not self.weaken):
                break
            signs = tuple(text for text in sign_conditions(rule, low) if text not in rule.where)
            where = self.weakest(
                replace(rule, ranks=(min(filter(None, rule.ranks), default=0),)), signs
            )
            if where is not None:
                rule = replace(rule, where=where)
                attempt = self.prove_all(rule)
        if attempt.failure is not None:
            return Unknown(attempt.failure), rule.where
        needed = _needs_among(rule)
        shorter = _without_redundant(rule, given)
        if shorter != rule.where:
            again = self.prove_all(replace(rule, where=shorter))
            if again.failure is None:
                rule, attempt = replace(rule, where=shorter), again
        if set(_without_needs(rule)) - set(given):
            # What was needed before those conditions were known may not be needed any more.
            anew, again = self.with_needs(
                replace(rule, where=tuple(t for t in rule.where if t in given or t not in needed))
            )
            if again.failure is None:
                rule, attempt = anew, again
        limits = tuple(
            name
            for name, sort in parse_sorts(rule.inputs).items()
            if sort == REAL and name not in attempt.jumps and attempt.exact != BITS
        )
        claimed = replace(rule, exact=attempt.exact, limits=limits)
        certificate = {"rule": rule.name, **statement(claimed), "ranks": attempt.certificate}
        proved = Proved(certificate, rule.where, exact=attempt.exact, limits=limits)
        return proved, rule.where

    def with_needs(self, rule: Rule) -> tuple[Rule, Attempt]:
        """The rule with what its proof needs of its inputs, if that is inferred, and the proof."""
        attempt = self.prove_all(rule)
        while self.infer and attempt.failure is not None and attempt.needs:
            rule = replace(rule, where=_with_needs(rule, attempt.needs))
            attempt = self.prove_all(rule)
        return rule, attempt

    def weakest(self, rule: Rule, conditions: tuple[str, ...]) -> tuple[str, ...] | None:
        """The `where` with those of `conditions` that a proof needs; None where there is none."""
        where = (*rule.where, *conditions)
        if not conditions or self.prove_all(replace(rule, where=where)).failure is not None:
            return None
        for text in conditions:
            weaker = tuple(t for t in where if t != text)
            if self.prove_all(replace(rule, where=weaker)).failure is None:
                where = weaker
        return where

    def prove_all(self, rule: Rule) -> Attempt:
        """The proof of a rule as it stands, at each of its ranks."""
        total = Attempt(None)
        for instance in rule.instances():
            with fresh_names():
                attempt = InstanceProof(without_roundings(instance), self.thorough).attempt()
            if attempt.failure is not None:
                return replace(attempt, facts=(*attempt.facts, *wanting(instance)))
            total.exact = weakest((total.exact, attempt.exact))
            total.jumps |= attempt.jumps
            total.certificate += attempt.certificate
        return total


def _needs_among(rule: Rule) -> tuple[str, ...]:
    """The conditions of a rule that ask for numbers alone, which belong to one direction."""
    return tuple(text for text in rule.where if is_need(text, rule.value_names))


def _without_needs(rule: Rule) -> tuple[str, ...]:
    """The other conditions of a rule."""
    return tuple(text for text in rule.where if not is_need(text, rule.value_names))


def _with_needs(rule: Rule, needs: Sequence[str]) -> tuple[str, ...]:
    """The conditions of a rule and `needs`, less those that others of them imply."""
    texts = tuple(dict.fromkeys((*rule.where, *needs)))
    facts = {text: fact_of(text, rule.value_names) for text in texts}
    kept = []
    for text, fact in facts.items():
        others = [f for t, f in facts.items() if t != text and f is not None]
        if fact is None or fact.relation in SIGNS or not any(f.implies(fact) for f in others):
            kept.append(text)
    return tuple(kept)


def _without_redundant(rule: Rule, given: tuple[str, ...]) -> tuple[str, ...]:
    """The `where` of `rule` without inferred conditions that the others imply."""
    where = rule.where
    for text in rule.where:
        if text in given or fact_of(text, rule.value_names) is not None:
            continue
        rest = tuple(t for t in where if t != text)
        lean, full = replace(rule, where=rest), replace(rule, where=where)
        if all(_implies(lean.instance(r), full.instance(r)) for r in rule.ranks):
            where = rest
    return where


def _implies(lean: Instance, full: Instance) -> bool:
    with Arithmetic() as arithmetic, arithmetic.assuming(left_conditions(lean)):
        return all(arithmetic.implied(condition) for condition in full.where)
