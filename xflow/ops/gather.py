"""Gather: elements at indices from another tensor, and the constants that serve as indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from xflow.core.arguments import axis, declare, size
from xflow.core.composite import Composite, made
from xflow.core.constraint import at_least
from xflow.core.node import Value
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    Reader,
    Shape,
    register,
    require,
)
from xflow.core.size import Expr, Size
from xflow.core.sorts import BOOL, ELEMENT, INT, SORTS
from xflow.core.spec import Index as Position
from xflow.core.spec import OfSize, Scalar, at_integer, scalar, where
from xflow.ops.constants import Constant
from xflow.ops.shape import Movement


@register
class Gather(Movement):
    """Slices of the first input along `axis`, at the places that the second names.

    A negative place counts from the end. The second input's axes stand where `axis` stood.
    """

    name = op_type = "Gather"
    arity = (2, 2)
    takes: ClassVar[tuple[str, ...]] = (ELEMENT, INT)
    attributes = declare(axis=AttributeSpec(Kind.AXIS, 0))
    examples = (
        Example(((4, 3), (2,))),
        Example(((4, 3), (2, 2)), {"axis": 1}),
        Example(((2, 3, 2), ()), {"axis": 1}),
        Example(((5,), (1, 3))),
        Example(((2, 3), (0,)), {"axis": 1}),
        Example(((3, 2), (2,)), types=(BOOL, INT)),
        Example(((3, 2), (2,)), types=(INT, INT)),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        source, places = shapes
        along = axis(attributes, "axis", len(source))
        return [(*source[:along], *places, *source[along + 1 :])]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Position,
    ) -> Scalar:
        source, places = shapes
        along = axis(attributes, "axis", len(source))
        end = along + len(places)

        def element(place: Size) -> Scalar:
            return inputs[0]((*index[:along], place, *index[end:]))

        def counted(place: Size) -> Scalar:
            return where((at_least(place, 0),), element(place), element(place + source[along]))

        return at_integer(inputs[1](index[along:end]), counted)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        along = axis(attributes, "axis", arrays[0].ndim)
        return [_taken(arrays[0], arrays[1], along)]

    def ranges(
        self, shapes: Sequence[Shape], attributes: Attributes
    ) -> Mapping[int, tuple[Size, Size]]:
        extent = shapes[0][axis(attributes, "axis", len(shapes[0]))]
        return {1: (-extent, extent)}


@register
class GatherND(Composite):
    """Slices of the first input along its first axis, at the places in the rows of the second.

    Those of several axes, with more than one number in a row, are not declared, nor are batches.
    """

    name = op_type = "GatherND"
    since = 11
    arity = (2, 2)
    sorts = SORTS
    takes: ClassVar[tuple[str, ...]] = (ELEMENT, INT)
    examples = (
        Example(((4, 3), (2, 1))),
        Example(((5,), (1, 3, 1))),
        Example(((2, 3, 2), (1,))),
        Example(((2, 3), (0, 1))),
        Example(((3, 2), (2, 1)), types=(BOOL, INT)),
        Example(((3, 2), (2, 1)), types=(INT, INT)),
    )

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        source, places = inputs
        require(len(source.shape) > 0, "GatherND of a scalar")
        require(len(places.shape) > 0, "GatherND at a place that is no row")
        column = made("Squeeze", places, axes=(len(places.shape) - 1,))
        return (made("Gather", source, column, axis=0),)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [_taken(arrays[0], arrays[1][..., 0], 0)]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 0

    def ranges(
        self, shapes: Sequence[Shape], attributes: Attributes
    ) -> Mapping[int, tuple[Size, Size]]:
        return {1: (-shapes[0][0], shapes[0][0])}


def _taken(array: Array, places: Array, along: int) -> Array:
    """The slices of an array along an axis at these places. Raises IndexError for others."""
    places, extent = places.astype(np.int64), array.shape[along]
    if places.size and not -extent <= places.min() <= places.max() < extent:
        # numpy does not check indices where the result is empty
        raise IndexError(f"an index is out of range for an axis of extent {extent}")
    return np.asarray(np.take(array, places, axis=along))


class Places(Constant):
    """A constant of consecutive integers; the attribute `start` is the first of them."""

    sorts = frozenset({INT})

    def observed(self, array: Array) -> Mapping[str, Attribute] | None:
        places = array.reshape(-1)
        if places.size == 0 or np.any(np.diff(places.astype(object)) != 1):
            return None
        return {"start": int(places[0])}


@register
class Place(Places):
    """The integer `start`, of shape []."""

    name = "Place"
    attributes = declare(start=AttributeSpec(Kind.INT))
    examples = (Example((), {"start": 3}), Example((), {"start": -1}), Example((), {"start": 0}))

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        size(attributes, "start")
        return [()]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Position,
    ) -> Scalar:
        return scalar(size(attributes, "start"))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.asarray(size(attributes, "start"), dtype=np.int64)]


@register
class PlacesFrom(Places):
    """The `n` integers from `start` on."""

    name = "PlacesFrom"
    attributes = declare(start=AttributeSpec(Kind.INT, 0), n=AttributeSpec(Kind.INT))
    examples = (
        Example((), {"start": 3, "n": 2}),
        Example((), {"start": 0, "n": 1}),
        Example((), {"start": -2, "n": 0}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        n = size(attributes, "n")
        need(at_least(n, 0), f"a list of {n} places")
        return [(n,)]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Position,
    ) -> Scalar:
        place = size(attributes, "start") + index[0]
        return OfSize(place) if isinstance(place, Expr) else scalar(place)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        start, n = size(attributes, "start"), size(attributes, "n")
        assert isinstance(start, int)
        assert isinstance(n, int)
        return [np.arange(start, start + n, dtype=np.int64)]
