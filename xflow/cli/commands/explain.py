"""`xflow explain`: prints the rewrites that would be made to a model, without writing it."""

from __future__ import annotations

import argparse

from xflow.cli.arguments import (
    add_input_shapes,
    add_rules,
    add_seed,
    add_threads,
    input_settings,
    positive,
)
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, printable
from xflow.cost import COSTS, OBJECTIVES


def add(commands: Commands[Parser]) -> None:
    """Add `explain`."""
    summary = "say what would be done, region by region; write nothing"
    parser = add_command(commands, "explain", summary, "xflow explain IN [options]")
    add_argument = parser.add_argument
    add_argument("input", metavar="IN", help="the model; never written")
    add_argument(
        "--budget", type=positive, default=10.0, metavar="SECONDS", help="for the search (10)"
    )
    add_threads(add_argument)
    add_input_shapes(add_argument)
    add_argument(
        "--objective", choices=OBJECTIVES, default="latency", help="what is to become better"
    )
    add_rules(add_argument)
    add_argument(
        "--rule",
        metavar="NAME",
        help="do not search, but say where this rule applies, where it nearly does, and why not",
    )
    add_argument("--cost", choices=COSTS, default="estimated", help="what would decide (estimated)")
    add_argument(
        "--profile",
        action="store_true",
        help="run the model, and say where its time goes by the runtime's own profile",
    )
    add_seed(add_argument)
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Search, and print what was found."""
    if options.rule is not None:
        from xflow.pipeline.rule_places import rule_places

        for direction in rule_places(options.input, options.rule, rules=options.rules):
            print(printable("\n".join(direction.lines())))
        return ExitCode.OK

    from xflow.cli.progress import ProgressDisplay
    from xflow.cost import machine
    from xflow.pipeline import api
    from xflow.pipeline.explanation import explain_report

    with ProgressDisplay(options.quiet, options.verbose) as progress:
        result = api.optimize(
            options.input,
            budget=options.budget,
            threads=options.threads or machine.usable_cores(),
            input_shapes=input_settings(options.input_shapes),
            rules=options.rules,
            objective=options.objective,
            cost=options.cost,
            seed=options.seed,
            profile=options.profile,
            progress=progress,
        )
    print(printable(str(explain_report(result.report))))
    if options.cost != "measured" and not options.quiet:
        how = "By estimate" if options.cost == "estimated" else "By what was learned elsewhere"
        print(f"\n{how}; --cost measured asks this machine. Nothing was written.")
    return ExitCode.OK
