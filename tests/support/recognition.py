"""Searches small graphs by the estimate alone, to see whether rules lead to an operator."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from xflow.core.deadline import Deadline
from xflow.core.graph import Graph
from xflow.core.registry import Operator
from xflow.cost.estimate import EstimatedCost
from xflow.onnx.imported import Imported
from xflow.rewriting.rule import Rule
from xflow.search.context import Context
from xflow.search.driver import SearchResult, search
from xflow.search.policy import POLICY

SECONDS = 60.0


def searched(
    source: Imported,
    rules: Sequence[Rule],
    cost: EstimatedCost | None = None,
    work: float = 0.25,
    opset: int = 23,
) -> SearchResult:
    """The result of a search by a part of a minute's work, within a minute on a busy machine."""
    return search(
        source.graph,
        rules,
        cost or EstimatedCost(),
        deadline=Deadline.after(SECONDS),
        constants=source.constants,
        context=Context(replace(POLICY, work_per_s=work * POLICY.work_per_s), opset=opset),
    )


def computed(graph: Graph) -> Counter[str]:
    """The operators that depend on inputs."""
    return Counter(
        node.op.name for node in graph.nodes if isinstance(node.op, Operator) and not node.constant
    )
