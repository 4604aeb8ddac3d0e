"""Guesses for what types leave open: equations between sizes that hold in one concrete pair.

A `Reshape` requires no more than as many elements, and a convolution in groups that the channels
divide into them. Which axes become one, and what a group has, only an example shows. The equations
are guesses: what is stated with them must be proved like everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import gcd
from typing import cast

from xflow.core.errors import SizeError
from xflow.core.node import Value
from xflow.core.registry import Operator
from xflow.core.size import Expr, Quotient, Size, atom_size, divide, evaluate, free_symbols, product
from xflow.generator.generalization.skeleton import Built


def merged_axes(built: Built, concrete: Built) -> Iterator[Size]:
    """For each run of axes that a `Reshape` of `concrete` makes of another, what is 0 then."""
    for value, example in zip(built.steps, concrete.steps, strict=True):
        if isinstance(value.node.op, Operator) and value.node.op.name == "Reshape":
            before, after = value.node.inputs[0].shape, value.shape
            for first, second in runs(_extents(example.node.inputs[0]), _extents(example)):
                yield product(before[first]) - product(after[second])


def _extents(value: Value) -> list[int]:
    return [evaluate(size, {}) for size in value.shape]


def runs(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """The shortest runs of axes of equal products, from the first axis on."""
    i = j = 0
    while i < len(before) and j < len(after):
        start = i, j
        left, right = before[i], after[j]
        i, j = i + 1, j + 1
        while left != right and (i < len(before) or j < len(after)):
            if j == len(after) or (i < len(before) and left < right):
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
        yield slice(start[0], i), slice(start[1], j)
    if i < len(before) or j < len(after):
        yield slice(i, None), slice(j, None)


def without_common_factor(equation: Size) -> Size:
    """An equation divided by the common factor of all its terms, which is not 0."""
    if not isinstance(equation, Expr):
        return equation
    monomials = [Counter(monomial) for monomial, _ in equation.terms]
    common = monomials[0]
    for monomial in monomials[1:]:
        common &= monomial
    divisor = gcd(*(c for _, c in equation.terms)) * product(map(atom_size, common.elements()))
    quotient, rest = divide(equation, divisor)
    return quotient if rest == 0 else equation


def divisions(equations: Iterable[Size], known: Mapping[str, int]) -> Iterator[Size]:
    """For each requirement that one size divides another, that it is the part of it that it is in
    the example, where the symbols have the `known` values."""
    for equation in equations:
        found = _division(equation)
        if found is None:
            continue
        number, divisor = found
        for part in _parts(number):
            try:
                if evaluate(part - divisor, known) == 0:
                    yield without_common_factor(part - divisor)
            except SizeError:
                continue


def divided(equations: Iterable[Size]) -> Iterator[tuple[str, Size]]:
    """For each requirement that one size divides a symbol, that symbol and the size."""
    for equation in equations:
        found = _division(equation)
        if found is not None and len(free_symbols(found[0])) == 1:
            (name,) = free_symbols(found[0])
            if str(found[0]) == name and name not in free_symbols(found[1]):
                yield name, found[1]


def factors(equations: Iterable[Size], known: Mapping[str, int]) -> Iterator[Size]:
    """For each requirement that two products are equal, that a factor of the first one is the part
    of the second that it is in the example, where the symbols have the `known` values."""
    for equation in equations:
        if not isinstance(equation, Expr) or [c for _, c in equation.terms] not in (
            [1, -1],
            [-1, 1],
        ):
            continue
        sides = [product(map(atom_size, monomial)) for monomial, _ in equation.terms]
        for (monomial, _), other in zip(equation.terms, reversed(sides), strict=True):
            for factor in map(atom_size, monomial):
                for part in _parts(other):
                    try:
                        if evaluate(part - factor, known) == 0:
                            yield part - factor
                    except SizeError:
                        continue


def pieces(built: Built, known: Mapping[str, int]) -> Iterator[Size]:
    """For each piece of a `Split`, and each axis of a constant, that nothing determines, that it is
    as long as the axis of an input that is as long in the example, where the symbols have the
    `known` values."""
    inputs = [value for value in built.steps if value.is_leaf]
    extents = dict.fromkeys(size for value in inputs for size in value.shape)
    told = {name for size in extents for name in free_symbols(size)}
    for value in built.steps:
        for piece in _free_extents(value):
            if free_symbols(piece).isdisjoint(told):
                for size in extents:
                    if evaluate(piece - size, known) == 0:
                        yield piece - size


def _free_extents(value: Value) -> Sequence[Size]:
    """The sizes that come from attributes of a value's operator and not from its inputs."""
    node = value.node
    if not isinstance(node.op, Operator):
        return ()
    if node.op.name == "Split":
        return cast("tuple[Size, ...]", node.attributes["split"])
    # A literal size, as that of Eye(n=2), is not free.
    return () if node.inputs else tuple(size for size in value.shape if free_symbols(size))


def _division(equation: Size) -> tuple[Size, Size] | None:
    """``(a, b)`` where the equation says ``a % b = 0``."""
    if not isinstance(equation, Expr):
        return None
    for monomial, _ in equation.terms:
        for atom in monomial:
            if isinstance(atom, Quotient):
                number, divisor = atom.numerator, atom.denominator
                if equation == number - divisor * atom_size(atom):
                    return number, divisor
    return None


def _parts(number: Size) -> Iterable[Size]:
    """The products of some factors of a size, the whole first."""
    found = [number]
    if isinstance(number, Expr) and len(number.terms) == 1:
        ((monomial, coefficient),) = number.terms
        for length in range(len(monomial), 0, -1):
            for chosen in combinations(monomial, length):
                whole = product(map(atom_size, chosen))
                found += [coefficient * whole, whole]
    return dict.fromkeys(found)
