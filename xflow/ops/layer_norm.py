"""Normalisation of an input by its own moments: by layer, instance, group, or root mean square."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeGuard

import numpy as np

from xflow.core.arguments import axis, declare, flag, number, size
from xflow.core.composite import Composite, made, real
from xflow.core.constraint import at_least, equal
from xflow.core.intervals import ANYTHING, KERNEL, Floats, Range
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
from xflow.ops.normalize import EPSILON

EIGHTH = Fraction(1, 8)


class MomentNormalization(Composite):
    """A normalisation by mean and variance, or by the mean of squares."""

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range | None:
        """A normalised element is at most the root of the number of elements in magnitude.

        For an element is at most the root of the sum of squares, whatever the elements are, as long
        as their squares do not overflow. Nothing is known where epsilon is not positive: elements
        that are all equal are 0 by 0.
        """
        if not _is_positive(attributes["epsilon"]):
            return ANYTHING
        x, *parameters = inputs
        normalised = self.normalised(shapes[0], attributes)
        count = None if normalised is None else product(normalised)
        if not isinstance(count, int) or not all(known.is_real for known in inputs):
            return None
        if floats.moderate is None and not x.within(math.sqrt(floats.largest / (4 * count + 4))):
            return None
        low, high = floats.rounded(-math.sqrt(count), math.sqrt(count), KERNEL + count)
        scale, *bias = parameters
        return floats.sum([floats.product(Range(low, high), scale), *bias])

    def normalised(self, shape: Shape, attributes: Attributes) -> Shape | None:
        """The extents of the axes of the first input over which moments are taken.

        None where it is not the first input alone that is normalised.
        """
        return None

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 8 * product(outputs[0])


def _is_positive(epsilon: Attribute) -> TypeGuard[Fraction]:
    return isinstance(epsilon, Fraction) and epsilon > 0


def _standardised(x: Value, axes: tuple[int, ...], attributes: Attributes) -> Value:
    """``(x - mean) / sqrt(var + epsilon)`` with mean and variance over `axes`."""
    deviation = made("Sub", x, made("ReduceMean", x, axes=axes))
    variance = made("ReduceMean", made("Mul", deviation, deviation), axes=axes)
    spread = made("Sqrt", made("Add", variance, real(attributes, "epsilon")))
    return made("Div", deviation, spread)


def _standardised_array(x: Array, axes: tuple[int, ...], epsilon: float | Fraction) -> Array:
    variance = x.var(axis=axes, keepdims=True)
    return np.asarray((x - x.mean(axis=axes, keepdims=True)) / np.sqrt(variance + epsilon))


class FromAxis(MomentNormalization):
    """A normalisation over all axes from `axis` on, with a scale of the shape of these."""

    attributes = declare(
        axis=AttributeSpec(Kind.AXIS, lambda shapes: len(shapes[0]) - 1),
        epsilon=AttributeSpec(Kind.REAL, EPSILON),
    )
    ignored = frozenset({"stash_type"})

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        x = shapes[0]
        normalised = x[axis(attributes, "axis", len(x)) :]
        for n in normalised:
            need(at_least(n, 1), f"{self.name} over the empty extent {n}")
        for parameter in shapes[1:]:
            require(
                len(parameter) == len(normalised),
                f"the parameters of {self.name} must have the shape {list(normalised)}",
            )
            for n, m in zip(parameter, normalised, strict=True):
                need(equal(n, m), f"{n} parameters of {self.name} for an extent of {m}")

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        self.check(shapes, attributes, need)
        return [shapes[0]]

    def normalised(self, shape: Shape, attributes: Attributes) -> Shape:
        return shape[axis(attributes, "axis", len(shape)) :]


@register
class LayerNormalization(FromAxis):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` with moments over the axes from `axis`.

    Scale, and bias if there is one, have the shape of these axes. Mean and deviation, which ONNX
    gives as further outputs, are not declared.
    """

    name = op_type = "LayerNormalization"
    role = "normalization"
    since = 17
    arity = (2, 3)
    examples = (
        Example(((2, 3), (3,), (3,))),
        Example(((2, 3, 2), (3, 2), (3, 2)), {"axis": 1, "epsilon": EIGHTH}),
        Example(((2, 3), (2, 3)), {"axis": 0}),
        Example(((2, 3, 4), (4,), (4,)), {"epsilon": EIGHTH}),
        Example(((2, 4), (4,))),
        Example(((2, 1), (1,), (1,))),
    )

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        x, scale, *bias = inputs
        rank = len(x.shape)
        axes = tuple(range(axis(attributes, "axis", rank), rank))
        y = made("Mul", _standardised(x, axes, attributes), scale)
        return (made("Add", y, bias[0]) if bias else y,)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, scale, *bias = arrays
        axes = tuple(range(axis(attributes, "axis", x.ndim), x.ndim))
        y = _standardised_array(x, axes, number(attributes["epsilon"], x)) * scale
        return [y + bias[0] if bias else y]


