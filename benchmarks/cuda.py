#!/usr/bin/env python3
"""Models on a GPU: how many times as fast as the input, in 32 and in 16 bits.

The networks of TASO's table and those in `models/` get weights and are optimized by the command
line with `--provider cuda`; in 16 bits they are what ONNX Runtime's own converter makes of them.
Input and output are timed in turns in one process, see `judge`: with all inputs and outputs on the
device, once with each kernel launched by the processor, and once from a CUDA graph, where the
runtime can record one.  Both are held against the network in 32 bits on the processor: the output
may be at most twice as far from it as the input is.

First the GPU is measured (`xflow calibrate`), but where `--cache` has what a run before measured.
The table goes to the terminal, and with all figures and a chart to `results/`, after every model;
the rows of models that a run leaves out stay as they are.  `--provider cpu` goes the same way
without a GPU.

    python cuda.py [MODEL ...] [--precision fp32|fp16 ...] [--provider cuda|cpu] [--threads N]
                   [--budget S] [--seconds S] [--out DIR] [--cache DIR]

It needs xflow with its dependencies, the libraries of CUDA and cuDNN for which onnxruntime-gpu was
built (their packages are `onnxruntime-gpu[cuda,cudnn]`), and matplotlib for the chart.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.transformers.float16 import convert_float_to_float16

from architectures import BUILT
from chart import draw
from judge import Bound, Feeds, Recorded, error, figures, load, time_in_passes, told
from run import STORED, prepare
from tables import Row
from tools import Attempt, calibrate, optimize
from xflow.cost.machine import usable_cores
from xflow.cost.store import processor_name
from xflow.feeds.inputs import random_inputs

PAPER = ("resnet50", "nasnetalarge", "resnext50_32x4d", "nasrnn", "bert_base")
"""The networks of TASO's table."""
NETWORKS = (*PAPER, *(name for name in STORED if name not in PAPER))
PRECISIONS = ("fp32", "fp16")
MODES = {"launched": Bound, "graph": Recorded}
"""How kernels start: each by the processor, or all of them from a CUDA graph."""
COLUMNS = {f"{each}, {mode}": (each, mode) for each in PRECISIONS for mode in MODES}
"""Precision and mode by the title of their column."""
COMPARED = 3
"""Random inputs on which models are compared."""
FARTHER = 2.0
"""How many times as far from the exact outputs as the input's an output may be."""
SLACK = 1e-3
"""What is allowed besides, as a part of an output's largest element."""


def make(name: str, precision: str, folder: Path) -> tuple[Path, Path]:
    """Write a model with weights in 32 bits, and as it is to be optimized; return both paths."""
    exact = folder / "exact.onnx"
    prepare(name, exact)
    if precision == "fp32":
        return exact, exact
    model = convert_float_to_float16(onnx.load(exact))
    half = folder / "half.onnx"
    onnx.save(model, half)
    return exact, half


def cast(feeds: Feeds, dtype: type) -> Feeds:
    """The same inputs with all floats of another type."""
    return {
        name: value.astype(dtype) if value.dtype.kind == "f" else value
        for name, value in feeds.items()
    }


def distances(exact: Path, paths: Sequence[Path], options: argparse.Namespace) -> list[float]:
    """How far each model is from the exact one on the processor: the largest error, see `judge`."""
    graph = onnx.load(paths[0], load_external_data=False)
    # What the models in 16 bits read is what the exact one reads as well.
    examples = [random_inputs(graph, 101 + number) for number in range(COMPARED)]
    session = load(exact, options.threads, "cpu")
    wanted = [session.run(None, cast(feeds, np.float32)) for feeds in examples]
    del session
    found = []
    for path in paths:
        session = load(path, options.threads, options.provider)
        worst = 0.0
        for feeds, want in zip(examples, wanted, strict=True):
            have = [
                np.asarray(value, wanted_one.dtype)
                for value, wanted_one in zip(session.run(None, feeds), want, strict=True)
            ]
            worst = max(worst, error(want, have))
        found.append(worst)
    return found


