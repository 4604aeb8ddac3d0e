"""The tools that the benchmark compares, each run on a model in a process of its own."""

import argparse
import contextlib
import dataclasses
import filecmp
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from peers import PEERS
from timed import Ended, timed
from xflow.cost.kernels import Profile
from xflow.feeds.inputs import Shapes

HERE = Path(__file__).resolve().parent
XFLOW = "xflow"

VARIANTS: dict[str, tuple[str, ...]] = {
    XFLOW: (),
    f"{XFLOW} --domains ort": ("--domains", "ort"),
    f"{XFLOW} --keep-opset": ("--keep-opset",),
}
"""Variants of xflow with other options, by their names in the tables."""

NORMWISE = f"{XFLOW} --assume normwise"
"""xflow where errors of rounding may count against the largest elements."""
OPTIONS = {**VARIANTS, NORMWISE: ("--assume", "normwise")}
"""The options of each form of xflow that has some."""
BUSY = f"{XFLOW}, one core busy"
"""xflow while another process keeps one core busy."""
AGAIN = f"{XFLOW}, again"
"""xflow a second time, which knows nothing of the first, nor of the machine."""
OWN = (*VARIANTS, NORMWISE, BUSY, AGAIN)
"""All forms of xflow; the other tools are its peers."""

STORE = "XFLOW_CACHE"
"""The variable of the environment that says where xflow keeps what it measures."""

HANG_S = 600.0
"""Seconds after which a process is ended, beyond its budget if it has one."""


class Failure(StrEnum):
    """Why there is no output of a tool to judge, or no verdict on it."""

    MISSING = "not installed"
    CRASHES = "crashes"
    HANGS = "times out"


@dataclass(frozen=True)
class Attempt:
    """The result of one tool on one model; times in seconds, memory in bytes.

    `fault` is a `Failure`, or a `Fault` of the judge, or empty, and `wrong` a sentence on it.  The
    figures of an output are those of `judge.py`; one that is the input, byte for byte, is as fast
    as it, and `is_unchanged`: there is nothing to measure.
    """

    tool: str
    fault: str = ""
    wrong: str = ""
    seconds: float = 0.0
    memory: int = 0
    is_unchanged: bool = False
    error: float | None = None
    before_s: float | None = None
    after_s: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0

    @property
    def gain(self) -> float:
        """How many times as fast the user's model is: once, where the tool has failed."""
        return 1.0 if self.ratio is None else self.ratio


def failed(ended: Ended) -> dict[str, Any]:
    """Return fault and reason of a process that did not end well, else nothing."""
    if ended.code is None:
        return {"fault": Failure.HANGS, "wrong": f"still runs after {ended.seconds:.0f} s"}
    if ended.code:
        return {"fault": Failure.CRASHES, "wrong": ended.said}
    return {}


def at(shapes: Shapes | None) -> list[str]:
    """Return the arguments that feed inputs at these shapes, or at the default ones."""
    texts = [f"{name}:{','.join(map(str, shape))}" for name, shape in (shapes or {}).items()]
    return [part for text in texts for part in ("--input-shapes", text)]


def calibrate(options: argparse.Namespace) -> None:
    """Have xflow measure the machine."""
    command = [sys.executable, "-m", "xflow", "calibrate", "--quiet"]
    command += ["--threads", str(options.threads), "--provider", options.provider]
    subprocess.run(command, check=True)


