"""Convolutions by minimal filtering: with `--assume normwise` alone, and right for all extents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from xflow.core.assumptions import Assumption
from xflow.onnx.exporter import export_model
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.pipeline.api import optimize
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory
from xflow.rewriting.text import parse_rules
from xflow.search.steps import Step, Steps, replaced


@cache
def filtering() -> tuple[Rule, ...]:
    text = (default_directory() / "filtering.rules").read_text(encoding="utf-8")
    return tuple(parse_rules(text, checked=False))


def convolution(
    *,
    image: tuple[int, int, int] = (2, 9, 7),
    outputs: int = 3,
    rows: int = 3,
    columns: int = 3,
    group: int = 1,
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    bias: bool = True,
    **attributes: Sequence[int],
) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((outputs, image[0] // group, rows, columns)).astype(np.float32)
    weights = [numpy_helper.from_array(kernel, "w")]
    if bias:
        weights.append(numpy_helper.from_array(rng.random(outputs, np.float32), "b"))
    node = helper.make_node(
        "Conv", ["x", *(each.name for each in weights)], ["y"], pads=pads, group=group, **attributes
    )
    shape = [1, *image]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made)


def steps(source: Imported, level: Assumption) -> list[Step]:
    return list(Steps(RuleIndex(filtering()), source.constants, assumption=level).of(source.graph))


def imported(model: onnx.ModelProto) -> Imported:
    return import_model(ir.from_proto(model))


def run(model: onnx.ModelProto, x: NDArray[np.float32]) -> NDArray[np.float32]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    (made,) = session.run(None, {"x": x})
    return np.asarray(made)


def rewritten(source: Imported, step: Step) -> onnx.ModelProto:
    made = ir.to_proto(export_model(source, replaced(source.graph, step)[0]))
    onnx.checker.check_model(made, full_check=True)
    return made


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("image", "columns", "pads"),
    [
        ((2, 9, 7), 3, (1, 1, 1, 1)),
        ((1, 8, 5), 3, (1, 1, 1, 1)),
        ((3, 4, 1), 1, (0, 0, 0, 0)),
        ((2, 3, 4), 3, (0, 1, 0, 1)),
        ((2, 1, 4), 3, (1, 0, 1, 2)),
        ((2, 11, 4), 2, (2, 0, 1, 1)),
        ((1, 1, 1), 5, (3, 2, 4, 2)),
    ],
)
def test_it_is_right_at_all_extents(
    image: tuple[int, int, int], columns: int, pads: tuple[int, int, int, int], bias: bool
) -> None:
    model = convolution(image=image, columns=columns, pads=pads, bias=bias)
    source = imported(model)
    found = steps(source, Assumption.NORMWISE)
    assert len(found) == 2
    x = np.random.default_rng(1).standard_normal((1, *image)).astype(np.float32)
    expected = run(model, x)
    for step in found:
        assert np.abs(run(rewritten(source, step), x) - expected).max() < 1e-5


@pytest.mark.parametrize("level", [each for each in Assumption if each < Assumption.NORMWISE])
def test_nothing_less_allows_it(level: Assumption) -> None:
    assert not steps(imported(convolution()), level)


@pytest.mark.parametrize(
    "other",
    [
        {"strides": (2, 1)},
        {"strides": (1, 2)},
        {"dilations": (2, 1)},
        {"rows": 2, "pads": (0, 0, 0, 0)},
        {"rows": 5, "pads": (2, 1, 2, 1)},
        {"group": 2, "outputs": 4},
    ],
)
def test_other_convolutions_stay(other: dict[str, object]) -> None:
    model = convolution(**other)  # type: ignore[arg-type]
    assert not steps(imported(model), Assumption.NORMWISE)


def test_what_the_assumption_is_about() -> None:
    """Digits are lost near an element of 1e8, beside which the original keeps them."""
    model = convolution(image=(1, 12, 3), outputs=1, bias=False)
    x = np.ones((1, 1, 12, 3), np.float32)
    x[0, 0, 2] = 1e8
    expected = run(model, x)
    source = imported(model)
    lost = []
    for step in steps(source, Assumption.NORMWISE):
        error = np.abs(run(rewritten(source, step), x) - expected)
        assert error.max() < 1e-5 * np.abs(expected).max()
        assert error[0, 0, 8:].max() < 1e-5  # and no further
        lost.append(error[0, 0, 0].max() > 0.1 * np.abs(expected[0, 0, 0]).max())
    # Of two results, each is computed from the elements of its window alone.
    assert sorted(lost) == [False, True]


def test_the_schema_of_reports_knows_every_level() -> None:
    """Wherever it lists levels of assumptions, with none of them or without."""
    lists: list[list[str]] = []

    def look(part: object) -> None:
        if isinstance(part, dict):
            values = part.get("enum")
            if isinstance(values, list) and Assumption.MODERATE.option in values:
                lists.append(values)
            for each in part.values():
                look(each)
        elif isinstance(part, list):
            for each in part:
                look(each)

    look(json.loads((files("xflow") / "report.schema.json").read_text(encoding="utf-8")))
    every = [level.option for level in Assumption]
    assert len(lists) == 3
    assert all(each in (every, every[1:]) for each in lists)


def test_it_is_made_said_and_repeated(tmp_path: Path) -> None:
    """A run names the level, and one without it says what it would gain."""
    model = convolution(image=(128, 28, 28), outputs=128)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    plain = optimize(path, rules=filtering(), cost="estimated", budget=20)
    assert not plain.report.changed
    assert any("--assume normwise" in each for each in plain.report.messages)
    made = optimize(path, rules=filtering(), cost="estimated", budget=20, assume="normwise")
    assert made.report.changed
    assert not any("--assume normwise" in each for each in made.report.messages)
    assert [each.option for each in made.report.assumed] == ["normwise"]
