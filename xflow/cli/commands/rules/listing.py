"""`xflow rules list`: prints the name of each rule and its two sides."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xflow.cli.arguments import add_rules, rules_folder
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from xflow.rewriting.rule import Rule


def add(actions: Commands[Parser]) -> None:
    """Add `list`."""
    parser = add_command(actions, "list", "list the rules")
    parser.add_argument("--op", metavar="OPERATOR", help="those that speak of it, such as Conv")
    add_rules(parser.add_argument, "xflow's own")
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Print them, those of one operator if that is asked for."""
    from xflow.rewriting import store

    rules = store.load_rules(rules_folder(options.rules))
    if options.op is not None:
        rules = _speaking_of(options.op, rules)
    width = max((len(rule.name) for rule in rules), default=0)
    for rule in rules:
        sides = f"{rule.lhs} => {rule.rhs}"
        condition = f" where {', '.join(rule.where)}" if rule.where else ""
        refusals = rule.numerics.refusals if rule.numerics else ()
        refused = f" refused: {', '.join(map(str, refusals))}" if refusals else ""
        use = "" if rule.is_searched else " (not searched)"
        line = f"{rule.name:{width}}  {sides}{condition}{refused}{use}"
        print(rule.name if options.quiet else line)
    return ExitCode.OK


def _speaking_of(name: str, rules: Sequence[Rule]) -> list[Rule]:
    """The rules with an operator, or one that may stand for it, on either side.

    Raises UsageError, with names that are close.
    """
    from xflow.ops import operator, operators
    from xflow.ops.schematic import standing_for

    names = {op.name.lower(): op.name for op in operators()}
    if name.lower() not in names:
        close = difflib.get_close_matches(name.lower(), names, n=3)
        known = " or ".join(names[each] for each in close)
        raise UsageError(
            f"there is no operator {name}", do=f"did you mean {known}?" if known else ""
        )
    found = operator(names[name.lower()])
    spoken = "|".join(op.name for op in (found, *standing_for(found)))
    call = re.compile(rf"\b({spoken})\(")
    return [rule for rule in rules if call.search(rule.lhs) or call.search(rule.rhs)]
