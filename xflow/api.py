"""Optimising a model, from Python: arguments are read, and a run is set up and cleaned up."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import onnx
import onnx_ir as ir

from xflow import files
from xflow.cost.measure import Target
from xflow.cost.worker import Worker
from xflow.errors import ModelError, UsageError
from xflow.external_data import has_external_data
from xflow.machine import usable_cores
from xflow.pipeline import Pipeline, Progress, Result
from xflow.rule import Rule
from xflow.rule_files import default_directory, load_rules, select_rules
from xflow.validate import Tolerance, write_temporary

__all__ = ["Model", "Progress", "Result", "optimize"]

Model: TypeAlias = str | os.PathLike[str] | onnx.ModelProto | ir.Model


def optimize(
    model: Model,
    *,
    budget: float = 60.0,
    threads: int | None = None,
    provider: str = "cpu",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    rules: str | os.PathLike[str] | Sequence[Rule] | None = None,
    only_rules: Sequence[str] = (),
    skip_rules: Sequence[str] = (),
    check: int = 3,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    cost: Literal["measured", "estimated"] = "measured",
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Make a model faster on this machine; give back its own graph where that does not succeed.

    `budget` is the time for the search in seconds, checks and the final timing come on top;
    `threads` those of the runtime (default: the physical cores); `input_shapes` the sizes at
    which dynamic inputs are measured; `rules` a folder or a list of rules (default: those of the
    package); `check` on how many random inputs the result is compared with the input, within
    `rtol` and `atol`. With ``cost="estimated"`` nothing is timed. The argument is never changed.
    Raises XflowError: a broken model, contradictory arguments, or a ValidationFailed.
    """
    if cost not in ("measured", "estimated"):
        raise UsageError(f"unknown cost {cost!r}", do="choose measured or estimated")
    if not budget > 0:
        raise UsageError(f"the budget must be positive, not {budget}")
    target = Target(provider, usable_cores() if threads is None else threads)
    chosen = _rules(rules, only_rules, skip_rules)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xflow-")))
        worker = stack.enter_context(Worker())
        pipeline = Pipeline(
            target,
            worker,
            folder,
            budget,
            tolerance=Tolerance(check, rtol, atol, seed),
            shapes=input_shapes,
            measured=cost == "measured",
            progress=progress or (lambda phase, details: None),
        )
        with pipeline.phase("load"):
            source, before = _load(model, folder / "before.onnx")
        return pipeline.run(source, before, chosen)


def _rules(
    rules: str | os.PathLike[str] | Sequence[Rule] | None, only: Sequence[str], skip: Sequence[str]
) -> list[Rule]:
    """The rules to use."""
    if rules is None:
        rules = load_rules(default_directory())
    elif isinstance(rules, str | os.PathLike):
        rules = load_rules(Path(rules))
    return select_rules(rules, only, skip)


def _load(model: Model, copy: Path) -> tuple[ir.Model, Path]:
    """The model, not to be changed by anybody else, and a file that holds it."""
    if isinstance(model, str | os.PathLike):
        return files.load_model(model), Path(model)
    if isinstance(model, onnx.ModelProto):
        if has_external_data(model):
            raise ModelError("a message whose weights lie in files", do="give the model's path")
        write_temporary(model, copy)
        return files.load_model(copy), copy
    if isinstance(model, ir.Model):
        try:
            source_model = model.clone()
        except Exception as error:  # values that nobody computes, and the like
            raise ModelError("the model is not consistent and cannot be copied") from error
        write_temporary(source_model, copy)
        files.load_model(copy)  # raises ModelError if it is not valid
        return source_model, copy
    raise UsageError(f"a {type(model).__name__} is no model", do="give a path or an ONNX model")
