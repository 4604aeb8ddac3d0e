"""The verifier: true rules are proved, wrong ones refuted, and no failure passes for a proof."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import z3
from longer import some, without
from places import CORPUS

from xflow.core.constraint import in_range
from xflow.core.errors import RuleFileError
from xflow.core.evaluation import read
from xflow.core.size import symbol
from xflow.core.value_conditions import is_need
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier import database
from xflow.verifier import prove as prover
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.matching.match import Equality
from xflow.verifier.preconditions import left_conditions
from xflow.verifier.proof.defined import Domain, demands, read_unfolded
from xflow.verifier.prove import Proved, Refuted, Unknown, prove
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.refute import CASES, Survived, search_counterexample

BAD = parse_rules((CORPUS / "bad.rules").read_text(), "bad.rules")
GOOD = parse_rules((CORPUS / "good.rules").read_text(), "good.rules")
INFERRED = {
    "convolutions-of-different-kernels-added": {"p >= 0", "q >= 0"},
    "kernel-enlarged": {"p >= 0", "q >= 0"},
    "pad-merged-into-a-convolution": {"p >= 0", "q >= 0"},
    "pads-merged": {"p >= 0", "q >= 0"},
    "sign-of-a-positive-multiple": {"s > 0"},
    "pad-is-concat": {"p >= 0", "q >= 0"},
    "pad-cropped-again": {"p >= 0", "q >= 0"},
    "scale-as-convolution": {"S >= 1"},
    "scale-as-depthwise-convolution": {"C >= 1", "S >= 1"},
    "average-pool-is-depthwise": {"C >= 1"},
    "average-pool-general": {"C >= 1"},
    "slice-before-pointwise": {"q >= p + 1"},
    "scale-through-softmax-like": {"m >= 1"},
    "softmax-denominator-late": {"m >= 1"},
}
"""The conditions with which a rule of the corpus is proved, where there are any."""


def names(rule: Rule) -> str:
    return rule.name


def one(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return rule


ASSOCIATIVITY = one(
    """rule associativity
  in a[n, m] b[m, k] c[k, l]
  from MatMul(MatMul(a, b), c)
  to MatMul(a, MatMul(b, c))
"""
)
RECIPROCALS = one(
    """rule reciprocals
  in x[...] y[...]
  from Div(Add(x, y), y)
  to Add(1, Mul(x, Reciprocal(y)))
