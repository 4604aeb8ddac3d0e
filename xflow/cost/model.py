"""The cost model for latency: estimates, and measurements that are stored and reused."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from xflow.core.deadline import Deadline
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Opaque
from xflow.core.registry import Attribute
from xflow.core.size import Expr, Size, substitute
from xflow.cost.child import NO_TIME
from xflow.cost.estimate import Estimator
from xflow.cost.measure import Measurer
from xflow.cost.store import Platform, Store
from xflow.cost.target import TargetModel
from xflow.cost.worker import Failed
from xflow.onnx.region import region_model
from xflow.onnx.writer import UnwritableError

LOSS = 0.02
"""How much slower a region may seem to be at one of several settings, if it gains in the mean."""
LOADING_S = 20.0
"""Seconds that measuring a few regions may take besides running them: to load them."""


@dataclass(frozen=True)
class StoredNotes:
    """The solutions of regions for one target; a `Notebook`."""

    store: Store
    place: Platform

    def get(self, key: str) -> str | None:
        """The text behind `key`, if there is one."""
        return self.store.solution(self.place, key)

    def put(self, key: str, text: str) -> None:
        """Keep a text; it replaces an earlier one."""
        self.store.put_solution(self.place, key, text)

    def drop(self, key: str) -> None:
        """Forget the text behind `key`."""
        self.store.drop_solution(self.place, key)


class Costs:
    """Prices regions on ONNX Runtime; `estimate` is the roofline, `measure` runs them.

    `constants` gives the data of constant leaves, `sizes` the size symbols of the model; `model`
    describes the target, by default as machines are on average. Regions are measured at `opset`,
    or at the oldest one that has their operators if that is newer.
    """

    measures = True

    def __init__(
        self,
        measurer: Measurer,
        store: Store,
        constants: ConstantLookup,
        *,
        sizes: Mapping[str, int] | None = None,
        opset: int = 20,
        model: TargetModel | None = None,
    ) -> None:
        target = measurer.target
        self.layouts = Estimator(model or TargetModel(threads=target.threads), sizes)
        self._measurer = measurer
        self._store = store
        self._constants = constants
        self._sizes = sizes or {}
        self._opset = opset
        self._failures: Counter[str] = Counter()
        """Why forms could not be measured, and how many for each reason."""
        self._place = Platform.of(target.provider, target.threads, measurer.runtime_version)
        self.notebook = StoredNotes(store, self._place)
        self.settings = (self.layouts.target, dict(self._sizes))

    @property
    def warnings(self) -> list[str]:
        """Problems of measurements so far: one sentence for each reason."""
        return [
            f"{number} forms of regions could not be measured: {reason}."
            if number > 1
            else f"A form of a region could not be measured: {reason}."
            for reason, number in self._failures.items()
        ]

    def estimate(self, graph: Graph) -> float:
        """The seconds that one run of `graph` takes, by the roofline."""
        return self.layouts(graph)

    def measure(
        self, graphs: Sequence[Graph], seconds: float, *, again: int = 0
    ) -> list[float | None]:
        """The seconds that a run of each graph takes; None for one that cannot be run.

        Graphs are timed together with the first of them, and on its scale: what was stored for
        the first counts, so that the drift of the machine's speed cancels out between calls.
        """
        if not graphs:
            return []
        opsets = [max(self._opset, graph.needed_opset) for graph in graphs]
        keys = [
            region_key(graph, self._sizes, opset)
            for graph, opset in zip(graphs, opsets, strict=True)
        ]
        if again:
            keys[0] += f"/again {again}"
        contexts = [keys[0], *(f"{keys[0]}/{key}" for key in keys[1:])]
        stored = [self._store.get(self._place, context) for context in contexts]
        known = [None if cost is None else cost.seconds for cost in stored]
        missing = [number for number, cost in enumerate(known) if cost is None]
        if not missing:
            return known
        chosen = sorted({0, *missing})
        models: dict[int, bytes] = {}
        for number in chosen:
            try:
                models[number] = region_model(
                    graphs[number], self._constants, sizes=self._sizes, opset=opsets[number]
                )
            except UnwritableError:
                continue
        if 0 not in models:
            return [None] * len(graphs)
        timings = self._measurer.time_together(
            list(models.values()), seconds, deadline=Deadline.after(2 * seconds + LOADING_S)
        )
        by_number = dict(zip(models, timings, strict=True))
        for each in timings:
            if isinstance(each, Failed) and each.reason != NO_TIME:
                self._failures[each.reason] += 1
        first = by_number[0]
        if isinstance(first, Failed):
            return [None] * len(graphs)
        start = first.median if known[0] is None else known[0]
        for number, timing in by_number.items():
            if known[number] is None and not isinstance(timing, Failed):
                taken = start * timing.relative_to(first)
                known[number] = taken
                self._store.put(self._place, contexts[number], taken, len(timing.samples))
        return known


class CostsAtSettings:
    """The costs at several settings of the input shapes: what is faster has to be slower nowhere.

    `layouts` is the estimate for all of them.
    """

    measures = True

    def __init__(self, costs: Sequence[Costs], layouts: Estimator) -> None:
        self.layouts = layouts
        self.notebook = costs[0].notebook
        self.settings = [cost.settings for cost in costs]
        self._costs = costs

    def estimate(self, graph: Graph) -> float:
        """The seconds that one run of `graph` takes, by the roofline."""
        return self.layouts(graph)

    @property
    def warnings(self) -> list[str]:
        """Problems of measurements, at any setting."""
        return list(dict.fromkeys(text for cost in self._costs for text in cost.warnings))

    def measure(
        self, graphs: Sequence[Graph], seconds: float, *, again: int = 0
    ) -> list[float | None]:
        """The seconds of the first graph at the first setting, times each graph's ratio.

        That is the mean over the settings, or the worst one where that is a loss beyond noise. A
        graph that does not run at one of the settings does not run.
        """
        part = seconds / len(self._costs)
        times = [cost.measure(graphs, part, again=again) for cost in self._costs]
        firsts = [each[0] if each else None for each in times]
        result: list[float | None] = []
        for mine in zip(*times, strict=True):
            ratios = [t / first for t, first in zip(mine, firsts, strict=True) if t and first]
            runs = len(ratios) == len(times)
            result.append(firsts[0] * combined(ratios) if firsts[0] and runs else None)
        return result


def combined(ratios: Sequence[float]) -> float:
    """What times at several settings, as parts of those before, come to: see `CostsAtSettings`."""
    worst = max(ratios)
    return worst if worst > 1 + LOSS else fmean(ratios)


def region_key(graph: Graph, sizes: Mapping[str, int], opset: int) -> str:
    """A hash of what a region computes: operators, attributes, types, not the data of weights."""
    numbers: dict[Node, int] = {}
    digest = hashlib.sha256(f"opset {opset}\n".encode())
    for node in graph.nodes:
        numbers[node] = len(numbers)
        inputs = [(numbers[value.node], value.index) for value in node.inputs]
        if isinstance(node.op, Leaf):
            what = "constant" if node.op.constant else "input"
        else:
            what = node.op.key if isinstance(node.op, Opaque) else node.op.name
        attributes = [(key, _plain(value, sizes)) for key, value in sorted(node.attributes.items())]
        types = [(kind.dtype, [_size(n, sizes) for n in kind.shape]) for kind in node.types]
        digest.update(f"{what} {inputs} {attributes} {types}\n".encode())
    outputs = [(numbers[value.node], value.index) for value in graph.outputs]
    digest.update(f"{outputs}".encode())
    return digest.hexdigest()


def _size(size: Size, sizes: Mapping[str, int]) -> str:
    return str(substitute(size, sizes))


def _plain(attribute: Attribute, sizes: Mapping[str, int]) -> str:
    if isinstance(attribute, tuple):
        return f"[{', '.join(_size(size, sizes) for size in attribute)}]"
    return _size(attribute, sizes) if isinstance(attribute, Expr) else str(attribute)
