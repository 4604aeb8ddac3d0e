"""What the search finds in a model, with as many of its calls inlined as that takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from xflow.core.errors import ModelError
from xflow.core.size import TooLargeSize
from xflow.cost import CostModel
from xflow.cost.calibration.calibrate import SECONDS as CALIBRATION_S
from xflow.cost.calibration.calibrate import calibrated, stored
from xflow.cost.estimate import EstimatedCost
from xflow.cost.machine import usable_cores
from xflow.cost.measure import Measurer, check_provider
from xflow.cost.model import Costs, WorstOf
from xflow.cost.objectives import EXACT, ExactCost
from xflow.cost.store import Platform, Store
from xflow.cost.target import TargetModel
from xflow.feeds.dimension_equalities import with_ties
from xflow.feeds.inputs import Shapes, default_shapes, free_dimensions, load_proto
from xflow.onnx.external_data import Externalized
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.inlining import has_calls, inlined, worthwhile
from xflow.onnx.opset import ceiling, current_opset
from xflow.onnx.types import interface
from xflow.pipeline.context import AFTERWARDS_S, Run
from xflow.pipeline.preparation import Inside, Prepared, begin, with_bodies, with_calls
from xflow.rewriting.domains import within
from xflow.rewriting.replacement import Replacements
from xflow.rewriting.rule import Rule
from xflow.search.driver import search
from xflow.search.policy import POLICY
from xflow.validation.attribution import prune
from xflow.validation.reference import LARGE, Runner, runnable

LATEST_KNOWN = 20
"""The opset of regions of models that use none of ONNX's own operators."""
EXACT_GAIN = 1e-9
"""Least relative gain for which a region is rewritten where it is known without a measurement."""
FIRST = 2 / 3
"""The part of the budget for the search with all calls inlined, where another one may follow."""
BUSY = (
    "Other processes kept the machine busy, so it was not calibrated: the estimate that guides the "
    "search takes it for an average one."
)
OVERRUN = 0.06
"""By what part of its time a search may exceed it for what was begun before, at least `LAST_S`."""
LAST_S = 2.0
"""Seconds for that of a short search."""
LOADINGS = 8
"""How many times as long as loading a model takes all that is done with it behind the search, but
the timing."""
HANDLED_PER_S = 5e7, 1.2e8
"""Bytes of weights for which that is done in a second: on a slow machine, and on a fast one."""
LEFT = 3 / 4
"""The part of the budget that may go into this and into what comes before the search."""
TRIAL, TRIAL_S = 0.1, 5.0
"""The part of the budget, and the least seconds, in which sizes are tried at which a model runs."""
AS_GOOD = 0.95
"""The part of what is gained with all calls inlined for which some are left as they are."""


@dataclass(frozen=True)
class SearchedModel:
    """A model before the search, as a graph, and what the search found."""

    prepared: Prepared
    imported: Imported
    costs: tuple[ExactCost, ...]
    """What the objective counts, at each setting; nothing for latency."""
    replacements: Replacements
    messages: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def gain(self) -> float:
        """What all rewrites gain by themselves, in seconds or in what the objective counts."""
        return sum(item.gain for item in self.replacements)


