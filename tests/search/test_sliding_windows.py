"""Attention under sliding windows and softcaps becomes one operator that gives the same.

The mask stays the model's own, so a window that is off by one, or on the other side, is kept as
well; softcaps that are not where the operator has its own stay spelled out.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from longer import first
from spellings import rules_over

import xflow
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules

HEADS, SHARED, DEPTH, WINDOW = 4, 2, 8, 3
CONCERNED = {
    *("MatMul", "Softmax", "Attention", "Add", "Mul", "Div", "Scalar", "Expand", "Tanh"),
    *("Transpose", "Reshape", "Unsqueeze", "Where", "And"),
}
CAPPED = """
rule capped-attention-of-shared-heads
  in       q[B, H*n, S, D] k[B, H, L, D] v[B, H, L, E] a[1, 1, S, L]
  from     CappedAttention(q, Reshape(Expand(Unsqueeze(k, axes=[2]), shape=[B, H, n, L, D]),
             shape=[B, H * n, L, D]), Reshape(Expand(Unsqueeze(v, axes=[2]), shape=[B, H, n, L, E]),
             shape=[B, H * n, L, E]), a, scale=s, softcap=c)
  to       CappedAttention(q, k, v, a, scale=s, softcap=c)
  param    s:real c:real
  where    H >= 1, a < inf, finite(k), finite(q)
  limits   a

rule capped-attention
  in       q[B, H, S, D] k[B, H, L, D] a[1, 1, S, L] v[B, H, L, E]
  param    c:real
  from     MatMul(Softmax(Add(Mul(Tanh(Div(MatMul(q, Transpose(k, perm=[0, 1, 3, 2])),
             Scalar(value=c))), Scalar(value=c)), a)), v)
  to       CappedAttention(q, k, v, a, scale=1, softcap=c)
  where    a < inf, finite(k), finite(q)
  limits   a

rule scaled-capped-attention
  in       q[B, H, S, D] k[B, C, L, D] v[B, C, L, E] a[1, 1, S, L]
  param    s:real c:real
  from     CappedAttention(Mul(q, Scalar(value=s)), k, v, a, scale=1, softcap=c)
  to       CappedAttention(q, k, v, a, scale=s, softcap=c)
  where    c != 0, finite(a), finite(k), finite(q)
  limits   a
"""
"""As the generator proves them."""

WINDOWS = {
    "as it should be": "near = Greater(places, first) seen = LessOrEqual(places, rows)",
    "one longer": "near = GreaterOrEqual(places, first) seen = LessOrEqual(places, rows)",
    "without the row itself": "near = GreaterOrEqual(places, first) seen = Less(places, rows)",
    "on the other side": "near = Less(places, last) seen = GreaterOrEqual(places, rows)",
}
PLAIN = "s = Mul(m, scale)"
CAPS = {
    "behind the scale": "t0 = Mul(m, scale) t1 = Div(t0, cap) t2 = Tanh(t1) s = Mul(t2, cap)",
    "before the scale": "t1 = Div(m, cap) t2 = Tanh(t1) t3 = Mul(t2, cap) s = Mul(t3, scale)",
    "by another number": "t0 = Mul(m, scale) t1 = Div(t0, cap) t2 = Tanh(t1) s = Mul(t2, scale)",
}
BEHIND_THE_MASK = """t0 = Mul(m, scale) t1 = Add(t0, mask) t2 = Div(t1, cap) t3 = Tanh(t2)
    a = Mul(t3, cap)"""


def model(window: str, scores: str, masked: str = "a = Add(s, mask)") -> onnx.ModelProto:
    """Queries of new tokens at what a cache and their own keys and values make."""
    heads = f"float[b, {HEADS // SHARED}, p, {DEPTH}]"
    new = f"float[b, {HEADS // SHARED}, n, {DEPTH}]"
    whole = f"float[b, {HEADS // SHARED}, l, {DEPTH}]"
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[b, {HEADS}, n, {DEPTH}] q0, {new} k0, {new} v0, {heads} pk, {heads} pv)
      => (float[b, {HEADS}, n, {DEPTH}] y, {whole} k, {whole} v)
    <int64 i0 = {{0}}, int64 i1 = {{1}}, int64 two = {{2}}, int64[2] front = {{0, 1}},
     int64[1] w = {{{WINDOW}}}, int64[1] back = {{3}}, int64[3] fronts = {{0, 1, 2}},
     int64[1] second = {{2}}, int64[5] each = {{1, 1, {SHARED}, 1, 1}},
     int64[4] joined = {{0, {HEADS}, -1, {DEPTH}}}, float zero = {{0}},
     float least = {{-3.4028234663852886e38}}, float scale = {{0.25}}, float cap = {{2}}> {{
        q = Tanh(q0) kn = Tanh(k0) vn = Tanh(v0) old = Tanh(pk) k = Concat<axis = 2>(old, kn)
        v = Concat<axis = 2>(pv, vn)
        ns = Shape<start = 2, end = 3>(q0) ps = Shape<start = 2, end = 3>(pk) n = Squeeze(ns)
        p = Squeeze(ps) l = Add(p, n) r0 = Range(i0, n, i1) r1 = Add(r0, p)
        c0 = Range(i0, l, i1) r2 = Unsqueeze(r1, front) rows = Unsqueeze(r2, back)
        places = Unsqueeze(c0, fronts) first = Sub(rows, w) last = Add(rows, w)
        {window} both = And(near, seen) mask = Where(both, zero, least)
        k1 = Unsqueeze(k, second) k2 = Expand(k1, each) ks = Reshape(k2, joined)
        v1 = Unsqueeze(v, second) v2 = Expand(v1, each) vs = Reshape(v2, joined)
        kt = Transpose<perm = [0, 1, 3, 2]>(ks) m = MatMul(q, kt) {scores} {masked}
        w0 = Softmax<axis = -1>(a) y = MatMul(w0, vs) }}"""
    )


