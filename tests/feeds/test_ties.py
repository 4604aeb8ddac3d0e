"""Sizes that a model takes for sums of others are chosen so, and the model runs."""

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from known_rules import saying

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode, UsageError
from xflow.feeds.dimension_equalities import fitting, with_ties
from xflow.feeds.edge_cases import other_sizes
from xflow.feeds.inputs import DEFAULT, OPEN, default_shapes, free_dimensions
from xflow.onnx.importer import import_model

GROWING = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[batch, 2, sequence, 8] q, float[batch, 2, past, 8] k, float[batch, 1, 1, total] mask)
        => (float[batch, 2, sequence, 8] y) <float scale = {0.35}> {
        whole = Concat<axis=2>(k, q) t = Transpose<perm=[0, 1, 3, 2]>(whole)
        p = MatMul(q, t) r = Mul(p, scale) s = Add(r, mask) a = Softmax<axis=-1>(s)
        b = Identity(a) y = MatMul(b, whole) }"""
"""Attention to past and new tokens under a mask of both."""
EQUAL = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[rows, n] x, float[m] w) => (float[rows, n] y) { y = Mul(x, w) }"""
LOOSE = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[rows, n] x, float[more, n] w) => (float[all, n] y) { y = Concat<axis=0>(x, w) }"""
DECODER = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[batch, sequence] input_ids, int64[batch, n] attention_mask,
       float[batch, 2, past, 8] past_key_0) => (int64[] y) {
        y = Size(attention_mask) }"""
"""Nothing but the names of inputs tells how long the mask is."""


TRACED = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[batch, time, 64] x, float[time] z) => (float[a, b, c] y)
    <int64[1] first = {0}, int64[1] heads = {4}, int64[1] length = {12}, int64[1] rest = {16}> {
        sizes = Shape(x) size = Gather(sizes, first) groups = Mul(size, heads)
        t = Transpose<perm=[1, 0, 2]>(x)
        target = Concat<axis=0>(length, groups, rest) copy = Concat<axis=0>(target)
        v = Reshape(t, copy) w = Transpose<perm=[1, 0, 2]>(v) r = Relu(w) y = Relu(r) }"""
"""As tracing exports heads: the length of the example, 12, stands in the target of a Reshape."""


def shapes_of(text: str, **given: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    imported = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    return {name: tuple(shape) for name, shape in with_ties(imported, given).items()}


def fed(text: str, **given: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The shapes of a model that runs at no sizes but those that its operators tell."""
    imported = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    shapes = fitting(imported, given, lambda tried: any(OPEN in each for each in tried.values()))
    return {name: tuple(shape) for name, shape in shapes.items()}


def test_a_mask_is_as_long_as_past_and_new_tokens() -> None:
    assert shapes_of(GROWING) == {"mask": (1, 1, 1, 32)}


def test_names_tell_that_the_mask_of_a_decoder_is_as_long_as_past_and_new_tokens() -> None:
    assert shapes_of(DECODER) == {"attention_mask": (1, 32)}
    shapes = shapes_of(DECODER, input_ids=(3, 1), **{"past_key_0": (3, 2, 512, 8)})
    assert shapes["attention_mask"] == (3, 513)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("batch, n]", "batch, sequence]"),
        ("past, 8]", "sequence, 8]"),
        ("past_key_0", "past_key_0, int64[n] z"),
    ],
)
def test_masks_of_other_lengths_are_left_alone(old: str, new: str) -> None:
    assert shapes_of(DECODER.replace(old, new)) == {}


def test_ties_follow_from_the_shapes_that_are_given() -> None:
    given = {"k": (3, 2, 5, 8), "q": (3, 2, 1, 8)}
    assert shapes_of(GROWING, **given)["mask"] == (3, 1, 1, 6)


def test_an_input_that_is_given_a_shape_keeps_it() -> None:
    assert shapes_of(GROWING, mask=(1, 1, 1, 40)) == {"mask": (1, 1, 1, 40)}


@pytest.mark.parametrize("text", [EQUAL, LOOSE], ids=["equal", "loose"])
def test_defaults_that_suit_each_other_stay(text: str) -> None:
    model = onnx.parser.parse_model(text)
    assert xflow.optimize(model, cost="estimated", budget=1, rules=()).report.warnings == ()


def test_a_model_with_a_tied_mask_is_optimized_without_being_given_sizes() -> None:
    model = onnx.parser.parse_model(GROWING)
    result = xflow.optimize(
        model,
        cost="estimated",
        objective="nodes",
        budget=5,
        check=1,
        only_rules=(saying("Identity(x)", "x").name,),
    )
    assert result.report.changed
    assert result.report.shapes["mask"] == (1, 1, 1, 32)


