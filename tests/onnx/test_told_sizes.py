"""Sizes that inference leaves open are concluded where the model runs at no others."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from hypothesis import given, settings
from hypothesis import strategies as st

from xflow.core.size import Expr, Size, evaluate, symbol
from xflow.onnx.importer import import_model
from xflow.onnx.told_sizes import SizeOrder, solved
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
  y = Reshape(listed, target)
}"""


def read(text: str) -> tuple[ir.Model, Mapping[str, tuple[Size, ...]], Mapping[str, Size]]:
    """A model, the shapes of its values by name, and the sizes that are told."""
    model = ir.from_onnx_text(text)
    imported = import_model(model)
    shapes = {value.name or "": known.shape for value, known in imported.values.items()}
    return model, shapes, imported.names.told


def test_a_sum_that_is_reshaped_to_known_sizes_has_these() -> None:
    model, shapes, told = read(QUERIES)
    batch, tokens = symbol("b"), symbol("s")
    assert shapes["sum"] == shapes["twice"] == (batch, tokens, 8)
    assert set(told.values()) == {tokens}
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    for width, runs in ((3, True), (1, True), (2, False)):
        feeds = {"x": (2, 3, 8), "p": (2, width, 8), "rows": (2, 3)}
        values = {name: np.ones(shape, np.float32) for name, shape in feeds.items()}
        try:
            session.run(None, values)
        except Exception:
            assert not runs
        else:
            assert runs


def test_what_may_be_one_row_is_left_open() -> None:
    _, shapes, told = read(QUERIES.replace("sum = Add(x, p)", "sum = Mul(p, p)"))
    assert shapes["sum"][1] == symbol("w")
    assert shapes["more"][1] == symbol("s")
    assert len(told) == 1


def test_a_reshape_that_nothing_reads_says_nothing() -> None:
    _, _, told = read(
        QUERIES.replace("y = Reshape(listed", "unread = Reshape(listed").replace(
            "listed = Reshape", "y = Identity(twice)\n  listed = Reshape"
        )
    )
    assert not told


def test_numbers_are_not_concluded() -> None:
    """The runtime runs at other sizes than that of a traced example."""
    text = QUERIES.replace("target = Concat<axis = 0>(sizes, eights)", "target = Identity(given)")
    text = text.replace("<int64[1] eights = {8},", "<int64[3] given = {2, 3, 8},")
    _, _, told = read(text)
    assert not told


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
    told = order.told(names[3:], names[:3])
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
                assert all(evaluate(value, at) == at[name] for name, value in told.items())


def test_a_symbol_is_solved_for() -> None:
    b, s, u = symbol("b"), symbol("s"), symbol("u")
    assert solved(b * u * 8 - b * s * 8, "u") == s
    assert solved(b * u * 8 - b * s * 4, "u") is None
    assert solved(u * u - b * b, "u") is None
    assert isinstance(solved(u - 2 * s - b, "u"), Expr)
