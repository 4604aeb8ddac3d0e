"""Work in other processes: a pool for short jobs, and workers that are killed at a limit of time.

All processes are started afresh: a forked solver would share state with its parent. A script that
answers bytes by bytes needs no guarded main module, and starts faster than what shares code.
"""

from __future__ import annotations

import atexit
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

from xflow.core.atomic import signals_deferred
from xflow.core.deadline import NEVER, Deadline

START_S = 60.0
"""Seconds that a process may take to come up."""
LOOKS_S = 1.0
"""Seconds between two looks of a pool's process at whether its parent is there."""
LENGTH = struct.Struct("<Q")
"""What stands before each message to and from a script."""


@contextmanager
def process_pool(jobs: int, **options: Any) -> Iterator[Executor]:
    """An executor of `jobs` processes, which are killed on exit; `options` are those of loky's.

    It needs no guarded main module. When a process dies, all jobs that wait fail. The processes end
    with this one, however that ends.
    """
    import loky  # noqa: PLC0415 - it loads slowly, and other workers do without
    from loky.backend import resource_tracker as loky_tracker  # noqa: PLC0415

    class Pool(loky.ProcessPoolExecutor):  # type: ignore[misc]
        """One whose processes are known to it, whenever it is interrupted."""

        def submit(self, *args: Any, **kwargs: Any) -> Any:
            # It may have to start a process, which takes a second. That one inherits what is
            # blocked: what comes from a terminal is not its business.
            with signals_deferred(), _interruptions_blocked():
                return super().submit(*args, **kwargs)

    # A process that was idle for long, or that holds much memory, is replaced, which loses nothing.
    replaced = "A worker (stopped|was restarted) while some jobs"
    warnings.filterwarnings("ignore", replaced, UserWarning)
    with signals_deferred(), _interruptions_blocked():
        # When these start, they let interruptions through that are blocked.
        resource_tracker.ensure_running()
        loky_tracker.ensure_running()
        begin = (options.pop("initializer", None), options.pop("initargs", ()))
        pool = Pool(jobs, initializer=_begin, initargs=(os.getpid(), *begin), **options)
    try:
        yield pool
    finally:  # after an interruption nothing waits for jobs that have not begun
        with signals_deferred():
            workers = list(pool._processes or ())
            pool.shutdown(wait=False, kill_workers=True)
            for worker in workers:  # the pool's thread, which does that, may end before
                with suppress(OSError):
                    os.kill(worker, getattr(signal, "SIGKILL", signal.SIGTERM))


def _begin(parent: int, initializer: Callable[..., object] | None, arguments: Any) -> None:
    """Prepare a process of a pool, which ends soon after its parent does."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if initializer is not None:
        initializer(*arguments)


def _end_with(parent: int) -> None:
    """End this process once its parent is another one; on Windows it never is."""
    while os.getppid() == parent:
        time.sleep(LOOKS_S)
    os._exit(1)


@contextmanager
def _interruptions_blocked() -> Iterator[None]:
    """Within this block SIGINT and SIGHUP reach neither this thread nor a process it starts."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """A process that runs `target(connection, *args)`, and this end of the connection."""

    def __init__(self, target: Callable[..., object], *args: object) -> None:
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=target, args=(other, *args), daemon=True)
        self.process.start()
        other.close()

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.join()
        self.connection.close()


class Script:
    """A script in a process of its own that answers each request, bytes by bytes.

    Messages have their length in front; the first one of the script, which is empty, says that it
    is up. The process is started at the first request, and again after a failure; it ends with this
    one. Threads take turns.
    """

    def __init__(self, path: Path, *arguments: str) -> None:
        # -P keeps the script's folder, whose modules have everyday names, out of the import path.
        self._command = [sys.executable, "-P", str(path), *arguments]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_up = False
        self._owner = 0
        """The process that started it: one that was forked off needs another."""

    def start(self) -> None:
        """Start the process if it does not run; it comes up while the caller goes on."""
        with self._lock, suppress(OSError):  # which the first request tells
            self._running()

    def ask(self, request: bytes, limit: float) -> bytes:
        """The answer to a request.

        Raises TimeoutError after `limit` seconds, besides those that the process takes to come up,
        and ChildProcessError if it dies; whatever is raised, it is ended.
        """
        with self._lock:
            try:
                process = self._running()
            except OSError as error:
                raise ChildProcessError("a process cannot be started") from error
            box: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            exchange = (process, request, box, self._is_up)
            # In a thread, because a process that hangs neither reads nor writes.
            threading.Thread(target=_exchange, args=exchange, daemon=True).start()
            try:
                answer = box.get(timeout=START_S)
                if answer is not None:
                    self._is_up = True
                    answer = box.get(timeout=limit)
            except queue.Empty:
                self._end()
                raise TimeoutError(f"it took more than {limit:g} s") from None
            except BaseException:
                self._end()  # its answer to this request must not be taken for one to the next
                raise
            if answer is None:
                self._end()
                raise ChildProcessError("a process died")
            return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            self._process, self._owner = None, os.getpid()
            atexit.register(self._end)
        if self._process is None or self._process.poll() is not None:
            self._end()
            pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=nowhere)
            self._is_up = False
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError, ValueError):
                        stream.close()


def _exchange(
    process: subprocess.Popen[bytes],
    request: bytes,
    box: queue.SimpleQueue[bytes | None],
    is_up: bool,
) -> None:
    """Put in the box that the process is up, and its answer; None where it dies."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        box.put(b"" if is_up else _message(process.stdout))
        process.stdin.write(LENGTH.pack(len(request)) + request)
        process.stdin.flush()
        box.put(_message(process.stdout))
    except (EOFError, OSError, ValueError):
        box.put(None)


