"""What ONNX says of operators' types and attributes: the schemas of the installed onnx package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import onnx

from xflow.core.registry import CONTRIB

_TYPES = {
    "FLOAT": "float",
    "DOUBLE": "double",
    "COMPLEX64": "complex64",
    "COMPLEX128": "complex128",
}
"""Element types whose names in schemas are not the lower-case ones."""


def type_in_schemas(dtype: str) -> str:
    """How schemas write tensors of an element type."""
    return f"tensor({_TYPES.get(dtype, dtype.lower())})"


@cache
def _schema(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def without_defaults(
    op_type: str, domain: str, opset: int, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """Attributes, but for those that say what holds where they are left out.

    Exporters and converters of opsets write out what other models leave out.
    """
    known = _defaults(op_type, domain, opset)
    return {
        name: value
        for name, value in attributes.items()
        if name not in known or known[name] != value
    }


@cache
def _defaults(op_type: str, domain: str, opset: int) -> Mapping[str, Any]:
    schema = _schema(op_type, domain, opset)
    found = {}
    for name, attribute in () if schema is None else schema.attributes.items():
        if attribute.default_value.type:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def accepts(
    op_type: str, domain: str, opset: int, inputs: Mapping[int, str], outputs: Sequence[str]
) -> bool:
    """Whether an operator takes inputs (by position) and gives outputs of these element types.

    The runtime's own operators, which have no schema here, take 32-bit floats on every processor;
    what else has none is taken to accept everything.
    """
    return _accepts(op_type, domain, opset, tuple(sorted(inputs.items())), tuple(outputs))


@cache
def _accepts(
    op_type: str,
    domain: str,
    opset: int,
    inputs: tuple[tuple[int, str], ...],
    outputs: tuple[str, ...],
) -> bool:
    schema = _schema(op_type, domain, opset)
    if schema is None:
        return domain != CONTRIB or {*dict(inputs).values(), *outputs} <= {"FLOAT"}
    for formals, given in ((schema.inputs, inputs), (schema.outputs, tuple(enumerate(outputs)))):
        for position, dtype in given:
            if not formals:
                return False
            formal = formals[min(position, len(formals) - 1)]  # the last one may repeat
            if type_in_schemas(dtype) not in formal.types:
                return False
    return True
