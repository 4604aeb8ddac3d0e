"""Small families and chunks that misbehave, for the tests of the generator's job.

As a program it runs one of two jobs, which a test kills: ``python small_jobs.py rules OUT`` or
``python small_jobs.py chunks FOLDER``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from xflow.generator import run
from xflow.generator.production import Production
from xflow.generator.report import Summary
from xflow.generator.runner.chunks import Chunk
from xflow.generator.runner.desk import Desk, Steps, complete, wait_for
from xflow.generator.runner.engine import Urgency
from xflow.generator.runner.journal import Journal
from xflow.generator.runner.local import LocalEngine
from xflow.generator.vocabulary import Family, Input, Vocabulary

GB = 10**9
X = "x"
SUMS = Vocabulary(
    "sums",
    (Input("x", X, "...", (5,)), Input("y", X, "...", (5,))),
    (Production("Add", (X, X), X), Production("Sub", (X, X), X), Production("Relu", (X,), X)),
    (0, 0, 0),
)
MATRICES = Vocabulary(
    "matrices",
    tuple(Input(name, X, "*B n m", (2, 4, 4)) for name in "abc"),
    (
        Production("MatMul", (X, X), X),
        Production("Relu", (X,), X),
        Production("Concat", (X, X), X, ({"axis": 1}, {"axis": 2})),
        Production("Transpose", (X,), X, ({"perm": (0, 2, 1)},)),
    ),
    (0, 0, 0),
    ranks=(0, 1, 2),
)
FAMILIES = (
    Family("elementwise", (SUMS,), about="sums"),
    Family("squares", (MATRICES, SUMS), about="matrices and, once more, sums"),
)


def generate_small(out: Path, **options: Any) -> Summary:
    """`generate` with two small families instead of the real ones."""
    return run.generate(out, max_ops=2, among=FAMILIES, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def entries(folder: Path) -> int:
    """How many chunks the journals in `folder` hold."""
    return sum(len(path.name) == 40 and path.is_file() for path in folder.rglob("*"))


class Plain(Chunk[Any]):
    """A chunk for the tests."""

    kind: ClassVar[str] = "test"

    @property
    def about(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class Logged(Plain):
    """Says in a file that it began, then takes a moment."""

    log: str
    number: int

    def run(self) -> int:
        with Path(self.log).open("a") as file:
            file.write(f"{self.number}\n")
        time.sleep(0.05)
        return self.number


@dataclass(frozen=True)
class Deadly(Plain):
    """Kills its process the first `times` times."""

    log: str
    times: int

    def run(self) -> str:
        path = Path(self.log)
        seen = len(path.read_text()) if path.exists() else 0
        if seen < self.times:
            path.write_text("x" * (seen + 1))
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"


@dataclass(frozen=True)
class Hungry(Plain):
    """Holds so many bytes for so many seconds."""

    size: int
    seconds: float
    number: int = 0

    def run(self) -> int:
        held = bytearray(self.size)
        held[::4096] = b"x" * len(held[::4096])
        time.sleep(self.seconds)
        return len(held)


@dataclass(frozen=True)
class Faulty(Plain):
    """Raises an exception."""

    def run(self) -> None:
        raise ValueError("no such luck")


def results(desk: Desk, chunks: list[Plain]) -> list[Any]:
    """The results of chunks, in order."""
    made: list[Any] = []

    def all_of_them() -> Steps[list[Any]]:
        tickets = [desk.ask(chunk, "tests", Urgency.NOW) for chunk in chunks]
        found = []
        for ticket in tickets:
            found.append((yield from wait_for(ticket)))
        return found

    complete(desk, {"tests": all_of_them()}, lambda _, found: made.extend(found))
    return made


def run_logged(folder: Path, chunks: int = 40) -> list[int]:
    """Run logged chunks on two workers, with a journal."""
    journal = Journal(folder / "journal")
    engine = LocalEngine(2, 4 * GB, journal.folder)
    try:
        log = str(folder / "log")
        return results(Desk(engine, 0, 0, journal), [Logged(log, i) for i in range(chunks)])
    finally:
        engine.close()


if __name__ == "__main__":
    if sys.argv[1] == "rules":
        generate_small(Path(sys.argv[2]), jobs=2)
    else:
        run_logged(Path(sys.argv[2]))
