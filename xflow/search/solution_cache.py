"""A persistent cache of the solutions of regions, for later runs.

A model that is optimized again, or one with the same parts, gets the same forms without search and
without measuring.

An entry is only a proposal, since the file is not trusted. A form counts only if the trail that was
stored with it leads there from the region's own graph, each step checked by `replay` against the
rules and the constants of this run. Otherwise it is deleted and the region searched anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import xflow
from xflow.analysis.ranges import Ranges
from xflow.core.codec import to_plain
from xflow.core.fold import no_constants
from xflow.core.node import Value
from xflow.cost import Notebook
from xflow.rewriting.admission import Places
from xflow.rewriting.derivation import Application
from xflow.rewriting.replay import Unfounded, apply_step
from xflow.rewriting.rule import Rule
from xflow.search.constants import Constants
from xflow.search.region import Region

LONGEST = 1000
"""Most steps of a trail that are repeated; the longest known ones have some dozens."""


@dataclass(frozen=True)
class Solution:
    """Better outputs for a region's graph, the rules that led there, and the seconds gained."""

    outputs: tuple[Value, ...]
    rules: tuple[str, ...]
    gain: float
    trail: tuple[Application, ...] | None = None
    """How each rule was applied, see `derivation`; None where that is not known."""
    estimated: bool = False
    """Whether the estimate alone says what it gains."""


@dataclass(frozen=True)
class Remembered:
    """An entry of a region: a solution, or None where its own form is the best.

    `final` says that the solution itself was searched, too. `effort` is the multiple of the limits
    of its search: an entry of a smaller effort than a search is to spend is not used. What is not
    `lasting` is for one run: there was no time to measure it.
    """

    solution: Solution | None
    final: bool = True
    effort: int = 1
    lasting: bool = True


class Memory:
    """Solutions of regions, as found with `settings` and at most `budget` seconds for a model.

    Entries of searches with less time are not used: with more of it there may be better ones.
    `constants` are those that rules may depend on, `opset` the newest whose operators a form may
    have.
    """

    def __init__(
        self,
        notebook: Notebook | None,
        rules: Sequence[Rule],
        budget: float,
        *settings: object,
        constants: Constants | None = None,
        opset: int | None = None,
    ) -> None:
        self._notebook = notebook
        self._budget = budget
        self._rules = rules
        self._settings = settings
        self._constants = constants or Constants(no_constants)
        self._opset = opset
        self.refused = 0
        """The number of entries that were refused, since they do not follow from the rules."""

    def get(self, region: Region, effort: int) -> Remembered | None:
        """The entry of a region from a search with at least that effort; None without one."""
        if self._notebook is None:
            return None
        key = self._key(region)
        text = None if key is None else self._notebook.get(key)
        if key is None or text is None:
            return None
        try:
            return self._read(text, region, effort)
        except Exception:  # an entry of unknown origin may raise anything
            self.refused += 1
            self._notebook.drop(key)
            return None

    def _read(self, text: str, region: Region, effort: int) -> Remembered | None:
        """Decode an entry; None where its search was too small.

        Raises Unfounded, or any error for a text that `put` did not write.
        """
        known = json.loads(text)
        budget, spent, final = known["budget"], known["effort"], known.get("final", True)
        if not _is_number(budget) or type(spent) is not int or type(final) is not bool:
            raise TypeError("no note of a search")
        if budget < self._constants.policy.enough * self._budget or spent < effort:
            return None
        if known["form"] is None:
            return Remembered(None, effort=spent)
        trail = tuple(Application.from_json(each) for each in known["trail"])
        if not _is_number(known["gain"]) or not 0 < len(trail) <= LONGEST:
            raise ValueError("no gain, or no way to it")
        if known["rules"] != [step.rule for step in trail]:
            raise ValueError("other rules than those of the trail")
        outputs = self._repeated(region, trail)
        if to_plain(outputs) != known["form"]:
            raise Unfounded("the last step", "the trail leads to another form")
        if type(known["estimated"]) is not bool:
            raise TypeError("it is not said what tells the gain")
        how = (trail, known["estimated"])
        solution = Solution(outputs, tuple(known["rules"]), known["gain"], *how)
        return Remembered(solution, final, spent)

    def _repeated(self, region: Region, trail: Sequence[Application]) -> tuple[Value, ...]:
        """The outputs to which a trail leads from a region's graph. Raises Unfounded."""
        graph, constants = region.graph, self._constants.of(region)
        ranges = Ranges(constants, self._constants.ranges.assumption)
        places = Places(ranges, region.outside, region.border)
        for number, step in enumerate(trail, 1):
            where = f"step {number} ({step.rule})"
            rule = self._direction(step.rule, where)
            # Whether digits are lost depends on each region's weights; the search checks that.
            graph = apply_step(graph, step, rule, constants, where, places=places, digits=False)
        if not graph.is_in_opset(self._opset):
            raise Unfounded("the last step", "its operators are newer than they may be")
        if [new.type for new in graph.outputs] != [old.type for old in region.graph.outputs]:
            raise Unfounded("the last step", "the type of an output changes")
        return graph.outputs

    def _direction(self, name: str, where: str) -> Rule:
        """The direction of a rule that has that name. Raises Unfounded."""
        rule = self._by_name.get(name.removesuffix(".reverse"))
        for direction in () if rule is None else rule.directions():
            if direction.name == name:
                return direction
        raise Unfounded(where, "there is no such rule")

    @cached_property
    def _by_name(self) -> dict[str, Rule]:
        return {rule.name: rule for rule in self._rules}

    def put(self, region: Region, found: Remembered) -> None:
        """Store the entry of a region, if it is lasting."""
        if self._notebook is None or not found.lasting:
            return
        key = self._key(region)
        if key is None:
            return
        known: dict[str, Any] = {"budget": self._budget, "effort": found.effort, "form": None}
        solution = found.solution
        if solution is not None:
            form = to_plain(solution.outputs)
            if form is None or solution.trail is None:
                return
            known |= {"form": form, "rules": solution.rules, "gain": solution.gain}
            known |= {"final": found.final, "estimated": solution.estimated}
            known["trail"] = [each.to_json() for each in solution.trail]
        self._notebook.put(key, json.dumps(known))

    @cached_property
    def _base(self) -> bytes:
        """A hash of the settings that solutions of all regions depend on."""
        digest = hashlib.sha256(_program())
        for rule in self._rules:
            digest.update(repr(rule).encode())
        digest.update(json.dumps(self._settings, default=_orderly, sort_keys=True).encode())
        return digest.digest()

    def _key(self, region: Region) -> str | None:
        """A hash of a region and of all that its solution depends on."""
        form = to_plain(region.graph.outputs)
        if form is None:
            return None
        leaves = [(str(value), repr(value.node.op), str(value.type)) for value in region.leaves]
        digest = hashlib.sha256(self._base)
        digest.update(json.dumps([form, leaves, *region.key[1:]], default=_orderly).encode())
        return digest.hexdigest()


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _orderly(value: object) -> object:
    """A setting as JSON has it, the same in every process."""
    if isinstance(value, frozenset):
        return sorted(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    return str(value)


@cache
def _program() -> bytes:
    """A hash of this program: another version may find other forms."""
    digest = hashlib.sha256()
    for path in sorted(Path(xflow.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()
