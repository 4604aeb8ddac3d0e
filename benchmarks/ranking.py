#!/usr/bin/env python3
"""Say how well each tier of the cost ranks: Kendall's tau against what whole models take.

From each model come some dozens of variants: the model with one region, and all that are equal to
it, in another form that the search has visited. Every variant is timed as a whole model,
interleaved with the original, and what it takes more or less is held against what is predicted

    default      by the estimate with its default numbers
    calibrated   by the estimate calibrated to this machine
    regions      by timing one rewritten region alone, in its neighbourhood
    FLOPs        by the arithmetic, which is no proxy

Tau is 1 where the order is the same, -1 where it is reversed, and about 0 where the two have
nothing to do with each other. Many variants take as long as the original, as far as one can tell,
and what noise decides no cost can predict: in brackets stands tau over those that are told apart.

    python ranking.py [MODEL ...] [--all] [--variants N] [--threads N] [--provider cpu|cuda]
"""

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx_ir as ir
from rich.console import Console
from scipy.stats import kendalltau

from run import HERE, STORED, machine, prepare, write_results
from tables import decimals, two_medians
from xflow.core.deadline import Deadline
from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.registry import Operator
from xflow.core.size import Size, free_symbols, substitute
from xflow.cost.calibration.calibrate import calibrated
from xflow.cost.comparison import Comparison, Timing
from xflow.cost.estimate import Estimator
from xflow.cost.machine import usable_cores
from xflow.cost.measure import Measurer, Target
from xflow.cost.model import Costs
from xflow.cost.store import Platform, Store
from xflow.cost.target import TargetModel
from xflow.cost.worker import Failed
from xflow.feeds.inputs import default_shapes
from xflow.onnx.exporter import export_model
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.types import interface
from xflow.onnx.writer import UnwritableError
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.replacement import Replacement, apply_replacements
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.backtrack import Explorer, Limits
from xflow.search.constants import Constants
from xflow.search.context import Context
from xflow.search.cutting import cut
from xflow.search.region import Region
from xflow.search.states import State
from xflow.validation.validate import write_temporary

DEFAULT = ("squeezenet1_1", "mobilenetv3_large_100", "repvgg_a0", "vit_small_patch16_224")
COSTS = ("default", "calibrated", "regions", "FLOPs")
TOGETHER = 5
"""Variants that are loaded at a time, besides the original."""
PASSES = 2
"""How often they are loaded: two sessions of one model differ for as long as they live."""
LOADING_S = 120.0
KEPT = 200
"""Forms of a region that the variants are drawn from."""
LEAST = 5
"""Variants of which an order says something."""
SAME = 7
"""Decimals of a second to which equal estimates agree."""
REGION_S = 0.5
"""Seconds for timing a region against another form of it."""


@dataclass(frozen=True)
class Variant:
    """A model with equal regions replaced, and what is predicted and measured of it.

    Both are what it takes more than the original: seconds, operations for FLOPs; `low` to `high`
    is the 95 % confidence interval of original / variant.
    """

    rules: tuple[str, ...]
    predicted: Mapping[str, float]
    measured: float
    low: float
    high: float

    @property
    def is_apart(self) -> bool:
        """Whether it differs measurably from the original."""
        return not self.low <= 1.0 <= self.high


@dataclass(frozen=True)
class Row:
    """How well each cost ranks the variants of a model; `apart` are the `taus` of those alone."""

    model: str
    variants: tuple[Variant, ...]
    taus: Mapping[str, float | None]
    apart: Mapping[str, float | None]
    seconds: float

    @classmethod
    def of(cls, model: str, variants: Sequence[Variant], seconds: float) -> "Row":
        """The row of a model."""
        apart = [variant for variant in variants if variant.is_apart]
        return cls(
            model,
            tuple(variants),
            {cost: tau(variants, cost) for cost in COSTS},
            {cost: tau(apart, cost) for cost in COSTS},
            seconds,
        )


def tau(variants: Sequence[Variant], cost: str) -> float | None:
    """Kendall's tau-b of predicted and measured, the original among them.

    None where there is nothing to rank: hardly any variants, or all predicted to be the same.
    """
    predicted = [0.0, *(variant.predicted[cost] for variant in variants)]
    measured = [0.0, *(variant.measured for variant in variants)]
    if len(variants) < LEAST or len(set(predicted)) < 2:
        return None
    return float(kendalltau(predicted, measured).statistic)


