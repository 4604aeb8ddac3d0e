"""Proposals: candidates grouped by skeleton, each oriented from the costlier side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from xflow.generator.enumerate import Candidate
from xflow.generator.skeleton import Point, Skeleton, take_apart
from xflow.generator.vocabulary import Vocabulary
from xflow.graph import Graph, Value

MAX_POINTS = 400


@dataclass
class Proposal:
    """Pairs with one skeleton; `source` and `target` are the smallest of them."""

    source: Value
    target: Value
    skeleton: Skeleton
    order: tuple[Any, ...]
    saves_nothing: bool
    """Both sides have as many operators that cost."""
    points: list[Point] = field(default_factory=list)


def propose(candidates: Iterable[Candidate], vocabulary: Vocabulary) -> list[Proposal]:
    """Proposals, smaller ones first, and among these the ones with more inputs.

    A side that reads an input which the other does not is the left one; where both do, neither
    side could be computed from what the other is given.
    """
    groups: dict[str, Proposal] = {}
    ordered = sorted(candidates, key=lambda c: (c.source.order, c.target.order))
    for candidate in ordered:
        source, target = candidate.source.value, candidate.target.value
        left, right = (set(Graph((value,)).leaves) for value in (source, target))
        if not right <= left:
            if not left <= right:
                continue
            source, target = target, source
        skeleton, point = take_apart(source, target, vocabulary)
        group = groups.get(skeleton.key)
        if group is None:
            size = candidate.source
            order = (size.ops, tree_size(source), -len(left), size.order, candidate.target.order)
            group = groups[skeleton.key] = Proposal(
                source, target, skeleton, order, candidate.source.ops == candidate.target.ops
            )
        if len(group.points) < MAX_POINTS and point not in group.points:
            group.points.append(point)
    return sorted(groups.values(), key=lambda group: group.order)


def tree_size(value: Value) -> int:
    """How many operators `value` has, with shared ones counted as often as they are used."""
    if value.is_leaf:
        return 0
    return 1 + sum(map(tree_size, value.node.inputs))
