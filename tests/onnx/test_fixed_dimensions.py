"""Dimensions that are declared to be dynamic, but of which only one size runs."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import xflow
from xflow.core.size import symbols
from xflow.feeds.dimension_equalities import with_ties
from xflow.onnx.fixed_dimensions import fixed_dimensions
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model

TRACED = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[batch, time, 64] x) => (float[a, b, c] y)
    <int64[1] first = {0}, int64[1] second = {1}, int64[1] heads = {4}, int64[1] length = {12},
     int64[1] rest = {16}> {
        sizes = Shape(x) size = Gather(sizes, first) groups = Mul(size, heads)
        t = Transpose<perm=[1, 0, 2]>(x)
        target = Concat<axis=0>(length, groups, rest)
        v = Reshape(t, target) w = Transpose<perm=[1, 0, 2]>(v) y = Relu(w) }"""
"""As tracing exports heads: the length of the example, 12, stands in the target of a Reshape."""


def read(text: str) -> Imported:
    return import_model(ir.from_proto(onnx.parser.parse_model(text)))


def shape_of(imported: Imported, name: str) -> tuple[object, ...]:
    (value,) = (each for each in imported.values if each.name == name)
    return imported.values[value].shape


def test_the_only_size_that_runs_is_known() -> None:
    imported = read(TRACED)
    batch, *_ = symbols("batch time")
    assert shape_of(imported, "x") == (batch, 12, 64)
    assert shape_of(imported, "v") == (12, 4 * batch, 16)
    assert imported.names.fixed == {"time": 12}


def test_the_sentence_says_which_operator_tells() -> None:
    (sentence,) = read(TRACED).warnings
    assert "time" in sentence
    assert "only 12" in sentence
    assert "Reshape" in sentence


def test_a_model_with_such_a_dimension_is_run_at_its_size(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = TRACED.replace("y = Relu(w)", "r = Relu(w) y = Relu(r)")
    onnx.save(onnx.parser.parse_model(text), path)
    result = xflow.optimize(path, cost="estimated", budget=2)
    assert result.report.shapes == {"x": (1, 12, 64)}
    assert result.report.after.operators["Relu"] < result.report.before.operators["Relu"]
    session = onnxruntime.InferenceSession(ir.to_proto(result.model).SerializeToString())
    x = np.random.default_rng(0).random((3, 12, 64), np.float32)
    assert session.run(None, {"x": x})[0].shape == (12, 12, 16)
    assert session.get_inputs()[0].shape == ["batch", "time", 64]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y = Relu(w) }", "y = Relu(x) }"),  # nothing that is given reads it
        ("y = Relu(w) }", "n = Size(w) k = Cast<to=1>(n) y = Mul(x, k) }"),  # n may be folded
    ],
)
def test_what_the_runtime_may_leave_out_tells_nothing(old: str, new: str) -> None:
    assert read(TRACED.replace(old, new)).names.fixed == {}


def test_a_broadcast_tells_nothing() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 4] x, float[5, 4] w) => (float[a, 4] y) { y = Add(x, w) }"""
    assert read(text).names.fixed == {}


def test_what_is_only_known_while_it_runs_may_be_empty_and_tells_nothing() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 4] x, float[m] z) => (float[a, b, c] y)
        <int64[1] two = {2}, int64[1] four = {4}, int64[1] one = {1}, int64[1] start = {1}> {
            found = NonZero(z) s = Shape(found) count = Slice(s, start, two)
            e = Unsqueeze(x, one) counts = Concat<axis=0>(one, count, one)
            wide = Expand(e, counts) target = Concat<axis=0>(two, count, four)
            y = Reshape(wide, target) }"""
    assert read(text).names.fixed == {}


def test_sizes_that_contradict_each_other_tell_nothing() -> None:
    b, t = symbols("b t")
    graph = read(TRACED).model.graph
    live = [node for node in graph if node.op_type in ("Reshape", "Transpose")]
    twice = dict(zip(live, (64 * b * t - 768 * b, 64 * b * t - 640 * b), strict=False))
    assert fixed_dimensions(graph, twice, {"b", "t"}) == {}
    once = dict(list(twice.items())[:1])
    assert {name: n for name, (n, _) in fixed_dimensions(graph, once, {"b", "t"}).items()} == {
        "t": 12
    }


@pytest.mark.parametrize("text", ["b*b - 4", "b - t", "2*b - 5", "b*t - 3*b - t + 3", "b + 3"])
def test_no_size_is_concluded_where_it_is_not_the_only_one(text: str) -> None:
    b, t = symbols("b t")
    size = eval(text, {"b": b, "t": t})
    graph = read(TRACED).model.graph
    live = next(node for node in graph if node.op_type == "Reshape")
    assert fixed_dimensions(graph, {live: size}, {"b", "t"}) == {}


def test_inputs_of_dimensions_with_one_size_are_fed_with_it() -> None:
    assert with_ties(read(TRACED), {}) == {"x": (1, 12, 64)}
    assert with_ties(read(TRACED), {"x": (2, 12, 64)}) == {"x": (2, 12, 64)}
