"""Attention with keys and values of the past, and causal attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from xflow.core.composite import made
from xflow.core.constraint import equal
from xflow.core.node import Value, apply
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    Example,
    Need,
    OnnxCall,
    Shape,
    operator,
    register,
    require,
)
from xflow.core.size import Size
from xflow.core.sorts import BOOL, ELEMENT, REAL
from xflow.ops.attention import (
    HEADS_FIRST,
    Attention,
    CappedAttention,
    CappedMaskedAttention,
    MaskedAttention,
    array_laid_as,
    arrays_by_heads,
    laid_as,
)

PAST = (3, 4)
"""The inputs that are keys and values of the past, [B, G, P, D] and [B, G, P, E]."""
GIVEN = (0, 1, 2, 4, 5, 3)
"""The positions of queries, keys, values, keys and values of the past and a mask among ONNX's."""


class DerivedAttention(Attention):
    """Attention that is another one, with keys, values and a mask that are made for it.

    It is declared by its traits: `cached`, `causal`, and by the base class whose mask and softcap
    it has, which is `Attention` where no other is named. Its name is that of its class.

    The runtime has one kernel for all of them, which makes of NaN and infinities what it makes of
    them where these are inputs.
    """

    as_defined = True
    plain: ClassVar[type[Attention]]
    """The attention that it is."""

    def __init_subclass__(cls, cached: bool = False, causal: bool = False) -> None:
        super().__init_subclass__()
        like = next(
            base
            for base in cls.__mro__
            if issubclass(base, Attention) and not issubclass(base, DerivedAttention)
        )
        choosing = (MaskedAttention, CappedMaskedAttention)
        masked = issubclass(like, MaskedAttention)
        may_be_masked = not masked and not causal
        given = PAST[1] + 1 if cached else PAST[0]
        cls.name = cls.__name__
        cls.cached, cls.causal = cached, causal
        cls.plain = next(each for each in choosing if issubclass(each, like)) if causal else like
        cls.arity = (given + masked, given + masked + may_be_masked)
        cls.takes = (*[ELEMENT] * given, BOOL) if masked else like.takes
        cls.mask = given if may_be_masked else None
        if "examples" not in cls.__dict__:
            examples = tuple(e for e in like.examples if masked or not causal or len(e.shapes) == 3)
            cls.examples = _cached(examples) if cached else examples

    def _joined(
        self, shapes: Sequence[Shape], attributes: Attributes, need: Need | None = None
    ) -> tuple[Shape, ...]:
        """The shapes of the queries, all keys and values by heads, and of the mask."""
        q, *given = shapes[:3]
        k, v = (
            self._with_heads(attributes, position, shape, need)
            for position, shape in enumerate(given, 1)
        )
        if not self.cached:
            return (q, k, v, *shapes[3:])
        joined = []
        for shape, past in zip((k, v), shapes[3:5], strict=True):
            require(len(past) == HEADS_FIRST, f"keys or values of the past of rank {len(past)}")
            joined.append((*shape[:2], past[2] + shape[2], shape[3]))
            if need is None:
                continue
            for axis in (0, 1, 3):
                text = f"{past[axis]} and {shape[axis]} differ: what is past, and what is new"
                need(equal(past[axis], shape[axis]), text)
        if need is not None:
            lengths = [shape[2] for shape in shapes[3:5]]
            need(equal(*lengths), f"{lengths[0]} past keys, and {lengths[1]} past values")
        return (q, *joined, *shapes[5:])

    def work(
        self, shapes: Sequence[Shape], attributes: Attributes
    ) -> tuple[str, tuple[Shape, ...]]:
        """That of the attention on all keys and values; copying the past is not counted."""
        if self.causal or not self.cached:
            return super().work(shapes, attributes)
        return self.plain.name, self._joined(shapes, attributes)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        y = super().shape(shapes, attributes, need)
        return [*y, *self._joined(shapes, attributes)[1:3]] if self.cached else y

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        q, k, v = self._by_heads(inputs, attributes)
        masks = inputs[3:]
        if self.cached:
            k, v = (
                made("Concat", past, new, axis=2)
                for past, new in zip(inputs[3:5], (k, v), strict=True)
            )
            masks = inputs[5:]
        if self.causal:
            triangle: dict[str, Attribute] = {
                "shape": (q.shape[2], k.shape[2]),
                "offset": inputs[PAST[0]].shape[2] if self.cached else 0,
            }
            before = apply("LowerTriangle", (), triangle)
            masks = [made("And", *masks, *before)] if masks else before
        kept = {key: attributes[key] for key in self.plain.attributes if "heads" not in key}
        y = laid_as(inputs[0], made(self.plain.name, q, k, v, *masks, **kept))
        return (y, k, v) if self.cached else (y,)

    def hides(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[int, ...]:
        values = (2, PAST[1]) if self.cached else (2,)
        return tuple(k for k in range(len(shapes)) if k not in values)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        (q, k, v), masks = arrays_by_heads(arrays, attributes), arrays[3:]
        past = 0
        if self.cached:
            past = arrays[PAST[0]].shape[2]
            k, v = (np.concatenate(pair, axis=2) for pair in zip(arrays[3:5], (k, v), strict=True))
            masks = arrays[5:]
        if self.causal:
            before = np.tri(q.shape[2], k.shape[2], past, dtype=bool)
            masks = [np.logical_and(before, *masks) if masks else before]
        alone = {**attributes, "q_num_heads": 0, "kv_num_heads": 0}
        (y,) = operator(self.plain.name).numpy([q, k, v, *masks], alone)
        y = array_laid_as(arrays[0], y)
        return [y, k, v] if self.cached else [y]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return super().flops(self._joined(shapes, attributes), attributes, outputs)

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        given = dict(call.attributes)
        if given.pop("is_causal", 0) != self.causal:
            return None
        positions = GIVEN if self.cached else (0, 1, 2, 3)
        shapes = (*call.shapes, *[None] * len(GIVEN))
        taken = tuple(k for k in positions if shapes[k] is not None)
        if self.cached and not {4, 5} <= {*taken}:
            return None
        if any(shape is not None for k, shape in enumerate(call.shapes) if k not in taken):
            return None
        row = tuple(shapes[k] for k in taken[:3])
        read = super().from_onnx(replace(call, attributes=given, shapes=row))
        return None if read is None else (read[0], taken)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        call = super().to_onnx(attributes, shapes, opset)
        if call is None:
            return None
        given = {**call.attributes, "is_causal": 1} if self.causal else call.attributes
        positions = GIVEN[: len(shapes)] if self.cached else ()
        return replace(call, attributes=given, positions=positions)


def _cached(examples: Sequence[Example]) -> tuple[Example, ...]:
    """Examples of an attention with the first two keys and values as those of the past."""
    found = []
    for example in examples:
        q, k, v, *masks = example.shapes
        heads = example.attributes.get("kv_num_heads", 0)
        shapes = []
        for shape in (k, v):
            past = min(2, shape[-2] - 1)
            if len(shape) == HEADS_FIRST:
                shapes.append((*shape[:2], shape[2] - past, shape[3]))
                shapes.append((*shape[:2], past, shape[3]))
            else:
                assert isinstance(heads, int)
                shapes.append((shape[0], shape[1] - past, shape[2]))
                shapes.append((shape[0], heads, past, shape[2] // heads))
        k, past_k, v, past_v = shapes
        types = (*[REAL] * 5, *example.types[3:]) if example.types else ()
        found.append(Example((q, k, v, past_k, past_v, *masks), example.attributes, types))
    return tuple(found)


@register
class CachedAttention(DerivedAttention, cached=True):
    """`Attention` with keys and values of the past before the new ones; gives all of them besides.

    The first three inputs are those of `Attention`, with new keys and values alone. The keys
    [B, G, P, D] and the values [B, G, P, E] of the past follow, and a mask, if there is one, whose
    last axis is P + L. The outputs are that of `Attention` on all keys and values, these keys
    [B, G, P + L, D], and these values. The kernel takes them where there are no past ones, but not
    where there are no new ones, and gives nothing unless it may give all three outputs.
    """


@register
class CachedCappedAttention(DerivedAttention, CappedAttention, cached=True):
    """`CappedAttention` with keys and values of the past, as `CachedAttention` has them."""

    examples = _cached(CappedAttention.examples[::3])


@register
class CachedMaskedAttention(DerivedAttention, MaskedAttention, cached=True):
    """`MaskedAttention` with keys and values of the past, as `CachedAttention` has them."""


@register
class CausalAttention(DerivedAttention, causal=True):
    """`MaskedAttention` in which query i has the keys up to number i.

    The diagonal begins at the first key, also where there are more keys than queries. With a mask
    of Booleans it is `CausalMaskedAttention`, with a softcap `CausalCappedAttention`. With a mask
    that is added it is not declared: of a row without keys and an infinite query, the runtime and
    ONNX's reference make different things.
    """


@register
class CachedCausalAttention(DerivedAttention, cached=True, causal=True):
    """`CausalAttention` with keys and values of the past, of which each query has all."""


@register
class CausalCappedAttention(DerivedAttention, CappedAttention, causal=True):
    """`CausalAttention` of scores with a softcap, as `CappedMaskedAttention` has them."""


@register
class CachedCausalCappedAttention(DerivedAttention, CappedAttention, cached=True, causal=True):
    """`CausalCappedAttention` with keys and values of the past, of which each query has all."""


@register
class CausalMaskedAttention(DerivedAttention, MaskedAttention, causal=True):
    """`MaskedAttention` in which query i has those keys up to number i that its mask gives it."""


@register
class CachedCausalMaskedAttention(DerivedAttention, MaskedAttention, cached=True, causal=True):
    """`CausalMaskedAttention` with keys and values of the past, as `CachedAttention` has them.

    A query has all of the past that its mask gives it.
    """
