"""Damaged model files, and a process that optimizes many of them and tells how each ended.

As a script it reads one line of JSON for each run, [input, output], and answers with one: the exit
code, what was said on stderr, and the seconds that it took. Its memory is limited.
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

MEMORY = 4 * 2**30
OPTIONS = (
    *("--cost", "estimated", "--budget", "0.3", "--threads", "1", "--check", "1", "--seed", "1"),
)


def damaged(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """The bytes of a model after an accident: bits flipped, an end lost, parts of another in it."""
    kind = chance.choice(("flip", "flip", "flip bytes", "truncate", "splice", "repeat", "numbers"))
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


def serve() -> None:
    """Answer runs until the end of the input."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    import suites  # noqa: PLC0415 - found beside this file

    from xflow import api, cli, explorers, rule_files  # noqa: PLC0415

    patched: Any = (api, explorers, rule_files)  # as tests patch them, but for the whole process

    kept = suites.Kept()
    patched[0].Worker = lambda *_: kept
    patched[2].load_rules = lambda _: list(suites.rules())
    patched[1].RuleIndex = lambda _: suites.rule_index()
    answers = sys.stdout
    for line in sys.stdin:
        source, target = json.loads(line)
        start = time.monotonic()
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = cli.main(["optimize", source, target, *OPTIONS])
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
