"""Model files: reading them with clear refusals, and writing them whole or not at all."""

import contextlib
import functools
import math
import mmap
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import Message

from xflow.core.atomic import replacing, unwinding_on_termination
from xflow.core.errors import ModelError, OutputError
from xflow.core.expressions import shortened
from xflow.core.open_files import MAPPED, SPARE, allows_open_files
from xflow.onnx import inference, other_formats
from xflow.onnx.checker import OWN_DOMAIN, check_message, check_model
from xflow.onnx.external_data import (
    Externalized,
    all_tensors,
    byte_size,
    embed,
    embedded,
    external_ends,
    external_locations,
    external_tensors,
    has_external_data,
    misplaced,
)
from xflow.onnx.proto_compat import (
    PROTOBUF_LIMIT,
    check_no_notes,
    from_message,
    serialized,
    to_message,
)
from xflow.onnx.refusals import refuse
from xflow.onnx.repairs import PUT_RIGHT, put_right
from xflow.onnx.streamed_writer import Pieces, pieces

MOST_ELEMENTS = 2**58
"""Elements that a tensor may have, dimensions of no elements aside: numpy counts bytes in 63 bits,
and takes 16 for an element at most."""
BEGINNING = b"\x08"
"""What a model starts with, and nearly nothing else: its IR version's key (field 1, a varint)."""
SMALL_FILE = 2**26
"""Bytes up to which any file is looked through for the name of a data file."""
LOOKED_THROUGH = 2**31
"""Bytes of a folder that are looked through for it; beyond these, data counts as needed."""
LONGEST = 300
"""Characters of what other libraries say that are repeated."""


def load_model(path: str | os.PathLike[str]) -> ir.Model:
    """Return the model in `path`, its external data mapped rather than read.

    What the checker objects to and the runtime does not is put right, see `xflow.onnx.repairs`.
    Raises ModelError, in one sentence, for anything but a whole and valid ONNX model.
    """
    path = Path(path)
    inference.prepare()  # it comes up while the file is read
    proto = _parse(path)
    _check_tensors(proto, path)
    _check_external_data(proto, path)
    _check_open_files(proto, path)
    notes = _checked(proto, path)
    try:
        check_no_notes(proto)
        model = from_message(proto)
    except Exception as error:
        what = f"this model cannot be understood: {reason(error)}"
        raise ModelError(what, str(path)) from error
    ir.external_data.set_base_dir(model.graph, path.parent)
    spell_domain(model)
    model.meta[PUT_RIGHT] = notes
    return model


def _checked(proto: onnx.ModelProto, path: Path) -> tuple[str, ...]:
    """What was put right in the message in `path` to make it valid. Raises ModelError."""
    notes: list[str] = []
    try:
        try:
            check_model(path, proto)
        except Exception:  # the checker raises what its C++ side throws
            notes = put_right(proto)
            if not notes:
                raise
            check_message(proto)
        refuse(proto)
    except ModelError as error:
        where = f"{path}: {error.where}" if error.where else str(path)
        raise ModelError(error.what, where, error.do) from error
    except Exception as error:
        what = f"this is not a valid ONNX model: {reason(error)}"
        raise ModelError(what, str(path)) from error
    return tuple(notes)


def spell_domain(model: ir.Model) -> None:
    """Spell ONNX's own domain in one way: `ai.onnx` is another name for none."""
    parts: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for part in parts:
        imports = part.opset_imports
        if OWN_DOMAIN in imports:
            imports.setdefault("", imports.pop(OWN_DOMAIN))
        for node in part.all_nodes():
            if node.domain == OWN_DOMAIN:
                node.domain = ""


