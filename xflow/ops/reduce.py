"""Reductions over whole axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from xflow.core.arguments import axes, declare, flag, integers, quotient
from xflow.core.constraint import at_least
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
    normalise_attribute,
    register,
)
from xflow.core.size import Expr, Size, product
from xflow.core.spec import (
    Index,
    Scalar,
    ScalarLike,
    max_over,
    over_box,
    product_over,
    scalar,
    sum_over,
)

EXAMPLES = (
    Example(((2, 3),)),
    Example(((2, 3),), {"axes": (1,), "keepdims": 0}),
    Example(((2, 3, 2),), {"axes": (0, 2)}),
    Example(((2, 3, 2),), {"axes": (0, 2), "keepdims": 0}),
    Example(((2, 1),), {"axes": (1,)}),
    Example(((2, 3),), {"axes": ()}),
    Example(((2, 3),), {"axes": (0, 1), "keepdims": 0}),
    Example(((0, 3),), {"axes": (1,)}),
    Example(((),)),
)


Over: TypeAlias = Callable[[Size, Callable[[Expr], ScalarLike]], Scalar]
"""`sum_over` and the like."""


class Reduction(Operator):
    """A reduction over `axes`, by default all; they stay with extent 1 if `keepdims` is 1.

    Without any axis it is the identity (ONNX: `noop_with_empty_axes`) if `noop` is set; if not, it
    does to each element what it does to a single one, which ONNX cannot say.
    """

    attributes = declare(
        axes=AttributeSpec(Kind.AXES, lambda shapes: tuple(range(len(shapes[0])))),
        keepdims=AttributeSpec(Kind.INT, 1, flag=True),
    )
    input_since: ClassVar[int] = 18
    """The opset from which on ONNX passes the axes as an input."""
    noop: ClassVar[bool] = True
    """Whether it is the identity without any axis."""
    over: ClassVar[tuple[Over, ...]] = (sum_over,)
    """How elements are combined, in a tuple so that it is no method."""

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        reduced = axes(attributes, "axes", len(shapes[0]))
        keep = flag(attributes, "keepdims")
        sizes = enumerate(shapes[0])
        return [tuple(1 if k in reduced else n for k, n in sizes if keep or k not in reduced)]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        reduced = integers(attributes, "axes")
        rank = len(shapes[0])
        kept = [k for k in range(rank) if k not in reduced]
        outer = [index[k] for k in kept] if flag(attributes, "keepdims") else list(index)

        def element(inner: Index) -> Scalar:
            position = dict(zip((*kept, *reduced), (*outer, *inner), strict=True))
            return inputs[0](tuple(position[k] for k in range(rank)))

        return over_box(self.over[0], tuple(shapes[0][k] for k in reduced), element)

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return product(shapes[0])

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        source = call.shapes[0]
        known = {"keepdims", "noop_with_empty_axes"}
        if source is None:
            return None
        named: list[int] = []
        if call.opset < self.input_since:
            known = {"keepdims", "axes"}
            named = list(call.attributes.get("axes", []))
        elif len(call.shapes) > 1 and call.shapes[1] is not None:
            if 1 not in call.constants:
                return None
            named = [int(k) for k in call.constants[1].reshape(-1)]
        if set(call.attributes) - known:
            return None
        if not named and not call.attributes.get("noop_with_empty_axes", 0):
            named = list(range(len(source)))
        if source and not named and not self.noop:
            return None
        return {
            "axes": normalise_attribute(Kind.AXES, named, len(source)),
            "keepdims": int(call.attributes.get("keepdims", 1)),
        }, (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        named = list(integers(attributes, "axes"))
        if shapes[0] and not named and not self.noop:
            return None
        plain: dict[str, Any] = {"keepdims": int(flag(attributes, "keepdims"))}
        if opset < self.input_since:
            if not named and shapes[0]:
                return None
            if named:  # a scalar has none to name
                plain["axes"] = named
            return OnnxCall(self.op_type, opset, "", plain, tuple(shapes))
        if not named and self.noop:
            plain["noop_with_empty_axes"] = 1
        constants = {1: np.asarray(named, dtype=np.int64)}
        return OnnxCall(self.op_type, opset, "", plain, tuple(shapes), constants)


@register
class ReduceSum(Reduction):
    """The sum over `axes`."""

    name = op_type = "ReduceSum"
    input_since = 13
    examples = (*EXAMPLES, Example(((2, 0),), {"axes": (1,)}))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        reduced, keep = integers(attributes, "axes"), flag(attributes, "keepdims")
        return [np.asarray(arrays[0].sum(axis=reduced, keepdims=keep))]


class NonEmptyReduction(Reduction):
    """A reduction that has no value over nothing."""

    examples = EXAMPLES

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        result = super().shape(shapes, attributes, need)
        for k in integers(attributes, "axes"):
            need(at_least(shapes[0][k], 1), f"{self.name} over the empty axis {k}")
        return result


@register
class ReduceMean(NonEmptyReduction):
    """The mean over `axes`, none of them empty."""

    name = op_type = "ReduceMean"

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        total = super().at(inputs, shapes, attributes, output, index)
        return quotient(total, product(shapes[0][k] for k in integers(attributes, "axes")))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        reduced, keep = integers(attributes, "axes"), flag(attributes, "keepdims")
        return [np.asarray(arrays[0].mean(axis=reduced, keepdims=keep))]


@register
class ReduceMax(NonEmptyReduction):
    """The greatest element over `axes`, none of them empty."""

    name = op_type = "ReduceMax"
    over = (max_over,)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        reduced, keep = integers(attributes, "axes"), flag(attributes, "keepdims")
        return [np.asarray(arrays[0].max(axis=reduced, keepdims=keep))]


def min_over(extent: Size, body: Callable[[Expr], ScalarLike]) -> Scalar:
    """The least of ``body(k)`` for ``0 <= k < extent``."""
    return -max_over(extent, lambda k: -scalar(body(k)))


@register
class ReduceMin(NonEmptyReduction):
    """The least element over `axes`, none of them empty."""

    name = op_type = "ReduceMin"
    over = (min_over,)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        reduced, keep = integers(attributes, "axes"), flag(attributes, "keepdims")
        return [np.asarray(arrays[0].min(axis=reduced, keepdims=keep))]


@register
class ReduceProd(Reduction):
    """The product over `axes`."""

    name = op_type = "ReduceProd"
    over = (product_over,)
    examples = (*EXAMPLES, Example(((2, 0),), {"axes": (1,)}))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        reduced, keep = integers(attributes, "axes"), flag(attributes, "keepdims")
        return [np.asarray(arrays[0].prod(axis=reduced, keepdims=keep))]
