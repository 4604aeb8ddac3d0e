"""The imports of a source file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """The modules that a file imports, anywhere in it, with the lines on which it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0, f"{path.name}:{node.lineno} is relative"
            yield node.module, node.lineno
            yield from ((f"{node.module}.{each.name}", node.lineno) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, node.lineno) for each in node.names)
