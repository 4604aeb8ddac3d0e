#!/usr/bin/env python3
"""Quantized models: how many times as fast as the input, and as the model before it was quantized.

The networks for images and the transformers in `models/` are quantized here by ONNX Runtime's own
quantizers, with the types that they take by default, and optimized by the command line.  The input,
the output and the model in 32-bit floats are timed in turns in one process, see `judge`; input and
output are compared on random inputs, bit by bit.

`--form dynamic` are convolutions of integers and products of them (`quantize_dynamic`), compared as
they are served.  `--form tensor` and `--form channel` have QuantizeLinear and DequantizeLinear
between all operators (`quantize_static`), with one scale for the weights of an operator, or one for
each channel; `--form mixed` is the latter with codes of images and tokens that have no sign.  What
the runtime fuses there rounds other ties; so these are compared operator by operator, and by how
far both are from that as they are served.  `--form operators` is `mixed` in operators that compute
on codes themselves, as QLinearConv does.

    python quantized.py [MODEL ...] [--form FORM] [--threads N] [--budget S] [--seconds S]
                        [--runs N] [--out FILE]
"""

import argparse
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from hydrate import hydrate
from judge import error, figures, load, time_in_passes
from tools import optimize
from xflow.feeds.inputs import random_inputs

MODELS = Path(__file__).parent / "models"
NETWORKS = (
    *("squeezenet1_1", "resnet50", "resnext50_32x4d", "densenet121", "inception_v3"),
    *("mobilenetv3_large_100", "efficientnet_b0", "repvgg_a0", "convnext_tiny", "nasnetalarge"),
)
"""Those with convolutions, by name."""
TRANSFORMERS = ("bert_base", "vit_small_patch16_224", "swin_tiny_patch4_window7_224", "t5_enc")
STATIC: Mapping[str, Mapping[str, Any]] = {
    "tensor": {},
    "channel": {"per_channel": True},
    "mixed": {"per_channel": True, "activation_type": QuantType.QUInt8},
    "operators": {
        "per_channel": True,
        "activation_type": QuantType.QUInt8,
        "quant_format": QuantFormat.QOperator,
    },
}
"""The settings of `quantize_static`, by form."""
DYNAMIC = "dynamic"
FORMS = (DYNAMIC, *STATIC)
CALIBRATION = 3
"""Random inputs by which scales are chosen."""


class Drawn(CalibrationDataReader):  # type: ignore[misc]
    """Random inputs of a model, by which its quantizer chooses scales."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._sets = iter([random_inputs(model, seed) for seed in range(CALIBRATION)])

    def get_next(self) -> Any:
        """The next inputs; None behind the last."""
        return next(self._sets, None)


def make(name: str, form: str, folder: Path) -> tuple[Path, Path]:
    """Write a model with weights and its quantized form; return both paths."""
    model = hydrate(onnx.load(MODELS / f"{name}.onnx"))
    del model.graph.value_info[:]  # some exports have shapes in it that are not those
    plain, quantized = folder / f"{name}.onnx", folder / f"{name}.int8.onnx"
    onnx.save(model, plain)
    if form == DYNAMIC:
        quantize_dynamic(plain, quantized, weight_type=QuantType.QInt8)
    else:
        quantize_static(plain, quantized, Drawn(model), **STATIC[form])
    return plain, quantized


def errors(before: Path, after: Path, threads: int, runs: int) -> tuple[float, float]:
    """How far the models are from the input operator by operator, as they are served.

    The median of the largest errors, relative to the largest element of an output.
    """
    graph = onnx.load(before)
    exact = load(before, threads, "cpu", optimized=False)
    sessions = [load(path, threads, "cpu") for path in (before, after)]
    found: list[list[float]] = [[], []]
    for seed in range(runs):
        feeds = random_inputs(graph, seed)
        right = exact.run(None, feeds)
        for session, each in zip(sessions, found, strict=True):
            each.append(error(right, session.run(None, feeds)))
    return median(found[0]), median(found[1])


def differences(before: Path, after: Path, form: str, threads: int, runs: int) -> int:
    """Return on how many of so many random inputs the models differ in any bit."""
    graph = onnx.load(before)
    one, other = (load(path, threads, "cpu", optimized=form == DYNAMIC) for path in (before, after))
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
        plain, before = make(name, options.form, folder)
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
            "differ": differences(before, after, options.form, options.threads, options.runs),
            "errors": errors(before, after, options.threads, options.runs),
            "runs": options.runs,
            "after": figures(passes, 1),
            "plain": figures(passes, 2),
        }


def row(found: dict[str, Any]) -> str:
    """Return a line of the table."""
    if found["fault"]:
        return f"| {found['model']} | {found['fault']} | | | | | |"
    after, plain = found["after"], found["plain"]
    ratio = f"{after['ratio']:.2f} ({after['low']:.2f} to {after['high']:.2f})"
    times = (plain["after_s"], after["before_s"], after["after_s"])
    shown = " | ".join(f"{1e3 * seconds:.1f}" for seconds in times)
    differ, errors = f"{found['differ']} of {found['runs']}", found["errors"]
    return f"| {found['model']} | {shown} | {ratio} | {differ} | {errors[0]:.2%}, {errors[1]:.2%} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the models that are asked for, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=[], choices=[*NETWORKS, *TRANSFORMERS, []])
    parser.add_argument("--form", choices=FORMS, default=DYNAMIC, help="how they are quantized")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each model")
    parser.add_argument("--seconds", type=float, default=10.0, help="of timing for each model")
    parser.add_argument("--runs", type=int, default=100, help="random inputs to compare on")
    parser.add_argument("--out", type=Path, help="write the results here, as JSON")
    parser.set_defaults(provider="cpu")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # the quantizer advises each time
    heads = ("fp32, ms", "int8, ms", "by xflow, ms", "times as fast", "differ in a bit", "errors")
    print(f"| model | {' | '.join(heads)} |")
    print(f"|---|{'---:|' * len(heads)}", flush=True)
    results = []
    for name in options.models or NETWORKS:
        results.append(measure(name, options))
        print(row(results[-1]), flush=True)
    ratios = [found["after"]["ratio"] for found in results if not found["fault"]]
    if ratios:
        print(f"| geometric mean | | | | {geometric_mean(ratios):.2f} | | |")
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
