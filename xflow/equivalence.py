"""Checks that a rewritten model still is the model: same outputs, same interface.

Both models run in ONNX Runtime exactly as they are served, all optimizations on, because that is
what the user has today and gets tomorrow; but of the weights of a large model the runtime makes no
second set, rearranged for speed.  They run in a measuring process of their own, so that a model
that crashes the runtime is a failed check and no crash of ours.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto

from xflow.cost.measure import Target, check_provider
from xflow.cost.worker import Failed, ModelSource, Worker, from_wire, model_to_wire, to_wire
from xflow.difference import difference
from xflow.errors import UsageError
from xflow.files import data_files
from xflow.inputs import default_shapes, load_model, random_inputs, required_inputs

LARGE = 2**30
"""Bytes of weights from which a check holds them in memory once."""


@dataclass(frozen=True)
class CheckResult:
    """Whether two models agree, and by how much they differ.

    `max_abs` is the largest |before - after|; `max_rel` the largest |before - after| divided by
    max(|before|, scale), where `scale` is the lower quartile of the output's nonzero magnitudes:
    an element that happens to be near zero is judged by its neighbours, and a few huge elements
    (masked scores of -1e9) excuse nothing.  `culprit` is the model that could not be run, if any.
    `unchecked` names the outputs of which no element was ever finite: nothing is known of those.
    """

    ok: bool
    reason: str = ""
    max_abs: float = 0.0
    max_rel: float = 0.0
    samples: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    culprit: Literal["", "before", "after"] = ""
    unchecked: frozenset[str] = frozenset()


def check_equivalent(
    before: ModelSource,
    after: ModelSource,
    *,
    samples: int = 3,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    limit_s: float = 120.0,
    target: Target | None = None,
    worker: Worker | None = None,
) -> CheckResult:
    """Run both models on `samples` (at least 1) sets of random inputs and compare all outputs.

    Element types and shapes must be equal; so must NaNs, infinities, integers, booleans and
    strings.  Real numbers agree if |before - after| <= max(atol, rtol * max(|before|, scale)),
    with `rtol` at least 8 roundings of the output's type.  If dimensions are dynamic and not
    given by `shapes`, both models also run once at other sizes, provided that the input model
    can.  The time limit bounds everything.  Raises `UsageError` for wrong shapes.
    """
    if samples < 1:
        raise UsageError(f"the number of samples must be at least 1, not {samples}")
    deadline = time.monotonic() + limit_s
    with contextlib.ExitStack() as stack:
        worker = worker or stack.enter_context(Worker())
        target = target or Target()
        check_provider(target, worker)
        model = load_model(before)
        options = target.session_options()
        large = max(map(_weight_bytes, (before, after))) > LARGE
        if large:
            options["entries"]["session.disable_prepacking"] = "1"
        check = _Check(before, after, rtol, atol, options, worker, deadline, large)
        seeds = np.random.SeedSequence(seed).generate_state(samples + 1).tolist()
        chosen = default_shapes(model, shapes)
        # Every other sample is positive, for models that take roots and logarithms.
        feeds = [
            random_inputs(model, each, chosen, positive=number % 2 == 1)
            for number, each in enumerate(seeds[:samples])
        ]
        result = replace(check.on(feeds), shapes=chosen)
        other = default_shapes(model, shapes, variant=1)
        if not result.ok or other == chosen:
            return result
        extra = check.on([random_inputs(model, seeds[-1], other)])
        if extra.culprit == "before":  # many models declare sizes dynamic that are not
            return result
        if not extra.ok:
            return replace(extra, reason=f"at other sizes, {extra.reason}", shapes=other)
        return replace(
            result,
            max_abs=max(result.max_abs, extra.max_abs),
            max_rel=max(result.max_rel, extra.max_rel),
            samples=result.samples + extra.samples,
        )


@dataclass(frozen=True)
class _Check:
    """Two models, and all that is needed to run and to compare them."""

    before: ModelSource
    after: ModelSource
    rtol: float
    atol: float
    options: dict[str, Any]
    """The description of sessions, see `Target.session_options`."""
    worker: Worker
    deadline: float
    large: bool
    """Whether the weights are held in memory once at most."""

    def on(self, feeds: Sequence[Mapping[str, np.ndarray]]) -> CheckResult:
        """Compare the models on some sets of inputs."""
        reference = self._outputs(self.before, feeds)
        if isinstance(reference, Failed):
            reason = f"the input model does not run: {reference.reason}"
            return CheckResult(False, reason, culprit="before")
        candidate = self._outputs(self.after, feeds)
        if isinstance(candidate, Failed):
            reason = f"the rewritten model does not run: {candidate.reason}"
            return CheckResult(False, reason, culprit="after")
        result = self._compare(reference, candidate)
        if result.ok:
            return result
        self.worker.close()  # random operators repeat themselves within one process
        again = self._outputs(self.before, feeds)
        own = CheckResult(True) if isinstance(again, Failed) else self._compare(reference, again)
        if own.ok:
            return result
        reason = f"the input model does not agree with itself from run to run: {own.reason}"
        return replace(own, reason=reason, culprit="before")

    def _outputs(
        self, model: ModelSource, feeds: Sequence[Mapping[str, np.ndarray]]
    ) -> list[dict[str, Any]] | Failed:
        """Return every output by name, for each set of inputs."""
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            return Failed("ran out of time")
        request = {
            "kind": "run",
            "model": model_to_wire(model),
            "options": self.options,
            "mapped": self.mapped(model),
            "feeds": [{name: to_wire(value) for name, value in feed.items()} for feed in feeds],
            "limit_s": remaining,
        }
        answer = self.worker.ask(request, remaining)
        if isinstance(answer, Failed):
            return answer
        return [{name: from_wire(value) for name, value in each.items()} for each in answer]

    def mapped(self, model: ModelSource) -> list[str]:
        """Return the files of a large model's weights, whose pages need not stay in memory."""
        if isinstance(model, bytes) or not self.large:
            return []
        return [str(file.resolve()) for file in data_files(model)]

    def _compare(
        self, reference: Sequence[Mapping[str, Any]], candidate: Sequence[Mapping[str, Any]]
    ) -> CheckResult:
        """Compare all outputs for all samples; the first that disagrees gives the reason."""
        reason, max_abs, max_rel = "", 0.0, 0.0
        for number, (old, new) in enumerate(zip(reference, candidate, strict=True), 1):
            if old.keys() != new.keys():
                missing = ", ".join(sorted(old.keys() ^ new.keys()))
                return CheckResult(False, f"only one of the models has the outputs {missing}")
            for name, value in old.items():
                found = difference(value, new[name], self.rtol, self.atol)
                max_abs, max_rel = max(max_abs, found.max_abs), max(max_rel, found.max_rel)
                if found.reason and not reason:
                    reason = f"output {name!r} {found.reason} (sample {number})"
        return CheckResult(
            not reason, reason, max_abs, max_rel, len(reference), unchecked=_never_finite(reference)
        )


