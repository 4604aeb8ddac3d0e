"""Equivalence check of a rewritten model: the same interface, and the same outputs on inputs.

Both models run in ONNX Runtime exactly as they are served, with all optimizations on; but of the
weights of a large model the runtime makes no second set, rearranged for speed.  They run in a
separate measuring process, so that a model that crashes the runtime is a failed check and no crash
of this process.  Where they differ, the input model in float64 decides whether that is rounding.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from xflow.core.deadline import Deadline
from xflow.core.errors import UsageError
from xflow.cost import machine
from xflow.cost.measure import LIMIT_S, Target, check_provider
from xflow.cost.worker import Failed, ModelSource, Worker, is_late
from xflow.feeds.edge_cases import InputSet
from xflow.validation.difference import (
    AMPLIFIED,
    AS_NEAR,
    ROUNDED,
    SIGMOID,
    Allowance,
    Difference,
    compare,
    error_of,
    is_as_finite,
    is_by_rounding,
    is_same,
    is_served_otherwise,
)
from xflow.validation.reference import CHEAP_BYTES, Outputs, Plan, Reference

SUSPECTS = 3
"""Sets of inputs on which nothing is wrong but that a sign or an order turned, and that are
nevertheless compared with more exact results."""
AS_SERVED = "as the runtime serves the models"
NOT_OTHERWISE = (
    "; without its optimizations they are the same to the bit: it computes other operators on codes"
)
"""What is told of a difference that only the runtime's optimizations make."""
NOISE_SETS = 2
"""Sets of ordinary inputs on which a small model's own error is always computed."""


@dataclass(frozen=True)
class CheckResult:
    """Whether two models agree, and by how much they differ.

    `max_abs` is the largest |before - after| on ordinary inputs; `max_rel` the largest
    |before - after| divided by max(|before|, row), with the typical magnitude of the element's row,
    and at least atol / rtol times the output's largest element if that is less than 1: an element
    that happens to be near zero is judged by its neighbours, and a few huge elements (masked scores
    of -1e9) excuse nothing.  `noise` is how far
    the input model is from the more exact result named by `yardstick`, measured likewise; None
    where that was not computed.  `culprit` is the model that could not be run, if any.
    `unchecked` names the outputs of which no element was ever finite: these were not compared.

    `samples` counts the sets of random inputs, `given` those of real ones and `edge_cases` the
    others on which the models were compared; `left_out` sets were made besides, on which the input
    model fails or which there was nothing to judge by, and on `silent` ones it gave no finite
    number.  How many there are depends on the time; for `late` ones of the random inputs there was
    none, since the input model takes long to run.
    """

    ok: bool
    reason: str = ""
    max_abs: float = 0.0
    max_rel: float = 0.0
    samples: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    culprit: Literal["", "before", "after"] = ""
    unchecked: frozenset[str] = frozenset()
    noise: float | None = None
    yardstick: str = ""
    given: int = 0
    edge_cases: int = field(default=0, compare=False)
    left_out: int = field(default=0, compare=False)
    silent: int = field(default=0, compare=False)
    late: int = field(default=0, compare=False)


def check_equivalent(
    before: ModelSource,
    after: ModelSource,
    *,
    samples: int = 3,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    deadline: Deadline | None = None,
    target: Target | None = None,
    worker: Worker | None = None,
    inputs: Sequence[InputSet] = (),
    refines: bool = False,
    planted: bool = True,
    empty: bool = True,
    edge_cases: bool = True,
    noise: bool = False,
    reference: Reference | None = None,
) -> CheckResult:
    """Run both models on many sets of inputs and compare all outputs.

    There are `samples` (at least 1) sets of random inputs, the real ones in `inputs`, and unless
    `edge_cases` is switched off as many of the inputs in `xflow.feeds.edge_cases` as a part of the
    time allows, with NaN and infinities among them if `planted`.  If dimensions are dynamic and not
    given by `shapes`, both models also run at other sizes, `empty` ones among them, provided that
    the input model can.  What makes the input model fail is left out, but for real inputs.

    Element types and shapes must be equal; so must integers, booleans and strings.  What is finite
    must be finite in both, and what is NaN or infinite must stay that; with `refines`, and on
    inputs that are not finite, it may be anything.  For real numbers see
    `xflow.validation.difference`: the tolerances are relative to the element, its row and small
    outputs, the signs and the order of the largest elements may turn by rounding only, and what is
    as near to the exact result as the input model is is right.

    The deadline is for everything.  With `noise`, it is told in any case how exact the input
    model is, and else where that costs little.  A `reference` for the same model and arguments is
    filled by the first check and saves later ones half of the work.  Raises `UsageError` for wrong
    shapes.
    """
    if samples < 1:
        raise UsageError(f"the number of samples must be at least 1, not {samples}")
    deadline = deadline or Deadline.after(LIMIT_S)
    with contextlib.ExitStack() as stack:
        target = target or Target()
        if worker is None:
            limit = machine.free_memory() if target.provider == "cpu" else None
            worker = stack.enter_context(Worker(limit))
        check_provider(target, worker)
        reference = reference or Reference(before)
        reference.worker = worker
        if not reference.outputs:
            reference.target = target
            reference.plan = Plan(samples, seed, inputs, edge_cases, planted, empty, after)
            failed = reference.run(shapes, deadline)
            if failed is not None:
                what = "is too slow to be compared with" if is_late(failed) else "does not run"
                reason = f"the input model {what}: {failed.reason}"
                return CheckResult(False, reason, shapes=reference.shapes, culprit="before")
        allowance = Allowance(rtol, atol, refines)
        return _Check(reference, after, allowance, deadline, noise=noise).result()


