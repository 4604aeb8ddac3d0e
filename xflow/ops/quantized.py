"""Operators on the codes of quantized numbers: convolutions of 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from xflow.core.arguments import declare
from xflow.core.errors import ShapeError
from xflow.core.registry import (
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Reader,
    Shape,
    register,
    require,
)
from xflow.core.size import Size
from xflow.core.sorts import CODE, CODES, INT
from xflow.core.spec import Index, Scalar
from xflow.ops.conv import Conv
from xflow.ops.elementwise import Elementwise
from xflow.ops.shape import Understood

SIGNED, UNSIGNED = "signed", "unsigned"
TYPES = dict(zip((SIGNED, UNSIGNED), CODES, strict=True))
SHIFT = 128
"""The difference of the two codes, with and without sign, of one number."""
OPERANDS = 2
"""How many of the inputs of a product are its operands; their zero points follow."""


@register
class ConvInteger(Conv):
    """Convolution, as Conv, of ``x - z`` with ``w - v``, where all are codes.

    The zero points z and v are one number each, 0 where they are left out. The border of x holds z.
    The sums are integers of 32 bits, which wrap around in whatever order they are computed. Codes x
    with a sign are not described: where w has none, the runtime's kernel cuts sums of two products
    off at 16 bits on processors with AVX2 alone.
    """

    name = op_type = "ConvInteger"
    role = ""
    since = 10
    arity = (2, 4)
    takes: ClassVar[tuple[str, ...]] = (CODE,)
    gives: ClassVar[tuple[str, ...]] = (INT,)
    examples = (
        Example(((1, 2, 4, 3), (3, 2, 2, 2))),
        Example(((1, 2, 3, 3), (2, 2, 3, 3), ()), {"pads": (1, 1, 1, 1)}),
        Example(((2, 2, 3, 4), (3, 2, 1, 1), (), ())),
        Example(((1, 1, 5, 4), (2, 1, 2, 3), (), ()), {"pads": (0, 1, 2, 0), "strides": (2, 1)}),
        Example(((1, 4, 4, 4), (4, 2, 2, 2), (), ()), {"group": 2, "strides": (2, 2)}),
        Example(((2, 2, 5), (3, 2, 2), (), ()), {"dilations": (3,), "pads": (1, 0)}),
    )

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        super().element_types(inputs, attributes, dtype)
        if inputs[0] == TYPES[SIGNED]:
            raise ShapeError(f"{self.name} takes no images of codes with a sign")
        for operand, zero in zip(inputs, inputs[OPERANDS:], strict=False):
            if zero != operand:
                raise ShapeError(f"a zero point of {self.name} is {zero}, its operand {operand}")
        return (INT if CODE in inputs else "INT32",)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        # ONNX has zero points for each channel of the output, too; ONNX Runtime has not.
        require(not any(shapes[OPERANDS:]), "the zero points of ConvInteger are one number each")
        return super().shape(shapes[:OPERANDS], attributes, need)

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        operands = [partial(_difference, inputs, position) for position in range(OPERANDS)]
        return super().at(operands, shapes[:OPERANDS], attributes, output, index)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, w, *zeros = map(_wide, arrays)
        z, v, *_ = (*zeros, 0, 0)
        (result,) = super().numpy((x - z, w - v), attributes)
        return [result.astype(np.int32) if _is_code(arrays[0]) else result]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return super().flops(shapes[:OPERANDS], attributes, outputs)

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        if None in call.shapes[: len([shape for shape in call.shapes if shape is not None])]:
            return None  # a zero point for the kernel and none for the image
        return super().from_onnx(call)


def _difference(inputs: Sequence[Reader], position: int, index: Index) -> Scalar:
    """The element of an operand less its zero point."""
    element, zero = inputs[position](index), position + OPERANDS
    return element - inputs[zero](()) if zero < len(inputs) else element


def _is_code(array: Array) -> bool:
    return array.dtype.name.upper() in CODES


def _wide(array: Array) -> Array:
    """Codes in a type that holds all of their sums; what is held in another type as it is."""
    narrow = array.dtype.kind in "iu" and array.dtype.itemsize < np.dtype(np.int64).itemsize
    return array.astype(np.int64) if narrow else array


@register
class Recoded(Elementwise):
    """Codes in the other type of 8 bits: 128 more `to` "unsigned", 128 less `to` "signed".

    With the zero point recoded as well, they are codes of the same numbers.
    """

    name = "Recoded"
    takes: ClassVar[tuple[str, ...]] = (CODE,)
    gives: ClassVar[tuple[str, ...]] = (CODE,)
    attributes = declare(to=AttributeSpec(Kind.TEXT))
    cost = 0
    examples = (
        Example(((2, 3),), {"to": UNSIGNED}),
        Example(((),), {"to": SIGNED}),
        Example(((0, 2),), {"to": SIGNED}),
    )

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        super().element_types(inputs, attributes, dtype)
        target = str(attributes["to"])
        if TYPES.get(target, inputs[0]) == inputs[0]:
            raise ShapeError(f"codes of type {inputs[0]} are not recoded to {target}")
        return (CODE if inputs[0] == CODE else TYPES[target],)

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        return inputs[0](index) + _shift(attributes)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        (codes,) = arrays
        made = np.asarray(_wide(codes) + _shift(attributes))
        return [made.astype(TYPES[str(attributes["to"])].lower()) if _is_code(codes) else made]


def _shift(attributes: Attributes) -> int:
    return SHIFT if attributes["to"] == UNSIGNED else -SHIFT