def test_check_chooses_such_sizes_and_asks_for_others_where_they_fail(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "growing.onnx"
    onnx.save(onnx.parser.parse_model(GROWING), path)
    assert entry.main(["check", str(path), str(path)]) == ExitCode.OK
    command = ["check", str(path), str(path), "--input-shapes", "mask:1,1,1,40"]
    assert entry.main(command) == ExitCode.ERROR
    assert "does not run" in (said := capfd.readouterr().err)
    assert "--input-shapes" in said


def test_a_size_that_tracing_has_left_in_the_model_is_fed() -> None:
    assert fed(TRACED) == {"x": (OPEN, 12, OPEN), "z": (12,)}
    model = onnx.parser.parse_model(TRACED)
    assert default_shapes(model, fed(TRACED)) == {"x": (1, 12, 64), "z": (12,)}


@pytest.mark.parametrize("runs", [True, False])
def test_such_a_size_is_not_fed_where_the_model_runs_without_or_not_with_it(runs: bool) -> None:
    imported = import_model(ir.from_proto(onnx.parser.parse_model(TRACED)))
    assert fitting(imported, {}, lambda _: runs) == {}


def test_other_dimensions_than_such_a_one_stay_free() -> None:
    model = onnx.parser.parse_model(TRACED)
    shapes = fed(TRACED)
    assert free_dimensions(model, shapes) == ["batch"]
    chosen = default_shapes(model, shapes)
    others = [made for _, made in other_sizes(model, shapes, chosen, DEFAULT, empty=True)]
    assert {made["x"][0] for made in others} == {0, 2, 3}
    assert all(made["x"][1:] == (12, 64) and made["z"] == (12,) for made in others)


def test_features_of_a_recurrent_network_are_those_of_its_weights() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[time, batch, features] x, float[1, 20, 7] w, float[1, 20, 5] r)
            => (float[t, d, b, h] y) { y = LSTM<hidden_size=5>(x, w, r) }"""
    assert fed(text) == {"x": (OPEN, OPEN, 7)}


@pytest.mark.parametrize(
    ("rows", "height"),
    [(1060, 144), (1061, OPEN), (-1, OPEN)],  # of the second, no height makes whole rows
)
def test_what_is_flattened_to_rows_has_as_many_elements(rows: int, height: int) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch, 10, height, 39] x) => (float[a, b] y)
        <int64[2] target = {-1, ROWS}> { p = AveragePool<kernel_shape=[39, 39]>(x)
        y = Reshape(p, target) }"""
    wanted = {} if height == OPEN else {"x": (OPEN, OPEN, height, OPEN)}
    assert fed(text.replace("ROWS", str(rows))) == wanted


def test_a_given_size_counts_more_than_one_that_tracing_has_left() -> None:
    assert fed(TRACED, x=(1, 7, 64)) == {"x": (1, 7, 64)}
    model = onnx.parser.parse_model(TRACED)
    assert default_shapes(model, fed(TRACED, x=(1, 7, 64)))["z"] == (7,)


def test_sums_over_such_a_size_follow_it() -> None:
    traced = """=> (int64[] y, int64[a, b] ids)
        <int64[1] first = {0}, int64[1] length = {3}> {
            sizes = Shape(input_ids) size = Gather(sizes, first)
            target = Concat<axis=0>(size, length) ids = Reshape(input_ids, target)"""
    assert fed(DECODER.replace("=> (int64[] y) {", traced)) == {
        "input_ids": (OPEN, 3),
        "attention_mask": (1, 19),
    }


def test_a_traced_model_is_optimized_at_the_size_at_which_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = TRACED.replace(", float[time] z", "")
    onnx.save(onnx.parser.parse_model(text), path)
    result = xflow.optimize(path, cost="estimated", budget=2)
    assert result.report.shapes == {"x": (1, 12, 64)}
    assert result.report.after.operators["Relu"] < result.report.before.operators["Relu"]
    (x,) = result.model.graph.inputs
    assert [str(size) for size in x.shape or ()] == ["batch", "time", "64"]


def test_a_negative_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(EQUAL), path)
    with pytest.raises(UsageError, match="negative"):
        xflow.optimize(path, input_shapes={"x": (OPEN, 4)})


LOOSELY = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[rows, n] x) => (float[a, b] y, float[rows] z)
    <int64[2] target = {-1, 8}, int64 last = {10}> {
        z = Gather<axis=1>(x, last) u = Neg(x) y = Reshape(u, target) }"""
"""It runs at 16, though rows are 8 long."""


def test_a_model_that_runs_is_compared_at_the_sizes_at_which_it_does() -> None:
    wrong = LOOSELY.replace("u = Neg(x)", "s = Size(x) f = Cast<to=1>(s) m = Neg(x) u = Mul(m, f)")
    models = [onnx.parser.parse_model(each) for each in (LOOSELY, wrong)]
    assert xflow.check(models[0], models[0]).shapes == {"x": (1, 16)}
    assert not xflow.check(*models).ok
