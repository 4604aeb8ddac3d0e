"""Vocabularies of selected rows, moved before operators by rows: the others are not computed.

Rows lie along the last axis but one, behind any batch axes. A model that reads one token selects it
at its very end; each rule here takes the selection past one operator. `rows` is selected of `x`,
`out` of what an operator made of `x`, or what the operator makes of `rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import OUT, X, cut, scalar, sorts, tensors
from xflow.generator.vocabularies.means import ALL_MEANS
from xflow.generator.vocabulary import Family, Input, Vocabulary


@dataclass(frozen=True)
class Selector:
    """A slice along an axis, or what is gathered at `places`; and whether the axis stays."""

    name: str
    keeps: bool
    places: Input | None = None

    def of(self, sorts: str, axis: int) -> str:
        """The term that selects of these sorts along `axis`."""
        if self.places is None:
            return f"Slice({sorts}, {cut(axis, [1], [3])})"
        return f"Gather({sorts}, {self.places.sort}, axis={axis})"

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs with the indices."""
        return () if self.places is None else (self.places,)

    @property
    def free(self) -> frozenset[str]:
        """The sorts of these."""
        return frozenset(item.sort for item in self.inputs)


SLICE = Selector("a slice", True)
PLACE = Selector("one place", False, Input("i", "place", "", (), dtype="INT64"))
PLACES = Selector("places", True, Input("i", "places", "l", (3,), dtype="INT64"))

selected = partial(Vocabulary, exact=False, ranks=(0, 1, 2), roots=sorts("out"))
WEIGHT = Input("w", "weight", "m k", (4, 4))
WEIGHTS = sorts("weight vector")


def _tensor(name: str) -> Input:
    return Input(name, X, "*B n m", (2, 4, 4))


def _vector(name: str) -> Input:
    return Input(name, "vector", "m", (4,))


def _operands(selector: Selector) -> Vocabulary:
    """Elementwise operators, by themselves and with a tensor, a column, a line and a vector."""
    small = "vector | c | line" if selector.keeps else "vector | c"
    return selected(
        f"operands of {selector.name}",
        (
            _tensor("x"),
            _tensor("y"),
            *tensors("plane: p[*1 n m]  line: t[*1 1 m]  column: u[*B n 1]", n=4, m=4, B=2),
            _vector("b"),
            scalar("k", "c"),
            *selector.inputs,
        ),
        limits=(0, 0, 0, 0),
        free=sorts("line vector c") | selector.free,
    ).steps(f"""
        rows, out = {selector.of("(x, made)", 1)}
        less_plane, less_column = {selector.of("(plane, column)", 1)}
        made, out = Elementwise((x, rows), [(x, rows) | {small}])
        made, out = Elementwise((x, rows), (plane, less_plane))
        made, out = Elementwise((x, rows), (column, less_column))
    """)


def _norms(sort: str, axis: int, result: str) -> str:
    """Normalisation of each row."""
    last = f"axis={axis}, epsilon=SYMBOL"
    return f"""
        {result} = LayerNormalization({sort}, vector, [vector], {last})
        {result} = RMSNormalization({sort}, vector, {last})
        {result} = Softmax({sort}, axis={axis}) | LogSoftmax({sort}, axis={axis})
    """


def _reductions(op: str, last: int) -> str:
    """Reductions of each row, whose axis stays."""
    return f"""
        made = {op}(x, axes=(2,), keepdims=1)
        out = {op}(rows, axes=({last},), keepdims=1)
    """


def _sums(op: str, last: int) -> str:
    """Reductions of each row, whose axis goes."""
    return f"""
        less = {op}(x, axes=(2,), keepdims=0)
        one_less = {op}(rows, axes=({last},), keepdims=0)
    """


def _layers(selector: Selector) -> Vocabulary:
    """Operators that make each row of the row that stands there."""
    last = 2 if selector.keeps else 1
    reductions = ("ReduceMean", "ReduceSum", "ReduceMax")
    return selected(
        f"layers of {selector.name}",
        (
            _tensor("x"),
            _tensor("y"),
            WEIGHT,
            _vector("b"),
            _vector("c"),
            Input("r", "row", "*B m", (2, 4)),  # says where vectors are where the axis is gone
            *selector.inputs,
        ),
        limits=(0, 0, 0, 0),
        free=WEIGHTS | selector.free,
        roots=sorts("out one_less part_of_rows"),
        reals={SYMBOL: "epsilon"},
    ).steps(
        f"""
        rows, out, one_less = {selector.of("(x, made, less)", 1)}
        made, out = MatMul((x, rows), weight)
        made = MatMul(x, x)
        """,
        "out = MatMul(rows, x)" if selector.keeps else "",
        _norms("x", 2, "made"),
        _norms("rows", last, OUT),
        *(_reductions(op, last) for op in reductions),
        *(_sums(op, last) for op in reductions),
        f"""
        made = Concat(x, x, axis=2)
        out = Concat(rows, rows, axis={last})
        part = Split(x, axis=2, split=(2, 2))
        part_of_rows = Split(rows, axis={last}, split=(2, 2)) | {selector.of("part", 1)}
        """,
    )


