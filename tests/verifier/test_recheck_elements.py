# ruff: noqa: E501 - rules are lines
"""The recheck of what a rule needs of elements that are no numbers, and of how its sides agree."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from certificates import Data
from hypothesis import given, settings
from hypothesis import strategies as st

from xflow.core.constraint import in_range
from xflow.core.errors import ShapeError
from xflow.core.evaluation import run
from xflow.core.size import symbol
from xflow.core.sorts import REAL
from xflow.rewriting.declarations import parse_sorts
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Proved, prove
from xflow.verifier.recheck.check import assumptions, recheck_rule, statement_of
from xflow.verifier.recheck.elements import Elements, elements_of
from xflow.verifier.recheck.floats import concrete
from xflow.verifier.recheck.forms import Unreplayable
from xflow.verifier.recheck.hidden import Shown, what_shows
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.verdicts import Confirmed, NotConfirmed, Wrong


def one(inputs: str, left: str, right: str, where: str = "", **lines: str) -> Rule:
    stanza = {"in": inputs, "from": left, "to": right, "where": where, **lines}
    text = "\n".join(f"  {key} {value}" for key, value in stanza.items() if value)
    (rule,) = parse_rules(f"rule r\n{text}\n")
    return rule


def names_in(inputs: str) -> list[str]:
    """The names of the inputs of real numbers."""
    return [name for name, sort in parse_sorts(inputs).items() if sort == REAL]


def elements(rule: Rule) -> Elements:
    """What the sides of a rule of one output read at the output's index."""
    instance = rule.instance(rule.ranks[0])
    (left,), (right,) = instance.lhs, instance.rhs
    index = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
    ranges = [c for i, n in zip(index, left.shape, strict=True) for c in in_range(i, n)]
    questions = Questions([*assumptions(instance), *(c for c in ranges if c.decided is None)])
    return elements_of(Shown((left, right), frozenset()), index, questions, instance.facts)


# Elements that matter ----------------------------------------------------------------------------

NEEDED = [
    ("c[...]:bool x[...]", "Where(c, x, 0)", "Mul(x, Cast(c, to='REAL'))", "finite(x)"),
    ("c[...]:bool x[...] y[...]", "Where(c, Mul(x, y), 0)", "Mul(x, Where(c, y, 0))", "finite(x)"),
    ("x[...]", "Where(Less(x, 6), x, 6)", "Clip(x, max=6)", "finite(x)"),
    ("x[...]", "Where(Equal(x, x), x, 0)", "x", "finite(x)"),
    ("x[...] y[...]", "LessOrEqual(x, y)", "Not(Greater(x, y))", "finite(x), finite(y)"),
    (
        "x[...] y[...]",
        "Where(LessOrEqual(x, 0), 0, y)",
        "Where(Greater(x, 0), y, 0)",
        "finite(x), finite(y)",
    ),
    ("x[...] y[...]", "Where(Less(x, y), x, y)", "Min(x, y)", "finite(x), finite(y)"),
    ("x[...] y[...]", "Relu(Mul(x, Exp(y)))", "Mul(Relu(x), Exp(y))", "finite(x), finite(y)"),
    ("x[...]", "Tanh(Neg(x))", "Neg(Tanh(x))", "finite(x)"),
    ("x[...] y[...]", "Mul(y, 0)", "Mul(Mul(x, y), 0)", "finite(x)"),
    (
        "x[n, m] y[n, k]",
        "Slice(Concat(x, y, axis=1), starts=[0], ends=[m], axes=[1], steps=[1])",
        "Add(x, Mul(0, ReduceSum(y, axes=[1])))",
        "finite(y)",
    ),
    (
        "x[n, m] w[m, k]",
        "MatMul(x, w)",
        "Slice(MatMul(Pad(x, pads=[0, 0, 1, 0]), w), starts=[0], ends=[n], axes=[0], steps=[1])",
        "",
    ),
    ("x[n]", "ReduceMax(x)", "Neg(ReduceMin(Neg(x)))", "finite(x)"),
]
"""Rules that are true of numbers, and what the left side does not make sure of."""


