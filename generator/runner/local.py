"""The engine of local processes: one chunk at a time each, bounded together in memory.

A thread of the conducting process feeds them, so that none waits while rules are compared. A
worker that ends is replaced, and its chunk run again. Where all together hold more than they may,
the largest worker is ended and its chunk run later with no other beside it: memory decides when a
chunk runs, and never what comes of it, as a limit inside the solver would.
"""

from __future__ import annotations

import threading
from collections import deque
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from xflow.core.processes import Worker
from xflow.generator.runner.engine import Item, QueueingEngine, Usage
from xflow.generator.runner.memory import resident, spell
from xflow.generator.runner.outcome import Outcome, pack, unpack
from xflow.generator.runner.source import source_digest
from xflow.generator.runner.worker import serve

SAMPLE_S = 0.1
"""Seconds between two samples of the workers' memory."""


class _Worker(Worker):
    """A worker with the chunk that it runs and the bytes that it holds."""

    item: Item | None = None
    memory = 0


class LocalEngine(QueueingEngine):
    """Runs chunks in up to `workers` processes that hold at most `limit` bytes with this one."""

    name = "local"
    journals = True

    def __init__(self, workers: int, limit: int, journal: Path | None) -> None:
        super().__init__(Usage(workers, limit))
        self._limit = limit
        self._journal = journal
        self._source = source_digest()
        self._alone: deque[Item] = deque()
        """Chunks that were too large to run beside others."""
        self._workers: list[_Worker] = []
        self._wake_here, self._wake_there = Pipe(duplex=False)
        self._closing = False
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._wake()
        self._thread.join()
        for worker in list(self._workers):
            self._end(worker)

    def _wake(self) -> None:
        self._wake_there.send_bytes(b"")

    def _guarded(self) -> None:
        """The thread's body. An error in it ends the job, which would wait forever otherwise."""
        try:
            while not self._closing:
                self._hand_out()
                self._receive()
                self._watch()
        except Exception as error:
            reason = f"the local engine failed ({type(error).__name__}: {error})"
            self.outcomes.put(("", Outcome(None, reason)))

    def _hand_out(self) -> None:
        if self._alone:
            if any(worker.item for worker in self._workers):
                return
            for worker in list(self._workers):  # they hold memory, too
                self._end(worker)
            self._give(self._start(), self._alone[0])
            return
        idle = [worker for worker in self._workers if worker.item is None]
        while True:
            if not idle and len(self._workers) >= self.usage.workers:
                return
            with self._lock:
                item = self._queue.take()
            if item is None:
                return
            self._give(idle.pop() if idle else self._start(), item)

    def _start(self) -> _Worker:
        worker = _Worker(serve, self._journal, self._source)
        self._workers.append(worker)
        return worker

    def _give(self, worker: _Worker, item: Item) -> None:
        data = pack((item.key, item.chunk))
        worker.item = item
        self.usage.moved += len(data)
        try:
            worker.connection.send_bytes(data)
        except OSError:
            self._lost(worker)

    def _receive(self) -> None:
        """Wait for a moment, and take what workers have finished."""
        by_connection = {worker.connection: worker for worker in self._workers}
        for ready in wait([self._wake_here, *by_connection], SAMPLE_S):
            if ready is self._wake_here:
                while self._wake_here.poll():
                    self._wake_here.recv_bytes()
                continue
            assert isinstance(ready, Connection)
            worker = by_connection[ready]
            try:
                data = ready.recv_bytes()
            except (EOFError, OSError):
                self._lost(worker)
                continue
            self._finished(worker, data)

    def _finished(self, worker: _Worker, data: bytes) -> None:
        item, worker.item = worker.item, None
        assert item is not None
        outcome: Outcome = unpack(data)
        self.usage.moved += len(data)
        if self._alone and item is self._alone[0]:
            self._alone.popleft()
        self._deliver(item, outcome)
        share = (self._limit - resident()) // self.usage.workers
        if outcome.memory > share:  # its memory is of little use to the next chunk
            self._end(worker)

    def _lost(self, worker: _Worker) -> None:
        """A worker has ended or was ended: its chunk is run again."""
        self._end(worker)
        if worker.item is None:
            return
        self.usage.lost += 1
        outcome = worker.item.lost(_how(worker.process.exitcode))
        if outcome is not None:
            self._deliver(worker.item, outcome)
            if self._alone and worker.item is self._alone[0]:
                self._alone.popleft()
        elif worker.item not in self._alone:
            with self._lock:
                self._queue.put_back(worker.item)

    def _watch(self) -> None:
        """Sample the memory, and end the largest worker where it is too much."""
        for worker in self._workers:
            worker.memory = resident(worker.process.pid)
        total = resident() + sum(worker.memory for worker in self._workers)
        self.usage.peak_memory = max(self.usage.peak_memory, total)
        if total <= self._limit or not self._workers:
            return
        idle = [worker for worker in self._workers if worker.item is None]
        worker = max(idle or self._workers, key=lambda worker: worker.memory)
        self._end(worker)
        item = worker.item
        if item is None:
            return
        if item in self._alone:
            self._alone.remove(item)
            words = f"family {item.family}, {item.chunk.about}: it needs more memory than the"
            words = f"{words} {spell(self._limit)} of the job; give a larger --max-memory"
            self._deliver(item, Outcome(None, words))
        else:
            self._alone.append(item)

    def _end(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.kill()


def _how(code: int | None) -> str:
    """How a process ended, for people."""
    return f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
