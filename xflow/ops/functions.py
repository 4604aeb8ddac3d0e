"""Elementwise operators of one input: real functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xflow.core.arguments import nearest
from xflow.core.intervals import Floats, Range, saturating
from xflow.core.registry import Array, Attributes, Example, OnnxCall, Shape, register
from xflow.core.sorts import NUMBERS, SORTS
from xflow.core.spec import Scalar, call
from xflow.ops.cast import CODE_NAMES
from xflow.ops.elementwise import Elementwise
from xflow.ops.shape import Understood


class Unary(Elementwise):
    """An elementwise operator of one input."""

    since = 6
    examples = (Example(((2, 3),)), Example(((),)), Example(((0, 2),)), Example(((1, 2, 1, 3),)))


@register
class Identity(Unary):
    """Its input; so are a Cast to the type that it has, and a Dropout that drops nothing."""

    name = op_type = "Identity"
    also = ("Cast", "Dropout")
    role = "view"
    sorts = SORTS
    since = 1
    cost = 0

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0]

    def compute(self, *arrays: Array) -> Array:
        return arrays[0]

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        if call.op_type == "Cast":
            same = call.types[:1] == (CODE_NAMES.get(call.attributes.get("to", 0)),)
            return ({}, (0,)) if same else None
        if call.op_type == "Dropout":
            return None if _may_drop(call) else ({}, (0,))
        return super().from_onnx(call)


def _may_drop(call: OnnxCall) -> bool:
    """Whether a Dropout is, or may be, in training: by an input, before opset 7 by an attribute."""
    if call.opset < 7:
        return not call.attributes.get("is_test", 0)
    if len(call.shapes) < 3 or call.shapes[2] is None:
        return False
    return 2 not in call.constants or bool(call.constants[2])


@register
class Neg(Unary):
    """``-x``."""

    name = op_type = "Neg"
    sorts = NUMBERS

    def of(self, *elements: Scalar) -> Scalar:
        return -elements[0]

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.negative(arrays[0]))


@register
class Abs(Unary):
    """``|x|``."""

    name = op_type = "Abs"

    def of(self, *elements: Scalar) -> Scalar:
        return call("abs", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.abs(arrays[0]))


@register
class Relu(Unary):
    """``max(x, 0)``."""

    name = op_type = "Relu"
    role = "activation"

    def of(self, *elements: Scalar) -> Scalar:
        return call("max", elements[0], 0)

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.maximum(arrays[0], 0))


class Saturating(Unary):
    """A function that rises from `least` to 1."""

    role = "activation"
    cost = 10
    least: ClassVar[float]

    def at_number(self, number: float) -> float:
        """The function at a number, or an infinity."""
        raise NotImplementedError

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range:
        """The kernel has errors of some roundings of 1: it may exceed 1, and gives 0 for less."""
        (x,) = inputs
        return saturating(x, floats, self.at_number, self.least)


@register
class Sigmoid(Saturating):
    """``1 / (1 + exp(-x))``."""

    name = op_type = "Sigmoid"
    least = 0.0

    def of(self, *elements: Scalar) -> Scalar:
        return 1 / (1 + call("exp", -elements[0]))

    def at_number(self, number: float) -> float:
        return (1 + math.tanh(number / 2)) / 2

    def compute(self, *arrays: Array) -> Array:
        small = np.exp(-np.abs(arrays[0]))  # never overflows
        return np.where(arrays[0] >= 0, 1 / (1 + small), small / (1 + small))


@register
class Tanh(Saturating):
    """The hyperbolic tangent."""

    name = op_type = "Tanh"
    least = -1.0

    def of(self, *elements: Scalar) -> Scalar:
        return 2 / (1 + call("exp", -2 * elements[0])) - 1

    def at_number(self, number: float) -> float:
        return math.tanh(number)

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.tanh(arrays[0]))


@register
class Exp(Unary):
    """The exponential."""

    name = op_type = "Exp"
    cost = 8

    def of(self, *elements: Scalar) -> Scalar:
        return call("exp", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.exp(arrays[0]))


@register
class Log(Unary):
    """The natural logarithm."""

    name = op_type = "Log"
    cost = 8

    def of(self, *elements: Scalar) -> Scalar:
        return call("log", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.log(arrays[0]))


@register
class Sqrt(Unary):
    """The square root."""

    name = op_type = "Sqrt"
    cost = 4

    def of(self, *elements: Scalar) -> Scalar:
        return call("sqrt", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.sqrt(arrays[0]))


@register
class Reciprocal(Unary):
    """``1 / x``."""

    name = op_type = "Reciprocal"
    cost = 2

    def of(self, *elements: Scalar) -> Scalar:
        return call("reciprocal", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(1 / arrays[0])


_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function of every element, in the element type of `x`."""
    return np.asarray(_erf(x)).astype(x.dtype)


@register
class Erf(Unary):
    """The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t^2)`` from 0 to x."""

    name = op_type = "Erf"
    since = 9
    cost = 12

    def of(self, *elements: Scalar) -> Scalar:
        return call("erf", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return erf(arrays[0])


@register
class Sin(Unary):
    """The sine."""

    name = op_type = "Sin"
    since = 7
    cost = 10

    def of(self, *elements: Scalar) -> Scalar:
        return call("sin", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.sin(arrays[0]))


@register
class Cos(Unary):
    """The cosine."""

    name = op_type = "Cos"
    since = 7
    cost = 10

    def of(self, *elements: Scalar) -> Scalar:
        return call("cos", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.cos(arrays[0]))


@register
class Sign(Unary):
    """-1, 0 or 1."""

    name = op_type = "Sign"
    steps = True
    since = 9

    def of(self, *elements: Scalar) -> Scalar:
        return call("sign", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.sign(arrays[0]))


@register
class Floor(Unary):
    """The greatest integer that is not greater."""

    name = op_type = "Floor"
    steps = True

    def of(self, *elements: Scalar) -> Scalar:
        return call("floor", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.floor(arrays[0]))


@register
class Ceil(Unary):
    """The least integer that is not less."""

    name = op_type = "Ceil"
    steps = True

    def of(self, *elements: Scalar) -> Scalar:
        return -call("floor", -elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.ceil(arrays[0]))


@register
class Round(Unary):
    """The nearest integer, the even one of two that are as near."""

    name = op_type = "Round"
    steps = True
    since = 11

    def of(self, *elements: Scalar) -> Scalar:
        return call("round", elements[0])

    def compute(self, *arrays: Array) -> Array:
        return nearest(arrays[0])
