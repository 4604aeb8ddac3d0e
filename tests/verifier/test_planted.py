"""Inputs of which some elements are no numbers: what they refute, and the corpora of such rules."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from places import CORPUS

from xflow.core.graph import requirements
from xflow.core.node import complete_attributes
from xflow.core.registry import Array, Operator, operators
from xflow.core.sorts import BOOL, ELEMENT, REAL
from xflow.onnx.importer import import_model
from xflow.rewriting.declarations import parse_sorts
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.search.steps import Steps
from xflow.verifier import prove as prover
from xflow.verifier.database import verify_rule
from xflow.verifier.proof import instance as proof_of_instance
from xflow.verifier.prove import Proved, Refuted, prove
from xflow.verifier.recheck.check import assumptions, recheck_rule, statement_of
from xflow.verifier.recheck.verdicts import Confirmed
from xflow.verifier.refutation import planted
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.planted import (
    compare_on_planted,
    computes_exactly,
    plantable,
    search_planted,
)
from xflow.verifier.refutation.refute import Survived
from xflow.verifier.refutation.shrink import shrink

BAD, GOOD = (
    parse_rules((CORPUS / f"undefined-{kind}.rules").read_text("utf-8")) for kind in ("bad", "good")
)
CASES = 60
NAN, INF = np.nan, np.inf


def one(text: str) -> Rule:
    (rule,) = parse_rules("rule r\n" + text)
    return rule


def by_name(rules: list[Rule], name: str) -> Rule:
    return next(rule for rule in rules if rule.name == name)


# The corpora -------------------------------------------------------------------------------------


def test_there_are_more_than_forty_wrong_rules_of_each_kind_some() -> None:
    kinds = [rule.name.partition("-")[0] for rule in BAD]
    assert len(BAD) >= 60
    assert {kinds.count(kind) >= 5 for kind in ("needs", "limits", "exact")} == {True}


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.name)
def test_a_rule_that_is_wrong_of_what_is_no_number_is_refused(rule: Rule) -> None:
    assert verify_rule(rule) is not None


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.name)
def test_a_rule_that_is_wrong_of_what_is_no_number_is_refuted_by_planting(rule: Rule) -> None:
    found = search_planted(rule, cases=CASES)
    assert isinstance(found, Counterexample)
    smaller = shrink(rule, found)
    assert smaller.reason
    assert sum(a.size for a in smaller.inputs.values()) <= sum(
        a.size for a in found.inputs.values()
    )


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.name)
def test_a_rule_that_is_wrong_of_what_is_no_number_is_not_confirmed(rule: Rule) -> None:
    """Whatever its certificate says: here, what one says that holds for numbers."""
    numbers = [f"finite({n})" for n, sort in parse_sorts(rule.inputs).items() if sort == REAL]
    plain = replace(rule, where=(*rule.where, *numbers), exact=None, limits=())
    verdict = prove(plain, both_ways=False, infer=False)
    certificate: dict[str, Any]
    if isinstance(verdict, Proved):
        certificate = verdict.certificate
    else:
        instance = rule.instance(rule.ranks[0])
        part = {
            "rank": instance.rank,
            "assume": [str(c) for c in assumptions(instance)],
            "require": [str(c) for c in requirements(instance.rhs)],
            "outputs": [{"same expression": "x"} for _ in instance.lhs],
        }
        certificate = {"ranks": [part]}
    assert not isinstance(recheck_rule(rule, certificate | statement_of(rule)), Confirmed)


@pytest.mark.parametrize("rule", GOOD, ids=lambda rule: rule.name)
def test_a_rule_with_all_that_it_needs_is_proved_and_survives(rule: Rule) -> None:
    assert verify_rule(rule) is None
    for direction in rule.directions():
        assert isinstance(search_planted(direction, cases=CASES), Survived)


@pytest.mark.parametrize("rule", GOOD, ids=lambda rule: rule.name)
def test_a_rule_with_all_that_it_needs_is_confirmed(rule: Rule) -> None:
    for direction in rule.directions():
        verdict = prove(direction, both_ways=False, infer=False)
        assert isinstance(verdict, Proved)
        found = recheck_rule(replace(direction, name="direction"), verdict.certificate)
        assert isinstance(found, Confirmed), str(found)


@pytest.mark.parametrize("rule", GOOD, ids=lambda rule: rule.name)
def test_none_of_the_conditions_can_be_done_without(rule: Rule) -> None:
    for direction in rule.directions():
        for text in direction.where:
            weaker = replace(direction, where=tuple(t for t in direction.where if t != text))
            assert not isinstance(prove(weaker, both_ways=False, infer=False), Proved), text


# What is planted ---------------------------------------------------------------------------------


def test_what_the_conditions_forbid_is_not_planted() -> None:
    rule = one(
        "  in a[n] b[n] c[n] d[n] e[n]:bool\n"
        "  from Where(e, Add(Add(a, b), Add(c, d)), 0)\n"
        "  to Where(e, Add(Add(d, c), Add(a, b)), 0)\n"
        "  where finite(a), b < inf, c >= 0\n"
    )
    (instance,) = rule.instances()
    allowed = plantable(instance)
    assert allowed.keys() == {"b", "d"}
    assert allowed["b"] == (-INF,)
    assert set(map(str, allowed["d"])) == {"nan", "inf", "-inf"}
    rng = random.Random(0)
    met: dict[str, set[str]] = {}

    def note(_: object, __: object, ___: object, inputs: dict[str, Array], *____: object) -> int:
        for name, array in inputs.items():
            if array.dtype.kind == "f":
                met.setdefault(name, set()).update(map(str, array[~np.isfinite(array)].tolist()))
        return 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planted, "compare_on_planted", note)
        for _ in range(200):
            planted.compare_planted(instance, {"n": 3}, rng)
    assert met == {
        "a": set(),
        "b": {"-inf"},
        "c": set(),
        "d": {"nan", "inf", "-inf"},
    }


def compared(
    rule: Rule, inputs: dict[str, Array], unlimited: dict[str, Array] | None = None
) -> bool:
    """Whether nothing is wrong with a rule of scalars on these inputs."""
    (instance,) = rule.instances()
    outcome = compare_on_planted(instance, {}, {}, inputs, unlimited)
    assert outcome != 0
    return not isinstance(outcome, Counterexample)


GUARD = "  in c[...]:bool x[...]\n  from Where(c, x, 0)\n  to Mul(x, Cast(c, to='REAL'))\n"


@pytest.mark.parametrize(("x", "holds"), [(1.0, True), (NAN, False), (INF, False), (-INF, False)])
def test_where_the_left_side_is_a_number_the_right_one_has_to_be_it(x: float, holds: bool) -> None:
    chosen, other = np.array(True), np.array(False)
    assert compared(one(GUARD), {"c": other, "x": np.array(x)}) is holds
    assert compared(one(GUARD), {"c": chosen, "x": np.array(x)})


def test_bits_tell_infinities_and_roundings() -> None:
    plain = one("  in x[n] y[n]\n  from Mul(Add(x, y), 3)\n  to Add(Mul(x, 3), Mul(y, 3))\n")
    inputs = {"x": np.linspace(0.1, 0.9, 5), "y": np.linspace(0.7, 0.3, 5)}
    (instance,) = plain.instances()
    exact = replace(instance, exact="bits")
    assert compare_on_planted(instance, {"n": 5}, {}, inputs) == 1
    assert isinstance(compare_on_planted(exact, {"n": 5}, {}, inputs), Counterexample)
    sign = one("  in x[...]\n  from Neg(Abs(x))\n  to Neg(Sqrt(Mul(x, x)))\n  exact bits\n")
    assert compared(sign, {"x": np.array(-INF)})
    zero = one("  in x[...]\n  from Sub(x, x)\n  to Mul(x, 0)\n  exact bits\n")
    for x in (1.0, NAN, INF):
        assert compared(zero, {"x": np.array(x)})


def test_kernels_are_not_taken_for_what_defines_them_where_bits_are_compared() -> None:
    swish = one("  in x[n]\n  from Swish(x)\n  to Mul(x, Sigmoid(x))\n  exact bits\n")
    assert isinstance(search_planted(swish, cases=CASES), Counterexample)
    same = one("  in x[n, m]\n  from Swish(Transpose(x))\n  to Transpose(Swish(x))\n  exact bits\n")
    assert isinstance(search_planted(same, cases=CASES), Survived)


def test_minus_infinity_is_compared_only_where_nothing_else_is_planted() -> None:
    rule = one("  in m[...]\n  from m\n  to Add(m, Sub(m, m))\n  limits m\n")
    number = {"m": np.array(1.0)}
    assert not compared(rule, {"m": np.array(-INF)}, number)
    assert compared(rule, {"m": np.array(-INF)})
    shifted = one("  in m[...]\n  from m\n  to Sub(Add(m, 1), 1)\n  limits m\n")
    assert compared(shifted, {"m": np.array(-INF)}, number)


def test_nothing_is_claimed_of_minus_infinity_that_a_quotient_makes() -> None:
    """As of a normalization where the variance is -epsilon: -1 / 0 is -inf whatever is added."""
    rule = one(
        "  in x[...] m[...] v[...]\n  from Add(Div(x, v), m)\n"
        "  to Add(Mul(Div(x, v), v), Add(m, Sub(Div(x, v), x)))\n  limits m\n"
    )
    inputs = {"x": np.array(-1.0), "m": np.array(-INF), "v": np.array(0.0)}
    assert compared(rule, inputs, {**inputs, "m": np.array(1.0)})
    inputs["v"] = np.array(0.5)
    assert compared(rule, inputs, {**inputs, "m": np.array(1.0)})


@pytest.mark.parametrize(("least", "allowed"), [("zero", False), ("one", True)])
def test_a_mask_may_be_added_elsewhere_only_where_no_logarithm_is_infinite(
    least: str, allowed: bool
) -> None:
    """Of the logarithm of 0 the line ``limits`` says nothing, and the exponential may hide it."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 23]>
        g (float[4] a, float[4] s, bool[4] q) => (float[4] y)
        <float zero = {{0}}, float one = {{1}}, float none = {{-inf}}> {{
        m = Where(q, zero, none) v = Max(a, {least})
        t = Add(m, s) d = Log(v) u = Add(t, d) y = Exp(u) }}""")
    imported = import_model(ir.from_proto(onnx.shape_inference.infer_shapes(model)))
    rule = one(
        "  in m[...] s[...] v[...]\n  from Add(Add(m, s), Log(v))\n"
        "  to Add(m, Add(s, Log(v)))\n  limits m s\n"
    )
    assert isinstance(prove(rule, infer=False), Proved)
    steps = list(Steps(RuleIndex([rule]), imported.constants).of(imported.graph))
    assert bool(steps) is allowed


def test_composites_are_run_by_their_definitions() -> None:
    """The kernel of PRelu skips the slope, its definition multiplies by it.

    So it is run by its kernel as well.
    """
    rule = one(
        "  in x[n] s[n]\n  from PRelu(x, s)\n"
        "  to Add(Relu(x), Mul(s, Min(x, 0)))\n  where finite(x)\n"
    )
    (instance,) = rule.instances()
    inputs = {"x": np.array([1.0, -1.0]), "s": np.array([NAN, 2.0])}
    assert isinstance(compare_on_planted(instance, {"n": 2}, {}, inputs), Counterexample)
    rule = one("  in x[n] s[n]\n  from PRelu(x, s)\n  to PRelu(Add(x, 0), s)\n")
    (instance,) = rule.instances()
    assert compare_on_planted(instance, {"n": 2}, {}, inputs) == 1


def test_no_step_leads_from_an_attention_whose_mask_may_cover_a_row() -> None:
    """Of such a row it is 0, and the softmax NaN; a constant mask of numbers covers none."""
    inputs = "float[1, 1, 2, 2] q, float[1, 1, 2, 2] k"
    for given, weights in (
        (f"{inputs}, float[2, 2] a", ""),
        (inputs, "<float[2, 2] a = {0, -9, 0, 0}>"),
    ):
        model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 23]>
            g ({given}) => (float[1, 1, 2, 2] y) {weights}
            {{ y = Attention <scale = 1.0> (q, k, q, a) }}""")
        imported = import_model(ir.from_proto(onnx.shape_inference.infer_shapes(model)))
        rule = by_name(GOOD, "row-that-a-mask-covers")
        steps = list(Steps(RuleIndex([rule]), imported.constants).of(imported.graph))
        assert bool(steps) is bool(weights)


