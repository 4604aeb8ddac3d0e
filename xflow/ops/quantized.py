"""Operators on the codes of quantized numbers: from and to reals, and products of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from xflow.core.arguments import axis, declare, nearest, word
from xflow.core.constraint import equal
from xflow.core.errors import ShapeError
from xflow.core.node import Node, Value
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
from xflow.core.size import Size, product
from xflow.core.sorts import CODE, CODES, ELEMENT, INT, integer_range
from xflow.core.spec import Index, Scalar, call
from xflow.ops.conv import Conv
from xflow.ops.elementwise import Elementwise
from xflow.ops.matmul import MatMul
from xflow.ops.shape import Understood

SIGNED, UNSIGNED = "signed", "unsigned"
TYPES = dict(zip((SIGNED, UNSIGNED), CODES, strict=True))
SUM = "INT32"
"""The type of sums of products of codes."""
SHIFT = 128
"""The difference of the two codes, with and without sign, of one number."""
OPERANDS = 2
"""How many of the inputs of a product are its operands; their zero points follow."""


class ProductOfCodes(Operator):
    """A product of ``x - z`` with ``w - v``, where all are codes: mixed into that of floats.

    The zero points z and v are one number each, 0 where they are left out. The sums are integers of
    32 bits, which wrap around in whatever order they are computed.
    """

    takes: ClassVar[tuple[str, ...]] = (CODE,)
    gives: ClassVar[tuple[str, ...]] = (INT,)
    arity = (2, 4)
    since = 10
    role = ""
    floats: ClassVar[Operator]
    """The product of floats."""
    plain: ClassVar[int]
    """The position of the operand that has codes without a sign alone.

    With a sign, the runtime's kernels cut sums of two products off at 16 bits on processors with
    AVX2 alone if the other operand has none, so that such products are not described.
    """

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        super().element_types(inputs, attributes, dtype)
        if inputs[self.plain] == TYPES[SIGNED]:
            raise ShapeError(f"input {self.plain} of {self.name} takes no codes with a sign")
        for operand, zero in zip(inputs, inputs[OPERANDS:], strict=False):
            if zero != operand:
                raise ShapeError(f"a zero point of {self.name} is {zero}, its operand {operand}")
        return (INT if CODE in inputs else SUM,)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        # ONNX has zero points for each row or channel, too.
        require(not any(shapes[OPERANDS:]), f"the zero points of {self.name} are one number each")
        return self.floats.shape(shapes[:OPERANDS], attributes, need)

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        operands = [partial(_difference, inputs, position) for position in range(OPERANDS)]
        return self.floats.at(operands, shapes[:OPERANDS], attributes, output, index)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, w, *zeros = map(_wide, arrays)
        z, v, *_ = (*zeros, 0, 0)
        (result,) = self.floats.numpy((x - z, w - v), attributes)
        return [result.astype(np.int32) if _is_code(arrays[0]) else result]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return self.floats.flops(shapes[:OPERANDS], attributes, outputs)

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        if None in call.shapes[: len([shape for shape in call.shapes if shape is not None])]:
            return None  # a zero point for the second operand and none for the first
        return super().from_onnx(call)


@register
class ConvInteger(ProductOfCodes, Conv):
    """Convolution, as Conv, of images of codes with kernels of codes.

    The border of an image holds its zero point.
    """

    name = op_type = "ConvInteger"
    floats = Conv()
    plain = 0
    examples = (
        Example(((1, 2, 4, 3), (3, 2, 2, 2))),
        Example(((1, 2, 3, 3), (2, 2, 3, 3), ()), {"pads": (1, 1, 1, 1)}),
        Example(((2, 2, 3, 4), (3, 2, 1, 1), (), ())),
        Example(((1, 1, 5, 4), (2, 1, 2, 3), (), ()), {"pads": (0, 1, 2, 0), "strides": (2, 1)}),
        Example(((1, 4, 4, 4), (4, 2, 2, 2), (), ()), {"group": 2, "strides": (2, 2)}),
        Example(((2, 2, 5), (3, 2, 2), (), ()), {"dilations": (3,), "pads": (1, 0)}),
    )

    def packed(
        self, shapes: Sequence[Shape], outputs: Sequence[Shape], constant: Sequence[bool]
    ) -> Size:
        # Kernels are the first operands of the runtime's products, which it has in their own order,
        # and the second ones are columns of what each of them meets.
        (_, channels, *_), kernel = shapes[:OPERANDS]
        images, _, *places = outputs[0]
        return images * (channels * product((*kernel[2:], *places)) + product(kernel))


@register
class MatMulInteger(ProductOfCodes, MatMul):
    """Product of matrices of codes, as MatMul."""

    name = op_type = "MatMulInteger"
    floats = MatMul()
    plain = 1
    examples = (
        Example(((2, 3), (3, 4))),
        Example(((1, 3), (3, 1), ())),
        Example(((2, 2, 3), (3, 2), (), ())),
        Example(((3, 2), (2, 2, 4), (), ())),
        Example(((2, 1, 2, 3), (3, 3, 1), (), ())),
        Example(((0, 3), (3, 2), (), ())),
    )

    def packed(
        self, shapes: Sequence[Shape], outputs: Sequence[Shape], constant: Sequence[bool]
    ) -> Size:
        first, second = map(product, shapes[:OPERANDS])
        return first if constant[1] else first + second


def weights_of(node: Node) -> tuple[Value, Value | None] | None:
    """The kernel of a convolution of codes and its zero point; None for any other operator."""
    if not isinstance(node.op, ConvInteger):
        return None
    zeros = node.inputs[OPERANDS + 1 :]
    return node.inputs[1], zeros[0] if zeros else None


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

    With the zero point recoded as well, they are codes of the same numbers. ONNX has no such
    operator: it is computed of constants alone.
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

    def has_form(self, attributes: Attributes) -> bool:
        return False

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        (codes,) = arrays
        made = np.asarray(_wide(codes) + _shift(attributes))
        return [made.astype(TYPES[str(attributes["to"])].lower()) if _is_code(codes) else made]


def _shift(attributes: Attributes) -> int:
    return SHIFT if attributes["to"] == UNSIGNED else -SHIFT


class Scaled(Operator):
    """Reals and their codes: input 1 is a scale and input 2 the zero point, of the type of codes.

    Both are one number each, or a vector with one for each place along `axis`. What is computed
    from constants is not folded: the runtime fuses these operators into what is beside them, and
    the model would grow.
    """

    since = 10
    arity = (3, 3)
    folds = False
    attributes: ClassVar[Mapping[str, AttributeSpec]] = declare(
        axis=AttributeSpec(Kind.AXIS, lambda shapes: 1 if shapes[1] else 0)
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        x, scale, zero = shapes
        require(len(scale) <= 1, f"the scale of {self.name} is a number or a vector")
        require(len(zero) == len(scale), "there are as many zero points as scales")
        if scale:
            along = x[axis(attributes, "axis", len(x))]
            need(equal(scale[0], along), f"{scale[0]} scales for {along} places")
            need(equal(zero[0], along), f"{zero[0]} zero points for {along} places")
        return [x]

    def canonical(self, attributes: Attributes, shapes: Sequence[Shape]) -> Attributes:
        return attributes if shapes[1] else {**attributes, "axis": 0}

    def parameters_at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        index: Index,
    ) -> tuple[Scalar, Scalar]:
        """The scale and the zero point of an element."""
        place = (index[axis(attributes, "axis", len(shapes[0]))],) if shapes[1] else ()
        return inputs[1](place), inputs[2](place)

    def along(self, arrays: Sequence[Array], attributes: Attributes) -> tuple[Array, Array, Array]:
        """The inputs, scale and zero point shaped so that they broadcast."""
        x, scale, zero = arrays
        if scale.ndim:
            behind = x.ndim - 1 - axis(attributes, "axis", x.ndim)
            scale, zero = (part.reshape(-1, *(1,) * behind) for part in (scale, zero))
        return x, scale, _wide(zero)

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        if len(call.shapes) != self.arity[0] or None in call.shapes:
            return None
        plain = {"saturate": 1, "block_size": 0, "precision": 0, "output_dtype": 0}
        given = {name: value for name, value in call.attributes.items() if name != "axis"}
        if any(name not in plain or value != plain[name] for name, value in given.items()):
            return None
        x, scale, _ = call.shapes
        if not scale:
            return {}, (0, 1, 2)
        assert x is not None
        along = call.attributes.get("axis", 1)
        along += len(x) if along < 0 else 0
        if not 0 <= along < len(x) or x[along] != scale[0]:
            return None  # the runtime takes a vector of one scale for all places
        return {"axis": along}, (0, 1, 2)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        vectors = bool(shapes[1])
        if vectors and opset < AXES_SINCE:
            return None
        plain = {"axis": attributes["axis"]} if vectors else {}
        return OnnxCall(self.op_type, opset, "", plain, tuple(shapes))


AXES_SINCE = 13
"""The first opset that has scales along an axis."""


@register
class DequantizeLinear(Scaled):
    """The reals ``(x - z) * s`` that codes x are, for a scale s and a zero point z."""

    name = op_type = "DequantizeLinear"
    takes: ClassVar[tuple[str, ...]] = (CODE, ELEMENT, CODE)
    examples = (
        Example(((2, 3), (), ())),
        Example(((2, 3), (3,), (3,))),
        Example(((2, 1, 3), (2,), (2,)), {"axis": 0}),
        Example(((), (), ())),
        Example(((0, 2), (2,), (2,))),
    )

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        if inputs[0] != inputs[2]:
            raise ShapeError(f"the zero point is {inputs[2]}, the codes are {inputs[0]}")
        return super().element_types(inputs, attributes, dtype)

    def tasks(self, shapes: Sequence[Shape], attributes: Attributes) -> Size | None:
        return 1

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        scale, zero = self.parameters_at(inputs, shapes, attributes, index)
        return (inputs[0](index) - zero) * scale

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, scale, zero = self.along(arrays, attributes)
        steps = _wide(x) - zero
        if scale.dtype.kind == "f":
            steps = steps.astype(scale.dtype)
        return [np.asarray(steps * scale)]


@register
class QuantizeLinear(Scaled):
    """The codes of reals: ``x / s``, rounded to even, and z, cut off at the ends of the type `to`.

    The zero point is of that type.
    """

    name = op_type = "QuantizeLinear"
    takes: ClassVar[tuple[str, ...]] = (ELEMENT, ELEMENT, CODE)
    gives: ClassVar[tuple[str, ...]] = (CODE,)
    attributes = declare(**Scaled.attributes, to=AttributeSpec(Kind.TEXT))
    examples = (
        Example(((2, 3), (), ()), {"to": UNSIGNED}),
        Example(((2, 3), (3,), (3,)), {"to": SIGNED}),
        Example(((2, 1, 3), (2,), (2,)), {"axis": 0, "to": SIGNED}),
        Example(((), (), ()), {"to": SIGNED}),
        Example(((0, 2), (2,), (2,)), {"to": UNSIGNED}),
    )

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        super().element_types(inputs, attributes, dtype)
        target = _target(attributes)
        if inputs[2] not in (CODE, target):
            raise ShapeError(f"the zero point is {inputs[2]}, the codes are {target}")
        return (inputs[2],)

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        scale, zero = self.parameters_at(inputs, shapes, attributes, index)
        least, most = _limits(attributes)
        # Cut off before the zero point is added, as the runtime's kernels do: these sums are exact.
        steps = call("round", inputs[0](index) / scale)
        return call("max", call("min", steps, most - zero), least - zero) + zero

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, scale, zero = self.along(arrays, attributes)
        least, most = _limits(attributes)
        steps = nearest(np.asarray(x / scale))
        codes = np.asarray(np.maximum(np.minimum(steps, most - zero), least - zero) + zero)
        return [codes.astype(arrays[2].dtype) if _is_code(arrays[2]) else codes]

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        found = super().from_onnx(call)
        named = {kind: name for name, kind in TYPES.items()}
        if found is None or call.types[2] not in named:
            return None
        return {**found[0], "to": named[call.types[2]]}, found[1]


def _target(attributes: Attributes) -> str:
    """The type of the codes that reals become."""
    return TYPES[word(attributes, "to", tuple(TYPES))]


def _limits(attributes: Attributes) -> tuple[int, int]:
    """The least and the greatest code that reals become."""
    return integer_range(_target(attributes))
