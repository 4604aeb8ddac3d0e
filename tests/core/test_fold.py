"""Constants are folded to the same numbers in one go or part by part, in memory or in files."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xflow.ops  # noqa: F401 - fills the registry
from xflow.analysis.observers import decides
from xflow.core.errors import ShapeError
from xflow.core.fold import LARGE, Folder, numpy_dtype, with_expressions
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.core.registry import Array, Operator
from xflow.ops import operators


def weight(name: str, *shape: int) -> Value:
    return leaf(name, TensorType("FLOAT", shape), constant=True)


def folded(value: Value, data: dict[Value, Array], large: int = LARGE) -> Array:
    result = Folder(data.get, large=large)(value)
    assert result is not None
    return result


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 64), st.integers(0, 2**32 - 1))
def test_parts_make_the_whole(rows: int, columns: int, limit: int, seed: int) -> None:
    a, b, c = weight("a", rows, columns), weight("b", columns), weight("c", 1, 1)
    expression = apply("Mul", [apply("Add", [a, b])[0], apply("Exp", [c])[0]])[0]
    rng = np.random.default_rng(seed)
    shapes = {a: (rows, columns), b: (columns,), c: (1, 1)}
    data = {v: rng.standard_normal(shape).astype(np.float32) for v, shape in shapes.items()}
    whole = folded(expression, data)
    parts = folded(expression, data, limit)
    np.testing.assert_array_equal(parts, whole)
    assert parts.dtype == whole.dtype == np.float32


def test_what_is_only_moved_stays_as_it_is() -> None:
    a, b = weight("a", 2, 3), weight("b", 2, 1)
    joined = apply(
        "Concat", [apply("Transpose", [v], {"perm": (1, 0)})[0] for v in (a, b)], {"axis": 0}
    )[0]
    odd = np.array([[np.nan, -0.0, np.inf], [1e-45, 3e38, 1.0]], np.float32)
    data = {a: odd, b: np.array([[-np.inf], [np.float32(0.1)]], np.float32)}
    result = folded(joined, data)
    expected = np.concatenate([data[a].T, data[b].T])
    assert result.tobytes() == expected.tobytes()


def test_large_results_lie_in_files() -> None:
    a = weight("a", 4, 4)
    data = {a: np.arange(16, dtype=np.float32).reshape(4, 4)}
    result = folded(apply("Relu", [a])[0], data, 16)
    assert isinstance(result, np.memmap)
    np.testing.assert_array_equal(result, data[a])


def test_no_room_for_a_file_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("xflow.core.fold.tempfile.TemporaryFile", full)
    a = weight("a", 4, 4)
    data = {a: np.ones((4, 4), np.float32)}
    np.testing.assert_array_equal(folded(apply("Neg", [a])[0], data, 16), -data[a])


@pytest.mark.parametrize("held", [True, False])
def test_what_has_one_value_everywhere_is_told_without_computing_all_of_it(held: bool) -> None:
    """A mask of a whole image, say, that hides nothing."""
    chosen = leaf("chosen", TensorType("BOOL", (1, 99, 99)), constant=True)
    zero, least = weight("zero"), weight("least")
    (mask,) = apply("Where", [chosen, zero, least])
    everywhere = np.ones((1, 99, 99), bool)
    everywhere[0, 7, 8] = held
    data: dict[Value, Array] = {
        chosen: everywhere,
        zero: np.array(0, np.float32),
        least: np.array(-1e30, np.float32),
    }
    found = with_expressions(data.get, 16)(mask)
    if not held:
        assert found is None
        return
    assert found is not None
    np.testing.assert_array_equal(found, np.zeros((1, 99, 99), np.float32))
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("dtype", "name", "a", "b", "lost"),
    [
        ("FLOAT16", "Mul", 5e-4, 5e-4, True),
        ("FLOAT16", "Mul", 5e-2, 5e-2, False),
        ("FLOAT16", "Mul", 2.0**-12, 2.0**-12, False),  # exact
        ("FLOAT16", "Mul", 300, 300, True),
        ("FLOAT16", "Div", 5e-4, 3e3, True),
        ("FLOAT", "Mul", 1e-25, 1e-25, True),
        ("FLOAT", "Mul", 1e-25, 0, False),
        ("FLOAT", "Mul", 1e30, 1e30, True),
        ("FLOAT", "Add", -np.inf, 1, False),
        ("DOUBLE", "Mul", 1e-200, 1e-200, True),
        ("DOUBLE", "Mul", 1e200, 1e200, True),
        ("DOUBLE", "MatMul", 1e-200, 1e-200, True),
        ("DOUBLE", "MatMul", 1e-20, 1e-20, False),
    ],
)
def test_numbers_that_are_lost_in_a_constant_are_noticed(
    dtype: str, name: str, a: float, b: float, lost: bool
) -> None:
    kind = TensorType(dtype, (4, 4))
    one, other = (leaf(key, kind, constant=True) for key in "ab")
    (made,) = apply(name, [one, other])
    data = {v: np.full((4, 4), n, numpy_dtype(dtype)) for v, n in ((one, a), (other, b))}
    for large in (LARGE, 16):
        assert Folder(data.get, large=large).loses_numbers(made) == lost
    assert Folder(lambda value: None).loses_numbers(made) is None


def test_what_has_few_digits_before_loses_none() -> None:
    """Weights that were trained to nothing, beside others."""
    a, half = weight("a", 4), weight("half")
    (made,) = apply("Mul", [a, half])
    data = {a: np.array([1e-42, 1, 2, 3], np.float32), half: np.asarray(0.3, np.float32)}
    assert not Folder(data.get).loses_numbers(made)
    data[a] = np.array([1e-42] * 4, np.float32)
    assert Folder(data.get).loses_numbers(made)


@pytest.mark.parametrize(("name", "expected"), [("Floor", 1), ("Ceil", 1), ("Greater", False)])
def test_what_is_compared_or_made_whole_is_rounded_first(name: str, expected: float) -> None:
    """As the runtime does, for which a sigmoid of 22.4 is 1, and 1 plus little no more than 1."""
    a, one = weight("a", 1), weight("one", 1)
    one_again = {
        "Floor": apply("Sigmoid", [a])[0],
        "Ceil": apply("Add", [one, apply("Exp", [apply("Neg", [a])[0]])[0]])[0],
        "Greater": apply("Add", [one, apply("Exp", [apply("Neg", [a])[0]])[0]])[0],
    }[name]
    (made,) = apply(name, [one_again, one] if name == "Greater" else [one_again])
    data = {a: np.array([22.430423], np.float32), one: np.ones(1, np.float32)}
    assert folded(made, data) == expected


@pytest.mark.parametrize(
    "op", [op for op in operators() if op.elementwise and op.arity == (1, 1)], ids=str
)
def test_operators_that_make_integers_are_those_whose_specification_does(op: Operator) -> None:
    try:
        node = apply(op, [leaf("x", TensorType("FLOAT", (3,)))], op.examples[0].attributes)[0].node
    except ShapeError:
        pytest.skip("it takes or gives no floats")
    assert op.steps == (decides(node, 0) and node.types[0].dtype == "FLOAT")


def test_a_constant_that_is_rounded_to_integers_is_computed_as_the_runtime_does() -> None:
    """Also where it is known to be even, and so computed from one element of each tensor."""
    a, b, c = (leaf(name, TensorType("FLOAT", (64,)), constant=True) for name in "abc")
    product = apply("Mul", [apply("Mul", [a, b])[0], c])[0]
    floor = apply("Floor", [product])[0]
    random = np.random.default_rng(0)
    differs = 0
    for x, y in random.integers(1, 50, (500, 2)).tolist():
        third = np.float32(1) / np.float32(x * y)
        data = {"a": np.float32(x) / np.float32(7), "b": np.float32(y) * np.float32(7), "c": third}

        def find(value: Value, data: dict[str, np.float32] = data) -> Array:
            return np.full(64, data[str(value)], np.float32)

        expected = np.floor(np.float32(data["a"] * data["b"]) * third)
        once = np.float32(np.float64(data["a"]) * data["b"] * third)
        differs += bool(np.floor(once) != expected)
        for known in (Folder(find)(floor), *(with_expressions(find, n)(floor) for n in (4, 100))):
            assert known is not None
            assert np.all(known == expected)
    assert differs


@pytest.mark.parametrize(("op", "shape"), [("GlobalMaxPool", (1, 1, 2)), ("Clip", (2,))])
def test_what_a_kernel_makes_of_no_number_is_not_folded(op: str, shape: tuple[int, ...]) -> None:
    """It is the least float of its type, which another type does not have."""
    value = apply(op, [leaf("x", TensorType("FLOAT", shape), constant=True)])[0]
    for element, known in ((1.0, True), (-np.inf, False)):
        array = np.full(shape, element, np.float32)
        assert (Folder(lambda _, data=array: data)(value) is not None) == known  # type: ignore[misc]
