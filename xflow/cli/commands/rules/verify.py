"""`xflow rules verify`: proves each rule of a folder again."""

from __future__ import annotations

import argparse

from xflow.cli.arguments import add_jobs, rules_folder
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, VerificationError
from xflow.core.wording import counted


def add(actions: Commands[Parser]) -> None:
    """Add `verify`."""
    parser = add_command(actions, "verify", "prove every rule of a folder again")
    parser.add_argument("directory", nargs="?", metavar="DIR", help="(xflow's own rules)")
    add_jobs(parser.add_argument)
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Prove them; fail on the first that does not hold."""
    from xflow.cli.progress import ProgressDisplay
    from xflow.cost import machine
    from xflow.rewriting import store
    from xflow.verifier import database

    folder = rules_folder(options.directory)
    rules = store.load_rules(folder)

    def count(done: int, total: int) -> None:
        progress("prove", {"rule": done, "of": total})

    jobs = options.jobs or machine.usable_cores()
    with ProgressDisplay(options.quiet, options.verbose) as progress:
        failures = database.verify_directory(folder, count, jobs)
    if failures:
        first = failures[0]
        raise VerificationError(f"does not hold: {first.verdict_text}", f"rule {first.rule_name}")
    if not options.quiet:
        stanzas = counted(store.count_stanzas(folder), "stanza")
        print(f"{counted(len(rules), 'rule')} in {stanzas} proved again")
    return ExitCode.OK
