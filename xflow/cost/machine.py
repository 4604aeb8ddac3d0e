"""The machine that the program runs on: its processor's name and its cores."""

import contextlib
import importlib
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from xflow.cost import control_groups

TOLERATED = 0.25
"""The part of its threads' time that other processes may take from a measurement."""
LISTENING_S = 0.3
"""Seconds for which other processes are watched before anything is measured."""
WATCHED_S, STALE_S = 1.0, 4.0
"""Seconds after which they are looked at again, and after which nothing is known of them."""

MOST_HERTZ = 7e9


def usable_cores() -> int:
    """Return how many physical cores this process may use, at least 1.

    Two hardware threads of one core count once: convolutions and matrix products fill a core's
    units already.  A container's share of processor time is respected, rounded up.
    """
    allowed = _allowed_processors()
    cores = _distinct_cores(allowed)
    return max(1, math.ceil(min(cores, len(allowed), control_groups.processors())))


def is_x86() -> bool:
    """Return whether the processor is one of those that the target's default numbers are of."""
    return platform.machine().lower() in {"x86_64", "amd64"}


def vector_floats() -> int | None:
    """Return how many numbers of 32 bits an x86 processor's registers hold; None where unknown."""
    try:  # what numpy found out when it was loaded; its public form is a text for people
        found = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    except (ImportError, AttributeError):
        return None
    return (16 if found.get("AVX512F") else 8) if is_x86() else None


def most_flops() -> float:
    """Return more than the operations on numbers of 32 bits that a core can do in a second.

    Two units that multiply and add a register each, at a frequency that no processor has; infinity
    where the processor is unknown.
    """
    floats = vector_floats()
    return math.inf if floats is None else 2 * 2 * floats * MOST_HERTZ


def _allowed_processors() -> list[int]:
    """Return the logical processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _distinct_cores(processors: list[int]) -> int:
    """Return the number of physical cores among logical `processors`."""
    if sys.platform == "darwin":
        return int(_output("sysctl", "-n", "hw.physicalcpu") or len(processors))
    cores = set()
    for number in processors:
        topology = Path(f"/sys/devices/system/cpu/cpu{number}/topology")
        try:
            package = (topology / "physical_package_id").read_text().strip()
            core = (topology / "core_id").read_text().strip()
        except OSError:  # not Linux, or a kernel that hides it
            return len(processors)
        cores.add((package, core))
    return len(cores)


def free_memory() -> int:
    """Return the bytes of memory that a process may take without harm to others."""
    import psutil  # noqa: PLC0415 - takes a while to load

    free = min(psutil.virtual_memory().available, control_groups.free_memory())
    return max(int(free) * 9 // 10, 2**30)


class Crowd:
    """The processor time that other processes took since this object was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._busy, self._own = _busy_s(), _own_s()

    @property
    def age(self) -> float:
        """The seconds since this object was made."""
        return time.monotonic() - self._start

    def taken(self) -> float:
        """How many processors others kept busy, of those that this process may run on."""
        return (_busy_s() - self._busy - (_own_s() - self._own)) / self.age

    def free(self, threads: int) -> int:
        """How many threads of this program, of so many, they left room for; at least 1."""
        return free_threads(self.taken(), threads)

    def in_the_way(self, threads: int) -> bool:
        """Whether they took processor time that so many threads of this program could have used."""
        return not _is_room(self.taken(), threads)


class Watch:
    """Tells how many threads other processes leave room for, by what they took of late."""

    def __init__(self) -> None:
        self._crowd = Crowd()
        self._taken: float | None = None

    def free(self, threads: int) -> int:
        """How many threads of this program, of so many, there is room for; at least 1.

        It looks again once a second. Where it has not looked for long, it waits until there is
        something to see: what others did meanwhile may be over.
        """
        if self._taken is None or self._crowd.age > STALE_S:
            self._taken, self._crowd = None, Crowd()
            time.sleep(LISTENING_S)
        if self._taken is None or self._crowd.age > WATCHED_S:
            self._taken = self._crowd.taken()
            self._crowd = Crowd()
        return free_threads(self._taken, threads)


def free_threads(taken: float, threads: int) -> int:
    """Return how many of `threads` there is room for where others keep so many processors busy.

    At least 1: a single thread may have to wait for its turn, but that takes it no processor time.
    Of threads that share processors with each other anyway, all are free as long as each of these
    is.
    """
    return threads if _is_room(taken, threads) else max(1, math.floor(_room(taken)))


def _is_room(taken: float, threads: int) -> bool:
    return _room(taken) >= min(threads, len(_allowed_processors()))


def _room(taken: float) -> float:
    """Return how many threads can run, of which others take no more than is tolerated."""
    return (len(_allowed_processors()) - taken) / (1 - TOLERATED)


def _busy_s() -> float:
    """Return the seconds for which the processors have worked that this process may run on.

    A virtual machine's processors work, too, while the host takes them away.
    """
    import psutil  # noqa: PLC0415 - takes a while to load

    every = psutil.cpu_times(percpu=True)
    allowed = [every[number] for number in _allowed_processors() if number < len(every)]
    idle = ("idle", "iowait", "guest", "guest_nice")  # guests' time is that of users, too
    unused = (getattr(times, name, 0.0) for times in allowed for name in idle)
    return float(sum(map(sum, allowed)) - sum(unused))


def _own_s() -> float:
    """Return the seconds of processor time of this process and of all that it has started."""
    import psutil  # noqa: PLC0415

    total = 0.0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has just ended
            times = process.cpu_times()
            total += times.user + times.system
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


def processor_name() -> str:
    """Return the processor's name as its maker gives it, or what the system says instead."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string")
    return platform.processor() or platform.machine()


def _output(*command: str) -> str:
    """Return what a command prints, or nothing if it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
