"""The learned cost: what it knows of kernels, and trees that correct the estimate of each."""

import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from graphs import call, tensor
from hypothesis import given
from hypothesis import strategies as st

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.cost.estimate import MOST, Estimator, KernelLister
from xflow.cost.learned.features import Features, KernelCall, features
from xflow.cost.learned.trees import LEAF, Trees
from xflow.cost.target import TargetModel

X = tensor("x", 1, 32, 28, 28)
W = tensor("w", 32, 32, 3, 3, constant=True)
CONV = call("Conv", X, W, pads=(1, 1, 1, 1))
T = tensor("t", 8, 128, 64)
M = tensor("m", 64, 256, constant=True)
GRAPHS = {
    "fused": [call("Relu", call("Add", CONV, X))],
    "converted": [call("Transpose", CONV, perm=(0, 2, 3, 1)), call("Softmax", CONV, axis=1)],
    "product": [call("Softmax", call("MatMul", T, M), axis=2)],
    "pattern": [call("Mul", T, call("Sigmoid", T))],
    "view": [call("Reshape", call("Relu", T), shape=(8, 8192))],
}


def kernels(*outputs: Value) -> list[KernelCall]:
    return KernelLister().listed(Graph(outputs))[0]


def of_last(value: Value) -> Features:
    return features(kernels(value)[-1])


@pytest.mark.parametrize("name", GRAPHS)
def test_the_kernels_of_a_graph_take_what_the_estimate_says(name: str) -> None:
    graph = Graph(tuple(GRAPHS[name]))
    calls, rest = KernelLister().listed(graph)
    assert calls
    assert sum(each.seconds for each in calls) + rest == pytest.approx(Estimator()(graph))
    assert 0 <= rest <= 1e-6 * len(graph.nodes)


def test_the_same_kernel_twice_is_listed_twice() -> None:
    twice = call("Relu", call("Abs", call("Relu", T)))
    assert [each.name for each in kernels(twice)] == ["Relu", "Abs", "Relu"]


def test_a_transposition_is_known_by_the_runs_that_it_keeps() -> None:
    swapped = of_last(call("Transpose", T, perm=(1, 0, 2)))
    turned = of_last(call("Transpose", T, perm=(0, 2, 1)))
    assert swapped["run"] == math.log2(64)
    assert "run" not in turned
    assert turned["read stride"] == math.log2(64)


def test_axes_of_one_element_move_nothing() -> None:
    one = tensor("o", 1, 128, 64)
    found = of_last(call("Transpose", one, perm=(1, 0, 2)))
    assert "groups" not in found
    assert found["run"] == math.log2(128 * 64)


def test_a_product_is_known_by_its_sizes_and_by_its_weights() -> None:
    found = of_last(call("MatMul", T, M))
    assert (found["rows"], found["columns"], found["summed"]) == (7, 8, 6)
    assert found["weights"] == 1
    assert "weights" not in of_last(call("MatMul", T, tensor("n", 8, 64, 32)))


def test_an_operand_that_is_repeated_is_known_by_its_run() -> None:
    row = of_last(call("Add", T, tensor("r", 64)))
    column = of_last(call("Add", T, tensor("c", 128, 1)))
    assert row["repeated run"] == 6
    assert "repeated run" not in column


def test_scalars_and_views_have_features_too() -> None:
    assert of_last(call("Add", tensor("a"), tensor("b")))["is Add"] == 1
    assert of_last(call("Reshape", T, shape=(8, 8192)))["is Reshape"] == 1


# Trees


def drawn_trees(seed: int, count: int, depth: int) -> Trees:
    """Complete trees over three numbers."""
    random = np.random.default_rng(seed)
    inner = 2**depth - 1
    nodes = 2 * inner + 1
    shape = (count, nodes)
    is_leaf = np.arange(nodes) >= inner
    feature = np.where(is_leaf, LEAF, random.integers(0, 3, shape)).astype(np.int32)
    below = np.where(is_leaf, 0, 2 * np.arange(nodes) + 1)
    left = np.broadcast_to(below, shape).astype(np.int32)
    right = np.where(is_leaf, 0, left + 1).astype(np.int32)
    value = np.where(is_leaf, random.standard_normal(shape), 0.0)
    return Trees(("a", "b", "c"), feature, random.standard_normal(shape), left, right, value)


def walked(trees: Trees, row: np.ndarray) -> float:
    """The same, one node after the other."""
    total = 0.0
    for tree in range(len(trees.feature)):
        at = 0
        while trees.feature[tree, at] != LEAF:
            goes_left = row[trees.feature[tree, at]] <= trees.threshold[tree, at]
            at = (trees.left if goes_left else trees.right)[tree, at]
        total += trees.value[tree, at]
    return total


@given(st.integers(0, 999), st.integers(1, 9), st.integers(0, 4))
def test_trees_add_up_their_leaves(seed: int, count: int, depth: int) -> None:
    trees = drawn_trees(seed, count, depth)
    row = np.random.default_rng(seed).normal(size=3)
    assert trees(row) == pytest.approx(walked(trees, row))


def test_trees_are_the_same_when_they_are_read_again(tmp_path: Path) -> None:
    trees = drawn_trees(0, 5, 3)
    trees.write(tmp_path / "trees.npz")
    again = Trees.read(tmp_path / "trees.npz")
    assert again == trees
    assert hash(again) == hash(trees)
    assert repr(again) == repr(trees)
    assert again != drawn_trees(1, 5, 3)
    assert pickle.loads(pickle.dumps(trees)) == trees


# The estimate, corrected


def always(number: float) -> Trees:
    """One tree that says the same of everything."""
    none = np.zeros((1, 1), np.int32)
    return Trees(("threads",), none + LEAF, np.zeros((1, 1)), none, none, np.full((1, 1), number))


@pytest.mark.parametrize("name", GRAPHS)
def test_trees_correct_every_kernel(name: str) -> None:
    graph = Graph(tuple(GRAPHS[name]))
    calls, rest = KernelLister().listed(graph)
    corrected = Estimator(TargetModel(learned=always(1.0)))
    expected = 2 * sum(each.seconds for each in calls) + rest
    assert corrected(graph) == pytest.approx(expected)
    assert corrected(graph) == pytest.approx(expected), "the second time"


def test_a_correction_has_its_bounds() -> None:
    graph = Graph((call("Relu", T),))
    corrected = Estimator(TargetModel(learned=always(99.0)))
    assert corrected(graph) == pytest.approx(Estimator()(graph) * 2**MOST)


def test_trees_tell_kernels_apart_by_what_they_are() -> None:
    one = np.array([[0, LEAF, LEAF]], np.int32)
    below = np.array([[1, 0, 0]], np.int32)
    trees = Trees(
        ("is Transpose",),
        one,
        np.array([[0.5, 0, 0]]),
        below,
        np.where(below, 2, 0).astype(np.int32),
        np.array([[0.0, 0.0, 2.0]]),
    )
    corrected, plain = Estimator(TargetModel(learned=trees)), Estimator()
    relu = Graph((call("Relu", T),))
    turned = Graph((call("Transpose", T, perm=(0, 2, 1)),))
    assert corrected(relu) == pytest.approx(plain(relu))
    assert corrected(turned) == pytest.approx(4 * plain(turned))


def test_an_estimator_with_trees_can_be_sent_to_a_process() -> None:
    graph = Graph((call("Relu", T),))
    made = pickle.loads(pickle.dumps(Estimator(TargetModel(learned=always(1.0))).anew()))()
    assert made(graph) == pytest.approx(Estimator(TargetModel(learned=always(1.0)))(graph))
