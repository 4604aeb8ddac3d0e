"""Vocabularies of comparisons, choices and Booleans at any shape."""

from __future__ import annotations

from dataclasses import replace

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, sorts, stages, tensors
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

EITHER = stages(
    "choices of one of two",
    (_condition("c"), replace(_condition("d"), sort="other"), _value("x"), _value("y")),
    limits=(0,) * 4,
).steps("""
    differ = Xor(truth, other)
    chosen = Where(other, x, x)
    out = Where(differ, x, x) | Where(truth, chosen, chosen)
""")


def _moved(name: str, axes: str, move: str, *places: Input, **extents: int) -> Vocabulary:
    """Choices that are moved, and choices of what was moved, conditions included."""
    return stages(
        f"choices, {name}",
        (*tensors(f"truth: c[{axes}] BOOL  x: x[{axes}] y[{axes}]", **extents), *places),
        limits=(0,) * 5,
        free=frozenset(each.sort for each in places),
        ranks=(0, 1, 2) if "*" in axes else (0,),
    ).steps(f"""
        chosen = Where(truth, x, x)
        out = {move.format("chosen")}
        some = {move.format(TRUTH)}
        part = {move.format(X)}
        out = Where(some, part, part)
    """)


PLACES = tensors("places: i[l] INT64", l=3)
MOVED = (
    _moved("turned", "*B n m", "Transpose({0}, perm=(0, 2, 1))", B=2, n=4, m=5),
    _moved("heads last", "N H L D", "Transpose({0}, perm=(0, 2, 1, 3))", N=2, H=3, L=4, D=5),
    *(
        _moved(f"{how}, {place} axis", axes, move.format("{0}", axis), *places, n=9, S=4, B=4)
        for place, axes, axis in (("first", "n *S", 0), ("last", "*B n", 1))
        for how, move, places in (
            ("a slice", "Slice({0}, starts=(1,), ends=(6,), axes=({1},), steps=(1,))", ()),
            ("places", "Gather({0}, places, axis={1})", PLACES),
        )
    ),
)
"""What moves elements moves a condition alike."""

MASKS = stages(
    "masks of numbers",
    (_condition("c"), _condition("d")),
    limits=(1,) * 4,
    roots=sorts("truth made out"),
).steps("""
    one = 1
    mask = Cast(truth, to="FLOAT")
    made = And(truth, truth) | Or(truth, truth) | Not(truth) | Cast(mask, to="BOOL")
    out = Cast(made, to="FLOAT") | Mul(mask, mask) | Max(mask, mask) | Min(mask, mask)
    out = Sub(one, mask)
""")

BETWEEN = stages(
    "comparisons with several", (_value("x"), _value("y"), _value("z")), limits=(0,) * 4, ties=True
).steps("""
    test = Less(x, x) | LessOrEqual(x, x)
    top = Max(x, x)
    bottom = Min(x, x)
    out = And(test, test) | Or(test, test) | Less(x, top | bottom) | Less(top | bottom, x)
    out = LessOrEqual(x, top | bottom) | LessOrEqual(top | bottom, x)
""")

BOTH = stages(
    "equal by two orders",
    (_value("x"), replace(_value("y"), sort="other")),
    limits=(0,) * 4,
    ties=True,
).steps("""
    test = LessOrEqual(x, other) | GreaterOrEqual(x, other)
    test = Less(x, other) | Greater(x, other)
    same = Equal(x, other)
    out = And(test, test) | Or(test, test) | Equal(x, other) | Not(same)
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
    (
        *(BOOLEANS, ORDERS, CHOICES, CHOSEN, EITHER, *MOVED, MASKS, BETWEEN, BOTH),
        *(EXTREMES, EXPONENTIALS),
    ),
    about="comparisons, choices between tensors, and Booleans",
)
