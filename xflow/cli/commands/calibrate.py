"""`xflow calibrate`: measures this machine for the estimate of costs, and prints a table."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from xflow.cli.arguments import add_provider, add_threads
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, WorkerError
from xflow.core.wording import counted

if TYPE_CHECKING:
    from rich.table import Table

    from xflow.cost.calibration.calibrate import Calibration, Number
    from xflow.cost.store import Platform

WIDTH = 80
BUSY = "Other processes were in the way of it; measure again when the machine is idle."


def add(commands: Commands[Parser]) -> None:
    """Add `calibrate`."""
    parser = add_command(commands, "calibrate", "measure this machine for the estimate")
    add_threads(parser.add_argument)
    add_provider(parser.add_argument)
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Measure this machine anew, keep that for all further runs, and print it."""
    from rich.console import Console

    from xflow.cli.progress import ProgressDisplay
    from xflow.cost.calibration.calibrate import calibrate, keep
    from xflow.cost.machine import Crowd, usable_cores
    from xflow.cost.measure import Measurer, Target
    from xflow.cost.store import Platform, Store

    target = Target(options.provider, options.threads or usable_cores())
    start = time.monotonic()
    with Measurer(target) as measurer, Store() as store:
        place = Platform.of(target.provider, target.threads, measurer.runtime_version)
        crowd = Crowd()
        with ProgressDisplay(options.quiet, options.verbose) as progress:
            found = calibrate(measurer, progress)
        if not found.measured:
            raise WorkerError(f"nothing could be measured: {found.numbers[0].reason}")
        keep(found, place, store)
        warnings = store.warnings + [BUSY] * crowd.in_the_way(target.threads)
    if not options.quiet:
        console = Console(width=WIDTH)
        console.print(table(found))
        console.print(*summary(found, place, time.monotonic() - start), *warnings, sep="\n")
    return ExitCode.OK


def table(found: Calibration) -> Table:
    """Every number: its default, what was measured, or why nothing was."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False)
    made.add_column("number")
    made.add_column("default", justify="right")
    made.add_column("measured", justify="right")
    made.add_column("", ratio=1, overflow="fold")
    for number in found.numbers:
        made.add_row(number.name, *cells(number))
    return made


def cells(number: Number) -> tuple[str, str, str]:
    """Default and measured value as texts, and a remark."""
    if number.measured is None:
        return f"{number.default:.3g}", "", f"default kept: {number.reason}"
    return f"{number.default:.3g}", f"{number.measured:.3g}", ""


def summary(found: Calibration, place: Platform, seconds: float) -> list[str]:
    """The setting of the calibration, and how many numbers were measured."""
    return [
        f"{len(found.measured)} of {len(found.numbers)} numbers measured in {seconds:.0f} s, for",
        f"{place.processor}, {place.provider}, {counted(place.threads, 'thread')}, "
        f"ONNX Runtime {place.runtime}.",
    ]
