"""What the estimate takes to be computed on codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from coded_networks import Builder, residual_network
from graphs import call

from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, leaf
from xflow.cost import Use
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


SIZE = (1, 64, 56, 56)


def product_of_codes(
    *,
    weights: str = "UINT8",
    scales: tuple[int, ...] = (),
    behind: bool = True,
    apart: bool = False,
) -> Graph:
    """A product of codes whose sums become floats and are scaled, with a Reshape before or behind.

    `scales` is the shape of both scales, which are multiplied first, or applied `apart`.
    """
    x = leaf("x", TensorType("UINT8", (4, 64)))
    w = leaf("w", TensorType(weights, (64, 32)), constant=True)
    s, t = (leaf(name, TensorType("FLOAT", scales)) for name in "st")
    sums = call("MatMulInteger", x, w)
    if apart:
        return Graph((call("Mul", call("Mul", call("NearestFloat", sums), s), t),))
    s = call("Mul", s, t)
    if behind:
        return Graph(
            (call("Reshape", call("Mul", call("NearestFloat", sums), s), shape=(2, 2, 32)),)
        )
    turned = call("Reshape", sums, shape=(2, 2, 32))
    return Graph((call("Mul", call("NearestFloat", turned), s),))


def test_sums_of_codes_become_scaled_floats_in_the_product_itself() -> None:
    cost = Estimator()
    assert cost(product_of_codes()) < cost(product_of_codes(behind=False))
    # The runtime takes the product of two scales if it is one number.
    assert cost(product_of_codes()) < cost(product_of_codes(scales=(32,)))
    assert cost(product_of_codes()) < cost(product_of_codes(apart=True))


def test_a_product_by_weights_with_a_sign_is_not_described() -> None:
    """Its sums are cut off on some processors, so that none comes of a convolution."""
    with pytest.raises(ShapeError, match="no codes with a sign"):
        product_of_codes(weights="INT8")


def test_weights_that_are_the_second_operand_are_packed_before() -> None:
    codes = TensorType("UINT8", (256, 256))
    x, w = leaf("x", codes), leaf("w", codes, constant=True)
    cost = Estimator()
    assert cost(Graph((call("MatMulInteger", x, w),))) < cost(Graph((call("MatMulInteger", w, x),)))


def test_columns_of_a_convolution_of_codes_take_their_time() -> None:
    """Of windows that share no weights, which are many columns for few operations."""
    x = leaf("x", TensorType("UINT8", (1, 64, 56, 56)))
    wide, thin = (leaf("w", TensorType("UINT8", (64, 1, k, k)), constant=True) for k in (5, 1))
    kinds = [(wide, (2, 2, 2, 2)), (thin, (0, 0, 0, 0))]
    long, short = (
        Estimator()(Graph((call("ConvInteger", x, w, group=64, pads=pads),))) for w, pads in kinds
    )
    assert long > 2 * short


def test_sums_become_floats_in_one_thread() -> None:
    """The runtime shares out products of tensors among threads, but no casts."""
    made = call("NearestFloat", leaf("k", TensorType("INT32", (1, 64, 56, 56))))
    graphs = [Graph((made,)), Graph((call("Mul", made, leaf("s", TensorType("FLOAT", ()))),))]
    one, other = (Estimator(replace(TargetModel(), threads=threads)) for threads in (1, 4))
    assert one(graphs[0]) == other(graphs[0])
    assert one(graphs[1]) > other(graphs[1]) > other(graphs[0])


def test_what_makes_reals_of_codes_is_computed_for_each_reader() -> None:
    codes, zero = (leaf(name, TensorType("UINT8", size)) for name, size in (("k", SIZE), ("z", ())))
    x, s = (leaf(name, TensorType("FLOAT", size)) for name, size in (("x", SIZE), ("s", ())))
    real, scaled = call("DequantizeLinear", codes, s, zero), call("Mul", x, s)
    cost = Estimator()

    def of_three_more(value: Value) -> float:
        others = [leaf(f"x{k}", value.type) for k in range(4)]
        read = [call("Concat", value, other, axis=1) for other in others]
        return cost(Graph(tuple(read))) - cost(Graph((read[0],)))

    concatenating = cost(Graph((call("Concat", x, leaf("y", x.type), axis=1),)))
    assert of_three_more(scaled) == pytest.approx(3 * concatenating)
    assert of_three_more(real) == pytest.approx(3 * (concatenating + cost(Graph((real,)))))
    assert cost(Graph((real,)), [Use.SEVERAL]) > cost(Graph((real,)))
    assert cost(Graph((scaled,)), [Use.SEVERAL]) == cost(Graph((scaled,)))
