"""Symbolic types: the most general sizes at which both sides of a skeleton have one type.

First-order unification over what the operators' `shape` requires: each equation between sizes is
solved for a symbol that stands in it alone, and put into all others. What has no such symbol
stays a requirement, or is closed as in an example, see `xflow.generator.generalization.example`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xflow.core.constraint import Relation
from xflow.core.errors import ShapeError
from xflow.core.size import (
    Expr,
    Quotient,
    Size,
    coefficient_of,
    evaluate,
    free_symbols,
    substitute,
    symbol,
)
from xflow.generator.generalization.example import (
    divided,
    divisions,
    factors,
    merged_axes,
    pieces,
    without_common_factor,
)
from xflow.generator.generalization.skeleton import Built, Point, Skeleton, Slot

ROUNDS = 64
"""Most symbols that are solved for, one in each: a skeleton of attention has 40 of them."""


@dataclass(frozen=True)
class Typing:
    """Sizes of the leaves and numbers of the slots, over as few symbols as possible."""

    shapes: tuple[tuple[Size, ...], ...]
    numbers: tuple[Size, ...]
    built: Built


def extent_name(leaf: int, axis: int) -> str:
    """Name of the symbol for one axis of one leaf."""
    return f"n{leaf}_{axis}"


def slot_symbol(index: int, slot: Slot) -> Size:
    """The symbol of a slot: ``b`` for extents, ``a`` for other numbers."""
    return symbol(f"{'b' if slot.is_size else 'a'}{index}")


def unify(
    skeleton: Skeleton, numbers: Sequence[Size], example: Point | None = None
) -> Typing | None:
    """Types for `skeleton` with these slots, which may hold symbols; None where there are none.

    What they leave open is closed as in `example`, the numbers of one pair.
    """
    shapes: list[tuple[Size, ...]] = [
        tuple(
            size if literal else symbol(extent_name(i, axis))
            for axis, (size, literal) in enumerate(zip(item.sizes, item.literal, strict=True))
        )
        for i, item in enumerate(skeleton.inputs)
    ]
    extents = {name for shape in shapes for size in shape for name in free_symbols(size)}
    slots = list(numbers)
    names = [f"t{i}" for i in range(len(shapes))]
    known: dict[str, int] = {}
    concrete = None
    if example is not None:
        concrete = skeleton.build(names, example.shapes, example.numbers)
        known = _values(skeleton, example)
        slots = _with_places(skeleton, slots, example)
    for _ in range(ROUNDS):
        try:
            built = skeleton.build(names, shapes, slots)
        except (ShapeError, ZeroDivisionError):
            return None
        if len(built.source.shape) != len(built.target.shape):
            return None
        solution = _solve(built, extents)
        if solution == {} and concrete is not None:
            solution = _solve_by_example(built, concrete, known)
        if solution is None:
            return None
        if not solution:
            return _with_plain_extents(skeleton, Typing(tuple(shapes), tuple(slots), built))
        try:
            shapes = [tuple(substitute(size, solution) for size in shape) for shape in shapes]
            slots = [substitute(size, solution) for size in slots]
        except ZeroDivisionError:
            return None
    return None


def _with_plain_extents(skeleton: Skeleton, typing: Typing) -> Typing:
    """`typing` with a symbol in the place of an extent ``a - q``, and ``a + q`` in that of ``a``.

    That is the same rule, but a match says what the extent is, and leaves `q` open where nothing
    else in the pattern contains it.
    """
    for size in dict.fromkeys(size for shape in typing.shapes for size in shape):
        if not isinstance(size, Expr) or sorted(c for _, c in size.terms) != [-1, 1]:
            continue
        for name in sorted(free_symbols(size)):
            split = coefficient_of(size, name)
            if not name.startswith("a") or split is None or split[0] != 1:
                continue
            moved = {name: symbol(name) - split[1]}
            shapes = tuple(tuple(substitute(n, moved) for n in shape) for shape in typing.shapes)
            if _plain(shapes) > _plain(typing.shapes):
                numbers = tuple(substitute(n, moved) for n in typing.numbers)
                built = skeleton.build([f"t{i}" for i in range(len(shapes))], shapes, numbers)
                typing = Typing(shapes, numbers, built)
    return typing


def _plain(shapes: Sequence[Sequence[Size]]) -> int:
    """How many extents are a symbol or a number."""
    return sum(
        isinstance(size, int) or size == symbol(min(free_symbols(size)))
        for shape in shapes
        for size in shape
    )


def _values(skeleton: Skeleton, example: Point) -> dict[str, int]:
    """The values of the symbols of slots and extents in the example."""
    extents = {
        extent_name(i, axis): size
        for i, shape in enumerate(example.shapes)
        for axis, size in enumerate(shape)
    }
    slots = enumerate(zip(skeleton.slots, example.numbers, strict=True))
    return extents | {str(slot_symbol(j, slot)): number for j, (slot, number) in slots}


def _with_places(skeleton: Skeleton, slots: Sequence[Size], example: Point) -> list[Size]:
    """`slots` with extents for the places that are as many elements from the start of an axis."""
    extents = {
        size: symbol(extent_name(i, axis))
        for i, shape in enumerate(example.shapes)
        for axis, size in enumerate(shape)
        if size > 1
    }
    return [
        extents.get(number, number) if slot.is_place and isinstance(number, int) else number
        for slot, number in zip(skeleton.slots, slots, strict=True)
    ]


def _solve_by_example(built: Built, concrete: Built, known: dict[str, int]) -> Mapping[str, Size]:
    """A symbol and its value from what is closed as in the example; none where nothing is open.

    A symbol that is made on the way is added to what is `known`.
    """
    equations = [
        condition.difference
        for condition in built.conditions
        if condition.relation is Relation.EQUAL
    ]
    for equation in (
        *merged_axes(built, concrete),
        *(without_common_factor(equation) for equation in equations),
        *divisions(equations, known),
        *factors(equations, known),
        *pieces(built, known),
    ):
        if not isinstance(equation, Expr) or _has_quotient(equation):
            continue
        for name in sorted(free_symbols(equation), key=lambda n: ("bna".index(n[0]), _late(n))):
            split = coefficient_of(equation, name)
            if split is not None and abs(split[0]) == 1:
                return {name: -split[1] if split[0] == 1 else split[1]}
    if all(_has_quotient(equation) for equation in equations if isinstance(equation, Expr)):
        return {}
    # Which sizes are equal depends on the parts into which an extent is divided.
    for extent, divisor in divided(equations):
        fresh = f"b{len(known)}"
        known[fresh] = known[extent] // evaluate(divisor, known)
        return {extent: divisor * symbol(fresh)}
    return {}


def _solve(built: Built, extents: set[str]) -> Mapping[str, Size] | None:
    """A symbol and its value from the first equation that determines one; None: contradiction."""
    for condition in built.conditions:
        if condition.relation is not Relation.EQUAL:
            continue
        if condition.decided is False:
            return None
        equation = condition.difference
        if not isinstance(equation, Expr) or _has_quotient(equation):
            continue
        linear = all(len(monomial) <= 1 for monomial, _ in equation.terms)
        # Extents in attributes (b), then extents of inputs (n), then other numbers (a); the last
        # made first, so that rules name sizes by the inputs that they meet first.
        for name in sorted(free_symbols(equation), key=lambda n: ("bna".index(n[0]), _late(n))):
            split = coefficient_of(equation, name)
            if split is None or abs(split[0]) != 1 or (name in extents and not linear):
                continue
            return {name: -split[1] if split[0] == 1 else split[1]}
    return {}


def _late(name: str) -> tuple[int, ...]:
    """Sorts symbols with larger numbers first."""
    return tuple(-int(part) for part in name[1:].split("_"))


def _has_quotient(equation: Expr) -> bool:
    return any(isinstance(atom, Quotient) for monomial, _ in equation.terms for atom in monomial)
