"""Doing again what a report tells, and certifying that a model follows from another by it alone.

`replayed` trusts the report's rules and checks each place where one is applied. `certify` trusts
neither: it proves each rule anew, or rechecks its certificate, measures anew what rounding does to
it, and holds the model against what follows. What it rests on besides: how ONNX models are read and
written, and the provers.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from xflow.analysis.observers import Observed, around_body
from xflow.analysis.value_rewrites.basis import Basis, bases_of
from xflow.core.assumptions import Assumption
from xflow.core.errors import ModelError, NotCertified, ShapeError, SizeError
from xflow.core.expressions import shortened
from xflow.core.limits import bounded_memory, bounded_time
from xflow.core.progress import Progress
from xflow.onnx import files
from xflow.onnx.exporter import export_model
from xflow.onnx.freeze import frozen, overridable
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.inlining import Call, inlined
from xflow.onnx.isomorphism import IsWeight, difference
from xflow.onnx.subgraphs import BodyKey, optimize_bodies
from xflow.onnx.types import distrust
from xflow.onnx.writer import UnwritableError
from xflow.pipeline.log import Log, digest_of
from xflow.rewriting.numerics import Numerics
from xflow.rewriting.replay import Replay, Unfounded
from xflow.rewriting.rule import Rule

Prover = Callable[[Rule], str]
"""Says why a rule is not shown to be true; nothing where it is."""

Rounding = Callable[[Rule], Numerics]
"""Says what rounding does to a rule, and so in which directions and types it must not be used."""

LIMIT_S = 300.0
"""Seconds that the proof of one rule may take; the slowest of the database takes some."""
MEMORY = 4 * 2**30
"""Bytes that it may take."""


@dataclass(frozen=True)
class Certified:
    """A model follows from another: by how many rules, rewrites and steps."""

    rules: int
    rewrites: int
    steps: int
    bases: Mapping[Basis, int] = field(default_factory=dict)
    """Rewrites, by what they rest on; one whose masks were raised behind its rules by two."""
    frozen: int = 0
    """Weights that were inputs, too, and are constants."""
    calls: int = 0
    """Calls of the model's functions that were inlined."""
    assumed: Mapping[Assumption, int] = field(default_factory=dict)
    """Rewrites, by the least that each takes for granted of the model's values."""


@dataclass(frozen=True)
class Replayed:
    """A model as a graph, what a log makes of it, and what that takes for granted."""

    imported: Imported
    model: ir.Model
    assumed: Counter[Assumption]
    """How many rewrites, those of graphs inside operators included, by the least that they need."""


def same_digest(path: Path, log: Log) -> bool:
    """Whether the file is the model that the log speaks of."""
    return digest_of(path) == log.digest


def replayed(
    model: ir.Model,
    log: Log,
    assumption: Assumption | None = None,
    *,
    around: Observed = Observed.NOWHERE,
) -> Replayed:
    """The model that the log speaks of as a graph, and what the log makes of it.

    `assumption` is what may be taken for granted of its values; by default what the run took. The
    model may be a graph inside an operator, `around` which its outputs are observed.

    Raises NotCertified with the first step that does not follow, and ModelError.
    """
    assumption = log.assumption if assumption is None else assumption
    prepared, assumed = _prepared(model, log, assumption, around)
    imported = import_model(prepared, inner=bool(around))
    again = Replay(
        log.directions,
        imported.constants,
        assumption=assumption,
        outside=around,
    )
    graph = imported.graph
    try:
        for items in log.rounds:
            graph, weakest = again.weakest(graph, items)
            assumed.update(weakest)
        made = export_model(imported, graph, log.target_opset, log.size_threshold, outside=around)
        return Replayed(imported, made, assumed)
    except Unfounded as error:
        raise NotCertified(error.why, error.where) from None
    except (UnwritableError, ShapeError) as error:
        raise NotCertified(str(error), "the last rewrite") from None


def _prepared(
    model: ir.Model, log: Log, assumption: Assumption, around: Observed
) -> tuple[ir.Model, Counter[Assumption]]:
    """The model with what the log says was done to it before any rewrite of its main graph.

    And what the rewrites of the graphs inside its operators take for granted.
    """
    assumed: Counter[Assumption] = Counter()
    distrust(model, log.distrusted)
    model = frozen(model) if log.frozen else model
    if log.inlined:
        model = _with_calls(model, log.inlined)
    if not log.bodies:
        return model, assumed
    around |= around_body(node.op_type for node in model.graph.all_nodes())

    def again(place: BodyKey, body: ir.Model, _: float) -> tuple[ir.Model, Sequence[str]] | None:
        inner = log.bodies.get(place)
        if inner is None:
            return None
        try:
            made = replayed(body, inner, assumption, around=around)
        except (NotCertified, ModelError) as error:
            raise NotCertified(str(error), f"in the {place[1]} of operator {place[0]}") from None
        assumed.update(made.assumed)
        return made.model, ()

    found = optimize_bodies(model, again)
    places = () if found is None else found.places
    for number, attribute in log.bodies.keys() - set(places):
        raise NotCertified("there is no such graph to rewrite", f"the {attribute} of {number}")
    assert found is not None
    return found.model, assumed


def _with_calls(model: ir.Model, calls: frozenset[Call]) -> ir.Model:
    """The model with these calls inlined. Raises NotCertified."""
    try:
        found = inlined(model, calls)
    except Exception as error:  # calls that go round in circles, and the like
        reason = " ".join(str(error).split())[:200]
        raise NotCertified(f"they cannot be inlined ({reason})", "the calls") from None
    for call in sorted(calls - found.calls):
        place = " in ".join(f"operator {number}" for number in reversed(call))
        raise NotCertified("there is no call that can be inlined", place)
    return found.model


