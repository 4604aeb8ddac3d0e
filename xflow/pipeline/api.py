"""Optimising a model, from Python: arguments are read, and a run is set up and cleaned up."""

from __future__ import annotations

import contextlib
import operator
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_ir as ir

from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.errors import ModelError, UsageError, XflowError
from xflow.core.limits import GROWTH
from xflow.core.progress import Progress
from xflow.cost import COSTS, OBJECTIVES, Cost, Objective, machine
from xflow.cost.measure import Target
from xflow.cost.objectives import EXACT
from xflow.cost.worker import Worker
from xflow.feeds.inputs import Shapes
from xflow.feeds.real_inputs import Given, real_inputs
from xflow.onnx import files
from xflow.onnx.external_data import has_external_data
from xflow.onnx.outline import outline
from xflow.onnx.repairs import PUT_RIGHT
from xflow.onnx.types import interface
from xflow.pipeline.context import Clock, Run
from xflow.pipeline.pipeline import Pipeline, Result
from xflow.rewriting.domains import DOMAINS, Domains, on_provider, within
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules, select_rules
from xflow.search.processes import SearchProcesses
from xflow.validation.validate import Tolerance, write_temporary

__all__ = ["Model", "Progress", "Result", "optimize"]

Model: TypeAlias = str | os.PathLike[str] | onnx.ModelProto | ir.Model
MANY = 100
"""Operators of a model from which its parts are explored in several processes, most likely."""


