"""Objectives that the graph decides: what is counted, and that only what counts less is given."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import call, tensor
from onnx import numpy_helper
from products import one_relu

import xflow
from xflow.core.errors import UsageError
from xflow.core.graph import Graph
from xflow.core.node import TensorType, leaf, opaque
from xflow.core.size import symbol
from xflow.cost import OBJECTIVES
from xflow.cost.comparison import Comparison, Timing
from xflow.cost.measure import Measurer
from xflow.cost.objectives import EXACT, OperatorCount, PeakMemory, WeightBytes
from xflow.pipeline import api, attempts
from xflow.rewriting.replacement import Replacement, apply_replacements
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.search.driver import SearchResult

RULES = parse_rules(
    """
rule merge-products
  in       x[N, K] a[K, M] b[K, M]
  from     Add(MatMul(x, a), MatMul(x, b))
  to       MatMul(x, Add(a, b))
  reverse  always

rule relu-of-relu
  in       x[...]
  from     Relu(Relu(x))
  to       Relu(x)

rule products-apart
  in       x[N, K] a[K, L] b[L, M]
  from     MatMul(MatMul(x, a), b)
  to       MatMul(x, MatMul(a, b))
  reverse  always
"""
)


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements go to a store of the test's own."""
    monkeypatch.setenv("XFLOW_CACHE", str(tmp_path / "costs.sqlite"))


class TestPeakMemory:
    def test_what_nobody_reads_any_more_is_free_again(self) -> None:
        x = tensor("x", 256)
        first = call("Concat", x, x, axis=0)
        second = call("Concat", first, first, axis=0)
        third = call("ReduceSum", second, axes=(0,), keepdims=1)
        # x, first and second live together, then first and second.
        assert PeakMemory().amount(Graph((third,))) == 4096 + 2048
        assert PeakMemory().amount(Graph((third, first))) == 4096 + 2048 + 4
        assert PeakMemory().amount(Graph((second, x))) == 4096 + 2048 + 1024

    def test_views_and_elementwise_operators_take_no_memory_of_their_own(self) -> None:
        x = tensor("x", 256)
        big = call("Concat", x, x, axis=0)
        alone = PeakMemory().amount(Graph((big,)))
        chain = call("Relu", call("Reshape", call("Tanh", big), shape=(2, 256)))
        assert PeakMemory().amount(Graph((chain,))) == alone
        # An operand that is read later, and the caller's input, are not written over.
        assert PeakMemory().amount(Graph((call("Relu", x),))) == 2048
        kept = call("Add", call("Relu", big), big)
        assert PeakMemory().amount(Graph((kept,))) == alone - 1024 + 2048

    def test_a_value_lives_as_long_as_a_view_of_it_is_read(self) -> None:
        x = tensor("x", 256)
        big = call("Concat", x, x, axis=0)
        view = call("Reshape", big, shape=(2, 256))
        other = call("Concat", x, x, x, x, axis=0)
        (both,) = opaque("Both", [view, other], [TensorType("FLOAT", ())])
        assert PeakMemory().amount(Graph((both,))) == 1024 + 2048 + 4096

    def test_folded_weights_count_once_and_their_sources_do_not(self) -> None:
        x = tensor("x", 4, 8)
        a, b = (tensor(key, 8, 8, constant=True) for key in "ab")
        total = call("Add", a, b)
        graph = Graph((call("MatMul", x, total), call("MatMul", call("Relu", x), total)))
        assert WeightBytes().amount(graph) == 8 * 8 * 4
        apart = Graph((call("MatMul", x, a), call("MatMul", x, b)))
        assert WeightBytes().amount(apart) == 2 * 8 * 8 * 4
        assert OperatorCount().amount(graph) == 3

    def test_sizes_are_those_of_the_setting(self) -> None:
        graph = Graph((call("Relu", leaf("x", TensorType("FLOAT16", (symbol("N"), 4)))),))
        assert PeakMemory({"N": 3}).amount(graph) == 2 * 3 * 4 * 2
        assert PeakMemory({"N": 30}).amount(graph) == 2 * 30 * 4 * 2

    def test_what_is_not_known_of_a_type_counts_nothing(self) -> None:
        (unknown,) = opaque("Strange", [tensor("x", 2)], [TensorType("?", ())])
        assert PeakMemory().amount(Graph((unknown,))) == 8

    def test_fewer_operators_decide_where_the_rest_is_equal(self) -> None:
        x = tensor("x", 2)
        one, two = Graph((call("Relu", x),)), Graph((call("Relu", call("Relu", x)),))
        for kind in EXACT.values():
            assert kind().estimate(one) < kind().estimate(two)


