"""Displays the progress of a generation of rules, and the table of its results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from xflow.core.wording import counted

if TYPE_CHECKING:
    from xflow.generator.report import Summary
    from xflow.generator.standing import FamilyStanding, Standing

WIDTH = 80


class Display:
    """Displays a job's progress: bars on a terminal, or a line at a time with `--verbose`."""

    def __init__(self, quiet: bool, verbose: bool) -> None:
        self._verbose = verbose
        self._console = Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        if sys.stderr.isatty() and not quiet and not verbose:
            self._bars = Progress(
                TextColumn("{task.description:12}"),
                BarColumn(20),
                TextColumn("{task.fields[stats]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )

    def __enter__(self) -> Display:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, standing: Standing) -> None:
        """Display a new state of the job."""
        if self._verbose:
            kept = sum(family.counts["proved"] for family in standing.families)
            print(
                f"{standing.seconds:7.1f} s  {_left(standing)}  "
                f"{standing.memory / 10**9:.2f} GB  {kept} proved  {standing.latest}",
                file=sys.stderr,
                flush=True,
            )
        if self._bars is None:
            return
        for family in standing.families:
            self._draw(family.name, family.done, family.done + family.left, _stats(family))
        memory = f"{standing.memory / 10**9:.1f} GB, {_left(standing)}"
        self._draw("all", 0, None, memory)

    def _draw(self, name: str, done: int, total: int | None, stats: str) -> None:
        assert self._bars is not None
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total, stats=stats)
        self._bars.update(self._tasks[name], completed=done, total=total, stats=stats)


def _stats(family: FamilyStanding) -> str:
    if family.unexplored:
        return f"{counted(family.unexplored, 'vocabulary', 'vocabularies')} to enumerate"
    left = counted(family.left, "proposal")
    return f"{left} left, {family.counts['proved']} proved"


def _left(standing: Standing) -> str:
    if standing.seconds_left is None:
        return "time left not known yet"
    return f"about {round(standing.seconds_left)} s left"


def table(summary: Summary, out: Path) -> Table:
    """The figures of a generation of the rules in a folder."""
    made = Table(box=box.SIMPLE_HEAD, show_header=False, title=f"Rules in {out}")
    made.add_column()
    made.add_column(justify="right")
    for label, value in summary.rows:
        made.add_row(str(label), str(value))
    return made
