"""Explores regions one after the other, or in several processes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from xflow.analysis.observers import Observed
from xflow.core.codec import Plain, from_plain, to_plain
from xflow.core.deadline import Deadline
from xflow.core.fold import ConstantLookup, with_expressions
from xflow.core.graph import Graph
from xflow.core.node import Leaf, TensorType, Value, leaf
from xflow.core.processes import process_pool
from xflow.core.registry import Array
from xflow.cost import CostModel, Layouts, Use
from xflow.cost.target import Layout
from xflow.rewriting.derivation import Application
from xflow.rewriting.index import RuleIndex, index_of
from xflow.rewriting.numerics import Hazard
from xflow.rewriting.rule import Rule, directions_of
from xflow.search.backtrack import Explorer, Limits
from xflow.search.channel_padding import Waves, index_for_waves
from xflow.search.constants import Constants
from xflow.search.context import Context
from xflow.search.policy import Policy
from xflow.search.region import Region
from xflow.search.states import State

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


class Explorers:
    """Explores regions, the heaviest first, so that they get their share of the time.

    In up to `processes` at once, if the cost is an estimate of a target, which every process can
    make anew. Ends them on exit.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        constants: Constants,
        cost: CostModel,
        context: Context,
        processes: int = 1,
        *,
        pool: Callable[..., AbstractContextManager[Executor]] = process_pool,
    ) -> None:
        self._rules = tuple(rules)
        self.index = index_of(self._rules)
        self.directions = directions_of(self._rules)
        """The directions of the rules by their names."""
        self._constants = constants
        self._cost = cost
        self._context = context
        layout = None if cost.layouts is None else cost.layouts.target.layout
        self._shared = _Shared(self.index, context, layout, cost.measures)
        self._processes = min(processes, context.policy.processes)
        self._start_pool = pool
        self._pool: Executor | None = None
        self._exit = ExitStack()

    def close(self) -> None:
        """End the processes."""
        self._exit.close()
        self._pool = None

    def explore(
        self,
        regions: Sequence[Region],
        weights: Sequence[float],
        deadline: Deadline,
        *,
        work: float | None = None,
        effort: int = 1,
    ) -> Iterator[tuple[int, Exploration]]:
        """The results of regions, each with the region's number, in the order of completion.

        The `deadline` is for all of them: the time is shared out by weights. With `work`, that is
        shared out instead, and each may take all of the time: the same is found on any machine that
        is through with the work by then. The limits of each are those of the policy times `effort`.
        There are no results of regions that were not explored when it was to stop.
        """
        order = sorted(range(len(regions)), key=lambda number: -weights[number])
        shares = _Shares(weights, deadline, work, effort)
        pool = self._started(len(regions), deadline)
        if pool is None:
            for number in order:
                if deadline.stopped:
                    return
                yield number, self._here(regions[number], shares.of(number, 1))
            return
        running: dict[Future[Any], tuple[int, Share]] = {}
        looks_s = None if deadline.stop is None else LOOKS_S
        while (order or running) and not deadline.stopped:
            while order and len(running) < self._processes:
                number = order.pop(0)
                share = shares.of(number, self._processes)
                task = self._task(regions[number], share)
                if task is None:
                    yield number, self._here(regions[number], share)
                    continue
                try:
                    running[pool.submit(_explore_task, task)] = number, share
                except RuntimeError:  # the pool is broken: the rest is done in this process
                    yield number, self._here(regions[number], share)
            done, _ = wait(running, looks_s, FIRST_COMPLETED)
            for future in done:
                number, share = running.pop(future)
                yield number, self._received(regions[number], future, share)

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
            careful=region.careful,
        )
        states = waves.found(region.graph)[: self._context.policy.forms + 1]
        return Exploration(states, waves.exhausted, waves.work)

    def _estimate_of(self, region: Region) -> Callable[[Graph], float]:
        """The function that prices forms of a region."""
        if self._cost.layouts is not None and any(region.uses):
            return partial(self._cost.layouts, uses=region.uses)
        return self._cost.estimate

    def _started(self, regions: int, deadline: Deadline) -> Executor | None:
        """The processes, if they are there or worth starting."""
        layouts = self._cost.layouts
        if layouts is None or self._processes < 2 or regions < 2:
            return None
        if self._pool is None and deadline.left >= self._context.policy.worthwhile_s:
            pool = self._start_pool(
                self._processes,
                timeout=self._context.policy.idle_s,
                initializer=_begin,
                initargs=(
                    self._rules,
                    layouts.anew(),
                    self._context,
                    self._cost.measures,
                ),
            )
            self._pool = self._exit.enter_context(pool)
        return self._pool

    def _here(self, region: Region, share: Share) -> Exploration:
        return self._shared.explore(
            region.graph,
            self._estimate_of(region),
            self._constants.of(region),
            share,
            outside=region.outside,
            careful=region.careful,
        )

    def _task(self, region: Region, share: Share) -> _Task | None:
        """A region as data for another process; None if it cannot be encoded."""
        form = to_plain(region.graph.outputs)
        if form is None:
            return None
        known = self._constants.of(region)
        leaves = []
        for value in region.leaves:
            assert isinstance(value.node.op, Leaf)
            leaves.append((value.node.op, value.type, known(value)))
        return _Task(form, tuple(leaves), region.uses, region.outside, region.careful, share)

    def _received(self, region: Region, future: Future[Any], share: Share) -> Exploration:
        """The result of another process; explored here if that was lost."""
        try:
            result: tuple[list[_Form], Exploration] = future.result()
            forms, found = result
        except (BrokenProcessPool, OSError, MemoryError):
            return self._here(region, share)
        leaves = {str(value): value for value in region.leaves}
        states = []
        for form, cost, path, trail in forms:
            outputs = from_plain(form, leaves)
            if outputs is not None:
                states.append(State(Graph(outputs), cost, path, known_trail=trail))
        return replace(found, states=states)


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
    careful: Hazard
    share: Share


