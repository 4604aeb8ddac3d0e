"""Models that were once not run for lack of inputs that suit them: edges, signals, lengths.

And where none can be made, what the user is told to give.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import xflow
from xflow.cli import entry
from xflow.core.deadline import Deadline
from xflow.core.errors import ExitCode
from xflow.cost.worker import Worker
from xflow.feeds.edge_cases import EdgeCases
from xflow.feeds.input_roles import indexed_dimensions, input_roles
from xflow.feeds.inputs import Feeder, default_shapes, random_inputs
from xflow.validation.equivalence import CheckResult, check_equivalent

Run = Callable[[onnx.ModelProto], CheckResult]


def model(text: str, opset: int = 18, **weights: Any) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')
    for name, value in weights.items():
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return made


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Compare a model with itself, on inputs that are made for it."""
    with Worker() as worker:

        def check(one: onnx.ModelProto) -> CheckResult:
            data = one.SerializeToString()
            return check_equivalent(data, data, worker=worker, deadline=Deadline.after(30.0))

        yield check


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


CONVOLUTION = model(
    "g (float[nodes, 8] x, int64[2, edges] edge_index) => (float[nodes, 8] y) {"
    " from = Gather<axis = 0>(edge_index, zero) to = Gather<axis = 0>(edge_index, one)"
    " h = MatMul(x, w) sent = Gather<axis = 0>(h, from) s = Shape(x) none = ConstantOfShape(s)"
    " column = Unsqueeze(to, axis) like = Shape(sent) index = Expand(column, like)"
    ' y = ScatterElements<axis = 0, reduction = "add">(none, index, sent) }',
    zero=np.int64(0), one=np.int64(1), axis=[1], w=normal(8, 8),
)  # fmt: skip
SPLIT = model(
    "g (float[n, 8] x, int32[2, e] edges) => (float[n, 8] y) {"
    " a, b = Split<axis = 0, num_outputs = 2>(edges) c = Squeeze(a, rows) d = Squeeze(b, rows)"
    " s = Gather(x, c) z = Sub(x, x) wide = Cast<to = 7>(d) i = Unsqueeze(wide, columns)"
    ' y = ScatterND<reduction = "add">(z, i, s) }',
    rows=[0], columns=[1],
)  # fmt: skip
TRANSPOSED = model(
    "g (float[34, 8] x, int32[e, 2] edges) => (float[k, 8] y) {"
    " t = Transpose(edges) c = Cast<to = 7>(t) s = Slice(c, start, end, start)"
    " f = Reshape(s, flat) y = Gather(x, f) }",
    start=[0], end=[1], flat=[-1],
)  # fmt: skip
COUNTED = model(
    "g (float[n, 8] x, int64[2, e] edges) => (float[k, 8] y) { to = Gather(edges, one)"
    " last = ReduceMax<keepdims = 1>(to) count = Add(last, ones) s = Concat<axis = 0>(count, eight)"
    " none = ConstantOfShape(s) from = Gather(edges, zero) sent = Gather(x, from)"
    ' i = Unsqueeze(to, ones) y = ScatterND<reduction = "add">(none, i, sent) }',
    zero=np.int64(0), one=np.int64(1), ones=[1], eight=[8],
)  # fmt: skip
GRAPHS = {"convolution": CONVOLUTION, "split": SPLIT, "transposed": TRANSPOSED, "counted": COUNTED}

HEAD = "u = Unsqueeze(x, one) a = Conv<strides = [160]>(u, k)"
KERNEL: dict[str, Any] = {"one": [1], "k": normal(4, 1, 400)}
SIGNALS = {
    "kernel": (model(f"g (float[B, T] x) => (float[B, 4, U] y) {{ {HEAD} y = Relu(a) }}",
                     **KERNEL), 400),
    "without batch": (model(f"g (float[T] x) => (float[1, 4, U] y) {{ {HEAD} y = Relu(a) }}",
                            **{**KERNEL, "one": [0, 1]}), 400),
    "two kernels": (model(f"g (float[B, T] x) => (float[B, 8, U] y) {{ {HEAD} y = Conv(a, l) }}",
                          **KERNEL, l=normal(8, 4, 25)), 400 + 24 * 160),
    "spectrum": (model("g (float[1, T, 1] x) => (float[1, U, V, 2] y) { y = STFT(x, s, w, n) }",
                       s=np.int64(160), w=np.ones(400, np.float32), n=np.int64(400)), 400),
    "frames": (model("g (float[1, T] x) => (float[A, 512] y) { y = Reshape(x, s) }",
                     s=[-1, 512]), 512),
}  # fmt: skip

