"""What element types can store: numbers with all their digits, and what is not missed otherwise."""

from fractions import Fraction

import numpy as np
import pytest

from xflow.core.rounding import is_kept, loses_numbers

TENTH = Fraction(0.1)


@pytest.mark.parametrize(
    ("number", "stored", "dtype", "kept"),
    [
        (TENTH, "FLOAT", "DOUBLE", False),
        (TENTH, "FLOAT", "FLOAT", True),
        (TENTH, "DOUBLE", "DOUBLE", True),
        (TENTH, "FLOAT", "FLOAT16", True),
        (Fraction(float(np.float32(0.1))), "FLOAT", "DOUBLE", True),
        (Fraction(0), "FLOAT", "DOUBLE", True),
        (Fraction(1e-60), "FLOAT", "DOUBLE", False),
        (Fraction(1e-60), "FLOAT", "FLOAT", False),
        (Fraction(1e-42), "FLOAT", "FLOAT", False),
        (Fraction(2) ** -140, "FLOAT", "FLOAT", True),
        (Fraction(1e60), "FLOAT", "FLOAT", False),
        (Fraction(10) ** 400, "DOUBLE", "DOUBLE", False),
        (Fraction(1e-7), "FLOAT16", "FLOAT16", False),
        (Fraction(70_000), "FLOAT16", "FLOAT16", False),
        (TENTH, "BFLOAT16", "BFLOAT16", True),
    ],
)
def test_a_number_is_kept_where_it_has_its_digits(
    number: Fraction, stored: str, dtype: str, kept: bool
) -> None:
    assert is_kept(number, stored, dtype) == kept


@pytest.mark.parametrize(
    ("data", "dtype", "missed"),
    [
        ([1e-7, 1], np.float16, True),  # each element of a vector counts
        ([[1e-7, 1], [1, 1]], np.float16, False),
        ([[1e-7, 1], [1e-7, 1]], np.float16, True),  # a column without digits
        ([[1e-42, 1], [1e-42, 1]], np.float32, False),  # nothing beside 1
        ([[1e-42, 1e-35], [1e-42, 1e-35]], np.float32, True),
        (1e-7, np.float16, True),
        ([[[[1e-7]], [[1]]]], np.float16, True),
    ],
)
def test_what_is_small_is_not_missed_beside_larger_numbers(
    data: object, dtype: type[np.floating], missed: bool
) -> None:
    array = np.asarray(data, dtype)
    name = {np.float16: "FLOAT16", np.float32: "FLOAT"}[dtype]
    assert loses_numbers(array, array < np.finfo(dtype).smallest_normal, name) == missed
