"""Marks cases of a list that CI skips: `make spellings` or `make many` run them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def first(cases: Iterable[Any], number: int) -> list[Any]:
    """The cases, those behind the first `number` marked as `spellings`: `make spellings`.

    A case is one argument, or a `pytest.param` of several.
    """
    made = [case if hasattr(case, "marks") else pytest.param(case) for case in cases]
    return made[:number] + [
        pytest.param(*case.values, id=case.id, marks=(*case.marks, pytest.mark.spellings))
        for case in made[number:]
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
    made = [case if hasattr(case, "marks") else pytest.param(case) for case in cases]
    return [
        case
        if number % one_in == 0
        else pytest.param(*case.values, id=case.id, marks=(*case.marks, pytest.mark.many))
        for number, case in enumerate(made)
    ]


def without(cases: Iterable[Any], *names: str) -> list[Any]:
    """The cases, those of these names marked as `many`: each takes many seconds.

    Raises ValueError where a name is none of a case.
    """
    listed = list(cases)
    if unknown := {*names} - {case.name for case in listed}:
        raise ValueError(f"no case is called {', '.join(sorted(unknown))}")
    return [
        pytest.param(case, marks=pytest.mark.many if case.name in names else ()) for case in listed
    ]