@pytest.mark.parametrize(("inputs", "left", "right", "needs"), NEEDED, ids=str)
def test_what_the_left_side_does_not_make_sure_of_has_to_be_among_the_conditions(
    inputs: str, left: str, right: str, needs: str | None
) -> None:
    if needs is None:
        return
    assert elements(one(inputs, left, right, needs)).unshown() is None
    conditions = needs.split(", ") if needs else []
    for dropped in conditions:
        rest = ", ".join(c for c in conditions if c != dropped)
        unshown = elements(one(inputs, left, right, rest)).unshown()
        assert unshown is not None
        name = dropped.removeprefix("finite(").removesuffix(")")
        assert unshown.startswith(f"{name}[")


GRANTED = [
    ("x[...] y[...] z[...]", "Add(Add(x, y), z)", "Add(x, Add(y, z))"),
    ("c[...]:bool x[...]", "Mul(x, Cast(c, to='REAL'))", "Where(c, x, 0)"),
    (
        "c[...]:bool x[...] y[...] z[...]",
        "Where(c, Add(x, z), Add(y, z))",
        "Add(Where(c, x, y), z)",
    ),
    ("c[...]:bool x[...] y[...]", "Where(Not(c), x, y)", "Where(c, y, x)"),
    (
        "x[n, m] y[n, k]",
        "ReduceSum(Concat(x, y, axis=1), axes=[1])",
        "Add(ReduceSum(x, axes=[1]), ReduceSum(y, axes=[1]))",
    ),
    (
        "x[n, m] y[n, k]",
        "Add(ReduceSum(x, axes=[1]), ReduceSum(y, axes=[1]))",
        "ReduceSum(Concat(x, y, axis=1), axes=[1])",
    ),
    ("x[n, m]", "ReduceSum(x)", "ReduceSum(Reshape(x, shape=[n * m]), axes=[0], keepdims=1)"),
    (
        "x[n, m]",
        "ReduceSum(Reshape(x, shape=[n * m]))",
        "ReduceSum(ReduceSum(x, axes=[0]), axes=[1])",
    ),
    (
        "x[n]",
        "ReduceSum(x)",
        "ReduceSum(Concat(Slice(x, starts=[0], ends=[1], axes=[0], steps=[1]), Slice(x, starts=[1], ends=[n], axes=[0], steps=[1]), axis=0))",
    ),
    (
        "x[n, m] w[m, k] v[m, l]",
        "MatMul(x, Concat(w, v, axis=1))",
        "Concat(MatMul(x, w), MatMul(x, v), axis=1)",
    ),
    (
        "x[n]",
        "Slice(x, starts=[1], ends=[n], axes=[0], steps=[1])",
        "Slice(Pad(x, pads=[1, 0]), starts=[2], ends=[n + 1], axes=[0], steps=[1])",
    ),
    (
        "x[2 * n]",
        "ReduceSum(x)",
        "ReduceSum(Add(Slice(x, starts=[0], ends=[n], axes=[0], steps=[1]), Slice(x, starts=[n], ends=[2 * n], axes=[0], steps=[1])))",
    ),
    (
        "x[2 * n]",
        "ReduceSum(Add(Slice(x, starts=[0], ends=[n], axes=[0], steps=[1]), Slice(x, starts=[n], ends=[2 * n], axes=[0], steps=[1])))",
        "ReduceSum(x)",
    ),
]
"""Rules that need nothing."""


@pytest.mark.parametrize(("inputs", "left", "right"), GRANTED, ids=str)
def test_what_the_left_side_reads_itself_needs_no_condition(
    inputs: str, left: str, right: str
) -> None:
    assert elements(one(inputs, left, right)).unshown() is None


