"""`xflow rules`: commands that list, show, derive, prove, check and generate rewrite rules."""

from __future__ import annotations

from xflow.cli.commands.rules import derive, generate, learn, listing, recheck, show, verify
from xflow.cli.parser import Commands, Parser, add_command, add_subcommands

ACTIONS = (listing, show, generate, learn, verify, recheck, derive)


def add(commands: Commands[Parser]) -> None:
    """Add `rules` and what can be done with them."""
    actions = add_subcommands(add_command(commands, "rules", "work with the rewrite rules"))
    for action in ACTIONS:
        action.add(actions)
