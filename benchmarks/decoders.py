#!/usr/bin/env python3
"""Decoders with caches: how many times as fast, at the first tokens and at those that follow.

The exports in `decoders/` get weights and are optimized by the command line, at the sizes of two
stages at once: `prefill` reads a prompt and has an empty past, `decode` reads one token behind a
long past.  Some read what an encoder made, too, which is random here.  Input and output are timed
in turns in one process, see `judge`; inputs and outputs stay in the runtime's own memory, so that
no copy of a cache is timed.  Then both generate tokens of the largest logit from the same random
prompts, each with its own caches.  Blocks that are one operator are counted before and after,
among them the caches that one operator makes out of the past as it is given.  With `--peers`, what
other tools make of the input is timed beside them; the table has the fastest of those that give the
same logits.

    python decoders.py [MODEL ...] [--threads N] [--budget S] [--seconds S] [--prompt N]
                       [--past N] [--encoded N] [--prompts N] [--tokens N] [--peers] [--out FILE]
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import onnx

from hydrate import hydrate
from judge import Bound, Fault, Feeds, examine, figures, load, time_in_passes, told
from peers import PEERS
from tools import optimize, optimize_by_peer
from xflow.feeds.inputs import Shapes

FOLDER = Path(__file__).resolve().parent / "decoders"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.onnx")))
STAGES = ("prefill", "decode")
PAST, PRESENT, MASK = "past_key_values.", "present.", "attention_mask"


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shapes of all inputs, with 0 for what is dynamic."""
    return {
        item.name: tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
        for item in model.graph.input
    }


def sized(model: onnx.ModelProto, new: int, past: int, encoded: int) -> Shapes:
    """The shapes of all inputs for so many new tokens, those before, and those of an encoder."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes_of(model).items():
        if name.startswith(PAST):
            found[name] = (1, shape[1], past, shape[3])
        elif name.startswith("encoder_"):
            found[name] = (1, shape[1] or encoded, *shape[2:])
        else:
            found[name] = (1, past + new if name == MASK else new)
    return found


def stages(options: argparse.Namespace) -> dict[str, tuple[int, int]]:
    """New tokens and those of the past, by stage."""
    return dict(zip(STAGES, ((options.prompt, 0), (1, options.past)), strict=True))


def settings(model: onnx.ModelProto, options: argparse.Namespace) -> list[Shapes]:
    """For each stage the shapes of tokens, of a cache and of what was encoded.

    All others follow from these.
    """
    found: list[Shapes] = []
    for new, past in stages(options).values():
        shapes = sized(model, new, past, options.encoded)
        cache = next(name for name in shapes if name.startswith(PAST))
        told = [name for name in shapes if name.endswith(("input_ids", "hidden_states"))]
        found.append({name: shapes[name] for name in (*told, cache)})
    return found


def feeds_of(
    model: onnx.ModelProto, new: int, past: int, encoded: int, rng: np.random.Generator
) -> Feeds:
    """Random tokens behind a random past, of which all is to be seen."""
    found: dict[str, np.ndarray] = {}
    for name, shape in sized(model, new, past, encoded).items():
        if name.endswith("input_ids"):
            found[name] = rng.integers(0, vocabulary(model), shape)
        elif name.endswith(MASK):
            found[name] = np.ones(shape, np.int64)
        else:
            found[name] = rng.standard_normal(shape).astype(np.float32)
    return found


def vocabulary(model: onnx.ModelProto) -> int:
    """The number of tokens that there are."""
    return int(model.graph.output[0].type.tensor_type.shape.dim[2].dim_value)


def generated(session: Any, feeds: Feeds, count: int) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Yield tokens of the largest logit, and all caches behind each."""
    names = [each.name for each in session.get_inputs() if each.name.startswith(PAST)]
    for _ in range(count):
        logits, *present = session.run(None, feeds)
        token = int(logits[0, -1].argmax())
        yield token, present
        feeds = {**feeds, **dict(zip(names, present, strict=True))}
        for name in feeds:
            if name.endswith("input_ids"):
                feeds[name] = np.array([[token]])
            elif name == MASK:
                feeds[name] = np.ones((1, present[0].shape[2] + 1), np.int64)


def compare(paths: Sequence[Path], options: argparse.Namespace) -> tuple[int, float]:
    """Return for how many prompts the tokens differ, and by how much the caches do.

    The largest difference, as a part of the largest element of a cache, as long as tokens agree.
    """
    model = onnx.load(paths[0])
    sessions = [load(path, options.threads, "cpu") for path in paths]
    differ, largest = 0, 0.0
    for seed in range(options.prompts):
        rng = np.random.default_rng(seed)
        length = int(rng.integers(1, options.prompt + 1))
        feeds = feeds_of(model, length, 0, options.encoded, rng)
        runs = [generated(session, feeds, options.tokens) for session in sessions]
        for (old, before), (new, after) in zip(*runs, strict=True):
            for one, other in zip(before, after, strict=True):
                worst = np.abs(one - other).max() / np.abs(one).max()
                largest = max(largest, float(worst))
            if old != new:
                differ += 1
                break
    return differ, largest


def recognised(report: Mapping[str, Any]) -> dict[str, tuple[int, int, int]]:
    """How many blocks of each kind are one operator or kernel before and after, and all of them."""
    found: dict[str, tuple[int, int, int]] = {}
    for block in report["blocks"]:
        before, after, total = found.get(block["kind"], (0, 0, 0))
        was = block["before"]["by"] != "none"
        found[block["kind"]] = (before + was, after + block["recognised"], total + 1)
    return found


