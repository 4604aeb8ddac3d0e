"""Enumeration and fingerprints: exact, complete in what they promise, the same every time."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xflow.core.errors import ShapeError
from xflow.core.graph import rebuild
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.core.pause_gc import without_collector
from xflow.core.registry import Array, Operator, is_concrete
from xflow.core.sorts import ELEMENT
from xflow.generator.enumeration.batch import Batch
from xflow.generator.enumeration.enumerate import draws_for, enumerate_terms
from xflow.generator.enumeration.fingerprint import Evaluator, InexactError, digests, exact_integers
from xflow.generator.enumeration.level import Candidate, Enumeration
from xflow.generator.enumeration.replay import other_sizes
from xflow.generator.equations import steps
from xflow.generator.generalization.propose import Proposal, propose
from xflow.generator.production import Production, choices
from xflow.generator.vocabularies import taso_set
from xflow.generator.vocabularies.common import tensors
from xflow.generator.vocabulary import Input, Vocabulary
from xflow.ops import operators

X = "x"
RINGS = Vocabulary(
    "rings",
    (Input("x", X, "...", (5,)), Input("y", X, "...", (5,))),
    (
        *(Production(op, (X, X), X) for op in ("Add", "Sub", "Mul", "Max")),
        Production("Relu", (X,), X),
    ),
    (0, 0, 0),
)
MATRICES = Vocabulary(
    "matrices",
    tuple(Input(name, X, "*B n m", (2, 4, 4)) for name in "abc"),
    (
        Production("MatMul", (X, X), X),
        Production("Add", (X, X), X),
        Production("Concat", (X, X), X, choices(axis=[1, 2])),
        Production("Split", (X,), X, choices(axis=[1, 2], split=[(4, 4)])),
        Production("Transpose", (X,), X, choices(perm=[(0, 2, 1)])),
    ),
    (0, 0, 0),
    ranks=(0, 1, 2),
)
KERNELS = Vocabulary(
    "kernels",
    (
        Input("x", X, "N C *S", (2, 4, 7)),
        Input("w", "kernel", "O I *R", (4, 4, 3)),
        Input("v", "kernel", "O I *R", (4, 4, 3)),
        Input("b", "bias", "O", (4,)),
    ),
    (
        Production("Conv", (X, "kernel"), X),
        Production("Conv", (X, "kernel", "bias"), X),
        Production("Add", (X, X), X),
        Production("Add", ("kernel", "kernel"), "kernel"),
        Production("Add", ("bias", "bias"), "bias"),
    ),
    (1, 2, 2),
    free=frozenset({"kernel", "bias"}),
    ranks=(1, 2),
)
FUNCTIONS = Vocabulary(
    "functions",
    (Input("x", X, "...", (5,)), Input("y", X, "...", (5,))),
    (
        Production("Scalar", (), "one", choices(value=[Fraction(1)])),
        *(Production(op, (X, X), X) for op in ("Mul", "Div")),
        *(Production(op, (X,), X) for op in ("Neg", "Sigmoid", "Exp", "Reciprocal")),
        Production("Add", (X, "one"), X),
        Production("Div", ("one", X), X),
    ),
    (1, 1, 2),
    free=frozenset({"one"}),
    exact=False,
)
VOCABULARIES = (RINGS, MATRICES, KERNELS, FUNCTIONS)
by_name = pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda v: v.name)


@cache
def enumerated(name: str) -> Enumeration:
    (vocabulary,) = (v for v in VOCABULARIES if v.name == name)
    return enumerate_terms(vocabulary, 0, 2)


@cache
def proposed(name: str) -> tuple[list[Proposal], Counter[str]]:
    (vocabulary,) = (v for v in VOCABULARIES if v.name == name)
    counts: Counter[str] = Counter()
    return propose(enumerated(name).candidates, vocabulary, 0, counts), counts


def by_one(evaluator: Evaluator, value: Value) -> list[Array]:
    """The values of a term at each draw, by the operators' readings of single arrays."""
    node = value.node
    if value.is_leaf:
        return list(evaluator.leaf(value))
    assert isinstance(node.op, Operator)
    below = [by_one(evaluator, source) for source in node.inputs]
    with np.errstate(all="ignore"):
        return [
            node.op.numpy([args[draw] for args in below], node.attributes)[value.index]
            for draw in range(evaluator.draws)
        ]


