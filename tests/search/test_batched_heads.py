"""Heads that are batches, and heads with scales of their own, become one Attention as well."""

from __future__ import annotations

from collections import Counter
from functools import cache

import onnx
import onnx_ir as ir
import pytest
from longer import first
from recognition import searched
from spellings import rules_over

from xflow.core.registry import Operator
from xflow.onnx.importer import import_model
from xflow.rewriting.rule import Rule

CONCERNED = {"MatMul", "Softmax", "Attention", "Add", "Mul", "Scalar", "Transpose", "Reshape"}
"""The operators of the graphs below."""

CONSTANTS = """<int64[3] batches = {8, 20, 32}, int64[4] apart = {2, 4, 20, 20},
    int64[3] scores = {8, 20, 20}, int64[4] heads = {2, 4, 20, 32}, int64[3] rows = {20, 8, 32},
    int64[3] flat = {20, 2, 128}, float scale = {0.1767767}>"""
ROWS = "float[20, 2, 128]"
HEADS = "float[2, 4, 20, 32]"
SINGLE = "float[2, 20, 32]"
IN_BATCHES = f"""({HEADS} q, {HEADS} k, {HEADS} v, float[2, 1, 20, 20] mask) => ({HEADS} y)
    {CONSTANTS} {{ q1 = Reshape(q, batches) q2 = Mul(q1, scale) k1 = Reshape(k, batches)
    k2 = Transpose<perm = [0, 2, 1]>(k1) v1 = Reshape(v, batches) m = MatMul(q2, k2)"""
SPELLED = {
    "in batches, as Whisper and Bart have them": f"""{IN_BATCHES} p = Softmax<axis = -1>(m)
        o = MatMul(p, v1) y = Reshape(o, heads) }}""",
    "in batches, masked as heads": f"""{IN_BATCHES} m1 = Reshape(m, apart) m2 = Add(m1, mask)
        m3 = Reshape(m2, scores) p = Softmax<axis = -1>(m3) o = MatMul(p, v1)
        y = Reshape(o, heads) }}""",
    "rows first, as in PyTorch's own layer": f"""({ROWS} q, {ROWS} k, {ROWS} v) => ({ROWS} y)
        {CONSTANTS} {{ q1 = Mul(q, scale) q2 = Reshape(q1, rows)
        q3 = Transpose<perm = [1, 0, 2]>(q2) k1 = Reshape(k, rows)
        k2 = Transpose<perm = [1, 2, 0]>(k1) v1 = Reshape(v, rows)
        v2 = Transpose<perm = [1, 0, 2]>(v1) m = MatMul(q3, k2) p = Softmax<axis = -1>(m)
        o = MatMul(p, v2) o1 = Transpose<perm = [1, 0, 2]>(o) y = Reshape(o1, flat) }}""",
    "keys and values in columns, as images have them": f"""({SINGLE} q, float[2, 32, 20] k,
        float[2, 32, 20] v) => (float[2, 32, 20] y) {CONSTANTS} {{ m = MatMul(q, k)
        m1 = Mul(m, scale) p = Softmax<axis = -1>(m1) t = Transpose<perm = [0, 2, 1]>(p)
        y = MatMul(v, t) }}""",
    "a scale for each head": f"""({HEADS} q, {HEADS} k, {HEADS} v, float[4, 1, 1] s,
        float[1, 4, 20, 20] mask) => ({HEADS} y) {CONSTANTS} {{
        k1 = Transpose<perm = [0, 1, 3, 2]>(k) m = MatMul(q, k1) m1 = Mul(m, s)
        m2 = Add(m1, mask) p = Softmax<axis = -1>(m2) y = MatMul(p, v) }}""",
}


@cache
def rules() -> list[Rule]:
    return rules_over(*CONCERNED)


@pytest.mark.parametrize("spelling", first(SPELLED, 2))
def test_heads_are_one_attention(spelling: str) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g {SPELLED[spelling]}'
    source = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    found = Counter(
        node.op.name
        for node in searched(source, rules()).graph.nodes
        if isinstance(node.op, Operator) and not node.constant
    )
    assert found["Attention"] == 1
    assert not {"MatMul", "Softmax"} & set(found)
