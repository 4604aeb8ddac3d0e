"""Processes that explore regions: they serve all searches of a run, and none depends on them."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from graphs import call, tensor

from xflow.core.deadline import Deadline
from xflow.core.graph import Graph
from xflow.cost.estimate import EstimatedCost, Estimator
from xflow.cost.target import TargetModel
from xflow.ops import operator
from xflow.rewriting.index import RuleIndex, roots_of
from xflow.rewriting.text import parse_rules
from xflow.search.context import DEFAULTS
from xflow.search.driver import search
from xflow.search.policy import POLICY
from xflow.search.processes import SearchProcesses

RULES = parse_rules("""
rule relu-relu-to-relu
  in       x[...]
  from     Relu(Relu(x))
  to       Relu(x)

rule relu-transpose-transpose-to-relu
  in       x[N, M]
  from     Transpose(Relu(Transpose(x, perm=[1, 0])), perm=[1, 0])
  to       Relu(x)
""")


def towers() -> Graph:
    """Regions that are explored by themselves, two kinds of them, and what either kind needs."""
    x, y = tensor("x", 2, 3), tensor("y", 5, 7)
    turned = call("Transpose", call("Relu", call("Transpose", x, perm=(1, 0))), perm=(1, 0))
    return Graph((turned, call("Relu", call("Relu", y))))


@pytest.fixture(scope="module")
def processes() -> Iterator[SearchProcesses]:
    with SearchProcesses(RULES, 2) as started:
        started.start()
        yield started


def test_all_searches_of_a_run_have_the_same_processes(processes: SearchProcesses) -> None:
    graph, executor = towers(), processes.executor
    processes.expect(graph)
    assert executor is not None
    # Each search has its own cost and policy, which the processes must not mix up.
    found: set[int] = set()
    costs = [EstimatedCost(Estimator(TargetModel(threads=threads), {})) for threads in (1, 8)]
    for cost in costs:
        for policy in (POLICY, replace(POLICY, least_gain=10.0), replace(POLICY, expansions=0)):
            context = replace(DEFAULTS, policy=policy)
            alone, together = (
                search(
                    graph,
                    RULES,
                    cost,
                    deadline=Deadline.after(60.0),
                    context=context,
                    processes=how,
                )
                for how in (1, processes)
            )
            assert together.graph == alone.graph
            assert together.replacements == alone.replacements
            found.add(len(together.replacements))
    assert found == {0, 1, 2}
    assert processes.executor is executor


def test_a_search_with_other_rules_does_not_ask_them(processes: SearchProcesses) -> None:
    graph = towers()
    result = search(
        graph,
        RULES[:1],
        EstimatedCost(),
        deadline=Deadline.after(60.0),
        processes=processes,
    )
    assert {name for item in result.replacements for name in item.rules} == {"relu-relu-to-relu"}


def test_where_no_process_can_be_started_the_search_goes_on_without() -> None:
    @contextmanager
    def refused(*_: object, **__: object) -> Iterator[Executor]:
        raise BlockingIOError("the system has no room for another process")
        yield

    with SearchProcesses(RULES, 2, pool=refused) as processes:
        processes.start()
        assert processes.executor is None
        processes.expect(towers())
        result = search(
            towers(),
            RULES,
            EstimatedCost(),
            deadline=Deadline.after(60.0),
            processes=processes,
        )
    assert len(result.replacements) == 2


def test_one_process_is_the_one_that_asks() -> None:
    with SearchProcesses(RULES, 1) as processes:
        processes.start()
        assert processes.executor is None


def test_rules_are_read_by_the_names_and_ranks_of_their_roots() -> None:
    index = RuleIndex(RULES)
    assert index.roots == {"Relu", "Transpose"}
    index.read_at(roots_of(towers()))
    read = RuleIndex(RULES)
    read.read(towers())
    for name in index.roots:
        found = [{entry.name for entry in each.single(operator(name), 2)} for each in (index, read)]
        assert found[0] == found[1] != set()
