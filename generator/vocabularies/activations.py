"""Vocabularies of elementwise functions at any shape: activations, powers, exporters' spellings.

Where a function is computed in many steps, its sorts are the stages: an intermediate result is
used as the next stage would, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from xflow.generator.production import OTHER_SYMBOL, SYMBOL
from xflow.generator.vocabularies.common import anywhere, sorts, stages
from xflow.generator.vocabulary import Family, Vocabulary

PAIRS = Vocabulary(
    "pairs of functions", (anywhere("x"),), exact=False, reals={SYMBOL: "alpha"}, reach=4
).steps("""
    x = Neg(x) | Abs(x) | Relu(x) | Identity(x) | Exp(x) | Sigmoid(x) | Reciprocal(x)
    x = Sin(x) | Cos(x) | Softsign(x) | HardSwish(x) | Swish(x) | LeakyRelu(x, alpha=SYMBOL)
""")

ODD = Vocabulary("odd functions", (anywhere("x"),), exact=False).steps("x = Neg(x) | Tanh(x)")
"""Apart from the pairs: that a Tanh keeps an Abs is proved, but the second checker has no cases."""

POWERS = Vocabulary(
    "powers",
    (anywhere("x", positive=True), anywhere("y", positive=True)),
    limits=(1, 1, 1),
    roots=sorts("x out"),
    exact=False,
).steps("""
    exponent = 2 | 3 | 1/2 | -1 | -1/2 | 1
    out = Pow(x, exponent) | Sqrt(x) | Reciprocal(x | out) | Exp(x | out) | Log(x | out)
    out = Mul(x, x | out) | Div(x, x | out) | Mul(out, out)
""")

SLOPES = stages(
    "slopes",
    (anywhere("x"),),
    limits=(2,) * 6,
    roots=sorts("part other out"),
    exact=True,
    reals={SYMBOL: "alpha"},
).steps("""
    zero = 0; c = SYMBOL
    negative = Neg(x)
    part = Relu(x) | Max(x, zero)
    other = Relu(negative) | Min(x, zero) | Abs(x) | Mul(other, c) | Sub(x, part)
    out = Sub(part | x, other) | Add(part | x, other) | LeakyRelu(x, alpha=SYMBOL)
""")

SIGNS = stages(
    "signs of multiples",
    (anywhere("x"), anywhere("y")),
    limits=(2, 2, 2),
    exact=True,
    reals={SYMBOL: "alpha"},
).steps("""
    c = SYMBOL
    minus_c = Neg(c)
    c_times = Mul(x, c)
    minus_c_times = Mul(x, minus_c)
    out = Add(x, c_times | minus_c_times) | Sub(x, c_times | minus_c_times)
""")
"""The sign of a constant may be that of the sum, as where a leaky unit takes away from Relu."""

GENTLE = Vocabulary(
    "gentle slopes", (anywhere("x"),), limits=(1, 1, 1), exact=False, roots=sorts("out")
).steps("""
    c = 1/100 | 1/10 | 1/5
    scaled = Mul(x, c)
    out = Max(x, scaled) | LeakyRelu(x, alpha=1/100 | 1/10 | 1/5)
""")
"""Slopes of leaky units in models: ``max(x, a * x)`` is one for a below 1 only."""


def _bounds(
    name: str, low: Fraction, high: Fraction, reach: int, reals: Mapping[Fraction, str]
) -> Vocabulary:
    """Cutting off below and above, once and twice."""
    lows = " | ".join(map(str, sorted({Fraction(0), low})))
    return Vocabulary(name, (anywhere("x"),), limits=(1, 1, 2), reals=reals, reach=reach).steps(f"""
        low = {low}; high = {high}
        x = Relu(x) | Max(x, low) | Min(x, high)
        x = Clip(x, min={lows}) | Clip(x, max={high}) | Clip(x, min={lows}, max={high})
    """)


BOUNDS = _bounds("bounds", SYMBOL, OTHER_SYMBOL, 1, {SYMBOL: "low", OTHER_SYMBOL: "high"})
SIX = _bounds("bounds of 0 and 6", Fraction(0), Fraction(6), 8, {})

HARD = stages(
    "hard gates", (anywhere("x"),), limits=(3, 3, 3, 4, 4, 4), roots=sorts("out cut"), reach=8
).steps("""
    three = 3; six = 6; sixth = 1/6; half = 1/2; zero = 0
    shifted = Add(x, three)
    scaled = Div(x, six) | Mul(x, sixth)
    gate = Add(scaled, half)
    positive = Relu(shifted) | Max(shifted, zero)
    cut = Min(positive, six) | Clip(shifted, min=0, max=6)
    product = Mul(x, cut)
    out = Mul(scaled, cut) | Div(cut | product, six) | Mul(cut | product, sixth)
    out = Clip(gate, min=0, max=1) | HardSigmoid(x, alpha=1/6, beta=1/2)
    out = Mul(x, out) | HardSwish(x)