@cache
def rules() -> list[Rule]:
    return [*rules_over(*CONCERNED), *parse_rules(CAPPED)]


def optimized(source: onnx.ModelProto, budget: float = 8) -> onnx.ModelProto:
    """The model as rewritten for a prompt and for a token behind a past.

    One second is enough on a machine that does nothing else.
    """
    given = [
        {
            name: (1, heads, length, DEPTH)
            for name, heads, length in (
                ("q0", HEADS, new), ("k0", 2, new), ("v0", 2, new), ("pk", 2, past), ("pv", 2, past)
            )
        }
        for new, past in ((8, 0), (1, 16))
    ]  # fmt: skip
    result = xflow.optimize(
        source, rules=rules(), cost="estimated", budget=budget, check=1, input_shapes=given
    )
    return ir.to_proto(result.model)


def attentions(rewritten: onnx.ModelProto) -> int:
    return sum(node.op_type == "Attention" for node in rewritten.graph.node)


def same(source: onnx.ModelProto, rewritten: onnx.ModelProto) -> bool:
    """Whether both give the same for prompts and tokens on all sides of the window."""
    sessions = [ort.InferenceSession(each.SerializeToString()) for each in (source, rewritten)]
    random = np.random.default_rng(0)
    for new, past in ((1, 0), (8, 0), (1, 2), (1, 3), (1, 16), (5, 4)):
        feeds = {
            name: 3 * random.standard_normal((2, heads, length, DEPTH)).astype(np.float32)
            for name, heads, length in (
                ("q0", HEADS, new), ("k0", 2, new), ("v0", 2, new), ("pk", 2, past), ("pv", 2, past)
            )
        }  # fmt: skip
        before, after = (session.run(None, feeds) for session in sessions)
        for one, other in zip(before, after, strict=True):
            if not np.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True):
                return False
    return True


@pytest.mark.parametrize("window", first(WINDOWS, 2))
def test_attention_under_a_window_is_one_operator_and_the_window_the_same(window: str) -> None:
    source = model(WINDOWS[window], PLAIN)
    rewritten = optimized(source)
    assert attentions(rewritten) == 1
    assert same(source, rewritten)
    others = (model(each, PLAIN) for name, each in WINDOWS.items() if name != window)
    assert not any(same(other, rewritten) for other in others)


@pytest.mark.parametrize("window", first(["without the row itself", "as it should be"], 1))
def test_a_softcap_before_the_mask_is_the_operators_own(window: str) -> None:
    """Also where the mask covers the first row, of which the operators give the mean of values."""
    source = model(WINDOWS[window], CAPS["behind the scale"])
    rewritten = optimized(source)
    (attention,) = (node for node in rewritten.graph.node if node.op_type == "Attention")
    given = {each.name: onnx.helper.get_attribute_value(each) for each in attention.attribute}
    assert (given["softcap"], given["scale"]) == (2, 0.25)
    assert same(source, rewritten)
    assert not same(model(WINDOWS[window], CAPS["before the scale"]), rewritten)


@pytest.mark.parametrize(
    ("scores", "masked"),
    [
        (CAPS["before the scale"], "a = Add(s, mask)"),
        (CAPS["by another number"], "a = Add(s, mask)"),
        ("", BEHIND_THE_MASK),
    ],
    ids=["before the scale", "by another number", "behind the mask"],
)
def test_a_softcap_elsewhere_is_not_the_operators(scores: str, masked: str) -> None:
    source = model(WINDOWS["as it should be"], scores, masked)
    rewritten = optimized(source, budget=2)
    assert attentions(rewritten) == 0
    assert same(source, rewritten)
