#!/usr/bin/env python3
"""Train the learned cost on timed forms of regions, and say how well it ranks networks held out.

What is learned is a factor for each kernel that the estimate counts, from `features` of the kernel.
What was measured are regions of many kernels.  So the loss is of sums, as in Ansor (Zheng et al.,
OSDI 2020): the logarithm of what all kernels of a form take together, beside those of the other
forms of the same region, since all that the search asks is which of them is faster.

Families of networks are held out together, in some folds; a few regions are common to two families
all the same.  Beside the trees stand the estimate that they correct and FLOPs.

    python learn_cost.py [--data FILE] [--threads N ...] [--folds N] [--out DIR] [--write FILE]
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import lightgbm
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from scipy.stats import kendalltau

from forms import PACKED, lines_of, read
from tables import decimals, table, two_medians
from xflow.cost.estimate import KernelLister
from xflow.cost.learned.features import Features, features
from xflow.cost.learned.trees import LEAF, Trees
from xflow.cost.machine import processor_name
from xflow.cost.target import TargetModel

NAME = "learned-cost"
COSTS = ("learned", "estimate", "FLOPs")
CALL_S = 8e-6
"""Seconds of each run of a session, whatever it computes."""
RARE = 40
"""Kernels of which fewer have a feature do not tell what it means."""
ABSOLUTE = 0.02
"""Weight of what a form takes, beside what it takes more or less than the others."""
ROUNDS = 800
SURE = 2.0
"""Standard errors by which a form differs from the original that is told apart."""
LEAST = 5
"""Forms of which an order says something."""
PARAMETERS = {
    "learning_rate": 0.15,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "min_sum_hessian_in_leaf": 0.1,
    "lambda_l2": 0.1,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "verbosity": -1,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,
}


@dataclass(frozen=True)
class Form:
    """A form of a region: its kernels, by number, and what it was measured to take."""

    kernels: NDArray[np.int64]
    rest: float
    """Seconds of the estimate that are no kernel's."""
    flops: float
    ratio: float
    """The logarithm of what it takes over what the original takes, mean of the passes."""
    between: float
    """How far two passes differ from each other."""


@dataclass(frozen=True)
class Group:
    """The forms of one region at one number of threads, the original first."""

    network: str
    family: str
    threads: int
    seconds: float
    """Of the original."""
    forms: list[Form]


@dataclass
class Data:
    """Groups, and the kernels that they count: each once."""

    groups: list[Group]
    kernels: list[Features]
    seconds: NDArray[np.float64]


def load(path: Path, threads: Sequence[int]) -> Data:
    """Read what was timed, and list the kernels of each form."""
    listers = {number: KernelLister(TargetModel(threads=number)) for number in threads}
    numbers: dict[tuple[tuple[str, float], ...], int] = {}
    kernels: list[Features] = []
    seconds: list[float] = []
    groups: list[Group] = []
    for line in lines_of(path):
        graphs = [read(plain) for plain in line["forms"]]
        for number in threads:
            times = line["times"].get(str(number))
            if times is None:
                continue
            forms: list[Form] = []
            for position, graph in enumerate(graphs):
                passes = [each[position] for each in times["passes"]]
                if graph is None or None in passes:
                    if not position:
                        break
                    continue
                calls, rest = listers[number].listed(graph)
                mine: list[int] = []
                for kernel in calls:
                    found = features(kernel)
                    key = tuple(sorted(found.items()))
                    if key not in numbers:
                        numbers[key] = len(kernels)
                        kernels.append(found)
                        seconds.append(kernel.seconds)
                    mine.append(numbers[key])
                logs = np.log2(passes)
                flops = float(sum(kernel.flops for kernel in calls))
                forms.append(
                    Form(
                        np.array(mine, np.int64),
                        max(0.0, rest),
                        flops,
                        float(logs.mean()),
                        float(logs[0] - logs[-1]),
                    )
                )
            if len(forms) > 1:
                # The original takes what it takes; its double told of the noise.
                forms[0] = replace(forms[0], ratio=0.0)
                groups.append(
                    Group(line["network"], line["family"], number, times["seconds"], forms)
                )
    return Data(groups, kernels, np.array(seconds))