NOT_GRANTED = [
    (
        "x[n]",
        "Slice(x, starts=[1], ends=[n], axes=[0], steps=[1])",
        "Slice(Concat(x, ReduceSum(x), axis=0), starts=[2], ends=[n + 1], axes=[0], steps=[1])",
    ),
    (
        "x[n, m]",
        "Slice(x, starts=[1], ends=[n], axes=[0], steps=[1])",
        "Slice(x, starts=[0], ends=[n - 1], axes=[0], steps=[1])",
    ),
    ("x[n, n]", "Transpose(x)", "x"),
    ("x[n] c[n]:bool", "Where(c, x, 0)", "Where(Not(c), x, 0)"),
    ("x[n] c[n]:bool", "ReduceSum(Where(c, x, 0))", "ReduceSum(x)"),
    ("x[n, m]", "ReduceSum(x, axes=[0])", "Add(ReduceSum(x, axes=[0]), ReduceSum(x))"),
    ("x[n] i[k]:int", "ReduceSum(Gather(x, i))", "ReduceSum(x)"),
    ("x[n, m] w[m, k]", "ReduceSum(MatMul(x, w))", "ReduceSum(x)"),  # there may be no column
    (
        "x[2 * n]",
        "Slice(x, starts=[0], ends=[n], axes=[0], steps=[1])",
        "Slice(x, starts=[n], ends=[2 * n], axes=[0], steps=[1])",
    ),
]
"""Right sides that read what the left side does not."""


@pytest.mark.parametrize(("inputs", "left", "right"), NOT_GRANTED, ids=str)
def test_what_the_left_side_does_not_read_is_not_taken_for_a_number(
    inputs: str, left: str, right: str
) -> None:
    assert elements(one(inputs, left, right)).unshown() is not None


AXES = (("A", "P", "a", "f"), ("B", "Q", "b", "g"), ("D", "R", "d", "h"))
"""Of three axes the extents of an image and of a kernel, and the pads at both ends."""
MEETS = [
    text for n, k, e, f in AXES for text in (f"{k} >= {e} + 1", f"{k} >= {f} + 1", f"{n} >= 1")
]
"""Under these, each window has a place in the image."""


@pytest.mark.parametrize("dropped", [None, *MEETS])
def test_what_each_window_reads_somewhere_is_a_number(dropped: str | None) -> None:
    image, kernel, before, after = (", ".join(names) for names in zip(*AXES, strict=True))
    rule = one(
        f"x[1, 1, {image}] w[1, 1, {kernel}] c[]",
        f"Conv(Mul(x, c), w, pads=[{before}, {after}])",
        f"Mul(Conv(x, w, pads=[{before}, {after}]), c)",
        ", ".join(text for text in MEETS if text != dropped),
        param=" ".join((before + ", " + after).split(", ")),
    )
    # Without a place in the image, 0 is multiplied by it on the right side alone.
    assert (elements(rule).unshown() is None) is (dropped is None)


@pytest.mark.parametrize(("axes", "moves"), [("2", True), ("2, 3", True), ("1", False)])
def test_the_sum_of_one_result_of_a_kernel_is_that_result(axes: str, moves: bool) -> None:
    side = f"ReduceSum(GlobalMaxPool(x), axes=[{axes}])"
    instance = one("x[1, C, H, W]", side, side, "x < inf").instance(0)
    (left,), (right,) = instance.lhs, instance.rhs
    shown = what_shows(instance, left, right, assumptions(instance))
    assert (not shown[0].hidden and not shown[0].unsteady) is moves


# A side of sums, products, movements and choices has no value where it reads what has none. So what
# the right side reads can be told by evaluation: one element after the other is made NaN.

SIDES = st.recursive(
    st.just("x"),
    lambda inner: st.one_of(
        st.builds(
            "Pad({}, pads=[{}, 0, {}, 0])".format, inner, st.integers(-1, 2), st.integers(0, 2)
        ),
        st.builds(
            "Slice({}, starts=[{}], ends=[{}], axes=[{}], steps=[{}])".format,
            inner,
            st.integers(0, 2),
            st.integers(3, 5),
            st.integers(0, 1),
            st.integers(1, 2),
        ),
        st.builds("Concat({}, {}, axis={})".format, inner, inner, st.integers(0, 1)),
        st.builds("Transpose({})".format, inner),
        st.builds("ReduceSum({}, axes=[{}])".format, inner, st.integers(0, 1)),
        st.builds("Mul({}, 0)".format, inner),
        st.builds("Add({}, {})".format, inner, inner),
        st.builds("Where(c, {}, {})".format, inner, inner),
        st.builds("MatMul({}, Transpose({}))".format, inner, inner),
    ),
    max_leaves=3,
)


def _rule(left: str, right: str) -> Rule | None:
    try:
        return one("x[n, n] c[1, 1]:bool", left, right)
    except Exception:  # sides of different shapes, or without sense
        return None


