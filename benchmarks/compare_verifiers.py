#!/usr/bin/env python3
"""Print a table that compares how systems know that their rewrites are right.

The rows of the others are figures that their authors published, each with its source; "not
stated" where the sources below do not say.  xflow's own row is measured: every rule of the folder
is proved again from its text, the certificates are checked by the second checker, and TASO's
axioms, restated as equations, are proved.  The table replaces what stands between the two marks
in the page.  Exits with 1 if a rule cannot be proved again.

    python compare_verifiers.py [--rules DIR] [--page FILE.md] [--jobs N] [--no-recheck]
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

from tables import put
from xflow.core.errors import XflowError
from xflow.cost.machine import processor_name, usable_cores
from xflow.ops import operators
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules
from xflow.verifier.database import verify_directory
from xflow.verifier.prove import Proved, prove
from xflow.verifier.recheck.database import Result, recheck_directory
from xflow.verifier.recheck.verdicts import Confirmed

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "verifier.md"
AXIOMS = HERE.parent / "tests" / "corpus" / "taso-axioms.rules"
MARK = "verifiers"
UNSTATED = "not stated"


@dataclass(frozen=True)
class Source:
    """The source of a figure: a text to search for, and the address."""

    place: str
    url: str


@dataclass(frozen=True)
class System:
    """One line of the table."""

    name: str
    operators: str
    sizes: str
    ranks: str
    axioms: str
    proved: str
    seconds: str
    check: str
    sources: tuple[Source, ...] = field(default=())


HEADER = (
    "system",
    "operators",
    "sizes covered",
    "ranks covered",
    "axioms needed",
    "rules proved",
    "seconds",
    "how checked",
)

TASO_PAPER = "https://doi.org/10.1145/3341301.3359630"
TASO_VERIFIER = "https://github.com/jiazhihao/TASO/blob/master/verify/verify.py"
TENSAT = "https://github.com/uwplse/tensat"
PET_PAPER = "https://www.usenix.org/conference/osdi21/presentation/wang"
TENSORRIGHT_PAPER = "https://doi.org/10.1145/3704865"
TENSORRIGHT_RULES = "https://github.com/ADAPT-uiuc/TensorRight/blob/main/rules/xla/dot/Main.hs"
TENSORRIGHT_SUMMARY = "https://www.sciencestack.ai/paper/2511.17838"
MIRAGE_PAPER = "https://arxiv.org/abs/2405.05751v3"
ONNXSIM = "https://github.com/daquexian/onnx-simplifier/blob/master/onnxsim/"

FOREIGN = (
    System(
        "TASO (SOSP 2019)",
        "12, and 4 constant tensors",
        "not modelled; the axioms are checked up to 4×4×4×4",
        "not modelled; the axioms are checked at 2 to 4 axes",
        "43, written by hand",
        "743 of 743",
        "under 600, given the axioms; checking these took about an hour on 128 cores",
        "Z3 derives each rule from the axioms; the axioms are executed symbolically on small "
        "tensors",
        (
            Source("the paper, sections 3 and 7.6", TASO_PAPER),
            Source("`operator_data` and the axioms' lists of shapes", TASO_VERIFIER),
        ),
    ),
    System(
        "Tensat (MLSys 2021)",
        "those of TASO's rules",
        "as TASO",
        "as TASO",
        "TASO's",
        UNSTATED,
        UNSTATED,
        "equality saturation with TASO's axioms, a re-implementation of TASO's `verify.py`",
        (Source("README", TENSAT),),
    ),
    System(
        "PET (OSDI 2021)",
        "multi-linear ones",
        "those of the program at hand",
        "that of the program at hand",
        "none",
        "none: it tests programs",
        UNSTATED,
        "random values modulo 2^31 - 1 at m + 1 places of each box of an output with m axes; a "
        "wrong program passes a test with probability at most n / p for n inputs",
        (Source("the paper, section 5, theorems 1 and 2", PET_PAPER),),
    ),
    System(
        "TensorRight (POPL 2025)",
        f"modelled on XLA-HLO; their number is {UNSTATED}",
        "all",
        "all",
        "none; the author of a rule relates the indices of the sums on both sides",
        "115 of 175 of XLA's algebraic simplifier",
        "most rules within 1",
        "symbolic execution up to a rank that is shown to suffice, and an SMT solver",
        (
            Source("the paper's abstract", TENSORRIGHT_PAPER),
            Source("`siRelation` in a rule", TENSORRIGHT_RULES),
            Source("the time, from a summary of the paper", TENSORRIGHT_SUMMARY),
        ),
    ),
    System(
        "Mirage (OSDI 2025)",
        "multi-linear ones, division, and one exponential on a path (LAX)",
        "those of the program at hand",
        "that of the program at hand",
        "none",
        "none: it tests programs",
        UNSTATED,
        "random values in two finite fields; the probability that a wrong program passes can be "
        "made as small as wanted",
        (Source("the paper, section 5, definition 5.1, theorems 2 and 3", MIRAGE_PAPER),),
    ),
    System(
        "onnxsim",
        "any, rewritten by passes written by hand",
        "those of one model, given shapes for its inputs",
        "that of the model at hand",
        "none",
        "none: it tests models",
        UNSTATED,
        "both models run on random inputs, compared with rtol 1e-4 and atol 1e-5; `check_n` says "
        "how often, by default 0 times",
        (
            Source("`compare`", f"{ONNXSIM}model_checking.py"),
            Source("`simplify`", f"{ONNXSIM}onnx_simplifier.py"),
        ),
    ),
)


def rank_words(rules: Sequence[Rule]) -> str:
    """Say at which ranks the rules are proved."""
    anyhow = sum(rule.instance(rule.ranks[0]).broadcast for rule in rules)
    spatial = [rule for rule in rules if rule.ranks != (0,)]
    highest = max((rank for rule in rules for rank in rule.ranks), default=0)
    return (
        f"{anyhow} rules at every rank, with broadcasting; {len(spatial)} at up to {highest} axes "
        f"of each starred vector; {len(rules) - anyhow - len(spatial)} at the ranks written out"
    )


def unconfirmed_words(results: Sequence[Result]) -> str:
    """Say which rules the second checker did not confirm, by cause; empty if it did all."""
    causes: dict[str, list[str]] = {}
    for result in results:
        if not isinstance(result.verdict, Confirmed):
            cause = str(result.verdict).partition(": nothing shows")[0]
            causes.setdefault(cause, []).append(f"`{result.rule_name}`")
    lines = [f"- {cause}: {', '.join(names)}" for cause, names in sorted(causes.items())]
    return "\n".join(["What the second checker says of the others:", "", *lines]) if lines else ""


def own_row(folder: Path, jobs: int, recheck: bool) -> tuple[System, str, list[str]]:
    """Prove the rules of a folder again; return xflow's line, a note, and what failed."""
    rules = load_rules(folder)
    start = time.monotonic()
    failures = [str(failure) for failure in verify_directory(folder, jobs=jobs)]
    seconds = time.monotonic() - start
    check = (
        "normal forms over all sizes; Z3 answers the integer questions; every proof is compared "
        "with evaluation at random sizes"
    )
    results: list[Result] = []
    if recheck:
        start = time.monotonic()
        results = recheck_directory(folder, jobs=jobs)
        confirmed = sum(isinstance(result.verdict, Confirmed) for result in results)
        check += (
            f"; a second checker with a second solver confirmed {confirmed} of {len(results)} "
            f"certificates in {time.monotonic() - start:.0f} s"
        )
    directions = sum(len(rule.directions()) for rule in rules)
    row = System(
        "xflow",
        str(sum(not op.schematic for op in operators())),
        "all that satisfy the rule's conditions",
        rank_words(rules),
        "none",
        f"{len(rules) - len(failures)} of {len(rules)}, in {directions} directions",
        f"{seconds:.0f} on {jobs} processes",
        check,
    )
    return row, unconfirmed_words(results), failures


