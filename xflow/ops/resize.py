"""Resize: enlarging a tensor by repeating its elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xflow.core.arguments import declare, integers, sizes
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
    Reader,
    Shape,
    is_concrete,
    register,
)
from xflow.core.size import Size, divide
from xflow.core.sorts import REAL
from xflow.core.spec import Index, Scalar
from xflow.ops.shape import Movement

MOST = 2**24
"""An axis of at most so many elements has an extent that a float of 32 bits holds."""
SILENT = frozenset({"cubic_coeff_a", "exclude_outside", "extrapolation_value", "antialias"})
"""Attributes that say nothing in the mode nearest."""
UPSAMPLE, SCALES, RESIZE, MODES = 7, 9, 10, 11
"""The opsets in which there was an Upsample, its factors became an input, it was called Resize, and
elements of the result could be taken at other places than those that the index is divided to."""


@register
class Resize(Movement):
    """Every element ``scales[k]`` times in a row along each axis k: ``y[i] = x[i div s]``.

    This is what ONNX's Resize to the nearest element does for whole factors, and what Upsample does
    before opset 10.
    """

    name = op_type = "Resize"
    also = ("Upsample",)
    since = UPSAMPLE
    sorts = frozenset({REAL})
    attributes = declare(scales=AttributeSpec(Kind.INTS))
    examples = (
        Example(((1, 2, 2, 3),), {"scales": (1, 1, 2, 2)}),
        Example(((1, 1, 3, 2),), {"scales": (1, 1, 3, 1)}),
        Example(((2, 1, 3),), {"scales": (1, 1, 4)}),
        Example(((2, 3),), {"scales": (2, 3)}),
        Example(((1, 2, 1, 2, 2),), {"scales": (1, 1, 2, 1, 3)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        scales = sizes(attributes, "scales", len(shapes[0]))
        for s in scales:
            need(at_least(s, 1), f"Resize by the factor {s}")
        return [tuple(n * s for n, s in zip(shapes[0], scales, strict=True))]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        scales = sizes(attributes, "scales", len(shapes[0]))
        return inputs[0](tuple(i // s for i, s in zip(index, scales, strict=True)))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        result = arrays[0]
        for axis, scale in enumerate(integers(attributes, "scales")):
            result = np.repeat(result, scale, axis=axis)
        return [result]

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        if call.opset < MODES:
            return self._of_old(call)
        source, given = call.shapes[0], call.attributes
        if call.op_type != self.op_type:
            return None
        modes = ("mode", "coordinate_transformation_mode", "nearest_mode")
        known = {*modes, *SILENT, "axes", "keep_aspect_ratio_policy"}
        if source is None or set(given) - known or given.get("mode", "nearest") != "nearest":
            return None
        if given.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return None
        for position, shape in enumerate(call.shapes[1:], 1):
            # A region of interest has no influence in the modes that are understood.
            told = position in call.constants or position in call.computed
            if shape is not None and not told and position != 1:
                return None
        axes = [int(k) % len(source) for k in given.get("axes", range(len(source)))]
        factors = _factors(call, [source[k] for k in axes])
        if factors is None or len(factors) != len(axes) or not _repeats(call, factors):
            return None
        by_axis = dict(zip(axes, factors, strict=True))
        return {"scales": tuple(by_axis.get(k, 1) for k in range(len(source)))}, (0,)

    def _of_old(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        """The same before there were ways to round: the factors are an input, or an attribute.

        An element of the result is that at the place below it; whole factors leave no other.
        """
        source, given = call.shapes[0], dict(call.attributes)
        if call.op_type != name_before(call.opset) or source is None:
            return None
        if given.pop("mode", "nearest") != "nearest":
            return None
        listed = given.pop("scales", None) if call.opset < SCALES else call.constants.get(1)
        if listed is None or given:
            return None
        factors = whole_factors(np.asarray(listed), source)
        return None if factors is None else ({"scales": tuple(factors)}, (0,))

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        if not is_concrete(attributes):
            return None
        if opset < MODES:
            factors = [float(s) for s in integers(attributes, "scales")]
            given = {"mode": "nearest", **({"scales": factors} if opset < SCALES else {})}
            inputs = {} if opset < SCALES else {1: np.asarray(factors, dtype=np.float32)}
            return OnnxCall(name_before(opset), opset, "", given, tuple(shapes), inputs)
        plain = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        scales = np.asarray(integers(attributes, "scales"), dtype=np.float32)
        constants = {1: np.zeros(0, dtype=np.float32), 2: scales}
        return OnnxCall("Resize", opset, "", plain, tuple(shapes), constants)


def name_before(opset: int) -> str:
    """What the operator is called at an opset before there were ways to round."""
    return "Upsample" if opset < RESIZE else "Resize"


def _factors(call: OnnxCall, extents: Sequence[Size]) -> list[int] | None:
    """The whole factors of a node for axes of these extents; None where there are none."""
    scales = call.constants.get(2, np.zeros(0))
    wanted: Sequence[Size] = call.computed.get(3, ())
    if 3 in call.constants:
        wanted = call.constants[3].reshape(-1).tolist()
    if (scales.size > 0) == (len(wanted) > 0):
        return None
    if scales.size:
        return whole_factors(scales, extents)
    if len(wanted) != len(extents):
        return None
    factors = []
    for extent, target in zip(extents, wanted, strict=True):
        if extent == 0:
            return None
        whole, rest = divide(target, extent)
        if rest != 0 or not isinstance(whole, int) or whole < 1:
            return None
        factors.append(whole)
    return factors


def whole_factors(scales: Array, extents: Sequence[Size]) -> list[int] | None:
    """Factors that are whole numbers from 1 on, of axes of these extents; None for others.

    The runtime multiplies in floats of 32 bits, so that extents that are known may not exceed
    `MOST`.
    """
    found = [float(s) for s in scales.reshape(-1)]
    if not all(s >= 1 and s.is_integer() for s in found):
        return None
    if any(isinstance(n, int) and n * s > MOST for n, s in zip(extents, found, strict=False)):
        return None
    return [int(s) for s in found]


def _repeats(call: OnnxCall, factors: Sequence[int]) -> bool:
    """Whether output element ``q * s + r`` is nearest to input element q for all ``r < s``."""
    transformation = call.attributes.get("coordinate_transformation_mode", "half_pixel")
    rounding = call.attributes.get("nearest_mode", "round_prefer_floor")
    if transformation == "asymmetric":  # it lies at q + r / s
        return rounding == "floor" or (rounding == "round_prefer_floor" and max(factors) <= 2)
    # It lies at q + (r + 1/2) / s - 1/2, which is less than 1/2 away from q.
    middle = {"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"}
    return transformation in middle and rounding.startswith("round_prefer")
