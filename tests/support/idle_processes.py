"""Measuring processes that one test has done with, for the next that wants one.

To start one takes a quarter of a second, and most tests that optimize a model need one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from xflow.cost.worker import Worker

OWNED = ("_process", "_inbox", "_bookmark", "_bookmark_path", "_hello")
"""What a Worker has of its process."""
LEAST_LIMIT = 2**31
"""Bytes: a process with a limit below is asked for by a test of limits, and has one of its own."""
PASSING = ("PYTEST_", "XFLOW_")
"""How variables of the environment begin that say nothing to such a process."""


def kind(worker: Worker) -> object:
    """What processes have to have in common to stand for one another; None for no other."""
    limit = worker._memory_limit
    if limit is not None and limit < LEAST_LIMIT:
        return None
    settings = {name: text for name, text in os.environ.items() if not name.startswith(PASSING)}
    return limit is None, sys.executable, os.getcwd(), os.getpid(), tuple(sorted(settings.items()))


class IdleProcesses:
    """Those that are left over; one that a test closes is there for the tests behind it.

    Not for the same test, in which a second process is to know nothing of the first.
    """

    def __init__(self) -> None:
        self._idle: dict[object, dict[str, Any]] = {}
        self._resting: dict[object, dict[str, Any]] = {}
        self._taken = True

    def next_test(self, taken: bool = True) -> None:
        """What rests may be taken from now on; unless `taken`, processes are started and ended."""
        self._taken = taken
        for which, owned in self._resting.items():
            _end(self._idle.pop(which, None))
            self._idle[which] = owned
        self._resting = {}

    def close(self) -> None:
        """End them all."""
        self.next_test()
        for owned in self._idle.values():
            _end(owned)
        self._idle = {}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within it, all Workers take their processes from here, and leave them here."""
        start, close = Worker._start, Worker.close

        def started(worker: Worker) -> None:
            if self._taken and worker._process is None:
                vars(worker).update(self._idle.pop(kind(worker), {}))  # a dead one is replaced
            start(worker)

        def left(worker: Worker) -> None:
            which = kind(worker)
            with worker._lock:
                alive = worker._process is not None and worker._process.poll() is None
                if self._taken and alive and which not in (None, *self._resting):
                    self._resting[which] = {name: getattr(worker, name) for name in OWNED}
                    worker._process = worker._bookmark = None
            close(worker)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Worker, "_start", started)
            patch.setattr(Worker, "close", left)
            yield
        self.close()


def _end(owned: dict[str, Any] | None) -> None:
    if owned is not None:
        worker = Worker()
        vars(worker).update(owned)
        worker._end()
