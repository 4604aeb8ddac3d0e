"""Transpose, Reshape and Flatten: operators that rearrange all elements of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from xflow.core.arguments import declare, divisor, integers, sizes
from xflow.core.composite import Composite
from xflow.core.constraint import at_least, equal
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
    Operator,
    Reader,
    Shape,
    is_concrete,
    register,
    require,
)
from xflow.core.size import Size, divide, product
from xflow.core.sorts import SORTS
from xflow.core.spec import Index, Scalar

Understood = tuple[dict[str, Attribute], tuple[int, ...]]


class Movement(Operator):
    """An operator that moves elements and computes nothing."""

    sorts = SORTS
    permutes = False
    """Whether each element of its input stands in its output once."""

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 0


@register
class Transpose(Movement):
    """Axis k of the output is axis ``perm[k]`` of the input; by default all are reversed."""

    name = op_type = "Transpose"
    permutes = True
    attributes = declare(
        perm=AttributeSpec(Kind.PERMUTATION, lambda shapes: tuple(range(len(shapes[0])))[::-1])
    )
    examples = (
        Example(((2, 3),)),
        Example(((2, 3, 4),), {"perm": (2, 0, 1)}),
        Example(((2, 1, 3, 2),), {"perm": (0, 2, 1, 3)}),
        Example(((3,),), {"perm": (0,)}),
        Example(((2, 0),)),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        perm = integers(attributes, "perm")
        rank = len(shapes[0])
        require(sorted(perm) == list(range(rank)), f"{perm} is no permutation of {rank} axes")
        return [tuple(shapes[0][axis] for axis in perm)]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        perm = integers(attributes, "perm")
        return inputs[0](tuple(index[perm.index(axis)] for axis in range(len(perm))))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [arrays[0].transpose(integers(attributes, "perm"))]


ALLOWZERO_SINCE = 14
"""The first opset in which a 0 in a target can be a size."""


@register
class Reshape(Movement):
    """The same elements in the same order under another shape, given in explicit sizes."""

    name = op_type = "Reshape"
    permutes = True
    role = "view"
    since = 5
    attributes = declare(shape=AttributeSpec(Kind.INTS))
    computed = MappingProxyType({"shape": 1})
    examples = (
        Example(((2, 6),), {"shape": (3, 4)}),
        Example(((2, 3, 4),), {"shape": (2, 12)}),
        Example(((2, 3, 4),), {"shape": (6, 4)}),
        Example(((2, 6, 3),), {"shape": (2, 3, 2, 3)}),
        Example(((2, 3, 2, 2),), {"shape": (6, 4)}),
        Example(((1, 1),), {"shape": ()}),
        Example(((),), {"shape": (1, 1)}),
        Example(((1, 4),), {"shape": (2, 1, 2)}),
        Example(((2, 0),), {"shape": (0, 3)}),
    )

    def with_computed(self, attributes: Attributes, opset: int) -> OnnxCall | None:
        # What is computed are sizes: 0 is one of them, and not that of the input there.
        plain = {"allowzero": 1} if opset >= ALLOWZERO_SINCE else {}
        return OnnxCall("Reshape", opset, "", plain)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        result = sizes(attributes, "shape")
        for n in result:
            need(at_least(n, 0), f"the size {n} is negative")
        need(
            equal(product(shapes[0]), product(result)),
            f"{list(shapes[0])} and {list(result)} have different numbers of elements",
        )
        return [result]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        source, target = shapes[0], sizes(attributes, "shape")
        position: list[Size] = [0] * len(source)  # an axis of extent 1 is read at 0
        for before, after in _groups(source, target):
            flat: Size = 0
            for axis in after:
                flat = flat * target[axis] + index[axis]
            # The first axis takes the rest, so that a single axis needs no quotient.
            for axis in before[:0:-1]:
                extent = divisor(source[axis])
                position[axis] = flat % extent
                flat = flat // extent
            if before:
                position[before[0]] = flat
        return inputs[0](tuple(position))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [arrays[0].reshape(integers(attributes, "shape"))]

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        source = call.shapes[0]
        if source is None or set(call.attributes) - {"allowzero"}:
            return None
        target: list[Size]
        if 1 in call.constants:
            target = [int(n) for n in call.constants[1].reshape(-1)]
        elif 1 in call.computed:
            target = list(call.computed[1])
        else:
            return None
        if not call.attributes.get("allowzero", 0):
            if any(n == 0 and axis >= len(source) for axis, n in enumerate(target)):
                return None
            target = [source[axis] if n == 0 else n for axis, n in enumerate(target)]
        if -1 in target:
            free = target.index(-1)
            known = product(target[:free] + target[free + 1 :])
            if known == 0:
                return None
            target[free], rest = divide(product(source), known)
            if rest != 0:
                return None
        return {"shape": tuple(target)}, (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        source, target = shapes[0], sizes(attributes, "shape")
        # ONNX has no symbols: an unknown size is either copied (0) or the one to be found (-1).
        written = [
            n if isinstance(n, int) else 0 if axis < len(source) and source[axis] == n else -1
            for axis, n in enumerate(target)
        ]
        plain: dict[str, int] = {}
        if any(n == 0 and source[axis : axis + 1] != (0,) for axis, n in enumerate(target)):
            if opset < ALLOWZERO_SINCE or not is_concrete(attributes):
                return None
            plain["allowzero"] = 1
        if written.count(-1) > 1:
            return None
        constants = {1: np.asarray(written, dtype=np.int64)}
        return OnnxCall("Reshape", opset, "", plain, tuple(shapes), constants)


@register
class Flatten(Composite):
    """A matrix: the axes before `axis` are its rows, the others its columns."""

    name = op_type = "Flatten"
    role = "view"
    sorts = SORTS
    attributes = declare(axis=AttributeSpec(Kind.AXIS, 1))
    examples = (
        Example(((2, 3, 4),)),
        Example(((2, 3, 2),), {"axis": 2}),
        Example(((2, 3, 2),), {"axis": 3}),
        Example(((2, 3),), {"axis": 0}),
        Example(((3,),)),
        Example(((),), {"axis": 0}),
        Example(((3, 0, 2),)),
    )

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        source = inputs[0].shape
        cut = attributes["axis"]
        require(isinstance(cut, int) and 0 <= cut <= len(source), f"Flatten at axis {cut}")
        assert isinstance(cut, int)
        return apply("Reshape", inputs, {"shape": (product(source[:cut]), product(source[cut:]))})

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        cut = attributes["axis"]
        assert isinstance(cut, int)
        # Not -1 for the columns: numpy cannot infer their number where there are no rows.
        return [arrays[0].reshape(prod(arrays[0].shape[:cut]), prod(arrays[0].shape[cut:]))]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 0


def _groups(source: Shape, target: Shape) -> list[tuple[list[int], list[int]]]:
    """Pairs of consecutive axes of both shapes with equal products; axes of extent 1 left out.

    Where two leading products agree, the remaining ones do too (or the tensor is empty), so the
    position in the first axes depends on the first axes alone.
    """
    before = [axis for axis, n in enumerate(source) if n != 1]
    after = [axis for axis, n in enumerate(target) if n != 1]
    cuts: dict[Size, int] = {}
    for count in range(1, len(before)):
        cuts.setdefault(product(source[axis] for axis in before[:count]), count)
    groups = []
    start = begin = 0
    for count in range(1, len(after)):
        cut = cuts.get(product(target[axis] for axis in after[:count]), 0)
        if cut > start:
            groups.append((before[start:cut], after[begin:count]))
            start, begin = cut, count
    return [*groups, (before[start:], after[begin:])]