# What is enumerated


@by_name
def test_members_of_a_class_agree_at_draws_that_did_not_make_them_members(
    vocabulary: Vocabulary,
) -> None:
    fresh = Evaluator(0, 8, vocabulary.exact, vocabulary.drawn, first=100)
    for candidate in enumerated(vocabulary.name).candidates:
        for left, right in zip(
            by_one(fresh, candidate.source.value),
            by_one(fresh, candidate.target.value),
            strict=True,
        ):
            finite = np.isfinite(left) & np.isfinite(right)
            if vocabulary.exact:
                assert np.array_equal(left, right), candidate
            np.testing.assert_allclose(left[finite], right[finite], rtol=1e-9, atol=1e-9)


@by_name
def test_what_is_proposed_holds_at_other_sizes_where_it_fits_them(vocabulary: Vocabulary) -> None:
    sizes = other_sizes(vocabulary)
    larger = {item.value: sizes[item.name] for item in vocabulary.inputs}
    evaluator = Evaluator(1, 2, vocabulary.exact, vocabulary.drawn)
    fitting = 0
    proposals, counts = proposed(vocabulary.name)
    for proposal in proposals:
        try:
            source, target = rebuild((proposal.source, proposal.target), larger)
        except ShapeError:
            continue
        fitting += 1
        left, right = by_one(evaluator, source), by_one(evaluator, target)
        finite = np.isfinite(left) & np.isfinite(right)
        np.testing.assert_allclose(np.array(left)[finite], np.array(right)[finite], rtol=1e-9)
    assert 2 * fitting > len(proposals)
    assert counts["accidental"] == 0


def test_terms_of_two_operators_are_all_those_that_the_grammar_makes_of_representatives() -> None:
    x, y = (item.value for item in RINGS.inputs)

    def larger(below: list[Value], whole: list[Value]) -> set[Value]:
        made = {apply("Relu", [value])[0] for value in whole}
        pairs = [(a, b) for a in whole for b in below] + [(b, a) for a in whole for b in below]
        pairs += [(value, value) for value in whole]
        return made | {apply(op, pair)[0] for op in ("Add", "Sub", "Mul", "Max") for pair in pairs}

    found = enumerated("rings")
    first = larger([x, y], [x, y])
    graphs = 2 + len({str_up_to_order(value) for value in first})
    representatives = [value for value in first if is_representative(found, value)]
    second = larger([x, y], representatives)
    graphs += len({str_up_to_order(value) for value in second})
    assert found.levels[0, 0][0] + found.levels[1, 0][0] + found.levels[2, 0][0] == graphs


def is_representative(found: Enumeration, value: Value) -> bool:
    term = found.representative(value, X)
    assert term is not None
    return term.value == value


def str_up_to_order(value: Value) -> str:
    """The text of a term with the arguments of commutative operators sorted."""
    if value.is_leaf:
        return str(value)
    assert isinstance(value.node.op, Operator)
    args = [str_up_to_order(source) for source in value.node.inputs]
    if value.node.op.commutative:
        args.sort()
    return f"{value.node.op.name}({', '.join(args)})"


@by_name
def test_commutative_operators_are_applied_in_one_order(vocabulary: Vocabulary) -> None:
    found = enumerated(vocabulary.name)
    terms = {c.source.value for c in found.candidates} | {c.target.value for c in found.candidates}
    roots = [value for value in terms if not value.is_leaf]
    for value in roots:
        op = value.node.op
        assert isinstance(op, Operator)
        if op.commutative and len(set(value.node.inputs)) == 2:
            (swapped,) = apply(op, value.node.inputs[::-1], value.node.attributes, dtype="FLOAT")
            assert swapped not in terms


