"""Vocabularies of normalisations and softmax in exporters' steps; scales, shifts, statistics.

Sorts are the stages of a computation, so that terms may be deep and yet be few.
"""

from __future__ import annotations

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, sorts, stages
from xflow.generator.vocabulary import Family, Input, Vocabulary

N = 4
BATCHES = (0, 1, 2, 3)
VECTOR = "vector"
LAST = "axes=(1,), keepdims=1"


def _rows(name: str) -> Input:
    return Input(name, X, "*B n", (3, N))


def _vector(name: str) -> Input:
    return Input(name, VECTOR, "n", (N,))


def _normalization(name: str, op: str, text: str, arities: tuple[int, ...]) -> Vocabulary:
    """The steps of `text`, the scale and the shift, and an operator of so many inputs."""
    way = "axis=1, epsilon=SYMBOL"
    whole = ""
    if 2 in arities:
        whole += f"""
            scaled = {op}(x, vector, {way})
            normal = {op}(x, ones, {way})
        """
    if 3 in arities:
        whole += f"""
            out = {op}(x, vector | ones, vector, {way})
            scaled = {op}(x, vector, zeros, {way})
            normal = {op}(x, ones, zeros, {way})
        """
    return stages(
        name,
        (_rows("x"), _vector("a"), _vector("b")),
        limits=(4,) * 13,
        free=sorts("vector"),
        roots=sorts("normal scaled out"),
        ranks=BATCHES,
        reals={SYMBOL: "epsilon"},
    ).steps(
        f"""
        two = 2; epsilon = SYMBOL; exponent = -1/2
        ones = Ones(shape=({N},))
        zeros = Zeros(shape=({N},))
        shifted = Add(variance, epsilon)
        root = Sqrt(shifted)
        inverse = Reciprocal(root) | Pow(shifted, exponent)
        scaled = Mul(normal, vector)
        out = Add(normal | scaled, vector)
        """,
        text,
        whole,
    )


def _layer(name: str, square: str) -> Vocabulary:
    text = f"""
        mean = ReduceMean(x, {LAST})
        deviation = Sub(x, mean)
        square = {square.format("deviation")}
        variance = ReduceMean(square, {LAST})
        normal = Div(deviation, root) | Mul(deviation, inverse)
        gain = Mul(inverse, vector) | Div(vector, root)
        scaled = Mul(deviation, gain)
        part = Mul(x, gain)
        offset = Mul(mean, gain)
        rest = Sub(vector, offset)
        out = Add(part, rest)
    """
    return _normalization(name, "LayerNormalization", text, (2, 3))


def _root_mean_square(name: str, square: str) -> Vocabulary:
    text = f"""
        square = {square.format("x")}
        variance = ReduceMean(square, {LAST})
        normal = Div(x, root) | Mul(x, inverse)
        gain = Mul(inverse, vector) | Div(vector, root)
        scaled = Mul(x, gain)
    """
    return _normalization(name, "RMSNormalization", text, (2,))


def _layer_of_moments(name: str, square: str) -> Vocabulary:
    """The variance as the mean of squares less the square of the mean."""
    text = f"""
        mean = ReduceMean(x, {LAST})
        deviation = Sub(x, mean)
        square = {square.format("x")}
        second = ReduceMean(square, {LAST})
        known = {square.format("mean")}
        variance = Sub(second, known)
        normal = Div(deviation, root) | Mul(deviation, inverse)
    """
    return _normalization(name, "LayerNormalization", text, (2,))


STEPWISE = tuple(
    make(f"{name}, squares as {kind}", square)
    for make, name in (
        (_layer, "layer normalisation"),
        (_layer_of_moments, "layer normalisation by the mean of squares"),
        (_root_mean_square, "root mean square"),
    )
    for kind, square in (("powers", "Pow({0}, two)"), ("products", "Mul({0}, {0})"))
)
"""Each on its own: where two forms of one thing are beside each other, terms are built on one of
the two alone."""

AFFINE = Vocabulary(
    "normalisation and vectors",
    (_rows("x"), _vector("a"), _vector("b"), _vector("c")),
    limits=(2, 2, 1),
    free=sorts("vector"),
    roots=sorts("out"),
    exact=False,
    ranks=BATCHES,
    reals={SYMBOL: "epsilon"},
).steps("""
    out = LayerNormalization(x, vector, [vector], axis=1, epsilon=SYMBOL)
    out = RMSNormalization(x, vector, axis=1, epsilon=SYMBOL)
    out = Mul(out, vector) | Add(out, vector)
    vector = Mul(vector, vector) | Add(vector, vector)
""")


def _softmax(
    name: str, dims: str, sizes: tuple[int, ...], axis: int, ranks: tuple[int, ...]
) -> Vocabulary:
    along = f"axes=({axis},), keepdims=1"
    column = tuple(1 if place == axis else size for place, size in enumerate(sizes))
    return Vocabulary(
        name,
        (Input("x", X, dims, sizes), Input("y", "column", _without(dims, axis), column)),
        limits=(0,) * 7,
        roots=sorts("out log logarithm whole"),
        exact=False,
        ranks=ranks,
        chain=True,
    ).steps(f"""
        top = ReduceMax(x, {along})
        shifted = Add(x, column | top) | Sub(x, column | top)
        power = Exp(x | shifted)
        total = ReduceSum(power, {along})
        inverse = Reciprocal(total)
        logarithm = Log(total) | ReduceLogSumExp(x | shifted, {along})
        whole = Add(logarithm, column | top)
        log = Sub(x, logarithm | whole) | Sub(shifted, logarithm)
        log = LogSoftmax(x | shifted, axis={axis}) | Log(out)
        out = Div(power, total) | Mul(power, inverse)
        out = Softmax(x | shifted, axis={axis}) | Exp(log)
    """)


def _without(dims: str, axis: int) -> str:
    return " ".join("1" if place == axis else name for place, name in enumerate(dims.split()))


SOFTMAX = _softmax("softmax along the last axis", "*B n", (3, N), 1, BATCHES)
CHANNELS = _softmax("softmax along the channels", "N C *S", (2, 3, N), 1, (1, 2, 3))

NORMALIZATION = Family(
    "normalization",
    (*STEPWISE, AFFINE, SOFTMAX, CHANNELS),
    about="normalisations and softmax, in one operator and step by step",
)
