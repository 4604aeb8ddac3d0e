"""Vectors of sizes for a model that does not compute them itself."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

import numpy as np
import onnx_ir as ir

from xflow.core.node import Node, Value
from xflow.core.registry import Attribute
from xflow.core.size import Atom, Expr, Quotient, Size, atom_size
from xflow.core.sorts import integer_range
from xflow.onnx.writer import Writer, attribute

SHAPE_OF_AXES = 15
"""The first opset in which Shape gives some of the dimensions."""
WITH_INTEGERS = 7
"""The first opset in which integers are added and multiplied."""
WITH_REMAINDERS = 10
"""The first opset in which integers have remainders."""
STEPS = 24
"""Most operators that are written for one size."""
DIVIDING = 3
"""How many of them a quotient takes."""
LARGEST = integer_range("INT64")[1]
"""The largest number that can be written."""

Places: TypeAlias = Mapping[Size, Sequence[tuple[Value, int]]]
"""For each size the dimensions that have it: values and their axes."""


def places(values: Iterable[Value]) -> Places:
    """The dimensions of values, by their sizes."""
    found: dict[Size, list[tuple[Value, int]]] = {}
    for value in values:
        for axis, size in enumerate(value.shape):
            found.setdefault(size, []).append((value, axis))
    return found


@dataclass(frozen=True)
class Told:
    """A vector of sizes that follow from dimensions, and the values that have these."""

    sizes: tuple[Size, ...]
    dimensions: Dimensions
    read: tuple[Value, ...]


class Dimensions:
    """What the dimensions of some values tell: each size that one has, and what follows from them.

    Those are polynomials, and floors of quotients by numbers where the `opset` has remainders. Of
    several places of a size the first one tells it, but for those in values of nodes `without`.
    """

    def __init__(
        self, known: Places, opset: int = 0, without: Container[Node] = frozenset()
    ) -> None:
        self._known = known
        self._divides = opset >= WITH_REMAINDERS
        self._without = without

    def tell(self, sizes: Attribute) -> Told | None:
        """The sizes of a vector, if each is a number or follows from these dimensions."""
        if not isinstance(sizes, tuple):
            return None
        found: list[Size] = []
        read: list[Value] = []
        for size in sizes:
            if not isinstance(size, int | Expr) or (way := self._way_to(size)) is None:
                return None
            found.append(size)
            read += way[1]
        return Told(tuple(found), self, tuple(read))

    def place(self, size: Size) -> tuple[Value, int] | None:
        """The value and the axis that have a size; None where it has to be computed."""
        known = self._known.get(size, ())
        return next((place for place in known if place[0].node not in self._without), None)

    def _way_to(self, size: Size) -> tuple[int, list[Value]] | None:
        """How many operators are written for a size, about, and the values that they read.

        None where these dimensions do not tell it, or not in `STEPS`.
        """
        if isinstance(size, int):
            return (0, []) if abs(size) <= LARGEST else None
        if (place := self.place(size)) is not None:
            return 1, [place[0]]
        steps = 0
        read: list[Value] = []
        for monomial, factor in size.terms:
            steps += len(monomial) + (factor != 1)
            ways = [self._way_to(factor), *map(self._way_to_atom, monomial)]
            for way in ways:
                if way is None:
                    return None
                steps += way[0]
                read += way[1]
        return (steps, read) if steps <= STEPS else None

    def _way_to_atom(self, atom: Atom) -> tuple[int, list[Value]] | None:
        if (place := self.place(atom_size(atom))) is not None:
            return 0, [place[0]]
        if not self._divides or not is_by_number(atom):
            return None
        way = self._way_to(atom.numerator)
        return None if way is None else (way[0] + DIVIDING, way[1])


def is_by_number(atom: Atom) -> TypeGuard[Quotient]:
    """Whether an atom is the floor of a quotient by a positive number."""
    if not isinstance(atom, Quotient) or not isinstance(atom.denominator, int):
        return False
    return 0 < atom.denominator <= LARGEST


class SizeWriter:
    """Writes vectors of sizes that follow from dimensions: each vector and each size once."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._sizes: dict[Size, ir.Value] = {}
        self._vectors: dict[tuple[Size, ...], ir.Value] = {}

    def vector(self, told: Told) -> ir.Value:
        """Write a vector of several sizes."""
        if told.sizes not in self._vectors:
            parts = [self._one(size, told.dimensions) for size in told.sizes]
            joined = self._writer.put_integers("Concat", parts, [attribute("axis", 0)], len(parts))
            self._vectors[told.sizes] = joined
        return self._vectors[told.sizes]

    def _one(self, size: Size, dimensions: Dimensions) -> ir.Value:
        """Write a vector of one size."""
        if isinstance(size, int):
            return self._writer.parameter(np.asarray([size], np.int64), "xflow_size")
        if size not in self._sizes:
            place = dimensions.place(size)
            self._sizes[size] = (
                self._computed(size, dimensions) if place is None else self._shape(*place)
            )
        return self._sizes[size]

    def _shape(self, value: Value, axis: int) -> ir.Value:
        writer, source = self._writer, self._writer.made[value]
        if writer.opsets[""] >= SHAPE_OF_AXES:
            span = [attribute("start", axis), attribute("end", axis + 1)]
            return writer.put_integers("Shape", [source], span, 1)
        whole = writer.put_integers("Shape", [source], [], len(value.shape))
        place = writer.parameter(np.asarray([axis], np.int64), "xflow_axis")
        return writer.put_integers("Gather", [whole, place], [attribute("axis", 0)], 1)

    def _computed(self, size: Expr, dimensions: Dimensions) -> ir.Value:
        terms = []
        for monomial, factor in size.terms:
            factors = [self._atom(atom, dimensions) for atom in monomial]
            if factor != 1 or not factors:
                factors.append(self._one(factor, dimensions))
            terms.append(self._joined("Mul", factors))
        return self._joined("Add", terms)

    def _atom(self, atom: Atom, dimensions: Dimensions) -> ir.Value:
        """Write an atom: read off a dimension, or the floor of a quotient."""
        size = atom_size(atom)
        if size in self._sizes or dimensions.place(size) is not None:
            return self._one(size, dimensions)
        assert is_by_number(atom)
        numerator = self._one(atom.numerator, dimensions)
        denominator = self._one(atom.denominator, dimensions)
        # ONNX's Div cuts off towards 0, so the remainder is taken away before.
        remainder = self._joined("Mod", [numerator, denominator])
        exact = self._joined("Sub", [numerator, remainder])
        self._sizes[size] = self._joined("Div", [exact, denominator])
        return self._sizes[size]

    def _joined(self, op_type: str, parts: Sequence[ir.Value]) -> ir.Value:
        first, *others = parts
        for other in others:
            first = self._writer.put_integers(op_type, [first, other], [], 1)
        return first