def test_no_term_is_a_candidate_twice_and_none_is_its_own_representative() -> None:
    for vocabulary in VOCABULARIES:
        sources = [c.source.value for c in enumerated(vocabulary.name).candidates]
        assert len(set(sources)) == len(sources)
        for candidate in enumerated(vocabulary.name).candidates:
            assert candidate.target.order < candidate.source.order


def test_repeated_and_shared_arguments_are_met_and_counted_once() -> None:
    texts = {c.source.text: c.source for c in enumerated("rings").candidates}
    assert texts["Max(x, x)"].ops == 1
    assert texts["Sub(Mul(x, y), Mul(x, y))"].ops == 2
    assert "Max(Max(x, y), x)" in texts or "Max(x, Max(x, y))" in texts


def test_a_term_is_shared_even_if_it_represents_nothing() -> None:
    """``(x y) z + x y`` has three operators; as ``x (y z) + x y`` it would have four."""
    vocabulary = Vocabulary(
        "products",
        tuple(Input(name, X, "...", (5,)) for name in "xyz"),
        (Production("Add", (X, X), X), Production("Mul", (X, X), X)),
        (0, 0, 0, 0),
    )
    found = enumerate_terms(vocabulary, 0, 3)
    x, y, z = (item.value for item in vocabulary.inputs)
    (factored,) = apply("Mul", [x, apply("Add", [y, apply("Mul", [y, z])[0]])[0]])
    texts = {c.source.text for c in found.candidates} | {c.target.text for c in found.candidates}
    for pair in ((x, y), (y, x)):
        (product,) = apply("Mul", pair)
        whole = [apply("Mul", args)[0] for args in ((product, z), (z, product))]
        both = [args for value in whole for args in ((value, product), (product, value))]
        if any(str(apply("Add", args)[0]) in texts for args in both):
            break
    else:
        raise AssertionError("the shared product is not met")
    assert found.representative(factored, X) is not None


def test_all_outputs_of_an_operator_are_terms() -> None:
    sources = {c.source.text: c.target.text for c in enumerated("matrices").candidates}
    for axis in (1, 2):
        for output, name in enumerate("ab"):
            split = f"Split(Concat(a, b, axis={axis}), axis={axis}, split=[4, 4])[{output}]"
            assert sources[split] == name


def test_terms_of_weights_are_compared_with_their_like_alone() -> None:
    for candidate in enumerated("kernels").candidates:
        assert candidate.source.sort == candidate.target.sort == X


def test_texts_are_those_of_the_graphs() -> None:
    for vocabulary in VOCABULARIES:
        for candidate in enumerated(vocabulary.name).candidates:
            assert candidate.source.text == str(candidate.source.value)


# Fingerprints


def test_known_different_terms_fall_into_different_classes() -> None:
    a, b, c = (item.value for item in MATRICES.inputs)
    found = enumerated("matrices")

    def of(value: Value) -> object:
        term = found.representative(value, X)
        assert term is not None
        return term.row

    product, other = apply("MatMul", [a, b])[0], apply("MatMul", [b, a])[0]
    assert of(product) != of(other)
    assert of(apply("Add", [a, b])[0]) == of(apply("Add", [b, a])[0])
    stacked = [apply("Concat", [a, b], {"axis": axis})[0] for axis in (1, 2)]
    assert of(stacked[0]) != of(stacked[1])
    assert of(apply("Add", [product, c])[0]) != of(apply("Add", [other, c])[0])
    assert of(apply("Transpose", [product], {"perm": (0, 2, 1)})[0]) != of(product)


def test_small_tensors_are_drawn_more_often() -> None:
    assert draws_for(MATRICES) == 3
    assert 5 * draws_for(RINGS) >= 64


def test_a_maximum_is_not_taken_for_an_argument_that_it_mostly_is() -> None:
    """``max(x, y^2)`` and ``max(x, max(x, y)^2)`` differ where x > |y|, and x is not below 1."""
    x, y = (item.value for item in RINGS.inputs)
    (square,) = apply("Mul", [y, y])
    (most,) = apply("Max", [x, y])
    one, other = (apply("Max", [x, value])[0] for value in (square, apply("Mul", [most, most])[0]))
    for seed in range(20):
        evaluator = Evaluator(seed, draws_for(RINGS))
        assert evaluator.key(one) != evaluator.key(other)


