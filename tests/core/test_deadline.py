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


def test_a_deadline_that_is_to_stop_has_passed_wherever_it_was_moved() -> None:
    asked: list[bool] = []
    later = Deadline.after(HOUR, lambda: bool(asked))
    others = [later.extended(HOUR), later.sooner(60.0), later.part(0.5)]
    assert not any(each.passed or each.stopped for each in (later, *others))
    asked.append(True)
    assert all(each.passed and each.stopped and each.left == 0.0 for each in (later, *others))
    assert later < Deadline.after(2 * HOUR)
    elsewhere = pickle.loads(pickle.dumps(later))
    assert elsewhere == later
    assert not elsewhere.passed
    assert Deadline.after(-1.0).passed
    assert not Deadline.after(-1.0).stopped
