"""The e-graph keeps its promises, and equations are derived that follow, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import CORPUS

import taso
from xflow.cli.entry import main
from xflow.core.errors import ExitCode
from xflow.core.evaluation import run
from xflow.core.graph import walk
from xflow.core.node import Leaf, TensorType, Value, apply, leaf
from xflow.core.registry import Operator, Shape
from xflow.core.size import evaluate
from xflow.core.value_conditions import is_need
from xflow.generator.saturation.derivation import Derived, NotDerived, derive, derive_claim
from xflow.generator.saturation.directions import Database
from xflow.generator.saturation.egraph import Applied, EGraph, Step
from xflow.generator.saturation.saturate import Saturation
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Refuted, prove

VECTOR = TensorType("FLOAT", (3,))
LEAVES = [leaf(name, VECTOR) for name in "abc"]
DATABASE = Database.of(load_rules(default_directory()))
FALSE = [
    rule
    for name in ("taso-axioms-false.rules", "bad.rules", "typed-bad.rules")
    for rule in parse_rules((CORPUS / name).read_text("utf-8"), name)
]


def rules(text: str) -> list[Rule]:
    return parse_rules(text)


LINEAR = rules("""
rule associative
  in       a[n, m] b[m, k] c[k, l]
  from     MatMul(a, MatMul(b, c))
  to       MatMul(MatMul(a, b), c)
  reverse  always
rule distributive
  in       a[n, m] b[m, k] c[m, k]
  from     Add(MatMul(a, b), MatMul(a, c))
  to       MatMul(a, Add(b, c))
  reverse  always
""")
PADS = rules("""
rule pads
  in       x[n]
  param    p q
  from     Pad(Pad(x, pads=[p, p]), pads=[q, q])
  to       Pad(x, pads=[p + q, p + q])
  where    p >= 0
""")
SCALE = rules("""
rule scale
  in       x[...]
  param    s:real
  from     Relu(Mul(x, Scalar(value=s)))
  to       Mul(Relu(x), Scalar(value=s))
  where    s >= 0
""")
STACKED = "Split(Relu(Concat(a, b, axis=1)), axis=1, split=[m, k])"
SPLITS = rules(f"""
rule halves
  in       a[n, m] b[n, k]
  from     Split(Concat(a, b, axis=1), axis=1, split=[m, k])[0]
  to       a
rule stacked
  in       a[n, m] b[n, k]
  from     Relu(a), Relu(b)
  to       {STACKED}[0], {STACKED}[1]
  reverse  always
