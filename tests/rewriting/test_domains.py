"""Operators of the runtime's own domain: brought in where that is allowed, taken away anywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import xflow
from xflow.cli.entry import main
from xflow.core.errors import ExitCode, UsageError
from xflow.core.graph import Graph
from xflow.core.node import TensorType, apply, leaf
from xflow.core.registry import CONTRIB
from xflow.cost.estimate import Estimator
from xflow.onnx.importer import import_model
from xflow.onnx.region import region_model
from xflow.ops import operator
from xflow.pipeline.pipeline import Result
from xflow.rewriting.domains import Domains, on_provider, within
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules

RULES = parse_rules(
    """
rule quick-gelu-to-mul-sigmoid
  in       x[...]
  param    alpha:real
  from     QuickGelu(x, alpha=alpha)
  to       Mul(x, Sigmoid(Mul(Scalar(value=alpha), x)))
  reverse  always

rule skip-layer-normalization-to-layer-normalization-add
  in       x[N, C, L] a[N, C, L] b[L] c[L]
  param    epsilon:real
  from     SkipLayerNormalization(x, a, b, c, epsilon=epsilon)
  to       LayerNormalization(Add(x, a), b, c, epsilon=epsilon)
  reverse  L >= 1

rule add-to-sum
  in       x[...] y[...]
  from     Add(x, y)
  to       Sum(x, y)

rule fused-mat-mul-to-mat-mul-transpose
  in       x[N, C, H, W] a[N, C, D, W]
  from     FusedMatMul(x, a, transB=1)
  to       MatMul(x, Transpose(a, perm=[0, 1, 3, 2]))
  reverse  always
"""
)


def model(body: str, kind: str = "float", imports: str = "") -> onnx.ModelProto:
    """A model from x and s [2, 64, 32] to y."""
    vector = ", ".join(f"{k / 32:.4f}" for k in range(32))
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18{imports}]>
        g ({kind}[2, 64, 32] x, {kind}[2, 64, 32] s) => ({kind}[2, 64, 32] y)
        <{kind} alpha = {{1.702}}, {kind}[32] b = {{{vector}}}, {kind}[32] c = {{{vector}}}>
        {{ {body} }}"""
    )


QUICK = "a = Mul(x, alpha) g = Sigmoid(a) h = Mul(x, g) y = Add(h, s)"
SKIP = "y = com.microsoft.SkipLayerNormalization<epsilon = 0.001>(x, s, b, c)"
OWN = ', "com.microsoft" : 1'


def optimized(source: onnx.ModelProto, domains: Domains = "onnx") -> Result:
    return xflow.optimize(
        source,
        domains=domains,
        budget=10,
        threads=1,
        cost="estimated",
        check=1,
        rules=RULES,
        keep_opset=True,
    )


def operators(result: ir.Model) -> set[str]:
    return {node.op_type for node in result.graph}


def outputs(source: onnx.ModelProto) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """What ONNX Runtime computes from inputs that are the same each time."""
    generator = np.random.default_rng(0)
    feeds = {name: generator.standard_normal((2, 64, 32), np.float32) for name in ("x", "s")}
    session = onnxruntime.InferenceSession(
        source.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = session.run(None, feeds)[0]
    return found


def test_operators_of_the_runtime_come_in_only_where_that_is_allowed() -> None:
    source = model(QUICK)
    assert not operators(optimized(source).model) & {"QuickGelu"}
    result = optimized(source, "ort")
    assert "QuickGelu" in operators(result.model)
    assert result.model.graph.opset_imports == {"": 18, CONTRIB: 1}
    assert any("runs on ONNX Runtime alone" in text for text in result.report.messages)
    proto = ir.to_proto(result.model)
    onnx.checker.check_model(proto)
    np.testing.assert_allclose(outputs(proto), outputs(source), rtol=1e-5, atol=1e-6)


def test_they_are_taken_away_where_that_gains() -> None:
    source = model(SKIP, imports=OWN)
    result = optimized(source)
    assert "LayerNormalization" in operators(result.model)
    assert "SkipLayerNormalization" not in operators(result.model)
    proto = ir.to_proto(result.model)
    np.testing.assert_allclose(outputs(proto), outputs(source), rtol=1e-4, atol=1e-5)


def test_only_directions_that_bring_in_other_domains_are_left_out() -> None:
    standard = {rule.name for rule in within(RULES, "onnx")}
    assert standard == {rule.name for rule in RULES}
    assert [rule.reverse is None for rule in within(RULES, "onnx")] == [True] * len(RULES)
    assert within(RULES, "ort") == list(RULES)


def test_their_kernels_take_32_bit_floats_alone() -> None:
    result = optimized(model(QUICK, "double"), "ort")
    assert "QuickGelu" not in operators(result.model)


def test_unknown_domains_are_told() -> None:
    with pytest.raises(UsageError, match="choose onnx or ort"):
        optimized(model(QUICK), "pytorch")  # type: ignore[arg-type]


def test_a_region_imports_the_domains_that_it_uses() -> None:
    x = leaf("x", TensorType("FLOAT", (2, 3)))
    (y,) = apply("QuickGelu", [x])
    data = region_model(Graph((y,)), lambda value: None, opset=18)
    imports = {item.domain: item.version for item in onnx.load_from_string(data).opset_import}
    assert imports == {"": 18, CONTRIB: 1}


def test_the_log_leads_to_the_same_model_and_it_follows(tmp_path: Path) -> None:
    before, after, again, report = (
        str(tmp_path / name) for name in ("a.onnx", "b.onnx", "c.onnx", "r.json")
    )
    onnx.save(model(QUICK), before)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "own.rules").write_text("\n".join(map(str, RULES)))
    options = ["--cost", "estimated", "--check", "1", "--budget", "5", "-q", "--domains", "ort"]
    own = ["--rules", str(tmp_path / "rules"), "--report", report, "--keep-opset"]
    assert main([before, after, *options, *own]) == ExitCode.OK
    assert "QuickGelu" in {node.op_type for node in onnx.load(after).graph.node}
    assert main(["replay", report, before, again, "-q"]) == ExitCode.OK
    assert Path(again).read_bytes() == Path(after).read_bytes()
    assert main(["certify", before, after, report, "-q"]) == ExitCode.OK


def test_a_matrix_product_with_a_transpose_is_understood_and_priced() -> None:
    q, k = (leaf(name, TensorType("FLOAT", (1, 4, 128, 64))) for name in "qk")
    fused = apply("FusedMatMul", [q, k], {"transB": 1})
    plain = apply("MatMul", [q, *apply("Transpose", [k], {"perm": (0, 1, 3, 2)})])
    cost = Estimator()
    assert cost(Graph(fused)) < cost(Graph(plain))
    assert fused[0].shape == plain[0].shape == (1, 4, 128, 128)


def test_a_node_of_the_domain_is_read_with_its_version() -> None:
    source = import_model(ir.from_proto(model(SKIP, imports=OWN)))
    assert source.graph.outputs[0].node.op is operator("SkipLayerNormalization")


def test_sums_are_taken_for_exact_on_processors_alone() -> None:
    """On GPUs, kernels of convolutions may take fewer digits, and sum up other products."""
    rules = load_rules(default_directory())
    assert on_provider(rules, "cpu") == rules
    kept = on_provider(rules, "cuda")
    left = {rule.name for rule in rules} - {rule.name for rule in kept}
    assert left
    assert left == {rule.name for rule in rules if "exact_sums" in str(rule)}
