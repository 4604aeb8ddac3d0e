"""Recall: how much of a published list of rewrites the rules of a folder contain.

For each of TASO's distinct sound substitutions: is it among the rules up to renaming and
generalisation, which is to follow in one step of saturation, or does it follow in two, three or
four, and by which rules? Where a substitution needs a condition, the verifier finds it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import taso
from xflow.generator.saturation.derivation import Derived, NotDerived, derive_claim
from xflow.generator.saturation.directions import Database
from xflow.rewriting.store import default_directory, load_rules

WANTED = {3: 118, 4: 120}
"""How many substitutions are to follow within so many steps."""


@dataclass(frozen=True)
class Line:
    """The result for one substitution."""

    shipped: taso.Shipped
    found: Derived | NotDerived
    seconds: float

    @property
    def steps(self) -> int | None:
        """Steps of saturation; 0 where both sides are written alike."""
        return self.found.steps if isinstance(self.found, Derived) else None


def measure(database: Database, shipped: taso.Shipped, steps: int) -> Line:
    """Look for a derivation of one substitution."""
    start = time.perf_counter()
    found = derive_claim(shipped.rule, database, steps)
    return Line(shipped, found, time.perf_counter() - start)


def within(lines: Sequence[Line], steps: int) -> int:
    """How many substitutions follow within so many steps."""
    return sum(line.steps is not None and line.steps <= steps for line in lines)


def render(lines: Sequence[Line]) -> Table:
    """The table of all substitutions."""
    table = Table("rule", "steps", "by", "where", "s", box=box.SIMPLE_HEAD)
    for line in lines:
        found = line.found
        by = ", ".join(found.rules) if isinstance(found, Derived) else found.reason
        where = ", ".join(found.where) if isinstance(found, Derived) else ""
        steps = "-" if line.steps is None else str(line.steps)
        table.add_row(line.shipped.rule.name, steps, by, where, f"{line.seconds:.2f}")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the counts; 1 if fewer follow than are wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=Path, default=default_directory(), metavar="DIR")
    parser.add_argument("--steps", type=int, default=4, metavar="N")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER")
    options = parser.parse_args(arguments)
    database = Database.of(load_rules(options.rules))
    chosen = [s for s in taso.distinct_sound() if not options.only or s.number in options.only]
    start = time.perf_counter()
    lines = [measure(database, shipped, options.steps) for shipped in chosen]
    seconds = time.perf_counter() - start
    Console(width=160).print(render(lines))
    uses = Counter(name for line in lines if line.steps for name in line.found.rules)  # type: ignore[union-attr]
    print(f"{len(lines)} equations, {len(uses)} rules used, {seconds:.1f} s")
    for steps in range(1, options.steps + 1):
        print(f"within {steps} step{'s' if steps > 1 else ''}: {within(lines, steps)}")
    if options.only:
        return 0
    return int(any(within(lines, steps) < wanted for steps, wanted in WANTED.items()))


if __name__ == "__main__":
    raise SystemExit(main())