@register
class RMSNormalization(FromAxis):
    """``x / sqrt(mean(x^2) + epsilon) * scale`` with the mean over the axes from `axis`."""

    name = op_type = "RMSNormalization"
    role = "normalization"
    since = 23
    arity = (2, 2)
    examples = (
        Example(((2, 3), (3,))),
        Example(((2, 3, 2), (3, 2)), {"axis": 1, "epsilon": EIGHTH}),
        Example(((2, 3), (2, 3)), {"axis": 0}),
        Example(((2, 3, 4), (4,)), {"epsilon": EIGHTH}),
        Example(((2, 1), (1,))),
    )

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        x, scale = inputs
        rank = len(x.shape)
        axes = tuple(range(axis(attributes, "axis", rank), rank))
        square = made("ReduceMean", made("Mul", x, x), axes=axes)
        root = made("Sqrt", made("Add", square, real(attributes, "epsilon")))
        return (made("Mul", made("Div", x, root), scale),)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, scale = arrays
        axes = tuple(range(axis(attributes, "axis", x.ndim), x.ndim))
        square = np.square(x).mean(axis=axes, keepdims=True)
        return [x / np.sqrt(square + number(attributes["epsilon"], x)) * scale]


def _by_channel(vector: Value, rank: int) -> Value:
    """A vector [C] as [1, C, 1, ...], which broadcasts over the channels of such a tensor."""
    return made("Unsqueeze", vector, axes=(0, *range(2, rank)))


def _check_channels(name: str, shapes: Sequence[Shape], need: Need, parameters: Size) -> None:
    """Require x [N, C, *S] without an empty axis in S, and vectors of the length `parameters`."""
    require(len(shapes[0]) >= 3, f"{name} takes at least three axes")
    for n in shapes[0][2:]:
        need(at_least(n, 1), f"{name} over the empty extent {n}")
    for vector in shapes[1:]:
        require(len(vector) == 1, f"the parameters of {name} are vectors")
        need(equal(vector[0], parameters), f"{vector[0]} parameters of {name} for {parameters}")


