"""Models that are compared without the rounding of factors, and held against each other with it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from xflow.cost.measure import Target
from xflow.validation.difference import is_as_finite
from xflow.validation.equivalence import CheckResult, check_equivalent
from xflow.validation.reference import Reference

WEIGHTS = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def product() -> bytes:
    """The bytes of ``x @ WEIGHTS``."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [x],
        [y],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    opsets = [helper.make_opsetid("", 20)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return model


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, float]:
    """Makes a processor round factors: the results served of each model are off by that part."""
    off: dict[str, float] = {"before": 0.0, "after": 0.0}
    served = Reference.served

    def rounded(self: Reference, model: Any, numbers: Sequence[int], deadline: Any) -> Any:
        part = off["before" if model is self.model else "after"]
        found = served(self, model, numbers, deadline)
        return {
            number: {name: value * np.float32(1 + part) for name, value in outputs.items()}
            for number, outputs in found.items()
        }

    monkeypatch.setattr(Target, "rounds_factors", True)
    monkeypatch.setattr(Reference, "served", rounded)
    return off


def checked() -> CheckResult:
    before, after = product(), product()
    assert before is not after
    return check_equivalent(before, after, target=Target("cpu", 1), edge_cases=False)


def test_models_that_are_rounded_alike_agree(rounding: dict[str, float]) -> None:
    assert checked().ok
    rounding.update(before=5e-4, after=15e-4)
    assert checked().ok


@pytest.mark.parametrize("part", [0.01, float("inf"), float("nan")])
def test_a_model_that_is_worse_as_it_is_served_is_refused(
    rounding: dict[str, float], part: float
) -> None:
    rounding.update(before=5e-4, after=part)
    result = checked()
    assert not result.ok
    assert "as it is served, output 'y' is off by" in result.reason


def test_where_nothing_is_rounded_nothing_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reference, "served", None)  # calling it would fail
    assert checked().ok


def test_a_number_has_to_stay_one() -> None:
    one, nan = np.ones(3, np.float32), np.array([1, np.nan, 1], np.float32)
    assert is_as_finite(one, one)
    assert is_as_finite(nan, one)
    assert not is_as_finite(one, nan)
    assert not is_as_finite(one, one[:2])
    assert is_as_finite(np.array([1]), np.array([2]))
    assert is_as_finite([one], None)
