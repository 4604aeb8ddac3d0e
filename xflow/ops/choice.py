"""Where: an elementwise choice between two tensors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from xflow.core.registry import Array, Example, register
from xflow.core.sorts import BOOL, ELEMENT, INT, REAL, SORTS
from xflow.core.spec import Scalar, choose
from xflow.ops.elementwise import Elementwise


@register
class Where(Elementwise):
    """The element of the second input where the first is true, that of the third elsewhere."""

    name = op_type = "Where"
    since = 9
    arity = (3, 3)
    takes: ClassVar[tuple[str, ...]] = (BOOL, ELEMENT)
    sorts = SORTS
    examples = (
        Example(((2, 3), (2, 3), (2, 3))),
        Example(((2, 1), (3,), ())),
        Example(((), (2, 2), (1, 2))),
        Example(((2,), (1, 2), (3, 1)), types=(BOOL, INT, INT)),
        Example(((2, 2), (2,), (2, 1)), types=(BOOL, REAL, REAL)),
        Example(((0, 2), (2,), (1,))),
    )

    def of(self, *elements: Scalar) -> Scalar:
        return choose(*elements)

    def compute(self, *arrays: Array) -> Array:
        condition, then, other = arrays
        return np.where(condition.astype(bool), then, other)
