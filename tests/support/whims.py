"""A random cost, with which a search makes rewrites that it would not choose otherwise."""

from __future__ import annotations

import hashlib

from xflow.core.graph import Graph
from xflow.cost.estimate import EstimatedCost


class Whim(EstimatedCost):
    """A cost that is any number, but the same one for the same graph."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.layouts = None  # type: ignore[assignment]

    def estimate(self, graph: Graph) -> float:
        """A number between 0.5 and 1, so that no form is dropped for its cost."""
        text = repr(
            [(node.kind, node.types, [v.index for v in node.inputs]) for node in graph.nodes]
        )
        return 0.5 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**33
