"""Lessons from models: their regions as exported, and those on the way of a search by estimate.

Rules apply behind one another, so that what a rule is about may stand in no model, only in what
other rules have made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xflow.analysis.observers import Observed
from xflow.analysis.ranges import Ranges
from xflow.core.assumptions import DEFAULT
from xflow.core.deadline import Deadline
from xflow.core.errors import ShapeError, SizeError
from xflow.core.fold import Folder
from xflow.core.graph import Graph
from xflow.core.node import Node, Value, apply
from xflow.core.registry import Array
from xflow.cost.estimate import EstimatedCost, Estimator
from xflow.cost.target import TargetModel
from xflow.generator.learning.forms import Lesson, lessons_of
from xflow.generator.learning.regions import Region, places, regions_of, siblings
from xflow.onnx.imported import Imported
from xflow.rewriting.derivation import local_leaves
from xflow.rewriting.replacement import rounds
from xflow.rewriting.replay import Surroundings, Unfounded, passed
from xflow.rewriting.rule import Rule
from xflow.search.driver import search

Constants = Callable[[Value], Array | None]


@dataclass
class Lessons:
    """Collects regions; equal ones are one lesson, which counts for as much as all of them."""

    seed: int = 0
    _weights: dict[str, float] = field(default_factory=dict)
    _lessons: dict[str, Lesson] = field(default_factory=dict)
    _known: dict[object, list[Lesson]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._lessons)

    def add(self, graph: Graph, sizes: Mapping[str, int], constants: Constants) -> None:
        """The regions of a graph whose symbols have these sizes."""
        estimate = Estimator(TargetModel(), sizes)
        for root, nodes in _parts(graph):
            for region in regions_of(root, nodes, sizes, constants):
                seconds = estimate(Graph((region.root,)))
                for lesson in self._of(region):
                    key = lesson.first.key
                    self._lessons.setdefault(key, lesson)
                    self._weights[key] = self._weights.get(key, 0.0) + seconds

    def _of(self, region: Region) -> list[Lesson]:
        key = region.root, region.weights, tuple(sorted(region.reals.items()))
        if key not in self._known:
            try:
                self._known[key] = list(lessons_of(region, self.seed))
            except (ShapeError, SizeError):  # what a skeleton leaves out of types may decide them
                self._known[key] = []
        return self._known[key]

    def ordered(self) -> list[Lesson]:
        """Smaller ones first, since they explain larger ones, and what takes more time first."""
        keys = sorted(self._lessons, key=lambda key: (self._size(key), -self._weights[key], key))
        return [self._lessons[key] for key in keys]

    def _size(self, key: str) -> int:
        return len(Graph((self._lessons[key].first.root,)).nodes)


def _parts(graph: Graph) -> Iterator[tuple[Value, frozenset[Node]]]:
    """Results of regions and their operators, and pairs of results side by side."""
    for place in places(graph):
        yield place.root, place.nodes
    for one, other in siblings(graph):
        for axis in range(len(one.shape)):
            joined = _joined(one, other, axis)
            if joined is not None:
                yield joined, frozenset({joined.node, one.node, other.node})


def _joined(one: Value, other: Value, axis: int) -> Value | None:
    if len(one.shape) != len(other.shape):
        return None
    pairs = enumerate(zip(one.shape, other.shape, strict=True))
    if any(a != b for number, (a, b) in pairs if number != axis):
        return None
    return apply("Concat", [one, other], {"axis": axis})[0]


def on_the_way(
    imported: Imported,
    sizes: Mapping[str, int],
    rules: Sequence[Rule],
    seconds: float,
    processes: int,
) -> Iterator[tuple[Graph, Constants]]:
    """What the rules make of a model, step by step, where the estimate gains.

    The graphs are parts of the model's, with the data of their constants.
    """
    constants = imported.constants
    found = search(
        imported.graph,
        rules,
        EstimatedCost(Estimator(TargetModel(), sizes)),
        deadline=Deadline.after(seconds),
        constants=constants,
        processes=processes,
    )
    directions = {each.name: each for rule in rules for each in rule.directions()}
    for graph, items in rounds(imported.graph, found.replacements):
        surroundings = Surroundings(
            graph, Ranges(constants, DEFAULT), Observed.NOWHERE, directions, Folder(constants)
        )
        for item in items:
            leaves = local_leaves(item.inputs, surroundings.ranges)
            data = _data_of(dict(zip(leaves, item.inputs, strict=True)), surroundings.constants)
            steps = item.trail or ()
            try:
                for part in passed(surroundings, item.before, item.inputs, steps, "a step"):
                    yield part, data
            except Unfounded:
                continue


def _data_of(own: Mapping[Value, Value], constants: Constants) -> Constants:
    """The data of the constants that leaves stand for."""
    return lambda value: constants(own[value]) if value in own else None
