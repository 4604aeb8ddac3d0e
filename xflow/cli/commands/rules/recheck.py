"""`xflow rules recheck`: checks the certificate of each rule of a folder independently."""

from __future__ import annotations

import argparse

from xflow.cli.arguments import add_jobs, add_names, positive, rules_folder
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, VerificationError
from xflow.core.wording import counted


def add(actions: Commands[Parser]) -> None:
    """Add `recheck`."""
    parser = add_command(actions, "recheck", "check certificates with a second solver")
    add_argument = parser.add_argument
    add_argument("directory", nargs="?", metavar="DIR", help="(xflow's own rules)")
    add_names(add_argument, "--rule", "these rules only")
    add_jobs(add_argument)
    add_argument("--limit", type=positive, metavar="SECONDS", help="for one rule (120)")
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Check them; fail unless all are confirmed."""
    from xflow.cli.progress import ProgressDisplay
    from xflow.cost import machine
    from xflow.rewriting.store import count_stanzas
    from xflow.verifier.recheck import database
    from xflow.verifier.recheck.verdicts import Confirmed

    def count(done: int, total: int) -> None:
        progress("recheck", {"rule": done, "of": total})

    jobs, limit = options.jobs or machine.usable_cores(), options.limit or database.LIMIT
    folder = rules_folder(options.directory)
    with ProgressDisplay(options.quiet, options.verbose) as progress:
        results = database.recheck_directory(folder, options.rule, count, jobs, limit=limit)
    verdicts = [result.verdict for result in results]
    confirmed = [verdict for verdict in verdicts if isinstance(verdict, Confirmed)]
    total = counted(len(results), "rule")
    if not options.quiet:
        for result in results:
            if not isinstance(result.verdict, Confirmed):
                print(f"{result.rule_name}: {result.verdict}")
        questions = sum(verdict.questions for verdict in confirmed)
        points = sum(verdict.points for verdict in confirmed)
        where = "" if options.rule else f" in {counted(count_stanzas(folder), 'stanza')}"
        print(
            f"{len(confirmed)} of {total}{where} confirmed: {questions:,} questions to the second "
            f"solver, {points:,} elements compared"
        )
    if len(confirmed) < len(results):
        raise VerificationError(f"{len(results) - len(confirmed)} of {total} not confirmed")
    return ExitCode.OK
