"""Measurements that crash, hang or are killed: each costs a line in the report, and not the run."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from products import RULES, two_products

import xflow
from xflow.cost import child, model
from xflow.cost.worker import Worker
from xflow.pipeline import api, attempts

pytestmark = pytest.mark.own_process

Wreck = Callable[[str, str], None]
CHILD = """
import importlib.util, os, signal, sys, time
spec = importlib.util.spec_from_file_location("child", {real!r})
child = importlib.util.module_from_spec(spec)
spec.loader.exec_module(child)
load = child.Runner.__init__
def wrecked(self, runtime, source, options):
    if {when}:
        {accident}
    load(self, runtime, source, options)
child.Runner.__init__ = wrecked
child.main(sys.argv[1])
"""
MERGED = 'isinstance(source, bytes) and b"MatMul" in source and b"Add" not in source'
"""A region, whose products have been merged. Whole models come as files."""
ACCIDENTS = {
    "abort": ("os.abort()", "SIGABRT"),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    "hang": ("time.sleep(600)", "did not finish"),
}


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements go to a store of the test's own, and a hang is noticed after few seconds."""
    monkeypatch.setenv("XFLOW_CACHE", str(tmp_path / "costs.sqlite"))
    monkeypatch.setattr(model, "LOADING_S", 5.0)


@pytest.fixture
def wreck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wreck:
    """A function after which the measuring process has an accident with some models."""
    real = child.__file__

    def arrange(when: str, accident: str) -> None:
        script = tmp_path / "wrecked.py"
        script.write_text(CHILD.format(real=real, when=when, accident=accident))
        monkeypatch.setattr(child, "__file__", str(script))

    return arrange


def optimized(**settings: Any) -> api.Result:
    return xflow.optimize(two_products(), rules=RULES, budget=8, threads=1, check=1, **settings)


@pytest.mark.parametrize("kind", ACCIDENTS)
def test_a_form_whose_measurement_ends_the_process_is_not_taken(
    kind: str, wreck: Wreck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a search that measures; the estimate, which decides first, has no time here."""
    monkeypatch.setattr(attempts, "ESTIMATED", 0.0)
    monkeypatch.setattr(attempts, "ESTIMATED_S", 0.0)
    accident, said = ACCIDENTS[kind]
    wreck(MERGED, accident)
    result = optimized()
    assert not any(use.name == "merge-products" for use in result.report.rules)
    (warning,) = [text for text in result.report.warnings if "could not be measured" in text]
    assert said in warning


def test_a_model_that_ends_the_process_in_the_check_is_not_given(wreck: Wreck) -> None:
    wreck('isinstance(source, str) and source.endswith("after.onnx")', "os.abort()")
    report = optimized(cost="estimated").report
    assert not report.changed
    assert any("SIGABRT" in text for text in report.warnings)


def test_a_process_that_is_killed_in_the_middle_of_the_search_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers: list[Worker] = []
    killed: list[int] = []

    class Watched(Worker):
        def __init__(self, memory_limit: int | None = None) -> None:
            super().__init__(memory_limit)
            workers.append(self)

    def kill(phase: str, details: Mapping[str, object]) -> None:
        pid = workers[0].pid
        if phase == "measure" and not killed and pid is not None:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    monkeypatch.setattr(api, "Worker", Watched)
    report = optimized(progress=kill).report
    assert killed
    assert any("SIGKILL" in text for text in report.warnings)
