"""Regression trees that are summed up, as a file of arrays.

They are trained by a library (`benchmarks/learn_cost.py`), and evaluated without it: an estimator
asks them about one kernel at a time, in any process.  All trees have few leaves, so that a set of
leaves is one integer: of each node where a row goes to the right, the leaves on its left are taken
out, and the first leaf that is left is the one that the row reaches (QuickScorer, Lucchese et al.,
SIGIR 2015).
"""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

MOST_LEAVES = 32
"""Leaves of a tree at most: bits of the integer that is a set of them."""
Tree: TypeAlias = "float | tuple[int, float, Tree, Tree]"
"""A leaf, or the number of a feature, its threshold, and the trees below it, the left one first."""
ARRAYS: Mapping[str, type[np.generic]] = {
    "leaves": np.uint8,
    "feature": np.uint16,
    "threshold": np.float32,
    "split": np.uint8,
    "value": np.float32,
}


class Trees:
    """Sums of trees over named numbers; a node goes to the left where its number is at most its
    threshold.

    There are so many in each of the `parts`, of which each is a sum of its own.  Of the `arrays`,
    `leaves` has the number of leaves of each tree, and `value` what each leaf adds, from the left
    to the right.  The others have the inner nodes, each tree's in preorder: `split` is the first
    leaf to the right of a node.  Raises ValueError where they are no trees.
    """

    def __init__(
        self,
        names: Sequence[str],
        parts: Sequence[int],
        arrays: Mapping[str, NDArray[np.generic]],
    ) -> None:
        self.names = tuple(names)
        self.parts = tuple(parts)
        for name, kind in ARRAYS.items():
            if arrays[name].ndim != 1 or arrays[name].dtype != kind:
                raise ValueError(f"{name} is no row of {kind.__name__}")
        self.arrays = {name: arrays[name] for name in ARRAYS}
        leaves, feature, threshold, split, value = self.arrays.values()
        count = len(leaves)
        inner = int(leaves.sum(dtype=np.int64)) - count
        if not count or min(self.parts, default=0) < 1 or sum(self.parts) != count:
            raise ValueError(f"there are {count} trees, and not as many in its parts")
        if not (leaves.min() >= 1 and leaves.max() <= MOST_LEAVES):
            raise ValueError(f"a tree has no leaves, or more than {MOST_LEAVES}")
        if {len(feature), len(threshold), len(split)} != {inner} or len(value) != inner + count:
            raise ValueError("the nodes of the trees are not as many as their leaves ask for")
        if inner and feature.max() >= len(self.names):
            raise ValueError("a node has a feature without a name")
        if not (np.isfinite(threshold).all() and np.isfinite(value).all()):
            raise ValueError("a threshold or a value is no number")
        self._prepare()

    def _prepare(self) -> None:
        """Lay the nodes out in rows, one for each tree."""
        leaves, feature, threshold, split, value = self.arrays.values()
        count, most = len(leaves), int(leaves.max())
        self._places = np.zeros((count, max(1, most - 1)), np.intp)
        self._limits = np.full(self._places.shape, np.inf, np.float32)
        """Where there is no node, a row goes to the left, which takes nothing out."""
        self._left_out = np.zeros(self._places.shape, np.uint32)
        """The leaves to the left of each node."""
        self._values = np.zeros((count, most))
        self._numbers = np.arange(count)
        at = first = 0
        for tree, number in enumerate(leaves.tolist()):
            inner = slice(at, at + number - 1)
            self._places[tree, : number - 1] = feature[inner]
            self._limits[tree, : number - 1] = threshold[inner]
            self._left_out[tree, : number - 1] = _left_of(split[inner].tolist(), number)
            self._values[tree, :number] = value[first : first + number]
            at, first = at + number - 1, first + number

    @classmethod
    def of(cls, names: Sequence[str], parts: Sequence[Sequence[Tree]]) -> Trees:
        """The trees of each part."""
        nodes: list[tuple[int, float, int]] = []
        values: list[float] = []
        leaves: list[int] = []
        for tree in (tree for part in parts for tree in part):
            before = len(values)
            _flatten(tree, nodes, values, before)
            leaves.append(len(values) - before)
        features, thresholds, splits = zip(*nodes, strict=True) if nodes else ((), (), ())
        if max(leaves) > MOST_LEAVES:
            raise ValueError(f"a tree has more than {MOST_LEAVES} leaves")
        columns = (leaves, features, thresholds, splits, values)
        arrays = {
            name: np.array(column, kind)
            for (name, kind), column in zip(ARRAYS.items(), columns, strict=True)
        }
        return cls(names, [len(part) for part in parts], arrays)

    @classmethod
    def read(cls, path: Path) -> tuple[Trees, dict[str, NDArray[np.generic]]]:
        """Read a file, and what else it has. Raises OSError or ValueError where it is none."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            names, parts = arrays.pop("names"), arrays.pop("parts")
            trees = {name: arrays.pop(name) for name in ARRAYS}
        except (KeyError, TypeError, AttributeError, EOFError) as error:
            raise ValueError(f"a part of it is not there ({error})") from error
        except (zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"it is damaged ({error})") from error
        if names.dtype.kind != "U" or parts.dtype.kind != "i" or {names.ndim, parts.ndim} != {1}:
            raise ValueError("it has no names of features, or no parts")
        return cls(names.tolist(), parts.tolist(), trees), arrays

    def write(self, path: Path, **others: NDArray[np.generic]) -> None:
        """Write a file that `read` reads."""
        arrays: dict[str, Any] = {
            "names": np.array(self.names),
            "parts": np.array(self.parts),
            **self.arrays,
            **others,
        }
        np.savez_compressed(path, **arrays)

    def row(self, numbers: Mapping[str, float]) -> NDArray[np.float32]:
        """Numbers in the order of the names; those that are not there count as 0.

        They are rounded to 32 bits, in which logarithms are the same on any machine.
        """
        row = np.zeros(len(self.names), np.float32)
        for name, number in numbers.items():
            place = self._order.get(name)
            if place is not None:
                row[place] = number
        return row

    def __call__(self, row: NDArray[np.float32]) -> list[float]:
        """The sum of what the trees of each part say of a row, rounded once: the same anywhere."""
        goes_right = row[self._places] > self._limits
        out = np.bitwise_or.reduce(self._left_out, axis=1, where=goes_right)
        reached = np.frexp((~out & (out + np.uint32(1))).astype(np.float64))[1] - 1
        values: list[float] = self._values[self._numbers, reached].tolist()
        ends = list(accumulate(self.parts, initial=0))
        return [math.fsum(values[start:end]) for start, end in pairwise(ends)]

    @cached_property
    def _order(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def digest(self) -> str:
        """Equal for equal trees."""
        digest = hashlib.sha256(repr((self.names, self.parts)).encode())
        for array in self.arrays.values():
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trees) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Trees({self.digest})"


def _flatten(
    tree: Tree, nodes: list[tuple[int, float, int]], values: list[float], first: int
) -> None:
    """Put a tree behind others whose leaves come before `first`: its nodes in preorder."""
    if not isinstance(tree, tuple):
        values.append(tree)
        return
    feature, threshold, left, right = tree
    number = len(nodes)
    nodes.append((feature, threshold, 0))
    _flatten(left, nodes, values, first)
    nodes[number] = feature, threshold, len(values) - first
    _flatten(right, nodes, values, first)


def _left_of(splits: Iterable[int], leaves: int) -> list[int]:
    """The leaves to the left of each node of a tree, as bits. Raises ValueError: it is no tree."""
    open_spans = [(0, leaves)]
    sets: list[int] = []
    for split in splits:
        while open_spans[-1][1] - open_spans[-1][0] == 1:
            open_spans.pop()
        first, last = open_spans.pop()
        if not first < split < last:
            raise ValueError("a node does not lie between its leaves")
        sets.append((1 << split) - (1 << first))
        open_spans += [(split, last), (first, split)]
    return sets
