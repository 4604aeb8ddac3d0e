"""The machine: whether others are in the way of a measurement."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xflow.cost import machine
from xflow.cost.machine import Crowd, Watch, free_threads, usable_cores


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
