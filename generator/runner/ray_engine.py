"""The engine of a Ray cluster: the same chunks, as Ray tasks.

Ray runs a task again if its worker or machine is lost. Every machine must have the same program
installed, which is checked: another version could find other rules. The journal is written where
the job is conducted, as outcomes arrive.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from xflow.core.errors import MissingEngine, UsageError, WorkerError
from xflow.generator.runner.engine import MAX_LOSSES, Item, QueueingEngine, Usage
from xflow.generator.runner.memory import WORKER
from xflow.generator.runner.outcome import Outcome, execute, pack, unpack
from xflow.generator.runner.source import source_digest

POLL_S = 0.1
"""Seconds between two polls for finished tasks."""

CONNECT_S = 10.0
"""Seconds within which a cluster has to answer."""

AHEAD = 2
"""Tasks given to Ray for each worker: one runs, and the next is there when it ends."""


def run_task(data: bytes, source: str) -> bytes:
    """Run one packed chunk; the body of a Ray task."""
    if source_digest() != source:
        return pack(Outcome(None, "a machine of the cluster has another version of xflow"))
    return pack(execute(unpack(data)))


class RayEngine(QueueingEngine):
    """Runs chunks on the cluster at `address`; None starts one on this machine alone.

    At most as many at a time as processors, and as `limit` bytes hold if it is given. Raises
    MissingEngine without the package, and WorkerError where no cluster answers.
    """

    name = "ray"
    journals = False

    def __init__(self, address: str | None, workers: int | None, limit: int | None) -> None:
        try:
            import ray  # noqa: PLC0415 - an optional extra
        except ImportError:
            raise MissingEngine(
                "Ray is not installed", do="install it with pip install '.[ray]' in a checkout"
            ) from None
        self._ray: Any = ray
        self._connect(address, workers)
        cores = int(ray.cluster_resources().get("CPU", 1))
        super().__init__(Usage(min(cores, workers or cores, _fitting(limit, cores)), limit or 0))
        # Ray retries tasks that are lost with a worker; an exception of the program is an outcome.
        task = ray.remote(run_task)
        self._task: Any = task.options(num_cpus=1, max_retries=MAX_LOSSES - 1)
        self._source = source_digest()
        self._flying: dict[Any, Item] = {}
        self._closing = threading.Event()
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def _connect(self, address: str | None, workers: int | None) -> None:
        ray = self._ray
        self._started = not ray.is_initialized()
        if not self._started:
            return
        options: dict[str, Any] = {"address": address}
        if address is None:
            options = {"address": "local", "num_cpus": workers, "include_dashboard": False}
        try:
            _knock(address)
            ray.init(**options, log_to_driver=False, logging_level="error")
        except (ConnectionError, ValueError, RuntimeError, TimeoutError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise WorkerError(
                f"no Ray cluster answers there ({reason})", f"--address {address or 'local'}"
            ) from None

    def _wake(self) -> None:
        self._work.set()

    def close(self) -> None:
        self._closing.set()
        self._wake()
        self._thread.join()
        for reference in self._flying:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self._ray.cancel(reference, force=True)
        if self._started:
            self._ray.shutdown()

    def _guarded(self) -> None:
        try:
            while not self._closing.is_set():
                self._hand_out()
                self._receive()
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self.outcomes.put(("", Outcome(None, f"the Ray engine failed ({reason})")))

    def _hand_out(self) -> None:
        while len(self._flying) < AHEAD * self.usage.workers:
            with self._lock:
                item = self._queue.take()
            if item is None:
                return
            data = pack(item.chunk)
            self.usage.moved += len(data)
            self._flying[self._task.remote(data, self._source)] = item

    def _receive(self) -> None:
        if not self._flying:
            self._work.wait(POLL_S)
            self._work.clear()
            return
        several = len(self._flying)
        ready, _ = self._ray.wait(list(self._flying), num_returns=several, timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(self._flying), num_returns=1, timeout=POLL_S)
        for reference in ready:
            item = self._flying.pop(reference)
            outcome = self._fetch(reference, item)
            self.usage.peak_memory = max(self.usage.peak_memory, outcome.memory)
            self._deliver(item, outcome)

    def _fetch(self, reference: Any, item: Item) -> Outcome:
        try:
            data: bytes = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # before the chunk, or after it
            reason = " ".join(str(error.cause).split())[:200]
            return Outcome(None, f"family {item.family}: a Ray task failed ({reason})")
        except self._ray.exceptions.RayError as error:
            self.usage.lost += 1
            return item.given_up(type(error).__name__)
        self.usage.moved += len(data)
        outcome: Outcome = unpack(data)
        return outcome


def _knock(address: str | None) -> None:
    """Connect to ``host:port`` as a test, since Ray waits for minutes. Raises OSError."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), CONNECT_S).close()


def _fitting(limit: int | None, cores: int) -> int:
    if limit is None:
        return cores
    if limit < WORKER:
        raise UsageError("the memory given is less than one worker needs", do="give more")
    return limit // WORKER
