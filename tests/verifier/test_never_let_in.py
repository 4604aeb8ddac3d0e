"""No failure lets a rule in: not the solver's, not ours, not that of a process.

Each failure is forced on true rules that are proved without it, at each of the places that let
rules in: `prove`, the verification of a directory, and the generator.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import pytest
import z3
from dying import (
    dies_at_once,
    dies_in_a_proof,
    dies_in_the_solver,
    failing,
    leaves,
    runs_out_of_memory,
)
from longer import some
from places import CORPUS

from xflow.core.processes import process_pool
from xflow.generator.derive import derive
from xflow.generator.production import Production
from xflow.generator.vocabulary import Family, Input, Vocabulary
from xflow.ops import operator
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier import database
from xflow.verifier import prove as prover
from xflow.verifier.algebra import arithmetic, normal
from xflow.verifier.algebra.normal import Normalizer
from xflow.verifier.algebra.terms import TooLargeError
from xflow.verifier.matching import abstraction, reals
from xflow.verifier.matching.match import Equality
from xflow.verifier.prove import Proved, Unknown, prove
from xflow.verifier.refutation.refute import Survived

NAMES = {"concats-nested", "matmul-of-concatenations"}
RULES = [r for r in parse_rules((CORPUS / "good.rules").read_text("utf-8")) if r.name in NAMES]
RULES += parse_rules(
    "rule maximum-over-minimum\n  in x[...] y[...] z[...]\n"
    "  from Max(x, Min(y, z))\n  to Min(Max(x, y), Max(x, z))\n"
)  # by questions on real numbers, the others by such on integers
WRONG = parse_rules((CORPUS / "bad.rules").read_text("utf-8"))[:2]
X = "x"
CONCATENATED = Family(
    "concatenated",
    (
        Vocabulary(
            "concatenated",
            tuple(Input(name, X, "*B n m", (2, 4, 4)) for name in "abc"),
            (Production("Concat", (X, X), X, ({"axis": 1},)),),
            (0, 0, 0),
            ranks=(0, 1),
        ),
    ),
)
"""A family whose rules need the solver, all of them."""


# The places that let rules in


class _InThisProcess(Executor):
    """Runs at once what is submitted, so that what a test breaks is broken there too."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def the_prover_lets_in(rule: Rule) -> bool:
    return isinstance(prove(rule, both_ways=False), Proved)


def verification_lets_in(rule: Rule) -> bool:
    return not database.verify_rules([rule], executor=lambda _: _InThisProcess())


def the_generator_lets_in(rule: Rule) -> bool:
    del rule  # it finds its own
    return bool(derive(CONCATENATED, 0, 2, notice=lambda _: None).kept)


GATES = [the_prover_lets_in, verification_lets_in, the_generator_lets_in]
CASES = [
    pytest.param(gate, rule, id=f"{gate.__name__}-{rule.name}")
    for gate in GATES
    for rule in (RULES if gate is the_prover_lets_in else RULES[:1])
]


@pytest.mark.parametrize(("lets_in", "rule"), CASES)
def test_without_a_failure_the_rules_are_let_in(
    lets_in: Callable[[Rule], bool], rule: Rule
) -> None:
    assert lets_in(rule)


# Failures


def answering(answer: object) -> Callable[..., Any]:
    return lambda *_, **__: answer


def in_the_operators(error: Exception) -> Callable[[pytest.MonkeyPatch], None]:
    """Every operator of `RULES` and of the generator fails to say what an element is."""

    def patch(patcher: pytest.MonkeyPatch) -> None:
        for name in ("Concat", "MatMul", "Max", "Relu"):
            patcher.setattr(type(operator(name)), "at", failing(error))

    return patch


