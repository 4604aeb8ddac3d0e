"""Explores regions one after the other, or in several processes at once."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

from xflow.analysis.observers import Observed
from xflow.analysis.on_codes import Border
from xflow.core.codec import Plain, from_plain, to_plain
from xflow.core.deadline import Deadline
from xflow.core.fold import ConstantLookup, with_expressions
from xflow.core.graph import Graph
from xflow.core.node import Leaf, TensorType, Value, leaf
from xflow.core.pause_gc import without_collector
from xflow.core.registry import Array
from xflow.cost import CostModel, Layouts, Use
from xflow.cost.target import Layout
from xflow.rewriting.derivation import Application
from xflow.rewriting.index import RuleIndex, index_of
from xflow.rewriting.numerics import Hazard
from xflow.rewriting.rule import directions_of
from xflow.search.backtrack import Explorer, Limits
from xflow.search.channel_padding import Waves, index_for_waves
from xflow.search.constants import Constants
from xflow.search.context import Context
from xflow.search.policy import Policy
from xflow.search.processes import SearchProcesses, rules_here
from xflow.search.region import Region
from xflow.search.states import KnownWay, State, Way

LOOKS_S = 0.2
"""Seconds between two looks at whether to stop, while other processes explore."""


@dataclass(frozen=True)
class Exploration:
    """The cheapest forms of a region, the original first, and whether there are no others."""

    states: list[State]
    exhausted: bool
    work: float = 0
    """The work that it took, see `Limits.work`."""
    starved: bool = False
    """Whether the work did not suffice."""
    late: bool = False
    """Whether the time did not suffice."""


class Explorers:
    """Explores regions, the heaviest first, so that they get their share of the time.

    In several `processes` at once, if the cost is an estimate of a target, which every process can
    make anew; they have the rules. Until these are up, which takes long on a machine that is busy,
    this process explores the lightest regions: of few operators, that may be all.
    """

    def __init__(
        self,
        processes: SearchProcesses,
        constants: Constants,
        cost: CostModel,
        context: Context,
    ) -> None:
        self._rules = processes.rules
        self.index = index_of(self._rules)
        self.directions = directions_of(self._rules)
        """The directions of the rules by their names."""
        self._constants = constants
        self._cost = cost
        self._context = context
        layout = None if cost.layouts is None else cost.layouts.target.layout
        self._shared = _Shared(self.index, context, layout, cost.measures)
        self._processes = processes
        self._here_s = 0.0
        """Seconds of the processor for which this process has explored."""
        self._setting = b""
        """What other processes have to know of this search, pickled once."""
        if cost.layouts is not None:
            self._setting = pickle.dumps((cost.layouts.anew(), context, cost.measures))

    def explore(
        self,
        regions: Sequence[Region],
        weights: Sequence[float],
        deadline: Deadline,
        *,
        work: float | None = None,
        effort: int = 1,
        ways: Sequence[Sequence[Way]] = (),
        of_blocks: Sequence[KnownWay] = (),
    ) -> Iterator[tuple[int, Exploration]]:
        """The results of regions, each with the region's number, in the order of completion.

        The `deadline` is for all of them: the time is shared out by weights. With `work`, that is
        shared out instead, and each may take all of the time: the same is found on any machine that
        is through with the work by then. The limits of each are those of the policy times `effort`.
        Each may have `ways` that led from others like it to better forms; those `of_blocks` are
        for all of them.
        There are no results of regions that were not explored when it was to stop, or of those that
        were left when the time for all was over, where that is not shared out.
        """
        order = sorted(range(len(regions)), key=lambda number: -weights[number])
        shares = _Shares(weights, deadline, work, effort)
        known = [Known(each, of_blocks) for each in ways or ((),) * len(regions)]

        def is_over() -> bool:
            return deadline.stopped or (work is not None and deadline.passed)

        running: dict[Future[Any], tuple[int, Share]] = {}
        looks_s = None if deadline.stop is None else LOOKS_S
        while (order or running) and not deadline.stopped:
            while order and len(running) < self._processes.count:
                if is_over():
                    order.clear()
                    break
                pool = self._pool(len(order), deadline)
                number = order.pop(-1 if pool is None else 0)
                share = shares.of(number, 1 if pool is None else self._processes.count)
                task = None if pool is None else self._task(regions[number], share, known[number])
                if pool is None or task is None:
                    yield number, self._here(regions[number], share, known[number])
                    continue
                try:
                    running[pool.submit(_explore_task, self._setting, task)] = number, share
                except RuntimeError:  # it is broken: the rest is done in this process
                    self._processes.give_up()
                    yield number, self._here(regions[number], share, known[number])
            done, _ = wait(running, looks_s, FIRST_COMPLETED)
            for future in done:
                number, share = running.pop(future)
                yield number, self._received(regions[number], future, share, known[number])
        if self._cost.measures:
            self._processes.settle(deadline)

    def waves(self, region: Region, work: float, deadline: Deadline) -> Exploration:
        """The results of waves in a region, with so much `work` and until the deadline.

        The target has to have a layout of its own.
        """
        layout = self._shared.layout
        assert layout is not None
        waves = Waves(
            index_for_waves(self._rules),
            self._estimate_of(region),
            self._constants.of(region),
            layout.block,
            self._context,
            work=work,
            deadline=deadline,
            outside=region.outside,
            border=region.border,
            careful=region.careful,
        )
        states = waves.found(region.graph)[: self._context.policy.forms + 1]
        return Exploration(states, waves.exhausted, waves.work)

    def _estimate_of(self, region: Region) -> Callable[[Graph], float]:
        """The function that prices forms of a region."""
        if self._cost.layouts is not None and any(region.uses):
            return partial(self._cost.layouts, uses=region.uses)
        return self._cost.estimate

    def _pool(self, regions: int, deadline: Deadline) -> Executor | None:
        """The processes, if they are up; they are started where that is worth it."""
        if self._cost.layouts is None:
            return None
        worthwhile_s = self._context.policy.worthwhile_s
        if regions > 1 and min(self._here_s, deadline.left) >= worthwhile_s:
            self._processes.start()
        return self._processes.executor if self._processes.are_up else None

    def _here(self, region: Region, share: Share, known: Known) -> Exploration:
        start = time.process_time()
        found = self._shared.explore(
            region.graph,
            self._estimate_of(region),
            self._constants.of(region),
            share,
            outside=region.outside,
            border=region.border,
            careful=region.careful,
            ways=known,
        )
        self._here_s += time.process_time() - start
        return found

    def _task(self, region: Region, share: Share, ways: Known) -> _Task | None:
        """A region as data for another process; None if it cannot be encoded."""
        form = to_plain(region.graph.outputs)
        if form is None:
            return None
        known = self._constants.of(region)
        leaves = []
        for value in region.leaves:
            assert isinstance(value.node.op, Leaf)
            leaves.append((value.node.op, value.type, known(value)))
        around = region.uses, region.outside, region.border
        return _Task(form, tuple(leaves), *around, region.careful, share, ways)

    def _received(
        self, region: Region, future: Future[Any], share: Share, known: Known
    ) -> Exploration:
        """The result of another process; explored here if that was lost."""
        try:
            result: tuple[list[_Form], Exploration] = future.result()
            forms, found = result
        except BrokenProcessPool:  # and all that they had to do has failed by now
            self._processes.give_up()
            return self._here(region, share, known)
        except (OSError, MemoryError):
            return self._here(region, share, known)
        leaves = {str(value): value for value in region.leaves}
        states = []
        for form, cost, path, trail in forms:
            outputs = from_plain(form, leaves)
            if outputs is not None:
                states.append(State(Graph(outputs), cost, path, known_trail=trail))
        return replace(found, states=states)


class Known(NamedTuple):
    """The ways that are known before a region is explored: of regions like it, and of blocks."""

    like: Sequence[Way] = ()
    of_blocks: Sequence[KnownWay] = ()


class Share(NamedTuple):
    """The share of a region in time and work, which begins once its rules are read."""

    seconds: float
    end: Deadline
    """When the time for all regions is over."""
    effort: int
    """The factor of the policy's limits."""
    work: float = float("inf")
    """The work that it may take, see `Limits.work`."""

    def limits(self, policy: Policy) -> Limits:
        """The limits of a search that begins now."""
        return Limits(
            self.effort * policy.expansions,
            self.effort * policy.states,
            self.work,
            min(Deadline.after(self.seconds, self.end.stop), self.end),
        )


