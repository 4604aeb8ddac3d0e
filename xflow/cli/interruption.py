"""Ctrl-C while a search runs: the search ends, and what it has found is checked, timed and written.

Anywhere else, and the second time, it ends the program as it always does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Self

from xflow.core.progress import Progress

SEARCHING = frozenset({"search", "wave", "measure"})
"""The phases of which something is worth keeping."""
SAID = (
    "\nxflow: stopping the search; what it has found is checked and timed "
    "(Ctrl-C once more ends without a model)\n"
)


class Interruption:
    """Whether somebody asked for the end of the search; follows its progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._phase = ""
        self._requested = False

    def __call__(self) -> bool:
        """Whether the search is to end."""
        return self._requested

    def follow(self, phase: str, details: Mapping[str, object]) -> None:
        """Note the phase of the run, and pass on where it stands."""
        self._phase = phase
        self._progress(phase, details)

    @contextlib.contextmanager
    def handled(self) -> Iterator[Self]:
        """Within this block it counts, unless somebody else handles the signal."""
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield self
            return
        signal.signal(signal.SIGINT, self._note)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._requested or self._phase not in SEARCHING:
            signal.default_int_handler(number, frame)
        self._requested = True
        with contextlib.suppress(OSError, ValueError):  # not through a buffer that may be in use
            os.write(sys.stderr.fileno(), SAID.encode())
