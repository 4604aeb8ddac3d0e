"""The benchmark: verdicts on outputs, the tools that make them, and profiles."""

import argparse
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import judge
import tools
from headroom import headroom, profiles, removed, sentence
from isolated.expression import Tensor, Variable, Weight, model, node, variables
from judge import Fault, judge_all
from peers import PEERS, Peer
from timed import timed
from tools import Attempt, Failure, judged, optimize_by_peer
from xflow.cost.child import by_kernel

OPSET = 20
X = Tensor(Variable("x", (4, 8)))
W = Tensor(Weight("w", np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)))
OPTIONS = argparse.Namespace(threads=1, provider="cpu")


def saved(path: Path, *outputs: Tensor) -> Path:
    onnx.save(model(outputs, variables(outputs), OPSET), path)
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return saved(tmp_path / "before.onnx", node("Relu", node("Relu", X @ W)))


@pytest.fixture
def after(tmp_path: Path) -> Path:
    return saved(tmp_path / "after.onnx", node("Relu", X @ W))


# The judge


def test_each_output_has_a_verdict_of_its_own(before: Path, after: Path, tmp_path: Path) -> None:
    wrong = saved(tmp_path / "wrong.onnx", node("Relu", X @ W) + 1.0)
    other = saved(tmp_path / "other.onnx", node("Relu", X @ W), X @ W)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    right, *faulty = judge_all(before, [after, wrong, other, broken], 1, seconds=0.01)
    assert (right["fault"], right["wrong"], right["error"]) == ("", "", 0.0)
    assert right["low"] <= right["ratio"] <= right["high"]
    assert right["rounds"] >= judge.PASSES * judge.MIN_ROUNDS
    assert [verdict["fault"] for verdict in faulty] == [Fault.WRONG, Fault.CHANGED, Fault.NO_LOAD]
    assert all(verdict["wrong"] and "ratio" not in verdict for verdict in faulty)


@pytest.mark.parametrize(
    ("before", "after", "alike"),
    [
        (("n", 3), ("n", 3), True),
        (("n", 3), (2, 3), True),
        (("n", 3), ("m", 3), False),
        ((2, 3), ("n", 3), False),
        ((2, 3), (2, 4), False),
        (("n", 3), ("n", 3, 1), False),
    ],
)
def test_of_an_output_the_runtime_may_infer_more_and_nothing_else(
    before: tuple[str | int, ...], after: tuple[str | int, ...], alike: bool
) -> None:
    def session(shape: tuple[str | int, ...]) -> SimpleNamespace:
        values = [SimpleNamespace(name="y", type="tensor(float)", shape=shape)]
        return SimpleNamespace(get_inputs=list, get_outputs=lambda: values)

    assert judge.is_served_alike(session(before), session(after)) is alike


def test_what_the_runtime_alone_takes_is_timed_and_marked(before: Path, tmp_path: Path) -> None:
    proto = onnx.load(before)
    # The runtime has operators of its own in the domain of the standard.
    scale = numpy_helper.from_array(np.ones(8, np.float32), "scale")
    proto.graph.initializer.append(scale)
    proto.graph.node[-1].CopyFrom(
        onnx.helper.make_node(
            "SimplifiedLayerNormalization",
            [proto.graph.node[-1].input[0], "scale"],
            list(proto.graph.node[-1].output),
        )
    )
    onnx.save(proto, tmp_path / "marked.onnx")
    (verdict,) = judge_all(tmp_path / "marked.onnx", [tmp_path / "marked.onnx"], 1, seconds=0.01)
    assert verdict["fault"] == Fault.NOT_VALID
    assert verdict["error"] == 0.0
    assert "ratio" in verdict


def test_a_round_runs_every_session_in_some_order_and_then_in_its_reverse() -> None:
    class Session:
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, _: None, __: judge.Feeds) -> None:
            calls.append(self.name)

    calls: list[str] = []
    sessions = [Session(name) for name in "abcd"]
    times = judge.time_in_turns(sessions, {}, 0.0, np.random.default_rng(0))
    warm, rounds = calls[:8], [calls[i : i + 8] for i in range(8, len(calls), 8)]
    assert sorted(warm) == list("aabbccdd")
    assert times.shape == (len(rounds), 4)
    assert all(turn[:4] == turn[:3:-1] and sorted(turn[:4]) == list("abcd") for turn in rounds)
    assert len({tuple(turn) for turn in rounds}) > 1