def _affine(selector: Selector) -> Vocabulary:
    """Affine maps of a matrix that has no batch axes."""
    return selected(
        f"affine maps of {selector.name}",
        (Input("x", X, "n m", (4, 4)), WEIGHT, Input("b", "vector", "k", (4,)), *selector.inputs),
        free=WEIGHTS | selector.free,
        exact=True,
        ranks=(0,),
    ).steps(f"""
        rows, out = {selector.of("(x, made)", 0)}
        made, out = Gemm((x, rows), weight, transB=0 | 1)
        made, out = Gemm((x, rows), weight, vector, transB=0 | 1)
    """)


def _columns(selector: Selector) -> Vocabulary:
    """Columns, which a product takes from its weights and a bias from its elements."""
    return selected(
        f"columns of {selector.name}",
        (_tensor("x"), WEIGHT, _vector("b"), *selector.inputs),
        limits=(1, 1, 1),
        free=WEIGHTS | selector.free,
    ).steps(f"""
        rows, out = {selector.of("(x, made)", 2)}
        less_weight = {selector.of("weight", 1)}
        less_vector = {selector.of("vector", 0)}
        made, out = MatMul(x, (weight, less_weight))
        made, out = Elementwise((x, rows), (vector, less_vector))
    """)


BATCH, LENGTH, HEADS, DEPTH = 2, 5, 3, 4


def _heads(selector: Selector) -> Vocabulary:
    """Rows of several heads: features are split into heads, these put first, and back."""
    few = 2 if selector.places is None else 3
    kept: tuple[int, ...] = (few,) if selector.keeps else ()
    turned = f"""
        some_heads = {selector.of("split", 1)}
        some_last = {selector.of("turned", 2)}
    """
    if selector.keeps:
        turned = "some_heads, some_last = Transpose((some_split, some_turned), perm=(0, 2, 1, 3))"
    return selected(
        f"heads of {selector.name}",
        (
            *tensors(
                "merged: x[B n m]  split: y[B n h d]  turned: z[B h n d]",
                **{"B": BATCH, "n": LENGTH, "m": HEADS * DEPTH, "h": HEADS, "d": DEPTH},
            ),
            *selector.inputs,
        ),
        free=selector.free,
        exact=True,
        ranks=(0,),
        roots=sorts("out some_flat some_heads some_last"),
        by_example=True,
    ).steps(
        f"""
        heads = Reshape(merged, shape={(BATCH, LENGTH, HEADS, DEPTH)})
        out = Reshape(some_merged, shape={(BATCH, *kept, HEADS, DEPTH)})
        flat = Reshape(split, shape={(BATCH, LENGTH, HEADS * DEPTH)})
        some_flat = Reshape(some_split, shape={(BATCH, *kept, HEADS * DEPTH)})
        heads_first, heads_last = Transpose((split, turned), perm=(0, 2, 1, 3))
        out, some_merged, some_flat = {selector.of("(heads, merged, flat)", 1)}
        some_split = {selector.of("split", 1)}
        some_heads, some_turned = {selector.of("(heads_first, turned)", 2)}
        some_last = {selector.of("heads_last", 1)}
        """,
        turned,
    )


def _vocabularies(selector: Selector) -> tuple[Vocabulary, ...]:
    return tuple(make(selector) for make in (_operands, _layers, _heads))


ROWS_FAMILY = Family(
    "rows",
    (*_vocabularies(SLICE), _affine(SLICE), *ALL_MEANS),
    about="slices and means of rows, taken past operators that act on each row by itself",
)
GATHERED_ROWS = Family(
    "gathered-rows",
    (*_vocabularies(PLACE), *_vocabularies(PLACES), _affine(PLACES), _columns(PLACES)),
    about="rows gathered at places, taken past operators that act on each row by itself",
)
