"""Processes that are killed at a limit, and a pool that is left."""

import os
import time
from pathlib import Path

import pytest

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
