"""Searches small graphs by the estimate alone, to see whether rules lead to an operator."""

import re
from collections.abc import Collection, Sequence

from xflow.core.deadline import Deadline
from xflow.cost.estimate import EstimatedCost
from xflow.onnx.imported import Imported
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.context import Context
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
        deadline=Deadline.after(60),
        constants=source.constants,
        context=Context(opset=23),
    )
