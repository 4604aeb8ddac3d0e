"""Small sizes for a region: those that mean different things differ, as its types allow.

A region of a model has extents of hundreds. What its operators require of sizes is solved for as
few symbols as possible, as in generalisation, and these get small values.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from xflow.core.errors import ShapeError, SizeError
from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.core.size import Size, evaluate, free_symbols
from xflow.generator.generalization.skeleton import Skeleton, take_apart
from xflow.generator.generalization.typing import Typing, slot_symbol, unify
from xflow.generator.learning.terms import extents, typed
from xflow.generator.vocabulary import Input, Vocabulary

SMALL, PLACES = (2, 3, 4, 5, 6, 7), (3, 4, 5, 6, 7, 8)
TRIES, ENOUGH = 400, 8
"""Draws of sizes, and of those at which the term is defined, so many to choose among."""
MOST_ELEMENTS = 1500
"""Of any value of a region at small sizes."""
WINDOWS = ("pads", "kernel_shape", "starts", "ends")
LETTERS = "nmklijhpqr"


WEIGHTS = {"x": "w", "p": "pw", "i": "iw"}
"""The sorts of activations, conditions and places, each with that of weights of its kind."""


def axes(rank: int) -> str:
    """Names for the axes of a leaf, each an axis of its own."""
    return " ".join(LETTERS[:rank])


def inputs_of(root: Value, weights: frozenset[str]) -> tuple[Input, ...]:
    """The leaves of a term as inputs of a vocabulary: weights are of the sort ``w``."""
    made = []
    for each in Graph((root,)).leaves:
        kind = {"BOOL": "p", "INT64": "i"}.get(each.type.dtype, "x")
        sort = WEIGHTS[kind] if str(each) in weights else kind
        made.append(Input(str(each), sort, axes(len(each.shape)), extents(each), each.type.dtype))
    return tuple(made)


def shrunk(root: Value, weights: frozenset[str], seed: int) -> Value | None:
    """The term at small sizes; None where its operators' requirements cannot be met."""
    inputs = inputs_of(root, weights)
    vocabulary = Vocabulary("a region", inputs, (), (), by_example=True)
    skeleton, point = take_apart(root, root, vocabulary)
    for numbers in _starts(skeleton, point.numbers):
        typing = unify(skeleton, numbers, point)
        if typing is None:
            continue
        values = _values(skeleton, typing, random.Random(f"{seed} {skeleton.key}"))
        if values is None:
            continue
        shapes = [tuple(evaluate(size, values) for size in shape) for shape in typing.shapes]
        slots = [evaluate(size, values) for size in typing.numbers]
        try:
            built = skeleton.build([item.name for item in inputs], shapes, slots)
        except (ShapeError, SizeError, ZeroDivisionError):
            continue
        return typed(built.source, {item.name: item.dtype for item in inputs})
    return None


def _starts(skeleton: Skeleton, numbers: Sequence[int]) -> Iterator[list[Size]]:
    """The numbers with symbols for extents and for what windows and parts reach over, or fewer."""
    for among in (WINDOWS, ("starts", "ends"), ()):
        yield [
            slot_symbol(j, slot)
            if number > 1 and (slot.is_size or slot.attribute in ("group", *among))
            else number
            for j, (slot, number) in enumerate(zip(skeleton.slots, numbers, strict=True))
        ]


def _values(skeleton: Skeleton, typing: Typing, rng: random.Random) -> Mapping[str, int] | None:
    """Small values of the symbols of a typing at which all its requirements hold."""
    sizes: list[Size] = [size for shape in typing.shapes for size in shape]
    names = sorted({name for size in (*sizes, *typing.numbers) for name in free_symbols(size)})
    conditions = typing.built.conditions
    found: list[tuple[int, dict[str, int]]] = []
    # Places are drawn below 3.
    small = PLACES if any(item.dtype == "INT64" for item in skeleton.inputs) else SMALL
    for attempt in range(TRIES):
        if len(found) == ENOUGH:
            break
        some = small if attempt < TRIES // 2 else small[:3]
        drawn = rng.sample(some, len(some))
        values = {
            name: rng.randint(1, 5) if name.startswith("a") else drawn[k % len(drawn)]
            for k, name in enumerate(names)
        }
        try:
            if not all(condition.holds(values) for condition in conditions):
                continue
            given = [evaluate(size, values) for size in sizes]
            every = [
                [evaluate(size, values) for size in value.shape] for value in typing.built.steps
            ]
        except (SizeError, ZeroDivisionError):
            continue
        if min((n for shape in every for n in shape), default=1) < 1:
            continue
        if any(n < 2 and not isinstance(size, int) for n, size in zip(given, sizes, strict=True)):
            continue
        weight = max((prod(shape) for shape in every), default=1)
        if weight > MOST_ELEMENTS:
            continue
        same = len(given) - len(set(given))
        found.append((1000 * same + sum(prod(shape) for shape in every), values))
    return min(found, key=lambda each: each[0])[1] if found else None
