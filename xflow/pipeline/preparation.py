"""What is done to a model before the search: weights frozen, calls inlined, bodies made better.

A log tells each of these, and `certify.replayed` does them anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from xflow.analysis.observers import around_body
from xflow.core.deadline import Deadline
from xflow.core.errors import ModelError, ValidationFailed
from xflow.feeds.inputs import contradicted
from xflow.onnx.freeze import frozen, overridable
from xflow.onnx.inlining import Inlined
from xflow.onnx.subgraphs import BodyKey, has_bodies, optimize_bodies
from xflow.onnx.types import distrust, interface
from xflow.pipeline.context import Run
from xflow.report.report import Report
from xflow.validation.validate import write_temporary

BODIES = 0.3
"""The part of the budget that is for graphs inside operators, where there are any."""
DEPTH = 3
"""How deep inside one another such graphs are looked at."""

Inside = Callable[[Run, ir.Model, Path], tuple[ir.Model, Report]]
"""Optimizes a graph inside an operator, which is in a file: the model, and what is said of it."""


@dataclass(frozen=True)
class Prepared:
    """The model that is searched, and how it came about.

    `bodies` are the logs of the graphs inside operators that have become better, `notes` a sentence
    about each. `warnings` say what could not be done to it: the model is as good without.
    """

    model: ir.Model
    frozen: bool = False
    """Whether weights that were inputs, too, are constants in it."""
    inlined: Inlined | None = None
    """Which calls are inlined in it, if any."""
    bodies: Mapping[BodyKey, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    distrusted: frozenset[str] = frozenset()
    """The names of dimensions that nothing is concluded from."""


def begin(source: ir.Model, run: Run) -> Prepared:
    """The model as it is, but for weights that are inputs."""
    given = [*run.shapes, *(each.shapes for each in run.inputs)]
    seen = interface(source)
    # What the model around a body distrusts, its body does, too.
    distrusted = distrust(source, set().union(*(contradicted(seen, each) for each in given)))
    model = source if run.keep_initializer_inputs else frozen(source)
    notes = tuple(
        f"Dimensions called {name!r} have different sizes in the given shapes, so nothing was "
        "concluded from that name."
        for name in sorted(distrusted)
    )
    is_frozen = model is not source and bool(overridable(source))
    return Prepared(model, is_frozen, notes=notes, distrusted=distrusted)


def with_calls(prepared: Prepared, found: Inlined) -> Prepared:
    """The model with calls inlined, before anything else is done to it."""
    return replace(prepared, model=found.model, inlined=found)


def with_bodies(prepared: Prepared, run: Run, inside: Inside, seconds: float) -> Prepared:
    """The model with better bodies; they have a part of that many seconds."""
    model = prepared.model
    if run.inner >= DEPTH or not has_bodies(model):
        return prepared
    deadline = Deadline.after(BODIES * seconds, run.stop)
    around = around_body(node.op_type for node in model.graph.all_nodes())
    logs: dict[BodyKey, Mapping[str, Any]] = {}

    def optimize(place: BodyKey, body: ir.Model, share: float) -> tuple[ir.Model, list[str]] | None:
        budget = share * deadline.left
        if not budget:
            return None
        with tempfile.TemporaryDirectory(dir=run.folder) as folder:
            before = Path(folder) / "before.onnx"
            write_temporary(body, before)
            try:
                better, report = inside(run.inside(Path(folder), budget, around), body, before)
            except (ModelError, ValidationFailed):  # it does not run by itself
                return None
        if not report.changed or report.log is None:
            return None
        logs[place] = report.log
        return better, [use.name for use in report.rules] or ["rewrites in graphs inside it"]

    try:
        with run.phase("bodies"):
            found = optimize_bodies(model, optimize)
    except Exception as error:  # whatever is odd about them
        warning = f"The graphs inside operators were left as they are: {error}."
        return replace(prepared, warnings=(*prepared.warnings, warning))
    if found is None:
        return prepared
    made = {place: logs[place] for place in found.places}
    notes = (*prepared.notes, *found.notes)
    return replace(prepared, model=found.model, bodies=made, notes=notes)
