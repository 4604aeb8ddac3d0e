"""Faults of the surroundings: killed runs, full disks, damaged caches, clocks that jump."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest
from products import RULES, two_products
from sentences import assert_one_sentence

import xflow
from xflow.core.errors import ExitCode

IN_CI = 3
MANY = 50
RUN_S = 4.0
"""Seconds that a whole run takes at most, in which it is killed."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a model, rules, and an older output."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "two.rules").write_text("\n".join(map(str, RULES)))
    onnx.save(two_products(), tmp_path / "in.onnx")
    (tmp_path / "out").mkdir()
    onnx.save(two_products(8), tmp_path / "out" / "out.onnx")
    return tmp_path


def start(place: Path, *options: str, limit: int | None = None) -> "subprocess.Popen[str]":
    """A run of the program as a user starts it; `limit` is the largest file it can write."""
    command = [sys.executable, "-m", "xflow", "optimize", "in.onnx", "out/out.onnx"]
    command += ["--rules", "rules", "--budget", "2", "--threads", "1", "--check", "1", *options]

    def prepare() -> None:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        command,
        cwd=place,
        env={**os.environ, "XFLOW_CACHE": str(place / "costs.sqlite")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,  # noqa: PLW1509 - no threads are started before
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def kill_at_random_moments(place: Path, times: int) -> None:
    """Kill so many runs; the output is always a whole model, and the next run is as good as any."""
    out = place / "out" / "out.onnx"
    old = out.read_bytes()
    chance = random.Random(0)
    killed = 0
    for _ in range(times):
        out.write_bytes(old)
        process = start(place)
        time.sleep(chance.uniform(0, RUN_S))
        process.kill()
        killed += ended(process)[0] == -signal.SIGKILL
        if out.read_bytes() != old:
            onnx.checker.check_model(str(out), full_check=True)
    print(f"\n{killed} of {times} runs were killed, the others had ended")
    assert killed
    code, said, err = ended(start(place))
    assert code == ExitCode.OK, err
    assert "set aside" not in said, "a kill must not damage the costs"


def test_a_killed_run_leaves_whole_models_and_costs(place: Path) -> None:
    kill_at_random_moments(place, IN_CI)


@pytest.mark.many
@pytest.mark.timeout(3600)
def test_fifty_killed_runs_do(place: Path) -> None:
    kill_at_random_moments(place, MANY)


@pytest.mark.parametrize("limit", [1000, 30_000])
def test_a_full_disk_is_one_sentence_and_the_old_output_stays(place: Path, limit: int) -> None:
    """Files cannot grow beyond the limit."""
    out = place / "out" / "out.onnx"
    old = out.read_bytes()
    code, _, err = ended(start(place, "--cost", "estimated", limit=limit))
    assert code == ExitCode.ERROR
    assert_one_sentence(err)
    assert out.read_bytes() == old
    assert [path.name for path in out.parent.iterdir()] == ["out.onnx"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write")
def test_a_folder_that_cannot_be_written_is_one_sentence(place: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "xflow", str(place / "in.onnx"), "/proc/self/out.onnx"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == ExitCode.ERROR
    assert_one_sentence(process.stderr)


def test_damaged_costs_are_set_aside_rebuilt_and_that_is_said(place: Path) -> None:
    (place / "costs.sqlite").write_bytes(b"This is no database." * 500)
    code, out, err = ended(start(place))
    assert code == ExitCode.OK, err
    assert "set aside" in " ".join(out.split())
    assert (place / "costs.sqlite").read_bytes().startswith(b"SQLite format 3")


def test_two_runs_share_one_database_of_costs(place: Path) -> None:
    (place / "other").mkdir()
    runs = [start(place), start(place)]
    for process in runs:
        code, out, err = ended(process)
        assert code == ExitCode.OK, err
        assert "set aside" not in out


def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durations are taken from the clock that never jumps; the other one only dates costs."""
    monkeypatch.setenv("XFLOW_CACHE", str(tmp_path / "costs.sqlite"))
    chance = random.Random(0)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + chance.uniform(-1e7, 1e7))
    before = time.monotonic()
    result = xflow.optimize(two_products(), rules=RULES, budget=2, threads=1, check=1)
    assert time.monotonic() - before < 60
    assert all(0 <= seconds < 60 for seconds in result.report.phases.values())
