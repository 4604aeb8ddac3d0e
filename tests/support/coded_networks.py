"""Networks with codes of 8 bits between their operators, as quantizers write them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from xflow.core.registry import Array


class Builder:
    """Builds a model in which all that operators read and give is quantized and back."""

    def __init__(self, images: str, weights: str, seed: int = 0) -> None:
        self.images, self.weights = images, weights
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: Array) -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        """The name of what an operator gives."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"n{name}", **attributes))
        return name

    def quantized(self, value: str, scale: float = 0.05, zero: int = 3) -> str:
        """A value as codes make it."""
        shift = zero + (128 if self.images == "uint8" else 0)
        s = self.constant(np.asarray(scale, np.float32))
        z = self.constant(np.asarray(shift, self.images))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", value, s, z), s, z)

    def convolution(self, value: str, inner: int, outer: int) -> str:
        """A convolution by weights that are codes, with a scale for each channel."""
        zero = 0 if self.weights == "int8" else 128
        # Small enough that no kernel cuts the sum of two products off.
        codes = np.clip(np.rint(self.rng.normal(0, 25, (outer, inner, 3, 3))), -63, 63) + zero
        scales = self.rng.uniform(0.0005, 0.002, outer).astype(np.float32)
        middle = np.full(outer, zero, self.weights)
        w = self.constant(codes.astype(self.weights))
        parts = (w, self.constant(scales), self.constant(middle))
        kernel = self.node("DequantizeLinear", *parts, axis=0)
        return self.quantized(self.node("Conv", value, kernel, pads=[1, 1, 1, 1]))

    def model(self, result: str, shape: tuple[int, ...] = (1, 3, 8, 8)) -> onnx.ModelProto:
        """The model, for the image `x`."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "coded", [x], [y], self.constants)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def residual_network(images: str = "int8", weights: str = "int8", seed: int = 0) -> onnx.ModelProto:
    """Two convolutions, of which the first is also added to the second, and one behind."""
    net = Builder(images, weights, seed)
    first = net.convolution(net.quantized("x"), 3, 16)
    second = net.convolution(first, 16, 16)
    both = net.quantized(net.node("Add", first, second))
    return net.model(net.convolution(both, 16, 8))
