"""Engines, which run chunks: their interface, their queue, and the engine within this process."""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from xflow.generator.runner.chunks import Chunk
from xflow.generator.runner.outcome import Outcome, execute

MAX_LOSSES = 3
"""A chunk during which so many workers ended is not tried again."""


class Urgency(IntEnum):
    """The priority of a chunk, smaller first: `NOW` is awaited, `LAST` needed at the end."""

    NOW = 0
    SOON = 1
    EXPLORE = 2
    DEFINE = 3
    LAST = 4


@dataclass(order=True)
class Item:
    """A chunk on its way: smaller urgencies go first, and among these older ones."""

    urgency: int
    number: int
    chunk: Chunk[Any] = field(compare=False)
    key: str = field(compare=False)
    family: str = field(compare=False)
    losses: int = field(default=0, compare=False)

    def lost(self, why: str) -> Outcome | None:
        """Count a worker that ended; the outcome where the chunk is given up."""
        self.losses += 1
        return self.given_up(why) if self.losses >= MAX_LOSSES else None

    def given_up(self, why: str) -> Outcome:
        """The outcome without a result, which names the family and the chunk."""
        times = f"{MAX_LOSSES} workers that did it ended ({why})"
        return Outcome(None, f"family {self.family}, {self.chunk.about}: {times}")


class Queue:
    """Items that wait, the most urgent first."""

    def __init__(self) -> None:
        self._heap: list[Item] = []
        self._numbers = itertools.count()
        self.pressing = 0
        """How many of them are needed before the end."""

    def add(self, chunk: Chunk[Any], key: str, family: str, urgency: int) -> Item:
        """A new item."""
        item = Item(urgency, next(self._numbers), chunk, key, family)
        self.put_back(item)
        return item

    def put_back(self, item: Item) -> None:
        """An item whose worker was lost: before all others of its urgency."""
        heapq.heappush(self._heap, item)
        self.pressing += item.urgency < Urgency.LAST

    def hurry(self, item: Item, urgency: int) -> None:
        """Make an item more urgent, if it still waits."""
        if urgency < item.urgency and item in self._heap:
            self.pressing += item.urgency == Urgency.LAST
            item.urgency = urgency
            heapq.heapify(self._heap)

    def take(self) -> Item | None:
        """The most urgent item."""
        if not self._heap:
            return None
        item = heapq.heappop(self._heap)
        self.pressing -= item.urgency < Urgency.LAST
        return item


@dataclass
class Usage:
    """The resources that an engine has and has used."""

    workers: int
    limit: int = 0
    """Bytes that they may hold together; 0 where there is no limit."""
    peak_memory: int = 0
    """Bytes resident in all processes of this machine together, at the worst moment sampled."""
    lost: int = 0
    """Workers that ended before their chunk did."""
    moved: int = 0
    """Bytes of chunks and results that went to workers and came back."""


class Engine(Protocol):
    """Runs chunks, in any order, and puts their outcomes into `outcomes`."""

    name: str
    usage: Usage
    outcomes: queue.Queue[tuple[str, Outcome]]
    """Pairs of a chunk's key and its outcome."""
    journals: bool
    """Whether it writes outcomes into the journal itself, before they arrive here."""

    @property
    def hungry(self) -> bool:
        """Whether workers may soon have nothing to do but what is needed at the end.

        That fills the time in which families are compared, one after the other.
        """

    def submit(self, chunk: Chunk[Any], key: str, family: str, urgency: int) -> None:
        """Have a chunk run; one that is urgent goes first."""

    def hurry(self, key: str, urgency: int) -> None:
        """Make a chunk more urgent that has not begun."""

    def close(self) -> None:
        """End all workers at once, even those that run a chunk."""


class QueueingEngine:
    """Base class of engines that queue chunks until a worker is free."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.outcomes: queue.Queue[tuple[str, Outcome]] = queue.Queue()
        self._lock = threading.Lock()
        """Held while the queue or the items are accessed: a thread feeds the workers."""
        self._queue = Queue()
        self._items: dict[str, Item] = {}

    @property
    def hungry(self) -> bool:
        return self._queue.pressing < self.usage.workers

    def submit(self, chunk: Chunk[Any], key: str, family: str, urgency: int) -> None:
        with self._lock:
            self._items[key] = self._queue.add(chunk, key, family, urgency)
        self._wake()

    def hurry(self, key: str, urgency: int) -> None:
        with self._lock:
            if key in self._items:
                self._queue.hurry(self._items[key], urgency)

    def _wake(self) -> None:
        """Wake the thread that feeds the workers."""
        raise NotImplementedError

    def _deliver(self, item: Item, outcome: Outcome) -> None:
        with self._lock:
            self._items.pop(item.key, None)
        self.outcomes.put((item.key, outcome))


class InlineEngine:
    """Runs each chunk within `submit`, in this process: for small jobs, and for tests."""

    name = "inline"
    hungry = False
    journals = False

    def __init__(self) -> None:
        self.usage = Usage(1)
        self.outcomes: queue.Queue[tuple[str, Outcome]] = queue.Queue()

    def submit(self, chunk: Chunk[Any], key: str, family: str, urgency: int) -> None:
        self.outcomes.put((key, execute(chunk)))

    def hurry(self, key: str, urgency: int) -> None:
        pass

    def close(self) -> None:
        pass
