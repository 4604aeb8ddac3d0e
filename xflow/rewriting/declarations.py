"""The inputs and parameters of a rule as its text declares them, and the names in these."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from xflow.core.errors import RuleFileError
from xflow.core.expressions import expression, shortened
from xflow.core.sorts import BOOL, CODE, INT, REAL

RESERVED = ("axis", "any", "inf", "finite")
"""Names that mean something else in a rule."""

SORT_NAMES = {None: REAL, "real": REAL, "bool": BOOL, "int": INT, "code": CODE}
"""How inputs say what their elements are."""

SUFFIXES = {sort: f":{name}" for name, sort in SORT_NAMES.items()} | {REAL: ""}
"""How an input of each sort is written."""

_INPUT = re.compile(r"([A-Za-z]\w*)\s*\[([^\]]*)\](?::(\w+))?\s*")


def parse_sorts(text: str) -> dict[str, str]:
    """The sort of each input in ``x[N, *S] c[...]:bool``."""
    sorts: dict[str, str] = {}
    for match in _INPUT.finditer(text):
        name, _, sort = match.groups()
        if sort not in SORT_NAMES:
            raise RuleFileError(f"{sort!r} is no sort", do="write :bool, :int, :code or nothing")
        sorts[name] = SORT_NAMES[sort]
    return sorts


Declared: TypeAlias = tuple[tuple[str, tuple[ast.expr, ...] | None], ...]
"""Inputs: the name and the dimensions of each, None for any."""


@cache
def parse_inputs(text: str) -> Declared:
    """``x[N, *S] y[...]`` as pairs of a name and its dimensions (None for ``...``)."""
    inputs: list[tuple[str, tuple[ast.expr, ...] | None]] = []
    rest = text.strip()
    while rest:
        match = _INPUT.match(rest)
        if match is None:
            raise RuleFileError(f"{shortened(rest)!r} is no input", do="write name[dims]")
        name, dims, _ = match.groups()
        if dims.strip() == "...":
            inputs.append((name, None))
        else:
            tree = expression(f"[{dims}]")
            if not isinstance(tree, ast.List):
                raise RuleFileError(f"[{shortened(dims)}] are no dimensions")
            inputs.append((name, tuple(tree.elts)))
        rest = rest[match.end() :]
    return tuple(inputs)


@dataclass(frozen=True)
class Names:
    """The names that a rule declares for sizes: single ones, vectors, and reals."""

    scalars: frozenset[str]
    vectors: frozenset[str]
    reals: frozenset[str]


def declared_names(inputs: Declared, params: str) -> Names:
    """The names that a rule with these inputs and parameters declares. Raises RuleFileError."""
    scalars: set[str] = set()
    vectors: set[str] = set()
    reals: set[str] = set()
    for param in params.split():
        if param.startswith("*"):
            vectors.add(param[1:])
        elif param.endswith(":real"):
            reals.add(param.removesuffix(":real"))
        else:
            scalars.add(param)
    for _, dims in inputs:
        for dim in dims or ():
            inside = dim.value if isinstance(dim, ast.Starred) else dim
            found = {node.id for node in ast.walk(inside) if isinstance(node, ast.Name)}
            if isinstance(dim, ast.Starred):
                vectors |= found - scalars - {"axis"}
            else:
                scalars |= found - vectors
    everything = sorted((*scalars, *vectors, *reals))
    for name in everything:
        # `any` is the axis of ANY_SHAPE, and v_0, v_1, ... are the elements of a vector v.
        stem = re.fullmatch(r"(.*)_\d+", name)
        if name.startswith("_") or name in RESERVED or (stem and stem.group(1) in vectors):
            raise RuleFileError(f"the name {name} is reserved")
        if everything.count(name) > 1 or params.split().count(name) > 1:
            raise RuleFileError(f"{name} is declared twice")
    for name in sorted(reals & {name for name, _ in inputs}):  # conditions name both alike
        raise RuleFileError(f"{name} is declared twice, as an input and as a parameter")
    return Names(frozenset(scalars), frozenset(vectors), frozenset(reals))
