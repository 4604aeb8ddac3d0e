"""Files that are taken for ONNX models, told apart by how they begin."""

from __future__ import annotations

EXPORT = "export the network as ONNX"
BINARY = "write it in binary, by onnx.save(onnx.load(IN, format='{}'), OUT)"
_BEGINNINGS = {
    b"version https://git-lfs": ("a pointer of Git LFS, not the model", "fetch it: git lfs pull"),
    b"\x1f\x8b": ("compressed by gzip", "decompress it first"),
    b"PK\x03\x04": ("a ZIP archive, as those of PyTorch and Keras are", EXPORT),
    b"\x89HDF\r\n\x1a\n": ("a file of HDF5, as Keras wrote", EXPORT),
    b"\x80\x02": ("a pickle, as PyTorch wrote", EXPORT),
    b"ir_version:": ("an ONNX model in protobuf's text format", BINARY.format("textproto")),
    b"<": ("an ONNX model as text, or a web page", BINARY.format("onnxtxt")),
    b"{": ("JSON, perhaps an ONNX model in it", BINARY.format("json")),
}
_TAGS = {
    b"ORTM": ("a model in ONNX Runtime's .ort format", "give the ONNX model it was made from"),
    b"TFL3": ("a model of TensorFlow Lite", "convert it to ONNX"),
}
"""What FlatBuffers have behind their first four bytes."""
NONE = ("", "")


def told(data: bytes) -> tuple[str, str]:
    """What a file is that is no ONNX model, and what to do; empty where that is unknown."""
    tag = _TAGS.get(data[4:8])
    if tag is not None:
        return tag
    start = data[:64].lstrip()
    found = (told for beginning, told in _BEGINNINGS.items() if start.startswith(beginning))
    return next(found, NONE)
