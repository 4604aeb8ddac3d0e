"""Attention in the ways in which exporters write it becomes one operator, by the rules alone."""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir
import pytest
from longer import first
from recognition import searched
from spellings import rules_over

from xflow.core.graph import Graph
from xflow.core.registry import Operator
from xflow.cost.estimate import EstimatedCost, Estimator
from xflow.cost.target import TargetModel
from xflow.onnx.importer import import_model
from xflow.rewriting.rule import Rule

HEAD = """<ir_version: 10, opset_import: ["" : 20]>
g (float[1, 64, 192] q, float[1, 64, 192] k, float[1, 64, 192] v, float[1, 64, 576] x)
  => (float[1, 64, 192] y)
<int64[4] split = {1, 64, 3, 64}, int64[3] flat = {1, 64, 192},
 int64[5] packed = {1, 64, 3, 3, 64}, float scale = {0.125}, int64[1] i0 = {0}, int64[1] i1 = {1},
 int64[1] i2 = {2}, int64[1] i3 = {3}, int64 j0 = {0}, int64 j1 = {1}, int64 j2 = {2}>
"""
SPLIT = " ".join(
    f"s{n} = Reshape({n}, split) h{n} = Transpose<perm = [0, 2, 1, 3]>(s{n})" for n in "qkv"
)
COLUMNS = "kt = Transpose<perm = [0, 1, 3, 2]>(hk)"
WEIGHTED = """p = Softmax<axis = -1>(s) o = MatMul(p, hv)
    t = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(t, flat)"""
PACKED = "r = Reshape(x, packed) t5 = Transpose<perm = [2, 0, 3, 1, 4]>(r)"
SPELLINGS = {
    "scaled before, on the queries": f"""{SPLIT} {COLUMNS} c = Mul(hq, scale)
        s = MatMul(c, kt) {WEIGHTED}""",
    "packed, parts by slices": f"""{PACKED} a0 = Slice(t5, i0, i1, i0) a1 = Slice(t5, i1, i2, i0)
        a2 = Slice(t5, i2, i3, i0) hq = Squeeze(a0, i0) hk = Squeeze(a1, i0) hv = Squeeze(a2, i0)
        {COLUMNS} c = Mul(hq, scale) s = MatMul(c, kt) {WEIGHTED}""",
    "packed, parts by indices": f"""{PACKED} hq = Gather(t5, j0) hk = Gather(t5, j1)
        hv = Gather(t5, j2) {COLUMNS} m = MatMul(hq, kt) s = Mul(m, scale) {WEIGHTED}""",
}


CONCERNED = {
    *("MatMul", "Softmax", "Attention", "Add", "Mul", "Div", "Reciprocal", "Scalar"),
    *("Transpose", "Reshape", "Squeeze", "Slice", "Gather", "Place"),
}
"""The operators of the spellings."""


@cache
def rules() -> list[Rule]:
    return rules_over(*CONCERNED)


def operators(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if isinstance(node.op, Operator)]


def optimized(text: str, work: float = 1.0) -> Graph:
    source = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    return searched(source, rules(), work=work).graph


@pytest.mark.parametrize("name", first(SPELLINGS, 4))
def test_attention_is_recognised_however_it_is_spelled(name: str) -> None:
    found = optimized(f"{HEAD}{{ {SPELLINGS[name]} }}")
    assert operators(found).count("Attention") == 1
    assert not {"Softmax", "MatMul", "Transpose"} & set(operators(found))
    (attention,) = (node for node in found.nodes if getattr(node.op, "name", "") == "Attention")
    assert attention.attributes["q_num_heads"] == 3


BEFORE, BEHIND, DIVIDED = (
    "c = Mul(q, scale) s = MatMul(c, kt)",
    "c = MatMul(q, kt) s = Mul(c, scale)",
    "c = MatMul(q, kt) s = Div(c, eight)",
)


@pytest.mark.parametrize(
    ("mask", "scores", "batch", "heads", "wanted"),
    [
        ("", BEFORE, 4, 1, True),
        ("", BEHIND, 4, 1, True),
        ("b", DIVIDED, 4, 1, True),
        ("l", BEFORE, 4, 1, True),
        ("b", BEHIND, 1, 12, False),
    ],
)
def test_one_head_of_keys_and_values_is_shared_by_all_of_queries(
    mask: str, scores: str, batch: int, heads: int, wanted: bool
) -> None:
    """A product broadcasts one batch as well, and the operator does not."""
    cheap = EstimatedCost(Estimator(TargetModel(peak={**TargetModel().peak, "Attention": 1e13})))
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[4, 12, 64, 32] q, float[{batch}, {heads}, 64, 32] k,
       float[{batch}, {heads}, 64, 48] v, float[4, 1, 64, 64] b, float[4, 1, 1, 64] l)
      => (float[4, 12, 64, 48] y)
    <float scale = {{0.125}}, float eight = {{8}}>
    {{ kt = Transpose<perm = [0, 1, 3, 2]>(k) {scores}
      {f"m = Add(s, {mask})" if mask else ""} p = Softmax<axis = -1>({"m" if mask else "s"})
      y = MatMul(p, v) }}"""
    source = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    found = operators(searched(source, rules_over(*CONCERNED, "Expand"), cheap).graph)
    assert ("Attention" in found) == wanted == ("Softmax" not in found)


def test_with_a_mask_it_is_not_spelled_out() -> None:
    """In a row that is masked as a whole the kernel gives zeros, and the operators none."""
    dear = EstimatedCost(Estimator(TargetModel(peak={**TargetModel().peak, "Attention": 1e6})))
    heads = "float[1, 2, 4, 8]"
    for mask in ("", "m"):
        given = f"{heads} q, {heads} k, {heads} v, float[4, 4] m"
        text = f"""<ir_version: 11, opset_import: ["" : 23]> g ({given}) => ({heads} y)
            {{ l = Sigmoid(m) y = Attention<scale = 0.5>(q, k, v{mask and ", l"}) }}"""
        source = import_model(ir.from_proto(onnx.parser.parse_model(text)))
        left = operators(searched(source, rules(), dear).graph)
        assert ("Attention" in left) == bool(mask) == ("Softmax" not in left)


def test_in_half_precision_it_stays_spelled_out() -> None:
    """The runtime's kernel computes scores in the type of the tensors, where they may overflow."""
    text = f"{HEAD}{{ {SPELLINGS['scaled before, on the queries']} }}"
    assert "Attention" in operators(optimized(text, work=0.1))
    half = text.replace("float", "float16").replace("{0.125}", "{12288}")  # the bits of 1/8
    assert "Attention" not in operators(optimized(half, work=0.1))
