"""Norms and other reductions of a function of the elements, as composites of ReduceSum."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from xflow.core.arguments import flag, integers
from xflow.core.composite import Composite, made
from xflow.core.intervals import ANYTHING, Floats, Range
from xflow.core.node import Value
from xflow.core.registry import Array, Attributes, Example, Need, Shape, register
from xflow.core.size import Size, product
from xflow.ops.reduce import EXAMPLES, Reduction


class ComposedReduction(Composite, Reduction):
    """A reduction with a definition."""

    noop = False
    cost: ClassVar[int] = 2
    """Arithmetic operations for each element of the input."""
    examples = (
        Example(((2, 3),), {"axes": (1,)}),
        Example(((2, 3, 2),), {"axes": (2,)}),
        *(e for e in EXAMPLES if e.attributes.get("axes") != ()),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        return Reduction.shape(self, shapes, attributes, need)

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        return (self.formula(inputs[0], attributes),)

    @abstractmethod
    def formula(self, x: Value, attributes: Attributes) -> Value:
        """The output, by simpler operators."""

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        reduced, keep = integers(attributes, "axes"), flag(attributes, "keepdims")
        return [np.asarray(self.reduce(arrays[0], reduced, keep))]

    @abstractmethod
    def reduce(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        """The output array, by a way that is accurate for floats."""

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return self.cost * product(shapes[0])


OVER_NOTHING = Example(((2, 0),), {"axes": (1,)})


@register
class ReduceSumSquare(ComposedReduction):
    """The sum of squares over `axes`."""

    name = op_type = "ReduceSumSquare"
    examples = (*ComposedReduction.examples, OVER_NOTHING)

    def formula(self, x: Value, attributes: Attributes) -> Value:
        return made("ReduceSum", made("Mul", x, x), **attributes)

    def reduce(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        return np.asarray(np.asarray(np.square(x)).sum(axis=axes, keepdims=keep))


@register
class ReduceL1(ComposedReduction):
    """The sum of absolute values over `axes`."""

    name = op_type = "ReduceL1"
    examples = (*ComposedReduction.examples, OVER_NOTHING)

    def formula(self, x: Value, attributes: Attributes) -> Value:
        return made("ReduceSum", made("Abs", x), **attributes)

    def reduce(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        return np.asarray(np.asarray(np.abs(x)).sum(axis=axes, keepdims=keep))


@register
class ReduceL2(ComposedReduction):
    """The root of the sum of squares over `axes`."""

    name = op_type = "ReduceL2"
    examples = (*ComposedReduction.examples, OVER_NOTHING)

    def formula(self, x: Value, attributes: Attributes) -> Value:
        return made("Sqrt", made("ReduceSumSquare", x, **attributes))

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range:
        """Squares may overflow or not, as the kernel scales the elements first or does not."""
        (x,) = inputs
        count = product(shapes[0][k] for k in integers(attributes, "axes"))
        most = max(abs(x.low), abs(x.high))
        if not isinstance(count, int) or not x.is_real or math.isinf(most):
            return replace(ANYTHING, low=0.0)
        squares = floats.closed(0.0, count * most * most, (x,))
        _, high = floats.rounded(0.0, math.sqrt(count) * most, float(count) + 2)
        return Range(0.0, min(high, floats.largest), None, squares.plus)

    def reduce(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        largest = np.abs(x).max(axis=axes, keepdims=True, initial=0)
        scaled = x / np.where(largest == 0, np.ones_like(largest), largest)  # never overflows
        root = np.sqrt(np.square(scaled).sum(axis=axes, keepdims=True)) * largest
        return root if keep else np.asarray(root.squeeze(axes))


@register
class ReduceLogSum(ComposedReduction):
    """The logarithm of the sum over `axes`, which is positive."""

    name = op_type = "ReduceLogSum"
    cost = 1

    def formula(self, x: Value, attributes: Attributes) -> Value:
        return made("Log", made("ReduceSum", x, **attributes))

    def reduce(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        return np.asarray(np.log(x.sum(axis=axes, keepdims=keep)))


@register
class ReduceLogSumExp(ComposedReduction):
    """The logarithm of the sum of exponentials over `axes`, not all elements being absent."""

    name = op_type = "ReduceLogSumExp"
    cost = 10

    def formula(self, x: Value, attributes: Attributes) -> Value:
        return made("Log", made("ReduceSum", made("Exp", x), **attributes))

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range | None:
        """At least the greatest element, which the kernel takes off before the exponential.

        That is NaN where it is infinite: of an element that is inf, or of all that are -inf.
        """
        (x,) = inputs
        axes = integers(attributes, "axes")
        count = product(shapes[0][k] for k in axes)
        if not isinstance(count, int) or count < 1:
            return None
        rank = len(shapes[0])
        covered = x.reached is not None and not any(k - rank in x.reached for k in axes)
        return floats.closed(
            x.low, x.high + math.log(count), (x,),
            minus=covered, plus=x.plus, nan=x.nan or x.plus or covered,
        )  # fmt: skip

    def reduce(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        largest = x.max(axis=axes, keepdims=True, initial=-np.inf)
        total = np.log(np.exp(x - largest).sum(axis=axes, keepdims=True)) + largest
        return total if keep else np.asarray(total.squeeze(axes))
