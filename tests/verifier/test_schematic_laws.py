"""Laws of any elementwise operator: proved once, confirmed by the second checker, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest
from equations import one
from graphs import call, tensor
from mutate import Mutant, is_typed, mutants, sample

from xflow.core.errors import RuleFileError
from xflow.core.sorts import AND_INTEGERS, REALS_ONLY
from xflow.generator.settle import Fate, settle
from xflow.ops import operator, operators
from xflow.ops.schematic import is_function
from xflow.rewriting.numerics import EXACT
from xflow.rewriting.rule import BITS, Rule
from xflow.verifier.proof.types import types_of
from xflow.verifier.prove import Proved, prove
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.verdicts import Confirmed
from xflow.verifier.refutation.refute import Survived, search_counterexample
from xflow.verifier.rounding.measure import measure

CUT = "starts=[h], ends=[j], axes=[0], steps=[1]"
LAWS = {
    "transpose": one(
        "x[a, b]",
        "Elementwise(Transpose(x, perm=[1, 0]))",
        "Transpose(Elementwise(x), perm=[1, 0])",
    ),
    "concat": one(
        "x[a, *S] y[b, *S]",
        "Elementwise(Concat(x, y, axis=0))",
        "Concat(Elementwise(x), Elementwise(y), axis=0)",
        "  rank 0 1 2\n",
    ),
    "reshape": one(
        "x[a, b]", "Elementwise(Reshape(x, shape=[b, a]))", "Reshape(Elementwise(x), shape=[b, a])"
    ),
    "slice": one(
        "x[a]", f"Elementwise(Slice(x, {CUT}))", f"Slice(Elementwise(x), {CUT})", "  param h j\n"
    ),
    "gather": one(
        "x[a, b] i[K]:int",
        "Elementwise(Gather(x, i, axis=0))",
        "Gather(Elementwise(x), i, axis=0)",
    ),
    "expand": one(
        "x[a, 1]",
        "Elementwise(Expand(x, shape=[a, m]))",
        "Expand(Elementwise(x), shape=[a, m])",
        "  param m\n",
    ),
    "where": one(
        "x[...] c[...]:bool y[...]",
        "Where(c, Elementwise(x), Elementwise(y))",
        "Elementwise(Where(c, x, y))",
    ),
    "transposes": one(
        "x[a, b] y[a, b]",
        "Elementwise(Transpose(x, perm=[1, 0]), Transpose(y, perm=[1, 0]))",
        "Transpose(Elementwise(x, y), perm=[1, 0])",
    ),
    "a number": one(
        "x[a, b] k[]",
        "Elementwise(Reshape(x, shape=[b, a]), k)",
        "Reshape(Elementwise(x, k), shape=[b, a])",
    ),
    "joined": one(
        "x[a, m] y[b, m] r[1, m]",
        "Elementwise(r, Concat(x, y, axis=0))",
        "Concat(Elementwise(r, x), Elementwise(r, y), axis=0)",
    ),
    "pads": one(
        "x[a] y[a]",
        "ZeroPreserving(Pad(x, pads=[p, q]), Pad(y, pads=[p, q]))",
        "Pad(ZeroPreserving(x, y), pads=[p, q])",
        "  param p q\n",
    ),
    "pad": one(
        "x[a]",
        "ZeroPreserving(Pad(x, pads=[p, q]))",
        "Pad(ZeroPreserving(x), pads=[p, q])",
        "  param p q\n",
    ),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_what_moves_elements_takes_any_function_along(law: Rule) -> None:
    """Equal to the bit, whatever the inputs hold and whatever the function is."""
    found = settle(law, 0)
    assert found.fate is Fate.PROVED, found.reason
    assert (found.rule.exact, found.rule.where, found.rule.reverse) == (BITS, (), ())
    assert found.rule.types == AND_INTEGERS
    certificate = json.loads(json.dumps(found.certificate))
    assert isinstance(recheck_rule(found.rule, certificate), Confirmed)
    assert measure(found.rule).note == EXACT


def test_beside_arithmetic_or_order_they_are_functions_of_real_numbers() -> None:
    """Integers wrap around, so that a sum that is computed otherwise may be another one."""
    for inner in ("Add({}, {})", "Max({}, {})"):
        sides = (f"Elementwise({inner.format(*names)})" for names in ("xy", "yx"))
        assert types_of(one("x[a] y[a]", *sides)) == REALS_ONLY


@pytest.mark.parametrize(
    ("inputs", "left", "right", "more"),
    [
        ("x[a]", "Elementwise(Pad(x, pads=[p, q]))", "Pad(Elementwise(x), pads=[p, q])", "p q"),
        ("x[a] y[a]", "Elementwise(Add(x, y))", "Add(Elementwise(x), Elementwise(y))", ""),
        ("x[a]", "Elementwise(Elementwise(x))", "Elementwise(x)", ""),
        ("x[a]", "ZeroPreserving(ZeroPreserving(x))", "ZeroPreserving(x)", ""),
        ("x[a]", "Elementwise(Neg(x))", "Neg(Elementwise(x))", ""),
        ("x[a]", "ZeroPreserving(Mul(x, 2))", "Mul(ZeroPreserving(x), 2)", ""),
        ("x[a]", "Elementwise(x)", "ZeroPreserving(x)", ""),
        ("x[a]", "Elementwise(x)", "x", ""),
        ("x[a]", "ReduceMax(Elementwise(x), axes=[0])", "Elementwise(ReduceMax(x, axes=[0]))", ""),
        ("x[a]", "ReduceSum(Elementwise(x), axes=[0])", "Elementwise(ReduceSum(x, axes=[0]))", ""),
        ("x[a]", "Mul(Elementwise(x), 2)", "Mul(Relu(x), 2)", ""),
        ("x[a] y[a]", "Elementwise(x, y)", "Elementwise(y, x)", ""),
        ("x[a] y[a]", "Elementwise(x, y)", "Elementwise(x)", ""),
        ("x[a] y[a]", "Elementwise(x, Elementwise(y, x))", "Elementwise(Elementwise(x, y), x)", ""),
        ("x[a] y[a]", "ZeroPreserving(x, Mul(y, 0))", "x", ""),
        ("x[a] y[a]", "Elementwise(Mul(x, 2), Mul(y, 2))", "Mul(Elementwise(x, y), 2)", ""),
        (
            "x[a] y[]",
            "Pad(ZeroPreserving(x, y), pads=[1, 0])",
            "ZeroPreserving(Pad(x, pads=[1, 0]), y)",
            "",
        ),
    ],
)
def test_what_needs_more_of_the_function_is_not_proved(
    inputs: str, left: str, right: str, more: str
) -> None:
    law = one(inputs, left, right, f"  param {more}\n" if more else "")
    for rule in (law, replace(law, lhs=law.rhs, rhs=law.lhs)):
        assert not isinstance(prove(rule), Proved)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        # The function may be undefined where the other side does not ask for it.
        ("Elementwise(Mul(x, 2))", "Add(Elementwise(Mul(x, 2)), Mul(Elementwise(x), 0))"),
        ("Mul(x, 0)", "Mul(Elementwise(x), 0)"),
        (
            "Elementwise(Mul(x, 2))",
            "Mul(Elementwise(Mul(x, 2)), Div(Elementwise(x), Elementwise(x)))",
        ),
        ("Elementwise(x)", "Add(Elementwise(x), Sub(Elementwise(Neg(x)), Elementwise(Neg(x))))"),
    ],
)
def test_a_function_is_not_defined_at_other_arguments(left: str, right: str) -> None:
    """Not at a multiple of one at which it is, in contrast to a root or an inverse."""
    assert not isinstance(prove(one("x[a]", left, right), weaken=True), Proved)


@pytest.mark.parametrize(
    ("left", "right", "exact"),
    [
        ("Elementwise(Mul(x, 2))", "Elementwise(Add(x, x))", None),
        ("Elementwise(Mul(x, y))", "Elementwise(Mul(y, x))", BITS),
    ],
)
def test_what_is_computed_in_front_of_a_function_is_told_to_the_bit(
    left: str, right: str, exact: str | None
) -> None:
    """What differs by roundings may differ by anything behind a function that jumps."""
    found = prove(one("x[a] y[a]", left, right))
    assert isinstance(found, Proved)
    assert found.exact == exact
    if exact is None:
        law = replace(one("x[a] y[a]", left, right), where=found.where, exact=found.exact)
        assert {refusal.direction for refusal in measure(law).refusals} >= {"forward"}


WHIMS = ("Exp", "Floor", "Sign", "Log", "Sqrt", "Neg", "Cos", "Reciprocal", "Sub", "Div", "Max")
"""Operators that jump, that are undefined in places, that are large, odd or even."""
AT_ZERO = ("Relu", "Tanh", "Sqrt", "Neg", "Sin", "Sub", "Mul", "Min")


def of(law: Rule, name: str) -> Rule:
    """The law of one operator."""

    def named(side: str) -> str:
        return side.replace("Elementwise(", f"{name}(").replace("ZeroPreserving(", f"{name}(")

    return replace(law, lhs=named(law.lhs), rhs=named(law.rhs))


def count_proved(found: Iterable[Mutant]) -> int:
    """How many mutants are proved, none of which any operator refutes."""
    proved = 0
    for mutant in found:
        verdict = prove(mutant.rule) if is_typed(mutant.rule) else None
        if not isinstance(verdict, Proved):
            continue
        proved += 1
        for name in AT_ZERO if "ZeroPreserving" in str(mutant.rule) else WHIMS:
            law = of(replace(mutant.rule, where=verdict.where), name)
            if is_typed(law):  # of one input, or of two
                assert isinstance(search_counterexample(law), Survived), (mutant, name)
    return proved


def test_no_false_mutant_of_a_law_is_proved() -> None:
    """Proved of any function, it would be true of each: also of those that nobody thinks of."""
    assert count_proved(sample(list(LAWS.values()), 40, 1))


@pytest.mark.many
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_no_mutant_of_a_law_is_proved_and_false(law: Rule) -> None:
    print(f"{count_proved(mutants(law))} mutants are proved")


def test_a_constant_is_not_computed_by_an_operator_that_is_not_known() -> None:
    with pytest.raises(RuleFileError, match="of constants is no value"):
        one("x[...]", "Add(x, Elementwise(Scalar(value=2)))", "x")


OF_ONE = ("transpose", "concat", "reshape", "slice", "gather", "expand")
"""Laws of a function of one number."""


def true_of(name: str, laws: Iterable[str]) -> set[str]:
    """Those of the laws that evaluation does not refute for an operator; none of others is proved.

    That is how a property would be found out that is claimed of an operator that lacks it.
    """
    found = set()
    for each in laws:
        law = of(LAWS[each], name)
        if not is_typed(law):
            continue
        both = law, replace(law, lhs=law.rhs, rhs=law.lhs)  # a side may be defined nowhere
        false = [way for way in both if not isinstance(search_counterexample(way), Survived)]
        assert not any(isinstance(prove(way, infer=False), Proved) for way in false), law
        if not false:
            found.add(each)
    return found


@pytest.mark.parametrize(
    "name",
    [op.name for op in operators() if op.arity == (1, 1) and op.role != "view"],
)
def test_who_has_a_property_has_all_that_follows_from_it_and_nobody_else(name: str) -> None:
    op = operator(name)
    if any(spec.default is None for spec in op.attributes.values()) or op.schematic:
        pytest.skip("it is no function of numbers by itself")
    assert (true_of(name, OF_ONE) == set(OF_ONE)) == is_function(op)
    if is_function(op):
        attributes = call(name, tensor("x", 2)).node.attributes
        of_zero = operator("ZeroPreserving").stands_for(op, attributes, "FLOAT")
        assert (true_of(name, ["pad"]) == {"pad"}) == of_zero
