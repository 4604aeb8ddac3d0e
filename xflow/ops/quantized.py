"""Operators on the codes of quantized numbers: products of 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import ClassVar

import numpy as np

from xflow.core.arguments import declare
from xflow.core.constraint import equal
from xflow.core.errors import ShapeError
from xflow.core.registry import (
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Operator,
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
from xflow.ops.matmul import MatMul
from xflow.ops.shape import Understood

SIGNED, UNSIGNED = "signed", "unsigned"
TYPES = dict(zip((SIGNED, UNSIGNED), CODES, strict=True))
KINDS: dict[str, type[np.generic]] = {SIGNED: np.int8, UNSIGNED: np.uint8}
SHIFT = 128
"""The difference of the two codes, with and without sign, of one number."""
OPERANDS = 2
"""How many of the inputs of a product are its operands; their zero points follow."""


class IntegerProduct(Operator):
    """An operator that sums products of codes, less their zero points, in integers of 32 bits.

    A sum that 32 bits do not hold wraps around, in whatever order it is computed.
    """

    since = 10
    role = ""
    arity = (2, 4)
    takes: ClassVar[tuple[str, ...]] = (CODE,)
    gives: ClassVar[tuple[str, ...]] = (INT,)

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        super().element_types(inputs, attributes, dtype)
        for operand, zero in zip(inputs, inputs[OPERANDS:], strict=False):
            if zero != operand:
                raise ShapeError(f"a zero point of {self.name} is {zero}, its operand {operand}")
        return (INT if CODE in inputs else "INT32",)


def centred(inputs: Sequence[Reader], position: int, index: Index, zero: Index = ()) -> Scalar:
    """The element of an operand less its zero point, at `zero`; without one that is 0."""
    element = inputs[position](index)
    behind = position + OPERANDS
    return element - inputs[behind](zero) if behind < len(inputs) else element


def wide(array: Array) -> Array:
    """Codes in a type that holds all of their sums; what is held in another type as it is."""
    return array.astype(np.int64) if array.dtype in (np.int8, np.uint8) else array


def differences(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The operands less their zero points, where they have any."""
    operands, zeros = arrays[:OPERANDS], arrays[OPERANDS:]
    given = zip_longest(map(wide, operands), map(wide, zeros), fillvalue=None)
    return tuple(a if zero is None else a - zero for a, zero in given if a is not None)


def as_made(result: Array, arrays: Sequence[Array]) -> list[Array]:
    """A result of codes in 32 bits, wrapped around."""
    return [result.astype(np.int32) if arrays[0].dtype in (np.int8, np.uint8) else result]


@register
class MatMulInteger(IntegerProduct, MatMul):
    """``y[..., i, j] = sum_k (a[..., i, k] - z) * (b[..., k, j] - v[j])`` for codes a and b.

    z is one number, v one, or one for each column of a matrix b.
    """

    name = op_type = "MatMulInteger"
    examples = (
        Example(((2, 3), (3, 4))),
        Example(((2, 3), (3, 4), ())),
        Example(((2, 3), (3, 4), (), ())),
        Example(((2, 3), (3, 4), (), (4,))),
        Example(((2, 1, 3), (3, 2), (), (2,))),
        Example(((2, 2, 3), (2, 3, 2), (), ())),
        Example(((0, 3), (3, 2), (), ())),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        a, b, *zeros = shapes
        require(min(len(a), len(b)) > 1, "MatMulInteger takes matrices")
        require(not zeros or zeros[0] == (), "the zero point of the left operand is one number")
        if len(zeros) > 1 and zeros[1]:
            require(len(zeros[1]) == 1 and len(b) == OPERANDS, "a zero point for each column")
            need(equal(zeros[1][0], b[1]), f"{zeros[1][0]} zero points for {b[1]} columns")
        return MatMul.shape(self, (a, b), attributes, need)

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        column = index[-1:] if any(shapes[OPERANDS:]) else ()
        operands = [partial(centred, inputs, 0), partial(centred, inputs, 1, zero=column)]
        return MatMul.at(self, operands, shapes[:OPERANDS], attributes, output, index)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return as_made(np.asarray(np.matmul(*differences(arrays))), arrays)

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return MatMul.flops(self, shapes[:OPERANDS], attributes, outputs)


@register
class ConvInteger(IntegerProduct, Conv):
    """Convolution, as Conv, of ``x - z`` with ``w - v`` for codes x and w.

    z and v are one number each; the runtime takes no other v. The border of x holds z.
    """

    name = op_type = "ConvInteger"
    examples = (
        Example(((1, 2, 4, 3), (3, 2, 2, 2))),
        Example(((1, 2, 3, 3), (2, 2, 3, 3), ()), {"pads": (1, 1, 1, 1)}),
        Example(((2, 2, 3, 4), (3, 2, 1, 1), (), ())),
        Example(((1, 1, 5, 4), (2, 1, 2, 3), (), ()), {"pads": (0, 1, 2, 0), "strides": (2, 1)}),
        Example(((1, 4, 4, 4), (4, 2, 2, 2), (), ()), {"group": 2, "strides": (2, 2)}),
        Example(((2, 2, 5), (3, 2, 2), (), ()), {"dilations": (3,), "pads": (1, 0)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        require(not any(shapes[OPERANDS:]), "the zero points of ConvInteger are one number each")
        return Conv.shape(self, shapes[:OPERANDS], attributes, need)

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        operands = [partial(centred, inputs, position) for position in range(OPERANDS)]
        return Conv.at(self, operands, shapes[:OPERANDS], attributes, output, index)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        (result,) = Conv.numpy(self, differences(arrays), attributes)
        return as_made(result, arrays)

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return Conv.flops(self, shapes[:OPERANDS], attributes, outputs)

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        if None in call.shapes[: len([shape for shape in call.shapes if shape is not None])]:
            return None  # a zero point for the kernel and none for the image
        return Conv.from_onnx(self, call)


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
        made = np.asarray(wide(codes) + _shift(attributes))
        held = codes.dtype in (np.int8, np.uint8)
        return [made.astype(KINDS[str(attributes["to"])]) if held else made]


def _shift(attributes: Attributes) -> int:
    return SHIFT if attributes["to"] == UNSIGNED else -SHIFT
