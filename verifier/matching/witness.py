"""Witnesses of maxima: a maximum that is read has a value, whose variables get names.

An operator's output is never the least element, so a window of a max pooling that is read is not
empty. Where the left side reads one without condition, some value of its variables satisfies its
guards; that one gets a name, and what its guards say may be assumed.
"""

from __future__ import annotations

from collections.abc import Iterator

from xflow.core.constraint import Constraint, in_range
from xflow.core.size import Size, symbol
from xflow.core.spec import Bottom, Call, If, MaxOver, Plus, Scalar, Times, substitute_scalar

PREFIX = "_w"


def witness_conditions(scalar: Scalar) -> tuple[Constraint, ...]:
    """Guards that hold of named values of the maxima that `scalar` reads without condition."""
    found: list[Constraint] = []
    numbers = iter(range(1_000))
    for maximum in dict.fromkeys(_maxima(scalar)):
        body: Scalar = maximum
        while isinstance(body, MaxOver):
            name = symbol(f"{PREFIX}{next(numbers)}")
            found += in_range(name, body.extent)
            body = substitute_scalar(body.body, {body.variable: name})
        if isinstance(body, If) and body.other == Bottom():
            found += body.conditions
    return tuple(c for c in dict.fromkeys(found) if c.decided is None)


def _maxima(scalar: Scalar) -> Iterator[MaxOver]:
    """The outermost maxima that are read wherever `scalar` is."""
    match scalar:
        case MaxOver():
            yield scalar
        case Plus(args) | Times(args) | Call(_, args):
            for arg in args:
                yield from _maxima(arg)


def named_points(
    variables: tuple[str, ...], assumed: tuple[Constraint, ...]
) -> Iterator[dict[str, Size]]:
    """The named values, as far as there are as many as `variables`, in the order of their names."""
    names = sorted(
        {n for c in assumed for n in c.symbols if n.startswith(PREFIX)},
        key=lambda name: int(name.removeprefix(PREFIX)),
    )
    for start in range(0, len(names) - len(variables) + 1, max(len(variables), 1)):
        chosen = names[start : start + len(variables)]
        yield dict(zip(variables, map(symbol, chosen), strict=True))