def test_an_accident_of_sizes_is_not_proposed() -> None:
    """At extent 4 a sum is 4 times the mean, and of a square a mean of sums is a sum of means."""
    vocabulary = Vocabulary(
        "sums",
        (Input("x", X, "n m", (4, 4)),),
        (
            *(
                Production(op, (X,), X, choices(axes=[(0,), (1,)], keepdims=[1]))
                for op in ("ReduceSum", "ReduceMean")
            ),
            Production("Scalar", (), "four", choices(value=[Fraction(4)])),
            Production("Mul", (X, "four"), X),
        ),
        (1, 0, 2),
        free=frozenset({"four"}),
    )
    found = enumerate_terms(vocabulary, 0, 2)
    accidents = {
        "Mul(ReduceMean(x, axes=[0]), Scalar(value=4))",
        "ReduceSum(ReduceMean(x, axes=[0]), axes=[1])",
    }
    assert accidents <= {c.source.text for c in found.candidates}
    counts: Counter[str] = Counter()
    proposals = propose(found.candidates, vocabulary, 0, counts)
    assert counts["accidental"] >= 2
    assert not accidents & {text for p in proposals for text in (str(p.source), str(p.target))}
    assert any(str(p.source) == "ReduceSum(ReduceSum(x, axes=[1]), axes=[0])" for p in proposals)


@given(
    st.lists(
        st.lists(st.integers(-28, 28).map(lambda k: k / 4), min_size=3, max_size=3),
        min_size=2,
        max_size=6,
    )
)
def test_digests_are_equal_where_arrays_are_and_only_there(rows: list[list[float]]) -> None:
    stack = np.array(rows)
    made, finite = digests(stack, exact=True)
    assert finite.all()
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            assert (made[i] == made[j]).all() == (one == other)


def test_what_is_not_exact_is_noticed() -> None:
    assert exact_integers(np.array([0.25, -1.75])).tolist() == [2**18, -7 * 2**18]
    for value in (1 / 3, 2.0**40, -(2.0**40)):
        with pytest.raises(InexactError):
            exact_integers(np.array([value]))


def test_powers_that_float64_rounds_are_compared_to_digits() -> None:
    vocabulary = Vocabulary(
        "powers",
        (Input("x", X, "...", (5,)),),
        (Production("Mul", (X, X), X), Production("Add", (X, X), X)),
        (0, 0, 0, 0, 0),
    )
    assert enumerate_terms(vocabulary, 0, 2).exact
    found = enumerate_terms(vocabulary, 0, 4)
    assert not found.exact
    sources = {c.source.text: c.target.text for c in found.candidates}
    assert sources["Add(Mul(x, x), Mul(x, x))"] == "Mul(x, Add(x, x))"


def test_terms_that_are_not_finite_have_no_digest() -> None:
    made, finite = digests(np.array([[1.0, np.inf], [1.0, 2.0], [np.nan, 0.0]]), exact=False)
    assert finite.tolist() == [False, True, False]
    assert len({tuple(row) for row in made.tolist()}) >= 2


def test_rounding_does_not_tell_equal_terms_apart() -> None:
    """Sums in another order differ in the last bits."""
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(500, 64, 7))
    one, _ = digests(parts.sum(axis=2), exact=False)
    other, _ = digests(parts[:, :, ::-1].cumsum(axis=2)[:, :, -1], exact=False)
    assert (one == other).all()


# Batches

