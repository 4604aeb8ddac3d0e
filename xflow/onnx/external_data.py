"""Weights that lie in files beside the model: finding them in a model, and moving them out."""

import contextlib
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import Message

from xflow.core.errors import OutputError
from xflow.core.expressions import shortened
from xflow.core.pages import release

SMALL = 1024
"""Tensors of fewer bytes stay in the model: shapes and scalars are read without the data."""

DIGITS = 18
"""Most digits of an offset or a length: no file is longer."""

ALIGNMENT = 64
"""Offsets in a data file are multiples of this, so that mapped tensors suit vector loads."""


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield each tensor of `model` whose data lies elsewhere, wherever in the message it stands."""
    for tensor in all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def all_tensors(message: Message) -> Iterator[onnx.TensorProto]:
    """Yield each tensor in a message, wherever it stands.

    That are weights, attributes, graphs inside operators, functions and the defaults of their
    attributes, the parts of sparse tensors, and what says how a model is trained.
    """
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE or field.message_type.name in _WITHOUT_TENSORS:
            continue
        for part in [value] if isinstance(value, Message) else value:
            yield from all_tensors(part)


_WITHOUT_TENSORS = frozenset(
    {"ValueInfoProto", "OperatorSetIdProto", "StringStringEntryProto", "TensorAnnotation"}
)
"""Messages in which there is no need to look."""


def embedded_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of a message that onnx-ir keeps as bytes, or of which it loses the folder.

    That are all but the weights and the attributes of single tensors in the model's graphs.
    """
    for graph in graphs_of(model):
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                yield from attribute.tensors
                held = [*attribute.sparse_tensors]
                held += [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
                for sparse in held:
                    yield from (sparse.values, sparse.indices)
    for part in (*model.functions, *model.training_info):
        yield from all_tensors(part)


def graphs_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the model's graph and all graphs inside operators of it, without those of functions."""
    waiting = [model.graph]
    for graph in waiting:
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append(attribute.g)
                waiting += attribute.graphs


def has_external_data(model: onnx.ModelProto) -> bool:
    """Tell whether any tensor of `model` has its data in another file."""
    return next(external_tensors(model), None) is not None


def external_locations(model: onnx.ModelProto) -> list[str]:
    """Return the data files that `model` names, each once."""
    return list(
        dict.fromkeys(_entries(tensor).get("location", "") for tensor in external_tensors(model))
    )


def external_ends(model: onnx.ModelProto) -> dict[str, int]:
    """Return each data file that `model` names, with the bytes that it must have at least.

    Raises ValueError, with a reason, for a tensor whose claims contradict one another.
    """
    ends: dict[str, int] = {}
    for tensor in external_tensors(model):
        entries = _entries(tensor)
        if len(entries) < len(tensor.external_data):
            raise ValueError(f"{_name(tensor)} says twice where its data lies")
        needed = byte_size(tensor)
        offset = _number(tensor, entries, "offset", 0)
        length = _number(tensor, entries, "length", needed)
        if length != needed:
            raise ValueError(f"{_name(tensor)} has {length} bytes there and needs {needed}")
        location = entries.get("location", "")
        ends[location] = max(ends.get(location, 0), offset + needed)
    return ends


def misplaced(location: str) -> str:
    """Return why no data may lie at `location`, which is relative to the model; empty if it may.

    It is the same on every system, as models are copied from one to another.
    """
    parts = PurePosixPath(location).parts
    if "\0" in location:
        return "its name has a NUL character in it"
    if not parts:
        return "it has no name"
    if location.startswith(_IN_MEMORY):
        return "it stands for an address in memory"
    if "\\" in location:
        return "its name has a backslash in it"
    if location.startswith("/") or re.match("[A-Za-z]:", location) or ".." in parts:
        return "it may lie outside the model's folder"
    return ""


_IN_MEMORY = "*/_ORT_MEM_ADDR_"
"""How ONNX Runtime says that an offset is an address in its own memory."""


def embed(model: onnx.ModelProto, folder: Path) -> None:
    """Read the data of `embedded_tensors` from their files in `folder` into the message.

    They are few and small. What is said of their files has been checked. Raises OSError.
    """
    for tensor in embedded_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = _entries(tensor)
            if misplaced(entries.get("location", "")):
                raise OSError(f"{_name(tensor)} is not to be read from {entries.get('location')!r}")
            with (folder / entries["location"]).open("rb") as file:
                file.seek(_number(tensor, entries, "offset", 0))
                tensor.raw_data = file.read(byte_size(tensor))
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


def embedded(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """A message for which that was done: the same, or a copy. Raises OSError."""
    if all(t.data_location != onnx.TensorProto.EXTERNAL for t in embedded_tensors(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    embed(copy, folder)
    return copy


def byte_size(tensor: onnx.TensorProto) -> int:
    """Return the bytes that a tensor takes by its shape; raises ValueError if that is none."""
    if any(size < 0 for size in tensor.dims):
        raise ValueError(f"{_name(tensor)} has a negative dimension")
    try:
        bits = int(ir.DataType(tensor.data_type).bitwidth)
    except TypeError as error:  # strings
        raise ValueError(f"{_name(tensor)} is of a type without a size") from error
    elements: int = math.prod(tensor.dims)
    return -(-elements * bits // 8)


def _name(tensor: onnx.TensorProto) -> str:
    return f"tensor {shortened(tensor.name)!r}"


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {item.key: item.value for item in tensor.external_data}


def _number(tensor: onnx.TensorProto, entries: dict[str, str], key: str, default: int) -> int:
    """Return an offset or length."""
    text = entries.get(key)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > DIGITS:
        raise ValueError(f"{_name(tensor)} has a wrong {key}, which is no number")
    return int(text)


class Externalized:
    """A model whose weights are in data files beside `target` for as long as the block lasts.

    Entering writes the files, appends their paths to `created` and returns the model with
    references in place of data; leaving gives the model its own tensors back.  `layout` names
    the data file of a tensor by the tensor's name, relative to the model; all others share one.
    """

    def __init__(
        self, model: ir.Model, target: Path, layout: dict[str, str], created: list[Path]
    ) -> None:
        self._model = model
        self._target = target
        self._layout = layout
        self._created = created
        self._undo = contextlib.ExitStack()

    @staticmethod
    def weight_bytes(model: ir.Model) -> int:
        """Return the bytes of all initializers of `model`, wherever they are kept."""
        return sum(tensor.nbytes for _, tensor in _initializers(model))

    @staticmethod
    def layout(model: onnx.ModelProto) -> dict[str, str]:
        """Return where `model` keeps each external tensor, by the tensor's name."""
        result = {}
        for tensor in external_tensors(model):
            entry = {item.key: item.value for item in tensor.external_data}
            result[tensor.name] = entry.get("location", "")
        return result

    def __enter__(self) -> ir.Model:
        try:
            self._move_initializers()
            self._inline_attributes()
        except BaseException:
            self._undo.close()
            raise
        return self._model

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def _move_initializers(self) -> None:
        """Write every large initializer to its data file, and bring small ones into the model."""
        files: dict[str, list[ir.Value]] = {}
        for value, tensor in _initializers(self._model):
            wanted = tensor.nbytes >= SMALL or value.name in self._layout
            if wanted and tensor.dtype != ir.DataType.STRING:
                files.setdefault(self._location(value.name or ""), []).append(value)
            elif isinstance(tensor, ir.ExternalTensor):
                self._replace(value, _in_memory(tensor))
        for location, values in files.items():
            self._write(location, values)

    def _location(self, name: str) -> str:
        """Return the data file for a tensor: its own, else the one that most tensors share."""
        if not self._layout:
            return f"{self._target.stem}.data"
        common = Counter(self._layout.values()).most_common(1)[0][0]
        return self._layout.get(name, common)

    def _write(self, location: str, values: list[ir.Value]) -> None:
        """Write the tensors of `values` to one new file, and make them refer to it."""
        # No model refers to the file until the model itself is replaced, so it may be seen
        # growing; opening it exclusively means that no other model's data is ever touched.
        with self._create(location) as (file, chosen):
            references = []
            for value in values:
                tensor = value.const_value
                assert tensor is not None
                file.write(b"\0" * (-file.tell() % ALIGNMENT))
                offset = file.tell()
                dump(tensor, file)
                references.append((value, reference(tensor, value, chosen, offset)))
            file.flush()
            os.fsync(file.fileno())
        for value, written in references:
            written.base_dir = self._target.parent
            self._replace(value, written)

    @contextlib.contextmanager
    def _create(self, location: str) -> Iterator[tuple[BinaryIO, str]]:
        """Open a new file for `location` or, where that is taken, for the next free number."""
        wanted = Path(location)
        folder = self._target.parent
        if misplaced(location) or not (folder / wanted).resolve().is_relative_to(folder.resolve()):
            raise OutputError("the weights would lie outside the output's folder", location)
        number = 0
        while True:
            name = wanted if not number else wanted.with_suffix(f".{number}{wanted.suffix}")
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(path) and not self._is_target(path):
                self._created.append(path)  # before it exists: a signal may come at any time
                try:
                    file = path.open("xb")
                except FileExistsError:
                    self._created.remove(path)
                else:
                    break
            number += 1
        with file:
            yield file, name.as_posix()

    def _is_target(self, path: Path) -> bool:
        """Tell whether the model itself will take the place of `path`."""
        # It may not exist yet; some file systems do not tell small letters from large ones.
        return os.path.realpath(path).casefold() == str(self._target).casefold()

    def _replace(self, value: ir.Value, tensor: ir.TensorProtocol) -> None:
        """Give `value` another tensor until the block ends."""
        original = value.const_value
        self._undo.callback(setattr, value, "const_value", original)
        value.const_value = tensor

    def _inline_attributes(self) -> None:
        """Bring external tensors of attributes into the model; they are few and small."""
        for node in _all_nodes(self._model):
            for name, attribute in list(node.attributes.items()):
                if attribute.is_ref() or not isinstance(attribute.value, ir.ExternalTensor):
                    continue
                self._undo.callback(node.attributes.__setitem__, name, attribute)
                node.attributes[name] = ir.AttrTensor(name, _in_memory(attribute.value))


def _initializers(model: ir.Model) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """Yield each initializer of the graph and its subgraphs that has data."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value, value.const_value


def _all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


def _in_memory(tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    """Return a copy of `tensor` that no longer needs its file."""
    array = np.array(tensor.numpy())
    return ir.Tensor(
        array,
        dtype=tensor.dtype,
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )


def dump(tensor: ir.TensorProtocol, file: BinaryIO) -> None:
    """Append the bytes of `tensor` to `file`, without a copy in memory where it can."""
    if isinstance(tensor, ir.ExternalTensor):
        tensor.tofile(file)
    elif isinstance(tensor, ir.Tensor):
        array = tensor.numpy()
        if array.flags.c_contiguous:
            tensor.tofile(file)
        else:  # numpy would write one element at a time
            file.write(tensor.tobytes())
        release(array)
    else:
        file.write(tensor.tobytes())


def reference(
    tensor: ir.TensorProtocol, value: ir.Value, location: str, offset: int
) -> ir.ExternalTensor:
    """Return a tensor equal to `tensor` whose bytes lie in `location` from `offset` on."""
    shape = ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor(
        location,
        offset,
        tensor.nbytes,
        tensor.dtype,
        shape=shape,
        name=value.name or tensor.name or "",
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )
