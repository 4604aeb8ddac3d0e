"""Matching: where rules apply, what their symbols become, and where they must not apply."""

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
from graphs import assert_same, call, tensor

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.fold import no_constants, with_expressions
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Value, apply
from xflow.core.registry import Array
from xflow.core.size import Size, symbol
from xflow.rewriting.instance import Instance
from xflow.rewriting.match import Match, Matcher, NoMatch, find_matches, may_match
from xflow.rewriting.rewrite import rewrite
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules
from xflow.rewriting.unify import solve


def instance(text: str, rank: int = 0) -> Instance:
    (rule,) = parse_rules("rule r\n" + "".join(f"  {line}\n" for line in text.splitlines()))
    return rule.instance(rank)


def matches(rule: Instance, *outputs: Value, **constants: Array) -> list[Match]:
    def data(value: Value) -> Array | None:
        assert isinstance(value.node.op, Leaf)
        return constants.get(value.node.op.key)

    return list(find_matches(rule, Graph(outputs), data))


def assert_sound(rule: Instance, graph: Graph, found: Iterable[Match]) -> int:
    """Every rewrite computes what the graph computed; returns how many there are."""
    count = 0
    for match in found:
        after = rewrite(graph, rule, match)
        assert isinstance(after, Graph), after
        assert_same(graph, after)
        count += 1
    return count


ASSOCIATIVE = instance("""in x[N, K] w[K, M] v[M, P]
from MatMul(MatMul(x, w), v)
to MatMul(x, MatMul(w, v))""")
DISTRIBUTE = instance("""in x[...] y[...] z[...]
from Mul(Add(x, y), z)
to Add(Mul(x, z), Mul(y, z))""")
FACTOR = instance("""in x[...] y[...] z[...]
from Add(Mul(x, z), Mul(y, z))
to Mul(Add(x, y), z)""")
MERGE = """in x[N, C, *S] w[O, c, *R] v[O, c, *(R + p + q)]
param *e *f *p *q *s *d g
rank 1 2 3
from Add(Conv(x, w, pads=[*e, *f], strides=[*s], dilations=[*d], group=g), \
Conv(x, v, pads=[*(e + d*p), *(f + d*q)], strides=[*s], dilations=[*d], group=g))
to Conv(x, Add(Pad(w, pads=[0, 0, *p, 0, 0, *q]), v), pads=[*(e + d*p), *(f + d*q)], \
strides=[*s], dilations=[*d], group=g)
where p >= 0, q >= 0"""
PARALLEL = instance("""in x[N, K] w[K, M] v[K, P]
from MatMul(x, w), MatMul(x, v)
to Split(MatMul(x, Concat(w, v, axis=1)), axis=1, split=[M, P])[0], \
Split(MatMul(x, Concat(w, v, axis=1)), axis=1, split=[M, P])[1]""")


def test_sizes_are_read_off_the_inputs() -> None:
    x, w, v = tensor("x", 3, 4), tensor("w", 4, 5), tensor("v", 5, 6)
    graph = Graph((call("MatMul", call("MatMul", x, w), v),))
    (match,) = find_matches(ASSOCIATIVE, graph)
    assert match.sizes == {"N": 3, "K": 4, "M": 5, "P": 6}
    assert assert_sound(ASSOCIATIVE, graph, [match]) == 1


def test_symbolic_sizes_of_a_model_are_kept_apart_from_those_of_the_rule() -> None:
    M = symbol("M")
    x, w, v = tensor("x", M, 4), tensor("w", 4, 5), tensor("v", 5, M)
    (match,) = matches(ASSOCIATIVE, call("MatMul", call("MatMul", x, w), v))
    assert match.sizes == {"N": M, "K": 4, "M": 5, "P": M}


def test_repeated_variable_binds_one_value_in_any_order() -> None:
    x, y, z = tensor("x", 2, 3), tensor("y", 2, 3), tensor("z", 3)
    graph = Graph((call("Add", call("Mul", z, x), call("Mul", y, z)),))
    found = list(find_matches(FACTOR, graph))
    assert {match.bindings["z"] for match in found} == {z}
    assert assert_sound(FACTOR, graph, found) == len(found) > 0
    assert not matches(FACTOR, call("Add", call("Mul", z, x), call("Mul", y, y)))


