"""Proposals: candidates grouped by skeleton, each oriented from the costlier side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xflow.core.composite import Composite
from xflow.core.graph import walk
from xflow.core.node import Value
from xflow.core.pause_gc import without_collector
from xflow.generator.enumeration.enumerate import draws_for
from xflow.generator.enumeration.fingerprint import Evaluator
from xflow.generator.enumeration.level import Candidate
from xflow.generator.enumeration.replay import Replay, other_constants, other_sizes
from xflow.generator.generalization.skeleton import Point, Skeleton, take_apart
from xflow.generator.vocabulary import Vocabulary

MAX_POINTS = 400
RECHECKS = (6, 2, 2)
"""Draws at which a candidate is compared again, at each of three choices of sizes."""
RECHECKED = 16
"""So many pairs that differ in numbers alone are compared again."""


@dataclass
class Proposal:
    """Pairs with one skeleton; `source` and `target` are the smallest of them."""

    source: Value
    target: Value
    skeleton: Skeleton
    order: tuple[Any, ...]
    saves_nothing: bool
    """Both sides have as many operators that cost."""
    points: list[Point] = field(default_factory=list)


@without_collector
def propose(
    candidates: Iterable[Candidate],
    vocabulary: Vocabulary,
    seed: int = 0,
    counts: Counter[str] | None = None,
) -> list[Proposal]:
    """Proposals, smaller ones first, and among these the ones with more inputs.

    A side that reads an input which the other does not is the left one; where both read such an
    input, neither side can replace the other. Candidates that other draws or sizes refute are
    dropped, and counted as ``accidental``. Of an operator that others define, only the first output
    is read, see `xflow.generator.generalization.outputs`.
    """
    groups: dict[str, Proposal] = {}
    names = _Names(vocabulary)
    for candidate in _sound(names.distinct(candidates), vocabulary, seed, counts):
        source, target = candidate.source.value, candidate.target.value
        if _reads_defined_output(source) or _reads_defined_output(target):
            continue
        left, right = (names.of(term.text) for term in (candidate.source, candidate.target))
        if not right <= left:
            source, target = target, source
        skeleton, point = take_apart(source, target, vocabulary)
        group = groups.get(skeleton.key)
        if group is None:
            size = candidate.source
            order = (size.ops, tree_size(source), -len(left), size.order, candidate.target.order)
            group = groups[skeleton.key] = Proposal(
                source, target, skeleton, order, candidate.source.ops == candidate.target.ops
            )
        if len(group.points) < MAX_POINTS and point not in group.points:
            group.points.append(point)
    return sorted(groups.values(), key=lambda group: group.order)


def _reads_defined_output(side: Value) -> bool:
    """Whether it reads another output than the first of an operator that others define.

    What these are, the definition says, and rules of all outputs do.
    """
    read = (side, *(value for node in walk([side]) for value in node.inputs))
    return any(value.index and isinstance(value.node.op, Composite) for value in read)


def _sound(
    candidates: Sequence[tuple[str, Candidate]],
    vocabulary: Vocabulary,
    seed: int,
    counts: Counter[str] | None,
) -> list[Candidate]:
    """The candidates, of one enumeration, that hold at other draws and other sizes.

    Of those that differ in numbers alone the first few are compared.
    """
    met: Counter[str] = Counter()
    compared: set[str] = set()
    for text, _ in candidates:
        kind = re.sub(r"\d+", "", text)
        met[kind] += 1
        if met[kind] <= RECHECKED:
            compared.add(text)
    rows = {
        term.row
        for text, candidate in candidates
        if text in compared
        for term in (candidate.source, candidate.target)
    }
    if not candidates:
        return []
    table = candidates[0][1].source.table
    refuted: set[str] = set()
    first = draws_for(vocabulary)
    sizes = (None, other_sizes(vocabulary), other_sizes(vocabulary, apart=True))
    for draws, inputs in zip(RECHECKS, sizes, strict=True):
        evaluator = Evaluator(seed, draws, False, vocabulary.drawn, first)
        first += draws
        constants = None if inputs is None else other_constants(vocabulary, inputs)
        replay = Replay(table, rows, evaluator, inputs, constants, literal=vocabulary.literal)
        for text, candidate in candidates:
            pair = candidate.source.row, candidate.target.row
            if text in compared and not replay.agree(*pair):
                refuted.add(text)
    if counts is not None:
        counts["accidental"] += len(refuted)
    return [candidate for text, candidate in candidates if text not in refuted]


class _Names:
    """The names of inputs in the texts of terms."""

    def __init__(self, vocabulary: Vocabulary):
        kinds: dict[object, int] = {}
        self._kinds: dict[str, int] = {}
        for item in vocabulary.inputs:
            kind = (item.sort, item.dims, item.sizes, item.dtype, item.positive, item.sign)
            self._kinds[item.name] = kinds.setdefault(kind, len(kinds))
        words = "|".join(map(re.escape, self._kinds))
        # Neither an operator, nor an attribute, nor a word that is an attribute's value.
        self._pattern = re.compile(rf"(?<!')\b(?:{words})\b(?![(='])")

    def distinct(self, candidates: Iterable[Candidate]) -> list[tuple[str, Candidate]]:
        """The candidates one side of which reads all inputs, with canonical texts of both sides.

        Smaller ones come first. Pairs that differ in the names of inputs alone have one skeleton
        and the same numbers: the first stands for all.
        """
        found: dict[str, Candidate] = {}
        for candidate in sorted(candidates, key=lambda c: (c.source.order, c.target.order)):
            given: dict[str, str] = {}
            source, left = self._canonical(candidate.source.text, given)
            target, right = self._canonical(candidate.target.text, given)
            if left <= right or right <= left:
                found.setdefault(f"{source} = {target}", candidate)
        return list(found.items())

    def of(self, text: str) -> set[str]:
        """The inputs that a term reads."""
        return set(self._pattern.findall(text))

    def _canonical(self, text: str, given: dict[str, str]) -> tuple[str, set[str]]:
        """The text with inputs named by their kind, in the order of their first place; and them."""
        met: set[str] = set()

        def rename(found: re.Match[str]) -> str:
            name = found[0]
            met.add(name)
            if name not in given:
                given[name] = f"{self._kinds[name]}.{len(given)}"
            return given[name]

        return self._pattern.sub(rename, text), met


def tree_size(value: Value) -> int:
    """How many operators `value` has, with shared ones counted as often as they are used."""
    if value.is_leaf:
        return 0
    return 1 + sum(map(tree_size, value.node.inputs))
