#!/usr/bin/env python3
"""Say how the time of the search grows with a model's nodes, with distinct blocks and with rules.

Networks of `growing.py` are searched with the estimate alone, so that all time is the search's own:
nothing is timed, and no deadline cuts it short.  Each point of a curve is a process of its own; one
that takes more than `--budget` seconds is left out, and the table says so.  The table and a chart
go to `results/`.

    python scaling.py [SERIES ...] [--budget SECONDS] [--out DIR]
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir as ir
from rich import box
from rich.console import Console
from rich.table import Table

from growing import chain, distinct_layers, equal_layers, nasnet
from hydrate import hydrate
from run import HERE, machine, write_results
from timed import timed
from xflow.core.deadline import NEVER
from xflow.cost.estimate import EstimatedCost
from xflow.cost.target import TargetModel
from xflow.onnx.importer import import_model
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.constants import Constants
from xflow.search.context import Context
from xflow.search.cutting import cut
from xflow.search.driver import search

NAME = "scaling"
BUDGET_S = 300.0
SEED = 0
"""Of the draw of a part of the rules."""
LAYERS_OF_RULES = 2
"""Layers of the BERT on which the number of rules varies."""


@dataclass(frozen=True)
class Series:
    """A curve: what grows, from what models and with which part of the rules.

    `parts` goes with `sizes`: the part of the database at each point, where that is what grows.
    """

    title: str
    what: str
    build: Callable[[int], onnx.ModelProto]
    sizes: tuple[int, ...]
    parts: tuple[float, ...] = ()
    is_wide: bool = False
    """Whether its sizes span orders of magnitude."""

    def points(self) -> list[tuple[int, float]]:
        """The size of the model and the part of the rules, at each point."""
        return list(zip(self.sizes, self.parts or [1.0] * len(self.sizes), strict=True))


SERIES: Mapping[str, Series] = {
    "bert": Series("BERT, equal layers", "layers", equal_layers, (2, 6, 12, 24, 48)),
    "distinct": Series("BERT, distinct layers", "layers", distinct_layers, (2, 4, 8, 12)),
    "nasnet": Series("NASNet", "cells", nasnet, (3, 6, 9, 12, 18)),
    "chain": Series("chain", "nodes", chain, (100, 1_000, 10_000), is_wide=True),
    "rules": Series(
        f"rules, on BERT of {LAYERS_OF_RULES} layers",
        "rules",
        equal_layers,
        (LAYERS_OF_RULES,) * 3,
        (0.5, 1.0, 2.0),
    ),
}


@dataclass(frozen=True)
class Point:
    """The costs of the search of one model, and the peak memory of its process in bytes.

    `import_s` and `search_s` are seconds of the processor, `clock_s` is the search's on the clock.
    `regions` are those of the first pass, `distinct` those that are not equal to another of them,
    `searched` the distinct ones of all passes; `gain` is how many times as fast the estimate calls
    the result. `fault` says why there is nothing of all that; empty if there is.
    """

    series: str
    size: int
    fault: str = ""
    nodes: int = 0
    rules: int = 0
    regions: int = 0
    distinct: int = 0
    searched: int = 0
    import_s: float = 0.0
    search_s: float = 0.0
    clock_s: float = 0.0
    gain: float = 1.0
    memory: int = 0


def select(rules: Sequence[Rule], part: float) -> list[Rule]:
    """A part of the rules in their order, drawn at random; beyond 1, some rules twice.

    The second copy of a rule has another name, and nothing else tells it from the first.
    """
    drawn = random.Random(SEED)
    whole, rest = divmod(round(part * len(rules)), len(rules))
    chosen = [
        replace(rule, name=f"{rule.name}-copy-{copy}") if copy else rule
        for copy in range(whole)
        for rule in rules
    ]
    places = sorted(drawn.sample(range(len(rules)), rest))
    last = f"-copy-{whole}" if whole else ""
    return chosen + [replace(rules[place], name=f"{rules[place].name}{last}") for place in places]


def take(name: str, size: int, part: float) -> Point:
    """Search one model in this process."""
    rules = select(load_rules(default_directory()), part)
    proto = hydrate(SERIES[name].build(size))
    source = ir.from_proto(proto)
    processor = time.process_time()
    imported = import_model(source)
    import_s = time.process_time() - processor
    cost = EstimatedCost()  # another one than the search's, which is to begin with nothing
    regions = cut(imported.graph, Constants(imported.constants), layouts=cost.layouts)
    before = cost.estimate(imported.graph)
    phases: Counter[str] = Counter()
    start, processor = time.perf_counter(), time.process_time()
    found = search(
        imported.graph,
        rules,
        EstimatedCost(),
        deadline=NEVER,
        constants=imported.constants,
        context=Context(opset=proto.opset_import[0].version),
        progress=lambda phase, details: phases.update([phase]),
    )
    return Point(
        name,
        len(rules) if SERIES[name].parts else size,
        nodes=len(proto.graph.node),
        rules=len(rules),
        regions=len(regions),
        distinct=len({region.key for region in regions}),
        searched=phases["search"],
        import_s=import_s,
        search_s=time.process_time() - processor,
        clock_s=time.perf_counter() - start,
        gain=before / cost.estimate(found.graph),
    )


def measure(name: str, size: int, part: float, limit: float) -> Point:
    """Search one model in a process of its own, for so many seconds at most."""
    command = [sys.executable, str(HERE / "scaling.py"), "--point", name, str(size), str(part)]
    ended = timed(command, limit)
    if ended.code != 0:
        grown = round(part * len(load_rules(default_directory()))) if SERIES[name].parts else size
        fault = f"more than {limit:g} s" if ended.code is None else ended.said
        return Point(name, grown, fault)
    return replace(Point(**json.loads(ended.out.splitlines()[-1])), memory=ended.memory)


# The tables

HEADER = (
    *("nodes", "rules", "regions", "distinct", "searched", "import s", "search s"),
    *("on the clock", "MiB", "estimated ratio"),
)
LEGEND = """\
*Regions*: those of the first pass; *distinct*: without those that equal another one; *searched*:
the distinct ones of all passes. Seconds are those of the processor, and of the search also those on
the clock. *MiB*: the most that the process held. *Estimated ratio*: how many times as fast the
estimate calls the result. No rewrite was timed and no budget ran out, so all seconds are the
search's own."""


