"""Witnesses of maxima: where one is read, some value of its variables satisfies its guards.

An operator's output is never the least element. Where the left side reads a maximum over a range
without condition, one of the values is there; it gets a name of its own, ``_w0``, ``_w1`` and so
on, and what its guards say holds of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xflow.core.constraint import Constraint, in_range
from xflow.core.size import Size, symbol
from xflow.core.spec import Bottom, Call, If, MaxOver, Plus, Scalar, Times, substitute_scalar


def present_values(scalar: Scalar, parts: Sequence[Scalar] = ()) -> list[Constraint]:
    """Conditions that hold of named values of the maxima that `scalar` reads unconditionally.

    `parts` are outputs of operators from which it is always computed: what they read without
    condition, it does, too.
    """
    found: list[Constraint] = []
    count = 0
    sure = {maximum for part in parts for maximum, certain in _maxima(part) if certain}
    for maximum, certain in _maxima(scalar):
        body: Scalar = maximum
        here: list[Constraint] = []
        while isinstance(body, MaxOver):
            values: dict[str, Size] = {body.variable: symbol(f"_w{count}")}
            count += 1
            here += in_range(values[body.variable], body.extent)
            body = substitute_scalar(body.body, values)
        if isinstance(body, If) and body.other == Bottom():
            here += body.conditions
        found += here if certain or maximum in sure else []
    return [c for c in dict.fromkeys(found) if c.decided is None]


def _maxima(scalar: Scalar) -> Iterator[tuple[MaxOver, bool]]:
    """The outermost maxima, and whether each has a value wherever `scalar` has one.

    One among others under a maximum need not, unless it is all that another operator gives.
    """
    found: dict[MaxOver, bool] = {}

    def collect(part: Scalar, certain: bool) -> None:
        match part:
            case MaxOver():
                found[part] = found.get(part, False) or certain
            case Plus(args) | Times(args):
                for arg in args:
                    collect(arg, certain)
            case Call(function, args):
                for arg in args:
                    collect(arg, certain and function not in ("max", "min"))

    collect(scalar, True)
    yield from found.items()
