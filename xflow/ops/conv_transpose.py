"""Transposed convolution over one to three axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from xflow.core.arguments import declare, divisor, integers, literals, size, sizes
from xflow.core.constraint import Constraint, at_least, equal, less
from xflow.core.registry import (
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
from xflow.core.size import Size, product
from xflow.core.spec import ZERO, Index, Scalar, over_box, sum_over, where
from xflow.ops.window import repeated


@dataclass(frozen=True)
class Axis:
    """The geometry along one axis: element j of the input adds, times element k of the kernel,
    to element ``j * stride + k * dilation - begin`` of the output."""

    extent: Size
    kernel: Size
    begin: Size
    end: Size
    stride: Size
    dilation: Size
    output_padding: Size

    @property
    def full(self) -> Size:
        """Extent of the output before the pads are cut off, without `output_padding`."""
        return self.stride * (self.extent - 1) + self.dilation * (self.kernel - 1) + 1

    @property
    def output(self) -> Size:
        """Extent of the output."""
        return self.full + self.output_padding - self.begin - self.end

    def meets(self, i: Size, j: Size, k: Size) -> Constraint:
        """That input element j and kernel element k meet in output element i."""
        return equal(i + self.begin, j * self.stride + k * self.dilation)


@register
class ConvTranspose(Operator):
    """Transposed convolution of x [N, C, *S] with w [C, M/group, *K], and a bias [M].

    ``y[n, o, *i] = b[o] + sum_(c, k, j) x[n, c, *j] * w[c, o mod (M/group), *k]`` over the input
    channels c of the group of o, and positions with ``i + begin = j * stride + k * dilation``.
    """

    name = op_type = "ConvTranspose"
    role = "convolution"
    arity = (2, 3)
    attributes = declare(
        pads=AttributeSpec(Kind.INTS, repeated(0, 2)),
        strides=AttributeSpec(Kind.INTS, repeated(1)),
        dilations=AttributeSpec(Kind.INTS, repeated(1)),
        output_padding=AttributeSpec(Kind.INTS, repeated(0)),
        group=AttributeSpec(Kind.INT, 1),
    )
    examples = (
        Example(((1, 2, 2, 3), (2, 3, 2, 2))),
        Example(((1, 2, 3, 2), (2, 1, 3, 3), (1,)), {"pads": (1, 1, 1, 1)}),
        Example(((2, 1, 2, 2), (1, 2, 2, 3)), {"pads": (0, 1, 1, 0), "strides": (2, 3)}),
        Example(((1, 2, 2, 2), (2, 1, 3, 2)), {"strides": (2, 2), "output_padding": (1, 0)}),
        Example(((1, 4, 2, 2), (4, 2, 1, 2), (4,)), {"group": 2, "strides": (2, 1)}),
        Example(((1, 2, 3), (2, 1, 2)), {"group": 2, "dilations": (2,), "pads": (1, 2)}),
        Example(((1, 2, 2), (2, 3, 1), (3,)), {"strides": (3,)}),
        Example(((1, 1, 3), (1, 1, 2)), {"dilations": (3,), "strides": (2,)}),
        Example(((1, 1, 2, 1, 2), (1, 2, 1, 2, 2)), {"strides": (1, 2, 2)}),
    )

    def _axes(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[Axis, ...]:
        x, w = shapes[:2]
        rank = len(x) - 2
        pads = sizes(attributes, "pads", 2 * rank)
        others = (sizes(attributes, k, rank) for k in ("strides", "dilations", "output_padding"))
        rows = zip(x[2:], w[2:], pads[:rank], pads[rank:], *others, strict=True)
        return tuple(Axis(*row) for row in rows)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        x, w = shapes[:2]
        require(3 <= len(x) <= 5, f"ConvTranspose takes 1 to 3 spatial axes, not {len(x) - 2}")
        require(len(w) == len(x), f"a kernel of rank {len(w)} for an input of rank {len(x)}")
        group = size(attributes, "group")
        need(at_least(group, 1), f"ConvTranspose in {group} groups")
        need(equal(w[0], x[1]), f"a kernel for {w[0]} channels, not {x[1]}")
        need(equal(x[1] % group, 0), f"{x[1]} channels do not divide into {group} groups")
        channels = w[1] * group
        for b in shapes[2:]:
            require(len(b) == 1, "the bias of ConvTranspose is a vector")
            need(equal(b[0], channels), f"{b[0]} biases for {channels} channels")
        along = self._axes(shapes, attributes)
        for axis in along:
            need(at_least(axis.extent, 1), "ConvTranspose of an empty axis")
            need(at_least(axis.kernel, 1), f"a kernel of extent {axis.kernel}")
            need(at_least(axis.stride, 1), f"a stride of {axis.stride}")
            need(at_least(axis.dilation, 1), f"a dilation of {axis.dilation}")
            need(at_least(axis.begin, 0), f"a negative pad {axis.begin}")
            need(at_least(axis.end, 0), f"a negative pad {axis.end}")
            need(at_least(axis.output_padding, 0), f"an output padding of {axis.output_padding}")
            # ONNX Runtime refuses more: a larger input would make an output of that extent.
            need(less(axis.output_padding, axis.stride), "an output padding of a stride or more")
            need(at_least(axis.output, 1), "nothing is left between the pads")
        return [(x[0], channels, *(axis.output for axis in along))]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        x, w = shapes[:2]
        group, along = size(attributes, "group"), self._axes(shapes, attributes)
        rank = len(along)
        n, o, *i = index
        depth: Size = x[1] // group
        first: Size = 0 if group == 1 else o // divisor(w[1]) * depth
        column: Size = o if group == 1 else o % divisor(w[1])

        def product_at(position: Index) -> Scalar:
            c, k, j = first + position[0], position[1 : 1 + rank], position[1 + rank :]
            element = inputs[0]((n, c, *j)) * inputs[1]((c, column, *k))
            rows = zip(along, i, j, k, strict=True)
            return where(tuple(axis.meets(*here) for axis, *here in rows), element, ZERO)

        total = over_box(sum_over, (depth, *w[2:], *x[2:]), product_at)
        return total + inputs[2]((o,)) if len(inputs) == 3 else total

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, w = arrays[:2]
        group = attributes["group"]
        assert isinstance(group, int)
        along = self._axes([x.shape, w.shape], attributes)
        n, channels, *space = x.shape
        part = w.shape[1]
        rows = x.reshape(n, group, channels // group, prod(space)).swapaxes(2, 3)
        grouped = w.reshape(group, channels // group, *w.shape[1:])
        full = literals([axis.full + axis.output_padding for axis in along])
        assert full is not None, "the sizes of an array are numbers"
        y = np.zeros((n, group * part, *full), dtype=x.dtype)
        steps = integers(attributes, "strides"), integers(attributes, "dilations")
        for k in np.ndindex(*w.shape[2:]):
            added = np.matmul(rows, grouped[(slice(None),) * 3 + k])  # [n, group, *space, part]
            added = added.swapaxes(2, 3).reshape(n, group * part, *space)
            columns = zip(k, space, *steps, strict=True)
            y[
                (
                    slice(None),
                    slice(None),
                    *(slice(d * a, d * a + s * (m - 1) + 1, s) for a, m, s, d in columns),
                )
            ] += added
        pads = integers(attributes, "pads")
        ends = (m - p for m, p in zip(full, pads[len(space) :], strict=True))
        cut = tuple(slice(b, e) for b, e in zip(pads[: len(space)], ends, strict=True))
        y = y[(slice(None), slice(None), *cut)]
        if len(arrays) == 3:
            y = y + arrays[2].reshape(-1, *(1,) * len(space))
        return [y]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        bias = product(outputs[0]) if len(shapes) == 3 else 0
        return 2 * product(shapes[0]) * product(shapes[1][1:]) + bias

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        known = {*self.attributes, "auto_pad", "kernel_shape", "output_shape"}
        x, w = call.shapes[:2]
        if x is None or w is None or len(x) != len(w) or set(call.attributes) - known:
            return None
        rank = len(x) - 2
        if tuple(call.attributes.get("kernel_shape", w[2:])) != w[2:]:
            return None
        rows = {
            name: tuple(int(v) for v in call.attributes.get(name, [default] * rank))
            for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
        }
        if any(len(row) != rank for row in rows.values()):
            return None
        columns = zip(x[2:], w[2:], *rows.values(), strict=True)
        along = [Axis(n, k, 0, 0, s, d, padding) for n, k, s, d, padding in columns]
        pads = _resolve_pads(call.attributes, along)
        if pads is None:
            return None
        group = int(call.attributes.get("group", 1))
        found: dict[str, Attribute] = {"pads": pads, **rows, "group": group}
        return found, tuple(k for k, shape in enumerate(call.shapes) if shape is not None)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        call = super().to_onnx(attributes, shapes, opset)
        kernel = literals(shapes[1][2:])
        if call is None or kernel is None:
            return None
        plain: dict[str, Any] = {"kernel_shape": list(kernel), **call.attributes}
        return replace(call, attributes=plain)


def _resolve_pads(attributes: Mapping[str, Any], along: Sequence[Axis]) -> tuple[int, ...] | None:
    """The pads of a node whose axes are, without pads, `along`; None where they are not known."""
    rank = len(along)
    mode = attributes.get("auto_pad", "NOTSET") or "NOTSET"
    wanted = attributes.get("output_shape")
    if wanted is None and mode in ("NOTSET", "VALID"):
        given = attributes.get("pads", [0] * (2 * rank)) if mode == "NOTSET" else [0] * (2 * rank)
        return tuple(int(p) for p in given) if len(given) == 2 * rank else None
    if wanted is None:
        wanted = [axis.extent * axis.stride for axis in along]
    if len(wanted) != rank or mode not in ("NOTSET", "SAME_UPPER", "SAME_LOWER"):
        return None
    total = literals([axis.output - n for axis, n in zip(along, wanted, strict=True)])
    if total is None or min(total) < 0:
        return None
    less_half = tuple(n // 2 for n in total)
    more_half = tuple(n - n // 2 for n in total)
    return (*less_half, *more_half) if mode == "SAME_UPPER" else (*more_half, *less_half)
