"""The identity of the program: a digest of its source and of the versions verdicts depend on."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import xflow
import xflow.generator
import xflow.verifier

PACKAGES = ("mpmath", "numpy", "onnx", "sympy", "z3-solver")
"""Packages on which verdicts, certificates and measured roundings may depend."""


@cache
def source_digest() -> str:
    """A digest of all that the results of chunks depend on but the chunks themselves.

    Two machines with equal digests compute the same.
    """
    state = hashlib.sha256(platform.python_version().encode())
    for package in PACKAGES:
        try:
            state.update(f"{package} {version(package)}".encode())
        except PackageNotFoundError:
            state.update(f"{package} -".encode())
    for text in sorted(_texts()):
        state.update(text)
    return state.hexdigest()[:40]


def _texts() -> list[bytes]:
    """The digests of the source files, with their names as modules."""
    found: dict[str, bytes] = {}
    for module in (xflow, xflow.generator, xflow.verifier):
        assert module.__file__ is not None
        root = Path(module.__file__).parent
        for path in root.rglob("*.py"):
            inner = "/".join((*module.__name__.split("."), *path.relative_to(root).parts))
            found[inner] = hashlib.sha256(path.read_bytes()).digest()
    return [name.encode() + content for name, content in found.items()]
