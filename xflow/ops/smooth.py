"""Smooth activations: composites of exponentials, logarithms, Tanh and Erf."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from xflow.core.arguments import declare, number
from xflow.core.composite import ElementwiseComposite, made, real, scaled
from xflow.core.intervals import Floats, Range
from xflow.core.node import Value, apply
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    AttributeSpec,
    Kind,
    Need,
    OnnxCall,
    Shape,
    register,
    require,
)
from xflow.ops.activations import examples, single
from xflow.ops.functions import erf


@register
class Elu(ElementwiseComposite):
    """x where it is positive, ``alpha * (exp(x) - 1)`` elsewhere."""

    name = op_type = "Elu"
    role = "activation"
    since = 6
    cost = 10
    attributes = declare(alpha=AttributeSpec(Kind.REAL, Fraction(1)))
    examples = examples({"alpha": Fraction(1, 4)}, {"alpha": Fraction(-2)})

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        below = made("Sub", made("Exp", made("Min", x, 0)), 1)
        return made("Add", made("Relu", x), scaled(real(attributes, "alpha"), below))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0)) * number(attributes["alpha"], x))


@register
class Celu(ElementwiseComposite):
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`` with alpha not 0."""

    name = op_type = "Celu"
    role = "activation"
    since = 12
    cost = 12
    attributes = declare(alpha=AttributeSpec(Kind.REAL, Fraction(1)))
    examples = examples({"alpha": Fraction(1, 2)}, {"alpha": Fraction(2)})

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        require(attributes["alpha"] != 0, "Celu divides by its alpha, which is 0")

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        alpha = real(attributes, "alpha")
        inner = x if alpha == 1 else made("Div", x, alpha)
        below = scaled(alpha, made("Sub", made("Exp", inner), 1))
        return made("Add", made("Relu", x), made("Min", below, 0))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        alpha = number(attributes["alpha"], x)
        return np.asarray(np.maximum(x, 0) + np.minimum(0, np.expm1(x / alpha) * alpha))


@register
class Selu(ElementwiseComposite):
    """``gamma`` times x where it is positive, times ``alpha * (exp(x) - 1)`` elsewhere."""

    name = op_type = "Selu"
    role = "activation"
    since = 6
    cost = 11
    attributes = declare(
        alpha=AttributeSpec(Kind.REAL, single(1.67326319217681884765625)),
        gamma=AttributeSpec(Kind.REAL, single(1.05070102214813232421875)),
    )
    examples = examples({"alpha": Fraction(1, 2), "gamma": Fraction(2)})

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        elu = made("Elu", inputs[0], alpha=real(attributes, "alpha"))
        return made("Mul", real(attributes, "gamma"), elu)

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        alpha, gamma = (number(attributes[name], x) for name in ("alpha", "gamma"))
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0)) * alpha) * gamma


@register
class Softplus(ElementwiseComposite):
    """``log(1 + exp(x))``."""

    name = op_type = "Softplus"
    role = "activation"
    since = 1
    cost = 17
    examples = examples()

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        return made("Log", made("Add", 1, made("Exp", inputs[0])))

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range:
        """The kernel takes exponentials of negative numbers alone, which do not overflow."""
        (x,) = inputs
        return Range(0.0, max(x.high, 0.0) + 1.0, None, x.plus, x.nan)

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return _softplus(arrays[0])


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, np.zeros((), x.dtype)))


@register
class Softsign(ElementwiseComposite):
    """``x / (1 + |x|)``."""

    name = op_type = "Softsign"
    role = "activation"
    since = 1
    cost = 4
    examples = examples()

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        return made("Div", x, made("Add", 1, made("Abs", x)))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        return np.asarray(x / (1 + np.abs(x)))


@register
class Gelu(ElementwiseComposite):
    """``x * P(Z <= x)`` for a standard normal Z, or its approximation by a hyperbolic tangent.

    Exactly ``x/2 * (1 + erf(x / sqrt 2))``; with ``approximate="tanh"`` it is ``x/2 * (1 + tanh(
    sqrt(2/pi) * (x + 0.044715 x^3)))``.
    """

    name = op_type = "Gelu"
    role = "activation"
    since = 20
    cost = 20
    attributes = declare(approximate=AttributeSpec(Kind.TEXT, "none"))
    examples = examples({"approximate": "tanh"})

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        form = attributes["approximate"]
        require(form in ("none", "tanh"), f"approximate must be 'none' or 'tanh', not {form}")

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        if attributes["approximate"] == "none":
            (two,) = apply("Scalar", (), {"value": Fraction(2)}, dtype=x.type.dtype)
            part = made("Erf", made("Div", x, made("Sqrt", two)))
        else:
            (pi,) = apply("Pi", (), dtype=x.type.dtype)
            cube = made("Mul", x, made("Mul", x, x))
            line = made("Add", x, made("Mul", Fraction("0.044715"), cube))
            part = made("Tanh", made("Mul", made("Sqrt", made("Div", 2, pi)), line))
        return made("Mul", made("Mul", Fraction(1, 2), x), made("Add", 1, part))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        if attributes["approximate"] == "none":
            part = erf(x / math.sqrt(2))
        else:
            part = np.tanh((x + x**3 * 0.044715) * math.sqrt(2 / math.pi))
        return np.asarray(x * (1 + part) / 2)

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        if call.attributes.get("approximate", "none") not in ("none", "tanh"):
            return None
        return super().from_onnx(call)


@register
class Swish(ElementwiseComposite):
    """``x * sigmoid(alpha * x)``."""

    name = op_type = "Swish"
    role = "activation"
    since = 24
    cost = 12
    attributes = declare(alpha=AttributeSpec(Kind.REAL, Fraction(1)))
    examples = examples({"alpha": Fraction(2)}, {"alpha": Fraction(-1, 2)})

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        alpha = real(attributes, "alpha")
        return made("Mul", x, made("Sigmoid", scaled(alpha, x)))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        scaled = x * number(attributes["alpha"], x)
        small = np.exp(-np.abs(scaled))  # never overflows
        return np.asarray(x * np.where(scaled >= 0, 1, small) / (1 + small))


@register
class Mish(ElementwiseComposite):
    """``x * tanh(softplus(x))``."""

    name = op_type = "Mish"
    role = "activation"
    since = 18
    cost = 28
    examples = examples()

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        return made("Mul", x, made("Tanh", made("Softplus", x)))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        return np.asarray(x * np.tanh(_softplus(x)))
