"""Building blocks of vocabularies."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from xflow.core.registry import Attribute
from xflow.generator.production import Production, choices
from xflow.generator.vocabulary import Input, Vocabulary

X, OUT = "x", "out"
"""The sorts of activations, which are tensors that are computed at run time, and of results."""

stages = partial(Vocabulary, roots=frozenset({OUT}), exact=False, chain=True)
"""A vocabulary whose sorts are the stages of a computation, from inputs to `OUT`."""


def either(values: Iterable[Attribute]) -> str:
    """Values of an attribute as an equation separates them."""
    return " | ".join(map(repr, values))


def any_of(ops: Iterable[str], arguments: str) -> str:
    """Terms of these operators, all with the same arguments, as an equation separates them."""
    return " | ".join(f"{op}({arguments})" for op in ops)


def cut(axis: int, starts: Iterable[int], ends: Iterable[int]) -> str:
    """The attributes of slices along an axis, from any of the starts to any of the ends."""
    firsts, lasts = (either((place,) for place in places) for places in (starts, ends))
    return f"starts={firsts}, ends={lasts}, axes=({axis},), steps=(1,)"


def anywhere(name: str, *, positive: bool = False) -> Input:
    """An input of any shape."""
    return Input(name, X, "...", (5,), positive=positive)


def scalar(name: str, sort: str, *, sign: str = "") -> Input:
    """An input of shape []; for `sign` see `Input.sign`."""
    return Input(name, sort, "", (), sign=sign)


def binary(*names: str) -> tuple[Production, ...]:
    """Operators of two activations."""
    return tuple(Production(name, (X, X), X) for name in names)


def unary(*names: str) -> tuple[Production, ...]:
    """Operators of one activation."""
    return tuple(Production(name, (X,), X) for name in names)


def applied(op: str, first: str, second: str, result: str = X) -> Production:
    """An operator of two inputs of these sorts."""
    return Production(op, (first, second), result)


def reshaped(sort: str, result: str, *shape: int) -> Production:
    """The elements in their order, in this shape."""
    return Production("Reshape", (sort,), result, choices(shape=[shape]))


def transposed(sort: str, result: str, *perm: int) -> Production:
    """The axes in this order."""
    return Production("Transpose", (sort,), result, choices(perm=[perm]))


def pointwise(result: str, *args: str, zero: bool = False) -> Production:
    """An operator that stands for any elementwise one, or any that is 0 where its inputs are."""
    return Production("ZeroPreserving" if zero else "Elementwise", args, result)
