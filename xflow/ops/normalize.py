"""Batch normalisation at inference, with given moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from xflow.core.arguments import declare, number
from xflow.core.composite import Composite
from xflow.core.constraint import equal
from xflow.core.node import Value, apply
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Shape,
    register,
    require,
)
from xflow.core.size import Size, product

EPSILON = Fraction(float(np.float32(1e-5)))
"""The default of ONNX, which stores it as a 32-bit float."""


@register
class BatchNormalization(Composite):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` of x [N, C, *S], by channel.

    The vectors [C] come in the order scale, bias, mean, var. Defined as ``x * t + (bias - mean *
    t)`` with ``t = scale / sqrt(var + epsilon)``, which is how it is folded into weights.
    """

    name = op_type = "BatchNormalization"
    role = "normalization"
    since = 7
    arity = (5, 5)
    attributes = declare(epsilon=AttributeSpec(Kind.REAL, EPSILON))
    examples = (
        Example(((2, 3, 2, 2), (3,), (3,), (3,), (3,))),
        Example(((1, 2, 3), (2,), (2,), (2,), (2,)), {"epsilon": Fraction(1, 8)}),
        Example(((2, 3), (3,), (3,), (3,), (3,)), {"epsilon": Fraction(1, 1024)}),
        Example(((2, 1, 3), (1,), (1,), (1,), (1,)), {"epsilon": Fraction(1, 2)}),
        Example(((1, 2, 2, 1, 2), (2,), (2,), (2,), (2,))),
    )

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        x = shapes[0]
        require(len(x) >= 2, "BatchNormalization takes at least two axes")
        for vector in shapes[1:]:
            require(len(vector) == 1, "the parameters of BatchNormalization are vectors")
            need(equal(vector[0], x[1]), f"{vector[0]} parameters for {x[1]} channels")

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        x, scale, bias, mean, var = inputs
        value = {"value": attributes["epsilon"]}
        (epsilon,) = apply("Scalar", (), value, dtype=x.type.dtype)
        (deviation,) = apply("Sqrt", apply("Add", (var, epsilon)))
        (factor,) = apply("Div", (scale, deviation))
        (shift,) = apply("Sub", (bias, *apply("Mul", (mean, factor))))
        if len(x.shape) > 2:  # [1, C, 1, ...], the form in which exporters scale channels
            others = {"axes": (0, *range(2, len(x.shape)))}
            (factor,) = apply("Unsqueeze", (factor,), others)
            (shift,) = apply("Unsqueeze", (shift,), others)
        return apply("Add", (*apply("Mul", (x, factor)), shift))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x = arrays[0]
        vectors = (v.reshape(-1, *(1,) * (x.ndim - 2)) for v in arrays[1:])
        scale, bias, mean, var = vectors
        epsilon = number(attributes["epsilon"], x)
        return [(x - mean) / np.sqrt(var + epsilon) * scale + bias]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 2 * product(outputs[0])

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        if call.outputs > 1 or call.attributes.get("training_mode", 0):
            return None
        if call.attributes.get("spatial", 1) != 1:
            return None
        silent = {"momentum", "training_mode", "spatial"}  # no influence at inference
        kept = {key: value for key, value in call.attributes.items() if key not in silent}
        return super().from_onnx(replace(call, attributes=kept))
