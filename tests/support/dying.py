"""What processes of the verifier begin with, and run, to see what becomes of those that end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import z3

from xflow.verifier import database
from xflow.verifier.recheck.verdicts import Confirmed, RecheckVerdict


def failing(error: BaseException) -> Callable[..., Any]:
    """A function that raises an error, whatever it is given."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def kill_this_process(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def put_in_place_of_prove(function: Callable[..., Any]) -> None:
    """For the rest of a process."""
    vars(database)["prove"] = function


def dies_in_the_solver() -> None:
    z3.Solver.check = kill_this_process


def dies_in_a_proof() -> None:
    put_in_place_of_prove(kill_this_process)


def dies_at_once() -> None:
    kill_this_process()


def runs_out_of_memory() -> None:
    put_in_place_of_prove(failing(MemoryError()))


def leaves() -> None:
    put_in_place_of_prove(failing(SystemExit(0)))


def rechecks_some(text: str, path: Path) -> RecheckVerdict:
    """In place of the recheck of a rule: one without an end, one that ends its process."""
    del text
    if path.stem == "rows-reduced-twice":
        time.sleep(60)
    if path.stem == "two-pads-are-one":
        os._exit(1)
    if path.stem == "quotients-added":
        raise ArithmeticError("of a kind that cannot be foreseen")
    return Confirmed(7)
