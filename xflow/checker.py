"""The ONNX checker, for models that leave out what cannot be said, too."""

import os

import onnx

from xflow.external_data import external_tensors


def check_model(path: str | os.PathLike[str], proto: onnx.ModelProto | None = None) -> None:
    """Raise what the ONNX checker raises, unless the file `path` holds a valid model.

    The checker wants a shape for each input and output, be it of unknown sizes. Where not even the
    rank is known, none can be written: exporters leave it out, and runtimes accept that. Such a
    model is checked as if it had one there. `proto` is the message in the file, if it has been read
    already.
    """
    try:
        onnx.checker.check_model(os.fspath(path))
    except Exception:  # what its C++ side throws
        proto = proto or onnx.load(path, load_external_data=False)
        if not without_shape(proto):
            raise
        check_message(proto)


def check_message(proto: onnx.ModelProto) -> None:
    """The same for a message; what it says of files beside it is not checked."""
    if next(external_tensors(proto), None) is not None:
        stand_in = onnx.ModelProto()
        stand_in.CopyFrom(proto)
        for tensor in external_tensors(stand_in):  # one without elements, of the same type
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.dims[:] = [0]
        proto = stand_in
    bare = without_shape(proto)
    try:
        for kind in bare:
            kind.shape.SetInParent()
        onnx.checker.check_model(proto)
    finally:
        for kind in bare:
            kind.ClearField("shape")


def without_shape(proto: onnx.ModelProto) -> list[onnx.TypeProto.Tensor]:
    """The types of the inputs and outputs that are tensors of unknown rank."""
    kinds = (
        info.type.tensor_type
        for info in (*proto.graph.input, *proto.graph.output)
        if info.type.HasField("tensor_type")
    )
    return [kind for kind in kinds if not kind.HasField("shape")]
