"""Sizes that a model takes for sums of others are chosen so, and the model runs."""

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode
from xflow.feeds.dimension_equalities import with_ties
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


def shapes_of(text: str, **given: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    imported = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    return {name: tuple(shape) for name, shape in with_ties(imported, given).items()}


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
        only_rules=("identity-to-input",),
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
