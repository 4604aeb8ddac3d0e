"""Optimizes a folder of models, each in a process of its own, and prints a table of results."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from xflow.cli.arguments import byte_size
from xflow.cli.progress import ProgressDisplay
from xflow.core.errors import ExitCode, ModelError, NotFaster, OutputError
from xflow.onnx import files
from xflow.report.tables import as_text

WIDTH = 80
OWN = frozenset(("report", "html", "jobs", "quiet", "verbose"))
"""Options that are about the whole folder."""


@dataclass(frozen=True)
class Outcome:
    """The result for one model: the exit code, a sentence, and the report if there is one."""

    name: str
    code: int
    sentence: str
    report: dict[str, Any] | None

    @property
    def verdict(self) -> str:
        """The result in the words of the table."""
        if self.code or self.report is None:
            return self.sentence or f"exit code {self.code}"
        return "optimized" if self.report["changed"] else "nothing gained"

    @property
    def ratio(self) -> str:
        """How many times as fast it is, where that was measured."""
        ratio = (self.report or {}).get("ratio")
        return f"{ratio['value']:.3f}" if ratio else ""


def run(options: argparse.Namespace, settings: Sequence[str]) -> ExitCode:
    """Optimize every model under `options.input`, into the same places under `options.output`.

    `settings` are the arguments that each of them is optimized with, `options.jobs` at a time.
    """
    source, target = Path(options.input), Path(options.output)
    models = _models(source, target)
    if not models:
        raise ModelError("there is no model in this folder (*.onnx)", str(source))
    if target.exists() and not target.is_dir():
        raise OutputError("this is a file, and the input a directory", str(target))
    if target.exists() and target.samefile(source):
        raise OutputError("this is the input, which is never written", str(target))
    if options.html and Path(options.html).is_file():
        raise OutputError("this is a file, and a folder of models makes a folder", options.html)
    running: set[subprocess.Popen[str]] = set()
    done: list[Path] = []

    def one(path: Path, folder: Path) -> Outcome:
        name = path.relative_to(source)
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        report = folder / "report.json"
        pages = []
        if options.html:
            page = Path(options.html) / name.with_suffix(".html")
            page.parent.mkdir(parents=True, exist_ok=True)
            pages = ["--html", str(page)]
        command = [sys.executable, "-P", "-m", "xflow", "optimize", str(path), str(place), "-q"]
        process = subprocess.Popen(
            [*command, *settings, "--report", str(report), *pages],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.add(process)
        said = process.communicate()[1].strip().splitlines()
        running.discard(process)
        sentence = said[-1].removeprefix(f"xflow: {path}: ").removeprefix("xflow: ") if said else ""
        found = json.loads(report.read_text()) if report.exists() else None
        done.append(name)
        progress("optimize", {"model": len(done), "of": len(models), "last": str(name)})
        return Outcome(str(name), process.returncode, sentence, found)

    with (
        ProgressDisplay(options.quiet, options.verbose) as progress,
        tempfile.TemporaryDirectory(prefix="xflow-") as scratch,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        folders = [Path(scratch) / str(number) for number in range(len(models))]
        for folder in folders:
            folder.mkdir()
        try:
            outcomes = list(pool.map(one, models, folders))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                with contextlib.suppress(OSError):
                    process.terminate()
            raise
    if options.report:
        reports = [each.report or {"input": each.name, "error": each.sentence} for each in outcomes]
        files.write_text_atomically(json.dumps({"models": reports}, indent=2), options.report)
    if not options.quiet:
        Console(width=WIDTH).print(table(outcomes))
    failed = [each.code for each in outcomes if each.code]
    if set(failed) == {ExitCode.NOT_FASTER}:
        raise NotFaster(f"{len(failed)} of {len(outcomes)} models have not gained", str(source))
    if failed:
        raise ModelError(f"{len(failed)} of {len(outcomes)} models failed", str(source))
    return ExitCode.OK


def _models(source: Path, target: Path) -> list[Path]:
    """The models under a folder, without those under the output, which may lie inside of it."""
    inside, outer = target.resolve(), source.resolve()
    is_inside = inside != outer and inside.is_relative_to(outer)
    return sorted(
        path
        for path in source.rglob("*.onnx")
        if path.is_file() and not (is_inside and path.parent.resolve().is_relative_to(inside))
    )


def restated(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """The arguments of a parser that each model is optimized with, from what was read of them."""
    made: list[str] = []
    for action in parser._actions:
        value = getattr(options, action.dest, action.default)
        if not action.option_strings or action.dest in OWN or value == action.default:
            continue
        name = action.option_strings[-1]
        if value is True:
            made.append(name)
            continue
        for each in value if isinstance(value, list) else [value]:
            made += [name, f"{each}B" if action.type is byte_size else _argument(each)]
    return made


def _argument(value: object) -> str:
    if isinstance(value, tuple):  # the shape of an input
        name, sizes = value
        return f"{name}:{','.join(map(str, sizes))}"
    return str(value)


def table(outcomes: Sequence[Outcome]) -> Table:
    """One line for each model."""
    made = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False)
    made.add_column("model", overflow="fold")
    made.add_column("times as fast", justify="right", no_wrap=True)
    made.add_column("what became of it", overflow="fold")
    for each in outcomes:
        made.add_row(as_text(each.name), each.ratio, as_text(each.verdict))
    changed = sum(each.verdict == "optimized" for each in outcomes)
    failed = sum(bool(each.code) for each in outcomes)
    made.caption = f"{len(outcomes)} models: {changed} optimized, {failed} failed"
    return made