""")

SIGMOIDS = stages("sigmoids", (anywhere("x"),), limits=(2,) * 6, roots=sorts("gate out")).steps("""
    one = 1; two = 2; half = 1/2
    negative = Neg(x)
    power = Exp(x | negative)
    denominator = Add(power, one)
    gate = Sigmoid(x | negative) | Reciprocal(denominator) | Div(one | power, denominator)
    gate = Tanh(out) | Mul(factor, half)
    scaled = Mul(x, half)
    tanh = Tanh(scaled)
    factor = Add(tanh, one)
    out = Log(denominator | gate) | Softplus(x | negative) | Sub(one, gate)
    out = Mul(scaled, factor) | Mul(x, gate) | Div(x, denominator)
    out = Swish(x) | Mish(x) | Neg(out)
""")


COMPLEMENTS = stages(
    "complements of hard gates",
    (anywhere("x"),),
    limits=(1,) * 4,
    reach=8,
).steps("""
    one = 1
    negative = Neg(x)
    gate = HardSigmoid(x, alpha=1/6 | 1/5, beta=1/2)
    out = Sub(one, gate) | HardSigmoid(negative, alpha=1/6 | 1/5, beta=1/2)
""")

STABLE = stages("softplus that does not overflow", (anywhere("x"),), limits=(2,) * 8).steps("""
    zero = 0; one = 1
    size = Abs(x)
    opposite = Neg(size)
    power = Exp(opposite)
    sum = Add(power, one)
    rest = Log(sum)
    part = Relu(x) | Max(x, zero)
    out = Add(part, rest) | Softplus(x)
""")
"""As decompositions of ``logaddexp`` have it."""


def _gelus(name: str, scaled: str, *, complement: bool = False) -> Vocabulary:
    """Gelu by the error function of the input divided by the root of 2, or by its complement.

    Models hold 1/sqrt(2) as a number, which is not recognised as a reciprocal, and -1/sqrt(2)
    likewise: each form has a vocabulary of its own, where no shorter form represents it.
    """
    factor, sign = ("Sub(one, error)", "Sub") if complement else ("Add(error, one)", "Add")
    roots = sorts("out part")
    return stages(name, (anywhere("x"),), limits=(5,) * 6, roots=roots).steps(f"""
        one = 1; two = 2; half = 1/2
        root = Sqrt(two)
        inverse = Reciprocal(root)
        {scaled}
        error = Erf(scaled)
        factor = {factor} | Mul(factor, half)
        part = Mul(x, half) | Div(x, two)
        product = Mul(x, factor)
        rest = Mul(part, error)
        out = Mul(part | x, factor) | Mul(product, half) | Div(product, two)
        out = {sign}(part, rest) | Gelu(x)
    """)


GELUS = (
    _gelus("gelus by a product", "scaled = Mul(x, inverse)"),
    _gelus("gelus by a quotient", "scaled = Div(x, root)"),
    _gelus(
        "gelus by the complement of a product",
        "opposite = Neg(inverse); scaled = Mul(x, opposite)",
        complement=True,
    ),
    _gelus(
        "gelus by the complement of a quotient",
        "opposite = Neg(root); scaled = Div(x, opposite)",
        complement=True,
    ),
)

CUBIC_GELUS = stages(
    "gelus by tanh", (anywhere("x"),), limits=(8,) * 9, roots=sorts("out argument square_term")
).steps("""
    one = 1; two = 2; three = 3; half = 1/2; c = 8943/200000
    pi = Pi()
    ratio = Div(two, pi)
    root = Sqrt(ratio)
    double = Mul(two, root)
    cube = Pow(x, three)
    term = Mul(cube, c)
    sum = Add(x, term)
    square = Pow(x, two)
    slope = Mul(x, c)
    square_term = Mul(x, slope) | Mul(square, c)
    polynomial = Add(square_term, one)
    scaled = Mul(x, root)
    argument = Mul(sum, root) | Mul(scaled, polynomial)
    tanh = Tanh(argument)
    factor = Add(tanh, one)
    part = Mul(x, half)
    product = Mul(x, factor)
    twice = Mul(sum, double)
    gate = Sigmoid(twice)
    out = Mul(x, gate) | Mul(part, factor) | Mul(product, half) | Gelu(x, approximate="tanh")
""")


def _factored_gelus(name: str, square: str) -> Vocabulary:
    """With the root multiplied in, as compilers leave it, and squares in one form.

    Beside the others, no term is built on it.
    """
    return stages(name, (anywhere("x"),), limits=(9,) * 9).steps(f"""
        one = 1; two = 2; half = 1/2; c = 8943/200000
        pi = Pi()
        ratio = Div(two, pi)
        root = Sqrt(ratio)
        slope = Mul(c, root)
        square = {square}
        term = Mul(square, slope)
        line = Add(term, root)
        argument = Mul(x, line)
        tanh = Tanh(argument)
        factor = Add(tanh, one)
        part = Mul(x, half)
        out = Mul(part, factor) | Gelu(x, approximate="tanh")
    """)


FACTORED_GELUS = (
    _factored_gelus("gelus by tanh of x times a square", "Pow(x, two)"),
    _factored_gelus("gelus by tanh of x times a product", "Mul(x, x)"),
)

ACTIVATIONS = Family(
    "activations",
    (
        *(PAIRS, ODD, POWERS, SLOPES, SIGNS, GENTLE, BOUNDS, SIX, HARD, COMPLEMENTS, STABLE),
        *GELUS,
        CUBIC_GELUS,
        *FACTORED_GELUS,
        SIGMOIDS,  # last, since with its gates the others follow, by long ways
    ),
    about="elementwise functions at any shape, and the forms in which exporters write them",
)
