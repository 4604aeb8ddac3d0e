"""Doing again what a report tells, and certifying that a model follows from another by it alone.

`replayed` trusts the report's rules and checks each place where one is applied. `certify` trusts
neither: it proves each rule anew, or rechecks its certificate, and holds the model against what
follows. What it rests on besides: how ONNX models are read and written, and the provers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from xflow import files
from xflow.errors import NotCertified, ShapeError
from xflow.freeze import frozen, overridable
from xflow.isomorphism import difference
from xflow.log import Log, digest_of
from xflow.masks import RAISED
from xflow.onnx_export import export_model
from xflow.onnx_import import Imported, import_model
from xflow.onnx_writer import UnwritableError
from xflow.replay import Unfounded, replay
from xflow.rule import Rule

Prover = Callable[[Rule], str]
"""Says why a rule is not shown to be true; nothing where it is."""

Progress = Callable[[str, Mapping[str, object]], None]


@dataclass(frozen=True)
class Certified:
    """A model follows from another: by how many rules, rewrites and steps."""

    rules: int
    rewrites: int
    steps: int
    facts: int = 0
    """Rewrites by facts about the model's values, each found anew."""
    frozen: int = 0
    """Weights that were inputs, too, and are constants."""
    masks: int = 0
    """Rewrites behind which a mask was raised by one unit in the last place, see `xflow.masks`."""


def same_digest(path: Path, log: Log) -> bool:
    """Whether the file is the model that the log speaks of."""
    return digest_of(path) == log.digest


def replayed(model: ir.Model, log: Log) -> tuple[Imported, ir.Model]:
    """The model that the log speaks of as a graph, and what the log makes of it.

    Raises NotCertified with the first step that does not follow, and ModelError.
    """
    imported = import_model(frozen(model) if log.frozen else model)
    try:
        graph = replay(imported.graph, log.rounds, log.directions, imported.constants)
        return imported, export_model(imported, graph, log.target_opset, log.size_threshold)
    except Unfounded as error:
        raise NotCertified(error.why, error.where) from None
    except (UnwritableError, ShapeError) as error:
        raise NotCertified(str(error), "the last rewrite") from None


def certify(
    before: Path,
    after: Path,
    log: Log,
    prover: Prover,
    progress: Progress = lambda phase, details: None,
) -> Certified:
    """Confirm that the model in `after` follows from that in `before` by the steps of a log.

    Raises NotCertified with the first step that does not follow, and ModelError.
    """
    source, written = files.load_model(before), files.load_model(after)
    if not same_digest(before, log):
        raise NotCertified("this is not the model that the report speaks of", str(before))
    for number, rule in enumerate(log.rules, 1):
        progress("prove", {"rule": number, "of": len(log.rules)})
        reason = prover(rule)
        if reason:
            raise NotCertified(f"not shown to be true: {reason}", f"rule {rule.name}")
    progress("replay", {})
    imported, expected = replayed(source, log)
    progress("compare", {})
    weights = {
        id(value.const_value)
        for value in imported.model.graph.initializers.values()
        if value.const_value is not None
    }
    fault = difference(expected, written, lambda tensor: id(tensor) in weights)
    if fault is not None:
        raise NotCertified(f"behind the last step, {fault}", str(after))
    items = [item for each in log.rounds for item in each]
    steps = sum(len(item.steps or ()) for item in items)
    facts = sum(bool(item.fact) and item.steps is None for item in items)
    masks = sum(item.fact == RAISED for item in items)
    weights_kept = len(overridable(source)) if log.frozen else 0
    return Certified(len(log.rules), len(items), steps, facts, weights_kept, masks)


def prove_again(rule: Rule) -> str:
    """Why the prover does not prove a rule; nothing if it does. A `Prover`."""
    from xflow.verifier.database import verify_rule  # noqa: PLC0415 - the solver loads slowly

    failure = verify_rule(replace(rule, notes={}))
    return "" if failure is None else failure.verdict_text


class Rechecked:
    """A `Prover` that believes the certificates of a folder of rules, once it has checked them."""

    def __init__(self, folder: Path) -> None:
        from xflow.rule_files import load_rules  # noqa: PLC0415
        from xflow.verifier.recheck.solver import require_solver  # noqa: PLC0415

        require_solver()
        self.folder = folder
        self.rules = {rule.name: rule for rule in load_rules(folder)}

    def __call__(self, rule: Rule) -> str:
        """Why the certificate of a rule does not show it; nothing if it does."""
        from xflow.verifier.recheck import database  # noqa: PLC0415
        from xflow.verifier.recheck.verdicts import Confirmed  # noqa: PLC0415

        known = self.rules.get(rule.name)
        if known is None or known.statement != rule.statement:
            return f"there is no certificate for it in {self.folder}"
        verdict: Any = database.recheck_file(known, self.folder)
        return "" if isinstance(verdict, Confirmed) else str(verdict)
