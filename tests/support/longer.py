"""Marks cases of a list that CI skips: `make spellings` or `make many` run them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def first(cases: Iterable[Any], number: int) -> list[Any]:
    """The cases, those behind the first `number` marked as `spellings`: `make spellings`.

    A case is one argument, or a `pytest.param` of several.
    """
    return [
        case if place < number else _marked(case, pytest.mark.spellings)
        for place, case in enumerate(cases)
    ]


def in_turn(cases: Iterable[Any], ways: Sequence[str]) -> list[Any]:
    """Each case in each of the ways, those but one marked as `many`: CI takes them in turn."""
    return [
        pytest.param(
            case,
            way,
            id=f"{case.name.replace(' ', '-')}-{way}",
            marks=() if number % len(ways) == turn else pytest.mark.many,
        )
        for number, case in enumerate(cases)
        for turn, way in enumerate(ways)
    ]


def some(cases: Iterable[Any], one_in: int) -> list[Any]:
    """The cases, all but one in so many marked as `many`: CI takes a sample of what is alike."""
    return [
        _marked(case, pytest.mark.many) if place % one_in else case
        for place, case in enumerate(cases)
    ]


def without(cases: Iterable[Any], *names: str) -> list[Any]:
    """The cases, those of these names marked as `many`: each takes many seconds.

    Raises ValueError where a name is none of a case.
    """
    listed = list(cases)
    if unknown := {*names} - {case.name for case in listed}:
        raise ValueError(f"no case is called {', '.join(sorted(unknown))}")
    return [_marked(case, pytest.mark.many) if case.name in names else case for case in listed]


def _marked(case: Any, mark: pytest.MarkDecorator) -> Any:
    """A case with a further mark."""
    made = case if hasattr(case, "marks") else pytest.param(case)
    return pytest.param(*made.values, id=made.id, marks=(*made.marks, mark))
