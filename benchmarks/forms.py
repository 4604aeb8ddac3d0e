#!/usr/bin/env python3
"""Time forms of regions of many networks: the data that the learned cost is trained on.

The networks are those of `models/`, those that ship in packages (`deployed.py`), and those of
public libraries (`zoo.py`, which needs the extra `exports`).  Each is cut into regions as the
search does it, at both of its cuts.  Of each region that no other network had, forms that the
search visits are drawn, from the cheapest by estimate to the dearest, and timed together with the
original in its neighbourhood, in two passes with new sessions, with one thread (in processor time)
and with two.  The original is among its forms once more: that tells how far sessions of one model
differ.

Each network's lines are written to a file in `--folder` when it is through; what is there is not
done again, and with more `--regions` others are added.  Networks come in random order; one that
cannot be had is named and left out.  `--pack` writes all that there is to `results/`.

    python forms.py [NETWORK ...] [--regions N] [--threads N ...] [--minutes M] [--folder DIR]
                    [--pack]
"""

import argparse
import contextlib
import gzip
import hashlib
import json
import lzma
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx_ir as ir

from deployed import Shipped, catalogue, take_out
from run import HERE, STORED, prepare
from xflow.core.codec import Plain, from_plain, to_plain
from xflow.core.deadline import Deadline
from xflow.core.errors import XflowError
from xflow.core.graph import Graph, with_sizes
from xflow.core.node import TensorType, Value, leaf
from xflow.core.size import product
from xflow.cost.estimate import Estimator
from xflow.cost.measure import Measurer, Target
from xflow.cost.target import TargetModel
from xflow.cost.worker import Failed
from xflow.feeds.inputs import default_shapes
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.region import region_model
from xflow.onnx.types import interface
from xflow.onnx.writer import UnwritableError
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.backtrack import Explorer, Limits
from xflow.search.constants import Constants
from xflow.search.context import Context
from xflow.search.cutting import cut
from xflow.search.region import Region
from xflow.search.states import State
from zoo import ZOO

PACKED = HERE / "results" / "forms.jsonl.xz"
FORMS = 9
"""Forms of a region that are timed, the original and its double aside."""
KEPT = 200
"""Forms of a region that these are drawn from."""
BEST = 3
"""Of them, those that are the cheapest by estimate."""
REGIONS = 10
"""Regions of one network, by default: those that take most of its time."""
WORK = 30_000.0
"""The work that one region is explored for, see `Limits.work`."""
EXPLORE_S = 3.0
"""And the most seconds."""
NEWEST = 24
"""The newest opset whose operators forms may have."""
LEAST_S = 15e-6
"""Seconds that a region takes at least by estimate: calling the runtime takes about as long."""
MOST_BYTES = 2**26
"""Of the constants of a region."""
PASSES = 2
SECONDS = 0.04
"""For timing each form, in each pass."""
LOADING_S = 60.0
EXPORT_S = 600.0


@dataclass(frozen=True)
class Source:
    """A network: its family, what writes it to a file, and the sizes of its inputs."""

    name: str
    family: str
    make: Callable[[Path], Path]
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Sample:
    """A region and its forms, the original first, all over the same leaves."""

    opset: int
    forms: list[Graph]
    rules: list[tuple[str, ...]]


def sources(folder: Path) -> dict[str, Source]:
    """All networks by name."""
    found = {
        name: Source(name, FAMILIES.get(name, name), partial(_stored, name), {}) for name in STORED
    }
    for name, shipped in catalogue().items():
        shapes = {
            key: tuple(feed["shape"]) for key, feed in shipped.feeds.items() if "shape" in feed
        }
        if not shipped.is_quantized:
            make = partial(_shipped, shipped, folder)
            found[name] = Source(name, shipped.family, make, shapes)
    for name, network in ZOO.items():
        found[name] = Source(name, network.family, partial(_exported, name, folder), {})
    return found


FAMILIES = {
    "bert_base": "bert",
    "convnext_tiny": "convnext",
    "efficientnet_b0": "efficientnet",
    "gpt2": "gpt",
    "inception_v3": "inception",
    "llama_small": "llama",
    "mobilenetv3_large_100": "mobile",
    "resnet50": "resnet",
    "resnext50_32x4d": "resnet",
    "swin_tiny_patch4_window7_224": "swin",
    "vit_small_patch16_224": "deit",
}
"""The families in `zoo.py` that networks of `models/` belong to."""


def _stored(name: str, folder: Path) -> Path:
    path = folder / "model.onnx"
    prepare(name, path)
    return path


