"""What the search of a region has led to, kept for later runs.

A model that is optimized again, or one with the same parts, finds what was found before, without
search and without measuring: it gets the same form, and soon.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from xflow.cost import Notebook
from xflow.derivation import Application
from xflow.graph import Value
from xflow.plain import from_plain, to_plain
from xflow.region import Region
from xflow.rule import Rule

ENOUGH = 0.9
"""The part of the time for a search that counts as all of it."""


@dataclass(frozen=True)
class Solution:
    """Better outputs for a region's graph, the rules that led there, and the seconds gained."""

    outputs: tuple[Value, ...]
    rules: tuple[str, ...]
    gain: float
    trail: tuple[Application, ...] | None = None
    """How each rule was applied, see `derivation`; None where that was not told."""


@dataclass(frozen=True)
class Remembered:
    """What is known of a region: a solution, or None where its own form is the best.

    `final` says that the solution itself has been searched, too. `effort` is with what multiple of
    the limits it was found: what was found with less is forgotten once more is to be spent.
    """

    solution: Solution | None
    final: bool = True
    effort: int = 1


class Memory:
    """Solutions of regions, as found with `settings` and at most `budget` seconds for a model.

    What was found with less time is forgotten: with more of it there may be better.
    """

    def __init__(
        self, notebook: Notebook | None, rules: Sequence[Rule], budget: float, *settings: object
    ) -> None:
        self._notebook = notebook
        self._budget = budget
        self._rules = rules
        self._settings = settings

    def get(self, region: Region, effort: int) -> Remembered | None:
        """What is known of a region from a search with at least that effort."""
        if self._notebook is None:
            return None
        key = self._key(region)
        text = None if key is None else self._notebook.get(key)
        if text is None:
            return None
        known = json.loads(text)
        if known["budget"] < ENOUGH * self._budget or known["effort"] < effort:
            return None
        if known["form"] is None:
            return Remembered(None, effort=known["effort"])
        leaves = {str(value): value for value in region.leaves}
        outputs = from_plain(known["form"], leaves)
        if outputs is None or [v.type for v in outputs] != [v.type for v in region.graph.outputs]:
            return None
        trail = tuple(Application.from_json(each) for each in known["trail"])
        solution = Solution(outputs, tuple(known["rules"]), known["gain"], trail)
        return Remembered(solution, known["final"], known["effort"])

    def put(self, region: Region, found: Remembered) -> None:
        """Note what the search of a region led to."""
        if self._notebook is None:
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
            known["final"] = found.final
            known["trail"] = [each.to_json() for each in solution.trail]
        self._notebook.put(key, json.dumps(known))

    @cached_property
    def _base(self) -> bytes:
        """A hash of what decides in all regions."""
        digest = hashlib.sha256(_program())
        for rule in self._rules:
            digest.update(repr(rule).encode())
        digest.update(json.dumps(self._settings, default=_orderly, sort_keys=True).encode())
        return digest.digest()

    def _key(self, region: Region) -> str | None:
        """A hash of a region and of all that decides what is found for it."""
        form = to_plain(region.graph.outputs)
        if form is None:
            return None
        leaves = [(str(value), repr(value.node.op), str(value.type)) for value in region.leaves]
        digest = hashlib.sha256(self._base)
        digest.update(json.dumps([form, leaves, *region.key[1:]]).encode())
        return digest.hexdigest()


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
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()
