"""Whether a rewrite squares what was not squared before.

``(a * b) * (a * b)`` is ``(a * a) * (b * b)``, and `Abs(x)` the root of ``x * x``. But a square has
twice the exponent: that of 1e-23 is 0 in 32 bits and that of 1e23 infinite, while their product is
1. Over the reals all is equal, and each rule by itself is measured at moderate numbers only, so
such a step is refused wherever it would be made.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator

from xflow.core.composite import Composite
from xflow.core.fold import moves
from xflow.core.node import Node, Value
from xflow.core.registry import Operator
from xflow.core.sorts import FLOATS

SQUARES = "it squares what was not squared before, and squares of small numbers are 0"
"""Why a rewrite is refused."""
_POWERS = frozenset({"Pow", "ReduceL2", "ReduceSumSquare"})
_PRODUCTS = frozenset({"Mul", "Einsum"})
_OF_LIKE_SIZE = frozenset({"Neg", "Abs"})


def squares_anew(old: Collection[Node], new: Iterable[Node]) -> bool:
    """Whether the new nodes of a rewrite square floats of which the old ones compute no square.

    What is squared is known by where its elements come from, whatever moves them or changes their
    signs. Constants do not count, see `folding`, and an operator that others define may square
    whatever it reads.
    """
    made = {
        part for value in _squared(new) if value.type.dtype in FLOATS for part in _sources(value)
    }
    if not made or any(isinstance(node.op, Composite) for node in old):
        return False
    squared = (*_squared(old), *_products_of_one(old))
    return not made <= {part for value in squared for part in _sources(value)}


def _squared(nodes: Iterable[Node]) -> Iterator[Value]:
    """What these nodes multiply by itself."""
    for node in nodes:
        name, inputs = _name(node), node.inputs
        doubled = name in _PRODUCTS and len(inputs) == 2 and len({*map(_sources, inputs)}) == 1
        if (doubled or name in _POWERS) and not inputs[0].is_constant:
            yield inputs[0]


def _products_of_one(nodes: Iterable[Node]) -> Iterator[Value]:
    """What these nodes multiply by itself and by constants, as in ``(c * x) * x``."""
    for node in nodes:
        if _name(node) == "Mul":
            factors = [value for value in _factors(node) if not value.is_constant]
            if len(factors) > 1 and len(set(map(_sources, factors))) == 1:
                yield factors[0]


def _factors(node: Node) -> Iterator[Value]:
    first, second = node.inputs
    if first == second:
        yield from node.inputs
        return
    for value in node.inputs:
        if _name(value.node) == "Mul" and not value.is_constant:
            yield from _factors(value.node)
        else:
            yield value


def _name(node: Node) -> str:
    """The name of an operator that is known."""
    return node.op.name if isinstance(node.op, Operator) else ""


def _sources(value: Value) -> frozenset[Hashable]:
    """The values whose elements those of `value` are, or their opposites."""
    found: set[Hashable] = set()
    stack = [value]
    while stack:
        value = stack.pop()
        node = value.node
        name = _name(node)
        if name in _OF_LIKE_SIZE or (name and node.inputs and moves(node)):
            stack.extend(source for source in node.inputs if source.type.dtype in FLOATS)
        elif name == "Sub":
            found.add(("difference", frozenset(node.inputs)))
        else:
            found.add(value)
    return frozenset(found)
