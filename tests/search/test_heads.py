"""Heads that are shared or rotated, windows with masks of their own, heads out of one product."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from longer import first
from recognition import searched
from spellings import rules_over

from xflow.analysis.ranges import Ranges
from xflow.analysis.value_rewrites.repeated_angles import repeated
from xflow.core.graph import Graph
from xflow.core.registry import Operator
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.rewriting.rule import Rule

CONCERNED = {
    *("MatMul", "Softmax", "Attention", "Add", "Mul", "Scalar", "Expand"),
    *("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Split", "Concat", "Neg"),
    "RotaryEmbedding",
    "InterleavedRotaryEmbedding",
    "GatherND",
}
"""The operators of the graphs below."""


@cache
def rules() -> list[Rule]:
    return rules_over(*CONCERNED)


def imported(text: str, **weights: np.ndarray[Any, Any] | None) -> Imported:
    """A graph in which these inputs are weights; of any data where that is None."""
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for item in [item for item in model.graph.input if item.name in weights]:
        shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        data = weights[item.name]
        data = random.standard_normal(shape, np.float32) if data is None else data
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, item.name))
        model.graph.input.remove(item)
    return import_model(ir.from_proto(model))


def optimized(source: Imported) -> Graph:
    return searched(source, rules()).graph


def computed(graph: Graph) -> Counter[str]:
    """The operators that depend on inputs."""
    return Counter(
        node.op.name for node in graph.nodes if isinstance(node.op, Operator) and not node.constant
    )


SHARED = """<ir_version: 10, opset_import: ["" : 20]>
g (float[1, 4, 16, 32] q, float[1, 2, 16, 32] k, float[1, 2, 16, 32] v, float[1, 1, 16, 16] mask)
  => (float[1, 4, 16, 32] y)
<int64[1] two = {{2}}, int64[5] each = {{1, 2, 2, 16, 32}}, int64[4] heads = {{1, 4, 16, 32}},
 int64[3] batch = {{4, 16, 32}}, int64[4] back = {{1, 4, 32, 16}}, float root = {{0.5}},
 float scale = {{0.25}}> {{
    k1 = Unsqueeze(k, two) k2 = Expand(k1, each) v1 = Unsqueeze(v, two) v2 = Expand(v1, each)
    vs = Reshape(v2, heads) {scores} a = Add(s, mask) p = Softmax<axis = -1>(a) y = MatMul(p, vs)
}}"""
SCORES = {
    "keys of each batch as columns": """k3 = Reshape(k2, batch)
        k4 = Transpose<perm = [0, 2, 1]>(k3) k5 = Reshape(k4, back)
        q1 = Mul(q, root) k6 = Mul(k5, root) s = MatMul(q1, k6)""",
    "keys of each head as columns": """k3 = Reshape(k2, heads)
        k4 = Transpose<perm = [0, 1, 3, 2]>(k3) q1 = Mul(q, scale) s = MatMul(q1, k4)""",
    "scaled scores": """k3 = Reshape(k2, heads) k4 = Transpose<perm = [0, 1, 3, 2]>(k3)
        m = MatMul(q, k4) s = Mul(m, scale)""",
}


@pytest.mark.parametrize("spelling", first(SCORES, 1))
def test_heads_that_are_shared_are_not_copied(spelling: str) -> None:
    """A mask that a caller gives may be of least floats, of which the kernel thinks otherwise."""
    found = computed(optimized(imported(SHARED.format(scores=SCORES[spelling]))))
    assert found == {"Attention": 1, "Equal": 1, "Where": 1}


WINDOWS = """<ir_version: 10, opset_import: ["" : 20]>
g (float[{windows}, 16, 96] x, float[96, 288] w, float[288] b, float[1, 3, 16, 16] near,
   float[{shape}] far) => (float[{windows}, 16, 96] z)
