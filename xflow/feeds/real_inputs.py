"""Inputs given by the user: arrays in .npz files, and the test data of ONNX's model zoo.

An .npz file holds one set of inputs, an array under the name of each. A folder holds such files, or
folders `test_data_set_N` with a message `input_K.pb` for the K-th input, or is one of these. The
files `output_K.pb` beside them are not read: models are compared with the input model instead.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, numpy_helper

from xflow.core.errors import UsageError
from xflow.core.limits import FED_BYTES
from xflow.feeds.edge_cases import InputSet
from xflow.feeds.inputs import element, is_fixed, is_sequence
from xflow.onnx.interface import required_inputs

Given: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""A file, a folder, or the arrays themselves by the names of the inputs."""

SET = re.compile(r"test_data_set_(\d+)")
SINGLE = b"\x93NUMPY"
"""How a file of one array begins."""
MESSAGE = re.compile(r"input_(\d+)\.pb")


def real_inputs(model: ModelProto, given: Given | Sequence[Given] | None) -> list[InputSet]:
    """Return the sets of inputs that a user gives for a model.

    Raises UsageError, in one sentence, for missing files and arrays that do not fit the model.
    """
    if given is None:
        return []
    if isinstance(given, str | os.PathLike | Mapping):
        given = [given]
    found: list[InputSet] = []
    for number, each in enumerate(given, 1):
        if isinstance(each, Mapping):
            found.append(_checked(model, each, f"set {number} of the inputs"))
        elif isinstance(each, str | os.PathLike):
            found += [_checked(model, *pair) for pair in _read(model, Path(each))]
        else:
            what = f"inputs are files, folders or mappings, and not {type(each).__name__}"
            raise UsageError(what, do='give them as {"name": array}')
    return found