class _Shares:
    """Shares out time, or work, by weights."""

    def __init__(
        self, weights: Sequence[float], end: Deadline, work: float | None, effort: int
    ) -> None:
        self._weights = weights
        self._effort = effort
        self._end = end
        self._sum = self._left = sum(weights)
        self._work = work

    def of(self, number: int, processes: int) -> Share:
        """The share of region `number`, which is the next one; to be asked once for each."""
        left = self._end.left
        if self._work is not None:
            own = self._weights[number] / self._sum if self._sum > 0 else 1.0
            return Share(left, self._end, self._effort, own * self._work)
        part = self._weights[number] / self._left if self._left > 0 else 1.0
        self._left -= self._weights[number]
        return Share(min(1.0, processes * part) * left, self._end, self._effort)


@dataclass(frozen=True)
class _Task:
    """A region for another process: its graph, its leaves with their types and data."""

    form: Plain
    leaves: tuple[tuple[Leaf, TensorType, Array | None], ...]
    uses: tuple[Use, ...]
    outside: tuple[Observed, ...]
    border: Border
    careful: Hazard
    share: Share
    ways: Known


@dataclass(frozen=True)
class _Shared:
    """The data that a process needs for all regions."""

    index: RuleIndex
    context: Context
    layout: Layout | None
    doubt: bool
    """Whether the estimate may be wrong, since measurements decide."""

    @without_collector
    def explore(
        self,
        graph: Graph,
        estimate: Callable[[Graph], float],
        constants: ConstantLookup,
        share: Share,
        *,
        outside: Sequence[Observed],
        border: Border,
        careful: Hazard,
        ways: Known,
    ) -> Exploration:
        """Explore a region's graph with its share; see `Explorer` for the others.

        Rules that have not been read yet are read before: the first region, which is the heaviest,
        would spend its time on them. The collector waits until the explorer is gone: it would walk
        all that this holds, and again what is left.
        """
        self.index.read(graph)
        limits = share.limits(self.context.policy)
        explorer = Explorer(
            self.index,
            estimate,
            constants,
            limits,
            self.context,
            layout=self.layout,
            doubt=self.doubt,
            outside=outside,
            border=border,
            careful=careful,
            ways=ways.like,
            of_blocks=ways.of_blocks,
        )
        states = explorer.explore(graph, self.context.policy.forms)
        ended, late = explorer.exhausted, limits.deadline.passed
        starved = not ended and explorer.work >= share.work
        return Exploration(states, ended, explorer.work, starved, late and not ended)