""")


def equation(inputs: str, left: str, right: str, *lines: str) -> Rule:
    (rule,) = rules(
        "\n  ".join(["rule one", f"in {inputs}", f"from {left}", f"to {right}", *lines])
    )
    return rule


# The e-graph


def terms() -> st.SearchStrategy[Value]:
    def grown(smaller: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
        unary = st.builds(lambda x: apply("Relu", [x])[0], smaller)
        binary = st.builds(
            lambda name, x, y: apply(name, [x, y])[0],
            st.sampled_from(["Add", "Sub"]),
            smaller,
            smaller,
        )
        return unary | binary

    return st.recursive(st.sampled_from(LEAVES), grown, max_leaves=4)


EQUATIONS = st.lists(st.tuples(terms(), terms()), max_size=5)


def filled(equations: Sequence[tuple[Value, Value]], more: Sequence[Value]) -> EGraph:
    egraph = EGraph()
    for value in more:
        egraph.add(value)
    for number, (left, right) in enumerate(equations):
        egraph.add(left)
        egraph.add(right)
        egraph.union(left, right, Applied(str(number)))
        if number % 2:
            egraph.rebuild()
    egraph.rebuild()
    return egraph


def naive_closure(
    equations: Sequence[tuple[Value, Value]], values: Sequence[Value]
) -> dict[Value, int]:
    """The classes of the congruence closure, by going over all pairs until nothing changes."""
    everything = [*values, *(value for pair in equations for value in pair)]
    found = {node.outputs[0]: k for k, node in enumerate(walk(everything))}

    def merge(left: Value, right: Value) -> bool:
        old, new = found[right], found[left]
        for value, number in found.items():
            if number == old:
                found[value] = new
        return old != new

    for left, right in equations:
        merge(left, right)
    while any(are_congruent(a, b, found) and merge(a, b) for a, b in combinations(found, 2)):
        pass
    return found


def are_congruent(left: Value, right: Value, classes: dict[Value, int]) -> bool:
    op = left.node.op
    if isinstance(op, Leaf) or op is not right.node.op:
        return False
    inputs = [[classes[source] for source in value.node.inputs] for value in (left, right)]
    assert isinstance(op, Operator)
    return inputs[0] == inputs[1] or (op.commutative and sorted(inputs[0]) == sorted(inputs[1]))


@settings(max_examples=60, deadline=None)
@given(EQUATIONS, st.lists(terms(), min_size=1, max_size=5))
def test_equal_is_what_congruence_makes_equal(
    equations: list[tuple[Value, Value]], values: list[Value]
) -> None:
    egraph = filled(equations, values)
    classes = naive_closure(equations, values)
    for left, right in combinations(classes, 2):
        assert egraph.are_equal(left, right) == (classes[left] == classes[right])
    names = {egraph.canonical(value) for value in classes}
    assert set(egraph.classes()) == names


def is_step(step: Step, left: Value, right: Value) -> bool:
    """Whether a step replaces one side of an equation by the other at one place."""
    if {step.before, step.after} == {left, right}:
        return True
    before, after = step.before.node, step.after.node
    if before.op is not after.op or before.attributes != after.attributes:
        return False
    changed = [(a, b) for a, b in zip(before.inputs, after.inputs, strict=True) if a != b]
    return len(changed) == 1 and is_step(Step(step.rule, *changed[0]), left, right)


def is_swap(before: Value, after: Value) -> bool:
    """Whether inputs of a commutative operator have changed places, anywhere."""
    op = before.node.op
    if not isinstance(op, Operator) or op is not after.node.op:
        return False
    if op.commutative and set(before.node.inputs) == set(after.node.inputs):
        return True
    pairs = zip(before.node.inputs, after.node.inputs, strict=True)
    return all(a == b or is_swap(a, b) for a, b in pairs)


@settings(max_examples=60, deadline=None)
@given(EQUATIONS, st.lists(terms(), min_size=2, max_size=5))
def test_an_explanation_goes_from_one_term_to_the_other_by_the_equations(
    equations: list[tuple[Value, Value]], values: list[Value]
) -> None:
    egraph = filled(equations, values)
    for left, right in combinations(naive_closure(equations, values), 2):
        if not egraph.are_equal(left, right):
            continue
        steps = egraph.explain(left, right)
        assert steps[0].before == left
        assert steps[-1].after == right
        assert all(one.after == two.before for one, two in pairwise(steps))
        for step in steps:
            if step.rule is None:
                assert is_swap(step.before, step.after)
            else:
                assert is_step(step, *equations[int(step.rule)])


def test_nodes_that_have_become_congruent_count_once() -> None:
    a, b, _ = LEAVES
    egraph = filled([(a, b)], [apply("Relu", [a])[0], apply("Relu", [b])[0]])
    assert len(egraph) == 3
    assert len(list(egraph.classes())) == 2


def test_the_outputs_of_congruent_nodes_are_equal_pairwise() -> None:
    parts = [apply("Split", [value], {"axis": 0, "split": (1, 2)}) for value in LEAVES[:2]]
    egraph = filled([(LEAVES[0], LEAVES[1])], [output for part in parts for output in part])
    assert egraph.are_equal(parts[0][1], parts[1][1])
    assert not egraph.are_equal(parts[0][0], parts[1][1])


# Derivations


def test_a_rule_derives_itself_in_one_step_whatever_the_names_are() -> None:
    rule = equation("u[x, y] v[y, z] w[z, t]", "MatMul(u, MatMul(v, w))", "MatMul(MatMul(u, v), w)")
    found = derive(rule, LINEAR)
    assert isinstance(found, Derived)
    assert (found.steps, found.rules) == (1, ("associative",))


def test_a_rule_on_codes_derives_what_is_made_of_it() -> None:
    inputs = "x[N, C, H, W]:code w[O, C, R, S]:code z[]:code v[]:code"
    plain = "ConvInteger(x, w, z, v)"
    other = "ConvInteger(x, Recoded(w, to='unsigned'), z, Recoded(v, to='unsigned'))"
    found = derive(
        equation(inputs, f"Neg({plain})", f"Neg({other})"),
        [equation(inputs, other, plain, "reverse always")],
    )
    assert isinstance(found, Derived), str(found)


def test_two_rules_are_applied_one_after_the_other() -> None:
    rule = equation(
        "a[n, m] b[m, k] c[k, l] d[k, l]",
        "Add(MatMul(MatMul(a, b), c), MatMul(a, MatMul(b, d)))",
        "MatMul(a, MatMul(b, Add(d, c)))",
    )
    found = derive(rule, LINEAR)
    assert isinstance(found, Derived)
    assert set(found.rules) == {"associative", "distributive"}
    assert isinstance(derive(rule, LINEAR[:1]), NotDerived)


def test_sides_that_differ_in_the_order_of_addends_need_no_step() -> None:
    found = derive(equation("a[...] b[...]", "Relu(Add(a, b))", "Relu(Add(b, a))"), [])
    assert isinstance(found, Derived)
    assert (found.steps, found.rules) == (0, ())


def test_steps_are_counted_and_limited() -> None:
    factors = "a[n, n] b[n, n] c[n, n] d[n, n] e[n, n] f[n, n] g[n, n] h[n, n]"
    left, right = "a", "h"
    for name in "bcdefgh":
        left = f"MatMul({left}, {name})"
    for name in "gfedcba":
        right = f"MatMul({name}, {right})"
    rule = equation(factors, left, right)
    found = derive(rule, LINEAR, steps=4)
    assert isinstance(found, Derived)
    assert found.steps > 1
    assert isinstance(derive(rule, LINEAR, steps=found.steps - 1), NotDerived)
    full = derive(rule, LINEAR, steps=4, max_nodes=30)
    assert isinstance(full, NotDerived)
    assert "limit" in full.reason


def test_both_outputs_must_be_derived() -> None:
    rule = equation("a[n, m] b[n, k]", "Relu(a), Relu(b)", f"{STACKED}[0], {STACKED}[1]")
    found = derive(rule, SPLITS)
    assert isinstance(found, Derived)
    assert [len(chain) for chain in found.chains] == [1, 1]
    turned = equation("a[n, m] b[n, m]", "Relu(a), Relu(b)", "Relu(b), Relu(a)")
    assert isinstance(derive(turned, SPLITS), NotDerived)
    half = equation("a[n, m] b[n, k]", "a, Relu(b)", f"a, {STACKED}[1]")
    assert isinstance(derive(half, SPLITS[:1]), NotDerived)


def test_two_outputs_of_one_operator_are_not_the_same() -> None:
    parts = "Split(x, axis=0, split=[n, n])"
    rule = equation("x[2 * n]", f"Relu({parts}[0])", f"Relu({parts}[1])")
    assert isinstance(derive(rule, DATABASE, steps=1), NotDerived)


def test_a_rule_is_used_only_where_its_condition_holds() -> None:
    inputs, left = "x[n]", "Pad(Pad(x, pads=[p, p]), pads=[q, q])"
    lines = ("param p q",)
    right = "Pad(x, pads=[p + q, p + q])"
    assert isinstance(derive(equation(inputs, left, right, *lines), PADS), NotDerived)
    given_ = equation(inputs, left, right, *lines, "where p >= 0")
    assert isinstance(derive(given_, PADS), Derived)
    wrong = equation(inputs, left, right, *lines, "where q >= 0")
    assert isinstance(derive(wrong, PADS), NotDerived)


def test_a_fact_about_a_number_must_be_given() -> None:
    sides = ("x[...]", "Relu(Mul(x, Scalar(value=t)))", "Mul(Relu(x), Scalar(value=t))")
    assert isinstance(derive(equation(*sides, "param t:real"), SCALE), NotDerived)
    assert isinstance(derive(equation(*sides, "param t:real", "where t > 0"), SCALE), Derived)
    literal = ("x[...]", "Relu(Mul(x, 3))", "Mul(Relu(x), 3)")
    assert isinstance(derive(equation(*literal), SCALE), Derived)
    assert isinstance(
        derive(equation("x[...]", "Relu(Mul(x, -3))", "Mul(Relu(x), -3)"), SCALE), NotDerived
    )


def test_numbers_are_computed() -> None:
    product = rules("""
