"""Functions that build small graphs and that compare two graphs by evaluation."""

from __future__ import annotations

import zlib

import numpy as np

from xflow.core.evaluation import run
from xflow.core.graph import Graph
from xflow.core.node import Leaf, TensorType, Value, apply, leaf
from xflow.core.registry import Array, Attribute
from xflow.core.size import Size


def tensor(key: str, *shape: Size, dtype: str = "FLOAT", constant: bool = False) -> Value:
    """An input, or a constant, of a graph."""
    return leaf(key, TensorType(dtype, shape), constant=constant)


def call(op: str, *inputs: Value, **attributes: Attribute) -> Value:
    """The first output of an operator."""
    return apply(op, inputs, attributes)[0]


def assert_same(before: Graph, after: Graph) -> None:
    """Both give the same for random numbers in the leaves of the first."""
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for value in before.leaves:
        assert isinstance(value.node.op, Leaf)
        feeds[value.node.op.key] = random.standard_normal([int(str(n)) for n in value.shape])
    for old, new in zip(run(before.outputs, feeds), run(after.outputs, feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-9)


def weights(value: Value) -> Array | None:
    """Random numbers for a constant, always the same; a `ConstantLookup`."""
    op = value.node.op
    if not isinstance(op, Leaf) or not value.is_constant:
        return None
    random = np.random.default_rng(zlib.crc32(op.key.encode()))
    numbers: Array = random.uniform(-1, 1, [int(str(n)) for n in value.shape])
    return numbers.astype(np.float32)
