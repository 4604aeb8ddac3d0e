"""An estimate of costs with a notebook in memory."""

from __future__ import annotations

from xflow.core.graph import Graph
from xflow.cost.estimate import EstimatedCost


class Noting(EstimatedCost):
    """An estimate that remembers solutions, and counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, str] = {}
        self.asked = 0
        self.notebook = self

    def get(self, key: str) -> str | None:
        return self.notes.get(key)

    def put(self, key: str, text: str) -> None:
        self.notes[key] = text

    def drop(self, key: str) -> None:
        del self.notes[key]

    def estimate(self, graph: Graph) -> float:
        self.asked += 1
        return super().estimate(graph)
