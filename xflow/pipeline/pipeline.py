"""One run from a model to a model that is right and better, phase by phase."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from xflow.core.deadline import Deadline
from xflow.core.errors import UnfeedableInput, printable
from xflow.core.registry import CONTRIB
from xflow.cost.comparison import Comparison
from xflow.cost.machine import processor_name
from xflow.cost.measure import Setting
from xflow.cost.objectives import EXACT
from xflow.cost.profile import profiled
from xflow.cost.worker import Failed
from xflow.feeds.inputs import Shapes, default_shapes
from xflow.onnx.files import write_model_atomically
from xflow.onnx.freeze import CONSTANTS, listed, overridable
from xflow.onnx.opset import current_opset, keeping_opset
from xflow.onnx.proto_compat import TRAINED
from xflow.onnx.repairs import PUT_RIGHT
from xflow.onnx.types import interface
from xflow.pipeline.attempts import Finder, SearchedModel, Settings
from xflow.pipeline.context import Run, Told
from xflow.pipeline.details import Account, account_for
from xflow.pipeline.gate import Gate, Judgement
from xflow.pipeline.log import Unrepeatable
from xflow.pipeline.preparation import Inside, Prepared
from xflow.pipeline.timing_verdict import no_rewrite
from xflow.report import summary
from xflow.report.report import Deployment, Report
from xflow.rewriting.replacement import without
from xflow.rewriting.rule import Rule
from xflow.validation.attribution import only_measured
from xflow.validation.equivalence import check_equivalent
from xflow.validation.validate import Validated

PROFILE_S, PROFILE_LEAST_S, PROFILE_MOST_S = 0.5, 5.0, 20.0
"""Seconds for which a model is run for its profile; those that there are in any case, and at most,
loading included: slow models have used up their time, and are those that one asks about."""

MOST_MISTAKES = 3
"""Rewrites that cannot be repeated, behind which nothing of what was found is given out."""


@dataclass(frozen=True)
class Result:
    """A model that computes what the input model does, and what was done to it.

    If `report.changed` is False, `model` is the input's own. `source` is the input's file, if it
    was given as one.
    """

    model: ir.Model
    report: Report
    source: Path | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, whole or not at all; if nothing was gained, the input's very bytes.

        Weights go to files beside it where the input has them so, or where they are too large for
        one file. Raises OutputError, for instance if `path` is the input.
        """
        model: ir.Model | bytes = self.model
        if self.source is not None and not self.report.changed:
            model = self.source.read_bytes()  # and not what reading and writing makes of them
        write_model_atomically(model, path, source=self.source)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from xflow.report.page import summary  # noqa: PLC0415 - nobody else needs it

        return summary(self.report)


