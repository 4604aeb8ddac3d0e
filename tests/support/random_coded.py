"""Random networks with codes of quantized numbers, as quantizers and converters write them.

Each is made from a number alone: images with a sign or without, with one reader or several; weights
with one scale or one for each channel, with and without zero points that are not in the middle;
convolutions of integers whose images are quantized while the model runs; conversions around
movements, pools, sums and activations; codes that the model gives. Some sums of products are as
large as 24 bits hold, and some are larger.

Every other one has pairs of operators that cancel out before and behind its conversions, weights
that are floats, and reals that are made of sums of 32 bits. Its codes have no sign, so that no
other types of codes let the runtime compute more on codes, which rounds ties otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from xflow.core.registry import Array

FEWEST, MOST = 2, 7
"""Steps of a network."""
CHANNELS = (1, 3, 4, 16)
SIDE = 6
LARGE = 700
"""Channels of which the sums of products need more than 24 bits if weights are large."""
LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
MIDDLE = {"int8": 0, "uint8": 128}
STEPS = ("convolution", "integers", "quantized", "activation", "pool", "sum", "turn")
SCALES = (0.05, 0.031, 1.0, 0.25, 1e-3)
UNSIGNED_STEPS = (*STEPS, "sums", "convolution", "product")
PAIRS = ("Neg", "Transpose", "Reshape", "Mul", "Identity", "Add", "Div", "nothing")
"""Operators that are undone at once, or do nothing."""


@dataclass(frozen=True)
class Image:
    """A value of floats and its channels."""

    name: str
    channels: int


@dataclass
class CodedNetwork:
    """A network that grows; everything that is random is drawn by `rng`."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    outputs: list[tuple[str, int]] = field(default_factory=list)
    is_paired: bool = False
    """Whether there are pairs of operators that cancel out, and all codes have no sign."""

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, f"n{names[0]}", **attributes))
        return names

    def one(self, op: str, *inputs: str, **attributes: Any) -> str:
        (name,) = self.node(op, *inputs, **attributes)
        return name

    def read(self) -> list[onnx.NodeProto]:
        """The nodes on which the outputs depend: the runtime lets others keep it from fusing."""
        needed = {name for name, _ in self.outputs}
        found = []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.output):
                needed.update(node.input)
                found.append(node)
        return found[::-1]

    @property
    def types(self) -> tuple[str, ...]:
        """The types of its codes."""
        return ("uint8",) if self.is_paired else ("int8", "uint8")

    def apart(self, image: Image) -> Image:
        """An image, at times behind operators that change nothing together."""
        if not self.is_paired:
            return image
        name, shape = image.name, np.array([1, -1, SIDE, SIDE])
        match self.draw(PAIRS):
            case "Neg":
                name = self.one("Neg", self.one("Neg", name))
            case "Transpose":
                turned = self.one("Transpose", name, perm=[0, 2, 3, 1])
                name = self.one("Transpose", turned, perm=[0, 3, 1, 2])
            case "Reshape":
                flat = self.one("Reshape", name, self.constant(np.array([1, -1])))
                name = self.one("Reshape", flat, self.constant(shape))
            case "Mul" | "Div" as op:
                name = self.one(op, name, self.constant(np.asarray(1, np.float32)))
            case "Add":
                name = self.one("Add", name, self.constant(np.asarray(0, np.float32)))
            case "Identity":
                name = self.one("Identity", name)
        return Image(name, image.channels)

    def pick(self) -> Image:
        """One of the values so far, the later ones more often."""
        place = min(self.rng.geometric(0.5), len(self.images))
        return self.images[-place]

    def draw(self, choices: tuple[str, ...]) -> str:
        return str(self.rng.choice(choices))

    def zero_point(self, dtype: str) -> int:
        """Often the middle, at times an end, or any code."""
        low, high = LIMITS[dtype]
        near = MIDDLE[dtype] + int(self.rng.integers(-9, 10))
        anything = int(self.rng.integers(low, high))
        return int(self.rng.choice(np.array([MIDDLE[dtype], near, low, high, anything])))

    def quantized(self, image: Image) -> Image:
        """An image as codes make it, which are at times given by the model or read again."""
        dtype = self.draw(self.types)
        image = self.apart(image)
        s = self.constant(np.asarray(self.rng.choice(SCALES), np.float32))
        z = self.constant(np.asarray(self.zero_point(dtype), dtype))
        codes = self.one("QuantizeLinear", image.name, s, z)
        if self.rng.random() < 0.1:
            self.outputs.append((codes, getattr(TensorProto, dtype.upper())))
        if self.rng.random() < 0.2:
            codes = self.one("Transpose", codes, perm=[0, 1, 3, 2])
        made = self.one("DequantizeLinear", codes, s, z)
        if self.rng.random() < 0.2:  # a second reader, with a conversion of its own or the same
            again = self.one("DequantizeLinear", codes, s, z)
            made = self.one("Add", made, again if self.rng.random() < 0.5 else made)
        return self.apart(Image(made, image.channels))

    def codes(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Weights that are codes: of ordinary size, or the extremes of their type."""
        low, high = LIMITS[dtype]
        if self.rng.random() < 0.3:
            return self.rng.choice([low, high], shape).astype(dtype)
        normal = np.rint(self.rng.normal(MIDDLE[dtype], 30, shape))
        return np.clip(normal, low, high).astype(dtype)

    def convolution(self, image: Image) -> Image:
        """A convolution by weights that are codes, of an image as codes make it."""
        image = self.quantized(image)
        outer, dtype = int(self.rng.choice(CHANNELS)), self.draw(self.types)
        if self.is_paired and self.rng.random() < 0.5:
            return self.quantized(self.of_floats(image, outer))
        w = self.constant(self.codes((outer, image.channels, 3, 3), dtype))
        count = outer if self.rng.random() < 0.6 else 0
        shape = (count,) if count else ()
        scales = self.rng.uniform(1e-4, 1e-2, shape).astype(np.float32)
        zeros = np.full(shape, self.zero_point(dtype), dtype)
        axis = {"axis": 0} if count else {}
        parts = (w, self.constant(np.asarray(scales)), self.constant(zeros))
        kernel = self.one("DequantizeLinear", *parts, **axis)
        made = self.one("Conv", image.name, kernel, pads=[1, 1, 1, 1])
        return self.quantized(Image(made, outer))

    def of_floats(self, image: Image, outer: int) -> Image:
        """A convolution by weights that are floats, at times with a bias and an activation."""
        shape = (outer, image.channels, 3, 3)
        parts = [self.constant(self.rng.normal(0, 0.2, shape).astype(np.float32))]
        if self.rng.random() < 0.5:
            parts.append(self.constant(self.rng.normal(0, 1, outer).astype(np.float32)))
        made = Image(self.one("Conv", image.name, *parts, pads=[1, 1, 1, 1]), outer)
        return Image(self.one("Relu", made.name), outer) if self.rng.random() < 0.3 else made

    def product(self, image: Image) -> Image:
        """Rows times a matrix of floats, as codes make and read them."""
        image = self.quantized(image)
        w = self.constant(self.rng.normal(0, 0.3, (SIDE, SIDE)).astype(np.float32))
        made = self.one("MatMul", image.name, w)
        if self.rng.random() < 0.5:
            bias = self.rng.normal(0, 1, SIDE).astype(np.float32)
            made = self.one("Add", made, self.constant(bias))
        return self.quantized(Image(made, image.channels))

    def sums(self, image: Image) -> Image:
        """Reals that are made of sums of 32 bits, and moved."""
        s, z = self.constant(np.asarray(0.05, np.float32)), self.constant(np.asarray(128, np.uint8))
        codes = self.one("QuantizeLinear", image.name, s, z)
        w = self.constant(self.codes((4, image.channels, 1, 1), "uint8"))
        sums = self.one("ConvInteger", codes, w, z, z)
        scale = self.constant(np.asarray(2e-3, np.float32))
        made = self.apart(Image(self.one("DequantizeLinear", sums, scale), 4))
        if self.rng.random() < 0.6:
            made = Image(self.one("Transpose", made.name, perm=[0, 1, 3, 2]), made.channels)
        return made

    def integers(self, image: Image) -> Image:
        """A convolution of integers, whose images are quantized while it runs."""
        codes, scale, zero = self.node("DynamicQuantizeLinear", image.name, outputs=3)
        channels, dtype = image.channels, self.draw(self.types)
        if self.rng.random() < 0.3:
            channels = LARGE
            shape = self.constant(np.array([1, LARGE, SIDE, SIDE]))
            one = self.one("Slice", codes, *map(self.constant, _first_channel()))
            codes = self.one("Expand", one, shape)
        outer = int(self.rng.choice(CHANNELS))
        w = self.constant(self.codes((outer, channels, 1, 1), dtype))
        inputs = [codes, w, zero]
        if self.rng.random() < 0.7:
            inputs.append(self.constant(np.asarray(self.zero_point(dtype), dtype)))
        sums = self.one("ConvInteger", *inputs)
        floats = self.one("Cast", sums, to=TensorProto.FLOAT)
        factor = self.one("Mul", scale, self.constant(np.asarray(0.004, np.float32)))
        return Image(self.one("Mul", floats, factor), outer)

    def step(self) -> Image:
        """One more value."""
        image = self.pick()
        match self.draw(UNSIGNED_STEPS if self.is_paired else STEPS):
            case "sums":
                return self.sums(image)
            case "product":
                return self.product(image)
            case "convolution":
                return self.convolution(image)
            case "integers":
                return self.integers(image)
            case "activation":
                name = self.one(self.draw(("Relu", "Neg", "Sigmoid", "Round")), image.name)
                return Image(name, image.channels)
            case "pool":
                options = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
                return Image(self.one("MaxPool", image.name, **options), image.channels)
            case "sum":
                same = [each for each in self.images if each.channels == image.channels]
                other = same[int(self.rng.integers(len(same)))]
                return Image(self.one("Add", image.name, other.name), image.channels)
            case "turn":
                name = self.one("Transpose", image.name, perm=[0, 1, 3, 2])
                return Image(name, image.channels)
        return self.quantized(image)


def _first_channel() -> list[Array]:
    return [np.array([each]) for each in (0, 1, 1)]


def is_paired(seed: int) -> bool:
    """Whether the network of that number has pairs of operators that cancel out."""
    return seed % 2 == 1


def coded_network(seed: int) -> onnx.ModelProto:
    """The network of that number, for an image `x`."""
    net = CodedNetwork(np.random.default_rng([2026, seed]), is_paired=is_paired(seed))
    channels = int(net.rng.choice(CHANNELS))
    net.images.append(Image("x", channels))
    for _ in range(net.rng.integers(FEWEST, MOST + 1)):
        net.images.append(net.step())
    last = net.quantized(net.images[-1]) if net.rng.random() < 0.5 else net.images[-1]
    net.outputs.append((net.one("Identity", last.name), TensorProto.FLOAT))
    shape = (1, channels, SIDE, SIDE)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in net.outputs]
    if net.is_paired:
        net.nodes = net.read()
    graph = helper.make_graph(net.nodes, f"coded{seed}", [x], outputs, net.constants)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def images(model: onnx.ModelProto, seed: int) -> list[Array]:
    """Ordinary numbers, ties of scales, zeros, and what is no number."""
    (given,) = model.graph.input
    shape = [each.dim_value for each in given.type.tensor_type.shape.dim]
    rng = np.random.default_rng(seed)
    ordinary = rng.normal(0, 2, shape)
    ties = 0.05 * (rng.integers(-300, 300, shape) + 0.5)
    extreme = rng.choice([0.0, 1.0], shape)
    return [each.astype(np.float32) for each in (ordinary, ties, extreme, 0 * ties, 1e4 * ordinary)]
