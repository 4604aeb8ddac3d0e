"""Cast: conversions between element types that keep every value, and of integers to near floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from xflow.core.arguments import declare
from xflow.core.errors import ShapeError
from xflow.core.registry import (
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    OnnxCall,
    Reader,
    Shape,
    register,
)
from xflow.core.size import Size
from xflow.core.sorts import BOOL, CODE, DOUBLE, FLOATS, INDICES, INT, INTEGERS, REAL, SINGLE
from xflow.core.spec import ONE, ZERO, Index, Scalar, call, choose, is_equal
from xflow.ops.elementwise import Elementwise
from xflow.ops.shape import Understood

CODES = {
    **{"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7},
    **{"BOOL": 9, "FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13, "BFLOAT16": 16},
}
"""The numbers of element types in ONNX."""

CODE_NAMES = {code: name for name, code in CODES.items()}
_PRECISION = {"BFLOAT16": 8, "FLOAT16": 11, "FLOAT": 24, "DOUBLE": 53}
"""Bits of integers up to which all are represented."""


def keeps_values(source: str, target: str) -> bool:
    """Whether every value of an element type, or of a sort, is one of another, too."""
    if source in (BOOL, target):
        return source != INT  # tensors of sort INT may be of different types
    if source in INTEGERS and target in INTEGERS:
        a: Any = np.iinfo(source.lower())
        b: Any = np.iinfo(target.lower())
        return bool(b.min <= a.min and a.max <= b.max)
    if source == CODE and target in (REAL, *FLOATS):
        return True  # eight bits are integers of any type of floats
    if source in INTEGERS and target in FLOATS:
        return bool(np.iinfo(source.lower()).bits <= _PRECISION[target])
    wider = {"FLOAT16": ("FLOAT", "DOUBLE"), "BFLOAT16": ("FLOAT", "DOUBLE"), "FLOAT": ("DOUBLE",)}
    return target in wider.get(source, ())


@register
class Cast(Elementwise):
    """The same values as elements of the type `to`; as Booleans, whether they are not 0.

    Casts that round, wrap around or cut off are not described, and one to the type that the input
    has is read as Identity.
    """

    name = op_type = "Cast"
    since = 6
    attributes = declare(to=AttributeSpec(Kind.TEXT))
    cost = 0
    examples = (
        Example(((2, 3),), {"to": "FLOAT"}, (BOOL,)),
        Example(((2, 3),), {"to": "INT64"}, (BOOL,)),
        Example(((),), {"to": "FLOAT16"}, (BOOL,)),
        Example(((2, 3),), {"to": "BOOL"}, (REAL,)),
        Example(((3,),), {"to": "BOOL"}, (INT,)),
        Example(((0, 2),), {"to": "BOOL"}, (BOOL,)),
        Example(((3, 1),), {"to": "DOUBLE"}, (REAL,)),
    )

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        target = attributes["to"]
        known = target in CODES or target in (REAL, INT)
        if not isinstance(target, str) or not known:
            raise ShapeError(f"there is no element type {target}")
        numeric = inputs[0] in (*CODES, REAL, INT, CODE)
        if not (keeps_values(inputs[0], target) or (target == BOOL and numeric)):
            raise ShapeError(f"a Cast of {inputs[0]} to {target} may change the value")
        return (target,)

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        element = inputs[0](index)
        return choose(is_equal(element, 0), ZERO, ONE) if attributes["to"] == BOOL else element

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        target = attributes["to"]
        assert isinstance(target, str)
        return [arrays[0].astype(_numpy_type(target))]

    def tasks(self, shapes: Sequence[Shape], attributes: Attributes) -> Size | None:
        return 1

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        target = CODE_NAMES.get(call.attributes.get("to", 0))
        known = {"to", "saturate", "round_mode"}  # these two are about rounding to few bits
        if target is None or set(call.attributes) - known or call.types[:1] == (target,):
            return None
        return {"to": target}, (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        target = attributes["to"]
        if not isinstance(target, str) or target not in CODES:
            return None
        return OnnxCall("Cast", opset, "", {"to": CODES[target]}, tuple(shapes))


class _OfIntegers(Elementwise):
    """An operator that makes real numbers of integers."""

    takes: ClassVar[tuple[str, ...]] = (INT,)
    gives: ClassVar[tuple[str, ...]] = (REAL,)
    cost = 0
    examples = (
        Example(((2, 3),), {}, (INT,)),
        Example(((),), {}, (INT,)),
        Example(((0, 2),), {}, (INT,)),
    )


@register
class NearestFloat(_OfIntegers):
    """Integers as floats of 32 bits: the nearest ones, of two that are as near the even one."""

    name = "NearestFloat"
    op_type = "Cast"
    since = 6

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        super().element_types(inputs, attributes, dtype)
        if inputs[0] == INT:
            return (REAL,)
        if inputs[0] not in INDICES or dtype not in (SINGLE, REAL):
            raise ShapeError(f"{self.name} makes no {dtype} of {inputs[0]}")
        return (SINGLE,)

    def tasks(self, shapes: Sequence[Shape], attributes: Attributes) -> Size | None:
        return 1

    def of(self, *elements: Scalar) -> Scalar:
        (element,) = elements
        return call("nearest", element)

    def compute(self, *arrays: Array) -> Array:
        (integers,) = arrays
        return integers.astype(np.float32)

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        known = {"to", "saturate", "round_mode"}
        if call.attributes.get("to") != CODES[SINGLE] or set(call.attributes) - known:
            return None
        return ({}, (0,)) if call.types[:1] in [(dtype,) for dtype in INDICES] else None

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        return OnnxCall("Cast", opset, "", {"to": CODES[SINGLE]}, tuple(shapes))


@register
class AsReal(_OfIntegers):
    """Integers as the real numbers that they are: floats of which it is known that they hold them.

    It takes the place of `NearestFloat` in proofs, and is in no model.
    """

    name = "AsReal"

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        super().element_types(inputs, attributes, dtype)
        return (REAL,) if inputs[0] == INT else (DOUBLE,)

    def of(self, *elements: Scalar) -> Scalar:
        (element,) = elements
        return element

    def compute(self, *arrays: Array) -> Array:
        (integers,) = arrays
        return integers.astype(np.float64)


def _numpy_type(target: str) -> Any:
    special = {REAL: "float64", INT: "int64", BOOL: "bool", "FLOAT": "float32", "DOUBLE": "float64"}
    if target == "BFLOAT16":
        return ml_dtypes.bfloat16
    return np.dtype(special.get(target, target.lower()))
