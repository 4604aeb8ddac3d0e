"""The desk: takes families' requests for chunks, submits each once, and keeps the outcomes."""

from __future__ import annotations

import queue
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from xflow.core.errors import WorkerError
from xflow.generator.runner.chunks import Chunk
from xflow.generator.runner.engine import Engine, Urgency
from xflow.generator.runner.journal import Journal
from xflow.generator.runner.outcome import Outcome

Result = TypeVar("Result")
Made = TypeVar("Made")

Steps = Generator[bool, None, Made]
"""A coroutine of steps: yields True after progress, and False while it waits for a ticket."""


@dataclass
class Ticket(Generic[Result]):
    """A future: the result of a chunk, once it is there."""

    chunk: Chunk[Result]
    family: str
    outcome: Outcome | None = None

    @property
    def ready(self) -> bool:
        return self.outcome is not None

    @property
    def result(self) -> Result:
        """The result. Raises WorkerError where the chunk has none."""
        assert self.outcome is not None
        if self.outcome.error:
            raise WorkerError(self.outcome.error)
        return cast(Result, self.outcome.result)


@dataclass
class Tally:
    """How many chunks of a kind there were, and what they cost."""

    chunks: int = 0
    recalled: int = 0
    """Of these, read from the journal."""
    seconds: float = 0.0
    longest: float = 0.0
    memory: int = 0
    """Largest number of bytes that were resident in a process after a chunk."""

    def add(self, outcome: Outcome, recalled: bool) -> None:
        """Count an outcome. The seconds of one that was recalled were spent in an earlier run."""
        self.chunks += 1
        self.recalled += recalled
        self.seconds += outcome.seconds
        self.longest = max(self.longest, outcome.seconds)
        self.memory = max(self.memory, outcome.memory)


@dataclass
class Desk:
    """Submits chunks to an engine, each once, and stores their outcomes in a journal."""

    engine: Engine
    seed: int
    max_ops: int
    journal: Journal | None = None
    finished: Callable[[str, Chunk[Any]], None] = lambda family, chunk: None
    """Called with the family and the chunk when one is finished."""
    tallies: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    """By family and kind of chunk."""
    workers: Counter[str] = field(default_factory=Counter)
    """Microseconds that each worker process was busy, in this run."""
    _tickets: dict[str, Ticket[Any]] = field(default_factory=dict)
    _counted: set[str] = field(default_factory=set)
    """Keys of chunks that are in the tallies: one that was forgotten may be requested again."""

    def ask(self, chunk: Chunk[Result], family: str, urgency: Urgency) -> Ticket[Result]:
        """The ticket of a chunk; one that was requested before is not run again."""
        key = chunk.key
        ticket = self._tickets.get(key)
        if ticket is None:
            ticket = self._tickets[key] = Ticket(chunk, family)
            known = self.journal.find(key) if self.journal else None
            if known is None:
                self.engine.submit(chunk, key, family, urgency)
                self.collect(0)
            else:
                self._arrived(ticket, known, recalled=True)
        elif not ticket.ready:
            self.engine.hurry(key, urgency)
        return ticket

    def forget(self, ticket: Ticket[Any]) -> None:
        """Free a result that will not be requested again."""
        self._tickets.pop(ticket.chunk.key, None)

    def decide(self, key: str, answer: Callable[[], bool]) -> bool:
        """`answer()`, or the journal's answer under `key`, which must determine it."""
        known = self.journal.decided(key) if self.journal else None
        if known is None:
            known = answer()
            if self.journal:
                self.journal.decide(key, known)
        return known

    def collect(self, timeout: float) -> None:
        """Take the outcomes that have arrived; wait up to `timeout` seconds for the first."""
        try:
            arrived = [self.engine.outcomes.get(timeout=timeout) if timeout else None]
        except queue.Empty:
            return
        while True:
            for item in arrived:
                if item is not None:
                    self._take(*item)
            try:
                arrived = [self.engine.outcomes.get_nowait()]
            except queue.Empty:
                return

    def _take(self, key: str, outcome: Outcome) -> None:
        if not key:  # an error of the engine itself
            raise WorkerError(outcome.error)
        if self.journal and not self.engine.journals and not outcome.error:
            self.journal.write(key, outcome)
        self.workers[outcome.worker] += round(outcome.wall * 1e6)
        ticket = self._tickets.get(key)
        if ticket is not None:
            self._arrived(ticket, outcome, recalled=False)

    def _arrived(self, ticket: Ticket[Any], outcome: Outcome, recalled: bool) -> None:
        ticket.outcome = outcome
        if ticket.chunk.key not in self._counted:
            self._counted.add(ticket.chunk.key)
            self.tallies[ticket.family, ticket.chunk.kind].add(outcome, recalled)
        self.finished(ticket.family, ticket.chunk)


def wait_for(ticket: Ticket[Result]) -> Steps[Result]:
    """Wait until a ticket is ready."""
    while not ticket.ready:
        yield False
    return ticket.result


def complete(desk: Desk, tasks: dict[str, Steps[Made]], done: Callable[[str, Made], None]) -> None:
    """Run all tasks by turns, step by step, until each is done; `done` may add tasks."""
    while tasks:
        moved = False
        for name, task in list(tasks.items()):
            try:
                moved |= next(task)
            except StopIteration as end:
                del tasks[name]
                done(name, end.value)
                moved = True
        desk.collect(0 if moved else 0.5)
