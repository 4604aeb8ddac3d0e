"""A separate, persistent process that runs ONNX models in ONNX Runtime.

A crash, a hang or a lack of memory in the runtime ends that process: it costs the one measurement
and never the caller.  The process is started at the first request, reused for all further ones and
started again after a failure.  It ends when its owner closes it or dies.  What runs inside is
`xflow.cost.child`.
"""

import contextlib
import functools
import math
import mmap
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import onnx

from xflow.core.deadline import Deadline
from xflow.core.errors import WorkerError
from xflow.cost import child
from xflow.cost.machine import Watch

ModelSource = bytes | Path
"""A model: serialised with all its weights, or a file (its external data beside it)."""

START_LIMIT_S = 60.0
POLL_S = 0.1


@dataclass(frozen=True)
class Failed:
    """A model that could not be loaded, run or timed, and why, in one line."""

    reason: str


@dataclass(frozen=True)
class Lost(Failed):
    """The process was lost while it worked on model number `model` (from 1; 0: on none)."""

    model: int


OUT_OF_TIME = "ran out of time"
UNFINISHED = "did not finish within"


def is_late(failed: Failed) -> bool:
    """Whether there was no time for a model, which may run for all that is known."""
    return failed.reason.startswith((OUT_OF_TIME, UNFINISHED))


def model_to_wire(source: ModelSource) -> bytes | str:
    """Return a model as the process wants it: its bytes, or its absolute path."""
    return source if isinstance(source, bytes) else str(source.resolve())


def to_wire(array: Any) -> Any:
    """Return an array, or a list of them, that the process can read without numpy's extensions."""
    if isinstance(array, list):
        return [to_wire(each) for each in array]
    kind = int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    return (kind, array.view(child.BITS[kind])) if kind in child.BITS else array


def from_wire(value: Any) -> Any:
    """Undo `to_wire`, also inside the lists that are the values of ONNX sequences."""
    if isinstance(value, tuple):
        kind, bits = value
        return bits.view(onnx.helper.tensor_dtype_to_np_dtype(kind))
    return [from_wire(item) for item in value] if isinstance(value, list) else value


