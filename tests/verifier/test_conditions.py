"""Conditions that the verifier finds, ranks beyond those listed, and conditions on values."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from longer import some, without
from places import CORPUS

from xflow.core.errors import RuleFileError
from xflow.core.value_conditions import Fact
from xflow.rewriting.rule import MAX_RANK, Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier import prove as prover
from xflow.verifier.prove import Proved, Refuted, Unknown, prove
from xflow.verifier.refutation.refute import Survived

HARD = parse_rules((CORPUS / "hard.rules").read_text(), "hard.rules")


def rule(text: str) -> Rule:
    (made,) = parse_rules("rule r\n" + text)
    return made


LONGEST = (
    "shifted-and-scaled-input-folded",
    "relu-before-max-pool",
    "grouped-convolutions-side-by-side",
    "grouped-convolution-as-one-group-and-the-rest",
)
"""Those that take many seconds, though others of the kind do not."""


@pytest.mark.parametrize("hard", some(without(HARD, *LONGEST), 3), ids=lambda each: each.name)
def test_the_known_hard_ones_are_proved(hard: Rule) -> None:
    verdict = prove(hard, both_ways=False, weaken=True)
    assert isinstance(verdict, Proved), str(verdict)


BAD = parse_rules((CORPUS / "bad_hard.rules").read_text(), "bad_hard.rules")


@pytest.mark.parametrize(
    "bad", without(BAD, "heads-merged-without-a-transpose"), ids=lambda each: each.name
)
def test_their_wrong_look_alikes_are_refuted_and_never_proved(
    bad: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(prove(bad, infer=False, both_ways=False), Refuted)
    monkeypatch.setattr(prover, "search_counterexample", lambda *_, **__: Survived(99))
    assert isinstance(prove(bad, infer=False, both_ways=False), Unknown)


def proved(text: str, *, infer: bool = True, weaken: bool = False) -> Proved:
    verdict = prove(rule(text), both_ways=False, infer=infer, weaken=weaken)
    assert isinstance(verdict, Proved), str(verdict)
    return verdict


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Equal(Div(x, y), 1)", "Equal(x, y)"),
        ("Less(Sqrt(x), 1)", "Less(x, 1)"),
        ("Not(GreaterOrEqual(Log(x), y))", "Less(x, Exp(y))"),
        ("Where(Equal(Softmax(Log(x), axis=0), y), x, y)", "Where(Equal(x, y), x, y)"),
    ],
)
def test_nothing_is_taken_for_defined_behind_a_comparison(left: str, right: str) -> None:
    # The runtime's comparison gives a Boolean of NaN, too, and mostly another one than the right.
    text = f"""
  in    x[n] y[n]
  from  {left}
  to    {right}
"""
    assert not isinstance(prove(rule(text), both_ways=False, weaken=True), Proved)


SHIFTED = """
  in    x[N, C, S] m[1, C, 1] w[O, C, R] b[O]
  param e f
  from  Conv(Sub(x, m), w, b, pads=[e, f])
  to    Conv(x, w, Sub(b, ReduceSum(Mul(w, m), axes=[1, 2], keepdims=0)), pads=[e, f])
"""


def test_a_shift_goes_into_a_convolution_where_nothing_is_padded() -> None:
    assert isinstance(prove(rule(SHIFTED), both_ways=False), Refuted)
    where = proved(SHIFTED, weaken=True).where
    conditioned = Rule("r", *_parts(SHIFTED), where=where)
    arithmetic_says_no_padding = [str(c) for c in conditioned.instance(0).where]
    assert any("e" in text for text in arithmetic_says_no_padding)
    assert isinstance(prove(conditioned, infer=False, both_ways=False), Proved)


def _parts(text: str) -> tuple[str, str, str, str]:
    made = rule(text)
    return made.inputs, made.lhs, made.rhs, made.params


DIVIDED = """
  in    x[N, C, S] s[1, C, 1] w[O, C, R]
  param e f
  from  Conv(Div(x, s), w, pads=[e, f])
  to    Conv(x, Div(w, s), pads=[e, f])
