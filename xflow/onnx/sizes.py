"""Vectors of sizes for a model that does not compute them itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

import numpy as np
import onnx_ir as ir

from xflow.core.node import Value
from xflow.core.registry import Attribute
from xflow.core.size import Atom, Expr, Quotient, Size, atom_size
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


class Dimensions:
    """What the dimensions of some values tell: each size that one has, and what follows from them.

    Those are polynomials, and floors of quotients by numbers where the `opset` has remainders. Of
    values with the same size, the first one tells it.
    """

    def __init__(self, values: Iterable[Value], opset: int = 0) -> None:
        self._divides = opset >= WITH_REMAINDERS
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

    def read(self, sizes: Iterable[Size]) -> list[Value]:
        """The values whose dimensions are read for sizes that follow from them."""
        parts = (self._parts(size) for size in sizes)
        return [self._places[part][0] for found in parts for part in found or ()]

    def place(self, size: Size) -> tuple[Value, int] | None:
        """The value and the axis that have a size; None where it has to be computed."""
        return self._places.get(size)

    def _follows(self, size: object) -> bool:
        if not isinstance(size, Expr):
            return False
        parts = self._parts(size)
        return parts is not None and self._steps(size) <= STEPS

    def _parts(self, size: Size) -> list[Size] | None:
        """The sizes with a place that a size is computed from; None where they do not tell it."""
        if isinstance(size, int):
            return []
        if size in self._places:
            return [size]
        found: list[Size] = []
        for atom in (atom for monomial, _ in size.terms for atom in monomial):
            part = atom_size(atom)
            parts = [part] if part in self._places else self._parts_of_quotient(atom)
            if parts is None:
                return None
            found += parts
        return found

    def _parts_of_quotient(self, atom: Atom) -> list[Size] | None:
        return self._parts(atom.numerator) if self._divides and is_by_number(atom) else None

    def _steps(self, size: Size) -> int:
        """How many operators are written for a size, about."""
        if isinstance(size, int) or size in self._places:
            return 1
        steps = sum(len(monomial) + (factor != 1) for monomial, factor in size.terms)
        for atom in (atom for monomial, _ in size.terms for atom in monomial):
            if isinstance(atom, Quotient) and atom_size(atom) not in self._places:
                steps += DIVIDING + self._steps(atom.numerator)
        return steps


def is_by_number(atom: Atom) -> TypeGuard[Quotient]:
    """Whether an atom is the floor of a quotient by a positive number."""
    return isinstance(atom, Quotient) and isinstance(atom.denominator, int) and atom.denominator > 0


class SizeWriter:
    """Writes vectors of sizes that follow from dimensions, each size once."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._written: dict[Size, ir.Value] = {}

    def vector(self, sizes: Sequence[Size], dimensions: Dimensions) -> ir.Value:
        """Write a vector of several sizes, or find what was written for the same ones."""
        parts = [self._one(size, dimensions) for size in sizes]
        return self._writer.put_integers("Concat", parts, [attribute("axis", 0)], len(parts))

    def _one(self, size: Size, dimensions: Dimensions) -> ir.Value:
        """Write a vector of one size."""
        if isinstance(size, int):
            return self._writer.parameter(np.asarray([size], np.int64), "xflow_size")
        if size not in self._written:
            place = dimensions.place(size)
            self._written[size] = (
                self._computed(size, dimensions) if place is None else self._shape(*place)
            )
        return self._written[size]

    def _shape(self, value: Value, axis: int) -> ir.Value:
        writer, source = self._writer, self._writer.made[value]
        if writer.opsets[""] >= SHAPE_OF_AXES:
            span = [attribute("start", axis), attribute("end", axis + 1)]
            return writer.put_integers("Shape", [source], span, 1)
        whole = writer.put_integers("Shape", [source], [], len(value.shape))
        place = writer.parameter(np.asarray([axis], np.int64), "xflow_axis")
        return writer.put_integers("Gather", [whole, place], [attribute("axis", 0)], 1)

    def _computed(self, size: Expr, dimensions: Dimensions) -> ir.Value:
        if size.terms == atom_size(size.terms[0][0][0]).terms:
            return self._floor(size.terms[0][0][0], dimensions)
        terms = []
        for monomial, factor in size.terms:
            factors = [self._one(atom_size(atom), dimensions) for atom in monomial]
            if factor != 1 or not factors:
                factors.append(self._one(factor, dimensions))
            terms.append(self._joined("Mul", factors))
        return self._joined("Add", terms)

    def _floor(self, atom: Atom, dimensions: Dimensions) -> ir.Value:
        """Write the floor of a quotient: ONNX's Div cuts off towards 0, so less the remainder."""
        assert is_by_number(atom)
        numerator = self._one(atom.numerator, dimensions)
        denominator = self._one(atom.denominator, dimensions)
        remainder = self._joined("Mod", [numerator, denominator])
        return self._joined("Div", [self._joined("Sub", [numerator, remainder]), denominator])

    def _joined(self, op_type: str, parts: Sequence[ir.Value]) -> ir.Value:
        first, *others = parts
        for other in others:
            first = self._writer.put_integers(op_type, [first, other], [], 1)
        return first
