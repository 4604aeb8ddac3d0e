"""Displays the progress of a run: as one line on a terminal, or as a line for each step."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping

from rich import progress
from rich.console import Console

from xflow.core.errors import printable

WIDTH = 80
_BAR = 18
_PHASE = 11
NOTES = {
    "sizes": "at which the model runs",
    "calibrate": "this machine, once",
    "trial": "how long a run takes",
    "check": "on random inputs",
    "timing": "both models, by turns",
    "attribution": "what each rewrite gains",
}
"""Descriptions of phases whose names do not explain themselves."""
_REDRAWN_S = 0.1


class ProgressDisplay:
    """Displays a job's phase, how far that is, the best result so far and the time left.

    On a terminal as one line, which is cleared when the job ends, below what the model consists of;
    with `verbose` as a line for each step; else not at all. It is not redrawn by a thread, which
    would disturb the measurements.
    """

    def __init__(self, quiet: bool, verbose: bool) -> None:
        self._verbose = verbose
        self._start = self._drawn = time.monotonic()
        console = Console(stderr=True)
        shown = not quiet and not verbose and console.is_terminal and not console.is_dumb_terminal
        self._bar = progress.Progress(
            progress.TextColumn(f"{{task.description:<{_PHASE}}}"),
            progress.BarColumn(bar_width=_BAR),
            progress.TextColumn("{task.fields[facts]}", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not shown,
        )
        self._task: progress.TaskID | None = None

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, phase: str, details: Mapping[str, object]) -> None:
        """Display that `phase` has come to `details`.

        `of` is how many parts the phase has, and the entry before it how many are done. What cannot
        be displayed is left out: a full disk or a closed pipe there does not end the job.
        """
        with contextlib.suppress(OSError):
            if self._verbose:
                self._tell(phase, details)
            if not self._bar.disable:
                self._draw(phase, details)

    def _tell(self, phase: str, details: Mapping[str, object]) -> None:
        facts = "  ".join(f"{key} {_plain(value)}" for key, value in details.items())
        line = f"{time.monotonic() - self._start:7.1f} s  {phase}  {facts}".rstrip()
        print(line, file=sys.stderr, flush=True)

    def _draw(self, phase: str, details: Mapping[str, object]) -> None:
        if phase == "model":
            self.close()
            print(_first_sight(details), file=sys.stderr, flush=True)
            return
        if self._task is None:
            self._task = self._bar.add_task(phase, facts="")
            self._bar.start()
        done, total = _parts(details)
        told = [f"{key} {_plain(value)}" for key, value in details.items() if key != "of"]
        facts = "  ".join([*([NOTES[phase]] if phase in NOTES else []), *told])
        room = WIDTH - _PHASE - _BAR - 3
        self._bar.update(
            self._task, description=phase, completed=done, total=total, facts=facts[:room]
        )
        now = time.monotonic()
        if now - self._drawn > _REDRAWN_S:
            self._drawn = now
            self._bar.refresh()

    def close(self) -> None:
        """Clear the line."""
        if self._task is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()
            self._task = None


def _first_sight(details: Mapping[str, object]) -> str:
    """What a model consists of, in a sentence."""
    return (
        f"{details['operators']} operators, {details['opaque']} opaque; {details['heavy']} of the "
        "time: convolutions, matrix products"
    )


def _parts(details: Mapping[str, object]) -> tuple[float, float | None]:
    """How many parts of a phase are done, and how many there are; None where that is not known."""
    total = details.get("of")
    if not isinstance(total, int):
        return 0, None
    keys = list(details)
    done = details[keys[keys.index("of") - 1]]
    return (done if isinstance(done, int) else 0), total


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))
