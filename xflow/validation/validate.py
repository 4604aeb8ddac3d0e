"""Finds, by bisection, the replacements that keep the model right, and drops the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from xflow.analysis.observers import Observed
from xflow.core.deadline import Deadline
from xflow.core.errors import ShapeError, UsageError, ValidationFailed
from xflow.core.limits import GROWTH
from xflow.cost.measure import Target
from xflow.cost.worker import Worker
from xflow.feeds.edge_cases import InputSet
from xflow.feeds.inputs import AT_OTHER_SIZES, Shapes
from xflow.onnx.checker import check_message
from xflow.onnx.exporter import export_model
from xflow.onnx.files import self_contained, write_model_atomically
from xflow.onnx.imported import Imported
from xflow.onnx.interface import check_interface
from xflow.onnx.nodes import has_foreign_operators
from xflow.onnx.outline import outline
from xflow.onnx.types import interface
from xflow.onnx.writer import UnwritableError
from xflow.rewriting.replacement import Replacement, apply_replacements, without
from xflow.validation.equivalence import CheckResult, check_equivalent
from xflow.validation.reference import Reference
from xflow.validation.repro import Repro


@dataclass(frozen=True)
class Tolerance:
    """On which inputs two models are compared, and how far they may differ.

    For `refines`, `planted` and `empty` see `check_equivalent`; the defaults are the claims of a
    rewrite: inputs are numbers, there is at least one element along each dimension, and where the
    input model gives no number the other one may give any.  Raises UsageError for invalid numbers.
    """

    samples: int = 3
    rtol: float = 1e-3
    atol: float = 1e-5
    seed: int = 0
    refines: bool = True
    planted: bool = False
    empty: bool = False

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise UsageError(f"the number of samples must be at least 1, not {self.samples}")
        for name in ("rtol", "atol", "seed"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} must not be negative, and is {getattr(self, name)}")


@dataclass(frozen=True)
class Checked:
    """A model in memory and in the file `path` that agrees with the input model."""

    model: ir.Model
    path: Path
    check: CheckResult


@dataclass(frozen=True)
class Broken:
    """Why replacements do not lead to a right model. `hopeless`: no others can, either."""

    reason: str
    hopeless: bool = False


@dataclass(frozen=True)
class Validated:
    """The replacements that remain, the model that they make, and why others were dropped.

    `checked` is None where nothing remains.
    """

    checked: Checked | None
    replacements: tuple[Replacement, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Validator:
    """Exports rewritten graphs and compares them with the input model in the file `before`.

    They are compared at each of the settings `shapes` of the input shapes, of which there is at
    least one. The models are written to the file `after`. Nothing begins after `deadline`:
    what has not been shown to be right by then is dropped. With `prepared`, the imported model is
    another one than that in `before`, and worth a check by itself. `growth` is how many bytes
    folded constants may take beyond those that they replace. `repro` saves models that show what is
    wrong with a rewrite. The models are also compared on the real `inputs`. What the input model
    gives is kept in `references`, by setting.
    """

    imported: Imported
    before: Path
    after: Path
    worker: Worker
    target: Target
    tolerance: Tolerance
    shapes: Sequence[Shapes]
    deadline: Deadline
    target_opset: int | None = None
    """The opset of a model whose opset must be raised; None: the oldest that it needs."""
    prepared: bool = False
    growth: int = GROWTH
    outside: Observed = Observed.NOWHERE
    """What is sensitive to the outputs of the model, where it is a part of another."""
    repro: Repro | None = None
    inputs: Sequence[InputSet] = ()
    references: dict[int, Reference] = field(default_factory=dict)

    def validate(self, replacements: Sequence[Replacement]) -> Validated:
        """Drop what breaks the model, by bisection, until the rest makes a right one.

        Raises ValidationFailed where the input model itself does not run.
        """
        chosen = tuple(replacements)
        warnings: list[str] = []
        while True:
            # Exporting is quick and may fail; only models that can be exported are run.
            model = self.build(chosen)
            broken = isinstance(model, Broken)
            step: Callable[[Sequence[Replacement]], object] = self.build if broken else self.attempt
            outcome = model if isinstance(model, Broken) else self.compare(model)
            if isinstance(outcome, Checked):
                return Validated(outcome, chosen, tuple(warnings))
            if outcome.hopeless or self.deadline.passed:
                warnings.append(f"The rewrites were dropped: {outcome.reason}.")
                break
            if not chosen:  # the error is not caused by a rewrite
                warnings.append(f"The model was left as it is: {outcome.reason}.")
                break
            number, reason = guilty(chosen, outcome.reason, step)
            if self.deadline.passed and not broken:  # what came last may have been stopped
                warnings.append(
                    f"The rewrites were dropped: {outcome.reason}, and there was no time left to "
                    "find out by which of them."
                )
                break
            warnings.append(f"A rewrite by {chosen[number].rule_names} was dropped: {reason}.")
            if self.repro is not None:
                warnings.append(self.repro.save(chosen[number], reason, self.deadline))
            chosen = without(chosen, number)
            if not chosen and not self.prepared:
                break
        return Validated(None, (), tuple(warnings))

    def build(self, replacements: Sequence[Replacement]) -> ir.Model | Broken:
        """The model that the replacements make."""
        try:
            graph = apply_replacements(self.imported.graph, replacements)
            return export_model(
                self.imported, graph, self.target_opset, self.growth, outside=self.outside
            )
        except (ShapeError, UnwritableError) as error:
            return Broken(str(error))

    def attempt(self, replacements: Sequence[Replacement]) -> Checked | Broken:
        """The model that the replacements make, compared with the input model."""
        model = self.build(replacements)
        return model if isinstance(model, Broken) else self.compare(model)

    def compare(self, model: ir.Model) -> Checked | Broken:
        """Write a model to its file, and compare it with the input model."""
        if self.deadline.passed:
            return Broken("there was no time left to check them", hopeless=True)
        write_temporary(model, self.after)
        try:
            check_message(outline(self.after))
        except Exception as error:  # the checker raises exceptions of its C++ side
            return Broken(f"the ONNX checker refuses it: {' '.join(str(error).split())[:300]}")
        fault = check_interface(interface(self.imported.model), interface(model))
        if fault is not None:
            return Broken(fault)
        check = self.check()
        runs = check.culprit != "before" or "does not run" not in check.reason
        if not runs and not has_foreign_operators(self.imported.model):
            raise ValidationFailed(
                check.reason, do=f"check that it runs in ONNX Runtime, or {AT_OTHER_SIZES}"
            )
        if not check.ok:
            return Broken(check.reason, hopeless=check.culprit == "before")
        if check.unchecked:
            names = ", ".join(sorted(check.unchecked))
            return Broken(f"output {names} is never finite on random inputs", hopeless=True)
        return Checked(model, self.after, check)

    def check(self) -> CheckResult:
        """Run the model in the file at each setting of the input shapes, until it disagrees."""
        found: list[CheckResult] = []
        for number, shapes in enumerate(self.shapes):
            check = check_equivalent(
                self.before,
                self.after,
                **asdict(self.tolerance),
                shapes=shapes,
                deadline=self.deadline,
                target=self.target,
                worker=self.worker,
                inputs=() if number else self.inputs,
                reference=self.references.setdefault(number, Reference(self.before)),
            )
            if not check.ok:
                return check
            found.append(check)
        return replace(
            found[0],
            max_abs=max(check.max_abs for check in found),
            max_rel=max(check.max_rel for check in found),
            samples=sum(check.samples for check in found),
            unchecked=frozenset.intersection(*(check.unchecked for check in found)),
            late=sum(check.late for check in found),
        )


def guilty(
    replacements: Sequence[Replacement],
    reason: str,
    step: Callable[[Sequence[Replacement]], object],
) -> tuple[int, str]:
    """The first replacement with which the model is wrong, and the reason, by bisection.

    `step` tries the first few replacements; `reason` is why all together are wrong.
    """
    good, bad = 0, len(replacements)
    while bad - good > 1:
        middle = (good + bad) // 2
        outcome = step(replacements[:middle])
        if isinstance(outcome, Broken):
            bad, reason = middle, outcome.reason
        else:
            good = middle
    return bad - 1, reason


def write_temporary(model: ir.Model | onnx.ModelProto, path: Path) -> None:
    """Write a model for this run only, without waiting until it is safe on the disk."""
    data = self_contained(model)
    if data is None:
        write_model_atomically(model, path)
    else:
        with path.open("wb") as file:
            data.write(file)
