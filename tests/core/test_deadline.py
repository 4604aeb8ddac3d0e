"""Deadlines: what is left of the time, and which of several comes first."""

import math
import pickle

import pytest

from xflow.core import deadline
from xflow.core.deadline import NEVER, Deadline


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline.time, "monotonic", lambda: 100.0)


def test_time_is_left_until_a_deadline_has_passed() -> None:
    assert (Deadline.after(5.0).left, Deadline.after(5.0).passed) == (5.0, False)
    assert (Deadline.after(-5.0).left, Deadline.after(-5.0).passed) == (0.0, True)
    assert Deadline.after(0.0).passed
    assert (NEVER.left, NEVER.passed) == (math.inf, False)


def test_a_deadline_can_be_moved_and_a_part_of_what_is_left_be_given() -> None:
    assert Deadline.after(5.0).extended(2.0) == Deadline.after(7.0)
    assert Deadline.after(5.0).sooner(2.0) == Deadline.after(3.0)
    assert Deadline.after(5.0).sooner(5.0).passed
    assert Deadline.after(8.0).part(0.25) == Deadline.after(2.0)
    assert Deadline.after(-8.0).part(0.25).passed
    assert NEVER.part(0.25) == NEVER


def test_the_least_deadline_comes_first_in_every_process() -> None:
    soon, late = Deadline.after(1.0), Deadline.after(2.0)
    assert min(late, NEVER, soon) is soon
    assert pickle.loads(pickle.dumps(soon)) == soon
