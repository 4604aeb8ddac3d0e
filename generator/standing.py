"""The progress of a job: counts by family, memory, and an estimate of the seconds left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xflow.generator.derive import FamilyJob
from xflow.generator.runner.desk import Desk

INTERVAL_S = 0.2
"""Seconds between two reports at least."""


@dataclass(frozen=True)
class FamilyStanding:
    """The progress of one family: its counts so far, and what is left."""

    name: str
    counts: Counter[str]
    left: int
    """Proposals whose turn has not come, as far as they are known."""
    unexplored: int
    """Vocabularies of which the proposals are not known."""

    @property
    def done(self) -> int:
        """Proposals whose turn came, about."""
        counts = self.counts
        tried = counts["proved"] + counts["refuted"] + counts["unknown"]
        return counts["derived"] + counts["implausible"] + tried


@dataclass(frozen=True)
class Standing:
    """The progress of a job at one moment."""

    seconds: float
    """Since this run began."""
    seconds_left: float | None
    """An estimate, None as long as there is nothing to base it on."""
    memory: int
    """Largest number of bytes that all processes held together."""
    latest: str
    """The last thing that was done, for people."""
    families: tuple[FamilyStanding, ...]


Watch = Callable[[Standing], None]


class Observer:
    """Reports a job's progress to a `Watch`, at most every `INTERVAL_S` seconds."""

    def __init__(self, watch: Watch | None, desk: Desk, jobs: Sequence[FamilyJob]) -> None:
        self._watch = watch
        self._desk = desk
        self._jobs = jobs
        self._start = time.monotonic()
        self._told = 0.0

    def tell(self, latest: str, at_once: bool = False) -> None:
        """Report, unless the last report was less than `INTERVAL_S` ago and it is not `at_once`."""
        now = time.monotonic()
        if self._watch is None or (now - self._told < INTERVAL_S and not at_once):
            return
        self._told = now
        families = tuple(
            FamilyStanding(job.family.name, Counter(job.result.counts), job.left, job.unexplored)
            for job in self._jobs
        )
        left = self._left(families)
        memory = self._desk.engine.usage.peak_memory
        self._watch(Standing(now - self._start, left, memory, latest, families))

    def _left(self, families: Sequence[FamilyStanding]) -> float | None:
        """Seconds left, if what is left costs as much as what was done, on all workers.

        A family of which nothing was proved yet is taken to be like the others.
        """
        costs = {family.name: self._cost(family) for family in families}
        known = [cost for cost in costs.values() if cost is not None]
        explored = self._mean("enumerate")
        if not known or explored is None:
            return None
        usual = sum(known) / len(known)
        lined = sum(family.done + family.left for family in families)
        vocabularies = sum(len(job.family.vocabularies) for job in self._jobs)
        waiting = sum(family.unexplored for family in families)
        each = lined / max(1, vocabularies - waiting)
        seconds = 0.0
        for family in families:
            cost = costs[family.name]
            ahead = family.left + family.unexplored * each
            seconds += ahead * (usual if cost is None else cost)
        missing = vocabularies - self._count("enumerate")
        rules = sum(family.counts["proved"] for family in families) - self._count("numerics")
        seconds += max(0, missing) * explored
        seconds += max(0, rules) * (self._mean("numerics") or 0.0)
        return seconds / self._desk.engine.usage.workers

    def _cost(self, family: FamilyStanding) -> float | None:
        """Seconds of proof for each proposal whose turn came."""
        through = family.done
        seconds = self._desk.tallies[family.name, "prove"].seconds
        return seconds / through if through and seconds else None

    def _count(self, kind: str) -> int:
        return sum(tally.chunks for (_, of), tally in self._desk.tallies.items() if of == kind)

    def _mean(self, kind: str) -> float | None:
        seconds = sum(tally.seconds for (_, of), tally in self._desk.tallies.items() if of == kind)
        count = self._count(kind)
        return seconds / count if count else None
