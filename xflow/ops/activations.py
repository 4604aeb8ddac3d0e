"""Piecewise linear activations: composites of maxima, minima and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from xflow.core.arguments import declare, number
from xflow.core.composite import ElementwiseComposite, made, real, scaled
from xflow.core.constraint import equal
from xflow.core.intervals import Floats, Range
from xflow.core.node import Value
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    RealSymbol,
    Shape,
    register,
    require,
)

SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (), (0, 2), (1, 2, 1, 3))
"""Shapes of the input in the examples of an activation."""


def single(value: float) -> Fraction:
    """A default of ONNX, which stores it as a 32-bit float, exactly."""
    return Fraction(float(np.float32(value)))


def examples(*attributes: Attributes) -> tuple[Example, ...]:
    """Every shape with the defaults, and one with each of `attributes`."""
    plain = tuple(Example((shape,)) for shape in SHAPES)
    return (*plain, *(Example(((3, 2),), given) for given in attributes))


UNBOUNDED: Attribute = ()
"""The bound of a Clip that has none on that side."""


@register
class Clip(ElementwiseComposite):
    """``min(max(x, min), max)``; a bound that is left out does not bind.

    Where ``min > max`` it is max, as ONNX says. Bounds are attributes: ONNX has them as
    attributes before opset 11, as constant inputs since.
    """

    name = op_type = "Clip"
    role = "activation"
    since = 6
    attributes = declare(
        min=AttributeSpec(Kind.REAL, UNBOUNDED), max=AttributeSpec(Kind.REAL, UNBOUNDED)
    )
    parameters = MappingProxyType({"min": 1, "max": 2})
    examples = examples(
        {"min": Fraction(0), "max": Fraction(6)},
        {"min": Fraction(-1, 2), "max": Fraction(1, 2)},
        {"min": Fraction(-3, 4)},
        {"max": Fraction(1, 4)},
        {"min": Fraction(1), "max": Fraction(-1)},
    )

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        for name in ("min", "max"):
            bound = attributes[name]
            known = bound == UNBOUNDED or isinstance(bound, Fraction | RealSymbol)
            require(known, f"{name} must be a real number, not {bound}")

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (y,) = inputs
        if attributes["min"] != UNBOUNDED:
            y = made("Max", y, real(attributes, "min"))
        if attributes["max"] != UNBOUNDED:
            y = made("Min", y, real(attributes, "max"))
        return y

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range | None:
        """A bound that is left out is the largest number, as ONNX says: it cuts off infinities."""
        (x,) = inputs
        least, most = (attributes[name] for name in ("min", "max"))
        if not x.is_infinite or UNBOUNDED not in (least, most):
            return None
        low = -floats.largest if x.minus else min(x.low, floats.largest)
        high = floats.largest if x.plus else max(x.high, -floats.largest)
        if isinstance(least, Fraction):
            low, high = max(low, float(least)), max(high, float(least))
        if isinstance(most, Fraction):
            low, high = min(low, float(most)), min(high, float(most))
        return replace(x.plain, low=low, high=high, nonzero=False)

    def hides(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[int, ...]:
        """Where a bound is left out, an infinity becomes the largest number."""
        return (0,) if UNBOUNDED in (attributes["min"], attributes["max"]) else ()

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        for name, cut, least in (("min", np.maximum, -1), ("max", np.minimum, 1)):
            if attributes[name] != UNBOUNDED:
                bound: Any = number(attributes[name], x)
                x = np.asarray(cut(x, bound))
            elif x.dtype.kind == "f":
                x = np.asarray(cut(x, least * np.finfo(x.dtype).max))
        return x

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        found: dict[str, Attribute] = {}
        largest = float(np.finfo(np.float32).max)
        for position, (name, nothing) in enumerate((("min", -math.inf), ("max", math.inf)), 1):
            bound = nothing
            if call.opset < 11:
                bound = call.attributes.get(name, bound)
                # The default that ONNX gave then, in place of none.
                bound = nothing if abs(bound) >= largest and bound * nothing > 0 else bound
            elif len(call.shapes) > position and call.shapes[position] is not None:
                constant = call.constants.get(position)
                if constant is None or constant.size != 1:
                    return None
                bound = float(constant.reshape(-1)[0])
                if math.isinf(bound):  # unlike a bound that is left out, it keeps infinities
                    return None
            if bound != nothing:
                if not math.isfinite(bound):
                    return None
                found[name] = Fraction(bound)
        if set(call.attributes) - ({"min", "max"} if call.opset < 11 else set()):
            return None
        return found, (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        bounds = [attributes[name] for name in ("min", "max")]
        if not all(isinstance(b, Fraction) or b == UNBOUNDED for b in bounds):
            return None
        given = {k: float(b) for k, b in enumerate(bounds, 1) if isinstance(b, Fraction)}
        if opset < 11:
            if len(given) == 2 and given[1] > given[2]:
                return None  # ONNX did not say what that meant, and the runtime refuses it
            if any(float(np.float32(bound)) != bound for bound in given.values()):
                return None  # attributes have 32 bits
            plain: dict[str, Any] = {("min", "max")[k - 1]: bound for k, bound in given.items()}
            return OnnxCall("Clip", opset, "", plain, tuple(shapes))
        constants = {k: np.asarray(bound, dtype=np.float64) for k, bound in given.items()}
        return OnnxCall("Clip", opset, "", {}, tuple(shapes), constants)


@register
class LeakyRelu(ElementwiseComposite):
    """x where it is positive, ``alpha * x`` elsewhere."""

    name = op_type = "LeakyRelu"
    role = "activation"
    since = 6
    cost = 2
    attributes = declare(alpha=AttributeSpec(Kind.REAL, single(0.01)))
    examples = examples({"alpha": Fraction(1, 4)}, {"alpha": Fraction(-2)}, {"alpha": Fraction(0)})

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        return made("Add", made("Relu", x), made("Mul", real(attributes, "alpha"), _negative(x)))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        return np.where(x >= 0, x, x * number(attributes["alpha"], x))


@register
class PRelu(ElementwiseComposite):
    """x where it is positive, ``slope * x`` elsewhere; slope broadcasts to the shape of x."""

    name = op_type = "PRelu"
    role = "activation"
    since = 7
    arity = (2, 2)
    cost = 2
    examples = (
        Example(((2, 3), (2, 3))),
        Example(((2, 3), (3,))),
        Example(((2, 3, 2), (3, 1))),
        Example(((2, 3), (1,))),
        Example(((2, 2), ())),
        Example(((1, 3), (1, 1))),
        Example(((0, 2), (1, 2))),
    )

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        x, slope = shapes
        require(len(slope) <= len(x), "the slope of PRelu has more axes than its input")
        for n, m in zip(slope, x[len(x) - len(slope) :], strict=True):
            if n != 1:
                need(equal(n, m), f"the slope of PRelu does not broadcast: {n} against {m}")

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        x, slope = inputs
        return made("Add", made("Relu", x), made("Mul", slope, _negative(x)))

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range:
        """The kernel reads the slope only where it is used."""
        x, slope = inputs
        return floats.product(x, slope).join(x)

    def hides(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[int, ...]:
        """The slope is read only where x is negative."""
        return (1,)

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        x, slope = arrays
        return np.where(x >= 0, x, x * slope)


def _negative(x: Value) -> Value:
    return made("Min", x, 0)


@register
class HardSigmoid(ElementwiseComposite):
    """``alpha * x + beta``, cut off below 0 and above 1."""

    name = op_type = "HardSigmoid"
    role = "activation"
    since = 6
    cost = 4
    attributes = declare(
        alpha=AttributeSpec(Kind.REAL, single(0.2)), beta=AttributeSpec(Kind.REAL, Fraction(1, 2))
    )
    examples = examples(
        {"alpha": Fraction(1), "beta": Fraction(0)},
        {"alpha": Fraction(-1, 2)},
        {"alpha": Fraction(0), "beta": Fraction(3)},
    )

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        slope = scaled(real(attributes, "alpha"), inputs[0])
        line = made("Add", slope, real(attributes, "beta"))
        return made("Clip", line, min=Fraction(0), max=Fraction(1))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        alpha: Any = number(attributes["alpha"], x)
        beta: Any = number(attributes["beta"], x)
        return np.asarray(np.minimum(1, np.maximum(0, x * alpha + beta)))


@register
class HardSwish(ElementwiseComposite):
    """``x * HardSigmoid(x, alpha=1/6, beta=1/2)``."""

    name = op_type = "HardSwish"
    role = "activation"
    since = 14
    cost = 5
    examples = examples()

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        return made("Mul", x, made("HardSigmoid", x, alpha=Fraction(1, 6), beta=Fraction(1, 2)))

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        return np.asarray(x * np.clip(x + 3, 0, 6) / 6)
