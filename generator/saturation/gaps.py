"""Gaps: proposals that save nothing and do not follow from the rules that were kept.

The search does not want an equation between sides of equal cost, but a derivation may need it. So
where the rules do not lead from one side to the other, it is proved and put into the base. This is
decided at the sizes of the enumeration, where axes share sizes: an equation that does not follow
there does not follow in general.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from xflow.core.node import Value
from xflow.generator.saturation.directions import Database
from xflow.generator.saturation.saturate import Saturation
from xflow.rewriting.text import parse_rules

STEPS, STEPS_ASIDE = 3, 2
"""Steps of saturation, by rules on its own operators and by all rules, within which a proposal must
follow; otherwise it is a gap."""

MAX_NODES = 3_000
"""Nodes of an e-graph at which saturation is given up. `is_gap` counts the proposal as no gap then,
since where there are so many forms, rules are not missing."""


def is_gap(source: Value, target: Value, database: Database, *, full_is_gap: bool = False) -> bool:
    """Whether the rules do not lead from `source` to `target` within few steps.

    `full_is_gap` is the answer where saturation is given up before.
    """
    own = database.within([source, target])
    answers = (
        _is_explained(source, target, rules, steps)
        for rules, steps in ((own, STEPS), (database, STEPS_ASIDE))
    )
    return not any(not full_is_gap if answer is None else answer for answer in answers)


def _is_explained(source: Value, target: Value, database: Database, steps: int) -> bool | None:
    """Whether rules lead from one to the other; None where there are too many forms to tell."""
    search = Saturation(database, [source, target], max_nodes=MAX_NODES)
    pairs = [(source, target)]
    for number in range(steps + 1):
        if number:
            search.step()
        if search.has_met(pairs):
            return True
        if search.is_full:
            return None
    return False


@lru_cache(maxsize=2)
def database_of(text: str) -> Database:
    """The rules of a text, ready to be matched."""
    return Database.of(parse_rules(text))


def stanzas(texts: Iterable[str]) -> str:
    """Rules as one text, each under a name of its own."""
    return "\n".join(
        f"rule r{number}\n{text.partition(chr(10))[2]}" for number, text in enumerate(texts)
    )
