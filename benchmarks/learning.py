"""Rules that models need and the database lacks: how many of those deleted are learned again.

Rules that the search by estimate uses on the benchmark's models are deleted, chosen at random, and
learned from these models alone. A deleted rule is back if it follows from what is left and what was
learned. Which follow from what is left is said, too.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import xflow
from run import STATIC, prepare, stored
from xflow.generator.database.naming import single
from xflow.generator.database.publish import Page, publish
from xflow.generator.derive import Kept
from xflow.generator.learning.run import learn
from xflow.generator.saturation.derivation import Derived, derive_claim
from xflow.generator.saturation.directions import Database
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules


def used_by(model: Path, budget: float) -> set[str]:
    """The names of the rules that lead from a model to its best form by estimate."""
    result = xflow.optimize(model, cost="estimated", budget=budget, threads=1, check=1)
    return {use.name.removesuffix(".reverse") for use in result.report.rules}


def without(names: Sequence[str], folder: Path) -> list[Rule]:
    """The database less some rules; written to `folder`."""
    rules = [rule for rule in load_rules(default_directory()) if rule.name not in names]
    stanzas = [single(Kept(rule, {})) for rule in rules]
    publish(folder, {"known": Page("rules that are left", stanzas)})
    return rules


def follows(rule: Rule, rules: Database) -> str:
    """By what a rule follows, in words."""
    found = derive_claim(rule, rules)
    return f"in {found.steps} by {', '.join(found.rules)}" if isinstance(found, Derived) else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what became of each deleted rule; 1 if fewer than eight of ten are back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME", help="(all)")
    parser.add_argument("--delete", type=int, default=10, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the choice (0)")
    parser.add_argument("--budget", type=float, default=60.0, metavar="S", help="of each search")
    parser.add_argument("--minutes", type=float, metavar="N", help="of learning (no limit)")
    options = parser.parse_args(arguments)
    known = {rule.name: rule for rule in load_rules(default_directory())}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        paths = {name: folder / f"{name}.onnx" for name in options.models or stored(STATIC)}
        for name, path in paths.items():
            prepare(name, path)
        used = {name: used_by(path, options.budget) for name, path in paths.items()}
        names = sorted(set().union(*used.values()) & set(known))
        deleted = random.Random(options.seed).sample(names, options.delete)
        rest = without(deleted, folder / "rest")
        needed = [paths[name] for name in paths if used[name] & set(deleted)]
        found = learn(needed, folder / "out", base=folder / "rest", minutes=options.minutes)
        learned = [item.rule for item in found.kept]
    print(
        f"{len(names)} rules used, {len(deleted)} deleted, {len(learned)} learned "
        f"from {len(needed)} models in {found.seconds / 60:.0f} min"
    )
    back, left = 0, Database.of(rest)
    more = left.joined(Database.of(learned))
    for name in deleted:
        alone, together = follows(known[name], left), follows(known[name], more)
        back += together != "-"
        print(f"{name}: from the rest {alone}; with what was learned {together}")
    print(f"{back} of {len(deleted)} are back")
    return 0 if 10 * back >= 8 * len(deleted) else 1


if __name__ == "__main__":
    raise SystemExit(main())
