"""The cost model for latency: estimates, and measurements that are stored and reused."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from xflow.core.deadline import Deadline
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Opaque
from xflow.core.registry import Attribute
from xflow.core.size import Expr, Size, substitute
from xflow.core.wording import counted
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
LEAST_S = 1e-9
"""Seconds that any graph takes by the estimate: what is nothing but views takes none."""


@dataclass(frozen=True)
class StoredNotes:
    """The solutions of regions for one target; a `Notebook`.

    Nothing is `kept` that was found by measuring with fewer threads.
    """

    store: Store
    place: Platform
    kept: Callable[[], bool] = lambda: True

    def get(self, key: str) -> str | None:
        """The text behind `key`, if there is one."""
        return self.store.solution(self.place, key)

    def put(self, key: str, text: str) -> None:
        """Keep a text; it replaces an earlier one."""
        if self.kept():
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
        self._fewest = target.threads
        """The fewest threads that anything was measured with."""
        self.notebook = StoredNotes(store, self._place, lambda: self.has_all_threads)
        self.settings = (self.layouts.target, dict(self._sizes))

    @property
    def has_all_threads(self) -> bool:
        """Whether all that was measured had all threads of the target."""
        return self._fewest == self._place.threads

    @property
    def warnings(self) -> list[str]:
        """Problems of measurements so far: one sentence for each reason."""
        told = [
            f"{number} forms of regions could not be measured: {reason}."
            if number > 1
            else f"A form of a region could not be measured: {reason}."
            for reason, number in self._failures.items()
        ]
        if not self.has_all_threads:
            all_threads = counted(self._place.threads, "thread")
            told.append(
                "Other processes kept the machine busy, so forms of regions were measured with "
                f"{self._fewest} of {all_threads}."
            )
        return told

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
        known = self._known(contexts, self._place.threads)
        if None not in known:
            return known
        found, threads = self._measurer.undisturbed(
            lambda measurer: self._measured(graphs, opsets, contexts, seconds, measurer)
        )
        assert found is not None  # there is no deadline
        known, samples = found
        self._fewest = min(self._fewest, threads)
        for number, count in samples.items():
            taken = known[number]
            assert taken is not None
            self._store.put(replace(self._place, threads=threads), contexts[number], taken, count)
        return self._at_all_threads(graphs, known, threads)

    def _known(self, contexts: Sequence[str], threads: int) -> list[float | None]:
        """What is stored of graphs as they were measured with so many threads."""
        place = replace(self._place, threads=threads)
        stored = (self._store.get(place, context) for context in contexts)
        return [None if cost is None else cost.seconds for cost in stored]

    def _measured(
        self,
        graphs: Sequence[Graph],
        opsets: Sequence[int],
        contexts: Sequence[str],
        seconds: float,
        measurer: Measurer,
    ) -> tuple[list[float | None], dict[int, int]]:
        """The seconds that each graph takes there, and of those measured now the samples."""
        known = self._known(contexts, measurer.target.threads)
        missing = [number for number, cost in enumerate(known) if cost is None]
        if not missing:
            return known, {}
        nothing: list[float | None] = [None] * len(graphs)
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
            return nothing, {}
        timings = measurer.time_together(
            list(models.values()), seconds, deadline=Deadline.after(2 * seconds + LOADING_S)
        )
        by_number = dict(zip(models, timings, strict=True))
        for each in timings:
            if isinstance(each, Failed) and each.reason != NO_TIME:
                self._failures[each.reason] += 1
        first = by_number[0]
        if isinstance(first, Failed):
            return nothing, {}
        start = first.median if known[0] is None else known[0]
        samples: dict[int, int] = {}
        for number, timing in by_number.items():
            if known[number] is None and not isinstance(timing, Failed):
                known[number] = start * timing.relative_to(first)
                samples[number] = len(timing.samples)
        return known, samples

    def _at_all_threads(
        self, graphs: Sequence[Graph], times: Sequence[float | None], threads: int
    ) -> list[float | None]:
        """What graphs that were measured with so many threads take with all, beside the first."""
        if threads == self._place.threads:
            return list(times)
        losses = lost_by_threads(graphs, threads, self.layouts)
        return [time and time * loss for time, loss in zip(times, losses, strict=True)]


def lost_by_threads(graphs: Sequence[Graph], threads: int, estimator: Estimator) -> list[float]:
    """How many times as long each graph takes with all threads, measured with so many.

    Beside the first graph, by an estimate for all threads. It is at least 1: a loss counts as the
    estimate says, and a gain does not, since that has not been seen.
    """
    fewer = Estimator(replace(estimator.target, threads=threads), estimator.sizes)
    shares = [estimator(graph) / max(fewer(graph), LEAST_S) for graph in graphs]
    return [max(1.0, share / max(shares[0], LEAST_S)) for share in shares]


class CostsAtSettings:
    """The costs at several settings of the input shapes: what is faster has to be slower nowhere.

    `layouts` is the estimate for all of them.
    """

    measures = True

    def __init__(self, costs: Sequence[Costs], layouts: Estimator) -> None:
        self.layouts = layouts
        notes = costs[0].notebook
        self.notebook = notes and replace(
            notes, kept=lambda: all(cost.has_all_threads for cost in costs)
        )
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
