"""`xflow replay` and `xflow certify`: a report's rewrites, made again or confirmed."""

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from xflow.analysis.assumptions import Assumption
from xflow.cli.progress import Progress
from xflow.core.errors import ExitCode, ModelError, ReportError, ValidationFailed
from xflow.cost.machine import usable_cores
from xflow.cost.measure import Target
from xflow.cost.worker import Worker
from xflow.onnx import files
from xflow.onnx.importer import Imported
from xflow.pipeline.certify import (
    Prover,
    Rechecked,
    Rounding,
    certify,
    measure_again,
    prove_again,
    replayed,
    same_digest,
)
from xflow.pipeline.log import read_report
from xflow.validation.validate import Broken, Tolerance, Validator

CHECK_S = 600.0
"""Seconds that the comparison on random inputs may take."""


def replay(options: argparse.Namespace) -> ExitCode:
    """Make the rewrites of a report again, without search and timing."""
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
    with Progress(options.quiet, options.verbose) as progress:
        progress("replay", {})
        if log.empty:  # unchanged means unchanged: the very bytes
            files.write_model_atomically(source.read_bytes(), options.output, source=source)
        else:
            again = replayed(given, log)
            progress("check", {})
            _check(again.imported, again.model, source, shapes, options)
            files.write_model_atomically(again.model, options.output, source=source)
    if not options.quiet:
        made = [item for each in log.all() for items in each.rounds for item in items]
        steps = sum(len(item.steps or ()) for item in made)
        print(f"{_count(len(made), 'rewrite')} made again, in {_count(steps, 'step')}")
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
    with tempfile.TemporaryDirectory(prefix="xflow-") as folder, Worker() as worker:
        validator = Validator(
            imported,
            source,
            Path(folder) / "after.onnx",
            worker,
            Target("cpu", options.threads or usable_cores()),
            Tolerance(options.check, options.rtol, options.atol, options.seed),
            [shapes],
            time.monotonic() + CHECK_S,
        )
        outcome = validator.compare(model)
    if isinstance(outcome, Broken):
        raise ValidationFailed(outcome.reason, str(source))


def run_certify(options: argparse.Namespace) -> ExitCode:
    """Confirm that a model follows from another by the steps of a report."""
    _, log = read_report(options.report)
    prover: Prover = prove_again
    rounding: Rounding = measure_again
    if options.recheck:
        from xflow.rewriting.store import default_directory  # noqa: PLC0415

        checked = Rechecked(Path(options.rules) if options.rules else default_directory())
        prover, rounding = checked, checked.rounding
    with Progress(options.quiet, options.verbose) as progress:
        assumption = None if options.assume is None else Assumption.named(options.assume)
        paths = Path(options.input), Path(options.output)
        found = certify(*paths, log, prover, progress, rounding=rounding, assumption=assumption)
    if not options.quiet:
        how = "rechecked" if options.recheck else "proved"
        print(
            f"{options.output} follows from {options.input}:\n{_count(found.rules, 'rule')} {how}, "
            f"{_count(found.rewrites, 'rewrite')} in {_count(found.steps, 'step')} replayed"
        )
        if found.facts:
            print(f"{_count(found.facts, 'rewrite')} by facts about its values, found anew")
        for level, rewrites in sorted(found.assumed.items()):
            if level != Assumption.NONE:
                verb = "assumes" if rewrites == 1 else "assume"
                print(f"{_count(rewrites, 'rewrite')} {verb} that {level.sentence}")
        if found.masks:
            print(
                f"{_count(found.masks, 'rewrite')} with masks raised by one unit in the last place"
            )
        if found.calls:
            print(f"{_count(found.calls, 'call')} of functions of the model inlined")
        if found.frozen:
            print(f"{_count(found.frozen, 'weight')} that could be given as inputs made constant")
    return ExitCode.OK


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
