"""Pooling: averages and maxima over windows, or over all trailing axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xflow.constraint import at_least, less
from xflow.ops.arguments import declare, flag, integers, quotient, sizes
from xflow.ops.registry import (
    Array,
    Attribute,
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
from xflow.ops.spec import (
    ONE,
    ZERO,
    Bottom,
    Index,
    Scalar,
    max_over,
    over_box,
    sum_over,
    times,
    where,
)
from xflow.ops.window import Axis, Window, patches, repeated, resolve_pads
from xflow.size import Size, product

KERNEL = AttributeSpec(Kind.INTS)
PADS = AttributeSpec(Kind.INTS, repeated(0, 2))
ONES = AttributeSpec(Kind.INTS, repeated(1))
EXAMPLES = (
    Example(((1, 2, 4, 3),), {"kernel_shape": (2, 2)}),
    Example(((2, 1, 3, 4),), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    Example(((1, 2, 5, 4),), {"kernel_shape": (3, 2), "pads": (0, 1, 2, 0), "strides": (2, 3)}),
    Example(((1, 1, 3, 3),), {"kernel_shape": (1, 1), "strides": (2, 2)}),
    Example(((2, 2, 4),), {"kernel_shape": (3,), "pads": (2, 0)}),
    Example(((1, 1, 1),), {"kernel_shape": (3,), "pads": (1, 1)}),
    Example(((1, 1, 2, 3, 2),), {"kernel_shape": (1, 2, 2), "pads": (0, 1, 0, 0, 0, 1)}),
)


class Pool(Operator):
    """A reduction over each position of a window on the trailing axes of [N, C, *S]."""

    def window(self, shapes: Sequence[Shape], attributes: Attributes) -> Window:
        """The geometry. Raises ShapeError."""
        rank = len(shapes[0]) - 2
        return Window.of(shapes[0], sizes(attributes, "kernel_shape", rank), attributes)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        x = shapes[0]
        require(3 <= len(x) <= 5, f"{self.name} takes 1 to 3 spatial axes, not {len(x) - 2}")
        window = self.window(shapes, attributes)
        window.check(need)
        for axis in filter(lambda axis: axis.bordered, window.axes):
            # No window lies in the border alone: it starts less than a kernel before the input,
            # and of positions `dilation` apart one is among the first `dilation` of the input.
            for border in (axis.begin, axis.end):
                need(less(border, axis.kernel), f"pad {border} for a kernel of {axis.kernel}")
            need(at_least(axis.extent, axis.dilation), f"only border under {self.name}'s window")
        return [(*x[:2], *window.output)]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return product(outputs[0]) * product(sizes(attributes, "kernel_shape"))

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        known = {*self.attributes, "auto_pad", "ceil_mode", "dilations", "storage_order"}
        x, kernel = call.shapes[0], tuple(call.attributes.get("kernel_shape", ()))
        if x is None or set(call.attributes) - known or call.outputs > 1:
            return None
        rank = len(x) - 2
        strides = tuple(call.attributes.get("strides", [1] * rank))
        dilations = tuple(call.attributes.get("dilations", [1] * rank))
        if any(len(row) != rank for row in (kernel, strides, dilations)):
            return None
        if "dilations" not in self.attributes and any(d != 1 for d in dilations):
            return None
        pads = resolve_pads(call.attributes, x, kernel, strides, dilations)
        if pads is None:
            return None
        found: dict[str, Attribute] = {"kernel_shape": kernel, "pads": pads, "strides": strides}
        if "dilations" in self.attributes:
            found["dilations"] = dilations
        if "count_include_pad" in self.attributes:
            found["count_include_pad"] = int(call.attributes.get("count_include_pad", 0))
        same = str(call.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
        if call.attributes.get("ceil_mode", 0) and not same:
            # Rounding up is understood where there is nothing to round.
            for axis in Window.of(x, kernel, found).axes:
                if (axis.extent + axis.begin + axis.end - axis.reach - 1) % axis.stride != 0:
                    return None
        return found, (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        call = super().to_onnx(attributes, shapes, opset)
        if call is None:
            return None
        # Attributes that came later say nothing at their defaults, and are then left out.
        plain = dict(call.attributes)
        if "dilations" in plain and all(d == 1 for d in plain["dilations"]):
            del plain["dilations"]
        if plain.get("count_include_pad") == 0:
            del plain["count_include_pad"]
        if ("dilations" in plain and opset < 10) or ("count_include_pad" in plain and opset < 7):
            return None
        return replace(call, attributes=plain)


@register
class MaxPool(Pool):
    """The maximum over each window; borders never win."""

    name = op_type = "MaxPool"
    attributes = declare(kernel_shape=KERNEL, pads=PADS, strides=ONES, dilations=ONES)
    examples = (
        *EXAMPLES,
        Example(((1, 1, 5),), {"kernel_shape": (2,), "dilations": (3,)}),
        Example(((1, 2, 4),), {"kernel_shape": (3,), "dilations": (2,), "pads": (1, 2)}),
    )

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        window = self.window(shapes, attributes)
        i = index[2:]

        def element(k: Index) -> Scalar:
            here = inputs[0]((*index[:2], *window.positions(i, k)))
            return where(window.guards(i, k), here, Bottom())

        return over_box(max_over, window.kernel, element)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        kernel = integers(attributes, "kernel_shape")
        covered = patches(arrays[0], kernel, attributes, -np.inf)
        return [covered.max(axis=tuple(range(-len(kernel), 0)))]


@register
class AveragePool(Pool):
    """The mean over each window; borders count as elements if `count_include_pad` is 1."""

    name = op_type = "AveragePool"
    attributes = declare(
        kernel_shape=KERNEL,
        pads=PADS,
        strides=ONES,
        count_include_pad=AttributeSpec(Kind.INT, 0, flag=True),
    )
    examples = (
        *EXAMPLES,
        *(replace(e, attributes={**e.attributes, "count_include_pad": 1}) for e in EXAMPLES[:6]),
    )

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        window = self.window(shapes, attributes)
        i = index[2:]

        def element(k: Index) -> Scalar:
            here = inputs[0]((*index[:2], *window.positions(i, k)))
            return where(window.guards(i, k), here, ZERO)

        total = over_box(sum_over, window.kernel, element)
        bordered = () if flag(attributes, "count_include_pad") else window.axes
        counts = [_count(axis, here) for axis, here in zip(bordered, i, strict=False)]
        inside = [n for n in counts if n is not None]
        # Where no border is left out, the number of elements is the kernel's extent.
        whole = [
            axis.kernel
            for number, axis in enumerate(window.axes)
            if number >= len(counts) or counts[number] is None
        ]
        mean = quotient(total, product(whole))
        return mean / times(*inside) if inside else mean

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        kernel = integers(attributes, "kernel_shape")
        over = tuple(range(-len(kernel), 0))
        total = patches(arrays[0], kernel, attributes, 0).sum(axis=over)
        if flag(attributes, "count_include_pad"):
            return [total / int(np.prod(kernel))]
        ones = np.ones((1, 1, *arrays[0].shape[2:]), dtype=arrays[0].dtype)
        return [total / patches(ones, kernel, attributes, 0).sum(axis=over)]


def _count(axis: Axis, i: Size) -> Scalar | None:
    """How many positions of the window lie in the input; None where all do."""
    if not axis.bordered:
        return None
    return sum_over(axis.kernel, lambda k: where(axis.guards(i, k), ONE, ZERO))


@register
class GlobalAveragePool(Operator):
    """The mean over all trailing axes of [N, C, *S], which stay with extent 1."""

    name = op_type = "GlobalAveragePool"
    examples = (
        Example(((2, 2, 3, 2),)),
        Example(((1, 2, 4),)),
        Example(((1, 1, 2, 1, 3),)),
        Example(((2, 3, 1, 1),)),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        x = shapes[0]
        require(len(x) >= 3, "GlobalAveragePool takes at least one spatial axis")
        for n in x[2:]:
            need(at_least(n, 1), "the mean over an empty axis")
        return [(*x[:2], *(1,) * (len(x) - 2))]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        space = shapes[0][2:]
        total = over_box(sum_over, space, lambda k: inputs[0]((*index[:2], *k)))
        return quotient(total, product(space))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        over = tuple(range(2, arrays[0].ndim))
        return [np.asarray(arrays[0].mean(axis=over, keepdims=True))]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return product(shapes[0])