def test_sessions_that_do_not_fit_into_the_memory_are_timed_in_groups(
    before: Path, after: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[list[Path]] = []
    timing = judge.time_in_passes

    def noted(paths: list[Path], *rest: Any) -> list[np.ndarray]:
        groups.append(list(paths))
        return timing(paths, *rest)

    monkeypatch.setattr(judge, "fitting", lambda size: 2)
    monkeypatch.setattr(judge, "time_in_passes", noted)
    verdicts = judge_all(before, [after] * 3, 1, seconds=0.01)
    assert groups == [[before, after, after], [before, after]]
    assert all("ratio" in verdict for verdict in verdicts)


def test_memory_bounds_the_number_of_sessions() -> None:
    assert judge.fitting(1) > 1000
    assert judge.fitting(2**60) == 1


# The tools


def test_an_output_that_is_the_input_is_as_fast_as_it(before: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.onnx"
    copy = "import shutil, sys; shutil.copy(*sys.argv[1:])"
    command = [sys.executable, "-c", copy, str(before), str(target)]
    made = tools.attempted("copy", command, before, target, 60)
    assert (made.fault, made.is_unchanged, made.ratio) == ("", True, 1.0)
    assert made.seconds > 0


def python(code: str, limit: float, target: Path) -> Attempt:
    return tools.attempted("tool", [sys.executable, "-c", code], target, target, limit)


def test_a_tool_that_dies_hangs_or_writes_nothing_has_failed(tmp_path: Path) -> None:
    target = tmp_path / "absent.onnx"
    raised = python("raise ValueError('no such pass')", 60, target)
    assert (raised.fault, raised.wrong) == (Failure.CRASHES, "ValueError: no such pass")
    assert python("import os; os.abort()", 60, target).fault == Failure.CRASHES
    assert python("pass", 60, target).wrong == "wrote nothing"
    hanging = python("import time; time.sleep(60)", 0.5, target)
    assert hanging.fault == Failure.HANGS
    assert hanging.seconds < 30
    assert hanging.gain == 1.0


def test_memory_is_that_of_the_command_and_not_of_its_caller() -> None:
    ballast = np.ones(2**26)  # 512 MiB
    used = [timed([sys.executable, "-c", code], 60).memory for code in ("", "b'x' * 2**28")]
    assert used[0] < 2**27 < 2**28 < used[1] < ballast.nbytes


def test_a_peer_that_is_missing_is_said_to_be(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, "absent", Peer("no-such-package", lambda source, target: None))
    made = optimize_by_peer("absent", before, tmp_path / "out.onnx")
    assert (made.fault, made.ratio, made.gain) == (Failure.MISSING, None, 1.0)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_writes_a_model_that_is_right(name: str, before: Path, tmp_path: Path) -> None:
    if not PEERS[name].version:
        pytest.skip(f"{name} is not installed")
    made = optimize_by_peer(name, before, tmp_path / "out.onnx")
    assert made.fault == "", made.wrong
    (verdict,) = judge_all(before, [tmp_path / "out.onnx"], 1, seconds=0.01)
    assert verdict["wrong"] == ""


def test_one_output_that_ends_the_runtime_does_not_cost_the_others_their_verdicts(
    before: Path, after: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal = tmp_path / "fatal.onnx"
    script = tmp_path / "judge.py"
    script.write_text(
        "import os, runpy, sys\n"
        f"if {str(fatal)!r} in sys.argv: os.abort()\n"
        f"sys.path.insert(0, {os.path.dirname(judge.__file__)!r})\n"
        f"runpy.run_path({judge.__file__!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(tools, "HERE", tmp_path)
    right, crashed = judged(before, [after, fatal], OPTIONS, 0.01)
    assert right["wrong"] == ""
    assert right["ratio"] > 0
    assert crashed["fault"] == Failure.CRASHES


# Headroom


def event(name: str, start: int, duration: int, op: str = "") -> dict[str, Any]:
    kind = "Node" if op else "Session"
    return {"cat": kind, "name": name, "ts": start, "dur": duration, "args": {"op_name": op}}


def test_a_profile_is_the_mean_of_all_runs_but_the_first() -> None:
    events = [event("session_initialization", 0, 90)]
    for start, scale in ((100, 10), (1000, 1), (2000, 3)):
        events += [
            event("a_kernel_time", start, 10 * scale, "Conv"),
            event("b_kernel_time", start + 10 * scale, 5 * scale, "Relu"),
            event("c_kernel_time", start + 15 * scale, 5 * scale, "If"),
            event("c_fence_before", start, 1, "Conv"),
            event("model_run", start, 20 * scale),
        ]
    assert by_kernel(events) == pytest.approx({"Conv": 20e-6, "Relu": 10e-6})
    with pytest.raises(ValueError, match="two runs"):
        by_kernel(events[:6])


def test_headroom_is_what_is_neither_convolution_nor_product() -> None:
    before = {"FusedConv": 6.0, "Gemm": 1.0, "Relu": 2.0, "Transpose": 1.0}
    after = {"FusedConv": 5.0, "Gemm": 1.0, "Transpose": 0.75}
    assert headroom(before) == pytest.approx(0.3)
    assert removed(before, after) == pytest.approx(0.75)
    assert removed(after, before) == pytest.approx(-3.0)
    assert sentence(before) == (
        "70 % of its time is convolutions and matrix products "
        "(FusedConv 60 %, Relu 20 %, Gemm 10 %, Transpose 10 %)"
    )


def test_the_runtimes_own_profile_is_read(before: Path, tmp_path: Path) -> None:
    slow = saved(tmp_path / "slow.onnx", node("Erf", node("Softmax", X @ W)))
    of_before, of_slow = profiles([before, slow], 1, seconds=0.0)
    assert set(of_before) == {"MatMul", "Relu"}
    assert set(of_slow) == {"MatMul", "Softmax", "Erf"}
    assert 0 < headroom(of_slow) < 1
