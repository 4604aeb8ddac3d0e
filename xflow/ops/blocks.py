"""SpaceToDepth and DepthToSpace: blocks of pixels moved into channels, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xflow.core.arguments import declare, size, word
from xflow.core.composite import Composite
from xflow.core.constraint import at_least, equal
from xflow.core.node import Value, apply
from xflow.core.registry import (
    Array,
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
from xflow.core.size import Size

BLOCKSIZE = AttributeSpec(Kind.INT)


class Blocks(Composite):
    """A rearrangement of x [N, C, H, W] in blocks of `blocksize` by `blocksize`."""

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        require(len(shapes[0]) == 4, f"{self.name} takes four axes, not {len(shapes[0])}")
        need(at_least(size(attributes, "blocksize"), 1), f"{self.name} in blocks of no extent")

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 0


@register
class DepthToSpace(Blocks):
    """[N, b*b*C, H, W] as [N, C, b*H, b*W], with ``b = blocksize``.

    Input channels count (row in the block, column, channel) in the mode DCR and (channel, row,
    column) in the mode CRD.
    """

    name = op_type = "DepthToSpace"
    attributes = declare(blocksize=BLOCKSIZE, mode=AttributeSpec(Kind.TEXT, "DCR"))
    examples = (
        Example(((2, 8, 2, 3),), {"blocksize": 2}),
        Example(((2, 4, 1, 2),), {"blocksize": 2}),
        Example(((2, 8, 2, 3),), {"blocksize": 2, "mode": "CRD"}),
        Example(((2, 9, 2, 1),), {"blocksize": 3, "mode": "CRD"}),
        Example(((1, 3, 2, 2),), {"blocksize": 1}),
    )

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        super().check(shapes, attributes, need)
        channels, b = shapes[0][1], size(attributes, "blocksize")
        need(equal(channels % (b * b), 0), f"{channels} channels make no blocks of {b} by {b}")
        word(attributes, "mode", ("DCR", "CRD"))

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        n, channels, *space = inputs[0].shape
        b = size(attributes, "blocksize")
        c = channels // (b * b)
        if word(attributes, "mode", ("DCR", "CRD")) == "DCR":
            split, perm = (n, b, b, c, *space), (0, 3, 4, 1, 5, 2)
        else:
            split, perm = (n, c, b, b, *space), (0, 1, 4, 2, 5, 3)
        moved = apply("Transpose", apply("Reshape", inputs, {"shape": split}), {"perm": perm})
        return apply("Reshape", moved, {"shape": (n, c, space[0] * b, space[1] * b)})

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        n, channels, h, w = arrays[0].shape
        b = attributes["blocksize"]
        assert isinstance(b, int)
        result = np.empty((n, channels // (b * b), h * b, w * b), dtype=arrays[0].dtype)
        depth = channels // (b * b)
        for row, column in np.ndindex(b, b):
            place = row * b + column
            dcr = attributes["mode"] == "DCR"
            taken = slice(place * depth, (place + 1) * depth) if dcr else slice(place, None, b * b)
            result[:, :, row::b, column::b] = arrays[0][:, taken]
        return [result]

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        call = super().to_onnx(attributes, shapes, opset)
        if call is None or opset >= 11:
            return call
        # There was one mode, without a name, before opset 11.
        plain = {key: value for key, value in call.attributes.items() if key != "mode"}
        return replace(call, attributes=plain) if attributes["mode"] == "DCR" else None


@register
class SpaceToDepth(Blocks):
    """[N, C, b*H, b*W] as [N, b*b*C, H, W]: channels count (row in the block, column, channel)."""

    name = op_type = "SpaceToDepth"
    attributes = declare(blocksize=BLOCKSIZE)
    examples = (
        Example(((2, 3, 4, 6),), {"blocksize": 2}),
        Example(((2, 1, 3, 6),), {"blocksize": 3}),
        Example(((1, 2, 2, 2),), {"blocksize": 2}),
        Example(((1, 3, 2, 1),), {"blocksize": 1}),
    )

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        super().check(shapes, attributes, need)
        b = size(attributes, "blocksize")
        for n in shapes[0][2:]:
            need(equal(n % b, 0), f"an extent of {n} is not made of blocks of {b}")

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        n, c, height, width = inputs[0].shape
        b = size(attributes, "blocksize")
        h, w = height // b, width // b
        split = {"shape": (n, c, h, b, w, b)}
        moved = apply("Transpose", apply("Reshape", inputs, split), {"perm": (0, 3, 5, 1, 2, 4)})
        return apply("Reshape", moved, {"shape": (n, b * b * c, h, w)})

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        b = attributes["blocksize"]
        assert isinstance(b, int)
        places = np.ndindex(b, b)
        return [np.concatenate([arrays[0][:, :, r::b, c::b] for r, c in places], axis=1)]
