#!/usr/bin/env python3
"""Judge optimized models against their original: valid? equal? how many times as fast?

Shares no code with the timing or the checking of xflow, whose claims it is to test.  All models
are loaded in this one process, with all optimizations of ONNX Runtime and threads that spin only
while a model runs, and run in turns.  Prints one verdict for each AFTER, as a list in JSON.

    python judge.py BEFORE.onnx AFTER.onnx ... [--threads N] [--provider cpu|cuda] [--seconds S]
           [--input-shapes NAME:1,128 ...] [--inputs FILE.npz ...]
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import psutil

from xflow.cli.arguments import add_input_shapes
from xflow.feeds.inputs import Shapes, default_shapes, random_inputs

PROVIDERS: dict[str, list[Any]] = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
    # What a session does is recorded at its first run, and played back later.
    "cuda-graph": [("CUDAExecutionProvider", {"enable_cuda_graph": "1"}), "CPUExecutionProvider"],
}
TOLERANCE = 1e-3
"""Largest accepted difference, as a part of the largest magnitude of the output concerned."""

SEEDS = (101, 102, 103)
"""Seed of the inputs to compare on, which differ from those that xflow checks on."""

MIN_ROUNDS = 3
PASSES = 4
RESAMPLES = 2000
SESSION_SIZE = 2.0
"""Memory of a session, at most, as a multiple of its model's file."""

Feeds = dict[str, np.ndarray]


class Fault(StrEnum):
    """The kinds of faults of an output."""

    NOT_VALID = "not valid"
    NO_LOAD = "does not load"
    NO_RUN = "does not run"
    CHANGED = "other inputs or outputs"
    WRONG = "wrong"


def load(
    path: Path, threads: int, provider: str, *, profile: str = "", optimized: bool = True
) -> Any:
    """Return a session as a server would have it, but that threads sleep between two runs.

    With `profile`, the start of a file's name, it notes the time of every node. Unless `optimized`,
    it runs the model operator by operator, as it is written.
    """
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    )
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if provider != "cpu":
        onnxruntime.preload_dlls(msvc=False)  # those that are installed as Python packages
    session = onnxruntime.InferenceSession(str(path), options, PROVIDERS[provider])
    if provider != "cpu" and "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError("ONNX Runtime cannot load its provider for CUDA")  # it says nothing
    session.disable_fallback()
    return session


class Bound:
    """A session that is always fed the same, with inputs and outputs where it runs."""

    def __init__(self, session: Any, feeds: Feeds) -> None:
        self.session = session
        self.device = "cpu" if session.get_providers()[0] == "CPUExecutionProvider" else "cuda"
        self.binding = session.io_binding()
        for name, value in feeds.items():
            there = onnxruntime.OrtValue.ortvalue_from_numpy(value, self.device, 0)
            self.binding.bind_ortvalue_input(name, there)
        self.bind_outputs(feeds)

    def bind_outputs(self, _: Feeds) -> None:
        """Have the outputs made anew by each run."""
        for each in self.session.get_outputs():
            self.binding.bind_output(each.name, self.device)

    def run(self, *_: object) -> None:
        """Run, and leave the results where they are."""
        self.session.run_with_iobinding(self.binding)
        self.binding.synchronize_outputs()


class Recorded(Bound):
    """The same for a CUDA graph, whose outputs are always in the same place."""

    def bind_outputs(self, feeds: Feeds) -> None:
        """Have every run write the same outputs, which have the sizes that static shapes say."""
        for each in self.session.get_outputs():
            kind = np.float16 if each.type == "tensor(float16)" else np.float32
            place = onnxruntime.OrtValue.ortvalue_from_shape_and_type(
                each.shape, kind, self.device, 0
            )
            self.binding.bind_ortvalue_output(each.name, place)