<int64[5] packed = {{{windows}, 16, 3, 3, 32}}, int64[1] i0 = {{0}}, int64[1] i1 = {{1}},
 int64[1] i2 = {{2}}, int64[1] i3 = {{3}}, float scale = {{0.125}},
 int64[5] apart = {{{images}, 4, 3, 16, 16}}, int64[4] together = {{{windows}, 3, 16, 16}},
 int64[3] flat = {{{windows}, 16, 96}}> {{
    m = MatMul(x, w) l = Add(m, b) r = Reshape(l, packed) t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
    a0 = Slice(t, i0, i1, i0) a1 = Slice(t, i1, i2, i0) a2 = Slice(t, i2, i3, i0)
    q = Squeeze(a0, i0) k = Squeeze(a1, i0) v = Squeeze(a2, i0) qs = Mul(q, scale)
    kt = Transpose<perm = [0, 1, 3, 2]>(k) s0 = MatMul(qs, kt) s1 = Add(s0, near)
    s2 = Reshape(s1, apart) s3 = Add(s2, far) s4 = Reshape(s3, together)
    p = Softmax<axis = -1>(s4) o = MatMul(p, v) o1 = Transpose<perm = [0, 2, 1, 3]>(o)
    y = Reshape(o1, flat) z = Add(x, y)
}}"""


@pytest.mark.parametrize(
    ("images", "shape"),
    [(1, "1, 4, 1, 16, 16"), pytest.param(2, "4, 1, 16, 16", marks=pytest.mark.many)],
)
def test_masks_of_windows_become_one_and_queries_keys_and_values_products_of_their_own(
    images: int, shape: str
) -> None:
    """A bias of the keys does nothing, so that it is not computed."""
    text = WINDOWS.format(windows=4 * images, images=images, shape=shape)
    found = computed(optimized(imported(text, w=None, b=None, near=None, far=None)))
    assert found == {"MatMul": 3, "Add": 3, "Attention": 1}


ROTATED = """<ir_version: 10, opset_import: ["" : 20]>
g (float[1, 16, 128] x, float[1, 1, 16, 32] cos, float[1, 1, 16, 32] sin) => (float[1, 16, 128] y)
<int64[4] split = {1, 16, 4, 32}, int64[3] flat = {1, 16, 128}, int64[1] i0 = {0},
 int64[1] half = {16}, int64[1] end = {9223372036854775807}, int64[1] last = {3}> {
    r = Reshape(x, split) h = Transpose<perm = [0, 2, 1, 3]>(r) kept = Mul(h, cos)
    a = Slice(h, i0, half, last) b = Slice(h, half, end, last) c = Neg(b)
    turned = Concat<axis = -1>(c, a) moved = Mul(turned, sin) z = Add(kept, moved)
    t = Transpose<perm = [0, 2, 1, 3]>(z) y = Reshape(t, flat)
}"""


def tables(repeats: bool) -> tuple[np.ndarray[Any, Any], ...]:
    """Cosines and sines [1, 1, 16, 32] of positions, their halves equal or not."""
    angles = np.outer(np.arange(16), 0.5 ** np.arange(16 if repeats else 32))
    angles = np.tile(angles, 2 if repeats else 1)[None, None]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def test_a_rotary_embedding_reads_heads_in_place() -> None:
    cos, sin = tables(repeats=True)
    assert computed(optimized(imported(ROTATED, cos=cos, sin=sin))) == {"RotaryEmbedding": 1}


def test_a_rotation_by_other_angles_in_each_half_is_no_rotary_embedding() -> None:
    cos, sin = tables(repeats=False)
    source = imported(ROTATED, cos=cos, sin=sin)
    assert not list(repeated(source.graph, source.constants))


def test_tables_that_are_computed_from_constants_are_told_by_their_halves() -> None:
    angles = np.tile(np.outer(np.arange(16), 0.5 ** np.arange(16)), 2).astype(np.float32)
    text = ROTATED.replace(" cos,", " angles,").replace(", float[1, 1, 16, 32] sin", "")
    text = text.replace("{\n    r =", "{\n    cos = Cos(angles) sin = Sin(angles) r =")
    assert computed(optimized(imported(text, angles=angles[None, None]))) == {"RotaryEmbedding": 1}


NEIGHBOURS = """<ir_version: 10, opset_import: ["" : 20]>
g (float[2, 4, 16, 32] x, float[1, 1, 16, 16] cos, float[1, 1, 16, 16] sin)
  => (float[2, 4, 16, 32] y)