class Worker:
    """The owner of one measuring process; safe to use from several threads, one at a time.

    `memory_limit` bounds the private memory of the process in bytes (Linux only).
    """

    def __init__(self, memory_limit: int | None = None) -> None:
        self.working: set[str] = set()
        """Providers that were seen to work; see `xflow.cost.measure.check_provider`."""
        self.accidents: list[str] = []
        """How the process ended, if no answer says so: it was idle, or a request was repeated."""
        self._memory_limit = memory_limit
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._bookmark: mmap.mmap | None = None
        self._bookmark_path = ""
        self._hello: dict[str, Any] = {}

    @functools.cached_property
    def watch(self) -> Watch:
        """What tells how many threads of the process there is room for."""
        return Watch()

    @property
    def pid(self) -> int | None:
        """The process id of the process, while there is one."""
        return self._process.pid if self._process else None

    @property
    def runtime_version(self) -> str:
        """The version of ONNX Runtime in the process, which is started if need be."""
        return str(self._greeting()["version"])

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers that ONNX Runtime was built with."""
        return tuple(self._greeting()["providers"])

    def ask(
        self, request: Mapping[str, Any], deadline: Deadline, step_limit_s: float = math.inf
    ) -> Any | Failed:
        """Return the answer to a request, or why there is none.

        The process is ended at the deadline, or when one step of it (loading a model, one sample)
        takes more than `step_limit_s`; the result is then `Lost`.  Unless the request says in how
        many seconds the process itself has to stop (`limit_s`), it is told the deadline.  Raises
        `WorkerError` if the process cannot be started.
        """
        with self._lock:
            self._start()
            return self._exchange({"limit_s": deadline.left, **request}, deadline, step_limit_s)

    def close(self) -> None:
        """End the process, if there is one; a later request starts it again."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _greeting(self) -> dict[str, Any]:
        with self._lock:
            self._start()
            return self._hello

    def _start(self) -> None:
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return
            self.accidents.append(_obituary(status))
        self._end()
        handle, self._bookmark_path = tempfile.mkstemp(prefix="xflow-")
        try:
            os.write(handle, bytes(child.BOOKMARK.size))
            self._bookmark = mmap.mmap(handle, child.BOOKMARK.size)
        finally:
            os.close(handle)
        # -P keeps this folder, whose modules have everyday names, out of the import path.
        command = [sys.executable, "-P", child.__file__, self._bookmark_path]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self._end()
            raise WorkerError(f"the measuring process cannot be started ({error})") from error
        self._inbox = queue.SimpleQueue()
        assert self._process.stdout is not None
        # The thread holds the pipe and the queue but not `self`: a forgotten Worker is collected.
        threading.Thread(
            target=_listen, args=(self._process.stdout, self._inbox), daemon=True
        ).start()
        setup = {"memory_limit": self._memory_limit}
        hello = self._exchange(setup, Deadline.after(START_LIMIT_S))
        if isinstance(hello, Failed):
            self._end()
            raise WorkerError(f"the measuring process cannot be started ({hello.reason})")
        self._hello = hello
        with contextlib.suppress(OSError):  # Windows keeps a mapped file; `_end` removes it
            os.unlink(self._bookmark_path)

    def _exchange(
        self, request: Mapping[str, Any], deadline: Deadline, step_limit_s: float = math.inf
    ) -> Any | Failed:
        process, bookmark = self._process, self._bookmark
        assert process is not None
        assert process.stdin is not None
        assert bookmark is not None
        child.BOOKMARK.pack_into(bookmark, 0, 0, 0)
        # In a thread, because a process that hangs does not read either.
        threading.Thread(target=_post, args=(process.stdin, request), daemon=True).start()
        last, since = -1, time.monotonic()
        try:
            while True:
                try:
                    answer = self._inbox.get(timeout=POLL_S)
                except queue.Empty:
                    now = time.monotonic()
                    count, model = child.BOOKMARK.unpack_from(bookmark, 0)
                    if count != last:
                        last, since = count, now
                    late = deadline.passed
                    if not late and now - since < step_limit_s:
                        continue
                    self._end()
                    taken = f"{UNFINISHED} {now - since:.1f} s"
                    return Lost(OUT_OF_TIME if late else taken, model)
                if answer is None:
                    _, model = child.BOOKMARK.unpack_from(bookmark, 0)
                    why = _obituary(process.wait())
                    self._end()
                    return Lost(why, model)
                return Failed(answer["failed"]) if "failed" in answer else answer["result"]
        except BaseException:
            self._end()  # its answer to this request must not be taken for one to the next
            raise

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError, ValueError):
                        pipe.close()
        if self._bookmark is not None:
            self._bookmark.close()
            self._bookmark = None
            with contextlib.suppress(OSError):
                os.unlink(self._bookmark_path)


def _listen(pipe: IO[bytes], inbox: "queue.SimpleQueue[Any]") -> None:
    """Pass every answer on, and None at the end."""
    try:
        while True:
            inbox.put(child.receive(pipe))  # type: ignore[arg-type]
    except (EOFError, OSError, ValueError):
        inbox.put(None)


def _post(pipe: IO[bytes], request: Mapping[str, Any]) -> None:
    """Send a request; a process that has ended is noticed when its answer is awaited."""
    with contextlib.suppress(OSError, ValueError):
        child.send(pipe, dict(request))  # type: ignore[arg-type]


def _obituary(status: int) -> str:
    """Say how a process ended."""
    if status >= 0:
        return f"the measuring process ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = ", perhaps for lack of memory" if name == "SIGKILL" else ""
    return f"the measuring process crashed ({name}{hint})"