def certify(
    before: Path,
    after: Path,
    log: Log,
    prover: Prover,
    progress: Progress = lambda phase, details: None,
    *,
    rounding: Rounding | None = None,
    assumption: Assumption | None = None,
) -> Certified:
    """Confirm that the model in `after` follows from that in `before` by the steps of a log.

    What the log says of rounding is not believed: `rounding` says it, by default `measure_again`.
    `assumption` is what may be taken for granted; by default what the run took.

    Raises NotCertified with the first step that does not follow, and ModelError.
    """
    source, written = files.load_model(before), files.load_model(after)
    if not same_digest(before, log):
        raise NotCertified("this is not the model that the report speaks of", str(before))
    logs = list(log.all())
    rules = list({str(rule): rule for each in logs for rule in each.rules}.values())
    for number, rule in enumerate(rules, 1):
        progress("prove", {"rule": number, "of": len(rules)})
        reason = prover(rule)
        if reason:
            raise NotCertified(f"not shown to be true: {reason}", f"rule {rule.name}")
    progress("replay", {})
    checked = _with_rounding(log, rounding or measure_again)
    again = replayed(source, checked, assumption)
    progress("compare", {})
    fault = difference(again.model, written, _weights(again.imported, source, log))
    if fault is not None:
        raise NotCertified(f"behind the last step, {fault}", str(after))
    items = [item for each in logs for some in each.rounds for item in some]
    steps = sum(len(item.steps or ()) for item in items)
    bases = Counter(
        basis for item in items for basis in bases_of(item.fact, by_rules=item.steps is not None)
    )
    weights_kept = len(overridable(source)) if log.frozen else 0
    calls = sum(len(each.inlined) for each in logs)
    return Certified(len(rules), len(items), steps, bases, weights_kept, calls, again.assumed)


def _with_rounding(log: Log, rounding: Rounding) -> Log:
    """The log with what `rounding` says of its rules in place of their own `numerics` lines."""
    rules = tuple(
        replace(rule, notes={**rule.notes, "numerics": str(rounding(rule))}) for rule in log.rules
    )
    bodies = {place: _with_rounding(inner, rounding) for place, inner in log.bodies.items()}
    return replace(log, rules=rules, bodies=bodies)


def _weights(imported: Imported, source: ir.Model, log: Log) -> IsWeight:
    """Which tensors are weights of the model, and were not computed.

    Those of graphs inside operators are copied on the way, and known by what they hold.
    """
    own = {
        id(value.const_value)
        for value in imported.model.graph.initializers.values()
        if value.const_value is not None
    }
    if not log.bodies:
        return lambda tensor: id(tensor) in own
    held = {
        _hash(value.const_value)
        for graph in source.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    }
    return lambda tensor: id(tensor) in own or _hash(tensor) in held


def _hash(tensor: ir.TensorProtocol) -> tuple[object, ...]:
    """What a tensor holds, as a key."""
    if tensor.dtype == ir.DataType.STRING:
        return tuple(tensor.numpy().reshape(-1).tolist())
    return tensor.dtype, tuple(tensor.shape), hashlib.sha256(tensor.tobytes()).digest()


def prove_again(rule: Rule) -> str:
    """Why the prover does not prove a rule; nothing if it does. A `Prover`.

    A rule of a report may be made to take for ever: it is then not shown to be true.
    """
    from xflow.verifier.database import verify_rule  # noqa: PLC0415 - the solver loads slowly

    with _bounded(rule):
        failure = verify_rule(replace(rule, notes={}))
    return "" if failure is None else failure.verdict_text


def measure_again(rule: Rule) -> Numerics:
    """What rounding is measured to do to a rule. A `Rounding`."""
    from xflow.verifier.rounding.measure import measure  # noqa: PLC0415 - see above

    with _bounded(rule):
        return measure(rule)


@contextlib.contextmanager
def _bounded(rule: Rule) -> Iterator[None]:
    """Raise NotCertified where a rule takes too long or too much memory.

    Nothing is asked of the solver afterwards, which was interrupted in the middle of a question.
    """
    try:
        with bounded_time(LIMIT_S), bounded_memory(MEMORY):
            yield
    except TimeoutError as error:
        raise NotCertified(f"not shown to be true: {error}", f"rule {rule.name}") from None
    except (MemoryError, RecursionError, SizeError) as error:
        reason = f"it is too large ({shortened(str(error)) or type(error).__name__})"
        raise NotCertified(f"not shown to be true: {reason}", f"rule {rule.name}") from None


class Rechecked:
    """A `Prover` that believes the certificates of a folder of rules, once it has checked them."""

    def __init__(self, folder: Path) -> None:
        from xflow.rewriting.store import load_rules  # noqa: PLC0415
        from xflow.verifier.recheck.solver import require_solver  # noqa: PLC0415

        require_solver()
        self.folder = folder
        self.rules = {rule.statement: rule for rule in load_rules(folder)}
        """By what they say: a report may be of a time when they had other names."""

    def __call__(self, rule: Rule) -> str:
        """Why the certificate of a rule does not show it; nothing if it does."""
        from xflow.verifier.recheck import database  # noqa: PLC0415
        from xflow.verifier.recheck.verdicts import Confirmed  # noqa: PLC0415

        known = self.rules.get(rule.statement)
        if known is None:
            return f"there is no certificate for it in {self.folder}"
        verdict: Any = database.recheck_file(known, self.folder)
        return "" if isinstance(verdict, Confirmed) else str(verdict)

    def rounding(self, rule: Rule) -> Numerics:
        """What the folder says of rounding; measured where it says nothing. A `Rounding`."""
        return self.rules[rule.statement].numerics or measure_again(rule)
