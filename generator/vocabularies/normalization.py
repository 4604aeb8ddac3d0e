"""Vocabularies of normalisations and softmax in exporters' steps; scales, shifts, statistics.

Sorts are the stages of a computation, so that terms may be deep and yet be few.
"""

from __future__ import annotations

from fractions import Fraction

from xflow.generator.vocabularies.common import SYMBOL, X, applied, numbers, squared
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

N = 4
BATCHES = (0, 1, 2, 3)
OUT, VECTOR = "out", "vector"
LAST = choices(axes=[(1,)], keepdims=[1])
HALF = Fraction(1, 2)


def _rows(name: str) -> Input:
    return Input(name, X, "*B n", (3, N))


def _vector(name: str) -> Input:
    return Input(name, VECTOR, "n", (N,))


CONSTANTS = frozenset({"two", "epsilon", "exponent", "ones", "zeros", VECTOR, "one"})
NUMBERS = (
    numbers("two", 2),
    numbers("epsilon", SYMBOL),
    numbers("exponent", -HALF),
    Production("Ones", (), "ones", choices(shape=[(N,)])),
    Production("Zeros", (), "zeros", choices(shape=[(N,)])),
)


def _spread(deviation: str, *, product: bool) -> tuple[Production, ...]:
    """From a deviation to it divided by the root of its mean square."""
    return (
        squared(deviation, "square", product=product),
        Production("ReduceMean", ("square",), "variance", LAST),
        *_normal(deviation),
    )


def _normal(deviation: str) -> tuple[Production, ...]:
    """A deviation divided by the root of a variance."""
    return (
        applied("Add", "variance", "epsilon", "shifted"),
        Production("Sqrt", ("shifted",), "root"),
        Production("Reciprocal", ("root",), "inverse"),
        applied("Pow", "shifted", "exponent", "inverse"),
        applied("Div", deviation, "root", "normal"),
        applied("Mul", deviation, "inverse", "normal"),
    )


def _normalization(name: str, op: str, *stages: Production, arities: tuple[int, ...]) -> Vocabulary:
    vectors = (VECTOR, "ones")
    return Vocabulary(
        name,
        (_rows("x"), _vector("a"), _vector("b")),
        (
            *NUMBERS,
            *stages,
            applied("Mul", "normal", VECTOR, "scaled"),
            applied("Add", "normal", VECTOR, OUT),
            applied("Add", "scaled", VECTOR, OUT),
            *(
                Production(op, (X, sort), result, choices(axis=[1], epsilon=[SYMBOL]))
                for sort, result in zip(vectors, ("scaled", "normal"), strict=True)
                if 2 in arities
            ),
            *(
                Production(op, (X, sort, VECTOR), OUT, choices(axis=[1], epsilon=[SYMBOL]))
                for sort in vectors
                if 3 in arities
            ),
            *(
                Production(op, (X, sort, "zeros"), result, choices(axis=[1], epsilon=[SYMBOL]))
                for sort, result in zip(vectors, ("scaled", "normal"), strict=True)
                if 3 in arities
            ),
        ),
        (4,) * 13,
        free=CONSTANTS,
        roots=frozenset({"normal", "scaled", OUT}),
        exact=False,
        ranks=BATCHES,
        reals={SYMBOL: "epsilon"},
        chain=True,
    )


def _layer(name: str, *, product: bool) -> Vocabulary:
    return _normalization(
        name,
        "LayerNormalization",
        Production("ReduceMean", (X,), "mean", LAST),
        applied("Sub", X, "mean", "deviation"),
        *_spread("deviation", product=product),
        applied("Mul", "inverse", VECTOR, "gain"),
        applied("Div", VECTOR, "root", "gain"),
        applied("Mul", "deviation", "gain", "scaled"),
        applied("Mul", X, "gain", "part"),
        applied("Mul", "mean", "gain", "offset"),
        applied("Sub", VECTOR, "offset", "rest"),
        applied("Add", "part", "rest", OUT),
        arities=(2, 3),
    )


def _root_mean_square(name: str, *, product: bool) -> Vocabulary:
    return _normalization(
        name,
        "RMSNormalization",
        *_spread(X, product=product),
        applied("Mul", "inverse", VECTOR, "gain"),
        applied("Div", VECTOR, "root", "gain"),
        applied("Mul", X, "gain", "scaled"),
        arities=(2,),
    )


