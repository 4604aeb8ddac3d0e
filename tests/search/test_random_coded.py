"""Random networks with codes: what becomes of them gives the same codes, bit by bit.

Operator by operator, and as they are served where they have pairs of operators that cancel out.
A thousand of them: ``pytest -m many tests/search/test_random_coded.py``.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest
from random_coded import coded_network, images, is_paired
from runtime import run_model

import xflow

IN_CI, MANY, PART = 50, 1_000, 50
TOLERANCE = 1e-5
"""Of floats behind the last codes, relative to the largest of an output."""


def check(seed: int) -> bool:
    """Whether a network is rewritten; it has to give the same then."""
    model = coded_network(seed)
    result = xflow.optimize(model, cost="estimated", budget=1, threads=1, check=1)
    if not result.report.changed:
        return False
    after = ir.to_proto(result.model)
    ways = (True, False) if is_paired(seed) else (True,)
    for x, as_written in itertools.product(images(model, seed), ways):
        pairs = (run_model(each, {"x": x}, as_written=as_written) for each in (model, after))
        for old, new in zip(*pairs, strict=True):
            assert old.dtype == new.dtype
            if old.dtype.kind in "iu":
                np.testing.assert_array_equal(new, old, err_msg=f"network {seed}")
                continue
            assert np.array_equal(np.isfinite(new), np.isfinite(old)), seed
            finite = np.where(np.isfinite(old), old, 0)
            largest = float(np.abs(finite).max(initial=0))
            np.testing.assert_allclose(
                np.where(np.isfinite(new), new, 0), finite, rtol=0, atol=TOLERANCE * largest
            )
    return True


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("first", range(0, IN_CI, PART // 5))
def test_random_networks_give_the_same_codes(first: int) -> None:
    assert sum(map(check, range(first, first + PART // 5)))


@pytest.mark.many
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("first", range(IN_CI, MANY, PART))
def test_many_random_networks_give_the_same_codes(first: int) -> None:
    assert sum(map(check, range(first, first + PART)))
