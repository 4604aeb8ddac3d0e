"""Decides, by measurements or estimates, which form of a region replaces it.

An estimate counts from a gain of some percent, and also where there is no time to measure. A
measurement counts if the form gains in new sessions of the runtime as well: the fastest of several
is so partly by chance, and two sessions of one model differ by some percent for as long as they
live. A large gain that was promised by the estimate counts at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import TypeAlias

from xflow.core.deadline import Deadline
from xflow.core.fold import byte_size
from xflow.core.graph import Graph, rebuild
from xflow.core.node import Node, leaf
from xflow.core.registry import Operator
from xflow.cost import CostModel
from xflow.cost.objectives import operators
from xflow.search.policy import Policy
from xflow.search.region import Region
from xflow.search.solution_cache import Solution
from xflow.search.states import State


@dataclass(frozen=True)
class Decision:
    """The form that a region should have; None for its own.

    `hurried`: there was no time to measure it, so that the estimate decided.
    """

    solution: Solution | None
    hurried: bool = False


Keeps: TypeAlias = Callable[[Solution], bool]
"""Whether a solution keeps the digits that its region does, at the region's own constants."""


class Decider:
    """Decides between the forms of regions until a `deadline`."""

    def __init__(self, cost: CostModel, policy: Policy, deadline: Deadline) -> None:
        self._cost = cost
        self._policy = policy
        self._deadline = deadline
        self.timed = 0
        """How many forms of regions were measured against their own."""

    def decide(
        self,
        region: Region,
        states: Sequence[State],
        seconds: float,
        worth: float,
        keeps: Keeps = lambda solution: True,
    ) -> Decision:
        """The form that a region should have, of `states`, of which the first is its own.

        One that `keeps` digits at the region's own constants, if there is one; where a measurement
        decides, that is asked of the result alone, since the answer takes longer than a look at
        the estimate.

        They are measured for `seconds`, if the cost can measure; where too few are left, the
        estimate decides, and the timing of the whole model tells whether it was right. To
        load the region's weights may take seconds by itself: at most a part of those left, which
        is the part of the model's time that the region is `worth` times `Policy.loading`.
        """
        states = self._within_range(states)
        if not self._cost.measures:
            return Decision(self._estimated(region, states, keeps))
        states = self._distinct(states)
        low = self._policy.measure_s[0]
        left = self._deadline.left
        if left < low:
            return self._hurried(region, states, keeps)
        weights = sum(byte_size(v) or 0 for v in region.inputs if v.is_constant)
        loading = weights / self._policy.loaded_per_s
        fitting = min(len(states), int(left / 2 / (loading + low)))
        most = self._policy.loading * worth * left
        if fitting * loading > most:
            fitting = int(most / loading)
        if fitting < 2:
            return self._hurried(region, states, keeps)
        original, *others = states[:fitting]
        dearest = self._policy.alpha * min(state.cost for state in others)
        promising = [state for state in others if state.cost <= dearest]
        found = self._measured(region, [original, *promising], seconds)
        rest = [state for state in others if state.cost > dearest]
        if found is None and rest:  # the estimate was wrong about the others
            found = self._measured(region, [original, *rest], seconds)
        return Decision(found)

    def _hurried(self, region: Region, states: Sequence[State], keeps: Keeps) -> Decision:
        """The form that a region should have where there is no time to measure it."""
        return Decision(self._estimated(region, states, keeps, hurried=True), hurried=True)

    def _estimated(
        self, region: Region, states: Sequence[State], keeps: Keeps, *, hurried: bool = False
    ) -> Solution | None:
        """The cheapest form that gains enough over the first one, and that `keeps` digits.

        Where none does, the cheapest: the digits that are lost are for the search to avoid.
        """
        original, *others = states
        cheapest: Solution | None = None
        for state in sorted(others, key=lambda state: state.cost):
            gain = self._least_gain(state, original, hurried=hurried)
            gains = state.path and state.cost <= original.cost - gain
            # Without a trail it cannot be checked.
            if gains and state.trail is not None and not self._loses(region, original, state):
                solution = _solution(state, original.cost - state.cost, estimated=True)
                if keeps(solution):
                    return solution
                cheapest = cheapest or solution
        return cheapest

    def _least_gain(self, state: State, original: State, *, hurried: bool) -> float:
        """The cost that a form has to gain by the estimate.

        It is a part of the region's, or a larger one of that without the products that both forms
        have, if that is less: however far the estimate errs about these, it does so in both. The
        operators before a product with a whole vocabulary gain nothing beside it, and are as well
        known as elsewhere. A form that only leaves something out may be as dear. Where there is no
        time to measure, the region counts as a whole, as it would if it were measured.
        """
        policy = self._policy
        if hurried:
            simpler = operators(state.graph) < operators(original.graph)
            return original.cost * (policy.least_gain if simpler else policy.hurried_gain)
        if self._cost.layouts is not None and _is_part(state.graph, original.graph):
            return -policy.alike * original.cost
        rest = original.cost - self._in_common(state, original)
        return policy.least_gain * min(original.cost, policy.beside * rest)

    def _in_common(self, state: State, original: State) -> float:
        """The cost of the products that both forms have, as far as it is known by itself.

        That of an image is not, which depends on layouts, nor that of a product on codes.
        """
        if self._cost.layouts is None or any(node.codes for node in original.graph.nodes):
            return 0.0
        mine, theirs = (
            Counter(_product(node) for node in each.graph.nodes if _is_product(node))
            for each in (original, state)
        )
        shared = mine & theirs
        alone = {_product(node): node for node in original.graph.nodes if _is_product(node)}
        cost = sum(count * self._cost.estimate(_alone(alone[key])) for key, count in shared.items())
        return min(cost, original.cost)

    def _loses(self, region: Region, original: State, state: State) -> bool:
        """Whether a form would be slower at one of several settings."""
        if self._cost.layouts is None:
            return False
        before, after = (
            self._cost.layouts.at_each(each.graph, region.uses) for each in (original, state)
        )
        most = 1 + self._policy.alike
        several = len(before) > 1  # of one, the costs themselves tell it
        return several and any(new > most * old for old, new in zip(before, after, strict=True))

    def _within_range(self, states: Sequence[State]) -> Sequence[State]:
        """The first state, and those that cut off no more sums than it does.

        That is no matter of time alone: the runtime would compute other numbers.
        """
        layouts = self._cost.layouts
        if layouts is None:
            return states
        most = layouts.cut_off(states[0].graph)
        return [s for s in states if s is states[0] or layouts.cut_off(s.graph) <= most]

    def _distinct(self, states: Sequence[State]) -> Sequence[State]:
        """The first state, and of others that end in the same kernels the one that costs least.

        A normalization that is spelled out as the runtime's fusion expects is the same to it as
        the operator: only by chance would it measure faster.
        """
        layouts = self._cost.layouts
        if layouts is None:
            return states
        original, *others = states
        forms, least = [original], {layouts.served(original.graph): original.cost}
        for state in sorted(others, key=lambda state: state.cost):
            served = layouts.served(state.graph)
            if state.cost < least.get(served, math.inf):
                least[served] = state.cost
                forms.append(state)
        return forms

    def _measured(self, region: Region, forms: Sequence[State], seconds: float) -> Solution | None:
        """The fastest of the forms, of which the first is the original, if it gains enough.

        It has to do so in new sessions, too, unless it gains much, as the estimate said.
        """
        policy, original = self._policy, forms[0]
        graphs = [region.in_place(state.graph.outputs) for state in forms]
        times = self._cost.measure(graphs, (1 - policy.again) * seconds)
        if times[0] is None:
            return None
        self.timed += sum(time is not None for time in times[1:])
        timed = [(t, state) for t, state in zip(times, forms, strict=True) if t is not None]
        fastest, form = min(timed, key=lambda item: item[0])
        # Of forms that are equally fast within the noise, the one with the fewest operators
        # comes first. The tolerance is larger where the estimate sees no difference either.
        unseen = form.cost * (1 + policy.alike)
        close = [
            (t, state)
            for t, state in timed
            if t <= fastest * (1 + (policy.noise if state.cost <= unseen else policy.alike))
        ]
        first = min(close, key=lambda item: (operators(item[1].graph), item[1].cost))
        chosen = [first] if first[1] is form else [first, (fastest, form)]
        wanted = [self._wanted(state, original) for _, state in chosen]
        if all(
            t > times[0] * (1 - at_first)
            for (t, _), (at_first, _) in zip(chosen, wanted, strict=True)
        ):
            return None
        enough = [lasting for _, lasting in wanted]
        gains = [1 - t / times[0] for t, _ in chosen]
        dearest = (1 - policy.plain) * original.cost
        promised = all(state.cost <= dearest for _, state in chosen)
        if not promised or min(gains) < policy.plain:
            after = [graphs[forms.index(state)] for _, state in chosen]
            gains = self._gains(graphs[0], after, enough, seconds)
        gaining = [
            (gain, state)
            for gain, (_, state), least in zip(gains, chosen, enough, strict=True)
            if gain >= least and state.path and state.trail is not None
        ]
        most = max((gain for gain, _ in gaining), default=0.0)
        for gain, state in gaining:
            if gain >= most - policy.alike:
                return _solution(state, gain * times[0])
        return None

    def _gains(
        self, before: Graph, after: Sequence[Graph], wanted: Sequence[float], seconds: float
    ) -> list[float]:
        """The part of the time that is gained by each graph, on the average of new sessions.

        Further sessions follow as long as a graph's gain is too close to the one `wanted`. A graph
        that does not run gains -inf.
        """
        policy = self._policy
        sessions: list[list[float]] = []
        means = [-math.inf] * len(after)
        for number in range(1, policy.sessions + 1):
            if number > 1 and self._deadline.left < seconds:
                break
            start, *times = self._cost.measure(
                [before, *after], policy.again * seconds, again=number
            )
            if start is None:
                break
            sessions.append([-math.inf if t is None else 1 - t / start for t in times])
            means = [fmean(each) for each in zip(*sessions, strict=True)]
            pairs = zip(means, wanted, strict=True)
            if all(abs(mean - enough) >= policy.alike for mean, enough in pairs):
                break
        return means

    def _wanted(self, state: State, original: State) -> tuple[float, float]:
        """The part of the time that a form has to gain, at first and on average in new sessions."""
        policy = self._policy
        alike = policy.alike
        if _is_part(state.graph, original.graph):
            return -alike, -alike  # it computes nothing in addition: a loss is noise
        # The estimate knows the relative speed of kernels for products within some percent.
        surely = -alike if state.has_other_kernels(original) else alike / 2
        if state.cost >= original.cost * (1 - surely):
            return policy.surprise, policy.surprise / 2
        # Two sessions of one model differ by as much as it may gain in a large region. So what is
        # simpler must only not be slower; forms with more operators would win by chance.
        is_simpler = operators(state.graph) < operators(original.graph)
        is_promised = state.cost < original.cost * (1 - alike)
        if is_simpler and is_promised:
            return -alike, 0.0
        return policy.measured_gain, policy.measured_gain


def _is_part(after: Graph, before: Graph) -> bool:
    """Whether `after` computes some of the operators of `before` and nothing else.

    Real attributes may differ, such as the scale of an attention, which has no influence on time.
    """
    more, fewer = (
        Counter(_working(node) for node in graph.nodes if not node.constant)
        for graph in (before, after)
    )
    return fewer < more


def _is_product(node: Node) -> bool:
    return node.role in ("attention", "contraction") and not node.constant


def _alone(node: Node) -> Graph:
    """A node that reads nothing but leaves."""
    own = {
        value: leaf(str(number), value.type, constant=value.is_constant)
        for number, value in enumerate(dict.fromkeys(node.inputs))
    }
    return Graph(rebuild(node.outputs, own))


def _working(node: Node) -> object:
    """The properties of a node on which its time depends."""
    if not isinstance(node.op, Operator):
        return node.kind, node.types
    read = tuple(value.type for value in node.inputs)
    return node.op.name, _settings(node), read, node.types


def _settings(node: Node) -> object:
    """The attributes on which the time of a node depends."""
    return frozenset(
        (name, value) for name, value in node.attributes.items() if not isinstance(value, Fraction)
    )


def _product(node: Node) -> object:
    """The same of a product, without what its kernel copies besides, as an attention its past."""
    if not isinstance(node.op, Operator):
        return _working(node)
    shapes = [value.shape for value in node.inputs]
    name, read = node.op.work(shapes, node.attributes)
    return name, _settings(node), read, node.types[0]


def _solution(state: State, gain: float, *, estimated: bool = False) -> Solution:
    return Solution(state.graph.outputs, state.path, gain, state.trail, estimated)
