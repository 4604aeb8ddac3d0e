"""Limits that hold whatever a model or a rule says: how much memory or time a step may take.

Shape inference and the evaluation of constants believe the numbers in a model. A damaged or hostile
one says that a tensor has a billion elements, and the machine would run out of memory for it.
"""

from __future__ import annotations

import _thread
import contextlib
import threading
import time
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


@contextlib.contextmanager
def bounded_time(seconds: float) -> Iterator[None]:
    """Within this block, TimeoutError is raised after so many seconds.

    It works as an interrupt from the keyboard does: between two steps of Python, in the main thread
    alone, where code that is no longer consistent may be left behind. Elsewhere nothing is bounded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended, late = threading.Event(), threading.Event()

    def watch() -> None:
        if ended.wait(seconds):
            return
        late.set()
        while not ended.is_set():  # one may be lost in code that nobody waits for
            _thread.interrupt_main()
            ended.wait(AGAIN_S)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            time.sleep(0)  # an interrupt that is still to come comes here
    except KeyboardInterrupt:
        ended.set()
        if not late.is_set():
            raise
        watcher.join()
        raise TimeoutError(f"it took more than {seconds:g} s") from None


def _private_bytes() -> int | None:
    """The bytes that count for the limit; None where the system does not tell."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return None