# Training


class Sums:
    """The loss of sums of kernels, for groups of forms of which each row is a kernel of a form."""

    def __init__(self, data: Data, groups: Sequence[Group], weights: NDArray[np.float64]) -> None:
        forms = [form for group in groups for form in group.forms]
        self.kernel = np.concatenate([form.kernels for form in forms])
        self.form = np.repeat(np.arange(len(forms)), [len(form.kernels) for form in forms])
        self.group = np.repeat(np.arange(len(groups)), [len(group.forms) for group in groups])
        self.rest = np.array([form.rest for form in forms]) + CALL_S
        self.seconds = data.seconds[self.kernel]
        originals = np.repeat(
            [math.log2(g.seconds) for g in groups], [len(g.forms) for g in groups]
        )
        self.measured = np.array([form.ratio for form in forms]) + originals
        self.weight = np.repeat(weights, [len(group.forms) for group in groups])
        self.counts = np.bincount(self.group)

    def logs(self, factors: NDArray[np.float64]) -> tuple[Any, Any]:
        """The logarithm of what each form takes, and the share of each row in that."""
        parts = self.seconds * np.exp2(factors)
        totals = np.bincount(self.form, parts, len(self.rest)) + self.rest
        return np.log2(totals), parts / totals[self.form]

    def __call__(self, factors: NDArray[np.float64], _: object) -> tuple[Any, Any]:
        """The first and the second derivative of the loss by each row's factor."""
        logs, shares = self.logs(factors)
        errors = logs - self.measured
        means = np.bincount(self.group, errors) / self.counts
        relative = errors - means[self.group]
        pull = self.weight * (relative + ABSOLUTE * errors)
        # Of shares of at most 1 the square of the sum is at most the sum.
        return pull[self.form] * shares, self.weight[self.form] * (1 + ABSOLUTE) * shares + 1e-9


def train(data: Data, groups: Sequence[Group], names: Sequence[str], rounds: int) -> Any:
    """Train trees on some groups."""
    counts = Counter(group.network for group in groups)
    weights = np.array([1 / math.sqrt(counts[group.network]) for group in groups])
    sums = Sums(data, groups, weights / weights.mean())
    rows = matrix(data, names)[sums.kernel]
    made = lightgbm.Dataset(rows, label=np.zeros(len(rows)), free_raw_data=False)
    return lightgbm.train({**PARAMETERS, "objective": sums}, made, rounds)


def matrix(data: Data, names: Sequence[str]) -> NDArray[np.float32]:
    """The features of all kernels, a row for each."""
    places = {name: place for place, name in enumerate(names)}
    rows = np.zeros((len(data.kernels), len(names)), np.float32)
    for row, found in zip(rows, data.kernels, strict=True):
        for name, number in found.items():
            if name in places:
                row[places[name]] = number
    return rows


def names_of(data: Data, groups: Iterable[Group]) -> list[str]:
    """The features that are not rare."""
    kernels = {int(k) for group in groups for form in group.forms for k in form.kernels}
    counts = Counter(name for kernel in kernels for name in data.kernels[kernel])
    return sorted(name for name, count in counts.items() if count >= RARE)


def as_trees(booster: Any, names: Sequence[str]) -> Trees:
    """The trees that a booster has learned."""
    roots = [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]
    listed: list[list[tuple[int, float, int, int, float]]] = []
    for root in roots:
        nodes: list[Any] = []
        _flatten(root, nodes)
        listed.append(nodes)
    most = max(map(len, listed))
    padding = (LEAF, 0.0, 0, 0, 0.0)
    whole = [nodes + [padding] * (most - len(nodes)) for nodes in listed]
    columns = [np.array([[node[k] for node in nodes] for nodes in whole]) for k in range(5)]
    kinds = (np.int32, np.float64, np.int32, np.int32, np.float64)
    return Trees(tuple(names), *(c.astype(kind) for c, kind in zip(columns, kinds, strict=True)))


