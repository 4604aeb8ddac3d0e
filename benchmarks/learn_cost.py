#!/usr/bin/env python3
"""Train the learned cost on timed forms of regions, and say how well it ranks networks held out.

What is learned is a factor for each kernel that the estimate counts, from `features` of the kernel.
What was measured are regions of many kernels.  So the loss is of sums, as in Ansor (Zheng et al.,
OSDI 2020): the logarithm of what all kernels of a form take together, beside those of the other
forms of the same region, since all that the search asks is which of them is faster.

What is written has a part for each fold of families, which is trained without that.  How the parts
differ says how sure they are of a kernel, see `xflow.cost.learned.correction`.

To judge, families of networks are held out together, in the same folds; a few regions are common to
two families all the same.  Beside what was learned stand the estimate that it corrects and FLOPs.

    python learn_cost.py [--data FILE] [--threads N ...] [--folds N] [--rounds N] [--out DIR]
                         [--write FILE [--without FAMILY ...]]
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

import lightgbm
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from scipy.stats import kendalltau

from forms import PACKED, lines_of, read
from tables import decimals, table, two_medians
from xflow.cost.estimate import KernelLister
from xflow.cost.learned.correction import Correction, kind_of
from xflow.cost.learned.features import Features, features
from xflow.cost.learned.trees import Tree, Trees
from xflow.cost.machine import processor_name
from xflow.cost.target import TargetModel

NAME = "learned-cost"
COSTS = ("learned", "estimate", "FLOPs")
CALL_S = 8e-6
"""Seconds of each run of a session, whatever it computes."""
RARE = 40
"""Kernels of which fewer have a feature do not tell what it means."""
FEW = 4
"""Families of which fewer have a kind of kernel do not tell how long it takes elsewhere."""
ABSOLUTE = 0.02
"""Weight of what a form takes, beside what it takes more or less than the others."""
ROUNDS = 200
SURE = 2.0
"""Standard errors by which a form differs from the original that is told apart."""
LEAST = 5
"""Forms of which an order says something."""
GAIN = 0.02
"""What a form has to gain by a cost to be chosen, as in `xflow.search.policy`."""
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
    "num_threads": 1,
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
    counts = Counter(name for kernel in kernels_of(groups) for name in data.kernels[kernel])
    return sorted(name for name, count in counts.items() if count >= RARE)


def trees_of(booster: Any) -> list[Tree]:
    """The trees that a booster has learned."""
    return [_below(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]


def _below(node: Mapping[str, Any]) -> Tree:
    if "leaf_value" in node:
        return float(node["leaf_value"])
    sides = _below(node["left_child"]), _below(node["right_child"])
    return (int(node["split_feature"]), float(node["threshold"]), *sides)


def kinds_of(data: Data, groups: Iterable[Group]) -> dict[str, list[int]]:
    """The kernels of each kind that enough families have, by number."""
    families: defaultdict[str, set[str]] = defaultdict(set)
    kernels: defaultdict[str, set[int]] = defaultdict(set)
    for group in groups:
        for kernel in kernels_of([group]):
            kind = kind_of(data.kernels[kernel])
            families[kind].add(group.family)
            kernels[kind].add(kernel)
    return {kind: sorted(kernels[kind]) for kind in kernels if len(families[kind]) >= FEW}


def kernels_of(groups: Iterable[Group]) -> list[int]:
    """The kernels that some groups have, by number."""
    return sorted({int(k) for group in groups for form in group.forms for k in form.kernels})


class Learner:
    """Trains parts, each without some families, and each once."""

    def __init__(self, data: Data, groups: Sequence[Group], folds: Sequence[set[str]], rounds: int):
        self.data = data
        self.groups = groups
        self.folds = folds
        self.rounds = rounds
        self.names = names_of(data, groups)
        self._parts: dict[frozenset[int], tuple[list[Tree], NDArray[np.float64]]] = {}

    def correction(self, held: Collection[int] = ()) -> Correction:
        """What is learned without the families of these folds: a part for each other fold."""
        seen = self._without(held)
        others = [number for number in range(len(self.folds)) if number not in held]
        parts = [self._part(frozenset((*held, number))) for number in others]
        trees = Trees.of(self.names, [part for part, _ in parts])
        usual = {
            kind: [float(np.median(told[those])) for _, told in parts]
            for kind, those in kinds_of(self.data, seen).items()
        }
        return Correction(trees, usual)

    def _part(self, held: frozenset[int]) -> tuple[list[Tree], NDArray[np.float64]]:
        """The trees of a part, and what they say of all kernels."""
        if held not in self._parts:
            booster = train(self.data, self._without(held), self.names, self.rounds)
            told = booster.predict(matrix(self.data, self.names))
            self._parts[held] = trees_of(booster), told
        return self._parts[held]

    def _without(self, held: Collection[int]) -> list[Group]:
        families = set().union(*(self.folds[number] for number in held))
        return [group for group in self.groups if group.family not in families]


def factors_of(data: Data, groups: Iterable[Group], correction: Correction) -> NDArray[np.float64]:
    """The factors of the kernels that some groups have; 1 for all others."""
    factors = np.ones(len(data.kernels))
    for kernel in kernels_of(groups):
        factors[kernel] = 2.0 ** correction.of(data.kernels[kernel]).shrunk
    return factors


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
    gains: Mapping[str, float]
    """How many times as fast the regions are together in the forms that a cost chooses."""


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
        taken = dict.fromkeys(COSTS, 0.0)
        for group in mine:
            logs = predicted(data, group, factors)
            for cost in COSTS:
                taken[cost] += group.seconds * 2 ** group.forms[choice(logs[cost])].ratio
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
                {cost: sum(group.seconds for group in mine) / taken[cost] for cost in COSTS},
            )
        )
    return rows


def choice(logs: Sequence[float]) -> int:
    """The form that a cost chooses, which gains enough by it; 0 for the original."""
    best = min(range(len(logs)), key=lambda position: logs[position])
    return best if logs[best] <= math.log2(1 - GAIN) else 0


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
    *(f"choice, {cost}" for cost in COSTS[:2]),
)


def cells(row: Row) -> tuple[str, ...]:
    """The texts of a line of the table."""
    taus = (f"{decimals(row.taus[c])} ({decimals(row.apart_taus[c])})" for c in COSTS)
    errors = (f"{100 * row.errors[c]:.1f} %" for c in COSTS[:2])
    gains = (f"{row.gains[c]:.3f}" for c in COSTS[:2])
    return (row.network, *map(str, (row.threads, row.forms, row.apart)), *taus, *errors, *gains)


def medians(rows: Sequence[Row]) -> tuple[str, ...]:
    """The texts of the last line."""
    taus = (
        two_medians((row.taus[c] for row in rows), (row.apart_taus[c] for row in rows))
        for c in COSTS
    )
    errors = (f"{100 * median(row.errors[c] for row in rows):.1f} %" for c in COSTS[:2])
    counts = (rows[0].threads, sum(row.forms for row in rows), sum(row.apart for row in rows))
    gains = (f"{geometric_mean(row.gains[c] for row in rows):.3f}" for c in COSTS[:2])
    return (f"median of {len(rows)}", *map(str, counts), *taus, *errors, *gains)


def by_threads(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each number of threads."""
    numbers = sorted({row.threads for row in rows})
    return [[row for row in rows if row.threads == number] for number in numbers]


