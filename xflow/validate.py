"""The largest part of a list of replacements that leaves the model what it was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from xflow.check import CheckResult, check_equivalent, check_interface
from xflow.cost.measure import Target
from xflow.cost.worker import Worker
from xflow.errors import ShapeError, ValidationFailed
from xflow.files import write_model_atomically
from xflow.inputs import Shapes, load_model
from xflow.onnx_export import export_model
from xflow.onnx_import import Imported
from xflow.onnx_writer import UnwritableError
from xflow.search import Replacement, apply_replacements, without


@dataclass(frozen=True)
class Tolerance:
    """On how many random inputs two models are compared, and how far they may differ."""

    samples: int = 3
    rtol: float = 1e-3
    atol: float = 1e-5
    seed: int = 0


@dataclass(frozen=True)
class Valid:
    """A model that agrees with the input, in `path`, by what it was made, and what was dropped."""

    model: ir.Model
    path: Path
    replacements: tuple[Replacement, ...]
    check: CheckResult
    warnings: tuple[str, ...]


class Validator:
    """Exports rewritten graphs and compares them with the input model in the file `before`.

    Temporary files go to `folder`. Work that begins after `deadline` (time.monotonic) is not
    done: what is then not shown to be right is dropped.
    """

    def __init__(
        self,
        imported: Imported,
        before: Path,
        folder: Path,
        worker: Worker,
        target: Target,
        tolerance: Tolerance,
        shapes: Shapes | None,
        deadline: float,
    ) -> None:
        self.imported = imported
        self.before = before
        self.worker = worker
        self.target = target
        self.tolerance = tolerance
        self.shapes = shapes
        self.deadline = deadline
        self._path = folder / "after.onnx"

    def valid(self, replacements: Sequence[Replacement]) -> Valid | None:
        """The result of all replacements but those that break the model; None if none is left.

        Raises ValidationFailed where the input model itself does not run.
        """
        chosen = tuple(replacements)
        warnings: list[str] = []
        while chosen:
            result = self.attempt(chosen)
            if isinstance(result, Valid):
                unchecked = ", ".join(sorted(result.check.unchecked))
                if not unchecked:
                    return Valid(
                        result.model, result.path, chosen, result.check, tuple(warnings)
                    )
                warnings.append(f"The output {unchecked} is never finite on random inputs")
                break
            if self.stuck is not None:
                warnings.append(self.stuck)
                break
            if time.monotonic() > self.deadline:
                warnings.append(f"The result was dropped as a whole: {result}")
                break
            number = self.guilty(chosen)
            names = ", ".join(dict.fromkeys(chosen[number].rules)) or "a rewrite"
            warnings.append(f"A use of {names} was dropped: {self.reason}")
            chosen = without(chosen, number)
        self.warnings = tuple(warnings)
        return None

    def guilty(self, replacements: Sequence[Replacement]) -> int:
        """The first replacement with which those before it do not make a right model."""
        good, bad = 0, len(replacements)
        while bad - good > 1:
            middle = (good + bad) // 2
            if time.monotonic() < self.deadline and isinstance(
                self.attempt(replacements[:middle]), Valid
            ):
                good = middle
            else:
                bad = middle
        return bad - 1
