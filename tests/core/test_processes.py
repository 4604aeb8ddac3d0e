"""Processes that are killed at a limit, and a pool that is left."""

import os
import time

from xflow.core.processes import answers, process_pool


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
