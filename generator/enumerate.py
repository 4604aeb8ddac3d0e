"""Bottom-up enumeration of terms, one representative for each fingerprint.

A term whose fingerprint is new represents its class, and larger terms are built from
representatives alone: what contains another member follows from a smaller equation. Every term
that falls into a known class is a candidate: it may equal the representative.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from xflow.errors import ShapeError
from xflow.generator.fingerprint import Evaluator
from xflow.generator.vocabulary import DTYPE, Production, Vocabulary
from xflow.graph import Leaf, Value, apply, walk
from xflow.ops.registry import operator


@dataclass(frozen=True)
class Term:
    """An enumerated value: its sort and how many operators it has, those that cost and others."""

    value: Value
    sort: str
    ops: int
    free: int
    serial: int = 0
    """Position in the order of enumeration."""

    @cached_property
    def order(self) -> tuple[int, int, int, str]:
        """Smaller terms first; deterministic."""
        text = str(self.value)
        return (self.ops, self.free, len(text), text)


@dataclass(frozen=True)
class Candidate:
    """Two terms with equal fingerprints; `source` is not smaller than `target`."""

    source: Term
    target: Term


@dataclass
class Enumeration:
    """What an enumeration found."""

    graphs: int = 0
    classes: int = 0
    candidates: list[Candidate] = field(default_factory=list)


Identity: TypeAlias = tuple[str, tuple[object, ...], bytes]
"""What the members of a class share: sort, shape, fingerprint."""


@dataclass
class _State:
    vocabulary: Vocabulary
    evaluator: Evaluator
    levels: dict[tuple[int, int, str], list[Term]] = field(default_factory=dict)
    classes: dict[Identity, Term] = field(default_factory=dict)
    members: dict[Value, Term] = field(default_factory=dict)
    seen: set[Value] = field(default_factory=set)
    keep: list[Value] = field(default_factory=list)
    """Holds interned nodes alive: a candidate must not be made twice."""
    fresh: dict[Identity, list[Term]] = field(default_factory=dict)
    """Classes met first at the present level: their members."""
    later: list[tuple[Identity, Term]] = field(default_factory=list)
    """Members of classes that have smaller ones."""
    found: Enumeration = field(default_factory=Enumeration)


def enumerate_terms(vocabulary: Vocabulary, seed: int, max_ops: int) -> Enumeration:
    """All terms within the limits of `vocabulary` and of at most `max_ops` operators that cost."""
    state = _State(vocabulary, Evaluator(seed, exact=vocabulary.exact))
    for item in vocabulary.inputs:
        _add(state, item.value, item.sort, 0, 0)
    _close_level(state)
    for ops, free in _levels(vocabulary, max_ops):
        for production in vocabulary.productions:
            costs = production.result not in vocabulary.free
            below = (ops - costs, free - (not costs))
            if min(below) < 0:
                continue
            for args in _arguments(state, production, below):
                _apply(state, production, args, ops, free)
        _close_level(state)
    state.found.candidates = list(_candidates(state))
    state.found.classes = len(state.classes)
    return state.found


def _levels(vocabulary: Vocabulary, max_ops: int) -> Iterator[tuple[int, int]]:
    for ops, limit in enumerate(vocabulary.limits[: max_ops + 1]):
        for free in range(limit + 1):
            if (ops, free) != (0, 0):
                yield ops, free


def _arguments(
    state: _State, production: Production, below: tuple[int, int]
) -> Iterator[tuple[Term, ...]]:
    """Arguments that have `below` operators together, shared ones counted once.

    Sharing is met where one argument is a part of another or the same.
    """
    commutative = _commutative(production)
    arity = len(production.args)
    for splits in itertools.product(*(_splits(below[i], arity) for i in range(2))):
        levels = list(zip(*splits, strict=True))
        pools = [
            state.levels.get((ops, free, sort), ())
            for (ops, free), sort in zip(levels, production.args, strict=True)
        ]
        for args in itertools.product(*pools):
            if not commutative or args[0].serial <= args[1].serial:
                yield args
    if arity == 2:
        for whole_position in (0, 1):
            sort = production.args[whole_position]
            for whole in state.levels.get((*below, sort), ()):
                for part in _parts(state, whole, production.args[1 - whole_position]):
                    pair = (whole, part) if whole_position == 0 else (part, whole)
                    if commutative and pair[0].serial > pair[1].serial:
                        pair = (pair[1], pair[0])
                    yield pair


def _commutative(production: Production) -> bool:
    return (
        len(production.args) == 2
        and production.args[0] == production.args[1]
        and operator(production.op).commutative
    )


def _splits(total: int, parts: int) -> list[tuple[int, ...]]:
    if parts == 0:
        return [()] if total == 0 else []
    if parts == 1:
        return [(total,)]
    return [
        (first, *rest) for first in range(total + 1) for rest in _splits(total - first, parts - 1)
    ]


def _parts(state: _State, whole: Term, sort: str) -> list[Term]:
    parts = [
        state.members[value]
        for node in walk([whole.value])
        if not isinstance(node.op, Leaf)
        for value in (Value(node, i) for i in range(len(node.types)))
        if value in state.members
    ]
    return [part for part in parts if part.sort == sort]


def _apply(
    state: _State, production: Production, args: tuple[Term, ...], ops: int, free: int
) -> None:
    values = [arg.value for arg in args]
    for attributes in production.choices:
        try:
            outputs = apply(production.op, values, attributes, dtype=DTYPE)
        except ShapeError:
            continue
        if outputs[0] in state.seen:
            continue
        for output in outputs:
            _add(state, output, production.result, ops, free)


def _add(state: _State, value: Value, sort: str, ops: int, free: int) -> None:
    state.seen.add(value)
    state.keep.append(value)
    state.found.graphs += 1
    try:
        key = state.evaluator.key(value)
    except ShapeError:
        key = None
    if key is None:
        return
    term = Term(value, sort, ops, free, state.found.graphs)
    kind = "" if sort in state.vocabulary.roots else sort
    identity = (kind, value.shape, key)
    if identity in state.classes:
        state.later.append((identity, term))
    else:
        state.fresh.setdefault(identity, []).append(term)


def _close_level(state: _State) -> None:
    """Choose the smallest member of each new class as its representative."""
    for identity, terms in state.fresh.items():
        best = min(terms, key=lambda term: term.order)
        state.classes[identity] = state.members[best.value] = best
        state.levels.setdefault((best.ops, best.free, best.sort), []).append(best)
        state.later += [(identity, term) for term in terms if term is not best]
    state.fresh.clear()


def _candidates(state: _State) -> Iterator[Candidate]:
    for identity, term in state.later:
        known = state.classes[identity]
        if term.sort in state.vocabulary.roots and term.value != known.value:
            yield Candidate(term, known)
