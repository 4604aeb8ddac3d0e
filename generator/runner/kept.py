"""Outcomes as JSON: what is read from a file is checked against types, and no code in it is run.

A file of the journal is not trusted. So it holds JSON, in which the classes of a fixed list stand
by their names, and each value has to be of the type that its field declares.
"""

from __future__ import annotations

import json
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from xflow.generator.generalization.skeleton import Point
from xflow.generator.runner.chunks import Consequence, Equated, Explored, Judged, ProposalCode
from xflow.generator.runner.codec import Code
from xflow.generator.runner.outcome import Outcome
from xflow.generator.settle import Fate, Settled
from xflow.rewriting.rule import Rule

KEPT: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Outcome, Explored, Equated, ProposalCode, Code, Point),
        *(Judged, Settled, Rule, Consequence),
    )
}
"""The classes whose objects can be kept: those of which the results of chunks are made."""


def to_text(outcome: Outcome) -> str:
    """An outcome as JSON. Raises TypeError where its result is made of something else."""
    return json.dumps(_plain(outcome), ensure_ascii=False)


def from_text(text: str) -> Outcome:
    """The inverse of `to_text`. Raises ValueError for a text that it did not write."""
    try:
        found = _value(json.loads(text))
    except (TypeError, LookupError, ArithmeticError, RecursionError, AttributeError) as error:
        raise ValueError(f"no outcome: {type(error).__name__} {error}") from None
    if not isinstance(found, Outcome):
        raise ValueError(f"no outcome: {type(found).__name__}")
    return found


def _plain(value: object) -> Any:
    """A value as JSON has it: what JSON has no form for is an object of one key, its kind."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    match value:
        case Counter():
            return {"Counter": [[_plain(k), _plain(v)] for k, v in value.items()]}
        case dict():
            return {"dict": [[_plain(k), _plain(v)] for k, v in value.items()]}
        case list():
            return {"list": [_plain(item) for item in value]}
        case tuple():
            return {"tuple": [_plain(item) for item in value]}
        case Fate():
            return {"Fate": value.value}
    kind = type(value)
    if KEPT.get(kind.__name__) is not kind:
        raise TypeError(f"an object of type {kind.__name__} cannot be kept")
    parts = {item.name: _plain(getattr(value, item.name)) for item in fields(value)}  # type: ignore[arg-type]
    return {kind.__name__: parts}


def _value(plain: Any) -> Any:
    """The inverse of `_plain`. Raises one of several errors for anything else."""
    if not isinstance(plain, dict):
        if isinstance(plain, list):
            raise ValueError("a list of no kind")
        return plain
    ((kind, inside),) = plain.items()
    match kind:
        case "Counter":
            return Counter({_value(k): _value(v) for k, v in inside})
        case "dict":
            return {_value(k): _value(v) for k, v in inside}
        case "list":
            return [_value(item) for item in inside]
        case "tuple":
            return tuple(_value(item) for item in inside)
        case "Fate":
            return Fate(inside)
    cls = KEPT[kind]
    values = {name: _value(part) for name, part in inside.items()}
    hints = _hints(cls)
    if values.keys() != hints.keys():
        raise ValueError(f"other fields than those of {kind}")
    for name, value in values.items():
        if not fits(value, hints[name]):
            raise ValueError(f"{kind}.{name} is no {hints[name]}")
    return cls(**values)


@cache
def _hints(cls: type) -> dict[str, Any]:
    """The types of a class's fields by their names."""
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls)}


def fits(value: object, hint: Any) -> bool:
    """Whether a value, with all that it contains, is of the annotated type."""
    if hint in (Any, object):
        return True
    if hint is None or hint is types.NoneType:
        return value is None
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if inner[1:] == (...,):
            return all(fits(item, inner[0]) for item in value)
        return len(value) == len(inner) and all(map(fits, value, inner))
    if origin in (list, Sequence):
        return isinstance(value, list | tuple) and all(fits(item, inner[0]) for item in value)
    if origin is Counter or hint is Counter:
        keys = inner[0] if inner else Any
        return isinstance(value, Counter) and all(
            fits(k, keys) and type(v) is int for k, v in value.items()
        )
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items()
        )
    if hint is int:
        return type(value) is int
    if hint is float:
        return type(value) in (int, float)
    return isinstance(hint, type | type(Enum)) and isinstance(value, hint)