def _read(model: ModelProto, path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the sets in a file or a folder, each with its place."""
    if path.is_file():
        yield _archive(model, path), str(path)
        return
    if not path.is_dir():
        raise UsageError("there is no such file or folder of inputs", str(path))
    if _messages(path):
        yield _test_data(model, path), str(path)
        return
    archives = sorted(path.glob("*.npz"))
    folders = sorted(
        (each for each in path.iterdir() if each.is_dir() and SET.fullmatch(each.name)),
        key=lambda each: int(each.name.rpartition("_")[2]),
    )
    if not archives and not folders:
        what = "there are no inputs in this folder"
        raise UsageError(what, str(path), "put .npz files or folders test_data_set_N there")
    for each in archives:
        yield _archive(model, each), str(each)
    for each in folders:
        if not _messages(each):
            raise UsageError("there is no input_0.pb in this folder", str(each))
        yield _test_data(model, each), str(each)


def _archive(model: ModelProto, path: Path) -> Mapping[str, Any]:
    """Read a file of arrays; nothing in it is run.

    The headers come first: what they claim must suit the model, and the file must be as long.
    """
    do = "make it with numpy.savez, and the name of an input for each array"
    try:
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                single = file.read(len(SINGLE)) == SINGLE
            what = "this is a single array" if single else "this is no .npz file"
            raise UsageError(what, str(path), do)
        with zipfile.ZipFile(path) as archive:
            members = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
            _check_headers(model, archive, members, str(path))
            return {name: _array(archive, member) for name, member in members.items()}
    except UsageError:
        raise
    except Exception as error:  # numpy, zipfile and the parser of headers raise many types
        raise UsageError("this .npz file cannot be read", str(path), do) from error


def _check_headers(
    model: ModelProto,
    archive: zipfile.ZipFile,
    members: Mapping[str, zipfile.ZipInfo],
    where: str,
) -> None:
    """Raise UsageError unless the arrays of a file suit the model by what their headers say."""
    required = _required(model, members, where)
    for name, member in members.items():
        with archive.open(member) as file:
            shape, dtype = _header(file)
        if dtype.hasobject:
            do = "save strings as numpy's own, with dtype=str"
            raise UsageError("it holds Python objects", where, do)
        _check_suits(required[name], shape, dtype, where)
        claimed = math.prod(shape) * dtype.itemsize
        if claimed > member.file_size:
            what = f"array {name!r} has {member.file_size} bytes where {claimed} are needed"
            raise UsageError(what, where)
        if claimed > FED_BYTES:
            what = f"array {name!r} has {claimed} bytes, and {FED_BYTES} at most can be given"
            raise UsageError(what, where)


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and type of an array in a file, as its header says."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:  # the third version is as the second, but for letters in the names of fields
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    if any(size < 0 for size in shape):
        raise ValueError("a negative size")
    return shape, dtype


def _messages(folder: Path) -> dict[int, Path]:
    """The messages of a folder, by number."""
    found = {int(m[1]): each for each in folder.iterdir() if (m := MESSAGE.fullmatch(each.name))}
    return dict(sorted(found.items()))


def _test_data(model: ModelProto, folder: Path) -> Mapping[str, Any]:
    """Read messages that are numbered as the model's inputs are.

    One that has the name of an input is that input. Models of old list their weights as inputs,
    too, and the numbers may count these or not.
    """
    messages = _messages(folder)
    required = required_inputs(model)
    every = {item.name: item for item in model.graph.input}
    numbered = required
    if max(messages) >= len(required):
        numbered = list(model.graph.input)
    values: dict[str, Any] = {}
    for number, path in messages.items():
        data = path.read_bytes()
        if number >= len(numbered):
            what = f"the model has {len(required)} inputs, and this is number {number} from 0"
            raise UsageError(what, str(path))
        item = numbered[number]
        named = _name_of(data)
        item = every.get(named, item)
        values[item.name] = _message(item, data, path)
    return values


def _name_of(data: bytes) -> str:
    """The name in a message of a tensor."""
    tensor = TensorProto()
    try:
        tensor.ParseFromString(data)
    except Exception:  # protobuf has no common type of error
        return ""
    return str(tensor.name)


def _message(item: ValueInfoProto, data: bytes, path: Path) -> Any:
    """The value in a message of the type of an input."""
    kind = item.type.WhichOneof("value")
    try:
        if kind == "tensor_type":
            return numpy_helper.to_array(onnx.load_tensor_from_string(data))
        if kind == "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        if kind == "optional_type":
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    except Exception as error:  # protobuf and numpy_helper raise many types
        what = f"this is no message for input {item.name!r}, which is a {_said(item)}"
        raise UsageError(what, str(path)) from error
    raise UsageError(f"input {item.name!r} is a {_said(item)}, which cannot be given", str(path))


def _checked(model: ModelProto, values: Mapping[str, Any], where: str) -> InputSet:
    """The set of inputs, if it fits the model."""
    required = _required(model, values, where)
    made: dict[str, Any] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, item in required.items():
        if name not in values:
            raise UsageError(f"there is no value for input {name!r}", where)
        value = values[name]
        if is_sequence(item):
            if not isinstance(value, list | tuple) or not value:
                what = f"input {name!r} is a list of tensors, and none is given"
                raise UsageError(what, where)
            made[name] = [_tensor(item, each, where) for each in value]
            shapes[name] = made[name][0].shape
        else:
            made[name] = _tensor(item, value, where)
            shapes[name] = made[name].shape
    return InputSet(where, made, shapes, planted=not all(map(_is_finite, made.values())))


def _required(model: ModelProto, given: Iterable[str], where: str) -> dict[str, ValueInfoProto]:
    """The inputs that need values. Raises UsageError if some are given for what is none of them."""
    required = {item.name: item for item in required_inputs(model)}
    weights = {item.name for item in model.graph.input} - set(required)
    names = ", ".join(map(repr, required)) or "none"
    for name in given:
        if name in weights:
            raise UsageError(f"input {name!r} has a value in the model, and none is given", where)
        if name not in required:
            do = f"its inputs are: {names}"
            raise UsageError(f"the model has no input {name!r}", where, do)
    return required


def _tensor(item: ValueInfoProto, value: Any, where: str) -> np.ndarray:
    """One tensor of an input, of its very type, and of a shape that it may have."""
    if value is None:
        what = f"input {item.name!r} is given without a value, which is not supported"
        raise UsageError(what, where)
    array = np.asarray(value)
    _check_suits(item, array.shape, array.dtype, where)
    if element(item).type.tensor_type.elem_type == TensorProto.STRING:
        return array.astype(object)
    # numpy forgets the names of short floats when it saves them
    return array.view(_type_of(item)) if array.dtype.kind == "V" else array


def _type_of(item: ValueInfoProto) -> np.dtype:
    """The type of arrays for an input, of whose tensors the type is known."""
    kind = element(item).type.tensor_type.elem_type
    dtype: np.dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    return dtype


def _check_suits(
    item: ValueInfoProto,
    sizes: tuple[int, ...],
    dtype: np.dtype,
    where: str,
) -> None:
    """Raise UsageError unless an array of that shape and type may be given for an input."""
    name, kind = item.name, element(item).type
    if kind.WhichOneof("value") != "tensor_type":
        raise UsageError(f"input {name!r} is a {_said(item)}, which cannot be given", where)
    wanted = _type_of(item)
    text = kind.tensor_type.elem_type == TensorProto.STRING
    suits = dtype.kind in "UO" if text else dtype == wanted
    if not suits and (text or dtype.kind != "V" or dtype.itemsize != wanted.itemsize):
        said = "strings" if text else str(wanted)
        raise UsageError(f"input {name!r} is of {dtype}, and the model takes {said}", where)
    shape = kind.tensor_type.shape
    if not kind.tensor_type.HasField("shape"):
        return
    said = ",".join(map(str, sizes)) or "no dimensions"
    if len(shape.dim) != len(sizes):
        what = (
            f"input {name!r} has the shape {said}, and the model takes {len(shape.dim)} dimensions"
        )
        raise UsageError(what, where)
    for axis, (dim, size) in enumerate(zip(shape.dim, sizes, strict=True)):
        if is_fixed(dim) and dim.dim_value != size:
            what = f"dimension {axis} of input {name!r} is {size}, and {dim.dim_value} in the model"
            raise UsageError(what, where)


def _is_finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_finite, value))
    real = value.dtype.kind in "fcV"
    return not real or bool(np.isfinite(value.astype(np.complex128)).all())


def _said(item: ValueInfoProto) -> str:
    kind = str(item.type.WhichOneof("value")).removesuffix("_type")
    return kind.replace("_", " ")
