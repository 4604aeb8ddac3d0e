"""Quotients of indices: rewriting them changes no value, and merged digits sum to the same."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from xflow.core.constraint import at_least, in_range
from xflow.core.size import Size, symbol
from xflow.core.spec import Element, Scalar, evaluate, max_over, sum_over
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.digits import merged
from xflow.verifier.algebra.normal import Normalizer
from xflow.verifier.algebra.radix import Radix, has_quotient
from xflow.verifier.algebra.terms import Term

A, B, C = (symbol(name) for name in "abc")
POSITIVE = [at_least(size, 1) for size in (A, B, C)]


def reshaped(index: Size, dims: tuple[Size, ...]) -> tuple[Size, ...]:
    """The position of flat `index` in a tensor of shape `dims`."""
    position: list[Size] = []
    for n in reversed(dims):
        position.insert(0, index % n)
        index = index // n
    return tuple(position)


@st.composite
def readings(draw: st.DrawFn) -> Scalar:
    """A sum or maximum over a composite range that reads x[a, b, c] through a reshape."""
    radices = draw(st.permutations([A, B, C]))
    over = draw(st.sampled_from([sum_over, max_over]))
    offset = draw(st.integers(0, 2))
    split = draw(st.integers(1, 3))

    def flat(parts: list[Size], sizes: list[Size]) -> Size:
        index: Size = 0
        for part, size in zip(parts, sizes, strict=True):
            index = index * size + part
        return index

    first, second = radices[:split], radices[split:]
    outer: Size = 1
    for size in first:
        outer = outer * size
    inner: Size = 1
    for size in second:
        inner = inner * size
    return over(
        outer,
        lambda i: over(
            inner,
            lambda j: (
                Element("x", reshaped(flat([i, j], [outer, inner]), (A, B, C))) + Fraction(offset)
            ),
        ),
    )


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(readings(), st.tuples(*[st.integers(1, 4)] * 3), st.integers(0, 2**32 - 1))
def test_rewriting_quotients_keeps_every_value(
    reading: Scalar, sizes: tuple[int, int, int], seed: int
) -> None:
    arithmetic = Arithmetic()
    with arithmetic.assuming(POSITIVE):
        rewritten = Radix(arithmetic).rewrite(reading)
    values = np.random.default_rng(seed).integers(-9, 10, sizes)
    x = np.vectorize(Fraction, otypes=[object])(values)
    known = dict(zip("abc", sizes, strict=True))
    assert evaluate(rewritten, {"x": x}, known) == evaluate(reading, {"x": x}, known)


def test_a_radix_that_may_be_zero_is_left_alone() -> None:
    arithmetic = Arithmetic()
    reading = sum_over(A, lambda k: Element("x", (k // B, k % B)))
    with arithmetic.assuming([at_least(B, 0)]):
        assert has_quotient(Radix(arithmetic).rewrite(reading))


def test_a_range_that_is_no_multiple_of_the_radix_keeps_its_end() -> None:
    arithmetic = Arithmetic()
    reading = sum_over(A, lambda k: Element("x", (k // B, k % B)))
    with arithmetic.assuming([at_least(B, 1)]):
        rewritten = Radix(arithmetic).rewrite(reading)
    assert not has_quotient(rewritten) or "a" in str(rewritten)
    x = np.arange(1, 31).reshape(10, 3).astype(object)
    for extent in range(8):
        known = {"a": extent, "b": 3}
        assert evaluate(rewritten, {"x": x}, known) == evaluate(reading, {"x": x}, known)


def only_term(scalar: Scalar, arithmetic: Arithmetic) -> Term:
    (term,) = Normalizer(arithmetic).normal(scalar).terms
    return term


def test_digits_of_one_number_are_merged() -> None:
    arithmetic = Arithmetic()
    with arithmetic.assuming([at_least(A, 0), at_least(B, 0)]):
        term = only_term(
            sum_over(A, lambda q: sum_over(B, lambda r: Element("x", (q * B + r,)))), arithmetic
        )
        made = merged(term, arithmetic, ())
    assert made is not None
    (variable,) = made.variables
    assert set(made.guards) == set(in_range(symbol(variable), A * B))


@pytest.mark.parametrize(
    "index",
    [
        lambda q, r: (q * C + r,),  # r does not range over the radix C
        lambda q, r: (q * B + r, r),  # r is used apart
        lambda q, r: (q * B + 2 * r,),
    ],
)
def test_other_pairs_of_variables_are_not_merged(index) -> None:  # type: ignore[no-untyped-def]
    arithmetic = Arithmetic()
    with arithmetic.assuming(POSITIVE):
        term = only_term(
            sum_over(A, lambda q: sum_over(B, lambda r: Element("x", index(q, r)))), arithmetic
        )
        assert merged(term, arithmetic, ()) is None


def test_digits_of_a_negative_radix_are_not_merged() -> None:
    arithmetic = Arithmetic()
    term = only_term(
        sum_over(A, lambda q: sum_over(B, lambda r: Element("x", (q * B + r,)))), arithmetic
    )
    assert merged(term, arithmetic, ()) is None
