"""Outputs read at an index written in digits, ``i = m*q + r`` with ``0 <= r < m``."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import product

from xflow.core.constraint import Constraint, at_least, equal, in_range, less
from xflow.core.size import (
    Expr,
    Size,
    atom_size,
    coefficient_of,
    divide,
    free_symbols,
    substitute,
    symbol,
)
from xflow.core.spec import (
    Element,
    If,
    Literal,
    MaxOver,
    OfSize,
    ProductOver,
    Scalar,
    SumOver,
    scalar,
    where,
)
from xflow.verifier.recheck.expand import changed
from xflow.verifier.recheck.forms import Unreplayable
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.tidy import put, quotients_in

Guards = tuple[Constraint, ...]


def digits_of(index: Size, size: Size) -> dict[str, Size]:
    """Values for the symbols of `size` that make it `index`: its digits. Raises Unreplayable.

    `size` is a sum of symbols with coefficients each of which divides the next: 1, m, m*n, ...
    """
    names = sorted(name for name in free_symbols(size) if name.startswith("_i"))
    nothing: dict[str, Size] = dict.fromkeys(names, 0)
    weights = {name: substitute(size, {**nothing, name: 1}) for name in names}
    order = sorted(names, key=lambda name: (*_degree(weights[name]), str(weights[name])))
    values: dict[str, Size] = {}
    rest = index
    for name, following in zip(order, [*order[1:], None], strict=True):
        if following is None:
            values[name] = rest
            break
        base, remainder = divide(weights[following], weights[name])
        if remainder != 0 or base == 0:
            raise Unreplayable(f"{size} is not written in digits")
        values[name] = rest - base * (rest // base)
        rest = rest // base
    if substitute(size, values) != index:
        raise Unreplayable(f"{size} is not shown to reach each index")
    return values


def _degree(size: Size) -> tuple[int, int]:
    """The order of weights, each of which may divide the next: m, 2*m, m*n."""
    if isinstance(size, int):
        return 0, abs(size)
    return max((len(monomial), abs(coefficient)) for monomial, coefficient in size.terms)


def covers(
    index: Sequence[Size], conditions: Sequence[Constraint], plain: Sequence[Size], under: Questions
) -> bool:
    """Whether each index in `plain`, as `under` assumes it, is `index` for digits that satisfy
    `conditions`. Raises Unreplayable."""
    values: dict[str, Size] = {}
    for size, i in zip(index, plain, strict=True):
        found: dict[str, Size] = {str(i): i}
        if isinstance(size, int):  # where an index has one value alone
            if not under.implied(equal(i, size)):
                return False
        elif size != i:
            found = digits_of(i, size)
        if values.keys() & found.keys():
            return False  # two axes share a digit, so that not all pairs of indices are reached
        values |= found
    if set().union(*(c.symbols for c in conditions)) - values.keys() - _known(under):
        return False
    flat = tuple(_flattened(values.values(), under))
    return all(under.implied(c.substitute(values), flat) for c in conditions)


def are_all_remainders(
    indices: Sequence[Sequence[Size]], plain: Sequence[Size], taken: Container[str]
) -> bool:
    """Whether each index in `plain` is one of `indices`, for one value of their symbols.

    Along each axis these are the plain index, or ``m*q + r`` with the same literal m and a symbol
    q, which is not `taken` and of this axis alone; and they have all combinations of remainders r.
    """
    radices: list[int] = []
    remainders: list[list[int]] = [[] for _ in indices]
    names: set[str] = set()
    for axis, i in enumerate(plain):
        sizes = [index[axis] for index in indices]
        if all(size == i for size in sizes):
            radices.append(1)
            for row in remainders:
                row.append(0)
            continue
        free = frozenset[str]().union(*map(free_symbols, sizes))
        if len(free) != 1:
            return False
        (name,) = free
        if not name.startswith(str(i)) or name in names or name in taken:
            return False
        names.add(name)
        steps: set[int] = set()
        for size, row in zip(sizes, remainders, strict=True):
            split = coefficient_of(size, name)
            if split is None or not isinstance(split[1], int):
                return False
            steps.add(split[0])
            row.append(split[1])
        if len(steps) != 1 or min(steps) < 1:
            return False
        radices += steps
    return sorted(map(tuple, remainders)) == sorted(product(*map(range, radices)))


def _flattened(sizes: Iterable[Size], questions: Questions) -> Iterator[Constraint]:
    """``(i // a) // b == i // (a*b)`` for the quotients in `sizes` of that form, a and b positive.

    It follows from what a quotient is, but by products of three numbers.
    """
    for size in sizes:
        for outer in quotients_in(size):
            for inner in quotients_in(outer.numerator):
                positive = (at_least(inner.denominator, 1), at_least(outer.denominator, 1))
                if outer.numerator == atom_size(inner) and all(map(questions.implied, positive)):
                    both = inner.denominator * outer.denominator
                    yield equal(atom_size(outer), inner.numerator // both)


def _known(questions: Questions) -> frozenset[str]:
    return frozenset[str]().union(*(c.symbols for c in questions.assumed))


def without_quotients(expression: Scalar, questions: Questions, path: Guards = ()) -> Scalar:
    """`expression` with quotients resolved that the conditions at their place determine."""

    def again(part: Scalar) -> Scalar:
        return without_quotients(part, questions, path)

    def simple(size: Size) -> Size:
        return _resolved(size, questions, path)

    match expression:
        case OfSize(size):
            return scalar(simple(size))
        case Element(tensor, index):
            return Element(tensor, tuple(map(simple, index)))
        case SumOver(variable, extent, body):
            span = (*path, *in_range(symbol(variable), extent))
            return SumOver(variable, simple(extent), without_quotients(body, questions, span))
        case MaxOver(variable, extent, body):
            span = (*path, *in_range(symbol(variable), extent))
            return MaxOver(variable, simple(extent), without_quotients(body, questions, span))
        case ProductOver(variable, extent, body):
            span = (*path, *in_range(symbol(variable), extent))
            return ProductOver(variable, simple(extent), without_quotients(body, questions, span))
        case If(conditions, then, other):
            simpler = tuple(Constraint(simple(c.difference), c.relation) for c in conditions)
            inside = without_quotients(then, questions, (*path, *conditions))
            return where(simpler, inside, again(other))
        case Literal():
            return expression
    return changed(expression, again)


def _resolved(size: Size, questions: Questions, path: Guards) -> Size:
    if not isinstance(size, Expr):
        return size
    for quotient in quotients_in(size):
        for value in (0, 1, -1):
            known = (
                at_least(quotient.denominator, 1),
                at_least(quotient.numerator, value * quotient.denominator),
                less(quotient.numerator, (value + 1) * quotient.denominator),
            )
            if all(questions.implied(c, path) for c in known):
                return _resolved(put(size, quotient, value), questions, path)
    return size
