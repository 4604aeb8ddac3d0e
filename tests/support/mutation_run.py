"""The mutation run: what becomes of the mutants of every rule, in processes with a limit of time.

It mutates every rule of the database and of the corpora of true rules in all ways, and prints the
counts. There are hundreds of thousands of mutants. So there are rounds: each rule first gets a few
mutants, of different kinds of steps, which takes in every rule early; then some more, and all
others last. What is done is noted in a journal: a run that was interrupted goes on, unless the
prover, the operators or the rule changed.

    python tests/support/mutation_run.py [--jobs N] [--limit SECONDS] [--minutes N] [--journal FILE]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from mutate import HOLES, Judgement, Outcome, hand_picked, in_turn, is_typed, judge
from places import SUPPORT, TESTS

from xflow.rewriting.rule import Rule
from xflow.rewriting.store import load_rules

JOURNAL = TESTS.parent / ".mutation" / "journal.jsonl"

ROUNDS = (0, 2, 12, 10**9)
"""Between which numbers the mutants of a rule lie that are judged in a round, ill-typed ones not
counted."""

LIMIT = 10.0
"""Seconds for one mutant."""

RULES_OF_A_PROCESS = 200
"""Then a fresh one takes its place, since the solver's memory grows."""

START = 30.0
"""Seconds that a process has to come up."""

CONTEXT: Any = get_context("spawn")
"""Fresh processes: a forked solver would share state with its parent."""

PROVED = "proved"
"""The message of a process that a mutant is proved and not confirmed yet."""

MAX_DEATHS = 3
"""Processes that may die before one sends anything."""


@dataclass(frozen=True)
class Part:
    """The mutants of a rule that are judged in one round."""

    rule: Rule
    number: int

    def judged(
        self, skip: int = 0, tell_proved: Callable[[], None] = lambda: None
    ) -> Iterator[Judgement]:
        """Judge them one after the other, from that with the number `skip` on."""
        start, stop = ROUNDS[self.number : self.number + 2]
        well_typed = place = 0
        for mutant in in_turn(self.rule):
            if well_typed >= stop:
                break
            is_here, typed = well_typed >= start, is_typed(mutant.rule)
            well_typed += typed
            place += is_here
            if is_here and place > skip:
                if typed:
                    yield judge(mutant, tell_proved)
                else:
                    yield Judgement(mutant, Outcome.ILL_TYPED)


@dataclass
class Tally:
    """The outcomes of the mutants of one part; `holes` are those that are failures."""

    counts: Counter[Outcome] = field(default_factory=Counter)
    holes: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome, text: str) -> None:
        """Count one mutant."""
        self.counts[outcome] += 1
        if outcome in HOLES:
            self.holes.append(text)


