"""Networks with codes between their operators: what the runtime fuses, and the same bits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from coded_networks import residual_network
from graphs import call
from onnx import numpy_helper
from runtime import run_model

import xflow
from xflow.cli import entry
from xflow.core.deadline import Deadline
from xflow.core.errors import ExitCode
from xflow.core.graph import Graph
from xflow.core.node import TensorType, leaf
from xflow.core.registry import Array, Operator
from xflow.cost import Use
from xflow.cost.estimate import EstimatedCost, Estimator
from xflow.cost.target import TargetModel
from xflow.onnx.importer import import_model
from xflow.rewriting.replacement import apply_replacements
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.constants import Constants
from xflow.search.cutting import region_of
from xflow.search.driver import search


def run(model: onnx.ModelProto, x: Array) -> list[Array]:
    """What the runtime gives, operator by operator."""
    return run_model(model, {"x": x}, as_written=True)


def rewritten(model: onnx.ModelProto) -> onnx.ModelProto | None:
    result = xflow.optimize(model, cost="estimated", budget=20, threads=1, check=2)
    return ir.to_proto(result.model) if result.report.changed else None


@cache
def turned() -> onnx.ModelProto:
    """What becomes of a network whose codes have signs, and of which one value is read twice."""
    after = rewritten(residual_network())
    assert after is not None
    return after


def types_of_codes(model: onnx.ModelProto) -> set[str]:
    """The types of what conversions from codes read as their zero points."""
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    found = [n for n in model.graph.node if n.op_type == "DequantizeLinear"]
    return {str(constants[node.input[2]].dtype) for node in found}


def images(shape: tuple[int, ...] = (1, 3, 8, 8)) -> list[Array]:
    """Ordinary numbers, extremes, ties, and what is no number."""
    rng = np.random.default_rng(5)
    ordinary = rng.normal(0, 2, shape).astype(np.float32)
    ties = (0.05 * (rng.integers(-150, 150, shape) + 0.5)).astype(np.float32)
    odd = rng.choice([np.nan, np.inf, -np.inf, 1e30, -0.0, 6.4], shape).astype(np.float32)
    return [ordinary, ties, np.zeros(shape, np.float32), 100 * ordinary, odd]


def test_a_value_that_is_read_twice_no_longer_keeps_operators_from_being_fused() -> None:
    model, after = residual_network(), turned()
    assert "uint8" in types_of_codes(after)
    for x in images():
        for old, new in zip(run(model, x), run(after, x), strict=True):
            assert np.array_equal(old, new, equal_nan=True)


def test_the_runtime_then_computes_all_products_on_codes(tmp_path: Path) -> None:
    def served(model: onnx.ModelProto) -> list[str]:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "served.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(model.SerializeToString(), options)
        return [node.op_type for node in onnx.load(tmp_path / "served.onnx").graph.node]

    model, after = residual_network(), turned()
    assert served(model).count("QLinearConv") < 3
    assert served(after).count("QLinearConv") == 3


@pytest.mark.parametrize(("image", "weights"), [("uint8", "uint8"), ("uint8", "int8")])
def test_what_is_fused_already_stays(image: str, weights: str) -> None:
    """Codes of images without a sign are fused. Weights without one are more exact, not faster."""
    model = residual_network(image, weights)
    after = rewritten(model)
    for x in images():
        for old, new in zip(run(model, x), run(after or model, x), strict=True):
            assert np.array_equal(old, new, equal_nan=True)


def test_no_product_comes_to_be_cut_off() -> None:
    """Where weights have no zero point that could be turned, images keep theirs as well."""
    model = residual_network()
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.attribute:  # of weights
            del node.input[2]
    after = rewritten(model)
    if after is not None:
        assert "uint8" not in types_of_codes_of_products(after)


def types_of_codes_of_products(model: onnx.ModelProto) -> set[str]:
    """The types of the images that convolutions read."""
    made = {name: node for node in model.graph.node for name in node.output}
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    read = [made[node.input[0]] for node in model.graph.node if node.op_type == "Conv"]
    return {str(constants[node.input[2]].dtype) for node in read}


def test_codes_that_the_model_gives_stay_as_they_are() -> None:
    model = residual_network()
    codes = next(n for n in model.graph.node if n.op_type == "QuantizeLinear").output[0]
    model.graph.output.append(onnx.helper.make_tensor_value_info(codes, 3, None))
    after = rewritten(model)
    assert after is not None
    for x in images():
        for old, new in zip(run(model, x), run(after, x), strict=True):
            assert old.dtype == new.dtype
            assert np.array_equal(old, new, equal_nan=True)


def test_the_weights_of_a_model_with_codes_are_not_made_floats() -> None:
    assert turned().ByteSize() < 1.2 * residual_network().ByteSize()


def test_each_rewrite_is_confirmed(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("in.onnx", "out.onnx", "report.json")]
    onnx.save(residual_network(), paths[0])
    options = ["--cost", "estimated", "--budget", "20", "--check", "2", "--report", paths[2], "-q"]
    assert entry.main(["optimize", paths[0], paths[1], *options]) == ExitCode.OK
    assert entry.main(["certify", *paths, "-q"]) == ExitCode.OK


TEXT = """<ir_version: 10, opset_import: ["" : {opset}]>
main (float[{shape}] x) => (float[{shape}] y)
    <float{scales} s = {{{values}}}, int8{scales} z = {{{zeros}}}> {{
    q = QuantizeLinear{attributes}(x, s, z)
    y = DequantizeLinear{attributes}(q, s, z)
}}"""


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ({"values": "0.5", "zeros": "3"}, 2),
        ({"scales": "[2]", "values": "0.5, 0.25", "zeros": "3, 4", "attributes": "<axis = -2>"}, 2),
        # The runtime takes a vector of one scale for all places, which ONNX does not.
        ({"scales": "[1]", "values": "0.5", "zeros": "3"}, 0),
        ({"scales": "[1]", "values": "0.5", "zeros": "3", "shape": "2, N"}, 0),
        ({"values": "0.5", "zeros": "3", "opset": 24, "attributes": "<output_dtype = 1>"}, 0),
    ],
)
def test_what_is_not_described_passes_through(text: dict[str, object], described: int) -> None:
    given = {"opset": 21, "shape": "2, 3", "scales": "", "attributes": "", **text}
    graph = import_model(ir.from_proto(onnx.parser.parse_model(TEXT.format(**given)))).graph
    names = [str(node.op) for node in graph.nodes if isinstance(node.op, Operator)]
    assert len(names) == described


@pytest.mark.parametrize("cuts_off", [True, False])
def test_weights_keep_their_signs_where_no_sums_are_cut_off(cuts_off: bool) -> None:
    imported = import_model(ir.from_proto(residual_network()))
    graph = imported.graph
    estimator = Estimator(replace(TargetModel(), cuts_off=cuts_off))
    known = load_rules(default_directory())
    rules = [rule for rule in known if "Recoded(" in rule.lhs + rule.rhs]
    found = search(
        graph,
        rules,
        EstimatedCost(estimator),
        deadline=Deadline.after(20),
        constants=imported.constants,
    ).replacements
    after = apply_replacements(graph, found)
    read = [node.inputs[0] for node in after.nodes if node.is_operator("DequantizeLinear")]
    weights = {codes.type.dtype for codes in read if codes.is_constant}
    images = {codes.type.dtype for codes in read if not codes.is_constant}
    assert len(estimator.codes.units(after).fused) == 4
    assert "UINT8" in images
    assert weights == ({"UINT8"} if cuts_off else {"INT8"})


def test_codes_that_are_computed_are_not_recoded() -> None:
    """There is no operator for that; those of constants are recoded once."""
    for constant in (False, True):
        codes = leaf("w", TensorType("INT8", (2, 3)), constant=constant)
        assert Graph((call("Recoded", codes, to="unsigned"),)).has_forms is constant


@pytest.mark.parametrize(("behind", "readers"), [(("Softplus",), 1), (("Softplus", "Sign"), 2)])
def test_what_several_operators_read_is_read_twice_where_a_region_is_timed(
    behind: tuple[str, ...], readers: int
) -> None:
    """What makes reals of codes runs for each of its readers."""
    codes, zero = leaf("k", TensorType("INT8", (2, 3))), leaf("z", TensorType("INT8", ()))
    real = call("DequantizeLinear", codes, leaf("s", TensorType("FLOAT", ())), zero)
    graph = Graph(tuple(call(name, real) for name in behind))
    constants = Constants(lambda _: None)
    region = region_of(graph, [real.node], constants, None, constants.contexts(graph))
    assert (Use.SEVERAL in region.uses[0]) == (readers > 1)
    timed = region.in_place(region.graph.outputs)
    assert len(timed.outputs) == readers