def axioms_line(path: Path) -> str:
    """Prove TASO's axioms, and say how that went; empty where the file is not there."""
    if not path.exists():
        return ""
    rules = parse_rules(path.read_text(encoding="utf-8"), str(path))
    start = time.monotonic()
    verdicts = [prove(rule, both_ways=False) for rule in rules]
    seconds = time.monotonic() - start
    proved = sum(isinstance(verdict, Proved) for verdict in verdicts)
    return (
        f"TASO's axioms, restated as {len(rules)} equations at all sizes, are theorems here: "
        f"{proved} proved in {seconds:.1f} s on one process."
    )


def markdown(rows: Sequence[System], notes: Sequence[str]) -> str:
    """Return the table, the sources of each figure, and the notes."""
    lines = [f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
    numbers: dict[Source, int] = {}
    for row in rows:
        cells = list(astuple(row)[: len(HEADER)])
        for source in row.sources:
            numbers.setdefault(source, len(numbers) + 1)
        if row.sources:
            cells[0] += f" [{', '.join(str(numbers[source]) for source in row.sources)}]"
        lines.append(f"| {' | '.join(cells)} |")
    for note in notes:
        lines += ["", note]
    lines += ["", "Sources:", ""]
    lines += [f"{number}. {source.place}: <{source.url}>" for source, number in numbers.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and put it into the page; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rules", type=Path, default=default_directory())
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--axioms", type=Path, default=AXIOMS)
    parser.add_argument("--jobs", type=int, default=usable_cores())
    parser.add_argument("--no-recheck", action="store_true", help="leave the second checker out")
    options = parser.parse_args(arguments)
    try:
        row, unconfirmed, failures = own_row(options.rules, options.jobs, not options.no_recheck)
        notes = [
            f"xflow's line was measured on {processor_name()}; the others' figures are their "
            "authors', on other machines.",
            axioms_line(options.axioms),
            unconfirmed,
        ]
        table = markdown((*FOREIGN, row), [note for note in notes if note])
        print(table)
        put(options.page, MARK, table)
    except (XflowError, OSError, ValueError) as error:
        print(f"compare_verifiers: {error}", file=sys.stderr)
        return 1
    for failure in failures:
        print(f"compare_verifiers: {failure}", file=sys.stderr)
    return 1 if failures else 0


assert len(HEADER) == len(fields(System)) - 1  # all but the sources

if __name__ == "__main__":
    sys.exit(main())
