"""Sums of products of codes as floats: what is shown of them, and under which condition alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xflow.rewriting.rule import BITS, Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier import prove as prover
from xflow.verifier.prove import Proved, Refuted, prove
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.verdicts import Confirmed
from xflow.verifier.refutation.refute import Survived

INPUTS = "x[N, C, H, W]:code w[O, c, R, S]:code z[]:code v[]:code"
IMAGE = "Sub(Cast(x, to='REAL'), Cast(z, to='REAL'))"
WEIGHTS = "Sub(Cast(w, to='REAL'), Cast(v, to='REAL'))"
GIVEN = "NearestFloat(ConvInteger(x, w, z, v, pads=[1, 1, 1, 1], group=g))"
FLOATS = f"Conv({IMAGE}, {WEIGHTS}, pads=[1, 1, 1, 1], group=g)"
CONDITION = "exact_sums(w - v)"


def rule(
    before: str = GIVEN, after: str = FLOATS, where: str = CONDITION, inputs: str = INPUTS
) -> Rule:
    text = f"rule r\n  in {inputs}\n  param g\n  from {before}\n  to {after}\n"
    (parsed,) = parse_rules(text + (f"  where {where}\n" if where else ""))
    return parsed


def proved(given: Rule) -> Proved:
    verdict = prove(given, infer=False)
    assert isinstance(verdict, Proved), str(verdict)
    return verdict


PLAIN = "Cast(x, to='REAL')", "Cast(w, to='REAL')"


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        (GIVEN, FLOATS, CONDITION),
        (FLOATS, GIVEN, CONDITION),
        (
            "NearestFloat(ConvInteger(x, w, z, group=g))",
            f"Conv({IMAGE}, {PLAIN[1]}, group=g)",
            "exact_sums(w)",
        ),
        (
            "NearestFloat(ConvInteger(x, w, group=g, strides=[2, 1]))",
            f"Conv({PLAIN[0]}, {PLAIN[1]}, group=g, strides=[2, 1])",
            "exact_sums(w)",
        ),
    ],
)
def test_sums_that_are_small_enough_are_the_same_bits_in_floats(
    before: str, after: str, where: str
) -> None:
    given = rule(before, after, where)
    verdict = proved(given)
    assert verdict.exact == BITS
    claimed = replace(given, exact=verdict.exact, types=verdict.types, reverse=verdict.reverse)
    assert isinstance(recheck_rule(claimed, verdict.certificate), Confirmed)


@pytest.mark.parametrize(
    "where",
    [
        *("", "exact_sums(w)", "exact_sums(x)", "exact_sums(v - w)"),
        *("exact_sums(x - z)", "exact_sums(w - z)"),
    ],
)
def test_it_is_not_shown_without_the_condition(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(prove(rule(where=where), infer=False), Proved)
    right = rule()
    certificate = proved(right).certificate
    wrong = replace(right, where=(where,) if where else (), exact=BITS)
    assert not isinstance(recheck_rule(wrong, certificate), Confirmed)
    monkeypatch.setattr(prover, "search_counterexample", lambda *_, **__: Survived(10**6))
    assert not isinstance(prove(rule(where=where), infer=False), Proved)


def test_the_condition_is_found() -> None:
    verdict = prove(rule(where=""), weaken=True)
    assert isinstance(verdict, Proved), str(verdict)
    assert verdict.where == verdict.reverse == (CONDITION,)


SAME_WEIGHTS = "exact_sums(w)"


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        pytest.param(GIVEN, f"Conv({PLAIN[0]}, {WEIGHTS}, pads=[1, 1, 1, 1], group=g)", CONDITION),
        pytest.param(GIVEN, f"Conv({IMAGE}, {PLAIN[1]}, pads=[1, 1, 1, 1], group=g)", CONDITION),
        pytest.param(
            GIVEN,
            f"Sub(Conv({PLAIN[0]}, {WEIGHTS}, pads=[1, 1, 1, 1], group=g), Cast(z, to='REAL'))",
            CONDITION,
        ),
        pytest.param(
            "NearestFloat(ConvInteger(x, w, z, group=g, pads=[1, 1, 1, 1]))",
            f"Conv(Cast(x, to='REAL'), {PLAIN[1]}, pads=[1, 1, 1, 1], group=g)",
            SAME_WEIGHTS,
        ),
    ],
    ids=["zero-point-forgotten", "weights-shifted", "zero-point-after", "border-of-codes"],
)
def test_what_is_wrong_is_refuted(before: str, after: str, where: str) -> None:
    assert isinstance(prove(rule(before, after, where), infer=False), Refuted)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # A sum of two such sums has a bit more.
        (
            "NearestFloat(Add(ConvInteger(x, w, group=g), ConvInteger(y, w, group=g)))",
            "Add(Conv(Cast(x, to='REAL'), Cast(w, to='REAL'), group=g), "
            "Conv(Cast(y, to='REAL'), Cast(w, to='REAL'), group=g))",
        ),
        # Integers that are compared are not the floats nearest to them.
        ("Max(NearestFloat(i), NearestFloat(j))", "Sub(NearestFloat(i), NearestFloat(j))"),
        ("NearestFloat(Add(i, j))", "Add(NearestFloat(i), NearestFloat(j))"),
        ("Equal(NearestFloat(i), NearestFloat(j))", "Equal(i, j)"),
        ("NearestFloat(Mul(i, j))", "Mul(NearestFloat(i), NearestFloat(j))"),
    ],
)
def test_other_integers_are_not_the_floats_nearest_to_them(before: str, after: str) -> None:
    inputs = f"{INPUTS} y[N, C, H, W]:code i[n]:int j[n]:int"
    given = rule(before, after, SAME_WEIGHTS, inputs)
    assert not isinstance(prove(given, infer=False), Proved)
