"""The machine: whether others are in the way of a measurement."""

import math
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xflow.cost import control_groups, machine
from xflow.cost.machine import Crowd, Watch, free_threads, usable_cores, vector_floats


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with four processors."""
    monkeypatch.setattr(machine, "_allowed_processors", lambda: [0, 1, 2, 3])


@pytest.fixture
def two_taken(monkeypatch: pytest.MonkeyPatch, four: None) -> None:
    """Others keep two of them busy all the time; this process and its children do nothing."""
    monkeypatch.setattr(machine, "_busy_s", lambda: 2.0 * time.monotonic())
    monkeypatch.setattr(machine, "_own_s", lambda: 0.0)


@pytest.mark.usefixtures("two_taken")
def test_processes_that_take_the_processors_are_in_the_way() -> None:
    crowd = Crowd()
    time.sleep(0.05)
    assert crowd.in_the_way(3)
    assert not crowd.in_the_way(2)
    assert [crowd.free(threads) for threads in (1, 2, 3, 4)] == [1, 2, 2, 2]


@pytest.mark.usefixtures("two_taken")
def test_a_watch_waits_for_what_there_is_to_see_and_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "WATCHED_S", 0.0)
    watch = Watch()
    assert watch.free(4) == 2
    monkeypatch.setattr(machine, "_busy_s", machine._own_s)
    watch.free(4)  # of a time in which it was so and so
    time.sleep(0.05)
    assert watch.free(4) == 4


@pytest.mark.usefixtures("four")
@given(st.floats(0.0, 64.0), st.integers(1, 64))
def test_a_thread_is_always_free_and_never_more_than_there_are(taken: float, threads: int) -> None:
    free = free_threads(taken, threads)
    assert 1 <= free <= threads
    assert free <= free_threads(taken / 2, threads)
    assert free_threads(0.0, threads) == threads


def test_what_the_program_itself_does_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_busy_s", machine._own_s)
    crowd = Crowd()
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        pass
    assert not crowd.in_the_way(usable_cores())


HIERARCHIES = {
    "version 2": (
        "0::/a/b",
        {
            "a/cpu.max": "150000 100000",
            "a/b/cpu.max": "max 100000",
            "a/memory.max": "900",
            "a/memory.current": "500",
            "a/memory.stat": "x 1\ninactive_file 7",
            "a/b/memory.max": "max",
            "a/b/memory.current": "300",
        },
    ),
    "version 2 in a container": (
        "0::/outside/of/it",
        {"cpu.max": "150000 100000", "memory.max": "900", "memory.current": "493"},
    ),
    "version 1": (
        "5:cpuacct,cpu:/a\n4:memory:/b/c\n1:name=systemd:/d\n0::/d",
        {
            "cpu/a/cpu.cfs_quota_us": "150000",
            "cpu/a/cpu.cfs_period_us": "100000",
            "cpu/cpu.cfs_quota_us": "-1",
            "cpu/cpu.cfs_period_us": "100000",
            "memory/b/memory.limit_in_bytes": "900",
            "memory/b/memory.usage_in_bytes": "500",
            "memory/b/memory.stat": "inactive_file 1\ntotal_inactive_file 7",
            "memory/b/c/memory.limit_in_bytes": str(2**63 - 4096),
            "memory/b/c/memory.usage_in_bytes": "500",
        },
    ),
}


def control_group_files(root: Path, own: str, contents: dict[str, str]) -> Path:
    """A file system in which the kernel tells so of its control groups."""
    groups = {f"sys/fs/cgroup/{name}": text for name, text in contents.items()}
    for name, text in {"proc/self/cgroup": own, **groups}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


@pytest.mark.parametrize("kind", HIERARCHIES)
def test_the_least_limit_of_all_control_groups_counts(kind: str, tmp_path: Path) -> None:
    root = control_group_files(tmp_path, *HIERARCHIES[kind])
    assert control_groups.processors(root) == 1.5
    assert control_groups.memory_limit(root) == 900
    assert control_groups.free_memory(root) == 407


@pytest.mark.parametrize("own", ["", "0::/", "0::/../of", "4:memory:/\n3:cpu:/"])
def test_without_limits_of_control_groups_there_are_none(own: str, tmp_path: Path) -> None:
    root = control_group_files(tmp_path, own, {"cpu.max": "max 100000"}) if own else tmp_path
    assert control_groups.processors(root) == math.inf
    assert control_groups.memory_limit(root) == control_groups.free_memory(root) == math.inf


def test_the_machine_is_as_large_as_its_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "processors", lambda: 0.5)
    monkeypatch.setattr(control_groups, "free_memory", lambda: 2.0**32)
    assert machine.usable_cores() == 1
    assert machine.free_memory() <= 2**32


def test_blocks_of_channels_are_as_wide_as_registers(tmp_path: Path) -> None:
    """The runtime fills up the weights of a convolution to whole blocks of its layout."""
    if vector_floats() is None:
        pytest.skip("the blocks of the layout are known of x86 processors alone")
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 3, 8, 8] x) => (float[1, 1, 6, 6] y) { y = Conv(x, w) }""")
    weights = np.ones((1, 3, 3, 3), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "served.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    served = onnx.load(tmp_path / "served.onnx")
    (filled,) = (item.dims[0] for item in served.graph.initializer if len(item.dims) == 4)
    assert filled == vector_floats()
