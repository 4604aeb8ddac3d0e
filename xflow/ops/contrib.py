"""Operators of ONNX Runtime's own domain, com.microsoft, defined over those of ONNX.

Described are the forms with one output whose CPU kernels compute what is declared here.
Their schemas are the runtime's (docs/ContribOperators.md in its repository). Not declared are
FusedConv, which the runtime makes of Conv by itself, MultiHeadAttention and GroupQueryAttention,
whose kernels were slower than that of the standard Attention wherever both were timed (the second
takes 1.05 to 1.5 times as long, for prompts and for tokens behind a past, with a bias or without),
and the forms of the skip normalizations that also give the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from xflow.core.arguments import declare, flag, number
from xflow.core.composite import Composite, ElementwiseComposite, made, real, scaled
from xflow.core.constraint import equal
from xflow.core.node import Value
from xflow.core.registry import (
    CONTRIB,
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    Operator,
    Shape,
    operator,
    register,
    require,
)
from xflow.core.size import Size, product
from xflow.ops.activations import examples, single
from xflow.ops.layer_norm import EIGHTH, MomentNormalization

SKIP_EPSILON = AttributeSpec(Kind.REAL, single(1e-12))


@register
class QuickGelu(ElementwiseComposite):
    """``x * sigmoid(alpha * x)``."""

    name = op_type = "QuickGelu"
    role = "activation"
    domain = CONTRIB
    cost = 12
    attributes = declare(alpha=AttributeSpec(Kind.REAL, single(1.702)))
    examples = examples({"alpha": Fraction(2)}, {"alpha": Fraction(1, 2)})

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        return made("Mul", x, made("Sigmoid", scaled(real(attributes, "alpha"), x)))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return operator("Swish").numpy(arrays, attributes)[0]


class Biased(ElementwiseComposite):
    """An activation of x plus a bias along its last axis."""

    role = "activation"
    domain = CONTRIB
    cost = 21
    arity = (2, 2)
    examples = (
        Example(((2, 3), (3,))),
        Example(((2, 3, 4), (4,))),
        Example(((1, 2), (2,))),
    )
    form: str
    """The form of Gelu."""

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        x, bias = shapes
        require(bool(x), f"{self.name} takes no scalar")
        require(len(bias) == 1, f"the bias of {self.name} is a vector")
        need(equal(bias[0], x[-1]), f"a bias of {bias[0]} for an extent of {x[-1]}")

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        return made("Gelu", made("Add", *inputs), approximate=self.form)

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        x, bias = arrays
        return operator("Gelu").numpy([x + bias], {"approximate": self.form})[0]


@register
class BiasGelu(Biased):
    """Gelu of x plus a bias, a vector along the last axis."""

    name = op_type = "BiasGelu"
    form = "none"


@register
class FastGelu(Biased):
    """Gelu by its approximation with tanh, of x plus a bias, a vector along the last axis."""

    name = op_type = "FastGelu"
    form = "tanh"


@register
class FusedMatMul(Composite):
    """``alpha * a' @ b'`` where a' is a or, with `transA`, a with its last two axes exchanged; b'
    likewise. Axes before them broadcast.

    Transposes that reach into the batch (`transBatchA`, `transBatchB`) are not declared.
    """

    name = op_type = "FusedMatMul"
    role = "contraction"
    domain = CONTRIB
    arity = (2, 2)
    attributes = declare(
        alpha=AttributeSpec(Kind.REAL, Fraction(1)),
        transA=AttributeSpec(Kind.INT, 0, flag=True),
        transB=AttributeSpec(Kind.INT, 0, flag=True),
    )
    examples = (
        Example(((2, 3), (3, 4)), {"alpha": Fraction(1, 2)}),
        Example(((2, 3), (4, 3)), {"transB": 1}),
        Example(((3, 2), (3, 4)), {"transA": 1, "alpha": Fraction(-2)}),
        Example(((3, 2), (4, 3)), {"transA": 1, "transB": 1}),
        Example(((2, 2, 3), (2, 4, 3)), {"transB": 1, "alpha": Fraction(2)}),
        Example(((2, 3, 2, 4), (2, 3, 3, 4)), {"transB": 1, "alpha": Fraction(1, 4)}),
        Example(((2, 3, 4), (4, 2)), {"alpha": Fraction(3)}),
    )

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        a, b = shapes
        require(len(a) >= 2 and len(b) >= 2, "FusedMatMul takes matrices")

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        a, b = (
            _columns(value) if flag(attributes, name) else value
            for name, value in zip(("transA", "transB"), inputs, strict=True)
        )
        return (scaled(real(attributes, "alpha"), made("MatMul", a, b)),)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        a, b = (
            array.swapaxes(-1, -2) if attributes[name] else array
            for name, array in zip(("transA", "transB"), arrays, strict=True)
        )
        return [np.asarray(np.matmul(a, b) * number(attributes["alpha"], a))]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 2 * product(outputs[0]) * shapes[0][-2 if flag(attributes, "transA") else -1]


def _columns(value: Value) -> Value:
    rank = len(value.shape)
    return made("Transpose", value, perm=(*range(rank - 2), rank - 1, rank - 2))


class Skip(MomentNormalization):
    """A normalization of the sum of two tensors [B, S, C] over their last axis."""

    domain = CONTRIB
    role = "normalization"
    attributes = declare(epsilon=SKIP_EPSILON)
    normalization: str
    """The normalization of the sum."""

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        x, skip, *parameters = shapes
        require(len(x) == len(skip) == 3, f"{self.name} takes tensors of three axes")
        for n, m in zip(x, skip, strict=True):
            need(equal(n, m), f"{self.name} adds an extent of {m} to one of {n}")
        for parameter in parameters:
            require(len(parameter) == 1, f"the parameters of {self.name} are vectors")

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        self.check(shapes, attributes, need)
        return self._normal.shape(
            [shapes[0], *shapes[2:]], self._given(shapes[0], attributes), need
        )

    @property
    def _normal(self) -> Operator:
        return operator(self.normalization)

    def _given(self, shape: Shape, attributes: Attributes) -> Attributes:
        return {"axis": len(shape) - 1, "epsilon": attributes["epsilon"]}

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        x, skip, *parameters = inputs
        given = self._given(x.shape, attributes)
        return (made(self.normalization, made("Add", x, skip), *parameters, **given),)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, skip, *parameters = arrays
        return self._normal.numpy([x + skip, *parameters], self._given(x.shape, attributes))


@register
class SkipLayerNormalization(Skip):
    """LayerNormalization of ``x + skip`` [B, S, C] over the last axis, with scale and bias [C]."""

    name = op_type = "SkipLayerNormalization"
    normalization = "LayerNormalization"
    arity = (4, 4)
    examples = (
        Example(((2, 3, 4), (2, 3, 4), (4,), (4,)), {"epsilon": EIGHTH}),
        Example(((1, 2, 3), (1, 2, 3), (3,), (3,)), {"epsilon": EIGHTH}),
        Example(((3, 1, 2), (3, 1, 2), (2,), (2,)), {"epsilon": Fraction(1, 4)}),
    )


@register
class SkipSimplifiedLayerNormalization(Skip):
    """RMSNormalization of ``x + skip`` [B, S, C] over the last axis, with a scale [C]."""

    name = op_type = "SkipSimplifiedLayerNormalization"
    normalization = "RMSNormalization"
    arity = (3, 3)
    examples = (
        Example(((2, 3, 4), (2, 3, 4), (4,)), {"epsilon": EIGHTH}),
        Example(((1, 2, 3), (1, 2, 3), (3,)), {"epsilon": EIGHTH}),
        Example(((3, 1, 2), (3, 1, 2), (2,)), {"epsilon": Fraction(1, 4)}),
    )