@dataclass(frozen=True)
class _Found(Difference):
    """The differences of all outputs on one set of inputs."""

    named: bool = True
    """Whether the reason is a difference in an output's values."""


@dataclass(frozen=True)
class _Check:
    """The comparison of a model with the results of another one."""

    reference: Reference
    after: ModelSource
    allowance: Allowance
    deadline: Deadline
    noise: bool = False
    """Whether to compute the input model's own error in any case."""

    def result(self) -> CheckResult:
        """Run the model on the sets of inputs that the reference has, and compare."""
        reference = self.reference
        extra_s = 1.5 * reference.extra_s + 0.5
        answers = reference.runner(self.after).each(
            reference.sets, reference.needed, extra_s, self.deadline
        )
        if isinstance(answers, Failed):
            what = "is too slow to be compared" if is_late(answers) else "does not run"
            return self.failure(f"the rewritten model {what}: {answers.reason}", 0, "after")
        for number, each in sorted(answers.items()):
            if isinstance(each, Failed):
                return self.failure(
                    f"the rewritten model does not run: {each.reason}", number, "after"
                )
        outputs = {n: each for n, each in sorted(answers.items()) if not isinstance(each, Failed)}
        found, noisy = self.compared(outputs)
        bad = [number for number, each in found.items() if each.reason]
        if not bad:
            lost = self.lost_as_served()
            if lost:
                return self.failure(lost, 0, "")
            return self.agreement(found, noisy, len(outputs) - len(found))
        own = self.disagreement_with_itself(bad[0])
        if own:
            reason = f"the input model does not agree with itself from run to run: {own}"
            return CheckResult(False, reason, shapes=reference.shapes, culprit="before")
        return self.failure(found[bad[0]].reason, bad[0], "", found[bad[0]])

    def lost_as_served(self) -> str:
        """Why the model is worse than the input model, once factors are rounded as they are served.

        Both have been compared without that rounding, which grows where large terms cancel out.
        Nothing where none is rounded, or where it is as far from the results without as the input
        model is, on ordinary inputs.
        """
        reference = self.reference
        if not reference.target.rounds_factors:
            return ""
        ordinary = [n for n in range(reference.needed) if reference.sets[n].ordinary]
        before = reference.served(reference.model, ordinary, self.deadline)
        after = reference.served(self.after, ordinary, self.deadline)
        for number in ordinary:
            if number not in before:
                continue  # nor does the input model run
            if number not in after:
                return (
                    "the rewritten model does not run as it is served, or there was no time for it"
                )
            for name, exact in reference.outputs[number].items():
                own, other = before[number][name], after[number][name]
                was, now = error_of(own, exact), error_of(other, exact)
                if now > AS_NEAR * was + ROUNDED or not is_as_finite(own, other):
                    return (
                        f"as it is served, output {name!r} is off by {now:.2g}, and that of the "
                        f"input model by {was:.2g}"
                    )
        return ""

    def compared(self, outputs: Mapping[int, Outputs]) -> tuple[dict[int, _Found], float | None]:
        """How the outputs differ on each set, and how exact the input model itself is.

        The more exact results are computed where they may matter, and for small models. Where there
        is none for extreme inputs that differ, nothing is known of these.
        """
        reference = self.reference
        found = {number: self.compare(number, each) for number, each in outputs.items()}
        differ = [number for number, each in found.items() if each.doubtful and each.reason]
        suspect = [number for number, each in found.items() if each.doubtful and not each.reason]
        ordinary = [n for n in outputs if reference.sets[n].ordinary or n < reference.needed]
        asked = self.noise or reference.size <= CHEAP_BYTES
        wanted = [*differ, *suspect[:SUSPECTS], *(ordinary[:NOISE_SETS] if asked else ())]
        if any(each.reason and not each.doubtful for each in found.values()):
            return found, None  # nothing changes that
        exact = reference.exact(list(dict.fromkeys(wanted)), self.deadline)
        for number, values in exact.items():
            found[number] = self.compare(number, outputs[number], values)
        for number in self._rounded(found, outputs, exact):
            found[number] = replace(found[number], reason="", tolerated=False)
        for number, excused in self._served_otherwise(found, outputs):
            told = "" if excused else f"{AS_SERVED}, {found[number].reason}{NOT_OTHERWISE}"
            found[number] = replace(found[number], reason=told, tolerated=False)
        for number in differ:
            if number not in exact and reference.sets[number].extreme:
                del found[number]
        errors = (found[number].own for number in exact if number in ordinary)
        own = [each for each in errors if each is not None]
        return found, max(own) if own else None

    def _rounded(
        self,
        found: Mapping[int, _Found],
        outputs: Mapping[int, Outputs],
        exact: Mapping[int, Outputs],
    ) -> Sequence[int]:
        """Sets on which all is within the tolerances, and both models are the same in float64.

        Differences there that rounding does not explain come from kernels of the rewritten model:
        the runtime's Sigmoid is 3e-8 from the small values of its tails.
        """
        numbers = [number for number in exact if found[number].tolerated]
        if not numbers or not self.reference.precise:
            return []
        other = replace(
            self.reference,
            model=self.after,
            yardstick="",
            precise=False,
            no_exact="",
            no_double=False,
            _exact={},
            _exact_models={},
        )
        results = other.exact(numbers, self.deadline)
        if not other.precise:
            return []
        return [
            number
            for number, theirs in results.items()
            if theirs.keys() == exact[number].keys()
            and all(
                is_by_rounding(
                    self.reference.outputs[number][name],
                    outputs[number][name],
                    exact[number][name],
                    theirs[name],
                )
                for name in theirs
            )
        ]

    def _served_otherwise(
        self, found: Mapping[int, _Found], outputs: Mapping[int, Outputs]
    ) -> Sequence[tuple[int, bool]]:
        """Sets on which both models are the same to the bit without the runtime's optimizations.

        What differs with them is what it fuses around codes; and whether it may be so, see
        `is_served_otherwise`. The error of an output of the input model is the largest on all those
        sets, and on an ordinary one.
        """
        reference = self.reference
        differ = [number for number, each in found.items() if each.reason and each.named]
        if not differ or not reference.has_codes:
            return []
        numbers = list(dict.fromkeys((*differ, *({0} & outputs.keys()))))
        one = reference.unfused(reference.model, numbers, self.deadline)
        other = reference.unfused(self.after, differ, self.deadline)
        most: dict[str, float] = {}
        for number, results in one.items():
            for name, value in results.items():
                error = error_of(reference.outputs[number][name], value)
                most[name] = max(most.get(name, 0.0), error)
        alike = [n for n in differ if n in one and n in other and _are_same(one[n], other[n])]
        return [
            (
                number,
                all(
                    is_served_otherwise(value, outputs[number][name], *both, most.get(name, 0.0))
                    for name, value in reference.outputs[number].items()
                    for both in ((one[number].get(name), other[number].get(name)),)
                ),
            )
            for number in alike
        ]

    def compare(self, number: int, outputs: Outputs, exact: Outputs | None = None) -> _Found:
        """Compare all outputs for one set of inputs; the first that disagrees gives the reason."""
        old = self.reference.outputs[number]
        if old.keys() != outputs.keys():
            missing = ", ".join(sorted(old.keys() ^ outputs.keys()))
            return _Found(reason=f"only one of the models has the outputs {missing}", named=False)
        used = self.reference.sets[number]
        # Where outputs are not finite, sums and products of real numbers are no evidence.
        allowance = replace(
            self.allowance,
            refines=self.allowance.refines or used.planted,
            precise=self.reference.precise,
            near=AMPLIFIED if used.extreme else AS_NEAR,
        )
        parts = {
            name: compare(
                value,
                outputs[name],
                replace(allowance, kernel=SIGMOID if name in self.reference.sigmoids else 0.0),
                None if exact is None else exact.get(name),
            )
            for name, value in old.items()
        }
        own = [each.own for each in parts.values() if each.own is not None]
        bad = [(name, each) for name, each in parts.items() if each.reason]
        # One that was decided without a more exact value is certain.
        bad.sort(key=lambda pair: pair[1].doubtful)
        return _Found(
            max((each.max_abs for each in parts.values()), default=0.0),
            max((each.max_rel for each in parts.values()), default=0.0),
            f"output {bad[0][0]!r} {bad[0][1].reason}" if bad else "",
            max(own) if own else None,
            bad[0][1].doubtful if bad else any(each.doubtful for each in parts.values()),
            bool(bad) and all(each.refined for _, each in bad),
            bool(bad) and all(each.tolerated for _, each in bad),
        )

    def agreement(
        self, found: Mapping[int, _Found], noise: float | None, unjudged: int
    ) -> CheckResult:
        """The result where nothing disagrees; `unjudged` counts sets that could not be judged."""
        reference = self.reference
        sets, needed = reference.sets, reference.needed
        ordinary = [found[number] for number in found if number < needed]
        return CheckResult(
            True,
            max_abs=max((each.max_abs for each in ordinary), default=0.0),
            max_rel=max((each.max_rel for each in ordinary), default=0.0),
            samples=sum(sets[number].ordinary for number in found),
            shapes=reference.shapes,
            unchecked=_never_finite([reference.outputs[number] for number in found]),
            noise=noise,
            yardstick="" if noise is None else reference.yardstick,
            given=sum(number < needed and not sets[number].ordinary for number in found),
            edge_cases=sum(number >= needed for number in found),
            left_out=reference.left_out + unjudged,
            silent=sum(_is_silent(reference.outputs[number]) for number in found),
            late=reference.late,
        )

    def failure(
        self,
        reason: str,
        number: int,
        culprit: Literal["", "after"],
        found: _Found | None = None,
    ) -> CheckResult:
        """The result where a set of inputs shows a difference."""
        used = self.reference.sets[number]
        where = used.what if used.ordinary and not used.resized else f"on {used.what}"
        if used.resized:
            reason = f"at {used.what}, {reason}"
        elif culprit:
            reason = reason if used.ordinary else f"{where}, {reason}"
        elif found is not None and found.named:
            reason = f"{reason} ({where})"
        if found is not None and found.refined:
            reason += "; that is no difference with --promised (refines=True)"
        size = found or _Found()
        return CheckResult(
            False, reason, size.max_abs, size.max_rel, shapes=used.shapes, culprit=culprit
        )

    def disagreement_with_itself(self, number: int) -> str:
        """How the input model differs from its earlier results, as a random one; or nothing."""
        reference = self.reference
        if not reference.may_be_random:
            return ""
        reference.worker.close()  # random operators repeat themselves within one process
        numbers = [*range(reference.needed), *([number] if number >= reference.needed else [])]
        sets = [reference.sets[each] for each in numbers]
        again = reference.runner(reference.model).each(sets, len(sets), 0.0, self.deadline)
        if isinstance(again, Failed):
            return ""
        for place, each in sorted(again.items()):
            if not isinstance(each, Failed):
                found = self.compare(numbers[place], each)
                if found.reason:
                    return found.reason
        return ""


def _are_same(one: Outputs, other: Outputs) -> bool:
    """Whether two models give the same outputs to the bit."""
    return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)


def _is_silent(outputs: Outputs) -> bool:
    """Whether there are real numbers among the outputs, and none is finite."""
    real = [array for array in outputs.values() if _is_real(array)]
    return bool(real) and not any(np.isfinite(array).any() for array in real)


def _is_real(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "fcV" and array.size > 0


def _never_finite(samples: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the real outputs that hold elements, none of them finite."""
    blank = set()
    for name in samples[0] if samples else ():
        arrays = [np.asarray(each[name]) for each in samples if isinstance(each[name], np.ndarray)]
        real = [array for array in arrays if array.dtype.kind in "fcV" and array.size]
        if real and not any(np.isfinite(array).any() for array in real):
            blank.add(name)
    return frozenset(blank)