def optimize(
    source: Path,
    target: Path,
    report: Path,
    options: argparse.Namespace,
    variant: str = XFLOW,
    *,
    shapes: Shapes | None = None,
    settings: Sequence[Shapes] = (),
    inputs: Sequence[Path] = (),
) -> Attempt:
    """Run xflow, or a variant of it, on a model, which also writes a report.

    At `shapes`, or at several `settings` of them at once, or on the inputs of files.
    """
    command = [sys.executable, "-m", "xflow", "optimize", str(source), str(target), "--quiet"]
    command += ["--budget", str(options.budget), "--threads", str(options.threads)]
    command += ["--provider", options.provider, "--report", str(report), "--seed", "0"]
    command += [*OPTIONS.get(variant, ()), *at(shapes)]
    command += [part for each in settings for part in at(each)]
    command += [part for path in inputs for part in ("--inputs", str(path))]
    around: Mapping[str, AbstractContextManager[None]] = {
        BUSY: one_core_busy(),
        AGAIN: own_store(target.with_name("again.sqlite")),
    }
    with around.get(variant, contextlib.nullcontext()):
        return attempted(variant, command, source, target, options.budget + HANG_S)


@contextlib.contextmanager
def one_core_busy() -> Iterator[None]:
    """Keep one core busy by a process that only counts, and forget what was measured without it."""
    with (
        own_store(Path(os.environ[STORE]).with_name("busy.sqlite")),
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other,
    ):
        try:
            yield
        finally:
            other.kill()


@contextlib.contextmanager
def own_store(path: Path) -> Iterator[None]:
    """Have xflow keep what it measures in this file, and know what is there alone."""
    before = os.environ[STORE]
    os.environ[STORE] = str(path)
    try:
        yield
    finally:
        os.environ[STORE] = before


def optimize_by_peer(name: str, source: Path, target: Path) -> Attempt:
    """Run a peer on a model, if it is installed."""
    if not PEERS[name].version:
        return Attempt(name, Failure.MISSING)
    command = [sys.executable, str(HERE / "peers.py"), name, str(source), str(target)]
    return attempted(name, command, source, target, HANG_S)


def attempted(
    tool: str, command: Sequence[str], source: Path, target: Path, limit: float
) -> Attempt:
    """Run a tool that is to write `target`."""
    ended = timed(command, limit)
    attempt = Attempt(tool, **failed(ended), seconds=ended.seconds, memory=ended.memory)
    if attempt.fault:
        return attempt
    if not target.exists():
        return dataclasses.replace(attempt, fault=Failure.CRASHES, wrong="wrote nothing")
    if filecmp.cmp(source, target, shallow=False):
        return dataclasses.replace(attempt, is_unchanged=True, ratio=1.0)
    return attempt


def judged(
    before: Path,
    outputs: Sequence[Path],
    options: argparse.Namespace,
    seconds: float,
    *,
    shapes: Shapes | None = None,
    inputs: Sequence[Path] = (),
) -> list[dict[str, Any]]:
    """Return the verdicts of `judge.py`, run in a process of its own.

    Where the runtime crashes or hangs on one of the outputs, each is judged alone.
    """
    command = [sys.executable, str(HERE / "judge.py"), str(before), *map(str, outputs)]
    command += ["--threads", str(options.threads), "--provider", options.provider, *at(shapes)]
    command += ["--inputs", *map(str, inputs)] if inputs else []
    ended = timed([*command, "--seconds", str(seconds)], HANG_S + seconds)
    failure = failed(ended)
    if not failure:
        verdicts: list[dict[str, Any]] = json.loads(ended.out.splitlines()[-1])
        return verdicts
    if len(outputs) == 1:
        return [failure]
    share = seconds / len(outputs)
    how: Any = {"shapes": shapes, "inputs": inputs}
    return [judged(before, [output], options, share, **how)[0] for output in outputs]


def profiled(
    models: Sequence[Path],
    options: argparse.Namespace,
    *,
    shapes: Shapes | None = None,
    inputs: Sequence[Path] = (),
) -> list[Profile]:
    """Return the profiles of `headroom.py`, run in a process of its own; nothing if it fails."""
    command = [sys.executable, str(HERE / "headroom.py"), *map(str, models)]
    command += ["--threads", str(options.threads), *at(shapes)]
    command += ["--inputs", str(inputs[-1])] if inputs else []
    ended = timed(command, HANG_S)
    profiles: list[Profile] = [] if failed(ended) else json.loads(ended.out.splitlines()[-1])
    return profiles