def _shipped(model: Shipped, packages: Path, folder: Path) -> Path:
    return take_out(model, packages)


def _exported(name: str, kept: Path, folder: Path) -> Path:
    path = kept / "zoo" / f"{name}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = folder / "exported.onnx"
        command = [sys.executable, str(HERE / "zoo.py"), name, str(made)]
        subprocess.run(command, check=True, capture_output=True, timeout=EXPORT_S)
        made.rename(path)
    return path


# Drawing


def samples(
    imported: Imported, source: Source, rules: RuleIndex, seen: set[str], most: int
) -> Iterator[Sample]:
    """So many regions of a network with forms of each; those that were `seen` count, too."""
    shapes = {**default_shapes(interface(imported.model)), **source.shapes}
    sizes = imported.sizes(shapes)
    guide = Estimator(TargetModel(), sizes)
    constants = Constants(imported.constants)
    opset = imported.model.graph.opset_imports.get("", 20)
    groups: defaultdict[object, list[Region]] = defaultdict(list)
    for shifted in (False, True):
        for region in cut(imported.graph, constants, shifted, guide):
            groups[region.key].append(region)
    cost = {key: guide(group[0].graph, group[0].uses) for key, group in groups.items()}
    heaviest = sorted(groups, key=lambda key: -cost[key] * len(groups[key]))
    draw = random.Random(source.name)
    count = 0
    for key in heaviest:
        region = groups[key][0]
        if count == most:
            return
        if cost[key] < LEAST_S or _constant_bytes(region.graph) > MOST_BYTES:
            continue
        key_text = digest(_sized(region, region.graph, sizes))
        if key_text is None:
            continue
        if key_text in seen:
            count += 1
            continue
        deadline = Deadline.after(EXPLORE_S)
        explorer = Explorer(
            rules,
            partial(guide, uses=region.uses),
            constants.of(region),
            Limits(deadline=deadline, work=WORK),
            Context(opset=max(opset, NEWEST)),
            layout=guide.target.layout,
            outside=region.outside,
        )
        original, *others = explorer.explore(region.graph, KEPT)
        chosen = drawn(others, draw)
        if not chosen:
            continue
        forms = [_sized(region, state.graph, sizes) for state in (original, *chosen)]
        count += 1
        seen.add(key_text)
        yield Sample(opset, forms, [state.path for state in (original, *chosen)])


def drawn(states: Sequence[State], draw: random.Random) -> list[State]:
    """The cheapest by estimate, and others from all over the rest."""
    in_order = sorted(states, key=lambda state: state.cost)
    rest = in_order[BEST:]
    more = draw.sample(rest, min(len(rest), FORMS - BEST))
    return [*in_order[:BEST], *sorted(more, key=lambda state: state.cost)]


def _constant_bytes(graph: Graph) -> int:
    sizes = [product(v.shape) for v in graph.leaves if v.is_constant]
    return 4 * sum(size for size in sizes if isinstance(size, int))


def _sized(region: Region, form: Graph, sizes: Mapping[str, int]) -> Graph:
    """A form of a region in its place, with its sizes."""
    return Graph(with_sizes(region.in_place(form.outputs).outputs, sizes))


def digest(graph: Graph) -> str | None:
    """A text that is the same for equal regions whatever their leaves are called."""
    plain = written(graph)
    return None if plain is None else _digest(plain)


def _digest(plain: Plain) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]


def written(graph: Graph) -> Plain | None:
    """A graph as plain data, with its leaves numbered and described; None if not all is known."""
    names = {value: str(number) for number, value in enumerate(graph.leaves)}
    made = {
        value: leaf(name, value.type, constant=value.is_constant) for value, name in names.items()
    }
    plain = to_plain(graph.replace(made).outputs)
    if plain is None or not all(isinstance(n, int) for v in graph.leaves for n in v.shape):
        return None
    leaves = [[v.type.dtype, list(v.shape), int(v.is_constant)] for v in graph.leaves]
    return {**plain, "leaves": leaves}


def read(plain: Plain) -> Graph | None:
    """The graph that `written` described."""
    leaves: dict[str, Value] = {
        str(number): leaf(str(number), TensorType(dtype, tuple(shape)), constant=bool(constant))
        for number, (dtype, shape, constant) in enumerate(plain["leaves"])
    }
    outputs = from_plain(plain, leaves)
    return None if outputs is None else Graph(outputs)


# Timing


