"""`xflow certify`: confirms a report's rewrites step by step."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from xflow.cli.arguments import rules_folder
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.assumptions import Assumption
from xflow.core.errors import ExitCode
from xflow.core.wording import counted

if TYPE_CHECKING:
    from xflow.pipeline.certify import Prover, Rounding


def add(commands: Commands[Parser]) -> None:
    """Add `certify`."""
    usage = "xflow certify IN OUT REPORT.json [options]"
    summary = "confirm that OUT follows from IN by the steps of a report"
    parser = add_command(commands, "certify", summary, usage)
    add_argument = parser.add_argument
    add_argument("input", metavar="IN", help="the model that was optimized")
    add_argument("output", metavar="OUT", help="the model that came out")
    add_argument("report", metavar="REPORT.json", help="of that run")
    add_argument(
        "--recheck",
        action="store_true",
        help="recheck the rules' certificates by the second checker instead of proving the rules",
    )
    add_argument("--rules", metavar="DIR", help="folder of the certificates (xflow's own)")
    add_argument(
        "--assume",
        choices=[level.option for level in Assumption],
        help="what may be taken for granted of the model's values (what the run took)",
    )
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Confirm that a model follows from another by the steps of a report."""
    from xflow.cli.progress import ProgressDisplay
    from xflow.pipeline.certify import Rechecked, certify, measure_again, prove_again
    from xflow.pipeline.log import read_report

    _, log = read_report(options.report)
    prover: Prover = prove_again
    rounding: Rounding = measure_again
    if options.recheck:
        checked = Rechecked(rules_folder(options.rules))
        prover, rounding = checked, checked.rounding
    with ProgressDisplay(options.quiet, options.verbose) as progress:
        assumption = None if options.assume is None else Assumption.named(options.assume)
        paths = Path(options.input), Path(options.output)
        found = certify(*paths, log, prover, progress, rounding=rounding, assumption=assumption)
    if not options.quiet:
        how = "rechecked" if options.recheck else "proved"
        print(
            f"{options.output} follows from {options.input}:\n"
            f"{counted(found.rules, 'rule')} {how}, {counted(found.rewrites, 'rewrite')} in "
            f"{counted(found.steps, 'step')} replayed"
        )
        for basis, rewrites in found.bases.items():
            print(f"{counted(rewrites, 'rewrite')} by {basis.sentence}")
        for level, rewrites in sorted(found.assumed.items()):
            if level != Assumption.NONE:
                verb = "assumes" if rewrites == 1 else "assume"
                print(f"{counted(rewrites, 'rewrite')} {verb} that {level.sentence}")
        if found.calls:
            print(f"{counted(found.calls, 'call')} of functions of the model inlined")
        if found.frozen:
            print(f"{counted(found.frozen, 'weight')} that could be given as inputs made constant")
    return ExitCode.OK
