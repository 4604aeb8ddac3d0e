"""Processes that are killed at a limit, and a pool that is left."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from xflow.core.atomic import signals_deferred
from xflow.core.deadline import Deadline
from xflow.core.processes import Script, answers, process_pool


def test_a_task_beyond_its_limit_is_a_timeout_and_the_next_one_is_answered() -> None:
    found = dict(answers(time.sleep, [(60,), (0,)], 1, 0.5))
    assert isinstance(found[0], TimeoutError)
    assert found[1] is None


def test_the_death_of_a_process_and_an_error_are_answers() -> None:
    (died,) = answers(os._exit, [(1,)], 2, 60.0)
    assert isinstance(died[1], ChildProcessError)
    (failed,) = answers(int, [("x",)], 2, 60.0)
    assert "ValueError: invalid literal" in str(failed[1])


def test_a_pool_that_is_left_waits_for_no_job() -> None:
    start = time.monotonic()
    with process_pool(1) as pool:
        for _ in range(3):
            pool.submit(time.sleep, 60)
    assert time.monotonic() - start < 30


ECHO = """
import struct, sys, time
def send(body):
    sys.stdout.buffer.write(struct.pack("<Q", len(body)) + body)
    sys.stdout.flush()
send(b"")
while head := sys.stdin.buffer.read(8):
    body = sys.stdin.buffer.read(*struct.unpack("<Q", head))
    if body == b"die":
        sys.exit(1)
    if body == b"hang":
        time.sleep(600)
    send(body)
"""


def test_a_script_answers_and_is_started_again_after_it_dies_or_hangs(tmp_path: Path) -> None:
    path = tmp_path / "echo.py"
    path.write_text(ECHO)
    script = Script(path)
    large = bytes(10**7)
    for _ in range(2):
        assert script.ask(large, 60.0) == large
        with pytest.raises(ChildProcessError):
            script.ask(b"die", 60.0)
        with pytest.raises(TimeoutError, match=r"more than 0\.2 s"):
            script.ask(b"hang", 0.2)
    path.unlink()
    with pytest.raises(ChildProcessError):
        script.ask(b"", 60.0)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Where a shell has no terminal, interruptions are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_signals_wait_for_the_end_of_what_must_not_be_broken_off() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it is about when it is raised
        with signals_deferred():
            signal.raise_signal(signal.SIGINT)
            steps.append("inside")
        steps.append("behind")
    assert steps == ["inside"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")
def test_a_hangup_unwinds_the_stack_unless_it_is_ignored() -> None:
    code = """
import signal
from xflow.core.atomic import signals_deferred, unwinding_on_termination
for how in (signal.SIG_IGN, signal.SIG_DFL):
    signal.signal(signal.SIGHUP, how)
    with unwinding_on_termination():
        try:
            with signals_deferred():
                signal.raise_signal(signal.SIGHUP)
                print("deferred", flush=True)
            print("ignored", flush=True)
        finally:
            print("unwound", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["deferred", "ignored", "unwound", "deferred", "unwound"]
    assert done.returncode == -signal.SIGHUP


POOL = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
from xflow.core.atomic import unwinding_on_termination
from xflow.core.processes import process_pool
with unwinding_on_termination():
    # What a process begins with takes longer to be sent than the pipe holds.
    with process_pool(2, initializer=len, initargs=(bytes(2**25),)) as pool:
        print("ready", flush=True)
        for job in [pool.submit(time.sleep, 60.0) for _ in range(2)]:
            job.result()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by their session")
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.5])
def test_a_pool_that_is_broken_off_leaves_no_process_behind(
    kind: signal.Signals, after_s: float
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", POOL],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(after_s)
        if kind in (signal.SIGINT, signal.SIGHUP):  # as from a terminal
            os.killpg(child.pid, kind)
        else:
            child.send_signal(kind)
        assert child.wait(30) != 0
    deadline = Deadline.after(10.0)
    while (left := _session(child.pid)) and not deadline.passed:
        time.sleep(0.05)
    assert not left


def _session(number: int) -> list[str]:
    """The processes of a session that have not ended."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            running = process.status() != psutil.STATUS_ZOMBIE
            if os.getsid(process.pid) == number and running:
                found.append(process.name())
    return found
