"""Conditions that a rule lacks: their language, and the search for weak ones.

The language: what the right side's operators require; ``p >= 0`` for a symbol; equations of sizes
without common factors; ``s != 0``, ``s > 0``, ``s >= 0`` for the values of a constant; and, where a
rule is false without, ``p == 0``, ``p == 1``, ``p == q`` and ``n >= 1`` if samples require them.
A condition is never trusted: the proof is repeated under it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from math import gcd
from operator import and_

from xflow.core.constraint import Constraint, Relation, at_least, equal
from xflow.core.size import Expr, symbol
from xflow.rewriting.instance import Instance
from xflow.rewriting.rule import Rule
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.preconditions import left_conditions, size_names
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.refute import Sampler, compare_at

SAMPLES = 16
SURE = 64
"""Samples for conditions that are chosen in one go."""
MIN_SAMPLES = 4
MAX_SAMPLED = 4


def is_readable(condition: Constraint) -> bool:
    """Whether a condition may be inferred; an equation of products is too hard to read."""
    linear = isinstance(condition.difference, Expr) and all(
        len(monomial) <= 1 for monomial, _ in condition.difference.terms
    )
    return linear or condition.relation is Relation.AT_LEAST


def simplest(condition: Constraint) -> Constraint:
    """An equation without the factor that all its terms share: ``g == h`` for ``g*c == h*c``.

    It is stronger, which is always sound: the proof is repeated under it.
    """
    if condition.relation is not Relation.EQUAL or not isinstance(condition.difference, Expr):
        return condition
    terms = condition.difference.terms
    shared = reduce(and_, (Counter(monomial) for monomial, _ in terms))
    content = gcd(*(coefficient for _, coefficient in terms))
    rest = [(tuple((Counter(m) - shared).elements()), c // content) for m, c in terms]
    return equal(Expr(tuple(rest)) + 0, 0)


def lift(conditions: Sequence[Constraint], rule: Rule) -> Iterator[str]:
    """Conditions on the elements of vectors as conditions on the vectors, as rules write them."""
    declared = rule.names.scalars | rule.names.vectors
    seen: set[str] = set()
    for condition in conditions:
        elements = {
            name: match.group(1)
            for name in condition.symbols
            if (match := re.fullmatch(r"(.*)_(\d+)", name)) and match.group(1) in rule.names.vectors
        }
        values = {name: symbol(vector) for name, vector in elements.items()}
        lifted = condition.substitute(values)
        text = str(lifted)
        if text not in seen and lifted.symbols <= declared:
            seen.add(text)
            yield text


def sign_conditions(rule: Rule, low: int = 0) -> Iterator[str]:
    """``p >= low`` for every symbol of which the left side does not imply it."""
    instance = rule.instance(min(filter(None, rule.ranks), default=0))
    with Arithmetic() as arithmetic, arithmetic.assuming(left_conditions(instance)):
        unsure = [
            condition
            for condition in (at_least(symbol(name), low) for name in size_names(instance))
            if not arithmetic.implied(condition)
        ]
    yield from lift(unsure, rule)


def sampled_conditions(rule: Rule) -> tuple[str, ...] | None:
    """Conditions under which the sides agree in all samples; None where none were found.

    One or two are looked for among all, the weakest first. If more are needed, greedily the
    condition is added that leaves the smallest part of the samples wrong, of those equal in this
    the weakest.
    """
    chosen: tuple[str, ...] = ()
    candidates = list(_candidates(rule))
    wrong = _wrong_part(rule, chosen)
    if wrong:
        few = _few_conditions(rule, candidates)
        if few is not None:
            return few
    while wrong:
        if len(chosen) == MAX_SAMPLED:
            return None
        rated = []
        for position, text in enumerate(candidates):
            part = None if text in chosen else _wrong_part(rule, (*chosen, text))
            if part is not None and part < wrong:
                rated.append((part, position, text))
        if not rated:
            return None
        wrong, _, best = min(rated)
        chosen = (*chosen, best)
    return chosen if wrong is not None else None


def _few_conditions(rule: Rule, candidates: Sequence[str]) -> tuple[str, ...] | None:
    """One or two conditions under which no sample is wrong.

    What part of the samples is wrong under one of two that are needed is a matter of chance; that
    none is under both is not, and to see that some are takes one or two samples.
    """
    positions = range(len(candidates))
    pairs = sorted(combinations(positions, 2), key=lambda pair: (sum(pair), pair))
    for chosen in (*((position,) for position in positions), *pairs):
        few = tuple(candidates[position] for position in chosen)
        if all(_wrong_part(rule, few, samples, bound=0) == 0 for samples in (SAMPLES, SURE)):
            return few
    return None


def _candidates(rule: Rule) -> Iterator[str]:
    """Conditions to try, weaker ones first."""
    names = rule.names
    declared = {param.lstrip("*") for param in rule.params.split()} - {
        param for param in rule.params.split() if param.endswith(":real")
    }
    extents = sorted((names.scalars | names.vectors) - declared)
    params = sorted(declared)
    for name in params:
        yield f"{name} >= 0"
    for name in extents:
        yield f"{name} >= 1"
    for left, right in combinations(params, 2):
        if (left in names.vectors) == (right in names.vectors):
            yield f"{left} == {right}"
    for left, right in combinations(extents, 2):
        if (left in names.vectors) == (right in names.vectors):
            yield f"{left} == {right}"
    for name in params:
        yield f"{name} == 1"
        yield f"{name} == 0"


def _wrong_part(
    rule: Rule, extra: tuple[str, ...], samples: int = SAMPLES, bound: int = SURE
) -> float | None:
    """The part of samples under `extra` at which the sides differ; None for too few samples.

    If more than `bound` are wrong, the part of the samples up to then.
    """
    conditioned = replace(rule, where=(*rule.where, *extra))
    rank = min(filter(None, rule.ranks), default=rule.ranks[0])
    try:
        instance: Instance = conditioned.instance(rank)
    except Exception:  # the condition is not meaningful for this rule
        return None
    conditions = left_conditions(instance)
    if any(condition.decided is False for condition in conditions):
        return None
    names = size_names(instance, conditions)
    rng = random.Random(f"{rule.lhs} {rule.rhs} {extra}")
    sampler = Sampler(names, conditions, rng)
    done = wrong = 0
    for _ in range(2 * samples):
        sizes = sampler.draw() if done < samples else None
        if sizes is None:
            break
        outcome = compare_at(instance, sizes, rng)
        if isinstance(outcome, Counterexample):
            wrong += 1
            done += 1
            if wrong > bound:
                return wrong / done
        else:
            done += outcome
    return wrong / done if done >= MIN_SAMPLES else None
