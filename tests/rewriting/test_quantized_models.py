"""Convolutions of 8-bit integers in models: other codes of the weights, the same results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from certified import optimized
from known_rules import saying
from onnx import numpy_helper, parser
from operator_cases import run_onnxruntime

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode
from xflow.core.graph import Graph, walk
from xflow.core.registry import Array, Operator
from xflow.core.sorts import CODE
from xflow.cost.estimate import EstimatedCost
from xflow.onnx.exporter import export_model
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.pipeline import attempts
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.rule import directions_of
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.steps import Steps, replaced

BODY = """<ir_version: 8, opset_import: ["" : 13]>
main (uint8[2, {channels}, 7, 6] x, uint8 z{further}) => (int32[2, 4, N, M] y)
    <{kind}[4, 3, 3, 2] w = {{{weights}}}, {kind} v = {{{zero}}}> {{
    y = ConvInteger<{attributes}>(x, {kernel}, z, v)
}}"""
EXTREMES = {"int8": (-128, -127, -1, 0, 1, 127), "uint8": (0, 1, 127, 128, 254, 255)}


def model_of(
    kind: str, zero: int, *, attributes: str = "", groups: int = 1, kernel: str = "w"
) -> onnx.ModelProto:
    """A convolution of 8-bit integers, the weights among the extremes of their type."""
    weights = np.random.default_rng(zero % 7).choice(EXTREMES[kind], 4 * 3 * 3 * 2)
    text = BODY.format(
        channels=3 * groups,
        kind=kind,
        weights=", ".join(map(str, weights)),
        zero=zero,
        attributes=attributes or "pads = [1, 1, 0, 1], strides = [2, 1]",
        kernel=kernel,
        further="" if kernel == "w" else f", {kind}[4, 3, 3, 2] {kernel}",
    )
    return parser.parse_model(text)


def forms(model: onnx.ModelProto) -> Iterator[tuple[Imported, Graph]]:
    """What each step of the rules on codes makes of a model."""
    source = import_model(ir.from_proto(model))
    rules = [rule for rule in load_rules(default_directory()) if "Recoded" in rule.operators]
    for step in Steps(RuleIndex(rules), source.constants).of(source.graph):
        yield source, replaced(source.graph, step)[0]


def feeds(channels: int) -> list[Array]:
    rng = np.random.default_rng(1)
    image = rng.choice(np.asarray(EXTREMES["uint8"], np.uint8), (2, channels, 7, 6))
    return [image, np.asarray(rng.choice(EXTREMES["uint8"]), np.uint8)]


@pytest.mark.parametrize("zero", [0, -128, 5, 127])
@pytest.mark.parametrize(
    ("attributes", "groups"),
    [("", 1), ("group = 2, dilations = [2, 1]", 2), ('auto_pad = "SAME_UPPER"', 1)],
)
def test_weights_without_a_sign_give_the_same_bits(zero: int, attributes: str, groups: int) -> None:
    model = model_of("int8", zero, attributes=attributes, groups=groups)
    ((source, graph),) = forms(model)
    after = ir.to_proto(export_model(source, graph))
    (node,) = after.graph.node
    types = {tensor.name: tensor.data_type for tensor in after.graph.initializer}
    assert {types[node.input[1]], types[node.input[3]]} == {onnx.TensorProto.UINT8}
    given = feeds(3 * groups)
    for before, now in zip(
        run_onnxruntime(model, given), run_onnxruntime(after, given), strict=True
    ):
        np.testing.assert_array_equal(before, now)


def test_weights_without_a_sign_stay_as_they_are() -> None:
    assert not list(forms(model_of("uint8", 128)))


class Signless(EstimatedCost):
    """A cost by which only weights without a sign are cheap."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.layouts = None  # type: ignore[assignment]

    def estimate(self, graph: Graph) -> float:
        computed = (node for node in graph.nodes if not node.constant)
        return 2.0 if any("INT8" in node.codes for node in computed) else 1.0


def test_a_model_is_rewritten_checked_and_certified(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(attempts, "EstimatedCost", Signless)
    (rule,) = (
        rule
        for rule in load_rules(default_directory())
        if {"ConvInteger", "Recoded"} <= set(rule.operators)
    )
    before, after, report = optimized(model_of("int8", -3), tmp_path, str(rule))
    assert onnx.load(after).graph.initializer[0].data_type == onnx.TensorProto.UINT8
    assert entry.main(["certify", str(before), str(after), str(report)]) == ExitCode.OK
    given = feeds(3)
    ((one,), (other,)) = (run_onnxruntime(onnx.load(path), given) for path in (before, after))
    np.testing.assert_array_equal(one, other)


PADDED = "pads=[*e, *f], strides=[*s], dilations=[*d], group=g"
CONV_OF_SIGNED = f"ConvInteger(x, w, z, v, {PADDED})"
CONV_OF_UNSIGNED = (
    f"ConvInteger(x, Recoded(w, to='unsigned'), z, Recoded(v, to='unsigned'), {PADDED})"
)


def test_the_estimate_knows_which_kernels_are_slow() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 13]>\n'
        "main (uint8[1, 64, 28, 28] x, uint8 z) => (int32[1, 64, 28, 28] y)"
        " <int8[64, 64, 3, 3] w = {1}, int8 v = {2}>"
        " { y = ConvInteger<pads = [1, 1, 1, 1]>(x, w, z, v) }"
    )
    model = parser.parse_model(text)
    weights = np.random.default_rng(0).integers(-128, 128, (64, 64, 3, 3)).astype(np.int8)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    result = xflow.optimize(model, cost="estimated", budget=5)
    assert [use.name for use in result.report.rules] == [
        f"{saying(CONV_OF_UNSIGNED, CONV_OF_SIGNED).name}.reverse"
    ]


def test_weights_that_are_computed_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX has no operator for other codes: only constants are changed, when they are written."""
    monkeypatch.setattr(attempts, "EstimatedCost", Signless)
    model = model_of("int8", 3, kernel="u")
    result = xflow.optimize(model, cost="estimated", budget=2)
    assert [node.op_type for node in result.model.graph] == ["ConvInteger"]
    assert not result.report.rules


@pytest.mark.parametrize(
    "change",
    [
        ("(x, w, z, v)", "(x, w, , v)"),  # a zero point for the weights alone
        ("int8 v =  {3}", "int8[4] v = {1, 2, 3, 4}"),  # one for each channel
        ("uint8[2,3,7,6] x, uint8 z", "int8[2,3,7,6] x, int8 z"),  # kernels would cut sums off
    ],
)
def test_what_the_registry_does_not_describe_stays_opaque(change: tuple[str, str]) -> None:
    text = onnx.printer.to_text(model_of("int8", 3))
    assert change[0] in text
    model = parser.parse_model(text.replace(*change))
    source = import_model(ir.from_proto(model))
    assert not any(
        isinstance(node.op, Operator) and node.op.name == "ConvInteger"
        for node in source.graph.nodes
    )


def test_no_rule_makes_codes_where_there_are_none() -> None:
    """So what there is for quantized models changes no other one."""
    about_codes = 0
    for name, rule in directions_of(tuple(load_rules(default_directory()))).items():
        instance = rule.instance(rule.usable_ranks[0])  # types are the same at all ranks
        left, right = (
            any(value.type.dtype == CODE for node in walk(side) for value in node.outputs)
            for side in (instance.lhs, instance.rhs)
        )
        assert left or not right, name
        about_codes += left
    assert about_codes