class Pipeline:
    """The phases of a run on `source`, which nobody else changes and which the file `before` holds.

    Raises UsageError where the shapes of the inputs do not suit the model.
    """

    def __init__(self, run: Run, source: ir.Model, before: Path) -> None:
        self.run = run
        self.source = source
        self.before = before
        self.obstacle = ""
        """Why the model cannot be run, from the types of its inputs."""
        full: Sequence[dict[str, tuple[int, ...]]]
        try:
            full = (
                [dict(run.inputs[0].shapes)]
                if run.sized_by_inputs
                else [default_shapes(interface(source), each) for each in run.shapes]
            )
        except UnfeedableInput as error:
            full, self.obstacle = [{} for _ in run.shapes], str(error)
        self.settings = Settings(run.shapes, full)

    def optimize(self, rules: Sequence[Rule]) -> Result:
        """The model that the rules lead to, or the input's own.

        Raises ValidationFailed where the input model does not run.
        """
        run = self.run
        judgement = Judgement(Validated(None), no_rewrite(run.objective))
        account: Account | None = None
        how = (self.obstacle, self.inside(rules), self.before)
        found = Finder(run, self.source, self.settings, *how).found(rules)
        if not run.inner:
            run.processes.close()  # what follows needs their memory, and is timed
        prepared = isinstance(found, SearchedModel) and self.gains_by_preparation(found.prepared)
        if isinstance(found, SearchedModel) and (found.replacements or prepared):
            gate = Gate(run, found, self.before, prepared=prepared)
            judgement = gate.improve(self.judge(gate, found))
            judgement, account = self.repeatable(gate, found, judgement, rules)
        elif run.measured and not run.inner and not self.obstacle:
            judgement = replace(judgement, told=self.try_out(found.settings.full[0]))
        changed = not judgement.objection
        accidents = (
            f"The measuring process was lost and started again: {reason}."
            for reason in run.worker.accidents
        )
        told = found.told + judgement.told
        told += Told(warnings=(*judgement.verdict.warnings, *accidents))
        if not changed:
            told += Told((judgement.objection,))
        elif isinstance(found, SearchedModel):
            told += self.told(found.prepared)
        if account is None and isinstance(found, SearchedModel):
            account = self.account(found, judgement, rules)
        result = self.result(judgement, account or Account(), found.settings.full, told)
        wanted = self.run.profiled or (self.run.measured and not changed)
        if self.obstacle or self.run.inner or not wanted:
            return result
        return replace(result, report=self.profiled(result.report))

    def profiled(self, report: Report) -> Report:
        """The report with where the time of the input model goes, at the setting that it is of."""
        run = self.run
        with run.phase("profile"):
            setting = Setting(report.shapes, run.inputs_at(report.shapes))
            found = profiled(
                self.before,
                run.target,
                run.worker,
                setting,
                seconds=PROFILE_S,
                deadline=min(
                    max(run.clock.deadline, Deadline.after(PROFILE_LEAST_S)),
                    Deadline.after(PROFILE_MOST_S),
                ),
                seed=run.tolerance.seed,
            )
        if isinstance(found, Failed):
            return report
        times = summary.kernel_times(found, report.before, report.missed)
        return replace(report, profile=times, phases=run.clock.phases)

    def try_out(self, shapes: Shapes) -> Told:
        """A warning where a model for which nothing was found does not run: nobody has tried it."""
        with self.run.phase("check"):
            found = check_equivalent(
                self.before,
                self.before,
                samples=1,
                seed=self.run.tolerance.seed,
                shapes={} if self.run.sized_by_inputs else shapes,
                inputs=self.run.inputs,
                edge_cases=False,
                deadline=max(self.run.clock.deadline, Deadline.after(1.0)),
                target=self.run.target,
                worker=self.run.worker,
            )
        fails = "does not run" in found.reason
        return Told(warnings=(f"{found.reason[:1].upper()}{found.reason[1:]}.",) if fails else ())

    def gains_by_preparation(self, prepared: Prepared) -> bool:
        """Whether the model is better before any rewrite of its main graph.

        That is: by its bodies, or since the runtime can do more for the weights that became
        constants. In models of old IR versions, it takes all of them for constants.
        """
        new = self.source.ir_version >= CONSTANTS
        return bool(prepared.bodies) or (prepared.frozen and new)

    def told(self, prepared: Prepared) -> Told:
        """What was done to the model besides rewrites."""
        messages = [*self.source.meta.get(PUT_RIGHT, ()), *prepared.notes]
        warnings: list[str] = []
        if self.source.meta.get(TRAINED):
            warnings.append(
                "The model's training_info is left out: it speaks of the graph as it was."
            )
        if prepared.inlined is not None:
            count = len(prepared.inlined.calls)
            messages.append(
                f"{count} {'call' if count == 1 else 'calls'} of functions of the model inlined, "
                "since rewrites reach into them."
            )
        if prepared.frozen:
            names = overridable(self.source)
            warnings.append(
                f"{len(names)} of the model's weights were inputs, too ({listed(names)}); they "
                "are constants now (--keep-initializer-inputs keeps them)."
            )
        return Told(tuple(messages), tuple(warnings))

    def inside(self, rules: Sequence[Rule]) -> Inside:
        """What optimizes the graphs inside operators."""

        def optimize(run: Run, body: ir.Model, before: Path) -> tuple[ir.Model, Report]:
            result = Pipeline(run, body, before).optimize(rules)
            return result.model, result.report

        return optimize

    def judge(self, gate: Gate, found: SearchedModel) -> Judgement:
        """What the replacements are worth; or if all do not pay, some of them.

        These are those that were measured, or those that keep the opset.
        """
        judgement = gate.judge(found.replacements)
        if not judgement.objection:
            return judgement
        judged = judgement.verdict.replacements or found.replacements  # less what was dropped
        measured = only_measured(judged)
        if 0 < len(measured) < len(judged) and gate.has_time(judgement):
            kept = gate.judge(measured)
            if not kept.objection:
                told = "Rewrites that were not measured one by one did not pay."
                return kept.behind(judgement, told)
            judgement = replace(judgement, told=judgement.told + kept.told)
        opset = current_opset(found.imported.model)
        if opset is None:
            return judgement
        rest = keeping_opset(found.imported.graph, judged, opset)
        if not rest or len(rest) == len(judged):
            return judgement
        kept = gate.judge(rest)
        if kept.objection:
            return replace(judgement, told=judgement.told + kept.told)
        return kept.behind(judgement, f"Rewrites that need a newer opset than {opset} did not pay.")

    def account(self, found: SearchedModel, judgement: Judgement, rules: Sequence[Rule]) -> Account:
        """The account of what was judged. Raises Unrepeatable."""
        changed = not judgement.objection
        return account_for(
            self.run,
            self.before,
            found.prepared if changed else Prepared(self.source),
            found.imported,
            judgement.verdict.replacements if changed else (),
            rules=rules,
        )

    def repeatable(
        self, gate: Gate, found: SearchedModel, judgement: Judgement, rules: Sequence[Rule]
    ) -> tuple[Judgement, Account]:
        """The judgement less what cannot be repeated from a report, and the account of the rest.

        The search has made a mistake there that nothing else has noticed. Behind some of them, all
        that it has found is in doubt.
        """
        mistakes = 0
        while True:
            try:
                return judgement, self.account(found, judgement, rules)
            except Unrepeatable as error:
                mistakes += 1
                made = judgement.verdict.replacements
                number = next(n for n, item in enumerate(made) if item is error.culprit)
                rest = without(made, number) if mistakes < MOST_MISTAKES else ()
                warning = (
                    f"A rewrite by {made[number].rule_names} was dropped: what was done does not "
                    f"follow by the rules ({error}). Please report this."
                )
                if not rest and mistakes == MOST_MISTAKES:
                    warning += " All others were dropped with it."
                second = gate.judge(rest) if rest or gate.prepared else gate.nothing()
                judgement = second.behind(judgement, warnings=(warning,))

    def result(
        self,
        judgement: Judgement,
        account: Account,
        shapes: Sequence[dict[str, tuple[int, ...]]],
        told: Told,
    ) -> Result:
        """The result of the run, at these shapes of the inputs."""
        checked = judgement.verdict.checked
        changed = not judgement.objection
        model = checked.model if changed and checked is not None else self.source
        old, new = current_opset(self.source), current_opset(model)
        if old != new:
            told += Told((f"The opset was raised from {old} to {new}.",))
        if set(model.graph.opset_imports) - set(self.source.graph.opset_imports):
            told += Told((f"It has operators of {CONTRIB} now, and runs on ONNX Runtime alone.",))
        if changed and checked is not None and checked.check.late:
            sets = f"{checked.check.late} of the sets of random inputs"
            told += Told((f"The model takes long to run: there was no time for {sets}.",))
        worst = judgement.worst
        comparisons: Sequence[Comparison | None] = judgement.comparisons or [None] * len(shapes)
        before, after = judgement.amounts[worst] if judgement.amounts else (None, None)
        if not changed:  # what comes out is what went in
            comparisons = [each and replace(each, after=each.before) for each in comparisons]
            after = before
        settings = summary.settings(shapes, comparisons, ratios=changed)
        compared = comparisons[worst]
        report = Report(
            changed=changed,
            before=summary.model_stats(self.source),
            after=summary.model_stats(model),
            target=Deployment(
                self.run.target.provider,
                self.run.target.threads,
                processor_name(),
                self.run.worker.runtime_version if self.run.measured or checked else "",
            ),
            opset_before=old,
            opset_after=new,
            objective=self.run.objective,
            cost=self.run.cost,
            amount_before=before,
            amount_after=after,
            latency_before=summary.latency(compared, "before"),
            latency_after=summary.latency(compared, "after"),
            ratio=summary.ratio(compared) if changed else None,
            timed_threads=None if compared is None else compared.threads,
            largest_error=checked.check.max_rel if changed and checked is not None else None,
            rules=summary.rule_uses(
                judgement.verdict.replacements,
                judgement.gains,
                "region" if self.run.measured and self.run.objective not in EXACT else "estimate",
            )
            if changed
            else (),
            phases=self.run.clock.phases,
            shapes=shapes[worst],
            settings=settings,
            seed=self.run.tolerance.seed,
            warnings=tuple(map(printable, told.warnings)),  # they name parts of the model
            messages=tuple(map(printable, told.messages)),
            log=account.log,
            bases=account.bases,
            assumed=account.assumed,
            drawing=account.drawing,
            missed=account.missed,
            blocks=account.blocks,
        )
        return Result(model, report)