def is_served_alike(original: Any, session: Any) -> bool:
    """Whether two sessions have the same inputs and outputs, in the same order.

    Of an output the runtime may infer more: an extent where it had a name for one.
    """

    def told(values: Sequence[Any]) -> list[tuple[str, str, int]]:
        return [(value.name, value.type, len(value.shape)) for value in values]

    inputs, outputs = session.get_inputs(), session.get_outputs()
    if told(original.get_inputs()) != told(inputs) or told(original.get_outputs()) != told(outputs):
        return False
    if [value.shape for value in original.get_inputs()] != [value.shape for value in inputs]:
        return False
    return all(
        want == have or (not isinstance(want, int) and isinstance(have, int))
        for before, after in zip(original.get_outputs(), outputs, strict=True)
        for want, have in zip(before.shape, after.shape, strict=True)
    )


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


def examine(
    original: Any, after: Path, examples: Sequence[Feeds], threads: int, provider: str
) -> dict[str, Any]:
    """Return `fault`, `wrong` (a sentence; both are empty if nothing is) and the `error`."""

    def refuse(fault: Fault, reason: object) -> dict[str, Any]:
        first = (str(reason).splitlines() or [""])[0]
        return {"fault": fault, "wrong": f"{fault}: {first}" if first else str(fault)}

    verdict: dict[str, Any] = {"fault": "", "wrong": ""}
    try:
        onnx.checker.check_model(str(after), full_check=True)
    except Exception as problem:
        # The runtime may take it nevertheless: some tools write for it alone.
        verdict = refuse(Fault.NOT_VALID, problem)
    try:
        session = load(after, threads, provider)
    except Exception as problem:
        return refuse(Fault.NO_LOAD, problem)
    if not is_served_alike(original, session):
        return refuse(Fault.CHANGED, "")
    worst = 0.0
    for feeds in examples:
        expected = original.run(None, feeds)
        try:
            actual = session.run(None, feeds)
        except Exception as problem:
            return refuse(Fault.NO_RUN, problem)
        worst = max(worst, error(expected, actual))
    if worst > TOLERANCE:
        return {**refuse(Fault.WRONG, f"differs by {worst:.2g}"), "error": worst}
    return {**verdict, "error": worst}


def time_in_turns(
    sessions: Sequence[Any], feeds: Feeds, seconds: float, random: np.random.Generator
) -> np.ndarray:
    """Return the mean seconds of a run, [rounds, sessions].

    A round runs every session twice: in a random order and then in its reverse, so that a drift
    of the machine's speed meets all of them alike.
    """
    for session in (*sessions, *sessions):
        session.run(None, feeds)
    rounds: list[np.ndarray] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(rounds) < MIN_ROUNDS:
        order = random.permutation(len(sessions))
        spent = np.zeros(len(sessions))
        for which in (*order, *order[::-1]):
            start = time.perf_counter()
            sessions[which].run(None, feeds)
            spent[which] += time.perf_counter() - start
        rounds.append(spent / 2)
    return np.array(rounds)


def time_in_passes(
    paths: Sequence[Path],
    feeds: Feeds,
    threads: int,
    provider: str,
    seconds: float,
    *,
    bind: Callable[[Any, Feeds], Any] | None = None,
) -> list[np.ndarray]:
    """Return what `time_in_turns` does for each of several passes.

    Two sessions of one and the same model may differ by some percent for as long as they live, so
    each pass has new ones, loaded in another random order. `bind` makes of a session, and of what
    it is fed, another one to run in its place.
    """
    random = np.random.default_rng(0)

    def one_pass() -> np.ndarray:  # a function, so that its sessions are gone before the next one
        order = random.permutation(len(paths))
        loaded = {which: load(paths[which], threads, provider) for which in order}
        sessions = [loaded[which] for which in range(len(paths))]
        if bind is not None:
            sessions = [bind(session, feeds) for session in sessions]
        return time_in_turns(sessions, feeds, seconds / PASSES, random)

    return [one_pass() for _ in range(PASSES)]