def network(*nodes: str, rows: int | str = "N", **weights: tuple[int, ...]) -> onnx.ModelProto:
    """y = nodes(x[rows, 64]), in the text form of ONNX, with random weights."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        f"g (float[{rows}, 64] x) => (float[{rows}, M] y) {{ {' '.join(nodes)} }}"
    )
    for name, shape in weights.items():
        data = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(data, name))
    return model


def estimated(model: api.Model, rules: list[Rule] = RULES, **settings: object) -> api.Result:
    options = {"budget": 5.0, "threads": 1, "cost": "estimated", "check": 1, **settings}
    return xflow.optimize(model, rules=rules, **options)  # type: ignore[arg-type]


def operators(result: api.Result) -> list[str]:
    return [node.op_type for node in result.model.graph]


NARROW = network("h = MatMul(x, a)", "y = MatMul(h, b)", rows=4, a=(64, 2), b=(2, 64))
"""Two products of 1 KiB of weights, which merged are one of 16 KiB."""


def test_each_objective_gives_what_is_better_in_it() -> None:
    assert operators(estimated(NARROW, objective="nodes")) == ["MatMul"]
    wide = network("y = MatMul(x, ab)", rows=4, ab=(64, 64))
    assert not estimated(wide, objective="size").report.changed
    assert operators(estimated(NARROW, objective="size")) == ["MatMul", "MatMul"]
    two = network(
        "p = MatMul(x, a)", "q = MatMul(x, b)", "y = Add(p, q)", rows=4, a=(64, 64), b=(64, 64)
    )
    for objective in ("size", "memory", "nodes"):
        assert operators(estimated(two, objective=objective)) == ["MatMul"]


def test_the_report_says_what_the_objective_counts() -> None:
    two = network("p = MatMul(x, a)", "q = MatMul(x, b)", "y = Add(p, q)", a=(64, 64), b=(64, 64))
    report = estimated(two, objective="nodes").report
    assert (report.objective, report.amount_before, report.amount_after) == ("nodes", 3, 1)
    (use,) = report.rules
    assert (use.name, use.gain, use.gain_from) == ("merge-products", 2, "model")
    result = estimated(two, objective="size")
    written = len(ir.to_proto(result.model).SerializeToString())
    assert result.report.amount_after == written
    assert result.report.amount_before is not None
    assert result.report.amount_before - written > 64 * 64 * 4
    memory = estimated(two, objective="memory", input_shapes={"x": (100, 64)}).report
    assert memory.amount_before == 2 * 64 * 64 * 4 + 3 * 100 * 64 * 4
    assert memory.amount_after == 64 * 64 * 4 + 2 * 100 * 64 * 4
    assert estimated(two).report.amount_before is None


def test_the_peak_counts_at_the_setting_that_gains_least() -> None:
    two = network("p = MatMul(x, a)", "q = MatMul(x, b)", "y = Add(p, q)", a=(64, 64), b=(64, 64))
    shapes = [{"x": (rows, 64)} for rows in (1, 10_000)]
    report = estimated(two, objective="memory", input_shapes=shapes).report
    assert report.shapes == {"x": (10_000, 64)}
    assert report.amount_after == 64 * 64 * 4 + 2 * 10_000 * 64 * 4


def test_an_exact_objective_is_deterministic() -> None:
    first, second = (estimated(NARROW, objective="nodes") for _ in range(2))
    assert ir.to_proto(first.model) == ir.to_proto(second.model)


def test_fewer_operators_alone_are_no_gain_in_memory() -> None:
    relu = network("r = Relu(x)", "y = Relu(r)")
    result = estimated(relu, objective="memory")
    assert not result.report.changed
    assert any("less memory" in text for text in result.report.messages)


@pytest.mark.parametrize(("high", "changed"), [(1.01, True), (0.996, True), (0.99, False)])
def test_what_is_measurably_slower_is_not_given(
    high: float, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = Timing((1.0, 1.0))
    compared = Comparison(high - 0.02, high - 0.04, high, timing, timing, 2)
    monkeypatch.setattr(Measurer, "compare_at_each", lambda *_, **__: (compared,))
    result = xflow.optimize(NARROW, rules=RULES, objective="nodes", budget=2, threads=1, check=1)
    assert result.report.changed is changed
    assert any("measurably slower" in text for text in result.report.messages) is not changed


def test_nothing_is_timed_with_estimated_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("timed")

    monkeypatch.setattr(Measurer, "time_at_each", refuse)
    assert estimated(NARROW, objective="nodes").report.latency_before is None


def test_a_group_that_makes_nothing_better_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the regions say: the search here proposes one rewrite that gains, and one more."""

    def proposing(graph: Graph, *_: object, **__: object) -> SearchResult:
        (y,) = graph.outputs
        (inner,) = y.node.inputs
        (first,) = inner.node.inputs
        fewer = replace(one_relu(y), rules=("fewer",), gain=1.0)
        more = Replacement((first,), (call("Neg", call("Neg", first)),), ("more",), 2.0)
        steps = (fewer, more)
        return SearchResult(apply_replacements(graph, steps), steps)

    monkeypatch.setattr(attempts, "search", proposing)
    result = estimated(network("t = Tanh(x)", "r = Relu(t)", "y = Relu(r)"), objective="nodes")
    assert [use.name for use in result.report.rules] == ["fewer"]
    assert operators(result) == ["Tanh", "Relu"]


def test_an_unknown_objective_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown objective"):
        estimated(NARROW, objective="beauty")
    assert set(OBJECTIVES) == {"latency", *EXACT}
