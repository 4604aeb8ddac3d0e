"""The generator: what it enumerates, how it generalises, and that it finds what it should."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from xflow.errors import UsageError
from xflow.generator import convolutions
from xflow.generator.derive import derive
from xflow.generator.enumerate import enumerate_terms
from xflow.generator.fingerprint import Evaluator, random_dyadics, rounded
from xflow.generator.generalize import Generalizer, plausible, split_rules
from xflow.generator.minimize import Reducer
from xflow.generator.propose import propose
from xflow.generator.run import generate
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary
from xflow.graph import apply
from xflow.rule import Rule, parse_rules
from xflow.rule_files import load_rules

X = "x"
SUMS = Vocabulary(
    "sums",
    (Input("x", X, "...", (5,)), Input("y", X, "...", (5,))),
    (Production("Add", (X, X), X), Production("Sub", (X, X), X), Production("Relu", (X,), X)),
    (0, 0, 0),
)
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
    (split,) = split_rules([rule])
    assert split.lhs == "MatMul(a, b), MatMul(a, c)"
    assert split.rhs.endswith("axis=1, split=[k, l])[1]")
    assert plausible(split, 0)


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
    assert reducer.smaller(apply("Add", [twice, x])[0], SUMS) == apply("Add", [once, x])[0]
    assert reducer.smaller(once, SUMS) is None
    reducer.remove(rule)
    assert not reducer.derives(twice, once, SUMS)


def test_kept_rules_are_proved_and_few() -> None:
    derivation = derive(Family("small", (SUMS,)), 0, 2, notice=lambda text: None)
    found = sides(kept.rule for kept in derivation.kept)
    assert ("Relu(Relu(x))", "Relu(x)") in found
    assert ("Add(x, Sub(y, x))", "y") in found
    assert len(found) < 15


def test_every_definition_is_proved(tmp_path: Path) -> None:
    rows = dict(generate(tmp_path, families=["definitions"], jobs=1).rows)
    assert (rows["refuted"], rows["unknown"]) == ("0", "0")
    assert int(rows["proved"]) == int(rows["proposed"]) > 20


def test_generating_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        out = tmp_path / name
        generate(out, families=["elementwise", "pooling"], max_ops=1, jobs=1)
        rules = load_rules(out)
        assert len(rules) > 10
        assert {f"{rule.name}.json" for rule in rules} == {
            path.name for path in (out / "certificates").iterdir()
        }
        contents.append({p.name: p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()})
    assert contents[0] == contents[1]


def test_an_unknown_family_is_an_error_that_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="convolution"):
        generate(tmp_path, families=["nonsense"])
