"""The benchmark for GPUs, gone through without one."""

import argparse
import json
from pathlib import Path

import onnx
import pytest

import cuda
from xflow.cost.calibration.calibrate import Calibration, Number, keep
from xflow.cost.measure import Target
from xflow.cost.store import Platform, Store
from xflow.cost.worker import Worker


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what is measured, in which the machine's numbers are, as if they had been."""
    folder = tmp_path_factory.mktemp("cache")
    with Worker() as worker, Store(folder / "costs.sqlite") as store:
        target = Target("cpu", 1)
        place = Platform.of(target.provider, target.threads, worker.runtime_version)
        keep(Calibration((Number("overhead", 1e-6, 1e-6),)), place, store)
    return folder


def test_a_run_leaves_the_rows_of_others_and_writes_a_table(cache: Path, tmp_path: Path) -> None:
    options = argparse.Namespace(provider="cpu", seconds=1.0, out=tmp_path)
    other = {"model": "squeezenet1_1", "precision": "fp32", "fault": "", "unchanged": True}
    cuda.save([{**other, "budget": 1.0}], options)
    short = ["--provider", "cpu", "--threads", "1", "--budget", "2", "--seconds", "0.5"]
    where = ["--cache", str(cache), "--out", str(tmp_path)]
    assert cuda.main(["squeezenet1_1", "--precision", "fp16", *short, *where]) == 0
    rows = json.loads((tmp_path / "cpu-precisions.json").read_text())["rows"]
    assert [row["precision"] for row in rows] == ["fp32", "fp16"]
    assert 1e-5 < rows[1]["errors"][0] < 1e-2  # what rounding to 16 bits makes
    assert "| squeezenet1_1 | unchanged |" in (tmp_path / "cpu-precisions.md").read_text()


def test_a_model_in_16_bits_is_in_16_bits(tmp_path: Path) -> None:
    exact, half = cuda.make("squeezenet1_1", "fp16", tmp_path)
    whole, short = (
        {weight.data_type for weight in onnx.load(path).graph.initializer} for path in (exact, half)
    )
    assert onnx.TensorProto.FLOAT16 in short - whole
    assert onnx.TensorProto.FLOAT in whole - short


def test_an_output_that_is_farther_from_the_exact_one_than_the_input_is_wrong() -> None:
    found = {"model": "m", "precision": "fp32", "fault": "", "budget": 1.0, "unchanged": True}
    wrong = {**found, "precision": "fp16", "fault": "wrong: differs by 1, the input by 0.01"}
    (line,) = (line for line in cuda.table([found, wrong]) if line.startswith("| m |"))
    assert (
        line
        == "| m | unchanged | unchanged | wrong: differs by 1, the input by 0.01 |  |  | 1; 1 |"
    )
