"""Waves: pad the channels of many images at once, so that they fill blocks of the layout.

The runtime computes images in blocks of channels. An operator whose channels do not fill blocks,
such as a pool or a concatenation of images with 168 channels where a block has 16, leaves its
layout. A convolution may make more channels than are needed, and its readers may ignore them; but
all operators that the image meets have to take part, and none of these steps gains anything alone:
a search step by step, or in a part of the graph, does not find them.

A wave makes all of them at once. Convolutions are *opened*: each becomes the first part of one with
more channels. The parts are *carried* through the operators that read them, until a convolution
that ignores the other channels absorbs them. Concatenations of parts are rewritten one at a time,
and stay so where that is estimated to gain: a concatenation is taken apart into those of two, parts
pass these one by one, and the rest is put together again. Every step is an application of a proved
rule, as in the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from xflow.analysis.observers import Observed
from xflow.analysis.on_codes import WHOLE, Border
from xflow.core.deadline import NEVER, Deadline
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph, walk
from xflow.core.node import Node, Value
from xflow.core.pause_gc import without_collector
from xflow.core.registry import Operator
from xflow.rewriting.index import RuleIndex, operators_of
from xflow.rewriting.instance import Instance
from xflow.rewriting.numerics import Hazard
from xflow.rewriting.rule import Rule
from xflow.search.context import DEFAULTS, Context
from xflow.search.states import State
from xflow.search.steps import Step, Steps, replaced

PART, JOIN = "Slice", "Concat"
MADE = 4
"""Nodes of a graph that are made in the time in which one is priced."""

Test: TypeAlias = Callable[[Step], bool]


@lru_cache(maxsize=4)
def index_for_waves(rules: tuple[Rule, ...]) -> RuleIndex:
    """The rules that may be steps of a wave, read once in a process."""
    return RuleIndex(rules, _may_take_part)


def _may_take_part(instance: Instance) -> bool:
    """Whether it opens or closes something, carries parts on, or rearranges concatenations."""
    if len(instance.lhs) > 1:
        return False
    left, right = (
        {op.name for op in operators_of(walk(side))} for side in (instance.lhs, instance.rhs)
    )
    if instance.free_symbols:
        return PART in right and PART not in left
    return PART in left or (JOIN in left and JOIN in right)


class OutOfWorkError(Exception):
    """Waves took more than they may."""


class Waves:
    """The waves in one graph. `estimate` prices graphs; `constants` serves their leaves.

    `block` is how many channels a block of the target's layout has. They end with their `work`, as
    `Limits.work` counts it, or at the deadline. `outside` is what is sensitive to the outputs of
    the graph; `careful` leaves out what may lose digits, see `Steps`.
    """

    def __init__(
        self,
        rules: RuleIndex,
        estimate: Callable[[Graph], float],
        constants: ConstantLookup,
        block: int,
        context: Context = DEFAULTS,
        *,
        work: float = float("inf"),
        deadline: Deadline = NEVER,
        outside: Sequence[Observed] = (),
        border: Border = WHOLE,
        careful: Hazard = Hazard.NONE,
    ) -> None:
        self.steps = Steps(
            rules,
            constants,
            block,
            outside=outside,
            border=border,
            assumption=context.assumption,
            careful=careful,
        )
        self.estimate = estimate
        self.opset = context.opset
        self.most = work
        self.deadline = deadline
        self.work = 0.0
        """The work done so far, as `Limits.work` counts it."""
        self.exhausted = False
        """Whether all were tried."""

    @without_collector
    def found(self, graph: Graph) -> list[State]:
        """The given graph, and cheaper ones that waves lead to, if any.

        Widths of images are opened one after the other, and each stays if it gains; where none
        does alone, all together. The forms on the way are among them, the cheapest first.
        """
        root = State(graph, self.estimate(graph))
        best, forms = _Draft(self, root), list[State]()
        try:
            widths = self._widths(graph)
            for width in widths:
                best = self._better(best, {width}, forms)
            if len(widths) > 1 and not forms:
                self._better(best, set(widths), forms)
            self.exhausted = True
        except OutOfWorkError:
            pass
        allowed = (state for state in forms if state.graph.is_in_opset(self.opset))
        return [root, *sorted(allowed, key=lambda state: state.cost)]

    def _better(self, draft: _Draft, widths: set[int], forms: list[State]) -> _Draft:
        """A draft after a wave if that gains, or else the draft."""
        opened = self._opened(draft, widths)
        joined = self._joined(opened)
        for each in (opened, joined):
            if each.state.cost < draft.state.cost and each.state not in forms:
                forms.append(each.state)
        return min(draft, opened, joined, key=lambda each: each.state.cost)

    def _widths(self, graph: Graph) -> list[int]:
        """The numbers of channels that convolutions give and that can be made more."""
        found = {}
        for node in graph.nodes:
            for step in self.steps.at(node, graph, _opens):
                found[_width(step)] = True
        return list(found)

    def _opened(self, before: _Draft, widths: set[int]) -> _Draft:
        """A draft with all openings of these widths made, and carried on but for concatenations."""
        draft = before.copy()
        draft.sweep(lambda step: _opens(step) and _width(step) in widths)
        draft.carry()
        draft.sweep(draft.closes)
        draft.finish()
        return draft

    def _joined(self, draft: _Draft) -> _Draft:
        """A draft with what reads parts put side by side rewritten, where that gains.

        Concatenations of which one reads what becomes of another are rewritten together, and if
        that does not gain, one by one.
        """
        waiting = _connected(draft.state.graph)
        while waiting:
            group, *waiting = waiting
            if not any(map(draft.reads_parts, group)):
                continue
            trial = draft.copy()
            trial.join(group)
            if trial.state.cost < draft.state.cost:
                waiting = [list(map(trial.moved, each)) for each in waiting]
                draft = trial
            elif len(group) > 1:
                waiting = [*([node] for node in group), *waiting]
        return draft

    def count(self, work: float) -> None:
        """Count work that was done. Raises OutOfWorkError."""
        self.work += work
        if self.work > self.most or self.deadline.passed:
            raise OutOfWorkError

    def price(self, graph: Graph) -> float:
        self.count(len(graph.nodes))
        return self.estimate(graph)


class _Draft:
    """A state that a wave works on, and the parts and concatenations that are the wave's own."""

    def __init__(self, waves: Waves, state: State) -> None:
        self.waves = waves
        self.state = state
        self.own: set[Node] = set()
        self._moves: list[dict[Node, Node]] = []

    def copy(self) -> _Draft:
        """The same once more, to be changed."""
        other = _Draft(self.waves, self.state)
        other.own = set(self.own)
        return other

    def moved(self, node: Node) -> Node:
        """The present form of a node of the graph that the draft was made with."""
        for moved in self._moves:
            node = moved.get(node, node)
        return node

    def reads_parts(self, node: Node) -> bool:
        """Whether a node reads a part of the wave's own."""
        return any(map(self.is_part, node.inputs))

    def sweep(self, test: Test) -> bool:
        """Make all steps of a kind, from the last node to the first; whether there were any.

        So the nodes of a step are as they were when the sweep began, unless another replaced them.
        """
        changed = False
        for node in reversed(self.state.graph.nodes):
            changed |= self.make_at(node, lambda step: test(step) and self.is_present(step))
        return changed

    def make_first(self, test: Test) -> bool:
        """Make the step of a kind that is nearest to the inputs; whether there is one."""
        return any(self.make_at(node, test) for node in self.state.graph.nodes)

    def make_at(self, node: Node, test: Test) -> bool:
        """Make the first step of a kind at a node; whether there is one."""
        if node.constant or not isinstance(node.op, Operator):
            return False
        step = next(self.waves.steps.at(node, self.state.graph, test), None)
        if step is not None:
            self.make(step)
        return step is not None

    def is_present(self, step: Step) -> bool:
        """Whether the nodes of a step are still there."""
        return step.match.nodes <= set(self.state.graph.nodes)

    def make(self, step: Step) -> None:
        """Make a step; the nodes that it adds are the wave's own."""
        graph, moved = replaced(self.state.graph, step)
        self.waves.count(len(graph.nodes) / MADE)
        path = self.state.path
        if step.rule not in path:
            path = (*path, step.rule)
        self.state = State(graph, self.state.cost, path, origin=(self.state, step))
        made = {node for node in step.made if not node.constant and node.is_operator(PART, JOIN)}
        self.own = {moved.get(node, node) for node in self.own} | made
        for old, new in zip(step.before, step.after, strict=True):
            moved.setdefault(old.node, new.node)
        self._moves.append(moved)

    def carry(self) -> None:
        """Carry parts on as far as they go."""
        while self.sweep(self.carries):
            pass

    def finish(self) -> None:
        """Price the draft."""
        if self.state.origin is not None:
            self.state = replace(self.state, cost=self.waves.price(self.state.graph))

    def join(self, nodes: Iterable[Node]) -> None:
        """Take concatenations apart, carry parts through them, and join the rest again."""
        self.own.update(nodes)
        while self.sweep(self.unfolds):
            pass
        self.carry()
        while self.make_first(self.folds):
            pass
        self.sweep(self.closes)
        self.finish()

    def carries(self, step: Step) -> bool:
        """Whether a step moves parts of the wave's own towards the results, or takes them up."""
        old, new = step.before[0].node, step.after[0].node
        before, after = _counts(step.match.nodes), _counts(step.made)
        if not self.is_own(step) or old.is_operator(PART):
            return False
        if before[PART]:
            same = {**before, PART: 0} == {**after, PART: 0}
            return same and after[PART] == new.is_operator(PART)
        if not before[JOIN]:
            return False
        if before.keys() > {JOIN}:
            parts = any(map(self.has_parts, old.inputs))
            return before[JOIN] == after[JOIN] == 1 and new.is_operator(JOIN) and parts
        return self.turns(old, new, before[JOIN], after[JOIN])

    def turns(self, old: Node, new: Node, before: int, after: int) -> bool:
        """Whether it is one of two steps by which a part leaves the concatenation that it leads.

        ``Concat(Concat(part, y), z)`` becomes ``Concat(part, y, z)``, and ``Concat(part,
        Concat(y, z))``: there it can be taken up. First `y` and `z` are rid of parts.
        """
        if not self.is_part(new.inputs[0]):
            return False
        if (before, after) == (1, 2):
            return len(old.inputs) == 3
        return (
            (before, after) == (2, 1)
            and len(new.inputs) == 3
            and old.inputs[0].node.inputs[0] == new.inputs[0]
            and not any(map(self.has_parts, new.inputs[1:]))
        )

    def is_part(self, value: Value) -> bool:
        """Whether a value is a part of the wave's own."""
        return value.node in self.own and value.node.is_operator(PART)

    def has_parts(self, value: Value) -> bool:
        """Whether a value is a part, or a concatenation, of the wave's own, that has some."""
        waiting, seen = [value], {value}
        while waiting:
            inner = waiting.pop()
            if self.is_part(inner):
                return True
            if inner.node in self.own:
                waiting += set(inner.node.inputs) - seen
                seen.update(inner.node.inputs)
        return False

    def is_own(self, step: Step) -> bool:
        """Whether all parts and concatenations in a step are the wave's own."""
        computed = (node for node in step.match.nodes if not node.constant)
        met = {node for node in computed if node.is_operator(PART, JOIN)}
        return bool(met) and met <= self.own

    def unfolds(self, step: Step) -> bool:
        """Whether a step leads to concatenations of two, of which the first one may be another.

        It takes the last one off a concatenation of several, or makes ``Concat(x, y, z)`` of
        ``Concat(x, Concat(y, z))``.
        """
        old, new = step.before[0].node, step.after[0].node
        if not self.is_own(step):
            return False
        before, after = _counts(step.match.nodes), _counts(step.made)
        if before == {JOIN: 1} and after == {JOIN: 2}:
            return len(new.inputs) == 2 and new.inputs[1] == old.inputs[-1]
        return (
            before == {JOIN: 2}
            and after == {JOIN: 1}
            and len(new.inputs) == 3
            and old.inputs[0] == new.inputs[0]
        )

    def folds(self, step: Step) -> bool:
        """Whether a step makes one concatenation of two."""
        return (
            self.is_own(step)
            and _counts(step.match.nodes) == {JOIN: 2}
            and _counts(step.made) == {JOIN: 1}
        )

    def closes(self, step: Step) -> bool:
        """Whether a step undoes an opening that no other step has used."""
        old = step.before[0].node
        return (
            old.is_operator(PART)
            and self.is_own(step)
            and len(self.state.graph.users.get(old.inputs[0], ())) == 1
            and _counts(step.match.nodes) == _counts(step.made) + Counter([PART])
        )


