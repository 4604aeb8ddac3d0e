"""Which elements of an input a result reads: where NaN comes from, before and after a rewrite."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from graphs import call, tensor

import xflow.ops  # noqa: F401 - declares the operators
from xflow.analysis.nan_spread import reads_no_more
from xflow.core.fold import Folder
from xflow.core.node import Value


def given(key: str, *shape: int) -> Value:
    return tensor(key, *shape, constant=True)


Q, K, V = given("q", 2, 3, 4, 5), given("k", 2, 3, 6, 5), given("v", 2, 3, 6, 7)
X, W, B = given("x", 2, 4, 5), given("w", 5, 5), given("b", 4, 1)
KERNEL, ONE = given("kernel", 4, 4, 3), given("one", 4, 4, 1)


def turned(value: Value, *perm: int) -> Value:
    return call("Transpose", value, perm=perm)


def rows(value: Value, start: int, end: int) -> Value:
    return call("Slice", value, starts=(start,), ends=(end,), axes=(1,), steps=(1,))


SCORES = call("MatMul", Q, turned(K, 0, 1, 3, 2))
SPELLED = call("MatMul", call("Softmax", SCORES, axis=3), V)
ATTENTION = call("Attention", Q, K, V, scale=Fraction(1))
ZERO = call("Sub", X, X)
IDS, OTHERS = (tensor(key, 3, dtype="INT64") for key in ("ids", "others"))
NO_MORE: dict[str, tuple[Value, Value]] = {
    "an attention": (SPELLED, ATTENTION),
    "an attention that is spelled out": (ATTENTION, SPELLED),
    "a product of sums": (
        call("MatMul", call("Add", X, B), W),
        call("Add", call("MatMul", X, W), call("MatMul", call("Expand", B, shape=(4, 5)), W)),
    ),
    "rows of a product": (rows(call("MatMul", X, W), 1, 3), call("MatMul", rows(X, 1, 3), W)),
    "less than before": (call("Add", X, ZERO), X),
    "one row of a sum": (
        call("ReduceSum", X, axes=(1,), keepdims=1),
        call("Identity", rows(X, 0, 1)),
    ),
}
MORE: dict[str, tuple[Value, Value]] = {
    "other rows": (rows(X, 0, 2), rows(X, 1, 3)),
    "all rows": (rows(X, 0, 1), call("ReduceSum", X, axes=(1,), keepdims=1)),
    "a difference of another row": (X, call("Add", X, call("Sub", rows(X, 1, 2), rows(X, 1, 2)))),
    "a wider window": (
        call("Conv", X, ONE),
        call("Conv", X, KERNEL, pads=(1, 1)),
    ),
    "rows of other indices": (
        call("Gather", call("Add", X, X), IDS, axis=1),
        call("Add", call("Gather", X, OTHERS, axis=1), call("Gather", X, IDS, axis=1)),
    ),
    "what hides NaN": (call("Relu", X), call("Mul", X, X)),
    "the largest one": (call("ReduceMax", X, axes=(1,), keepdims=1), rows(X, 0, 1)),
}


def shown(before: Value, after: Value) -> bool:
    inputs = {Q, K, V, X, W, B, KERNEL, ONE, IDS, OTHERS}
    sources = [each for each in (Q, X) if _reads(before, each) or _reads(after, each)]
    return all(reads_no_more(before, after, source, inputs) for source in sources)


def _reads(value: Value, source: Value) -> bool:
    return value == source or any(_reads(each, source) for each in value.node.inputs)


@pytest.mark.parametrize("case", NO_MORE)
def test_what_reads_no_more_is_seen_to(case: str) -> None:
    assert shown(*NO_MORE[case])


@pytest.mark.parametrize("case", MORE)
def test_what_reads_more_or_hides_nan_is_not(case: str) -> None:
    assert not shown(*MORE[case])


@pytest.mark.parametrize("case", ["an attention", "a product of sums", "rows of a product"])
def test_nan_is_where_it_was(case: str) -> None:
    """Planted at each element of an input, by the definitions of the operators."""
    before, after = NO_MORE[case]
    random = np.random.default_rng(0)
    shapes = {v: [int(str(n)) for n in v.shape] for v in (Q, K, V, X, W, B)}
    inputs = {v: random.uniform(0.5, 1, n).astype(np.float32) for v, n in shapes.items()}
    (source,) = [each for each in (Q, X) if _reads(before, each)]
    for place in np.ndindex(*shapes[source]):
        data = {**inputs, source: inputs[source].copy()}
        data[source][place] = np.nan
        old, new = (Folder(data.get)(value) for value in (before, after))
        assert old is not None
        assert new is not None
        assert not np.any(np.isnan(new) & ~np.isnan(old))
