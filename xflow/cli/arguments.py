"""Readers of argument values, and the options that several commands share."""

import argparse
import contextlib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from xflow.core.errors import UsageError

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
        shape = (-1,)
    if not colon or not name or any(size < 0 for size in shape):
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


def add_rules(add: Add, otherwise: str = "those that come with xflow") -> None:
    """Add `--rules`; `otherwise` says which are meant without it."""
    add("--rules", metavar="DIR", help=f"folder of rules ({otherwise})")


def rules_folder(text: str | None) -> Path:
    """The folder of rules that was given, or the one that comes with the program."""
    from xflow.rewriting import store  # noqa: PLC0415 - so that --help is instant

    return store.default_directory() if text is None else Path(text)


def add_jobs(add: Add) -> None:
    """Add `--jobs`."""
    add("--jobs", type=count, metavar="N", help="processes (physical cores)")


def add_memory(add: Add) -> None:
    """Add `--max-memory`."""
    help = "all together, as 12GB (3/4 of what is)"
    add("--max-memory", type=byte_size, metavar="SIZE", help=help)


def add_names(add: Add, flag: str, what: str) -> None:
    """Add an option that takes names, and may be given again."""
    add(flag, nargs="+", action="extend", default=[], metavar="NAME", help=what)


def add_comparison(add: Add) -> None:
    """Add the options on how models are run and compared."""
    add_threads(add)
    add_provider(add)
    add_input_shapes(add, ", also for one input: faster at one, slower at none")
    add_tolerances(add)
    add_seed(add)


def add_equation(add: Add) -> None:
    """Add the arguments that state an equation, on the command line or in files."""
    add("texts", nargs="*", metavar="LEFT RIGHT | FILE", help="two sides, or files of rules")
    add("--in", dest="inputs", metavar="INPUTS", help="as in 'x[N, C, *S] y[...] c[n]:bool'")
    several = {"action": "append", "default": []}
    add("--param", metavar="NAMES", help="symbols in attributes: 's *p eps:real'", **several)
    add("--where", metavar="CONDITION", help="what is given; repeatable", **several)
    add("--rank", metavar="N", help="lengths of the starred vectors: '1 2 3'", **several)
    add("--types", metavar="TYPES", help="reals; reals, integers; or any (reals)")


def input_settings(
    given: Sequence[tuple[str, tuple[int, ...]]],
) -> list[dict[str, tuple[int, ...]]]:
    """The settings of the input shapes: the k-th shape of each input belongs to the k-th setting.

    An input that is given one shape has it in all settings.
    """
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for name, shape in given:
        shapes.setdefault(name, []).append(shape)
    number = max(map(len, shapes.values()), default=1)
    for name, several in shapes.items():
        if len(several) not in (1, number):
            most = next(other for other, item in shapes.items() if len(item) == number)
            raise UsageError(
                f"--input-shapes gives {name!r} {len(several)} shapes and {most!r} {number}",
                do="give each input one shape, or one for every setting",
            )
    return [
        {name: several[k if len(several) > 1 else 0] for name, several in shapes.items()}
        for k in range(number)
    ]