def cells(point: Point) -> tuple[str, ...]:
    """The texts of one line, of its columns after the first two."""
    if point.fault:
        return (point.fault, *[""] * (len(HEADER) - 1))
    return (
        *(f"{n}" for n in (point.nodes, point.rules)),
        *(f"{n}" for n in (point.regions, point.distinct, point.searched)),
        *(f"{seconds:.1f}" for seconds in (point.import_s, point.search_s, point.clock_s)),
        f"{point.memory / 2**20:.0f}",
        f"{point.gain:.3f}",
    )


def render(points: Sequence[Point], title: str) -> Table:
    """The table for the terminal."""
    table = Table(box=box.SIMPLE_HEAD, title=title)
    for column in ("", "size", *HEADER):
        table.add_column(column, justify="right" if column else "left")
    for name, series in SERIES.items():
        for point in points:
            if point.series == name:
                table.add_row(series.title, f"{point.size} {series.what}", *cells(point))
        table.add_section()
    return table


def markdown(points: Sequence[Point], title: str) -> str:
    """The page: one table for each series."""
    lines = [
        f"{title}. The search runs on one core.",
        "",
        f"![Seconds of search]({NAME}.svg)",
        "",
        LEGEND,
    ]
    for name, series in SERIES.items():
        mine = [point for point in points if point.series == name]
        if mine:
            rows = [(series.what, *HEADER), ("---:",) * (len(HEADER) + 1)]
            rows += [(f"{point.size}", *cells(point)) for point in mine]
            lines += ["", f"## {series.title}", ""]
            lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def draw(points: Sequence[Point], target: Path) -> bool:
    """Write the chart as SVG, the same bytes for the same figures; False without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib as mpl  # noqa: PLC0415 - takes a second, and is optional
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "xflow", "svg.fonttype": "none"}):
        figure = Figure(figsize=(4 * len(SERIES), 3.4), layout="constrained")
        panels = figure.subplots(1, len(SERIES))
        for axes, (name, series) in zip(panels, SERIES.items(), strict=True):
            mine = [point for point in points if point.series == name and not point.fault]
            sizes = [point.size for point in mine]
            axes.plot(sizes, [point.search_s for point in mine], "o-", label="search")
            axes.plot(sizes, [point.import_s for point in mine], "s--", label="import")
            axes.set_title(series.title, fontsize=9)
            axes.set_xlabel(series.what)
            axes.set_xscale("log" if series.is_wide else "linear")
            if not series.is_wide:
                axes.set_xlim(left=0)
                axes.set_xticks(sizes)
            axes.set_ylim(bottom=0)
            axes.grid(linewidth=0.3)
        panels[0].set_ylabel("seconds of the processor")
        panels[0].legend(fontsize=8)
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return True


def save(points: Sequence[Point], options: argparse.Namespace) -> None:
    """Write the page, the chart and the figures."""
    options.out.mkdir(parents=True, exist_ok=True)
    draw(points, options.out / f"{NAME}.svg")
    write_results(NAME, markdown(points, machine(options)), points, options)


def main() -> None:
    """Run the series that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("series", nargs="*", metavar="SERIES", help=f"of {', '.join(SERIES)}")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for each point")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where results go (default: results/, if all run)"
    )
    parser.add_argument("--point", nargs=3, help=argparse.SUPPRESS)
    parser.set_defaults(provider="cpu", threads=TargetModel().threads)  # what the estimate is for
    options = parser.parse_args()
    if options.point:
        name, size, part = options.point
        print(json.dumps(dataclasses.asdict(take(name, int(size), float(part)))))
        return
    if unknown := set(options.series) - set(SERIES):
        parser.error(f"no such series: {', '.join(sorted(unknown))}")
    if options.out is None and not options.series:
        options.out = HERE / "results"
    console = Console()
    console.width = max(console.width, 150)
    points: list[Point] = []
    for name in options.series or SERIES:
        for size, part in SERIES[name].points():
            points.append(measure(name, size, part, options.budget))
            console.print(name, size, part, *cells(points[-1]), highlight=False)
            if options.out is not None:
                save(points, options)
    console.print(render(points, machine(options)))


if __name__ == "__main__":
    main()
