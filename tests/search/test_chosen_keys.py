"""Attention whose mask of Booleans says which keys count, as exports from opset 23 on have it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import xflow
from xflow.core.registry import Array
from xflow.onnx.importer import import_model
from xflow.rewriting.text import parse_rules

HEADS, SHARED, DEPTH = 4, 2, 8
RULE = """
rule masked-attention-of-shared-heads
  in       q[B, H*n, S, D] k[B, H, L, D] v[B, H, L, E] a[B, 1, S, L]:bool
  param    n s:real
  from     MaskedAttention(q, Reshape(Expand(Unsqueeze(k, axes=[2]), shape=[B, H, n, L, D]),
             shape=[B, H * n, L, D]), Reshape(Expand(Unsqueeze(v, axes=[2]), shape=[B, H, n, L, E]),
             shape=[B, H * n, L, E]), a, scale=s)
  to       MaskedAttention(q, k, v, a, scale=s)
  where    H >= 1
  types    reals
  limits   q k
"""
"""As the generator proves it."""
GROUPS = HEADS // SHARED
REPEATED = 2, f"1, {GROUPS}, {SHARED}, 8, {DEPTH}"
IN_TURN = 1, f"1, {SHARED}, {GROUPS}, 8, {DEPTH}"


def model(axis: int, each: str, attributes: str = "scale = 0.25") -> onnx.ModelProto:
    """Keys and values of a cache and of new tokens, repeated along an axis for heads of queries."""
    new, past = (f"float[1, {GROUPS}, {n}, {DEPTH}]" for n in (3, 5))
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23]>
        g (float[1, {HEADS}, 3, {DEPTH}] q, {new} k0, {new} v0, {past} pk, {past} pv,
           bool[1, 1, 3, 8] seen) => (float[1, {HEADS}, 3, {DEPTH}] y)
        <int64[1] axis = {{{axis}}}, int64[5] each = {{{each}}},
         int64[4] joined = {{1, {HEADS}, 8, {DEPTH}}}> {{
            k = Concat<axis = 2>(pk, k0) v = Concat<axis = 2>(pv, v0)
            k1 = Unsqueeze(k, axis) k2 = Expand(k1, each) ks = Reshape(k2, joined)
            v1 = Unsqueeze(v, axis) v2 = Expand(v1, each) vs = Reshape(v2, joined)
            y = Attention<{attributes}>(q, ks, vs, seen) }}"""
    )


def optimized(source: onnx.ModelProto) -> onnx.ModelProto:
    result = xflow.optimize(source, rules=parse_rules(RULE), cost="estimated", budget=2, check=1)
    return ir.to_proto(result.model)


def expanded(rewritten: onnx.ModelProto) -> int:
    return sum(node.op_type == "Expand" for node in rewritten.graph.node)


def results(source: onnx.ModelProto, seen: Array) -> Array:
    random = np.random.default_rng(0)
    feeds = {"seen": seen}
    for value in source.graph.input[:5]:
        shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        feeds[value.name] = random.standard_normal(shape).astype(np.float32)
    session = ort.InferenceSession(source.SerializeToString())
    (found,) = session.run(None, feeds)
    return np.asarray(found)


def test_heads_that_are_repeated_for_it_are_shared_by_it() -> None:
    source = model(*REPEATED)
    rewritten = optimized(source)
    assert expanded(source) == 2
    assert expanded(rewritten) == 0
    seen = np.tril(np.ones((1, 1, 3, 8), bool), 5)
    assert (results(source, seen) == results(rewritten, seen)).all()


def test_a_row_of_which_no_key_counts_stays_zero() -> None:
    source = model(*REPEATED)
    rewritten = optimized(source)
    seen = np.ones((1, 1, 3, 8), bool)
    seen[0, 0, 1] = False
    before, after = (results(each, seen) for each in (source, rewritten))
    assert not before[:, :, 1].any()
    assert before[:, :, 0].any()
    assert (before == after).all()


def test_heads_that_are_shared_in_turn_stay() -> None:
    assert expanded(optimized(model(*IN_TURN))) == 2


def test_an_attention_that_is_causal_beside_such_a_mask_is_read_and_stays_the_same() -> None:
    source = model(*REPEATED, "is_causal = 1")
    assert not import_model(ir.from_proto(source)).opaque_nodes
    seen = np.ones((1, 1, 3, 8), bool)
    seen[0, 0, 1, :1] = False
    seen[0, 0, 2, 1:] = False
    np.testing.assert_array_equal(results(source, seen), results(optimized(source), seen))
