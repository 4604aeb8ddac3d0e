"""`xflow rules generate`: finds and proves the database of rules anew."""

from __future__ import annotations

import argparse

from xflow.cli.arguments import add_jobs, add_memory, add_seed, count, rules_folder
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, OutputError, UsageError

WIDTH = 80


def add(actions: Commands[Parser]) -> None:
    """Add `generate`."""
    parser = add_command(actions, "generate", "find and prove the rules anew")
    add_argument = parser.add_argument
    add_argument("--out", metavar="DIR", help="where they go (the folder of xflow's own rules)")
    add_seed(add_argument)
    add_argument("--families", nargs="+", metavar="NAME", help="families of operators (all)")
    add_argument("--max-ops", type=count, default=3, metavar="N", help="operators in one side (3)")
    add_jobs(add_argument)
    add_memory(add_argument)
    add_argument("--engine", choices=("local", "ray"), default="local", help="what runs it (local)")
    add_argument("--address", metavar="ADDR", help="of a Ray cluster (one is started here)")
    add_argument("--report", metavar="FILE.json", help="write what was done as JSON")
    add_argument("--diff", action="store_true", help="say which rules changed; exit with 5 if any")
    add_argument("--against", metavar="DIR", help="what --diff compares with (xflow's own rules)")
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Build the database of rules from nothing, and print its counts and costs."""
    from xflow.cli.generation import Display, table
    from xflow.generator import run as job
    from xflow.onnx.files import check_output, write_text_atomically

    out = rules_folder(options.out)
    if options.address and options.engine != "ray":
        raise UsageError("--address is of a Ray cluster", do="give --engine ray with it")
    if out.exists() and not out.is_dir():
        raise OutputError("this is not a folder", str(out))
    if options.report:
        check_output(options.report)
    against = None
    if options.diff or options.against:
        against = rules_folder(options.against)
    with Display(options.quiet, options.verbose) as display:
        summary = job.generate(
            out,
            seed=options.seed,
            families=options.families,
            max_ops=options.max_ops,
            jobs=options.jobs,
            max_memory=options.max_memory,
            engine=options.engine,
            address=options.address,
            against=against,
            progress=display,
        )
    if options.report:
        write_text_atomically(summary.to_json(), options.report)
    if not options.quiet:
        from rich.console import Console

        Console(width=WIDTH).print(table(summary, out))
    if against is None or summary.difference is None:
        return ExitCode.OK
    if not options.quiet:
        print("\n".join(summary.difference.lines()))
    return ExitCode.CHANGED if summary.difference else ExitCode.OK