class Ranking:
    """Draws the variants of one model, prices them and times them."""

    def __init__(
        self,
        path: Path,
        rules: Sequence[Rule],
        measurer: Measurer,
        store: Store,
        options: argparse.Namespace,
    ) -> None:
        self.path = path
        self.options = options
        self.measurer = measurer
        self.imported: Imported = import_model(ir.load(path))
        self.graph = self.imported.graph
        self.sizes = self.imported.sizes(default_shapes(interface(self.imported.model)))
        self.opset = self.imported.model.graph.opset_imports.get("", 20)
        self.index = RuleIndex(rules)
        threads = options.threads
        place = Platform.of(options.provider, threads, measurer.runtime_version)
        self.guide = Estimator(TargetModel(threads=threads))
        self.estimators = {
            "default": self.guide,
            "calibrated": Estimator(calibrated(place, measurer, store)),
        }
        self.costs = Costs(
            measurer, store, self.imported.constants, sizes=self.sizes, opset=self.opset
        )

    def variants(self) -> list[Variant]:
        """The variants that could be priced and timed."""
        found: list[tuple[tuple[str, ...], Graph, dict[str, float]]] = []
        for regions, original, state in self.drawn():
            if len(found) == self.options.variants:
                break
            graph = self.replaced(regions, state)
            if graph is None:
                continue
            predicted = self.predicted(regions, original, state, graph)
            if predicted is not None:
                found.append((state.path, graph, predicted))
        timed: list[Variant] = []
        for start in range(0, len(found), TOGETHER):
            batch = found[start : start + TOGETHER]
            results = self.timed([graph for _, graph, _ in batch])
            for (rules, _, predicted), result in zip(batch, results, strict=True):
                if result is not None:
                    timed.append(Variant(rules, predicted, *result))
        return timed

    def drawn(self) -> Iterator[tuple[Sequence[Region], State, State]]:
        """Forms that the search visits, in random order, of one region after the other in turns.

        Each with all the regions that are equal up to weights and names.
        """
        constants = Constants(self.imported.constants)
        draw = random.Random(self.options.seed)
        groups: defaultdict[object, list[Region]] = defaultdict(list)
        for region in cut(self.graph, constants, layouts=self.guide):
            groups[region.key].append(region)
        waiting: list[tuple[Sequence[Region], State, list[State]]] = []
        deadline = Deadline.after(self.options.budget)
        for number, group in enumerate(groups.values()):
            region = group[0]
            limits = Limits(deadline=deadline.part(1 / (len(groups) - number)))
            explorer = Explorer(
                self.index,
                partial(self.guide, uses=region.uses),
                constants.of(region),
                limits,
                Context(seed=self.options.seed, opset=self.opset),
                layout=self.guide.target.layout,
            )
            original, *found = explorer.explore(region.graph, KEPT)
            # Of forms that the estimate calls equal one says as much as all of them.
            others = list({round(state.cost, SAME): state for state in found}.values())
            draw.shuffle(others)
            waiting.append((group, original, others))
        draw.shuffle(waiting)
        while waiting:
            for regions, original, others in waiting:
                if others:
                    yield regions, original, others.pop()
            waiting = [item for item in waiting if item[2]]

    def replaced(self, regions: Sequence[Region], state: State) -> Graph | None:
        """The whole graph with regions in another form; None if it has no ONNX form."""
        outputs = state.graph.outputs
        made = [
            Replacement(region.outputs, region.instantiate(outputs), state.path, 0.0)
            for region in reversed(regions)
        ]
        try:
            graph = apply_replacements(self.graph, made)
            export_model(self.imported, graph)
        except (ShapeError, UnwritableError):
            return None
        return graph

    def predicted(
        self, regions: Sequence[Region], original: State, state: State, graph: Graph
    ) -> dict[str, float] | None:
        """The difference to the original by each cost; None if a region cannot be timed."""
        forms = [regions[0].in_place(each.graph.outputs) for each in (original, state)]
        before, after = self.costs.measure(forms, REGION_S)
        if before is None or after is None:
            return None
        found = {
            name: estimate(graph) - estimate(self.graph)
            for name, estimate in self.estimators.items()
        }
        return {
            **found,
            "regions": (after - before) * len(regions),
            "FLOPs": self.flops(graph) - self.flops(self.graph),
        }

    def flops(self, graph: Graph) -> float:
        """The arithmetic of a graph, with nothing known of the runtime."""
        total: Size = 0
        for node in graph.nodes:
            if isinstance(node.op, Operator) and not node.constant:
                shapes = [value.shape for value in node.inputs]
                total += node.op.flops(shapes, node.attributes, [t.shape for t in node.types])
        total = substitute(total, self.sizes)
        total = substitute(
            total, dict.fromkeys(free_symbols(total), self.guide.target.unknown_size)
        )
        assert isinstance(total, int)
        return float(total)

    def timed(self, graphs: Sequence[Graph]) -> list[tuple[float, float, float] | None]:
        """The seconds that each graph takes more than the original, and the ratio's interval."""
        with tempfile.TemporaryDirectory() as name:
            paths = [Path(name) / f"{number}.onnx" for number in range(len(graphs))]
            for graph, path in zip(graphs, paths, strict=True):
                write_temporary(export_model(self.imported, graph), path)
            passes = []
            for number in range(PASSES):
                models = [self.path, *paths]
                order = models if number % 2 == 0 else models[::-1]
                results = self.measurer.time_together(
                    order, self.options.seconds, seed=number, deadline=Deadline.after(LOADING_S)
                )
                passes.append(dict(zip(order, results, strict=True)))
        return [
            self.difference([(each[self.path], each[path]) for each in passes]) for path in paths
        ]

    def difference(
        self, passes: Sequence[tuple[Timing | Failed, Timing | Failed]]
    ) -> tuple[float, float, float] | None:
        """Seconds that a variant takes more, and the ratio's interval."""
        pairs = [
            (before, after)
            for before, after in passes
            if isinstance(before, Timing) and isinstance(after, Timing)
        ]
        if len(pairs) < len(passes):
            return None
        found = Comparison.over(pairs, self.options.seed)
        return found.before.median * (1 / found.ratio - 1), found.low, found.high


