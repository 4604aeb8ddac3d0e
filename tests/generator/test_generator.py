"""The generator: what it enumerates, how it generalises, and that it finds what it should."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_jobs import SUMS, X

from xflow.core.composite import Composite
from xflow.core.errors import UsageError
from xflow.core.node import apply
from xflow.generator.derive import derive
from xflow.generator.drawn import Drawn, random_dyadics
from xflow.generator.enumeration.enumerate import enumerate_terms
from xflow.generator.enumeration.fingerprint import Evaluator, rounded
from xflow.generator.families import FAMILIES
from xflow.generator.filtering import filtering_rules
from xflow.generator.generalization.generalize import Generalizer, plausible
from xflow.generator.generalization.outputs import output_rules
from xflow.generator.generalization.propose import Proposal, propose
from xflow.generator.generalization.skeleton import take_apart
from xflow.generator.generalization.splits import split_rules
from xflow.generator.idle import is_idle
from xflow.generator.minimize import Descent, Reducer, order
from xflow.generator.production import Production
from xflow.generator.run import generate
from xflow.generator.vocabularies import (
    activations,
    attention,
    batched_heads,
    convolutions,
    elementwise,
    logic,
    normalization,
    parts,
    polyphase,
    pools,
    reductions,
    rotary,
    shapes,
)
from xflow.generator.vocabulary import Family, Input, Vocabulary
from xflow.ops import operators
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import load_rules
from xflow.rewriting.text import parse_rules

MATRICES = Vocabulary(
    "matrices",
    tuple(Input(name, X, "*B n m", (2, 4, 4)) for name in "abc"),
    (
        Production("MatMul", (X, X), X),
        Production("Concat", (X, X), X, ({"axis": 1}, {"axis": 2})),
    ),
    (0, 0, 0, 0),
    ranks=(0, 1, 2),
)

ROOTS = [v for v in normalization.STEPWISE if v.name.startswith("root mean square")]
"""Squares as powers, and as products."""


def rules_of(vocabulary: Vocabulary) -> list[Rule]:
    """The most general plausible rule of each proposal, unproved."""
    generalizer = Generalizer(vocabulary, 0)
    proposals = propose(enumerate_terms(vocabulary, 0, 3).candidates, vocabulary)
    found = (next(generalizer.rules(p.skeleton, p.points), None) for p in proposals)
    return [rule for rule in found if rule is not None]


def sides(rules: Iterable[Rule]) -> set[tuple[str, str]]:
    return {(rule.lhs, rule.rhs) for rule in rules}


def test_fingerprint_inputs_are_dyadic_of_both_signs_and_never_zero() -> None:
    array = random_dyadics(np.random.default_rng(0), (1000,))
    assert ((array * 4) == np.rint(array * 4)).all()
    assert array.min() == -1.75
    assert array.max() == 1.75
    assert (array != 0).all()


def test_fingerprint_tells_an_inexact_value_from_an_exact_one() -> None:
    (value,) = apply("Exp", [SUMS.inputs[0].value])
    with pytest.raises(AssertionError):
        Evaluator(0, exact=True).key(value)
    assert Evaluator(0, exact=False).key(value) is not None


def test_rounding_keeps_nine_digits_and_zero() -> None:
    values = rounded(np.array([0.0, 1 / 3, -2e5 / 3]))
    assert values[0] == 0
    assert values[1] == pytest.approx(1 / 3, rel=1e-9)
    assert values[2] == pytest.approx(-2e5 / 3, rel=1e-9)


def test_enumeration_is_deterministic_and_extends_representatives_only() -> None:
    first, second = (enumerate_terms(SUMS, 0, 2) for _ in range(2))
    assert [str(c.source.value) for c in first.candidates] == [
        str(c.source.value) for c in second.candidates
    ]
    sources = {str(c.source.value) for c in first.candidates}
    assert "Relu(Relu(x))" in sources
    assert "Add(Relu(Relu(x)), x)" not in sources


def test_a_representative_is_the_smallest_of_its_class() -> None:
    for candidate in enumerate_terms(SUMS, 0, 2).candidates:
        assert candidate.target.order < candidate.source.order


@pytest.mark.many
def test_matrix_rules_get_different_sizes_and_any_batch() -> None:
    rules = rules_of(MATRICES)
    assert (
        "Concat(MatMul(a, b), MatMul(a, c), axis=-1)",
        "MatMul(a, Concat(b, c, axis=-1))",
    ) in sides(rules)
    (rule,) = [r for r in rules if r.lhs == "Concat(MatMul(a, b), MatMul(a, c), axis=-1)"]
    assert rule.inputs == "a[*B, n, m] b[*B, m, k] c[*B, m, l]"
    assert rule.ranks == (0, 1, 2)


def test_concat_rules_give_rules_of_two_outputs() -> None:
    (rule,) = parse_rules(
        "rule r\n in a[n, m] b[m, k] c[m, l]\n"
        " from Concat(MatMul(a, b), MatMul(a, c), axis=1)\n to MatMul(a, Concat(b, c, axis=1))\n"
    )
    split, parts_of_one = split_rules([rule])
    assert split.lhs == "MatMul(a, b), MatMul(a, c)"
    assert split.rhs.endswith("axis=1, split=[k, l])[1]")
    assert plausible(split, 0)
    assert parts_of_one.inputs == "a[n, m] b[m, k + l]"
    assert parts_of_one.lhs.startswith("Split(MatMul(a, b), axis=1, split=[k, l])[0], ")
    assert parts_of_one.rhs.startswith("MatMul(a, Split(b, axis=1, split=[k, l])[0]), ")
    assert plausible(parts_of_one, 0)


@pytest.mark.parametrize(
    ("inputs", "left", "right"),
    [
        ("a[n, m]", "Concat(Relu(a), Relu(a), axis=1)", "Relu(Concat(a, a, axis=1))"),
        (
            "a[n, m] b[n, m]",
            "Concat(Add(a, b), Add(b, a), axis=0)",
            "Add(Concat(a, b, axis=0), Concat(b, a, axis=0))",
        ),
        ("a[*S, n] b[*S, n]", "Concat(Relu(a), Relu(b), axis=0)", "Relu(Concat(a, b, axis=0))"),
    ],
    ids=["one input twice", "crosswise", "along a vector"],
)
def test_inputs_that_are_no_two_parts_of_one_stay_two(inputs: str, left: str, right: str) -> None:
    rank = " rank 1\n" if "*" in inputs else ""
    (rule,) = parse_rules(f"rule r\n in {inputs}\n{rank} from {left}\n to {right}\n")
    assert len(list(split_rules([rule]))) <= 1


def test_views_are_not_made_once_for_two_values() -> None:
    """A view costs nothing; what joins the values and takes them apart does."""
    (rule,) = parse_rules(
        "rule r\n in x[n, m] y[l, m]\n"
        " from Concat(Unsqueeze(x, axes=[2]), Unsqueeze(y, axes=[2]), axis=0)\n"
        " to Unsqueeze(Concat(x, y, axis=0), axes=[2])\n"
    )
    assert not list(split_rules([rule]))


def test_an_extent_that_a_number_names_stays_that_number() -> None:
    """Where the axis has a name it is a symbol, and nothing is said of a kernel of any extent."""
    found = rules_of(polyphase.INTERLEAVED)
    assert [rule.inputs.split()[4:8] for rule in found] == [["w[O,", "C,", "3,", "3]"]] * 2
    named = tuple(
        replace(item, dims=item.dims.replace("3 3", "K L")) for item in polyphase.INTERLEAVED.inputs
    )
    assert not rules_of(replace(polyphase.INTERLEAVED, inputs=named))


@pytest.mark.many
def test_kernels_of_different_sizes_merge_with_fitted_padding() -> None:
    rules = rules_of(convolutions.SIZES)
    merged = [r for r in rules if r.lhs.startswith("Add(Conv(x, w, pads") and "Pad" in r.rhs]
    assert any(
        rule.inputs == "x[N, C, *S] w[O, I, *R] v[O, I, *(R + p + q)]"
        and "pads=[*(d*p + e), *(d*q + f)]" in rule.lhs
        and "group=g" in rule.rhs
        for rule in merged
    )


def test_a_skip_connection_becomes_the_centre_of_a_kernel_of_any_size() -> None:
    rules = rules_of(convolutions.IDENTITIES)
    assert any(
        rule.lhs.startswith("Add(x, Conv(x, w, pads=")
        and "IdentityKernel(channels=C, kernel=[*R])" in rule.rhs
        for rule in rules
    )


def test_scales_move_into_kernels_and_biases_for_all_strides() -> None:
    rules = rules_of(convolutions.SCALES)
    attributes = "pads=[*e, *f], strides=[*s], dilations=[*d], group=g"
    assert (
        f"Mul(Conv(x, w, b, {attributes}), r)",
        "Conv(x, Mul(w, Reshape(r, shape=[O, 1, *1])), Mul(b, Reshape(r, shape=[O])), "
        f"{attributes})",
    ) in sides(rules)


@pytest.mark.parametrize(
    "text",
    [
        "in a[n, n] b[n, n]\n from MatMul(a, b)\n to MatMul(b, a)",
        "in x[...] y[...]\n from Sub(x, y)\n to Sub(y, x)",
        "in x[N, C, *S] w[O, C, *R]\n param *e\n rank 1 2\n"
        " from Conv(x, w, pads=[*e, *e])\n to Conv(x, w)",
    ],
)
def test_a_wrong_rule_is_not_plausible(text: str) -> None:
    (rule,) = parse_rules(f"rule wrong\n {text}\n")
    assert not plausible(rule, 0)


def test_an_equation_is_redundant_where_a_rule_simplifies_its_larger_side() -> None:
    (rule,) = parse_rules("rule r\n in x[...]\n from Relu(Relu(x))\n to Relu(x)\n")
    reducer = Reducer()
    x = SUMS.inputs[0].value
    once = apply("Relu", [x])[0]
    twice = apply("Relu", [once])[0]
    assert not reducer.derives(twice, once, SUMS)
    reducer.add(rule)
    assert reducer.derives(twice, once, SUMS)
    smaller = reducer.smaller(apply("Add", [twice, x])[0], SUMS)
    assert smaller == Descent(apply("Add", [once, x])[0], keeps=True)
    assert reducer.smaller(once, SUMS) is None
    reducer.remove(rule)
    assert not reducer.derives(twice, once, SUMS)


def test_an_equation_that_saves_nothing_is_redundant_where_the_way_leads_back() -> None:
    """From x * k + c nothing leads to (x + c / k) * k, though the way there is downhill."""
    vocabulary = next(
        v for v in elementwise.ELEMENTWISE.vocabularies if v.name == "scales and shifts"
    )
    x, k, c = (item.value for item in vocabulary.inputs)
    source = apply("Mul", [apply("Add", [x, apply("Div", [c, k])[0]])[0], k])[0]
    target = apply("Add", [apply("Mul", [x, k])[0], c])[0]
    inputs = "in x[...] y[...] z[...]\n"
    distribution, cancelled, whole = parse_rules(
        f"rule d\n {inputs} from Mul(Add(x, y), z)\n to Add(Mul(x, z), Mul(y, z))\n"
        " reverse always\n"
        f"rule c\n in x[...] y[...]\n from Mul(Div(x, y), y)\n to x\n"
        f"rule w\n {inputs} from Mul(Add(x, Div(y, z)), z)\n to Add(Mul(x, z), y)\n"
        " reverse z != 0\n"
    )
    reducer = Reducer()
    for rule in (distribution, cancelled):
        reducer.add(rule)
    assert not reducer.derives(source, target, vocabulary)
    reducer.add(whole)
    assert reducer.derives(source, target, vocabulary)


def test_kept_rules_are_proved_and_few() -> None:
    derivation = derive(Family("small", (SUMS,)), 0, 2, notice=lambda text: None)
    found = sides(kept.rule for kept in derivation.kept)
    assert ("Relu(Relu(x))", "Relu(x)") in found
    assert ("Add(x, Sub(y, x))", "y") in found
    assert len(found) < 15


def test_each_rule_that_is_generated_has_a_certificate(tmp_path: Path) -> None:
    """That the bytes are the same each time is a test of jobs, in test_generate_job."""
    generate(tmp_path, families=["elementwise", "pooling"], max_ops=1, jobs=1)
    rules = load_rules(tmp_path)
    assert len(rules) > 10
    assert {f"{rule.name}.json" for rule in rules} == {
        path.name for path in (tmp_path / "certificates").iterdir()
    }


def test_an_unknown_family_is_an_error_that_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="convolution"):
        generate(tmp_path, families=["nonsense"])


def test_every_sort_that_a_vocabulary_uses_is_made_in_it() -> None:
    for family in FAMILIES:
        for vocabulary in family.vocabularies:
            made = {item.sort for item in vocabulary.inputs}
            made |= {production.result for production in vocabulary.productions}
            used = {sort for production in vocabulary.productions for sort in production.args}
            assert used <= made, vocabulary.name
            assert vocabulary.roots & made, vocabulary.name


def test_names_tell_families_and_their_vocabularies_apart() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        names = [vocabulary.name for vocabulary in family.vocabularies]
        assert len(set(names)) == len(names)


def test_each_attention_has_traits_of_its_own_and_vocabularies_by_them() -> None:
    assert [*attention.BY_TRAITS.values()] == [op for op in operators() if op.role == "attention"]
    assert {name for name in attention.OF_EACH if "CachedMaskedAttention" in name} == {
        "the past of CachedMaskedAttention",
        "merged heads of CachedMaskedAttention",
    }


def test_nearly_the_whole_registry_is_enumerated_or_defined() -> None:
    used = {
        production.op
        for family in FAMILIES
        for vocabulary in family.vocabularies
        for production in vocabulary.productions
    }
    for rule in filtering_rules():
        used |= rule.operators
    left = {op.name for op in operators() if not isinstance(op, Composite)} - used
    # One of which nothing but itself is known, and what stands in proofs alone.
    assert left == {"AsReal", "ReduceProd"}


@pytest.mark.parametrize(
    ("vocabulary", "inputs", "lhs", "rhs"),
    [
        (
            logic.EXTREMES,
            "x[...]",
            "Where(Greater(x, 0), x, Mul(x, Scalar(value=alpha)))",
            "LeakyRelu(x, alpha=alpha)",
        ),
        (
            logic.CHOICES,
            "c[...]:bool x[...] y[...]",
            "Where(Not(c), x, y)",
            "Where(c, y, x)",
        ),
        *(
            (
                stages,
                "x[*B, n]",
                f"Div(x, Sqrt(Add(ReduceMean({square}, axes=[-1]), Scalar(value=epsilon))))",
                "RMSNormalization(x, Ones(shape=[n]), epsilon=epsilon)",
            )
            for stages, square in zip(ROOTS, ("Pow(x, 2)", "Mul(x, x)"), strict=True)
        ),
        (
            reductions.COUNTED,
            "x[*B, n]",
            "Mul(ReduceSum(x, axes=[-1]), Reciprocal(ReduceSum(Ones(shape=[n]), keepdims=0)))",
            "ReduceMean(x, axes=[-1])",
        ),
        (
            pools.TWICE,
            "x[N, C, *S]",
            "MaxPool(MaxPool(x, kernel_shape=[*k]), kernel_shape=[*n])",
            "MaxPool(x, kernel_shape=[*(k + n - 1)])",
        ),
        (
            shapes.GATHERED,
            "x[n, m] i[*l]:int",
            "Gather(Elementwise(x), i)",
            "Elementwise(Gather(x, i))",
        ),
        (
            shapes.CORNERS[0],
            "x[*B, n, m]",
            "Slice(Slice(x, starts=[h], ends=[j], axes=[-2], steps=[1]), "
            "starts=[k], ends=[l], axes=[-1], steps=[1])",
            "Slice(x, starts=[h, k], ends=[j, l], axes=[-2, -1], steps=[1, 1])",
        ),
        (
            rotary.ROTATED[1],
            "x[B, H, S, 2*D] c[1, S, D] s[1, S, D]",
            "Add(Mul(x, Unsqueeze(Concat(c, c, axis=2), axes=[1])), "
            "Mul(Concat(Neg(Split(x, axis=3, split=[D, D])[1]), "
            "Split(x, axis=3, split=[D, D])[0], axis=3), "
            "Unsqueeze(Concat(s, s, axis=2), axes=[1])))",
            "RotaryEmbedding(x, Expand(c, shape=[B, S, D]), Expand(s, shape=[B, S, D]))",
        ),
        (
            rotary.INTERLEAVED[1],
            "x[B, H, S, 2*D] c[1, S, D] s[1, S, D]",
            "Add(Mul(x, Unsqueeze(Reshape(Expand(Unsqueeze(c, axes=[3]), shape=[1, 1, 1, 2]), "
            "shape=[1, S, 2*D]), axes=[1])), Mul(Reshape(Concat(Unsqueeze(Neg(Slice(x, starts=[1], "
            "ends=[2*D], axes=[3], steps=[2])), axes=[4]), Unsqueeze(Slice(x, starts=[0], "
            "ends=[2*D], axes=[3], steps=[2]), axes=[4]), axis=4), shape=[B, H, S, 2*D]), "
            "Unsqueeze(Reshape(Expand(Unsqueeze(s, axes=[3]), shape=[1, 1, 1, 2]), "
            "shape=[1, S, 2*D]), axes=[1])))",
            "InterleavedRotaryEmbedding(x, Expand(c, shape=[B, S, D]), Expand(s, shape=[B, S, D]))",
        ),
        (
            rotary.REPEATED,
            "x[B, S, D]",
            "Reshape(Expand(Unsqueeze(Elementwise(x), axes=[3]), shape=[1, 1, 1, n]), "
            "shape=[B, S, D*n])",
            "Elementwise(Reshape(Expand(Unsqueeze(x, axes=[3]), shape=[1, 1, 1, n]), "
            "shape=[B, S, D*n]))",
        ),
        (
            attention.CAPPED,
            "q[B, H, S, D] k[B, H, L, D] a[B, 1, S, L] v[B, H, L, E]",
            "MatMul(Softmax(Add(Mul(Tanh(Div(MatMul(q, Transpose(k, perm=[0, 1, 3, 2])), "
            "Scalar(value=c))), Scalar(value=c)), a)), v)",
            "CappedAttention(q, k, v, a, scale=1, softcap=c)",
        ),
        *(
            (
                attention.CAPPED,
                "q[B, H, S, D] k[B, C, L, D] v[B, C, L, E] a[B, 1, S, L]",
                f"CappedAttention({scaled}, v, a, scale=1, softcap=c)",
                "CappedAttention(q, k, v, a, scale=s, softcap=c)",
            )
            for scaled in ("Mul(q, Scalar(value=s)), k", "q, Mul(k, Scalar(value=s))")
        ),
        (
            attention.OF_EACH["grouped queries of MaskedAttention"],
            "q[B, H*n, S, D] k[B, H, L, D] v[B, H, L, E] a[B, 1, S, L]:bool",
            "MaskedAttention(q, "
            "Reshape(Expand(Unsqueeze(k, axes=[2]), shape=[B, H, n, L, D]), shape=[B, H*n, L, D]), "
            "Reshape(Expand(Unsqueeze(v, axes=[2]), shape=[B, H, n, L, E]), shape=[B, H*n, L, E]), "
            "a, scale=s)",
            "MaskedAttention(q, k, v, a, scale=s)",
        ),
        (
            batched_heads.ONE_HEAD,
            "q[N, S, D] c[N, D, L] g[N, S, L] v[N, L, E]",
            "MatMul(Softmax(Add(MatMul(q, c), g)), v)",
            "Attention(q, Transpose(c, perm=[0, 2, 1]), v, Unsqueeze(g, axes=[1]), "
            "scale=1, q_num_heads=1, kv_num_heads=1)",
        ),
        (
            batched_heads.MERGED,
            "q[B, H, S, D] k[B, H, L, D] v[B, H, L, E]",
            "Reshape(Attention(Reshape(q, shape=[B*H, S, D]), Reshape(k, shape=[B*H, L, D]), "
            "Reshape(v, shape=[B*H, L, E]), scale=s, q_num_heads=1, kv_num_heads=1), "
            "shape=[B, H, S, E])",
            "Attention(q, k, v, scale=s)",
        ),
        (
            batched_heads.TIME_FIRST,
            "q[S, B, l*n] k[L, B, l*n] v[L, B, l*m]",
            "Transpose(Attention(Transpose(Reshape(q, shape=[S, B*l, n]), perm=[1, 0, 2]), "
            "Transpose(Reshape(k, shape=[L, B*l, n]), perm=[1, 0, 2]), "
            "Transpose(Reshape(v, shape=[L, B*l, m]), perm=[1, 0, 2]), "
            "scale=s, q_num_heads=1, kv_num_heads=1), perm=[1, 0, 2])",
            "Reshape(Transpose(Attention(Transpose(q, perm=[1, 0, 2]), "
            "Transpose(k, perm=[1, 0, 2]), Transpose(v, perm=[1, 0, 2]), "
            "scale=s, q_num_heads=l, kv_num_heads=l), perm=[1, 0, 2]), shape=[S, B*l, m])",
        ),
        (
            batched_heads.SCALED,
            "q[B, H, S, D] c[B, H, D, L] s[H, 1, 1]",
            "Mul(MatMul(q, c), s)",
            "MatMul(Mul(q, s), c)",
        ),
        (
            activations.GELUS[2],
            "x[...]",
            "Div(Mul(x, Sub(1, Erf(Mul(x, Neg(Reciprocal(Sqrt(2))))))), 2)",
            "Gelu(x)",
        ),
        (
            activations.GELUS[0],
            "x[...]",
            "Div(Mul(x, Add(Erf(Mul(x, Reciprocal(Sqrt(2)))), 1)), 2)",
            "Gelu(x)",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Vocabulary) else None,
)
def test_forms_of_exporters_are_proposed(
    vocabulary: Vocabulary, inputs: str, lhs: str, rhs: str
) -> None:
    found = {(rule.inputs, rule.lhs, rule.rhs) for rule in rules_of(vocabulary)}
    assert (inputs, lhs, rhs) in found


def test_a_part_that_reaches_to_the_end_does_so_at_every_extent() -> None:
    (cuts,) = (v for v in parts.PARTS.vocabularies if v.name == "slices along the last axis")
    tail = "Slice(x, starts=[h], ends=[n], axes=[-1], steps=[1])"
    assert (tail, "Split(x, axis=-1, split=[h, -h + n])[1]") in sides(rules_of(cuts))


def test_places_are_integers_and_a_run_of_them_is_a_slice() -> None:
    (places,) = (v for v in parts.PARTS.vocabularies if v.name == "places along the last axis")
    run = "Gather(x, PlacesFrom(start=m, n=j - m), axis=-1)"
    assert (run, "Slice(x, starts=[m], ends=[j], axes=[-1], steps=[1])") in sides(rules_of(places))


def test_a_chain_of_stages_is_not_cut_off() -> None:
    chain = ROOTS[0]
    assert enumerate_terms(chain, 0, 1).classes == enumerate_terms(chain, 0, 9).classes
    cut = replace(chain, chain=False)
    assert enumerate_terms(cut, 0, 1).classes < enumerate_terms(chain, 0, 1).classes


@pytest.mark.parametrize("vocabulary", rotary.ROTATED, ids=lambda each: each.name)
def test_a_composite_between_movements_may_replace_what_reads_its_input_twice(
    vocabulary: Vocabulary,
) -> None:
    (proposal,) = propose(enumerate_terms(vocabulary, 0, 3).candidates, vocabulary)
    assert not is_idle(proposal, vocabulary)
    backwards = replace(proposal, source=proposal.target, target=proposal.source)
    assert is_idle(backwards, vocabulary)


def test_inputs_are_drawn_as_a_vocabulary_says() -> None:
    rng = np.random.default_rng(0)
    wide = Drawn(positive=frozenset({"x"}), reach=8)
    array = wide(rng, "x", (1000,), "FLOAT")
    assert (array.min(), array.max()) == (2, 14)
    assert wide(rng, "y", (1000,), "FLOAT").min() == -14
    assert set(Drawn(ties=True)(rng, "x", (1000,), "FLOAT")) == {-1, -0.5, 0, 0.5, 1}
    assert wide(rng, "c", (9,), "BOOL").dtype == bool
    assert set(wide(rng, "i", (1000,), "INT64")) == {0, 1, 2}


@pytest.mark.parametrize(
    ("text", "idle"),
    [
        ("in x[...]\n from Pow(x, 2)\n to Mul(x, x)", False),
        ("in x[...]\n from Mul(x, Mul(x, x))\n to Pow(x, 3)", False),
        ("in x[...]\n from Min(Abs(x), 0)\n to Sub(x, x)", True),
        ("in x[...] y[...]\n from Add(Add(x, x), y)\n to Add(x, Add(x, y))", True),
        ("in x[...]\n from Abs(Neg(x))\n to Abs(x)", False),
    ],
)
def test_an_equation_is_idle_where_it_saves_nothing_and_is_not_plain(text: str, idle: bool) -> None:
    (rule,) = parse_rules(f"rule r\n {text}\n")
    (source,), (target,) = rule.instance(0).lhs, rule.instance(0).rhs
    vocabulary = replace(SUMS, free=frozenset())
    skeleton, _ = take_apart(source, target, vocabulary)
    same = order(source, vocabulary)[0] == order(target, vocabulary)[0]
    assert is_idle(Proposal(source, target, skeleton, (), same), vocabulary) is idle


def test_the_further_outputs_are_what_the_other_side_computes_on_its_way() -> None:
    (rule,) = parse_rules(
        "rule r\n in q[B, H, S, D] x[B, H, P, D] k[B, H, L, D] y[B, H, P, E] v[B, H, L, E]\n"
        " from Attention(q, Concat(x, k, axis=2), Concat(y, v, axis=2), scale=1)\n"
        " to CachedAttention(q, k, v, x, y, scale=1)[0]\n"
    )
    (whole,) = output_rules(rule)
    assert whole.lhs == f"{rule.lhs}, Concat(x, k, axis=2), Concat(y, v, axis=2)"
    cached = rule.rhs.removesuffix("[0]")
    assert whole.rhs == f"{cached}[0], {cached}[1], {cached}[2]"
    assert plausible(whole, 0)
    assert not list(output_rules(whole))


def test_the_further_outputs_of_one_operator_are_those_of_another() -> None:
    (rule,) = parse_rules(
        "rule r\n in q[B, H, S, D] x[B, H, P, D] k[B, H, L, D] y[B, H, P, E] v[B, H, L, E]\n"
        " from CachedAttention(q, k, v, x, y, scale=1)[0]\n"
        " to CachedAttention(Identity(q), k, v, Identity(x), y, scale=1)[0]\n"
    )
    (whole,) = output_rules(rule)
    for before, after in ((rule.lhs, whole.lhs), (rule.rhs, whole.rhs)):
        call = before.removesuffix("[0]")
        assert after == f"{before}, {call}[1], {call}[2]"