CASES = [
    (op, example)
    for op in operators()
    for example in op.examples
    if example.shapes
    and not example.types
    and is_concrete(example.attributes)
    and all(op.taken(i) == ELEMENT for i in range(len(example.shapes)))
]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(CASES), st.integers(1, 3), st.integers(0, 2**32))
def test_a_batch_is_what_its_elements_are_one_by_one(
    case: tuple[Operator, object], times: int, seed: int
) -> None:
    op, example = case
    from xflow.core.registry import Example  # noqa: PLC0415

    assert isinstance(example, Example)
    inputs = [leaf(f"i{n}", TensorType("FLOAT", s)) for n, s in enumerate(example.shapes)]
    node = apply(op, inputs, example.attributes, dtype="FLOAT")[0].node
    rng = np.random.default_rng(seed)
    batch = Batch(op, node.attributes)
    for _ in range(times):  # what was found out on one stack is used on the next
        stacks = [rng.normal(size=(70, *shape)) for shape in example.shapes]
        with np.errstate(all="ignore"):
            single = [op.numpy([s[i] for s in stacks], node.attributes) for i in range(70)]
        for made, wanted in zip(batch(stacks), zip(*single, strict=True), strict=True):
            np.testing.assert_allclose(made, np.stack(wanted), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("vocabulary", [MATRICES, KERNELS], ids=lambda v: v.name)
def test_terms_evaluated_together_are_what_they_are_alone(vocabulary: Vocabulary) -> None:
    found = enumerated(vocabulary.name)
    evaluator = Evaluator(0, draws_for(vocabulary), vocabulary.exact, vocabulary.drawn)
    for candidate in found.candidates[::5]:
        known = found.representative(candidate.source.value, X)
        assert known is not None
        assert known.row == candidate.target.row
        assert evaluator.key(candidate.source.value) == evaluator.key(known.value)


# Determinism


def listing(found: Enumeration) -> list[tuple[str, str]]:
    return [(c.source.text, c.target.text) for c in found.candidates]


def test_enumerating_twice_gives_the_same_in_the_same_order() -> None:
    assert listing(enumerate_terms(MATRICES, 0, 2)) == listing(enumerated("matrices"))


def test_the_seed_decides_values_and_not_what_is_true() -> None:
    assert set(listing(enumerate_terms(MATRICES, 7, 2))) == set(listing(enumerated("matrices")))


def test_the_order_does_not_depend_on_hashes() -> None:
    program = (
        "from xflow.generator.enumeration.enumerate import enumerate_terms\n"
        "from xflow.generator.families import FAMILIES\n"
        "from xflow.generator.generalization.propose import propose\n"
        "v = next(f for f in FAMILIES if f.name == 'linear').vocabularies[0]\n"
        "for p in propose(enumerate_terms(v, 0, 2).candidates, v): print(p.source, p.target)\n"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(made) == 1
    assert made.pop().count("\n") > 20


def test_the_collector_runs_again_whatever_happens() -> None:
    @without_collector
    def fail() -> None:
        assert not gc.isenabled()
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


# TASO's operators


def test_an_activation_that_is_fused_costs_nothing() -> None:
    vocabulary = Vocabulary(
        "fused",
        (Input("x", X, "n m", (4, 4)), Input("y", X, "n m", (4, 4))),
        (
            Production("MatMul", (X, X), X),
            Production("MatMul", (X, X), X, then="Relu"),
            Production("Relu", (X,), X),
        ),
        (0, 0, 0),
    )
    found = enumerate_terms(vocabulary, 0, 2)
    x, y = (item.value for item in vocabulary.inputs)
    (value,) = apply("Relu", apply("MatMul", [x, y]))
    term = found.representative(value, X)
    assert term is not None
    assert (term.ops, term.value) == (1, value)
    assert all(c.source.text != c.target.text for c in found.candidates)
    assert ("Relu(Relu(MatMul(x, y)))", str(value)) in listing(found)


def test_equations_over_tasos_operators_are_found_at_two_operators() -> None:
    found: dict[str, list[Candidate]] = {
        vocabulary.name: enumerate_terms(vocabulary, 0, 2).candidates
        for vocabulary in taso_set.TASO.vocabularies
    }
    texts = {name: {c.source.text: c.target.text for c in made} for name, made in found.items()}
    assert texts["matrices"]["Transpose(Transpose(a))"] == "a"
    assert texts["matrices"]["MatMul(a, Eye(n=4))"] == "a"
    assert texts["images"]["Relu(Relu(Conv(x, y, pads=[1, 1])))"].startswith("Relu(Conv(x, y")
    identity = "Conv(x, IdentityKernel(channels=4, kernel=[3, 3]), pads=[1, 1, 1, 1])"
    assert texts["kernels"][identity] == "x"
    assert any(
        source.startswith("Conv(x, Div(Ones") and target.startswith("AveragePool(x")
        for source, target in texts["averages"].items()
    )


def test_an_equation_says_every_combination_of_its_sorts_and_values() -> None:
    made = steps("""
        c = 2 | -1/2
        made_of_c = Mul(x | y, c) | LeakyRelu(x, alpha=1/4)
        x = Slice(x, starts=(0,), ends=(2,) | (3,), axes=(1,), steps=(1,))
    """)
    cuts = choices(starts=[(0,)], ends=[(2,), (3,)], axes=[(1,)], steps=[(1,)])
    assert made == (
        Production("Scalar", (), "c", choices(value=[Fraction(2), Fraction(-1, 2)])),
        Production("Mul", ("x", "c"), "made of c"),
        Production("Mul", ("y", "c"), "made of c"),
        Production("LeakyRelu", ("x",), "made of c", choices(alpha=[Fraction(1, 4)])),
        Production("Slice", ("x",), "x", cuts),
    )
    wrong = ("Mul(x, y)", "x = Mul(x, Neg(y))", "x = Neg(2)", "x = Mul([x], y)", "x = Neg((x, y))")
    for text in (*wrong, "f, g = Neg((x, y, z))"):
        with pytest.raises(SyntaxError):
            steps(text)


def test_an_equation_has_absent_arguments_several_sorts_and_given_attributes() -> None:
    windows = ({"strides": (1,)}, {"strides": (2,), "pads": (1, 0)})
    made = steps("f, g = Conv((x, y), w, [b | c], group=2 | 4, **windows)", windows=windows)
    written = steps(
        """
        f = Conv(x, w, group=2 | 4, **windows) | Conv(x, w, b | c, group=2 | 4, **windows)
        g = Conv(y, w, group=2 | 4, **windows) | Conv(y, w, b | c, group=2 | 4, **windows)
    """,
        windows=windows,
    )
    assert made == written
    assert [p.args for p in made[:3]] == [("x", "w"), ("x", "w", "b"), ("x", "w", "c")]
    assert made[0].choices == tuple({"group": n, **window} for n in (2, 4) for window in windows)
    with pytest.raises(KeyError, match="Conv has no size"):
        steps("f = Conv(x, w, **windows)", windows=[{"size": 3}])
    optional = steps("out = ConvInteger(x, w, [z], [v])")
    assert [len(p.args) for p in optional] == [2, 3, 4]


def test_inputs_are_written_with_their_axes_behind_their_sorts() -> None:
    made = tensors("x: x[N *S 1]  mask_of_all: a[S] b[] BOOL  place: i[3] INT64", N=2, S=7)
    assert made == (
        Input("x", "x", "N *S 1", (2, 7, 1)),
        Input("a", "mask of all", "S", (7,)),
        Input("b", "mask of all", "", (), dtype="BOOL"),
        Input("i", "place", "3", (3,), dtype="INT64"),
    )
    with pytest.raises(KeyError):
        tensors("x: x[N C]", N=2)
    with pytest.raises(ValueError, match="no input"):
        tensors("x: x[N", N=2)


def test_a_vocabulary_has_its_equations_once() -> None:
    one = Vocabulary("one", tensors("x: x[n]  weight: w[n]", n=5), free=frozenset({"weight"}))
    made = one.steps("y = Neg(weight)", "y = Neg(x)")
    assert made.free == {"weight"}
    with pytest.raises(ValueError, match="has productions"):
        made.steps("x = Neg(x)")


def test_what_is_made_of_weights_alone_is_free() -> None:
    vocabulary = Vocabulary(
        "scales",
        (Input("x", X, "n", (5,)), Input("w", "weight", "n", (5,))),
        steps("""
            one = 1
            shifted = Add(weight, one)
            other = Mul(shifted, weight) | Mul(shifted, x)
            later = Neg(other)
        """),
        (2, 2),
        free=frozenset({"weight"}),
    )
    assert vocabulary.free == {"weight", "one", "shifted"}
