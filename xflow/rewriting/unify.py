"""Unification of sizes: what a rule's size symbols must be for a pattern to fit a graph.

Every dimension and every attribute of the pattern gives an equation ``pattern = target``. An
equation that is linear in a single unknown solves it; that is repeated until nothing changes, and
then every equation must hold literally. Sizes of the target may themselves be symbolic (a free
batch size): its symbols are kept apart from those of the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from xflow.core.registry import Attribute, RealSymbol
from xflow.core.size import Expr, Size, coefficient_of, divide, free_symbols, substitute, symbol
from xflow.core.sorts import DOUBLE, SORTS, sort_of

Equation: TypeAlias = tuple[Size, Size]
"""A size of the pattern, over the rule's symbols, and the size of the target it must equal."""

_MARK = "'"


def solve(equations: Iterable[Equation]) -> dict[str, Size] | None:
    """The values of all symbols on the left sides, or None where there is no single solution."""
    values: dict[str, Size] = {}
    waiting: list[tuple[Expr, Size]] = []
    for pattern, target in equations:
        if isinstance(pattern, int):
            if pattern != target:
                return None
        else:
            waiting.append((pattern, target if isinstance(target, int) else _mark(target)))
    while waiting:
        later: list[tuple[Expr, Size]] = []
        for pattern, target in waiting:
            name = pattern.name
            if name is not None:  # as in most equations
                if values.setdefault(name, target) != target:
                    return None
                continue
            names = pattern.symbols
            unknown = [name for name in names if name not in values]
            if len(unknown) > 1:
                later.append((pattern, target))
                continue
            try:
                known = substitute(pattern, {n: values[n] for n in names if n in values})
            except ZeroDivisionError:
                return None
            if not unknown:
                if known != target:
                    return None
                continue
            linear = coefficient_of(known, unknown[0])
            if linear is None or linear[0] == 0:
                later.append((pattern, target))
                continue
            whole, rest = divide(target - linear[1], linear[0])
            if rest != 0:
                return None
            values[unknown[0]] = whole
        if len(later) == len(waiting):
            return None
        waiting = later
    return {
        name: value if isinstance(value, int) else _unmark(value) for name, value in values.items()
    }


def _mark(size: Expr) -> Size:
    return substitute(size, {name: symbol(_MARK + name) for name in free_symbols(size)})


def _unmark(size: Expr) -> Size:
    names = {name: symbol(name.removeprefix(_MARK)) for name in free_symbols(size)}
    return substitute(size, names)


def attribute_equations(
    pattern: Attribute,
    target: Attribute,
    dtype: str,
    equations: list[Equation],
    reals: dict[str, Fraction],
) -> bool:
    """Add what makes two attributes equal to `equations` and `reals`; False if nothing can.

    `dtype` is the element type of what the target belongs to, see `same_literal`.
    """
    if isinstance(pattern, RealSymbol):
        if not isinstance(target, Fraction):
            return False
        return reals.setdefault(pattern.name, target) == target
    if isinstance(pattern, Fraction | str) or isinstance(target, Fraction | str):
        return same_literal(pattern, target, dtype)
    if isinstance(pattern, tuple):
        if not isinstance(target, tuple) or len(pattern) != len(target):
            return False
        equations.extend(zip(pattern, target, strict=True))
        return True
    if isinstance(target, tuple | RealSymbol):
        return False
    equations.append((pattern, target))
    return True


def instantiate(
    attribute: Attribute,
    sizes: Mapping[str, Size],
    reals: Mapping[str, Fraction],
    dtypes: Mapping[str, str] | None = None,
) -> Attribute | None:
    """`attribute` with the rule's symbols replaced; None for a real symbol without a value.

    `dtypes` are the element types for the sorts of the rule. Raises ZeroDivisionError.
    """
    if isinstance(attribute, str):
        return (dtypes or {}).get(attribute, attribute)
    if isinstance(attribute, RealSymbol):
        return reals.get(attribute.name)
    if isinstance(attribute, tuple):
        return tuple(substitute(size, sizes) for size in attribute)
    if isinstance(attribute, Expr):
        return substitute(attribute, sizes)
    return attribute


def same_literal(pattern: Attribute, target: Attribute, dtype: str) -> bool:
    """Whether two literals are equal.

    Reals are where ONNX, with 32 bits, stores them alike; beside elements of type `dtype` with more
    bits, where these are alike.
    """
    if isinstance(pattern, str) and isinstance(target, str) and pattern in SORTS:
        return sort_of(target) == pattern  # which of its types it is says the matcher
    if isinstance(pattern, Fraction) and isinstance(target, Fraction):
        single = dtype != DOUBLE
        return pattern == target or _stored(pattern, single) == _stored(target, single)
    return pattern == target


def _stored(number: Fraction, single: bool) -> float:
    return float(np.float32(number)) if single else float(number)


def may_equal(pattern: Attribute, target: Attribute, dtype: str) -> bool:
    """A quick test that rejects attributes that differ whatever the symbols are."""
    if isinstance(pattern, tuple):
        return (
            isinstance(target, tuple)
            and len(pattern) == len(target)
            and not any(isinstance(p, int) and p != t for p, t in zip(pattern, target, strict=True))
        )
    if isinstance(pattern, int | Fraction | str):
        return same_literal(pattern, target, dtype)
    return not isinstance(target, tuple)


def same_shape(pattern: Sequence[Size], target: Sequence[Size], sizes: Mapping[str, Size]) -> bool:
    """Whether a shape of the pattern is, with its symbols replaced, that of the target."""
    return len(pattern) == len(target) and all(
        substitute(p, sizes) == t for p, t in zip(pattern, target, strict=True)
    )