def test_broadcast_rule_takes_any_shapes() -> None:
    x, y, z = tensor("x", 2, 1, 3), tensor("y", 4, 1), tensor("z", 3)
    graph = Graph((call("Mul", call("Add", x, y), z),))
    assert assert_sound(DISTRIBUTE, graph, find_matches(DISTRIBUTE, graph)) == 2


def test_rewrite_that_changes_the_output_shape_does_not_apply() -> None:
    rule = instance("in x[...] y[...]\nfrom Sub(Add(x, y), y)\nto x")
    x, y = tensor("x", 3), tensor("y", 2, 3)
    graph = Graph((call("Sub", call("Add", x, y), y),))
    results = [rewrite(graph, rule, match) for match in find_matches(rule, graph)]
    assert all(isinstance(result, NoMatch) for result in results)


@pytest.mark.parametrize(
    ("kernel", "pads", "found"),
    [
        ((3, 3), (1, 1, 1, 1), True),
        ((3, 3), (0, 0, 2, 2), True),
        ((3, 5), (1, 2, 1, 2), True),
        ((5, 3), (4, 0, 0, 2), True),
    ],
)
def test_kernels_of_two_sizes_are_aligned_by_their_pads(
    kernel: tuple[int, int], pads: tuple[int, ...], found: bool
) -> None:
    rule = instance(MERGE, 2)
    x, w, v = tensor("x", 2, 3, 8, 9), tensor("w", 4, 3, 1, 1), tensor("v", 4, 3, *kernel)
    graph = Graph((call("Add", call("Conv", x, v, pads=pads), call("Conv", x, w)),))
    result = list(find_matches(rule, graph))
    assert bool(result) is found
    assert assert_sound(rule, graph, result) == len(result)


def test_where_that_fails_is_no_match() -> None:
    rule = instance(MERGE, 2)  # the kernels in an order in which p < 0
    x, w, v = tensor("x", 2, 3, 8, 8), tensor("w", 4, 3, 3, 1), tensor("v", 4, 3, 1, 3)
    graph = call(
        "Add", call("Conv", x, w, pads=(1, 0, 1, 0)), call("Conv", x, v, pads=(0, 1, 0, 1))
    )
    assert not matches(rule, graph)


def test_what_the_runtime_demands_of_an_image_is_known_where_it_is_convolved() -> None:
    """Of a kernel that fits, and of no empty image: nothing else is known of dynamic extents."""
    negated = instance(
        "in x[N, C, *S] w[O, I, *R]\nparam *e *f g\nrank 2\n"
        "from Conv(Neg(x), w, pads=[*e, *f], group=g)\n"
        "to Neg(Conv(x, w, pads=[*e, *f], group=g))",
        2,
    )
    pooled = instance(
        "in x[N, C, *S]\nparam *e *f *k\nrank 2\n"
        "from MaxPool(Relu(x), kernel_shape=[*k], pads=[*e, *f])\n"
        "to Relu(MaxPool(x, kernel_shape=[*k], pads=[*e, *f]))",
        2,
    )
    image = tensor("x", symbol("n"), 2, symbol("h"), symbol("w"))
    kernel = tensor("w", 4, 2, 3, 3)
    for width in (0, 1):
        pads = (width,) * 4
        graph = Graph((call("Conv", call("Neg", image), kernel, pads=pads),))
        (match,) = matches(negated, *graph.outputs)
        assert isinstance(rewrite(graph, negated, match), Graph)
        pool = call("MaxPool", call("Relu", image), kernel_shape=(3, 3), pads=pads)
        assert len(matches(pooled, pool)) == width


def test_pads_that_do_not_divide_are_no_match() -> None:
    rule = instance(MERGE, 1)
    x, w, v = tensor("x", 2, 3, 9), tensor("w", 4, 3, 1), tensor("v", 4, 3, 2)
    twice = {"dilations": (2,), "strides": (1,)}
    even = call("Add", call("Conv", x, w, **twice), call("Conv", x, v, pads=(2, 0), **twice))
    odd = call("Add", call("Conv", x, w, **twice), call("Conv", x, v, pads=(1, 1), **twice))
    assert matches(rule, even)
    assert not matches(rule, odd)


def test_further_roots_are_found_among_the_users_of_what_is_bound() -> None:
    x, w, v = tensor("x", 3, 4), tensor("w", 4, 5), tensor("v", 4, 6)
    graph = Graph((call("Relu", call("MatMul", x, w)), call("MatMul", x, v)))
    found = list(find_matches(PARALLEL, graph))
    assert len(found) == 2
    assert assert_sound(PARALLEL, graph, found) == 2


