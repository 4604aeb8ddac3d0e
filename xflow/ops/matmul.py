"""Matrix multiplication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xflow.core.constraint import equal
from xflow.core.registry import (
    Array,
    Attributes,
    Example,
    Need,
    Operator,
    Reader,
    Shape,
    broadcast,
    broadcast_index,
    register,
    require,
)
from xflow.core.size import Size, product
from xflow.core.spec import Index, Scalar, sum_over


@register
class MatMul(Operator):
    """``y[..., i, j] = sum_k a[..., i, k] * b[..., k, j]``, batch axes broadcast.

    A vector is a row on the left and a column on the right; the axis added for that is dropped
    from the output.
    """

    name = op_type = "MatMul"
    role = "contraction"
    arity = (2, 2)
    examples: ClassVar[Sequence[Example]] = (
        Example(((2, 3), (3, 4))),
        Example(((1, 3), (3, 1))),
        Example(((2, 2, 3), (2, 3, 2))),
        Example(((2, 2, 3), (3, 2))),
        Example(((3, 2), (2, 2, 4))),
        Example(((2, 1, 2, 3), (3, 3, 1))),
        Example(((3,), (3, 2))),
        Example(((2, 3), (3,))),
        Example(((3,), (3,))),
        Example(((3,), (2, 3, 2))),
        Example(((2, 2, 3), (3,))),
        Example(((0, 3), (3, 2))),
        Example(((2, 3), (3, 0))),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        a, b = shapes
        require(bool(a) and bool(b), "MatMul does not take scalars")
        inner = b[0] if len(b) == 1 else b[-2]
        need(equal(a[-1], inner), f"{a[-1]} columns do not match {inner} rows")
        batch = broadcast((a[:-2], b[:-2]), need)
        return [(*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        a, b = shapes
        rows, columns = len(a) > 1, len(b) > 1
        batch = index[: len(index) - rows - columns]
        i = index[len(batch) : len(batch) + rows]
        j = index[len(batch) + rows :]
        left, right = (broadcast_index(operand[:-2], batch) for operand in (a, b))
        return sum_over(a[-1], lambda k: inputs[0]((*left, *i, k)) * inputs[1]((*right, k, *j)))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.asarray(np.matmul(*arrays))]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 2 * product(outputs[0]) * shapes[0][-1]
