"""How the rules of an older database follow from those of today.

Which of them are there still, under their name or under another one, which follow from today's
rules, in how many steps of saturation and by which, and which do not. An older database is at hand
in the history of the repository: `git worktree add ../older REVISION`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

from xflow.generator.saturation.derivation import Derived, NotDerived, derive_claim
from xflow.generator.saturation.directions import Database
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules


@cache
def _database(directory: Path) -> Database:
    return Database.of(load_rules(directory))


def derived(rule: Rule, directory: Path, steps: int) -> Derived | NotDerived:
    """Whether a rule follows from those of a folder within so many steps."""
    return derive_claim(rule, _database(directory), steps)


def table(rules: Sequence[Rule], found: Sequence[Derived | NotDerived]) -> list[str]:
    """A table in Markdown: each rule that is gone, and what it follows from."""
    lines = ["| rule | steps | by |", "|---|---:|---|"]
    for rule, how in zip(rules, found, strict=True):
        if isinstance(how, Derived):
            lines.append(f"| {rule.name} | {how.steps} | {', '.join(how.rules)} |")
        else:
            lines.append(f"| {rule.name} | - | {how.reason} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the counts; 1 if a rule is neither there nor follows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("older", type=Path, metavar="DIR", help="folder of the older rules")
    parser.add_argument("--rules", type=Path, default=default_directory(), metavar="DIR")
    parser.add_argument("--steps", type=int, default=3, metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    options = parser.parse_args(arguments)
    older, today = load_rules(options.older), load_rules(options.rules)
    names = {rule.statement: rule.name for rule in today}
    renamed = [rule for rule in older if names.get(rule.statement, rule.name) != rule.name]
    gone = [rule for rule in older if rule.statement not in names]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(partial(derived, directory=options.rules, steps=options.steps), gone))
    counts = Counter(how.steps for how in found if isinstance(how, Derived))
    print(f"{len(older)} rules, {len(today)} today; {len(older) - len(gone)} are there still,")
    print(f"{len(renamed)} of these under another name; of {len(gone)} others follow")
    for steps, count in sorted(counts.items()):
        print(f"- in {steps} step{'s' if steps > 1 else ''}: {count}")
    print(f"- not within {options.steps}: {len(gone) - counts.total()}", end="\n\n")
    print("\n".join(table(gone, found)))
    if renamed:
        print("\n| name | name today |\n|---|---|")
        print("\n".join(f"| {rule.name} | {names[rule.statement]} |" for rule in renamed))
    return int(counts.total() < len(gone))


if __name__ == "__main__":
    raise SystemExit(main())