def test_roots_that_depend_on_each_other_are_left_alone() -> None:
    x, w = tensor("x", 4, 4), tensor("w", 4, 4)
    graph = Graph((call("MatMul", x, call("MatMul", x, w)),))
    results = [rewrite(graph, PARALLEL, match) for match in find_matches(PARALLEL, graph)]
    assert results
    assert all(isinstance(result, NoMatch) for result in results)


def test_integer_tensors_are_not_matched() -> None:
    x, y, z = (tensor(key, 3, dtype="INT64") for key in "xyz")
    assert not matches(DISTRIBUTE, call("Mul", call("Add", x, y), z))


DOUBLE = instance("in x[...]\nfrom Mul(x, 2)\nto Add(x, x)")


def test_scalar_matches_a_uniform_constant_by_value() -> None:
    x, c = tensor("x", 2, 3), tensor("c", 3, constant=True)
    graph = call("Mul", x, c)
    assert len(matches(DOUBLE, graph, c=np.full(3, 2.0, np.float32))) == 1
    assert not matches(DOUBLE, graph, c=np.asarray([2, 2, 3], np.float32))
    assert not matches(DOUBLE, graph)


@pytest.mark.parametrize(
    ("shape", "number", "found"),
    [((), 3.0, True), ((1, 1), 3.0, True), ((1, 1, 1), 3.0, True), ((), 2.0, False)],
)
def test_a_constant_of_the_model_is_what_a_rule_calls_by_its_number(
    shape: tuple[int, ...], number: float, found: bool
) -> None:
    three = apply("Scalar", (), {"value": Fraction(3)}, dtype="FLOAT")[0]
    x, y, c = tensor("x", 2, 3), tensor("y", 2, 3), tensor("c", *shape, constant=True)
    graph = Graph((call("Add", call("Mul", x, three), call("Mul", y, c)),))
    constants = with_expressions({c: np.full(shape, number, np.float32)}.get, 16)
    results = [rewrite(graph, FACTOR, m) for m in find_matches(FACTOR, graph, constants)]
    made = [result for result in results if isinstance(result, Graph)]
    assert bool(made) == found
    assert all(result.outputs[0].type == graph.outputs[0].type for result in made)
    assert not list(find_matches(FACTOR, graph, with_expressions(no_constants, 16)))


def test_constant_that_enlarges_the_result_is_refused() -> None:
    x, c = tensor("x", 3), tensor("c", 2, 3, constant=True)
    graph = Graph((call("Mul", x, c),))
    for match in matches(DOUBLE, *graph.outputs, c=np.full((2, 3), 2.0, np.float32)):
        assert isinstance(rewrite(graph, DOUBLE, match), NoMatch)
    rule = instance(
        "in x[N, M]\nfrom ReduceSum(Mul(x, 2), axes=[1])\nto Mul(ReduceSum(x, axes=[1]), 2)"
    )
    y, d = tensor("y", 2, 1), tensor("d", 2, 5, constant=True)
    wide = call("ReduceSum", call("Mul", y, d), axes=(1,))
    assert not matches(rule, wide, d=np.full((2, 5), 2.0, np.float32))


def test_real_symbol_takes_its_value_from_an_attribute_or_a_constant() -> None:
    rule = instance(
        "in x[...]\nparam a:real\nfrom Mul(x, Scalar(value=a))\nto Div(x, Scalar(value=a))"
    )
    x, c = tensor("x", 2, 3), tensor("c", constant=True)
    (match,) = matches(rule, call("Mul", x, c), c=np.asarray(0.5, np.float32))
    assert match.reals == {"a": Fraction(1, 2)}
    scalar = apply("Scalar", (), {"value": Fraction(3)}, dtype="FLOAT")[0]
    (match,) = matches(rule, call("Mul", x, scalar))
    assert match.reals == {"a": Fraction(3)}


def test_zeros_match_by_value_and_give_their_shape() -> None:
    rule = instance(
        "in x[N, M]\nparam P\nfrom Concat(x, Zeros(shape=[N, P]), axis=1)\n"
        "to Pad(x, pads=[0, 0, 0, P])"
    )
    x, c = tensor("x", 2, 3), tensor("c", 2, 4, constant=True)
    graph = Graph((call("Concat", x, c, axis=1),))
    (match,) = matches(rule, *graph.outputs, c=np.zeros((2, 4), np.float32))
    assert match.sizes["P"] == 4
    assert isinstance(rewrite(graph, rule, match), Graph)


