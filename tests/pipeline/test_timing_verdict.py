"""When a model that was timed replaces the input, at one setting of the sizes and at several."""

import pytest

from xflow.cost.comparison import Comparison, Timing
from xflow.pipeline.gate import BEYOND_S, EXTRA_S, further_seconds
from xflow.pipeline.timing_verdict import (
    is_hopeless,
    is_hopeless_somewhere,
    is_promising,
    is_undecided,
    timing_objection,
)

SECONDS = Timing((1.0,) * 4)


def compared(ratio: float, spread: float = 0.002, passes: int = 4) -> Comparison:
    """A comparison with so many times the speed, as wide as `spread` to both sides."""
    return Comparison(ratio, ratio - spread, ratio + spread, SECONDS, SECONDS, passes)


FASTER, ALIKE, SLOWER = compared(1.1), compared(1.0), compared(0.98)


@pytest.mark.parametrize(
    "settings", [[FASTER], [FASTER, FASTER], [FASTER, ALIKE], [ALIKE, ALIKE, FASTER]]
)
def test_a_model_that_is_faster_somewhere_and_slower_nowhere_is_taken(
    settings: list[Comparison],
) -> None:
    assert timing_objection(settings, counted=False) == ""


@pytest.mark.parametrize(
    "settings",
    [
        [],
        [ALIKE],
        [ALIKE, ALIKE],
        [FASTER, SLOWER],
        [FASTER, compared(1.0, 0.02)],  # as fast, and not shown to be
        [FASTER, compared(1.0, passes=1)],  # two sessions of one model differ by more
        [compared(1.02, passes=1)],
    ],
)
def test_a_model_that_may_be_slower_somewhere_is_not_taken(settings: list[Comparison]) -> None:
    assert "so this is the input's own" in timing_objection(settings, counted=False)


def test_the_setting_that_is_worst_is_told() -> None:
    told = timing_objection([FASTER, SLOWER], counted=False)
    assert "not measurably faster (0.980 times as fast, 0.978 to 0.982)" in told


def test_a_further_look_ends_little_later_than_all_else() -> None:
    assert further_seconds(left=35.0, given=35.0) == BEYOND_S
    assert further_seconds(left=100.0, given=35.0) == EXTRA_S
    assert further_seconds(left=5.0, given=20.0) == 0.0


def test_what_a_further_look_may_decide_is_undecided() -> None:
    as_fast = compared(1.0, 0.02)
    assert not is_promising(as_fast)
    assert is_undecided(as_fast)
    assert is_promising(compared(1.02, 0.02))
    assert is_undecided(compared(1.02, 0.02))
    assert not any(map(is_undecided, (FASTER, ALIKE, SLOWER, compared(0.9, 0.2))))


@pytest.mark.parametrize(("ratio", "spread"), [(1.006, 0.03), (1.02, 0.04), (1.0, 0.01)])
def test_a_further_look_is_left_out_that_is_likely_to_show_nothing(
    ratio: float, spread: float
) -> None:
    assert is_hopeless(compared(ratio, spread), 3)
    assert not is_hopeless(compared(ratio + spread, spread), 3)
    assert not is_hopeless(compared(1.03, 0.04), 3)
    assert is_hopeless(compared(1.03, 0.04), 1.1), "hardly any pass is left"


def test_at_one_of_several_settings_it_is_enough_to_be_as_fast() -> None:
    as_fast = compared(1.0, 0.012)
    assert is_undecided(as_fast)
    assert is_hopeless(as_fast, 3)
    assert not is_hopeless_somewhere(as_fast, 3)
    assert is_hopeless_somewhere(compared(1.0, 0.03), 3)


@pytest.mark.parametrize("more", [1.0, 1.5, 3.0])
def test_what_is_given_up_is_never_what_is_given_out(more: float) -> None:
    for ratio in (0.97, 0.99, 1.0, 1.01, 1.03, 1.1):
        for spread in (0.001, 0.01, 0.05):
            found = compared(ratio, spread)
            if is_hopeless(found, more):
                assert timing_objection([found], counted=False)
            if is_hopeless_somewhere(found, more):
                assert timing_objection([FASTER, found], counted=False)
