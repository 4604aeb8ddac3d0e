"""Probes of a calibration for convolutions, matrix products and pools.

Convolutions and pools stand in a row, so that what lies between them can stay in a layout of the
runtime's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.core.registry import Array
from xflow.core.sorts import CODES
from xflow.cost.calibration.probes import IMAGE, ROWS, SCORES, Constants, Probe, call

ROW_OF = 5
"""Operators in a row."""


def reference(constants: Constants) -> Graph:
    """A product of matrices: the reference for operators that are bound by their arithmetic."""
    width = ROWS[2]
    return Graph((call("MatMul", constants.input(ROWS), constants.weight(width, width)),))


def peaks(constants: Constants) -> Iterator[Probe]:
    """Operators that are bound by their arithmetic."""
    for shape, kernel in (
        ((1, 256, 28, 28), 1),
        (IMAGE, 1),
        (IMAGE, 3),
        ((1, 256, 14, 14), 3),
    ):
        yield convolution("peak.Conv", constants, shape, kernel)
    for name in ("MaxPool", "AveragePool"):
        yield pool(f"peak.{name}", name, constants, IMAGE[1])
    tokens, width, heads = ROWS[1], ROWS[2], SCORES[1]
    # What may stand in the place of each other has the same sizes, and is timed together.
    yield pixels("peak.Conv.pixels", constants, (1, width, 1, tokens))
    for inner, outer in ((width, width), (width, 4 * width), (4 * width, width)):
        products = [
            call("MatMul", constants.input((1, tokens, inner)), constants.weight(inner, outer))
            for _ in range(constants.copies)
        ]
        yield Probe("peak.MatMul", Graph(tuple(products)))
    split = (1, heads, tokens, width // heads)
    keys = [
        call("MatMul", constants.input(split), constants.input((*split[:2], split[3], split[2])))
        for _ in range(constants.copies)
    ]
    yield Probe("peak.MatMul.computed", Graph(tuple(keys)))
    layouts: tuple[tuple[tuple[int, ...], int], ...] = ((split, 0), ((1, tokens, width), heads))
    for layout, numbers in layouts:
        attention = [
            call(
                "Attention",
                *(constants.input(layout) for _ in range(3)),
                scale=Fraction(1, 8),
                q_num_heads=numbers,
                kv_num_heads=numbers,
            )
            for _ in range(constants.copies)
        ]
        yield Probe("peak.Attention", Graph(tuple(attention)))
    dense = [
        call(
            "Gemm",
            constants.input((tokens, width)),
            constants.weight(width, width),
            constants.weight(width),
        )
        for _ in range(constants.copies)
    ]
    yield Probe("peak.Gemm", Graph(tuple(dense)))
    for dtype, name in (("UINT8", "peak.ConvInteger"), ("INT8", "peak.ConvInteger.signed")):
        images = [
            call(
                "ConvInteger",
                constants.input(IMAGE, "UINT8"),
                constants.codes(dtype, IMAGE[1], IMAGE[1], 3, 3),
                constants.codes("UINT8"),
                constants.codes(dtype),
                pads=(1, 1, 1, 1),
            )
            for _ in range(constants.copies)
        ]
        yield Probe(name, Graph(tuple(images)))
    for dtype, name in (("UINT8", "peak.MatMulInteger"), ("INT8", "peak.MatMulInteger.signed")):
        rows = [
            call(
                "MatMulInteger",
                constants.codes(dtype, ROWS[2], ROWS[2]),
                constants.input((ROWS[0], *ROWS[:0:-1]), "UINT8"),
                constants.codes(dtype),
                constants.codes("UINT8"),
            )
            for _ in range(constants.copies)
        ]
        yield Probe(name, Graph(tuple(rows)))
    grown = [
        call(
            "ConvTranspose",
            constants.input((1, 64, 28, 28)),
            constants.weight(64, 64, 2, 2),
            strides=(2, 2),
        )
        for _ in range(constants.copies)
    ]
    yield Probe("peak.ConvTranspose", Graph(tuple(grown)))


SIGNED, UNSIGNED = CODES
MIDDLE = {SIGNED: 0, UNSIGNED: 128}
"""Zero points, by the type of codes."""


def on_codes(constants: Constants) -> Iterator[Probe]:
    """Convolutions and matrix products on codes without a sign, by weights with one and without."""
    tokens, width = ROWS[1:]
    for weights, name in ((UNSIGNED, ".codes"), (SIGNED, ".codes.signed")):
        kernel = (IMAGE[1], IMAGE[1], 3, 3)
        yield _coded(f"peak.Conv{name}", constants, IMAGE, kernel, weights)
        yield _coded(f"peak.MatMul{name}", constants, (1, tokens, width), (width, width), weights)


def _coded(
    name: str, constants: Constants, shape: tuple[int, ...], kernel: tuple[int, ...], weights: str
) -> Probe:
    """Products in a row, with a conversion to codes and back behind each."""
    value = _quantized(constants.input(shape), constants, 0.05, MIDDLE[UNSIGNED])
    results = []
    for _ in range(ROW_OF):
        parts = constants.codes(weights, *kernel), constants.constant(0.01)
        weight = call("DequantizeLinear", *parts, constants.full(weights, MIDDLE[weights]))
        value = _quantized(_product(value, weight), constants, 0.05, MIDDLE[UNSIGNED])
        results.append(value)
    return Probe(name, Graph((results[-1],)), Graph((results[0],)))


def _product(value: Value, weight: Value) -> Value:
    if len(weight.shape) == len(ROWS) - 1:
        return call("MatMul", value, weight)
    return call("Conv", value, weight, pads=(1, 1, 1, 1))


def _quantized(value: Value, constants: Constants, scale: float, zero: int) -> Value:
    """A value as codes without a sign make it."""
    parameters = constants.constant(scale), constants.full(UNSIGNED, zero)
    codes = call("QuantizeLinear", value, *parameters, to="unsigned")
    return call("DequantizeLinear", codes, *parameters)


def extremes(constants: Constants) -> Iterator[tuple[Graph, Array, float]]:
    """Products of the greatest codes without a sign by the greatest weights with one.

    With each, the input, and what all elements of the result are. They are half as large where
    sums of two products are cut off at 16 bits.
    """
    greatest, weight, inner = 255, 127, 64
    for shape, kernel in (((1, 8, inner), (inner, 32)), ((1, inner, 8, 8), (32, inner, 1, 1))):
        image = _quantized(constants.input(shape), constants, 1.0, 0)
        parts = constants.full(SIGNED, weight, *kernel), constants.constant(1.0)
        weights = call("DequantizeLinear", *parts, constants.full(SIGNED, 0))
        product = call("MatMul" if len(kernel) == len(ROWS) - 1 else "Conv", image, weights)
        scale = greatest * weight * inner / 200
        graph = Graph((_quantized(product, constants, scale, 0),))
        yield graph, np.full(shape, greatest, np.float32), 200 * float(np.float32(scale))


def convolution(
    name: str, constants: Constants, shape: tuple[int, ...], kernel: int, group: int = 1
) -> Probe:
    """Convolutions in a row, as many channels out as in."""
    value = constants.input(shape)
    results = []
    for _ in range(ROW_OF):
        weight = constants.weight(shape[1], shape[1] // group, kernel, kernel)
        value = call("Conv", value, weight, pads=(kernel // 2,) * 4, group=group)
        results.append(value)
    return Probe(name, Graph((results[-1],)), Graph((results[0],)))


def pixels(name: str, constants: Constants, shape: tuple[int, ...]) -> Probe:
    """Convolutions of one pixel in a row, by turns to four times as many channels and back."""
    value = constants.input(shape)
    results = []
    for number in range(ROW_OF):
        widths = (4 * shape[1], shape[1]) if number % 2 == 0 else (shape[1], 4 * shape[1])
        value = call("Conv", value, constants.weight(*widths, 1, 1))
        results.append(value)
    return Probe(name, Graph((results[-1],)), Graph((results[0],)))


def pool(name: str, op: str, constants: Constants, channels: int) -> Probe:
    """Pools in a row that keep the size."""
    value = constants.input((1, channels, *IMAGE[2:]))
    results = []
    for _ in range(ROW_OF):
        value = call(op, value, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        results.append(value)
    return Probe(name, Graph((results[-1],)), Graph((results[0],)))


def layouts(constants: Constants) -> dict[str, Probe]:
    """Operators in the runtime's layout, and with channels that leave them outside of it.

    In ``eighths`` the channels fill blocks of 8 and not of 16, in ``odd`` neither. Only ratios of
    what they take count, so they have no numbers of their own.
    """
    channels = IMAGE[1]
    named = {"": channels, ".eighths": channels + 8, ".odd": channels + 4}
    found = {
        f"{op}{key}": pool(f"{op}{key}", op, constants, count)
        for op in ("AveragePool", "MaxPool")
        for key, count in named.items()
        if (op, key) != ("MaxPool", ".eighths")
    }
    for key in ("", ".odd"):
        name = f"GlobalAveragePool{key}"
        found[name] = global_pool(name, constants, named[key])
    for key, count in (("", 32), (".odd", 20)):
        shape = (1, 4 * count, *IMAGE[2:])
        found[f"Conv{key}"] = convolution(f"Conv{key}", constants, shape, 3, group=4)
    # Groups with next to nothing to do.
    found["Conv.groups"] = convolution("Conv.groups", constants, (1, 128, 4, 4), 3, group=32)
    return found


def groups(constants: Constants) -> dict[int, Probe]:
    """Convolutions in thin groups, by their channels."""
    return {
        channels: convolution(f"group of {channels}", constants, shape, 3, shape[1] // channels)
        for channels, shape in ((1, (1, 96, 56, 56)), (4, (1, 128, 28, 28)), (8, IMAGE))
    }


def global_pool(name: str, constants: Constants, channels: int) -> Probe:
    """Global pools of images that come from another pool."""
    images = [
        call("MaxPool", constants.input((1, channels, *IMAGE[2:])), kernel_shape=(1, 1))
        for _ in range(2 * constants.copies)
    ]
    means = [call("GlobalAveragePool", image) for image in images]
    return Probe(name, Graph((*images, *means)), Graph(tuple(images)))
