"""A Softplus that gives its argument beyond a threshold is a Softplus where floats are the same."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from graphs import call
from spellings import rules_over

import xflow
from xflow.analysis.ranges import Ranges
from xflow.analysis.value_rewrites.basis import fault
from xflow.analysis.value_rewrites.nan_tests import decided
from xflow.analysis.value_rewrites.softplus_tails import FACT
from xflow.core.assumptions import Assumption
from xflow.core.graph import Graph
from xflow.core.node import apply
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.recheck.facts import Facts

CHOICES = {
    "greater": "c = Greater(x, t) y = Where(c, x, s)",
    "at least": "c = GreaterOrEqual(x, t) y = Where(c, x, s)",
    "a threshold below": "c = Less(t, x) y = Where(c, x, s)",
    "less": "c = Less(x, t) y = Where(c, s, x)",
    "at most": "c = LessOrEqual(x, t) y = Where(c, s, x)",
    "a threshold above": "c = GreaterOrEqual(t, x) y = Where(c, s, x)",
}
OTHERS = {
    "the argument below": "c = Less(x, t) y = Where(c, x, s)",
    "the argument where it is not greater": "c = Greater(x, t) y = Where(c, s, x)",
    "a threshold of something else": "c = Greater(z, t) y = Where(c, x, s)",
    "something else beyond": "c = Greater(x, t) y = Where(c, z, s)",
    "a threshold that is computed": "c = Greater(x, z) y = Where(c, x, s)",
    "equal": "c = Equal(x, t) y = Where(c, x, s)",
    "another function": "u = Sigmoid(x) c = Greater(x, t) y = Where(c, x, u)",
    "a Softplus of something else": "u = Softplus(z) c = Greater(x, t) y = Where(c, x, u)",
}


def choice(body: str, threshold: float = 20.0, dtype: str = "float") -> onnx.ModelProto:
    """A choice y between x, its Softplus s, and z by a threshold t."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        g ({dtype}[n] x, {dtype}[n] z) => ({dtype}[n] y) <{dtype} t = {{0}}>
        {{ s = Softplus(x) {body} }}"""
    )
    (given,) = model.graph.initializer
    kind = onnx.helper.tensor_dtype_to_np_dtype(given.data_type)
    given.CopyFrom(onnx.numpy_helper.from_array(np.asarray(threshold, kind), "t"))
    return onnx.shape_inference.infer_shapes(model)


def imported(model: onnx.ModelProto) -> Imported:
    return import_model(ir.from_proto(model))


def facts(model: Imported) -> list[str]:
    found = list(decided(model.graph, Ranges(model.constants)))
    checks = Facts(model.graph, model.constants, Assumption.NONE)
    assert not any(fault(checks, name, before, after) for before, after, name in found)
    return [name for *_, name in found]


def forged(model: Imported) -> str:
    """Why the checker refuses the Softplus of x in the place of y, whatever the finder says."""
    x = model.values[model.model.graph.inputs[0]]
    checks = Facts(model.graph, model.constants, Assumption.NONE)
    return fault(checks, FACT, model.graph.outputs[0], call("Softplus", x))


@pytest.mark.parametrize("body", CHOICES.values(), ids=list(CHOICES))
@pytest.mark.parametrize("dtype", ["float", "float16", "bfloat16"])
def test_a_choice_beyond_a_threshold_is_a_softplus(body: str, dtype: str) -> None:
    assert facts(imported(choice(body, dtype=dtype))) == [FACT]


@pytest.mark.parametrize("body", OTHERS.values(), ids=list(OTHERS))
def test_other_choices_stay(body: str) -> None:
    model = imported(choice(body))
    assert not facts(model)
    assert forged(model)


@pytest.mark.parametrize(
    ("dtype", "threshold"),
    [("double", 20.0), ("float", 15.0), ("float16", 5.0), ("float", -20.0), ("float", np.nan)],
)
def test_a_threshold_that_leaves_a_trace_stays(dtype: str, threshold: float) -> None:
    model = imported(choice(CHOICES["greater"], threshold, dtype))
    assert not facts(model)
    assert "leave its trace" in forged(model)


def test_a_choice_that_broadcasts_stays() -> None:
    model = imported(choice(CHOICES["greater"]))
    x = model.values[model.model.graph.inputs[0]]
    (t,) = apply("Scalar", (), {"value": Fraction(20)}, dtype="FLOAT")
    rows = apply("Unsqueeze", [call("Greater", x, t)], {"axes": (0,)})[0]
    wide = call("Where", rows, x, call("Softplus", x))
    graph = Graph((wide,))
    assert not list(decided(graph, Ranges(model.constants)))
    checks = Facts(graph, model.constants, Assumption.NONE)
    assert "takes the place of" in fault(checks, FACT, wide, call("Softplus", x))


@pytest.mark.parametrize("body", CHOICES.values(), ids=list(CHOICES))
def test_the_runtime_gives_the_same_to_the_bit(body: str) -> None:
    model = choice(body)
    rules = rules_over("Relu", "Neg", "Abs", "Scalar")
    result = xflow.optimize(model, cost="estimated", budget=5, check=1, rules=rules)
    after = ir.to_proto(result.model)
    (block,) = result.report.blocks
    assert (block.name, block.recognised, block.after.by) == ("Softplus", True, "operator")
    assert [node.op_type for node in after.graph.node] == ["Softplus"]
    near = np.nextafter(np.float32(20), np.array([0, 99], np.float32))
    odd = [-np.inf, -90, -1, 0, 1, 19, *near, 20, 21, 88, 89, 1e4, 3e38, np.inf, np.nan]
    x = np.array(odd, np.float32)
    first, second = (
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, dict.fromkeys(names, x)
        )[0]
        for each, names in ((model, "xz"), (after, [i.name for i in after.graph.input]))
    )
    assert np.array_equal(first, second, equal_nan=True)