rule product
  in       x[...] y[...] z[...]
  from     Mul(Mul(x, y), z)
  to       Mul(x, Mul(y, z))
""")
    found = derive(equation("x[...]", "Mul(Mul(x, 2), 3 / 4)", "Mul(x, 3 / 2)"), product)
    assert isinstance(found, Derived)
    assert (found.steps, found.rules) == (1, ("product",))
    wrong = equation("x[...]", "Mul(Mul(x, 2), 3 / 4)", "Mul(x, 5 / 4)")
    assert isinstance(derive(wrong, product), NotDerived)
    root = equation("x[...]", "Mul(x, Sqrt(2))", "Mul(x, 1.41421356237)")
    assert isinstance(derive(root, product), NotDerived)


def test_what_two_equal_sizes_would_allow_is_not_derived() -> None:
    square = rules("""
rule square
  in       a[n, n] b[n, n]
  from     MatMul(a, Transpose(b))
  to       MatMul(a, b)
""")
    assert isinstance(
        derive(equation("a[n, m] b[m, m]", "MatMul(a, Transpose(b))", "MatMul(a, b)"), square),
        NotDerived,
    )


MOVED = rules("""
rule moved
  in       x[n, m]
  from     Transpose(Elementwise(x), perm=[1, 0])
  to       Elementwise(Transpose(x, perm=[1, 0]))