"""
)


# True rules


@pytest.mark.parametrize(
    "rule",
    some(
        without(GOOD, "convolutions-of-different-kernels-added", "pad-merged-into-a-convolution"), 2
    ),
    ids=names,
)
def test_a_true_rule_is_proved_under_the_conditions_that_it_needs(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    conditions = {text for text in verdict.where if not is_need(text, rule.value_names)}
    assert conditions == INFERRED.get(rule.name, set())
    assert isinstance(search_counterexample(replace(rule, where=verdict.where), seed=1), Survived)


EXPRESSIONS = [
    "AveragePool(x, kernel_shape=[*k], pads=[*e, *f], strides=[*s])",
    "BatchNormalization(MaxPool(x, kernel_shape=[*k]), v, v, v, v)",
    "Sqrt(Mul(0, Reciprocal(x)))",
    "Conv(x, w, strides=[*s], pads=[*e, *f], group=g)",
]
NEVER_DEFINED = "Log(Sqrt(Mul(0, Reciprocal(x))))"


def identity(text: str) -> Rule:
    return one(
        "rule same\n  in x[N, C, *S] w[O, c, *R] v[C]\n  param *k *e *f *s g\n  rank 1 2\n"
        f"  from {text}\n  to {text}\n"
    )


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_identical_expressions_are_proved_equal(text: str) -> None:
    verdict = prove(identity(text), infer=False)
    assert isinstance(verdict, Proved), str(verdict)


@pytest.mark.parametrize("text", [*EXPRESSIONS, NEVER_DEFINED])
def test_identical_expressions_have_equal_normal_forms_and_demands(text: str) -> None:
    for instance in identity(text).instances():
        equality = Equality(Arithmetic())
        ((left,), (right,)) = instance.lhs, instance.rhs
        index = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
        ranges = [c for i, n in zip(index, left.shape, strict=True) for c in in_range(i, n)]
        with equality.arithmetic.assuming((*left_conditions(instance), *ranges)):
            first, second = (equality.normalizer.normal(read(s, index)) for s in (left, right))
            assert equality.equal(first, second)
            given, wanted = (
                demands(read_unfolded(side, index), equality) for side in (left, right)
            )
            assert Domain(given, equality).unmet(wanted) is None


def test_the_other_direction_is_proved_only_where_it_is_as_defined() -> None:
    quotient = one("rule q\n  in x[...] y[...]\n  from Div(Mul(x, y), y)\n  to x\n")
    verdict = prove(quotient)
    assert isinstance(verdict, Proved)
    assert verdict.reverse is None
    verdict = prove(ASSOCIATIVITY)
    assert isinstance(verdict, Proved)
    assert verdict.where == ("finite(a)",)
    assert verdict.reverse == ("finite(c)",)


def test_a_quotient_is_brought_in_where_its_divisor_is_not_0() -> None:
    text = "rule q\n  in x[...] k[...] c[...]\n  from Mul(Add(x, Div(c, k)), k)\n"
    verdict = prove(one(f"{text}  to Add(Mul(x, k), c)\n"))
    assert isinstance(verdict, Proved)
    assert verdict.where == ()
    assert verdict.reverse == ("k != 0",)
    # Nothing could use these from right to left: there is no k, or anything would do.
    for unusable in ("Div(Mul(x, k), k)\n  to x", "Reciprocal(Reciprocal(x))\n  to x"):
        verdict = prove(one(f"rule q\n  in x[...] k[...]\n  from {unusable}\n"))
        assert isinstance(verdict, Proved)
        assert verdict.reverse is None


def test_a_proof_leaves_no_solver_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context of Z3 takes 16 MB, and what refers to itself waits for Python's collector."""
    made: list[weakref.ref[z3.Context]] = []

    class Noted(z3.Context):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            made.append(weakref.ref(self))

    monkeypatch.setattr(z3, "Context", Noted)
    rule = next(each for each in GOOD if each.ranks)
    gc.disable()
    try:
        assert isinstance(prove(rule), Proved)
        assert made
        assert not [context for context in made if context() is not None]
    finally:
        gc.enable()


# Wrong rules


def test_there_are_at_least_forty_wrong_rules() -> None:
    assert len({rule.name for rule in BAD}) >= 40


@pytest.mark.parametrize("rule", BAD, ids=names)
def test_a_wrong_rule_is_refuted_by_a_counterexample(rule: Rule) -> None:
    verdict = prove(rule, infer=False, both_ways=False)
    assert isinstance(verdict, Refuted), str(verdict)
    assert verdict.counterexample.reason in str(verdict)


@pytest.mark.parametrize("rule", BAD, ids=names)
def test_a_wrong_rule_is_not_proved_even_without_evaluation(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prover, "search_counterexample", lambda *_, **__: Survived(10**6))
    assert isinstance(prove(rule, infer=False, both_ways=False), Unknown)


@pytest.mark.parametrize("where", ["n >= 2, n <= 1", "n * n == 2", "n * m <= 0", "2 >= 3"])
def test_a_rule_that_holds_nowhere_is_vacuous_and_not_proved(where: str) -> None:
    rule = one(f"rule v\n  in x[n, m]\n  from x\n  to Add(x, 1)\n  where {where}\n")
    verdict = prove(rule, infer=False, both_ways=False)
    assert isinstance(verdict, Unknown)
    assert "vacuous" in str(verdict)


def test_a_left_side_that_is_never_defined_proves_nothing() -> None:
    rule = one("rule v\n  in x[...]\n  from Reciprocal(Sub(x, x))\n  to x\n")
    assert not isinstance(prove(rule), Proved)


def test_a_wrong_condition_for_the_reverse_is_found() -> None:
    text = "rule q\n  in x[...] y[...]\n  from Div(Mul(x, y), y)\n  to x\n  reverse always\n"
    failure = database.verify_rule(one(text))
    assert failure is not None
    assert failure.rule_name == "q.reverse"


