"""`xflow rules learn`: finds rules around the regions of models, and proves them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from xflow.cli.arguments import (
    add_input_shapes,
    add_jobs,
    add_memory,
    add_rules,
    add_seed,
    input_settings,
    positive,
)
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, UsageError
from xflow.core.wording import counted

if TYPE_CHECKING:
    from xflow.generator.learning.run import Summary

EXAMPLE = """\
Terms of up to three operators are enumerated around each small part of the models, and
around what the rules make of them.  What equals such a part, costs no more and is proved
for all sizes is a rule, unless the known rules imply it.

  xflow rules learn model.onnx --out my-rules --minutes 20
  xflow optimize model.onnx fast.onnx --rules my-rules
"""


def add(actions: Commands[Parser]) -> None:
    """Add `learn`."""
    usage = "xflow rules learn MODEL.onnx... --out DIR [options]"
    parser = add_command(actions, "learn", "find rules that models need", usage, EXAMPLE)
    add_argument = parser.add_argument
    add_argument("models", nargs="+", metavar="MODEL.onnx")
    add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help="a folder of rules: they are added to it, or to a copy of the known ones",
    )
    add_rules(add_argument, "xflow's own")
    add_argument("--minutes", type=positive, metavar="N", help="begin no region after (no limit)")
    add_input_shapes(add_argument)
    add_seed(add_argument)
    add_jobs(add_argument)
    add_memory(add_argument)
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Learn from the models, write the rules and print them."""
    from xflow.cli.progress import ProgressDisplay
    from xflow.generator.learning.run import learn
    from xflow.rewriting.store import default_directory

    out = Path(options.out)
    if out.resolve() == default_directory().resolve():
        raise UsageError("these are xflow's own rules", do="choose another folder for --out")
    settings = input_settings(options.input_shapes)
    if len(settings) > 1:
        raise UsageError(
            "an input has several shapes in --input-shapes", do="learn at one after the other"
        )
    with ProgressDisplay(options.quiet, options.verbose) as progress:
        summary = learn(
            [Path(path) for path in options.models],
            out,
            base=None if options.rules is None else Path(options.rules),
            shapes=settings[0],
            seed=options.seed,
            minutes=options.minutes,
            jobs=options.jobs,
            max_memory=options.max_memory,
            tell=progress,
        )
    if not options.quiet:
        print("\n".join(report(summary, out)))
    return ExitCode.OK


def report(summary: Summary, out: Path) -> list[str]:
    """The rules that were learned, and the counts behind them, line by line."""
    lines = [f"{item.rule.name}\n  {item.rule.lhs}\n  => {item.rule.rhs}" for item in summary.kept]
    counts = summary.derivation.counts
    found = counted(len(summary.kept), "rule")
    holds = "what is known, and these" if summary.kept else "what is known, and no more"
    lines.append(
        f"{found} learned from {counted(counts['regions'], 'form')} of "
        f"{counted(summary.regions, 'region')} in {summary.seconds:.0f} s; {out} holds {holds}"
    )
    lines.append(
        f"{counted(counts['proposed'], 'equation')} found: {counts['derived']} followed from "
        f"rules that were known by then, {counts['refuted']} were false at other sizes"
    )
    if summary.failures:
        failed = counted(len(summary.failures), "region")
        lines.append(f"{failed} could not be learned from, first: {summary.failures[0]}")
    if summary.left:
        lines.append(f"{counted(summary.left, 'region')} left: give more --minutes")
    return lines