<int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] i3 = {3}, int64[1] end = {32},
 int64[1] last = {4}, int64[4] table = {1, 1, 16, 32}, int64[4] whole = {2, 4, 16, 32}> {
    c = Unsqueeze(cos, last) cc = Concat<axis = -1>(c, c) cosines = Reshape(cc, table)
    s = Unsqueeze(sin, last) ss = Concat<axis = -1>(s, s) sines = Reshape(ss, table)
    a = Slice(x, i0, end, i3, i2) b = Slice(x, i1, end, i3, i2) n = Neg(b)
    left = Unsqueeze(n, last) right = Unsqueeze(a, last) pairs = Concat<axis = -1>(left, right)
    turned = Reshape(pairs, whole) kept = Mul(x, cosines) moved = Mul(turned, sines)
    y = Add(kept, moved)
}"""


def test_tables_of_which_neighbours_are_equal_turn_neighbours() -> None:
    angles = np.outer(np.arange(16), 0.5 ** np.arange(16))[None, None].astype(np.float32)
    source = imported(NEIGHBOURS, cos=np.cos(angles), sin=np.sin(angles))
    found = list(repeated(source.graph, Ranges(source.constants).data))
    assert [name for *_, name in found] == ["neighbours-are-equal"] * 2
    assert computed(optimized(source)) == {"InterleavedRotaryEmbedding": 1}


@pytest.mark.parametrize("shape", [(1, 1, 16, 32), (1, 16, 32), (16, 32)])
def test_tables_without_leading_axes_are_told_by_their_halves(shape: tuple[int, ...]) -> None:
    cos, sin = (table.reshape(shape) for table in tables(repeats=True))
    text = ROTATED.replace("float[1, 1, 16, 32]", f"float[{', '.join(map(str, shape))}]")
    assert computed(optimized(imported(text, cos=cos, sin=sin))) == {"RotaryEmbedding": 1}


BEHIND_ROWS = """<ir_version: 10, opset_import: ["" : 20]>
g (float[1, 16, 4, 32] x, float[1, 16, 1, 32] cos, float[1, 16, 1, 32] sin)
  => (float[1, 4, 16, 32] y)
<int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] i3 = {3}, int64[1] end = {32},
 int64[1] half = {16}, int64[1] last = {4}, int64[4] whole = {1, 16, 4, 32}> {
    TURNED
    kept = Mul(x, cos) moved = Mul(turned, sin) z = Add(kept, moved)
    y = Transpose<perm = [0, 2, 1, 3]>(z)
}"""
TURNED = {
    "RotaryEmbedding": """a = Slice(x, i0, half, i3) b = Slice(x, half, end, i3) n = Neg(b)
    turned = Concat<axis = -1>(n, a)""",
    "InterleavedRotaryEmbedding": """
    a = Slice(x, i0, end, i3, i2) b = Slice(x, i1, end, i3, i2) n = Neg(b)
    left = Unsqueeze(n, last) right = Unsqueeze(a, last) pairs = Concat<axis = -1>(left, right)
    turned = Reshape(pairs, whole)""",
}


@pytest.mark.parametrize("shape", [(1, 16, 1, 32), (16, 1, 32)])
@pytest.mark.parametrize("operator", TURNED)
def test_heads_behind_rows_are_turned_by_one_operator(
    operator: str, shape: tuple[int, ...]
) -> None:
    """As GPT-J and what descends from it have them: they are exchanged with rows afterwards."""
    angles = np.outer(np.arange(16), 0.5 ** np.arange(16)).astype(np.float32)
    twice = np.tile(angles, 2) if operator == "RotaryEmbedding" else np.repeat(angles, 2, axis=1)
    cos, sin = (np.reshape(table, shape) for table in (np.cos(twice), np.sin(twice)))
    text = BEHIND_ROWS.replace("float[1, 16, 1, 32]", f"float[{', '.join(map(str, shape))}]")
    source = imported(text.replace("TURNED", TURNED[operator]), cos=cos, sin=sin)
    assert computed(optimized(source)) == {"Transpose": 1, operator: 1}


def test_tables_may_be_looked_up_by_positions() -> None:
    """As GPT-J has them: rows of sines and cosines at constant positions."""
    angles = np.outer(np.arange(64), 0.5 ** np.arange(16)).astype(np.float32)
    twice = np.repeat(angles, 2, axis=1)
    body = "cos = Unsqueeze(c, i2) s = GatherND(sines, places) sin = Unsqueeze(s, i2)"
    text = BEHIND_ROWS.replace(
        "float[1, 16, 1, 32] cos, float[1, 16, 1, 32] sin",
        "float[64, 32] cosines, float[64, 32] sines, int64[1, 16, 1] places",
    )
    text = text.replace(
        "TURNED", f"c = GatherND(cosines, places) {body} {TURNED['InterleavedRotaryEmbedding']}"
    )
    places = 5 + np.arange(16).reshape(1, 16, 1)
    source = imported(text, cosines=np.cos(twice), sines=np.sin(twice), places=places)
    assert computed(optimized(source)) == {"Transpose": 1, "InterleavedRotaryEmbedding": 1}
