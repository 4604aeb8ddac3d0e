"""What the estimate takes to be computed on codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from coded_networks import Builder, residual_network

from xflow.core.graph import Graph
from xflow.cost.estimate import Estimator
from xflow.cost.quantized import Codes, Units
from xflow.cost.target import TargetModel
from xflow.onnx.importer import import_model


def graph_of(net: Builder, result: str) -> Graph:
    return import_model(ir.from_proto(net.model(result))).graph


def units_of(graph: Graph, cuts_off: bool = True) -> Units:
    target = Estimator().target
    return Codes(target.coded_products, target.coded, cuts_off).units(graph)


def names(units: Units) -> list[str]:
    return sorted(str(node.op) for node in units.fused)


@pytest.mark.parametrize(
    ("images", "weights", "fused", "cut_off"),
    [
        ("uint8", "uint8", ["Add", "Conv", "Conv", "Conv"], 0),
        ("uint8", "int8", ["Add"], 3),
        # The first convolution's result has a sign and is read twice.
        ("int8", "uint8", ["Conv"], 0),
        ("int8", "int8", [], 1),
    ],
)
def test_products_are_on_codes_without_a_sign_alone(
    images: str, weights: str, fused: list[str], cut_off: int
) -> None:
    units = units_of(import_model(ir.from_proto(residual_network(images, weights))).graph)
    assert (names(units), units.cut_off) == (fused, cut_off)


@pytest.mark.parametrize(
    ("images", "weights", "fused", "signed"),
    [
        ("uint8", "uint8", ["Add", "Conv", "Conv", "Conv"], 0),
        ("uint8", "int8", ["Add", "Conv", "Conv", "Conv"], 3),
        ("int8", "int8", ["Conv"], 1),
    ],
)
def test_weights_may_have_a_sign_where_no_sums_are_cut_off(
    images: str, weights: str, fused: list[str], signed: int
) -> None:
    graph = import_model(ir.from_proto(residual_network(images, weights))).graph
    units = units_of(graph, cuts_off=False)
    assert (names(units), len(units.signed), units.cut_off) == (fused, signed, 0)


def test_weights_with_a_sign_take_less_time_where_they_are_exact() -> None:
    def seconds(weights: str, cuts_off: bool) -> float:
        net = Builder("uint8", weights)
        graph = graph_of(net, net.convolution(net.quantized("x"), 3, 4096))
        return Estimator(replace(TargetModel(), cuts_off=cuts_off))(graph)

    assert seconds("int8", False) < seconds("uint8", False)
    assert seconds("int8", True) > seconds("uint8", True)


def test_a_result_that_is_also_read_as_floats_is_not_on_codes() -> None:
    net = Builder("uint8", "uint8")
    first = net.convolution(net.quantized("x"), 3, 16)
    plain = next(n for n in net.nodes if n.op_type == "Conv").output[0]
    graph = graph_of(net, net.node("Add", first, net.node("Relu", plain)))
    assert not units_of(graph).fused


def test_what_is_read_inside_and_outside_of_a_part_is_read_twice() -> None:
    """The runtime turns no codes with a sign that two read, wherever these are."""
    net = Builder("int8", "uint8")
    first = net.convolution(net.quantized("x"), 3, 16)
    second = net.convolution(first, 16, 16)
    whole = graph_of(net, second)
    inner = next(n.inputs[0] for n in reversed(whole.nodes) if n.is_operator("Conv"))
    assert names(units_of(whole)) == ["Conv", "Conv"]
    for part in (inner, inner.node.inputs[0]):
        assert not units_of(Graph((*whole.outputs, part))).fused


def test_floats_are_not_on_codes() -> None:
    net = Builder("uint8", "uint8")
    assert units_of(graph_of(net, net.node("Relu", "x"))) == Units()


def test_operators_on_codes_take_less_time() -> None:
    estimates = [
        Estimator()(import_model(ir.from_proto(residual_network(images, "uint8"))).graph)
        for images in ("int8", "uint8")
    ]
    assert estimates[1] < estimates[0]


def test_weights_that_are_quantized_once_have_the_type_that_they_get() -> None:
    """The runtime makes codes with a sign of constants once, and turns no such codes."""
    net = Builder("uint8", "int8")
    x = net.quantized("x")
    signed = Builder("int8", "int8")
    signed.nodes, signed.constants = net.nodes, net.constants
    kernel = signed.quantized(net.constant(np.ones((8, 3, 3, 3), np.float32)))
    result = net.quantized(net.node("Conv", x, kernel))
    units = units_of(graph_of(net, result))
    assert (names(units), units.cut_off) == ([], 1)