"""


def test_what_divides_a_weight_must_not_be_zero() -> None:
    """Where a window lies in the padding the left side divides nothing, the right its weights."""
    assert isinstance(prove(rule(DIVIDED), both_ways=False), Refuted)
    assert proved(DIVIDED, weaken=True).where == ("s != 0",)


def test_what_divides_a_weight_is_not_zero_if_each_window_is_divided_by_it() -> None:
    found = proved(DIVIDED + "  where e == 0, f == 0\n").where
    assert found == ("e == 0", "f == 0", "finite(s)")


@pytest.mark.parametrize(
    ("relation", "values", "holds"),
    [
        ("!=", [1.0, -2.0], True),
        ("!=", [1.0, 0.0], False),
        ("!=", [np.nan], False),
        (">", [0.0, 1.0], False),
        (">=", [0.0, 1.0], True),
        (">=", [-1e-9], False),
        (">", [], True),
    ],
)
def test_a_fact_speaks_of_every_element(relation: str, values: list[float], holds: bool) -> None:
    assert Fact("s", relation).holds(np.array(values)) is holds


def test_a_fact_may_speak_of_a_real_attribute() -> None:
    assert Fact("alpha", ">").holds(Fraction(1, 100))
    assert not Fact("alpha", ">").holds(Fraction(0))


def test_a_condition_on_values_survives_the_text() -> None:
    made = rule(DIVIDED + "  where s != 0\n")
    assert made.instance(0).facts == (Fact("s", "!="),)
    assert parse_rules(str(made)) == [made]


BATCHED = """
  in   x[*B, n, m] w[m, k] v[k, l]
  rank 0 1
  from MatMul(MatMul(x, w), v)
  to   MatMul(x, MatMul(w, v))
"""


def test_what_leaves_the_batch_alone_holds_at_any_rank() -> None:
    verdict = proved(BATCHED)
    assert verdict.any_rank
    made = rule(BATCHED.replace("rank 0 1", "rank 0 1 ..."))
    assert isinstance(prove(made, both_ways=False), Proved)
    assert [i.rank for i in made.usable_instances()] == list(range(MAX_RANK + 1))
    assert parse_rules(str(made)) == [made]


@pytest.mark.parametrize(
    "text",
    [
        # the windows of a convolution are on the vector's axes
        """
  in   x[N, C, *S] w[O, C, *R] v[O, C, *R]
  rank 1 2
  from Add(Conv(x, w), Conv(x, v))
  to   Conv(x, Add(w, v))
""",
        # the axes of the vector are cut
        """
  in   x[n, *S]
  rank 1 2
  from Slice(Neg(x), starts=[*0], ends=[*S], axes=[*axis + 1], steps=[*1])
  to   Neg(Slice(x, starts=[*0], ends=[*S], axes=[*axis + 1], steps=[*1]))
""",
        # a transpose turns the vector's axes around at rank 2
        """
  in   x[*B, n]
  rank 1
  from Add(x, Transpose(x, perm=[*axis, -1]))
  to   Add(Transpose(x, perm=[*axis, -1]), x)
""",
    ],
)
def test_what_touches_the_axes_of_a_vector_is_marked_with_care(text: str) -> None:
    verdict = prove(rule(text), both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    if verdict.any_rank:  # then it is indeed the same at each of a few further ranks
        further = rule(text.replace("rank 1", "rank 1 3 4", 1).replace("3 4 2", "2 3 4"))
        assert isinstance(prove(further, both_ways=False), Proved)


def test_a_rule_that_claims_any_rank_without_reason_is_not_proved() -> None:
    claimed = rule(
        """
  in   x[*B, n]
  rank 1 ...
  from ReduceSum(x, axes=[0], keepdims=1)
  to   ReduceSum(x, axes=[*axis], keepdims=1)
"""
    )
    assert isinstance(prove(replace(claimed, any_rank=False), both_ways=False), Proved)
    assert isinstance(prove(claimed, both_ways=False), Unknown)


def test_a_rule_that_claims_ranks_that_an_operator_does_not_take_is_not_read() -> None:
    with pytest.raises(RuleFileError, match="Conv takes 1 to 3 spatial axes"):
        rule(
            """
  in   x[N, C, *S] w[O, C, *R] v[O, C, *R]
  rank 1 ...
  from Add(Conv(x, w), Conv(x, v))
  to   Conv(x, Add(w, v))
"""
        )
