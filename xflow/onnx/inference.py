"""ONNX's shape inference, in a process of its own.

Inference believes the numbers in a model: a hostile or damaged one makes it read memory that is not
there, or compute without end. Then that process dies or is killed, and the caller is told. It is
started once, and again after a failure. What runs inside is `xflow.onnx.inference_child`.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from pathlib import Path

import onnx

from xflow.core.limits import STEP_BYTES
from xflow.core.processes import Script

LIMIT_S = 30.0
"""Seconds that inference of a model may take; that of 100,000 operators takes three."""
LARGE = 4096
"""Elements of a constant from which on its data is not sent: no shape has so many sizes."""
KEPT_BYTES = 16 * 2**20
"""Size of the largest requests whose answers are kept: that of 100,000 operators has as many."""
WITH_CONTENTS, WITHOUT = b"1", b"0"
"""How a request begins: whether the contents of shapes are followed."""

_script = Script(Path(__file__).with_name("inference_child.py"), str(STEP_BYTES), str(int(LIMIT_S)))

_late: dict[bytes, str] = {}
"""Requests that took too long, by their hashes: a model is inferred several times in a run."""


class InferenceError(Exception):
    """Inference failed; the message says why, in the words of ONNX or of the system."""


def prepare() -> None:
    """Start the process, which takes a while to come up, if it does not run yet."""
    _script.start()


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the message with the types that ONNX's inference gives its values.

    Raises InferenceError. Where following the contents of shapes takes too much memory (it slices
    what has a billion elements one by one), or ends the process, their contents stay unknown.
    """
    slim, left_out = _without_weights(model)
    request = slim.SerializeToString()
    try:
        answer = _ask(WITH_CONTENTS + request)
    except ChildProcessError:
        try:
            answer = _ask(WITHOUT + request)
        except ChildProcessError:
            raise InferenceError("ONNX's inference crashed") from None
    inferred = onnx.ModelProto.FromString(answer)
    if left_out:
        del inferred.graph.input[len(model.graph.input) :]
        del inferred.graph.initializer[:]
        inferred.graph.initializer.extend(model.graph.initializer)
    return inferred


def _ask(request: bytes) -> bytes:
    """What the process answers. Raises InferenceError, and ChildProcessError where it dies.

    The last answers are kept: in a run, a model is inferred as it is and at the sizes of each use.
    """
    return _asked(request) if len(request) <= KEPT_BYTES else _asked.__wrapped__(request)


@lru_cache(maxsize=4)
def _asked(request: bytes) -> bytes:
    key = hashlib.sha256(request).digest()
    try:
        if key in _late:
            raise TimeoutError(_late[key])
        answer = _script.ask(request, LIMIT_S)
    except TimeoutError as error:
        _late[key] = str(error)
        raise InferenceError(str(error)) from None
    if answer[:1] == b"-":
        raise InferenceError(answer[1:].decode(errors="replace"))
    return answer[1:]


def _without_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, bool]:
    """The message with large weights as inputs, behind its own; says whether there are any.

    Inference knows the type of an input all the same.
    """
    graph = model.graph
    large = [each for each in graph.initializer if math.prod(each.dims) > LARGE]
    if not large:
        return model, False
    names = {each.name for each in graph.input}
    slim = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(slim, field.name, value)
    for field, value in graph.ListFields():
        if field.name != "initializer":
            _copy(slim.graph, field.name, value)
    for each in graph.initializer:
        if math.prod(each.dims) <= LARGE:
            slim.graph.initializer.append(each)
        elif each.name not in names:
            kind = onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims)
            slim.graph.input.append(kind)
    return slim, True


def _copy(message: onnx.ModelProto | onnx.GraphProto, name: str, value: object) -> None:
    """Give a field of a message the value that it has in another one."""
    field = getattr(message, name)
    if hasattr(field, "MergeFrom"):
        field.MergeFrom(value)
    else:
        setattr(message, name, value)