def attribute(owner: object, name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patcher: patcher.setattr(owner, name, value)


def solver_steps(limit: int) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(patcher: pytest.MonkeyPatch) -> None:
        patcher.setattr(arithmetic, "RESOURCE_LIMITS", (limit, limit, limit))
        patcher.setattr(reals, "NONLINEAR_LIMIT", limit)
        patcher.setattr(abstraction, "RESOURCE_LIMIT", limit)

    return patch


def formulas(error: Exception) -> Callable[[pytest.MonkeyPatch], None]:
    """Nothing can be asserted in a solver, by either way to do so."""

    def patch(patcher: pytest.MonkeyPatch) -> None:
        patcher.setattr(z3.Solver, "add", failing(error))
        patcher.setattr(z3, "Z3_solver_assert", failing(error))

    return patch


def evaluation(value: object) -> Callable[[pytest.MonkeyPatch], None]:
    """What evaluation at small sizes says, where a proof asks and where a database does before."""

    def patch(patcher: pytest.MonkeyPatch) -> None:
        patcher.setattr(prover, "search_counterexample", value)
        patcher.setattr(database, "search_counterexample", value)

    return patch


BROKEN = z3.Z3Exception("broken")
FAILURES = {
    "the solver says unknown": attribute(z3.Solver, "check", answering(z3.unknown)),
    "the solver says sat": attribute(z3.Solver, "check", answering(z3.sat)),
    "the solver says nothing": attribute(z3.Solver, "check", answering(None)),
    "the solver says a word": attribute(z3.Solver, "check", answering("unsat")),
    "the solver says True": attribute(z3.Solver, "check", answering(True)),
    "the solver raises": attribute(z3.Solver, "check", failing(BROKEN)),
    "the solver takes no formula": formulas(BROKEN),
    "the solver cannot be made": attribute(z3, "Solver", failing(BROKEN)),
    "the solver has no context": attribute(z3, "Context", failing(BROKEN)),
    "the solver is out of memory": attribute(z3.Solver, "check", failing(MemoryError())),
    "the solver is interrupted": attribute(z3.Solver, "check", failing(TimeoutError())),
    "the solver's steps are spent": solver_steps(1),
    "the normal form is too large": attribute(normal, "MAX_TERMS", 0),
    "the normaliser raises": attribute(Normalizer, "normal", failing(RuntimeError("odd"))),
    "the normaliser asserts": attribute(Normalizer, "normal", failing(AssertionError())),
    "the normaliser recurs": attribute(Normalizer, "normal", failing(RecursionError())),
    "the normaliser needs memory": attribute(Normalizer, "normal", failing(MemoryError())),
    "the normaliser divides by 0": attribute(Normalizer, "normal", failing(ZeroDivisionError())),
    "the operators raise": in_the_operators(RuntimeError("odd")),
    "the operators recur": in_the_operators(RecursionError()),
    "the operators know no key": in_the_operators(KeyError("n")),
    "evaluation raises": evaluation(failing(ValueError("odd"))),
    "evaluation needs memory": evaluation(failing(MemoryError())),
    "evaluation reaches nothing": evaluation(answering(Survived(0))),
}


@pytest.mark.parametrize("failure", some(FAILURES, 2))
@pytest.mark.parametrize(("lets_in", "rule"), CASES)
def test_a_failure_lets_no_rule_in(
    lets_in: Callable[[Rule], bool], rule: Rule, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAILURES[failure](monkeypatch)
    assert not lets_in(rule)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(0)], ids=repr)
@pytest.mark.parametrize(("lets_in", "rule"), CASES)
def test_an_interruption_is_no_verdict(
    lets_in: Callable[[Rule], bool],
    rule: Rule,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Normalizer, "normal", failing(error))
    with pytest.raises(type(error)):
        lets_in(rule)


# Failures on the way to a wrong rule


@pytest.mark.parametrize("error", [ZeroDivisionError, TooLargeError, RecursionError])
@pytest.mark.parametrize(
    ("owner", "name"), [(Normalizer, "normal"), (Equality, "equal"), (z3.Solver, "check")]
)
@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.name)
def test_a_failure_that_comes_once_lets_no_wrong_rule_in(
    rule: Rule, owner: type, name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prover, "search_counterexample", answering(Survived(10**6)))
    method = getattr(owner, name)
    for last in (1, 2, 3, 5, 8):
        calls = [0]

        def sometimes(
            *args: Any, calls: list[int] = calls, last: int = last, **options: Any
        ) -> Any:
            calls[0] += 1
            if calls[0] == last:
                raise error
            return method(*args, **options)

        monkeypatch.setattr(owner, name, sometimes)
        assert isinstance(prove(rule, infer=False, both_ways=False), Unknown)


# The other direction


def test_a_failure_in_the_other_direction_leaves_it_unproved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    normal_form = Normalizer.normal
    calls = [0]

    def counted(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] > allowed:
            raise RuntimeError("odd")
        return normal_form(*args)

    monkeypatch.setattr(Normalizer, "normal", counted)
    allowed = 10**6
    prove(RULES[0], both_ways=False)
    allowed, calls[0] = calls[0], 0
    verdict = prove(RULES[0])
    assert isinstance(verdict, Proved)
    assert verdict.reverse is None


# Processes


@pytest.mark.parametrize(
    ("start", "jobs"),
    [(dies_in_the_solver, 1), (dies_in_a_proof, 2), (dies_at_once, 1), (runs_out_of_memory, 1)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_process_that_dies_lets_no_rule_in(start: Callable[[], None], jobs: int) -> None:
    pool = partial(process_pool, initializer=start)
    failures = database.verify_rules(RULES, jobs=jobs, executor=pool)
    assert {failure.rule_name for failure in failures} == {rule.name for rule in RULES}
    assert all("not shown" in str(failure) for failure in failures)


def test_a_process_that_leaves_lets_no_rule_in() -> None:
    pool = partial(process_pool, initializer=leaves)
    with pytest.raises(SystemExit):
        database.verify_rules(RULES, jobs=1, executor=pool)
