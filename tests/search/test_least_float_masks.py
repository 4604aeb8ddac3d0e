"""Attention that a model has itself, under masks of least floats: the kernel's zeros stay zeros.

ONNX Runtime's kernel takes the least float for -inf. A row that it covers gives zeros, where the
operators that define an attention give the mean of all values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from runtime import run_model
from spellings import rules_over

import xflow
from xflow.core.node import Opaque
from xflow.core.registry import Array
from xflow.cost.target import TargetModel
from xflow.onnx.importer import import_model
from xflow.pipeline import attempts
from xflow.rewriting.rule import Rule

LEAST = float(np.finfo(np.float32).min)
HEADS = "float[2, 2, 4, 8]"
CONSTANTS = (
    "float zero = {0}, float one = {1}, float half = {0.5}, int64[1] i1 = {1},"
    f" float least = {{{LEAST!r}}}"
)
ATTENTION = "y = Attention(q, k, v, m)"
OWN = {
    "a sum with 0": ("float[4, 4] a", "m = Add(a, zero)"),
    "a product with 1": ("float[4, 4] a", "b = Mul(a, one) m = Identity(b)"),
    "a choice": ("bool[4, 4] c", "n = Not(c) m = Where(n, least, zero)"),
    "a choice for each key": (
        "bool[2, 4] c",
        "u = Unsqueeze(c, i1) w = Unsqueeze(u, i1) n = Not(w) s = And(n, n)"
        " e = Expand(s, full) m = Where(e, least, zero)",
    ),
    "a product with the least float": ("float[4, 4] a", "b = Sub(one, a) m = Mul(b, least)"),
}
"""An input, and a mask that is made of it."""


def model(given: str, body: str, outputs: str = "y", heads: str = HEADS) -> onnx.ModelProto:
    inputs = ", ".join(f"{heads} {name}" for name in "qkv")
    wanted = ", ".join(f"{heads} {name}" for name in outputs.split())
    text = f"""<ir_version: 10, opset_import: ["" : 23]> g ({inputs}, {given}) => ({wanted})
        <{CONSTANTS}, int64[4] full = {{2, 1, 4, 4}}> {{ {body} }}"""
    return onnx.parser.parse_model(text)


def feeds(given: str, covered: Array, shape: tuple[int, ...] = (2, 2, 4, 8)) -> Mapping[str, Array]:
    """Random heads, and an input by which the first rows are covered."""
    rng = np.random.default_rng(0)
    heads = {name: rng.standard_normal(shape).astype(np.float32) for name in "qkv"}
    return {**heads, given.rsplit(maxsplit=1)[-1]: covered}


def assert_same(
    before: onnx.ModelProto, inputs: Mapping[str, Array], rules: Sequence[Rule] | None = None
) -> onnx.ModelProto:
    """What becomes of a model, which gives the same for these inputs."""
    how: dict[str, Any] = {"cost": "estimated", "budget": 5, "threads": 1, "check": 1}
    result = xflow.optimize(before, rules=rules, **how)
    after = ir.to_proto(result.model)
    for old, new in zip(run_model(before, inputs), run_model(after, inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)
    return after


@pytest.mark.parametrize("name", OWN)
def test_a_mask_of_an_own_attention_is_rewritten_and_not_raised(name: str) -> None:
    given, body = OWN[name]
    covered: Array = np.zeros((2, 4) if "[2, 4]" in given else (4, 4), np.float32)
    covered[:2] = LEAST
    if given.startswith("bool"):
        covered = covered == 0
    elif "least" in body:
        covered = (covered == 0).astype(np.float32)
    inputs = feeds(given, covered)
    before = model(given, f"{body} {ATTENTION}")
    (y,) = run_model(before, inputs)
    assert not np.any(y[0, :, 0]), "the kernel does not give zeros any more"
    after = assert_same(before, inputs)
    assert len(after.graph.node) <= len(before.graph.node)


def test_one_that_is_spelled_out_beside_it_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """They read the same mask, and mean different things in a row that it covers."""
    cheap = partial(TargetModel, peak={**TargetModel().peak, "Attention": 1e14})
    monkeypatch.setattr(attempts, "TargetModel", cheap)
    body = f"""m = Where(c, zero, least) {ATTENTION}
        a = Tanh(q) b = Tanh(k) t = Transpose<perm = [0, 1, 3, 2]>(b) p = MatMul(a, t)
        h = Mul(p, half) s = Add(h, m)
        w = Softmax<axis = -1>(s) z = MatMul(w, v)"""
    mask = np.ones((64, 64), bool)
    mask[:2] = False
    before = model("bool[64, 64] c", body, "y z", heads="float[2, 4, 64, 32]")
    rules = rules_over("MatMul", "Softmax", "Attention", "Add", "Mul", "Scalar", "Transpose", "Max")
    after = assert_same(before, feeds("c", mask, (2, 4, 64, 32)), rules)
    assert [node.op_type for node in after.graph.node].count("Attention") == 2


@pytest.mark.parametrize(
    ("given", "mask", "known"),
    [
        ("bool[4, 4] c", "low = Neg(big) m = Where(c, zero, low)", True),
        ("bool[4, 4] c", "low = Log(zero) m = Where(c, zero, low)", True),
        ("bool[4, 4] c", "m = Where(c, zero, least)", False),
        ("float[4, 4] a", "m = Identity(a)", False),
    ],
)
def test_what_rules_know_of_an_own_attention(given: str, mask: str, known: bool) -> None:
    """A mask of -inf covers rows in which the definition says nothing."""
    text = f"big = Add(one, one) {mask} {ATTENTION}"
    graph = import_model(ir.from_proto(model(given, text))).graph
    opaque = [node for node in graph.nodes if isinstance(node.op, Opaque)]
    assert bool(opaque) != known


def test_a_cap_that_is_negative_is_none() -> None:
    """The runtime ignores it, and so it is not read as one."""
    body = "y = Attention<softcap = -1.0>(q, k, v)"
    graph = import_model(ir.from_proto(model("float[4, 4] a", body))).graph
    assert any(isinstance(node.op, Opaque) for node in graph.nodes)


@pytest.mark.parametrize("scale", [-0.25, 0.0])
def test_a_scale_that_the_operator_does_not_have_stays_before_it(scale: float) -> None:
    body = f"""f = Constant<value_float = {scale}>() t = Transpose<perm = [0, 1, 3, 2]>(k)
        p = MatMul(q, t) s = Mul(p, f) w = Softmax<axis = -1>(s) z = MatMul(w, v)
        r = Relu(z) y = Abs(r)"""
    before = model("float[4, 4] a", body)
    result = xflow.optimize(before, cost="estimated", budget=5, threads=1, check=1)
    assert not result.report.warnings
    after = assert_same(before, feeds("a", np.zeros((4, 4), np.float32)))
    assert "Abs" not in {node.op_type for node in after.graph.node}