def optimize(
    model: Model,
    *,
    budget: float = 60.0,
    threads: int | None = None,
    provider: str = "cpu",
    input_shapes: Shapes | Sequence[Shapes] | None = None,
    rules: str | os.PathLike[str] | Sequence[Rule] | None = None,
    only_rules: Sequence[str] = (),
    skip_rules: Sequence[str] = (),
    check: int = 3,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    objective: Objective = "latency",
    cost: Cost = "measured",
    seed: int = 0,
    keep_opset: bool = False,
    target_opset: int | None = None,
    domains: Domains = "onnx",
    vnni: bool = False,
    keep_initializer_inputs: bool = False,
    size_threshold: int = GROWTH,
    save_repro: str | os.PathLike[str] | None = None,
    assume: str = DEFAULT.option,
    only_proved: bool = False,
    inputs: Given | Sequence[Given] | None = None,
    profile: bool = False,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Make a model better on this machine; give back its own graph where that does not succeed.

    `objective` is what it is made better in: its latency, the peak of its memory (weights and
    activations), its size when written, or the number of nodes that run; in the last three it must
    not become measurably slower.

    `budget` is the time for all but the final timing in seconds, most of it for the search;
    `threads` those of the runtime (default: the physical cores); `input_shapes` the sizes at
    which dynamic inputs are measured: one mapping from names of inputs to shapes, or several of
    them, of which the one with the least gain counts; the written model keeps its dynamic
    dimensions. `rules` is a folder or a list of rules (default: those of the package); `check` on
    how many random inputs the result is compared with the input, within `rtol` and `atol`. With
    ``cost="estimated"`` nothing is timed; nor with ``cost="learned"``, where the estimate is
    corrected by what was learned from measurements of other models. The opset is raised where
    operators of a newer one gain, to the oldest that has them or to `target_opset`; never if it is
    to be kept (`keep_opset`).
    Rewrites bring in standard operators only; with ``domains="ort"`` also those of ONNX Runtime's
    own domain, and then the model runs nowhere else. With `vnni`, they may bring in products on
    codes by weights with a sign if the runtime is seen to add them up exactly here: on x86
    processors without VNNI it does not.
    Weights that are inputs, too, become constants unless `keep_initializer_inputs`: the runtime
    cannot optimize what may change from call to call. Where a rewrite turns out to be wrong and is
    dropped, models that show it go to the folder `save_repro`. Besides random inputs, the result is
    checked on the real `inputs`: .npz files, folders of them or of ONNX's test_data_set_N, or
    mappings from names to arrays, one or several; it is timed on the first ones, at their sizes
    unless there are `input_shapes`. `assume` is what may be taken for granted of the model's
    values: ``none``, ``finite-inputs``, ``moderate`` or ``normwise``, see
    `xflow.core.assumptions`. With `only_proved`, each rewrite is an application of a proved
    rule; without, some rest on the data of constants, on ranges of values, or on floating
    point, see `xflow.analysis.value_rewrites.basis`. Constant expressions are folded as long
    as that adds at most `size_threshold` bytes to the weights. Where nothing was gained, or
    with `profile`, the report says where the input's time goes. The argument is never changed.

    `progress` is called at every step with the name of the phase and where that stands, by name:
    always `left`, in how many seconds all is over at the latest; and in phases that have parts, at
    which one they are and `of` how many. While the search runs, `best` is how many times as fast
    the model seems to be. `stop` is asked again and again whether the search is to end; what
    it has found by then is checked and timed as always.
    Raises XflowError: a broken model, contradictory arguments, or a ValidationFailed.
    """
    if objective not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise UsageError(f"unknown objective {objective!r}", do=f"choose one of {known}")
    if cost not in COSTS:
        raise UsageError(f"unknown cost {cost!r}", do=f"choose one of {', '.join(COSTS)}")
    if cost == "learned" and provider != "cpu":
        what = "the learned cost knows the kernels for processors alone"
        raise UsageError(what, do="choose another cost")
    if not budget > 0:
        raise UsageError(f"the budget must be positive, not {budget}")
    if keep_opset and target_opset is not None:
        raise UsageError("the opset cannot be kept and raised", do="give one of the two")
    if domains not in DOMAINS:
        raise UsageError(f"unknown domains {domains!r}", do="choose onnx or ort")
    if assume not in (level.option for level in Assumption):
        known = ", ".join(level.option for level in Assumption)
        raise UsageError(f"unknown assumption {assume!r}", do=f"choose one of {known}")
    target = Target(provider, machine.usable_cores() if threads is None else threads)
    chosen = chosen_rules(rules, only_rules, skip_rules)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xflow-")))
        worker = stack.enter_context(Worker(machine.free_memory() if provider == "cpu" else None))
        allowed = on_provider(within(chosen, domains), provider)
        processes = stack.enter_context(SearchProcesses(allowed, machine.usable_cores()))
        run = Run(
            target,
            worker,
            folder,
            Clock(budget),
            tolerance=Tolerance(
                check, rtol, atol, seed, planted=Assumption.named(assume) == Assumption.NONE
            ),
            shapes=settings_of(input_shapes),
            objective=objective,
            cost=cost,
            progress=progress or (lambda phase, details: None),
            processes=processes,
            keep_opset=keep_opset,
            target_opset=target_opset,
            domains=domains,
            vnni=vnni,
            keep_initializer_inputs=keep_initializer_inputs,
            size_threshold=size_threshold,
            save_repro=None if save_repro is None else Path(save_repro),
            assumption=Assumption.named(assume),
            only_proved=only_proved,
            profiled=profile,
            stop=stop,
        )
        with run.phase("load"):
            is_explored_there = processes.count > 1 and objective not in EXACT
            if is_explored_there and operators_of(model) >= MANY:
                processes.start()
            source, before = load_copy(model, folder / "before.onnx")
            run = replace(run, inputs=real_inputs(interface(source), inputs))
        result = Pipeline(run, source, before).optimize(chosen)
    return replace(result, source=Path(model) if isinstance(model, str | os.PathLike) else None)


def settings_of(input_shapes: Shapes | Sequence[Shapes] | None) -> Sequence[Shapes]:
    """The settings of the input shapes; one without any shape where none was given."""
    if input_shapes is None or isinstance(input_shapes, Mapping):
        input_shapes = [input_shapes or {}]
    if not input_shapes:
        raise UsageError("the list of input shapes is empty", do="give at least one mapping")
    return [_plain_shapes(each) for each in input_shapes]


def _plain_shapes(given: Shapes) -> Shapes:
    """The sizes of each input as tuples of Python's integers. Raises UsageError."""
    advice = 'give them as {"name": (1, 128)}'
    if not isinstance(given, Mapping):
        raise UsageError("input shapes are mappings from the names of inputs", do=advice)
    shapes = {}
    for name, sizes in given.items():
        try:
            shapes[name] = tuple(operator.index(size) for size in sizes)
        except TypeError as error:
            what = f"the shape {sizes!r} of input {name!r} is no sequence of whole numbers"
            raise UsageError(what, do=advice) from error
        if any(size < 0 for size in shapes[name]):
            raise UsageError(f"the shape {sizes!r} of input {name!r} has a negative size")
    return shapes


def chosen_rules(
    rules: str | os.PathLike[str] | Sequence[Rule] | None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> list[Rule]:
    """The rules of a folder, of a list, or that come with xflow; those `only`, less some.

    Raises UsageError, RuleFileError and UnknownRuleError.
    """
    if rules is None:
        rules = load_rules(default_directory())
    elif isinstance(rules, str | os.PathLike):
        rules = load_rules(Path(rules))
    elif not all(isinstance(rule, Rule) for rule in rules):
        raise UsageError("the rules are a folder, or a list of rules as parse_rules makes them")
    only, skip = ([each] if isinstance(each, str) else each for each in (only, skip))
    return select_rules(rules, only, skip)


def load_copy(model: Model, copy: Path) -> tuple[ir.Model, Path]:
    """The model, not to be changed by anybody else, and a file that holds it."""
    if isinstance(model, str | os.PathLike):
        return files.load_model(model), Path(model)
    if isinstance(model, onnx.ModelProto):
        if has_external_data(model):
            raise ModelError("a message whose weights lie in files", do="give the model's path")
        write_temporary(model, copy)
        return _valid(copy), copy
    if isinstance(model, ir.Model):
        try:
            source_model = model.clone()
        except Exception:  # nodes in no order, values that nobody computes, and the like
            source_model = None
        try:
            write_temporary(model if source_model is None else source_model, copy)
        except XflowError:
            raise
        except Exception as error:  # names that are no text in UTF-8, and the like
            raise ModelError(f"the model cannot be written: {files.reason(error)}") from error
        valid = _valid(copy)
        if valid.meta[PUT_RIGHT]:
            return valid, copy
        if source_model is None:
            raise ModelError("the model is not consistent and cannot be copied")
        files.spell_domain(source_model)
        return source_model, copy
    what = f"an object of type {type(model).__name__} is no model"
    raise UsageError(what, do="give a path or an ONNX model")


def operators_of(model: Model) -> int:
    """How many operators a model has at first sight, in its graph; 0 where there is no telling."""
    try:
        if isinstance(model, ir.Model):
            return len(model.graph)
        proto = model if isinstance(model, onnx.ModelProto) else outline(Path(model))
        return len(proto.graph.node)
    except Exception:  # whatever is wrong with it, loading it says so
        return 0


def _valid(copy: Path) -> ir.Model:
    """The model in a file of ours, whose name tells nobody anything. Raises ModelError."""
    try:
        return files.load_model(copy)
    except ModelError as error:
        raise ModelError(
            error.what, "" if error.where == str(copy) else error.where, error.do
        ) from None
