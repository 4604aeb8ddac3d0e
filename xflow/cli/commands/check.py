"""`xflow check`: compares two models' outputs, and times them against each other if asked."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xflow.cli.arguments import add_comparison, add_inputs, count, input_settings, tolerance
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.deadline import Deadline
from xflow.core.errors import Different, ExitCode, Slower, WorkerError

if TYPE_CHECKING:
    from xflow.cost.comparison import Comparison
    from xflow.cost.measure import Target
    from xflow.cost.worker import Worker
    from xflow.feeds.edge_cases import InputSet
    from xflow.feeds.inputs import Shapes
    from xflow.validation.equivalence import CheckResult

TIMING_S = 10.0
"""Seconds of timing at each setting of the input shapes."""


CHECK_EXAMPLE = """\
All outputs are compared on random inputs that make sense: indices lie inside what
they index, masks are mostly ones.  And on edge cases: zeros, ties, large and small
numbers, values around each constant of the model, NaN, infinities, other sizes.
With --max-regress, both are timed as well.
Exit code 0: the same, 6: not the same, 7: slower by more than --max-regress.
"""


def add(commands: Commands[Parser]) -> None:
    """Add `check`."""
    usage = "xflow check A B [options]"
    parser = add_command(
        commands, "check", "compare two models that should be the same", usage, CHECK_EXAMPLE
    )
    add_argument = parser.add_argument
    add_argument("before", metavar="A", help="the model that is right")
    add_argument("after", metavar="B", help="the one in question")
    add_argument("--samples", type=count, default=3, metavar="N", help="sets of random inputs (3)")
    add_comparison(add_argument)
    add_inputs(add_argument, "compare")
    add_argument(
        "--promised",
        action="store_true",
        help="hold B to what `xflow optimize` promises: for inputs that are numbers, and no empty "
        "ones, and where A gives numbers",
    )
    add_argument(
        "--max-regress",
        type=tolerance,
        metavar="PERCENT",
        help="how much slower B may be; nothing is timed without it",
    )
    add_talk(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Question:
    """Two models, and the settings of the input shapes at which they are held together."""

    before: Path
    after: Path
    settings: Sequence[Shapes]
    options: argparse.Namespace
    target: Target
    worker: Worker
    deadline: Deadline
    inputs: Sequence[InputSet] = ()

    def compare(self) -> CheckResult:
        """Compare all outputs at each setting.

        Raises Different where one disagrees, and ModelError where they cannot be compared.
        """
        asked = self.options
        from xflow.pipeline.agreement import compare
        from xflow.validation.validate import Tolerance

        found = compare(
            (self.before, self.after),
            self.settings,
            tolerance=Tolerance(
                asked.samples,
                asked.rtol,
                asked.atol,
                asked.seed,
                refines=asked.promised,
                planted=not asked.promised,
                empty=not asked.promised,
            ),
            target=self.target,
            worker=self.worker,
            deadline=self.deadline,
            name=str(self.before),
            inputs=self.inputs,
        )
        if not found.ok:
            raise Different(found.reason, str(self.after))
        return found

    def time(self, agreed: CheckResult) -> list[Comparison]:
        """Time both models against each other at each setting.

        Sizes that are not given are those at which they were compared. Before one is called
        slower, the timing is repeated in new sessions.
        """
        from xflow.cost.comparison import Comparison
        from xflow.cost.measure import Measurer

        percent = self.options.max_regress
        measurer = Measurer(self.target, self.worker)
        timed = []
        for shapes in self.settings:
            real = self.inputs[0].values if self.inputs and not shapes else None
            found = measurer.compare(
                self.before,
                self.after,
                TIMING_S,
                undecided=lambda compared: is_slower(compared, percent),
                extra_s=2 * TIMING_S,
                seed=self.options.seed,
                shapes=shapes or agreed.shapes,
                inputs=real,
                deadline=self.deadline,
            )
            if not isinstance(found, Comparison):
                raise WorkerError(f"the models could not be timed: {found.reason}", str(self.after))
            timed.append(found)
        return timed


def run(options: argparse.Namespace) -> ExitCode:
    """Compare two models, and time them if a limit for that was given; print one line on each.

    Raises Different and Slower: the exit code says which.
    """
    from xflow.cli.progress import ProgressDisplay
    from xflow.cost import machine
    from xflow.cost.measure import Target
    from xflow.cost.worker import Worker
    from xflow.feeds.dimension_equalities import fitting_settings
    from xflow.feeds.inputs import default_shapes, load_proto
    from xflow.feeds.real_inputs import real_inputs
    from xflow.onnx import files
    from xflow.onnx.interface import check_interface
    from xflow.pipeline.agreement import LIMIT_S
    from xflow.validation.reference import runs_at

    given = input_settings(options.input_shapes)
    before, after = Path(options.before), Path(options.after)
    loaded, _ = map(files.load_model, (before, after))  # raises ModelError, in one sentence
    old, new = load_proto(before), load_proto(after)
    fault = check_interface(old, new, strict=False)
    if fault is not None:
        raise Different(fault, str(after))
    settings: Sequence[Shapes] = [default_shapes(old, shapes) if shapes else {} for shapes in given]
    real = real_inputs(old, options.inputs)
    target = Target(options.provider, options.threads or machine.usable_cores())
    limit = machine.free_memory() if options.provider == "cpu" else None
    with Worker(limit) as worker:
        deadline = Deadline.after(LIMIT_S)
        runs = runs_at(before, target, worker, deadline)
        settings = fitting_settings(loaded, settings, runs, sized=bool(real))
        question = Question(before, after, settings, options, target, worker, deadline, real)
        with ProgressDisplay(options.quiet, options.verbose) as progress:
            progress("compare", {})
            agreed = question.compare()
            timed: Sequence[Comparison] = ()
            if options.max_regress is not None:
                progress("time", {})
                timed = question.time(agreed)
    if not options.quiet:
        print(_agreement(agreed))
        print(*map(_ratio, timed), sep="\n", end="\n" if timed else "")
    slow = [each for each in timed if is_slower(each, options.max_regress)]
    if slow:
        raise Slower(f"it is {_ratio(slow[0])}", str(after))
    return ExitCode.OK


def is_slower(compared: Comparison, percent: float) -> bool:
    """Whether the second model takes more than `percent` longer with statistical confidence.

    That is: at the end of the 95 % interval of the ratio that is best for it.
    """
    return compared.high < 1 / (1 + percent / 100)


def _agreement(agreed: CheckResult) -> str:
    sets = [f"{agreed.samples} sets of random inputs"] if agreed.samples else []
    sets += [f"{agreed.given} given"] if agreed.given else []
    sets += [f"{agreed.edge_cases} edge cases"] if agreed.edge_cases else []
    error = f"{agreed.max_rel:.2g}" if math.isfinite(agreed.max_rel) else "not finite"
    lines = [f"equal on {' and '.join(sets)}, largest relative error {error}"]
    if agreed.noise is not None:
        lines.append(f"A itself differs from {agreed.yardstick} by {agreed.noise:.2g}")
    if agreed.left_out:
        lines.append(f"left out: {agreed.left_out} sets of inputs on which A fails")
    if agreed.late:
        lines.append(f"no time for {agreed.late} sets of random inputs: A takes long to run")
    if agreed.silent:
        lines.append(f"on {agreed.silent} sets of inputs, A gives no finite number")
    return "\n".join(lines)


def _ratio(compared: Comparison) -> str:
    return f"{compared.ratio:.3f} times as fast ({compared.low:.3f} to {compared.high:.3f})"
