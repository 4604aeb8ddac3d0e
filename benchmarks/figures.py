#!/usr/bin/env python3
"""Put what the benchmark and the generator have written into the README, between its marks.

    python figures.py [--bench results/cpu-2-threads.json] [--generation REPORT.json] [--page FILE]

And what the rules of the database need into docs/verifier.md, or the page of ``--needs``.  The
report is what `xflow rules generate --report REPORT.json` writes.  Exits with 1 if a file
cannot be read, or the page has no such marks.
"""

import argparse
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tables import Row, means, put, rows_of, table
from tools import VARIANTS, XFLOW
from xflow.core.value_conditions import FINITE, SIGNS, fact_of
from xflow.rewriting.rule import BITS, NUMBERS, Rule
from xflow.rewriting.store import default_directory, load_rules

HERE = Path(__file__).resolve().parent
BENCH = HERE / "results" / "cpu-2-threads.json"
README = HERE.parent / "README.md"
VERIFIER = HERE.parent / "docs" / "verifier.md"
FLOAT = "FLOAT"
WIDTH = 104
"""Columns of the page."""


def _told(text: str) -> str:
    """Text as the page has it: in lines, and with a space between a number and what it counts."""
    return textwrap.fill(text.replace("%", " %"), WIDTH, break_on_hyphens=False)


