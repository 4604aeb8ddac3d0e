"""Gemm: a matrix product with transposed operands, factors and a bias."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from xflow.core.arguments import declare, flag, number
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


@register
class Gemm(Composite):
    """``alpha * a' @ b' + beta * c`` with a' = a or its transpose, and b' likewise."""

    name = op_type = "Gemm"
    role = "contraction"
    since = 7
    arity = (2, 3)
    attributes = declare(
        alpha=AttributeSpec(Kind.REAL, Fraction(1)),
        beta=AttributeSpec(Kind.REAL, Fraction(1)),
        transA=AttributeSpec(Kind.INT, 0, flag=True),
        transB=AttributeSpec(Kind.INT, 0, flag=True),
    )
    examples = (
        Example(((2, 3), (3, 4), (2, 4))),
        Example(((2, 3), (3, 4), (4,)), {"alpha": Fraction(1, 2)}),
        Example(((3, 2), (3, 4), (2, 1)), {"transA": 1, "beta": Fraction(2)}),
        Example(((2, 3), (4, 3), (1,)), {"transB": 1}),
        Example(((3, 2), (4, 3), (1, 4)), {"transA": 1, "transB": 1, "beta": Fraction(1, 4)}),
        Example(((2, 3), (3, 4), ()), {"alpha": Fraction(-1)}),
        Example(((2, 3), (3, 4)), {"alpha": Fraction(2)}),
        Example(((1, 3), (3, 1), (1, 1))),
    )

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        a, b = shapes[:2]
        require(len(a) == 2 and len(b) == 2, "Gemm takes two matrices")
        output = (a[flag(attributes, "transA")], b[1 - flag(attributes, "transB")])
        for c in shapes[2:]:
            require(len(c) <= 2, "the bias of Gemm has at most two axes")
            for n, m in zip(c, output[2 - len(c) :], strict=True):
                if n != 1:
                    need(equal(n, m), f"the bias of Gemm does not broadcast: {n} against {m}")

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        def scaled(name: str, value: Value) -> Value:
            factor = attributes[name]
            if factor == 1:
                return value
            (scalar,) = apply("Scalar", (), {"value": factor}, dtype=value.type.dtype)
            return apply("Mul", (scalar, value))[0]

        a, b = (
            apply("Transpose", (value,), {"perm": (1, 0)})[0] if flag(attributes, name) else value
            for name, value in zip(("transA", "transB"), inputs[:2], strict=True)
        )
        y = scaled("alpha", apply("MatMul", (a, b))[0])
        for c in inputs[2:]:
            y = apply("Add", (y, scaled("beta", c)))[0]
        return (y,)

    def hides(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[int, ...]:
        """A bias with the factor 0 is not read, be it NaN or infinite."""
        beta = attributes["beta"]
        return (2,) if len(shapes) > 2 and (beta == 0 or not isinstance(beta, Fraction)) else ()

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        alpha, beta = attributes["alpha"], attributes["beta"]
        a = arrays[0].T if attributes["transA"] else arrays[0]
        b = arrays[1].T if attributes["transB"] else arrays[1]
        y = np.matmul(a, b) if alpha == 1 else np.matmul(a, b) * number(alpha, a)
        for c in arrays[2:] if beta != 0 else ():
            y = y + (c if beta == 1 else c * number(beta, c))
        return [y]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        depth = shapes[0][1 - flag(attributes, "transA")]
        return 2 * product(outputs[0]) * depth + len(shapes[2:]) * product(outputs[0])

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        """With a factor of 0, the kernel does not read the operand, be it NaN or infinite."""
        read = super().from_onnx(call)
        if read is None:
            return None
        attributes, positions = read
        if attributes.get("alpha") == 0:
            return None
        if attributes.get("beta") == 0:
            del attributes["beta"]
            positions = positions[:2]
        return attributes, positions

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        if len(shapes) == 2 and opset < 11:  # the bias was not optional
            return None
        return super().to_onnx(attributes, shapes, opset)
