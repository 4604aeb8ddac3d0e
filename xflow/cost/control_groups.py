"""Control groups of Linux: the processor time and the memory that they grant this process.

A process is in one group of the hierarchy of version 2, or in one for each controller of version 1.
The limits of a group hold for all groups below it, so that the least one counts. Where there is no
group, there is no limit. `root` is the root of the file system, for tests.
"""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
MEMORY = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Names of the files of a group's limit and of what it uses, and of the part of `memory.stat` that
the kernel takes away before anything else: copies of files. One line for each version, 2 and 1."""


def processors(root: Path = ROOT) -> float:
    """Return the processors' worth of time that this process may take, or infinity."""
    found = [math.inf]
    for group in _groups("cpu", root):
        with contextlib.suppress(OSError, ValueError):  # there is none, or "max"
            limit, period = (group / "cpu.max").read_text().split()
            found.append(int(limit) / int(period))
        with contextlib.suppress(OSError, ValueError):
            limit = (group / "cpu.cfs_quota_us").read_text()
            if int(limit) > 0:
                found.append(int(limit) / int((group / "cpu.cfs_period_us").read_text()))
    return min(found)


def memory_limit(root: Path = ROOT) -> float:
    """Return the bytes of memory that this process and others in its groups may take together."""
    return min((limit for limit, _ in _memory(root)), default=math.inf)


def free_memory(root: Path = ROOT) -> float:
    """Return the bytes of memory that this process may take besides what is in use."""
    return min((max(0, limit - used) for limit, used in _memory(root)), default=math.inf)


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Yield the limit of each group, and the bytes that are in use of it."""
    for group in _groups("memory", root):
        for limit, used, copies in MEMORY:
            with contextlib.suppress(OSError, ValueError):
                bytes_used = int((group / used).read_text()) - _statistic(group, copies)
                yield int((group / limit).read_text()), bytes_used


def _statistic(group: Path, name: str) -> int:
    """Return a number of `memory.stat`, 0 if it is not there."""
    with contextlib.suppress(OSError):
        for line in (group / "memory.stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups and of all above them.

    Not all of them need exist: a container may see its own group at the top, and be told the path
    that it has outside.
    """
    folder = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        top = folder if number == "0" else folder / controller
        if number == "0" or controller in controllers.split(","):
            group = top / path.lstrip("/")
            yield from (each for each in (group, *group.parents) if each.is_relative_to(top))
