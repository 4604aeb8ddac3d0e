"""Convolution over one to three axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from xflow.core.arguments import declare, divisor, literals, size
from xflow.core.constraint import Constraint, at_least, equal
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
from xflow.ops.window import Window, patches, repeated, resolve_pads


@register
class Conv(Operator):
    """Convolution of x [N, C, *S] with w [O, C/group, *K], and a bias [O].

    ``y[n, o, *i] = b[o] + sum_(c, k) w[o, c, *k] * x[n, o // (O/group) * C/group + c, *p]`` at
    the positions p where output and kernel positions meet, where these lie in x.
    """

    name = op_type = "Conv"
    role = "convolution"
    arity = (2, 3)
    attributes = declare(
        pads=AttributeSpec(Kind.INTS, repeated(0, 2)),
        strides=AttributeSpec(Kind.INTS, repeated(1)),
        dilations=AttributeSpec(Kind.INTS, repeated(1)),
        group=AttributeSpec(Kind.INT, 1),
    )
    examples: ClassVar[Sequence[Example]] = (
        Example(((1, 2, 4, 3), (3, 2, 2, 2))),
        Example(((1, 2, 3, 3), (2, 2, 3, 3), (2,)), {"pads": (1, 1, 1, 1)}),
        Example(((2, 2, 3, 4), (2, 2, 1, 1))),
        Example(((1, 1, 5, 4), (2, 1, 2, 3)), {"pads": (0, 1, 2, 0), "strides": (2, 1)}),
        Example(((1, 2, 4, 4), (4, 1, 2, 2), (4,)), {"group": 2, "strides": (2, 2)}),
        Example(((1, 3, 3, 3), (3, 1, 3, 3)), {"group": 3, "pads": (1, 1, 1, 1)}),
        Example(((1, 4, 2, 2), (2, 2, 1, 2)), {"group": 2, "pads": (0, 0, 0, 1)}),
        Example(((2, 2, 5), (3, 2, 2), (3,)), {"dilations": (3,), "pads": (1, 0)}),
        Example(((1, 1, 1), (1, 1, 2)), {"pads": (2, 1), "strides": (3,)}),
        Example(((1, 1, 3, 2, 3), (2, 1, 2, 1, 2)), {"pads": (0, 1, 0, 1, 0, 0)}),
        Example(((1, 2, 2, 2, 2), (2, 1, 2, 2, 1)), {"group": 2, "strides": (1, 2, 1)}),
    )

    def _window(self, shapes: Sequence[Shape], attributes: Attributes) -> Window:
        return Window.of(shapes[0], shapes[1][2:], attributes)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        x, w = shapes[:2]
        require(3 <= len(x) <= 5, f"Conv takes 1 to 3 spatial axes, not {len(x) - 2}")
        require(len(w) == len(x), f"a kernel of rank {len(w)} for an input of rank {len(x)}")
        group = size(attributes, "group")
        need(at_least(group, 1), f"Conv in {group} groups")
        need(equal(group * w[1], x[1]), f"{group} groups of {w[1]} channels are not {x[1]}")
        need(equal(w[0] % group, 0), f"{w[0]} output channels do not divide into {group} groups")
        for b in shapes[2:]:
            require(len(b) == 1, "the bias of Conv is a vector")
            need(equal(b[0], w[0]), f"{b[0]} biases for {w[0]} channels")
        window = self._window(shapes, attributes)
        window.check(need)
        return [(x[0], w[0], *window.output)]

    def demanded(self, shapes: Sequence[Shape], attributes: Attributes) -> Sequence[Constraint]:
        return [axis.fits for axis in self._window(shapes, attributes).axes]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        window, w, group = self._window(shapes, attributes), shapes[1], size(attributes, "group")
        n, o, *i = index
        first = 0 if group == 1 else o // divisor(w[0] // group) * w[1]

        def product_at(k: Index) -> Scalar:
            c, *offset = k
            here = window.positions(tuple(i), tuple(offset))
            element = inputs[0]((n, first + c, *here))
            # The padding is multiplied, too: a weight that is not defined leaves no output defined.
            return where(window.guards(tuple(i), tuple(offset)), element, ZERO) * inputs[1]((o, *k))

        total = over_box(sum_over, w[1:], product_at)
        return total + inputs[2]((o,)) if len(inputs) == 3 else total

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, w = arrays[:2]
        group = attributes["group"]
        assert isinstance(group, int)
        rank = x.ndim - 2
        covered = patches(x, w.shape[2:], attributes, 0)
        n, out = x.shape[0], covered.shape[2 : 2 + rank]
        depth, part = prod(w.shape[1:]), w.shape[0] // group
        rows = covered.reshape(n, group, w.shape[1], *out, *w.shape[2:])
        # [group, (n, *out), (c, *k)] @ [group, (c, *k), o]: one matrix product a group
        rows = rows.transpose(
            (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
        ).reshape(group, n * prod(out), depth)
        columns = w.reshape(group, part, depth)
        y = np.matmul(rows, columns.transpose(0, 2, 1))
        y = y.reshape(group, n, *out, part).transpose((1, 0, 2 + rank, *range(2, 2 + rank)))
        y = y.reshape(n, w.shape[0], *out)
        if len(arrays) == 3:
            y = y + arrays[2].reshape(-1, *(1,) * rank)
        return [y]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return product(outputs[0]) * (2 * product(shapes[1][1:]) + len(shapes) - 2)

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        known = {*self.attributes, "auto_pad", "kernel_shape"}
        x, w = call.shapes[:2]
        if x is None or w is None or len(x) != len(w) or set(call.attributes) - known:
            return None
        rank = len(x) - 2
        kernel = w[2:]
        if tuple(call.attributes.get("kernel_shape", kernel)) != kernel:
            return None
        strides = tuple(call.attributes.get("strides", [1] * rank))
        dilations = tuple(call.attributes.get("dilations", [1] * rank))
        if len(strides) != rank or len(dilations) != rank:
            return None
        pads = resolve_pads(call.attributes, x, kernel, strides, dilations)
        if pads is None:
            return None
        found: dict[str, Attribute] = {
            "pads": pads,
            "strides": strides,
            "dilations": dilations,
            "group": int(call.attributes.get("group", 1)),
        }
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
