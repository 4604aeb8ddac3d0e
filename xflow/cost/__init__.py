"""Costs of a graph on the target: estimates that guide the search, and measurements that decide."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import IntFlag
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, get_args

if TYPE_CHECKING:
    from xflow.core.graph import Graph
    from xflow.core.node import Node
    from xflow.cost.target import TargetModel


class Use(IntFlag):
    """How an output of a part of a graph is used outside, as far as costs depend on it."""

    PLAIN = 0
    BLOCKS = 1
    """The operators outside want it in the runtime's own layout."""
    RESULT = 2
    """It is an output of the whole graph too."""
    SEVERAL = 4
    """Several operators outside read it, if it may be made of codes or of their sums."""


class Layouts(Protocol):
    """An estimate that models which images the runtime keeps in its own layout."""

    @property
    def target(self) -> TargetModel:
        """The description of the target."""

    def __call__(self, graph: Graph, uses: Sequence[Use] = ()) -> float:
        """The cost of `graph`, whose outputs are used as `uses` says."""

    def at_each(self, graph: Graph, uses: Sequence[Use] = ()) -> Sequence[float]:
        """The same for each setting of the sizes."""

    def anew(self) -> Callable[[], Layouts]:
        """Makes another one like it, without what this one keeps; can be sent to a process."""

    def is_blocked(self, node: Node) -> bool:
        """Whether the runtime gives the result of `node` in its own layout."""

    def wants_blocks(self, node: Node) -> bool:
        """Whether the runtime's operator for `node` reads images in that layout."""

    def fused(self, graph: Graph) -> Iterable[frozenset[Node]]:
        """The nodes of a whole graph that the runtime computes by one kernel, for each such."""

    def cut_off(self, graph: Graph) -> int:
        """The number of products on codes whose sums the runtime may cut off at 16 bits."""

    def served(self, graph: Graph) -> Hashable:
        """The operators and fused kernels that a whole graph ends in, counted."""


Objective: TypeAlias = Literal["latency", "memory", "size", "nodes"]
"""The quantity that is to be reduced."""
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
Cost: TypeAlias = Literal["measured", "estimated", "learned"]
"""What decides which form of a model is kept, where the objective is its latency."""
COSTS: tuple[Cost, ...] = get_args(Cost)


class Notebook(Protocol):
    """A persistent store of texts by key, for one target."""

    def get(self, key: str) -> str | None:
        """The text behind `key`, if there is one."""

    def put(self, key: str, text: str) -> None:
        """Keep a text; it replaces an earlier one."""

    def drop(self, key: str) -> None:
        """Forget the text behind `key`."""


class CostModel(Protocol):
    """Prices graphs, in seconds or in the unit of another objective, see `objectives`.

    The search compares all forms that it finds by it.
    """

    @property
    def measures(self) -> bool:
        """Whether `measure` runs graphs. If not, the estimate decides what is kept."""

    @property
    def notebook(self) -> Notebook | None:
        """Where solutions are kept for later runs on the same target; None: nowhere."""

    @property
    def settings(self) -> object:
        """The settings that costs depend on, besides the target."""

    @property
    def layouts(self) -> Layouts | None:
        """The estimate, if layouts matter to it."""

    def estimate(self, graph: Graph) -> float:
        """The cost of `graph`, by a model of the target or by the graph alone."""

    def measure(
        self, graphs: Sequence[Graph], seconds: float, *, again: int = 0
    ) -> list[float | None]:
        """The seconds that one run of each graph takes on the target, run against each other.

        The graphs compute the same from the same leaves. `seconds` is the time to spend on all
        of them; None stands for a graph that does not run. What was measured before counts, but
        only what was measured for the same time `again`: the first time by default.
        """