@settings(max_examples=60, deadline=None)
@given(SIDES, SIDES)
def test_elements_that_are_shown_to_be_numbers_are_numbers(left: str, right: str) -> None:
    rule = _rule(left, right)
    if rule is None:
        return
    try:
        if elements(rule).unshown() is not None:
            return
    except Unreplayable:
        return
    instance = rule.instance(0)
    for n, chosen in itertools.product(range(2, 6), (False, True)):
        try:
            sides = concrete((*instance.lhs, *instance.rhs), {"n": n}, {})
        except ShapeError:
            continue
        for place in np.ndindex(n, n):
            x = np.ones((n, n))
            x[place] = np.nan
            a, b = run(sides, {"x": x, "c": np.full((1, 1), chosen)})
            if a.shape != b.shape:
                continue
            assert not (np.isfinite(a) & ~np.isfinite(b)).any(), (n, chosen, place)


# Certificates ------------------------------------------------------------------------------------

RULES = {
    "masked-product": (
        "c[...]:bool x[...] y[...]",
        "Where(c, Mul(x, y), 0)",
        "Mul(x, Where(c, y, 0))",
    ),
    "cut-off": ("x[...]", "Where(Less(x, 6), x, 6)", "Clip(x, max=6)"),
    "greatest-twice": (
        "x[n, k]",
        "ReduceMax(Concat(x, x, axis=1), axes=[1])",
        "ReduceMax(x, axes=[1])",
    ),
    "masked-softmax": (
        "x[n, k] m[n, k]",
        "Softmax(Add(x, m), axis=1)",
        "Div(Exp(Add(m, x)), ReduceSum(Exp(Add(m, x)), axes=[1]))",
    ),
    "greatest-mask": (
        "x[n, k] m[n, k]",
        "ReduceMax(Concat(x, m, axis=1), axes=[1])",
        "Max(ReduceMax(x, axes=[1]), ReduceMax(m, axes=[1]))",
    ),
}


def proved(name: str) -> tuple[Rule, Data]:
    """A rule with the conditions that the prover finds, and its certificate."""
    rule = one(*RULES[name])
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    rule = replace(rule, where=verdict.where, exact=verdict.exact, limits=verdict.limits)
    return rule, json.loads(json.dumps(verdict.certificate))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_confirmed_with_its_conditions_and_with_none_of_them_less(name: str) -> None:
    rule, certificate = proved(name)
    verdict = recheck_rule(rule, certificate)
    assert isinstance(verdict, Confirmed), str(verdict)
    assert rule.where
    for dropped in rule.where:
        weaker = replace(rule, where=tuple(text for text in rule.where if text != dropped))
        claim = certificate | statement_of(weaker)
        assert isinstance(recheck_rule(weaker, claim), NotConfirmed), dropped


def test_numbers_or_minus_infinity_is_less_than_numbers() -> None:
    rule = one("x[...]", "Where(Less(x, 6), x, 6)", "Clip(x, max=6)", "finite(x)")
    verdict = prove(rule, both_ways=False, infer=False)
    assert isinstance(verdict, Proved)
    assert isinstance(recheck_rule(rule, verdict.certificate), Confirmed)
    weaker = replace(rule, where=("x < inf",))
    assert isinstance(
        recheck_rule(weaker, verdict.certificate | statement_of(weaker)), NotConfirmed
    )


LIMITS = [
    ("x[...] m[...]", "Exp(Add(x, m))", "Exp(Add(m, x))", "m", True),
    ("x[...] m[...]", "Relu(Add(x, m))", "Max(0, Add(m, x))", "x m", True),
    ("x[...] m[...]", "Add(x, Mul(2, m))", "Add(Add(m, x), m)", "m", True),
    ("x[...] m[...]", "Sub(x, m)", "Sub(Add(x, 1), Add(m, 1))", "x", True),
    ("x[...] m[...]", "Sub(x, m)", "Sub(Add(x, 1), Add(m, 1))", "m", False),
    ("x[...] m[...]", "Mul(Mul(x, m), 3)", "Mul(Mul(3, m), x)", "m", False),
    ("m[...]", "Floor(Mul(6, Exp(m)))", "Floor(Mul(2, Mul(3, Exp(m))))", "m", False),
    ("m[...]", "Abs(Mul(6, m))", "Abs(Mul(2, Mul(3, m)))", "m", False),
    ("m[n]", "ReduceMax(m)", "ReduceMax(Concat(m, m, axis=0))", "m", True),
    ("m[...]", "Tanh(Mul(6, m))", "Tanh(Mul(2, Mul(3, m)))", "m", False),
]


