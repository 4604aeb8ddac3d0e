"""Vocabularies of elementwise functions at any shape: activations, powers, exporters' spellings.

Where a function is computed in many steps, its sorts are the stages: an intermediate result is
used as the next stage would, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from xflow.generator.vocabularies.common import (
    OTHER_SYMBOL,
    SYMBOL,
    X,
    anywhere,
    applied,
    numbers,
    unary,
)
from xflow.generator.vocabulary import Family, Production, Vocabulary, choices

HALF = Fraction(1, 2)
OUT = "out"
GENTLE_SLOPES = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 5))
"""Slopes of leaky units in models: ``max(x, a * x)`` is one for a below 1 only."""

PAIRS = Vocabulary(
    "pairs of functions",
    (anywhere("x"),),
    (
        *unary("Neg", "Abs", "Relu", "Identity", "Exp", "Sigmoid"),
        *unary("Reciprocal", "Sin", "Cos", "Softsign", "HardSwish", "Swish"),
        Production("LeakyRelu", (X,), X, choices(alpha=[SYMBOL])),
    ),
    (0, 0, 0),
    exact=False,
    reals={SYMBOL: "alpha"},
    reach=4,
)

ODD = Vocabulary("odd functions", (anywhere("x"),), unary("Neg", "Tanh"), (0, 0, 0), exact=False)
"""Apart from the pairs: that a Tanh keeps an Abs is proved, but the second checker has no cases."""

POWERS = Vocabulary(
    "powers",
    (anywhere("x", positive=True), anywhere("y", positive=True)),
    (
        numbers("exponent", 2, 3, HALF, -1, -HALF, 1),
        applied("Pow", X, "exponent", OUT),
        *(Production(op, (X,), OUT) for op in ("Sqrt", "Reciprocal", "Exp", "Log")),
        *(Production(op, (OUT,), OUT) for op in ("Reciprocal", "Exp", "Log")),
        *(applied(op, X, sort, OUT) for op in ("Mul", "Div") for sort in (X, OUT)),
        applied("Mul", OUT, OUT, OUT),
    ),
    (1, 1, 1),
    roots=frozenset({X, OUT}),
    free=frozenset({"exponent"}),
    exact=False,
)

SLOPES = Vocabulary(
    "slopes",
    (anywhere("x"),),
    (
        numbers("zero", 0),
        numbers("c", SYMBOL),
        Production("Neg", (X,), "negative"),
        Production("Relu", (X,), "part"),
        Production("Relu", ("negative",), "other"),
        applied("Max", X, "zero", "part"),
        applied("Min", X, "zero", "other"),
        Production("Abs", (X,), "other"),
        applied("Mul", "other", "c", "other"),
        applied("Sub", "part", "other", OUT),
        applied("Add", "part", "other", OUT),
        applied("Sub", X, "part", "other"),
        applied("Sub", X, "other", OUT),
        applied("Add", X, "other", OUT),
        Production("LeakyRelu", (X,), OUT, choices(alpha=[SYMBOL])),
    ),
    (2, 2, 2, 2, 2, 2),
    free=frozenset({"c", "zero"}),
    roots=frozenset({"part", "other", OUT}),
    reals={SYMBOL: "alpha"},
    chain=True,
)

SIGNS = Vocabulary(
    "signs of multiples",
    (anywhere("x"), anywhere("y")),
    (
        numbers("c", SYMBOL),
        Production("Neg", ("c",), "minus c"),
        *(applied("Mul", X, c, f"{c} times") for c in ("c", "minus c")),
        *(applied(op, X, f"{c} times", OUT) for op in ("Add", "Sub") for c in ("c", "minus c")),
    ),
    (2, 2, 2),
    free=frozenset({"c", "minus c"}),
    roots=frozenset({OUT}),
    reals={SYMBOL: "alpha"},
    chain=True,
)
"""The sign of a constant may be that of the sum, as where a leaky unit takes away from Relu."""

GENTLE = Vocabulary(
    "gentle slopes",
    (anywhere("x"),),
    (
        numbers("c", *GENTLE_SLOPES),
        applied("Mul", X, "c", "scaled"),
        applied("Max", X, "scaled", OUT),
        Production("LeakyRelu", (X,), OUT, choices(alpha=list(GENTLE_SLOPES))),
    ),
    (1, 1, 1),
    free=frozenset({"c"}),
    exact=False,
    roots=frozenset({OUT}),
)


def _bounds(
    name: str, low: Fraction, high: Fraction, reach: int, reals: Mapping[Fraction, str]
) -> Vocabulary:
    """Cutting off below and above, once and twice."""
    lows = sorted({Fraction(0), low})
    return Vocabulary(
        name,
        (anywhere("x"),),
        (
            numbers("low", low),
            numbers("high", high),
            *unary("Relu"),
            applied("Max", X, "low"),
            applied("Min", X, "high"),
            Production("Clip", (X,), X, choices(min=lows)),
            Production("Clip", (X,), X, choices(max=[high])),
            Production("Clip", (X,), X, choices(min=lows, max=[high])),
        ),
        (1, 1, 2),
        free=frozenset({"low", "high"}),
        reals=reals,
        reach=reach,
    )


BOUNDS = _bounds("bounds", SYMBOL, OTHER_SYMBOL, 1, {SYMBOL: "low", OTHER_SYMBOL: "high"})
SIX = _bounds("bounds of 0 and 6", Fraction(0), Fraction(6), 8, {})

HARD = Vocabulary(
    "hard gates",
    (anywhere("x"),),
    (
        numbers("three", 3),
        numbers("six", 6),
        numbers("sixth", Fraction(1, 6)),
        numbers("half", HALF),
        numbers("zero", 0),
        applied("Add", X, "three", "shifted"),
        applied("Div", X, "six", "scaled"),
        applied("Mul", X, "sixth", "scaled"),
        applied("Add", "scaled", "half", "gate"),
        Production("Relu", ("shifted",), "positive"),
        applied("Max", "shifted", "zero", "positive"),
        applied("Min", "positive", "six", "cut"),
        Production("Clip", ("shifted",), "cut", choices(min=[Fraction(0)], max=[Fraction(6)])),
        applied("Mul", X, "cut", "product"),
        applied("Mul", "scaled", "cut", OUT),
        *(
            applied(op, part, number, result)
            for part, result in (("cut", OUT), ("product", OUT))
            for op, number in (("Div", "six"), ("Mul", "sixth"))
        ),
        Production("Clip", ("gate",), OUT, choices(min=[Fraction(0)], max=[Fraction(1)])),
        Production("HardSigmoid", (X,), OUT, choices(alpha=[Fraction(1, 6)], beta=[HALF])),
        applied("Mul", X, OUT, OUT),
        Production("HardSwish", (X,), OUT),
    ),
    (3, 3, 3, 4, 4, 4),
    free=frozenset({"three", "six", "sixth", "half", "zero"}),
    roots=frozenset({OUT, "cut"}),
    exact=False,
    reach=8,
    chain=True,
)

SIGMOIDS = Vocabulary(
    "sigmoids",
    (anywhere("x"),),
    (
        numbers("one", 1),
        numbers("two", 2),
        numbers("half", HALF),
        Production("Neg", (X,), "negative"),
        *(Production("Exp", (sort,), "power") for sort in (X, "negative")),
        applied("Add", "power", "one", "denominator"),
        Production("Log", ("denominator",), OUT),
        *(Production("Softplus", (sort,), OUT) for sort in (X, "negative")),
        *(Production("Sigmoid", (sort,), "gate") for sort in (X, "negative")),
        Production("Reciprocal", ("denominator",), "gate"),
        applied("Div", "one", "denominator", "gate"),
        applied("Div", "power", "denominator", "gate"),
        applied("Sub", "one", "gate", OUT),
        Production("Log", ("gate",), OUT),
        Production("Tanh", (OUT,), "gate"),
        applied("Mul", X, "half", "scaled"),
        Production("Tanh", ("scaled",), "tanh"),
        applied("Add", "tanh", "one", "factor"),
        applied("Mul", "factor", "half", "gate"),
        applied("Mul", "scaled", "factor", OUT),
        applied("Mul", X, "gate", OUT),
        applied("Div", X, "denominator", OUT),
        Production("Swish", (X,), OUT),
        Production("Mish", (X,), OUT),
        Production("Neg", (OUT,), OUT),
    ),
    (2, 2, 2, 2, 2, 2),
    free=frozenset({"one", "two", "half"}),
    roots=frozenset({"gate", OUT}),
    exact=False,
    chain=True,
)


def _gelus(name: str, by: str, constant: str, *, complement: bool = False) -> Vocabulary:
    """Gelu by the error function of the input divided by the root of 2, or by its complement.

    Models hold 1/sqrt(2) as a number, which is not recognised as a reciprocal, and -1/sqrt(2)
    likewise: each form has a vocabulary of its own, where no shorter form represents it.
    """
    scaled: tuple[Production, ...] = (applied(by, X, constant, "scaled"),)
    factor, sign = applied("Add", "error", "one", "factor"), "Add"
    if complement:
        scaled = (Production("Neg", (constant,), "opposite"), applied(by, X, "opposite", "scaled"))
        factor, sign = applied("Sub", "one", "error", "factor"), "Sub"
    return Vocabulary(
        name,
        (anywhere("x"),),
        (
            numbers("one", 1),
            numbers("two", 2),
            numbers("half", HALF),
            Production("Sqrt", ("two",), "root"),
            Production("Reciprocal", ("root",), "inverse"),
            *scaled,
            Production("Erf", ("scaled",), "error"),
            factor,
            applied("Mul", "factor", "half", "factor"),
            applied("Mul", X, "half", "part"),
            applied("Div", X, "two", "part"),
            applied("Mul", "part", "factor", OUT),
            applied("Mul", X, "factor", "product"),
            applied("Mul", X, "factor", OUT),
            applied("Mul", "product", "half", OUT),
            applied("Div", "product", "two", OUT),
            applied("Mul", "part", "error", "rest"),
            applied(sign, "part", "rest", OUT),
            Production("Gelu", (X,), OUT),
        ),
        (5, 5, 5, 5, 5, 5),
        free=frozenset({"one", "two", "half", "root", "inverse", "opposite"}),
        roots=frozenset({OUT, "part"}),
        exact=False,
        chain=True,
    )


GELUS = _gelus("gelus by a product", "Mul", "inverse")
QUOTIENT_GELUS = _gelus("gelus by a quotient", "Div", "root")
COMPLEMENTS = (
    _gelus("gelus by the complement of a product", "Mul", "inverse", complement=True),
    _gelus("gelus by the complement of a quotient", "Div", "root", complement=True),
)

CUBIC_GELUS = Vocabulary(
    "gelus by tanh",
    (anywhere("x"),),
    (
        numbers("one", 1),
        numbers("two", 2),
        numbers("three", 3),
        numbers("half", HALF),
        numbers("c", Fraction(8943, 200000)),
        Production("Pi", (), "pi"),
        applied("Div", "two", "pi", "ratio"),
        Production("Sqrt", ("ratio",), "root"),
        applied("Pow", X, "three", "cube"),
        applied("Mul", "cube", "c", "term"),
        applied("Add", X, "term", "sum"),
        applied("Mul", "sum", "root", "argument"),
        applied("Mul", X, "root", "scaled"),
        applied("Pow", X, "two", "square"),
        applied("Mul", X, "c", "slope"),
        applied("Mul", X, "slope", "square term"),
        applied("Mul", "square", "c", "square term"),
        applied("Add", "square term", "one", "polynomial"),
        applied("Mul", "scaled", "polynomial", "argument"),
        applied("Mul", "two", "root", "double"),
        applied("Mul", "sum", "double", "twice"),
        Production("Sigmoid", ("twice",), "gate"),
        applied("Mul", X, "gate", OUT),
        Production("Tanh", ("argument",), "tanh"),
        applied("Add", "tanh", "one", "factor"),
        applied("Mul", X, "half", "part"),
        applied("Mul", "part", "factor", OUT),
        applied("Mul", X, "factor", "product"),
        applied("Mul", "product", "half", OUT),
        Production("Gelu", (X,), OUT, choices(approximate=["tanh"])),
    ),
    (8,) * 9,
    free=frozenset({"one", "two", "three", "half", "c", "pi", "ratio", "root", "double"}),
    roots=frozenset({OUT, "argument", "square term"}),
    exact=False,
    chain=True,
)


def _factored_gelus(name: str, square: Production) -> Vocabulary:
    """With the root multiplied in, as compilers leave it, and squares in one form.

    Beside the others, no term is built on it.
    """
    return Vocabulary(
        name,
        (anywhere("x"),),
        (
            numbers("one", 1),
            numbers("two", 2),
            numbers("half", HALF),
            numbers("c", Fraction(8943, 200000)),
            Production("Pi", (), "pi"),
            applied("Div", "two", "pi", "ratio"),
            Production("Sqrt", ("ratio",), "root"),
            applied("Mul", "c", "root", "slope"),
            square,
            applied("Mul", "square", "slope", "term"),
            applied("Add", "term", "root", "line"),
            applied("Mul", X, "line", "argument"),
            Production("Tanh", ("argument",), "tanh"),
            applied("Add", "tanh", "one", "factor"),
            applied("Mul", X, "half", "part"),
            applied("Mul", "part", "factor", OUT),
            Production("Gelu", (X,), OUT, choices(approximate=["tanh"])),
        ),
        (9,) * 9,
        free=frozenset({"one", "two", "half", "c", "pi", "ratio", "root", "slope"}),
        roots=frozenset({OUT}),
        exact=False,
        chain=True,
    )


FACTORED_GELUS = (
    _factored_gelus("gelus by tanh of x times a square", applied("Pow", X, "two", "square")),
    _factored_gelus("gelus by tanh of x times a product", applied("Mul", X, X, "square")),
)

ACTIVATIONS = Family(
    "activations",
    (
        PAIRS,
        ODD,
        POWERS,
        SLOPES,
        SIGNS,
        GENTLE,
        BOUNDS,
        SIX,
        HARD,
        GELUS,
        QUOTIENT_GELUS,
        *COMPLEMENTS,
        CUBIC_GELUS,
        *FACTORED_GELUS,
        SIGMOIDS,  # last, since with its gates the others follow, by long ways
    ),
    about="elementwise functions at any shape, and the forms in which exporters write them",
)
