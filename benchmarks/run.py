#!/usr/bin/env python3
"""Optimize every model by xflow and by its peers, and print how much faster it became.

Each model gets weights and is optimized by each tool in a process of its own, with its time and
memory taken.  Then all outputs of a model are judged anew in one more process, interleaved with
each other and with the original.  The table goes to the terminal; with all figures and a chart it
goes to `results/`, after every model, so that a run that is interrupted leaves what it has found;
models with variants have a table of their own besides.
With `--again`, the results keep the rows of all other models, and say which were measured again:
for those during which something else had the machine.
With `--busy`, xflow takes each model a second time while another process keeps one core busy, and
both results are judged when that is gone.
With `--twice`, xflow takes each model a second time from an empty store, the machine's own numbers
included, and the page says of how many the results are as fast, within 1 %.
With `--normwise`, xflow takes each model a second time with `--assume normwise`, where errors of
rounding may count against the largest elements of a tensor.
With `--keep`, outputs and reports stay in a folder, one for each model, to be looked into.
With `--dynamic`, the models are exports with dynamic sizes, `dynamic/`; they are timed at the sizes
of those of the same name in `models/`, and judged at others as well.
Exits with 1 if a result of xflow is wrong, late (over its budget by more than a tenth, but for the
timing of whole models and of the machine) or below 0.98 of the original's speed.

    python run.py [MODEL ...] [--budget SECONDS] [--threads N] [--provider cpu|cuda] [--no-peers]
           [--variants [MODEL ...]] [--busy] [--twice] [--normwise] [--dynamic] [--again]
           [--keep DIR]
"""

import argparse
import dataclasses
import datetime
import filecmp
import json
import os
import platform
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime
from rich.console import Console

from architectures import BUILT
from chart import draw
from headroom import headroom, removed, sentence
from peers import PEERS
from tables import Row, is_found_again, kept_when_busy, markdown, means, render, row_cells, rows_of
from timed import timed
from tools import (
    AGAIN,
    BUSY,
    HANG_S,
    NORMWISE,
    OWN,
    STORE,
    VARIANTS,
    XFLOW,
    Attempt,
    calibrate,
    judged,
    optimize,
    optimize_by_peer,
    profiled,
)
from xflow.cost.machine import processor_name, usable_cores
from xflow.feeds.inputs import Shapes, default_shapes, load_proto
from xflow.pipeline.context import BESIDE
from xflow.report.formats import percent

HERE = Path(__file__).resolve().parent
STATIC, DYNAMIC = HERE / "models", HERE / "dynamic"


def stored(folder: Path) -> tuple[str, ...]:
    """Return the names of the models in a folder."""
    return tuple(sorted(path.stem for path in folder.glob("*.onnx")))


STORED = stored(STATIC)
WIDTH = 144
"""Columns that the table needs."""

LATE = 1.1
"""How many times its budget xflow may take, but for what the budget is not for."""
FLOOR = 0.98


def prepare(name: str, target: Path, folder: Path = STATIC) -> None:
    """Write a model with its weights, in a process that gives its memory back."""
    if name in BUILT:
        command = [str(HERE / "architectures.py"), name, str(target)]
    else:
        command = [str(HERE / "hydrate.py"), str(folder / f"{name}.onnx"), str(target)]
    ended = timed([sys.executable, *command], HANG_S)
    if ended.code != 0:
        raise SystemExit(f"{name} cannot be made: {ended.said}")


def shapes_of(name: str) -> Shapes:
    """Return the shapes of the inputs of the model in `models/`."""
    return default_shapes(load_proto(STATIC / f"{name}.onnx"))


def measure(name: str, options: argparse.Namespace) -> Row:
    """Take one model through everything, in a folder that is gone afterwards unless it is kept."""
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        before = folder / "original.onnx"
        prepare(name, before, DYNAMIC if options.dynamic else STATIC)
        shapes = shapes_of(name) if options.dynamic else {}
        row = measure_file(name, before, folder, options, shapes=shapes)
        if options.keep is not None:
            before.unlink()  # it can be made again
            shutil.copytree(folder, options.keep / name, dirs_exist_ok=True)
        return row


