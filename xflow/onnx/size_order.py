"""Sizes that shape inference leaves open, and that follow from what the model's operators need.

Inference gives the sum of two tensors whose sizes have different names a size of a new name. All
that is certain is that each of the two is that size or 1. Where the runtime takes a tensor of such
a size to sizes that are known, the model runs at no others, and what lies between the two is the
same: a model that is exported with a mask of a length of its own has as many queries as tokens.
Numbers are not concluded: in the target of a Reshape they may be those of the example that was
traced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from xflow.core.registry import Shape
from xflow.core.size import Expr, Size, Symbol, atoms, free_symbols, solved, symbol

Edges = Mapping[Size, Collection[Size]]


class SizeOrder:
    """Which sizes are stretched to which, and which are equal, wherever a model runs.

    A size is at most another if it is that or 1: a partial order, so that sizes are equal that are
    at most each other. Tensors of the sizes of inputs are taken to have elements.
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
        """Note differences of sizes, or of numbers of elements, that are 0."""
        self._differences |= dict.fromkeys(differences)

    def concluded(self, open_names: Collection[str], given: Collection[str]) -> Mapping[str, Size]:
        """Symbols of `open_names`, each with its value over symbols that are `given`.

        Those that are given are not 0.
        """
        if not self._differences:
            return {}
        known, left = set(given), set(open_names)
        for difference in self._differences:
            for name in sorted(left.intersection(free_symbols(difference))):
                found = solved(difference, name)
                if found is None or not isinstance(found[0], Expr):
                    continue
                if _is_never_zero(found[1], known):
                    self._note(symbol(name), found[0])
                    self._note(found[0], symbol(name))
        below = _reversed(self._above)
        result: dict[str, Size] = {}
        for size in self._above:
            if isinstance(size, Expr) and free_symbols(size) <= known:
                for equal in _reached(size, self._above) & _reached(size, below):
                    name = str(equal)
                    if name in left:
                        result.setdefault(name, size)
        return result

    def _note(self, size: Size, whole: Size) -> None:
        if size not in (1, whole):
            self._above.setdefault(size, {})[whole] = None


def _is_never_zero(factor: Size, known: Collection[str]) -> bool:
    """Whether a factor is a sum of products of known sizes, all above 0 or all below."""
    if isinstance(factor, int):
        return factor != 0
    signs = {coefficient > 0 for _, coefficient in factor.terms}
    sizes = [atom for atom in atoms(factor) if isinstance(atom, Symbol) and atom.name in known]
    return len(signs) == 1 and len(sizes) == sum(1 for _ in atoms(factor))


def _reversed(above: Edges) -> Edges:
    below: dict[Size, list[Size]] = {}
    for size, wholes in above.items():
        for whole in wholes:
            below.setdefault(whole, []).append(size)
    return below


def _reached(start: Size, edges: Edges) -> set[Size]:
    found, left = {start}, [start]
    while left:
        for size in edges.get(left.pop(), ()):
            if size not in found:
                found.add(size)
                left.append(size)
    return found
