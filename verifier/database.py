"""Proves whole directories of rules again, from their text alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from xflow.core.processes import process_pool
from xflow.core.progress import CountProgress
from xflow.rewriting.rule import BITS, Rule
from xflow.rewriting.store import load_rules
from xflow.rewriting.text import parse_rules
from xflow.verifier.proof.types import claims_too_much, types_of
from xflow.verifier.prove import Proved, Refuted, prove
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.refute import Survived, search_counterexample
from xflow.verifier.refutation.shrink import shrink
from xflow.verifier.rounding.measure import measure

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A rule that could not be proved again, with the verdict in words."""

    rule_name: str
    verdict_text: str

    def __str__(self) -> str:
        return f"{self.rule_name}: {self.verdict_text}"


def refute_rule(rule: Rule) -> Failure | list[Survived]:
    """Look for a counterexample to `rule`, in every direction that it claims.

    More are tried than for a proof; returned is how many of those that a proof asks for there were.
    """
    survived = []
    for direction in rule.directions():
        found = search_counterexample(direction)
        if isinstance(found, Counterexample):
            return Failure(direction.name, str(Refuted(shrink(direction, found))))
        survived.append(Survived(found.at_first))
    return survived


def verify_rule(rule: Rule, survived: Sequence[Survived] | None = None) -> Failure | None:
    """Prove `rule` as it stands, in every direction that it claims; conditions are not inferred.

    Its line `numerics`, if any, must be the result of a measurement. `survived` is the result of
    `refute_rule`; without it, every direction is sampled here.
    """
    if claims_too_much(rule):
        return Failure(rule.name, f"not shown for the types {rule.types}, but {types_of(rule)}")
    for number, direction in enumerate(rule.directions()):
        sampled = survived[number] if survived else None
        verdict = prove(direction, infer=False, both_ways=False, survived=sampled)
        if not isinstance(verdict, Proved):
            return Failure(direction.name, str(verdict))
        if rule.exact is not None and verdict.exact not in (BITS, rule.exact):
            return Failure(direction.name, f"the sides are not shown to agree: {rule.exact}")
        strangers = sorted(set(rule.limits) - set(verdict.limits)) if verdict.exact != BITS else ()
        if strangers:
            return Failure(direction.name, f"{strangers[0]} is not shown to have -inf for a limit")
    measured = rule.numerics and measure(rule)
    if measured != rule.numerics:
        return Failure(rule.name, f"its numerics line is wrong, measured is: {measured}")
    return None


def _of_text(test: Callable[..., T], text: str, *given: object) -> T:
    (rule,) = parse_rules(text)
    return test(rule, *given)


def verify_rules(
    rules: Sequence[Rule],
    progress: CountProgress | None = None,
    jobs: int | None = None,
    executor: Callable[[int], AbstractContextManager[Executor]] = process_pool,
) -> list[Failure]:
    """The rules among `rules` that cannot be proved again, in order.

    Rules with a counterexample are found first, in seconds; only if there are none is everything
    proved. Works in `jobs` processes (by default one a core) of an `executor`. A process that dies
    is a failure of the rule that it worked on, never a proof.
    """
    jobs = max(1, min(jobs or os.cpu_count() or 1, len(rules)))
    with executor(jobs) as pool:
        sampled = _run(pool, refute_rule, [(rule,) for rule in rules], progress)
        failures = [each for each in sampled if isinstance(each, Failure)]
        if failures:
            return failures
        proved = _run(pool, verify_rule, list(zip(rules, sampled, strict=True)), progress)
        return [each for each in proved if each is not None]


def _run(
    pool: Executor,
    test: Callable[..., T],
    tasks: Sequence[tuple[Rule, *tuple[object, ...]]],
    progress: CountProgress | None,
) -> list[T | Failure]:
    """The results of `test` for rules and what else it is given, in order."""
    found: list[T | Failure] = []
    futures = [pool.submit(_of_text, test, str(rule), *given) for rule, *given in tasks]
    for number, ((rule, *_), future) in enumerate(zip(tasks, futures, strict=True)):
        try:
            found.append(future.result())
        except BrokenProcessPool:
            found.append(Failure(rule.name, "not shown: a proof process died"))
        except Exception as error:
            found.append(Failure(rule.name, f"not shown: {type(error).__name__}: {error}"))
        if progress:
            progress(number + 1, len(tasks))
    return found


def verify_directory(
    directory: Path, progress: CountProgress | None = None, jobs: int | None = None
) -> list[Failure]:
    """`verify_rules` for every rule of a directory. Raises RuleFileError."""
    return verify_rules(load_rules(directory), progress, jobs)
