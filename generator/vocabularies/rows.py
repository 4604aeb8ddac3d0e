"""Vocabularies of selected rows, moved before operators by rows: the others are not computed.

Rows lie along the last axis but one, behind any batch axes. A model that reads one token selects it
at its very end; each rule here takes the selection past one operator. `rows` is selected of `x`,
`out` of what an operator made of `x`, or what the operator makes of `rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xflow.generator.equations import steps
from xflow.generator.production import SYMBOL, Production, choices
from xflow.generator.vocabularies.common import X, applied, pointwise, scalar
from xflow.generator.vocabularies.means import ALL_MEANS
from xflow.generator.vocabulary import Family, Input, Vocabulary

ROWS, MADE, OUT = "rows", "made", "out"
STAGES = ((X, MADE), (ROWS, OUT))
"""Pairs of sorts, all rows and selected rows, before and after an operator."""
PLANE, LINE, COLUMN, WEIGHT, VECTOR = "plane", "line", "column", "weight", "vector"
BATCHES = (0, 1, 2)
SIZES = (2, 4, 4)


@dataclass(frozen=True)
class Selector:
    """An operator that selects along an axis."""

    name: str
    op: str
    keeps: bool
    """Whether the axis stays."""
    places: Input | None = None

    def of(self, sort: str, result: str, axis: int) -> Production:
        """Selects of `sort` along `axis`."""
        if self.places is None:
            cut = {"starts": (1,), "ends": (3,), "axes": (axis,), "steps": (1,)}
            return Production(self.op, (sort,), result, (cut,))
        return Production(self.op, (sort, self.places.sort), result, choices(axis=[axis]))

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs with the indices or bounds."""
        return () if self.places is None else (self.places,)

    @property
    def free(self) -> frozenset[str]:
        """The sorts of these."""
        return frozenset(item.sort for item in self.inputs)


SLICE = Selector("a slice", "Slice", True)
PLACE = Selector("one place", "Gather", False, Input("i", "place", "", (), dtype="INT64"))
PLACES = Selector("places", "Gather", True, Input("i", "places", "l", (3,), dtype="INT64"))


def _tensor(name: str, sort: str = X) -> Input:
    return Input(name, sort, "*B n m", SIZES)


def _operands(selector: Selector) -> Vocabulary:
    """Elementwise operators, by themselves and with a tensor, a column, a line and a vector."""
    small = [VECTOR, "c", *([LINE] if selector.keeps else [])]
    return Vocabulary(
        f"operands of {selector.name}",
        (
            _tensor("x"),
            _tensor("y"),
            Input("p", PLANE, "*1 n m", (1, 4, 4)),
            Input("t", LINE, "*1 1 m", (1, 1, 4)),
            Input("u", COLUMN, "*B n 1", (2, 4, 1)),
            Input("b", VECTOR, "m", (4,)),
            scalar("k", "c"),
            *selector.inputs,
        ),
        (
            selector.of(X, ROWS, 1),
            selector.of(MADE, OUT, 1),
            selector.of(PLANE, "less plane", 1),
            selector.of(COLUMN, "less column", 1),
            *(
                pointwise(result, sort, *second)
                for sort, result in STAGES
                for second in ((), (sort,), *((word,) for word in small))
            ),
            *(
                pointwise(result, x, second)
                for x, second, result in (
                    (X, PLANE, MADE),
                    (ROWS, "less plane", OUT),
                    (X, COLUMN, MADE),
                    (ROWS, "less column", OUT),
                )
            ),
        ),
        (0, 0, 0, 0),
        free=frozenset({LINE, VECTOR, "c"}) | selector.free,
        exact=False,
        ranks=BATCHES,
        roots=frozenset({OUT}),
    )


def _norms(sort: str, axis: int, result: str) -> Sequence[Production]:
    """Normalisation of each row."""
    last = f"axis={axis}, epsilon=SYMBOL"
    return steps(f"""
        {result} = LayerNormalization({sort}, vector, {last})
        {result} = LayerNormalization({sort}, vector, vector, {last})
        {result} = RMSNormalization({sort}, vector, {last})
        {result} = Softmax({sort}, axis={axis}) | LogSoftmax({sort}, axis={axis})
    """)


