"""States that the search of a region has reached, and the choice of those to measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

from xflow.core.graph import Graph
from xflow.core.node import Node
from xflow.core.registry import Operator
from xflow.rewriting.derivation import Application, application
from xflow.search.policy import Policy
from xflow.search.steps import Step

Signature: TypeAlias = frozenset[tuple[object, int]]
"""Equal for graphs that the runtime runs alike: operators and their types, counted."""

Way: TypeAlias = tuple[str, ...]
"""The names of rules, one after the other, that led from a form of a region to a better one."""


class KnownWay(NamedTuple):
    """A way to a better form, and the operators of what it led from, counted."""

    operators: Counter[str]
    way: Way


MULTIPLYING = frozenset({"attention", "contraction", "convolution"})
"""Roles of operators in whose kernels most of a model's time goes."""
KINDS = 2
"""How many other choices of such kernels than the best by estimate are measured."""


@dataclass(frozen=True)
class State:
    """A graph that was reached: its estimated cost and the rules that led to it."""

    graph: Graph
    cost: float
    path: tuple[str, ...] = ()
    focus: frozenset[Node] | None = field(default=None, repr=False)
    """The nodes that the next step must be near; None: any."""
    depth: int = 0
    """Steps since the search last started afresh."""
    lane: int = 0
    """The number of the block that its path begins at; 0: of no particular one."""
    hope: float = 0.0
    """Its cost, or that of a form one step later if that is less."""
    origin: tuple[State, Step] | None = field(default=None, repr=False, compare=False)
    """The state and the step from which it was reached."""
    known_trail: tuple[Application, ...] | None = field(default=None, repr=False, compare=False)
    """The trail of a state whose origin is in another process."""

    @property
    def trail(self) -> tuple[Application, ...] | None:
        """The applications that led from the first state to this one; see `derivation`."""
        made: list[Application] = []
        state = self
        while state.known_trail is None and state.origin is not None:
            state, step = state.origin
            last = application(state.graph, step.rule, step.rank, step.match)
            if last is None:
                return None
            made.append(last)
        begun = state.known_trail if state.path else ()
        return None if begun is None else (*begun, *reversed(made))

    @cached_property
    def signature(self) -> Signature:
        """Equal for states that the runtime runs alike."""
        counts = Counter(
            (node.op, node.types, node.codes)
            for node in self.graph.nodes
            if not node.constant and isinstance(node.op, Operator)
        )
        return frozenset(counts.items())

    @cached_property
    def kernels(self) -> frozenset[tuple[str, int]]:
        """The operators that multiply matrices, by name, counted."""
        multiplying = (node.op for node in self.graph.nodes if node.role in MULTIPLYING)
        names = (op.name for op in multiplying if isinstance(op, Operator))
        return frozenset(Counter(names).items())

    def has_other_kernels(self, other: State) -> bool:
        """Whether it has the products of another state in other kernels, and not more of them.

        A factor for each channel as a convolution is not another kernel, but an additional one.
        """
        mine, yours = (sum(count for _, count in state.kernels) for state in (self, other))
        return self.kernels != other.kernels and mine <= yours

    @property
    def heaviest(self) -> Step | None:
        """The step on the way with the largest estimated gain; None without a way."""
        heaviest: Step | None = None
        most, state = 0.0, self
        while state.origin is not None:
            before, step = state.origin
            gain = before.cost - state.cost
            if heaviest is None or gain > most:
                heaviest, most = step, gain
            state = before
        return heaviest


def operators_in(nodes: Iterable[Node]) -> Counter[str]:
    """The names of the operators of nodes, counted, constant expressions aside."""
    return Counter(n.op.name for n in nodes if isinstance(n.op, Operator) and not n.constant)


def in_common(one: Counter[str], other: Counter[str]) -> float:
    """How many operators two have in common, of all that either has."""
    shared = sum(min(count, other[name]) for name, count in one.items())
    every = one.total() + other.total() - shared
    return shared / every if every else 1.0


def nearest(mine: Counter[str], known: Iterable[KnownWay], policy: Policy) -> list[Way]:
    """The ways from what is most like something with these operators, if it is like enough."""
    near = [(in_common(mine, each.operators), each.way) for each in known]
    near = [each for each in near if each[0] >= policy.in_common]
    near.sort(key=lambda each: -each[0])
    return [way for _, way in near[: policy.ways]]


def cheapest(states: Iterable[State]) -> State:
    """The state that costs least."""
    return min(states, key=lambda state: state.cost)


def choice(
    found: Mapping[Signature, State], root: State, bests: Sequence[State], keep: int
) -> list[State]:
    """The given graph, and at most `keep` of the states found, by cost.

    They are the best of each exploration; the best with matrix products in other kernels, since
    the estimate knows the relative speed of kernels within some percent only, and many other forms
    hardly differ; the first and the last state on the way to the first best that gained something;
    and for each rule on that way, by estimated gain, the cheapest state without it, which may be
    right if the estimate is wrong about that step. The next ones by cost follow. States with all
    operators of a cheaper one and more are left out.
    """
    others = sorted((s for s in found.values() if s.path), key=lambda state: state.cost)
    if not others:
        return [root]
    best = others[0]
    kinds: dict[object, State] = {}
    for state in others:
        if state.has_other_kernels(root):
            kinds.setdefault(state.kernels, state)
    present = {state.kernels for state in bests}
    foreign = [state for kernels, state in kinds.items() if kernels not in present][:KINDS]
    way = sorted(
        (s for s in others[1:] if s.cost < root.cost and best.path[: len(s.path)] == s.path),
        key=lambda state: len(state.path),
    )
    without = [
        next((state for state in others if rule not in state.path), best)
        for rule in dict.fromkeys(best.path)
    ]
    without.sort(key=lambda state: -state.cost)
    chosen = [(root, dict(root.signature))]
    for state in (*bests, *foreign, *way[:1], *way[1:][-1:], *without, *others):
        if len(chosen) > keep:
            break
        mine = dict(state.signature)
        if state.path and not any(
            each.cost <= state.cost and _includes(mine, theirs) for each, theirs in chosen
        ):
            chosen.append((state, mine))
    return [root, *sorted((state for state, _ in chosen[1:]), key=lambda state: state.cost)]


def _includes(counts: Mapping[object, int], fewer: Mapping[object, int]) -> bool:
    return all(counts.get(kind, 0) >= number for kind, number in fewer.items())
