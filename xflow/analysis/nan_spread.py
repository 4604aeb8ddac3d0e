"""Which elements of an input a result reads: whether a rewrite spreads NaN further than before.

A rule may ask for numbers since, of what is none, one side makes another thing than the other. NaN
alone is simpler than that: a result of operators that keep it is NaN where any element that it
reads is. So if the new value reads no element of an input that the old one does not read, it is a
number wherever the old one is, whatever other elements of that input are. Softmaxes behind masks of
-inf make this matter: where a mask may cover all, everything behind may be NaN.

Reads are compared by their indices, in terms of the index of the result and of bound variables.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from xflow.analysis.elements import orders, own_index
from xflow.core.errors import ShapeError
from xflow.core.graph import walk
from xflow.core.node import Value
from xflow.core.registry import Operator, Reader
from xflow.core.size import Expr, Size, free_symbols, substitute, symbol
from xflow.core.sorts import BOOL
from xflow.core.spec import (
    Call,
    Element,
    If,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    all_comparisons,
    truth,
)

KEEPING = frozenset(
    (
        *("Add", "Attention", "CachedAttention", "CachedCappedAttention", "CachedMaskedAttention"),
        *("CachedCausalAttention", "CachedCausalCappedAttention", "CachedCausalMaskedAttention"),
        *("CappedAttention", "CappedMaskedAttention", "CausalAttention"),
        *("CausalCappedAttention", "CausalMaskedAttention"),
        *("Concat", "Conv", "Div", "Erf", "Expand"),
        *("Gather", "Gelu", "Identity", "LayerNormalization", "MaskedAttention", "MatMul"),
        *("Mul", "Neg", "RMSNormalization", "Reciprocal", "ReduceMean", "ReduceSum", "Reshape"),
        *("Scalar", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile"),
        *("Transpose", "Unsqueeze"),
    )
)
"""Operators of which a result is NaN where any element is that it reads."""
MOST = 2_000
"""Most parts of a specification that are looked at."""


@dataclass(frozen=True)
class Read:
    """Elements of an input that are read: an index, over bound variables with these extents."""

    index: tuple[Size, ...]
    extents: tuple[Size, ...]
    """Of the bound variables ``_r0, _r1, ...``, in the order in which the index has them."""

    def covers(self, other: Read, shape: tuple[Size, ...]) -> bool:
        """Whether it is of all elements, of an input of that shape, that another one is of."""
        if self == other:
            return True
        if len(self.index) != len(other.index):
            return False
        return all(
            self._is_whole(mine, extent) if _is_bound(mine) else mine == its
            for mine, its, extent in zip(self.index, other.index, shape, strict=True)
        )

    def _is_whole(self, position: Size, extent: Size) -> bool:
        """Whether a position is a bound variable of its own that goes over a whole axis."""
        for number, known in enumerate(self.extents):
            if position == symbol(f"_r{number}"):
                alone = sum(f"_r{number}" in free_symbols(each) for each in self.index) == 1
                return alone and known == extent
        return False


def reads_no_more(before: Value, after: Value, source: Value, inputs: Container[Value]) -> bool:
    """Whether `after` reads no element of `source` that makes `before` NaN if it is NaN.

    Both are computed from `inputs`, one of which is `source`. False where that is not shown.
    """
    ops = (node.op for node in walk([before], inputs))
    if any(isinstance(op, Operator) and op.name not in KEEPING for op in ops):
        return False
    names: dict[str, Value] = {}
    try:
        old = set(_reads(before, source, inputs, names, surely=True))
        new = set(_reads(after, source, inputs, names, surely=False))
    except (ShapeError, _UnknownError):
        return False
    return all(any(one.covers(each, source.shape) for one in old) for each in new)


def _is_bound(position: Size) -> bool:
    return isinstance(position, Expr) and any(n.startswith("_r") for n in free_symbols(position))


class _UnknownError(Exception):
    """Elements are compared, or there are more parts than are worth looking at."""


def _reads(
    value: Value,
    source: Value,
    inputs: Container[Value],
    names: dict[str, Value],
    *,
    surely: bool,
) -> Iterator[Read]:
    """The elements of `source` that an element of `value` reads; `surely`, whatever is chosen.

    `names` are those of inputs, by which indices name what they look up; new ones are added.
    """

    def reader(value: Value) -> Reader:
        node = value.node
        if value in inputs or not isinstance(node.op, Operator):
            name = next((n for n, each in names.items() if each == value), str(len(names)))
            names[name] = value
            if value.type.dtype == BOOL:
                return lambda index: truth(name, index)
            return lambda index: Element(name, index)
        op, below = node.op, [reader(each) for each in node.inputs]
        shapes = [each.shape for each in node.inputs]
        return lambda index: op.at(below, shapes, node.attributes, value.index, index)

    with all_comparisons():
        whole = reader(value)(own_index(value))
    looked = 0
    stack: list[tuple[Scalar, dict[str, Size], bool]] = [(whole, {}, True)]
    while stack:
        scalar, bound, sure = stack.pop()
        looked += 1
        if looked > MOST:
            raise _UnknownError
        match scalar:
            case Element(name, index):
                if names[name] == source and (sure or not surely):
                    yield _read(index, bound)
            case Plus(args) | Times(args) | Call(_, args):
                stack += [(arg, bound, sure) for arg in args]
            case SumOver(variable, extent, body) | ProductOver(variable, extent, body):
                stack.append((body, {**bound, variable: extent}, sure))
            case MaxOver(variable, extent, body):
                stack.append((body, {**bound, variable: extent}, False))
            case If(conditions, then, other):
                if any(orders(conditions)):
                    raise _UnknownError
                stack += [(then, bound, False), (other, bound, False)]


def _read(index: tuple[Size, ...], bound: dict[str, Size]) -> Read:
    """A read with its bound variables named in the order in which the index has them."""
    order = list(dict.fromkeys(n for i in index for n in sorted(free_symbols(i)) if n in bound))
    names = {name: symbol(f"_r{number}") for number, name in enumerate(order)}
    renamed = tuple(substitute(position, names) for position in index)
    return Read(renamed, tuple(bound[name] for name in order))