# The cross-check of proofs -----------------------------------------------------------------------


def nothing_is_lacking(*_: object) -> tuple[()]:
    return ()


def everything_has_a_limit(*_: object) -> frozenset[str]:
    return frozenset()


SIX = "  in x[...]\n  from Where(Less(x, 6), x, 6)\n  to Clip(x, max=6)\n"
EYE = "  in x[n, m]\n  from x\n  to MatMul(x, Eye(n=m))\n"
NOT_LESS = "  in x[...] y[...]\n  from Not(Less(x, y))\n  to GreaterOrEqual(x, y)\n"
REGROUPED = "  in x[...] y[...] z[...]\n  from Add(Add(x, y), z)\n  to Add(x, Add(y, z))\n"
TAKEN_OFF = "  in m[n]\n  from m\n  to Add(m, Sub(m, m))\n"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("lacking", nothing_is_lacking, GUARD),
        ("lacking", nothing_is_lacking, SIX),
        ("lacking", nothing_is_lacking, EYE),
        ("same_bits", lambda *_: True, NOT_LESS),
        ("same_bits", lambda *_: True, REGROUPED),
        ("roundings", lambda _: 0, REGROUPED),
        ("jumps", everything_has_a_limit, TAKEN_OFF),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_answer_of_the_prover_about_what_is_no_number_is_found_out(
    name: str, value: Callable[..., Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = prove(one(text), both_ways=False)
    assert isinstance(honest, Proved)
    monkeypatch.setattr(proof_of_instance, name, value)
    assert isinstance(prove(one(text), both_ways=False), Refuted)
    monkeypatch.setattr(prover, "search_planted", lambda *_, **__: Survived(1))
    assert isinstance(prove(one(text), both_ways=False), Proved)


# Bits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [op for op in operators() if op.elementwise], ids=str)
def test_an_element_that_is_computed_exactly_does_not_depend_on_its_place(op: Operator) -> None:
    """Such operators are run on whole arrays, in which numpy computes several elements at once."""
    generator = np.random.default_rng(0)
    for example in op.examples:
        count = len(example.shapes)
        attributes = complete_attributes(op, example.attributes, example.shapes)
        if not count or not computes_exactly(op, attributes, count):
            continue
        sorts = [op.sort(number) for number in range(count)]
        arrays = []
        for sort in sorts:
            array = generator.normal(size=37).astype(np.float32).astype(np.float64)
            array[generator.integers(0, 37, 12)] = generator.choice([NAN, INF, -INF, 0, 1], 12)
            whole = generator.integers(0, 2, 37).astype(bool if sort == BOOL else np.int64)
            arrays.append(array if sort in (REAL, ELEMENT) else whole)
        with np.errstate(all="ignore"):
            together = op.numpy(arrays, attributes)
            each = [op.numpy([a[k : k + 1] for a in arrays], attributes) for k in range(37)]
        for output, array in enumerate(together):
            alone = np.concatenate([np.reshape(made[output], 1) for made in each])
            np.testing.assert_array_equal(array, alone)