def _flatten(node: Mapping[str, Any], nodes: list[Any]) -> int:
    """Put a node and what is below it into a list; return its number."""
    number = len(nodes)
    nodes.append(None)
    if "leaf_value" in node:
        nodes[number] = (LEAF, 0.0, 0, 0, float(node["leaf_value"]))
        return number
    left = _flatten(node["left_child"], nodes)
    right = _flatten(node["right_child"], nodes)
    nodes[number] = (int(node["split_feature"]), float(node["threshold"]), left, right, 0.0)
    return number


# Judging


@dataclass(frozen=True)
class Row:
    """How well each cost predicts one network's forms."""

    network: str
    threads: int
    forms: int
    apart: int
    taus: Mapping[str, float | None]
    apart_taus: Mapping[str, float | None]
    errors: Mapping[str, float]
    """Mean of the part by which a predicted ratio is off, of forms told apart or not."""


def predicted(data: Data, group: Group, factors: NDArray[np.float64]) -> dict[str, list[float]]:
    """What each form takes relative to the original, as logarithms, by each cost."""
    found: dict[str, list[float]] = {}
    for cost in COSTS:
        if cost == "FLOPs":
            totals = [form.flops + 1.0 for form in group.forms]
        else:
            scale = factors if cost == "learned" else np.ones_like(factors)
            totals = [
                float((data.seconds[form.kernels] * scale[form.kernels]).sum()) + form.rest + CALL_S
                for form in group.forms
            ]
        found[cost] = [math.log2(total / totals[0]) for total in totals]
    return found


def judge(data: Data, groups: Sequence[Group], factors: NDArray[np.float64]) -> list[Row]:
    """A row for each network."""
    networks: defaultdict[tuple[str, int], list[Group]] = defaultdict(list)
    for group in groups:
        networks[group.network, group.threads].append(group)
    rows: list[Row] = []
    for (network, threads), mine in networks.items():
        between = [form.between for group in mine for form in group.forms]
        error = float(np.sqrt(np.mean(np.square(between)))) / 2  # of the mean of two passes
        measured: list[float] = []
        seconds: list[float] = []
        apart: list[bool] = []
        guessed: dict[str, list[float]] = {cost: [] for cost in COSTS}
        for group in mine:
            logs = predicted(data, group, factors)
            for position, form in enumerate(group.forms):
                if not position:
                    continue
                measured.append(form.ratio)
                seconds.append(group.seconds)
                apart.append(abs(form.ratio) > SURE * error)
                for cost in COSTS:
                    guessed[cost].append(logs[cost][position])
        chosen = [number for number, is_apart in enumerate(apart) if is_apart]
        rows.append(
            Row(
                network,
                threads,
                len(measured),
                len(chosen),
                {c: tau(measured, guessed[c], seconds, range(len(measured))) for c in COSTS},
                {c: tau(measured, guessed[c], seconds, chosen) for c in COSTS},
                {
                    cost: mean(
                        abs(2 ** (guess - real) - 1)
                        for guess, real in zip(guessed[cost], measured, strict=True)
                    )
                    for cost in COSTS
                },
            )
        )
    return rows


def tau(
    measured: Sequence[float],
    guessed: Sequence[float],
    seconds: Sequence[float],
    which: Sequence[int],
) -> float | None:
    """Kendall's tau of seconds that forms take more than their originals, which are at 0."""
    if len(which) < LEAST:
        return None
    real = [0.0, *(seconds[n] * (2 ** measured[n] - 1) for n in which)]
    told = [0.0, *(round(seconds[n] * (2 ** guessed[n] - 1), 9) for n in which)]
    return float(kendalltau(told, real).statistic) if len(set(told)) > 1 else None


