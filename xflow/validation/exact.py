"""The float64 version of a model, which computes the same with hardly any rounding.

All real numbers become float64: inputs, weights, constants in nodes and in graphs inside them, and
the targets of casts.  The runtime is asked node by node which operators it has in float64; the
others work in float32 between two casts.  Convolutions, which it has in float32 alone, become
products of matrices over gathered pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)
from onnx.inliner import inline_local_functions

from xflow.onnx.inference import infer_shapes
from xflow.onnx.nodes import RANDOM

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
REAL = {FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}
"""Element types that become float64."""
NAMES = {
    "float": FLOAT, "double": DOUBLE, "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16, "uint16": TensorProto.UINT16, "int32": TensorProto.INT32,
    "uint32": TensorProto.UINT32, "int64": TensorProto.INT64, "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL, "string": TensorProto.STRING, "complex64": TensorProto.COMPLEX64,
    "complex128": TensorProto.COMPLEX128, "float8e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ, "float8e5m2": TensorProto.FLOAT8E5M2,
    "float8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ, "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
}  # fmt: skip
"""The runtime's names of element types."""
SMALL = 1024
"""Elements up to which a constant is shown to the runtime when it is asked for a kernel."""
UNFOLDED = 2**25
"""Elements that the gathered pixels of a convolution may have."""
HARMLESS = {
    *("Erf", "Gelu", "Sum", "Mean", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan"),
    *("Asinh", "Acosh", "Atanh", "Elu", "Celu", "Selu", "PRelu", "LeakyRelu", "ThresholdedRelu"),
    *("HardSigmoid", "HardSwish", "Softplus", "Softsign", "Mish", "Swish", "Shrink", "Clip"),
    *("BiasGelu", "FastGelu", "QuickGelu", "Resize", "Upsample", "AveragePool", "SpaceToDepth"),
    *("DepthToSpace", "DequantizeLinear", "MelWeightMatrix"),
}
"""Operators of which a float32 kernel rounds each element a few times at most."""
TARGETS = {
    "Cast": ("to", None),
    "EyeLike": ("dtype", None),
    "SequenceEmpty": ("dtype", FLOAT),
    "HannWindow": ("output_datatype", FLOAT),
    "HammingWindow": ("output_datatype", FLOAT),
    "BlackmanWindow": ("output_datatype", FLOAT),
    "MelWeightMatrix": ("output_datatype", FLOAT),
}
"""Operators with an attribute that gives an element type, and its default."""

Probe = Callable[[ModelProto], Sequence[str] | None]
"""Loads a model in the runtime: the types of its outputs, or None if that fails."""


class NoExactForm(Exception):  # noqa: N818 - a property of a model, not a mishap
    """A model has no float64 version; the message says why."""


@dataclass(frozen=True)
class Exact:
    """A float64 version of a model; `precise` if nothing in it accumulates in less."""

    model: ModelProto
    precise: bool


def in_double(model: ModelProto, shapes: Mapping[str, Sequence[int]], probe: Probe) -> Exact:
    """The float64 version of a model whose weights are loaded, at these shapes of its inputs.

    The argument is used up: it may be large.  Raises NoExactForm.
    """
    if model.functions:
        model = inline_local_functions(model)
    _concrete(model, shapes)
    converter = _Converter(probe, model, _static_shapes(model))
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    fed = [item for item in graph.input if item.name not in weights]
    del graph.input[:]
    graph.input.extend(fed)
    del graph.value_info[:]
    types: dict[str, str] = {}
    for item in graph.input:
        types[item.name] = _declared(item.type)
        _widen_type(item.type)
    converter.graph(graph, types)
    for item in graph.output:
        _widen_type(item.type)
        if item.type.WhichOneof("value") == "tensor_type":
            item.type.tensor_type.ClearField("shape")
    return Exact(model, converter.precise)


def is_random(node: NodeProto) -> bool:
    """Whether the results of an operator of ONNX are not determined by its inputs."""
    trains = len(node.input) > 2 and bool(node.input[2])
    return node.op_type in RANDOM and (node.op_type != "Dropout" or trains)


def widened(value: Any) -> Any:
    """A value for an input of a model as its float64 version takes it."""
    if isinstance(value, list):
        return [widened(each) for each in value]
    real = value.dtype.kind == "f" or helper.np_dtype_to_tensor_dtype(value.dtype) in REAL
    return value.astype(np.float64) if real else value


@dataclass
class _Converter:
    """Rewrites the nodes of one model; `precise`: nothing in it accumulates in less so far."""

    probe: Probe
    model: ModelProto
    shapes: Mapping[str, tuple[int, ...]]
    precise: bool = True
    _answers: dict[bytes, Sequence[str] | None] = field(default_factory=dict)
    _count: int = 0

    def graph(self, graph: GraphProto, types: dict[str, str]) -> None:
        """Rewrite a graph; `types` of visible values, to which those inside are added."""
        if graph.sparse_initializer:
            raise NoExactForm("it has sparse weights")
        constants: dict[str, TensorProto] = {}
        for tensor in graph.initializer:
            _widen(tensor)
            types[tensor.name] = _tensor(tensor.data_type)
            if math.prod(tensor.dims) <= SMALL:
                constants[tensor.name] = tensor
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            if is_random(node):
                raise NoExactForm(f"{node.op_type} is random")
            graph.node.extend(self.node(node, types, constants))

    def node(
        self, node: NodeProto, types: dict[str, str], constants: dict[str, TensorProto]
    ) -> Iterable[NodeProto]:
        """The nodes that replace a node; the types of its outputs are noted."""
        bodies = [each for each in node.attribute if each.type == AttributeProto.GRAPH]
        if bodies:
            self._control_flow(node, bodies, types)
            return [node]
        if node.op_type == "Constant" and not node.domain:
            tensor = _constant(node)
            types[node.output[0]] = _tensor(tensor.data_type)
            if math.prod(tensor.dims) <= SMALL:
                constants[node.output[0]] = tensor
            return [helper.make_node("Constant", [], node.output, value=tensor)]
        _retarget(node)
        for spelled_out in (self._convolution, self._skip_normalization):
            made = spelled_out(node, types)
            if made is not None:
                return made
        found = self._types(node, types, constants)
        if found is not None:
            return self._settled(node, found, types)
        for kind in (FLOAT, TensorProto.FLOAT16):
            casts, narrow = self._narrowed(node, types, kind)
            seen = {**types, **{each.output[0]: _tensor(kind) for each in casts}}
            found = self._types(narrow, seen, constants) if casts else None
            if found is not None:
                self.precise &= node.op_type in HARMLESS
                return [*casts, *self._settled(narrow, found, types)]
        raise NoExactForm(f"{node.op_type} is not understood")

    def _control_flow(
        self, node: NodeProto, bodies: Sequence[AttributeProto], types: dict[str, str]
    ) -> None:
        """Rewrite the graphs inside a node, whose results are the node's."""
        if node.op_type not in ("If", "Loop", "Scan") or node.domain:
            raise NoExactForm(f"{node.op_type} is not understood")
        given = [types.get(name, "") for name in node.input]
        results: list[str] = []
        for attribute in bodies:
            body = attribute.g
            inside = dict(types)
            if node.op_type == "Loop":
                given[:2] = [_tensor(TensorProto.INT64), _tensor(TensorProto.BOOL)]
            for item, kind in zip(body.input, given, strict=False):
                inside[item.name] = kind
                _widen_type(item.type)
            del body.value_info[:]
            self.graph(body, inside)
            for item in body.output:
                _widen_type(item.type)
            results = [inside[item.name] for item in body.output]
        if node.op_type == "Loop":
            results = results[1:]
        types.update(zip(node.output, results, strict=False))

    def _types(
        self, node: NodeProto, types: Mapping[str, str], constants: Mapping[str, TensorProto]
    ) -> Sequence[str] | None:
        """The types of a node's outputs, by the runtime; None if it has no kernel for it."""
        names = {
            name: f"i{number}" for number, name in enumerate(dict.fromkeys(node.input)) if name
        }
        alone = NodeProto()
        alone.CopyFrom(node)
        del alone.input[:], alone.output[:]
        alone.input.extend(names.get(name, "") for name in node.input)
        used = [number for number, name in enumerate(node.output) if name]
        alone.output.extend(f"o{k}" if name else "" for k, name in enumerate(node.output))
        alone.name = alone.doc_string = ""
        graph = helper.make_graph([alone], "probe", [], [])
        for name, own in names.items():
            if name not in types:
                raise NoExactForm(f"the type of {name} is unknown")
            if name in constants and _tensor(constants[name].data_type) == types[name]:
                tensor = TensorProto()
                tensor.CopyFrom(constants[name])
                tensor.name = own
                graph.initializer.append(tensor)
            else:
                graph.input.append(helper.make_value_info(own, _type_of(types[name])))
        for number in used:
            graph.output.append(helper.make_value_info(f"o{number}", onnx.TypeProto()))
        model = ModelProto(ir_version=self.model.ir_version, graph=graph)
        model.opset_import.extend(self.model.opset_import)
        key = model.SerializeToString(deterministic=True)
        if key not in self._answers:
            self._answers[key] = self.probe(model)
        return self._answers[key]

    def _narrowed(
        self, node: NodeProto, types: Mapping[str, str], kind: int
    ) -> tuple[list[NodeProto], NodeProto]:
        """Casts of a node's float64 inputs, and the node that reads these."""
        narrow = NodeProto()
        narrow.CopyFrom(node)
        casts = {}
        for position, name in enumerate(node.input):
            if types.get(name) == _tensor(DOUBLE):
                if name not in casts:
                    casts[name] = helper.make_node("Cast", [name], [self._fresh(name)], to=kind)
                narrow.input[position] = casts[name].output[0]
        return list(casts.values()), narrow

    def _settled(
        self, node: NodeProto, found: Sequence[str], types: dict[str, str]
    ) -> Iterable[NodeProto]:
        """The node, and casts of those of its outputs that are real and not float64."""
        after = []
        outputs = [number for number, name in enumerate(node.output) if name]
        for number, kind in zip(outputs, found, strict=True):
            name = node.output[number]
            types[name] = kind
            if kind in map(_tensor, REAL):
                node.output[number] = self._fresh(name)
                after.append(helper.make_node("Cast", [node.output[number]], [name], to=DOUBLE))
                types[name] = _tensor(DOUBLE)
            elif any(_tensor(each) in kind for each in REAL):
                raise NoExactForm(f"{node.op_type} gives a {kind}")
        return [node, *after]

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}/exact/{self._count}"

    def _convolution(self, node: NodeProto, types: dict[str, str]) -> Sequence[NodeProto] | None:
        """A convolution as a product of matrices: each column holds the pixels of one window.

        None where the node is none, or where shapes are unknown or too large.
        """
        if node.domain or node.op_type not in ("Conv", "GlobalAveragePool"):
            return None
        x, y = node.input[0], node.output[0]
        shape = self.shapes.get(x, ())
        if types.get(x) != _tensor(DOUBLE) or len(shape) < 3:
            return None
        if node.op_type == "GlobalAveragePool":
            types[y] = types[x]
            axes = list(range(2, len(shape)))
            made = _Nodes(self._fresh)
            made.mean(x, y, axes, self._opset())
            return made.nodes
        weights = self.shapes.get(node.input[1], ())
        window = _Window.of(node, shape, weights)
        if window is None or math.prod(window.gathered) > UNFOLDED:
            return None
        made = _Nodes(self._fresh)
        groups, (out, _, *kernel) = window.groups, weights
        inside = math.prod(weights[1:])
        padded = x
        if any(window.pads):
            pads = [0, 0, *window.pads[: len(kernel)], 0, 0, *window.pads[len(kernel) :]]
            padded = made.pad(x, pads, self._opset())
        size = math.prod(window.padded)
        flat = made.op("Reshape", padded, made.ints([shape[0], groups, shape[1] // groups, size]))
        columns = made.op("Gather", flat, made.ints(window.places()), axis=3)
        positions = math.prod(window.results)
        columns = made.op("Reshape", columns, made.ints([shape[0], groups, inside, positions]))
        matrix = made.op("Reshape", node.input[1], made.ints([groups, out // groups, inside]))
        product = made.op("MatMul", matrix, columns)
        image = made.ints([shape[0], out, *window.results])
        if len(node.input) > 2 and node.input[2]:
            product = made.op("Reshape", product, image)
            bias = made.op("Reshape", node.input[2], made.ints([out] + [1] * len(kernel)))
            made.op("Add", product, bias, output=y)
        else:
            made.op("Reshape", product, image, output=y)
        types[y] = types[x]
        return made.nodes

    def _skip_normalization(
        self, node: NodeProto, types: dict[str, str]
    ) -> Sequence[NodeProto] | None:
        """A SkipLayerNormalization by its definition: the runtime has it in 32 bits alone.

        None where the node is none, or gives more than the normalized sum.
        """
        if (node.domain, node.op_type) != ("com.microsoft", "SkipLayerNormalization"):
            return None
        given = [name for name in node.input if name]
        rank = len(self.shapes.get(node.input[0], ()))
        if any(node.output[1:]) or not rank or any(types[n] != _tensor(DOUBLE) for n in given):
            return None
        made = _Nodes(self._fresh)
        x, skip, gain, shift, bias = [*node.input, "", ""][:5]
        total = made.op("Add", x, skip)
        total = made.op("Add", total, bias) if bias else total
        mean, variance = self._fresh(total), self._fresh(total)
        made.mean(total, mean, [rank - 1], self._opset())
        apart = made.op("Sub", total, mean)
        made.mean(made.op("Mul", apart, apart), variance, [rank - 1], self._opset())
        epsilon = next((each.f for each in node.attribute if each.name == "epsilon"), 1e-5)
        number = numpy_helper.from_array(np.asarray(np.float32(epsilon), np.float64))
        root = made.op("Sqrt", made.op("Add", variance, made.op("Constant", value=number)))
        result = made.op("Mul", made.op("Div", apart, root), gain)
        last = [result, shift] if shift else [result]
        made.op("Add" if shift else "Identity", *last, output=node.output[0])
        types[node.output[0]] = _tensor(DOUBLE)
        return made.nodes

    def _opset(self) -> int:
        return next((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), 1)


@dataclass(frozen=True)
class _Window:
    """How the windows of a convolution lie on its image, of which all sizes are known."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    channels: tuple[int, int]

    @staticmethod
    def of(node: NodeProto, shape: Sequence[int], weights: Sequence[int]) -> _Window | None:
        """The windows of a convolution; None where something is unknown."""
        rank = len(shape) - 2
        if len(weights) != len(shape):
            return None
        given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        kernel = tuple(weights[2:])
        strides = tuple(given.get("strides", [1] * rank))
        dilations = tuple(given.get("dilations", [1] * rank))
        pads = tuple(given.get("pads", [0] * (2 * rank)))
        auto = given.get("auto_pad", b"NOTSET").decode()
        if auto == "VALID":
            pads = (0,) * (2 * rank)
        elif auto != "NOTSET":
            total = [
                max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
                for n, s, k, d in zip(shape[2:], strides, kernel, dilations, strict=True)
            ]
            less, more = [t // 2 for t in total], [t - t // 2 for t in total]
            pads = (*less, *more) if auto == "SAME_UPPER" else (*more, *less)
        if any(pad < 0 for pad in pads):
            return None
        found = _Window(
            tuple(shape[2:]), kernel, strides, dilations, pads, int(given.get("group", 1)),
            (shape[0], shape[1]),
        )  # fmt: skip
        return found if all(size > 0 for size in (*found.results, *shape)) else None

    @property
    def padded(self) -> tuple[int, ...]:
        """The sizes of the image with its borders."""
        rank = len(self.image)
        return tuple(n + self.pads[i] + self.pads[i + rank] for i, n in enumerate(self.image))

    @property
    def results(self) -> tuple[int, ...]:
        """How many windows there are along each axis."""
        sizes = zip(self.padded, self.kernel, self.dilations, self.strides, strict=True)
        return tuple((n - (k - 1) * d - 1) // s + 1 for n, k, d, s in sizes)

    @property
    def gathered(self) -> tuple[int, ...]:
        """The shape of the pixels of all windows."""
        return (*self.channels, *self.kernel, *self.results)

    def places(self) -> np.ndarray:
        """For each offset in the kernel and each window, the place of the pixel in the image."""
        flat: Any = np.zeros((1, 1), np.int64)
        for axis, n in enumerate(self.padded):
            along = (
                np.arange(self.kernel[axis])[:, None] * self.dilations[axis]
                + np.arange(self.results[axis]) * self.strides[axis]
            )
            flat = flat[:, None, :, None] * n + along[None, :, None, :]
            flat = flat.reshape(flat.shape[0] * flat.shape[1], -1)
        return np.asarray(flat.reshape(-1))


@dataclass
class _Nodes:
    """Nodes that are made one after the other, each with a new name for its result."""

    fresh: Callable[[str], str]
    nodes: list[NodeProto] = field(default_factory=list)

    def op(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its result."""
        output = output or self.fresh(kind)
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def ints(self, values: Any) -> str:
        """Add a constant of integers."""
        tensor = numpy_helper.from_array(np.asarray(values, np.int64))
        return self.op("Constant", value=tensor)

    def pad(self, x: str, pads: Sequence[int], opset: int) -> str:
        """Put zeros around an image."""
        if opset < 11:
            return self.op("Pad", x, pads=list(pads))
        return self.op("Pad", x, self.ints(pads))

    def mean(self, x: str, y: str, axes: Sequence[int], opset: int) -> None:
        """Take the mean over some axes, which stay with size 1."""
        if opset < 18:
            self.op("ReduceMean", x, output=y, axes=list(axes), keepdims=1)
        else:
            self.op("ReduceMean", x, self.ints(axes), output=y, keepdims=1)


def _static_shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """The shapes of all values of the main graph of which all sizes are known."""
    try:
        graph = infer_shapes(model).graph
    except Exception:  # inference raises exceptions of its C++ side
        graph = model.graph
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for item in (*graph.input, *graph.value_info, *graph.output):
        kind = item.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            found.setdefault(item.name, tuple(dim.dim_value for dim in kind.shape.dim))
    return found


def _concrete(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Set the shapes of the inputs, and remove those declared of all other values."""
    for item in model.graph.input:
        if item.name in shapes and item.type.WhichOneof("value") == "tensor_type":
            kind = item.type.tensor_type.elem_type
            made = helper.make_tensor_type_proto(kind, list(shapes[item.name]))
            item.type.CopyFrom(made)
    del model.graph.value_info[:]


def _constant(node: NodeProto) -> TensorProto:
    """The value of a Constant, real numbers in float64."""
    (attribute,) = node.attribute
    if attribute.name == "value":
        tensor = TensorProto()
        tensor.CopyFrom(attribute.t)
        _widen(tensor)
        return tensor
    if attribute.name == "sparse_value":
        raise NoExactForm("it has sparse constants")
    value = helper.get_attribute_value(attribute)
    if attribute.name in ("value_string", "value_strings"):
        return numpy_helper.from_array(np.array(value, dtype=object))
    real = attribute.name in ("value_float", "value_floats")
    if real:  # the attribute itself has only 32 bits
        value = np.asarray(value, np.float32).astype(np.float64)
    return numpy_helper.from_array(np.asarray(value, np.float64 if real else np.int64))


def _retarget(node: NodeProto) -> None:
    """Let a node that names an element type name float64."""
    if node.domain:
        return
    if node.op_type == "ConstantOfShape":
        given = [each for each in node.attribute if each.name == "value"]
        if not given:
            value = numpy_helper.from_array(np.zeros(1))
            node.attribute.append(helper.make_attribute("value", value))
        for attribute in given:
            _widen(attribute.t)
    name, default = TARGETS.get(node.op_type, ("", None))
    if not name:
        return
    for attribute in node.attribute:
        if attribute.name == name:
            if attribute.type != AttributeProto.INT:
                raise NoExactForm(f"{node.op_type} is of an old opset")
            if attribute.i in REAL:
                attribute.i = DOUBLE
            return
    if default is not None:
        node.attribute.append(helper.make_attribute(name, DOUBLE))


def _widen(tensor: TensorProto) -> None:
    """Make float64 of a tensor of real numbers, in place."""
    if tensor.data_type in REAL:
        values = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _widen_type(kind: onnx.TypeProto) -> None:
    """Make float64 of the real numbers of a type, in place."""
    inside = kind.WhichOneof("value")
    if inside in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, inside)
        if tensor.elem_type in REAL:
            tensor.elem_type = DOUBLE
    elif inside in ("sequence_type", "optional_type"):
        _widen_type(getattr(kind, inside).elem_type)
    elif inside == "map_type":
        _widen_type(kind.map_type.value_type)


def _declared(kind: onnx.TypeProto) -> str:
    """The runtime's spelling of a type, real numbers in float64."""
    inside = kind.WhichOneof("value")
    if inside == "sequence_type":
        return f"seq({_declared(kind.sequence_type.elem_type)})"
    if inside == "optional_type":
        return f"optional({_declared(kind.optional_type.elem_type)})"
    if inside != "tensor_type":
        raise NoExactForm(f"it has an input that is a {inside}")
    number = kind.tensor_type.elem_type
    return _tensor(DOUBLE if number in REAL else number)


def _tensor(kind: int) -> str:
    """The runtime's spelling of the type of tensors of an element type."""
    for name, number in NAMES.items():
        if number == kind:
            return f"tensor({name})"
    return f"tensor(#{kind})"


def _type_of(text: str) -> onnx.TypeProto:
    """The type that the runtime spells so."""
    for outer, make in (
        ("seq", helper.make_sequence_type_proto),
        ("optional", helper.make_optional_type_proto),
    ):
        if text.startswith(f"{outer}("):
            return make(_type_of(text[len(outer) + 1 : -1]))
    name = text.removeprefix("tensor(").removesuffix(")")
    if name not in NAMES:
        raise NoExactForm(f"{text} is not understood")
    return helper.make_tensor_type_proto(NAMES[name], None)
