"""The check of models with codes: what the runtime fuses is no difference, what is wrong is one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from coded_networks import residual_network
from onnx import numpy_helper

from xflow.cost.worker import Worker
from xflow.validation.equivalence import CheckResult, check_equivalent


def without_signs(model: onnx.ModelProto, *, error: int = 0) -> onnx.ModelProto:
    """The model with all codes 128 larger, but for an `error` in the first zero point."""
    after = onnx.ModelProto()
    after.CopyFrom(model)
    shift = 128 + error
    for tensor in after.graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT8:
            array = numpy_helper.to_array(tensor).astype(np.int16) + shift
            shift = 128
            made = numpy_helper.from_array(array.astype(np.uint8), tensor.name)
            tensor.CopyFrom(made)
    return after


def checked(before: onnx.ModelProto, after: onnx.ModelProto, worker: Worker) -> CheckResult:
    return check_equivalent(
        before.SerializeToString(), after.SerializeToString(), samples=3, worker=worker
    )


@pytest.fixture(scope="module")
def worker() -> Worker:
    return Worker()


@pytest.mark.parametrize("seed", range(3))
def test_what_the_runtime_fuses_on_codes_is_no_difference(seed: int, worker: Worker) -> None:
    model = residual_network(seed=seed)
    result = checked(model, without_signs(model), worker)
    assert result.ok, result.reason


def test_a_wrong_zero_point_is_a_difference(worker: Worker) -> None:
    model = residual_network()
    assert not checked(model, without_signs(model, error=1), worker).ok


def test_a_wrong_scale_is_a_difference(worker: Worker) -> None:
    model = residual_network()
    after = without_signs(model)
    scale = next(t for t in after.graph.initializer if t.data_type == onnx.TensorProto.FLOAT)
    array = numpy_helper.to_array(scale)
    scale.CopyFrom(numpy_helper.from_array((array * 1.01).astype(np.float32), scale.name))
    assert not checked(model, after, worker).ok
