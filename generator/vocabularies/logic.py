"""Vocabularies of comparisons, choices and Booleans at any shape."""

from __future__ import annotations

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, sorts, stages
from xflow.generator.vocabulary import Family, Input, Vocabulary

TRUTH = "truth"


def _condition(name: str) -> Input:
    return Input(name, TRUTH, "...", (32,), dtype="BOOL")


def _value(name: str) -> Input:
    return Input(name, X, "...", (32,))


BOOLEANS = Vocabulary(
    "Booleans", (_condition("c"), _condition("d"), _condition("e")), roots=sorts("truth")
).steps("truth = Not(truth) | And(truth, truth) | Or(truth, truth) | Xor(truth, truth)")

ORDERS = Vocabulary(
    "orders", (_value("x"), _value("y")), limits=(1, 1, 1), roots=sorts("truth"), ties=True
).steps("""
    zero = 0
    difference = Sub(x, x) | Neg(x)
    truth = Greater(x, x | zero) | GreaterOrEqual(x, x | zero)
    truth = Less(x, x | zero) | LessOrEqual(x, x | zero)
    truth = Greater(difference, zero) | GreaterOrEqual(difference, zero)
    truth = Less(difference, zero) | LessOrEqual(difference, zero)
    truth = Equal(x, x) | Not(truth)
""")

CHOICES = Vocabulary(
    "choices",
    (_condition("c"), _condition("d"), _value("x"), _value("y"), _value("z")),
    limits=(1, 1, 1),
    roots=sorts("x"),
).steps("""
    zero = 0
    truth = Not(truth) | And(truth, truth) | Or(truth, truth)
    mask = Cast(truth, to="FLOAT")
    x = Where(truth, x, x | zero) | Where(truth, zero, x)
    x = Relu(x) | Neg(x) | Add(x, x) | Mul(x, x | mask)
""")

CHOSEN = stages(
    "functions of choices",
    (_condition("c"), _value("x"), _value("y"), _value("z")),
    limits=(0,) * 4,
).steps("""
    f = Elementwise(x, [x])
    chosen = Where(truth, x, x)
    out = Where(truth, f, f) | Elementwise(chosen, [x])
""")
"""Whatever is done on both sides is done to what is chosen."""

BETWEEN = stages(
    "comparisons with several", (_value("x"), _value("y"), _value("z")), limits=(0,) * 4, ties=True
).steps("""
    test = Less(x, x) | LessOrEqual(x, x)
    top = Max(x, x)
    bottom = Min(x, x)
    out = And(test, test) | Or(test, test) | Less(x, top | bottom) | Less(top | bottom, x)
    out = LessOrEqual(x, top | bottom) | LessOrEqual(top | bottom, x)
""")

EXTREMES = Vocabulary(
    "choices by order",
    (_value("x"), _value("y")),
    limits=(2, 2, 2, 3),
    roots=sorts("x out"),
    ties=True,
    reals={SYMBOL: "alpha"},
).steps("""
    zero = 0; c = SYMBOL
    truth = Greater(x, x | zero) | GreaterOrEqual(x, x | zero)
    truth = Less(x, x | zero) | LessOrEqual(x, x | zero)
    negative = Neg(x)
    scaled = Mul(x, c)
    mask = Cast(truth, to="FLOAT")
    out = Where(truth, x, x | zero | negative | scaled)
    out = Where(truth, zero | negative | scaled, x)
    out = Mul(x, mask) | Max(x, x) | Min(x, x | zero)
    out = Relu(x) | Abs(x) | LeakyRelu(x, alpha=SYMBOL)
""")

EXPONENTIALS = stages(
    "choices of an exponential", (_value("x"),), limits=(3,) * 6, ties=True, reals={SYMBOL: "alpha"}
).steps("""
    zero = 0; one = 1; c = SYMBOL
    truth = Greater(x, zero) | GreaterOrEqual(x, zero) | Less(x, zero) | LessOrEqual(x, zero)
    power = Exp(x)
    curve = Sub(power, one) | Mul(curve, c)
    out = Where(truth, x, curve) | Where(truth, curve, x) | Elu(x) | Elu(x, alpha=SYMBOL)
""")

LOGIC = Family(
    "logic",
    (BOOLEANS, ORDERS, CHOICES, CHOSEN, BETWEEN, EXTREMES, EXPONENTIALS),
    about="comparisons, choices between tensors, and Booleans",
)
