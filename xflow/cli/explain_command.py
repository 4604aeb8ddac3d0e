"""`xflow explain`: what would be done to a model; nothing is written."""

import argparse

from xflow.cli.commands import input_settings
from xflow.cli.progress import Progress
from xflow.core.errors import ExitCode, printable
from xflow.cost import machine
from xflow.pipeline import api
from xflow.pipeline.explanation import explain_report


def run(options: argparse.Namespace) -> ExitCode:
    """Search, and say what was found."""
    with Progress(options.quiet, options.verbose) as progress:
        result = api.optimize(
            options.input,
            budget=options.budget,
            threads=options.threads or machine.usable_cores(),
            input_shapes=input_settings(options.input_shapes),
            rules=options.rules,
            objective=options.objective,
            cost=options.cost,
            seed=options.seed,
            progress=progress,
        )
    print(printable(str(explain_report(result.report))))
    if options.cost == "estimated" and not options.quiet:
        print("\nBy estimate; --cost measured asks this machine. Nothing was written.")
    return ExitCode.OK
