"""Conditions on values: what they say of data, and how they are written."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xflow.core.registry import Array
from xflow.core.value_conditions import EXACT_SUMS, MOST_SUM, Fact, exact_sums, fact_of, is_need

LIMIT = 2**24


@pytest.mark.parametrize(
    "text",
    [
        *("s != 0", "s > 0", "s >= 0", "finite(s)", "s < inf"),
        *("exact_sums(s)", "exact_sums(s - v)"),
    ],
)
def test_a_condition_is_printed_as_it_is_read(text: str) -> None:
    fact = fact_of(text, ["s", "v"])
    assert fact is not None
    assert str(fact) == text


@pytest.mark.parametrize(
    "text",
    [
        *("exact_sums(s, axis=1)", "exact_sums(s, 0)", "exact_sums(t)", "exact_sums(s - t)"),
        *("exact_sums(s + v)", "exact_sums(s - v - v)", "exact_sums(2 * s)", "exact_sums()"),
    ],
)
def test_others_are_none(text: str) -> None:
    assert fact_of(text, ["s", "v"]) is None


def test_exact_sums_ask_for_more_than_numbers() -> None:
    assert not is_need("exact_sums(w)", ["w"])
    fact = Fact("w", EXACT_SUMS)
    assert fact.implies(fact)
    assert not fact.implies(Fact("v", EXACT_SUMS))
    assert not fact.implies(Fact("w", EXACT_SUMS, "v"))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("more", "exact"), [(0, True), (1, False)])
def test_the_bound_is_the_largest_sum_that_24_bits_hold(sign: int, more: int, exact: bool) -> None:
    count, last = divmod(MOST_SUM + more, 127)
    line = np.array([*[127] * count, last], np.int8) * np.int8(sign)
    weights = np.stack([np.zeros_like(line), line])
    assert exact_sums(weights) == exact
    assert Fact("w", EXACT_SUMS).holds(weights) == exact
    largest = 255 * int(np.abs(line.astype(np.int64)).sum())
    assert (largest <= LIMIT) == exact


@given(
    st.integers(200, 900),
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.int8, np.uint8]),
    st.integers(0, 255),
)
def test_no_part_of_an_exact_sum_is_rounded(length: int, seed: int, dtype: type, zero: int) -> None:
    """The worst images are those that are as far from the zero point as they can be."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    weights: Array = rng.integers(info.min, info.max + 1, (1, length)).astype(dtype)
    less: Array = np.array(rng.integers(info.min, info.max + 1), dtype)
    if not exact_sums(weights, less):
        return
    line = weights[0].astype(np.int64) - int(less)
    for sign in (1, -1):
        worst = np.where(sign * line > 0, 255 - zero, -zero)
        products = worst * line
        order = rng.permutation(length)
        parts = np.cumsum(products[order])
        assert np.abs(parts).max(initial=0) <= LIMIT
        floats = np.cumsum(products[order].astype(np.float32), dtype=np.float32)
        assert np.array_equal(floats, parts)


@pytest.mark.parametrize(
    "weights",
    [
        np.zeros((2, 3), np.float32),
        np.full((2, 3), -129, np.int32),
        np.zeros((), np.int8),
        np.full((2, 3), 256, np.int16),
    ],
)
def test_what_holds_no_codes_has_no_exact_sums(weights: Array) -> None:
    assert not exact_sums(weights)
    assert not Fact("w", EXACT_SUMS).holds(weights)


def test_a_zero_point_is_one_code() -> None:
    weights = np.zeros((2, 3), np.int8)
    assert exact_sums(weights, np.array(0, np.int8))
    assert not exact_sums(weights, np.zeros(2, np.int8))
    assert not exact_sums(weights, np.array(0.0, np.float32))
    assert not Fact("w", EXACT_SUMS).holds(Fraction(1))
