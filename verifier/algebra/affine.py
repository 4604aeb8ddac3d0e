"""Affine maps of bound variables: solving for them, and whether they are bijections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

from xflow.core.size import Size, coefficient_of, divide, free_symbols, substitute, symbol
from xflow.core.spec import Element
from xflow.verifier.algebra.arithmetic import Guards


def least_points(variables: Sequence[str], guards: Guards) -> Iterator[dict[str, Size]]:
    """Values of `variables` at which some guard of each is just satisfied."""
    lows = [
        [
            -split[1]
            for guard in guards
            if (split := coefficient_of(guard.difference, name))
            and split[0] == 1
            and not free_symbols(split[1]) & set(variables)
        ]
        for name in variables
    ]
    for choice in product(*lows):
        yield dict(zip(variables, choice, strict=True))


def free_symbols_of(accesses: Sequence[Element]) -> frozenset[str]:
    """The symbols in the indices of some accesses."""
    return frozenset().union(*(free_symbols(i) for e in accesses for i in e.index))


def solve_indices(
    source: Sequence[Size],
    target: Sequence[Size],
    unknown: frozenset[str],
    known: dict[str, Size],
) -> dict[str, Size] | None:
    """Values of `unknown` that make the `source` indices the `target` ones; None if impossible.

    Equations that are not linear in one remaining unknown are left aside: the caller compares
    the products afterwards anyway.
    """
    solution = dict(known)
    equations = [a - b for a, b in zip(source, target, strict=True)]
    progress = True
    while progress:
        progress = False
        for equation in equations:
            rest = substitute(equation, solution)
            names = free_symbols(rest) & unknown
            if len(names) != 1:
                continue
            (name,) = names
            value = solve_for(rest, name)
            if value is not None:
                solution[name] = value
                progress = True
    return solution


def solve_for(equation: Size, name: str) -> Size | None:
    """The polynomial that `name` must be for ``equation == 0``; None where there is none."""
    split = coefficient_of(equation, name)
    if split is not None:
        coefficient, rest = split
        if abs(coefficient) == 1:
            return -rest * coefficient
        whole, remainder = divide(-rest, coefficient)
        return whole if remainder == 0 else None
    linear = linear_in(equation, name)
    if linear is None:
        return None
    slope, rest = linear
    if slope == 0:
        return None
    whole, remainder = divide(-rest, slope)
    return whole if remainder == 0 else None


def linear_in(size: Size, name: str) -> tuple[Size, Size] | None:
    """``(slope, rest)``, both free of `name`, with ``size = slope * name + rest``."""
    rest = substitute(size, {name: 0})
    slope = substitute(size, {name: 1}) - rest
    if name in free_symbols(slope) | free_symbols(rest) or size != slope * symbol(name) + rest:
        return None
    return slope, rest


def eliminate(
    source: Sequence[Size], target: Sequence[Size], unknown: frozenset[str]
) -> dict[str, Size]:
    """Values of some of `unknown`, over the others, that make `source` the `target` if any do.

    Equations in which no unknown stands alone are left aside, as in `solve_indices`.
    """
    solution: dict[str, Size] = {}
    for a, b in zip(source, target, strict=True):
        equation = substitute(a - b, solution)
        for name in sorted(free_symbols(equation) & unknown):
            split = linear_in(equation, name)
            if split is None or split[0] not in (1, -1):
                continue
            value = -split[0] * split[1]
            solution = {n: substitute(v, {name: value}) for n, v in solution.items()}
            solution[name] = value
            break
    return solution


def is_bijection(mapping: dict[str, Size], variables: Sequence[str]) -> bool:
    """Whether an affine map is a bijection of Z^n: its matrix has determinant +-1."""
    matrix: list[list[Fraction]] = []
    for value in mapping.values():
        row = []
        for variable in variables:
            split = coefficient_of(value, variable)
            if split is None:
                return False
            row.append(Fraction(split[0]))
        matrix.append(row)
    return abs(determinant(matrix)) == 1


def determinant(matrix: list[list[Fraction]]) -> Fraction:
    """The determinant, by elimination."""
    rows = [list(row) for row in matrix]
    result = Fraction(1)
    for column in range(len(rows)):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != column:
            rows[column], rows[pivot] = rows[pivot], rows[column]
            result = -result
        result *= rows[column][column]
        for r in range(column + 1, len(rows)):
            factor = rows[r][column] / rows[column][column]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[column], strict=True)]
    return result
