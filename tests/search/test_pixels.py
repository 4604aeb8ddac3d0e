"""Layers that act on each token alone, as convolutions of one pixel."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from longer import first
from recognition import computed, searched
from spellings import rules_over

import xflow
from xflow.onnx.importer import import_model
from xflow.rewriting.rule import Rule

WIDE, NARROW = 1536, 384
CONCERNED = {
    *("MatMul", "Gemm", "Conv", "Transpose", "Squeeze", "Unsqueeze"),
    *("Add", "Mul", "Gelu", "Relu", "Sigmoid", "Reshape"),
}
"""The operators of the graphs below."""
LAYERS = """
  u = MatMul (x, w)
  v = Add (u, b)
  a = Gelu (v)
  r = MatMul (a, t)
  y = Add (r, c)
"""
GATED = """
  u = MatMul (x, w)
  g = Sigmoid (u)
  o = MatMul (x, q)
  a = Mul (g, o)
  y = MatMul (a, t)
"""
AFFINE = """
  u = Gemm (x, w, b)
  a = Relu (u)
  y = Gemm (a, t, c)
"""
MERGED = """
  rows = Constant <value_ints = [128, 384]> ()
  heads = Constant <value_ints = [BATCH, LENGTH, 1536]> ()
  flat = Constant <value_ints = [128, 1536]> ()
  back = Constant <value_ints = [BATCH, LENGTH, 384]> ()
  i = Reshape (x, rows)
  u = Gemm (i, w, b)
  v = Reshape (u, heads)
  a = Gelu <approximate = "tanh"> (v)
  f = Reshape (a, flat)
  r = Gemm (f, t, c)
  y = Reshape (r, back)
"""
"""As in GPT-2, whose layers know rows alone."""
RESIDUAL = """
  i = Transpose <perm = [0, 2, 3, 1]> (x)
  u = MatMul (i, w)
  v = Add (u, b)
  a = Gelu (v)
  r = MatMul (a, t)
  s = Add (r, c)
  o = Transpose <perm = [0, 3, 1, 2]> (s)
  y = Add (x, o)
"""


@cache
def rules() -> list[Rule]:
    return rules_over(*CONCERNED)


def model(shape: str, body: str) -> ir.Model:
    weights = {
        "w": (NARROW, WIDE),
        "q": (NARROW, WIDE),
        "t": (WIDE, NARROW),
        "b": (WIDE,),
        "c": (NARROW,),
    }
    text = (
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[{shape}] x) '
        f"=> (float[{shape}] y) {{{body}}}"
    )
    proto = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for name, size in weights.items():
        if f"{name})" in body or f"{name}," in body:
            data = random.standard_normal(size, np.float32) / np.sqrt(size[0], dtype=np.float32)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    made: ir.Model = ir.from_proto(proto)
    return made


@pytest.mark.parametrize(
    ("shape", "body", "products"),
    first(
        [
            pytest.param(f"1, 14, 14, {NARROW}", LAYERS, 2, id="image"),
            pytest.param(f"128, {NARROW}", AFFINE, 2, id="rows"),
            pytest.param(f"1, 128, {NARROW}", GATED, 3, id="gate"),
            pytest.param(f"1, 128, {NARROW}", LAYERS, 2, id="tokens"),
            pytest.param(f"4, 49, {NARROW}", LAYERS, 2, id="batch"),
            pytest.param(
                f"1, 128, {NARROW}",
                MERGED.replace("BATCH, LENGTH", "1, 128"),
                2,
                id="one sequence in rows",
            ),
            pytest.param(
                f"4, 32, {NARROW}",
                MERGED.replace("BATCH, LENGTH", "4, 32"),
                2,
                id="sequences in rows",
            ),
        ],
        3,
    ),
)
def test_layers_of_tokens_stay_in_the_layout(shape: str, body: str, products: int) -> None:
    found = computed(searched(import_model(model(shape, body)), rules()).graph)
    assert found["Conv"] == products, found
    assert found["Transpose"] == 2
    assert not found["MatMul"]
    assert not found["Gemm"]


def test_what_an_image_adds_is_added_in_the_layout() -> None:
    body = model(f"1, {NARROW}, 14, 14", RESIDUAL)
    found = computed(searched(import_model(body), rules()).graph)
    assert (found["Conv"], found["Transpose"]) == (2, 0), found


def test_layers_of_unknown_length_stay_products_of_matrices() -> None:
    """There may be no token at all, and the runtime convolves no empty image."""
    found = computed(searched(import_model(model(f"1, L, {NARROW}", LAYERS)), rules()).graph)
    assert (found["MatMul"], found["Conv"]) == (2, 0)


def test_the_rewritten_model_computes_the_same() -> None:
    source = model(f"2, 65, {NARROW}", LAYERS)
    result = xflow.optimize(source, cost="estimated", rules=rules(), threads=2)
    assert result.report.changed
    assert result.report.largest_error is not None
    assert sum(node.op_type == "Conv" for node in result.model.graph) == 2
