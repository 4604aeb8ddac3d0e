"""A graph that is written node by node, with weights drawn as it grows and exporters' names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dims: TypeAlias = Sequence[int | str]
Array: TypeAlias = np.ndarray[Any, Any]
Operand: TypeAlias = "str | float | Sequence[int] | Array"

BUILT: dict[str, Callable[[], onnx.ModelProto]] = {}
"""The builder of each miniature, by its name."""


def miniature(build: Callable[[], onnx.ModelProto]) -> Callable[[], onnx.ModelProto]:
    """Enter a builder under its own name."""
    BUILT[build.__name__] = build
    return build


class Net:
    """One graph that grows. Values are named by their names in the graph."""

    def __init__(self, opset: int = 17, *, domains: Sequence[tuple[str, int]] = ()) -> None:
        self.opset = opset
        self.domains = domains
        self.scope = ""
        self.random = np.random.default_rng(opset)
        self.counts: dict[str, int] = {}
        self.shared: dict[tuple[Any, ...], str] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.drawn: list[str] = []
        self.again: Iterator[str] | None = None

    def fresh(self, kind: str) -> str:
        """A name in PyTorch's manner that was not given yet."""
        path = f"{self.scope}/{kind}"
        count = self.counts[path] = self.counts.get(path, -1) + 1
        return f"{path}_{count}" if count else path

    def input(self, name: str, dims: Dims, dtype: int = TensorProto.FLOAT) -> str:
        """An input of the model."""
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def keep(self, array: Array, name: str = "") -> str:
        """An initializer."""
        name = name or self.fresh("weight")
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int, std: float = 0.0, mean: float = 0.0) -> str:
        """Weights drawn at random; without a deviation, such that activations keep their size.

        While there are names in `again`, these are taken instead.
        """
        if self.again is not None:
            return next(self.again)
        fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        drawn = self.random.standard_normal(shape) * (std or fan**-0.5) + mean
        self.drawn.append(self.keep(drawn.astype(np.float32)))
        return self.drawn[-1]

    def operand(self, value: Operand) -> str:
        """The name of a value; numbers become constants, which equal ones share."""
        if isinstance(value, str):
            return value
        array = value
        if not isinstance(value, np.ndarray):
            array = np.asarray(value, np.float32 if isinstance(value, float) else np.int64)
        key = (str(array.dtype), array.shape, array.tobytes())  # type: ignore[union-attr]
        if key not in self.shared:
            self.shared[key] = self.keep(array, f"constant_{len(self.shared)}")  # type: ignore[arg-type]
        return self.shared[key]

    def ops(self, kind: str, count: int, *inputs: Operand, **attributes: Any) -> list[str]:
        """Add a node with so many outputs; its name and theirs come from the scope."""
        name = self.fresh(kind)
        made = [f"{name}_output_{number}" for number in range(count)]
        domain = attributes.pop("domain", "")
        names = [self.operand(each) for each in inputs]
        self.nodes.append(
            helper.make_node(kind, names, made, name=name, domain=domain, **attributes)
        )
        return made

    def __call__(self, kind: str, *inputs: Operand, **attributes: Any) -> str:
        """Add a node with one output."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    # Layers

    def conv(self, x: str, before: int, after: int, size: int = 1, **attributes: Any) -> str:
        """A convolution with bias, padded such that a stride of 1 keeps the size."""
        group = attributes.setdefault("group", 1)
        dims = attributes.pop("dims", 2)
        dilation = attributes.get("dilations", [1])[0]
        pad = attributes.pop("pad", dilation * (size - 1) // 2)
        stride = attributes.pop("stride", 1)
        kernel = self.weight(after, before // group, *[size] * dims)
        operands = [x, kernel]
        if attributes.pop("bias", True):
            operands.append(self.weight(after, std=0.1))
        return self(
            "Conv", *operands, kernel_shape=[size] * dims, pads=[pad] * 2 * dims,
            strides=[stride] * dims, **attributes,
        )  # fmt: skip

    def norm(self, x: str, channels: int) -> str:
        """A BatchNormalization with statistics of its own."""
        parameters = (
            self.weight(channels, std=0.1, mean=1.0),
            self.weight(channels, std=0.1),
            self.weight(channels, std=0.1),
            self.keep(self.random.uniform(0.5, 1.5, channels).astype(np.float32)),
        )
        return self("BatchNormalization", x, *parameters, epsilon=1e-5)

    def linear(self, x: str, before: int, after: int, bias: bool = True) -> str:
        """MatMul and Add, as a linear layer of a tensor of rank 3 is exported."""
        x = self("MatMul", x, self.weight(before, after))
        return self("Add", self.weight(after, std=0.1), x) if bias else x

    def layer_norm(self, x: str, width: int) -> str:
        """LayerNormalization over the last axis: spelled out before opset 17."""
        scale, shift = self.weight(width, std=0.1, mean=1.0), self.weight(width, std=0.1)
        if self.opset >= 17:
            return self("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)
        centred = self("Sub", x, self("ReduceMean", x, axes=[-1]))
        variance = self("ReduceMean", self("Pow", centred, 2.0), axes=[-1])
        root = self("Sqrt", self("Add", variance, 1e-5))
        return self("Add", self("Mul", self("Div", centred, root), scale), shift)

    def gelu(self, x: str) -> str:
        """Gelu by Erf, as PyTorch spells it."""
        inner = self("Add", self("Erf", self("Div", x, 2**0.5)), 1.0)
        return self("Mul", self("Mul", x, inner), 0.5)

    def silu(self, x: str) -> str:
        """x * sigmoid(x)."""
        return self("Mul", x, self("Sigmoid", x))

    def heads(self, x: str, length: int, heads: int, size: int, perm: Sequence[int]) -> str:
        """A tensor of rank 3 with its last axis split into heads, which go before the length."""
        return self("Transpose", self("Reshape", x, [0, length, heads, size]), perm=perm)

    def attention(
        self, x: str, memory: str, width: int, heads: int, *, length: int = -1, mask: str = "",
        bias: bool = True, past: tuple[str, str] | None = None,
    ) -> tuple[str, str, str]:  # fmt: skip
        """Attention of x to memory as PyTorch exports it; also the keys and values by heads."""
        size = width // heads
        q = self.heads(self.linear(x, width, width, bias), length, heads, size, [0, 2, 1, 3])
        k = self.heads(self.linear(memory, width, width, bias), -1, heads, size, [0, 2, 1, 3])
        v = self.heads(self.linear(memory, width, width, bias), -1, heads, size, [0, 2, 1, 3])
        if past:
            k = self("Concat", past[0], k, axis=2)
            v = self("Concat", past[1], v, axis=2)
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self("Div", scores, float(size**0.5))
        if mask:
            scores = self("Add", scores, mask)
        mixed = self("MatMul", self("Softmax", scores, axis=-1), v)
        joined = self("Reshape", self("Transpose", mixed, perm=[0, 2, 1, 3]), [0, length, width])
        return self.linear(joined, width, width, bias), k, v

    def mlp(self, x: str, width: int, inner: int, activation: str = "gelu") -> str:
        """Two linear layers with an activation between them."""
        x = self.linear(x, width, inner)
        x = getattr(self, activation)(x) if activation in ("gelu", "silu") else self(activation, x)
        return self.linear(x, inner, width)

    # The whole

    def graph(self, outputs: Sequence[tuple[Any, ...]]) -> onnx.GraphProto:
        """The graph as a message."""
        made = [helper.make_tensor_value_info(*each) for each in outputs]
        return helper.make_graph(self.nodes, "miniature", self.inputs, made, self.weights)

    def model(self, *outputs: str | tuple[Any, ...]) -> onnx.ModelProto:
        """The model; an output is a name, with its shape and element type where need be.

        Shape inference finds the shapes of the others.
        """
        typed = []
        for output in outputs:
            name, dims, dtype = (*(output if isinstance(output, tuple) else (output, None)), 1)[:3]
            typed.append((name, dtype, dims))
        imports = [helper.make_opsetid(*each) for each in [("", self.opset), *self.domains]]
        made = helper.make_model(
            self.graph(typed), opset_imports=imports, producer_name="miniature"
        )
        made.ir_version = 8 if self.opset <= 20 else 10
        inferred = onnx.shape_inference.infer_shapes(made, data_prop=True)
        known = {value.name: value for value in inferred.graph.value_info}
        known |= {value.name: value for value in inferred.graph.output}
        for value in made.graph.output:
            if value.name in known and not value.type.tensor_type.HasField("shape"):
                value.CopyFrom(known[value.name])
        onnx.checker.check_model(made)
        return made
