"""Sizes that shape inference leaves open, and that follow from what the model's operators need.

Inference gives the sum of two tensors whose sizes have different names a size of a new name. All
that is certain is that each of the two is that size or 1. Where a Reshape takes a tensor of such a
size to sizes that are known, the model runs at no others, and what lies between the two is the
same: a model that is exported with a mask of a length of its own has as many queries as tokens.
Numbers are not concluded: those in a target may be of the example that was traced, and the runtime,
which puts -1 into some targets, runs at other sizes, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from xflow.core.registry import Shape
from xflow.core.size import Expr, Size, divide, factor_of, free_symbols, symbol


class SizeOrder:
    """Which sizes are stretched to which, and which are equal, wherever a model runs.

    A size is at most another if it is that or 1: a partial order, so that sizes are equal that are
    at most each other. Tensors are taken to have elements.
    """

    def __init__(self) -> None:
        self._above: dict[Size, dict[Size, None]] = {}
        self._differences: dict[Size, None] = {}

    def stretched(self, shapes: Iterable[Shape], result: Shape) -> None:
        """Note that tensors of these shapes are stretched to one of the shape `result`."""
        for shape in shapes:
            for size, whole in zip(reversed(shape), reversed(result), strict=False):
                self._note(size, whole)

    def zero(self, differences: Iterable[Size]) -> None:
        """Note differences of numbers of elements that are 0."""
        self._differences |= dict.fromkeys(differences)

    def told(self, open_names: Collection[str], given: Collection[str]) -> Mapping[str, Size]:
        """Symbols of `open_names`, each with its value over symbols that are `given`."""
        for difference in self._differences:
            names = free_symbols(difference).difference(given)
            if len(names) != 1 or not names <= set(open_names):
                continue
            (name,) = names
            value = solved(difference, name)
            if isinstance(value, Expr) and _is_positive(difference, name):
                self._note(symbol(name), value)
                self._note(value, symbol(name))
        below = _reversed(self._above)
        found: dict[str, Size] = {}
        for size in self._above:
            if isinstance(size, Expr) and free_symbols(size) <= set(given):
                equal = _reached(size, self._above) & _reached(size, below)
                for name in sorted(open_names):
                    if symbol(name) in equal:
                        found.setdefault(name, size)
        return found

    def _note(self, size: Size, whole: Size) -> None:
        if size not in (1, whole):
            self._above.setdefault(size, {})[whole] = None


def solved(difference: Size, name: str) -> Size | None:
    """The value of a symbol where the difference is 0, if that is a sum of positive terms."""
    linear = factor_of(difference, name)
    if linear is None or linear[0] == 0:
        return None
    value, rest = divide(-linear[1], linear[0])
    return None if rest != 0 or "-" in str(value) or value == 0 else value


def _is_positive(difference: Size, name: str) -> bool:
    """Whether what a symbol is multiplied by is not 0 at any sizes above 0."""
    linear = factor_of(difference, name)
    return linear is not None and ("-" not in str(linear[0]) or "-" not in str(-linear[0]))


def _reversed(above: Mapping[Size, Collection[Size]]) -> dict[Size, list[Size]]:
    below: dict[Size, list[Size]] = {}
    for size, wholes in above.items():
        for whole in wholes:
            below.setdefault(whole, []).append(size)
    return below


def _reached(start: Size, edges: Mapping[Size, Collection[Size]]) -> set[Size]:
    found, left = {start}, [start]
    while left:
        for size in edges.get(left.pop(), ()):
            if size not in found:
                found.add(size)
                left.append(size)
    return found
