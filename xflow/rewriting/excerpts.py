"""Small parts of large constants, at places at which a rewrite is likely to lose digits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from xflow.core.registry import Array

Place: TypeAlias = tuple[str, int, int]
"""A constant by its name, one of its axes, and an index along it."""
Wanted: TypeAlias = Callable[[Mapping[str, Array], np.random.Generator], Iterator[Place]]
"""Places of constants that are wanted in a part, the most important ones first."""


def excerpts(
    whole: Mapping[str, Array],
    extents: Mapping[str, tuple[int, ...]],
    wanted: Wanted,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Constants cut down to these extents, axes of the same extent at the same places.

    What is `wanted` comes first, and the rest is drawn.
    """
    chosen: dict[tuple[int, int], dict[int, None]] = {}
    for name, axis, index in wanted(whole, rng):
        cut = whole[name].shape[axis], extents[name][axis]
        chosen.setdefault(cut, {})[index] = None
    parts = dict(whole)
    for name, array in whole.items():
        for axis, (old, new) in enumerate(zip(array.shape, extents[name], strict=True)):
            some = chosen.setdefault((old, new), {})
            if len(some) < new:
                some.update(dict.fromkeys(map(int, rng.permutation(old))))
            parts[name] = np.take(parts[name], sorted([*some][:new]), axis=axis)
    return parts


def _any_places(whole: Mapping[str, Array], rng: np.random.Generator) -> Iterator[Place]:
    """None: all are drawn."""
    return iter(())


def _extremes(whole: Mapping[str, Array], rng: np.random.Generator) -> Iterator[Place]:
    """Where constants are largest and smallest: one offset may be large among hundreds."""
    profiles = list(_profiles(whole))
    for name, axis, profile in profiles:
        yield name, axis, int(np.argmax(profile))
    for name, axis, profile in profiles:
        yield name, axis, int(np.argmin(np.where(profile > 0, profile, np.inf)))


def _quotients(whole: Mapping[str, Array], rng: np.random.Generator) -> Iterator[Place]:
    """Where one constant is largest beside another: a mean beside its deviation."""
    for (name, axis, one), (_, _, other) in itertools.permutations(_profiles(whole), 2):
        if len(one) == len(other):
            with np.errstate(divide="ignore", invalid="ignore"):
                yield name, axis, int(np.argmax(np.where(other > 0, one / other, 0)))


def _profiles(whole: Mapping[str, Array]) -> Iterator[tuple[str, int, Array]]:
    """The largest magnitudes of constants along each axis that has several places."""
    for name, array in whole.items():
        sizes = np.abs(wide(array))
        for axis, extent in enumerate(sizes.shape):
            if extent > 1:
                others = tuple(each for each in range(sizes.ndim) if each != axis)
                yield name, axis, sizes.max(axis=others, initial=0.0)


def _neighbours(whole: Mapping[str, Array], rng: np.random.Generator) -> Iterator[Place]:
    """In constants that are mostly zeros, places with other numbers beside each other."""
    for name, array in whole.items():
        others = np.flatnonzero(array)
        if 0 < 2 * len(others) < array.size:
            place = [int(index) for index in np.unravel_index(rng.choice(others), array.shape)]
            for axis, index in enumerate(place):
                at: list[int | slice] = [*place]
                at[axis] = slice(None)
                line = array[tuple(at)]
                yield from ((name, axis, each) for each in (index, *map(int, np.flatnonzero(line))))


def wide(array: Array) -> Array:
    """Data as float64, its numbers alone: 0 where there is none."""
    return np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


CUTS: tuple[Wanted, ...] = (_extremes, _quotients, _neighbours, _any_places, _any_places)
"""The ways in which large constants are cut down."""
