"""Models on standard input and output, written as `-`: commands run on temporary files."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from xflow.core.errors import ExitCode, ModelError, NotFaster, OutputError, UsageError, XflowError
from xflow.onnx.proto_compat import PROTOBUF_LIMIT

PIPE = "-"
CHUNK = 2**20


def run(
    options: argparse.Namespace, optimize: Callable[[argparse.Namespace], ExitCode]
) -> ExitCode:
    """Run `optimize` on files that stand for the pipes.

    Its printed text goes to stderr where the model goes to stdout, and the model is written as a
    whole, or not at all.
    """
    if options.output == PIPE and sys.__stdout__ is None:
        raise UsageError("the standard output is closed", do="name a file as the output")
    with tempfile.TemporaryDirectory(prefix="xflow-") as folder:
        given = vars(options)
        own = argparse.Namespace(**{**given, "shown": (options.input, options.output)})
        if options.input == PIPE:
            own.input = str(Path(folder) / "in.onnx")
            _receive(Path(own.input))
            optimize = _named(optimize, own.input)
        if options.output != PIPE:
            return optimize(own)
        target = Path(folder) / "out" / "out.onnx"
        target.parent.mkdir()
        own.output = str(target)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                code = optimize(own)
        except (NotFaster, OSError):  # such as a text that cannot be shown
            if target.exists():
                _send(target)
            raise
        _send(target)
        return code


def _send(target: Path) -> None:
    """Write a model to stdout. Raises OutputError if it is more than one file."""
    if len(list(target.parent.iterdir())) > 1:
        what = "the model has its weights in a file beside it, which does not fit through a pipe"
        raise OutputError(what, PIPE, "name a file as the output")
    sys.stdout.buffer.write(target.read_bytes())
    sys.stdout.buffer.flush()


def receive(
    options: argparse.Namespace,
    names: Sequence[str],
    command: Callable[[argparse.Namespace], ExitCode],
) -> ExitCode:
    """Run a command on a file that stands for the standard input, as one of the options `names`.

    Raises UsageError where several of them are `-`.
    """
    (name, *others) = [name for name in names if getattr(options, name) == PIPE]
    if others:
        raise UsageError("one model alone can come through the standard input", do="name the other")
    with tempfile.TemporaryDirectory(prefix="xflow-") as folder:
        path = Path(folder) / "in.onnx"
        _receive(path)
        own = argparse.Namespace(**{**vars(options), name: str(path)})
        return _named(command, str(path))(own)


def _named(
    optimize: Callable[[argparse.Namespace], ExitCode], path: str
) -> Callable[[argparse.Namespace], ExitCode]:
    """`optimize`, whose errors name the standard input instead of the file `path` for it."""

    def run(options: argparse.Namespace) -> ExitCode:
        try:
            return optimize(options)
        except XflowError as error:
            if error.where == path:
                error.where = "standard input"
            raise

    return run


def _receive(path: Path) -> None:
    """Write stdin to a file, unless it is larger than any model, or closed."""
    if sys.__stdin__ is None:
        raise UsageError("the standard input is closed", do="name a file as the input")
    size = 0
    with path.open("wb") as file:
        while chunk := sys.stdin.buffer.read(CHUNK):
            size += len(chunk)
            if size > PROTOBUF_LIMIT:
                raise ModelError("more than 2 GiB come through it, which is no model", PIPE)
            file.write(chunk)
