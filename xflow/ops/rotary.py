"""Rotary position embedding: rotates pairs of each head's elements by angles of their position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from xflow.core.arguments import declare, size
from xflow.core.composite import Composite, made
from xflow.core.constraint import at_least, equal
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
    Shape,
    register,
    require,
)
from xflow.core.size import Size, product

HEADS_FIRST, HEADS_LAST = 4, 3
"""The ranks of [batch, heads, sequence, head size] and [batch, sequence, heads * head size]."""


@register
class RotaryEmbedding(Composite):
    """``[a * cos - b * sin, b * cos + a * sin]``, where a and b are the halves of each head.

    x is [B, H, S, D], or [B, S, H * D] with `num_heads` H, which is 0 otherwise; cosines and sines
    are [B, S, D / 2]. D is even. After Su et al., RoFormer (2021), with halves in the place of
    neighbours, as most models have it.

    ONNX also has rotations of a part of a head, and positions that select from tables. These are
    not declared; its interleaved pairs are `InterleavedRotaryEmbedding`.
    """

    name = op_type = "RotaryEmbedding"
    role = "rotation"
    since = 23
    arity = (3, 3)
    attributes = declare(num_heads=AttributeSpec(Kind.INT, 0))
    ignored = frozenset({"interleaved", "rotary_embedding_dim"})
    examples = (
        Example(((2, 3, 4, 6), (2, 4, 3), (2, 4, 3))),
        Example(((1, 1, 1, 2), (1, 1, 1), (1, 1, 1))),
        Example(((2, 3, 8), (2, 3, 2), (2, 3, 2)), {"num_heads": 2}),
        Example(((1, 5, 12), (1, 5, 2), (1, 5, 2)), {"num_heads": 3}),
    )

    def canonical(self, attributes: Attributes, shapes: Sequence[Shape]) -> Attributes:
        return {**attributes, "num_heads": 0} if len(shapes[0]) == HEADS_FIRST else attributes

    def _with_heads(self, attributes: Attributes, shapes: Sequence[Shape]) -> Shape:
        """The shape [batch, heads, sequence, head size] of the input."""
        x, cos, *_ = shapes
        require(len(cos) == HEADS_LAST, f"angles of rank {len(cos)}")
        if len(x) == HEADS_FIRST:
            return x
        require(len(x) == HEADS_LAST, f"RotaryEmbedding of an input of rank {len(x)}")
        heads = size(attributes, "num_heads")
        require(heads != 0, "RotaryEmbedding of an input of rank 3 needs the number of heads")
        return (x[0], heads, x[1], 2 * cos[2])

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        x, cos, sin = shapes
        batch, heads, length, part = self._with_heads(attributes, shapes)
        if len(x) == HEADS_LAST:
            need(at_least(heads, 1), f"RotaryEmbedding of {heads} heads")
            need(equal(x[2], heads * part), f"{heads} heads of {part} are not {x[2]}")
        need(equal(part, 2 * cos[2]), f"{cos[2]} angles for heads of {part}")
        require(len(sin) == HEADS_LAST, f"angles of rank {len(sin)}")
        for n, m, k in zip(cos, sin, (batch, length, cos[2]), strict=True):
            need(equal(n, k), f"cosines of {n} for an extent of {k}")
            need(equal(m, k), f"sines of {m} for an extent of {k}")
        return [x]

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        x, *angles = inputs
        shapes = [value.shape for value in inputs]
        batch, heads, length, part = self._with_heads(attributes, shapes)
        if len(x.shape) == HEADS_LAST:
            x = made("Reshape", x, shape=(batch, length, heads, part))
            x = made("Transpose", x, perm=(0, 2, 1, 3))
        first, second = self._apart(x, angles[0].shape[2])
        cos, sin = (made("Unsqueeze", angle, axes=(1,)) for angle in angles)
        y = self._together(
            made("Sub", made("Mul", first, cos), made("Mul", second, sin)),
            made("Add", made("Mul", second, cos), made("Mul", first, sin)),
        )
        if len(inputs[0].shape) == HEADS_FIRST:
            return (y,)
        y = made("Transpose", y, perm=(0, 2, 1, 3))
        return (made("Reshape", y, shape=(batch, length, heads * part)),)

    def _apart(self, x: Value, half: Size) -> tuple[Value, Value]:
        """The first and the second elements of all pairs of x [B, H, S, 2 * half]."""
        first = made("Slice", x, starts=(0,), ends=(half,), axes=(3,), steps=(1,))
        second = made("Slice", x, starts=(half,), ends=(2 * half,), axes=(3,), steps=(1,))
        return first, second

    def _together(self, first: Value, second: Value) -> Value:
        """The tensor of which these are apart."""
        return made("Concat", first, second, axis=3)

    pairs_axis: ClassVar[int] = -2
    """The axis along which a head's elements, as a matrix of pairs, have the two of each pair."""

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        x, cos, sin = arrays
        if x.ndim == HEADS_LAST:
            heads = attributes["num_heads"]
            assert isinstance(heads, int)
            whole = x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
            cos, sin = cos[:, :, None], sin[:, :, None]
        else:
            whole, cos, sin = x, cos[:, None], sin[:, None]
        matrix = [whole.shape[3] // 2] * 2
        matrix[self.pairs_axis] = 2
        pairs = np.moveaxis(whole.reshape(*whole.shape[:3], *matrix), self.pairs_axis, 0)
        first, second = pairs
        turned = [first * cos - second * sin, second * cos + first * sin]
        return [np.stack(turned, axis=self.pairs_axis).reshape(x.shape)]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 3 * product(outputs[0])

    interleaved: ClassVar[int] = 0
    """ONNX's attribute of that name."""

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        if call.attributes.get("interleaved", 0) != self.interleaved:
            return None
        if call.attributes.get("rotary_embedding_dim", 0):
            return None
        if any(shape is not None for shape in call.shapes[3:]):
            return None
        return super().from_onnx(call)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        heads = self.canonical(attributes, shapes)["num_heads"]
        call = super().to_onnx({} if heads == 0 else {"num_heads": heads}, shapes, opset)
        if call is None or not self.interleaved:
            return call
        return replace(call, attributes={**call.attributes, "interleaved": self.interleaved})


@register
class InterleavedRotaryEmbedding(RotaryEmbedding):
    """`RotaryEmbedding` of neighbours: elements 2i and 2i + 1 of a head are turned by angle i."""

    name = "InterleavedRotaryEmbedding"
    interleaved = 1
    pairs_axis = -1

    def _apart(self, x: Value, half: Size) -> tuple[Value, Value]:
        first = made("Slice", x, starts=(0,), ends=(2 * half,), axes=(3,), steps=(2,))
        second = made("Slice", x, starts=(1,), ends=(2 * half,), axes=(3,), steps=(2,))
        return first, second

    def _together(self, first: Value, second: Value) -> Value:
        columns = (made("Unsqueeze", part, axes=(4,)) for part in (first, second))
        batch, heads, length, half = first.shape
        shape = (batch, heads, length, 2 * half)
        return made("Reshape", made("Concat", *columns, axis=4), shape=shape)
