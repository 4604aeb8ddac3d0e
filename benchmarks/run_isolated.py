#!/usr/bin/env python3
"""Optimize the isolated graphs of `isolated/` and hold the results against the ones made by hand.

For each graph the table says two things apart.  *Derivable*: whether the rules lead from the graph
to the hand-made form at all, in how many steps, whatever anything costs.  *Found*: what became of
it in `xflow.optimize`:

    same       the hand-made form, up to how its weights are computed
    as fast    another form that reaches 0.9 of the hand-made one's gain in speed or more; with
               --estimated, another one that the estimate calls no dearer
    no         anything else

Both forms and the result are timed by `judge.py`, on one thread, alternately and in passes with
fresh sessions.  The machine is calibrated first.  Exits with 1 if a result is wrong or the two
forms of a graph do not agree.

    python run_isolated.py [NAME ...] [--rules DIR] [--estimated] [--budget SECONDS] [--cache FILE]
"""

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from rich.console import Console

import xflow
from isolated import CASES, Case
from isolated.chains import chain
from isolated.forms import form
from judge import TOLERANCE, error, judge, load
from run import machine, write_results
from xflow.core.deadline import Deadline
from xflow.core.fold import with_expressions
from xflow.cost.calibration.calibrate import calibrated
from xflow.cost.estimate import EstimatedCost, Estimator
from xflow.cost.measure import Measurer, Target
from xflow.cost.store import Platform, Store
from xflow.cost.target import TargetModel
from xflow.feeds.inputs import random_inputs
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.rewriting.domains import within
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.context import Context
from xflow.search.driver import search
from xflow.search.policy import POLICY

HERE = Path(__file__).resolve().parent
THREADS = 1
SHARE = 0.9
"""The part of the hand-made form's ratio that counts as reaching it."""
DERIVING_S = 4.0
"""Seconds after which no chain of rules is looked for any longer."""
UNCHANGED = {"wrong": "", "ratio": 1.0, "low": 1.0, "high": 1.0}


