"""Vocabularies of comparisons, choices and Booleans at any shape."""

from __future__ import annotations

from xflow.generator.vocabularies.common import SYMBOL, X, applied, numbers, unary
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

TRUTH = "truth"
COMPARISONS = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")


def _condition(name: str) -> Input:
    return Input(name, TRUTH, "...", (32,), dtype="BOOL")


def _value(name: str) -> Input:
    return Input(name, X, "...", (32,))


def _where(condition: str, first: str, second: str, result: str = "out") -> Production:
    return Production("Where", (condition, first, second), result)


BOOLEANS = Vocabulary(
    "Booleans",
    (_condition("c"), _condition("d"), _condition("e")),
    (
        Production("Not", (TRUTH,), TRUTH),
        *(Production(op, (TRUTH, TRUTH), TRUTH) for op in ("And", "Or", "Xor")),
    ),
    (0, 0, 0),
    roots=frozenset({TRUTH}),
)

ORDERS = Vocabulary(
    "orders",
    (_value("x"), _value("y")),
    (
        numbers("zero", 0),
        *(Production(op, (X, X), TRUTH) for op in (*COMPARISONS, "Equal")),
        *(applied(op, X, "zero", TRUTH) for op in COMPARISONS),
        Production("Sub", (X, X), "difference"),
        Production("Neg", (X,), "difference"),
        *(applied(op, "difference", "zero", TRUTH) for op in COMPARISONS),
        Production("Not", (TRUTH,), TRUTH),
    ),
    (1, 1, 1),
    free=frozenset({"zero"}),
    roots=frozenset({TRUTH}),
    ties=True,
)

CHOICES = Vocabulary(
    "choices",
    (_condition("c"), _condition("d"), _value("x"), _value("y"), _value("z")),
    (
        numbers("zero", 0),
        Production("Not", (TRUTH,), TRUTH),
        *(Production(op, (TRUTH, TRUTH), TRUTH) for op in ("And", "Or")),
        _where(TRUTH, X, X, X),
        *(_where(TRUTH, a, b, X) for a, b in ((X, "zero"), ("zero", X))),
        *unary("Relu", "Neg"),
        *(applied(op, X, X) for op in ("Add", "Mul")),
        Production("Cast", (TRUTH,), "mask", choices(to=["FLOAT"])),
        applied("Mul", X, "mask"),
    ),
    (1, 1, 1),
    free=frozenset({"zero"}),
    roots=frozenset({X}),
)

EXTREMES = Vocabulary(
    "choices by order",
    (_value("x"), _value("y")),
    (
        numbers("zero", 0),
        numbers("c", SYMBOL),
        *(Production(op, (X, X), TRUTH) for op in COMPARISONS),
        *(applied(op, X, "zero", TRUTH) for op in COMPARISONS),
        Production("Neg", (X,), "negative"),
        applied("Mul", X, "c", "scaled"),
        _where(TRUTH, X, X),
        *(_where(TRUTH, a, b) for s in ("zero", "negative", "scaled") for a, b in ((X, s), (s, X))),
        Production("Cast", (TRUTH,), "mask", choices(to=["FLOAT"])),
        applied("Mul", X, "mask", "out"),
        *(Production(op, (X, X), "out") for op in ("Max", "Min")),
        *(Production(op, (X,), "out") for op in ("Relu", "Abs")),
        applied("Min", X, "zero", "out"),
        Production("LeakyRelu", (X,), "out", choices(alpha=[SYMBOL])),
    ),
    (2, 2, 2, 3),
    free=frozenset({"zero", "c"}),
    roots=frozenset({X, "out"}),
    ties=True,
    reals={SYMBOL: "alpha"},
)

EXPONENTIALS = Vocabulary(
    "choices of an exponential",
    (_value("x"),),
    (
        numbers("zero", 0),
        numbers("one", 1),
        numbers("c", SYMBOL),
        *(applied(op, X, "zero", TRUTH) for op in COMPARISONS),
        Production("Exp", (X,), "power"),
        applied("Sub", "power", "one", "curve"),
        applied("Mul", "curve", "c", "curve"),
        *(_where(TRUTH, a, b) for a, b in ((X, "curve"), ("curve", X))),
        Production("Elu", (X,), "out"),
        Production("Elu", (X,), "out", choices(alpha=[SYMBOL])),
    ),
    (3, 3, 3, 3, 3, 3),
    free=frozenset({"zero", "one", "c"}),
    roots=frozenset({"out"}),
    exact=False,
    ties=True,
    reals={SYMBOL: "alpha"},
    chain=True,
)

LOGIC = Family(
    "logic",
    (BOOLEANS, ORDERS, CHOICES, EXTREMES, EXPONENTIALS),
    about="comparisons, choices between tensors, and Booleans",
)
