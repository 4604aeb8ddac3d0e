"""The processes that explore regions, for all searches of a run.

A search of a few seconds would be over before they are up and have read their rules, so that a run
starts them before it loads its model.
"""

from __future__ import annotations

import gc
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from pathlib import Path

from xflow.core.deadline import NEVER, Deadline
from xflow.core.processes import process_pool
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.rule import Rule
from xflow.search.policy import POLICY, Policy

RANKS = (2, 3, 4)
"""Ranks at which rules are read at once: those of nearly all tensors. Rewrites bring in most of the
operators that there are rules for, so that few are read in vain."""
RULES, READY = "rules", ".ready"
"""The name of the file of the rules, and the end of those by which processes say they are ready."""
LOOKS_S = 0.01
"""Seconds between two looks at whether all are ready."""
SETTLING_S = 10.0
"""Most seconds for which they are waited for."""


class SearchProcesses:
    """Up to `count` processes, which have the rules; none before they are started.

    They end with the block of a `with` statement.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        count: int = 1,
        policy: Policy = POLICY,
        *,
        pool: Callable[..., AbstractContextManager[Executor]] = process_pool,
    ) -> None:
        self.rules = tuple(rules)
        self.count = min(count, policy.processes)
        self.executor: Executor | None = None
        """The processes, once they are started."""
        self._idle_s = policy.idle_s
        self._pool = pool
        self._exit = ExitStack()
        self.folder: Path | None = None
        """Where the rules are, and where processes say that they have read them."""
        self._coming: Sequence[Future[None]] = ()
        """What is done once they are there; nothing where nobody has to wait for them."""

    def __enter__(self) -> SearchProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, of which nothing is lost but what they have read."""
        self.executor = self.folder = None
        self._coming = ()
        self._exit.close()

    def give_up(self) -> None:
        """Do without processes, now and later: something forbids them."""
        self.close()
        self.count = 1

    def start(self) -> None:
        """Have the processes started, which come up while the caller goes on.

        There are none where there would be a single one; where it fails, it is given up.
        """
        if self.executor is not None or self.count < 2:
            return
        try:
            # In a file: a pipe takes so much only once the process at its other end reads it.
            folder = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="xflow-")))
            (folder / RULES).write_bytes(pickle.dumps(self.rules))
            executor = self._exit.enter_context(
                self._pool(self.count, timeout=self._idle_s, initializer=_begin, initargs=(folder,))
            )
            self._coming = [executor.submit(_up) for _ in range(self.count)]
        except Exception:  # whatever forbids it, as a limit of the system: they only save time
            self.give_up()
        else:
            self.executor, self.folder = executor, folder

    @property
    def are_up(self) -> bool:
        """Whether at least one of the processes has read its rules."""
        if self.executor is None:
            return False
        # A process does no job before that.
        return not self._coming or any(each.done() for each in self._coming)

    def settle(self, deadline: Deadline = NEVER) -> None:
        """Wait until no process reads rules: what is timed next would take longer beside that."""
        until = min(deadline, Deadline.after(SETTLING_S))
        while self._coming and self.folder is not None and not until.passed:
            # Not whether the jobs are done: one process may do those of all.
            ready = len(list(self.folder.glob(f"*{READY}"))) >= self.count
            if ready or any(each.done() and each.exception() for each in self._coming):
                break
            time.sleep(LOOKS_S)
        self._coming = ()


_rules: list[RuleIndex] = []
"""The rules of this process, once it is prepared."""


def rules_here() -> RuleIndex:
    """The rules of this process, which is one of `SearchProcesses`."""
    (index,) = _rules
    return index


def _begin(folder: Path) -> None:
    """Prepare a process."""
    index = RuleIndex(pickle.loads((folder / RULES).read_bytes()))
    index.read_at(product(sorted(index.roots), RANKS))
    _rules[:] = [index]
    gc.freeze()  # they stay: the collector need not walk them again and again
    (folder / f"{os.getpid()}{READY}").touch()


def _up() -> None:
    """Nothing, for which a process has to be there."""
