"""Pad: borders of zeros, or of elements of the tensor itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xflow.core.arguments import declare, integers, sizes, word
from xflow.core.constraint import Constraint, at_least, less
from xflow.core.registry import (
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Reader,
    Shape,
    is_concrete,
    register,
)
from xflow.core.size import Size
from xflow.core.spec import ZERO, Index, Scalar, where
from xflow.ops.shape import Movement, Understood

MODES = ("constant", "edge", "reflect", "wrap")


@register
class Pad(Movement):
    """A border around a tensor: `pads` holds the widths before all axes, then those behind.

    In the mode ``constant`` it consists of zeros, and a negative width removes instead. In the
    mode ``edge`` it repeats the outermost elements, in ``reflect`` it mirrors what lies beside
    them, in ``wrap`` it goes on from the other side; no width is negative then, or goes beyond
    what there is to repeat.
    """

    name = op_type = "Pad"
    attributes = declare(pads=AttributeSpec(Kind.INTS), mode=AttributeSpec(Kind.TEXT, "constant"))
    examples = (
        Example(((2, 3),), {"pads": (1, 0, 2, 1)}),
        Example(((3,),), {"pads": (0, 0)}),
        Example(((1, 2, 2),), {"pads": (0, 0, 1, 0, 1, 1)}),
        Example(((4, 3),), {"pads": (-1, 0, -1, 2)}),
        Example(((4,),), {"pads": (-2, 1)}),
        Example(((4,),), {"pads": (2, -3)}),
        Example(((2,),), {"pads": (-1, -1)}),
        Example(((0, 2),), {"pads": (1, 0, 0, 0)}),
        Example(((2, 3),), {"pads": (1, 0, 2, 1), "mode": "edge"}),
        Example(((1, 3),), {"pads": (2, 0, 0, 4), "mode": "edge"}),
        Example(((2, 2, 4, 3),), {"pads": (0, 0, 2, 1, 0, 0, 3, 2), "mode": "reflect"}),
        Example(((3,),), {"pads": (2, 1), "mode": "reflect"}),
        Example(((2, 3),), {"pads": (2, 1, 1, 3), "mode": "wrap"}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        result = []
        mode = word(attributes, "mode", MODES)
        for n, (begin, end) in zip(shapes[0], self._borders(attributes, shapes[0]), strict=True):
            added = begin + end
            if mode != "constant" and not (begin == 0 and end == 0):
                need(at_least(n, 1), "a border like the elements of an empty axis")
                for width in (begin, end):
                    need(at_least(width, 0), f"a border of the negative width {width}")
                    if mode != "edge":
                        reach = n - 1 if mode == "reflect" else n
                        need(at_least(reach, width), f"a border of {width} around {n} elements")
            if not (isinstance(added, int) and added >= 0):
                need(at_least(n + added, 0), f"Pad removes more than the extent {n}")
            result.append(n + begin + end)
        return [tuple(result)]

    def _borders(self, attributes: Attributes, shape: Shape) -> list[tuple[Size, Size]]:
        rank = len(shape)
        pads = sizes(attributes, "pads", 2 * rank)
        return list(zip(pads[:rank], pads[rank:], strict=True))

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        if attributes["mode"] != "constant":
            return self._repeated(inputs[0], shapes[0], attributes, index)
        inside: list[Constraint] = []
        position = []
        borders = self._borders(attributes, shapes[0])
        for i, n, (begin, end) in zip(index, shapes[0], borders, strict=True):
            here = i - begin
            if not (isinstance(begin, int) and begin <= 0):
                inside.append(at_least(here, 0))
            if not (isinstance(end, int) and end <= 0):
                inside.append(less(here, n))
            position.append(here)
        return where(tuple(inside), inputs[0](tuple(position)), ZERO)

    def _repeated(self, read: Reader, shape: Shape, attributes: Attributes, index: Index) -> Scalar:
        """The element at `index`, in the border one of the tensor's own."""
        borders, mode = self._borders(attributes, shape), attributes["mode"]

        def along(position: Index) -> Scalar:
            axis = len(position)
            if axis == len(shape):
                return read(position)
            n, (begin, end) = shape[axis], borders[axis]
            here = index[axis] - begin
            before: dict[object, Size] = {"edge": 0, "reflect": -here, "wrap": here + n}
            behind: dict[object, Size] = {
                "edge": n - 1,
                "reflect": 2 * (n - 1) - here,
                "wrap": here - n,
            }
            element = along((*position, here))
            if end != 0:
                element = where((less(here, n),), element, along((*position, behind[mode])))
            if begin != 0:
                element = where((at_least(here, 0),), element, along((*position, before[mode])))
            return element

        return along(())

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        pads = integers(attributes, "pads")
        mode = word(attributes, "mode", MODES)
        if mode == "constant":
            return [pad(arrays[0], pads)]
        widths = list(zip(pads[: arrays[0].ndim], pads[arrays[0].ndim :], strict=True))
        # The type of `np.pad` tells the modes apart by literals.
        return [np.asarray(np.pad(arrays[0], widths, mode=mode))]  # type: ignore[call-overload]

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        source = call.shapes[0]
        key = "paddings" if call.opset < 2 else "pads"
        known = {"mode"} if call.opset >= 11 else {"mode", "value", key}
        if source is None or set(call.attributes) - known:
            return None
        mode = call.attributes.get("mode", "constant")
        zero = mode == "constant"  # otherwise a value has no influence
        if mode not in MODES:
            return None
        if call.opset < 11:
            if (zero and call.attributes.get("value", 0) != 0) or key not in call.attributes:
                return None
            return {"pads": tuple(int(v) for v in call.attributes[key]), "mode": mode}, (0,)
        for position, shape in enumerate(call.shapes[1:], 1):
            if shape is not None and position not in call.constants:
                return None
        if 1 not in call.constants or (zero and np.any(call.constants.get(2, np.zeros(())))):
            return None
        given = [int(v) for v in call.constants[1].reshape(-1)]
        rank = len(source)
        if 3 in call.constants:
            named = [int(k) % rank for k in call.constants[3].reshape(-1)]
            if len(given) != 2 * len(named):
                return None
            widths = dict(zip([*named, *(k + rank for k in named)], given, strict=True))
            given = [widths.get(k, 0) for k in range(2 * rank)]
        return {"pads": tuple(given), "mode": mode}, (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        if not is_concrete(attributes):
            return None
        pads = list(integers(attributes, "pads"))
        plain = {"mode": word(attributes, "mode", MODES)}
        if opset < 19 and plain["mode"] == "wrap":
            return None
        if opset < 11:
            key = "paddings" if opset < 2 else "pads"
            return OnnxCall("Pad", opset, "", {key: pads, **plain}, tuple(shapes))
        constants = {1: np.asarray(pads, dtype=np.int64)}
        return OnnxCall("Pad", opset, "", plain, tuple(shapes), constants)


def pad(array: Array, pads: Sequence[int], value: float = 0) -> Array:
    """`array` with borders of `value`: widths before all axes, then behind; negative ones crop."""
    rank = array.ndim
    if not any(pads):
        return array
    borders = list(zip(array.shape, pads[:rank], pads[rank:], strict=True))
    result = np.full([n + begin + end for n, begin, end in borders], value, dtype=array.dtype)
    source = tuple(slice(max(0, -begin), max(0, n + min(0, end))) for n, begin, end in borders)
    part = array[source]
    target = tuple(
        slice(max(0, begin), max(0, begin) + extent)
        for (_, begin, _), extent in zip(borders, part.shape, strict=True)
    )
    result[target] = part
    return result
