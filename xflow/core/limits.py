"""Limits that hold whatever a model or a rule says: how much memory or time a step may take.

Shape inference and the evaluation of constants believe the numbers in a model. A damaged or hostile
one says that a tensor has a billion elements, and the machine would run out of memory for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator

STEP_BYTES = 2**30
"""What a single step on a model may take beyond what is there, weights aside."""
FED_BYTES = 2**31
"""What the random inputs of a model may take in all, at eight bytes for an element."""
GROWTH = 64 * 2**20
"""Bytes that folded constants may take beyond those of the constants they replace."""

AGAIN_S = 0.5
"""Seconds until what takes too long is interrupted once more."""

_lock = threading.RLock()


@contextlib.contextmanager
def bounded_memory(extra: int = STEP_BYTES) -> Iterator[None]:
    """Within this block the process cannot take more than `extra` bytes in addition.

    What asks for more raises MemoryError. The limit holds for all threads of the process, so the
    block must be short. Does nothing where the system has no such limit.
    """
    try:
        import resource  # noqa: PLC0415 - does not exist on Windows
    except ImportError:
        yield
        return
    used = _private_bytes()
    if used is None:
        yield
        return
    with _lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        bounds = [used + extra, *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)]
        try:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
            yield
        finally:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class _Late(BaseException):
    """Time is over. No `Exception`, which code that is interrupted may be prepared for."""


@contextlib.contextmanager
def bounded_time(seconds: float) -> Iterator[None]:
    """Within this block, TimeoutError is raised after so many seconds.

    That happens between two steps of Python, whatever signals the process ignores, where code that
    is no longer consistent may be left behind.
    """
    thread, ended = threading.get_ident(), threading.Event()

    def watch() -> None:
        late = not ended.wait(seconds)
        while late and not ended.is_set():  # one may be lost in code that nobody waits for
            _raise_in(thread, _Late)
            ended.wait(AGAIN_S)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            _take_steps()
    except _Late:
        ended.set()
        watcher.join()
        with contextlib.suppress(_Late):
            _take_steps()
        raise TimeoutError(f"it took more than {seconds:g} s") from None


def _raise_in(thread: int, exception: type[BaseException]) -> None:
    """Raise an exception in a thread before its next step."""
    raised = ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


def _take_steps() -> None:
    """Let an exception come that is still to be raised in this thread."""
    for _ in range(3):
        pass


def _private_bytes() -> int | None:
    """The bytes that count for the limit; None where the system does not tell."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return None
