"""Bottom-up enumeration of terms, one representative for each fingerprint.

A term whose fingerprint is new represents its class, and larger terms are built from
representatives alone: what contains another member follows from a smaller equation. Every term
that falls into a known class is a candidate: it may equal the representative.

All terms of one operator and level are evaluated together. The graph of a term is made only on
demand: of most terms, at the last level nearly all, the fingerprint alone is needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from math import inf, prod
from typing import TypeAlias

import numpy as np

from xflow.core.errors import ShapeError
from xflow.core.node import TensorType
from xflow.core.pause_gc import without_collector
from xflow.core.registry import Array
from xflow.generator.enumeration.fingerprint import Evaluator, InexactError
from xflow.generator.enumeration.level import Candidate, Enumeration, Level, State, close_level
from xflow.generator.enumeration.terms import Call, Pool, Segment
from xflow.generator.production import Production
from xflow.generator.vocabulary import Vocabulary
from xflow.ops import operator

__all__ = ["Candidate", "Enumeration", "draws_for", "enumerate_terms"]

DRAWS = 3
"""The least number of draws for a fingerprint."""
ELEMENTS = 64
"""The least number of elements over all draws."""
CALL = 100
"""The elements that are computed in the time that it takes to apply an operator's `shape`."""
MOST_CHOICES, MOST_OUTPUTS = 2**12, 2**4
"""Of one production."""


class TooManyTermsError(Exception):
    """A vocabulary has more terms than were asked for."""


@without_collector
def enumerate_terms(
    vocabulary: Vocabulary,
    seed: int,
    max_ops: int,
    *,
    wanted: TensorType | None = None,
    most: int | None = None,
) -> Enumeration:
    """All terms within the limits of `vocabulary` and of at most `max_ops` operators that cost.

    A vocabulary whose sorts form a chain is enumerated to its own limits. One that is so deep that
    float64 rounds is compared to seven digits, as functions are. Of the largest terms those of the
    type `wanted` are made alone, if one is given. Raises TooManyTermsError where it takes more than
    `most`, if that is given: elements of terms, and `CALL` for each call that is tried.
    """
    if vocabulary.chain:
        max_ops = len(vocabulary.limits)
    try:
        return _enumerate(
            vocabulary, seed, max_ops, exact=vocabulary.exact, wanted=wanted, most=most
        )
    except InexactError:
        return _enumerate(vocabulary, seed, max_ops, exact=False, wanted=wanted, most=most)


def _enumerate(
    vocabulary: Vocabulary,
    seed: int,
    max_ops: int,
    *,
    exact: bool,
    wanted: TensorType | None,
    most: int | None,
) -> Enumeration:
    evaluator = Evaluator(seed, draws_for(vocabulary), exact, vocabulary.drawn)
    free = [p for p in vocabulary.productions if p.result in vocabulary.free]
    needed = frozenset(sort for production in free for sort in production.args)
    last = min(max_ops, len(vocabulary.limits) - 1)
    state = State(vocabulary, evaluator, last, needed, inf if most is None else most)
    for number, item in enumerate(vocabulary.inputs):
        leaf = Segment(None, (), (), 1, item.sort, item.value)
        state.pending.append((leaf, np.array([number])))
    close_level(state, (0, 0))
    for level in _levels(vocabulary, max_ops):
        for number, production in enumerate(vocabulary.productions):
            costs = production.result not in vocabulary.free
            below = (level[0] - costs, level[1] - (not costs))
            before = len(state.pending)
            if min(below) >= 0:
                state.wanted = wanted if level[0] == state.last and costs else None
                _produce(state, number, below)
            state.work += sum(segment.elements for segment, _ in state.pending[before:])
        close_level(state, level)
    state.found.classes = len(state.classes)
    state.found.exact = exact
    state.found.state = state
    return state.found


