"""Processes that explore regions: they serve all searches of a run, and none depends on them."""

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graphs import call, tensor

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.deadline import Deadline
from xflow.core.graph import Graph
from xflow.cost.estimate import EstimatedCost, Estimator
from xflow.cost.target import TargetModel
from xflow.rewriting.index import RuleIndex, roots_of
from xflow.rewriting.text import parse_rules
from xflow.search import processes as processes_module
from xflow.search.context import DEFAULTS
from xflow.search.driver import search
from xflow.search.policy import POLICY
from xflow.search.processes import READY, SearchProcesses, rules_here
from xflow.search.processes import RULES as RULES_FILE

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


class Refusing(Executor):
    """One that can start so many processes and no more."""

    def __init__(self, most: int) -> None:
        self.left = most

    def submit(self, fn: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("a process died while it came up")
        return Future()


@pytest.mark.parametrize("most", [0, 1])
def test_where_not_all_processes_can_be_started_the_search_goes_on_without(most: int) -> None:
    pools: list[str] = []

    @contextmanager
    def pool(*_: object, **__: object) -> Iterator[Executor]:
        pools.append("started")
        yield Refusing(most)
        pools.append("ended")

    with SearchProcesses(RULES, 2, pool=pool) as processes:
        processes.start()
        assert processes.executor is None
        assert pools == ["started", "ended"]
        processes.settle()
        result = search(
            towers(),
            RULES,
            EstimatedCost(),
            deadline=Deadline.after(60.0),
            processes=processes,
        )
    assert len(result.replacements) == 2
    assert pools == ["started", "ended"], "it is not tried again and again"


def test_whoever_measures_can_wait_until_they_have_read_their_rules() -> None:
    with SearchProcesses(RULES, 2) as processes:
        processes.start()
        assert processes.executor is not None
        processes.settle()
        # Both, though one of them may have done what either was asked to.
        folder = processes.folder
        assert folder is not None
        assert len(list(folder.glob(f"*{READY}"))) == 2


class Hanging(Executor):
    """One whose processes never come up."""

    def submit(self, fn: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
        return Future()


@pytest.mark.parametrize("started", [True, False])
def test_until_they_are_up_regions_are_explored_without_them(started: bool) -> None:
    """As on a busy machine, where they may come up only when all is over."""
    with SearchProcesses(RULES, 2, pool=lambda *_, **__: nullcontext(Hanging())) as processes:
        if started:
            processes.start()
        result = search(
            towers(), RULES, EstimatedCost(), deadline=Deadline.after(60.0), processes=processes
        )
        assert (processes.executor is not None) == started, "for so little there is no need"
    assert len(result.replacements) == 2


def test_nobody_waits_for_them_longer_than_there_is_time() -> None:
    with SearchProcesses(RULES, 2, pool=lambda *_, **__: nullcontext(Hanging())) as processes:
        processes.start()
        limit = Deadline.after(0.05)
        processes.settle(limit)
        assert limit.passed
        processes.settle()  # and not once more


def test_a_process_is_ready_once_it_has_read_its_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes_module, "_rules", [])
    (tmp_path / RULES_FILE).write_bytes(pickle.dumps(tuple(RULES)))
    processes_module._begin(tmp_path)
    assert {op.name for op, _ in rules_here()._single} == {"Relu", "Transpose"}
    assert len(list(tmp_path.glob(f"*{READY}"))) == 1


def test_one_process_is_the_one_that_asks() -> None:
    with SearchProcesses(RULES, 1) as processes:
        processes.start()
        assert processes.executor is None


def test_rules_are_read_by_the_names_and_ranks_of_their_roots() -> None:
    index = RuleIndex(RULES)
    assert index.roots == {"Relu", "Transpose"}
    assert not index._single
    index.read_at(roots_of(towers()))
    assert {op.name for op, _ in index._single} == index.roots
