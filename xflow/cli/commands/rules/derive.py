"""`xflow rules derive`: derives an equation from the rules of a folder."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xflow.cli.arguments import add_equation, add_rules, add_seed, count, rules_folder
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, UsageError
from xflow.core.wording import counted

if TYPE_CHECKING:
    from xflow.generator.saturation.derivation import Derived, NotDerived
    from xflow.rewriting.rule import Rule

DERIVE_EXAMPLE = """\
Both sides are rewritten by all rules at once, step after step, until they meet; a
derivation counts if it is found again at other sizes.  Where the equation needs
conditions, they are looked for.  Exit code 0: derived, 12: not.

  xflow rules derive --in 'a[n,m] b[m,k] c[m,k]' \\
                     'MatMul(a, Add(b, c))' 'Add(MatMul(a, c), MatMul(a, b))'
  xflow rules derive my.rules --steps 4
"""


def add(actions: Commands[Parser]) -> None:
    """Add `derive`."""
    usage = (
        "xflow rules derive --in INPUTS LEFT RIGHT [options]\n"
        "       xflow rules derive FILE.rules ..."
    )
    parser = add_command(
        actions, "derive", "show how an equation follows from the rules", usage, DERIVE_EXAMPLE
    )
    add_argument = parser.add_argument
    add_equation(add_argument)
    add_argument("--no-infer", action="store_true", help="take it as it stands, find no conditions")
    add_rules(add_argument, "xflow's own")
    add_argument("--steps", type=count, default=3, metavar="N", help="of saturation (3)")
    add_seed(add_argument, "of the sizes that are tried")
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Derive the given equations, print how, and return whether all were derived."""
    from xflow.cli.equations import read_rules
    from xflow.generator.saturation.derivation import Derived, derive_claim
    from xflow.generator.saturation.directions import Database
    from xflow.rewriting.store import load_rules

    if not options.texts:
        raise UsageError("there is no equation", do="see xflow rules derive --help")
    equations = read_rules(options)
    database = Database.of(load_rules(rules_folder(options.rules)))
    derived = 0
    start = time.monotonic()
    for rule in equations:
        begin = time.monotonic()
        found = derive_claim(
            rule, database, options.steps, options.seed, infer=not options.no_infer
        )
        derived += isinstance(found, Derived)
        if not options.quiet:
            full = len(equations) == 1 or options.verbose
            lines = report(rule, found) if full else [row(rule, found)]
            print(f"{lines[0]} ({time.monotonic() - begin:.2f} s)", *lines[1:], sep="\n")
    if len(equations) > 1 and not options.quiet:
        seconds = time.monotonic() - start
        print(f"{derived} of {len(equations)} equations derived in {seconds:.2f} s")
    return ExitCode.OK if derived == len(equations) else ExitCode.NOT_DERIVED


def row(rule: Rule, found: Derived | NotDerived) -> str:
    """One line for an equation of many."""
    from xflow.generator.saturation.derivation import NotDerived

    if isinstance(found, NotDerived):
        return f"not derived  {rule.name}: {found.reason}"
    return f"{counted(found.steps, 'step'):<11}  {rule.name}: {', '.join(found.rules)}"


def report(rule: Rule, found: Derived | NotDerived) -> list[str]:
    """Everything about one equation, line by line."""
    from xflow.generator.saturation.derivation import NotDerived

    facts = [("in", rule.inputs), ("from", rule.lhs), ("to", rule.rhs)]
    if isinstance(found, NotDerived):
        return ["not derived", *labelled([*facts, ("reason", found.reason)])]
    shapes = (f"{name}{list(value.shape)}" for name, value in found.inputs.items())
    facts += [("where", ", ".join(found.where))] if found.where else []
    facts += [("shown for", " ".join(shapes))]
    return [
        f"derived in {counted(found.steps, 'step')} by {counted(len(found.rules), 'rule')}",
        *labelled(facts),
        *(line for number in range(len(found.chains)) for line in steps(number, found)),
    ]


def steps(number: int, found: Derived) -> Iterator[str]:
    """The derivation of one output: the terms, and below each what was applied."""
    chain = found.chains[number]
    if len(found.chains) > 1:
        yield f"  output {number}"
    if not chain:
        yield "    both sides are the same"
        return
    yield f"    {chain[0].before}"
    for step in chain:
        yield f"  = {step.after}"
        yield f"      by {step.rule or 'arithmetic: the order of terms, or numbers'}"


def labelled(facts: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Lines of a label and a text each."""
    return (f"  {label:<11}{text}" for label, text in facts)
