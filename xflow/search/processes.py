"""The processes that explore regions, for all searches of a run.

A search of a few seconds would be over before they are up, so that a run starts them before it
loads its model, and tells them what to read as soon as it knows the model's operators.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import product
from pathlib import Path

from xflow.core.graph import Graph
from xflow.core.processes import process_pool
from xflow.rewriting.index import RuleIndex, roots_of
from xflow.rewriting.rule import Rule
from xflow.search.policy import POLICY


class SearchProcesses:
    """Up to `count` processes, which have the rules; none before they are started.

    They end with the block of a `with` statement.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        count: int = 1,
        *,
        pool: Callable[..., AbstractContextManager[Executor]] = process_pool,
    ) -> None:
        self.rules = tuple(rules)
        self.count = min(count, POLICY.processes)
        self.executor: Executor | None = None
        """The processes, once they are started."""
        self._pool = pool
        self._exit = ExitStack()

    def __enter__(self) -> SearchProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, of which nothing is lost but what they have read."""
        self.executor = None
        self._exit.close()

    def start(self) -> None:
        """Have the processes started, which come up while the caller goes on.

        Where that fails, or there would be a single one, there are none.
        """
        if self.executor is not None or self.count < 2:
            return
        with suppress(OSError):
            # In a file: a pipe takes so much only once the process at its other end reads it.
            folder = self._exit.enter_context(tempfile.TemporaryDirectory(prefix="xflow-"))
            rules = Path(folder, "rules")
            rules.write_bytes(pickle.dumps(self.rules))
            executor = self._exit.enter_context(
                self._pool(self.count, timeout=POLICY.idle_s, initializer=_begin, initargs=(rules,))
            )
            for _ in range(self.count):
                executor.submit(_up)
            self.executor = executor

    def expect(self, graph: Graph) -> None:
        """Have the processes, where they are started, read the rules that a graph may need.

        These are those for its operators, and then all at the ranks of its tensors: rewrites bring
        in most of the operators that there are rules for.
        """
        if self.executor is not None:
            roots = roots_of(graph)
            ranks = {rank for _, rank in roots}
            with suppress(OSError, RuntimeError):  # they read them when they need them
                for _ in range(self.count):
                    self.executor.submit(_read, roots)
                for _ in range(self.count):
                    self.executor.submit(_read_all, ranks)


_rules: list[RuleIndex] = []
"""The rules of this process, once it is prepared."""


def rules_here() -> RuleIndex:
    """The rules of this process, which is one of `SearchProcesses`."""
    (index,) = _rules
    return index


def _begin(rules: Path) -> None:
    """Prepare a process."""
    _rules[:] = [RuleIndex(pickle.loads(rules.read_bytes()))]


def _up() -> None:
    """Nothing, for which a process has to be there."""


def _read(roots: Sequence[tuple[str, int]]) -> None:
    rules_here().read_at(roots)


def _read_all(ranks: Collection[int]) -> None:
    index = rules_here()
    index.read_at(product(index.roots, ranks))
