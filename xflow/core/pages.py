"""Pages of mapped files: given back to the system when what they hold has been used.

A weight in a file beside the model is mapped, not read. Its pages count as resident memory from the
first use until the system needs the room; whoever measures a process sees them as its own.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

from xflow.core.registry import Array


def release(array: Array) -> None:
    """Give back the pages of the file that an array lies in; they are read again when needed.

    Does nothing for an array in memory, for a file that may be written through its mapping, and
    where the system has no such call.
    """
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    with contextlib.suppress(OSError, ValueError), memoryview(base) as view:
        if view.readonly:
            base.madvise(mmap.MADV_DONTNEED)
