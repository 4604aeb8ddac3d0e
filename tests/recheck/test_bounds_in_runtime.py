"""Holds both analyses of ranges against what ONNX Runtime computes in random models."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from bounded_models import bounded_model
from chains import outside

from xflow.analysis.ranges import Ranges
from xflow.core.assumptions import Assumption
from xflow.core.registry import Array
from xflow.onnx.importer import import_model
from xflow.recheck.bounds import Analysis

IN_CI, MANY = 300, 20_000


def values(data: bytes) -> list[Array] | None:
    """What the runtime gives, without its optimizer; None where it does not take the model."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        results: list[Array] = session.run(None, {"ids": np.arange(4)})
    except Exception:
        return None
    return results


def check(seeds: range) -> list[str]:
    """What of the models lies outside of its bounds."""
    faults = []
    for seed in seeds:
        model = bounded_model(seed)
        results = values(model.SerializeToString())
        if results is None:
            continue
        imported = import_model(ir.from_proto(model))
        second = Analysis(imported.graph, imported.constants, Assumption.NONE)
        first = Ranges(imported.constants, Assumption.NONE)
        for value, result in zip(imported.graph.outputs, results, strict=True):
            if result.dtype.kind != "f":
                continue
            analyses: tuple[Ranges | Analysis, ...] = (first, second)
            for analysis in analyses:
                fault = outside(analysis.of(value), result, 1e-6)
                if fault:
                    faults.append(f"{seed}: {type(analysis).__name__}: {value}: {fault}")
    return faults


def test_no_value_of_a_model_lies_outside_of_its_bounds() -> None:
    with np.errstate(all="ignore"):
        assert check(range(IN_CI)) == []


@pytest.mark.many
@pytest.mark.timeout(3600)
def test_no_value_of_many_models_lies_outside_of_its_bounds() -> None:
    with np.errstate(all="ignore"):
        assert check(range(IN_CI, IN_CI + MANY)) == []