def measure_file(
    name: str,
    before: Path,
    folder: Path,
    options: argparse.Namespace,
    *,
    shapes: Shapes | None = None,
    inputs: Sequence[Path] = (),
) -> Row:
    """Take the model of a file through everything; what is made on the way goes to a folder."""
    report_file = folder / "report.json"
    # A tool may put the weights of its output in a file beside it.
    tools = tools_of(name, options)
    outputs = {tool: folder / f"{number}" for number, tool in enumerate(tools)}
    how: Any = {"shapes": shapes, "inputs": inputs}
    attempts: dict[str, Attempt] = {}
    for tool, place in outputs.items():
        place.mkdir()
        outputs[tool] = target = place / "optimized.onnx"
        if tool in OWN:
            told = report_file if tool == XFLOW else place / "report.json"
            attempts[tool] = optimize(before, target, told, options, tool, **how)
        else:
            attempts[tool] = optimize_by_peer(tool, before, target)
    same = AGAIN in tools and are_alike(outputs[XFLOW], outputs[AGAIN])
    waiting = [tool for tool, made in attempts.items() if not made.fault and made.ratio is None]
    if same and AGAIN in waiting:
        waiting.remove(AGAIN)
    if waiting:
        paths = [outputs[tool] for tool in waiting]
        verdicts = judged(before, paths, options, options.seconds, **how)
        for tool, verdict in zip(waiting, verdicts, strict=True):
            attempts[tool] = dataclasses.replace(attempts[tool], **verdict)
    if same:
        took, held = attempts[AGAIN].seconds, attempts[AGAIN].memory
        attempts[AGAIN] = dataclasses.replace(
            attempts[XFLOW], tool=AGAIN, seconds=took, memory=held
        )
    report = json.loads(report_file.read_text()) if report_file.exists() else {}
    row = Row(
        name,
        name in BUILT,
        list(attempts.values()),
        nodes_before=sum(report["before"]["operators"].values()) if report else 0,
        nodes_after=sum(report["after"]["operators"].values()) if report else 0,
        recognised=recognised(report),
        missed=[block for block in report.get("blocks", []) if not block["recognised"]],
        opaque=opaque(report),
        rules=report.get("rules", []),
        phases=report.get("phases", {}),
    )
    return with_headroom(row, before, outputs[XFLOW], options, **how)


def are_alike(first: Path, second: Path) -> bool:
    """Whether two outputs are there and the same, byte for byte."""
    return first.exists() and second.exists() and filecmp.cmp(first, second, shallow=False)


def tools_of(name: str, options: argparse.Namespace) -> tuple[str, ...]:
    """Return what a model is optimized by: xflow, its variants if asked for, and the peers."""
    if name in options.variants:
        return (*VARIANTS, *options.peers)
    return columns(options)


def columns(options: argparse.Namespace) -> tuple[str, ...]:
    """Return what every model is optimized by."""
    second = {BUSY: options.busy, AGAIN: options.twice, NORMWISE: options.normwise}
    return (XFLOW, *(tool for tool, wanted in second.items() if wanted), *options.peers)


