"""Rules whose sizes an example closes, and rules that leave a number to choose."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xflow.core.size import Size, symbols
from xflow.core.value_conditions import is_need
from xflow.generator.enumeration.enumerate import enumerate_terms
from xflow.generator.equations import steps
from xflow.generator.generalization.example import divisions, runs, without_common_factor
from xflow.generator.generalization.generalize import Generalizer
from xflow.generator.generalization.propose import propose
from xflow.generator.settle import Fate, settle
from xflow.generator.vocabularies import attention, batched_heads, padded_channels, rows
from xflow.generator.vocabularies.common import stages
from xflow.generator.vocabulary import Input, Vocabulary
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules

A, B, C = symbols("a b c")
CUT = "starts=[h], ends=[j], axes=[1], steps=[1]"


def first_rules(vocabulary: Vocabulary) -> list[Rule]:
    """The most general plausible rule of each proposal."""
    generalizer = Generalizer(vocabulary, 0)
    proposals = propose(enumerate_terms(vocabulary, 0, 3).candidates, vocabulary)
    found = (next(generalizer.rules(p.skeleton, p.points), None) for p in proposals)
    return [parse_rules(str(rule))[0] for rule in found if rule is not None]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((2, 5, 12), (2, 5, 3, 4), [((2,), (2,)), ((5,), (5,)), ((12,), (3, 4))]),
        ((2, 5, 3, 4), (2, 5, 12), [((2,), (2,)), ((5,), (5,)), ((3, 4), (12,))]),
        ((12, 5), (3, 2, 2, 1, 5), [((12,), (3, 2, 2)), ((5,), (1, 5))]),
        ((2, 3), (2, 3, 1, 1), [((2,), (2,)), ((3,), (3,)), ((), (1, 1))]),
        ((4, 6), (8, 3), [((4, 6), (8, 3))]),
    ],
)
def test_axes_that_a_reshape_merges_or_splits_are_told_by_their_extents(
    before: tuple[int, ...], after: tuple[int, ...], expected: object
) -> None:
    assert [(before[i], after[j]) for i, j in runs(before, after)] == expected


@given(st.lists(st.lists(st.integers(1, 4), max_size=3), max_size=4))
def test_runs_cover_all_axes_and_have_equal_products(groups: list[list[int]]) -> None:
    before = [prod(group) for group in groups]
    after = [extent for group in groups for extent in group]
    found = list(runs(before, after))
    assert [n for i, _ in found for n in before[i]] == before
    assert [n for _, j in found for n in after[j]] == after
    assert all(prod(before[i]) == prod(after[j]) for i, j in found)


@pytest.mark.parametrize(
    ("equation", "expected"),
    [(2 * A * B - 4 * A * C, B - 2 * C), (A * B - C, A * B - C), (A - B, A - B)],
)
def test_what_all_terms_share_is_divided_out(equation: Size, expected: Size) -> None:
    assert without_common_factor(equation) == expected


def test_a_divisor_is_the_factor_that_it_is_in_the_example() -> None:
    assert [*divisions([(A * B) % C], {"a": 3, "b": 2, "c": 3})] == [A - C]
    assert [*divisions([A % B], {"a": 4, "b": 4})] == [A - B]
    assert [*divisions([A % B], {"a": 4, "b": 2})] == []


def test_rows_are_selected_before_features_are_split_into_heads() -> None:
    (heads,) = (v for v in rows.ROWS_FAMILY.vocabularies if v.name == "heads of a slice")
    found = {(rule.inputs, rule.lhs, rule.rhs) for rule in first_rules(heads)}
    assert (
        "x[B, n, k*m]",
        f"Slice(Reshape(x, shape=[B, n, m, k]), {CUT})",
        f"Reshape(Slice(x, {CUT}), shape=[B, -h + j, m, k])",
    ) in found


def test_groups_of_channels_are_joined_in_pairs_at_any_number_of_groups() -> None:
    found = first_rules(padded_channels.COARSER)
    blocks = (
        "Reshape(Mul(Reshape(w, shape=[n, 2, m, 1, I, *R]), "
        "Reshape(Eye(n=2), shape=[2, 1, 2, 1, *1])), shape=[2 * m * n, 2 * I, *R])"
    )
    steps = "pads=[*e, *f], strides=[*s], dilations=[*d]"
    sides = [(rule.lhs, rule.rhs) for rule in found]
    assert (f"Conv(x, {blocks}, {steps}, group=n)", f"Conv(x, w, {steps}, group=2 * n)") in sides


def test_a_product_with_values_of_one_batch_is_one_of_rank_3() -> None:
    """What is left of an attention with heads as batches where an export is for a batch of one."""
    (rule,) = first_rules(batched_heads.ONE_BATCH)
    taken = "Reshape(MatMul(x, Reshape(v, shape=[H, L, E])), shape=[1, H, S, E])"
    assert (rule.inputs, rule.lhs, rule.rhs) == ("x[H, S, L] v[1, H, L, E]", taken, "MatMul(x, v)")


def test_a_diagonal_begins_behind_as_many_keys_as_there_are_of_the_past() -> None:
    """No type says so: the offset of a triangle is that extent in the example."""
    found = {
        (rule.lhs, rule.rhs)
        for rule in first_rules(attention.OF_EACH["masks of CachedCausalAttention"])
    }
    masks = (f"LowerTriangle(shape=[{ones}S, L + P], offset=P)" for ones in ("", "1, 1, "))
    causal = "CachedCausalAttention(q, k, v, x, y, scale=s)[0]"
    masked = "CachedMaskedAttention(q, k, v, x, y, {}, scale=s)[0]"
    assert found == {(masked.format(mask), causal) for mask in masks}


def settled(text: str) -> Rule:
    """The rule with what was proved of it."""
    (rule,) = parse_rules(f"rule candidate\n{text}\n")
    found = settle(rule, 0)
    assert found.fate is Fate.PROVED
    return found.rule


def test_how_many_channels_to_add_is_left_to_whoever_adds_them() -> None:
    rule = settled(
        " in x[N, C, *S] w[O, C, *R]\n param q\n rank 1\n"
        " from Slice(Conv(x, Pad(w, pads=[0, 0, *0, q, 0, *0])), "
        "starts=[0], ends=[O], axes=[1], steps=[1])\n to Conv(x, w)"
    )
    assert rule.reverse == ("q >= 0",)
    there, back = (direction.instance(1) for direction in rule.directions())
    assert there.is_determined
    assert back.free_symbols == {"q"}


def test_no_rule_starts_from_any_value_at_all() -> None:
    rule = settled(
        " in x[n]\n param k\n from Concat(Split(x, split=[k, n - k])[0], "
        "Split(x, split=[k, n - k])[1], axis=0)\n to x"
    )
    assert rule.reverse is None


def test_that_inputs_have_numbers_is_no_accident_beside_that_there_are_some() -> None:
    rule = settled(
        " in q[B, H, S, D] k[B, H, L, D] v[B, H, L, E] b[E]\n"
        " from Attention(q, k, Add(v, b), scale=1)\n to Add(Attention(q, k, v, scale=1), b)"
    )
    assert {"L >= 1", "finite(k)", "finite(q)"} == {*rule.where}


def test_a_number_that_both_sides_divide_by_is_not_0() -> None:
    """A softmax of what is no number is another one, so that neither side asks for it by itself."""
    rule = settled(
        " in x[n, m]\n param c:real\n from Softmax(Div(Mul(x, 2), Scalar(value=c)))\n"
        " to Softmax(Mul(Div(x, Scalar(value=c)), 2))"
    )
    assert set(rule.where) == set(rule.reverse or ()) == {"c != 0", "finite(x)"}


def test_that_a_number_is_not_0_makes_no_rule_of_an_accident() -> None:
    (rule,) = parse_rules(
        "rule candidate\n in x[n]\n param c:real\n from Mul(x, Abs(Sign(Scalar(value=c))))\n to x\n"
    )
    assert settle(rule, 0).fate is Fate.REFUTED


@pytest.mark.parametrize(
    ("left", "right", "sign"),
    [
        ("Neg(Mul(x, s))", "Mul(Neg(x), s)", None),
        ("Relu(Mul(x, s))", "Mul(Relu(x), s)", "s >= 0"),
        ("Relu(Div(x, s))", "Div(Relu(x), s)", "s > 0"),
    ],
)
def test_a_rule_asks_for_no_more_of_a_sign_than_it_needs(
    left: str, right: str, sign: str | None
) -> None:
    rule = settled(f" in x[...] s[...]\n from {left}\n to {right}\n where s > 0")
    signs = {text for text in rule.where if not is_need(text, rule.value_names)}
    assert signs == ({sign} if sign else set())


def test_the_sign_of_an_input_makes_no_rule_of_what_is_false_for_it() -> None:
    (rule,) = parse_rules(
        "rule candidate\n in x[...] s[...]\n from Relu(Add(x, s))\n to Add(Relu(x), s)\n"
        " where s > 0\n"
    )
    assert settle(rule, 0).fate is Fate.REFUTED


def test_inputs_with_a_sign_are_stated_with_it() -> None:
    scales = stages(
        "scaled",
        (Input("x", "x", "...", (5,)), Input("s", "scale", "...", (5,), sign="> 0")),
        steps("scaled = Mul(x, scale); f = Relu(x); out = Relu(scaled) | Mul(f, scale)"),
        (0,) * 3,
    )
    assert {(rule.lhs, rule.where) for rule in first_rules(scales)} == {
        ("Relu(Mul(x, s))", ("s > 0",))
    }
