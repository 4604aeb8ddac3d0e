"""Each part of the program imports only from the parts below it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from imports import imports

import xflow
from xflow import generator, verifier

ROOT = Path(__file__).parent.parent
LAYERS: Mapping[str, Sequence[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "tool"
]["xflow"]["layers"]
"""The parts of each package, from the bottom up."""

APART = {"xflow.verifier": "recheck"}
"""What imports from no other part: the second checker."""

ROOTS = {each.__name__: Path(str(each.__file__)).parent for each in (xflow, verifier, generator)}


def files(package: str, part: str) -> Iterator[Path]:
    """The files of a part, which is a package or a module."""
    module = ROOTS[package] / f"{part}.py"
    folder = ROOTS.get(f"{package}.{part}", ROOTS[package] / part)
    yield from [module] if module.exists() else sorted(folder.rglob("*.py"))


@pytest.mark.parametrize(
    ("package", "part"), [(package, part) for package in LAYERS for part in LAYERS[package]]
)
def test_a_part_imports_only_from_those_below(package: str, part: str) -> None:
    order = LAYERS[package]
    above = {f"{package}.{each}" for each in order[order.index(part) + 1 :]}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
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
    found |= {name.rpartition(".")[2] for name in ROOTS if name.rpartition(".")[0] == package}
    assert found == {*LAYERS[package]} | {each for each in [APART.get(package)] if each}
