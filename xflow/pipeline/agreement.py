"""Whether two models are the same, from Python: `xflow.check`."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from xflow.core.deadline import Deadline
from xflow.core.errors import ModelError
from xflow.cost import machine
from xflow.cost.measure import Target
from xflow.cost.worker import Worker
from xflow.feeds.dimension_equalities import fitting_settings
from xflow.feeds.edge_cases import InputSet
from xflow.feeds.inputs import AT_OTHER_SIZES, Shapes, default_shapes, load_proto
from xflow.feeds.real_inputs import Given, real_inputs
from xflow.onnx.interface import check_interface
from xflow.pipeline.api import Model, load_copy, settings_of
from xflow.validation.equivalence import CheckResult, check_equivalent
from xflow.validation.reference import runs_at
from xflow.validation.validate import Tolerance

LIMIT_S = 600.0
"""Seconds for all of it, after which a model is taken to hang."""


def check(
    before: Model,
    after: Model,
    *,
    samples: int = 3,
    threads: int | None = None,
    provider: str = "cpu",
    input_shapes: Shapes | Sequence[Shapes] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    seed: int = 0,
    inputs: Given | Sequence[Given] | None = None,
    refines: bool = False,
    planted: bool = True,
    empty: bool = True,
) -> CheckResult:
    """Whether two models have the same inputs and outputs, and the same results in ONNX Runtime.

    They are compared on `samples` sets of random inputs that make sense (indices lie inside what
    they index, masks are mostly ones), at each setting of the `input_shapes`; see
    `xflow.validation.equivalence` for what `rtol` and `atol` allow. Where they agree, the result is
    `ok`, and `max_rel` is the largest relative error; else `reason` says which output differs, and
    where. Neither argument is changed. Raises ModelError where a model is broken, or where the
    first one does not run, and UsageError for wrong arguments.
    """
    tolerance = Tolerance(samples, rtol, atol, seed, refines, planted, empty)
    target = Target(provider, threads or machine.usable_cores())
    with tempfile.TemporaryDirectory(prefix="xflow-") as folder:
        source, old = load_copy(before, Path(folder) / "before.onnx")
        _, new = load_copy(after, Path(folder) / "after.onnx")
        models = load_proto(old), load_proto(new)
        fault = check_interface(*models, strict=False)
        if fault is not None:
            return CheckResult(False, fault)
        given = settings_of(input_shapes)
        settings = [default_shapes(models[0], shapes) if shapes else {} for shapes in given]
        real = real_inputs(models[0], inputs)
        limit = machine.free_memory() if provider == "cpu" else None
        with Worker(limit) as worker:
            deadline = Deadline.after(LIMIT_S)
            runs = runs_at(old, target, worker, deadline)
            return compare(
                (old, new),
                fitting_settings(source, settings, runs, sized=bool(real)),
                tolerance=tolerance,
                target=target,
                worker=worker,
                deadline=deadline,
                name="" if not isinstance(before, str | os.PathLike) else str(before),
                inputs=real,
            )


def compare(
    models: tuple[Path, Path],
    settings: Sequence[Shapes],
    *,
    tolerance: Tolerance,
    target: Target,
    worker: Worker,
    deadline: Deadline,
    name: str,
    inputs: Sequence[InputSet] = (),
) -> CheckResult:
    """All outputs of two models at each setting: the first that differs, or the largest error.

    On the real `inputs`, they are compared once.

    `samples` is then that of all settings together. Raises ModelError, with the `name` of the first
    model, where nothing can be said.
    """
    results = []
    for number, shapes in enumerate(settings):
        found = check_equivalent(
            *models,
            **dataclasses.asdict(tolerance),
            shapes=shapes,
            deadline=deadline,
            target=target,
            worker=worker,
            inputs=() if number else inputs,
            noise=True,
        )
        if found.culprit == "before":
            do = AT_OTHER_SIZES if "does not run" in found.reason else ""
            raise ModelError(found.reason, name, do)
        if not found.ok:
            return found
        if found.unchecked:
            names = ", ".join(sorted(found.unchecked))
            what = f"output {names} is never finite on random inputs, so nothing is known of it"
            raise ModelError(what, name)
        results.append(found)
    worst = max(results, key=lambda each: each.max_rel)
    counts = ("samples", "given", "edge_cases", "left_out", "silent", "late")
    return dataclasses.replace(
        worst, **{name: sum(getattr(each, name) for each in results) for name in counts}
    )
