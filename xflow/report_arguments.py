"""The arguments of the commands around reports, and of those that help."""

import argparse
from collections.abc import Callable
from typing import Any

from xflow.cost import OBJECTIVES

Adder = Callable[..., argparse.ArgumentParser]
"""Makes the parser of a command from its name, its summary and its usage."""

Number = Callable[[str], Any]


def add_reports(command: Adder, count: Number, seed: Number, tolerance: Number) -> None:
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
    parser.add_argument("--threads", type=count, metavar="N", help="of the check (physical cores)")
    parser.add_argument("--check", type=count, default=3, metavar="N", help="random inputs (3)")
    parser.add_argument("--rtol", type=tolerance, default=1e-3, metavar="X", help="(1e-3)")
    parser.add_argument("--atol", type=tolerance, default=1e-5, metavar="X", help="(1e-5)")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of the inputs (0)")
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
    parser.set_defaults(run="certify_command:run_certify")


def add_help(command: Adder, count: Number, seed: Number, positive: Number, shape: Number) -> None:
    """Add `explain`, `doctor` and `completion`."""
    usage = "xflow explain IN [options]"
    parser = command("explain", "say what would be done, region by region; write nothing", usage)
    add = parser.add_argument
    add("input", metavar="IN", help="the model; never written")
    add("--budget", type=positive, default=10.0, metavar="SECONDS", help="for the search (10)")
    add("--threads", type=count, metavar="N", help="of the runtime (physical cores)")
    add(
        "--input-shapes",
        type=shape,
        action="append",
        default=[],
        metavar="NAME:1,3,224,224",
        help="sizes of an input; repeatable",
    )
    add("--objective", choices=OBJECTIVES, default="latency", help="what is to become better")
    add("--rules", metavar="DIR", help="folder of rules (those that come with xflow)")
    add("--cost", choices=("measured", "estimated"), default="estimated", help="(estimated)")
    add("--seed", type=seed, default=0, metavar="N", help="of everything random (0)")
    parser.set_defaults(run="explain_command:run")
    parser = command("doctor", "say what there is to work with: versions, processor, database")
    parser.add_argument("--threads", type=count, metavar="N", help="of the runtime (all cores)")
    parser.set_defaults(run="doctor_command:run")
    parser = command("completion", "print the script with which a shell completes commands")
    parser.add_argument("shell", choices=("bash", "fish", "zsh"), metavar="bash|fish|zsh")
    parser.set_defaults(run="completion_command:run")