rule moved-beside-a-number
  in       x[n, m] k[]
  from     Transpose(Elementwise(x, k), perm=[1, 0])
  to       Elementwise(Transpose(x, perm=[1, 0]), k)
""")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Transpose(Relu(x), perm=[1, 0])", "Relu(Transpose(x, perm=[1, 0]))"),
        ("Elu(Transpose(x, perm=[1, 0]))", "Transpose(Elu(x), perm=[1, 0])"),
        ("Transpose(Mul(k, x), perm=[1, 0])", "Mul(Transpose(x, perm=[1, 0]), k)"),
        ("Transpose(Sub(k, x), perm=[1, 0])", "Sub(k, Transpose(x, perm=[1, 0]))"),
        ("Transpose(ZeroPreserving(x), perm=[1, 0])", "ZeroPreserving(Transpose(x, perm=[1, 0]))"),
        ("Relu(Transpose(Sub(k, x), perm=[1, 0]))", "Transpose(Relu(Sub(k, x)), perm=[1, 0])"),
    ],
)
def test_a_rule_about_any_operator_is_one_about_each(left: str, right: str) -> None:
    assert isinstance(derive(equation("x[n, m] k[]", left, right), Database.of(MOVED)), Derived)


def test_what_is_turned_at_one_place_is_turned_at_all() -> None:
    wrong = equation(
        "x[n, m] k[]", "Transpose(Sub(k, x), perm=[1, 0])", "Sub(Transpose(x, perm=[1, 0]), k)"
    )
    assert isinstance(derive(wrong, Database.of(MOVED)), NotDerived)


def test_a_part_that_is_there_says_what_a_side_leaves_open() -> None:
    parts = "Split(x, axis=1, split=[m, k])"
    joined = rules(f"""
rule joined
  in       x[n, m + k]
  param    m k
  from     Concat({parts}[0], {parts}[1], axis=1)
  to       x
""")
    split = equation("x[n, m + k]", f"Relu({parts}[0])", "Split(Relu(x), axis=1, split=[m, k])[0]")
    found = derive(split, [*joined, *SPLITS])
    assert isinstance(found, Derived)
    assert set(found.rules) >= {"joined", "stacked"}
    assert isinstance(derive(split, SPLITS), NotDerived)


def test_a_quotient_is_not_derived_from_what_it_undoes() -> None:
    undone = rules("""
rule undone
  in       x[...] y[...]
  from     Mul(Div(x, y), y)
  to       x
""")
    done = equation("x[...] y[...]", "Mul(Div(x, y), y)", "x")
    assert isinstance(derive_claim(done, undone), Derived)
    introduced = equation("x[n] y[n]", "Add(x, Div(x, y))", "Add(Mul(Div(x, y), y), Div(x, y))")
    assert isinstance(derive_claim(introduced, undone), Derived)
    undefined = equation("x[...] y[...]", "x", "Mul(Div(x, y), y)")
    assert isinstance(derive_claim(undefined, undone), NotDerived)


def test_the_conditions_that_an_equation_needs_are_found() -> None:
    parts = "Split(Relu(Concat(a, b, axis=1)), axis=1, split=[m, l])"
    rule = equation("a[n, m] b[k, l]", "Relu(a), Relu(b)", f"{parts}[0], {parts}[1]")
    assert isinstance(derive(rule, SPLITS), NotDerived)
    found = derive_claim(rule, SPLITS)
    assert isinstance(found, Derived)
    assert found.where == ("n == k",)
    assert isinstance(derive_claim(rule, SPLITS, infer=False), NotDerived)


WITHOUT_CONDITIONS = rules("""
rule mean-of-rows
  in       x[m, n]
  from     Mul(ReduceSum(x, axes=[1]), Reciprocal(ReduceSum(Ones(shape=[1, n]), axes=[1])))
  to       ReduceMean(x, axes=[1])
  where    n >= 1

