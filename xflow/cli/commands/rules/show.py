"""`xflow rules show`: prints one rule with its proof record, and draws both of its sides."""

from __future__ import annotations

import argparse

from xflow.cli.arguments import add_rules, rules_folder
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode


def add(actions: Commands[Parser]) -> None:
    """Add `show`."""
    parser = add_command(actions, "show", "show one rule and its proof record")
    parser.add_argument("name", metavar="NAME")
    add_rules(parser.add_argument, "xflow's own")
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Print it."""
    from xflow.rewriting import sketch, store

    rules = store.load_rules(rules_folder(options.rules))
    (rule,) = store.select_rules(rules, only=[options.name])
    print(str(rule).rstrip())
    if not options.quiet:
        print()
        print(sketch.draw_sides(rule.lhs, rule.rhs))
    return ExitCode.OK