def recognised(report: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the blocks of a report by kind: how many are recognised, and how many there are."""
    found: dict[str, list[int]] = {}
    for block in report.get("blocks", []):
        counts = found.setdefault(block["kind"], [0, 0])
        counts[0] += block["recognised"]
        counts[1] += 1
    return dict(sorted(found.items()))


def opaque(report: Mapping[str, Any]) -> dict[str, float]:
    """Return for each operator of which some nodes are opaque the part of them that is."""
    counts = report["before"]["operators"] if report else {}
    found: Counter[str] = Counter()
    for each in report.get("missed", []):
        found[each["what"]] += each["count"]
    return {name: count / counts[name] for name, count in found.items() if counts.get(name)}


def with_headroom(
    row: Row, before: Path, after: Path, options: argparse.Namespace, **how: Any
) -> Row:
    """Add what the time of a model is spent on, and what of it xflow has removed."""
    if options.provider != "cpu":  # see headroom.py
        return row
    made = row.attempt(XFLOW)
    is_changed = made.ratio is not None and not made.is_unchanged
    profiles = profiled([before, after] if is_changed else [before], options, **how)
    if not profiles:
        return row
    return dataclasses.replace(
        row,
        profiles=profiles,
        headroom=headroom(profiles[0]),
        removed=removed(profiles[0], profiles[-1]),
        spent_on=sentence(profiles[0]),
    )


def failure(row: Row, options: argparse.Namespace) -> str:
    """Return how xflow has failed on a model, in one sentence, or nothing."""
    made = row.attempt(XFLOW)
    if made.fault:
        return made.wrong or made.fault
    took = made.seconds - sum(row.phases.get(name, 0.0) for name in BESIDE)
    if took > LATE * options.budget:
        return f"late: {took:.0f} s beside the final timing"
    slowest = min(each.gain for each in row.attempts if each.tool in (XFLOW, BUSY, AGAIN))
    return f"slower: {slowest:.3f}" if slowest < FLOOR else ""


def machine(options: argparse.Namespace) -> str:
    """Name the machine and the software that the figures hold for."""
    threads = f"{options.threads} thread{'' if options.threads == 1 else 's'}"
    return (
        f"{processor_name()}, {usable_cores()} cores; {options.provider}, {threads}; "
        f"ONNX Runtime {onnxruntime.__version__}, {platform.system()}"
    )


def versions(options: argparse.Namespace) -> dict[str, str]:
    """Return the version of each peer's package, empty where it is not installed."""
    return {peer.package: peer.version for name, peer in PEERS.items() if name in options.peers}


def heading(options: argparse.Namespace) -> list[str]:
    """Return the first lines of a page: what the figures hold for."""
    installed = ", ".join(f"{package} {v or 'missing'}" for package, v in versions(options).items())
    lines = [f"{machine(options)}. Budget {options.budget:g} s for each model."]
    return lines + ([f"Peers: {installed}."] if installed else [])


def save(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Write the results as JSON, Markdown and a chart, named after the target.

    Models with variants come with these into a second table, so that the first one says the same
    of all models.
    """
    name = f"{options.provider}-{options.threads}-threads"
    name += "-dynamic" if options.dynamic else ""
    name += "-busy" if options.busy else ""
    name += "-twice" if options.twice else ""
    name += "-normwise" if options.normwise else ""
    save_table(name, rows, columns(options), options)
    if found := [row for row in rows if row.model in options.variants]:
        save_table(f"{name}-variants", found, (*VARIANTS, *options.peers), options)


def with_others(rows: Sequence[Row], path: Path) -> tuple[list[Row], list[str]]:
    """Return the rows of a file of results, with these in place of theirs or behind them.

    Besides, the models that were measured again, now or before.
    """
    there = json.loads(path.read_text())
    made = {row.model: row for row in rows}
    merged = {row.model: row for row in rows_of(there)} | made
    return list(merged.values()), sorted({*there.get("again", ()), *made})


def save_table(
    name: str, rows: Sequence[Row], tools: Sequence[str], options: argparse.Namespace
) -> None:
    """Write what some of the tools have made of some of the models."""
    rows = [row.by(tools) for row in rows]
    again: list[str] = []
    if options.again:
        rows, again = with_others(rows, options.out / f"{name}.json")
    lines = heading(options)
    lines += [f"Measured again after the others: {', '.join(again)}."] if again else []
    figures: dict[str, Any] = {}
    if BUSY in tools and (kept := kept_when_busy(rows)) is not None:
        figures["kept_when_busy"] = kept
        lines += [f"With one core busy, {percent(kept)} of the gain is kept (logarithms of means)."]
    if AGAIN in tools:
        alike = figures["alike_again"] = [row.model for row in rows if is_found_again(row)]
        lines += [f"A second run is as fast, within 1 %, for {len(alike)} of {len(rows)} models."]
    chart = options.out / f"{name}.svg"
    options.out.mkdir(parents=True, exist_ok=True)
    if draw(rows, tools, machine(options), chart):
        lines += ["", f"![Times as fast, by model and tool]({chart.name})"]
    lines += ["", *markdown(rows, tools)]
    failures = [f"{row.model}: {said}." for row in rows if (said := failure(row, options))]
    lines += ["", "Failures of xflow:", "", *(f"- {said}" for said in failures)] if failures else []
    figures |= {
        "seconds": options.seconds,
        "peers": versions(options),
        "geometric_means": means(rows, tools),
        "again": again,
    }
    write_results(name, "\n".join(lines) + "\n", rows, options, **figures)


def write_results(
    name: str, page: str, rows: Sequence[Any], options: argparse.Namespace, **figures: Any
) -> None:
    """Write a page, and beside it the rows and other figures as JSON with the machine's name."""
    plain = {
        "machine": machine(options),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "budget": options.budget,
        **figures,
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(json.dumps(plain, indent=1) + "\n")
    (options.out / f"{name}.md").write_text(page)


def arguments() -> argparse.Namespace:
    """Return the options of the command line, with the models and tools that they come to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {False: (*STORED, *BUILT), True: stored(DYNAMIC)}
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(known[False])}")
    parser.add_argument(
        "--dynamic",
        action="store_true",
        help=f"take exports with dynamic sizes, of {', '.join(known[True])}",
    )
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of search by xflow")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="to time all outputs of a model"
    )
    parser.add_argument("--no-peers", action="store_true", help="xflow alone")
    parser.add_argument(
        "--variants",
        nargs="*",
        metavar="MODEL",
        help="models that xflow takes with other options as well: --domains ort, --keep-opset "
        "(default: all)",
    )
    parser.add_argument(
        "--busy",
        action="store_true",
        help="xflow alone, and once more while another process keeps one core busy",
    )
    parser.add_argument(
        "--twice",
        action="store_true",
        help="xflow alone, and once more from an empty store",
    )
    parser.add_argument(
        "--normwise",
        action="store_true",
        help="xflow alone, and once more with --assume normwise",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where results go (default: results/, if no MODEL is named, or --again)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="a folder for the outputs and reports of all tools"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="put the models' rows into the results in place of those that are there",
    )
    options = parser.parse_args()
    if unknown := {*options.models, *(options.variants or ())} - set(known[options.dynamic]):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    alone = options.busy + options.twice + options.normwise
    if alone and (options.variants is not None or options.again or alone > 1):
        parser.error(
            "--busy, --twice and --normwise go neither together nor with --variants nor --again"
        )
    options.peers = () if options.no_peers or alone else tuple(PEERS)
    if options.again and (not options.models or options.no_peers):
        parser.error("--again needs the models that are measured again, and all peers")
    # Neither a run over some models nor one without peers replaces the whole table.
    if options.out is None and (options.again or not (options.models or options.no_peers)):
        options.out = HERE / "results"
    options.models = options.models or known[options.dynamic]
    if options.variants is None:
        options.variants = ()
    else:
        options.variants = options.variants or options.models
    return options


def main() -> int:
    """Run the benchmark; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        # What earlier runs have measured and found does not count.
        os.environ[STORE] = str(Path(folder) / "costs.sqlite")
        return run(arguments())


def run(options: argparse.Namespace) -> int:
    """Take every model through everything; return the exit code."""
    calibrate(options)
    console = Console()
    console.width = max(console.width, WIDTH)
    rows: list[Row] = []
    for name in options.models:
        row = measure(name, options)
        rows.append(row)
        console.print(
            "  ".join(row_cells(row, tools_of(name, options))),
            failure(row, options),
            highlight=False,
            soft_wrap=True,
        )
        if options.out is not None:
            save(rows, options)
    tools = columns(options)
    console.print(render([row.by(tools) for row in rows], tools, machine(options)))
    failures = [(row.model, said) for row in rows if (said := failure(row, options))]
    for model, said in failures:
        console.print(f"{model}: {said}", style="red")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
