"""What arguments may look like, and the options that several commands share."""

import argparse
import contextlib
import math
import re
from collections.abc import Callable
from typing import TypeVar

Add = Callable[..., object]
"""The method `add_argument` of a parser."""

_Number = TypeVar("_Number", int, float)


def _number(
    kind: type[_Number], what: str, accept: Callable[[_Number], bool]
) -> Callable[[str], _Number]:
    """Return a reader of arguments that are a finite `kind` and that `accept` takes."""

    def read(text: str) -> _Number:
        with contextlib.suppress(ValueError):
            value = kind(text)
            if math.isfinite(value) and accept(value):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return read


positive = _number(float, "a positive number", lambda value: value > 0)
tolerance = _number(float, "a number that is not negative", lambda value: value >= 0)
count = _number(int, "a positive whole number", lambda value: value > 0)
seed = _number(int, "a whole number that is not negative", lambda value: value >= 0)

_UNITS = {
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(("", "K", "M", "G", "T"))},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}


def byte_size(text: str) -> int:
    """Return the bytes of `12GB`, `1.5GiB` or `800MB`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?i?B)", text.strip(), re.IGNORECASE)
    units = {name.lower(): factor for name, factor in _UNITS.items()}
    if match is None or match[2].lower() not in units or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 12GB")
    return int(float(match[1]) * units[match[2].lower()])


def input_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return (name, sizes) of `NAME:1,3,224,224`; the name itself may hold colons."""
    name, colon, sizes = text.rpartition(":")
    try:
        shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
    except ValueError:
        shape = (0,)
    if not colon or not name or any(size < 1 for size in shape):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME:1,3,224,224")
    return name, shape


def add_threads(add: Add, what: str = "of the runtime") -> None:
    """Add `--threads`."""
    add("--threads", type=count, metavar="N", help=f"{what} (physical cores)")


def add_provider(add: Add) -> None:
    """Add `--provider`."""
    add("--provider", choices=("cpu", "cuda"), default="cpu", help="what runs the model (cpu)")


def add_input_shapes(add: Add, several: str = "") -> None:
    """Add `--input-shapes`; `several` says what more than one shape of an input means."""
    add(
        "--input-shapes",
        type=input_shape,
        action="append",
        default=[],
        metavar="NAME:1,3,224,224",
        help=f"sizes of an input; repeatable{several}",
    )


def add_inputs(add: Add, what: str) -> None:
    """Add `--inputs`; `what` is done on them."""
    add(
        "--inputs",
        action="append",
        default=[],
        metavar="FILE.npz|DIR",
        help=f"real inputs to {what} on, besides random ones; repeatable",
    )


def add_tolerances(add: Add) -> None:
    """Add `--rtol` and `--atol`."""
    add("--rtol", type=tolerance, default=1e-3, metavar="X", help="relative tolerance (1e-3)")
    add(
        "--atol",
        type=tolerance,
        default=1e-5,
        metavar="X",
        help="tolerance for what is near zero, less for outputs below 1 (1e-5)",
    )


def add_seed(add: Add, what: str = "of everything random") -> None:
    """Add `--seed`."""
    add("--seed", type=seed, default=0, metavar="N", help=f"{what} (0)")
