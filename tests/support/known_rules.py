"""Rules of the database, found by what they say: their names follow from their neighbours'."""

from functools import cache

from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules


@cache
def saying(lhs: str, rhs: str, note: str = "") -> Rule:
    """The first rule with these two sides, and with a note that contains `note`."""
    return next(
        rule
        for rule in load_rules(default_directory())
        if (rule.lhs, rule.rhs) == (lhs, rhs)
        and (not note or any(note in text for text in rule.notes.values()))
    )