@register
class InstanceNormalization(MomentNormalization):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` of x [N, C, *S], moments over S.

    Scale and bias are vectors [C].
    """

    name = op_type = "InstanceNormalization"
    role = "normalization"
    since = 6
    arity = (3, 3)
    attributes = declare(epsilon=AttributeSpec(Kind.REAL, EPSILON))
    examples = (
        Example(((2, 3, 2, 2), (3,), (3,))),
        Example(((1, 2, 4), (2,), (2,)), {"epsilon": EIGHTH}),
        Example(((2, 2, 1, 3), (2,), (2,)), {"epsilon": EIGHTH}),
        Example(((1, 2, 2, 1, 2), (2,), (2,))),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        require(len(shapes[0]) >= 3, "InstanceNormalization takes at least three axes")
        _check_channels(self.name, shapes, need, shapes[0][1])
        return [shapes[0]]

    def normalised(self, shape: Shape, attributes: Attributes) -> Shape:
        return shape[2:]

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        x, scale, bias = inputs
        rank = len(x.shape)
        y = _standardised(x, tuple(range(2, rank)), attributes)
        return (made("Add", made("Mul", y, _by_channel(scale, rank)), _by_channel(bias, rank)),)

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range | None:
        """Anything, if x times the scale over the deviation may overflow in the kernel.

        The kernel subtracts the mean last, and may subtract one infinity from another.
        """
        epsilon = attributes["epsilon"]
        if not _is_positive(epsilon) or not all(known.is_real for known in inputs):
            return ANYTHING
        x, scale, bias = (max(abs(known.low), abs(known.high)) for known in inputs)
        most = floats.moderate
        moderate = most is not None and max(x, scale, bias) <= most
        if moderate or 2 * x * (scale / math.sqrt(epsilon)) + bias <= floats.largest:
            return super().bounds(inputs, shapes, attributes, floats)
        return ANYTHING

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x = arrays[0]
        scale, bias = (v.reshape(-1, *(1,) * (x.ndim - 2)) for v in arrays[1:])
        axes = tuple(range(2, x.ndim))
        return [_standardised_array(x, axes, number(attributes["epsilon"], x)) * scale + bias]


@register
class GroupNormalization(MomentNormalization):
    """InstanceNormalization of x [N, C, *S] with its channels in `num_groups` groups.

    Scale and bias are vectors [C]; with `by_group` they are [num_groups], which is what ONNX
    meant before opset 21. Defined as exporters write it: by an instance normalisation of x as
    [N, num_groups, the rest] with a scale of 1.
    """

    name = op_type = "GroupNormalization"
    role = "normalization"
    since = 18
    arity = (3, 3)
    attributes = declare(
        num_groups=AttributeSpec(Kind.INT),
        epsilon=AttributeSpec(Kind.REAL, EPSILON),
        by_group=AttributeSpec(Kind.INT, 0, flag=True),
    )
    ignored = frozenset({"stash_type"})
    examples = (
        Example(((2, 4, 3), (4,), (4,)), {"num_groups": 2}),
        Example(((2, 6, 2, 1), (6,), (6,)), {"num_groups": 3, "epsilon": EIGHTH}),
        Example(((2, 2, 3), (2,), (2,)), {"num_groups": 1, "epsilon": EIGHTH}),
        Example(((2, 2, 3), (2,), (2,)), {"num_groups": 2}),
        Example(((2, 4, 2), (2,), (2,)), {"num_groups": 2, "by_group": 1}),
        Example(((1, 6, 1, 2), (3,), (3,)), {"num_groups": 3, "by_group": 1}),
    )
    CHANNELS_SINCE = 21
    """The opset from which on scale and bias are given for each channel."""

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        groups = size(attributes, "num_groups")
        require(len(shapes[0]) >= 3, "GroupNormalization takes at least three axes")
        need(at_least(groups, 1), f"GroupNormalization with {groups} groups")
        channels = shapes[0][1]
        need(at_least(channels, 1), f"GroupNormalization of {channels} channels")
        need(
            equal(channels, groups * (channels // groups)),
            f"{channels} channels do not divide into {groups} groups",
        )
        by_group = flag(attributes, "by_group")
        _check_channels(self.name, shapes, need, groups if by_group else channels)
        return [shapes[0]]

    def normalised(self, shape: Shape, attributes: Attributes) -> Shape:
        return (shape[1] // size(attributes, "num_groups"), *shape[2:])

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        x, *vectors = inputs
        batch, channels, *space = x.shape
        groups = size(attributes, "num_groups")
        by_group = flag(attributes, "by_group")
        rest = channels // groups * product(space)
        inner = vectors
        if not by_group:
            length = {"shape": (groups,)}
            inner = [apply(name, (), length, dtype=x.type.dtype)[0] for name in ("Ones", "Zeros")]
        rows = made("Reshape", x, shape=(batch, groups, rest))
        y = made("InstanceNormalization", rows, *inner, epsilon=attributes["epsilon"])
        y = made("Reshape", y, shape=tuple(x.shape))
        if by_group:
            return (y,)
        scale, bias = (_by_channel(vector, len(x.shape)) for vector in vectors)
        return (made("Add", made("Mul", y, scale), bias),)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, *vectors = arrays
        groups = attributes["num_groups"]
        assert isinstance(groups, int)
        rest = x.shape[1] // groups * math.prod(x.shape[2:])
        rows = x.reshape(x.shape[0], groups, rest)
        y = _standardised_array(rows, (2,), number(attributes["epsilon"], x)).reshape(x.shape)
        if flag(attributes, "by_group"):
            vectors = [np.repeat(vector, x.shape[1] // groups) for vector in vectors]
        scale, bias = (vector.reshape(-1, *(1,) * (x.ndim - 2)) for vector in vectors)
        return [y * scale + bias]

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        if "by_group" in call.attributes:
            return None
        read = super().from_onnx(call)
        if read is None:
            return None
        by_group = int(call.opset < self.CHANNELS_SINCE)
        return {**read[0], "by_group": by_group}, read[1]

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        if flag(attributes, "by_group") != (opset < self.CHANNELS_SINCE):
            return None
        plain = {key: value for key, value in attributes.items() if key != "by_group"}
        return super().to_onnx(plain, shapes, opset)
