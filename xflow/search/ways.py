"""Ways that led from regions to better forms, for other regions like these.

The layers of a network are spelled alike, but differ in some size, or at the edge of the region
that they lie in. To search each anew takes as long for the last one as for the first: the steps to
the operator for an attention are many, and each by itself gains nothing. So regions that are not
alike are searched first, and the rules by which their best forms were reached are tried, one after
the other, in those that are like them: some hundred nodes are priced, and not tens of thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

from xflow.core.registry import Operator
from xflow.search.explorers import Exploration
from xflow.search.policy import Policy
from xflow.search.region import Region
from xflow.search.states import Way, cheapest

K = TypeVar("K")
Operators: TypeAlias = Counter[str]


class Ways:
    """The ways that were found, each with the operators of the region where that was."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._found: dict[Way, Operators] = {}

    def note(self, region: Region, found: Exploration) -> None:
        """Note the way to the cheapest form of a region."""
        way = cheapest(found.states).path
        if way:
            self._found.setdefault(way, _operators(region))

    def to(self, region: Region) -> Sequence[Way]:
        """The ways from the regions that are most like this one, if any are."""
        mine = _operators(region)
        near = [(_common(mine, theirs), way) for way, theirs in self._found.items()]
        near = [each for each in near if each[0] >= self._policy.in_common]
        near.sort(key=lambda each: -each[0])
        return [way for _, way in near[: self._policy.ways]]

    def unlike(self, regions: Mapping[K, Region], weights: Mapping[K, float]) -> list[K]:
        """The heaviest of each group of regions that are alike, in their order."""
        if len(regions) < 2:
            return list(regions)
        chosen: dict[K, Operators] = {}
        for key in sorted(regions, key=lambda key: -weights[key]):
            mine = _operators(regions[key])
            if all(_common(mine, theirs) < self._policy.in_common for theirs in chosen.values()):
                chosen[key] = mine
        return [key for key in regions if key in chosen]


def _operators(region: Region) -> Operators:
    """The names of the operators of a region, counted."""
    nodes = region.graph.nodes
    return Counter(n.op.name for n in nodes if isinstance(n.op, Operator) and not n.constant)


def _common(one: Operators, other: Operators) -> float:
    """How many operators two regions have in common, of all that either has."""
    shared = sum(min(count, other[name]) for name, count in one.items())
    every = one.total() + other.total() - shared
    return shared / every if every else 1.0
