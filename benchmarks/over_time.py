#!/usr/bin/env python3
"""Say how much is gained after how much time: each model with several budgets, judged together.

Every run starts with nothing but the machine's numbers, so that no budget lives on what another one
has found.  All outputs of a model are judged in one more process, interleaved with each other and
with the original.  The seconds are those of the whole command, with the timing of whole models that
the budget is not for.  The table and a chart go to `results/`.

    python over_time.py [MODEL ...] [--budgets SECONDS ...] [--threads N] [--out DIR]
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from run import FLOOR, HERE, LATE, STATIC, machine, prepare, stored, write_results
from tables import geometric_mean, table
from tools import Attempt, calibrate, judged, optimize
from xflow.cost.machine import usable_cores
from xflow.pipeline.context import BESIDE

NAME = "over-time-cpu-{threads}-threads"
BUDGETS = (8.0, 15.0, 30.0, 60.0)
CACHE = "XFLOW_CACHE"


@dataclass(frozen=True)
class Row:
    """A model by budgets: what came of each, and the seconds that count against the budget."""

    model: str
    attempts: list[Attempt]
    counted_s: list[float] = field(default_factory=list)


def measure(name: str, budgets: Sequence[float], options: argparse.Namespace) -> Row:
    """Optimize a model with each budget, and judge all outputs."""
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        before = folder / "original.onnx"
        prepare(name, before, STATIC)
        attempts: list[Attempt] = []
        counted: list[float] = []
        outputs = [folder / f"{number}.onnx" for number, _ in enumerate(budgets)]
        for budget, output in zip(budgets, outputs, strict=True):
            report = folder / "report.json"
            report.unlink(missing_ok=True)
            made = attempt(before, output, report, budget, options)
            phases = json.loads(report.read_text())["phases"] if report.exists() else {}
            attempts.append(dataclasses.replace(made, tool=f"{budget:g} s"))
            counted.append(made.seconds - sum(phases.get(phase, 0.0) for phase in BESIDE))
        changed = [n for n, made in enumerate(attempts) if not made.fault and made.ratio is None]
        paths = [outputs[number] for number in changed]
        verdicts = judged(before, paths, options, options.seconds) if paths else []
        for number, verdict in zip(changed, verdicts, strict=True):
            attempts[number] = dataclasses.replace(attempts[number], **verdict)
    return Row(name, attempts, counted)


def attempt(
    before: Path, output: Path, report: Path, budget: float, options: argparse.Namespace
) -> Attempt:
    """Run xflow with a budget, knowing the machine and nothing else."""
    known = os.environ[CACHE]
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE] = shutil.copy(known, folder)
        try:
            how = argparse.Namespace(**{**vars(options), "budget": budget})
            return optimize(before, output, report, how)
        finally:
            os.environ[CACHE] = known


# The tables

HEADER = ("budget", "geometric mean", "median s", "longest s", "gain", "slower", "late", "failed")
LEGEND = """\
*Geometric mean*: of times as fast as ONNX Runtime with all its optimizations, over all models; one
that stays as it is counts as 1. *Median* and *longest*: seconds of the whole command, with the
timing of whole models. How many models *gain* 1 % or more, are *slower* than {floor:g} times the
original, are *late* by more than a tenth of their budget, and how many *failed*."""


def summary(rows: Sequence[Row], budgets: Sequence[float]) -> list[tuple[str, ...]]:
    """The texts of a line for each budget."""
    lines: list[tuple[str, ...]] = []
    for number, budget in enumerate(budgets):
        made = [row.attempts[number] for row in rows]
        seconds = [each.seconds for each in made]
        late = [row.counted_s[number] > LATE * budget for row in rows]
        lines.append(
            (
                f"{budget:g} s",
                f"{geometric_mean([each.gain for each in made]):.3f}",
                f"{statistics.median(seconds):.1f}",
                f"{max(seconds):.1f}",
                f"{sum(each.gain >= 1.01 for each in made)} of {len(made)}",
                f"{sum(each.gain < FLOOR for each in made)}",
                f"{sum(late)}",
                f"{sum(bool(each.fault) for each in made)}",
            )
        )
    return lines


def ratio(made: Attempt) -> str:
    """The ratio of an attempt with its interval, and its seconds."""
    if made.ratio is None:
        return made.fault
    spread = "" if made.is_unchanged else f" ({made.low:.3f}-{made.high:.3f})"
    return f"{made.ratio:.3f}{spread}, {made.seconds:.0f} s"


def markdown(rows: Sequence[Row], budgets: Sequence[float], title: str, chart: str) -> str:
    """The page."""
    lines = [
        f"{title}.",
        "",
        f"![Gain over time]({chart})",
        "",
        LEGEND.format(floor=FLOOR),
        "",
        *table(HEADER, summary(rows, budgets)),
        "",
        "Times as fast, the 95 % interval, and the seconds of the whole command:",
        "",
        *table(
            ("model", *(f"{budget:g} s" for budget in budgets)),
            [(row.model, *map(ratio, row.attempts)) for row in rows],
        ),
    ]
    return "\n".join(lines) + "\n"


def draw(rows: Sequence[Row], budgets: Sequence[float], title: str, target: Path) -> bool:
    """Write the chart as SVG, the same bytes for the same figures; False without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib as mpl  # noqa: PLC0415 - takes a second, and is optional
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "xflow", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for row in rows:
            seconds = [made.seconds for made in row.attempts]
            gains = [made.gain for made in row.attempts]
            axes.plot(seconds, gains, "-", color="0.75", linewidth=0.8)
            axes.annotate(row.model, (seconds[-1], gains[-1]), fontsize=5, color="0.5")
        places = range(len(budgets))
        medians = [statistics.median(row.attempts[n].seconds for row in rows) for n in places]
        means = [geometric_mean([row.attempts[n].gain for row in rows]) for n in places]
        axes.plot(medians, means, "o-", label="geometric mean, at the median time")
        for budget, x, y in zip(budgets, medians, means, strict=True):
            axes.annotate(f"--budget {budget:g}", (x, y), (4, -10), textcoords="offset points")
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        ticks = [10, 20, 30, 50, 100]
        axes.set_xticks(ticks, [f"{tick}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(linewidth=0.3)
        axes.set_xlabel("seconds of the whole command, with the timing of whole models")
        axes.set_ylabel("times as fast as ONNX Runtime alone")
        axes.set_title(title, fontsize=9)
        axes.legend(loc="upper left", fontsize=8)
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return True


def save(rows: Sequence[Row], budgets: Sequence[float], options: argparse.Namespace) -> None:
    """Write the page, the chart and the figures."""
    name, title = NAME.format(threads=options.threads), machine(options)
    options.out.mkdir(parents=True, exist_ok=True)
    draw(rows, budgets, title, options.out / f"{name}.svg")
    means = {
        f"{budget:g}": geometric_mean([row.attempts[number].gain for row in rows])
        for number, budget in enumerate(budgets)
    }
    page = markdown(rows, budgets, title, f"{name}.svg")
    write_results(name, page, rows, options, budgets=list(budgets), geometric_means=means)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = stored(STATIC)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(known)}")
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS, metavar="SECONDS")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="to time all outputs of a model"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where results go (default: results/, if all run)"
    )
    parser.set_defaults(provider="cpu")
    options = parser.parse_args()
    if unknown := set(options.models) - set(known):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if options.out is None and not options.models:
        options.out = HERE / "results"
    budgets = sorted(set(options.budgets))
    options.budget = budgets[-1]
    console = Console()
    console.width = max(console.width, 150)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE] = str(Path(folder) / "costs.sqlite")
        calibrate(options)
        for name in options.models or known:
            rows.append(measure(name, budgets, options))
            console.print(name, *map(ratio, rows[-1].attempts), sep="  ", highlight=False)
            if options.out is not None:
                save(rows, budgets, options)
    shown = Table(box=box.SIMPLE_HEAD, title=machine(options))
    for column in HEADER:
        shown.add_column(column, justify="right")
    for line in summary(rows, budgets):
        shown.add_row(*line)
    console.print(shown)
    sys.exit(any(made.fault for row in rows for made in row.attempts))


if __name__ == "__main__":
    main()