def _weight_bytes(model: ModelSource) -> int:
    """The bytes of a model and of the files beside it."""
    if isinstance(model, bytes):
        return len(model)
    size = model.stat().st_size
    if size <= LARGE:  # of larger ones, that is enough
        with contextlib.suppress(OSError):
            size += sum(file.stat().st_size for file in data_files(model))
    return size


def _never_finite(samples: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the real outputs that hold elements, none of them finite."""
    blank = set()
    for name in samples[0] if samples else ():
        arrays = [np.asarray(each[name]) for each in samples if isinstance(each[name], np.ndarray)]
        real = [array for array in arrays if array.dtype.kind in "fcV" and array.size]
        if real and not any(np.isfinite(array).any() for array in real):
            blank.add(name)
    return frozenset(blank)


def check_interface(before: ModelProto, after: ModelProto, *, strict: bool = True) -> str | None:
    """Say what a rewrite changed that callers of the model can see, or None.

    Names, order, types and dimension names of inputs and outputs, inputs that have a default, and
    metadata must be equal; opset versions may only have been raised. If not `strict`, only the
    inputs that must be fed count, and the outputs.
    """
    parts = [
        ("input", required_inputs(before), required_inputs(after)),
        ("optional input", _optional_inputs(before), _optional_inputs(after)),
        ("output", list(before.graph.output), list(after.graph.output)),
    ]
    for what, old, new in parts if strict else (parts[0], parts[2]):
        names, found = [item.name for item in old], [item.name for item in new]
        if names != found:
            return f"the {what}s were {_names(names)} and are now {_names(found)}"
        for mine, other in zip(old, new, strict=True):
            if mine.type != other.type:
                return f"{what} {mine.name!r} was {_type(mine)} and is now {_type(other)}"
    if not strict:
        return None
    metadata = [
        {prop.key: prop.value for prop in model.metadata_props} for model in (before, after)
    ]
    for key in sorted(metadata[0].keys() | metadata[1].keys()):
        if metadata[0].get(key) != metadata[1].get(key):
            return f"the metadata {key!r} changed"
    versions = {_domain(opset.domain): opset.version for opset in after.opset_import}
    for opset in before.opset_import:
        domain = _domain(opset.domain)
        if versions.get(domain, opset.version) < opset.version:
            return f"the opset of {domain} was {opset.version} and is now {versions[domain]}"
    return None


def _optional_inputs(model: ModelProto) -> list[ValueInfoProto]:
    required = {item.name for item in required_inputs(model)}
    return [item for item in model.graph.input if item.name not in required]


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _domain(name: str) -> str:
    return name or "ai.onnx"


def _type(item: ValueInfoProto) -> str:
    """Show a type on one line, dimension names included."""
    tensor = item.type.tensor_type
    if item.type.WhichOneof("value") == "tensor_type" and tensor.HasField("shape"):
        sizes = (dim.dim_param or str(dim.dim_value or "?") for dim in tensor.shape.dim)
        name = TensorProto.DataType.Name(tensor.elem_type)
        return f"{name.lower()}[{', '.join(sizes)}]"
    return " ".join(str(item.type).split())
