"""The search over a whole graph: region by region, equal ones once, then again across the seams.

An estimate guides the search in each region; the cheapest forms that it finds are measured against
the original, and one of them replaces it only if it is faster by more than the noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from xflow.backtrack import Explorer, Limits, State
from xflow.cost import CostModel
from xflow.graph import Graph, Value, rebuild
from xflow.match import ConstantLookup, no_constants
from xflow.region import Constants, Region, cut
from xflow.rule import Rule
from xflow.steps import RuleIndex

ALPHA = 2.0
"""States that cost more than this times the best are dropped: estimates are rough, and rules that
enable others cost first."""
KEPT = 4
"""Forms of a region that are measured against the original."""
GAIN = 0.02
"""Least relative gain for which a region is rewritten."""
SURPRISE = 0.08
"""The same for a form that the estimate does not call faster: more often it is noise."""
HOPE = 1.05
"""Forms are measured up to this estimated cost, relative to the original's."""
PASSES = 4
MEASURE_S = (0.2, 1.0)
"""Least and most seconds for measuring one region."""

Progress = Callable[[str, Mapping[str, object]], None]


@dataclass(frozen=True)
class Replacement:
    """`before` of a graph replaced by `after`, which computes the same.

    Both refer to the graph in which the replacements before this one have been made. `gain` is in
    seconds per run; `rules` are those that led from one to the other, in this order.
    """

    before: tuple[Value, ...]
    after: tuple[Value, ...]
    rules: tuple[str, ...]
    gain: float


@dataclass(frozen=True)
class SearchResult:
    """The graph that was found, how it came about, and remarks for the user."""

    graph: Graph
    replacements: tuple[Replacement, ...]
    notes: tuple[str, ...] = ()


def apply_replacements(graph: Graph, replacements: Sequence[Replacement]) -> Graph:
    """`graph` with the replacements made in order, without those that no longer apply."""
    for item in replacements:
        present = set(graph.nodes)
        if all(value.node in present for value in item.before):
            graph = graph.replace(dict(zip(item.before, item.after, strict=True)))
    return graph


def without(replacements: Sequence[Replacement], dropped: int) -> tuple[Replacement, ...]:
    """The replacements less number `dropped`; later ones refer to what stood there before it."""
    guilty = replacements[dropped]
    back = dict(zip(guilty.after, guilty.before, strict=True))
    later = []
    for item in replacements[dropped + 1 :]:
        values = rebuild((*item.before, *item.after), back)
        count = len(item.before)
        later.append(replace(item, before=values[:count], after=values[count:]))
    return (*replacements[:dropped], *later)


@dataclass(frozen=True)
class _Solution:
    """Better outputs for a region's graph."""

    outputs: tuple[Value, ...]
    rules: tuple[str, ...]
    gain: float


