"""Rules made of two sides."""

from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules


def one(inputs: str, left: str, right: str, more: str = "") -> Rule:
    """The rule that two sides are equal, with `more` lines of its stanza."""
    (rule,) = parse_rules(f"rule r\n  in {inputs}\n  from {left}\n  to {right}\n{more}")
    return rule