def interval(passes: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the 95 % interval of the median of the ratios in all `passes`.

    A bootstrap in two stages, over the passes and over the rounds of each: it tells what new
    sessions change, too.
    """
    random = np.random.default_rng(0)
    medians = []
    for _ in range(RESAMPLES):
        chosen = (passes[which] for which in random.integers(0, len(passes), len(passes)))
        rounds = [random.choice(each, len(each)) for each in chosen]
        medians.append(np.median(np.concatenate(rounds)))
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)


def figures(passes: Sequence[np.ndarray], which: int) -> dict[str, Any]:
    """Return times and ratio of one session, where session 0 is the original."""
    rounds = np.concatenate(passes)
    low, high = interval([times[:, 0] / times[:, which] for times in passes])
    return {
        "before_s": float(np.median(rounds[:, 0])),
        "after_s": float(np.median(rounds[:, which])),
        "ratio": float(np.median(rounds[:, 0] / rounds[:, which])),
        "low": low,
        "high": high,
        "rounds": len(rounds),
    }


def told(found: Mapping[str, Any]) -> str:
    """The text of the figures of one session."""
    times = f"{1e3 * found['before_s']:.2f} > {1e3 * found['after_s']:.2f} ms"
    return f"{times}: {found['ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def fitting(size: int) -> int:
    """Return how many sessions of a model of `size` bytes fit beside the original's, at least 1."""
    memory = 0.8 * psutil.virtual_memory().available
    return max(1, int(memory / (SESSION_SIZE * size)) - 1)


def judge_all(
    before: Path,
    candidates: Sequence[Path],
    threads: int,
    provider: str = "cpu",
    seconds: float = 10.0,
    *,
    shapes: Shapes | None = None,
    inputs: Sequence[Path] = (),
) -> list[dict[str, Any]]:
    """Return a verdict on each of `candidates`, as plain data.

    They are timed at `shapes`, and compared at these and at others that the model takes as well;
    or on the `inputs` of these files alone, and timed on the last.

    `fault` is one of `Fault` and `wrong` a sentence, both empty for an output that is right;
    `error` is the largest relative difference.  Those that the runtime runs, and rightly, have
    times and `ratio`, too: they are timed together, in `seconds` for all of them, or, where so many
    sessions do not fit into the memory, in several groups with the original in each.
    """
    graph = onnx.load(before, load_external_data=False)
    examples: list[Feeds] = [read(path) for path in inputs]
    examples = examples or [random_inputs(graph, seed, shapes) for seed in SEEDS]
    if shapes and not inputs:
        examples.insert(0, random_inputs(graph, SEEDS[0], default_shapes(graph, variant=1)))
    del graph  # which may be large
    original = load(before, threads, provider)
    verdicts = [examine(original, path, examples, threads, provider) for path in candidates]
    del original
    usable = ("", Fault.NOT_VALID)
    right = [number for number, verdict in enumerate(verdicts) if verdict["fault"] in usable]
    fit = fitting(before.stat().st_size)
    for start in range(0, len(right), fit):
        group = right[start : start + fit]
        paths = [before, *(candidates[number] for number in group)]
        share = seconds * len(group) / len(right)
        passes = time_in_passes(paths, examples[-1], threads, provider, share)
        for position, number in enumerate(group, 1):
            verdicts[number].update(figures(passes, position))
    return verdicts


def read(path: Path) -> Feeds:
    """Return the inputs that a file holds."""
    with np.load(path) as arrays:
        return dict(arrays)


def judge(
    before: Path, after: Path, threads: int, provider: str = "cpu", seconds: float = 10.0
) -> dict[str, Any]:
    """Return the verdict on one model."""
    return judge_all(before, [after], threads, provider, seconds)[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("candidates", type=Path, nargs="+", metavar="after")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0)
    add_input_shapes(parser.add_argument)
    parser.add_argument("--inputs", type=Path, nargs="+", default=[], metavar="FILE.npz")
    options = parser.parse_args()
    options.shapes = dict(options.__dict__.pop("input_shapes"))
    print(json.dumps(judge_all(**vars(options))))
