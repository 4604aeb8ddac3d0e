"""Sizes that conditions fix are put in before anything is read, by prover and recheck."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xflow.cli import entry
from xflow.core.constraint import Constraint, parse_constraint
from xflow.core.graph import with_sizes
from xflow.core.size import Size, evaluate, free_symbols, symbol
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.proof import fixed_sizes as of_the_prover
from xflow.verifier.prove import Proved, Refuted, prove
from xflow.verifier.recheck import fixed as of_the_recheck
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.verdicts import Confirmed


def one(inputs: str, left: str, right: str, where: str, params: str = "") -> Rule:
    param = f"  param {params}\n" if params else ""
    (rule,) = parse_rules(
        f"rule r\n  in {inputs}\n{param}  from {left}\n  to {right}\n  where {where}\n"
    )
    return rule


def part(start: str, end: str, axis: int) -> str:
    return f"Slice(x, starts=[{start}], ends=[{end}], axes=[{axis}], steps=[1])"


FIXED = [
    one("x[n, k]", "ReduceSum(x, axes=[1])", "x", "k == 1"),
    one("x[n, k]", "ReduceMean(x, axes=[1])", "x", "k == 1"),
    one("x[n, k]", "ReduceMax(x, axes=[1])", "x", "k == 1"),
    one("x[n, k]", "ReduceProd(x, axes=[1])", "x", "k == 1"),
    one("x[n, k]", "ReduceMin(x, axes=[1])", "x", "k <= 1"),
    one("x[n, k]", "ReduceSum(x, axes=[1])", "x", "2*k == 2"),
    one("x[n, k]", "ReduceSum(x, axes=[1])", "x", "k <= 1, k >= 1"),
    one("x[n, k]", "ReduceSum(x, axes=[1])", "x", "k*n == n, n >= 1"),
    one("x[n, k]", "ReduceSum(x, axes=[1])", "x", "k == n, n == 1"),
    one("x[n, k]", "ReduceSum(x, axes=[1])", "x", "k + n == 2, k >= 1, n >= 1"),
    one("x[n, k]", "ReduceSum(x, axes=[1])", "Zeros(shape=[n, 1])", "k == 0"),
    one(
        "x[n, k]",
        "ReduceSum(x, axes=[1])",
        f"Add({part('0', '1', 1)}, {part('1', '2', 1)})",
        "k == 2",
    ),
    one("x[n, k]", "Softmax(x, axis=1)", "Ones(shape=[n, 1])", "k == 1"),
    one("x[n, k] y[k, m]", "MatMul(x, y)", "Mul(x, y)", "k == 1, n == 1, m == 1"),
    one("x[n, c, k]", "AveragePool(x, kernel_shape=[k])", "x", "k == 1"),
    one("x[n, c, s] w[o, c, k]", "Conv(x, w)", "MatMul(Squeeze(w, axes=[2]), x)", "k == 1"),
    one("x[n, m]", "MatMul(Eye(n=n), x)", "MatMul(x, Eye(n=n))", "n == m"),
    one("x[n]", "Reshape(Reshape(x, shape=[2, m]), shape=[n])", "x", "n == 2*m", "m"),
    one(
        "x[n]",
        f"Concat({part('0', 'm', 0)}, {part('m', 'n', 0)}, axis=0)",
        "x",
        "n == 2*m",
        "m",
    ),
    one("x[n, k]", "Tile(x, repeats=[1, m])", "x", "m == 1", "m"),
    one("x[n, k]", "Pad(x, pads=[0, p, 0, q])", "x", "p + q == 0, p >= 0, q >= 0", "p q"),
    one("x[N, C, 1]", "MaxPool(x, kernel_shape=[k], strides=[k])", "x", "k >= 0", "k"),
    one(
        "x[N, C, m*k]",
        "MaxPool(x, kernel_shape=[k])",
        "ReduceMax(Reshape(x, shape=[N, C, m, k]), axes=[3], keepdims=0)",
        "k == 1",
    ),
    one(
        "x[N, C, k, l]",
        "MaxPool(x, kernel_shape=[k, l])",
        "ReduceMax(Reshape(x, shape=[N, C, k*l, 1]), axes=[2])",
        "k == 1",
    ),
]


@pytest.mark.parametrize("rule", FIXED, ids=lambda rule: f"{rule.lhs} where {rule.where}")
def test_a_rule_that_an_equation_makes_true_is_proved_and_confirmed(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    found = recheck_rule(
        replace(rule, where=verdict.where), json.loads(json.dumps(verdict.certificate)), cases=4
    )
    assert isinstance(found, Confirmed), str(found)


@pytest.mark.parametrize(
    "rule",
    [
        one("x[n, k]", "ReduceSum(x, axes=[1])", part("0", "1", 1), "k == 2"),
        one("x[n, k]", "ReduceSum(x, axes=[1])", part("0", "1", 1), "k >= 1"),
        one("x[n, k]", "ReduceMax(x, axes=[1])", "ReduceMin(x, axes=[1])", "k <= 2"),
        one("x[n, m]", "MatMul(Eye(n=n), x)", "Transpose(x, perm=[1, 0])", "n == m"),
        one(
            "x[n]",
            f"Concat({part('m', 'n', 0)}, {part('0', 'm', 0)}, axis=0)",
            "x",
            "n == 2*m",
            "m",
        ),
        one("x[n, k]", "ReduceSum(x, axes=[1])", part("0", "1", 1), "k*n == 2*n, n >= 1"),
    ],
    ids=lambda rule: f"{rule.lhs} where {rule.where}",
)
def test_a_rule_that_an_equation_does_not_make_true_is_refuted(rule: Rule) -> None:
    assert isinstance(prove(rule, both_ways=False), Refuted)


def test_the_command_proves_a_sum_over_one_value(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["prove", "--in", "x[n, k]", "--where", "k == 1"]
    assert entry.main([*arguments, "ReduceSum(x, axes=[1], keepdims=1)", "x"]) == 0
    assert "proved" in capsys.readouterr().out


# What is fixed

KNOWN = [
    (["k == 1"], [], {"k": 1}),
    (["n == 2*m"], [], {"n": 2 * symbol("m")}),
    (["2*n == 4*m"], [], {"n": 2 * symbol("m")}),
    (["k <= 1"], ["k >= 1"], {"k": 1}),
    (["k <= 1"], ["k >= 0"], {}),
    (["2*n <= 5", "3*n >= 4"], [], {"n": 2}),
    (["2*n == 3"], [], {}),
    (["h + w == 2", "w >= 1"], ["h >= 1"], {"h": 1, "w": 1}),
    (["k*m == k"], ["k >= 1"], {"m": 1}),
    (["k*m == k"], ["k >= 0"], {}),
    ([], ["m == k"], {}),
]


@pytest.mark.parametrize(("where", "given", "expected"), KNOWN)
def test_the_prover_knows_what_conditions_fix(
    where: list[str], given: list[str], expected: dict[str, Size]
) -> None:
    conditions = [list(map(parse_constraint, texts)) for texts in (where, given)]
    assert of_the_prover.fixed_sizes(conditions[0], [*conditions[0], *conditions[1]]) == expected


CONDITIONS = (
    *("k == 1", "n == 2", "m == 0", "k == m", "n == m", "n == 2*m", "2*k == 4*m", "k + m == 2"),
    *("k <= 1", "m <= 2", "n >= 1", "k >= 1", "m >= 0", "k*m == k", "n == k*m", "n == m + 1"),
    *("n//2 == m", "k - n <= 0", "3*n == 6", "-k == -2"),
)
NAMES = ("k", "m", "n")


def satisfying(conditions: Sequence[Constraint]) -> list[Mapping[str, int]]:
    """All small numbers for which conditions hold."""
    numbers = (dict(zip(NAMES, values, strict=True)) for values in product(range(-1, 5), repeat=3))
    return [at for at in numbers if all(c.substitute(at).decided for c in conditions)]


@given(st.lists(st.sampled_from(CONDITIONS), max_size=4), st.integers(0, 4))
def test_what_is_fixed_is_so_wherever_the_conditions_hold(texts: list[str], count: int) -> None:
    conditions = list(map(parse_constraint, texts))
    where = conditions[:count]
    for found in (
        of_the_prover.fixed_sizes(where, conditions),
        of_the_recheck.fixed_sizes(where, conditions, Questions(conditions)),
    ):
        free = set(NAMES) - found.keys()
        assert all(free_symbols(value) <= free for value in found.values())
        for at in satisfying(conditions):
            assert {name: evaluate(value, at) for name, value in found.items()} == {
                name: at[name] for name in found
            }


def test_sizes_are_put_into_shapes_and_attributes_at_any_depth() -> None:
    rule = one("x[n, k]", "Pad(Reshape(x, shape=[k, n]), pads=[k, 0, n, 0])", "x", "k >= 0")
    (value,) = with_sizes(rule.instance(0).lhs, {"k": 2, "n": 3 * symbol("m")})
    assert [str(size) for size in value.shape] == ["3*m + 4", "3*m"]
    assert str(value.node.inputs[0].node.attributes["shape"]) == str((2, 3 * symbol("m")))