def _parse(path: Path) -> onnx.ModelProto:
    """Return the message in `path` if it looks like a model at all."""
    where = str(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelError("this is a directory, not a model", where)
        if not stat.S_ISREG(mode):
            raise ModelError("this is not a regular file", where)
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelError("there is no such file", where) from error
    except OSError as error:
        raise ModelError(f"the file cannot be read: {error.strerror}", where) from error
    if not data:
        raise ModelError("the file is empty", where)
    begins_like_a_model = data.startswith(BEGINNING)
    try:
        proto = onnx.ModelProto.FromString(data)
    except Exception as error:  # the class of DecodeError depends on the protobuf in use
        if begins_like_a_model:
            raise ModelError("the model is truncated or damaged", where) from error
        raise _no_model(data, where) from error
    # Protobuf accepts much that is no model: unknown fields are kept, missing ones forgiven.
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        if not begins_like_a_model:
            raise _no_model(data, where)
        raise ModelError("the model is truncated: it has no graph", where)
    if not proto.opset_import:
        raise ModelError("the model is truncated or damaged: it names no operator set", where)
    if not _is_text(proto):
        raise ModelError("the model is damaged: a name in it is no text", where)
    return proto


def _no_model(data: bytes, where: str) -> ModelError:
    """The error for a file that is no ONNX model, with what it is instead where that is known."""
    what, do = other_formats.told(data)
    return ModelError(f"this is not an ONNX model{what and f', but {what}'}", where, do)


def _is_text(message: Message) -> bool:
    """Tell whether every string of a message is one: protobuf lets any bytes pass for a string.

    The data of tensors is not touched; messages are nested a hundred levels at most.
    """
    if isinstance(message, onnx.TensorProto):
        texts: list[object] = [message.name, message.doc_string]
        parts: Iterable[Message] = [*message.external_data, *message.metadata_props]
        return all(isinstance(text, str) for text in texts) and all(map(_is_text, parts))
    for field, value in message.ListFields():
        items = [value] if isinstance(value, Message | str | bytes) else value
        if field.type == field.TYPE_MESSAGE:
            if not all(map(_is_text, items)):
                return False
        elif field.type == field.TYPE_STRING and not all(isinstance(each, str) for each in items):
            return False
    return True


def _check_tensors(proto: onnx.ModelProto, path: Path) -> None:
    """Raise ModelError unless all tensors have types, and as much data as their shapes need.

    The checker finds only those that have too little, and passes types that there are not.
    """
    for tensor in all_tensors(proto):
        if tensor.data_type not in _TYPES:
            what = f"there is no element type {tensor.data_type}"
            raise ModelError(what, f"{path}: tensor {shortened(tensor.name)}")
        if math.prod(max(1, size) for size in tensor.dims) > MOST_ELEMENTS:
            what = "its dimensions are larger than those of any tensor in memory"
            raise ModelError(what, f"{path}: tensor {shortened(tensor.name)}")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            continue
        with contextlib.suppress(ValueError, TypeError, KeyError):  # the checker will refuse it
            there, needed, unit = _extent(tensor)
            if there > needed:
                what = f"it has {there} {unit} where {needed} are needed"
                raise ModelError(what, f"{path}: tensor {shortened(tensor.name)}")


def _extent(tensor: onnx.TensorProto) -> tuple[int, int, str]:
    """How many bytes, or elements of its type's field, a tensor has, and how many it needs."""
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data), byte_size(tensor), "bytes"
    there = len(getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type)))
    elements = math.prod(tensor.dims)
    if tensor.data_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        elements *= 2
    elif tensor.data_type != onnx.TensorProto.STRING:
        elements = min(elements, byte_size(tensor))  # less than a byte each, several in one
    return there, elements, "elements"


_TYPES = frozenset(int(each) for each in ir.DataType)


def _check_open_files(proto: onnx.ModelProto, path: Path) -> None:
    """Raise ModelError where the system does not allow to map all external tensors."""
    count = sum(1 for _ in external_tensors(proto))
    if count and not allows_open_files(count):
        what = f"it has {count} tensors in files, and the process may not have so many files open"
        raise ModelError(what, str(path), f"allow more, as by `ulimit -n {MAPPED * count + SPARE}`")


def _check_external_data(proto: onnx.ModelProto, path: Path) -> None:
    """Raise ModelError unless all external data of `proto` lies beside `path`, long enough.

    What onnx-ir cannot map is read into the message.
    """
    try:
        ends = external_ends(proto)
    except ValueError as error:
        raise ModelError(f"the external data does not fit: {error}", str(path)) from error
    for location, end in ends.items():
        where = f"{path}: external data {shortened(location)!r}"
        reason = misplaced(location)
        if reason:
            raise ModelError(reason, where, "put the data beside the model, and name it so")
        file = path.parent / location
        folder = path.parent.resolve()
        try:
            if not file.resolve().is_relative_to(folder):
                advice = "copy the model and its data into one folder, without links"
                raise ModelError("the file lies outside the model's folder", where, advice)
            if not file.exists():
                raise ModelError("the file is missing", where, "put it beside the model")
            if not file.is_file():
                raise ModelError("this is not a regular file", where)
            status = file.stat()
        except (OSError, RuntimeError) as error:  # too long a name, or links in a circle
            said = getattr(error, "strerror", None) or "its links lead in a circle"
            raise ModelError(f"the file cannot be read: {said}", where) from error
        if status.st_nlink > 1:  # which the checker takes for an attack
            advice = "copy the file, and put the copy in its place"
            raise ModelError("the file has several names (hard links)", where, advice)
        if status.st_size < end:
            what = f"the file is truncated: {status.st_size} bytes where {end} are needed"
            raise ModelError(what, where)
    try:
        embed(proto, path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"the external data cannot be read: {reason}", str(path)) from error


