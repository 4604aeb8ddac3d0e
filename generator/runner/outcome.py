"""Outcomes: the result of running a chunk, or its error, with processor time and memory."""

from __future__ import annotations

import os
import pickle
import platform
import time
from dataclasses import dataclass
from typing import Any

import psutil

from xflow.generator.runner.chunks import Chunk


@dataclass(frozen=True)
class Outcome:
    """A chunk's result, or the sentence that says why there is none."""

    result: Any
    error: str = ""
    seconds: float = 0.0
    """Processor time."""
    wall: float = 0.0
    """Seconds from start to end."""
    memory: int = 0
    """Bytes resident in the process afterwards."""
    worker: str = ""
    """The process that ran it: machine and number."""


def execute(chunk: Chunk[Any]) -> Outcome:
    """Run a chunk. An exception that it raises is an outcome, since it would be raised again."""
    start, used = time.perf_counter(), time.process_time()
    error, result = "", None
    try:
        result = chunk.run()
    except MemoryError:
        raise  # not the chunk's fault: another time there may be enough
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    return Outcome(
        result,
        error,
        time.process_time() - used,
        time.perf_counter() - start,
        psutil.Process().memory_info().rss,
        f"{platform.node()}:{os.getpid()}",
    )


def pack(value: object) -> bytes:
    """`value` as compressed bytes."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> Any:
    """The inverse of `pack`."""
    return pickle.loads(data)