@dataclass(frozen=True)
class _Shared:
    """The data that a process needs for all regions."""

    index: RuleIndex
    context: Context
    layout: Layout | None
    doubt: bool
    """Whether the estimate may be wrong, since measurements decide."""

    def explore(
        self,
        graph: Graph,
        estimate: Callable[[Graph], float],
        constants: ConstantLookup,
        share: Share,
        *,
        outside: Sequence[Observed],
        careful: Hazard,
    ) -> Exploration:
        """Explore a region's graph with its share; see `Explorer` for the others.

        Rules that have not been read yet are read before: the first region, which is the heaviest,
        would spend its time on them.
        """
        self.index.read(graph)
        explorer = Explorer(
            self.index,
            estimate,
            constants,
            share.limits(self.context.policy),
            self.context,
            layout=self.layout,
            doubt=self.doubt,
            outside=outside,
            careful=careful,
        )
        states = explorer.explore(graph, self.context.policy.forms)
        starved = not explorer.exhausted and explorer.work >= share.work
        return Exploration(states, explorer.exhausted, explorer.work, starved)


_here: list[tuple[_Shared, Layouts]] = []
"""The context of this process, once it is prepared."""


def _begin(
    rules: Sequence[Rule],
    estimator: Callable[[], Layouts],
    context: Context,
    doubt: bool,
) -> None:
    """Prepare a process."""
    estimate = estimator()
    shared = _Shared(index_of(tuple(rules)), context, estimate.target.layout, doubt)
    _here[:] = [(shared, estimate)]


_Form: TypeAlias = tuple[Plain, float, tuple[str, ...], tuple[Application, ...] | None]
"""A form of a region with its cost, its path and its trail."""


def _explore_task(task: _Task) -> tuple[list[_Form], Exploration]:
    """Explore a region in a process of its own: the forms, and the other fields of `Found`."""
    ((shared, estimator),) = _here
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
        careful=task.careful,
    )
    forms: list[_Form] = []
    for state in found.states:
        form = to_plain(state.graph.outputs)
        if form is not None:
            forms.append((form, state.cost, state.path, state.trail))
    return forms, replace(found, states=[])
