"""Formulas for attributes, fitted to the numbers of many pairs with one skeleton."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from xflow.core.size import Size, floor_divide, symbol
from xflow.generator.generalization.skeleton import Point, Skeleton
from xflow.generator.generalization.typing import extent_name, slot_symbol

Column = NDArray[np.int64]
MIN_POINTS = 6


def fit(skeleton: Skeleton, points: Sequence[Point], weights_first: bool) -> list[Size]:
    """For each slot a number, a symbol, or a formula over extents and the symbols before it.

    A slot that is the same in all points is that number. With `weights_first`, the slots of
    nodes that depend on weights alone are independent before all others.
    """
    table = np.array([point.numbers for point in points], dtype=np.int64).reshape(len(points), -1)
    result: list[Size] = [0] * len(skeleton.slots)
    features: list[tuple[Size, Column]] = []
    borders: list[tuple[Size, Column]] = []
    order = sorted(
        range(len(skeleton.slots)),
        key=lambda j: (
            weights_first and skeleton.slots[j].costs,
            skeleton.slots[j].node,
            skeleton.slots[j].attribute == "pads",  # which depend on dilations
            j,
        ),
    )
    extents = list(_extents(skeleton, points))
    for j in order:
        slot, column = skeleton.slots[j], table[:, j]
        if slot.is_size or (slot.attribute == "group" and column[0] > 1):
            same = bool((column == column[0]).all())
            literal = same and column[0] <= 1
            result[j] = int(column[0]) if literal else slot_symbol(j, slot)
            if slot.attribute == "kernel" and not literal:
                extents.append((result[j], column))
            continue
        if bool((column == column[0]).all()):
            result[j] = int(column[0])
            continue
        formula = (
            _formula(column, features, extents, borders) if len(points) >= MIN_POINTS else None
        )
        if formula is None:
            formula = slot_symbol(j, slot)
            features.append((formula, column))
            if slot.attribute == "kernel_shape":
                borders.append((formula - 1, column - 1))
        result[j] = formula
    return result


def _extents(skeleton: Skeleton, points: Sequence[Point]) -> Iterator[tuple[Size, Column]]:
    """Sizes of weights along vectors, such as those of kernels."""
    for i, item in enumerate(skeleton.inputs):
        for axis, starred in enumerate(item.vector):
            column = np.array([point.shapes[i][axis] for point in points], dtype=np.int64)
            if starred and (column > 1).all() and item.sort != "x":
                yield symbol(extent_name(i, axis)), column


def _formula(
    column: Column,
    independent: Sequence[tuple[Size, Column]],
    extents: Sequence[tuple[Size, Column]],
    borders: Sequence[tuple[Size, Column]],
) -> Size | None:
    """A formula for a column; `borders` are the widest that a window may reach into."""
    products = [(a * b, x * y) for (a, x), (b, y) in itertools.combinations(independent, 2)]
    centres: list[tuple[Size, Column]] = []
    for size, values in extents:
        half = floor_divide(size - 1, 2)
        for part, part_values in ((half, (values - 1) // 2), (size - 1 - half, values // 2)):
            centres.append((part, part_values))
            centres += [(part * a, part_values * x) for a, x in independent]
    singles = [*independent, *centres, *products, *borders]
    for formula, values in singles:
        if (values == column).all():
            return formula
    for (a, x), (b, y) in itertools.combinations([*independent, *products], 2):
        if (x + y == column).all():
            return a + b
        if (x - y == column).all():
            return a - b
    return next((2 * a for a, x in independent if (2 * x == column).all()), None)
