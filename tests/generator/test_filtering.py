"""Algorithms of minimal filtering: right for all points, and stated as rules that can be proved."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xflow.generator.filtering import MAGNITUDES, ONE, SIZES, Algorithm, best, filtering_rules
from xflow.generator.settle import Fate, settle
from xflow.rewriting.numerics import ELEMENTS
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules

NUMBERS = st.integers(-1000, 1000).map(Fraction)
PAIRS = st.integers(1, 3)


@given(st.data())
def test_an_algorithm_gives_what_the_window_does(data: st.DataObject) -> None:
    others = data.draw(st.lists(st.sampled_from(MAGNITUDES), max_size=3, unique=True))
    points = 2 * len(others) + 3
    taps = data.draw(st.integers(2, points))
    made = points + 2 - taps
    algorithm = Algorithm(made, taps, (ONE, *others))
    elements = data.draw(st.lists(NUMBERS, min_size=points + 1, max_size=points + 1))
    weights = data.draw(st.lists(NUMBERS, min_size=taps, max_size=taps))
    products = [
        sum(a * b for a, b in zip(row, elements, strict=True))
        * sum(a * b for a, b in zip(factors, weights, strict=True))
        for row, factors in zip(algorithm.of_elements, algorithm.of_weights, strict=True)
    ]
    for k, row in enumerate(algorithm.of_results):
        result = sum(a * b for a, b in zip(row, products, strict=True))
        assert result == sum(elements[k + t] * weights[t] for t in range(taps))


@pytest.mark.parametrize(("made", "taps"), SIZES)
def test_the_best_magnifies_least(made: int, taps: int) -> None:
    chosen = best(made, taps)
    pairs = len(chosen.magnitudes)
    for other in MAGNITUDES if pairs == 2 else ():
        assert chosen.magnifies <= Algorithm(made, taps, (ONE, other)).magnifies


def test_points_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        best(3, 3)


def test_the_database_has_the_rules_that_are_stated() -> None:
    """Proved for all sizes, refused where each element counts, and in no derivation."""
    path = default_directory() / "filtering.rules"
    stored = {(rule.lhs, rule.rhs): rule for rule in parse_rules(path.read_text())}
    for rule in filtering_rules():
        (read,) = parse_rules(str(rule))
        found = stored.pop((read.lhs, read.rhs))
        assert found.is_apart
        assert not found.is_base
        assert "finite(x)" in found.where
        assert found.numerics is not None
        (refusal,) = found.numerics.refusals
        assert (refusal.direction, refusal.reason, refusal.type) == ("forward", ELEMENTS, "")
    assert not stored
    assert all(not rule.is_apart for rule in load_rules(default_directory()) if rule.is_base)


def _smallest() -> Rule:
    (rule,) = parse_rules(str(next(filtering_rules())))
    return rule


def test_the_smallest_is_proved() -> None:
    settled = settle(_smallest(), 0)
    assert settled.fate is Fate.PROVED
    assert settled.rule.types == "reals"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("values=[0, 1, 1, 0]", "values=[0, 1, -1, 0]"),
        ("values=[1, -1, 1]", "values=[1, 1, 1]"),
        ("1 / 2", "1 / 3"),
        ("q + 1", "q"),
        ("strides=[2, 1]", "strides=[1, 1]"),
        ("ends=[H + p + q - 2]", "ends=[H + p + q - 3]"),
        ("Sub(", "Add("),
        ("axes=[3]", "axes=[2]"),
    ],
)
def test_a_wrong_one_is_not_proved(right: str, wrong: str) -> None:
    rule = _smallest()
    assert right in rule.rhs
    assert settle(replace(rule, rhs=rule.rhs.replace(right, wrong)), 0).fate is Fate.REFUTED