@pytest.mark.parametrize(
    "stanza",
    [
        "in x[n]\n  rank\n  from x\n  to Add(x, 1)",
        "in x[n]\n  rank -1\n  from x\n  to Add(x, 1)",
        "in x[n]\n  param *p p_0\n  rank 1\n  from Pad(x, pads=[*p, 0])\n  to x",
        "in x[n]\n  param p *p\n  rank 1\n  from Pad(x, pads=[*p, 0])\n  to Pad(x, pads=[*p, 0])",
        "in x[n]\n  param n:real\n  from Mul(x, Scalar(value=n))\n  to x",
        "in x[n] x[m]\n  from x\n  to x",
        "in x[any]\n  from x\n  to x",
        "in x[axis]\n  from x\n  to x",
        "in x[_k0]\n  from x\n  to x",
        "in x[-1]\n  from x\n  to Add(x, 1)",
        "in x[...] y[...]\n  from Add(x, Zeros(shape=[0])), y\n  to Add(x, Zeros(shape=[0])), x",
        "in x[...]\n  from Transpose(x)\n  to x",
        "in x[...]\n  from x\n  to y",
        "in x[...]\n  from x, x\n  to x",
        "in x[n]\n  from Pad(x, pads=[q, q])\n  to x",
    ],
)
def test_a_rule_with_ambiguous_names_or_without_ranks_is_not_read(stanza: str) -> None:
    with pytest.raises(RuleFileError):
        one(f"rule odd\n  {stanza}\n")


def test_a_rule_without_ranks_is_not_proved() -> None:
    assert isinstance(prove(replace(BAD[0], ranks=())), Unknown)


# Forced failures


def failing(error: BaseException) -> Any:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("error", [RuntimeError("odd"), RecursionError(), KeyError("x")], ids=repr)
@pytest.mark.parametrize("place", ["InstanceProof", "search_counterexample", "_Search"])
def test_an_unforeseen_failure_is_no_proof(
    place: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prover, place, failing(error))
    verdict = prove(ASSOCIATIVITY, infer=False)
    assert isinstance(verdict, Unknown)
    assert type(error).__name__ in verdict.reason


def test_a_proof_that_evaluation_contradicts_is_a_refutation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prover, "_found", lambda *_, **__: Proved({}))
    for rule in BAD[:3]:
        assert isinstance(prove(rule, infer=False, both_ways=False), Refuted)


def test_a_proof_that_evaluation_cannot_reach_is_vacuous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover, "search_counterexample", lambda *_, **__: Survived(1))
    assert isinstance(prove(ASSOCIATIVITY, infer=False, both_ways=False), Unknown)


@pytest.mark.parametrize(
    "text",
    [
        "in x[n, m]\n  from Add(x, x)\n  to Mul(x, 2)",
        "in x[n, m]\n  from Add(x, x)\n  to Mul(x, 2)\n  where n >= 4, m == 2*n, n <= 5",
        "in x[n, m] y[m, n]\n  from Add(x, y)\n  to Add(y, x)\n  where n >= 1",
        "in x[n]\n  from Add(x, x)\n  to Mul(x, 2)\n  where n <= 0",
    ],
)
def test_the_first_of_many_samples_are_those_of_a_proof(text: str) -> None:
    rule = one(f"rule v\n  {text}\n")
    many, few = search_counterexample(rule), search_counterexample(rule, cases=CASES)
    assert isinstance(many, Survived)
    assert isinstance(few, Survived)
    assert many.at_first == few.cases == few.at_first


def test_samples_that_a_proof_is_given_count_as_its_own() -> None:
    rule = one("rule v\n  in x[n, m] y[n, m]\n  from Add(x, y)\n  to Add(y, x)\n")
    assert database.verify_rule(rule, [Survived(prover.MIN_CASES)]) is None
    failure = database.verify_rule(rule, [Survived(prover.MIN_CASES - 1)])
    assert failure is not None
    assert "vacuous" in failure.verdict_text


# Directories


def test_a_directory_with_one_wrong_rule_fails_with_its_name_and_a_counterexample(
    tmp_path: Path,
) -> None:
    (tmp_path / "some.rules").write_text(f"{ASSOCIATIVITY}\n{BAD[0]}")
    seen: list[tuple[int, int]] = []
    failures = database.verify_directory(tmp_path, progress=lambda *done: seen.append(done), jobs=1)
    assert [failure.rule_name for failure in failures] == [BAD[0].name]
    assert isinstance(search_counterexample(BAD[0]), Counterexample)
    assert "refuted: with" in str(failures[0])
    assert seen == [(1, 2), (2, 2)]


def test_several_processes_find_the_same_failures_as_one() -> None:
    rules = [ASSOCIATIVITY, BAD[0], RECIPROCALS]
    assert database.verify_rules(rules, jobs=2) == database.verify_rules(rules, jobs=1)
