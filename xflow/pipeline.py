"""One run from a model to a model that is right and faster, phase by phase."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from xflow.cost import CostModel, measure
from xflow.cost.estimate import EstimatedCost, TargetModel
from xflow.cost.measure import Comparison, Measurer
from xflow.cost.model import Costs
from xflow.cost.store import Store
from xflow.cost.worker import Worker
from xflow.errors import ModelError
from xflow.inputs import Shapes, default_shapes
from xflow.machine import processor_name
from xflow.onnx_import import Imported, import_model
from xflow.onnx_nodes import subgraphs
from xflow.onnx_types import interface
from xflow.report import Latency, ModelStats, Ratio, Report, RuleUse, Target
from xflow.rule import Rule
from xflow.search import Replacement, search
from xflow.validate import Tolerance, Validator, Verdict

Progress = Callable[[str, Mapping[str, object]], None]

AFTERWARDS_S = 30.0
"""Seconds beyond the budget that checks and the final timing may take."""
TIMING_S = (2.0, 10.0)
"""Least and most seconds of the final timing."""
MARGIN = 0.005
"""How much faster a model has to be, with confidence, to be given out."""
SINGLE_MARGIN = 0.03
"""The same where there was time to load the models only once: two sessions of one and the same
model were seen to differ by this much for as long as they live."""


@dataclass(frozen=True)
class Result:
    """A model that computes what the input model does, and what was done to it.

    If `report.changed` is False, `model` is the input's own.
    """

    model: ir.Model
    report: Report


class Pipeline:
    """One run: its settings, and the time that its phases took."""

    def __init__(
        self,
        target: measure.Target,
        worker: Worker,
        folder: Path,
        budget: float,
        *,
        tolerance: Tolerance,
        shapes: Shapes | None,
        measured: bool,
        progress: Progress,
    ) -> None:
        self.target = target
        self.worker = worker
        self.folder = folder
        self.budget = budget
        self.tolerance = tolerance
        self.shapes = shapes
        self.measured = measured
        self.progress = progress
        self.phases: dict[str, float] = {}
        self.warnings: list[str] = []
        self.messages: list[str] = []

    def run(self, source: ir.Model, before: Path, rules: Sequence[Rule]) -> Result:
        """Optimise `source`, which nobody else changes and which is in the file `before`."""
        self.source, self.before = source, before
        self.chosen_shapes = default_shapes(interface(source), self.shapes)
        verdict = Verdict(None)
        with self.phase("import"):
            imported = self.imported()
        if imported is not None:
            replacements = self.search(imported, rules)
            with self.phase("check"):
                verdict = self.validator(imported).validate(replacements)
        self.warnings += verdict.warnings
        comparison = None
        if verdict.checked is None:
            self.messages.append("No rewrite was found that makes the model faster.")
            return self.result(verdict, comparison, changed=False)
        changed = True
        if self.measured:
            with self.phase("timing"):
                comparison = self.compare(verdict.checked.path)
            changed = comparison is not None and comparison.low > 1 + _margin(comparison)
            if not changed:
                self.messages.append(_excuse(comparison))
                comparison = comparison and replace(comparison, after=comparison.before)
        return self.result(verdict, comparison, changed=changed)

    def imported(self) -> Imported | None:
        """The model as a graph; None, and a warning, where that is not possible."""
        try:
            imported = import_model(self.source)
        except ModelError as error:
            self.warnings.append(f"The model was left as it is: {error}.")
            return None
        self.warnings += imported.warnings
        return imported

    def search(self, imported: Imported, rules: Sequence[Rule]) -> tuple[Replacement, ...]:
        """The replacements that the search finds."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.phase("search"))
            opset = self.source.graph.opset_imports.get("", 20)
            costs: CostModel = EstimatedCost(TargetModel(threads=self.target.threads))
            if self.measured:
                store = stack.enter_context(Store())
                costs = Costs(
                    Measurer(self.target, self.worker),
                    store,
                    imported.constants,
                    sizes=imported.sizes(self.chosen_shapes),
                    opset=opset,
                )
            found = search(
                imported.graph,
                rules,
                costs,
                deadline=time.monotonic() + self.budget,
                seed=self.tolerance.seed,
                constants=imported.constants,
                opset=opset,
                progress=self.progress,
            )
            if self.measured:
                self.warnings += store.warnings
        self.messages += [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
        return found.replacements

    def validator(self, imported: Imported) -> Validator:
        """The judge of what the search found; it has half of the time that is left for it."""
        return Validator(
            imported,
            self.before,
            self.folder / "after.onnx",
            self.worker,
            self.target,
            self.tolerance,
            self.shapes,
            time.monotonic() + max(AFTERWARDS_S / 2, self.budget / 2),
        )

    def compare(self, after: Path) -> Comparison | None:
        """Time both models against each other; None, and a warning, where that fails."""
        low, high = TIMING_S
        # Both models were loaded and run for the check; loading them again takes about half of it,
        # and so does writing the result.
        left = self.budget + AFTERWARDS_S - sum(self.phases.values()) - self.phases["check"]
        seconds = min(high, max(low, min(left / 2, self.budget / 6)))
        compared = Measurer(self.target, self.worker).compare(
            self.before,
            after,
            seconds,
            seed=self.tolerance.seed,
            shapes=self.chosen_shapes,
            limit_s=max(left, AFTERWARDS_S / 2),
        )
        if isinstance(compared, Comparison):
            return compared
        self.warnings.append(f"The models could not be timed: {compared.reason}.")
        return None

    def result(self, verdict: Verdict, comparison: Comparison | None, *, changed: bool) -> Result:
        """The result of the run."""
        checked = verdict.checked
        model = checked.model if changed and checked is not None else self.source
        report = Report(
            changed=changed,
            before=_stats(self.source),
            after=_stats(model),
            target=Target(
                self.target.provider,
                self.target.threads,
                processor_name(),
                self.worker.runtime_version if self.measured or checked else "",
            ),
            latency_before=_latency(comparison, "before"),
            latency_after=_latency(comparison, "after"),
            ratio=_ratio(comparison) if changed else None,
            largest_error=checked.check.max_rel if changed and checked is not None else None,
            rules=_uses(verdict.replacements) if changed else (),
            phases=self.phases,
            shapes=self.chosen_shapes,
            seed=self.tolerance.seed,
            warnings=tuple(self.warnings),
            messages=tuple(self.messages),
        )
        return Result(model, report)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block as that of a phase."""
        self.progress(name, {})
        start = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - start


def _stats(model: ir.Model) -> ModelStats:
    """What a model consists of, the nodes of subgraphs included."""
    operators: Counter[str] = Counter()
    for node in model.graph:
        operators[node.op_type] += 1
        for graph in subgraphs(node):
            operators.update(inner.op_type for inner in graph)
    tensors = (value.const_value for value in model.graph.initializers.values())
    return ModelStats(
        dict(sorted(operators.items())),
        sum(tensor.nbytes for tensor in tensors if tensor is not None),
    )


def _margin(comparison: Comparison) -> float:
    """How much faster the lower end of the interval has to be."""
    return MARGIN if comparison.passes > 1 else SINGLE_MARGIN


def _excuse(comparison: Comparison | None) -> str:
    """Why the user gets the input's own model although there were rewrites."""
    verdict = "The rewritten model was not measurably faster"
    if comparison is not None:
        ratio, low, high = comparison.ratio, comparison.low, comparison.high
        verdict += f" ({ratio:.3f} times as fast, {low:.3f} to {high:.3f})"
    return f"{verdict}, so this is the input's own."


def _latency(comparison: Comparison | None, which: Literal["before", "after"]) -> Latency | None:
    if comparison is None:
        return None
    timing = comparison.before if which == "before" else comparison.after
    return Latency(timing.median, timing.spread * timing.median / 2, len(timing.samples))


def _ratio(comparison: Comparison | None) -> Ratio | None:
    if comparison is None:
        return None
    return Ratio(comparison.ratio, comparison.low, comparison.high)


def _uses(replacements: Sequence[Replacement]) -> tuple[RuleUse, ...]:
    """The rules applied; the gain of a replacement is shared out evenly among its rules."""
    counts: Counter[str] = Counter()
    gains: dict[str, float] = {}
    for item in replacements:
        for name in item.rules:
            counts[name] += 1
            gains[name] = gains.get(name, 0.0) + item.gain / len(item.rules)
    return tuple(RuleUse(name, counts[name], gains[name]) for name in sorted(counts))
