"""Vocabularies of operators that change nothing, or only take an axis of extent 1 away."""

from __future__ import annotations

from xflow.generator.vocabularies.common import X, anywhere, either, sorts
from xflow.generator.vocabulary import Family, Input, Vocabulary


def _of_extent_one(
    dims: str, sizes: tuple[int, ...], axes: tuple[int, ...], ranks: tuple[int, ...] = (0,)
) -> Vocabulary:
    """Reductions along axes of extent 1 are their input, with the axes or without them."""
    kept, gone = f"axes={axes}, keepdims=1", f"axes={axes}, keepdims=0"
    return Vocabulary(
        f"reductions of {dims}",
        (Input("x", X, dims, sizes),),
        limits=(0, 0),
        ranks=ranks,
        roots=sorts("x gone"),
    ).steps(f"""
        x = ReduceSum(x, {kept}) | ReduceMean(x, {kept}) | ReduceMax(x, {kept})
        gone = ReduceSum(x, {gone}) | ReduceMean(x, {gone}) | ReduceMax(x, {gone})
        gone = Squeeze(x, axes={axes})
        x = Unsqueeze(gone, axes={axes})
    """)


def _put_and_taken(dims: str, sizes: tuple[int, ...], *axes: tuple[int, ...]) -> Vocabulary:
    """Axes that are put in and taken away, at once or one by one."""
    return Vocabulary(f"axes put into {dims}", (Input("x", X, dims, sizes),)).steps(f"""
        wide = Unsqueeze(x, axes={either(axes)})
        x = Squeeze(wide, axes={either(axes)})
    """)


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
        Vocabulary("casts to the same type", (anywhere("x"),), limits=(0, 0)).steps(
            'x = Cast(x, to="FLOAT")'
        ),
    ),
    about="operators that do nothing, or only take axes of extent 1 away",
)
