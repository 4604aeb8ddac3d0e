"""What a graph costs on the target: an estimate guides the search, a measurement decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from xflow.graph import Graph


class CostModel(Protocol):
    """Prices graphs in seconds; what the search asks about everything that it finds."""

    @property
    def measures(self) -> bool:
        """Whether `measure` runs graphs. If not, the estimate decides what is kept."""

    def estimate(self, graph: Graph) -> float:
        """The seconds that one run of `graph` takes, from a model of the target."""

    def measure(self, graphs: Sequence[Graph], seconds: float) -> list[float | None]:
        """The seconds that one run of each graph takes on the target, run against each other.

        The graphs compute the same from the same leaves. `seconds` is the time to spend on all
        of them; None stands for a graph that does not run.
        """