def reason(error: BaseException) -> str:
    """Return what an error of other libraries says, on one line, and at which operator.

    The checker names that in a context behind an empty line; onnx-ir's errors print the part of the
    model at hand, and only the first of them says what is wrong with it.
    """
    while isinstance(error, ir.serde.SerdeError) and error.__cause__ is not None:
        error = error.__cause__
    text = str(error)
    said = " ".join(re.split(r"\n\s*\n|==> ", text.strip())[0].split()).rstrip(".")
    place = re.search(r"Bad node spec for node\. Name: *(.*?) *OpType: *(\w+)", text)
    where = f" (at {shortened(f'{place[2]} {place[1]}'.rstrip())})" if place else ""
    return f"{said[:LONGEST]}{where}" if said else type(error).__name__


def check_output(
    path: str | os.PathLike[str], source: str | os.PathLike[str] | None = None
) -> Path:
    """Return where a write to `path` really goes (links followed), or raise OutputError.

    `source` is the input model: neither it nor its external data may be written.
    """
    where = os.fspath(path)
    if not where:
        raise OutputError("the output has no name")
    try:
        target = Path(os.path.realpath(where))
        if target.is_dir() or where.endswith(os.sep):
            raise OutputError("this is a directory", where, "name a file in it as the output")
        if not target.parent.is_dir():
            raise OutputError("its folder does not exist", where, "create the folder first")
        if not os.access(target.parent, os.W_OK):
            raise OutputError("its folder is not writable", where)
        if target.exists() and not target.is_file():
            raise OutputError("this is not a regular file", where)
        if source is not None:
            _refuse_inputs(target, where, Path(source))
    except OSError as error:
        raise OutputError(f"it cannot be written: {error.strerror}", where) from error
    return target


def _refuse_inputs(target: Path, where: str, source: Path) -> None:
    """Raise OutputError if `target` is the input model or belongs to it."""
    if not target.exists() or not source.exists():
        return
    advice = "choose another output"
    if target.samefile(source):
        raise OutputError("this is the input, which is never written", where, advice)
    for data in data_files(source):
        if target.samefile(data):
            raise OutputError("this is the input's external data", where, advice)


