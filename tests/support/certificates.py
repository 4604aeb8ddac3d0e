"""Certificates made by hand."""

from typing import Any

from xflow.core.graph import requirements
from xflow.rewriting.rule import Rule
from xflow.verifier.recheck.check import assumptions, statement_of

Data = dict[str, Any]


def bare(rule: Rule) -> Data:
    """A certificate that claims everything and records nothing."""
    ranks = [
        {
            "rank": instance.rank,
            "assume": [str(c) for c in assumptions(instance)],
            "require": [str(c) for c in requirements(instance.rhs)],
            "outputs": [{"same expression": "x"} for _ in instance.lhs],
        }
        for instance in rule.instances()
    ]
    return statement_of(rule) | {"ranks": ranks}