MASKED = model(
    "g (float[B, T, 8] x, int64[B] lengths) => (float[B, T, 8] y) {"
    " s = Shape<start = 1, end = 2>(x) q = Squeeze(s) r = Range(zero, q, one)"
    " l = Unsqueeze(lengths, rows) m = Less(r, l) c = Unsqueeze(m, columns)"
    " y = Where(c, x, none) }",
    zero=np.int64(0), one=np.int64(1), rows=[1], columns=[2], none=np.float32(0),
)  # fmt: skip
CUT = model(
    "g (float[1, T, 8] x, int64[1] x_len) => (float[1, 1, 8] y) {"
    " a = Slice(x, start, x_len, axis) y = ReduceMean(a, axis) }",
    start=[0], axis=[1],
)  # fmt: skip


class TestGraphs:
    @pytest.mark.parametrize("name", GRAPHS)
    def test_edges_index_nodes(self, name: str, run: Run) -> None:
        found = run(GRAPHS[name])
        assert found.ok, found.reason
        nodes, edges = found.shapes["x"][0], min(found.shapes.keys() - {"x"})
        assert nodes > 1, "a graph of one node tells little"
        highest = [int(random_inputs(GRAPHS[name], seed)[edges].max()) for seed in range(40)]
        assert max(highest) == nodes - 1

    def test_a_batch_that_is_put_into_another_order_is_no_graph(self) -> None:
        text = "g (float[batch, 8] past, int64[batch] order) => (float[batch, 8] y)"
        reordered = model(f"{text} {{ y = Gather(past, order) }}")
        assert not indexed_dimensions(reordered)
        assert default_shapes(reordered)["past"] == (1, 8)

    def test_indices_of_several_columns_lie_in_the_table_of_all_of_them(self, run: Run) -> None:
        text = "g (int64[B, 3] ids) => (float[B, 3, 4] y) { o = Add(ids, first) y = Gather(t, o) }"
        fields = model(text, first=[[0, 10, 30]], t=normal(60, 4))
        assert run(fields).ok
        scaled = "g (int64[B] i) => (float[B, 4] y) { m = Mul(i, three) y = Gather(t, m) }"
        rows = model(scaled, three=np.int64(3), t=normal(60, 4))
        assert run(rows).ok
        assert max(int(random_inputs(rows, seed)["i"].max()) for seed in range(99)) == 19

    def test_edge_cases_have_the_last_index_and_those_from_the_end(self) -> None:
        feeder = Feeder.of(TRANSPOSED, default_shapes(TRANSPOSED))
        values = [
            each.values["edges"] for each in EdgeCases(TRANSPOSED, feeder, planted=True).draw(0)
        ]
        assert max(map(np.max, values)) == 33
        assert -34 <= min(map(np.min, values)) < 0


class TestOtherOperators:
    """Operators that share no more than their names with those that use an input as an index."""

    NAMES = (
        "Gather",
        "GatherND",
        "OneHot",
        "Equal",
        "EmbedLayerNormalization",
        "Shape",
        "Constant",
    )

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("domain", ["com.microsoft", "ai.onnx"])
    def test_a_function_of_that_name_is_none_of_them(self, name: str, domain: str) -> None:
        one = model("g (int64[N] n, float[N] x) => (int64[N] y) { y = Neg(n) }")
        one.graph.node[0].op_type, one.graph.node[0].domain = name, domain
        one.opset_import.add(domain=domain, version=18)
        body = [onnx.helper.make_node("Identity", ["a"], ["b"])]
        opset = [onnx.helper.make_opsetid("", 18)]
        one.functions.append(onnx.helper.make_function(domain, name, ["a"], ["b"], body, opset))
        assert indexed_dimensions(one) == frozenset()
        assert input_roles(one, {"n": (2,), "x": (2,)}) == {}

    @pytest.mark.parametrize("name", NAMES)
    def test_a_node_without_all_inputs_is_no_error(self, name: str) -> None:
        one = model("g (int64[N] n, float[N] x) => (int64[N] y) { y = Neg(n) }")
        one.opset_import.add(domain="com.microsoft", version=1)
        node = one.graph.node[0]
        node.op_type, node.domain = name, "com.microsoft"
        for inputs in (["n"], [], ["", "n"]):
            node.input[:] = inputs
            assert indexed_dimensions(one) == frozenset()
            assert set(input_roles(one, {"n": (2,), "x": (2,)})) <= {"n"}
        del node.output[:]
        assert indexed_dimensions(one) == frozenset()


