"""Functions with which tests start processes of the verifier that then fail or end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import z3

from xflow.verifier import database


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
