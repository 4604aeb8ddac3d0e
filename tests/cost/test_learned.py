"""The learned cost: what it knows of kernels, and trees that correct the estimate of each."""

import math
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from graphs import call, tensor
from hypothesis import given
from hypothesis import strategies as st

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.errors import XflowError
from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.cost.estimate import Estimator, KernelLister
from xflow.cost.learned.correction import MOST, Correction, Off, kind_of, shipped
from xflow.cost.learned.features import Features, KernelCall, features
from xflow.cost.learned.trees import Tree, Trees
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


def drawn_tree(draw: random.Random, depth: int) -> Tree:
    """A tree over three numbers."""
    if not depth or draw.random() < 0.2:
        return draw.gauss(0, 1)
    sides = drawn_tree(draw, depth - 1), drawn_tree(draw, depth - 1)
    return (draw.randrange(3), draw.gauss(0, 1), *sides)


def drawn_trees(seed: int, count: int, depth: int = 5) -> tuple[Trees, list[Tree]]:
    draw = random.Random(seed)
    each = [drawn_tree(draw, depth) for _ in range(count)]
    return Trees.of(("a", "b", "c"), [each]), each


def walked(tree: Tree, row: np.ndarray) -> float:
    """The leaf that a row reaches, one node after the other."""
    while isinstance(tree, tuple):
        feature, threshold, left, right = tree
        tree = left if row[feature] <= np.float32(threshold) else right
    return tree


@given(st.integers(0, 999), st.integers(1, 9), st.integers(0, 5))
def test_trees_add_up_their_leaves(seed: int, count: int, depth: int) -> None:
    trees, each = drawn_trees(seed, count, depth)
    row = np.random.default_rng(seed).normal(size=3).astype(np.float32)
    assert trees(row) == pytest.approx([sum(walked(tree, row) for tree in each)], abs=1e-5)


def test_the_parts_of_trees_are_sums_of_their_own() -> None:
    trees = Trees.of(("a",), [[1.0, (0, 0.5, 2.0, 3.0)], [10.0]])
    assert trees(trees.row({"a": 1.0})) == [4.0, 10.0]
    assert trees(trees.row({"b": 1.0})) == [3.0, 10.0]


# What they teach of kernels


def corrections(trees: Trees, *names: str) -> Correction:
    """A correction of the kernels of these graphs, all of them by default."""
    found = [each for name in names or GRAPHS for each in kernels(*GRAPHS[name])]
    return Correction(trees, {kind_of(features(each)): [0.0] * len(trees.parts) for each in found})


def always(*parts: float, graphs: tuple[str, ...] = ()) -> Correction:
    """One that says the same of everything, a number for each part."""
    return corrections(Trees.of(("threads",), [[part] for part in parts]), *graphs)


def test_a_correction_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    first, other = (corrections(drawn_trees(seed, 5)[0]) for seed in (0, 1))
    for name in ("first", "second"):
        first.write(tmp_path / f"{name}.npz")
    assert (tmp_path / "first.npz").read_bytes() == (tmp_path / "second.npz").read_bytes()
    for again in (Correction.read(tmp_path / "first.npz"), pickle.loads(pickle.dumps(first))):
        assert again == first
        assert hash(again) == hash(first)
        assert repr(again) == repr(first)
        assert again != other
    row = np.array([0.1, -0.2, 0.3], np.float32)
    assert Correction.read(tmp_path / "first.npz").trees(row) == first.trees(row)


def write_with(path: Path, **changed: np.ndarray) -> None:
    """Write a correction in which some arrays are others, or are not there."""
    corrections(drawn_trees(0, 5)[0]).write(path)
    with np.load(path) as file:
        arrays = {**{name: file[name] for name in file.files}, **changed}
    np.savez(path, **{name: array for name, array in arrays.items() if array.size})


