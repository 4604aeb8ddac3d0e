"""The distributions from which elements of random inputs are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xflow.core.registry import Array
from xflow.core.sorts import BOOL, CODE, INT, sort_of


def random_dyadics(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Random k/4 with 1 <= |k| <= 7, both signs."""
    magnitude = rng.integers(1, 8, tuple(shape)) / 4.0
    return np.asarray(magnitude * rng.choice((-1.0, 1.0), tuple(shape)))


@dataclass(frozen=True)
class Drawn:
    """How elements of inputs are drawn: Booleans, places of an axis of 3 or more, or dyadics."""

    positive: frozenset[str] = frozenset()
    """Names of the inputs without negative elements."""
    reach: int = 1
    """A factor of the dyadics."""
    ties: bool = False
    """Whether elements of different inputs are often equal, and often 0."""

    def __call__(
        self, rng: np.random.Generator, name: str, shape: Sequence[int], dtype: str
    ) -> Array:
        """Random elements for an input of this name, shape and element type."""
        sort = sort_of(dtype)
        if sort == BOOL:
            return np.asarray(rng.integers(0, 2, tuple(shape)).astype(bool))
        if sort == INT:
            return np.asarray(rng.integers(0, 3, tuple(shape)))
        if sort == CODE:
            return np.asarray(rng.integers(-9, 10, tuple(shape)))
        if self.ties:
            return np.asarray(rng.integers(-2, 3, tuple(shape)) / 2.0)
        array = random_dyadics(rng, shape) * self.reach
        return np.abs(array) if name in self.positive else array