def test_rule_whose_right_side_is_undetermined_is_skipped() -> None:
    rule = instance(
        "in x[N]\nparam p\nfrom Relu(x)\n"
        "to Slice(Pad(Relu(x), pads=[p, 0]), starts=[p], ends=[N + p], axes=[0], steps=[1])"
    )
    assert rule.free_symbols == {"p"}
    assert not matches(rule, call("Relu", tensor("x", 3)))


def test_size_that_only_the_right_side_has_fills_blocks_of_channels() -> None:
    rule = instance(
        "in x[N, C, *S] w[O, C, *K]\nparam p\nrank 2\nfrom Conv(x, w)\n"
        "to Slice(Conv(x, Pad(w, pads=[0, 0, *0, p, 0, *0])), "
        "starts=[0], ends=[O], axes=[1], steps=[1])\nwhere p >= 0",
        rank=2,
    )
    narrow = Graph((call("Conv", tensor("x", 1, 8, 5, 5), tensor("w", 20, 8, 3, 3)),))
    assert not list(find_matches(rule, narrow))
    (match,) = find_matches(rule, narrow, block=16)
    assert match.sizes["p"] == 12
    assert isinstance(rewrite(narrow, rule, match), Graph)
    full = Graph((call("Conv", tensor("x", 1, 8, 5, 5), tensor("w", 32, 8, 3, 3)),))
    assert not list(find_matches(rule, full, block=16))


def test_equations_are_solved_from_each_other() -> None:
    R, p, q, d = (symbol(name) for name in "Rpqd")
    assert solve([(R + p + q, 5), (d * p, 4), (d * q, 2), (d, 2)]) == {
        "R": 2,
        "p": 2,
        "q": 1,
        "d": 2,
    }
    assert solve([(R + p, 5), (R - p, 1)]) is None  # two unknowns in each
    assert solve([(2 * p, 3)]) is None
    assert solve([(p, 3), (p, 4)]) is None
    assert solve([(p * q, 6), (p, 2), (q // p, 1)]) == {"p": 2, "q": 3}
    assert solve([(p // q, 6), (p, 2), (q, 0)]) is None


def test_symbols_of_the_graph_are_told_from_those_of_the_rule() -> None:
    p, q = symbol("p"), symbol("q")
    assert solve([(p, q), (q, 3 * p), (p + q, q + 3 * p)]) == {"p": q, "q": 3 * p}
    assert solve([(p, q), (p, p)]) is None
    assert solve([(2 * p, 4 * q), (p, 2 * q)]) == {"p": 2 * q}


class _AnyType(Matcher):
    """A matcher that takes any element type for any other, as those of rules are sorts."""

    def is_of_sort(self, pattern: Value, target: Value) -> bool:
        return True


def test_whatever_matches_passes_the_quick_test() -> None:
    instances = [rule.instance(rule.usable_ranks[0]) for rule in load_rules(default_directory())]
    by_root: dict[object, list[Instance]] = {}
    for each in instances:
        by_root.setdefault(each.lhs[0].node.op, []).append(each)
    found = rejected = 0
    for same in by_root.values():
        for pattern in same[:40]:
            for other in same[:40]:
                value = other.lhs[0]
                matcher = _AnyType(pattern, Graph(other.lhs), no_constants)
                if any(True for _ in matcher.value(pattern.lhs[0], value)):
                    found += 1
                    assert may_match(pattern.lhs[0], value), (pattern, other)
                rejected += not may_match(pattern.lhs[0], value)
    assert found > 2000
    assert rejected > 5000


MEAN = instance("""in x[N, n]
from Div(ReduceSum(x, axes=[-1]), ReduceSum(Ones(shape=[n]), keepdims=0))
to ReduceMean(x, axes=[-1])
where n >= 1""")


@pytest.mark.parametrize(
    ("extent", "number", "applies"), [(64, 64, True), (63, 64, False), (symbol("S"), 64, False)]
)
def test_a_number_is_an_extent_only_where_they_are_known_to_agree(
    extent: Size, number: float, applies: bool
) -> None:
    total = call("ReduceSum", tensor("x", symbol("N"), extent), axes=(1,), keepdims=1)
    mean = call("Div", total, tensor("c", constant=True))
    assert len(matches(MEAN, mean, c=np.asarray(number, np.float32))) == applies