rule maximum-of-parts
  in       x[m, n] y[m, k]
  from     ReduceMax(Concat(x, y, axis=1), axes=[1])
  to       Max(ReduceMax(x, axes=[1]), ReduceMax(y, axes=[1]))
  where    n >= 1, k >= 1

rule sum-of-quotients
  in       x[n, m] s[n, 1]
  from     ReduceSum(Div(x, s), axes=[1])
  to       Div(ReduceSum(x, axes=[1]), s)
  where    m >= 1

rule padded-and-cut
  in       x[n]
  param    p
  from     x
  to       Slice(Pad(x, pads=[p, 0]), starts=[p], ends=[n + p], axes=[0], steps=[1])
  where    p >= 0
""")


@pytest.mark.parametrize("rule", WITHOUT_CONDITIONS, ids=lambda rule: rule.name)
def test_an_equation_that_is_derived_is_claimed_under_the_conditions_that_it_needs(
    rule: Rule,
) -> None:
    """At all sizes that are tried it holds, and not at those that the conditions leave out."""
    bare = replace(rule, where=())
    found = derive_claim(bare, [rule])
    assert isinstance(found, Derived), found.reason
    conditions = {text for text in found.where if not is_need(text, rule.value_names)}
    assert conditions == set(rule.where)
    assert isinstance(prove(bare, infer=False, both_ways=False), Refuted)
    assert isinstance(derive_claim(bare, [rule], infer=False), NotDerived)


def test_a_condition_on_the_elements_of_an_input_is_not_made_up_for_a_claim() -> None:
    undone = rules("""
rule undone
  in       x[n] y[n]
  from     Mul(Div(x, y), y)
  to       x
""")
    found = derive_claim(equation("x[n] y[n]", "x", "Mul(Div(x, y), y)"), undone)
    assert isinstance(found, NotDerived)
    assert "false" in found.reason


@pytest.mark.parametrize("rule", FALSE, ids=lambda rule: rule.name)
def test_a_false_equation_is_not_derived(rule: Rule) -> None:
    assert isinstance(derive_claim(rule, DATABASE, steps=2, infer=False), NotDerived)


REALS = "param a:real b:real"
A, B = "Scalar(value=a)", "Scalar(value=b)"


@pytest.mark.parametrize(
    "rule",
    [
        equation("x[n]", "Pad(x, pads=[0, n // 7])", "x"),
        equation("x[n]", f"Mul(x, Max({A}, {B}))", f"Mul(x, {A})", REALS),
        equation("x[n]", f"Mul(x, Mul(Abs({A}), Abs({B})))", f"Mul(x, Mul({A}, {B}))", REALS),
        equation("x[N, *S]", "Softmax(x, axis=0)", "Softmax(x, axis=-1)", "rank 0 ..."),
    ],
    ids=lambda rule: rule.lhs,
)
def test_what_fails_at_few_sizes_numbers_or_ranks_is_not_derived(rule: Rule) -> None:
    found = derive_claim(rule, load_rules(default_directory()), steps=2)
    assert isinstance(found, NotDerived)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Mul(t, Mul(Mul(Sub(s, s), 3), 2))", "Relu(t)"),
        ("Add(s, Pow(2, 70))", "Relu(t)"),
        ("Pow(s, Pow(10, 400))", "Relu(t)"),
    ],
)
def test_numbers_do_not_end_a_search(left: str, right: str) -> None:
    rule = equation("s[] t[]", left, right)
    assert isinstance(derive(rule, load_rules(default_directory()), 2), NotDerived)


def test_the_seed_alone_decides_what_is_found() -> None:
    rule = taso.load()[6].rule
    first, second = (derive(rule, DATABASE, seed=3) for _ in range(2))
    assert first == second


# Recall


@pytest.mark.parametrize(
    "number",
    [0, 9, 10, 36, 70, 73, *(pytest.param(number, marks=pytest.mark.many) for number in (59, 92))],
)
def test_a_published_substitution_follows_from_the_database(number: int) -> None:
    (shipped,) = (shipped for shipped in taso.load() if shipped.number == number)
    found = derive_claim(shipped.rule, DATABASE, steps=4)
    assert isinstance(found, Derived), found.reason
    for chain in found.chains:
        assert_is_true(chain)


def evaluated(shape: Shape) -> list[int]:
    return [evaluate(size, {}) for size in shape]


def assert_is_true(chain: Sequence[Step]) -> None:
    """All terms of a derivation give the same numbers."""
    terms = [*(step.before for step in chain), chain[-1].after]
    rng = np.random.default_rng(0)
    feeds = {
        node.op.key: rng.integers(-4, 5, evaluated(node.types[0].shape)).astype(np.float64)
        for node in walk(terms)
        if isinstance(node.op, Leaf)
    }
    first, *others = run(terms, feeds)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-9)


SHORTCUT = """rule shortcut
  in x[N, C, H, W] w[C, C, 1, 1]
  from Conv(x, {left})
  to Conv(x, {right})
