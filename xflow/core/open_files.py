"""How many files a process may have open: each tensor in a file is mapped by a descriptor."""

from __future__ import annotations

import contextlib

SPARE = 64
"""Files that are open besides."""
MAPPED = 2
"""How often a tensor may be mapped at a time: in a model, and in what is made of it."""


def allows_open_files(count: int) -> bool:
    """Whether so many tensors can be mapped, now that the soft limit of open files is raised.

    That is 1,024 on most systems. It is raised to what is needed, as far as the hard one allows.
    Processes that are started later have the same.
    """
    try:
        import resource  # noqa: PLC0415 - does not exist on Windows
    except ImportError:
        return True
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (MAPPED * count + SPARE, count + SPARE):
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            break
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft == resource.RLIM_INFINITY or soft >= count + SPARE