@pytest.mark.parametrize(("inputs", "left", "right", "names", "holds"), LIMITS, ids=str)
def test_an_input_has_minus_infinity_for_a_limit_only_where_both_sides_go_to_one(
    inputs: str, left: str, right: str, names: str, holds: bool
) -> None:
    needs = ", ".join(f"finite({n})" for n in names_in(inputs) if n not in names.split())
    below = ", ".join(f"{n} < inf" for n in names.split())
    rule = one(inputs, left, right, ", ".join(filter(None, (needs, below))), limits=names)
    assert elements(rule).unsteady.isdisjoint(names.split()) is holds
    finite = ", ".join(f"finite({n})" for n in names_in(inputs))
    found = prove(one(inputs, left, right, finite), infer=False, both_ways=False)
    assert isinstance(found, Proved), str(found)
    for claimed in (rule, replace(rule, where=one(inputs, left, right, finite).where)):
        verdict = recheck_rule(claimed, found.certificate | statement_of(claimed))
        assert isinstance(verdict, Confirmed) is holds, str(verdict)


SHIFTED = ("x[n, k] m[n, 1]", "Softmax(x, axis=1)", "Softmax(Add(x, m), axis=1)")


def test_an_exponential_of_minus_infinity_is_not_positive() -> None:
    """``exp(m)`` in numerator and denominator cancels only where it is not 0."""
    rule = one(*SHIFTED, "finite(x), finite(m)")
    verdict = prove(rule, infer=False, both_ways=False)
    assert isinstance(verdict, Proved)
    finite = replace(rule, limits=())
    assert isinstance(recheck_rule(finite, verdict.certificate), Confirmed)
    masked = one(*SHIFTED, "finite(x), m < inf")
    refused = recheck_rule(masked, verdict.certificate | statement_of(masked))
    assert isinstance(refused, NotConfirmed)
    assert "undefined" in refused.reason


# Agreement to the bit ----------------------------------------------------------------------------