def search(
    graph: Graph,
    rules: Sequence[Rule],
    cost: CostModel,
    *,
    deadline: float,
    alpha: float = ALPHA,
    seed: int = 0,
    constants: ConstantLookup = no_constants,
    opset: int | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """The best form of `graph` that the rules lead to before `deadline` (time.monotonic).

    It is made of operators that `opset` of ONNX has; of any if that is None.
    Deterministic for a seed as far as `cost` is, unless the deadline cuts it short.
    """
    job = _Search(
        RuleIndex(rules),
        cost,
        Constants(constants),
        deadline=deadline,
        alpha=alpha,
        seed=seed,
        opset=opset,
        progress=progress,
    )
    return job.run(graph)


class _Search:
    """One search: its budget, and what is known about regions so far."""

    def __init__(
        self,
        index: RuleIndex,
        cost: CostModel,
        constants: Constants,
        *,
        deadline: float,
        alpha: float,
        seed: int,
        opset: int | None,
        progress: Progress | None,
    ) -> None:
        self.index = index
        self.cost = cost
        self.deadline = deadline
        self.alpha = alpha
        self.seed = seed
        self.opset = opset
        self.constants = constants
        self.progress = progress
        self.solved: dict[tuple[Value, ...], _Solution | None] = {}
        self.unfinished: set[tuple[Value, ...]] = set()
        """Regions in which the search was cut short: it goes on from what it found."""
        self.notes: list[str] = []
        self.replacements: list[Replacement] = []

    def run(self, graph: Graph) -> SearchResult:
        """Search pass after pass, cutting at other places each time, while that gains."""
        if not self.index:
            return SearchResult(graph, (), ("there are no rules to apply",))
        idle = 0
        for number in range(PASSES):
            if idle == 2 or self.remaining() <= 0:
                break
            regions = cut(graph, self.constants, shifted=number % 2 == 1)
            share = 0.7 if number == 0 else 0.75
            new = self.solve(regions, time.monotonic() + share * self.remaining(), number)
            graph, changed = self.rewrite(graph, regions)
            idle = 0 if changed and new else idle + 1
        if self.remaining() <= 0:
            self.notes.append("the search ended with its time, not with its work")
        return SearchResult(graph, tuple(self.replacements), tuple(self.notes))

    def remaining(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def tell(self, phase: str, **details: object) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(phase, details)

    def solve(self, regions: Sequence[Region], until: float, number: int) -> int:
        """Search and measure those regions that are new; return how many these are."""
        groups: dict[tuple[Value, ...], list[Region]] = {}
        for region in regions:
            if region.graph.outputs not in self.solved:
                groups.setdefault(region.graph.outputs, []).append(region)
        weights = {
            key: self.cost.estimate(group[0].graph) * len(group) for key, group in groups.items()
        }
        searching = 0.6 if self.cost.measures else 1.0
        end = time.monotonic() + searching * (until - time.monotonic())
        left = sum(weights.values())
        found: list[tuple[float, Region, list[State]]] = []
        # The light ones first: what they leave of their time goes to those that matter.
        for done, key in enumerate(sorted(groups, key=lambda key: weights[key])):
            group, region = groups[key], groups[key][0]
            self.tell("search", **{"pass": number + 1, "region": done + 1, "of": len(groups)})
            now = time.monotonic()
            share = weights[key] / left if left else 1.0
            left -= weights[key]
            limit = now + share * (end - now) if self.cost.measures else self.deadline
            states, exhausted = self.explore(region, limit)
            self.solved[key] = None
            if not exhausted:
                self.unfinished.add(key)
            original, others = states[0], [s for s in states[1:] if s.cost < HOPE * states[0].cost]
            if others:
                found.append(((original.cost - others[0].cost) * len(group), region, states))
        found.sort(key=lambda item: -item[0])
        for done, (hope, region, states) in enumerate(found):
            self.tell("measure", **{"pass": number + 1, "region": done + 1, "of": len(found)})
            seconds = (until - time.monotonic()) / (len(found) - done)
            best = self.decide(region, states, hope, seconds)
            self.solved[region.graph.outputs] = best
            if best is not None and region.graph.outputs not in self.unfinished:
                # What stands there now is what the next pass meets; it has been searched.
                self.solved.setdefault(best.outputs, None)
        return len(groups)

    def explore(self, region: Region, deadline: float) -> tuple[list[State], bool]:
        """The cheapest forms of a region, the original first; and whether there are no others."""
        limits = Limits(alpha=self.alpha, deadline=deadline)
        if self.cost.measures:  # small gains are lost in the noise: go deep in one go
            limits = replace(limits, expansions=10 * limits.expansions, states=10 * limits.states)
        lookup = self.constants.of(region)
        explorer = Explorer(
            self.index, self.cost.estimate, lookup, limits, seed=self.seed, opset=self.opset
        )
        return explorer.explore(region.graph, KEPT), explorer.exhausted

    def decide(
        self, region: Region, states: Sequence[State], hope: float, seconds: float
    ) -> _Solution | None:
        """The form that a region should have, None for the one that it has."""
        original, *others = [s for s in states if s.cost < HOPE * states[0].cost]
        if not self.cost.measures:
            best = min(others, key=lambda state: state.cost)
            return _solution(best, original.cost, best.cost, GAIN)
        if self.remaining() < MEASURE_S[0] or (hope <= 0 and seconds < MEASURE_S[0]):
            return None
        low, high = MEASURE_S
        forms = [original, *others]
        graphs = [Graph(region.with_weights(state.graph.outputs)) for state in forms]
        times = self.cost.measure(graphs, min(high, max(low, seconds)))
        if times[0] is None:
            return None
        timed = [(t, state) for t, state in zip(times, forms, strict=True) if t is not None]
        fastest = min(t for t, _ in timed)
        # Of forms that are equally fast as far as one can tell, take the one with the fewest
        # operators.
        time_of_best, best = min(
            ((t, state) for t, state in timed if t <= fastest * (1 + GAIN)),
            key=lambda item: (_operators(item[1].graph), item[1].cost),
        )
        expected = best.cost < original.cost * (1 - GAIN / 2)
        return _solution(best, times[0], time_of_best, GAIN if expected else SURPRISE)

    def rewrite(self, graph: Graph, regions: Sequence[Region]) -> tuple[Graph, int]:
        """Put the solutions in, from the last region to the first; return how many these are.

        In this order every replacement speaks of values that the others have left as they were.
        """
        count = 0
        for region in reversed(regions):
            solution = self.solved.get(region.graph.outputs)
            if solution is None:
                continue
            after = region.instantiate(solution.outputs)
            item = Replacement(region.outputs, after, solution.rules, solution.gain)
            graph = apply_replacements(graph, [item])
            self.replacements.append(item)
            count += 1
        return graph, count


def _operators(graph: Graph) -> int:
    """How many operators run each time."""
    return sum(not node.constant for node in graph.nodes)


def _solution(state: State, before: float, after: float, gain: float) -> _Solution | None:
    if not state.path or after > before * (1 - gain):
        return None
    return _Solution(state.graph.outputs, state.path, before - after)
