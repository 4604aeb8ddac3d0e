"""The arguments of the commands that read reports."""

import argparse
from collections.abc import Callable
from typing import Any

Adder = Callable[..., argparse.ArgumentParser]
"""Makes the parser of a command from its name, its summary and its usage."""

Number = Callable[[str], Any]


def add(command: Adder, count: Number, seed: Number, tolerance: Number) -> None:
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
