"""Sizes that inference leaves open are concluded where the model runs at no others."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xflow.core.size import Size, evaluate, solved, symbol, symbols
from xflow.onnx.importer import import_model
from xflow.onnx.size_order import SizeOrder
from xflow.onnx.types import distrust

QUERIES = """<ir_version: 9, opset_import: ["" : 20]>
g (float[b, s, 8] x, float[b, w, 8] p, float[b, s] rows) => (float[b, s, 8] y)
<int64[1] eights = {8}, int64[2] flat = {-1, 8}>
{
  sum = Add(x, p)
  more = Add(sum, x)
  twice = Mul(more, more)
  listed = Reshape(twice, flat)
  sizes = Shape(rows)
  target = Concat<axis = 0>(sizes, eights)
  y = Reshape<allowzero = 1>(listed, target)
}"""


def read(text: str) -> tuple[ir.Model, Mapping[str, tuple[Size, ...]], Mapping[str, Size]]:
    """A model, the shapes of its values by name, and the sizes that are concluded."""
    model = ir.from_onnx_text(text)
    imported = import_model(model)
    shapes = {value.name or "": known.shape for value, known in imported.values.items()}
    return model, shapes, imported.names.concluded


def runs(model: ir.Model, tokens: int, width: int) -> bool:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    feeds = {"x": (2, tokens, 8), "p": (2, width, 8), "rows": (2, tokens)}
    try:
        session.run(None, {name: np.ones(shape, np.float32) for name, shape in feeds.items()})
    except Exception:
        return False
    return True


def test_a_sum_that_is_reshaped_to_known_sizes_has_these() -> None:
    model, shapes, concluded = read(QUERIES)
    assert shapes["sum"] == shapes["twice"] == (symbol("b"), symbol("s"), 8)
    assert set(concluded.values()) == {symbol("s")}
    assert runs(model, 3, 3)
    assert runs(model, 3, 1)
    assert not runs(model, 1, 3)


COMPUTED = """<ir_version: 9, opset_import: ["" : 20]>
g (float[2, s, 8] x, float[2, w, 8] p, float[2, s] rows) => (float[2, s, 8] y)
<int64[1] two = {2}, int64[1] eight = {8}, int64[1] zero = {0}, int64 second = {1}> {
  sum = Add(x, p)
  sizes = Shape(rows) size = Gather(sizes, second) part = Unsqueeze(size, zero)
  target = Concat<axis = 0>(two, part, eight)
  made = Reshape<allowzero = ZERO>(sum, target)
  y = Relu(made)
}"""


@pytest.mark.parametrize("zero", [0, 1])
def test_what_the_runtime_takes_for_open_is_not_concluded(zero: int) -> None:
    """It puts -1 in the place of a size in a target, unless 0 is to be one."""
    model, _, concluded = read(COMPUTED.replace("ZERO", str(zero)))
    assert runs(model, 1, 3) == (not zero)
    assert bool(concluded) == bool(zero)
    measured = COMPUTED.replace("y = Relu(made)", "n = Shape(made) y = Expand(x, n)")
    assert not read(measured.replace("ZERO", "1"))[2]  # the runtime may not compute it


def test_bodies_conclude_nothing() -> None:
    """What they read may be empty."""
    assert not import_model(ir.from_onnx_text(QUERIES), inner=True).names.concluded


def test_a_factor_that_may_be_zero_concludes_nothing() -> None:
    b, s, u, count = symbols("b s u count")
    never_zero, maybe_zero = (b, b * s + 1), (count, b - s, s // 2)
    for factor, sure in (*((f, True) for f in never_zero), *((f, False) for f in maybe_zero)):
        order = SizeOrder()
        order.zero([factor * u - factor * s])
        assert bool(order.concluded(["u", "count"], ["b", "s"])) == sure


def test_what_may_be_one_row_is_left_open() -> None:
    _, shapes, concluded = read(QUERIES.replace("sum = Add(x, p)", "sum = Mul(p, p)"))
    assert shapes["sum"][1] == symbol("w")
    assert shapes["more"][1] == symbol("s")
    assert len(concluded) == 1


def test_a_reshape_that_nothing_reads_says_nothing() -> None:
    made = "y = Reshape<allowzero = 1>(listed, target)"
    unread = "y = Identity(twice)\n  unread = Reshape<allowzero = 1>(listed, target)"
    _, _, concluded = read(QUERIES.replace(made, unread))
    assert not concluded


START = """<ir_version: 9, opset_import: ["" : 20, "loc" : 1]>
g (float[2, a] x, float[1, b] z, float[c, 3] w, float[d, e] v) => (float[p, q] y, float[r, t] o) {
  s = Add(x, z)
  two = Constant<value_ints = [2]>()
  three = Constant<value_ints = [3]>()
  rows = Shape<end = 1>(w)
  wide = Concat<axis = 0>(two, rows)
  y = Expand(s, wide)
"""
"""The sum has a size that inference leaves open."""
FUNCTION = """<domain: "loc", opset_import: ["" : 20]>
f (m, v) => (o) { h = Shape(m)  o = Expand(v, h) }"""


@pytest.mark.parametrize(
    ("end", "sure"),
    [
        ("m = Reshape<allowzero = 1>(s, wide) o = Relu(m) }", True),
        ("m = Reshape<allowzero = 1>(s, wide) r = Relu(m) h = Shape(r) o = Expand(v, h) }", False),
        ("m = Reshape<allowzero = 1>(s, wide) o = loc.f(m, v) }" + FUNCTION, False),
        ("h = Sub(wide, two) m = Reshape<allowzero = 1>(s, h) o = Relu(m) }", False),
        # Sizes that are taken for known, and may be others where the runtime runs:
        (
            "m = Reshape<allowzero = 1>(s, wide) n = Relu(m) h = Concat<axis = 0>(rows, three) "
            "k = Reshape(v, h) o = MatMul(n, k) }",
            False,
        ),
        (
            "m = Reshape<allowzero = 1>(s, wide) n = Relu(m) f = Shape<start = 1>(v) "
            "e0 = Slice(v, f, two, three) k = Concat<axis = 1>(e0, w) o = MatMul(n, k) }",
            False,
        ),
    ],
)
def test_only_what_the_runtime_computes_and_enforces_is_concluded(end: str, sure: bool) -> None:
    assert bool(read(START + end)[2]) == sure


def test_numbers_are_not_concluded() -> None:
    """The runtime runs at other sizes than that of a traced example."""
    text = QUERIES.replace("target = Concat<axis = 0>(sizes, eights)", "target = Identity(given)")
    text = text.replace("<int64[1] eights = {8},", "<int64[3] given = {2, 3, 8},")
    _, _, concluded = read(text)
    assert not concluded


def test_names_that_are_distrusted_are_told_apart() -> None:
    model = ir.from_onnx_text(QUERIES)
    distrust(model, ["s"])
    imported = import_model(model)
    shapes = {value.name or "": known.shape for value, known in imported.values.items()}
    assert shapes["y"][1] == shapes["more"][1] == shapes["rows"][1]
    assert shapes["x"][1] != shapes["rows"][1]


Sum = tuple[int, int]


def joined(a: int, b: int) -> int | None:
    """The size of which two are, or None where they do not go together."""
    return max(a, b) if a == b or 1 in (a, b) else None


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4),
    st.integers(0, 6),
    st.sampled_from(range(3)),
)
def test_what_is_concluded_holds_wherever_the_model_runs(
    sums: Sequence[Sum], end: int, known: int
) -> None:
    """Each sum of two of the sizes before it has a size of its own; one of them is told."""
    names = ["a", "b", "c"]
    order = SizeOrder()
    for left, right in sums:
        names.append(f"u{len(names)}")
        pair = [(symbol(names[each % (len(names) - 1)]),) for each in (left, right)]
        order.stretched(pair, (symbol(names[-1]),))
    last = symbol(names[3 + end % (len(names) - 3)])
    order.zero([last * 8 * symbol("a") - symbol(names[known]) * 8 * symbol("a")])
    concluded = order.concluded(names[3:], names[:3])
    for sizes in product((1, 2, 3), repeat=3):
        at: dict[str, int] = dict(zip(names, sizes, strict=False))
        for number, (left, right) in enumerate(sums):
            pair_at = [at[names[each % (3 + number)]] for each in (left, right)]
            size = joined(*pair_at)
            if size is None:
                break
            at[names[3 + number]] = size
        else:
            if at[str(last)] == at[names[known]]:
                assert all(evaluate(value, at) == at[name] for name, value in concluded.items())


def test_a_symbol_is_solved_for() -> None:
    b, s, u = symbol("b"), symbol("s"), symbol("u")
    assert solved(b * u * 8 - b * s * 8, "u") == (s, 8 * b)
    assert solved(b * u * 8 - b * s * 4, "u") is None
    assert solved(u * u - b * b, "u") is None
    assert solved(u - 2 * s - b, "u") == (2 * s + b, 1)