def _layers(selector: Selector) -> Vocabulary:
    """Operators that make each row of the row that stands there."""
    last = 2 if selector.keeps else 1
    stages = ((X, 2, MADE), (ROWS, last, OUT))
    reductions = ("ReduceMean", "ReduceSum", "ReduceMax")
    return Vocabulary(
        f"layers of {selector.name}",
        (
            _tensor("x"),
            _tensor("y"),
            Input("w", WEIGHT, "m k", (4, 4)),
            Input("b", VECTOR, "m", (4,)),
            Input("c", VECTOR, "m", (4,)),
            Input("r", "row", "*B m", (2, 4)),  # says where vectors are where the axis is gone
            *selector.inputs,
        ),
        (
            selector.of(X, ROWS, 1),
            selector.of(MADE, OUT, 1),
            selector.of("less", "one less", 1),
            *(applied("MatMul", sort, WEIGHT, result) for sort, _, result in stages),
            *(
                applied("MatMul", sort, X, result)
                for sort, _, result in stages
                if selector.keeps or sort == X
            ),
            *(item for stage in stages for item in _norms(*stage)),
            *(
                Production(op, (sort,), result, choices(axes=[(axis,)], keepdims=[1]))
                for op in reductions
                for sort, axis, result in stages
            ),
            *(
                Production(op, (sort,), result, choices(axes=[(axis,)], keepdims=[0]))
                for op in reductions
                for sort, axis, result in ((X, 2, "less"), (ROWS, last, "one less"))
            ),
            *(
                Production("Concat", (sort, sort), result, choices(axis=[axis]))
                for sort, axis, result in stages
            ),
            *(
                Production("Split", (sort,), result, choices(axis=[axis], split=[(2, 2)]))
                for sort, axis, result in ((X, 2, "part"), (ROWS, last, "part of rows"))
            ),
            selector.of("part", "part of rows", 1),
        ),
        (0, 0, 0, 0),
        free=frozenset({WEIGHT, VECTOR}) | selector.free,
        exact=False,
        ranks=BATCHES,
        roots=frozenset({OUT, "one less", "part of rows"}),
        reals={SYMBOL: "epsilon"},
    )


def _affine(selector: Selector) -> Vocabulary:
    """Affine maps of a matrix that has no batch axes."""
    maps = choices(transB=[0, 1])
    return Vocabulary(
        f"affine maps of {selector.name}",
        (
            Input("x", X, "n m", (4, 4)),
            Input("w", WEIGHT, "m k", (4, 4)),
            Input("b", VECTOR, "k", (4,)),
            *selector.inputs,
        ),
        (
            selector.of(X, ROWS, 0),
            selector.of(MADE, OUT, 0),
            *(
                Production("Gemm", (sort, WEIGHT, *bias), result, maps)
                for bias in ((), (VECTOR,))
                for sort, result in STAGES
            ),
        ),
        (0, 0, 0),
        free=frozenset({WEIGHT, VECTOR}) | selector.free,
        roots=frozenset({OUT}),
    )


def _columns(selector: Selector) -> Vocabulary:
    """Columns, which a product takes from its weights and a bias from its elements."""
    return Vocabulary(
        f"columns of {selector.name}",
        (
            _tensor("x"),
            Input("w", WEIGHT, "m k", (4, 4)),
            Input("b", VECTOR, "m", (4,)),
            *selector.inputs,
        ),
        (
            selector.of(X, ROWS, 2),
            selector.of(MADE, OUT, 2),
            selector.of(WEIGHT, "less weight", 1),
            selector.of(VECTOR, "less vector", 0),
            applied("MatMul", X, WEIGHT, MADE),
            applied("MatMul", X, "less weight", OUT),
            pointwise(MADE, X, VECTOR),
            pointwise(OUT, ROWS, "less vector"),
        ),
        (1, 1, 1),
        free=frozenset({WEIGHT, VECTOR, "less weight", "less vector"}) | selector.free,
        exact=False,
        ranks=BATCHES,
        roots=frozenset({OUT}),
    )


BATCH, LENGTH, HEADS, DEPTH = 2, 5, 3, 4
MERGED, SPLIT, TURNED = "merged", "split", "turned"


def _heads(selector: Selector) -> Vocabulary:
    """Rows of several heads: features are split into heads, these put first, and back."""
    few = 2 if selector.places is None else 3
    kept: tuple[int, ...] = (few,) if selector.keeps else ()
    return Vocabulary(
        f"heads of {selector.name}",
        (
            Input("x", MERGED, "B n m", (BATCH, LENGTH, HEADS * DEPTH)),
            Input("y", SPLIT, "B n h d", (BATCH, LENGTH, HEADS, DEPTH)),
            Input("z", TURNED, "B h n d", (BATCH, HEADS, LENGTH, DEPTH)),
            *selector.inputs,
        ),
        (
            *steps(f"""
                heads = Reshape(merged, shape={(BATCH, LENGTH, HEADS, DEPTH)})
                out = Reshape(some_merged, shape={(BATCH, *kept, HEADS, DEPTH)})
                flat = Reshape(split, shape={(BATCH, LENGTH, HEADS * DEPTH)})
                some_flat = Reshape(some_split, shape={(BATCH, *kept, HEADS * DEPTH)})
                heads_first = Transpose(split, perm=(0, 2, 1, 3))
                heads_last = Transpose(turned, perm=(0, 2, 1, 3))
            """),
            selector.of("heads", OUT, 1),
            selector.of(MERGED, "some merged", 1),
            selector.of("flat", "some flat", 1),
            selector.of(SPLIT, "some split", 1),
            selector.of("heads first", "some heads", 2),
            selector.of(TURNED, "some turned", 2),
            selector.of("heads last", "some last", 1),
            *(
                steps("""
                    some_heads = Transpose(some_split, perm=(0, 2, 1, 3))
                    some_last = Transpose(some_turned, perm=(0, 2, 1, 3))
                """)
                if selector.keeps
                else (selector.of(SPLIT, "some heads", 1), selector.of(TURNED, "some last", 2))
            ),
        ),
        (0, 0, 0),
        free=selector.free,
        roots=frozenset({OUT, "some flat", "some heads", "some last"}),
        by_example=True,
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