@lru_cache(maxsize=1)
def _setting_here(setting: bytes) -> tuple[_Shared, Layouts]:
    """What this process has of a search: one after the other, with the estimates that are kept."""
    estimator, context, doubt = pickle.loads(setting)
    estimate: Layouts = estimator()
    return _Shared(rules_here(), context, estimate.target.layout, doubt), estimate


_Form: TypeAlias = tuple[Plain, float, tuple[str, ...], tuple[Application, ...] | None]
"""A form of a region with its cost, its path and its trail."""


def _explore_task(setting: bytes, task: _Task) -> tuple[list[_Form], Exploration]:
    """Explore a region in a process of its own: its forms, and the rest of what was found."""
    shared, estimator = _setting_here(setting)
    leaves: dict[str, Value] = {}
    data: dict[Value, Array | None] = {}
    for op, type, array in task.leaves:
        value = leaf(
            op.key,
            type,
            constant=op.constant,
            blocked=op.blocked,
            known=op.known,
            may_be=op.may_be,
            exact_sums=op.exact_sums,
        )
        leaves[op.key], data[value] = value, array
    outputs = from_plain(task.form, leaves)
    assert outputs is not None
    estimate = partial(estimator, uses=task.uses)
    lookup = with_expressions(data.get, shared.context.policy.told_apart)
    found = shared.explore(
        Graph(outputs),
        estimate,
        lookup,
        task.share,
        outside=task.outside,
        border=task.border,
        careful=task.careful,
        ways=task.ways,
    )
    forms: list[_Form] = []
    for state in found.states:
        form = to_plain(state.graph.outputs)
        if form is not None:
            forms.append((form, state.cost, state.path, state.trail))
    return forms, replace(found, states=[])
