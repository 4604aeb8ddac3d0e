"""Vocabularies of laws between functions at any shape: exponentials, extremes, squares, signs.

Each has the functions of one such law, and the operators between which it holds.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import anywhere, sorts, stages
from xflow.generator.vocabulary import Family

PAIR = (anywhere("x"), anywhere("y"))

EXPONENTIALS = stages("exponentials of sums", PAIR, limits=(0,) * 4).steps("""
    sum = Add(x, x) | Sub(x, x)
    power = Exp(x)
    out = Exp(sum) | Mul(power, power) | Div(power, power)
""")

ROOTS = stages(
    "roots and logarithms of products",
    (anywhere("x", positive=True), anywhere("y", positive=True)),
    limits=(1,) * 4,
    searched=False,
).steps("""
    half = 1/2
    product = Mul(x, x) | Div(x, x)
    root = Sqrt(x)
    inverse = Reciprocal(x)
    log = Log(x)
    out = Sqrt(product) | Mul(root, root)
    out = Log(product) | Add(log, log) | Sub(log, log) | Log(root) | Mul(log, half)
    out = Sqrt(inverse) | Reciprocal(root) | Log(inverse) | Neg(log)
""")
"""Not searched: the roots of 1e-25 have a product, and that of two such numbers is 0 in floats."""

SIGNS = stages("signs of products", PAIR, limits=(0,) * 4, searched=False).steps("""
    product = Mul(x, x)
    sign = Sign(x)
    out = Sign(product) | Mul(sign, sign) | Mul(x, sign) | Abs(x)
""")
"""Not searched: 1e-25 has a sign, and the product of two such numbers has none in floats."""

EXTREMES = stages(
    "the larger and the smaller of two",
    PAIR,
    limits=(1,) * 6,
    roots=sorts("x top bottom distance total out"),
).steps("""
    zero = 0; half = 1/2
    top = Max(x, x)
    bottom = Min(x, x)
    difference = Sub(x, x)
    distance = Abs(difference)
    above = Relu(difference)
    below = Min(difference, zero)
    total = Add(x, x)
    spread = Add(total, distance) | Sub(total, distance)
    out = Add(top, bottom) | Sub(top, bottom) | Mul(top, bottom) | Mul(x, x)
    out = Add(x, above | below) | Sub(x, above | below) | Mul(spread, half)
    out = Max(x, bottom) | Min(x, top)
""")

OPPOSITES = stages("extremes of negatives", PAIR, limits=(0,) * 4).steps("""
    negative = Neg(x)
    extreme = Max(x, x) | Min(x, x)
    out = Neg(extreme) | Max(negative, negative) | Min(negative, negative)
""")

MAGNITUDES = stages(
    "magnitudes of products", PAIR, limits=(1,) * 4, roots=sorts("x size square out")
).steps("""
    two = 2
    product = Mul(x, x) | Div(x, x)
    size = Abs(x)
    square = Pow(x, two)
    out = Abs(product) | Mul(size, size) | Div(size, size)
    out = Sqrt(square) | Pow(size, two)
""")

SQUARES = stages("squares of sums", PAIR, limits=(3,) * 7).steps("""
    two = 2
    sum = Add(x, x) | Sub(x, x)
    square = Pow(x, two)
    product = Mul(x, x)
    double = Mul(product, two)
    part = Add(square, double) | Sub(square, double)
    out = Pow(sum, two) | Add(part, square) | Sub(square, square) | Mul(sum, sum)
""")

MIRRORED = stages(
    "functions of negatives", (anywhere("x"),), limits=(0,) * 4, roots=sorts("gate out")
).steps("""
    negative = Neg(x)
    gate = Gelu(x) | Gelu(x, approximate="tanh") | Swish(x) | HardSwish(x) | Softplus(x)
    turned = Gelu(negative) | Gelu(negative, approximate="tanh") | Swish(negative)
    turned = HardSwish(negative) | Softplus(negative)
    gate = Add(x, turned)
    odd = Erf(x) | Sin(x) | Tanh(x) | Round(x) | Sign(x) | Floor(x) | Ceil(x)
    out = Erf(negative) | Sin(negative) | Tanh(negative) | Round(negative) | Sign(negative)
    out = Floor(negative) | Ceil(negative) | Neg(odd)
""")
"""That a unit is x more than at -x is common to those that x is a factor of."""

ALGEBRA = Family(
    "algebra",
    (EXPONENTIALS, ROOTS, SIGNS, EXTREMES, OPPOSITES, MAGNITUDES, SQUARES, MIRRORED),
    about="laws between exponentials, extremes, squares and signs at any shape",
)
