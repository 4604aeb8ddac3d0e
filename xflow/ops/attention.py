"""Scaled dot-product attention, as one operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import cycle
from typing import ClassVar

import numpy as np

from xflow.core.arguments import declare, number, size
from xflow.core.composite import Composite, made, real, scaled
from xflow.core.constraint import at_least, equal
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
    Shape,
    register,
    require,
)
from xflow.core.size import Size, floor_divide
from xflow.core.sorts import BOOL, ELEMENT, REAL

HEADS_FIRST, HEADS_LAST = 4, 3
"""The ranks of [batch, heads, sequence, head size] and [batch, sequence, heads * head size]."""
BOUNDED = 1000
"""As many operations of its products take as long as the softcap of a score in the runtime's
kernel, which takes one hyperbolic tangent after the other, 8 ns each; `Tanh` takes several."""


NUMBERS_OF_HEADS = declare(
    q_num_heads=AttributeSpec(Kind.INT, 0), kv_num_heads=AttributeSpec(Kind.INT, 0)
)


@register
class Attention(Composite):
    """``softmax(scale * q @ transpose(k) + mask) @ v``, for each head of each batch.

    q [B, H, S, D], k [B, G, L, D], v [B, G, L, E] give [B, H, S, E]; or q [B, S, H * D],
    k [B, L, G * D], v [B, L, G * E] give [B, S, H * E], where `q_num_heads` is H and `kv_num_heads`
    is G, which are 0 otherwise. H is a multiple of G: head h reads the key and the value of head
    ``h // (H // G)`` (grouped queries). A mask is added to the scores; its last two axes are
    [S, L], those before them [B, H], where each may be 1 or be left out.

    ONNX also has masks that are broadcast along S or L or shorter than L, which ONNX Runtime's
    kernel refuses. These are not declared, nor the scores as an output; its softcap is
    `CappedAttention`, a mask of Booleans `MaskedAttention`, a causal one `CausalAttention`, and
    keys and values of the past are those of `CachedAttention`. The kernel takes neither a scale
    that is not positive nor empty inputs.
    """

    name = op_type = "Attention"
    role = "attention"
    since = 23
    arity = (3, 4)
    attributes = declare(scale=AttributeSpec(Kind.REAL), **NUMBERS_OF_HEADS)
    ignored = frozenset({"qk_matmul_output_mode"})
    mask: ClassVar[int | None] = 3
    narrow = True
    cached: ClassVar[bool] = False
    """Whether there are keys and values of the past, before the new ones."""
    causal: ClassVar[bool] = False
    """Whether a query has only the keys up to its own place, behind all of the past."""
    examples = tuple(
        Example(shapes, {"scale": scale, **heads})
        for scale, heads, *given in (
            (Fraction(1, 2), {}, (2, 3, 4, 2), (2, 3, 5, 2), (2, 3, 5, 3)),
            (Fraction(1), {}, (2, 2, 3, 2), (2, 2, 2, 2), (2, 2, 2, 1), (3, 2)),
            (Fraction(1), {}, (2, 2, 3, 2), (2, 2, 4, 2), (2, 2, 4, 2), (2, 3, 4)),
            (Fraction(1), {}, (2, 3, 3, 2), (2, 3, 2, 2), (2, 3, 2, 2), (2, 3, 3, 2)),
            (Fraction(1), {}, (2, 3, 3, 2), (2, 3, 2, 2), (2, 3, 2, 2), (2, 1, 3, 2)),
            (Fraction(1), {}, (2, 3, 3, 2), (2, 3, 2, 2), (2, 3, 2, 2), (1, 3, 3, 2)),
            (Fraction(1), {}, (2, 4, 3, 2), (2, 2, 2, 2), (2, 2, 2, 3), (2, 4, 3, 2)),
            (Fraction(3, 4), {}, (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
            (
                Fraction(1, 2), {"q_num_heads": 2, "kv_num_heads": 2},
                (2, 3, 4), (2, 5, 4), (2, 5, 6),
            ),
            (
                Fraction(1), {"q_num_heads": 2, "kv_num_heads": 2},
                (2, 3, 4), (2, 4, 4), (2, 4, 6), (2, 2, 3, 4),
            ),
            (
                Fraction(1), {"q_num_heads": 4, "kv_num_heads": 2},
                (2, 3, 8), (2, 2, 4), (2, 2, 2), (3, 2),
            ),
        )
        for shapes in (tuple(given),)
    )  # fmt: skip

    @property
    def traits(self) -> frozenset[str]:
        """In what it differs from `Attention`: `cached`, `causal`, and `chosen` where a mask of
        Booleans says which keys count; and the names of its further real numbers, as `softcap`.
        """
        has = {"cached": self.cached, "causal": self.causal, "chosen": BOOL in self.takes}
        reals = {name for name, spec in self.attributes.items() if spec.kind is Kind.REAL}
        return frozenset(name for name, holds in has.items() if holds) | (reals - {"scale"})

    def canonical(self, attributes: Attributes, shapes: Sequence[Shape]) -> Attributes:
        if len(shapes[0]) != HEADS_FIRST:
            return attributes
        return {**attributes, "q_num_heads": 0, "kv_num_heads": 0}

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        q, k, v, *masks = (self._with_heads(attributes, *item, need) for item in enumerate(shapes))
        for a, b, what in (
            (q[0], k[0], "batches of queries and keys"),
            (q[0], v[0], "batches of queries and values"),
            (k[1], v[1], "heads of keys and values"),
            (k[2], v[2], "lengths of keys and values"),
            (q[3], k[3], "sizes of the heads of queries and keys"),
        ):
            need(equal(a, b), f"{a} and {b} differ: the {what} of Attention")
        if q[1] != k[1]:
            need(at_least(k[1], 1), "Attention without heads")
            groups = floor_divide(q[1], k[1])
            need(equal(q[1], groups * k[1]), f"{q[1]} heads do not share {k[1]} heads of keys")
        for mask in masks:
            require(2 <= len(mask) <= HEADS_FIRST, f"an attention mask of rank {len(mask)}")
            scores = (q[0], q[1], q[2], k[2])[-len(mask) :]
            for place, (n, m) in enumerate(zip(mask, scores, strict=True), -len(mask)):
                if place >= -2 or n != 1:
                    need(equal(n, m), f"an attention mask of {n} for an extent of {m}")

    def _with_heads(
        self, attributes: Attributes, position: int, shape: Shape, need: Need | None = None
    ) -> Shape:
        """The shape [batch, heads, sequence, head size] of an input; that of a mask as it is."""
        if position > 2 or len(shape) == HEADS_FIRST:
            return shape
        require(len(shape) == HEADS_LAST, f"Attention on inputs of rank {len(shape)}")
        heads = size(attributes, "kv_num_heads" if position else "q_num_heads")
        require(heads != 0, "Attention on inputs of rank 3 needs the numbers of heads")
        part = floor_divide(shape[2], heads)
        if need is not None:
            need(at_least(heads, 1), f"Attention with {heads} heads")
            need(equal(shape[2], heads * part), f"{shape[2]} does not divide into {heads} heads")
        return (shape[0], heads, shape[1], part)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        q, k, v = shapes[:3]
        require(len(q) == len(k) == len(v), f"the inputs of {self.name} differ in rank")
        require(len(q) in (HEADS_LAST, HEADS_FIRST), f"{self.name} on inputs of rank {len(q)}")
        self.check(self._joined(shapes, attributes, need), attributes, need)
        batch, heads, length, _ = self._with_heads(attributes, 0, q)
        part = self._with_heads(attributes, 2, v)[3]
        if len(q) == HEADS_FIRST:
            return [(batch, heads, length, part)]
        return [(batch, length, heads * part)]

    def _joined(
        self, shapes: Sequence[Shape], attributes: Attributes, need: Need | None = None
    ) -> Sequence[Shape]:
        """The shapes of the queries, of all keys and values, and of the mask."""
        return shapes

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        q, k, v = self._by_heads(inputs, attributes)
        if q.shape[1] != k.shape[1]:
            k, v = (_shared(value, q.shape[1]) for value in (k, v))
        scores = made("MatMul", q, made("Transpose", k, perm=(0, 1, 3, 2)))
        scores = self._bounded(scaled(real(attributes, "scale"), scores), attributes)
        return (laid_as(inputs[0], made("MatMul", self._weights(scores, inputs[3:]), v)),)

    def _by_heads(self, inputs: Sequence[Value], attributes: Attributes) -> Iterator[Value]:
        """Queries, keys and values as [batch, heads, sequence, head size]."""
        for position, value in enumerate(inputs[:3]):
            yield self._heads_first(value, self._with_heads(attributes, position, value.shape))

    def _bounded(self, scores: Value, attributes: Attributes) -> Value:
        """Scaled scores as the mask is added to them."""
        return scores

    def _weights(self, scores: Value, masks: Sequence[Value]) -> Value:
        """The weights of values, from scores and a mask, if there is one."""
        return made("Softmax", made("Add", scores, masks[0]) if masks else scores, axis=3)

    def _heads_first(self, value: Value, shape: Shape) -> Value:
        if len(value.shape) == HEADS_FIRST:
            return value
        batch, heads, length, part = shape
        split = made("Reshape", value, shape=(batch, length, heads, part))
        return made("Transpose", split, perm=(0, 2, 1, 3))

    def hides(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[int, ...]:
        """A row that scores and mask make -inf throughout gets weights of 0 instead of NaN."""
        return tuple(k for k in range(len(shapes)) if k != 2)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        (q, k, v), masks = arrays_by_heads(arrays, attributes), arrays[3:]
        batch, heads, length, _ = q.shape
        groups, times = k.shape[1], heads // max(1, k.shape[1])
        grouped = q.reshape(batch, groups, times, *q.shape[2:])
        scores = np.matmul(grouped, k[:, :, None].swapaxes(3, 4)) * number(attributes["scale"], q)
        scores = self._bounded_arrays(scores, attributes)
        scores = self._added(scores.reshape(batch, heads, length, k.shape[2]), masks)
        largest = scores.max(axis=3, keepdims=True, initial=-np.inf)
        with np.errstate(invalid="ignore"):  # of a row that is -inf throughout
            powers = np.exp(scores - largest)
            weights = powers / powers.sum(axis=3, keepdims=True)
        weights = np.where(np.isneginf(largest), np.zeros_like(weights), weights)
        weights = weights.reshape(batch, groups, times, length, k.shape[2])
        y = np.matmul(weights, v[:, :, None]).reshape(batch, heads, length, v.shape[3])
        return [array_laid_as(arrays[0], y)]

    def _bounded_arrays(self, scores: Array, attributes: Attributes) -> Array:
        return scores

    def _added(self, scores: Array, masks: Sequence[Array]) -> Array:
        """Scores with a mask, if there is one: -inf where a key does not count."""
        return np.asarray(sum(masks, start=scores))

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        batch, heads, length, part = self._with_heads(attributes, 0, shapes[0])
        _, _, other, width = self._with_heads(attributes, 2, shapes[2])
        added = len(shapes) - 3  # a mask, to each score
        return batch * heads * length * other * (2 * (part + width) + added)

    def tasks(self, shapes: Sequence[Shape], attributes: Attributes) -> Size | None:
        batch, heads, *_ = self._with_heads(attributes, 0, shapes[0])
        return batch * heads

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        q = call.shapes[0]
        if q is None or any(shape is not None for shape in call.shapes[4:]):
            return None
        read = super().from_onnx(call)
        if read is None:
            return None
        attributes, _ = read
        if "scale" not in attributes:
            part = self._with_heads(attributes, 0, q)[3]
            if not isinstance(part, int) or part < 1:
                return None
            attributes["scale"] = Fraction(float(np.float32(1 / np.sqrt(part))))
        return read if self.has_form(attributes) else None

    def has_form(self, attributes: Attributes) -> bool:
        return _is_positive(attributes["scale"])

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        if not self.has_form(attributes):
            return None
        written = self.canonical(attributes, shapes)
        plain = {key: value for key, value in written.items() if value != 0}
        return super().to_onnx(plain, shapes, opset)


@register
class CappedAttention(Attention):
    """``softmax(c * tanh(scale * q @ transpose(k) / c) + mask) @ v``, where c is `softcap`.

    Shapes, heads and masks are those of `Attention`. The cap comes before the mask, as ONNX has
    specified since onnx/onnx#7867, and ONNX Runtime computes since the version that this package
    needs: behind it, -inf in a mask would become -c. ONNX has no softcap that is not positive, and
    the runtime takes a negative one for none.
    """

    name = "CappedAttention"
    attributes = declare(
        scale=AttributeSpec(Kind.REAL), softcap=AttributeSpec(Kind.REAL), **NUMBERS_OF_HEADS
    )
    examples = tuple(
        replace(example, attributes={**example.attributes, "softcap": softcap})
        for example, softcap in zip(
            Attention.examples, cycle((Fraction(1), Fraction(3), Fraction(1, 2)))
        )
    )

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        batch, heads, length, _ = self._with_heads(attributes, 0, shapes[0])
        scores = batch * heads * length * self._with_heads(attributes, 1, shapes[1])[2]
        return super().flops(shapes, attributes, outputs) + BOUNDED * scores

    def _bounded(self, scores: Value, attributes: Attributes) -> Value:
        softcap = real(attributes, "softcap")
        return made("Mul", made("Tanh", made("Div", scores, softcap)), softcap)

    def _bounded_arrays(self, scores: Array, attributes: Attributes) -> Array:
        softcap = number(attributes["softcap"], scores)
        return np.asarray(np.tanh(scores / softcap) * softcap)

    def has_form(self, attributes: Attributes) -> bool:
        return super().has_form(attributes) and _is_positive(attributes.get("softcap"))


@register
class MaskedAttention(Attention):
    """``p / sum(p) @ v`` with ``p = where(mask, e, 0 * e)``, ``e = exp(scale * q @ transpose(k))``.

    Shapes, heads and masks are those of `Attention`, but that the mask is there, and says of which
    keys the values are averaged. The runtime's kernel adds the least float to the other scores, and
    gives zeros where there is no key that counts. It does not take those out: a NaN in a key makes
    the result NaN wherever it is. With a softcap, it is `CappedMaskedAttention`.
    """

    name = "MaskedAttention"
    arity = (4, 4)
    takes: ClassVar[tuple[str, ...]] = (ELEMENT, ELEMENT, ELEMENT, BOOL)
    mask = None
    examples = tuple(
        replace(example, types=(REAL, REAL, REAL, BOOL))
        for example in Attention.examples
        if len(example.shapes) > 3
    )

    def _weights(self, scores: Value, masks: Sequence[Value]) -> Value:
        powers = made("Exp", scores)
        powers = made("Where", masks[0], powers, made("Mul", powers, 0))
        return made("Div", powers, made("ReduceSum", powers, axes=(3,)))

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range | None:
        """The kernel takes the largest score off, so that no exponential overflows.

        Where no key counts, it gives zeros. With a scale beyond 1, scores may overflow.
        """
        most, scale = floats.moderate, attributes["scale"]
        given = inputs[:-1]  # all but the mask
        if most is None or not all(x.is_real and x.within(most) for x in given):
            return None
        if not isinstance(scale, Fraction) or abs(scale) > 1:
            return None
        return Range(-most, most)

    def _added(self, scores: Array, masks: Sequence[Array]) -> Array:
        counts = masks[0].astype(bool)
        added = np.where(counts, 0, -np.inf).astype(scores.dtype)
        return np.where(counts.any(axis=-1, keepdims=True), scores + added, added)


@register
class CappedMaskedAttention(MaskedAttention, CappedAttention):
    """`MaskedAttention` of the scores ``c * tanh(scale * q @ transpose(k) / c)``, c a softcap."""

    name = "CappedMaskedAttention"
    examples = tuple(
        replace(example, attributes={**example.attributes, "softcap": Fraction(3, 2)})
        for example in MaskedAttention.examples[::2]
    )


def laid_as(queries: Value, y: Value) -> Value:
    """A result [batch, heads, sequence, head size], in rows where the queries are."""
    if len(queries.shape) == HEADS_FIRST:
        return y
    batch, heads, length, part = y.shape
    y = made("Transpose", y, perm=(0, 2, 1, 3))
    return made("Reshape", y, shape=(batch, length, heads * part))


def arrays_by_heads(arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
    """Arrays of queries, keys and values as [batch, heads, sequence, head size]."""
    if arrays[0].ndim == HEADS_FIRST:
        return list(arrays[:3])
    queries, keys = attributes["q_num_heads"], attributes["kv_num_heads"]
    assert isinstance(queries, int)
    assert isinstance(keys, int)
    return [
        x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)
        for x, heads in zip(arrays, (queries, keys, keys), strict=False)
    ]


def array_laid_as(queries: Array, y: Array) -> Array:
    """As `laid_as`, of arrays."""
    if queries.ndim == HEADS_FIRST:
        return y
    batch, heads, length, part = y.shape
    return y.swapaxes(1, 2).reshape(batch, length, heads * part)


def _is_positive(attribute: Attribute | None) -> bool:
    return isinstance(attribute, Fraction) and attribute > 0


def _shared(value: Value, heads: Size) -> Value:
    """Keys or values [B, G, L, D] as [B, heads, L, D], each ``heads // G`` times in a row."""
    batch, groups, length, part = value.shape
    times = floor_divide(heads, groups)
    rows = made("Unsqueeze", value, axes=(2,))
    rows = made("Expand", rows, shape=(batch, groups, times, length, part))
    return made("Reshape", rows, shape=(batch, groups * times, length, part))
