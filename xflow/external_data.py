"""Weights that lie in files beside the model: finding them in a model, and moving them out."""

import contextlib
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from xflow.pages import release

SMALL = 1024
"""Tensors of fewer bytes stay in the model: shapes and scalars are read without the data."""

DIGITS = 18
"""Most digits of an offset or a length: no file is longer."""

ALIGNMENT = 64
"""Offsets in a data file are multiples of this, so that mapped tensors suit vector loads."""


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield each tensor of `model` whose data lies elsewhere, in subgraphs and attributes too."""
    for tensor in all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield each tensor of `model`, in subgraphs, attributes and functions too."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _graph_tensors(attribute.g)
            for graph in attribute.graphs:
                yield from _graph_tensors(graph)


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
        needed = byte_size(tensor)
        offset = _number(tensor, entries, "offset", 0)
        length = _number(tensor, entries, "length", needed)
        if length != needed:
            raise ValueError(f"tensor {tensor.name!r} has {length} bytes there and needs {needed}")
        location = entries.get("location", "")
        ends[location] = max(ends.get(location, 0), offset + needed)
    return ends


def byte_size(tensor: onnx.TensorProto) -> int:
    """Return the bytes that a tensor takes by its shape; raises ValueError if that is none."""
    if any(size < 0 for size in tensor.dims):
        raise ValueError(f"tensor {tensor.name!r} has a negative dimension")
    try:
        bits = int(ir.DataType(tensor.data_type).bitwidth)
    except TypeError as error:  # strings
        raise ValueError(f"tensor {tensor.name!r} is of a type without a size") from error
    elements: int = math.prod(tensor.dims)
    return -(-elements * bits // 8)


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {item.key: item.value for item in tensor.external_data}


def _number(tensor: onnx.TensorProto, entries: dict[str, str], key: str, default: int) -> int:
    """Return an offset or length."""
    text = entries.get(key)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > DIGITS:
        raise ValueError(f"tensor {tensor.name!r} has a wrong {key}, which is no number")
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
        """Open a new file for `location` or, where that exists, for the next free number."""
        wanted = Path(location)
        number = 0
        while True:
            name = wanted if not number else wanted.with_suffix(f".{number}{wanted.suffix}")
            path = self._target.parent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(path):
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
