"""Backtracking search in one region: states are graphs, steps are applications of rules.

A state survives if its cost is at most alpha times the best plus a few calls. The first states
are those in which one rule is applied wherever it can be: some rules gain only then. A path is
local: after its first step each step has to touch nodes that the path has made, or their inputs,
since steps elsewhere are found on their own; a state that beats all others starts a new path. How
steps are found, and which states count as the same, see `steps`.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from xflow.analysis.observers import Observed
from xflow.analysis.on_codes import WHOLE, Border
from xflow.analysis.value_rewrites import least_float_masks
from xflow.blocks.find import find_spelled_out
from xflow.core.deadline import NEVER, Deadline
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.core.node import Node
from xflow.core.pause_gc import without_collector
from xflow.core.registry import Operator
from xflow.cost.target import Layout
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.numerics import Hazard
from xflow.search.context import DEFAULTS, Context
from xflow.search.policy import POLICY
from xflow.search.states import (
    KnownWay,
    Signature,
    State,
    Way,
    cheapest,
    choice,
    nearest,
    operators_in,
)
from xflow.search.steps import Candidate, Step, Steps, replaced


@dataclass(frozen=True)
class Limits:
    """Limits of the search of a region; all but the deadline are the same on any machine."""

    expansions: int = POLICY.expansions
    """Forms of which all steps are tried."""
    states: int = POLICY.states
    """Forms that are kept."""
    work: float = float("inf")
    """Nodes of all graphs that are priced, which takes nearly all of the time."""
    deadline: Deadline = NEVER


class Explorer:
    """Searches one region. `estimate` prices graphs; `constants` serves their leaves.

    `outside` is what is sensitive to the region's outputs, `border` what there is of codes around
    it; `careful` leaves out what may lose digits, see `Steps`. In `doubt`, the estimate may be
    wrong about a step: measurements decide. `ways` have led from regions like this one to better
    forms, those `of_blocks` from blocks by themselves.
    """

    def __init__(
        self,
        rules: RuleIndex,
        estimate: Callable[[Graph], float],
        constants: ConstantLookup,
        limits: Limits,
        context: Context = DEFAULTS,
        *,
        layout: Layout | None = None,
        doubt: bool = False,
        outside: Sequence[Observed] = (),
        border: Border = WHOLE,
        careful: Hazard = Hazard.NONE,
        ways: Sequence[Way] = (),
        of_blocks: Sequence[KnownWay] = (),
    ) -> None:
        self.steps = Steps(
            rules,
            constants,
            None if layout is None else layout.block,
            outside=outside,
            border=border,
            assumption=context.assumption,
            careful=careful,
        )
        self.estimate = estimate
        self.constants = constants
        self.limits = limits
        self.policy = context.policy
        self.random = random.Random(context.seed)
        self.opset = context.opset
        self.inside = frozenset[str]() if layout is None else layout.inside
        self.exhausted = False
        """Whether nothing was left to explore when the search ended."""
        self.work = 0
        """The work done so far, as `Limits.work` counts it."""
        self.masks = 0
        """How many operators of the given graph have a mask, see `masks.count`."""
        self.blocks: Sequence[frozenset[Node]] = ()
        """The attentions, normalizations and long activations that the given graph spells out."""
        self.doubt = doubt
        self.ways = ways
        self.of_blocks = of_blocks

    @without_collector
    def explore(self, graph: Graph, keep: int) -> list[State]:
        """The cheapest states that were found, the given graph first, see `states.choice`.

        At most `keep` besides the given graph; no two consist of the same operators, and none of
        operators that the opset does not have, or of fewer with masks: these are only intermediate.

        With `doubt`, it is explored again, with lower limits, without the step that is estimated to
        gain most, and once more without that of the best state then: all states that were found may
        depend on that one step, and states without it come late in the queue.

        Without, the cheapest state that surely keeps digits comes last, if the cheapest of all may
        lose some: that depends on the data of large constants, which is not seen here.
        """
        cost = self._price(graph)
        self.masks = least_float_masks.count(graph)
        root = State(graph, cost, hope=cost)
        self.blocks = find_spelled_out(graph, self.constants, self.opset)
        states, self.exhausted = self._explored(root, self.limits)
        at_last = replace(self.limits, work=math.inf)
        for state in self._built(cheapest(states.values()), at_last):
            _keep_cheaper(states, state)
        bests = [cheapest(states.values())]
        doubted: list[Step] = []
        fewer = replace(
            self.limits,
            expansions=self.limits.expansions // self.policy.doubt_part,
            states=self.limits.states // self.policy.doubt_part,
        )
        while self.doubt and not self.exhausted and len(doubted) < self.policy.doubts:
            step = bests[-1].heaviest
            if step is None:
                break
            doubted.append(step)
            others, _ = self._explored(root, fewer, doubted)
            bests.append(cheapest(others.values()))
            for state in others.values():
                _keep_cheaper(states, state)
        chosen = choice(states, root, bests, keep)
        if not self.doubt:
            chosen += [
                each for each in self._surest(root, states.values(), at_last) if each not in chosen
            ]
        return chosen

    def _surest(self, root: State, states: Collection[State], limits: Limits) -> list[State]:
        """The cheapest state that surely keeps digits, if the cheapest of all may lose some.

        It is one of `states`, or where the way to the cheapest leads without the rules that may.
        """
        best = cheapest(states)
        lossy = set(self._lossy(best))
        if not lossy:
            return []
        way = tuple(rule for rule in best.path if rule not in lossy)
        reached = [root, *self._retraced(root, [way], limits)]
        reached += self._built(reached[-1], limits)
        sure = [each for each in (*states, *reached) if each.path and not any(self._lossy(each))]
        return [cheapest(sure)] if sure else []

    def _lossy(self, state: State) -> Iterator[str]:
        """The rules on the way to a state that may lose digits, depending on what is not seen.

        What products with weights may lose does not count: of trained ones, none do.
        """
        while state.origin is not None:
            state, step = state.origin
            if Hazard.CANCELLATION.includes(step.cancels) and self.steps.is_unseen(step):
                yield step.rule

    def _explored(
        self, root: State, limits: Limits, doubted: Sequence[Step] = ()
    ) -> tuple[dict[Signature, State], bool]:
        """The cheapest state for each signature, and whether there are no others.

        They are reached without steps like those that are `doubted`.
        """
        graph, best = root.graph, root.cost
        queue = _Queue(self.random)
        seen = {self.steps.key(graph)}
        found = {root.signature: root}
        built = [] if doubted else [*self._built(root, limits)]
        starts = [root, *self._blocks(root, built)]
        if not doubted:
            starts += self._retraced(root, self.ways, limits)
            starts += built
        for start in (*starts, *self._sweeps(root, limits, doubted)):
            queue.push(start)
            seen.add(self.steps.key(start.graph))
            _keep_cheaper(found, start)
            best = min(best, start.cost)
        delayed: dict[State, list[_Successor]] = {}
        considered = expanded = 0
        while expanded < limits.expansions:
            state = queue.pop(self._dearest(best))
            if state is None:
                return found, True
            detours = state in delayed
            expanded += detours
            for new in delayed.pop(state) if detours else self._successors(state, seen, doubted):
                if considered >= limits.states or self._is_over(limits):
                    return found, False
                step, after = new.step, new.after
                if new.key in seen:
                    continue
                cost = new.cost
                if not detours and cost >= state.cost:
                    delayed.setdefault(state, []).append(new)
                    continue
                considered += 1
                hope = cost
                is_dear = cost > self._dearest(best)
                if step.moves and cost >= state.cost and not is_dear:
                    slid = self._slid(state, new, seen, doubted)
                    if slid is not None:
                        seen.add(self.steps.key(slid.graph))
                        if self._is_writable(slid.graph):
                            _keep_cheaper(found, slid)
                        else:
                            slid = replace(slid, hope=max(slid.hope, root.cost))
                        queue.push(slid)
                if step.shrinks if is_dear else cost >= state.cost:
                    behind = self._best_behind(step, after, seen, all_steps=is_dear)
                    hope = min(cost, behind + self.policy.step_s * (len(state.path) + 2))
                    if hope >= state.cost and step.renames:
                        continue
                seen.add(new.key)
                if hope > self._dearest(best):
                    continue
                writable = self._is_writable(after)
                if not writable:  # else it and its successors would stay first in the queue
                    hope = max(hope, root.cost)
                path = (*state.path, step.rule)
                if writable and cost < best * (1 - 1e-6):
                    best = cost
                    reached = State(after, cost, path, hope=hope, origin=(state, step))
                else:
                    focus = _focus(state, step, after, new.moved)
                    depth = state.depth + 1
                    origin = (state, step)
                    reached = State(after, cost, path, focus, depth, state.lane, hope, origin)
                queue.push(reached)
                if writable:
                    _keep_cheaper(found, reached)
            if state in delayed:
                queue.push(state)
        return found, False

    def _blocks(self, root: State, built: Sequence[State]) -> Iterator[State]:
        """States for paths that begin at a block that is spelled out, one for each.

        A block becomes a kernel after several steps that gain nothing; what gains a little
        elsewhere, in all combinations, would come before them. They begin in the given state, and
        once more where others have been `built`: what is found for one adds to these.
        """
        starts = [(root, block) for block in self.blocks]
        for last in built[-1:]:
            left = find_spelled_out(last.graph, self.constants, self.opset)
            starts += [(last, block) for block in left]
        for number, (state, block) in enumerate(starts, 1):
            yield replace(state, focus=block, depth=1, lane=number)

    def _retraced(self, root: State, ways: Sequence[Way], limits: Limits) -> Iterator[State]:
        """The cheapest state on each of some ways, as far as there are such steps here.

        Of several places for a step, it is one near what the way has made.
        """
        for way in ways:
            best = state = root
            made: set[Node] = set()
            for rule in way:
                if self._is_over(limits):
                    break
                found = self._along(state, rule, made)
                if found is not None:
                    state, made, _ = found
                    if state.cost < best.cost and self._is_writable(state.graph):
                        best = state
            if best is not root:
                yield best

    def _built(self, root: State, limits: Limits) -> Iterator[State]:
        """The states in which one block after the other has gone a way `of_blocks` that gains.

        The largest come first: those that include others. The cheapest form that a search has come
        to is led that way once more: it may lie on a path past a block, and to price the way takes
        a hundredth of what it takes to find it there.
        """
        if not self.of_blocks:
            return
        state = root
        found = find_spelled_out(root.graph, self.constants, self.opset)
        blocks = [set(block) for block in sorted(found, key=len, reverse=True)]
        while blocks:
            block = blocks.pop(0)
            ways = nearest(operators_in(block), self.of_blocks, self.policy)
            reached = [self._out_of(state, block, way, limits) for way in ways]
            best = min(reached, key=lambda each: each[0].cost, default=None)
            if best is not None and best[0].cost < state.cost:
                state, moved = best
                blocks = [{moved.get(node, node) for node in each} for each in blocks]
                yield state

    def _out_of(
        self, start: State, block: set[Node], way: Way, limits: Limits
    ) -> tuple[State, dict[Node, Node]]:
        """The cheapest state on a way that starts in a block, and the new nodes by those before.

        A step is near what it has made. Those that are not there are passed over: of two rotations
        by one table the first has taken apart what both read.
        """
        best, moved = start, dict[Node, Node]()
        state, made, now = start, block, dict[Node, Node]()
        for rule in way:
            if self._is_over(limits):
                break
            found = self._along(state, rule, made, near=True)
            if found is None:
                continue
            state, made, new = found
            now = {**new, **{old: new.get(node, node) for old, node in now.items()}}
            if state.cost < best.cost and self._is_writable(state.graph):
                best, moved = state, now
        return best, moved

    def _along(
        self, state: State, rule: str, made: set[Node], *, near: bool = False
    ) -> tuple[State, set[Node], dict[Node, Node]] | None:
        """The state after a step by a rule near what is `made`, and what is made then.

        With the new nodes by those before. Where there is no such step, it is one anywhere else,
        unless it has to be `near`; None where there is none.
        """
        step: Step | None = None
        for candidate in self.steps.candidates_by(rule, state.graph):
            is_near = not made.isdisjoint(candidate.step.near)
            if (step is None and not near) or is_near:
                admitted = self.steps.admitted(candidate, state.graph)
                step = admitted or step
                if admitted is not None and is_near:
                    break
        if step is None:
            return None
        after, moved = replaced(state.graph, step)
        if after == state.graph:
            return None
        made = {moved.get(node, node) for node in made}
        made |= {node for node in step.made if not node.constant}
        return self._behind(state, step, after), made, moved

    def _behind(self, state: State, step: Step, after: Graph) -> State:
        """The state to which a step leads from another, and from which paths start afresh."""
        path = (*state.path, step.rule)
        cost = self._price(after) + self.policy.step_s * len(path)
        return State(after, cost, path, hope=cost, origin=(state, step))

    def _sweeps(self, root: State, limits: Limits, doubted: Sequence[Step]) -> Iterator[State]:
        """States with one rule applied at all of its places, and then another, while that gains."""
        state = root
        for _ in range(self.policy.sweeps):
            places = Counter(each.step.rule for each in self.steps.candidates(state.graph))
            swept = [
                self._swept(state, rule, limits, doubted)
                for rule, count in places.items()
                if count >= self.policy.swept
            ]
            best = min(swept, key=lambda each: each.cost, default=state)
            if best.cost >= state.cost or not self._is_writable(best.graph):
                return
            state = best
            yield state

    def _swept(self, state: State, rule: str, limits: Limits, doubted: Sequence[Step]) -> State:
        """The state after a rule is applied wherever it can be, but not to what it has made.

        Nor where that changes nothing, as a step may that makes what is there already; and no more
        often than there were operators.
        """
        made: set[Node] = set()
        for _ in range(len(state.graph.nodes)):
            if self._is_over(limits):
                break
            for candidate in self.steps.candidates_by(rule, state.graph):
                step = candidate.step
                if not made.isdisjoint(step.match.nodes):
                    continue
                if any(map(step.is_like, doubted)):
                    continue
                after, moved = replaced(state.graph, step)
                same = after == state.graph
                admitted = None if same else self.steps.admitted(candidate, state.graph)
                if admitted is not None:
                    break
            else:
                break
            made = {moved.get(node, node) for node in made} | set(admitted.made)
            state = self._behind(state, admitted, after)
        return state

    def _slid(
        self, before: State, new: _Successor, seen: Container[object], doubted: Sequence[Step]
    ) -> State | None:
        """The state in which what a step moves past an elementwise operator is moved further.

        It is moved in the same direction as far as it goes. None where it goes no further, or where
        that gains nothing, and no step right behind it does.
        """
        step, graph, shifted = new.step, new.after, new.moved
        state, carried = before, set[Node]()
        for _ in range(self.policy.slide + 1):
            path, origin = (*state.path, step.rule), (state, step)
            focus = _focus(state, step, graph, shifted)
            state = State(graph, 0.0, path, focus, before.depth + 1, before.lane, origin=origin)
            carried = {shifted.get(node, node) for node in carried} & set(graph.nodes)
            carried |= {node for node in step.made if not _is_elementwise(node)}
            further = self._further(step, graph, carried, doubted)
            if further is None:
                break
            step = further
            graph, shifted = replaced(graph, step)
        assert state.origin is not None
        if state.origin[0] is before or self.steps.key(state.graph) in seen:
            return None
        cost = self._price(state.graph) + self.policy.step_s * len(state.path)
        behind = self._best_behind(state.origin[1], state.graph, seen, all_steps=True)
        hope = min(cost, behind + self.policy.step_s * (len(state.path) + 1))
        return replace(state, cost=cost, hope=hope) if hope < before.cost else None

    def _further(
        self, step: Step, graph: Graph, carried: set[Node], doubted: Sequence[Step]
    ) -> Step | None:
        """A step in the same direction by which what is `carried` is moved further, if any."""
        places = carried
        if step.moves > 0:
            values = (value for node in carried for value in node.outputs)
            places = {user for value in values for user in graph.users.get(value, ())}
        for node in (each for each in graph.nodes if each in places):
            for candidate in self.steps.candidates_from(node, graph):
                found = candidate.step
                if found.moves != step.moves or carried.isdisjoint(found.match.nodes):
                    continue
                if any(map(found.is_like, doubted)):
                    continue
                admitted = self.steps.admitted(candidate, graph)
                if admitted is not None:
                    return admitted
        return None

    def _best_behind(
        self, step: Step, after: Graph, seen: Container[object], *, all_steps: bool
    ) -> float:
        """The least cost of graphs one step later, at nodes that `step` made or their readers.

        Only steps are tried that leave fewer operators or less to compute, since to try all takes
        time, and those by which something comes to be computed in the runtime's own layout, for
        which it has to be spelled out first; with `all_steps`, or after one that fills blocks of
        channels, all.
        """
        made = {node for node in step.made if not node.constant}
        values = (value for node in made for value in node.outputs)
        readers = {user for value in values for user in after.users.get(value, ())}
        found: list[tuple[float, int, Candidate]] = []
        for node in made | readers:
            for candidate in self.steps.candidates_from(node, after):
                following = candidate.step
                told = following.shrinks or following.lightens or step.fills or all_steps
                if not (told or self._moves_inside(following)) or made.isdisjoint(following.near):
                    continue
                graph, _ = replaced(after, following)
                if self.steps.key(graph) not in seen:
                    found.append((self._price(graph), len(found), candidate))
        # To ask whether a step may be taken costs more than its price, and one is wanted.
        costs = (cost for cost, _, each in sorted(found) if self.steps.admitted(each, after))
        return next(costs, float("inf"))

    def _moves_inside(self, step: Step) -> bool:
        """Whether only what a step makes may be computed in the runtime's own layout."""
        return any(map(self._is_inside, step.made)) and not any(
            map(self._is_inside, step.match.nodes)
        )

    def _is_inside(self, node: Node) -> bool:
        return isinstance(node.op, Operator) and node.op.name in self.inside

    def _is_writable(self, graph: Graph) -> bool:
        """Whether the opset has all operators that are computed each time, and no mask is lost."""
        kept = not self.masks or least_float_masks.count(graph) >= self.masks
        return kept and graph.is_in_opset(self.opset) and graph.has_forms

    def _price(self, graph: Graph) -> float:
        self.work += len(graph.nodes)
        return self.estimate(graph)

    def _is_over(self, limits: Limits) -> bool:
        return self.work >= limits.work or limits.deadline.passed

    def _dearest(self, best: float) -> float:
        return self.policy.alpha * best + self.policy.slack_s

    def _successors(
        self, state: State, seen: Container[object], doubted: Sequence[Step]
    ) -> Iterator[_Successor]:
        """The graphs after one step, unlike those in doubt, that are new and cheap enough."""
        zone = None if state.focus is None else _around(state.focus)
        detour = not self._is_writable(state.graph)  # from which the way back may cost
        for candidate in self.steps.candidates(state.graph):
            found = candidate.step
            if zone is not None and zone.isdisjoint(found.near):
                continue
            if any(map(found.is_like, doubted)):
                continue
            after, moved = replaced(state.graph, found)
            key = self.steps.key(after)
            step = None if key in seen else self.steps.admitted(candidate, state.graph)
            if step is None:
                continue
            cost = self._price(after) + self.policy.step_s * (len(state.path) + 1)
            if not step.expands or cost < state.cost or detour:
                yield _Successor(step, after, moved, key, cost)