EXACT = [
    ("x[...] y[...]", "Add(x, y)", "Add(y, x)", "bits", Confirmed),
    ("x[...] y[...]", "Sub(x, y)", "Add(x, Neg(y))", "bits", Confirmed),
    ("x[...]", "Mul(x, 2)", "Add(x, x)", "bits", Confirmed),
    ("x[...]", "Mul(x, -1)", "Neg(x)", "bits", Confirmed),
    ("x[...]", "Relu(x)", "Max(x, 0)", "bits", Confirmed),
    ("x[...]", "Relu(x)", "Max(x, 0)", "bits", Confirmed),
    ("x[...]", "Relu(x)", "Clip(x, min=0)", "bits", NotConfirmed),
    ("x[...]", "Mul(x, x)", "Pow(x, 2)", "bits", Confirmed),
    ("x[...]", "Reciprocal(x)", "Div(1, x)", "bits", Confirmed),
    ("x[...] y[...]", "Less(x, y)", "Greater(y, x)", "bits", Confirmed),
    ("x[n, m]", "Transpose(Sigmoid(x))", "Sigmoid(Transpose(x))", "bits", Confirmed),
    (
        "x[n, m] y[n, k]",
        "Exp(Concat(x, y, axis=1))",
        "Concat(Exp(x), Exp(y), axis=1)",
        "bits",
        Confirmed,
    ),
    ("a[n, m] b[m, k]", "Transpose(Transpose(MatMul(a, b)))", "MatMul(a, b)", "bits", Confirmed),
    ("c[...]:bool x[...] y[...]", "Where(Not(c), x, y)", "Where(c, y, x)", "bits", Confirmed),
    ("x[...] y[...] z[...]", "Add(Add(x, y), z)", "Add(x, Add(y, z))", "bits", Wrong),
    ("x[...] y[...] z[...]", "Add(Add(x, y), z)", "Add(x, Add(y, z))", "numbers", NotConfirmed),
    ("x[...] y[...] z[...]", "Mul(Mul(x, y), z)", "Mul(x, Mul(y, z))", "bits", Wrong),
    ("x[...] y[...] z[...]", "Mul(x, Add(y, z))", "Add(Mul(x, y), Mul(x, z))", "bits", Wrong),
    ("x[...] y[...]", "Div(x, y)", "Mul(x, Reciprocal(y))", "bits", Wrong),
    ("x[...]", "Div(x, 3)", "Mul(x, 1/3)", "bits", Wrong),
    ("x[...]", "Sqrt(x)", "Pow(x, 1/2)", "bits", Wrong),
    ("x[...]", "Swish(x)", "Mul(x, Sigmoid(x))", "bits", NotConfirmed),
    ("x[...]", "Sigmoid(x)", "Reciprocal(Add(1, Exp(Neg(x))))", "bits", NotConfirmed),
    (
        "a[n, m] b[m, k]",
        "Transpose(MatMul(a, b))",
        "MatMul(Transpose(b), Transpose(a))",
        "bits",
        NotConfirmed,
    ),
    ("x[n, m]", "ReduceSum(x)", "ReduceSum(ReduceSum(x, axes=[0]))", "bits", NotConfirmed),
    ("x[n, m]", "ReduceSum(x)", "ReduceSum(Transpose(x))", "bits", NotConfirmed),
    ("x[...]", "Mul(x, 0)", "0", "bits", Wrong),
    ("x[...]", "Max(Neg(x), 0)", "Neg(Min(x, 0))", "bits", Confirmed),
    ("x[...] y[...]", "Min(x, y)", "Neg(Max(Neg(x), Neg(y)))", "numbers", Confirmed),
    ("x[n]", "ReduceMax(x)", "ReduceMax(Concat(x, x, axis=0))", "numbers", Confirmed),
    ("x[n]", "ReduceMax(x)", "ReduceMax(Concat(x, x, axis=0))", "bits", NotConfirmed),
    ("x[...]", "Where(Less(x, 6), x, 6)", "Clip(x, max=6)", "numbers", Confirmed),
    ("x[...]", "Where(Less(x, 6), x, 6)", "Min(x, 6)", "bits", Wrong),
    ("x[...]", "Where(Less(x, 6), x, 6)", "Clip(x, max=6)", "bits", NotConfirmed),
    ("x[...] y[...]", "LessOrEqual(x, y)", "Not(Greater(x, y))", "bits", Wrong),
    ("x[...]", "Where(Equal(x, x), x, 0)", "x", "bits", Wrong),
    ("x[...]", "Mul(Relu(x), 1/2)", "Relu(Mul(x, 1/2))", "numbers", NotConfirmed),
]
"""Rules that are true of numbers, what is claimed of their rounding, and the verdict."""


@pytest.mark.parametrize(("inputs", "left", "right", "exact", "verdict"), EXACT, ids=str)
def test_sides_that_are_said_to_agree_to_the_bit_do(
    inputs: str, left: str, right: str, exact: str, verdict: type
) -> None:
    reals = names_in(inputs)
    where = "" if exact == "bits" else ", ".join(f"finite({name})" for name in reals)
    plain = one(inputs, left, right, ", ".join(f"finite({name})" for name in reals))
    found = prove(plain, infer=False, both_ways=False)
    assert isinstance(found, Proved), str(found)
    rule = one(inputs, left, right, where, exact=exact)
    result = recheck_rule(rule, found.certificate | statement_of(rule))
    assert isinstance(result, verdict), str(result)


def test_a_certificate_has_to_claim_what_the_rule_says_of_bits_and_limits() -> None:
    rule, certificate = proved("greatest-mask")
    assert rule.exact == "numbers"
    assert rule.limits == ("x", "m")
    assert isinstance(recheck_rule(rule, certificate), Confirmed)
    for key in ("exact", "limits"):
        less = {k: v for k, v in certificate.items() if k != key}
        assert isinstance(recheck_rule(rule, less), Wrong)
    assert isinstance(recheck_rule(replace(rule, exact=None, limits=()), certificate), Confirmed)