LEGEND = """\
Kendall's tau of what forms of regions take more than their originals, over the forms of each
network, and in brackets over those that are told apart from the original; and by how much a ratio
of two times is off in the mean. A choice is how many times as fast the regions of a network are
together, as measured, in the forms that a cost holds to be the fastest; in the first table the
geometric mean. The {families} families are held out in {folds} folds; a few regions are common to
two of them, and the settings were chosen by the same folds."""


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
    parser.add_argument("--write", type=Path, metavar="FILE", help="what all families teach")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="FAMILY", help="write what the others teach"
    )
    options = parser.parse_args()
    data = load(options.data, options.threads)
    forms = sum(len(group.forms) for group in data.groups)
    print(f"{len(data.groups)} groups, {forms} forms, {len(data.kernels)} kernels", flush=True)
    if options.write is not None:
        groups = [group for group in data.groups if group.family not in options.without]
        folds = folds_of(groups, options.folds)
        found = Learner(data, groups, folds, options.rounds).correction()
        found.write(options.write)
        size = f"{options.write.stat().st_size:,} bytes"
        print(
            f"{options.write}: {size}, digest {found.digest}, {len(found.kinds)} kinds", flush=True
        )
    if options.out is not None:
        rows = judged(data, options.folds, options.rounds)
        for texts in (HEADER, *map(cells, rows), *map(medians, by_threads(rows))):
            print(" | ".join(texts))
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{NAME}.md").write_text(markdown(rows, data, options))
    return 0


def judged(data: Data, count: int, rounds: int) -> list[Row]:
    """A row for each network and number of threads, of which the family was held out."""
    folds = folds_of(data.groups, count)
    learner = Learner(data, data.groups, folds, rounds)
    rows: list[Row] = []
    for number, fold in enumerate(folds):
        held = [group for group in data.groups if group.family in fold]
        rows += judge(data, held, factors_of(data, held, learner.correction([number])))
        print(f"{', '.join(sorted(fold))}: done", flush=True)
    return sorted(rows, key=lambda row: (row.network, row.threads))


if __name__ == "__main__":
    sys.exit(main())