def _is_elementwise(node: Node) -> bool:
    return isinstance(node.op, Operator) and node.op.elementwise


def _keep_cheaper(found: dict[Signature, State], state: State) -> None:
    """Add a state unless there is one with its signature that costs no more."""
    known = found.get(state.signature)
    if known is None or known.cost > state.cost:
        found[state.signature] = state


class _Successor(NamedTuple):
    """A graph one step from a state, the new nodes by the state's own, and its estimated cost."""

    step: Step
    after: Graph
    moved: dict[Node, Node]
    key: object
    cost: float


class _Queue:
    """States to expand, by turns of each lane: half of the time, of the one without a block."""

    def __init__(self, order: random.Random) -> None:
        self._random = order
        self._lanes: dict[int, _Lane] = {}
        self._turn = 0

    def push(self, state: State) -> None:
        lane = self._lanes.setdefault(state.lane, _Lane())
        lane.push(state, self._random.random())

    def pop(self, limit: float) -> State | None:
        """The next state whose cost is at most `limit`; dearer ones are forgotten."""
        self._turn += 1
        blocks = [number for number in self._lanes if number]
        first = blocks[self._turn // 2 % len(blocks)] if blocks and self._turn % 2 else 0
        for number in (first, 0, *blocks):
            state = self._lanes[number].pop(limit) if number in self._lanes else None
            if state is not None:
                return state
        return None


class _Lane:
    """States to expand: by turns the cheapest of all, and the cheapest of the next depth.

    Long paths that first cost and then pay would otherwise wait for all states that are cheap.
    """

    def __init__(self) -> None:
        self._layers: list[list[tuple[float, int, float, int, State]]] = []
        self._count = 0
        self._turn = 0

    def push(self, state: State, rank: float) -> None:
        """Add a state; of those that cost the same, and have paths as long, that of least rank
        comes first."""
        while len(self._layers) <= state.depth:
            self._layers.append([])
        self._count += 1
        entry = (state.hope, len(state.path), rank, self._count, state)
        heapq.heappush(self._layers[state.depth], entry)

    def pop(self, limit: float) -> State | None:
        """The next state whose cost is at most `limit`; dearer ones are forgotten."""
        for layer in self._layers:
            if layer and layer[0][0] > limit:
                layer.clear()
        filled = [depth for depth, layer in enumerate(self._layers) if layer]
        if not filled:
            return None
        self._turn += 1
        if self._turn % 2:
            depth = min(filled, key=lambda d: self._layers[d][0])
        else:
            depth = filled[self._turn // 2 % len(filled)]
        return heapq.heappop(self._layers[depth])[-1]


def _focus(state: State, step: Step, after: Graph, moved: dict[Node, Node]) -> frozenset[Node]:
    """The nodes that the path has made so far: those before the step, and those of the step."""
    present = set(state.graph.nodes)
    created = {node for node in step.made if node not in present and not node.constant}
    created = created or {value.node for value in step.after}
    return frozenset(created) | (
        {moved.get(node, node) for node in state.focus or ()} & set(after.nodes)
    )


def _around(focus: frozenset[Node]) -> frozenset[Node]:
    """Nodes and those that they read, weights aside."""
    return focus | {v.node for node in focus for v in node.inputs if not v.is_constant}