class TestSignals:
    @pytest.mark.parametrize("name", SIGNALS)
    def test_a_signal_is_as_long_as_the_model_needs_it(self, name: str, run: Run) -> None:
        signal, least = SIGNALS[name]
        found = run(signal)
        assert found.ok, found.reason
        assert max(found.shapes["x"]) >= least
        assert found.samples == 4, "at other sizes, too"

    def test_sizes_that_are_given_stay(self) -> None:
        signal = SIGNALS["kernel"][0].SerializeToString()
        assert check_equivalent(signal, signal, shapes={"x": (2, 500)}).shapes == {"x": (2, 500)}
        found = check_equivalent(signal, signal, shapes={"x": (1, 20)})
        assert found.culprit == "before"

    def test_such_a_model_is_optimized_and_timed(self, tmp_path: Path) -> None:
        text = (
            f"g (float[B, T] x) => (float[B, 4, U] y) {{ {HEAD} c = Transpose<perm = [0, 2, 1]>(a)"
            " d = Transpose<perm = [0, 2, 1]>(c) e = Relu(d) y = Relu(e) }"
        )
        path = tmp_path / "signal.onnx"
        onnx.save(model(text, **KERNEL), path)
        report = xflow.optimize(path, budget=2, threads=1).report
        assert report.shapes == {"x": (1, 1024)}
        assert not any("does not run" in text for text in report.warnings)
        assert xflow.optimize(path, objective="nodes", cost="estimated", budget=2).report.changed


class TestLengths:
    @pytest.mark.parametrize(("one", "name"), [(MASKED, "lengths"), (CUT, "x_len")])
    def test_a_length_is_one_of_the_signal_it_comes_with(
        self, one: onnx.ModelProto, name: str, run: Run
    ) -> None:
        assert run(one).ok
        for batch in (1, 5):
            shapes = {"x": (batch if one is MASKED else 1, 40, 8)}
            values = random_inputs(one, 0, shapes)[name]
            assert values.max() == 40
            assert values.min() >= 30

    def test_a_number_that_is_compared_with_others_is_one_of_these(self, run: Run) -> None:
        text = (
            "g (float[1, T] x, int64 rate) => (float[1, U] y) {"
            " e = Equal(rate, good) y = If(e) <then_branch = a () => (float[1, V] p)"
            " { p = Relu(x) }, else_branch = b () => (float[1, V] q) { q = Reshape(x, bad) }> }"
        )
        one = model(text, good=np.int64(16000), bad=[7, 7])
        assert random_inputs(one, 0)["rate"] == 16000
        assert run(one).ok


class TestWhatCannotBeFed:
    HOPELESS = model(
        "g (float[1, 5] x, int64[1] n) => (float[1, 1] y) {"
        " s = Add(n, fifty) i = Mul(s, s) y = Gather<axis = 1>(x, i) }",
        fifty=[50],
    )
    """Its index is a square, which is not followed."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        made = tmp_path / "hopeless.onnx"
        self.HOPELESS.graph.node[2].name = "/look/up"
        onnx.save(self.HOPELESS, made)
        return made

    def test_the_operator_is_named_and_inputs_are_asked_for(
        self, path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert entry.main(["check", str(path), str(path)]) == ExitCode.ERROR
        (line,) = capfd.readouterr().err.splitlines()
        assert "Gather '/look/up' fails" in line
        assert "--inputs" in line

    def test_with_real_inputs_it_is_compared_on_these(
        self, path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        given = path.with_name("given.npz")
        np.savez(given, x=normal(1, 5), n=np.array([-49]))
        command = ["check", str(path), str(path), "--inputs", str(given)]
        assert entry.main(command) == ExitCode.OK
        assert "equal on 1 given" in capfd.readouterr().out
