"""Global pooling: maxima and means over all trailing axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xflow.core.arguments import quotient
from xflow.core.constraint import at_least
from xflow.core.intervals import Floats, Range
from xflow.core.registry import (
    Array,
    Attributes,
    Example,
    Need,
    Operator,
    Reader,
    Shape,
    register,
    require,
)
from xflow.core.size import Size, product
from xflow.core.spec import Index, Scalar, max_over, over_box, sum_over
from xflow.ops.pool import greatest, greatest_of


class GlobalPool(Operator):
    """A reduction over all trailing axes of [N, C, *S], which stay with extent 1."""

    examples = (
        Example(((2, 2, 3, 2),)),
        Example(((1, 2, 4),)),
        Example(((1, 1, 2, 1, 3),)),
        Example(((2, 3, 1, 1),)),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        x = shapes[0]
        require(len(x) >= 3, f"{self.name} takes at least one spatial axis")
        for n in x[2:]:
            need(at_least(n, 1), f"{self.name} over an empty axis")
        return [(*x[:2], *(1,) * (len(x) - 2))]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return product(shapes[0])


@register
class GlobalMaxPool(GlobalPool):
    """The maximum over all trailing axes."""

    name = op_type = "GlobalMaxPool"
    nan_by_place = True

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        return over_box(max_over, shapes[0][2:], lambda k: inputs[0]((*index[:2], *k)))

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range | None:
        return greatest(inputs[0], floats)

    def hides(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[int, ...]:
        """See `greatest`."""
        return (0,)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        over = tuple(range(2, arrays[0].ndim))
        return [greatest_of(arrays[0], over, keepdims=True)]


@register
class GlobalAveragePool(GlobalPool):
    """The mean over all trailing axes."""

    name = op_type = "GlobalAveragePool"

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        space = shapes[0][2:]
        total = over_box(sum_over, space, lambda k: inputs[0]((*index[:2], *k)))
        return quotient(total, product(space))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        over = tuple(range(2, arrays[0].ndim))
        return [np.asarray(arrays[0].mean(axis=over, keepdims=True))]
