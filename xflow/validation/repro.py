"""Minimal reproductions of a wrong rewrite: two small models, one with it and one without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xflow.core.deadline import Deadline
from xflow.core.graph import Graph, rebuild, walk
from xflow.core.node import Node, Value, leaf
from xflow.cost.measure import Target
from xflow.cost.worker import Worker
from xflow.onnx.imported import Imported
from xflow.onnx.region import region_model
from xflow.onnx.writer import UnwritableError
from xflow.rewriting.replacement import Replacement
from xflow.validation.equivalence import check_equivalent


@dataclass(frozen=True)
class Repro:
    """Makes reproducing models of wrong rewrites and saves them to a folder.

    `sizes` are those of the symbols at the setting that is reproduced.
    """

    folder: Path
    imported: Imported
    sizes: Mapping[str, int]
    worker: Worker
    target: Target

    def save(self, guilty: Replacement, reason: str, deadline: Deadline) -> str:
        """Write `before.onnx`, `after.onnx` and a description to a new folder.

        Returns a sentence that says where they are, or why there are none.
        """
        try:
            before, after = self.models(guilty)
        except UnwritableError as error:
            return f"A model that reproduces it could not be made: {error}."
        try:
            place = self.place()
            files = place / "before.onnx", place / "after.onnx"
            for file, data in zip(files, (before, after), strict=True):
                file.write_bytes(data)
            found = check_equivalent(
                *files,
                deadline=max(deadline, Deadline.after(1.0)),
                target=self.target,
                worker=self.worker,
                refines=True,
                planted=False,
                empty=False,
            )
            seen = found.reason or "not in these models alone, on random inputs"
            rules = ", ".join(guilty.rules) or "none that has a name"
            text = f"rules: {rules}\nin the whole model: {reason}\nin these: {seen}\n"
            (place / "about.txt").write_text(text, encoding="utf-8")
        except OSError as error:
            return f"A model that reproduces it could not be saved: {error.strerror}."
        return f"Models that reproduce it are in {place}."

    def models(self, guilty: Replacement) -> tuple[bytes, bytes]:
        """The part of the model that is rewritten, before and after.

        Both have the same inputs: what both sides read. Raises UnwritableError.
        """
        opset = self.imported.model.graph.opset_imports.get("", 20)
        count = len(guilty.before)
        values = rebuild((*guilty.before, *guilty.after), boundary(guilty.before, guilty.after))
        before, after = (
            region_model(Graph(part), self.imported.constants, sizes=self.sizes, opset=opset)
            for part in (values[:count], values[count:])
        )
        return before, after

    def place(self) -> Path:
        """A new folder, numbered from 1."""
        number = 1
        while True:
            place = self.folder / f"rewrite-{number}"
            try:
                place.mkdir(parents=True)
            except FileExistsError:
                number += 1
            else:
                return place


def boundary(before: Sequence[Value], after: Sequence[Value]) -> dict[Value, Value]:
    """Leaves for the values that both sides have in common and that something else reads."""
    common = _computed(before) & _computed(after)
    roots = {*before, *after}
    cut: dict[Value, Value] = {}
    for node in (*walk(before), *walk(after)):
        if node in common and not any(value in roots for value in node.outputs):
            continue
        for value in node.inputs:
            if value.node in common and not value.is_constant:
                cut.setdefault(value, leaf(f"input_{len(cut)}", value.type))
    return cut


def _computed(values: Sequence[Value]) -> set[Node]:
    return set(walk(values))
