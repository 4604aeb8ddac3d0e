"""Whether two values of an output agree: what is wrong is seen, and rounding is not called so."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xflow.validation.difference import AMPLIFIED, Allowance, compare, difference, is_another

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.standard_normal((6, 32))
PRECISE = Allowance(precise=True)


def rounded(values: np.ndarray, roundings: float = 4) -> np.ndarray:
    """The values, each a few roundings away."""
    noise = np.random.default_rng(1).uniform(-1, 1, values.shape)
    return (values * (1 + roundings * 1.2e-7 * noise)).astype(np.float32)


class TestSmallOutputs:
    @given(st.floats(-30, 30), st.booleans())
    @settings(max_examples=60, deadline=None)
    def test_the_verdict_does_not_depend_on_an_output_s_magnitude_below_one(
        self, exponent: float, wrong: bool
    ) -> None:
        before = (ROWS * 10 ** min(exponent, 0.0)).astype(np.float32)
        after = before * np.float32(1.01) if wrong else rounded(before)
        assert bool(difference(before, after, 1e-3, 1e-5).reason) is wrong

    def test_what_a_kernel_is_off_by_is_no_difference_however_small_an_output_is(self) -> None:
        before = np.full((4, 16), 4e-6, np.float32)
        after = before + np.float32(1.5e-7)
        assert compare(before, after, Allowance()).reason
        assert not compare(before, after, Allowance(kernel=3e-7)).reason
        assert compare(before, before + np.float32(4e-7), Allowance(kernel=3e-7)).reason

    def test_a_turned_sign_is_seen_in_an_output_far_below_the_tolerance(self) -> None:
        before = (1e-6 * ROWS).astype(np.float32)
        assert difference(before, -before, 1e-3, 1e-5).reason

    def test_a_row_far_below_the_others_is_held_to_its_own_magnitude(self) -> None:
        before = ROWS.astype(np.float32)
        before[2] *= 1e-2
        after = before.copy()
        after[2] *= 1.01
        assert difference(before, after, 1e-3, 1e-5).reason
        assert not difference(before, rounded(before), 1e-3, 1e-5).reason

    def test_a_row_below_the_absolute_tolerance_is_judged_by_the_exact_result(self) -> None:
        exact = ROWS.copy()
        exact[2] *= 1e-6
        before, after = exact.astype(np.float32), exact.astype(np.float32)
        after[2] *= 2
        assert compare(before, after, PRECISE).doubtful, "nothing can be said without it"
        assert "more than rounding" in compare(before, after, PRECISE, exact).reason
        assert not compare(before, rounded(exact), PRECISE, exact).reason
        # An element that is no number before excuses no other, however large the exact one is.
        exact[0, 0], before[0, 0], after[0, 0] = 1e306, np.inf, np.inf
        with np.errstate(over="raise"):
            extreme = replace(PRECISE, near=AMPLIFIED)
            assert "more than rounding" in compare(before, after, extreme, exact).reason

    def test_the_small_classes_of_a_softmax_are_held_to_their_own_magnitude(self) -> None:
        scores = np.random.default_rng(0).standard_normal((4, 1000)) - 6
        scores[:, 3] = 10
        exact = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        before, after = exact.astype(np.float32), exact.astype(np.float32)
        after[:, 4:] = after[:, :3:-1]
        assert np.abs(after - before).max() < 1e-5, "that is within the absolute tolerance"
        assert compare(before, after, PRECISE).doubtful
        assert "more than rounding" in compare(before, after, PRECISE, exact).reason
        assert not compare(before, rounded(exact), PRECISE, exact).reason

    def test_elements_near_zero_by_cancellation_are_not(self) -> None:
        exact = np.where(np.arange(32) % 2, ROWS, 1e-6 * ROWS)
        noise = np.random.default_rng(3).standard_normal((2, *ROWS.shape))
        before, after = ((exact + 2e-7 * each).astype(np.float32) for each in noise)
        assert not compare(before, after, PRECISE, exact).reason


class TestSignsAndOrder:
    def test_a_small_sign_that_turns_beyond_rounding_is_a_difference(self) -> None:
        exact = ROWS.copy()
        exact[3, 5] = 1e-4  # within the tolerance of its row
        before, after = exact.astype(np.float32), exact.astype(np.float32)
        after[3, 5] *= -1
        assert not compare(before, after, PRECISE).reason
        found = compare(before, after, PRECISE, exact).reason
        assert found.startswith("has another sign: element [3, 5]")

    def test_a_sign_that_turns_by_rounding_is_none(self) -> None:
        exact = ROWS.copy()
        exact[3, 5] = 1e-8
        before, after = exact.astype(np.float32), exact.astype(np.float32)
        after[3, 5] = -3e-7
        assert not compare(before, after, PRECISE, exact).reason

    def test_an_argmax_that_turns_beyond_rounding_is_a_difference(self) -> None:
        exact = np.full((4, 1000), 1e-3)
        exact[:, 7], exact[:, 8] = 1.0004e-3, 1.0001e-3
        before, after = exact.astype(np.float32), exact.astype(np.float32)
        after[2, [7, 8]] = after[2, [8, 7]]
        assert not difference(before, after, 1e-3, 0).reason, "it is within the tolerance"
        found = compare(before, after, PRECISE, exact).reason
        assert "another order: [2, 7] is above [2, 8]" in found
        ties = exact.copy()
        ties[:, 8] = ties[:, 7] * (1 - 1e-8)
        before, after = ties.astype(np.float32), rounded(ties)
        assert not compare(before, after, PRECISE, ties).reason, "rounding decides between these"


class TestYardstick:
    def test_what_is_as_near_to_the_exact_result_is_right(self) -> None:
        noise = np.random.default_rng(2).standard_normal((2, *ROWS.shape))
        before, after = ((ROWS * (1 + 0.05 * each)).astype(np.float32) for each in noise)
        found = compare(before, after, Allowance())
        assert found.reason
        assert found.doubtful
        found = compare(before, after, Allowance(), ROWS)
        assert not found.reason
        assert found.own is not None
        assert 0.05 < found.own < 0.5

    def test_what_is_ten_times_as_far_is_wrong(self) -> None:
        noise = np.random.default_rng(2).standard_normal((2, *ROWS.shape))
        before = (ROWS * (1 + 0.001 * noise[0])).astype(np.float32)
        after = (ROWS * (1 + 0.02 * noise[1])).astype(np.float32)
        assert compare(before, after, Allowance(), ROWS).reason
        assert not compare(before, after, Allowance(near=AMPLIFIED), ROWS).reason

    def test_a_few_elements_of_noise_do_not_excuse_many(self) -> None:
        before, after = ROWS.astype(np.float32), ROWS.astype(np.float32)
        before[0, :3] += 0.1
        after[1, :12] += 0.1
        assert not compare(before, after, Allowance(), ROWS).reason
        after[1, 12] += 0.1
        assert compare(before, after, Allowance(), ROWS).reason

    def test_an_exact_result_does_not_excuse_what_was_right(self) -> None:
        before, after = ROWS.astype(np.float32), (ROWS * 1.01).astype(np.float32)
        assert compare(before, after, Allowance(near=AMPLIFIED), ROWS).reason

    def test_integers_may_be_unequal_where_the_input_model_s_are_not_exact(self) -> None:
        exact = np.arange(100)
        before, after = exact.copy(), exact.copy()
        after[[3, 4]] = 0
        assert compare(before, after, Allowance(), exact).reason
        before[50] = 0
        assert not compare(before, after, Allowance(), exact).reason
        after[[5, 6, 7]] = 0
        assert compare(before, after, Allowance(), exact).reason

    def test_quantized_values_may_be_a_step_apart_in_a_few_more_elements_at_most(self) -> None:
        exact = np.arange(100, dtype=np.uint8)
        before, after = exact.copy(), exact.copy()
        before[:2] += 1
        after[50:58] += 1
        assert not compare(before, after, Allowance(), exact).reason
        after[50] += 1
        assert compare(before, after, Allowance(), exact).reason, "two steps are more than one"

    def test_what_is_no_approximation_of_the_exact_result_is_not_judged_by_it(self) -> None:
        """A threshold is passed in float32 and not in float64: then either side may be right."""
        before = np.array([1.0, 2.0, 3.0], np.float32)
        assert compare(before, before + 1, Allowance(), before + 5).reason
        assert not compare(before, before + 5, Allowance(), before + 5.0).reason

    def test_a_model_that_is_another_in_float64_is_recognised(self) -> None:
        values = ROWS.astype(np.float32)
        assert not is_another(values, ROWS)
        assert not is_another(values * np.float32(1.1), ROWS)
        assert not is_another(np.full(3, 1e-7, np.float32), np.zeros(3))
        assert is_another(-values, ROWS)
        assert is_another(values[:3], ROWS)
        assert is_another([values], [ROWS, ROWS])
        assert not is_another(np.array([3, 4]), np.array([3, 5])), "integers leap"


class TestNoNumbers:
    FINITE = np.array([1.0, 2.0, 3.0], np.float32)
    INFINITE = np.array([1.0, np.inf, np.nan], np.float32)

    def test_what_was_finite_must_be_finite(self) -> None:
        for refines in (False, True):
            found = difference(self.FINITE, self.INFINITE, 1, 1, refines=refines)
            assert "NaN in only one" in found.reason
            assert not found.doubtful

    def test_what_was_not_may_become_a_number_only_where_that_is_allowed(self) -> None:
        found = difference(self.INFINITE, self.FINITE, 1, 1)
        assert found.reason
        assert found.refined
        assert not difference(self.INFINITE, self.FINITE, 1, 1, refines=True).reason

    def test_the_finite_elements_beside_them_are_compared(self) -> None:
        other = self.INFINITE.copy()
        other[0] = 1.5
        assert "differs" in difference(self.INFINITE, other, 1e-3, 0, refines=True).reason

    def test_another_infinity_is_excused_by_the_exact_result_alone(self) -> None:
        before, after = np.array([np.inf, 1.0]), np.array([np.nan, 1.0])
        assert compare(before, after, Allowance(), before).reason
        assert not compare(before, after, Allowance(), after).reason


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_roundings_of_each_type_are_no_difference_and_a_tenth_is(kind: type) -> None:
    before: np.ndarray = ROWS.astype(kind)
    step = float(ml_dtypes.finfo(kind).eps)  # type: ignore[no-untyped-call]
    near: np.ndarray = (before.astype(np.float64) * (1 + 3 * step)).astype(kind)
    far: np.ndarray = (before.astype(np.float64) * (1.1 + 8 * step)).astype(kind)
    assert not difference(before, near, 1e-6, 0).reason
    assert difference(before, far, 1e-3, 0).reason
    assert difference(before, -before, 1e-3, 1e-5).reason


def test_numbers_below_the_least_normal_one_may_be_a_few_steps_apart() -> None:
    before = (np.arange(1, 33) * 2.0**-24).astype(np.float16)
    after = (np.arange(1, 33) * 2.0**-24 + 2.0**-23).astype(np.float16)
    assert not difference(before, after, 1e-3, 0).reason


def test_an_output_of_such_numbers_is_no_more_exact_than_the_least_normal_one() -> None:
    before = (np.arange(1, 33) * 1e-41).astype(np.float32)
    assert not difference(before, before + np.float32(5e-43), 1e-3, 1e-5).reason
    assert difference(before, before + np.float32(5e-41), 1e-3, 1e-5).reason
    normal: np.ndarray = before * np.float32(1e10)
    assert difference(normal, normal + np.float32(5e-33), 1e-3, 1e-5).reason


def test_lists_and_mappings_are_compared_with_their_exact_values() -> None:
    exact = [ROWS, {"a": ROWS}]
    noise = np.random.default_rng(2).standard_normal((2, *ROWS.shape))
    one, two = ([each := (ROWS * (1 + 0.05 * n)).astype(np.float32), {"a": each}] for n in noise)
    assert compare(one, two, Allowance()).reason
    assert not compare(one, two, Allowance(), exact).reason