def timings(paths: Sequence[Path], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the figures of the second model against the first by mode, or why there are none."""
    feeds = random_inputs(onnx.load(paths[0], load_external_data=False), 101)
    found: dict[str, dict[str, Any]] = {}
    for mode, bound in MODES.items():
        provider = "cuda-graph" if mode == "graph" else options.provider
        if mode == "graph" and options.provider == "cpu":
            found[mode] = {"failed": "processors have no graphs to record"}
            continue
        try:
            passes = time_in_passes(
                paths, feeds, options.threads, provider, options.seconds, bind=bound
            )
        except Exception as problem:  # the runtime raises many types
            found[mode] = {"failed": (str(problem).splitlines() or [""])[0][:300]}
        else:
            found[mode] = figures(passes, 1)
    return found


def measure(name: str, precision: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what came of one model in one precision, as plain data."""
    found: dict[str, Any] = {"model": name, "precision": precision, "fault": ""}
    found["budget"] = options.budget
    with tempfile.TemporaryDirectory(prefix="xflow-cuda-") as made:
        folder = Path(made)
        exact, before = make(name, precision, folder)
        after, report = folder / "after.onnx", folder / "report.json"
        attempt = optimize(before, after, report, options)
        if attempt.fault:
            return {**found, "fault": f"{attempt.fault}: {attempt.wrong}"}
        told = json.loads(report.read_text())
        found["seconds"] = attempt.seconds
        found["operators"] = [
            sum(told[which]["operators"].values()) for which in ("before", "after")
        ]
        found["rules"] = [use["name"] for use in told["rules"]]
        found["phases"] = told["phases"]
        was, now = found["errors"] = distances(exact, (before, after), options)
        if now > FARTHER * was + SLACK:
            found["fault"] = f"wrong: differs by {now:.2g}, the input by {was:.2g}"
        if attempt.is_unchanged:
            return {**found, "unchanged": True}
        return {**found, **timings((before, after), options)}


def ratio(found: Mapping[str, Any], mode: str) -> float | None:
    """How many times as fast the output is, where that was measured."""
    if found.get("unchanged"):
        return 1.0
    value = found.get(mode, {}).get("ratio")
    return None if value is None else float(value)


def cell(found: Mapping[str, Any] | None, mode: str) -> str:
    """The text of one figure."""
    if found is None:
        return ""
    if found["fault"]:
        return str(found["fault"]) if mode == "launched" else ""
    if found.get("unchanged"):
        return "unchanged"
    return "-" if "failed" in found[mode] else told(found[mode])


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the table: a model each, a column for each precision and mode."""
    by_key = {(found["model"], found["precision"]): found for found in rows}
    titles = [*COLUMNS, "errors", "budget, s"]
    lines = [f"| model | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for name in dict.fromkeys(found["model"] for found in rows):
        cells = [cell(by_key.get((name, each)), mode) for each, mode in COLUMNS.values()]
        mine = [by_key[name, each] for each in PRECISIONS if (name, each) in by_key]
        errors = [found["errors"] for found in mine if "errors" in found]
        cells.append("; ".join(f"{was:.1g} > {now:.1g}" for was, now in errors))
        cells.append("; ".join(f"{found['budget']:g}" for found in mine))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    means = []
    for precision, mode in COLUMNS.values():
        ratios = [ratio(found, mode) for found in rows if found["precision"] == precision]
        fine = [value for value in ratios if value is not None]
        means.append(f"{geometric_mean(fine):.3f} of {len(fine)}" if fine else "")
    return [*lines, f"| geometric mean | {' | '.join(means)} | | |"]


def for_chart(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Row], list[str]]:
    """Return what the benchmark's chart draws: each precision and mode as a tool."""
    by_key = {(found["model"], found["precision"]): found for found in rows}
    drawn = []
    for name in dict.fromkeys(found["model"] for found in rows):
        attempts = []
        for title, (precision, mode) in COLUMNS.items():
            found = by_key.get((name, precision), {})
            ends = found.get(mode, {})
            interval = {"low": ends.get("low"), "high": ends.get("high")}
            attempts.append(Attempt(title, ratio=ratio(found, mode), **interval))
        drawn.append(Row(name, name in BUILT, attempts))
    return drawn, list(COLUMNS)


def machine(options: argparse.Namespace) -> str:
    """Name what ran the models, and the software."""
    device = processor_name(options.provider)
    beside = f" beside {processor_name()}" if options.provider == "cuda" else ""
    return f"{device}{beside}, {usable_cores()} cores; ONNX Runtime {onnxruntime.__version__}"


def save(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    """Write the figures, a page and a chart."""
    options.out.mkdir(parents=True, exist_ok=True)
    name, title = f"{options.provider}-precisions", machine(options)
    plain = {
        "machine": title,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": options.seconds,
        "rows": rows,
    }
    (options.out / f"{name}.json").write_text(json.dumps(plain, indent=1) + "\n")
    lines = [f"{title}.", ""]
    if draw(*for_chart(rows), title, options.out / f"{name}.svg"):
        lines += [f"![Times as fast, by model, precision and mode]({name}.svg)", ""]
    (options.out / f"{name}.md").write_text("\n".join([*lines, *table(rows)]) + "\n")


def earlier(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of an earlier run on the same machine that this one leaves out."""
    path = options.out / f"{options.provider}-precisions.json"
    if not path.exists():
        return []
    there = json.loads(path.read_text())
    now = {(name, precision) for name in options.models for precision in options.precision}
    if there["machine"] != machine(options):
        return []
    return [found for found in there["rows"] if (found["model"], found["precision"]) not in now]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the models that are asked for; return 1 if an output is wrong or there is none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = (*STORED, *BUILT)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(known)}")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each model")
    parser.add_argument("--seconds", type=float, default=10.0, help="of timing for each mode")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument(
        "--cache", metavar="DIR", help="what was measured, for a run in parts (default: nothing)"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.models) - set(known):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    options.models = options.models or NETWORKS
    rows = earlier(options)
    with tempfile.TemporaryDirectory() as folder:
        # What earlier runs have measured and found does not count.
        os.environ["XFLOW_CACHE"] = options.cache or folder
        if options.cache is None:
            calibrate(options)
        for name in options.models:
            for precision in options.precision:
                rows.append(found := measure(name, precision, options))
                print(f"{name} {precision}:", *(cell(found, mode) for mode in MODES), flush=True)
                save(rows, options)
    print("\n".join(table(rows)))
    return int(any(found["fault"] for found in rows))


if __name__ == "__main__":
    sys.exit(main())
