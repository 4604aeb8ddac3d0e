"""Deadlines: what is left of the time, and which of several comes first."""

import math
import pickle

import pytest

from xflow.core.deadline import NEVER, Deadline

HOUR = 3600.0


def test_time_is_left_until_a_deadline_has_passed() -> None:
    later = Deadline.after(HOUR)
    assert later.left == pytest.approx(HOUR, rel=0.01)
    assert not later.passed
    for over in (Deadline.after(0.0), Deadline.after(-HOUR)):
        assert over.left == 0.0
        assert over.passed
    assert (NEVER.left, NEVER.passed) == (math.inf, False)


def test_a_deadline_can_be_moved_and_a_part_of_what_is_left_be_given() -> None:
    later = Deadline.after(HOUR)
    assert later.extended(HOUR).left == pytest.approx(2 * HOUR, rel=0.01)
    assert later.sooner(HOUR / 2).left == pytest.approx(HOUR / 2, rel=0.01)
    assert later.sooner(2 * HOUR).passed
    assert later.part(0.25).left == pytest.approx(HOUR / 4, rel=0.01)
    assert Deadline.after(-HOUR).part(0.25).passed
    assert NEVER.part(0.25) == NEVER


def test_the_least_deadline_comes_first_in_every_process() -> None:
    soon, late = Deadline.after(1.0), Deadline.after(2.0)
    assert min(late, NEVER, soon) is soon
    assert pickle.loads(pickle.dumps(soon)) == soon
