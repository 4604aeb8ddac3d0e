"""What callers of a model can see of it, and what a rewrite must not change."""

from __future__ import annotations

import string
from collections.abc import Sequence

from onnx import ModelProto, TensorProto, ValueInfoProto

PLACEHOLDERS = frozenset({"none", "null", "unk", "unknown"})
"""What exporters write, in any case, for the name of a dimension that they know nothing of."""
NAMELESS = string.digits + string.punctuation + string.whitespace
"""What there is besides in such names, as in `?` and `-1`."""


def is_dimension_name(text: str | None) -> bool:
    """Whether dimensions with that name are equal: not those called `?` or `None`."""
    return bool(text and text.strip(NAMELESS)) and str(text).lower() not in PLACEHOLDERS


def required_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs that must be fed: those without a default among the initializers."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    defaults |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return [item for item in model.graph.input if item.name not in defaults]


def check_interface(before: ModelProto, after: ModelProto, *, strict: bool = True) -> str | None:
    """Say what a rewrite changed that callers of the model can see, or None.

    Names, order, types and dimension names of inputs and outputs, inputs that have a default, and
    metadata must be equal; opset versions may only have been raised. If not `strict`, only the
    inputs that must be fed count, and the outputs.
    """
    parts = [
        ("input", required_inputs(before), required_inputs(after)),
        ("optional input", _optional_inputs(before), _optional_inputs(after)),
        ("output", list(before.graph.output), list(after.graph.output)),
    ]
    for what, old, new in parts if strict else (parts[0], parts[2]):
        names, found = [item.name for item in old], [item.name for item in new]
        if names != found:
            return f"the {what}s were {_names(names)} and are now {_names(found)}"
        for mine, other in zip(old, new, strict=True):
            if mine.type != other.type:
                return f"{what} {mine.name!r} was {_type(mine)} and is now {_type(other)}"
    if not strict:
        return None
    metadata = [
        {prop.key: prop.value for prop in model.metadata_props} for model in (before, after)
    ]
    for key in sorted(metadata[0].keys() | metadata[1].keys()):
        if metadata[0].get(key) != metadata[1].get(key):
            return f"the metadata {key!r} changed"
    versions = {_domain(opset.domain): opset.version for opset in after.opset_import}
    for opset in before.opset_import:
        domain = _domain(opset.domain)
        if versions.get(domain, opset.version) < opset.version:
            return f"the opset of {domain} was {opset.version} and is now {versions[domain]}"
    return None


def _optional_inputs(model: ModelProto) -> list[ValueInfoProto]:
    required = {item.name for item in required_inputs(model)}
    return [item for item in model.graph.input if item.name not in required]


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _domain(name: str) -> str:
    return name or "ai.onnx"


def _type(item: ValueInfoProto) -> str:
    """Show a type on one line, dimension names included."""
    tensor = item.type.tensor_type
    if item.type.WhichOneof("value") == "tensor_type" and tensor.HasField("shape"):
        sizes = (dim.dim_param or str(dim.dim_value or "?") for dim in tensor.shape.dim)
        name = TensorProto.DataType.Name(tensor.elem_type)
        return f"{name.lower()}[{', '.join(sizes)}]"
    return " ".join(str(item.type).split())
