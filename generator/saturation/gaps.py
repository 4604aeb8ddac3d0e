"""Gaps: proposals that save nothing, and that the rules which were kept do not explain.

An equation between sides that cost the same is no step that the search wants, but it may be what a
derivation needs. So where the rules do not lead from one side to the other, it is proved and put
into the base. The question is asked at the sizes of the enumeration, where axes share sizes: what
is no consequence there is none at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from xflow.core.node import Value
from xflow.generator.saturation.directions import Database
from xflow.generator.saturation.saturate import Saturation
from xflow.rewriting.text import parse_rules

STEPS, STEPS_ASIDE = 3, 2
"""Within so many steps of saturation a proposal is explained, or there is a gap: steps by rules on
its own operators, and by all rules."""

MAX_NODES = 3_000
"""Nodes of an e-graph at which the question is given up; the proposal counts as explained then, as
what has so many forms is no lack of rules."""


def is_gap(source: Value, target: Value, database: Database) -> bool:
    """Whether the rules lead from `source` to `target` in no way that is short."""
    own = database.within([source, target])
    return not (
        _is_explained(source, target, own, STEPS)
        or _is_explained(source, target, database, STEPS_ASIDE)
    )


def _is_explained(source: Value, target: Value, database: Database, steps: int) -> bool:
    search = Saturation(database, [source, target], max_nodes=MAX_NODES)
    pairs = [(source, target)]
    for _ in range(steps):
        if search.has_met(pairs) or search.is_full:
            return True
        search.step()
    return search.has_met(pairs) or search.is_full


@lru_cache(maxsize=2)
def database_of(text: str) -> Database:
    """The rules of a text, ready to be matched."""
    return Database.of(parse_rules(text))


def stanzas(texts: Iterable[str]) -> str:
    """Rules as one text, each under a name of its own."""
    return "\n".join(
        f"rule r{number}\n{text.partition(chr(10))[2]}" for number, text in enumerate(texts)
    )
