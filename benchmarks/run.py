#!/usr/bin/env python3
"""Optimize every model of `models/` and print how much faster it became.

Each model gets weights, is optimized by the command line in a process of its own, and is then
judged anew in another.  The table goes to the terminal and, with all figures, to `results/`.
Exits with 1 if a model is wrong, late (over its budget and 30 s) or below 0.98 of its speed.

    python run.py [MODEL ...] [--budget SECONDS] [--threads N] [--provider cpu|cuda]
"""

import argparse
import dataclasses
import datetime
import filecmp
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from rich import box
from rich.console import Console
from rich.table import Table

from hydrate import hydrate
from xflow.machine import processor_name, usable_cores

HERE = Path(__file__).resolve().parent
WIDTH = 112
"""Columns that the table needs."""

GRACE_S = 30.0
FLOOR = 0.98
HANG_S = 600.0
"""A process that exceeds its budget by this much is ended."""


@dataclass(frozen=True)
class Row:
    """What became of one model; times in seconds, memory in bytes, `failure` empty if none."""

    model: str
    failure: str = ""
    nodes_before: int = 0
    nodes_after: int = 0
    seconds: float = 0.0
    memory: int = 0
    verdict: dict[str, Any] = dataclasses.field(default_factory=dict)
    rules: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    phases: dict[str, float] = dataclasses.field(default_factory=dict)


def optimize(source: Path, target: Path, report: Path, options: argparse.Namespace) -> Row:
    """Run the command line on one model, and note its time and the memory of its processes."""
    command = [sys.executable, "-m", "xflow", "optimize", str(source), str(target), "--quiet"]
    command += ["--budget", str(options.budget), "--threads", str(options.threads)]
    command += ["--provider", options.provider, "--report", str(report), "--seed", "0"]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as stderr:
        child = subprocess.Popen(command, stderr=stderr)
        watchdog = threading.Timer(options.budget + HANG_S, child.kill)
        watchdog.start()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        watchdog.cancel()
        seconds = time.monotonic() - start
        stderr.seek(0)
        said = stderr.read().strip().splitlines()
    # Linux counts in KiB, macOS in bytes; this is the largest of the processes.
    memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    failure = ""
    if child.returncode != 0:
        failure = f"exit code {child.returncode}: {said[-1] if said else 'said nothing'}"
    elif seconds > options.budget + GRACE_S:
        failure = f"late: {seconds:.0f} s"
    return Row(source.stem, failure, seconds=seconds, memory=memory)


