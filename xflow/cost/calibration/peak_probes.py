"""Probes of a calibration for convolutions, matrix products and pools.

Convolutions and pools stand in a row, so that what lies between them can stay in a layout of the
runtime's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from xflow.core.graph import Graph
from xflow.cost.calibration.probes import IMAGE, ROWS, SCORES, Constants, Probe, call

ROW_OF = 5
"""Operators in a row."""


def peaks(constants: Constants) -> Iterator[Probe]:
    """Operators that are bound by their arithmetic."""
    for shape, kernel in (
        ((1, 256, 28, 28), 1),
        (IMAGE, 1),
        (IMAGE, 3),
        ((1, 256, 14, 14), 3),
    ):
        yield convolution("peak.Conv", constants, shape, kernel)
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
    for name in ("MaxPool", "AveragePool"):
        yield pool(f"peak.{name}", name, constants, IMAGE[1])
    tokens, width, heads = ROWS[1], ROWS[2], SCORES[1]
    # Of the same sizes as the products of matrices, instead of which they may stand.
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