def timed(sample: Sample, lookup: Any, measurers: Iterable[Measurer]) -> dict[str, Any] | None:
    """What the runs of a region's forms took: in each pass relative to the original's.

    None where the original does not run. A form that does not has no numbers.
    """
    models: dict[int, bytes] = {}
    for number, form in enumerate(sample.forms):
        opset = max(sample.opset, form.needed_opset)
        with contextlib.suppress(UnwritableError):
            models[number] = region_model(form, lookup, opset=opset)
    if 0 not in models:
        return None
    together = [models[0], *models.values()]
    times: dict[str, Any] = {}
    for measurer in measurers:
        passes: list[list[float | None]] = []
        seconds = 0.0
        for number in range(PASSES):
            order = list(range(len(together)))
            if number % 2:
                order.reverse()
            results = measurer.time_together(
                [together[which] for which in order],
                SECONDS * len(order),
                seed=number,
                deadline=Deadline.after(LOADING_S),
            )
            by_model = dict(zip(order, results, strict=True))
            first = by_model[0]
            if isinstance(first, Failed):
                return None
            seconds = first.median
            row: list[float | None] = [None] * len(sample.forms)
            for which, position in enumerate(models, 1):
                other = by_model[which]
                if not isinstance(other, Failed):
                    row[position] = round(other.relative_to(first), 5)
            passes.append(row)
        times[str(measurer.target.threads)] = {"seconds": seconds, "passes": passes}
    return times


def collect(
    source: Source, options: argparse.Namespace, rules: RuleIndex, seen: set[str], made: Path
) -> list[dict[str, Any]]:
    """The lines of one network."""
    imported = import_model(ir.load(source.make(made)))
    lines: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        measurers = [
            stack.enter_context(Measurer(Target("cpu", threads))) for threads in options.threads
        ]
        for sample in samples(imported, source, rules, seen, options.regions):
            times = timed(sample, imported.constants, measurers)
            if times is None:
                continue
            lines.append(
                {
                    "network": source.name,
                    "family": source.family,
                    "forms": [written(form) for form in sample.forms],
                    "rules": sample.rules,
                    "times": times,
                }
            )
    return lines


# Files


def place(name: str, options: argparse.Namespace) -> Path:
    """The file of a network's lines: each run with more regions adds one."""
    folder: Path = options.folder
    how = f"{_threads(options)}.{options.regions}-regions"
    return folder / "forms" / f"{name}.{how}.jsonl.gz"


def _threads(options: argparse.Namespace) -> str:
    return f"{'-'.join(map(str, options.threads))}-threads"


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file."""
    opened = lzma.open if path.suffix == ".xz" else gzip.open
    with opened(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def pack(folder: Path, target: Path) -> int:
    """Write all lines to one file; return how many forms it has."""
    count = 0
    with lzma.open(target, "wt", encoding="utf-8", preset=9) as file:
        for path in sorted((folder / "forms").glob("*.jsonl.gz")):
            for line in lines_of(path):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
                count += len(line["forms"])
    return count


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="all by default")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--regions", type=int, default=REGIONS, help="of each, at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="then stop")
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "xflow-deployed")
    parser.add_argument("--pack", action="store_true", help="write what there is to results/")
    options = parser.parse_args()
    known = sources(options.folder)
    if unknown := set(options.networks) - set(known):
        parser.error(f"no such network: {', '.join(sorted(unknown))}")
    if options.pack:
        print(f"{pack(options.folder, PACKED):,} forms in {PACKED}")
        return 0
    end = time.monotonic() + 60 * options.minutes
    rules: Sequence[Rule] = load_rules(default_directory())
    index = RuleIndex(rules)
    (options.folder / "forms").mkdir(parents=True, exist_ok=True)
    files = (options.folder / "forms").glob(f"*.{_threads(options)}.*.jsonl.gz")
    seen = {_digest(line["forms"][0]) for path in files for line in lines_of(path)}
    names = options.networks or sorted(known)
    random.Random(0).shuffle(names)
    for name in names:
        target = place(name, options)
        if target.exists() or time.monotonic() > end:
            continue
        start = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                lines = collect(known[name], options, index, seen, Path(folder))
        except (XflowError, SystemExit, OSError, subprocess.SubprocessError, ValueError) as error:
            print(
                f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr, flush=True
            )
            continue
        made = target.with_suffix(".part")
        with gzip.open(made, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        made.rename(target)
        forms = sum(len(line["forms"]) for line in lines)
        took = time.monotonic() - start
        print(f"{name}: {len(lines)} regions, {forms} forms, {took:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
