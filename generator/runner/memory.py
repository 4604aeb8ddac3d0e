"""Memory in bytes: what the machine grants, what processes hold, and how many workers fit."""

from __future__ import annotations

import psutil

from xflow.core.errors import UsageError
from xflow.cost import control_groups

DRIVER = 300_000_000
"""Bytes that the process which conducts the job may need."""

WORKER = 400_000_000
"""Bytes that a worker needs at least: the program, its libraries and the proof of a convolution."""

SHARE = 0.75
"""The part of the granted memory that is used unless a limit is given."""


def granted() -> int:
    """Bytes of memory of the machine, or those that the control groups of this process grant."""
    return int(min(psutil.virtual_memory().total, control_groups.memory_limit()))


def default_limit() -> int:
    """Bytes that the job may use unless a limit is given."""
    return int(granted() * SHARE)


def workers_within(limit: int, wanted: int) -> int:
    """How many workers, at most `wanted`, fit into `limit` bytes. Raises UsageError if none."""
    fitting = (limit - DRIVER) // WORKER
    if fitting < 1:
        least = spell(DRIVER + WORKER)
        raise UsageError(
            f"{spell(limit)} of memory is too little, one worker needs {least}",
            do=f"give --max-memory {least} or more",
        )
    return min(wanted, fitting)


def resident(process: int | None = None) -> int:
    """Bytes resident in the process of that number, by default this one; 0 if it has ended."""
    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:
        return 0


def spell(size: int) -> str:
    """A number of bytes for people, as `--max-memory` takes it."""
    return f"{size / 10**9:.1f}GB" if size >= 10**9 else f"{size / 10**6:.0f}MB"
