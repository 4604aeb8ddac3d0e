"""When a model that was timed replaces the input, at one setting of the sizes and at several."""

import pytest

from xflow.cost.comparison import Comparison, Timing
from xflow.pipeline.gate import BEYOND_S, EXTRA_S, further_seconds
from xflow.pipeline.timing_verdict import is_promising, is_undecided, timing_objection

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
