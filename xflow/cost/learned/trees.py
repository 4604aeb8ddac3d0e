"""Regression trees that are summed up, as a file of arrays.

They are trained by a library (`benchmarks/learn_cost.py`). An estimator asks them about one kernel
at a time, in any process that has it: so they are read here without one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LEAF = -1
"""The feature of a node at which a tree ends."""


@dataclass(frozen=True, eq=False, repr=False)
class Trees:
    """Trees over named numbers; a node goes to the left where its number is at most its threshold.

    The arrays have a row for each tree and a column for each node, the root first.
    """

    names: tuple[str, ...]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    """What a leaf adds."""

    @classmethod
    def read(cls, path: Path) -> Trees:
        """Read a file. Raises OSError, KeyError or ValueError where it is none of trees."""
        with np.load(path, allow_pickle=False) as arrays:
            names = tuple(str(name) for name in arrays["names"])
            return cls(names, *(arrays[each] for each in ARRAYS))

    def write(self, path: Path) -> None:
        """Write a file that `read` reads."""
        arrays = {each: getattr(self, each) for each in ARRAYS}
        np.savez_compressed(path, names=np.array(self.names), **arrays)

    def row(self, numbers: Mapping[str, float]) -> NDArray[np.float64]:
        """Numbers in the order of the names; those that are not there count as 0."""
        return np.array([numbers.get(name, 0.0) for name in self.names])

    def __call__(self, row: NDArray[np.float64]) -> float:
        """The sum of what all trees say of a row, rounded once: the same on any machine."""
        trees = np.arange(len(self.feature))
        at = np.zeros(len(trees), np.int32)
        while True:
            feature = self.feature[trees, at]
            inner = feature != LEAF
            if not inner.any():
                return math.fsum(self.value[trees, at])
            goes_left = row[np.where(inner, feature, 0)] <= self.threshold[trees, at]
            below = np.where(goes_left, self.left[trees, at], self.right[trees, at])
            at = np.where(inner, below, at)

    @cached_property
    def digest(self) -> str:
        """Equal for equal trees."""
        parts = (repr(self.names).encode(), *(getattr(self, each).tobytes() for each in ARRAYS))
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trees) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Trees({self.digest})"


ARRAYS: Sequence[str] = ("feature", "threshold", "left", "right", "value")
