"""Models and helpers that several tests share."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest
from small_models import small_model

if TYPE_CHECKING:
    from idle_processes import IdleProcesses
    from suites import Kept

# A worker keeps all rules at all ranks, some gigabytes of objects.  To look for garbage among them
# as often as Python does by default takes a tenth of the time of the tests.
gc.set_threshold(50_000, 20, 50)


def pytest_configure() -> None:
    """Give each worker a core of its own, and the processes that it starts.

    Otherwise the runtime starts a thread for each core in each session, and these wait for one
    another without sleeping: a tenth of the time of the tests.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker) % len(cores)]})


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """A valid model in a file of its own folder."""
    folder = tmp_path / "input"
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save(small_model(), path)
    return path


@pytest.fixture
def external_model_file(tmp_path: Path) -> Path:
    """A valid model whose weights lie in `weights.bin` beside it."""
    folder = tmp_path / "external"
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save(
        small_model(64),
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return path


@pytest.fixture
def run_xflow() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """A function that runs the program as a user would, in a process of its own."""

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "xflow", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture(scope="session")
def idle_processes() -> "Iterator[IdleProcesses]":
    """Measuring processes that tests have done with."""
    from idle_processes import IdleProcesses  # noqa: PLC0415 - takes a while to load

    idle = IdleProcesses()
    with idle.used():
        yield idle


@pytest.fixture(autouse=True)
def measuring_process(idle_processes: "IdleProcesses", request: pytest.FixtureRequest) -> None:
    """Each test finds the process that the one before it left, unless it is to have its own."""
    idle_processes.next_test(request.node.get_closest_marker("own_process") is None)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> "Iterator[Kept]":
    """One measuring process for all runs of a test."""
    import suites  # noqa: PLC0415 - takes a while to load

    from xflow.pipeline import api  # noqa: PLC0415

    kept = suites.Kept(memory_limit=8 * 2**30)
    monkeypatch.setattr(api, "Worker", lambda *_: kept)
    yield kept
    kept.close()
