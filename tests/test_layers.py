"""Each part of the program imports only from the parts below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from imports import imports

import xflow
from xflow import generator, verifier

LAYERS: Mapping[str, Sequence[str]] = {
    "xflow": (
        *("core", "ops", "analysis", "rewriting", "blocks", "onnx", "feeds", "cost", "search"),
        *("validation", "report", "pipeline", "cli"),
    ),
    "xflow.verifier": (
        *("algebra", "certificate", "matching", "preconditions", "proof", "refutation"),
        *("rounding", "conditions", "prove", "database"),
    ),
    "xflow.generator": (
        *("drawn", "vocabulary", "vocabularies", "families", "enumeration", "generalization"),
        *("minimize", "idle", "settle", "saturation", "runner", "derive", "database"),
        *("report", "standing", "run"),
    ),
}
"""The parts of each package, from the bottom up."""

APART = {"xflow.verifier": "recheck"}
"""What imports from no other part: the second checker."""

ROOTS = {each.__name__: Path(str(each.__file__)).parent for each in (xflow, verifier, generator)}


def files(package: str, part: str) -> Iterator[Path]:
    """The files of a part, which is a package or a module."""
    module = ROOTS[package] / f"{part}.py"
    yield from [module] if module.exists() else sorted((ROOTS[package] / part).rglob("*.py"))


@pytest.mark.parametrize(
    ("package", "part"), [(package, part) for package in LAYERS for part in LAYERS[package]]
)
def test_a_part_imports_only_from_those_below(package: str, part: str) -> None:
    order = LAYERS[package]
    above = {f"{package}.{each}" for each in order[order.index(part) + 1 :]}
    wrong = [
        f"{path.relative_to(ROOTS[package])}:{line} imports {name}"
        for path in files(package, part)
        for name, line in imports(path)
        if name in above or any(name.startswith(f"{each}.") for each in above)
    ]
    assert not wrong


@pytest.mark.parametrize("package", LAYERS)
def test_everything_stands_in_a_part(package: str) -> None:
    root = ROOTS[package]
    found = {path.stem for path in root.glob("*.py")} - {"__init__", "__main__"}
    found |= {path.parent.name for path in root.glob("*/__init__.py")}
    assert found == {*LAYERS[package]} | {each for each in [APART.get(package)] if each}
