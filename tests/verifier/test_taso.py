"""TASO's substitutions and axioms: the sound ones are proved for all sizes, the others are not."""

import random

import pytest
from longer import some
from places import CORPUS

import taso
from taso import Shipped
from xflow.core.value_conditions import is_need
from xflow.rewriting.instance import leaf_name
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.rewriting.unify import solve
from xflow.verifier.prove import Proved, Refuted, prove
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.refute import compare_at, search_counterexample

SHIPPED = taso.load()
UNSOUND = [shipped for shipped in SHIPPED if not shipped.sound]
AXIOMS = parse_rules((CORPUS / "taso-axioms.rules").read_text("utf-8"), "taso-axioms.rules")
FALSE = parse_rules((CORPUS / "taso-axioms-false.rules").read_text("utf-8"), "taso-axioms-false")
CONDITIONS = {
    "averaging-kernel": {"k >= e + 1", "k >= f + 1", "S >= 1"},
    "averaging-kernel-in-one-group": {"k >= e + 1", "k >= f + 1", "S >= 1"},
    "kernel-enlarged": {"p >= 0"},
    "kernel-enlarged-with-relu": {"p >= 0"},
}
"""The conditions with which an axiom is proved, where there are any."""


def number(shipped: Shipped) -> str:
    return str(shipped.number)


def name(rule: Rule) -> str:
    return rule.name


# The substitutions


@pytest.mark.parametrize("shipped", some(SHIPPED, 2), ids=number)
def test_the_verdict_on_a_substitution_is_that_of_the_samples(shipped: Shipped) -> None:
    line = taso.judge(shipped)
    assert line.is_right, str(line.verdict)
    assert line.where or not (shipped.sound and shipped.guarded)
    if line.where:
        found = search_counterexample(shipped.rule, seed=1)
        assert isinstance(found, Counterexample), "the condition is not needed"


def test_the_file_holds_what_it_says() -> None:
    distinct = [shipped for shipped in SHIPPED if shipped.repeats is None]
    assert (len(SHIPPED), len(distinct)) == (133, 128)
    assert sum(shipped.sound for shipped in distinct) == 120
    assert len(UNSOUND) == 11


@pytest.mark.parametrize("shipped", UNSOUND, ids=number)
def test_a_translation_fails_at_the_known_counterexample(shipped: Shipped) -> None:
    instance = shipped.rule.instance(0)
    sizes = solve(
        equation
        for value in instance.inputs
        for equation in zip(value.shape, shipped.counterexample[leaf_name(value)], strict=True)
    )
    assert sizes is not None
    numbers = {name: size for name, size in sizes.items() if isinstance(size, int)}
    assert isinstance(compare_at(instance, numbers, random.Random(0)), Counterexample)


def test_a_condition_excludes_a_counterexample_only_if_it_is_false_there() -> None:
    (shipped,) = (shipped for shipped in SHIPPED if shipped.number == 98)
    # i7[a, b*c, d, e] is [2, 2, 3, 3] there, and i10[b*h, c, ...] is [6, 1, 3, 3]
    assert taso.excludes(["b == 1"], shipped)
    assert taso.excludes(["b >= 1", "c >= 2"], shipped)
    assert not taso.excludes(["c == 1", "b >= 2"], shipped)
    assert not taso.excludes([], shipped)


def test_a_verdict_that_is_not_right_is_marked() -> None:
    sound, unsound = SHIPPED[0], UNSOUND[0]
    found = search_counterexample(unsound.rule)
    assert isinstance(found, Counterexample)
    assert taso.Line(sound, Proved({}), 0).is_right
    assert taso.Line(unsound, Refuted(found), 0).is_right
    assert taso.Line(unsound, Proved({}, ("b == 1",)), 0).is_right
    assert "WRONG" in str(taso.Line(unsound, Proved({}, ("b >= 1",)), 0))
    assert "WRONG" in str(taso.Line(unsound, Proved({}), 0))
    assert "WRONG" in str(taso.Line(sound, Refuted(found), 0))


# The translation


def translated(text: str, other: str | None = None) -> Rule:
    return Shipped(0, (taso.parse(text),), (taso.parse(other or text),), True, False, None, {}).rule


CONVOLUTION = "conv2d[kernel_h=3,kernel_w=3,stride_h=1,stride_w=1,pad=SAME,acti={}]({}, {})"


def test_a_variable_has_one_type_wherever_it_occurs() -> None:
    assert translated("matmul[acti=none](matmul[acti=none](?i4, ?i5), ?i4)").inputs == (
        "i4[a, b] i5[b, a]"
    )


def test_a_convolution_has_symbolic_groups_and_an_odd_kernel_of_any_extent() -> None:
    rule = translated(CONVOLUTION.format("relu", "?i7", "?i10"))
    assert rule.inputs == "i7[a, b*c, d, e] i10[b*f, c, 2*g + 1, 2*h + 1]"
    assert rule.lhs == "Relu(Conv(i7, i10, pads=[g, h, g, h], group=b))"


def test_a_split_undoes_the_most_recent_concat_on_its_axis() -> None:
    inner = "concat[num_inputs=2,axis=1,numdim=2](?i1, ?i2)"
    outer = f"concat[num_inputs=2,axis=1,numdim=2](?i3, {inner})"
    left = f"split[num_outputs=2,axis=1](relu[]({outer})).1"
    assert translated(left, left).lhs == (
        "Split(Relu(Concat(i3, Concat(i1, i2, axis=1), axis=1)), axis=1, split=[d, b + c])[1]"
    )


def test_elementwise_substitutions_are_stated_for_any_rank() -> None:
    assert translated("ew_add[](?i1, ew_mul[](?i2, ?i3))").inputs == "i1[...] i2[...] i3[...]"


def test_what_only_the_right_side_needs_is_no_part_of_the_types() -> None:
    both = "split[num_outputs=2,axis=1](relu[](concat[num_inputs=2,axis=1,numdim=2](?i1, ?i2))).{}"
    left = (taso.parse("relu[](?i1)"), taso.parse("relu[](?i2)"))
    right = (taso.parse(both.format(0)), taso.parse(both.format(1)))
    rule = Shipped(0, left, right, True, True, None, {}).rule
    assert rule.inputs == "i1[a, b] i2[c, d]"
    assert rule.where == ()


# The axioms


@pytest.mark.parametrize("rule", some(AXIOMS, 2), ids=name)
def test_an_axiom_of_taso_is_proved(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    conditions = {text for text in verdict.where if not is_need(text, rule.value_names)}
    assert conditions == CONDITIONS.get(rule.name, set())


@pytest.mark.parametrize("rule", FALSE, ids=name)
def test_what_is_false_as_taso_states_it_is_refuted(rule: Rule) -> None:
    assert isinstance(prove(rule, infer=False, both_ways=False), Refuted)