def judge(before: Path, after: Path, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Return the verdict of `judge.py`, run in a process of its own."""
    command = [sys.executable, str(HERE / "judge.py"), str(before), str(after)]
    command += ["--threads", str(options.threads), "--provider", options.provider]
    command += ["--seconds", str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    except subprocess.TimeoutExpired:
        return {"wrong": "hangs"}
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return {"wrong": said[-1] if said else f"crashes ({done.returncode})"}
    verdict: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return verdict


def measure(model: Path, options: argparse.Namespace) -> Row:
    """Take one model through everything, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = folder / model.name
        after = folder / f"{model.stem}.fast.onnx"
        report_file = folder / "report.json"
        onnx.save(hydrate(onnx.load(model)), before)
        row = optimize(before, after, report_file, options)
        if not after.exists() or not report_file.exists():
            return dataclasses.replace(row, failure=row.failure or "wrote nothing")
        report = json.loads(report_file.read_text())
        # An output that is the input, byte for byte, is as fast as it: there is nothing to measure.
        same = filecmp.cmp(before, after, shallow=False)
        verdict = UNCHANGED if same else judge(before, after, options, options.seconds)
    failure = row.failure or verdict["wrong"]
    if not failure and verdict["ratio"] < FLOOR:
        failure = f"slower: {verdict['ratio']:.3f}"
    return dataclasses.replace(
        row,
        failure=failure,
        nodes_before=sum(report["before"]["operators"].values()),
        nodes_after=sum(report["after"]["operators"].values()),
        verdict=verdict,
        rules=report["rules"],
        phases=report["phases"],
    )


UNCHANGED: dict[str, Any] = {"wrong": "", "ratio": 1.0}
HEADER = ("model", "nodes", "before ms", "after ms", "ratio", "95 %", "error", "s", "MiB")


def cells(row: Row) -> tuple[str, ...]:
    """Return the texts of one line of the table."""
    verdict = row.verdict
    seconds, memory = f"{row.seconds:.0f}", f"{row.memory / 2**20:.0f}"
    if "ratio" not in verdict:
        return (row.model, "", "", "", "-", "", "", seconds, memory)
    if verdict == UNCHANGED:
        return (row.model, f"{row.nodes_before}", "", "", "1", "unchanged", "", seconds, memory)
    return (
        row.model,
        f"{row.nodes_before}>{row.nodes_after}",
        f"{verdict['before_s'] * 1e3:.2f}",
        f"{verdict['after_s'] * 1e3:.2f}",
        f"{verdict['ratio']:.3f}",
        f"{verdict['low']:.3f}-{verdict['high']:.3f}",
        f"{verdict['error']:.0e}",
        seconds,
        memory,
    )


def geometric_mean(rows: Sequence[Row]) -> float:
    """Return the geometric mean of the ratios of all rows that have one, else NaN."""
    ratios = [row.verdict["ratio"] for row in rows if "ratio" in row.verdict]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def machine(options: argparse.Namespace) -> str:
    """Name what the figures hold for."""
    threads = f"{options.threads} thread{'' if options.threads == 1 else 's'}"
    return (
        f"{processor_name()}, {usable_cores()} cores; {options.provider}, {threads}; "
        f"ONNX Runtime {onnxruntime.__version__}, {platform.system()}"
    )


def render(rows: Sequence[Row], options: argparse.Namespace) -> Table:
    """Return the table for the terminal."""
    table = Table(box=box.SIMPLE_HEAD, title=machine(options), padding=(0, 1))
    for name in HEADER:
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*cells(row), style="red" if row.failure else None)
    table.add_section()
    table.add_row("geometric mean", "", "", "", f"{geometric_mean(rows):.3f}")
    return table


def markdown(rows: Sequence[Row], options: argparse.Namespace) -> str:
    """Return the table for a page, with what failed below it."""
    lines = [f"{machine(options)}. Budget {options.budget:g} s for each model.", ""]
    lines += [f"| {' | '.join(HEADER)} |", f"|---|{'---:|' * (len(HEADER) - 1)}"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    lines += ["", f"Geometric mean {geometric_mean(rows):.3f}."]
    lines += [f"{row.model}: {row.failure}." for row in rows if row.failure]
    return "\n".join(lines) + "\n"


def save(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Write the results as JSON and Markdown, named after the target."""
    mean = geometric_mean(rows) if any("ratio" in row.verdict for row in rows) else None
    name = f"{options.provider}-{options.threads}-threads"
    write_results(name, markdown(rows, options), rows, options, geometric_mean=mean)


def write_results(
    name: str, page: str, rows: Sequence[Any], options: argparse.Namespace, **figures: Any
) -> None:
    """Write a page, and beside it the rows and other figures as JSON with the machine's name."""
    plain = {
        "machine": machine(options),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "budget": options.budget,
        **figures,
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(json.dumps(plain, indent=1) + "\n")
    (options.out / f"{name}.md").write_text(page)


def main() -> int:
    """Run the benchmark; return the exit code."""
    known = sorted(path.stem for path in (HERE / "models").glob("*.onnx"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(known)}")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0, help="to time each model anew")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if unknown := set(options.models) - set(known):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    console = Console()
    console.width = max(console.width, WIDTH)
    rows: list[Row] = []
    for name in options.models or known:
        row = measure(HERE / "models" / f"{name}.onnx", options)
        rows.append(row)
        console.print("  ".join(cells(row)), row.failure, highlight=False)
        if not options.models:  # a run over some models does not replace the whole table
            save(rows, options)
    console.print(render(rows, options))
    for row in rows:
        if row.failure:
            console.print(f"{row.model}: {row.failure}", style="red")
    return 1 if any(row.failure for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
