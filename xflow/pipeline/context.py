"""What the phases of one run share, its settings and its clock, and what each has to tell."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xflow.analysis.observers import Observed
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.deadline import Deadline
from xflow.core.limits import GROWTH
from xflow.core.progress import Progress
from xflow.cost import Cost, Objective
from xflow.cost.measure import Target
from xflow.cost.worker import Worker
from xflow.feeds.edge_cases import InputSet
from xflow.feeds.inputs import Shapes
from xflow.rewriting.domains import Domains
from xflow.search.processes import SearchProcesses
from xflow.validation.validate import Tolerance

AFTERWARDS_S = 40.0
"""Seconds beyond the budget that the timing of whole models may take."""
CHECKED_PER_S = 6e7
"""Bytes of weights that are written, and read several times over, in a second, about."""
EXTENDING = frozenset({"sizes", "calibrate"})
"""The phases that measure the machine before a search: all that follows ends later by as much."""
BESIDE = EXTENDING | {"timing", "attribution", "profile"}
"""The phases that the budget is not for: these, and those that time whole models."""


def check_seconds(budget: float, weight_bytes: float) -> float:
    """Seconds that a check may take: half of what is for it, and what it takes to read weights."""
    return max(AFTERWARDS_S, budget) / 2 + loading_seconds(weight_bytes)


def loading_seconds(weight_bytes: float) -> float:
    """Seconds that it may take to write weights, and to read those of two models."""
    return weight_bytes / CHECKED_PER_S


@dataclass(frozen=True)
class Told:
    """Sentences for the user: on what was done, and on what may be wrong."""

    messages: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __add__(self, other: Told) -> Told:
        """Both, without what was told already."""
        return Told(
            tuple(dict.fromkeys(self.messages + other.messages)),
            tuple(dict.fromkeys(self.warnings + other.warnings)),
        )


class Clock:
    """The time of one run: how many seconds each phase took, and when all must be over.

    `budget` is in seconds, for all phases but those `BESIDE` it.
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.phases: dict[str, float] = {}
        self._end = Deadline.after(budget + AFTERWARDS_S)

    @property
    def deadline(self) -> Deadline:
        """When all must be over."""
        return self._end.extended(sum(self.phases.get(name, 0.0) for name in EXTENDING))

    @property
    def spent(self) -> float:
        """Seconds that the phases so far took of the budget."""
        return sum(took for name, took in self.phases.items() if name not in BESIDE)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block as that of a phase."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - start


@dataclass(frozen=True)
class Run:
    """One run: what was asked for, and its clock.

    `shapes` are the settings of the input shapes, at least one; the first guides the estimate.
    Temporary files go to `folder`. Weights that are inputs, too, become constants unless
    `keep_initializer_inputs`. `size_threshold` is how many bytes folded constants may take beyond
    those that they replace. `inner` is how deep inside the operators of a model this run is about
    what is in them. Models that show what is wrong with a dropped rewrite go to `save_repro`.
    """

    target: Target
    worker: Worker
    folder: Path
    clock: Clock
    tolerance: Tolerance
    shapes: Sequence[Shapes]
    objective: Objective
    cost: Cost
    progress: Progress
    processes: SearchProcesses
    """With the rules that are allowed in the model."""
    keep_opset: bool = False
    """Whether the model's opset must stay."""
    target_opset: int | None = None
    """The one to which it may be raised; None: whichever is needed."""
    domains: Domains = "onnx"
    """Of which domains operators may be that rewrites bring in."""
    vnni: bool = False
    """Whether products on codes may be brought in that are exact with VNNI alone."""
    keep_initializer_inputs: bool = False
    size_threshold: int = GROWTH
    inner: int = 0
    outside: Observed = Observed.NOWHERE
    """What may be sensitive to the outputs, of a graph inside an operator."""
    save_repro: Path | None = None
    assumption: Assumption = DEFAULT
    """What is taken for granted of the values of the model."""
    only_proved: bool = False
    """Whether all rewrites are to be applications of proved rules."""
    inputs: Sequence[InputSet] = ()
    """Real inputs, to check and to time on."""
    profiled: bool = False
    """Whether the input model is profiled whatever is gained."""
    stop: Callable[[], bool] | None = None
    """What says whether the search is to end at once, with what it has found."""

    @property
    def measured(self) -> bool:
        """Whether measurements decide, and not an estimate."""
        return self.cost == "measured"

    @property
    def sized_by_inputs(self) -> bool:
        """Whether the model is measured at the sizes of the first real inputs."""
        return bool(self.inputs) and not any(self.shapes)

    def inputs_at(self, shapes: Shapes) -> Mapping[str, Any] | None:
        """Real inputs of these shapes to time on, if there are any."""
        for each in self.inputs:
            if all(tuple(shapes.get(name, ())) == size for name, size in each.shapes.items()):
                return each.values
        return None

    def tell(self, phase: str, details: Mapping[str, object]) -> None:
        """Report where a phase stands, and in how many seconds all is over at the latest."""
        self.progress(phase, {**details, "left": f"<= {self.clock.deadline.left:.0f} s"})

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Report that a phase begins, and count the time of the block as its."""
        self.tell(name, {})
        return self.clock.phase(name)

    def inside(self, folder: Path, budget: float, around: Observed) -> Run:
        """A run on a graph inside an operator, with the same settings and a share of the time.

        Its outputs are observed as `around` says.
        """
        return replace(
            self,
            folder=folder,
            clock=Clock(budget),
            progress=self.tell,
            shapes=[{}],
            inputs=(),
            keep_opset=True,  # there is one for all graphs of a model
            target_opset=None,
            domains="onnx",  # likewise
            inner=self.inner + 1,
            outside=self.outside | around,
        )
