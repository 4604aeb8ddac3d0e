"""Sizes that are drawn satisfy all that is asked of them, also where hardly any do."""

from __future__ import annotations

import random
from itertools import chain

from xflow.core.assignments import connected
from xflow.core.constraint import Constraint, at_least, equal
from xflow.core.size import symbols
from xflow.verifier.refutation.refute import Sampler

DRAWS = 30


def axis(name: str) -> list[Constraint]:
    """Conditions on one axis that hardly one in a hundred guesses meets."""
    n, m = symbols(f"n_{name} m_{name}")
    return [at_least(n, 0), at_least(m, 2), equal(n * m, 12), at_least(n, m)]


def test_names_are_grouped_by_the_conditions_that_connect_them() -> None:
    n, m, k = symbols("n m k")
    first, second, alone = equal(n, m), at_least(m, 3), at_least(k, 1)
    nothing = at_least(1, 0)
    found = connected(["k", "l", "m", "n"], [first, alone, nothing, second])
    assert found == [(["k"], [alone]), (["l"], []), (["m", "n"], [first, second])]


def test_sizes_of_several_axes_satisfy_all_conditions_and_differ() -> None:
    conditions = list(chain.from_iterable(map(axis, "abcd")))
    names = sorted(set[str]().union(*(c.symbols for c in conditions)))
    sampler = Sampler(names, conditions, random.Random(0))
    drawn = [sampler.draw() for _ in range(DRAWS)]
    assert all(sizes is not None and sizes.keys() == set(names) for sizes in drawn)
    assert all(c.holds(sizes) for sizes in drawn if sizes is not None for c in conditions)
    assert len({tuple(sizes.items()) for sizes in drawn if sizes is not None}) > 5


def test_where_one_axis_has_no_sizes_there_are_none() -> None:
    n, m = symbols("n m")
    contradiction = [equal(n * m, 12), at_least(-n, 5)]
    conditions = [*axis("a"), *contradiction, at_least(m, 1)]
    names = ["m", "m_a", "n", "n_a"]
    assert Sampler(names, conditions, random.Random(0)).draw() is None


def test_what_no_group_can_meet_is_met_by_no_draw() -> None:
    never = at_least(-1, 0)
    assert Sampler(["m_a", "n_a"], [*axis("a"), never], random.Random(0)).draw() is None