@pytest.mark.parametrize(
    "changed",
    [
        {"kinds": np.array([])},
        {"kinds": np.array(["a"])},
        {"usual": np.array([])},
        {"usual": np.array([0.0])},
        {"usual": np.full((9, 1), np.inf)},
        {"names": np.array([])},
        {"names": np.array(["a"])},
        {"names": np.array([{"code": "that runs"}])},
        {"parts": np.array(5)},
        {"parts": np.array([2, 2])},
        {"parts": np.array([5, 0])},
        {"leaves": np.full(5, 0, np.uint8)},
        {"leaves": np.full(5, 99, np.uint8)},
        {"leaves": np.full(5, 2, np.uint8)},
        {"split": np.full(200, 1, np.uint8)},
        {"value": np.full(9, np.nan, np.float32)},
        {"feature": np.full(9, 1.5)},
    ],
)
def test_a_malformed_correction_is_refused_in_a_sentence(
    changed: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = tmp_path / "correction.npz"
    write_with(path, **changed)
    with pytest.raises(XflowError, match=r"correction\.npz: .* cannot be read: .*; install"):
        Correction.read(path)


@pytest.mark.parametrize("length", [0, 100, 2000])
def test_a_file_that_was_cut_off_or_altered_is_no_correction(length: int, tmp_path: Path) -> None:
    path = tmp_path / "correction.npz"
    with pytest.raises(XflowError, match="cannot be read"):
        Correction.read(path)
    write_with(path)
    data = path.read_bytes()
    middle = len(data) // 2
    for damaged in (
        data[:length],
        data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
    ):
        path.write_bytes(damaged)
        with pytest.raises(XflowError, match="cannot be read"):
            Correction.read(path)


def test_a_node_lies_between_its_leaves() -> None:
    trees, _ = drawn_trees(0, 5)
    for number in (0, 31):
        split = np.full_like(trees.arrays["split"], number)
        with pytest.raises(ValueError, match="between its leaves"):
            Trees(trees.names, trees.parts, {**trees.arrays, "split": split})


def test_what_parts_do_not_agree_on_does_not_count() -> None:
    assert Off(1.0, 0.0).shrunk == 1.0
    assert Off(1.0, 0.5).shrunk == pytest.approx(0.75)
    assert Off(-1.0, 0.5).shrunk == pytest.approx(-0.75)
    assert Off(1.0, 1.0).shrunk == Off(0.0, 1.0).shrunk == Off(0.5, 2.0).shrunk == 0.0
    found = features(kernels(*GRAPHS["product"])[0])
    off = always(1.0, 2.0, 3.0).of(found)
    assert off.mean == 2.0
    assert off.error == pytest.approx(math.sqrt(2 * 2 / 3))


def test_what_is_usual_of_a_kind_of_kernel_is_not_corrected() -> None:
    found = features(kernels(*GRAPHS["product"])[0])
    trees = Trees.of(("threads",), [[1.0], [2.0]])
    assert Correction(trees, {kind_of(found): [0.5, 1.5]}).of(found) == Off(0.5, 0.0)
    assert Correction(trees, {kind_of(found): [1.0, 2.0]}).of(found) == Off(0.0, 0.0)


# The estimate, corrected


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


def test_kernels_of_kinds_that_were_not_seen_are_not_corrected() -> None:
    of_products = Estimator(TargetModel(learned=always(1.0, graphs=("product",))))
    relu, halves = (
        Graph((call("Relu", tensor("t", 8, 64, dtype=t)),)) for t in ("FLOAT", "FLOAT16")
    )
    assert of_products(relu) == Estimator()(relu)
    of_floats = Estimator(TargetModel(learned=always(1.0)))
    assert of_floats(relu) > Estimator()(relu)
    assert of_floats(halves) == Estimator()(halves)


def test_trees_tell_kernels_apart_by_what_they_are() -> None:
    trees = Trees.of(("is Transpose",), [[(0, 0.5, 0.0, 2.0)]])
    relu, turned = call("Relu", T), call("Transpose", T, perm=(0, 2, 1))
    learned = Correction(trees, {kind_of(of_last(value)): [0.0] for value in (relu, turned)})
    corrected, plain = Estimator(TargetModel(learned=learned)), Estimator()
    assert corrected(Graph((relu,))) == pytest.approx(plain(Graph((relu,))))
    assert corrected(Graph((turned,))) == pytest.approx(4 * plain(Graph((turned,))))


def test_an_estimator_with_trees_can_be_sent_to_a_process() -> None:
    graph = Graph((call("Relu", T),))
    made = pickle.loads(pickle.dumps(Estimator(TargetModel(learned=always(1.0))).anew()))()
    assert made(graph) == pytest.approx(Estimator(TargetModel(learned=always(1.0)))(graph))


def test_what_is_shipped_knows_the_kernels_that_most_models_have() -> None:
    found = {kind_of(features(each)) for name in GRAPHS for each in kernels(*GRAPHS[name])}
    assert len(found & shipped().kinds) >= 5
    assert len(shipped().trees.parts) > 1
    assert shipped() is shipped()