HEADER = (
    "network",
    "threads",
    "forms",
    "told apart",
    *COSTS,
    *(f"error, {cost}" for cost in COSTS[:2]),
)


def cells(row: Row) -> tuple[str, ...]:
    """The texts of a line of the table."""
    taus = (f"{decimals(row.taus[c])} ({decimals(row.apart_taus[c])})" for c in COSTS)
    errors = (f"{100 * row.errors[c]:.1f} %" for c in COSTS[:2])
    return (row.network, *map(str, (row.threads, row.forms, row.apart)), *taus, *errors)


def medians(rows: Sequence[Row]) -> tuple[str, ...]:
    """The texts of the last line."""
    taus = (
        two_medians((row.taus[c] for row in rows), (row.apart_taus[c] for row in rows))
        for c in COSTS
    )
    errors = (f"{100 * median(row.errors[c] for row in rows):.1f} %" for c in COSTS[:2])
    counts = (rows[0].threads, sum(row.forms for row in rows), sum(row.apart for row in rows))
    return (f"median of {len(rows)}", *map(str, counts), *taus, *errors)


def by_threads(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each number of threads."""
    numbers = sorted({row.threads for row in rows})
    return [[row for row in rows if row.threads == number] for number in numbers]


LEGEND = """\
Kendall's tau of what forms of regions take more than their originals, over the forms of each
network, and in brackets over those that are told apart from the original; and by how much a ratio
of two times is off in the mean. The {families} families are held out in {folds} folds; a few
regions are common to two of them, and the settings were chosen by the same folds."""


def markdown(rows: Sequence[Row], data: Data, options: argparse.Namespace) -> str:
    """The page."""
    families = len({group.family for group in data.groups})
    lines = [
        f"{processor_name()}; ONNX Runtime {onnxruntime.__version__}.",
        "",
        LEGEND.format(families=families, folds=options.folds),
        "",
        *table(HEADER, [medians(each) for each in by_threads(rows)]),
        "",
        *table(HEADER, list(map(cells, rows))),
    ]
    return "\n".join(lines) + "\n"


def folds_of(groups: Sequence[Group], count: int) -> list[set[str]]:
    """Families in so many sets of about as many forms each."""
    sizes: Counter[str] = Counter()
    for group in groups:
        sizes[group.family] += len(group.forms)
    folds: list[set[str]] = [set() for _ in range(count)]
    totals = [0] * count
    for family, size in sizes.most_common():
        smallest = totals.index(min(totals))
        folds[smallest].add(family)
        totals[smallest] += size
    return folds


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=PACKED)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the table is written")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the trees, of all families")
    options = parser.parse_args()
    data = load(options.data, options.threads)
    forms = sum(len(group.forms) for group in data.groups)
    print(f"{len(data.groups)} groups, {forms} forms, {len(data.kernels)} kernels", flush=True)
    rows: list[Row] = []
    for fold in folds_of(data.groups, options.folds):
        seen = [group for group in data.groups if group.family not in fold]
        held = [group for group in data.groups if group.family in fold]
        if not seen or not held:
            continue
        names = names_of(data, seen)
        booster = train(data, seen, names, options.rounds)
        factors = np.exp2(booster.predict(matrix(data, names)))
        rows += judge(data, held, factors)
        print(f"{', '.join(sorted(fold))}: done", flush=True)
    rows.sort(key=lambda row: (row.network, row.threads))
    for texts in (HEADER, *map(cells, rows), *map(medians, by_threads(rows))):
        print(" | ".join(texts))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{NAME}.md").write_text(markdown(rows, data, options))
    if options.write is not None:
        names = names_of(data, data.groups)
        trees = as_trees(train(data, data.groups, names, options.rounds), names)
        trees.write(options.write)
        print(f"{options.write}: {options.write.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
