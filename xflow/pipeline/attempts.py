"""What the search finds in a model, with as many of its calls inlined as that takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import onnx
import onnx_ir as ir

from xflow.analysis.opaque import MOVES
from xflow.core.assumptions import DEFAULT
from xflow.core.deadline import Deadline
from xflow.core.errors import ModelError
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Opaque
from xflow.core.size import TooLargeSize
from xflow.core.sorts import FLOATS
from xflow.cost.calibration.calibrate import calibrated, default_target, stored
from xflow.cost.estimate import EstimatedCost, Estimator, MeanEstimator
from xflow.cost.learned.correction import shipped
from xflow.cost.measure import Measurer, Setting, check_provider
from xflow.cost.model import Costs, CostsAtSettings
from xflow.cost.objectives import EXACT, ExactCost
from xflow.cost.store import Platform, Store
from xflow.cost.target import TargetModel
from xflow.cost.worker import Failed
from xflow.feeds.dimension_equalities import fitting
from xflow.feeds.inputs import Shapes, default_shapes, free_dimensions
from xflow.onnx.external_data import Externalized
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model, is_shape_arithmetic
from xflow.onnx.inlining import has_calls, inlined, worthwhile
from xflow.onnx.opset import ceiling, current_opset
from xflow.onnx.outline import outline
from xflow.onnx.types import interface
from xflow.pipeline.context import AFTERWARDS_S, Run, Told, check_seconds
from xflow.pipeline.hints import faster_normwise
from xflow.pipeline.preparation import Inside, Prepared, begin, with_bodies, with_calls
from xflow.rewriting.domains import on_provider, within
from xflow.rewriting.replacement import Replacements
from xflow.rewriting.rule import Rule
from xflow.search.context import Context
from xflow.search.driver import OVER, SLOW, SearchResult, search
from xflow.search.policy import POLICY
from xflow.validation.attribution import prune
from xflow.validation.reference import LARGE, Runner, edge_case_seconds, runnable

CALIBRATED_S = 25.0
"""Least budget in seconds with which a machine that is not known is measured before the search."""
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
LOADINGS = 2.5
"""How many times as long as loading a model takes all that is done with it behind the search, but
the timing."""
HANDLED_PER_S = 7e7, 1.6e8
"""Bytes of weights for which that is done in a second: on a slow machine, and on a fast one."""
RUNS = 20
"""How many runs of a model the check of a rewritten one takes at one setting, about."""
EDGE_CASES, WITHOUT_FLOATS = 28, 10
"""How many edge cases there are, about, as far as there is time for them: of floats there are
more."""
TRIED = 2**26
"""Bytes of weights up to which a model is run to know how long that takes: to load it takes as long
as what would be known better."""
LIGHT = MOVES | {"Cast", "CastLike", "IsInf", "IsNaN", "Not", "OneHot", "Range", "Shape", "Size"}
"""Opaque operators that take no longer than it takes to read and write their tensors."""
REPORTED_S = 2.0
"""Seconds for the start of the program, and for what is reported."""
LEFT = 3 / 4
"""The part of the budget that may go into this and into what comes before the search."""
TRIAL, TRIAL_S = 0.1, 5.0
"""The part of the budget, and the least seconds, in which sizes are tried at which a model runs."""
TRIAL_MATTERS = 0.05
"""The part of the budget from which on it matters whether the check takes as long as was tried."""
ESTIMATED, ESTIMATED_S = 1 / 2, 15.0
"""The part of the time, and the least seconds, for the search by the estimate."""
AS_GOOD = 0.95
"""The part of what is gained with all calls inlined for which some are left as they are."""


@dataclass(frozen=True)
class Settings:
    """The settings of the input shapes: what is given of each, and with it the shapes of all."""

    given: Sequence[Shapes]
    full: Sequence[dict[str, tuple[int, ...]]]


@dataclass(frozen=True)
class SearchedModel:
    """A model before the search, as a graph, and what the search found.

    The `settings` suit the model.
    """

    prepared: Prepared
    imported: Imported
    settings: Settings
    costs: tuple[ExactCost, ...]
    """What the objective counts, at each setting; nothing for latency."""
    replacements: Replacements
    told: Told

    @property
    def gain(self) -> float:
        """What all rewrites gain by themselves, in seconds or in what the objective counts."""
        return sum(item.gain for item in self.replacements)


@dataclass(frozen=True)
class Unsearched:
    """Why no graph of a model was searched, and the settings of its input shapes."""

    settings: Settings
    told: Told


@dataclass(frozen=True)
class Finder:
    """Searches the model `source` at the `settings` of its input shapes.

    `obstacle` says why it cannot be run; nothing where it can. `inside` optimizes what is in its
    operators. The file `before` holds the model.
    """

    run: Run
    source: ir.Model
    settings: Settings
    obstacle: str
    inside: Inside
    before: Path
    _runnable: dict[str, Shapes | None] = field(default_factory=dict)
    _run_s: dict[str, Sequence[float]] = field(default_factory=dict)

    def found(self, rules: Sequence[Rule]) -> SearchedModel | Unsearched:
        """What the search finds, with as many calls inlined as it takes.

        It looks at the model with all calls inlined, and then only with those that the rewrites
        reach into. Of several attempts, the one that counts tells what it has to tell.
        """
        base, seconds = begin(self.source, self.run), self.run.clock.budget
        whole = base if self.obstacle or not has_calls(base.model) else self.all_inlined(base)
        if whole.inlined is None:
            return self.attempt(whole, rules, seconds, self.settings)
        deadline = Deadline.after(seconds, self.run.stop)
        first = self.attempt(whole, rules, FIRST * seconds, self.settings)
        left = (1 - FIRST) * seconds
        if self.run.measured:
            # Not more than the first one had: then what it remembers of regions counts.
            left = min(FIRST * seconds, max(deadline.left, left))
        if deadline.stopped:
            return first
        how = (rules, left, first.settings, self.run.clock.spent)
        if isinstance(first, Unsearched) or not (first.replacements or first.prepared.bodies):
            return self.attempt(base, *how)
        places = {number for number, _ in first.prepared.bodies}
        calls = worthwhile(whole.inlined, first.imported, first.replacements, places)
        if calls == whole.inlined.calls:
            return first
        second = self.attempt(with_calls(base, inlined(base.model, calls)) if calls else base, *how)
        if isinstance(second, Unsearched) or len(second.prepared.bodies) < len(places):
            return first
        return second if second.gain >= AS_GOOD * first.gain else first

    def all_inlined(self, base: Prepared) -> Prepared:
        """The model with all calls inlined; as it is, and a warning, where that is not possible."""
        try:
            return with_calls(base, inlined(base.model))
        except Exception as error:  # whatever is odd about them: the model is as good without
            return replace(base, warnings=(f"The functions were left as they are: {error}.",))

    def attempt(
        self,
        prepared: Prepared,
        rules: Sequence[Rule],
        seconds: float,
        settings: Settings,
        since: float = 0.0,
    ) -> SearchedModel | Unsearched:
        """What the search finds in so much time, bodies first.

        `since` is what was spent of the budget when that time began.
        """
        if not self.obstacle:
            prepared = with_bodies(prepared, self.run, self.inside, seconds)
        told = Told(warnings=prepared.warnings)
        try:
            with self.run.phase("import"):
                if self.obstacle:
                    raise ModelError(self.obstacle)
                imported = import_model(prepared.model, inner=self.run.inner > 0)
        except ModelError as error:
            return Unsearched(settings, told + _left_as_it_is(str(error)))
        told += Told(warnings=imported.warnings)
        settings = self.tied(imported, settings)
        kind = EXACT.get(self.run.objective)
        costs = () if kind is None else tuple(kind(imported.sizes(s)) for s in settings.full)
        if not self.run.inner and not since:
            self.run.tell("model", at_first_sight(imported, settings, self.run.target.threads))
        allowed = on_provider(within(rules, self.run.domains), self.run.target.provider)
        spent = self.run.clock.spent - since
        try:
            replacements, more = self.search(
                imported, allowed, settings, costs, seconds=seconds, spent=spent
            )
        except TooLargeSize as error:
            why = f"its sizes cannot be reckoned with ({error})"
            return Unsearched(settings, told + _left_as_it_is(why))
        return SearchedModel(prepared, imported, settings, costs, replacements, told + more)

    def tied(self, imported: Imported, settings: Settings) -> Settings:
        """Settings in which sizes of inputs suit each other, and at which the model runs.

        As far as the model tells, and a trial. Real inputs have their sizes.
        """
        if self.run.sized_by_inputs:
            return settings
        given = [fitting(imported, each, self.runs) for each in settings.given]
        proto = interface(self.source)
        return Settings(given, [default_shapes(proto, self.sized(each, proto)) for each in given])

    def sized(self, shapes: Shapes, proto: onnx.ModelProto) -> Shapes:
        """The shapes, and of inputs whose sizes are free those at which the model runs.

        That is tried where the model is measured, and is not too large to be loaded once more.
        """
        large = Externalized.weight_bytes(self.source) > LARGE
        if not self.run.measured or large or not free_dimensions(proto, shapes):
            return shapes
        found = self.at_which_it_runs(shapes)
        return shapes if found is None else found

    def runs(self, shapes: Shapes) -> bool:
        """Whether the model runs at some sizes of what the shapes leave free.

        A large one is not loaded once more for that, and taken to.
        """
        large = Externalized.weight_bytes(self.source) > LARGE
        return large or self.at_which_it_runs(shapes) is not None

    def at_which_it_runs(self, shapes: Shapes) -> Shapes | None:
        """The shapes with sizes of what is free at which the model runs; None if none is found."""
        key = repr(sorted(shapes.items()))
        if key not in self._runnable:
            with self.run.phase("sizes"):
                found = runnable(
                    Runner.of(self.before, self.run.target, self.run.worker),
                    outline(self.before),
                    shapes,
                    seed=self.run.tolerance.seed,
                    deadline=Deadline.after(max(TRIAL_S, TRIAL * self.run.clock.budget)),
                )
            self._runnable[key] = None if found is None else found[1]
        return self._runnable[key]

    def search(
        self,
        imported: Imported,
        rules: Sequence[Rule],
        settings: Settings,
        exact: tuple[ExactCost, ...],
        *,
        seconds: float,
        spent: float,
    ) -> tuple[Replacements, Told]:
        """What the search finds in so much time, of which some is spent, and what it has to tell.

        What the graph tells by itself is counted in work, which no clock may shorten.
        """
        run = self.run
        opset = current_opset(self.source) or LATEST_KNOWN
        limit = ceiling(imported, keep=run.keep_opset, target=run.target_opset)
        messages: list[str] = []
        warnings: list[str] = []
        if limit.obstacle:
            messages.append(
                f"The opset was kept, since {limit.obstacle} cannot be raised to a newer one."
            )
        with contextlib.ExitStack() as stack:
            store = None
            learned = shipped() if run.cost == "learned" and not exact else None
            if learned is not None:
                messages.append(f"The learned cost decided ({learned.digest}); nothing was timed.")
            model = TargetModel(threads=run.target.threads, learned=learned)
            budget = seconds
            if run.measured and not exact:
                store = stack.enter_context(Store())
                model, more = self.known_target(store)
                warnings += more
                weights = Externalized.weight_bytes(imported.model)
                later = afterwards(weights, run.clock.phases.get("load", 0.0))
                start = time.monotonic()
                each_s = self.run_seconds(settings, imported, model)
                check_s = check_seconds(run.clock.budget, weights)
                later += checked(each_s, check_s, edge_cases(imported)) + REPORTED_S
                spent += time.monotonic() - start
                seconds = search_seconds(seconds, spent + later)
            deadline = Deadline.after(seconds, run.stop)
            # What is begun before it, as a region that hangs, must leave the check its time, and
            # not exceed the budget by a tenth.
            overrun = deadline.extended(min(AFTERWARDS_S / 4, max(LAST_S, OVERRUN * seconds)))
            stack.enter_context(run.phase("search"))
            sizes = [imported.sizes(shapes) for shapes in settings.full]
            estimator = MeanEstimator.over(model, sizes, imported.graph)
            policy = replace(POLICY, least_gain=EXACT_GAIN) if exact else POLICY
            searched = partial(
                search,
                rules=rules,
                budget=budget,
                context=Context(policy, run.tolerance.seed, limit.opset or opset, run.assumption),
                constants=imported.constants,
                processes=run.processes,
                progress=run.tell,
                outside=run.outside,
                only_proved=run.only_proved,
            )
            if store is None:
                costs = exact[0] if exact else EstimatedCost(estimator)
                found = searched(imported.graph, cost=costs, deadline=deadline)
            else:
                measurer = Measurer(run.target, run.worker, deadline=overrun)
                known = imported.constants
                measured = CostsAtSettings(
                    [
                        Costs(measurer, store, known, sizes=each, opset=opset, model=model)
                        for each in sizes
                    ],
                    estimator,
                )
                found = estimated_then_measured(imported.graph, searched, measured, deadline)
                warnings += [*store.warnings, *measured.warnings]
            warnings += [f"{text}." for text in found.warnings]
            replacements = found.replacements
            if exact:
                replacements = prune(imported.graph, replacements, exact, overrun)
        messages += [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
        if run.assumption == DEFAULT and not exact and not deadline.stopped:
            messages += faster_normwise(found.graph, rules, imported.constants, estimator)
        return replacements, Told(tuple(messages), tuple(warnings))

    def run_seconds(
        self, settings: Settings, imported: Imported, model: TargetModel
    ) -> Sequence[float]:
        """Seconds that a run of the model takes at each setting; 0 where that is not known.

        It is tried, unless that costs more than it tells: models that load slowly are estimated if
        nothing in them may be heavy that is opaque, and large ones are not loaded once more in any
        case. Of one that is not through in time, two runs are taken to last at least as long.
        """
        run = self.run
        unknown = [0.0] * len(settings.full)
        if run.inner:
            return unknown
        weights = Externalized.weight_bytes(self.source)
        if weights > TRIED and run.target.provider == "cpu" and not may_be_heavy(imported):
            return [Estimator(model, imported.sizes(s))(imported.graph) for s in settings.full]
        if weights > LARGE:
            return unknown
        key = repr([sorted(shapes.items()) for shapes in settings.full])
        if key not in self._run_s:
            most = max(TRIAL_S, TRIAL * run.clock.budget)
            deadline = Deadline.after(most)
            check_s = check_seconds(run.clock.budget, weights)
            with run.phase("trial"):
                found = self.tried(settings, deadline)
                least = TRIAL_MATTERS * run.clock.budget
                is_long = found is None or checked(found, check_s, edge_cases(imported)) > least
                if is_long and not deadline.passed:
                    # It may have taken so long beside the processes of the search, which begin.
                    run.processes.settle(deadline)
                    found = self.tried(settings, deadline) or found
            if found is None:
                found = [most / 2] * len(unknown) if deadline.passed else unknown
            self._run_s[key] = found
        return self._run_s[key]

    def tried(self, settings: Settings, deadline: Deadline) -> Sequence[float] | None:
        """Seconds that a run takes at each setting by a trial; None where it fails."""
        run = self.run
        (timed,) = Measurer(run.target, run.worker).time_at_each(
            [self.before],
            0.0,
            [Setting(shapes, run.inputs_at(shapes)) for shapes in settings.full],
            min_rounds=1,
            seed=run.tolerance.seed,
            deadline=deadline,
        )
        return None if isinstance(timed, Failed) else [each.median for each in timed]

    def known_target(self, store: Store) -> tuple[TargetModel, Sequence[str]]:
        """The model of this machine, and warnings; short runs do not measure it first.

        Where it was not measured, that is the default one. Whether products on codes are exact is
        of no account unless the model is to be served on such machines alone.
        """
        run = self.run
        warnings: Sequence[str] = ()
        with run.phase("calibrate"):
            check_provider(run.target, run.worker)  # before a short run ends without a measurement
            place = Platform.of(run.target.provider, run.target.threads, run.worker.runtime_version)
            if run.clock.budget < CALIBRATED_S or (run.stop is not None and run.stop()):
                found = stored(place, store)
            else:
                run.processes.settle()
                found = calibrated(place, Measurer(run.target, run.worker), store, run.tell)
                warnings = () if found else (BUSY,)
        target = found or default_target(place)
        return replace(target, cuts_off=target.cuts_off or not run.vnni), warnings


def estimated_then_measured(
    graph: Graph,
    searched: Callable[..., SearchResult],
    measured: CostsAtSettings,
    deadline: Deadline,
) -> SearchResult:
    """What a search finds by the estimate, and what one that measures finds behind it.

    The estimate knows what a form gains among its neighbours. A region by itself takes some percent
    more or less from one session to the next, and in each of them something else seems to gain
    nothing. The timing of the whole model tells whether the estimate was right.
    """
    seconds = deadline.left
    settings = (measured.settings, measured.layouts.factors)
    by_estimate = EstimatedCost(measured.layouts, measured.notebook, settings)
    first_s = min(seconds, max(ESTIMATED_S, ESTIMATED * seconds))
    until, work = deadline.sooner(seconds - first_s), POLICY.work_per_s * first_s
    first = searched(graph, cost=by_estimate, deadline=until, work=work)
    notes = tuple(OVER if note == SLOW else note for note in first.notes)
    if deadline.passed:
        return replace(first, notes=notes)
    second = searched(first.graph, cost=measured, deadline=deadline, origin=graph)
    return replace(
        second,
        replacements=first.replacements + second.replacements,
        notes=tuple(dict.fromkeys((*notes, *second.notes))),
        warnings=tuple(dict.fromkeys((*first.warnings, *second.warnings))),
    )


def _left_as_it_is(why: str) -> Told:
    return Told(warnings=(f"The model was left as it is: {why}.",))


def at_first_sight(imported: Imported, settings: Settings, threads: int) -> dict[str, object]:
    """What is known of a model before anything is tried: how large it is, and what is opaque.

    `heavy` is the part of its time in convolutions and matrix products, by the estimate for no
    machine in particular.
    """
    computed = [node for node in imported.graph.nodes if not node.constant]
    shapes = imported.sizes(settings.full[0])
    estimator = Estimator(TargetModel(threads=threads), shapes)
    return {
        "operators": sum(not isinstance(node.op, Leaf) for node in computed),
        "opaque": len(opaque(imported)),
        "heavy": f"~{round(100 * estimator.heavy(imported.graph))} %",
    }


def opaque(imported: Imported) -> list[Opaque]:
    """The operators of a model that are opaque, those aside that only compute sizes."""
    return [
        node.op
        for node in imported.graph.nodes
        if isinstance(node.op, Opaque)
        and not node.constant
        and not all(map(is_shape_arithmetic, node.outputs))
    ]


def may_be_heavy(imported: Imported) -> bool:
    """Whether some opaque operators may take far longer than is estimated."""
    return any(op.op_type not in LIGHT for op in opaque(imported))


def afterwards(weight_bytes: float, load_s: float) -> float:
    """Seconds for what comes after a search, but the timing.

    A model is written twice, and read several times over. How long loading took says how fast
    this machine is, unless it had to wait for its disk.
    """
    slow, fast = (weight_bytes / rate for rate in HANDLED_PER_S)
    return min(slow, max(fast, LOADINGS * load_s))


def edge_cases(imported: Imported) -> int:
    """How many edge cases there are of a model's inputs, about."""
    inputs = (imported.values[value] for value in imported.model.graph.inputs)
    return EDGE_CASES if any(v.type.dtype in FLOATS for v in inputs) else WITHOUT_FLOATS


def checked(runs_s: Iterable[float], check_s: float, cases: int) -> float:
    """Seconds for the runs of a check that may take so many, where a run takes these at a setting.

    The edge cases of both models come on top of ordinary inputs, of which there are few.
    """
    edge_s = edge_case_seconds(check_s)
    return sum(max(RUNS * s, RUNS / 2 * s + 2 * min(edge_s, cases * s)) for s in runs_s)


def search_seconds(seconds: float, otherwise: float) -> float:
    """Of so many seconds, those for the search, where other things take some of them."""
    return seconds - min(LEFT * seconds, otherwise)
