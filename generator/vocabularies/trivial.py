"""Vocabularies of operators that change nothing, or only take an axis of extent 1 away."""

from __future__ import annotations

from xflow.generator.production import Production, choices
from xflow.generator.vocabularies.common import X, anywhere
from xflow.generator.vocabulary import Family, Input, Vocabulary

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax")
GONE = "gone"


def _of_extent_one(
    dims: str, sizes: tuple[int, ...], axes: tuple[int, ...], ranks: tuple[int, ...] = (0,)
) -> Vocabulary:
    """Reductions along axes of extent 1 are their input, with the axes or without them."""
    kept, gone = (choices(axes=[axes], keepdims=[keep]) for keep in (1, 0))
    return Vocabulary(
        f"reductions of {dims}",
        (Input("x", X, dims, sizes),),
        (
            *(Production(op, (X,), X, kept) for op in REDUCTIONS),
            *(Production(op, (X,), GONE, gone) for op in REDUCTIONS),
            Production("Squeeze", (X,), GONE, choices(axes=[axes])),
            Production("Unsqueeze", (GONE,), X, choices(axes=[axes])),
        ),
        (0, 0),
        ranks=ranks,
        roots=frozenset({X, GONE}),
    )


def _put_and_taken(dims: str, sizes: tuple[int, ...], *axes: tuple[int, ...]) -> Vocabulary:
    """Axes that are put in and taken away, at once or one by one."""
    return Vocabulary(
        f"axes put into {dims}",
        (Input("x", X, dims, sizes),),
        (
            Production("Unsqueeze", (X,), "wide", choices(axes=list(axes))),
            Production("Squeeze", ("wide",), X, choices(axes=list(axes))),
        ),
        (0, 0, 0),
        roots=frozenset({X}),
    )


TRIVIAL = Family(
    "trivial",
    (
        _of_extent_one("1 C *S", (1, 3, 4), (0,), ranks=(0, 1, 2)),
        _of_extent_one("N 1 *S", (2, 1, 4), (1,), ranks=(0, 1, 2)),
        _of_extent_one("N C 1 *S", (2, 3, 1, 4), (2,), ranks=(0, 1)),
        _of_extent_one("N C H 1", (2, 3, 4, 1), (3,)),
        _of_extent_one("N C 1 1", (2, 3, 1, 1), (2, 3)),
        _put_and_taken("n", (3,), (0,), (1,), (0, 1), (1, 2), (0, 2)),
        _put_and_taken("n m", (3, 4), (1,), (0, 1), (1, 2), (2, 3), (0, 3)),
        Vocabulary(
            "casts to the same type",
            (anywhere("x"),),
            (Production("Cast", (X,), X, choices(to=["FLOAT"])),),
            (0, 0),
            roots=frozenset({X}),
        ),
    ),
    about="operators that do nothing, or only take axes of extent 1 away",
)
