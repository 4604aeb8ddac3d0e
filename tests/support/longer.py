"""Marks all but the first cases of a list, so that CI skips them and `make spellings` runs them."""

from __future__ import annotations

from collections.abc import Iterable
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
