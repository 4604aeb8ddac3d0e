"""Random networks with codes: what becomes of them gives the same codes, bit by bit.

Operator by operator; and as they are served, or operator by operator, where they have pairs of
operators that cancel out.
A thousand of them: ``pytest -m many tests/search/test_random_coded.py``.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from random_coded import coded_network, images, is_paired
from runtime import run_model

import xflow
from xflow.core.registry import Array

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
    for x in images(model, seed):
        written = [run_model(each, {"x": x}, as_written=True) for each in (model, after)]
        for old, new in zip(*written, strict=True):
            assert is_same(old, new).all(), seed
        if is_paired(seed):
            served = [run_model(each, {"x": x}) for each in (model, after)]
            for old, new, exact in zip(*served, written[0], strict=True):
                assert (is_same(old, new) | is_same(exact, new)).all(), seed
    return True


def is_same(old: Array, new: Array) -> Array:
    """Which elements of an output are the same: codes to the bit, finite numbers but for rounding.

    What the runtime spoils in a network, it need not spoil in what becomes of it.
    """
    assert old.dtype == new.dtype
    if old.dtype.kind in "iu":
        return np.asarray(old == new)
    finite = np.where(np.isfinite(old), old, 0)
    error = np.abs(np.where(np.isfinite(new), new, 0) - finite)
    near = error <= TOLERANCE * np.abs(finite).max(initial=0)
    return np.asarray(near & (np.isfinite(old) == np.isfinite(new)))


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("first", range(0, IN_CI, PART // 5))
def test_random_networks_give_the_same_codes(first: int) -> None:
    assert sum(map(check, range(first, first + PART // 5)))


@pytest.mark.many
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("first", range(IN_CI, MANY, PART))
def test_many_random_networks_give_the_same_codes(first: int) -> None:
    assert sum(map(check, range(first, first + PART)))
