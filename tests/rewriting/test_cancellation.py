"""Digits that a rewrite may lose: at which constants it does, where their sizes are dynamic too."""

from collections.abc import Callable

import numpy as np
import pytest
from graphs import call, tensor
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.graph import Graph
from xflow.core.node import Leaf, TensorType, Value, opaque
from xflow.core.registry import Array
from xflow.core.size import Size, symbol
from xflow.rewriting.cancellation import BOUND, NOT_SEEN, loses_digits
from xflow.rewriting.match import find_matches
from xflow.rewriting.numerics import Hazard
from xflow.rewriting.rounded import have_all_digits, may_be_exact
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


KEY = tensor("key", 2, constant=True)
"""What opaque operators compute constants from."""


@pytest.mark.parametrize(("before", "loses"), [(1, False), (-100, False), (-1e6, True)])
def test_of_gathered_rows_it_does_not_matter_which_they_are(before: float, loses: bool) -> None:
    """An opaque operator computes which, as exporters find the buckets of relative positions."""
    table = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)
    (rows,) = opaque("places", [KEY], [TensorType("INT64", (2,))])
    gathered = call("Gather", tensor("c", 3, 4, constant=True), rows, axis=0)
    assert bool(lost(gathered, table, 2, before=before)) == loses


@pytest.mark.parametrize("far", [0, 5, 299])
def test_of_a_large_table_of_which_few_rows_are_gathered_no_row_is_left_out(far: int) -> None:
    table = np.zeros((300, 4), np.float32)
    table[far] = 0.3  # all the others may be added before
    (rows,) = opaque("places", [KEY], [TensorType("INT64", (2,))])
    gathered = call("Gather", tensor("c", 300, 4, constant=True), rows, axis=0)
    assert lost(gathered, table, 2, before=-1e6)


def test_rows_of_two_tables_may_meet_in_any_order() -> None:
    """A large offset may stand beside a small one, though in the tables it does not."""
    sizes = np.geomspace(1e-3, 1e6, 12, dtype=np.float32).reshape(3, 4)
    data = {"b": sizes, "c": -sizes}
    gathered = [
        call("Gather", tensor(name, 3, 4, constant=True), rows, axis=0)
        for name in data
        for rows in opaque(f"places of {name}", [KEY], [TensorType("INT64", (2,))])
    ]

    def constants(value: Value) -> Array | None:
        return data.get(value.node.op.key) if isinstance(value.node.op, Leaf) else None

    graph = Graph((call("Add", call("Add", tensor("x", 2, 4), gathered[0]), gathered[1]),))
    match, *_ = find_matches(ADD_OFFSETS.instance(2), graph, constants)
    assert loses_digits(ADD_OFFSETS.instance(2), match, constants, Hazard.OFFSETS)


def test_of_what_is_computed_by_unknown_numbers_nothing_is_known() -> None:
    (made,) = opaque("made", [KEY], [TensorType("FLOAT", (2, 4))])
    scaled = call("Mul", tensor("c", 2, 4, constant=True), made)
    assert lost(scaled, np.ones((2, 4), np.float32), 2) == NOT_SEEN
    assert lost(made, np.ones((2, 4), np.float32), 2) == NOT_SEEN


(SCALE_OFFSET,) = parse_rules("""
rule scaled-offset
  in       x[...] b[...] g[...]
  from     Mul(Add(x, b), g)
  to       Add(Mul(x, g), Mul(b, g))
""")
TRAINED = np.random.default_rng(3).normal(0, 0.2, (48, 5)).astype(np.float32)
OFFSET = np.random.default_rng(4).normal(0, 1, 5).astype(np.float32)
GAIN = np.random.default_rng(5).normal(0, 1e-5, 5).astype(np.float32)
UNLIKE = np.float32(1.1) + np.float32(1e-4) * TRAINED


def lost_behind(producer: Callable[[Value, Value], Value], weights: Array) -> str:
    """Why `(u @ w + b) * g` must not become `u @ w * g + b * g`; nothing if it may."""
    data = {"w": weights, "b": OFFSET, "g": GAIN}

    def constants(value: Value) -> Array | None:
        return data.get(value.node.op.key) if isinstance(value.node.op, Leaf) else None

    b, g = (tensor(name, 5, constant=True) for name in "bg")
    made = producer(tensor("u", 7, len(weights)), tensor("w", *weights.shape, constant=True))
    graph = Graph((call("Mul", call("Add", made, b), g),))
    instance = SCALE_OFFSET.instance(2)
    (match,) = (m for m in find_matches(instance, graph, constants) if m.bindings["x"] == made)
    return loses_digits(instance, match, constants, Hazard.CANCELLATION)


def product(u: Value, w: Value) -> Value:
    return call("MatMul", u, w)


def test_behind_a_product_with_trained_weights_no_digits_are_left_to_lose() -> None:
    assert not lost_behind(product, TRAINED)


@pytest.mark.parametrize(
    ("producer", "weights"),
    [
        (lambda u, w: call("Slice", u, axes=(1,), starts=(0,), ends=(5,), steps=(1,)), TRAINED),
        (product, np.eye(48, 5, dtype=np.float32)),
        (product, np.eye(48, 5, k=-3, dtype=np.float32) * np.float32(0.3)),
        (product, np.round(16 * TRAINED)),
        (product, np.where(np.arange(5) == 2, np.eye(48, 5, dtype=np.float32), TRAINED)),
        (product, TRAINED.astype(np.float16).astype(np.float32)),
        (product, UNLIKE),
        (product, np.zeros((48, 5), np.float32)),
        (product, np.where(TRAINED > 10, TRAINED, np.float32(np.inf))),
        (lambda u, w: call("Relu", product(u, w)), TRAINED),  # 0, exactly, of all that is negative
    ],
    ids=[
        *("input", "identity", "selection", "integers", "one-column", "16-bits", "table"),
        *("zeros", "infinities", "behind-another"),
    ],
)
def test_behind_what_may_be_exact_digits_are_lost(
    producer: Callable[[Value, Value], Value], weights: Array
) -> None:
    assert lost_behind(producer, weights)


@pytest.mark.parametrize("shape", [(40, 30), (32, 64, 1, 1), (16, 1, 3, 3), (4, 30, 20), (50,)])
def test_of_trained_weights_nothing_is_exact(shape: tuple[int, ...]) -> None:
    weights = np.random.default_rng(6).normal(0, 0.1, shape).astype(np.float32)
    assert not may_be_exact(weights)
    assert may_be_exact(np.round(50 * weights))
    weights[..., -1] = 0.5
    assert len(shape) == 1 or may_be_exact(weights)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 80), spread=st.floats(1e-7, 1))
def test_behind_rounded_weights_the_error_stays_what_it_was(
    seed: int, rows: int, spread: float
) -> None:
    """The inputs sought: those at which a product is nearly an offset's opposite."""
    rng = np.random.default_rng(seed)
    w = rng.normal(rng.normal(), 1, (rows, 4)).astype(np.float32)
    b, g = rng.normal(0, 3, (2, 4)).astype(np.float32)
    assume(have_all_digits(w, 24))
    wanted = -b * (1 + spread * rng.normal(size=(200, 4)))
    u = np.linalg.lstsq(w.T.astype(np.float64), wanted.T, rcond=None)[0].T.astype(np.float32)
    exact = (u.astype(np.float64) @ w + b) * g
    before = np.abs((u @ w + b) * g - exact).max()
    after = np.abs((u @ (w * g) + b * g) - exact).max()
    assert after <= BOUND * before
