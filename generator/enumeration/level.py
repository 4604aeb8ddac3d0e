"""One level of an enumeration: evaluates terms of equally many operators and classifies them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from xflow.core.node import TensorType, Value
from xflow.core.registry import Array
from xflow.generator.enumeration.classes import Classes, salt
from xflow.generator.enumeration.fingerprint import Evaluator, digests
from xflow.generator.enumeration.terms import Call, Pool, Segment, Table, Term
from xflow.generator.vocabulary import Vocabulary

Level: TypeAlias = tuple[int, int]
"""How many operators that cost, and how many free ones."""


@dataclass(frozen=True)
class Candidate:
    """Two terms with equal fingerprints; `source` is not smaller than `target`."""

    source: Term
    target: Term


@dataclass
class Enumeration:
    """The result of an enumeration: its candidates, and counts for each level."""

    graphs: int = 0
    classes: int = 0
    exact: bool = True
    """Whether values were compared exactly, and not to seven digits."""
    candidates: list[Candidate] = field(default_factory=list)
    levels: dict[Level, tuple[int, int, int]] = field(default_factory=dict)
    """For each level the graphs, the classes met first there, and the candidates."""
    state: State | None = field(default=None, repr=False)

    def representative(self, value: Value, sort: str) -> Term | None:
        """The representative of the class that a graph of this sort falls into.

        None where no enumerated term has its values. Raises ShapeError.
        """
        assert self.state is not None
        state = self.state
        kind = "" if sort in state.vocabulary.roots else sort
        prints, defined = digests(state.evaluator.stack(value)[np.newaxis], state.evaluator.exact)
        row = state.classes.find(prints[0] ^ salt(kind, value.type)) if defined[0] else None
        return None if row is None else state.table.terms(np.array([row]))[0]


@dataclass
class State:
    """The state of an enumeration between levels."""

    vocabulary: Vocabulary
    evaluator: Evaluator
    last: int
    """The largest number of operators that cost."""
    needed: frozenset[str]
    """Sorts that free operators take."""
    limit: float
    """The most work there may be."""
    work: float = 0.0
    """What was computed so far, see `enumerate_terms`."""
    wanted: TensorType | None = None
    """The type of all terms that are made at present; None: of any."""
    table: Table = field(default_factory=Table)
    pools: dict[tuple[int, int, str], list[Pool]] = field(default_factory=dict)
    classes: Classes = field(default_factory=Classes)
    places: dict[int, tuple[Pool, int]] = field(default_factory=dict)
    """Where representatives stand that are arguments of larger terms."""
    others: dict[tuple[int, int, str], list[Pool]] = field(default_factory=dict)
    """Terms that are not the representative of their class."""
    rivals: dict[int, int] = field(default_factory=dict)
    """For each of these its representative."""
    parts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """For a representative those that are part of it, itself included; no inputs."""
    calls: dict[object, list[tuple[int, Call]]] = field(default_factory=dict)
    claimed: set[object] = field(default_factory=set)
    shared: dict[int, set[int]] = field(default_factory=dict)
    """For a production the pairs of arguments one of which is a part of the other."""
    pending: list[tuple[Segment, Array]] = field(default_factory=list)
    """The segments of the present level, with the place of each term in the enumeration."""
    order: int = 0
    serial: int = 0
    found: Enumeration = field(default_factory=Enumeration)


def close_level(state: State, level: Level) -> None:
    """Evaluate the terms of a level, and choose the smallest of each new class."""
    rows, prints, defined = _evaluate(state, level)
    places = np.flatnonzero(defined)
    members, prints = rows[places], prints[places]
    count = len(state.classes)
    owner = state.classes.owners(prints)
    old = owner < count
    heads, best, others = _smallest(state, members, np.where(old, -1, owner - count))
    chosen = members[best]
    state.classes.extend(prints[heads], chosen)
    later = np.concatenate([np.flatnonzero(old), others])
    place = np.where(old, owner, count + np.searchsorted(heads, owner - count))
    known = state.classes.rows[place[later]]
    candidates = _candidates(state, members[later], known)
    state.found.graphs += len(rows)
    state.found.candidates += candidates
    state.found.levels[level] = (len(rows), len(chosen), len(candidates))
    serials = state.serial + places
    for pool in _pools(state, level, chosen, serials[best]):
        state.pools.setdefault((*level, pool.sort), []).append(pool)
        state.places.update((row, (pool, i)) for i, row in enumerate(pool.rows.tolist()))
    for pool in _pools(state, level, members[later], serials[later]):
        state.others.setdefault((*level, pool.sort), []).append(pool)
    state.rivals.update(zip(members[later].tolist(), known.tolist(), strict=True))
    state.serial += len(rows)


def _smallest(state: State, members: Array, owner: Array) -> tuple[Array, Array, Array]:
    """For each new class its first and its smallest member; and all that are not the smallest.

    `owner` has the first member of each member's class, or -1.
    """
    heads, sizes = np.unique(owner[owner >= 0], return_counts=True)
    best = heads.copy()
    groups: dict[int, list[int]] = {}
    for member in np.flatnonzero(np.isin(owner, heads[sizes > 1])).tolist():
        groups.setdefault(int(owner[member]), []).append(member)
    others: list[int] = []
    for head, group in groups.items():
        texts = {member: state.table.text(int(members[member])) for member in group}
        smallest = min(group, key=lambda member: (len(texts[member]), texts[member]))
        best[np.searchsorted(heads, head)] = smallest
        others += [member for member in group if member != smallest]
    return heads, best, np.array(others, np.int64)


def _evaluate(state: State, level: Level) -> tuple[Array, Array, Array]:
    """Terms of the level, in the order of enumeration: number and digest of each.

    The digest is of sort, shape and values. A term that is not defined everywhere is left out
    of what follows: the third array tells which ones are.
    """
    table = state.table
    orders: list[Array] = [np.zeros(0, np.int64)]
    rows: list[Array] = [np.zeros(0, np.int64)]
    prints: list[Array] = [np.zeros((0, 2), np.uint64)]
    defined: list[Array] = [np.zeros(0, bool)]
    for segment, order in state.pending:
        table.append(segment, level)
        kind = "" if segment.sort in state.vocabulary.roots else segment.sort
        for output, (words, known) in enumerate(segment.digests(state.evaluator)):
            orders.append(order + output)
            rows.append(segment.rows(output))
            prints.append(words ^ salt(kind, segment.type(output)))
            defined.append(known)
    state.pending.clear()
    sequence = np.argsort(np.concatenate(orders), kind="stable")
    return (
        np.concatenate(rows)[sequence],
        np.concatenate(prints)[sequence],
        np.concatenate(defined)[sequence],
    )


def _candidates(state: State, sources: Array, targets: Array) -> list[Candidate]:
    """Pairs of a term and its representative, of sorts that are proposed."""
    vocabulary, table = state.vocabulary, state.table
    proposed = np.array([segment.sort in vocabulary.roots for segment in table.segments], bool)
    keep = proposed[table.numbers(sources)]
    pairs = zip(table.terms(sources[keep]), table.terms(targets[keep]), strict=True)
    # A term may be met again: as another sort, or where an activation was fused into it.
    return [Candidate(one, other) for one, other in pairs if one.text != other.text]


def _pools(state: State, level: Level, chosen: Array, serials: Array) -> Iterator[Pool]:
    """Terms that are arguments of larger ones, with their values."""
    table = state.table
    by_sort: dict[str, list[int]] = {}
    for i, number in enumerate(table.numbers(chosen).tolist()):
        by_sort.setdefault(table.segments[number].sort, []).append(i)
    for sort, members in by_sort.items():
        if level[0] == state.last and sort not in state.needed:
            continue
        by_type: dict[TensorType, list[tuple[int, int]]] = {}
        for place, i in enumerate(members):
            by_type.setdefault(table.type(int(chosen[i])), []).append((i, place))
        for type, found in by_type.items():
            picked, places = np.array(found, np.int64).T
            rows = chosen[picked]
            stack = table.stack(rows, state.evaluator)
            yield Pool(sort, type, rows, places, serials[picked], stack)
