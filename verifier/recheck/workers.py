"""Processes that answer tasks, each within a limit of time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

Function: TypeAlias = Callable[..., Any]

CONTEXT: Any = get_context("spawn")
"""Fresh processes: a forked solver would share state with its parent."""

START = 60.0
"""Seconds that a process may take beyond the limit for its first task, while it comes up."""


def answers(
    function: Function, tasks: Sequence[tuple[Any, ...]], jobs: int, limit: float
) -> Iterator[tuple[int, object]]:
    """The number of each task and what `function` says of it, as they come.

    An exception is an answer like others; so is a TimeoutError after `limit` seconds and a
    ChildProcessError for a process that dies. Either way a fresh process takes its place, since a
    solver that was interrupted in the middle of a question is in an unknown state.
    """
    waiting = deque(range(len(tasks)))
    workers = [_Worker(function, limit) for _ in range(max(1, min(jobs, len(tasks))))]
    try:
        while True:
            for worker in workers:
                if worker.task is None and waiting:
                    number = waiting.popleft()
                    worker.take(number, tasks[number])
            busy = [worker for worker in workers if worker.task is not None]
            if not busy:
                return
            soonest = min(worker.deadline for worker in busy)
            wait([w.connection for w in busy], timeout=max(0.0, soonest - time.monotonic()))
            for worker in busy:
                task = worker.task
                answer = worker.answer()
                if task is not None and worker.task is None:
                    yield task, answer
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """One process at a time."""

    def __init__(self, function: Function, limit: float) -> None:
        self._function, self._limit = function, limit
        self.task: int | None = None
        """The number of the task at hand."""
        self.deadline = 0.0
        self._start()

    def _start(self) -> None:
        self.connection, other = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_work, args=(self._function, other), daemon=True)
        self._process.start()
        other.close()
        self._is_new = True

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()

    def take(self, number: int, task: tuple[Any, ...]) -> None:
        self.task = number
        self.deadline = time.monotonic() + self._limit + (START if self._is_new else 0)
        self._is_new = False
        with suppress(OSError):  # a process that has died gives no answer, which `answer` notices
            self.connection.send(task)

    def answer(self) -> object:
        """The process's answer, if there is one; the task is None then."""
        late = time.monotonic() >= self.deadline
        if not self.connection.poll() and not late:
            return None
        self.task = None
        try:
            if self.connection.poll():
                return self.connection.recv()
            found: object = TimeoutError(f"it took more than {self._limit:g} s")
        except (EOFError, OSError):
            found = ChildProcessError("a process died")
        self.stop()
        self._start()
        return found


def _work(function: Function, connection: Connection) -> None:
    while True:
        task = connection.recv()
        try:
            answer: object = function(*task)
        except Exception as error:
            # Not the error itself: not every one can be sent.
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        connection.send(answer)
