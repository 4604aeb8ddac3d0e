#!/usr/bin/env python3
"""Say where ONNX Runtime spends a model's time, by its own profile, before and after.

*Headroom* is the part of the kernels' time that lies outside convolutions and matrix products:
what rewriting can remove while those stay.  The profile gives the time that the processor spends in
a node; where kernels run on a GPU it gives only that of launching them, and there is nothing to
learn from it.  Prints a list with one profile for each MODEL, in JSON.

    python headroom.py MODEL.onnx ... [--threads N] [--seconds S] [--input-shapes NAME:1,128 ...]
           [--inputs FILE.npz]
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import onnx

from judge import load
from judge import read as given
from xflow.cli.arguments import add_input_shapes
from xflow.cost.child import by_kernel
from xflow.cost.kernels import Profile, outside
from xflow.feeds.inputs import Shapes, random_inputs
from xflow.report.formats import percent

MIN_RUNS = 3
TOP = 4
"""Operators that a sentence names."""


def headroom(profile: Profile) -> float:
    """Return the part of the kernels' time outside convolutions and matrix products, 0 to 1."""
    total = sum(profile.values())
    return outside(profile) / total if total else 0.0


def removed(before: Profile, after: Profile) -> float:
    """Return which part of `outside` is gone; negative if there is more of it than before."""
    spent = outside(before)
    return 1 - outside(after) / spent if spent else 0.0


def sentence(profile: Profile) -> str:
    """Say in one sentence what the time is spent on."""
    total = sum(profile.values())
    shares = [(name, seconds / total) for name, seconds in profile.items()] if total else []
    shares.sort(key=lambda share: -share[1])
    named = ", ".join(f"{name} {percent(share)}" for name, share in shares[:TOP])
    heavy = percent(1 - headroom(profile))
    return f"{heavy} of its time is convolutions and matrix products ({named})"


def profiles(
    paths: Sequence[Path],
    threads: int,
    provider: str = "cpu",
    seconds: float = 2.0,
    *,
    shapes: Shapes | None = None,
    inputs: Path | None = None,
) -> list[dict[str, float]]:
    """Return the profile of each model, all fed the same and run in turns."""
    with tempfile.TemporaryDirectory() as folder:
        graph = onnx.load(paths[0], load_external_data=False)
        feeds = random_inputs(graph, seed=101, shapes=shapes) if inputs is None else given(inputs)
        sessions = [
            load(path, threads, provider, profile=str(Path(folder) / str(number)))
            for number, path in enumerate(paths)
        ]
        deadline = time.perf_counter() + seconds
        rounds = 0
        while time.perf_counter() < deadline or rounds <= MIN_RUNS:
            for session in sessions:
                session.run(None, feeds)
            rounds += 1
        files = [Path(session.end_profiling()) for session in sessions]
        return [by_kernel(json.loads(file.read_text())) for file in files]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=2.0)
    add_input_shapes(parser.add_argument)
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz")
    options = parser.parse_args()
    how = {"shapes": dict(options.input_shapes), "inputs": options.inputs}
    found = profiles(options.models, options.threads, seconds=options.seconds, **how)
    print(json.dumps(found))