@dataclass(frozen=True)
class Row:
    """The results for one graph. Verdicts are those of `judge.py`, empty where nothing is timed.

    `chain` are the rules that lead to the hand-made form, None where none were found; `rules`
    those that the search applied.
    """

    name: str
    item: str
    failure: str = ""
    chain: tuple[str, ...] | None = None
    found: str = "no"
    rules: tuple[str, ...] = ()
    by_hand: dict[str, Any] = dataclasses.field(default_factory=dict)
    by_xflow: dict[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The output of xflow for a graph; `model` is None where nothing was timed."""

    form: Hashable
    rules: tuple[str, ...]
    model: ir.Model | None = None
    seconds: float = 0.0
    """By the estimate."""


class Runner:
    """Takes graphs through everything, with one set of rules and options."""

    def __init__(self, rules: Sequence[Rule], options: argparse.Namespace) -> None:
        self.rules = within(rules, "onnx")
        self.index = RuleIndex(rules)
        self.options = options
        self.cost = EstimatedCost(Estimator(TargetModel(threads=THREADS)))

    def run(self, case: Case) -> Row:
        """The row of one graph."""
        start = time.monotonic()
        plain, by_hand = case.models()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            before, best = folder / "plain.onnx", folder / "by_hand.onnx"
            onnx.save(plain, before)
            onnx.save(by_hand, best)
            row = Row(case.name, case.item, difference(before, best))
            if not row.failure:
                row = self.measured(row, before, best, folder / "after.onnx")
        return dataclasses.replace(row, seconds=time.monotonic() - start)

    def measured(self, row: Row, before: Path, best: Path, after: Path) -> Row:
        """The row with the chain of rules that was found, and the result of xflow."""
        source, target = (import_model(ir.load(path)) for path in (before, best))
        goal = form(target.graph)
        outcome = self.estimated(source) if self.options.estimated else self.optimized(before)
        row = dataclasses.replace(row, rules=outcome.rules)
        if outcome.form == goal:
            row = dataclasses.replace(row, found="same", chain=outcome.rules)
        else:
            constants = with_expressions(source.constants, POLICY.told_apart)
            steps = chain(source.graph, goal, self.index, constants, seconds=DERIVING_S)
            row = dataclasses.replace(row, chain=steps)
            limit = self.cost.estimate(target.graph) * (1 + 1e-6)
            if self.options.estimated and outcome.rules and outcome.seconds <= limit:
                row = dataclasses.replace(row, found="as fast")
        if outcome.model is None:
            return row
        seconds = self.options.seconds
        by_hand = judge(before, best, THREADS, seconds=seconds)
        by_xflow: dict[str, Any] = dict(UNCHANGED)
        if outcome.rules:
            ir.save(outcome.model, after)
            by_xflow = judge(before, after, THREADS, seconds=seconds)
        row = dataclasses.replace(row, by_hand=by_hand, by_xflow=by_xflow)
        if failure := by_hand["wrong"] or by_xflow["wrong"]:
            return dataclasses.replace(row, failure=failure)
        if row.found == "no" and by_xflow["ratio"] >= SHARE * by_hand["ratio"]:
            row = dataclasses.replace(row, found="as fast")
        return row

    def optimized(self, before: Path) -> Outcome:
        """The result of `xflow.optimize` for a model."""
        result = xflow.optimize(
            before, rules=self.rules, budget=self.options.budget, threads=THREADS
        )
        rules = tuple(use.name for use in result.report.rules for _ in range(use.count))
        return Outcome(form(import_model(result.model).graph), rules, result.model)

    def estimated(self, source: Imported) -> Outcome:
        """The result of a search by the estimate alone for a graph."""
        found = search(
            source.graph,
            self.rules,
            self.cost,
            deadline=Deadline.after(self.options.budget),
            constants=source.constants,
            context=Context(opset=source.model.graph.opset_imports[""]),
        )
        rules = tuple(rule for item in found.replacements for rule in item.rules)
        return Outcome(form(found.graph), rules, seconds=self.cost.estimate(found.graph))


def difference(before: Path, after: Path) -> str:
    """In what the outputs of two models differ; empty if in nothing."""
    sessions = [load(path, THREADS, "cpu") for path in (before, after)]
    feeds = random_inputs(onnx.load(before), 7)
    worst = error(*(session.run(None, feeds) for session in sessions))
    return "" if worst <= TOLERANCE else f"the two forms differ by {worst:.2g}"


HEADER = ("graph", "by hand", "95 %", "xflow", "95 %", "derivable", "found", "rules applied")


def cells(row: Row) -> tuple[str, ...]:
    """The texts of one line of the table."""
    timed = [text for verdict in (row.by_hand, row.by_xflow) for text in _ratio(verdict)]
    steps = "no" if row.chain is None else f"{len(row.chain)} steps"
    return (row.name, *timed, steps, row.failure or row.found, ", ".join(row.rules))


def _ratio(verdict: dict[str, Any]) -> tuple[str, str]:
    if "ratio" not in verdict:
        return "", ""
    if verdict == UNCHANGED:
        return "1", "unchanged"
    return f"{verdict['ratio']:.2f}", f"{verdict['low']:.2f}-{verdict['high']:.2f}"


def summary(rows: Sequence[Row]) -> list[str]:
    """How many graphs are derivable and found, in all and for each item."""
    lines = []
    items = list(dict.fromkeys(row.item for row in rows))
    for title, part in [
        *((item, [row for row in rows if row.item == item]) for item in items),
        ("all", list(rows)),
    ]:
        derivable = sum(row.chain is not None for row in part)
        found = sum(row.found != "no" and not row.failure for row in part)
        lines.append(f"| {title} | {len(part)} | {derivable} | {found} |")
    return lines


def markdown(rows: Sequence[Row], options: argparse.Namespace) -> str:
    """The tables for a page: one line for each item, then one for each graph."""
    lines = [f"{machine(options)}. Budget {options.budget:g} s for each graph.", ""]
    lines += ["| rewrite | graphs | derivable | found |", "|---|---:|---:|---:|", *summary(rows)]
    lines += ["", f"| {' | '.join(HEADER)} |", "|---|---:|---:|---:|---:|---:|---|---|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def save(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Write the results as JSON and Markdown."""
    name = f"isolated-{options.provider}-{options.threads}-thread"
    write_results(name, markdown(rows, options), rows, options)


def main() -> int:
    """Read the arguments and run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="graphs, or parts of their names")
    parser.add_argument("--rules", type=Path, default=default_directory(), metavar="DIR")
    parser.add_argument("--estimated", action="store_true", help="time nothing")
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of search for each")
    parser.add_argument("--seconds", type=float, default=0.3, help="to time each form")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--cache", type=Path, help="costs measured before (default: none count)")
    parser.set_defaults(threads=THREADS, provider="cpu")
    options = parser.parse_args()
    names = options.names or [""]
    if unknown := [part for part in names if not any(part in name for name in CASES)]:
        parser.error(f"no such graph: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XFLOW_CACHE"] = str(options.cache or Path(folder) / "costs.sqlite")
        return run(options, names)


def calibrate(console: Console) -> None:
    """Measure this machine, as a user's first run does; say so where that is not possible now."""
    with Measurer(Target(threads=THREADS)) as measurer, Store() as store:
        place = Platform.of("cpu", THREADS, measurer.runtime_version)
        if calibrated(place, measurer, store) is None:
            console.print("The machine is busy: it is taken for an average one.", style="red")


def run(options: argparse.Namespace, names: Sequence[str]) -> int:
    """Take the graphs with one of `names` in theirs through everything; return the exit code."""
    console = Console(soft_wrap=True)
    if not options.estimated:
        calibrate(console)
    runner = Runner(load_rules(options.rules), options)
    rows: list[Row] = []
    for case in CASES.values():
        if any(part in case.name for part in names):
            rows.append(runner.run(case))
            console.print("  ".join(cells(rows[-1])), highlight=False)
    if not options.names and not options.estimated:
        save(rows, options)
    console.print("\n".join(("", "rewrite: graphs, derivable, found", *summary(rows))))
    return 1 if any(row.failure for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