def exported(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of exported models by name, which is what the README speaks of.

    Networks that were built after papers have means of their own, on the page of the results.
    """
    return sorted((row for row in rows if not row.is_built), key=lambda row: row.model)


def _peers(rows: Sequence[Row]) -> list[str]:
    return [made.tool for made in rows[0].attempts if made.tool not in VARIANTS]


def _means(rows: Sequence[Row]) -> dict[str, float]:
    return means(rows, [XFLOW, *_peers(rows)])["exported"]


def _unchanged(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.attempt(XFLOW).is_unchanged]


def bench_block(rows: Sequence[Row]) -> str:
    """Return the table of the models that became another one, and what the others are."""
    peers, mean, others = _peers(rows), _means(rows), _unchanged(rows)
    lines = [
        (
            row.model,
            f"{row.nodes_before} > {row.nodes_after}",
            f"{(row.before_s or 0) * 1e3:.1f}",
            f"{row.attempt(XFLOW).gain:.3f}",
            f"{row.attempt(XFLOW).low:.3f} to {row.attempt(XFLOW).high:.3f}",
            _best(row, peers),
        )
        for row in rows
        if row not in others
    ]
    if others:
        most = max((row.attempt(tool).gain for row in others for tool in peers), default=1.0)
        lines.append((f"{len(others)} others", "unchanged", "", "1", "", f"{most:.3f} at most"))
    text = table(("model", "operators", "ms", "xflow", "95 %", "best peer"), lines)
    told = f"The geometric mean over all {len(rows)} is {mean[XFLOW]:.3f}"
    if peers:
        told += (
            f"; that of the best of {len(peers)} other tools, picked for each model after timing, "
            f"is {mean['best peer']:.3f}"
        )
    told += "."
    if others:
        kernels = sorted(1 - (row.headroom or 0.0) for row in others)
        names = ", ".join(row.model for row in others)
        told += (
            f" Unchanged: {names}, of whose time {kernels[0]:.0%} to {kernels[-1]:.0%} are "
            "convolutions and matrix products."
        )
    return "\n".join((*text, "", _told(told)))


def _best(row: Row, peers: Sequence[str]) -> str:
    """The best of the peers and its name, `1` where none is faster than the original."""
    best = max(peers, key=lambda tool: row.attempt(tool).gain, default="")
    gain = row.attempt(best).gain if best else 1.0
    return f"{gain:.3f} ({best})" if gain >= 1.0005 else "1"


def summary(rows: Sequence[Row]) -> str:
    """Return the figures of all models in one sentence."""
    peers, mean, others = _peers(rows), _means(rows), _unchanged(rows)
    told = (
        f"{len(rows)} real architectures, on 2 cores of a CPU, are {mean[XFLOW]:.3f} times as fast"
        " in the geometric mean,"
    )
    if others:
        told += f" from 1 for the {len(others)} that are given back unchanged"
    told += f" to {max(row.attempt(XFLOW).gain for row in rows):.3f}"
    if peers:
        told += (
            f"; the best of {len(peers)} other tools, picked for each, makes "
            f"{mean['best peer']:.3f} in the same run"
        )
    return _told(f"{told} ([figures](#figures)).")


COLUMNS = ("family", "graphs", "proposed", "proved", "in the base", "searched", "seconds")


def rules_block(report: Mapping[str, Any]) -> str:
    """Return the table of the families of rules, and what became of all that was proposed."""
    families = report["families"]
    lines = [
        (family["family"], *_counts(family), f"{family['seconds']:.0f}") for family in families
    ]
    keys = ("graphs", "proposed", "proved", "kept", "shortcuts", "gaps", "refuted", "unknown")
    total = {key: sum(family[key] for family in families) for key in keys}
    lines.append(("all", *_counts(total), f"{report['busy_seconds']:,.0f}"))
    minutes, seconds = divmod(round(report["seconds"]), 60)
    told = (
        f"The {total['kept']:,} rules are written in {report['stanzas']:,} stanzas. "
        f"{total['refuted']} of the rules that were tried were refuted "
        f"({report['false_rate']:.1%}), and {total['unknown']} "
        f"({total['unknown'] / total['proposed']:.2%} of what was proposed) are neither proved nor "
        "refuted: [rules/unknown](rules/unknown) lists them by cause. Of the others, most follow "
        f"from rules that were kept before; {total['proved'] - total['kept']:,} were proved and "
        "dropped, since they follow from others without a detour. The seconds are of processor "
        f"time; the run took {minutes} min {seconds} s and {report['peak_memory'] / 1e9:.1f} GB on "
        f"{report['workers']} processes."
    )
    return "\n".join((*table(COLUMNS, lines), "", _told(told)))


def _counts(counted: Mapping[str, int]) -> tuple[str, ...]:
    base = counted["kept"] - counted["shortcuts"]
    searched = counted["kept"] - counted["gaps"]
    numbers = (counted["graphs"], counted["proposed"], counted["proved"], base, searched)
    return tuple(f"{number:,}" if number else "-" for number in numbers)


NEEDS: Mapping[str, Callable[[Rule, Set[str]], bool]] = {
    "nothing: the sides agree to the bit": lambda d, _: d.exact == BITS,
    "nothing": lambda _, needs: not needs,
    "inputs without NaN and +inf (`m < inf`)": lambda _, needs: FINITE not in needs,
    "inputs that are numbers (`finite(x)`)": lambda *_: True,
}
"""Needs of directions of rules, of which the first that applies counts."""


def needs_block(rules: Sequence[Rule]) -> str:
    """Return the table of what the directions of rules need of the elements of their inputs."""
    count: Counter[tuple[str, str]] = Counter()
    refused = 0
    for rule in [direction for each in rules for direction in each.directions()]:
        if rule.numerics is not None and FLOAT in rule.numerics.refused:
            refused += 1
            continue
        facts = [fact_of(text, rule.value_names) for text in rule.where]
        needs = {fact.relation for fact in facts if fact and fact.relation not in SIGNS}
        need = next(name for name, is_so in NEEDS.items() if is_so(rule, needs))
        count[need, rule.exact or ""] += 1
    lines = [
        (need, *(f"{count[need, exact]:,}" for exact in (BITS, NUMBERS, ""))) for need in NEEDS
    ]
    columns = ("a direction needs", "equal to the bit", "no operation rounds", "up to rounding")
    told = (
        f"These are {sum(count.values()):,} directions; {refused} more are refused in all element "
        "types for what rounding does to them."
    )
    return "\n".join((*table(columns, lines), "", _told(told)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Put the figures into the page; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bench", type=Path, metavar="FILE.json", default=BENCH)
    parser.add_argument("--generation", type=Path, metavar="REPORT.json")
    parser.add_argument("--page", type=Path, metavar="FILE", default=README)
    parser.add_argument("--needs", type=Path, metavar="FILE", default=VERIFIER)
    options = parser.parse_args(arguments)
    try:
        rows = exported(rows_of(json.loads(options.bench.read_text())))
        put(options.page, "summary", summary(rows))
        put(options.page, "bench", bench_block(rows))
        put(options.needs, "needs", needs_block(load_rules(default_directory())))
        if options.generation is not None:
            report = json.loads(options.generation.read_text())
            put(options.page, "generation", rules_block(report))
    except (OSError, ValueError) as error:
        print(f"figures: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
