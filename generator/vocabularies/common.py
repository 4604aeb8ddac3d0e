"""Building blocks of vocabularies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from xflow.core.registry import Attribute
from xflow.generator.vocabulary import DTYPE, Input, Vocabulary

X, OUT = "x", "out"
"""The sorts of activations, which are tensors that are computed at run time, and of results."""


def sorts(text: str) -> frozenset[str]:
    """Sorts by their names, in which ``_`` is a space as in equations."""
    return frozenset(name.replace("_", " ") for name in text.split())


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


SORT_OR_INPUT = re.compile(r"(\w+):|(\w+)\[(.*?)\](?: ([A-Z]+\d*)\b)?")


def tensors(text: str, **extents: int) -> tuple[Input, ...]:
    """Inputs with their axes, after their sorts: ``query: q[B H S D]  mask: a[S L] b[1 S L] BOOL``.

    Each axis has the extent of its name, and a number that of itself. Behind the axes may stand the
    type of the elements. ``_`` is a space in the name of a sort.

    Raises KeyError for an axis without extent, ValueError for another text.
    """
    if rest := SORT_OR_INPUT.sub("", text).strip():
        raise ValueError(f"no input: {rest}")
    made, sort = [], ""
    for word, name, dims, dtype in SORT_OR_INPUT.findall(text):
        if word:
            sort = word.replace("_", " ")
        else:
            axes = [axis.removeprefix("*") for axis in dims.split()]
            sizes = tuple(int(axis) if axis.isdigit() else extents[axis] for axis in axes)
            made.append(Input(name, sort, dims, sizes, dtype or DTYPE))
    return tuple(made)


def anywhere(name: str, sort: str = X, *, positive: bool = False, sign: str = "") -> Input:
    """An input of any shape; for `sign` see `Input.sign`."""
    return Input(name, sort, "...", (5,), positive=positive, sign=sign)


def scalar(name: str, sort: str, *, sign: str = "") -> Input:
    """An input of shape []; for `sign` see `Input.sign`."""
    return Input(name, sort, "", (), sign=sign)
