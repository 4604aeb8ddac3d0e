"""The prover: is a rule true at every size, and its right side defined wherever the left is?

Verdicts are values. As in Alive2 it is refinement: what the left side requires is assumed, what
the right side requires must be shown; what cannot be shown becomes a condition, if conditions
may be inferred, and the proof is repeated under it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from xflow.constraint import Constraint, Relation, at_least, equal, in_range
from xflow.errors import ShapeError
from xflow.graph import Value, read, requirements
from xflow.ops.spec import fresh_names
from xflow.rule import Instance, Rule, attribute_symbols
from xflow.size import Expr, free_symbols, symbol
from xflow.verifier.arithmetic import Arithmetic, Effort
from xflow.verifier.defined import Domain, demands, read_unfolded
from xflow.verifier.match import Equality
from xflow.verifier.reals import equal_reals
from xflow.verifier.refute import (
    Counterexample,
    left_conditions,
    search_counterexample,
)

MAX_CONDITIONS = 8
CASES = 18
MIN_CASES = 4


@dataclass(frozen=True)
class Proved:
    """Equal for all sizes that satisfy `where`.

    `reverse` holds the conditions under which it may also be used from right to left, None if
    that was not shown (or not asked).
    """

    certificate: dict[str, object]
    where: tuple[str, ...] = ()
    reverse: tuple[str, ...] | None = None


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


def prove(rule: Rule, *, infer: bool = True, both_ways: bool = True) -> Verdict:
    """Prove `rule` at each of its ranks; with `infer`, find conditions that it lacks.

    Every proof is cross-checked by evaluation at random small sizes. A crash of the solver, an
    exhausted limit and an unforeseen failure, of whatever kind, are `Unknown`: never a proof.
    """
    try:
        return _verdict(rule, infer, both_ways)
    except Exception as error:
        return Unknown(f"{type(error).__name__}: {error}")


def _verdict(rule: Rule, infer: bool, both_ways: bool) -> Verdict:
    if not rule.ranks:
        return Unknown("vacuous: the rule has no ranks")
    try:
        found = _prove_with_conditions(rule, infer)
    except Exception as error:  # there may be a counterexample all the same
        found = Unknown(f"{type(error).__name__}: {error}")
    if isinstance(found, Unknown):
        counterexample = search_counterexample(rule)
        return Refuted(counterexample) if isinstance(counterexample, Counterexample) else found
    survived = search_counterexample(replace(rule, where=found.where), cases=CASES)
    if isinstance(survived, Counterexample):
        return Refuted(survived)
    if survived.cases < MIN_CASES * len(rule.ranks):
        return Unknown("vacuous: hardly any sizes satisfy the conditions")
    reverse = None
    if both_ways:
        # Only definedness differs, but it is simplest to prove the other direction as a rule.
        backwards = replace(rule, lhs=rule.rhs, rhs=rule.lhs, where=found.where, reverse=None)
        verdict = prove(backwards, infer=infer, both_ways=False)
        if isinstance(verdict, Proved):
            reverse = verdict.where
            found.certificate["reverse"] = verdict.certificate
    return replace(found, reverse=reverse)


def _prove_with_conditions(rule: Rule, infer: bool) -> Proved | Unknown:
    given = rule.where
    attempt = _prove_all(rule)
    while infer and attempt.missing and len(rule.where) < MAX_CONDITIONS:
        wanted = [c for c in attempt.missing if is_readable(c)]
        extra = [text for text in lift(wanted, rule) if text not in rule.where]
        if not extra or len(wanted) < len(attempt.missing):
            break
        rule = replace(rule, where=(*rule.where, *extra))
        attempt = _prove_all(rule)
    if infer and attempt.failure and not attempt.missing:
        signs = tuple(text for text in sign_conditions(rule) if text not in rule.where)
        where = _weakest(replace(rule, ranks=(min(filter(None, rule.ranks), default=0),)), signs)
        if where is not None:
            rule = replace(rule, where=where)
            attempt = _prove_all(rule)
    if attempt.failure:
        return Unknown(attempt.failure)
    shorter = _without_redundant(rule, given)
    if shorter != rule.where:
        again = _prove_all(replace(rule, where=shorter))
        if not again.failure:
            rule, attempt = replace(rule, where=shorter), again
    return Proved({"rule": rule.name, "ranks": attempt.certificate}, rule.where)


def is_readable(condition: Constraint) -> bool:
    """Whether a condition may be inferred: an equation of products tells a reader nothing."""
    linear = isinstance(condition.difference, Expr) and all(
        len(monomial) <= 1 for monomial, _ in condition.difference.terms
    )
    return linear or condition.relation is Relation.AT_LEAST


def _without_redundant(rule: Rule, given: tuple[str, ...]) -> tuple[str, ...]:
    """The `where` of `rule` without inferred conditions that the others imply."""
    where = rule.where
    for text in rule.where:
        if text in given:
            continue
        rest = tuple(t for t in where if t != text)
        lean, full = replace(rule, where=rest), replace(rule, where=where)
        if all(_implies(lean.instance(r), full.instance(r)) for r in rule.ranks):
            where = rest
    return where


def _implies(lean: Instance, full: Instance) -> bool:
    arithmetic = Arithmetic()
    with arithmetic.assuming(left_conditions(lean)):
        return all(arithmetic.implied(condition) for condition in full.where)


def _weakest(rule: Rule, conditions: tuple[str, ...]) -> tuple[str, ...] | None:
    """The `where` of `rule` with those of `conditions` that its proof needs; None without proof."""
    where = (*rule.where, *conditions)
    if not conditions or _prove_all(replace(rule, where=where)).failure:
        return None
    for text in conditions:
        weaker = tuple(t for t in where if t != text)
        if not _prove_all(replace(rule, where=weaker)).failure:
            where = weaker
    return where


@dataclass
class _Attempt:
    """What an attempt at a proof gave: no `failure` means proved."""

    failure: str = ""
    missing: list[Constraint] = field(default_factory=list)
    certificate: list[dict[str, object]] = field(default_factory=list)


def _prove_all(rule: Rule) -> _Attempt:
    total = _Attempt()
    for instance in rule.instances():
        with fresh_names():
            attempt = _InstanceProof(instance).attempt()
        if attempt.failure:
            return attempt
        total.certificate += attempt.certificate
    return total


class _InstanceProof:
    """The proof of one instance."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.arithmetic = Arithmetic()
        self.equality = Equality(self.arithmetic)

    def attempt(self) -> _Attempt:
        instance = self.instance
        conditions = left_conditions(instance)
        if any(c.decided is False for c in conditions):
            return _Attempt("vacuous: the left side is never defined")
        with self.arithmetic.assuming(conditions):
            if self.arithmetic.contradictory(()):
                return _Attempt("vacuous: the conditions contradict each other")
            missing = list(self._missing_requirements())
            if missing:
                words = ", ".join(map(str, missing))
                return _Attempt(f"the right side needs {words}", missing)
            outputs: list[dict[str, object]] = []
            for left, right in zip(instance.lhs, instance.rhs, strict=True):
                outcome = self._prove_output(left, right)
                if isinstance(outcome, str):
                    return _Attempt(outcome)
                outputs.append(outcome)
        record: dict[str, object] = {
            "rank": instance.rank,
            "assume": [str(c) for c in conditions],
            "require": [str(c) for c in requirements(instance.rhs)],
            "outputs": outputs,
        }
        return _Attempt(certificate=[record])

    def _missing_requirements(self) -> Iterator[Constraint]:
        """What the right side needs and the left does not give; equal shapes among it."""
        needed = list(requirements(self.instance.rhs))
        if not self.instance.broadcast:
            for left, right in zip(self.instance.lhs, self.instance.rhs, strict=True):
                if len(left.shape) != len(right.shape):
                    raise ShapeError(f"ranks differ: {left.type} and {right.type}")
                needed += [equal(a, b) for a, b in zip(left.shape, right.shape, strict=True)]
        for condition in dict.fromkeys(needed):
            if condition.decided is False:
                raise ShapeError(f"the right side needs {condition}")
            if not self.arithmetic.implied(condition, effort=Effort.NONLINEAR):
                yield condition

    def _prove_output(self, left: Value, right: Value) -> dict[str, object] | str:
        index = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
        ranges = [c for i, n in zip(index, left.shape, strict=True) for c in in_range(i, n)]
        before, maps = len(self.arithmetic.obligations), len(self.equality.maps)
        if left == right:
            return {"index": [str(i) for i in index], "same expression": str(left)}
        with self.arithmetic.assuming(c for c in ranges if c.decided is None):
            a, b = read(left, index), read(right, index)
            unfolded = read_unfolded(left, index), read_unfolded(right, index)
            given = Domain(demands(unfolded[0], self.equality), self.equality)
            unmet = given.unmet(demands(unfolded[1], self.equality))
            if unmet is not None:
                return unmet
            normals = self.equality.normalizer.normal(a), self.equality.normalizer.normal(b)
            if not self.equality.equal(*normals) and not equal_reals(a, b, self.arithmetic):
                return "the normal forms differ: " + " versus ".join(
                    _shorten(normal.key) for normal in normals
                )
        return {
            "index": [str(i) for i in index],
            "left": normals[0].key,
            "right": normals[1].key,
            "maps": self.equality.maps[maps:],
            "obligations": self.arithmetic.obligations[before:],
        }


def _shorten(text: str, length: int = 300) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


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


def sign_conditions(rule: Rule) -> Iterator[str]:
    """``p >= 0`` for every symbol of which the left side does not imply it."""
    instance = rule.instance(min(filter(None, rule.ranks), default=0))
    names = attribute_symbols((*instance.lhs, *instance.rhs)).union(
        *(free_symbols(size) for value in instance.inputs for size in value.shape)
    )
    arithmetic = Arithmetic()
    with arithmetic.assuming(left_conditions(instance)):
        unsure = [
            condition
            for condition in (at_least(symbol(name), 0) for name in sorted(names))
            if not arithmetic.implied(condition)
        ]
    yield from lift(unsure, rule)
