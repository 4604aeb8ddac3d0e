"""Scattering by constant indices that name whole slices in order joins these and what is kept."""

from __future__ import annotations

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
from xflow.analysis.value_rewrites.written_slices import FACT
from xflow.core.assumptions import Assumption
from xflow.core.node import Value
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.recheck.facts import Facts

ROWS = "<int64[2, 1] i = {1, 2}> { y = ScatterND(x, i, r) }"
COLUMNS = "{0,1,0,2,1,1,1,2}"
SLICES = {
    "rows": ("3, 4", "2, 4", ROWS),
    "rows counted from the end": ("3, 4", "2, 4", ROWS.replace("{1, 2}", "{-2, -1}")),
    "nothing but rows": ("2, 4", "2, 4", ROWS.replace("{1, 2}", "{0, 1}")),
    "columns": ("2, 3", "2, 2", f"<int64[2, 2, 2] i = {COLUMNS}> {{ y = ScatterND(x, i, r) }}"),
    "a flat list": ("2, 3", "4", f"<int64[4, 2] i = {COLUMNS}> {{ y = ScatterND(x, i, r) }}"),
    "a column": (
        "2, 2, 2",
        "2, 1, 2",
        "<int64[2, 1, 2] i = {1,1,1,1}> { y = ScatterElements<axis = 1>(x, i, r) }",
    ),
    "the first axis": (
        "3, 2",
        "2, 2",
        "<int64[2, 2] i = {-3,0,1,-2}> { y = ScatterElements(x, i, r) }",
    ),
    "one row after the other": (
        "3, 4",
        "1, 4",
        "<int64[1, 1] i = {1}, int64[1, 1] j = {0}, int64[1, 1] k = {1}>"
        "{ u = ScatterND(x, i, r) n = Neg(r) v = ScatterND(u, j, n) y = ScatterND(v, k, n) }",
    ),
    "one that is read as well": (
        "4, 4",
        "3, 4",
        "<int64[3, 1] i = {0, 1, 2}, int64[3, 1] j = {1, 2, 3}>"
        "{ u = ScatterND(x, i, r) v = ScatterND(u, j, r) y = Add(u, v) }",
    ),
}
OTHERS = {
    "an index twice": ("3, 4", "2, 4", ROWS.replace("{1, 2}", "{1, 1}")),
    "the same counted otherwise": ("3, 4", "2, 4", ROWS.replace("{1, 2}", "{1, -2}")),
    "out of order": ("3, 4", "2, 4", ROWS.replace("{1, 2}", "{2, 1}")),
    "a gap": ("3, 4", "2, 4", ROWS.replace("{1, 2}", "{0, 2}")),
    "around the end": ("3, 4", "2, 4", ROWS.replace("{1, 2}", "{-1, 0}")),
    "added": ("3, 4", "2, 4", ROWS.replace("(x", "<reduction = 'add'>(x").replace("'", '"')),
    "a part of rows": ("3, 4", "2", "<int64[2, 2] i = {0,0,1,0}> { y = ScatterND(x, i, r) }"),
    "a diagonal": ("2, 2", "2", "<int64[2, 2] i = {0,0,1,1}> { y = ScatterND(x, i, r) }"),
    "most is kept": ("9, 4", "2, 4", ROWS),
    "one that is read whole before the next": (
        "5, 4",
        "1, 4",
        "<int64[1, 1] i = {0}, int64[1, 1] j = {1}>"
        "{ u = ScatterND(x, i, r) n = Neg(u) v = ScatterND(u, j, r) y = Add(n, v) }",
    ),
    "no rows": ("3, 4", "0, 4", "<int64[0, 1] i = {}> { y = ScatterND(x, i, r) }"),
    "lines of their own": (
        "2, 3",
        "2, 2",
        "<int64[2, 2] i = {0,1,1,2}> { y = ScatterElements<axis = 1>(x, i, r) }",
    ),
    "fewer lines": (
        "2, 3",
        "1, 2",
        "<int64[1, 2] i = {0,1}> { y = ScatterElements<axis = 1>(x, i, r) }",
    ),
}


def scattered(case: tuple[str, str, str], dtype: str = "float") -> onnx.ModelProto:
    """A model that writes r into x by constant indices."""
    shape, written, body = case
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g ({dtype}[{shape}] x, {dtype}[{written}] r) => ({dtype}[{shape}] y) {body}"""
    )
    return onnx.shape_inference.infer_shapes(model)


def found(model: Imported) -> list[tuple[Value, Value]]:
    """What is found, all of which is confirmed."""
    rewrites = list(decided(model.graph, Ranges(model.constants)))
    checks = Facts(model.graph, model.constants, Assumption.NONE)
    assert not any(fault(checks, name, before, after) for before, after, name in rewrites)
    assert all(name == FACT for *_, name in rewrites)
    return [(before, after) for before, after, _ in rewrites]


@pytest.mark.parametrize("case", SLICES.values(), ids=list(SLICES))
def test_slices_that_are_written_are_joined(case: tuple[str, str, str]) -> None:
    """What is no number is moved as well."""
    model = scattered(case)
    assert found(import_model(ir.from_proto(model)))
    rules = rules_over("Relu", "Neg", "Abs", "Scalar")
    result = xflow.optimize(model, cost="estimated", budget=2, check=1, rules=rules)
    after = ir.to_proto(result.model)
    random = np.random.default_rng(0)
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.0], np.float32)
    feeds = {
        given.name: random.choice(odd, [n.dim_value for n in given.type.tensor_type.shape.dim])
        for given in model.graph.input
    }
    first, second = (
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {given.name: feeds[given.name] for given in each.graph.input}
        )[0]
        for each in (model, after)
    )
    assert not any(node.op_type.startswith("Scatter") for node in after.graph.node)
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16", "double"])
def test_slices_of_other_types_are_joined(dtype: str) -> None:
    assert found(import_model(ir.from_proto(scattered(SLICES["columns"], dtype))))


@pytest.mark.parametrize("case", OTHERS.values(), ids=list(OTHERS))
def test_other_indices_stay(case: tuple[str, str, str]) -> None:
    assert not found(import_model(ir.from_proto(scattered(case))))


def test_elements_that_come_from_elsewhere_are_not_confirmed() -> None:
    """The second checker follows each of them, whatever is found."""
    first = import_model(ir.from_proto(scattered(SLICES["rows"])))
    ((before, after),) = found(first)
    checks = Facts(first.graph, first.constants, Assumption.NONE)
    (kept, new) = after.node.inputs
    for name in ("an index twice", "out of order", "added", "a gap"):
        other = import_model(ir.from_proto(scattered(OTHERS[name])))
        against = Facts(other.graph, other.constants, Assumption.NONE)
        assert fault(against, FACT, other.graph.outputs[0], after)
    for forged in (new, call("Concat", new, kept, axis=0), call("Concat", kept, kept, axis=0)):
        assert fault(checks, FACT, before, forged)