def _connected(graph: Graph) -> list[list[Node]]:
    """The concatenations, those together of which one reads what becomes of another.

    Convolutions end such a connection.
    """
    made_of: dict[Node, Node] = {}
    """One of the concatenations that a node is made of, if any: others are in its group."""
    groups: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.constant or node.role == "convolution":
            continue
        found = [made_of[value.node] for value in node.inputs if value.node in made_of]
        if node.is_operator(JOIN):
            groups[node] = [node]
            found.append(node)
        if not found:
            continue
        for other in found[1:]:
            if groups[other] is not groups[found[0]]:
                groups[found[0]] += groups[other]
                groups.update(dict.fromkeys(groups[other], groups[found[0]]))
        made_of[node] = found[0]
    return list({id(group): group for group in groups.values()}.values())


def _opens(step: Step) -> bool:
    """Whether a step makes of an operator the first part of one with more channels."""
    return (
        step.fills
        and step.after[0].node.is_operator(PART)
        and _counts(step.made) == _counts(step.match.nodes) + Counter([PART])
    )


def _width(step: Step) -> int:
    channels = step.before[0].shape[1]
    assert isinstance(channels, int)
    return channels


def _counts(nodes: Iterable[Node]) -> Counter[str]:
    """How often there is each operator that does not depend on constants alone."""
    return Counter(
        node.op.name for node in nodes if isinstance(node.op, Operator) and not node.constant
    )
