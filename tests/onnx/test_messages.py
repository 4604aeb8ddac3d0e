"""Models whose values are of types that onnx-ir does not know, or of none that ONNX wants."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from products import RULES, operators, two_products

import xflow
from xflow.core.errors import ModelError
from xflow.onnx import files
from xflow.onnx.proto_compat import from_message, to_message
from xflow.pipeline import api
from xflow.validation.equivalence import check_equivalent


def classifier() -> onnx.ModelProto:
    """Ends as scikit-learn's classifiers do: for each row a map from classes to probabilities."""
    model = two_products(3)
    graph = model.graph
    zipped = helper.make_node(
        "ZipMap", ["y"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[7, 8, 9]
    )
    graph.node.append(zipped)
    row = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, None))
    graph.output.append(helper.make_value_info("maps", helper.make_sequence_type_proto(row)))
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return model


def unshaped() -> onnx.ModelProto:
    """An output of unknown rank."""
    model = two_products(8)
    graph = model.graph
    graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT64, ["rank"]))
    graph.node.append(helper.make_node("Reshape", ["y", "shape"], ["z"]))
    graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    return model


def optimized(model: onnx.ModelProto, folder: Path) -> tuple[api.Result, Path]:
    source, target = folder / "in.onnx", folder / "out.onnx"
    onnx.save(model, source)
    result = xflow.optimize(source, rules=RULES, cost="estimated", budget=5, threads=1, check=2)
    result.save(target)
    return result, target


def test_a_classifier_keeps_its_maps(tmp_path: Path) -> None:
    model = classifier()
    result, target = optimized(model, tmp_path)
    assert operators(result) == ["MatMul", "MatMul", "Add", "Relu", "ZipMap"]
    after = onnx.load(target)
    onnx.checker.check_model(after)
    assert list(after.graph.output) == list(model.graph.output)
    x = np.random.default_rng(0).standard_normal((2, 3), np.float32)
    rows = []
    for path in (tmp_path / "in.onnx", target):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        rows.append(session.run(["maps"], {"x": x})[0])
    assert [list(row) for row in rows[1]] == [[7, 8, 9], [7, 8, 9]]
    for before, row in zip(*rows, strict=True):
        assert list(row.values()) == pytest.approx(list(before.values()), rel=1e-4)


def test_maps_come_back_as_they_were() -> None:
    model = classifier()
    before = model.SerializeToString()
    made = from_message(model)
    assert model.SerializeToString() == before
    assert list(to_message(made).graph.output) == list(model.graph.output)
    copied = to_message(made.clone())
    assert [info.type for info in copied.graph.output] == [o.type for o in model.graph.output]


def test_an_output_of_unknown_rank_stays_one(tmp_path: Path) -> None:
    model = unshaped()
    with pytest.raises(onnx.checker.ValidationError):  # else there is nothing to it
        onnx.checker.check_model(model)
    result, target = optimized(model, tmp_path)
    assert operators(result) == ["MatMul", "Relu", "Reshape"]
    assert list(onnx.load(target).graph.output) == list(model.graph.output)


@pytest.mark.parametrize("external", [False, True])
def test_what_is_wrong_besides_a_shape_is_still_seen(tmp_path: Path, *, external: bool) -> None:
    model = unshaped()
    path = tmp_path / "in.onnx"
    onnx.save(model, path, save_as_external_data=external, size_threshold=0)
    assert len(files.load_model(path).graph) == 6
    model = onnx.load(path, load_external_data=False)
    model.graph.node[0].op_type = "NoSuchOperator"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="NoSuchOperator"):
        files.load_model(path)


def test_a_result_is_saved_with_weights_of_any_size(tmp_path: Path) -> None:
    """As the command writes it: beside the model where those of the input were."""
    onnx.save(two_products(64), tmp_path / "in.onnx", save_as_external_data=True, location="w.bin")
    (tmp_path / "made").mkdir()
    target = tmp_path / "made" / "out.onnx"
    result = xflow.optimize(
        tmp_path / "in.onnx", rules=RULES, cost="estimated", budget=5, threads=1, check=1
    )
    result.save(target)
    assert {path.name for path in target.parent.iterdir()} == {"out.onnx", "w.bin"}
    assert ir.load(target).graph.name == "products"


def test_the_own_domain_of_onnx_may_be_spelled_out(tmp_path: Path) -> None:
    """Runtimes accept it; the ONNX checker knows the nameless one alone."""
    model = two_products(8)
    model.opset_import[0].domain = "ai.onnx"
    for node in model.graph.node:
        node.domain = "ai.onnx"
    result, target = optimized(model, tmp_path)
    assert operators(result) == ["MatMul", "Relu"]
    onnx.checker.check_model(target)
    model.graph.node[1].attribute.append(helper.make_attribute("unknown", 1))
    onnx.save(model, tmp_path / "in.onnx")
    with pytest.raises(ModelError, match=r"unknown for operator MatMul \(at MatMul right\)"):
        files.load_model(tmp_path / "in.onnx")


def test_what_onnx_ir_does_not_know_is_told_by_its_reason(tmp_path: Path) -> None:
    """And not by the part of the model that it was reading."""
    model = two_products(8)
    model.graph.node[0].attribute.add(name="k", type=onnx.AttributeProto.SPARSE_TENSORS)
    model.graph.node[0].domain = "custom"
    model.opset_import.append(helper.make_opsetid("custom", 1))
    onnx.save(model, tmp_path / "in.onnx")
    with pytest.raises(ModelError, match="not supported") as caught:
        files.load_model(tmp_path / "in.onnx")
    assert "deserialize" not in str(caught.value)


def test_an_operator_that_is_deprecated_and_runs_stays(tmp_path: Path) -> None:
    """As GroupNormalization of opset 18, with a scale for each group, which 21 has for channels."""
    model = two_products(4)
    model.opset_import[0].version = 18
    graph = model.graph
    for name in ("scale", "bias"):
        graph.initializer.append(numpy_helper.from_array(np.array([2, 3], np.float32), name))
    graph.node.append(
        helper.make_node("GroupNormalization", ["y", "scale", "bias"], ["z"], num_groups=2)
    )
    graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 4]))
    result, target = optimized(model, tmp_path)
    assert operators(result) == ["MatMul", "MatMul", "Add", "Relu", "GroupNormalization"]
    assert check_equivalent(tmp_path / "in.onnx", target).ok


def test_what_a_rewritten_model_has_no_more_is_said(tmp_path: Path) -> None:
    model = two_products(8)
    model.training_info.add().algorithm.name = "descent"
    result, _ = optimized(model, tmp_path)
    assert any("training_info" in text for text in result.report.warnings)