def draws_for(vocabulary: Vocabulary) -> int:
    """How many draws a fingerprint takes: at least 3, and enough for small tensors to have many
    elements, since a maximum or a choice equals one of its arguments on a few.
    """
    sizes = [prod(item.sizes) for item in vocabulary.inputs if item.sort in vocabulary.roots]
    return max(DRAWS, -(-ELEMENTS // max(1, min(sizes, default=1))))


def _levels(vocabulary: Vocabulary, max_ops: int) -> Iterator[Level]:
    for ops, limit in enumerate(vocabulary.limits[: max_ops + 1]):
        for free in range(limit + 1):
            if (ops, free) != (0, 0):
                yield ops, free


def _produce(state: State, number: int, below: Level) -> None:
    """Apply an operator to arguments that have `below` operators together, shared ones once.

    Nodes are shared where one argument is a part of another, or the same.
    """
    sorts = state.vocabulary.productions[number].args
    for levels in _levels_below(state, sorts, below):
        pools = [state.pools[*level, sort] for level, sort in zip(levels, sorts, strict=True)]
        sizes = [sum(len(pool.rows) for pool in options) for options in pools]
        for chosen in itertools.product(*pools):
            _combine(state, number, chosen, sizes)
        state.order += prod(sizes)
    if len(sorts) == 2:
        _share(state, number, below)


def _levels_below(state: State, sorts: Sequence[str], below: Level) -> Iterator[list[Level]]:
    """The combinations of levels at which these sorts have terms and that add up to `below`."""
    known: dict[str, dict[int, list[int]]] = {sort: {} for sort in sorts}
    for height, free_height, sort in sorted(state.pools):
        if sort in known:
            known[sort].setdefault(height, []).append(free_height)
    for ops in _splits(below[0], [list(known[sort]) for sort in sorts]):
        options = [known[sort][n] for sort, n in zip(sorts, ops, strict=True)]
        for free in _splits(below[1], options):
            yield list(zip(ops, free, strict=True))


def _splits(total: int, options: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """One of each of the options, which are in order, such that they add up to `total`."""
    if not options:
        if total == 0:
            yield ()
        return
    for first in options[0]:
        if first > total:
            break
        for rest in _splits(total - first, options[1:]):
            yield (first, *rest)


def _combine(state: State, number: int, pools: tuple[Pool, ...], sizes: list[int]) -> None:
    """Every choice of one member from each pool."""
    args = tuple(
        places.reshape(-1) for places in np.indices([len(pool.rows) for pool in pools], np.int32)
    )
    order = np.zeros(prod(len(pool.rows) for pool in pools), np.int64)
    for pool, places, size in zip(pools, args, sizes, strict=True):
        order = order * size + pool.places[places]
    if len(pools) == 2:
        keep = np.ones(len(order), bool)
        if _commutative(state.vocabulary.productions[number]):
            first, second = (p.serials[places] for p, places in zip(pools, args, strict=True))
            keep = first <= second
        if state.shared.get(number):
            first, second = (pool.rows[places] for pool, places in zip(pools, args, strict=True))
            keep &= ~np.isin(_pairs(first, second), list(state.shared[number]))
        args, order = tuple(places[keep] for places in args), order[keep]
    _add(state, number, pools, args, state.order + order)


def _pairs(first: Array, second: Array) -> Array:
    """One number for each pair of terms."""
    return (first << 32) | second


def _commutative(production: Production) -> bool:
    return (
        len(production.args) == 2
        and production.args[0] == production.args[1]
        and operator(production.op).commutative
    )


def _share(state: State, number: int, below: Level) -> None:
    """Apply an operator to a term of the level `below` and a part of it, in either order."""
    production = state.vocabulary.productions[number]
    known = state.shared.setdefault(number, set())
    groups: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    pools: dict[int, Pool] = {}
    for position in (0, 1):
        for whole, part in _wholes(state, (*below, production.args[position])):
            if part[0].sort != production.args[1 - position]:
                continue
            chosen = [part, whole] if position else [whole, part]
            serials = [int(pool.serials[place]) for pool, place in chosen]
            if _commutative(production) and serials[0] > serials[1]:
                chosen.reverse()
            (left, i), (right, j) = chosen
            pair = (int(left.rows[i]) << 32) | int(right.rows[j])
            if pair not in known:
                known.add(pair)
                pools[id(left)], pools[id(right)] = left, right
                groups.setdefault((id(left), id(right)), []).append((i, j, state.order))
            state.order += 1
    for keys, found in groups.items():
        first, second, order = np.array(found, np.int64).T
        _add(state, number, tuple(pools[key] for key in keys), (first, second), order)


Member: TypeAlias = tuple[Pool, int]


def _wholes(state: State, key: tuple[int, int, str]) -> Iterator[tuple[Member, Member]]:
    """Terms of one level and sort, each with a part of it.

    A term that represents no class counts, too, where its representative does not have that part:
    a term that shares it would otherwise not be found with so few operators.
    """
    for _, row, member in sorted(_members(state.pools.get(key, ()))):
        for part in _parts(state, row):
            yield member, state.places[part]
    for _, row, member in sorted(_members(state.others.get(key, ()))):
        rival = state.rivals[row]
        level = state.table.level(rival)
        for arg in state.table.args(row):
            for part in _parts(state, arg):
                total = [sum(n) for n in zip(level, state.table.level(part), strict=True)]
                if part not in _parts(state, rival) and total > list(key[:2]):
                    yield member, state.places[part]


def _members(pools: Iterable[Pool]) -> Iterator[tuple[int, int, Member]]:
    """The members of pools: place, number, and where it stands."""
    for pool in pools:
        for i, (place, row) in enumerate(
            zip(pool.places.tolist(), pool.rows.tolist(), strict=True)
        ):
            yield place, row, (pool, i)


def _parts(state: State, row: int) -> tuple[int, ...]:
    """The representatives that are part of one, inputs of operators before their users."""
    known = state.parts.get(row)
    if known is None:
        table = state.table
        below = [part for arg in table.args(row) for part in _parts(state, arg)]
        own = [other for other in table.siblings(row) if other in state.places]
        known = state.parts[row] = tuple(dict.fromkeys((*below, *own)))
    return known


def _add(
    state: State, number: int, pools: tuple[Pool, ...], args: tuple[Array, ...], order: Array
) -> None:
    """Note the terms that the choices of attributes make of these arguments."""
    if not len(order):
        return
    production = state.vocabulary.productions[number]
    if state.work > state.limit:
        raise TooManyTermsError(state.vocabulary.name)
    for place, call in _calls(state, number, tuple(pool.type for pool in pools)):
        if state.wanted is not None and state.wanted not in call.types:
            continue
        segment = Segment(call, pools, args, len(order), production.result)
        state.pending.append((segment, (order * MOST_CHOICES + place) * MOST_OUTPUTS))


def _calls(state: State, number: int, types: tuple[TensorType, ...]) -> list[tuple[int, Call]]:
    """The choices of attributes with which the operator takes arguments of these types.

    A choice that means the same as one before it, of this production or another, is left out.
    """
    made = state.calls.get((number, types))
    if made is None:
        made = state.calls[number, types] = []
        production = state.vocabulary.productions[number]
        state.work += CALL * len(production.choices)
        for place, attributes in enumerate(production.choices):
            try:
                call = Call(production.op, attributes, types, production.then)
            except ShapeError:
                continue
            identity = (call.identity, production.args, production.result)
            if identity not in state.claimed:
                state.claimed.add(identity)
                made.append((place, call))
    return made
