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
    """SIGTERM arrived; raised so that everything is cleaned up on the way out."""


@contextlib.contextmanager
def unwinding_on_sigterm() -> Iterator[None]:
    """Within this block SIGTERM unwinds the stack first and ends the process then.

    Does nothing where somebody handles the signal already, or outside the main thread.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    last = -math.inf
    armed = True

    def unwind(_signal: int, _frame: object) -> None:
        # Some senders signal twice; the second must not stop the unwinding.  A later one may
        # be needed, since code on the way may have caught the exception, whatever it is.
        nonlocal last
        before, last = last, time.monotonic()
        if armed and last - before > DUPLICATE_S:
            raise _Terminated

    # The signal may come between any two steps, those of this function included: from where the
    # exception can be raised on, nothing is outside of the outer block.
    try:
        try:
            signal.signal(signal.SIGTERM, unwind)
            yield
        finally:
            armed = False
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if last > -math.inf:
            os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Within this block SIGINT and SIGTERM wait until it ends, in the main thread.

    For what leaves something behind where it is broken off, such as a process that nobody knows of.
    """
    kinds = (signal.SIGINT, signal.SIGTERM)
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
