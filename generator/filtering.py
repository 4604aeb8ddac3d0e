"""Minimal filtering: convolutions with fewer products, found by a search for points.

A window of `taps` weights that moves over an axis gives `made` neighbouring results from
``made + taps - 1`` elements. That is a product of polynomials, which is known from its values at so
many points (Toom 1963, Cook 1966): there are algorithms with ``made + taps - 1`` products in place
of ``made * taps`` (Winograd, *Arithmetic Complexity of Computations*, 1980; Lavin and Gray, *Fast
Algorithms for Convolutional Neural Networks*, CVPR 2016). Each choice of points is one:

    results = A^T ((G weights) * (B elements))

Such algorithms are right beside the largest elements that enter, and not beside each, and how
far they are off depends on the points. So all sets of small points that are symmetric are tried,
and those that magnify errors least are stated as rules. These are proved as all others are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from xflow.rewriting.rule import SEARCH, Rule

ONE = Fraction(1)
MAGNITUDES = (Fraction(2), Fraction(1, 2), Fraction(3), Fraction(1, 3))
"""Of points besides 0, 1 and -1; each is taken with both signs."""
SIZES = ((2, 3), (4, 3))
"""Results and taps of the algorithms that are stated: with more results, sums take longer than the
products that they save."""

Matrix = list[list[Fraction]]


@dataclass(frozen=True)
class Algorithm:
    """The algorithm for so many results and taps at 0, infinity and points of both signs."""

    made: int
    taps: int
    magnitudes: tuple[Fraction, ...]

    @property
    def points(self) -> tuple[Fraction, ...]:
        """The finite points; each of the `magnitudes` stands beside its negative."""
        return (Fraction(0), *(sign * each for each in self.magnitudes for sign in (1, -1)))

    @cached_property
    def of_elements(self) -> Matrix:
        """B^T: for each product, how often each element is in its first factor."""
        rows = [_monic(q for q in self.points if q != point) for point in self.points]
        rows.append(_monic(self.points))
        count = self.made + self.taps - 1
        return [row + [Fraction(0)] * (count - len(row)) for row in rows]

    @cached_property
    def of_weights(self) -> Matrix:
        """G: for each product, how often each weight is in its second factor."""
        rows = []
        for point in self.points:
            others = math.prod((point - q for q in self.points if q != point), start=Fraction(1))
            rows.append([point**k / others for k in range(self.taps)])
        return [*rows, [Fraction(k == self.taps - 1) for k in range(self.taps)]]

    @cached_property
    def of_results(self) -> Matrix:
        """A^T: for each result, how often each product is in it."""
        last = self.made - 1
        return [[*(p**k for p in self.points), Fraction(k == last)] for k in range(self.made)]

    @property
    def magnifies(self) -> Fraction:
        """By how much errors may grow, at worst, against the largest element and weight."""
        inner = [
            _sum_of_magnitudes(elements) * _sum_of_magnitudes(weights)
            for elements, weights in zip(self.of_elements, self.of_weights, strict=True)
        ]
        return max(
            sum((abs(often) * each for often, each in zip(row, inner, strict=True)), Fraction(0))
            for row in self.of_results
        )


def best(made: int, taps: int) -> Algorithm:
    """The algorithm that magnifies errors least, of those at the points 1 and -1 and further pairs.

    The products at 1 are in each result once. Raises ValueError where the points are no pairs.
    """
    pairs, odd = divmod(made + taps - 3, 2)
    if odd or not 1 <= pairs <= len(MAGNITUDES):
        raise ValueError(f"no pairs of points for {made} results of {taps} taps")
    every = itertools.combinations(MAGNITUDES, pairs - 1)
    return min((Algorithm(made, taps, (ONE, *each)) for each in every), key=lambda it: it.magnifies)


def filtering_rules() -> Iterator[Rule]:
    """A convolution of so many rows by the best algorithm of each size, with a bias and without."""
    for made, taps in SIZES:
        for bias in (False, True):
            yield _rule(best(made, taps), bias=bias)


def _rule(algorithm: Algorithm, *, bias: bool) -> Rule:
    made, taps = algorithm.made, algorithm.taps
    products = [_product(algorithm, number, bias=bias) for number in range(made + taps - 1)]
    rows = ", ".join(f"Unsqueeze({_row(algorithm, k, products)}, axes=[3])" for k in range(made))
    extent = f"H + p + q - {taps - 1}"
    shape = f"[N, O, {made} * (({extent} + {made - 1}) // {made}), W + f + n + 1 - K]"
    together = f"Reshape(Concat({rows}, axis=3), shape={shape})"
    return Rule(
        "filtering",
        f"x[N, C, H, W] w[O, C, {taps}, K]" + (" b[O]" if bias else ""),
        f"Conv(x, w{', b' if bias else ''}, pads=[p, f, q, n])",
        f"Slice({together}, starts=[0], ends=[{extent}], axes=[2], steps=[1])",
        "p f q n",
        where=("C >= 1", "W >= 1"),  # a kernel fits into no image without columns
        notes={"set": SEARCH},
    )


def _product(algorithm: Algorithm, number: int, *, bias: bool) -> str:
    """A convolution of sums of rows by sums of weights.

    Rows are added by a convolution of each channel with a constant kernel that moves on by as many
    rows as there are results. The bias is in the product at the point 1, which is in each result
    once.
    """
    made, taps = algorithm.made, algorithm.taps
    rows, of_rows = _whole(algorithm.of_elements[number])
    weights, of_weights = _whole(algorithm.of_weights[number])
    count = len(rows)
    kernel = f"Reshape(Vector(values={rows}), shape=[1, 1, {count}, 1])"
    kernel = f"Expand({kernel}, shape=[C, 1, {count}, 1])"
    # What is read behind the image is in no result that is kept.
    sums = f"Conv(x, {kernel}, pads=[p, 0, q + {made - 1}, 0], strides=[{made}, 1], group=C)"
    factor = f"Mul(w, Reshape(Vector(values={weights}), shape=[{taps}, 1]))"
    factor = f"ReduceSum({factor}, axes=[2], keepdims=1)"
    if of_rows * of_weights != 1:
        factor = f"Mul({factor}, {of_rows * of_weights})"
    added = ", b" if bias and number == algorithm.points.index(ONE) else ""
    return f"Conv({sums}, {factor}{added}, pads=[0, f, 0, n])"


def _row(algorithm: Algorithm, k: int, products: Sequence[str]) -> str:
    """The sum of products that result `k` is.

    Those at a point and at its negative are added up, or subtracted, once for all results.
    """
    terms = [products[0]] if k == 0 else []
    terms += [products[-1]] if k == algorithm.made - 1 else []
    for number, magnitude in enumerate(algorithm.magnitudes):
        both = ", ".join(products[2 * number + 1 : 2 * number + 3])
        pair = f"{'Sub' if k % 2 else 'Add'}({both})"
        terms.append(pair if magnitude**k == 1 else f"Mul({pair}, {magnitude**k})")
    total, *others = terms
    for term in others:
        total = f"Add({total}, {term})"
    return total


def _monic(roots: Iterable[Fraction]) -> list[Fraction]:
    """The coefficients of the product of ``x - root``, from the constant one on."""
    made = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *made], [-root * each for each in made]
        made = [a + b for a, b in itertools.zip_longest(shifted, scaled, fillvalue=Fraction(0))]
    return made


def _sum_of_magnitudes(row: Sequence[Fraction]) -> Fraction:
    return sum(map(abs, row), Fraction(0))


def _whole(row: Sequence[Fraction]) -> tuple[list[int], Fraction]:
    """Whole numbers and a factor that make a row."""
    denominator = math.lcm(*(each.denominator for each in row))
    return [int(each * denominator) for each in row], Fraction(1, denominator)
