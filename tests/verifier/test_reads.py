"""What the prover asks of elements that may be no numbers, and what it says of -inf and of bits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Proved, prove


def one(inputs: str, left: str, right: str, where: str = "", param: str = "") -> Rule:
    stanza = {"in": inputs, "param": param, "from": left, "to": right, "where": where}
    lines = "".join(f"  {key} {text}\n" for key, text in stanza.items() if text)
    (rule,) = parse_rules(f"rule r\n{lines}")
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


def test_an_index_without_digits_is_no_failure() -> None:
    """Where the digits of an index are quotients by 0, it is read as it is."""
    conv = "Conv({}, w, b, group=g)"
    joined = f"Split({conv.format('Concat(x, y, axis=0)')}, axis=0, split=[N, D])"
    rule = one(
        "x[N, C, S] w[O, I, R] b[O] y[D, C, S]",
        f"{conv.format('x')}, {conv.format('y')}",
        f"{joined}[0], {joined}[1]",
        param="g",
    )
    assert proved(rule)


def test_minus_infinity_is_a_limit_only_where_it_is_one_in_both_directions() -> None:
    """From left to right ``log(exp(x))`` is to be a number where x is."""
    shifted = one("x[n] y[1]", "Add(y, ReduceLogSumExp(x))", "ReduceLogSumExp(Add(x, y))")
    forward = proved(replace(shifted, lhs=shifted.rhs, rhs=shifted.lhs))
    backward = proved(shifted)
    both = proved(shifted, both_ways=True)
    assert set(both.limits) == set(forward.limits) & set(backward.limits)
    assert set(forward.limits) != set(backward.limits)
    reverse = both.certificate["reverse"]
    assert isinstance(reverse, dict)
    assert set(str(both.certificate.get("limits", "")).split()) == set(both.limits)


def test_what_is_asked_of_infinities_is_true_of_integers() -> None:
    kept = proved(one("c[...]:bool x[...]", "Where(c, x, 0)", "Where(Not(c), 0, x)"))
    assert kept.types == "any"
    asked = proved(
        one("x[n, m] w[m, k] v[k, l]", "MatMul(MatMul(x, w), v)", "MatMul(x, MatMul(w, v))")
    )
    assert "finite(x)" in asked.where
    assert asked.types == "reals, integers"
    signed = proved(one("x[...] y[...]", "Mul(x, y)", "Mul(y, x)", "x > 0"))
    assert signed.types == "reals"
