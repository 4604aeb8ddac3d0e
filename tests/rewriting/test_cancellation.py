"""Digits that a rewrite may lose: at which constants it does, where their sizes are dynamic too."""

import numpy as np
import pytest
from graphs import call, tensor

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Value
from xflow.core.registry import Array
from xflow.core.size import Size, symbol
from xflow.rewriting.cancellation import NOT_SEEN, loses_digits
from xflow.rewriting.match import find_matches
from xflow.rewriting.numerics import Hazard
from xflow.rewriting.text import parse_rules

(ADD_OFFSETS,) = parse_rules("""
rule offsets
  in       x[...] b[...] c[...]
  from     Add(Add(x, b), c)
  to       Add(x, Add(b, c))
""")
N = symbol("N")


def lost(offset: Value, own: Array, batch: Size, *, before: float = 1) -> str:
    """Why `(x + b) + offset` must not become `x + (b + offset)`, for rows x; nothing if it may.

    `own` is the data of the constant c that `offset` is made of, and all of b is `before`.
    """
    sources = tensor("x", batch, 4), tensor("b", 4, constant=True)
    data = {"b": np.full(4, before, np.float32), "c": own}

    def constants(value: Value) -> Array | None:
        return data.get(value.node.op.key) if isinstance(value.node.op, Leaf) else None

    graph = Graph((call("Add", call("Add", *sources), offset),))
    match, *_ = find_matches(ADD_OFFSETS.instance(2), graph, constants)
    return loses_digits(ADD_OFFSETS.instance(2), match, constants, Hazard.OFFSETS)


def expanded(source: Value) -> Value:
    """Two rows, as often as there are batches."""
    return call("Reshape", call("Expand", source, shape=(N, 2, 4)), shape=(2 * N, 4))


@pytest.mark.parametrize(("before", "loses"), [(1, False), (-100, False), (-1e6, True)])
def test_an_offset_that_is_expanded_to_a_batch_is_looked_at(before: float, loses: bool) -> None:
    """Whatever the batch, the rows are the same."""
    rows = np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(2, 4)
    source = tensor("c", 2, 4, constant=True)
    assert bool(lost(expanded(source), rows, 2 * N, before=before)) == loses
    assert bool(lost(source, rows, 2, before=before)) == loses


def test_of_a_table_that_is_cut_to_a_dynamic_length_nothing_is_known() -> None:
    """What a short one lacks may be large."""
    table = np.ones((64, 4), np.float32)
    table[32:] = -1e6
    source = tensor("c", 64, 4, constant=True)
    part = call("Slice", source, axes=(0,), starts=(0,), ends=(N,), steps=(1,))
    assert lost(part, table, N) == NOT_SEEN