def _layer_of_moments(name: str, *, product: bool) -> Vocabulary:
    """The variance as the mean of squares less the square of the mean."""
    return _normalization(
        name,
        "LayerNormalization",
        Production("ReduceMean", (X,), "mean", LAST),
        applied("Sub", X, "mean", "deviation"),
        squared(X, "square", product=product),
        Production("ReduceMean", ("square",), "second", LAST),
        squared("mean", "known", product=product),
        applied("Sub", "second", "known", "variance"),
        *_normal("deviation"),
        arities=(2,),
    )


STEPWISE = tuple(
    make(f"{name}, squares as {'products' if product else 'powers'}", product=product)
    for make, name in (
        (_layer, "layer normalisation"),
        (_layer_of_moments, "layer normalisation by the mean of squares"),
        (_root_mean_square, "root mean square"),
    )
    for product in (False, True)
)
"""Each on its own: where two forms of one thing are beside each other, terms are built on one of
the two alone."""

AFFINE = Vocabulary(
    "normalisation and vectors",
    (_rows("x"), _vector("a"), _vector("b"), _vector("c")),
    (
        *(
            Production(op, (X, *vectors), OUT, choices(axis=[1], epsilon=[SYMBOL]))
            for op, vectors in (
                ("LayerNormalization", (VECTOR,)),
                ("LayerNormalization", (VECTOR, VECTOR)),
                ("RMSNormalization", (VECTOR,)),
            )
        ),
        applied("Mul", OUT, VECTOR, OUT),
        applied("Add", OUT, VECTOR, OUT),
        applied("Mul", VECTOR, VECTOR, VECTOR),
        applied("Add", VECTOR, VECTOR, VECTOR),
    ),
    (2, 2, 1),
    free=frozenset({VECTOR}),
    roots=frozenset({OUT}),
    exact=False,
    ranks=BATCHES,
    reals={SYMBOL: "epsilon"},
)


def _softmax(
    name: str, dims: str, sizes: tuple[int, ...], axis: int, ranks: tuple[int, ...]
) -> Vocabulary:
    along = choices(axes=[(axis,)], keepdims=[1])
    column = tuple(1 if place == axis else size for place, size in enumerate(sizes))
    return Vocabulary(
        name,
        (
            Input("x", X, dims, sizes),
            Input("y", "column", _without(dims, axis), column),
        ),
        (
            *(
                applied(op, X, sort, "shifted")
                for op in ("Add", "Sub")
                for sort in ("column", "top")
            ),
            Production("ReduceMax", (X,), "top", along),
            *(Production("Exp", (sort,), "power") for sort in (X, "shifted")),
            Production("ReduceSum", ("power",), "total", along),
            Production("Reciprocal", ("total",), "inverse"),
            applied("Div", "power", "total", OUT),
            applied("Mul", "power", "inverse", OUT),
            Production("Log", ("total",), "logarithm"),
            *(applied("Add", "logarithm", sort, "whole") for sort in ("column", "top")),
            *(applied("Sub", X, sort, "log") for sort in ("logarithm", "whole")),
            applied("Sub", "shifted", "logarithm", "log"),
            *(
                production
                for sort in (X, "shifted")
                for production in (
                    Production("ReduceLogSumExp", (sort,), "logarithm", along),
                    Production("Softmax", (sort,), OUT, choices(axis=[axis])),
                    Production("LogSoftmax", (sort,), "log", choices(axis=[axis])),
                )
            ),
            Production("Log", (OUT,), "log"),
            Production("Exp", ("log",), OUT),
        ),
        (0,) * 7,
        roots=frozenset({OUT, "log", "logarithm", "whole"}),
        exact=False,
        ranks=ranks,
        chain=True,
    )


def _without(dims: str, axis: int) -> str:
    return " ".join("1" if place == axis else name for place, name in enumerate(dims.split()))


SOFTMAX = _softmax("softmax along the last axis", "*B n", (3, N), 1, BATCHES)
CHANNELS = _softmax("softmax along the channels", "N C *S", (2, 3, N), 1, (1, 2, 3))

NORMALIZATION = Family(
    "normalization",
    (*STEPWISE, AFFINE, SOFTMAX, CHANNELS),
    about="normalisations and softmax, in one operator and step by step",
)
