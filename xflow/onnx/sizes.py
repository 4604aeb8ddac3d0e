"""Vectors of sizes for a model that does not compute them itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from xflow.core.node import Value
from xflow.core.registry import Attribute
from xflow.core.size import Expr, Size, atom_size
from xflow.onnx.writer import Writer, attribute

SHAPE_OF_AXES = 15
"""The first opset in which Shape gives some of the dimensions."""
WITH_INTEGERS = 7
"""The first opset in which integers are added and multiplied."""
TERMS = 8
"""Most sums and products that are written for one size."""


class Dimensions:
    """What the dimensions of some values tell: each size that one has, and polynomials.

    Of values with the same size, the first one tells it.
    """

    def __init__(self, values: Iterable[Value]) -> None:
        self._places: dict[Size, tuple[Value, int]] = {}
        for value in values:
            for axis, size in enumerate(value.shape):
                self._places.setdefault(size, (value, axis))

    def tell(self, sizes: Attribute) -> tuple[Size, ...] | None:
        """The sizes of a vector, if each is a number or follows from these dimensions."""
        if not isinstance(sizes, tuple):
            return None
        found = [size for size in sizes if isinstance(size, int) or self._follows(size)]
        return tuple(found) if len(found) == len(sizes) else None

    def _follows(self, size: object) -> bool:
        if not isinstance(size, Expr):
            return False
        steps = sum(len(monomial) + (factor != 1) for monomial, factor in size.terms)
        return size in self._places or (steps <= TERMS and all(self._parts(size)))

    def _parts(self, size: Expr) -> list[tuple[Value, int] | None]:
        """Where the sizes in a polynomial are dimensions; None for one that is none."""
        found = (atom_size(atom) for monomial, _ in size.terms for atom in monomial)
        return [self._places.get(each) for each in found]

    def read(self, sizes: Iterable[Size]) -> list[Value]:
        """The values whose dimensions are read for sizes that follow from them."""
        places = (
            each
            for size in sizes
            if isinstance(size, Expr)
            for each in ([self._places[size]] if size in self._places else self._parts(size))
        )
        return [place[0] for place in places if place is not None]

    def place(self, size: Size) -> tuple[Value, int] | None:
        """The value and the axis that have a size; None where it has to be computed."""
        return self._places.get(size)


class SizeWriter:
    """Writes vectors of sizes that follow from dimensions, each size once."""

    def __init__(self, writer: Writer, dimensions: Dimensions) -> None:
        self._writer = writer
        self._dimensions = dimensions
        self._written: dict[Size, ir.Value] = {}

    def vector(self, sizes: Sequence[Size]) -> ir.Value:
        """Write a vector of several sizes."""
        parts = [self._one(size) for size in sizes]
        return self._writer.put_integers("Concat", parts, [attribute("axis", 0)], len(parts))

    def _one(self, size: Size) -> ir.Value:
        """Write a vector of one size."""
        if isinstance(size, int):
            return self._writer.parameter(np.asarray([size], np.int64), "xflow_size")
        if size not in self._written:
            place = self._dimensions.place(size)
            self._written[size] = self._computed(size) if place is None else self._shape(*place)
        return self._written[size]

    def _shape(self, value: Value, axis: int) -> ir.Value:
        writer, source = self._writer, self._writer.made[value]
        if writer.opsets[""] >= SHAPE_OF_AXES:
            span = [attribute("start", axis), attribute("end", axis + 1)]
            return writer.put_integers("Shape", [source], span, 1)
        whole = writer.put_integers("Shape", [source], [], len(value.shape))
        place = writer.parameter(np.asarray([axis], np.int64), "xflow_axis")
        return writer.put_integers("Gather", [whole, place], [attribute("axis", 0)], 1)

    def _computed(self, size: Expr) -> ir.Value:
        terms = []
        for monomial, factor in size.terms:
            factors = [self._one(atom_size(atom)) for atom in monomial]
            if factor != 1 or not factors:
                factors.append(self._one(factor))
            terms.append(self._joined("Mul", factors))
        return self._joined("Add", terms)

    def _joined(self, op_type: str, parts: Sequence[ir.Value]) -> ir.Value:
        first, *others = parts
        for other in others:
            first = self._writer.put_integers(op_type, [first, other], [], 1)
        return first
