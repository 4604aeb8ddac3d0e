"""Where a rule applies to a model, where it nearly does, and what is not as it says there."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xflow.analysis.ranges import Ranges
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.node import Node
from xflow.core.wording import counted
from xflow.onnx.freeze import frozen
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.inlining import has_calls, inlined
from xflow.pipeline.api import Model, chosen_rules, load_copy
from xflow.report.drawing import onnx_name
from xflow.rewriting.admission import Places
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.near_match import NearMatch, near_matches
from xflow.rewriting.rule import Rule

SHOWN = 5
"""How many nodes are named of those of which the same is to be said."""


@dataclass(frozen=True)
class RulePlace:
    """How far a direction of a rule matches at a node of the model."""

    node: str
    """The name of the node that stands at its root."""
    at: str
    """The name of the node at which something is not as the rule says; nothing for the whole."""
    near: NearMatch


@dataclass(frozen=True)
class DirectionPlaces:
    """How far one direction of a rule matches at each node with the operator of its root."""

    rule: Rule
    """The direction, from left to right."""
    unsearched: str
    """Why the search does not use it at all; nothing where it does."""
    places: Sequence[RulePlace]

    def lines(self) -> Iterator[str]:
        """What there is to say, the places where it applies first, then by how far it matches."""
        yield f"{self.rule.name}: {self.rule.lhs} => {self.rule.rhs}"
        if self.unsearched:
            yield f"  the search does not use it: {self.unsearched}"
        if not self.places:
            yield f"  no node has the operator at its root, {self.rule.root}"
        alike: dict[tuple[bool, int, str], list[RulePlace]] = defaultdict(list)
        for place in self.places:
            alike[place.near.applies, place.near.matched, place.near.reason].append(place)
        for (applies, matched, reason), those in sorted(alike.items(), reverse=True):
            where = ", ".join(
                [place.node for place in those[:SHOWN]] + ["..."] * (len(those) > SHOWN)
            )
            if applies:
                yield f"  applies at {counted(len(those), 'node')}: {where}"
                continue
            first = those[0]
            yield f"  {matched} of {counted(first.near.operators, 'operator')} at {where}:"
            yield f"    {f'at {first.at}, ' if first.at else ''}{reason}"


def rule_places(
    model: Model,
    name: str,
    *,
    rules: str | os.PathLike[str] | Sequence[Rule] | None = None,
    assume: str = DEFAULT.option,
) -> list[DirectionPlaces]:
    """How far the rule called `name` matches in a model, from left to right and in reverse.

    That is the model as it is, with weights that are inputs constant and functions inlined: other
    rewrites may make further places, or take some. `rules` is a folder or a list of rules (those
    that come with xflow), `assume` what may be taken for granted of values. Nothing is searched or
    timed. Raises ModelError and UnknownRuleError.
    """
    (rule,) = chosen_rules(rules, only=[name])
    with tempfile.TemporaryDirectory(prefix="xflow-") as folder:
        source = frozen(load_copy(model, Path(folder) / "model.onnx")[0])
        if has_calls(source):
            source = inlined(source).model
        imported = import_model(source)
        return list(_places(rule, imported, Assumption.named(assume)))


def _places(rule: Rule, imported: Imported, assumption: Assumption) -> Iterator[DirectionPlaces]:
    places = Places(Ranges(imported.constants, assumption))
    for direction in rule.directions():
        found = near_matches(direction, imported.graph, imported.constants, places)
        named = [
            RulePlace(
                _node_name(imported, near.node),
                _node_name(imported, near.at) if near.at else "",
                near,
            )
            for near in found
        ]
        yield DirectionPlaces(direction, _unsearched(rule, direction), named)


def _unsearched(rule: Rule, direction: Rule) -> str:
    """Why the search does not use a direction of a rule, whatever the model is."""
    if not rule.is_searched:
        return "what it leads to, other rules lead to as well"
    if direction.root is None:
        return "its left side is a mere input, which is everywhere"
    index = RuleIndex([direction])
    instances = [direction.instance(rank) for rank in direction.usable_ranks]
    roots = {(each.lhs[0].node.op, len(each.lhs[0].shape)) for each in instances}
    entries = (
        entry
        for op, rank in roots
        for found in (index.single, index.several)
        for entry in found(op, rank)  # type: ignore[arg-type]
    )
    if any(True for _ in entries):
        return ""
    return "it only adds operators, or leaves open what they are"


def _node_name(imported: Imported, node: Node) -> str:
    return onnx_name(imported, node) or "a node without a name"
