"""The verdict on one plausible rule: proved, refuted or unknown, with the rules that follow.

It is a function of the rule's text and the seed alone, whatever rules are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from xflow.core.value_conditions import NONNEGATIVE, NONZERO, POSITIVE, SIGNS, Fact, fact_of
from xflow.generator.generalization.generalize import plausible, reads_all
from xflow.generator.generalization.outputs import output_rules
from xflow.generator.generalization.splits import split_rules
from xflow.generator.generalization.wording import stem_of
from xflow.rewriting.rule import BITS, Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Proved, Refuted, Unknown, prove

NOT_EMPTY = re.compile(r"\w+ >= 1")
"""A condition that a size is at least 1."""


class Fate(Enum):
    """The prover's verdict; the values are the names of its counters."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Settled:
    """A rule and its verdict; where it was proved, with the conditions under which it holds."""

    rule: Rule
    fate: Fate
    reason: str = ""
    """Why it was not proved."""
    certificate: dict[str, object] = field(default_factory=dict)
    splits: tuple[Settled, ...] = ()
    """Rules of several outputs that follow from it."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Equal for rules that state the same, whatever their names."""
        return (self.rule.inputs, self.rule.lhs, self.rule.rhs)


def settle(rule: Rule, seed: int) -> Settled:
    """Prove `rule`, and what follows from it; of the signs that it asks for, without or weaker.

    Where a rule of all outputs says more, that is what is proved, and it is the rule of the
    verdict: from it `rule` follows, which is asked only if it cannot be shown.
    """
    (rule,) = parse_rules(str(replace(rule, any_rank=False)))
    for weaker in _of_weaker_signs(rule):
        settled = _settle_as_stated(weaker, seed)
        if settled.fate is Fate.PROVED:
            return settled
    return _settle_as_stated(rule, seed)


def _settle_as_stated(rule: Rule, seed: int) -> Settled:
    for whole in output_rules(rule):
        settled = settle(whole, seed) if plausible(whole, seed) else None
        if settled and settled.fate is Fate.PROVED:
            return settled
    verdict = prove(rule)
    if isinstance(verdict, Unknown) or (
        isinstance(verdict, Refuted) and verdict.counterexample.is_of_nothing
    ):
        verdict = _of_something(rule) or verdict
    if isinstance(verdict, Refuted):
        return Settled(rule, Fate.REFUTED, str(verdict))
    if not isinstance(verdict, Proved):
        return Settled(rule, Fate.UNKNOWN, str(verdict))
    rule = replace(
        rule,
        name=stem_of(rule.lhs, rule.rhs),
        where=verdict.where,
        reverse=verdict.reverse,
        types=verdict.types,
        any_rank=verdict.any_rank,
        exact=verdict.exact,
        limits=verdict.limits,
    )
    if not reads_all(rule):
        rule = replace(rule, reverse=None)
    splits = tuple(settle(each, seed) for each in split_rules([rule]) if plausible(each, seed))
    return Settled(rule, Fate.PROVED, "", verdict.certificate, splits)


def _of_weaker_signs(rule: Rule) -> Iterator[Rule]:
    """The rule without the signs that it asks of inputs and numbers, and with weaker ones."""
    facts = {text: fact_of(text, rule.value_names) for text in rule.where}
    signs = {text: fact for text, fact in facts.items() if fact and fact.relation in SIGNS}
    if signs:
        yield replace(rule, where=tuple(text for text in rule.where if text not in signs))
    if any(fact.relation == POSITIVE for fact in signs.values()):
        weaker = {
            text: str(replace(fact, relation=NONNEGATIVE)) if fact.relation == POSITIVE else text
            for text, fact in signs.items()
        }
        yield replace(rule, where=tuple(weaker.get(text, text) for text in rule.where))


def _of_something(rule: Rule) -> Proved | None:
    """A proof under the condition that sizes are not 0, as all drawn ones are, if that suffices.

    Others, such as that an input is positive, would make a rule of an accidental equality; that it
    has numbers alone is what the rule needs wherever it holds. That an input is not 0 makes none
    where both sides compute the same, to the bit: they divide by it. Nor does that of a number in
    an attribute, of which both directions need it.
    """
    verdict = prove(rule, weaken=True)
    if not isinstance(verdict, Proved):
        return None
    facts = {text: fact_of(text, rule.value_names) for text in verdict.where}
    exact = verdict.exact == BITS
    backwards = verdict.reverse or ()

    def suits(text: str, fact: Fact | None) -> bool:
        if fact is None:
            return NOT_EMPTY.fullmatch(text) is not None
        if fact.relation not in SIGNS:
            return True
        divides_both = fact.name in rule.names.reals and text in backwards
        return fact.relation == NONZERO and (exact or divides_both)

    return verdict if all(suits(text, fact) for text, fact in facts.items()) else None


def settle_first(rules: Iterator[Rule], seed: int) -> tuple[tuple[Settled, ...], tuple[str, ...]]:
    """The verdicts on `rules` up to the first that is proved, and the texts of the others."""
    settled: list[Settled] = []
    for rule in rules:
        settled.append(settle(rule, seed))
        if settled[-1].fate is Fate.PROVED:
            break
    return tuple(settled), tuple(map(str, rules))


_CAUSES = (
    ("vacuous", "vacuous: hardly any sizes satisfy the conditions"),
    ("the right side needs", "conditions of the right side that could not be lifted"),
    ("the normal forms differ", "normal forms differ"),
    ("no reading of the index", "no reading of the index applies"),
    ("it is shown for real numbers", "integers wrap around"),
    ("it is shown at the listed ranks", "not at all higher ranks"),
    ("TooLargeError", "a term grew too large"),
)


def cause_of(reason: str) -> str:
    """The class of an unknown verdict's reason; what none describes is named by its exception."""
    text = reason.removeprefix("not shown: ")
    for start, cause in _CAUSES:
        if text.startswith(start):
            return cause
    head = text.partition(":")[0]
    return f"the prover failed with {head}" if head.endswith(("Error", "Exception")) else "other"
