"""Attribution of gains: each group of rewrites is left out of the whole model in turn.

A group consists of the replacements by the same rules in the same order: those in equal regions,
which help or do not help together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xflow.core.deadline import Deadline
from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.progress import CountProgress
from xflow.cost.comparison import Comparison
from xflow.cost.objectives import ExactCost
from xflow.rewriting.replacement import (
    Replacement,
    Replacements,
    apply_replacements,
    without_any,
)

Path: TypeAlias = tuple[str, ...]
"""The rules that led to a replacement, in order: what a group has in common."""


Contest: TypeAlias = Callable[[Replacements, Replacements], Comparison | None]
"""Times the models of two lists of replacements; None where one of them makes no model that runs.
`before` is the first one's."""


@dataclass(frozen=True)
class Attribution:
    """The replacements that are kept, and the gain of each group.

    `gains` are in seconds per run, or in the objective's unit; a group for which there was no time
    has none. `dropped` are the groups without which the model is better.
    """

    replacements: Replacements
    gains: Mapping[Path, float] = field(default_factory=dict)
    dropped: tuple[Path, ...] = ()


def groups(replacements: Sequence[Replacement]) -> list[Path]:
    """The groups, those first that gain most according to the search."""
    gains: dict[Path, float] = {}
    for item in replacements:
        gains[item.rules] = gains.get(item.rules, 0.0) + item.gain
    return sorted(gains, key=lambda path: (-gains[path], path))


def leave_out(replacements: Replacements, path: Path) -> Replacements | None:
    """The replacements less a group; None where others cannot be made without it."""
    try:
        return without_any(replacements, lambda item: item.rules == path)
    except ShapeError:
        return None


def only(replacements: Replacements, paths: Collection[Path]) -> Replacements:
    """The replacements of some groups, and of those that cannot be left out."""
    for path in groups(replacements):
        rest = None if path in paths else leave_out(replacements, path)
        if rest is not None:
            replacements = rest
    return replacements


def only_measured(replacements: Replacements) -> Replacements:
    """The replacements less those of which the estimate alone says that they gain.

    Nothing where that is not possible, or where the others gain nothing.
    """
    try:
        rest = without_any(replacements, lambda item: item.estimated)
    except ShapeError:
        return ()
    return rest if any(item.gain for item in rest) else ()


def attribute_time(
    replacements: Replacements,
    contest: Contest,
    margin: Callable[[Comparison], float],
    *,
    deadline: Deadline,
    step_s: float,
    tell: CountProgress = lambda done, total: None,
) -> Attribution:
    """Time the model without each group against the whole one, the most gainful group first.

    A group without which the model is faster by more than `margin` is dropped. No group is begun
    that would end after the deadline if it took as long as the one before it; the first one is
    expected to take `step_s` seconds.
    """
    gains: dict[Path, float] = {}
    dropped: list[Path] = []
    paths = groups(replacements)
    for number, path in enumerate(paths, 1):
        start = time.monotonic()
        if deadline.sooner(step_s).passed:
            break
        tell(number, len(paths))
        rest = leave_out(replacements, path)
        compared = None if rest is None else contest(rest, replacements)
        step_s = time.monotonic() - start
        if rest is None or compared is None:
            continue
        if compared.high < 1 - margin(compared):
            replacements = rest
            dropped.append(path)
        else:
            gains[path] = compared.before.median - compared.after.median
    return Attribution(replacements, gains, tuple(dropped))


def prune(
    graph: Graph, replacements: Replacements, costs: Sequence[ExactCost], deadline: Deadline
) -> Replacements:
    """The replacements less the groups without which `graph` is as good, at all settings.

    A gain of a region need not be one of the model: the peak of the memory may lie elsewhere, and a
    weight may have readers elsewhere.
    """
    for path in reversed(groups(replacements)):
        if deadline.passed:
            break
        rest = leave_out(replacements, path)
        less, whole = _made(graph, rest), _made(graph, replacements)
        if rest is None or less is None or whole is None:
            continue
        if all(cost.estimate(less) <= cost.estimate(whole) for cost in costs):
            replacements = rest
    return replacements


def attribute_amount(
    graph: Graph, replacements: Replacements, cost: ExactCost
) -> Mapping[Path, float]:
    """By how much the objective grows without each group."""
    whole = cost.amount(apply_replacements(graph, replacements))
    gains = {}
    for path in groups(replacements):
        made = _made(graph, leave_out(replacements, path))
        if made is not None:
            gains[path] = float(cost.amount(made) - whole)
    return gains


def _made(graph: Graph, replacements: Replacements | None) -> Graph | None:
    """The graph that replacements make; None where they make none."""
    try:
        return None if replacements is None else apply_replacements(graph, replacements)
    except ShapeError:
        return None
