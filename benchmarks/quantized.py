#!/usr/bin/env python3
"""Quantized models: how many times as fast as the input, and as the model before it was quantized.

The networks for images in `models/` are quantized here by ONNX Runtime's own `quantize_dynamic`, as
it does by default, and optimized by the command line.  The input, the output and the model in
32-bit floats are timed in turns in one process, see `judge`; input and output are compared on
random inputs, bit by bit.

    python quantized.py [MODEL ...] [--threads N] [--budget S] [--seconds S] [--runs N] [--out FILE]
"""

import argparse
import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from hydrate import hydrate
from judge import figures, load, time_in_passes
from tools import optimize
from xflow.feeds.inputs import random_inputs

MODELS = Path(__file__).parent / "models"
NETWORKS = (
    *("squeezenet1_1", "resnet50", "resnext50_32x4d", "densenet121", "inception_v3"),
    *("mobilenetv3_large_100", "efficientnet_b0", "repvgg_a0", "convnext_tiny", "nasnetalarge"),
)
"""Those with convolutions, by name."""


def make(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a model with weights and its quantized form; return both paths."""
    model = hydrate(onnx.load(MODELS / f"{name}.onnx"))
    del model.graph.value_info[:]  # some exports have shapes in it that are not those
    plain, quantized = folder / f"{name}.onnx", folder / f"{name}.int8.onnx"
    onnx.save(model, plain)
    quantize_dynamic(plain, quantized, weight_type=QuantType.QInt8)
    return plain, quantized


def differences(before: Path, after: Path, threads: int, runs: int) -> int:
    """Return on how many of so many random inputs the models differ in any bit."""
    graph = onnx.load(before)
    one, other = (load(path, threads, "cpu") for path in (before, after))
    found = 0
    for seed in range(runs):
        feeds = random_inputs(graph, seed)
        pairs = zip(one.run(None, feeds), other.run(None, feeds), strict=True)
        found += not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
    return found


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what came of one model, as plain data."""
    with tempfile.TemporaryDirectory(prefix="xflow-quantized-") as made:
        folder = Path(made)
        plain, before = make(name, folder)
        after, report = folder / "after.onnx", folder / "report.json"
        attempt = optimize(before, after, report, options)
        if attempt.fault:
            return {"model": name, "fault": f"{attempt.fault}: {attempt.wrong}"}
        paths = [before, after, plain]
        feeds = random_inputs(onnx.load(before), 101)
        passes = time_in_passes(paths, feeds, options.threads, "cpu", options.seconds)
        return {
            "model": name,
            "fault": "",
            "rules": [use["name"] for use in json.loads(report.read_text())["rules"]],
            "differ": differences(before, after, options.threads, options.runs),
            "runs": options.runs,
            "after": figures(passes, 1),
            "plain": figures(passes, 2),
        }


def row(found: dict[str, Any]) -> str:
    """Return a line of the table."""
    if found["fault"]:
        return f"| {found['model']} | {found['fault']} | | | | |"
    after, plain = found["after"], found["plain"]
    ratio = f"{after['ratio']:.2f} ({after['low']:.2f} to {after['high']:.2f})"
    times = (plain["after_s"], after["before_s"], after["after_s"])
    shown = " | ".join(f"{1e3 * seconds:.1f}" for seconds in times)
    return f"| {found['model']} | {shown} | {ratio} | {found['differ']} of {found['runs']} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the models that are asked for, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=NETWORKS, choices=[*NETWORKS, []])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each model")
    parser.add_argument("--seconds", type=float, default=10.0, help="of timing for each model")
    parser.add_argument("--runs", type=int, default=100, help="random inputs to compare on")
    parser.add_argument("--out", type=Path, help="write the results here, as JSON")
    parser.set_defaults(provider="cpu")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # the quantizer advises each time
    print("| model | fp32, ms | int8, ms | by xflow, ms | times as fast | differ in a bit |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    results = []
    for name in options.models:
        results.append(measure(name, options))
        print(row(results[-1]), flush=True)
    ratios = [found["after"]["ratio"] for found in results if not found["fault"]]
    if ratios:
        print(f"| geometric mean | | | | {geometric_mean(ratios):.2f} | |")
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
