#!/usr/bin/env python3
"""Judge an optimized model against its original: valid? equal? how many times as fast?

Shares no code with the timing or the checking of xflow, whose claims it is to test.  Both models
are loaded in this one process, with all optimizations of ONNX Runtime and without spinning
threads, and run alternately.

    python judge.py BEFORE.onnx AFTER.onnx [--threads N] [--provider cpu|cuda] [--seconds S]
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from xflow.inputs import random_inputs

PROVIDERS = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
}
TOLERANCE = 1e-3
"""Largest accepted difference, as a part of the largest magnitude of the output concerned."""

MIN_ROUNDS = 10
PASSES = 3
RESAMPLES = 2000
Feeds = dict[str, np.ndarray]


def load(path: Path, threads: int, provider: str) -> Any:
    """Return a session as a server would have it, but that idle threads sleep."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, PROVIDERS[provider])


def interface(session: Any) -> list[tuple[str, str, tuple[int | str | None, ...]]]:
    """Return name, type and shape of each input and output, in order."""
    values = (*session.get_inputs(), *session.get_outputs())
    return [(value.name, value.type, tuple(value.shape)) for value in values]


def error(expected: Sequence[Any], actual: Sequence[Any]) -> float:
    """Return the largest difference over all outputs, each relative to its largest magnitude."""
    worst = 0.0
    for want, have in zip(expected, actual, strict=True):
        if want.shape != have.shape or want.dtype != have.dtype:
            return float("inf")
        if want.size == 0:
            continue
        if want.dtype.kind not in "fc":
            worst = max(worst, 0.0 if np.array_equal(want, have) else float("inf"))
            continue
        same = (want == have) | (np.isnan(want) & np.isnan(have))
        # Where equal, infinities among them, there is nothing to subtract.
        difference = np.abs(np.subtract(want, have, where=~same, out=np.zeros_like(want)))
        scale = np.max(np.abs(want[np.isfinite(want)]), initial=np.finfo(want.dtype).tiny)
        relative = float(np.max(difference) / scale)
        worst = max(worst, float("inf") if np.isnan(relative) else relative)
    return worst


def time_alternately(
    before: Any, after: Any, feeds: Feeds, seconds: float
) -> tuple[list[float], list[float]]:
    """Return the seconds of single runs of two sessions, in pairs, in the order A B B A."""
    sessions = (before, after)
    samples: tuple[list[float], list[float]] = ([], [])
    for session in sessions * 3:
        session.run(None, feeds)
    deadline = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < deadline or rounds < MIN_ROUNDS:
        for which in (0, 1) if rounds % 2 == 0 else (1, 0):
            start = time.perf_counter()
            sessions[which].run(None, feeds)
            samples[which].append(time.perf_counter() - start)
        rounds += 1
    return samples


def ratio(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of before/after over pairs of runs, and its 95 % bootstrap interval."""
    ratios = np.asarray(before) / np.asarray(after)
    picks = np.random.default_rng(0).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[picks], axis=1), [2.5, 97.5])
    return float(np.median(ratios)), float(low), float(high)


def judge(
    before: Path, after: Path, threads: int, provider: str = "cpu", seconds: float = 10.0
) -> dict[str, Any]:
    """Return the verdict as plain data: `wrong` (a reason, or ""), `error`, times and ratio."""
    try:
        onnx.checker.check_model(str(after), full_check=True)
    except Exception as problem:
        return {"wrong": f"not valid: {str(problem).splitlines()[0]}"}
    first = load(before, threads, provider)
    try:
        second = load(after, threads, provider)
    except Exception as problem:
        return {"wrong": f"does not load: {str(problem).splitlines()[0]}"}
    if interface(first) != interface(second):
        return {"wrong": "inputs or outputs changed"}
    graph = onnx.load(before, load_external_data=False)
    worst = 0.0
    for seed in (101, 102, 103):  # other inputs than those that xflow checked on
        feeds = random_inputs(graph, seed)
        worst = max(worst, error(first.run(None, feeds), second.run(None, feeds)))
    # Two sessions of one and the same model may differ by some percent for as long as they live:
    # times are taken in passes, each with new sessions, loaded in the other order.
    times: tuple[list[float], list[float]] = ([], [])
    lows, highs = [], []
    for number in range(PASSES):
        if number:
            del first, second
            paths = (before, after) if number % 2 == 0 else (after, before)
            loaded = [load(path, threads, provider) for path in paths]
            first, second = loaded if number % 2 == 0 else reversed(loaded)
        one = time_alternately(first, second, feeds, seconds / PASSES)
        _, low, high = ratio(*one)
        lows.append(low)
        highs.append(high)
        times[0].extend(one[0])
        times[1].extend(one[1])
    value, _, _ = ratio(*times)
    return {
        "wrong": "" if worst <= TOLERANCE else f"differs by {worst:.2g}",
        "error": worst,
        "before_s": float(np.median(times[0])),
        "after_s": float(np.median(times[1])),
        "ratio": value,
        "low": min(lows),
        "high": max(highs),
        "rounds": len(times[0]),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--provider", choices=PROVIDERS, default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    print(json.dumps(judge(**vars(options))))
