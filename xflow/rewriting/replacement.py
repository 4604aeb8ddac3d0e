"""Replacements of parts of a graph, made one after the other, in rounds, or without some of
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from xflow.core.graph import Graph, rebuild, rebuild_all
from xflow.core.node import Value
from xflow.rewriting.derivation import Application, abstract


@dataclass(frozen=True)
class Replacement:
    """`before` of a graph replaced by `after`, which computes the same.

    Both refer to the graph in which the replacements before this one have been made. `gain` is in
    seconds per run; `rules` are those that led from one to the other, in this order. `trail` says
    how each of them was applied to what lies between `inputs` and `before`; None where that is not
    known. A `fact` about values says so instead of a trail, or of what was done behind it.
    """

    before: tuple[Value, ...]
    after: tuple[Value, ...]
    rules: tuple[str, ...]
    gain: float
    inputs: tuple[Value, ...] = ()
    trail: tuple[Application, ...] | None = field(default=None, compare=False)
    fact: str = ""
    estimated: bool = field(default=False, compare=False)
    """Whether the gain is the estimate's, also where others were measured."""

    @property
    def rule_names(self) -> str:
        """Its rules, each once, in words."""
        return ", ".join(dict.fromkeys(self.rules)) or "an unnamed rule"


def apply_replacements(graph: Graph, replacements: Sequence[Replacement]) -> Graph:
    """`graph` with the replacements made in order, without those that no longer apply."""
    for before, items in rounds(graph, replacements):
        graph = apply_round(before, items)
    return graph


def rounds(
    graph: Graph, replacements: Sequence[Replacement]
) -> Iterator[tuple[Graph, tuple[Replacement, ...]]]:
    """The replacements that apply, in rounds, each with the graph that all of it refer to."""
    present = set(graph.nodes)
    batch: list[Replacement] = []
    taken: set[Value] = set()
    for item in replacements:
        spoken_of = {value.node for value in (*item.before, *item.inputs)}
        old = spoken_of <= present and taken.isdisjoint(item.before)
        if batch and not old:  # it may speak of what the others have made
            yield graph, tuple(batch)
            graph = apply_round(graph, batch)
            present, batch, taken = set(graph.nodes), [], set()
            old = spoken_of <= present
        if old:
            batch.append(item)
            taken.update(item.before)
    if batch:
        yield graph, tuple(batch)


def apply_round(
    graph: Graph, items: Sequence[Replacement], moved: dict[Value, Value] | None = None
) -> Graph:
    """`graph`, which all of the items refer to, with all of them made at once.

    `moved` collects what became of the values that they do not replace.
    """
    pairs = [pair for item in items for pair in zip(item.before, item.after, strict=True)]
    mapping = {old: new for old, new in pairs if old != new}  # an output may have stayed as it was
    return Graph(rebuild_all(graph.outputs, mapping, moved))


def without(replacements: Sequence[Replacement], dropped: int) -> tuple[Replacement, ...]:
    """The replacements less number `dropped`; later ones refer to what stood there before it.

    Those that took up what it had made go with it: their trails do not lead there from what stood
    there before.
    """
    guilty = replacements[dropped]
    back = dict(zip(guilty.after, guilty.before, strict=True))
    result = list(replacements[:dropped])
    for item in replacements[dropped + 1 :]:
        values = rebuild((*item.before, *item.after, *item.inputs), back)
        count, end = len(item.before), len(item.before) + len(item.after)
        changed = replace(item, before=values[:count], after=values[count:end], inputs=values[end:])
        if item.trail and not _same_between(item, changed):
            for after, before in zip(item.after, changed.before, strict=True):
                back.setdefault(after, before)  # what became of it before is still so
        else:
            result.append(changed)
    return tuple(result)


def without_any(
    replacements: Sequence[Replacement], dropped: Callable[[Replacement], bool]
) -> tuple[Replacement, ...]:
    """The replacements less all those that are to be `dropped`, see `without`.

    Raises ShapeError where others cannot be made then.
    """
    rest = tuple(replacements)
    for number in reversed(range(len(replacements))):
        if dropped(replacements[number]):
            rest = without(rest, number)
    return rest


def _same_between(one: Replacement, other: Replacement) -> bool:
    """Whether the same stands between the inputs of two replacements and what they replace."""
    return abstract(one.before, one.inputs) == abstract(other.before, other.inputs)


Replacements: TypeAlias = tuple[Replacement, ...]
