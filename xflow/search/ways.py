"""Ways that led from regions to better forms, for other regions like these.

The layers of a network are spelled alike, but differ in some size, or at the edge of the region
that they lie in. To search each anew takes as long for the last one as for the first: the steps to
the operator for an attention are many, and each by itself gains nothing. So regions that are not
alike are searched first, and the rules by which their best forms were reached are tried, one after
the other, in those that are like them: some hundred nodes are priced, and not tens of thousands.

Blocks come before all regions, each by itself: among the few nodes of a rotary embedding the way to
its operator is found by a hundredth of what it takes among the forty of a region, where each step
competes with those elsewhere. All regions that hold such a block are then led that way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from xflow.search.explorers import Exploration
from xflow.search.policy import Policy
from xflow.search.region import Region
from xflow.search.states import KnownWay, Way, cheapest, in_common, nearest, operators_in

K = TypeVar("K")
Operators: TypeAlias = Counter[str]


class Ways:
    """The ways that were found, each with the operators of the region where that was."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._found: dict[Way, Operators] = {}
        self._of_blocks: dict[Way, Operators] = {}
        self._searched: set[object] = set()
        """The keys of the blocks for which no more is to be found by searching them again."""

    def note(self, region: Region, found: Exploration) -> None:
        """Note the way to the cheapest form of a region."""
        way = cheapest(found.states).path
        if way:
            self._found.setdefault(way, operators_in(region.graph.nodes))

    def to(self, region: Region) -> Sequence[Way]:
        """The ways from the regions that are most like this one, if any are."""
        return nearest(operators_in(region.graph.nodes), _known(self._found), self._policy)

    def note_block(self, block: Region, found: Exploration, *, is_operator: bool) -> None:
        """Note the way to the cheapest form of a block that was searched by itself.

        Only if that is an operator: what is cheaper and still spelled out is the end of no way, and
        would keep the search of a region near it.
        """
        if not (found.starved or found.late):
            self._searched.add(block.key)
        way = cheapest(found.states).path
        if way and is_operator:
            self._of_blocks.setdefault(way, operators_in(block.graph.nodes))

    @property
    def of_blocks(self) -> tuple[KnownWay, ...]:
        """The ways from all blocks that were searched by themselves."""
        return tuple(_known(self._of_blocks))

    def new_blocks(self, blocks: Iterable[Region]) -> list[Region]:
        """Those that are to be searched: of several with the same operators the first.

        The others are only where they are still there afterwards, since its way did not do.
        """
        chosen: dict[object, Region] = {}
        for block in blocks:
            if block.key not in self._searched:
                counts = operators_in(block.graph.nodes)
                chosen.setdefault(frozenset(counts.items()), block)
        return list(chosen.values())

    def unlike(self, regions: Mapping[K, Region], weights: Mapping[K, float]) -> list[K]:
        """The heaviest of each group of regions that are alike, in their order."""
        if len(regions) < 2:
            return list(regions)
        chosen: dict[K, Operators] = {}
        for key in sorted(regions, key=lambda key: -weights[key]):
            mine = operators_in(regions[key].graph.nodes)
            if all(in_common(mine, theirs) < self._policy.in_common for theirs in chosen.values()):
                chosen[key] = mine
        return [key for key in regions if key in chosen]


def _known(found: Mapping[Way, Operators]) -> Iterable[KnownWay]:
    return (KnownWay(operators, way) for way, operators in found.items())