def updated(model: onnx.ModelProto) -> tuple[int, int]:
    """How many caches an attention makes out of the past as it is given, and all of them.

    What concatenates past and new ones for it is an operator of its own.
    """
    made = {name: node for node in model.graph.node for name in node.output}
    pairs = [
        (item.name, item.name.replace(PAST, PRESENT))
        for item in model.graph.input
        if item.name.startswith(PAST)
    ]
    makers = [(old, made.get(new)) for old, new in pairs]
    attentions = [(old, n) for old, n in makers if n is not None and "Attention" in n.op_type]
    return sum(old in n.input for old, n in attentions), len(pairs)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what came of one decoder, as plain data."""
    with tempfile.TemporaryDirectory(prefix="xflow-decoders-") as made:
        before, after, report = (Path(made) / n for n in ("in.onnx", "out.onnx", "report.json"))
        model = hydrate(onnx.load(FOLDER / f"{name}.onnx"))
        onnx.save(model, before)
        attempt = optimize(before, after, report, options, settings=settings(model, options))
        if attempt.fault:
            return {"model": name, "fault": f"{attempt.fault}: {attempt.wrong}"}
        found: dict[str, Any] = {"model": name, "fault": "", "seconds": attempt.seconds}
        found["blocks"] = recognised(json.loads(report.read_text()))
        (was, total), (now, _) = (updated(onnx.load(path)) for path in (before, after))
        found["blocks"]["cache"] = was, now, total
        peers: dict[str, Path] = {}
        if options.peers:
            peers, found["failed"] = made_by_peers(before, Path(made), options)
        for stage, (new, past) in stages(options).items():
            feeds = feeds_of(model, new, past, options.encoded, np.random.default_rng(101))
            how = (feeds, options.threads, "cpu", options.seconds * (1 + len(peers)))
            passes = time_in_passes((before, after, *peers.values()), *how, bind=Bound)
            timed = {peer: figures(passes, number) for number, peer in enumerate(peers, 2)}
            found[stage] = {**figures(passes, 1), "peers": timed}
        found["differ"], found["error"] = compare((before, after), options)
        return found


def made_by_peers(
    before: Path, folder: Path, options: argparse.Namespace
) -> tuple[dict[str, Path], dict[str, str]]:
    """Return what each peer makes of a decoder, and how the others fail: a wrong output, too."""
    made: dict[str, Path] = {}
    failed: dict[str, str] = {}
    model = onnx.load(before, load_external_data=False)
    feeds = [
        feeds_of(model, new, past, options.encoded, np.random.default_rng(101))
        for new, past in stages(options).values()
    ]
    original = load(before, options.threads, "cpu")
    for number, peer in enumerate(PEERS):
        path = folder / f"{number}.onnx"
        attempt = optimize_by_peer(peer, before, path)
        fault, wrong = attempt.fault, attempt.wrong
        if not fault:
            verdict = examine(original, path, feeds, options.threads, "cpu")
            fault, wrong = verdict["fault"], verdict["wrong"]
        if fault in ("", Fault.NOT_VALID):
            made[peer] = path
        else:
            failed[peer] = wrong or fault
    return made, failed


def best_peer(found: Mapping[str, Any], stage: str) -> str:
    """Return the text of the fastest peer at a stage, or nothing where there is none."""
    peers = found[stage]["peers"]
    if not peers:
        return ""
    best = max(peers, key=lambda peer: float(peers[peer]["ratio"]))
    return f"{best} {peers[best]['ratio']:.2f}"


def row(found: Mapping[str, Any], prompts: int) -> str:
    """Return a line of the table."""
    if found["fault"]:
        return f"| {found['model']} | {found['fault']} | | | | | | |"
    cells = [str(found["model"])]
    for stage in STAGES:
        cells += [told(found[stage]), best_peer(found, stage)]
    kinds = ("attention", "cache", "rotation", "normalization", "activation")
    blocks = [found["blocks"].get(kind, (0, 0, 0)) for kind in kinds]
    cells.append(", ".join(f"{before} > {after} of {total}" for before, after, total in blocks))
    cells += [f"{found['differ']} of {prompts}", f"{found['error']:.1g}"]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the decoders that are asked for, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=[], choices=[*NAMES, []])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each model")
    parser.add_argument("--seconds", type=float, default=10.0, help="of timing for each stage")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the longest prompt")
    parser.add_argument("--past", type=int, default=512, help="tokens before the one of `decode`")
    parser.add_argument("--encoded", type=int, default=128, help="tokens that an encoder read")
    parser.add_argument("--prompts", type=int, default=20, help="prompts to generate from")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate from each")
    parser.add_argument("--peers", action="store_true", help="other tools, too")
    parser.add_argument("--out", type=Path, help="write the results here, as JSON")
    parser.set_defaults(provider="cpu")
    options = parser.parse_args(arguments)
    timed = [title for stage in STAGES for title in (stage, "best peer")]
    blocks = "attention, cache, rotation, normalization, activation"
    heads = (*timed, blocks, "prompts that differ", "caches")
    print(f"| model | {' | '.join(heads)} |")
    print(f"|---|{'---|' * len(heads)}", flush=True)
    results = []
    for name in options.models or NAMES:
        results.append(measure(name, options))
        print(row(results[-1], options.prompts), flush=True)
    fine = [found for found in results if not found["fault"]]
    if fine:
        means = [geometric_mean([found[stage]["ratio"] for found in fine]) for stage in STAGES]
        print(f"| geometric mean | {' | | '.join(f'{mean:.2f}' for mean in means)} | | | | |")
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