def _message(pipe: IO[bytes]) -> bytes:
    """One message of a script. Raises EOFError once it has ended."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    body = pipe.read(length)
    if len(body) < length:
        raise EOFError
    return body


def answers(
    function: Callable[..., object], tasks: Sequence[tuple[Any, ...]], jobs: int, limit: float
) -> Iterator[tuple[int, object]]:
    """The number of each task and what `function` returns for it, in the order of completion.

    An exception is an answer like others; so is a TimeoutError after `limit` seconds and a
    ChildProcessError for a process that dies. Either way a new process takes its place: the state
    of one that was interrupted is unknown.
    """
    waiting = deque(range(len(tasks)))
    seats = [_Seat(function, limit) for _ in range(max(1, min(jobs, len(tasks))))]
    try:
        while True:
            for seat in seats:
                if seat.task is None and waiting:
                    number = waiting.popleft()
                    seat.take(number, tasks[number])
            busy = [seat for seat in seats if seat.task is not None]
            if not busy:
                return
            soonest = min(seat.deadline for seat in busy)
            wait([seat.worker.connection for seat in busy], timeout=soonest.left)
            for seat in busy:
                task = seat.task
                answer = seat.answer()
                if task is not None and seat.task is None:
                    yield task, answer
    finally:
        for seat in seats:
            seat.worker.kill()


class _Seat:
    """One worker at a time, and the task that it has."""

    def __init__(self, function: Callable[..., object], limit: float) -> None:
        self._function, self._limit = function, limit
        self.task: int | None = None
        """The number of the task at hand."""
        self.deadline = NEVER
        self._start()

    def _start(self) -> None:
        self.worker = Worker(_work, self._function)
        self._is_up = False

    def take(self, number: int, task: tuple[Any, ...]) -> None:
        self.task = number
        self.deadline = Deadline.after(self._limit if self._is_up else START_S)
        with suppress(OSError):  # a process that has died gives no answer, which `answer` notices
            self.worker.connection.send(task)

    def answer(self) -> object:
        """What the process returned, if it has; the task is None then."""
        late = self.deadline.passed
        try:
            if self.worker.connection.poll():
                answer: object = self.worker.connection.recv()
                if self._is_up:
                    self.task = None
                    return answer
                self._is_up = True  # the limit counts from here
                self.deadline = Deadline.after(self._limit)
                return None
            if not late:
                return None
            answer = TimeoutError(f"it took more than {self._limit:g} s")
        except (EOFError, OSError):
            answer = ChildProcessError("a process died")
        self.task = None
        self.worker.kill()
        self._start()
        return answer


def _work(connection: Connection, function: Callable[..., object]) -> None:
    connection.send("up")
    while True:
        task = connection.recv()
        try:
            answer: object = function(*task)
        except Exception as error:
            # Not the error itself: not every one can be sent.
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        connection.send(answer)
