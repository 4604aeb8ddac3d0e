"""What the prover asks of elements that may be no numbers, and what it says of -inf and of bits."""

from __future__ import annotations

import pytest

from xflow.rule import Rule, parse_rules
from xflow.verifier.prove import Proved, prove


def one(inputs: str, left: str, right: str, where: str = "") -> Rule:
    lines = f"  in {inputs}\n  from {left}\n  to {right}\n"
    (rule,) = parse_rules(f"rule r\n{lines}" + (f"  where {where}\n" if where else ""))
    return rule


def proved(rule: Rule, *, both_ways: bool = False, infer: bool = True) -> Proved:
    verdict = prove(rule, both_ways=both_ways, infer=infer)
    assert isinstance(verdict, Proved), str(verdict)
    return verdict


def test_an_exponential_of_minus_infinity_is_not_cancelled_in_a_denominator() -> None:
    """``exp(m) / sum exp(m)`` is no number where m is -inf, though ``1 / n`` is one."""
    shifted = one("x[n, k] m[n, 1]", "Softmax(x, axis=1)", "Softmax(Add(x, m), axis=1)")
    assert set(proved(shifted).where) == {"x < inf", "finite(m)"}
    apart = one("x[n, k] m[n, k]", "Softmax(Add(x, m), axis=1)", "Softmax(Add(m, x), axis=1)")
    assert "finite(m)" not in proved(apart).where


@pytest.mark.parametrize(
    ("left", "right", "exact"),
    [
        ("Pow(x, 1/2)", "Sqrt(x)", None),
        ("Pow(x, -1/2)", "Reciprocal(Sqrt(x))", None),
        ("Pow(x, -1)", "Reciprocal(x)", None),
        ("Pow(x, 2)", "Mul(x, x)", "bits"),
        ("Pow(x, 1)", "x", "bits"),
        ("Div(1, x)", "Reciprocal(x)", "bits"),
    ],
)
def test_a_power_is_not_computed_as_a_root_or_an_inverse(
    left: str, right: str, exact: str | None
) -> None:
    assert proved(one("x[n]", left, right)).exact == exact