class Journal:
    """The results of earlier runs: a line of JSON in a file for each part of a rule."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._prover = _digest_of_sources()
        self._known: dict[str, Tally] = {}
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # cut short by the end of a run
            counts = Counter({Outcome(name): n for name, n in entry["counts"].items()})
            self._known[entry["key"]] = Tally(counts, entry["holes"])

    def __getitem__(self, part: Part) -> Tally | None:
        return self._known.get(self._key(part))

    def __setitem__(self, part: Part, tally: Tally) -> None:
        self._known[self._key(part)] = tally
        counts = {outcome.value: n for outcome, n in tally.counts.items()}
        entry = {"key": self._key(part), "counts": counts, "holes": tally.holes}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(entry)}\n")  # the last line may have been cut short

    def _key(self, part: Part) -> str:
        bounds = ROUNDS[part.number : part.number + 2]
        text = f"{self._prover} {bounds}\n{replace(part.rule, notes={})}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _digest_of_sources() -> str:
    """A digest of the sources that make, read and prove mutants, on which the judgement depends."""
    root = TESTS.parent
    paths = [SUPPORT / "mutate.py"]
    for pattern in ("verifier/**", "xflow/core", "xflow/ops", "xflow/rewriting"):
        paths += root.glob(f"{pattern}/*.py")
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if "recheck" not in path.parts):
        digest.update(path.read_bytes())
    return digest.hexdigest()


# Processes


def _work(connection: Connection) -> None:
    """Judge the parts that come, and send each outcome as soon as it is there."""
    while (task := connection.recv()) is not None:
        part, skip = task
        for judged in part.judged(skip, lambda: connection.send(PROVED)):
            connection.send((judged.outcome, str(judged) if judged.outcome in HOLES else ""))
        connection.send(None)


class Worker:
    """A process that judges one part after the other; one that takes too long is replaced.

    A fresh process and not an exception in it: the solver would be left in the middle of something.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._start()
        self._deaths = 0
        self._proved = False
        self.part: Part | None = None
        self.tally = Tally()

    def _start(self) -> None:
        self.connection, other = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_work, args=(other,), daemon=True)
        self._process.start()
        other.close()
        self._parts = 0

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self.connection.close()

    def take(self, part: Part) -> None:
        """Begin with a part."""
        if self._parts >= RULES_OF_A_PROCESS:
            self.stop()
            self._start()
        self._parts += 1
        self.part, self.tally = part, Tally()
        self._send(0)

    def _send(self, skip: int) -> None:
        self.connection.send((self.part, skip))
        self.deadline = time.monotonic() + self._limit + (START if self._parts <= 1 else 0)

    def receive(self) -> Tally | None:
        """Take what the process sends; the tally when that was all."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError) as error:
            self._deaths += 1
            if self._deaths > MAX_DEATHS:
                raise RuntimeError("the processes that judge die one after the other") from error
            self.cut_off()
            return None
        self._deaths = 0
        self.deadline = time.monotonic() + self._limit
        self._proved = message == PROVED
        if self._proved:
            return None
        if message is None:
            self.part = None
            return self.tally
        self.tally.add(*message)
        return None

    def cut_off(self) -> None:
        """Give up the mutant at hand, and go on with the next one in another process."""
        assert self.part is not None
        outcome = Outcome.UNCONFIRMED if self._proved else Outcome.CUT_OFF
        which = f"mutant {self.tally.counts.total()} of round {self.part.number}"
        self.tally.add(outcome, f"{outcome.value}: cut off, {which} of\n{self.part.rule}")
        self._proved = False
        self.stop()
        self._start()
        self._parts = 1
        self._send(self.tally.counts.total())


# The run


@dataclass
class Report:
    """The outcomes of the mutants of all parts that were judged."""

    limit: float
    judged: list[tuple[Part, Tally]] = field(default_factory=list)

    @property
    def counts(self) -> Counter[Outcome]:
        """The number of mutants by outcome."""
        return sum((tally.counts for _, tally in self.judged), Counter())

    def reached(self, rules: Sequence[Rule]) -> int:
        """How many of `rules` have a well-typed mutant that was judged."""
        reached = {
            str(part.rule)
            for part, tally in self.judged
            if tally.counts.total() > tally.counts[Outcome.ILL_TYPED]
        }
        return sum(str(rule) in reached for rule in rules)

    def __str__(self) -> str:
        counts = self.counts
        parts = [f"{counts[outcome]:,} {outcome.value}" for outcome in Outcome]
        return f"{counts.total():,} mutants: {', '.join(parts)}"

    def summary(self) -> str:
        """The counts, and of how many rules."""
        rules, picked = load_rules(TESTS.parent / "rules"), hand_picked()
        return (
            f"{self}\n"
            f"of {self.reached(rules):,} of {len(rules):,} rules of the database and "
            f"{self.reached(picked):,} of {len(picked):,} hand-picked equations; "
            f"cut off after {self.limit:g} s each"
        )


def run(
    rules: Sequence[Rule],
    jobs: int,
    journal: Journal | None = None,
    *,
    limit: float = LIMIT,
    seconds: float = float("inf"),
) -> Report:
    """Judge mutants of `rules` for `seconds`, until all are done; failures are printed.

    The rules are taken in a random order, so that what is done at any moment is a sample of all.
    """
    end = time.monotonic() + seconds
    report = Report(limit)
    waiting: deque[Part] = deque()
    shuffled = random.Random(0).sample(rules, len(rules))
    parts = [Part(rule, number) for number in range(len(ROUNDS) - 1) for rule in shuffled]
    for part in parts:
        known = None if journal is None else journal[part]
        if known is None:
            waiting.append(part)
        else:
            report.judged.append((part, known))
    workers = [Worker(limit) for _ in range(min(jobs, len(waiting)))]
    try:
        while time.monotonic() < end:
            for worker in workers:
                if worker.part is None and waiting:
                    worker.take(waiting.popleft())
            busy = [worker for worker in workers if worker.part is not None]
            if not busy:
                break
            for worker in _ready(busy):
                at_hand, tally = worker.part, worker.receive()
                if at_hand is not None and tally is not None:
                    report.judged.append((at_hand, tally))
                    if journal is not None:
                        journal[at_hand] = tally
                    if len(report.judged) % 100 == 0:
                        done = f"{len(report.judged):,} of {len(parts):,} parts"
                        print(f"{done}: {report}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted; the next run goes on from here", file=sys.stderr)
    finally:
        for worker in workers:
            worker.stop()
    for _, tally in report.judged:
        for hole in tally.holes:
            print(hole, flush=True)
    return report


def _ready(workers: Sequence[Worker]) -> list[Worker]:
    """Those that have sent something; those whose time is over are told to go on."""
    now = time.monotonic()
    soonest = min(worker.deadline for worker in workers)
    ready = wait([worker.connection for worker in workers], timeout=max(0.0, soonest - now))
    for worker in workers:
        if worker.connection not in ready and worker.deadline <= time.monotonic():
            worker.cut_off()
    return [worker for worker in workers if worker.connection in ready]


def cores() -> int:
    """The number of processes that run at once."""
    return os.cpu_count() or 1


def main() -> int:
    """Mutate every rule in all ways; 1 if a mutant is proved and not confirmed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--jobs", type=int, default=cores(), help="processes (all cores)")
    add("--limit", type=float, default=LIMIT, help="seconds for one mutant (%(default)g)")
    add("--minutes", type=float, default=float("inf"), help="stop after that (never)")
    add("--journal", type=Path, default=JOURNAL, help="what is done (%(default)s)")
    options = parser.parse_args()
    rules = load_rules(TESTS.parent / "rules") + hand_picked()
    journal = Journal(options.journal)
    report = run(rules, options.jobs, journal, limit=options.limit, seconds=60 * options.minutes)
    print(report.summary())
    return 1 if any(report.counts[outcome] for outcome in HOLES) else 0


if __name__ == "__main__":
    raise SystemExit(main())