"""


@pytest.mark.parametrize(
    ("left", "right", "follows"),
    [
        (
            "Reshape(Eye(n=C), shape=[C, C, 1, 1])",
            "IdentityKernel(channels=C, kernel=[1, 1])",
            True,
        ),
        ("Mul(Ones(shape=[C, C, 1, 1]), 1/4)", "Div(Ones(shape=[C, C, 1, 1]), 4)", True),
        ("Mul(Ones(shape=[C, C, 1, 1]), 1/4)", "Div(Ones(shape=[C, C, 1, 1]), 3)", False),
        ("Add(w, Zeros(shape=[C, C, 1, 1]))", "Add(w, Eye(n=C))", False),
    ],
)
def test_constants_are_equal_where_their_elements_are(left: str, right: str, follows: bool) -> None:
    (rule,) = parse_rules(SHORTCUT.format(left=left, right=right))
    assert isinstance(derive_claim(rule, [], infer=False), Derived) == follows
    assert isinstance(derive(rule, []), NotDerived)


def test_saturation_keeps_to_its_limit() -> None:
    x = leaf("x", VECTOR)
    search = Saturation(DATABASE, [apply("Relu", [x])[0]], max_nodes=200)
    for _ in range(4):
        search.step()
    assert search.is_full
    assert len(search.egraph) < 300


# The command


ASSOCIATIVITY = ("a[n,m] b[m,k] c[k,l]", "MatMul(MatMul(a, b), c)", "MatMul(a, MatMul(b, c))")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "linear.rules").write_text("\n".join(map(str, LINEAR)), encoding="utf-8")
    return tmp_path


def run_derive(folder: Path, *arguments: str) -> int:
    return main(["rules", "derive", "--rules", str(folder), *arguments])


def test_the_command_prints_the_derivation(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs, left, right = ASSOCIATIVITY
    assert run_derive(folder, "--in", inputs, left, right) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("derived in 1 step by 1 rule")
    assert lines[-3:] == [
        "    MatMul(MatMul(a, b), c)",
        "  = MatMul(a, MatMul(b, c))",
        "      by associative",
    ]


def test_the_command_tells_what_is_not_derived(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ("--in", "a[n,n] b[n,n]", "MatMul(a, b)", "MatMul(b, a)")
    assert run_derive(folder, *sides) == 12
    assert "it is false" in capsys.readouterr().out
    assert run_derive(folder, *sides, "--no-infer", "--steps", "1") == ExitCode.NOT_DERIVED
    assert "there is none" in capsys.readouterr().out
    assert run_derive(folder, *sides, "-q") == ExitCode.NOT_DERIVED
    assert capsys.readouterr().out == ""


def test_the_command_reads_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = str(folder / "linear.rules")
    assert run_derive(folder, name) == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[-1].startswith("4 of 4 equations derived")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), ExitCode.USAGE),
        (("--in", "a[n]", "a"), ExitCode.USAGE),
        (("--steps", "0", "some.rules"), ExitCode.USAGE),
        (("no-such.rules",), ExitCode.ERROR),
        (("--in", "a[n]", "Relu(a)", "Nosuch(a)"), ExitCode.USAGE),
    ],
)
def test_a_mistake_is_one_sentence(
    folder: Path,
    arguments: tuple[str, ...],
    code: ExitCode,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_derive(folder, *arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
