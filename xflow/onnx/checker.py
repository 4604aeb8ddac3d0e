"""The ONNX checker, for models that leave out what cannot be said, too."""

import os

import onnx

from xflow.onnx.external_data import external_tensors
from xflow.onnx.proto_compat import all_nodes

OWN_DOMAIN = "ai.onnx"
FOREIGN = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Operators that ONNX Runtime has in ONNX's domain at opsets in which ONNX does not: its fusions,
and exporters for it, write them."""
PASSED = "xflow.passed"
"""A domain of which the checker knows nothing."""


def check_model(path: str | os.PathLike[str], proto: onnx.ModelProto | None = None) -> None:
    """Raise what the ONNX checker raises, unless the file `path` holds a valid model.

    The checker wants a shape for each input and output, be it of unknown sizes. Where not even the
    rank is known, none can be written: exporters leave it out, and runtimes accept that. Such a
    model is checked as if it had one there. And it does not know that `ai.onnx` is ONNX's own
    domain, which is nameless. Operators that an opset deprecates it refuses, though the runtime has
    one of them (GroupNormalization of opset 18): here they count as those of another domain. So do
    operators of the runtime's own that stand in ONNX's domain, where its fusions put them.
    `proto` is the message in the file, if it has been read already.
    """
    try:
        onnx.checker.check_model(os.fspath(path))
    except Exception:  # what its C++ side throws
        proto = proto or onnx.load(path, load_external_data=False)
        odd = (without_shape(proto), _own_domains(proto), _deprecated(proto), _foreign(proto))
        if not any(odd):
            raise
        check_message(proto)


def check_message(proto: onnx.ModelProto) -> None:
    """The same for a message; what it says of files beside it is not checked."""
    odd = _own_domains(proto) or _deprecated(proto) or _foreign(proto)
    if odd or next(external_tensors(proto), None) is not None:
        stand_in = onnx.ModelProto()
        stand_in.CopyFrom(proto)
        for tensor in external_tensors(stand_in):  # one without elements, of the same type
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.dims[:] = [0]
        for part in _own_domains(stand_in):
            part.domain = ""
        for node in (*_deprecated(stand_in), *_foreign(stand_in)):
            node.domain = PASSED
        stand_in.opset_import.add(domain=PASSED, version=1)
        proto = stand_in
    bare = without_shape(proto)
    try:
        for kind in bare:
            kind.shape.SetInParent()
        onnx.checker.check_model(proto)
    finally:
        for kind in bare:
            kind.ClearField("shape")


def _own_domains(proto: onnx.ModelProto) -> list[onnx.NodeProto | onnx.OperatorSetIdProto]:
    """The nodes and imports that spell out the name of ONNX's own domain."""
    imports = [*proto.opset_import]
    for function in proto.functions:
        imports += function.opset_import
    return [part for part in (*imports, *all_nodes(proto)) if part.domain == OWN_DOMAIN]


def _deprecated(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes of the model's graphs whose operators its opset deprecates."""
    versions = [each.version for each in proto.opset_import if each.domain in ("", OWN_DOMAIN)]
    found = []
    for node in all_nodes(proto):
        if versions and node.domain in ("", OWN_DOMAIN):
            known = onnx.defs.has(node.op_type, versions[0], "")
            if known and onnx.defs.get_schema(node.op_type, versions[0], "").deprecated:
                found.append(node)
    return found


def _foreign(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes with operators of the runtime in ONNX's domain, which the opset does not have."""
    versions = [each.version for each in proto.opset_import if each.domain in ("", OWN_DOMAIN)]
    return [
        node
        for node in all_nodes(proto)
        if node.op_type in FOREIGN
        and node.domain in ("", OWN_DOMAIN)
        and versions
        and not onnx.defs.has(node.op_type, versions[0], "")
    ]


def without_shape(proto: onnx.ModelProto) -> list[onnx.TypeProto.Tensor]:
    """The types of the inputs and outputs that are tensors of unknown rank."""
    kinds = (
        info.type.tensor_type
        for info in (*proto.graph.input, *proto.graph.output)
        if info.type.HasField("tensor_type")
    )
    return [kind for kind in kinds if not kind.HasField("shape")]
