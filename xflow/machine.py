"""The machine that the program runs on: its processor's name and its cores."""

import contextlib
import math
import os
import platform
import subprocess
import sys
from pathlib import Path


def usable_cores() -> int:
    """Return how many physical cores this process may use, at least 1.

    Two hardware threads of one core count once: convolutions and matrix products fill a core's
    units already.  A container's share of processor time is respected.
    """
    allowed = _allowed_processors()
    cores = _distinct_cores(allowed)
    return max(1, min(cores, len(allowed), _quota()))


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


def _quota() -> int:
    """Return the processors' worth of time that a Linux control group grants, rounded up."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, math.ceil(int(limit) / int(period)))
    except (OSError, ValueError):  # no control group, or "max": no limit
        return sys.maxsize


def free_memory() -> int:
    """Return the bytes of memory that a process may take without harm to others."""
    import psutil  # noqa: PLC0415 - takes a while to load

    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):  # a control group that grants less
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        free = min(free, limit - int((group / "memory.current").read_text()))
    return max(free * 9 // 10, 2**30)


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
