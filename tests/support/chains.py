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


def assert_covers(known: Known, result: Array) -> None:
    """No element lies outside of what is known, but for rounding.

    An exponential of 80 turns each rounding of its argument into 80 of its own.
    """
    assert known.nan or not np.isnan(result).any()
    assert known.plus or not np.isposinf(result).any()
    assert known.minus or not np.isneginf(result).any()
    finite = result[np.isfinite(result)].astype(np.float64)
    slack = 1e-4 * max(1.0, float(np.max(np.abs(finite), initial=0.0)))
    assert known.low - slack <= finite.min(initial=np.inf)
    assert finite.max(initial=-np.inf) <= known.high + slack
