"""Damaged model files, and a process that optimizes many of them and reports the results.

As a script it reads one line of JSON for each run, [input, output], and answers with one: the exit
code, the text on stderr, and the seconds that it took. Its memory is limited.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import Message

from xflow.onnx.external_data import all_tensors
from xflow.onnx.proto_compat import all_nodes

MEMORY = 4 * 2**30
OPTIONS = (
    *("--cost", "estimated", "--budget", "0.3", "--threads", "1", "--check", "1", "--seed", "1"),
)


ODD_NAMES = (
    *(
        "",
        "\0",
        "a\0b",
        "\n",
        "\x1b[31m",
        "\u202e",
        "..",
        "../w.bin",
        "a b",
        "lambda",
        "-1",
        "\ufb01",
    ),
    *("n" * 10_000, "a//0", "x + y*(z//2)", "'\"<script>", "%s{x}[/b]", "__import__('os')"),
    "+".join(f"n{k}" for k in range(5_000)),
    "*".join(f"(a{k} + b{k})" for k in range(24)),
    "(" * 3_000 + "a" + ")" * 3_000,
)
"""Names that no exporter writes and that may break a program: with terminal sequences, paths,
expressions, or of great length."""
NO_TEXT = b"\xed\xa0\x80"
"""Half of a character, which is invalid UTF-8."""


def damaged(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """The bytes of a model after an accident: bits flipped, an end lost, parts of another in it.

    Or after an edit by hand: of names, the order of operators, the place of data.
    """
    by_hand = ("name", "name everywhere", "order", "external", "no text")
    kind = chance.choice(
        ("flip", "flip", "flip bytes", "truncate", "splice", "repeat", "numbers", *by_hand)
    )
    if kind in by_hand:
        return edited(data, kind, chance)
    spot = chance.randrange(len(data))
    if kind == "truncate":
        return data[:spot]
    if kind == "splice":
        start = chance.randrange(len(other))
        return data[:spot] + other[start : start + chance.randrange(1, 400)] + data[spot:]
    if kind == "repeat":
        end = min(len(data), spot + chance.randrange(1, 200))
        return data[:end] + data[spot:end] * chance.randrange(1, 4) + data[end:]
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        place = chance.randrange(len(changed))
        if kind == "flip":
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == "flip bytes":
            changed[place] = chance.randrange(256)
        else:  # what lengths, sizes and versions look like
            changed[place : place + 5] = chance.choice(
                (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10", b"\x00" * 5, b"\x7f" * 5)
            )
    return bytes(changed)


def edited(data: bytes, kind: str, chance: random.Random) -> bytes:
    """The bytes of a model in which one thing was changed, and all else is consistent."""
    model = onnx.ModelProto.FromString(data)
    if kind == "order":
        graph = chance.choice(list(_graphs(model)))
        nodes = list(graph.node)
        chance.shuffle(nodes)
        moved = onnx.GraphProto(node=nodes).node
        del graph.node[:]
        graph.node.extend(moved)
    elif kind == "external":
        tensors = list(all_tensors(model))
        if tensors:
            tensor = chance.choice(tensors)
            for field in ("raw_data", "float_data", "int32_data", "int64_data"):
                tensor.ClearField(field)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=chance.choice(ODD_NAMES))
    elif kind == "name everywhere":  # wherever it stands, so that the model means the same
        strings = list(_strings(model))
        message, field, place = chance.choice(strings)
        old, new = _at(message, field, place), chance.choice(ODD_NAMES)
        for message, field, place in strings:
            if _at(message, field, place) == old:
                _put(message, field, place, new)
    else:
        message, field, place = chance.choice(list(_strings(model)))
        _put(message, field, place, "SPOILED" if kind == "no text" else chance.choice(ODD_NAMES))
    changed: bytes = model.SerializeToString()
    if kind == "no text":  # of the same length: protobuf writes no such text
        changed = changed.replace(b"SPOILED", NO_TEXT + b"ILED")
    return changed


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield model.graph
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g


def _strings(message: Any) -> Iterator[tuple[Any, str, int | None]]:
    """Each text in a message: where it stands, and its number in a list of them."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in [value] if isinstance(value, Message) else value:
                yield from _strings(part)
        elif field.type == field.TYPE_STRING:
            if isinstance(value, str):
                yield message, field.name, None
            else:
                yield from ((message, field.name, number) for number in range(len(value)))


def _at(message: Any, field: str, place: int | None) -> str:
    value = getattr(message, field)
    return str(value if place is None else value[place])


def _put(message: Any, field: str, place: int | None, text: str) -> None:
    if place is None:
        setattr(message, field, text)
    else:
        getattr(message, field)[place] = text


def serve() -> None:
    """Answer runs until the end of the input."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    import suites  # noqa: PLC0415 - found beside this file

    from xflow.cli import entry  # noqa: PLC0415
    from xflow.pipeline import api  # noqa: PLC0415

    kept = suites.Kept()
    patched: Any = api  # as tests patch it, for the whole process
    patched.Worker = lambda *_: kept
    answers = sys.stdout
    for line in sys.stdin:
        source, target = json.loads(line)
        start = time.monotonic()
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = entry.main(["optimize", source, target, *OPTIONS])
        seconds = time.monotonic() - start
        print(json.dumps([int(code), said.getvalue(), seconds]), file=answers, flush=True)


def seeds(folder: Path) -> Iterator[bytes]:
    """Models to damage: whole networks, control flow, functions, old and new opsets."""
    import suites  # noqa: PLC0415

    yield (folder / "squeezenet1_1.onnx").read_bytes()
    yield (folder / "mobilenetv3_large_100.onnx").read_bytes()
    for suite in suites.stored_models():
        yield suite.model.SerializeToString()
    for suite in suites.node_models(("if_", "loop", "scan", "sequence_map", "layernormalization")):
        yield suite.model.SerializeToString()


if __name__ == "__main__":
    serve()
