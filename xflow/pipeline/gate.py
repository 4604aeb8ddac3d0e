"""The final check of the search result: the model is compared with the input, and timed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xflow.core.deadline import Deadline
from xflow.cost.comparison import Comparison
from xflow.cost.estimate import Estimator
from xflow.cost.measure import Measurer, Setting
from xflow.cost.model import lost_by_threads
from xflow.cost.target import TargetModel
from xflow.cost.worker import Failed, Lost
from xflow.feeds.inputs import Shapes
from xflow.onnx.external_data import Externalized
from xflow.pipeline.attempts import SearchedModel
from xflow.pipeline.context import AFTERWARDS_S, Run, Told, check_seconds, loading_seconds
from xflow.pipeline.timing_verdict import (
    is_hopeless,
    is_hopeless_somewhere,
    is_promising,
    is_settled,
    is_undecided,
    margin,
    no_gain,
    no_rewrite,
    timed_with_fewer,
    timing_objection,
)
from xflow.report import summary
from xflow.rewriting.replacement import Replacements, apply_replacements
from xflow.validation import attribution
from xflow.validation.attribution import Attribution
from xflow.validation.repro import Repro
from xflow.validation.validate import Broken, Validated, Validator, write_temporary

TIMING_S = (2.0, 12.0)
"""Least and most seconds of the final timing."""
EXTRA_S = 30.0
"""Seconds that it may take besides where a model seems to be faster, and is not shown to be."""
BEYOND_S = 12.0
"""Seconds by which it may exceed the time for all in that case."""
CONTEST_PASSES = 2
"""Of the timing that tells what a group of rewrites gains."""


@dataclass(frozen=True)
class Judgement:
    """What a list of replacements is worth.

    `amounts` and `comparisons` are of the model before and after, one for each setting of the
    input shapes; empty where the objective is latency, and where nothing was timed. `objection`
    says why the model is not given out; empty if it is. `gains` are those of groups that the
    whole model tells. `told` is what there is to tell beside the verdict and the objection.
    """

    verdict: Validated
    objection: str = ""
    amounts: tuple[tuple[int, int], ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    gains: Mapping[attribution.Path, float] = field(default_factory=dict)
    told: Told = field(default_factory=Told)

    @property
    def worst(self) -> int:
        """The number of the setting that the model gains least at."""
        if self.comparisons:
            ratios = [compared.ratio for compared in self.comparisons]
            return ratios.index(min(ratios))
        shares = [after / before if before else 1.0 for before, after in self.amounts]
        return shares.index(max(shares)) if shares else 0

    @property
    def telling(self) -> int:
        """The number of the setting that tells which rewrites help: where most is gained.

        Where there is an objection, that is the one where least is gained.
        """
        ratios = [compared.ratio for compared in self.comparisons]
        return self.worst if self.objection or not ratios else ratios.index(max(ratios))

    def behind(self, first: Judgement, *messages: str, warnings: tuple[str, ...] = ()) -> Judgement:
        """This one, which takes the place of the first: also what that one had to tell."""
        before = first.told + Told(warnings=first.verdict.warnings)
        return replace(self, told=before + self.told + Told(messages, warnings))


class Gate:
    """Judges rewrites of the model that was searched, of which the file `before` holds the source.

    `prepared`: that model is worth something without any rewrite.
    """

    def __init__(
        self, run: Run, found: SearchedModel, before: Path, *, prepared: bool = False
    ) -> None:
        self.run = run
        self.imported = found.imported
        self.before = before
        self.given, self.settings = found.settings.given, found.settings.full
        self.costs = found.costs
        self.prepared = prepared
        self.step_s = 0.0
        """Seconds that the shortest timing of two models takes at one setting, loading included."""
        self.written: Replacements | None = None
        """What made the model that is in the file of what was judged last."""

    def judge(self, replacements: Replacements) -> Judgement:
        """Check the model that the replacements make, and hold it against the input's."""
        with self.run.phase("check"):
            verdict = self.validator().validate(replacements)
        self.written = verdict.replacements
        if verdict.checked is None:
            return self.nothing(verdict)
        amounts = self.amounts(verdict)
        if any(after >= before for before, after in amounts):
            judgement = Judgement(verdict, amounts=amounts)
            reason = no_gain(*amounts[judgement.worst], self.run.objective)
            return replace(judgement, objection=reason)
        comparisons: tuple[Comparison, ...] = ()
        objection, told = "", Told()
        if self.run.measured:
            with self.run.phase("timing"):
                timed = self.compare_with_input(verdict.checked.path)
            if isinstance(timed, Failed):
                told = Told(warnings=(f"The models could not be timed: {timed.reason}.",))
            else:
                comparisons = timed
                told = Told(warnings=timed_with_fewer(timed, self.run.target.threads))
            served = self.with_all_threads(comparisons, verdict.replacements)
            objection = timing_objection(served, counted=bool(self.costs))
        gains: Mapping[attribution.Path, float] = {}
        if self.costs:
            worst = self.costs[Judgement(verdict, amounts=amounts).worst]
            gains = attribution.attribute_amount(self.imported.graph, verdict.replacements, worst)
        return Judgement(verdict, objection, amounts, comparisons, gains, told)

    def nothing(self, verdict: Validated | None = None) -> Judgement:
        """The judgement where no rewrite is left."""
        return Judgement(verdict or Validated(None), no_rewrite(self.run.objective))

    def improve(self, judgement: Judgement) -> Judgement:
        """Time the model without each group of rewrites, and drop those that do harm.

        Where the objective is not latency, that is needed only if the model has become slower.
        Where the model is not shown to be faster, and no group is found that does harm, one may be
        among those that there was no time for: then those that are known to help are all.
        """
        verdict = judgement.verdict
        slower = bool(judgement.objection)
        if verdict.checked is None or not judgement.comparisons or (self.costs and not slower):
            return judgement
        compared = judgement.comparisons[judgement.telling]
        paths = attribution.groups(verdict.replacements)
        if not paths:
            return judgement
        if len(paths) == 1:  # what the model gains, it gains by these
            gain = compared.before.median - compared.after.median
            return judgement if self.costs else replace(judgement, gains={paths[0]: gain})
        # What is left must do for another check and timing, if a group is dropped.
        again = self.again_s()
        patience = math.inf if slower else max(self.run.clock.budget, AFTERWARDS_S) / 4
        found, told = self.attribute(
            judgement,
            min(Deadline.after(patience), self.run.clock.deadline.sooner(again + self.writing())),
        )
        gains = judgement.gains if self.costs else found.gains
        judgement = replace(judgement, gains=gains, told=judgement.told + told)
        rest = found.replacements
        if slower and not found.dropped:
            helping = {path for path, gain in found.gains.items() if gain > 0}
            rest = attribution.only(rest, helping) if helping else ()
        if not rest or rest == judgement.verdict.replacements:
            return judgement
        second = self.judge(rest)
        if second.objection:
            return replace(judgement, told=judgement.told + second.told)
        kept = attribution.groups(rest)
        second = second.behind(
            judgement,
            *(
                f"{_rewrites(path)} left out: the model is faster without."
                for path in paths
                if path not in kept
            ),
        )
        return second if self.costs else replace(second, gains=found.gains)

    def attribute(self, judgement: Judgement, deadline: Deadline) -> tuple[Attribution, Told]:
        """Which groups of rewrites make the model faster, at the setting that tells it."""
        assert judgement.verdict.checked is not None
        validator = self.validator()
        if self.written != judgement.verdict.replacements:  # something else was judged since
            write_temporary(judgement.verdict.checked.model, judgement.verdict.checked.path)
        files = {judgement.verdict.replacements: judgement.verdict.checked.path}
        spare = [self.run.folder / "without.onnx", self.run.folder / "less.onnx"]
        shapes = self.settings[judgement.telling]
        warnings: list[str] = []

        def contest(rest: Replacements, whole: Replacements) -> Comparison | None:
            model = validator.build(rest)
            if isinstance(model, Broken):
                return None
            path = next(each for each in spare if each != files[whole])
            write_temporary(model, path)
            files[rest] = path
            timed = self.compare(
                path, files[whole], [shapes], TIMING_S[0], deadline, passes=CONTEST_PASSES
            )
            if isinstance(timed, Lost):
                warnings.append(
                    f"A model without some of the rewrites could not be timed: {timed.reason}."
                )
            return None if isinstance(timed, Failed) else timed[0]

        with self.run.phase("attribution"):
            found = attribution.attribute_time(
                judgement.verdict.replacements,
                contest,
                margin,
                deadline=deadline,
                step_s=self.step_s,
                tell=lambda done, total: self.run.tell("attribution", {"group": done, "of": total}),
            )
        return found, Told(warnings=tuple(warnings))

    def has_time(self, judgement: Judgement) -> bool:
        """Whether something less can be judged as that was, which came to its timing, in time."""
        return bool(judgement.comparisons) and self.run.clock.deadline.left > self.again_s()

    def again_s(self) -> float:
        """Seconds that another check and timing take, as far as those before tell."""
        return self.writing() + self.step_s * len(self.settings)

    def amounts(self, verdict: Validated) -> tuple[tuple[int, int], ...]:
        """What the objective counts before and after, at each setting; nothing for latency."""
        assert verdict.checked is not None
        if self.run.objective == "size":  # the same at all settings, and a file tells it best
            before = summary.written_bytes(self.imported.model)
            after_bytes = summary.written_bytes(verdict.checked.model)
            return ((before, after_bytes),) * len(self.settings)
        after = apply_replacements(self.imported.graph, verdict.replacements)
        return tuple((cost.amount(self.imported.graph), cost.amount(after)) for cost in self.costs)

    def validator(self) -> Validator:
        """The judge of what the search found; it has half of the time that is left for it."""
        return Validator(
            self.imported,
            self.before,
            self.run.folder / "after.onnx",
            self.run.worker,
            self.run.target,
            self.run.tolerance,
            self.given,
            Deadline.after(check_seconds(self.run.clock.budget, self.weight_bytes())),
            target_opset=self.run.target_opset,
            prepared=self.prepared,
            growth=self.run.size_threshold,
            outside=self.run.outside,
            repro=self.repro(),
            inputs=self.run.inputs,
        )

    def repro(self) -> Repro | None:
        """What saves models that show a wrong rewrite, if somebody wants them."""
        if self.run.save_repro is None:
            return None
        sizes = self.imported.sizes(self.settings[0])
        folder, worker, target = self.run.save_repro, self.run.worker, self.run.target
        return Repro(folder, self.imported, sizes, worker, target)

    def weight_bytes(self) -> float:
        """The bytes of the weights that are written and read."""
        return Externalized.weight_bytes(self.imported.model)

    def writing(self) -> float:
        """Seconds that loading a model again takes, and writing it: at most what the check took."""
        return self.run.clock.phases.get("check", 0.0)

    def compare_with_input(self, after: Path) -> tuple[Comparison, ...] | Failed:
        """Time the input model and another against each other, at each setting."""
        low, high = TIMING_S
        left = self.run.clock.deadline.sooner(self.writing()).left
        seconds = min(high, max(low, min(left / 2, self.run.clock.budget / 6)))
        least = AFTERWARDS_S / 2 + loading_seconds(self.weight_bytes())
        deadline = Deadline.after(max(left, least))
        start = time.monotonic()
        several = len(self.settings) > 1
        further = further_seconds(self.run.clock.deadline.left, deadline.left)
        how: dict[str, Any] = {
            "settled": is_settled,
            "undecided": is_undecided if several else is_promising,
            "hopeless": is_hopeless_somewhere if several else is_hopeless,
            "extra_s": further,
        }
        if self.costs:  # only what is not counted has to be shown to be faster
            how = {}
        timed = self.compare(self.before, after, self.settings, seconds, deadline, **how)
        took = time.monotonic() - start
        if not isinstance(timed, Failed):
            self.step_s = max(low, CONTEST_PASSES * took / sum(each.passes for each in timed))
        return timed

    def with_all_threads(
        self, comparisons: Sequence[Comparison], replacements: Replacements
    ) -> list[Comparison]:
        """What comparisons with fewer threads say of all of them, as far as an estimate tells."""
        if all(each.threads is None for each in comparisons):
            return list(comparisons)
        graphs = [self.imported.graph, apply_replacements(self.imported.graph, replacements)]
        target = TargetModel(threads=self.run.target.threads)

        def loss(shapes: Shapes, threads: int) -> float:
            estimator = Estimator(target, self.imported.sizes(shapes))
            return lost_by_threads(graphs, threads, estimator)[1]

        return [
            each if each.threads is None else each.scaled(1 / loss(shapes, each.threads))
            for shapes, each in zip(self.settings, comparisons, strict=False)
        ]

    def compare(
        self,
        before: Path,
        after: Path,
        settings: Sequence[Shapes],
        seconds: float,
        deadline: Deadline,
        **how: Any,
    ) -> tuple[Comparison, ...] | Failed:
        """Time two models against each other at each setting.

        At each setting it takes a share of `seconds`, but never less than the least.
        """
        return Measurer(self.run.target, self.run.worker).compare_at_each(
            before,
            after,
            max(TIMING_S[0], seconds / len(settings)),
            [Setting(shapes, self.run.inputs_at(shapes)) for shapes in settings],
            seed=self.run.tolerance.seed,
            deadline=deadline,
            **how,
        )


def further_seconds(left: float, given: float) -> float:
    """Seconds for a further look at two models, where the first one may take those `given`.

    All is to be over in those `left`, and with a further look a little later.
    """
    return min(EXTRA_S, max(0.0, left + BEYOND_S - given))


def _rewrites(path: attribution.Path) -> str:
    return f"The rewrites by {', '.join(dict.fromkeys(path)) or 'an unnamed rule'} were"
