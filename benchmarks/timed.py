#!/usr/bin/env python3
"""Run a command for so many seconds at most, and say how long it took and in how much memory.

It is a process of its own because of how Linux counts: the peak of a new process is not below that
of the one that started it.  So this one imports nothing but the standard library.

    python timed.py SECONDS COMMAND ...
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    """How a command ended: wall-clock seconds, and bytes of the largest of its processes.

    `code` is the exit code, the negative number of the signal that ended it, or None where the
    time was up.
    """

    code: int | None
    seconds: float
    memory: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The last line of what went wrong."""
        lines = self.err.strip().splitlines()
        return lines[-1].strip() if lines else f"ended with {self.code} and said nothing"


def timed(command: Sequence[str], limit: float) -> Ended:
    """Run a command, with this small process between it and the caller."""
    whole = [sys.executable, "-S", __file__, str(limit), *command]
    done = subprocess.run(whole, stdout=subprocess.PIPE, text=True, check=True)
    return Ended(**json.loads(done.stdout))


def run(command: Sequence[str], limit: float) -> Ended:
    """Run a command in a session of its own, which is ended as a whole when the time is up."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        late = threading.Event()

        def end() -> None:
            late.set()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)

        watchdog = threading.Timer(limit, end)
        watchdog.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            end()
            raise
        finally:
            watchdog.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    # Linux counts in KiB, macOS in bytes.
    memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Ended(None if late.is_set() else child.returncode, seconds, memory, *texts)


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(run(sys.argv[2:], float(sys.argv[1])))))