def data_files(path: Path) -> list[Path]:
    """Return the existing external data files of the model in `path`; none if it is no model."""
    names = (name for name in data_locations(path) if not misplaced(name))
    return [file for file in (path.parent / name for name in names) if _is_file(file)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long a name
        return False


def data_locations(path: Path) -> list[str]:
    """Return the data files that the model in `path` names, each once; none if it is no model."""
    # Every reference to a data file has the key "location"; most models need no parsing for this.
    if not _mentions(path, "location"):
        return []
    try:
        return external_locations(_parse(path))
    except ModelError:
        return []


def write_model_atomically(
    model: ir.Model | onnx.ModelProto | bytes,
    path: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    inline_limit: int = PROTOBUF_LIMIT,
) -> None:
    """Write `model` to `path` so that, whatever happens, the old or the new model is there, whole.

    Bytes and messages that hold all their data are written as they are.  Where `source` (the
    input model's file) kept weights in external data, or the model would exceed `inline_limit`
    bytes, weights go to data files beside the output: named as those of `source`, or after the
    output if that is in the same folder.  No existing data file is overwritten; a name that is
    taken gets a number.  Raises OutputError; nothing is then left behind.
    """
    target = check_output(path, source)
    source = None if source is None else Path(source)
    created: list[Path] = []
    outdated: list[Path] = []
    with unwinding_on_termination():
        try:
            # An output that exists is a model with, perhaps, data that nobody needs afterwards.
            outdated = data_files(target) if target.is_file() else []
            data = self_contained(model, source, inline_limit)
            if data is None:
                data = _externalize(model, target, source, created)
            if data is None:
                raise OutputError("the model exceeds 2 GiB even without its weights", str(path))
            with replacing(target) as file:
                data.write(file)
            _remove_outdated(outdated, created, target, source)
        except BaseException as error:
            _clean_up(outdated, created, target, source)
            if isinstance(error, OSError):
                reason = error.strerror or str(error)
                raise OutputError(f"it cannot be written: {reason}", str(path)) from error
            raise


def _clean_up(outdated: list[Path], created: list[Path], target: Path, source: Path | None) -> None:
    """Leave the data of the old or of the new model after an interruption, not of both.

    It may have come right after the new model had taken its place, so what stands there decides.
    """
    needed = data_files(target) if target.is_file() else []
    if created and all(file in needed for file in created):
        _remove_outdated(outdated, created, target, source)
        return
    for file in created:
        file.unlink(missing_ok=True)


def self_contained(
    model: ir.Model | onnx.ModelProto | bytes,
    source: Path | None = None,
    limit: int = PROTOBUF_LIMIT,
) -> Pieces | None:
    """Return the bytes of a model that needs no external data, or None if it needs some.

    It needs some, too, where `source`, the input model's file, has some.
    """
    if source is not None and data_files(source):
        return None
    if isinstance(model, bytes):
        return None if has_external_data(onnx.ModelProto.FromString(model)) else Pieces.of(model)
    if isinstance(model, ir.Model):
        if Externalized.weight_bytes(model) > limit:
            return None
        made = pieces(model)
        return made if made is not None and made.size <= limit else None
    return None if has_external_data(model) else _whole(serialized(model, limit))


def _externalize(
    model: ir.Model | onnx.ModelProto | bytes,
    target: Path,
    source: Path | None,
    created: list[Path],
) -> Pieces | None:
    """Write the data files of `model`, adding each to `created`; return the model's own bytes.

    None if these are more than a message may hold.
    """
    if isinstance(model, bytes):
        model = onnx.ModelProto.FromString(model)
    trained: Iterable[onnx.TrainingInfoProto] = ()  # which onnx-ir drops
    if not isinstance(model, ir.Model):
        folder = source.parent if source else target.parent
        whole = embedded(model, folder)
        trained = whole.training_info
        model = from_message(whole)
        ir.external_data.set_base_dir(model.graph, folder)
    layout: dict[str, str] = {}
    if source is not None and not source.parent.samefile(target.parent):
        layout = Externalized.layout(_parse(source))
    with Externalized(model, target, layout, created) as slim:
        message = to_message(slim)
        message.training_info.extend(trained)
        return _whole(serialized(message))


def _whole(data: bytes | None) -> Pieces | None:
    return None if data is None else Pieces.of(data)


def _remove_outdated(
    outdated: Iterable[Path], created: list[Path], target: Path, source: Path | None
) -> None:
    """Delete the data files that the overwritten output alone used, if new ones replaced them.

    Only files named like those just written qualify, and only if no other file in the folder that
    may be a model mentions them: what cannot be shown to be ours stays.
    """
    ours = {_unnumbered(file) for file in created}
    inputs = data_files(source) if source else []
    for file in outdated:
        if file in created or _unnumbered(file) not in ours:
            continue
        if any(file.samefile(data) for data in inputs):
            continue
        if os.path.realpath(file) == str(target):  # an output that named itself
            continue
        if not _is_in_use(file, target, {*outdated, *created, *inputs}):
            file.unlink(missing_ok=True)


def _is_in_use(data: Path, target: Path, no_models: set[Path]) -> bool:
    """Tell whether a model beside `target` may need a data file: one mentions it, or in doubt.

    Any file may be a model, such as a backup; only the target and `no_models` are known to be none.
    """
    left = LOOKED_THROUGH
    try:
        for other in target.parent.iterdir():
            if other == target or other in no_models or not _may_be_model(other):
                continue
            left -= other.stat().st_size
            if left < 0 or _mentions(other, data.name):
                return True
    except OSError:
        return True
    return False


def _may_be_model(file: Path) -> bool:
    """Tell whether a file may hold a model; a large one has to begin like those that are written.

    Else data of other models would be read, which may be gigabytes. Raises OSError.
    """
    if not file.is_file() or file.stat().st_size > PROTOBUF_LIMIT:
        return False
    if file.stat().st_size <= SMALL_FILE or file.suffix == ".onnx":
        return True
    with file.open("rb") as stream:
        return stream.read(1) == BEGINNING


def _unnumbered(file: Path) -> Path:
    """Return a data file's path without the number that made it unique."""
    return file.with_name(re.sub(r"\.\d+(?=\.[^.]*$|$)", "", file.name))


def _mentions(file: Path, word: str) -> bool:
    """Tell whether the bytes of `file` hold `word`; an unreadable file counts as holding it."""
    try:
        found = file.stat()
        return _holds(file, word, (found.st_ino, found.st_size, found.st_mtime_ns))
    except OSError:
        return True


@functools.lru_cache(maxsize=16)  # a run asks for the same files of gigabytes again and again
def _holds(file: Path, word: str, state: tuple[int, ...]) -> bool:
    """Tell whether the bytes of `file` hold `word`, in this state of it. Raises OSError."""
    with file.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            return False
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return view.find(word.encode()) >= 0


def write_text_atomically(text: str, path: str | os.PathLike[str]) -> None:
    """Write `text` in UTF-8 to `path`, whole or not at all; raises OutputError."""
    target = check_output(path)
    try:
        with unwinding_on_termination(), replacing(target) as file:
            file.write(text.encode())
    except OSError as error:
        raise OutputError(f"it cannot be written: {error.strerror}", os.fspath(path)) from error
