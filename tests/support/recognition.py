"""Searches small graphs by the estimate alone, to see whether rules lead to an operator."""

import re
import time
from collections.abc import Collection, Sequence

from xflow.cost.estimate import EstimatedCost
from xflow.onnx.importer import Imported
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.driver import SearchResult, search


def rules_of(operators: Collection[str]) -> list[Rule]:
    """The rules that have these operators alone. All others lead elsewhere, and cost time."""
    return [
        rule
        for rule in load_rules(default_directory())
        if set(re.findall(r"([A-Z]\w+)\(", f"{rule.lhs} {rule.rhs}")) <= set(operators)
    ]


def searched(
    source: Imported, rules: Sequence[Rule], cost: EstimatedCost | None = None
) -> SearchResult:
    """The result of a search among the operators of opset 23."""
    return search(
        source.graph,
        rules,
        cost or EstimatedCost(),
        deadline=time.monotonic() + 60,
        constants=source.constants,
        opset=23,
    )
