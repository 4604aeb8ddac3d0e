"""`xflow replay`: makes the rewrites of a report again, without search."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xflow.cli.arguments import add_seed, add_threads, add_tolerances, count
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.deadline import Deadline
from xflow.core.errors import ExitCode, ModelError, ReportError, ValidationFailed
from xflow.core.wording import counted

if TYPE_CHECKING:
    import onnx_ir as ir

    from xflow.onnx.imported import Imported

CHECK_S = 600.0
"""Seconds that the comparison on random inputs may take."""


def add(commands: Commands[Parser]) -> None:
    """Add `replay`."""
    usage = "xflow replay REPORT.json IN OUT [options]"
    summary = "make the rewrites of a report again, without search"
    parser = add_command(commands, "replay", summary, usage)
    add_argument = parser.add_argument
    add_argument("report", metavar="REPORT.json", help="of a run with --report")
    add_argument("input", metavar="IN", help="the model of that run; never written")
    add_argument("output", metavar="OUT", help="where the faster model goes")
    add_threads(add_argument, "of the check")
    add_argument("--check", type=count, default=3, metavar="N", help="random inputs (3)")
    add_tolerances(add_argument)
    add_seed(add_argument, "of the inputs")
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Make the rewrites of a report again, without search and timing."""
    from xflow.cli.progress import ProgressDisplay
    from xflow.onnx import files
    from xflow.pipeline.certify import replayed, same_digest
    from xflow.pipeline.log import read_report

    files.check_output(options.output, options.input)
    report, log = read_report(options.report)
    shapes = _shapes(report, options.report)
    given = files.load_model(options.input)
    source = Path(options.input)
    if not same_digest(source, log):
        raise ModelError(
            "this is not the model that the report speaks of",
            options.input,
            "give that model, or optimize this one",
        )
    with ProgressDisplay(options.quiet, options.verbose) as progress:
        progress("replay", {})
        if log.empty:  # an unchanged model is copied byte for byte
            files.write_model_atomically(source.read_bytes(), options.output, source=source)
        else:
            again = replayed(given, log)
            progress("check", {})
            _check(again.imported, again.model, source, shapes, options)
            files.write_model_atomically(again.model, options.output, source=source)
    if not options.quiet:
        made = [item for each in log.all() for items in each.rounds for item in items]
        steps = sum(len(item.steps or ()) for item in made)
        print(f"{counted(len(made), 'rewrite')} made again, in {counted(steps, 'step')}")
    return ExitCode.OK


def _shapes(report: Mapping[str, Any], path: str) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs at which a report says that the model was run. Raises ReportError."""
    given = report.get("shapes", {})
    if not isinstance(given, dict) or not all(
        isinstance(sizes, list) and all(type(size) is int and 0 <= size < 2**63 for size in sizes)
        for sizes in given.values()
    ):
        raise ReportError("the shapes in it are no sizes of inputs", path)
    return {name: tuple(sizes) for name, sizes in given.items()}


def _check(
    imported: Imported,
    model: ir.Model,
    source: Path,
    shapes: dict[str, tuple[int, ...]],
    options: argparse.Namespace,
) -> None:
    """Compare the model on random inputs, as a search would have. Raises ValidationFailed."""
    from xflow.cost.machine import usable_cores
    from xflow.cost.measure import Target
    from xflow.cost.worker import Worker
    from xflow.validation.validate import Broken, Tolerance, Validator

    with tempfile.TemporaryDirectory(prefix="xflow-") as folder, Worker() as worker:
        validator = Validator(
            imported,
            source,
            Path(folder) / "after.onnx",
            worker,
            Target("cpu", options.threads or usable_cores()),
            Tolerance(options.check, options.rtol, options.atol, options.seed),
            [shapes],
            Deadline.after(CHECK_S),
        )
        outcome = validator.compare(model)
    if isinstance(outcome, Broken):
        raise ValidationFailed(outcome.reason, str(source))
