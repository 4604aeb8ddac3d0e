"""The machine: whether others are in the way of a measurement."""

import os
import time

import pytest

from xflow.cost import machine
from xflow.cost.machine import Crowd


def test_processes_that_take_the_processors_are_in_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "_busy_s", lambda: 2.0 * time.monotonic())  # two all the time
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    crowd = Crowd()
    time.sleep(0.05)
    assert crowd.in_the_way(3)
    assert not crowd.in_the_way(1)


def test_what_the_program_itself_does_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_busy_s", machine._own_s)
    crowd = Crowd()
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        pass
    assert not crowd.in_the_way(os.cpu_count() or 1)
