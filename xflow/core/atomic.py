"""Files that appear whole or not at all, whatever signal or exception comes."""

import contextlib
import math
import os
import secrets
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_NAMES = ("SIGTERM", "SIGHUP")
ENDINGS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
"""Signals that ask a process to end; the second one comes where its terminal is closed."""
DUPLICATE_S = 2.0
"""A signal that follows another by less than this many seconds is the same request to end."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` at the end, unless an exception comes.

    It lies in the same folder, since a rename is atomic only within one file system.
    """
    # The name is chosen before the file exists, so that no signal can slip in between.
    temporary = path.with_name(f".xflow-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(folder: Path) -> None:
    """Make the names in `folder` survive a power cut, where the system can."""
    with contextlib.suppress(OSError, AttributeError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Terminated(BaseException):
    """A signal asked for the end; raised so that everything is cleaned up on the way out."""


@contextlib.contextmanager
def unwinding_on_termination() -> Iterator[None]:
    """Within this block SIGTERM and SIGHUP unwind the stack first and end the process then.

    A signal that is ignored, as under nohup, or handled already stays so; outside the main thread
    both do.
    """
    in_main = threading.current_thread() is threading.main_thread()
    kinds = [kind for kind in ENDINGS if in_main and signal.getsignal(kind) is signal.SIG_DFL]
    last = -math.inf
    came: int | None = None
    armed = True

    def unwind(number: int, _frame: object) -> None:
        # Some senders signal twice; the second must not stop the unwinding.  A later one may
        # be needed, since code on the way may have caught the exception, whatever it is.
        nonlocal last, came
        before, last, came = last, time.monotonic(), number
        if armed and last - before > DUPLICATE_S:
            raise _Terminated

    # The signal may come between any two steps, those of this function included: from where the
    # exception can be raised on, nothing is outside of the outer block.
    try:
        try:
            for kind in kinds:
                signal.signal(kind, unwind)
            yield
        finally:
            armed = False
    finally:
        for kind in kinds:
            signal.signal(kind, signal.SIG_DFL)
        if came is not None:
            os.kill(os.getpid(), came)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Within this block SIGINT, SIGTERM and SIGHUP wait until it ends, in the main thread.

    For what leaves something behind where it is broken off, such as a process that nobody knows of.
    """
    kinds = (signal.SIGINT, *ENDINGS)
    before = {kind: signal.getsignal(kind) for kind in kinds}
    came: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    # None: it was not Python that set it, and Python cannot set it again.
    handled = [k for k, how in before.items() if in_main and how not in (None, signal.SIG_IGN)]
    try:
        for kind in handled:
            signal.signal(kind, lambda number, _: came.append(number))
        yield
    finally:
        for kind in handled:
            signal.signal(kind, before[kind])
        for number in came:
            signal.raise_signal(number)