class Finder:
    """Searches the model `source` at the `settings` of its input shapes.

    `obstacle` says why it cannot be run; nothing where it can. `inside` optimizes what is in its
    operators. The file `before` holds the model.
    """

    def __init__(
        self,
        run: Run,
        source: ir.Model,
        settings: Sequence[dict[str, tuple[int, ...]]],
        obstacle: str,
        inside: Inside,
        *,
        before: Path,
    ) -> None:
        self.run = run
        self.source = source
        self.settings = settings
        self.obstacle = obstacle
        self.inside = inside
        self.before = before
        self._runnable: dict[str, Shapes] = {}

    def found(self, rules: Sequence[Rule]) -> SearchedModel | None:
        """What the search finds, with as many calls inlined as it takes; None where it cannot look.

        It looks at the model with all calls inlined, and then only with those that the rewrites
        reach into.
        """
        base, seconds = begin(self.source, self.run), self.run.budget
        whole = None if self.obstacle or not has_calls(base.model) else self.all_inlined(base)
        if whole is None or whole.inlined is None:
            return self.kept(self.attempt(base, rules, seconds))
        end = time.monotonic() + seconds
        first = self.attempt(whole, rules, FIRST * seconds)
        left = (1 - FIRST) * seconds
        if self.run.measured:
            # Not more than the first one had: then what it remembers of regions counts.
            left = min(FIRST * seconds, max(end - time.monotonic(), left))
        if first is None or not (first.replacements or first.prepared.bodies):
            return self.kept(self.attempt(base, rules, left, self.run.spent))
        places = {number for number, _ in first.prepared.bodies}
        calls = worthwhile(whole.inlined, first.imported, first.replacements, places)
        if calls == whole.inlined.calls:
            return self.kept(first)
        some = with_calls(base, inlined(base.model, calls)) if calls else base
        second = self.attempt(some, rules, left, self.run.spent)
        if second is None or len(second.prepared.bodies) < len(places):
            return self.kept(first)
        return self.kept(second if second.gain >= AS_GOOD * first.gain else first)

    def all_inlined(self, base: Prepared) -> Prepared | None:
        """The model with all calls inlined; None, and a warning, where that is not possible."""
        try:
            return with_calls(base, inlined(base.model))
        except Exception as error:  # whatever is odd about them: the model is as good without
            self.run.warnings.append(f"The functions were left as they are: {error}.")
            return None

    def attempt(
        self, prepared: Prepared, rules: Sequence[Rule], seconds: float, since: float = 0.0
    ) -> SearchedModel | None:
        """What the search finds in so much time, bodies first; None where there is no graph.

        `since` is what was spent of the budget when that time began.
        """
        told = len(self.run.messages), len(self.run.warnings)
        if not self.obstacle:
            prepared = with_bodies(prepared, self.run, self.inside, seconds)
        with self.run.phase("import"):
            imported = self.imported(prepared.model)
        if imported is None:
            return None
        self.tie(imported)
        kind = EXACT.get(self.run.objective)
        costs = () if kind is None else tuple(kind(imported.sizes(s)) for s in self.settings)
        allowed = within(rules, self.run.domains)
        try:
            replacements = self.search(imported, allowed, costs, seconds, self.run.spent - since)
        except TooLargeSize as error:
            self.run.warnings.append(
                f"The model was left as it is: its sizes cannot be reckoned with ({error})."
            )
            return None
        messages, warnings = self.run.messages[told[0] :], self.run.warnings[told[1] :]
        del self.run.messages[told[0] :], self.run.warnings[told[1] :]
        return SearchedModel(
            prepared, imported, costs, replacements, tuple(messages), tuple(warnings)
        )

    def tie(self, imported: Imported) -> None:
        """Choose sizes of inputs that suit each other and at which the model runs.

        As far as the model tells, and a trial. Real inputs have their sizes.
        """
        if self.run.sized_by_inputs:
            return
        self.run.shapes = [with_ties(imported, each) for each in self.run.shapes]
        proto = interface(self.source)
        self.settings = [default_shapes(proto, self.sized(each, proto)) for each in self.run.shapes]

    def sized(self, shapes: Shapes, proto: onnx.ModelProto) -> Shapes:
        """The shapes, and of inputs whose sizes are free those at which the model runs.

        That is tried where the model is measured, and is not too large to be loaded once more.
        """
        large = Externalized.weight_bytes(self.source) > LARGE
        if not self.run.measured or large or not free_dimensions(proto, shapes):
            return shapes
        key = repr(sorted(shapes.items()))
        if key not in self._runnable:
            start = time.monotonic()
            with self.run.phase("sizes"):
                found = runnable(
                    Runner.of(self.before, self.run.target, self.run.worker, large=False),
                    load_proto(self.before),
                    shapes,
                    seed=self.run.tolerance.seed,
                    deadline=time.monotonic() + max(TRIAL_S, TRIAL * self.run.budget),
                )
            self.run.end += time.monotonic() - start
            self._runnable[key] = shapes if found is None else found[1]
        return self._runnable[key]

    def kept(self, found: SearchedModel | None) -> SearchedModel | None:
        """The one of several attempts that counts; what it has to tell is told."""
        if found is not None:
            self.run.messages += found.messages
            self.run.warnings += found.warnings
        return found

    def imported(self, model: ir.Model) -> Imported | None:
        """A model as a graph; None, and a warning, where that is not possible."""
        try:
            if self.obstacle:
                raise ModelError(self.obstacle)
            imported = import_model(model, inner=self.run.inner > 0)
        except ModelError as error:
            self.run.warnings.append(f"The model was left as it is: {error}.")
            return None
        self.run.warnings += imported.warnings
        return imported

    def search(
        self,
        imported: Imported,
        rules: Sequence[Rule],
        exact: tuple[ExactCost, ...],
        seconds: float,
        spent: float,
    ) -> Replacements:
        """The replacements that the search finds in so much time, of which some is spent.

        What the graph tells by itself is counted in work, which no clock may shorten.
        """
        run = self.run
        opset = current_opset(self.source) or LATEST_KNOWN
        limit = ceiling(imported, keep=run.keep_opset, target=run.target_opset)
        if limit.obstacle:
            run.messages.append(
                f"The opset was kept, since {limit.obstacle} cannot be raised to a newer one."
            )
        with contextlib.ExitStack() as stack:
            store = None
            model = TargetModel(threads=run.target.threads)
            budget = seconds
            if run.measured and not exact:
                store = stack.enter_context(Store())
                model = self.measured_target(store) or model
                weights = Externalized.weight_bytes(imported.model)
                later = afterwards(weights, run.phases.get("load", 0.0))
                seconds = search_seconds(seconds, spent + later)
            deadline = time.monotonic() + seconds
            # What is begun before it, as a region that hangs, must leave the check its time, and
            # not exceed the budget by a tenth.
            overrun = deadline + min(AFTERWARDS_S / 4, max(LAST_S, OVERRUN * seconds))
            stack.enter_context(run.phase("search"))
            measured: WorstOf | None = None
            sizes = [imported.sizes(shapes) for shapes in self.settings]
            costs: CostModel = EstimatedCost(model, sizes[0])
            if exact:
                costs = exact[0]
            elif store is not None:
                measurer = Measurer(run.target, run.worker, deadline=overrun)
                known = imported.constants
                costs = measured = WorstOf(
                    [
                        Costs(measurer, store, known, sizes=each, opset=opset, model=model)
                        for each in sizes
                    ]
                )
            found = search(
                imported.graph,
                rules,
                costs,
                deadline=deadline,
                budget=budget,
                policy=replace(POLICY, least_gain=EXACT_GAIN) if exact else POLICY,
                seed=run.tolerance.seed,
                constants=imported.constants,
                opset=limit.opset or opset,
                processes=usable_cores(),
                progress=run.tell,
                assumption=run.assumption,
                outside=run.outside,
                only_proved=run.only_proved,
            )
            if store is not None and measured is not None:
                run.warnings += [*store.warnings, *measured.warnings]
            run.warnings += [f"{text}." for text in found.warnings]
            replacements = found.replacements
            if exact:
                replacements = prune(imported.graph, replacements, exact, until=overrun)
        run.messages += [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
        return replacements

    def measured_target(self, store: Store) -> TargetModel | None:
        """What is known of this machine; short runs do not measure it first."""
        run = self.run
        with run.phase("calibrate"):
            check_provider(run.target, run.worker)  # before a short run ends without a measurement
            place = Platform.of(run.target.provider, run.target.threads, run.worker.runtime_version)
            if run.budget < CALIBRATION_S:
                return stored(place, store)
            start = time.monotonic()
            found = calibrated(place, Measurer(run.target, run.worker), store, run.tell)
            run.end += time.monotonic() - start
            if found is None:
                run.warnings.append(BUSY)
            return found


def afterwards(weight_bytes: float, load_s: float) -> float:
    """Seconds for what comes after a search, but the timing.

    A model is written twice, and read several times over. How long loading took says how fast
    this machine is, unless it had to wait for its disk.
    """
    slow, fast = (weight_bytes / rate for rate in HANDLED_PER_S)
    return min(slow, max(fast, LOADINGS * load_s))


def search_seconds(seconds: float, otherwise: float) -> float:
    """Of so many seconds, those for the search, where other things take some of them."""
    return seconds - min(LEFT * seconds, otherwise)
