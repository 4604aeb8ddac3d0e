"""Chains of elementwise operators on one tensor, and whether analyses cover what they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from graphs import call
from hypothesis import strategies as st

from xflow.core.node import Value
from xflow.core.registry import Array
from xflow.ops import operator

UNARY = (
    *("Relu", "Abs", "Neg", "Exp", "Sigmoid", "Tanh", "Erf", "Gelu", "Swish", "HardSigmoid"),
    *("Sign", "Floor", "Elu", "Softsign", "LeakyRelu", "Softplus", "Reciprocal", "Sqrt", "Log"),
    *("Sin", "Clip", "Celu", "Selu", "Mish", "HardSwish", "Softmax", "LogSoftmax"),
)
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
ODD = (np.nan, np.inf, -np.inf, 0.0, 1e36, -1e36, 3e38, 1e-40)

CHAINS = (
    st.lists(st.sampled_from(UNARY), min_size=1, max_size=3),
    st.sampled_from(BINARY),
    st.sampled_from([*ODD, 0.5, 0.5, 0.5, 0.5]),
    st.integers(0, 2**32 - 1),
)
"""Operators, what joins their result with their input, an odd element of that, and a seed."""


class Known(Protocol):
    """What an analysis says of the elements of a tensor."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def nan(self) -> bool: ...
    @property
    def plus(self) -> bool: ...
    @property
    def minus(self) -> bool: ...


def numbers(odd: float, seed: int, dtype: type[np.floating[Any]] = np.float32) -> Array:
    """Random numbers [10, 4] of some magnitude, one of which is odd."""
    random = np.random.default_rng(seed)
    data = random.standard_normal((10, 4)) * 10.0 ** random.integers(-2, 5)
    data[random.integers(10), random.integers(4)] = odd
    with np.errstate(over="ignore"):
        return data.astype(dtype)


def chained(x: Value, data: Array, names: Sequence[str], joined: str) -> tuple[Value, Array]:
    """The operators on `x`, joined with it, and what they give for `data`."""
    value, result = x, data
    with np.errstate(all="ignore"):
        for name in names:
            value = call(name, value)
            result = operator(name).numpy([result], value.node.attributes)[0].astype(data.dtype)
        result = operator(joined).numpy([result, data], {})[0].astype(data.dtype)
    return call(joined, value, x), result


def outside(known: Known, result: Array, rounding: float, least: float = 0.0) -> str:
    """The first fault of a result that lies outside of what is known; nothing where none does.

    `rounding` is the error that is allowed, relative to the largest element, at least to `least`.
    """
    wide = result.astype(np.float64)
    for found, allowed, name in (
        (np.isnan(wide), known.nan, "NaN"),
        (np.isposinf(wide), known.plus, "inf"),
        (np.isneginf(wide), known.minus, "-inf"),
    ):
        if found.any() and not allowed:
            return name
    finite = wide[np.isfinite(wide)]
    slack = rounding * max(least, float(np.abs(finite).max(initial=0.0)))
    if finite.size and (finite.min() < known.low - slack or finite.max() > known.high + slack):
        return f"{finite.min()} to {finite.max()}, for {known.low} to {known.high}"
    return ""


def assert_covers(known: Known, result: Array) -> None:
    """No element lies outside of what is known, but for rounding.

    An exponential of 80 turns each rounding of its argument into 80 of its own.
    """
    assert not outside(known, result, 1e-4, 1.0)
