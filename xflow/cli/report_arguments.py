"""The arguments of the commands around reports, and of those that help."""

import argparse
from collections.abc import Callable

from xflow.analysis.assumptions import Assumption
from xflow.cli.arguments import (
    add_input_shapes,
    add_seed,
    add_threads,
    add_tolerances,
    count,
    positive,
)
from xflow.cost import OBJECTIVES

Adder = Callable[..., argparse.ArgumentParser]
"""Makes the parser of a command from its name, its summary and its usage."""


def add_reports(command: Adder) -> None:
    """Add `report`, `replay` and `certify`."""
    usage = "xflow report REPORT.json [--html FILE]"
    parser = command("report", "make a page of a report, to be looked at in a browser", usage)
    parser.add_argument("report", metavar="REPORT.json", help="of a run with --report")
    parser.add_argument("--html", metavar="FILE", help="where it goes (REPORT.html)")
    parser.set_defaults(run="page_command:run")
    usage = "xflow replay REPORT.json IN OUT [options]"
    parser = command("replay", "make the rewrites of a report again, without search", usage)
    parser.add_argument("report", metavar="REPORT.json", help="of a run with --report")
    parser.add_argument("input", metavar="IN", help="the model of that run; never written")
    parser.add_argument("output", metavar="OUT", help="where the faster model goes")
    add_threads(parser.add_argument, "of the check")
    parser.add_argument("--check", type=count, default=3, metavar="N", help="random inputs (3)")
    add_tolerances(parser.add_argument)
    add_seed(parser.add_argument, "of the inputs")
    parser.set_defaults(run="certify_command:replay")
    usage = "xflow certify IN OUT REPORT.json [options]"
    parser = command("certify", "confirm that OUT follows from IN by proved rules alone", usage)
    parser.add_argument("input", metavar="IN", help="the model that was optimized")
    parser.add_argument("output", metavar="OUT", help="the model that came out")
    parser.add_argument("report", metavar="REPORT.json", help="of that run")
    parser.add_argument(
        "--recheck",
        action="store_true",
        help="recheck the rules' certificates by the second checker instead of proving the rules",
    )
    parser.add_argument("--rules", metavar="DIR", help="folder of the certificates (xflow's own)")
    parser.add_argument(
        "--assume",
        choices=[level.option for level in Assumption],
        help="what may be taken for granted of the model's values (what the run took)",
    )
    parser.set_defaults(run="certify_command:run_certify")


def add_help(command: Adder) -> None:
    """Add `explain`, `doctor` and `completion`."""
    usage = "xflow explain IN [options]"
    parser = command("explain", "say what would be done, region by region; write nothing", usage)
    add = parser.add_argument
    add("input", metavar="IN", help="the model; never written")
    add(
        "--budget",
        type=positive,
        default=10.0,
        metavar="SECONDS",
        help="for the search (10)",
    )
    add_threads(add)
    add_input_shapes(add)
    add("--objective", choices=OBJECTIVES, default="latency", help="what is to become better")
    add("--rules", metavar="DIR", help="folder of rules (those that come with xflow)")
    add("--cost", choices=("measured", "estimated"), default="estimated", help="(estimated)")
    add_seed(add)
    parser.set_defaults(run="explain_command:run")
    parser = command("doctor", "say what there is to work with: versions, processor, database")
    add_threads(parser.add_argument)
    parser.set_defaults(run="doctor_command:run")
    parser = command("completion", "print the script with which a shell completes commands")
    parser.add_argument("shell", choices=("bash", "fish", "zsh"), metavar="bash|fish|zsh")
    parser.set_defaults(run="completion_command:run")