def cells(row: Row) -> tuple[str, ...]:
    """The texts of one line of the table."""
    texts = (f"{decimals(row.taus[cost])} ({decimals(row.apart[cost])})" for cost in COSTS)
    return (row.model, *_counts([row]), *texts)


def medians(rows: Sequence[Row]) -> tuple[str, ...]:
    """The texts of the last line: over all models for which there is something to rank."""
    texts = (
        two_medians((row.taus[cost] for row in rows), (row.apart[cost] for row in rows))
        for cost in COSTS
    )
    return ("median", *_counts(rows), *texts)


def _counts(rows: Sequence[Row]) -> tuple[str, str]:
    """How many variants there are, and how many are told apart from the original."""
    variants = [variant for row in rows for variant in row.variants]
    return str(len(variants)), str(sum(variant.is_apart for variant in variants))


HEADER = ("model", "variants", "told apart", *COSTS)


def markdown(rows: Sequence[Row], options: argparse.Namespace) -> str:
    """The table for a page."""
    lines = [
        f"{machine(options)}. Kendall's tau over the variants of each model, and over those that",
        "are told apart from the original.",
        "",
        f"| {' | '.join(HEADER)} |",
        f"|---|{'---:|' * (len(HEADER) - 1)}",
        *(f"| {' | '.join(texts)} |" for texts in (*map(cells, rows), medians(rows))),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(STORED)}")
    parser.add_argument("--all", action="store_true", help="every model")
    parser.add_argument("--variants", type=int, default=40, help="of each model, at most")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds to look for them")
    parser.add_argument("--seconds", type=float, default=1.5, help="to time a few of them, twice")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR")
    options = parser.parse_args()
    if unknown := set(options.models) - set(STORED):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    names = STORED if options.all else options.models or DEFAULT
    rules = load_rules(default_directory())
    console = Console(soft_wrap=True)
    console.print("  ".join(HEADER), highlight=False)
    rows: list[Row] = []
    target = Target(options.provider, options.threads)
    for name in names:
        start = time.monotonic()
        with (
            tempfile.TemporaryDirectory() as folder,
            Measurer(target) as measurer,
            Store() as store,
        ):
            path = Path(folder) / f"{name}.onnx"
            prepare(name, path)
            variants = Ranking(path, rules, measurer, store, options).variants()
        rows.append(Row.of(name, variants, time.monotonic() - start))
        console.print("  ".join(cells(rows[-1])), highlight=False)
        page = f"ranking-{options.provider}-{options.threads}"
        write_results(page, markdown(rows, options), rows, options)
    console.print("  ".join(medians(rows)), highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
