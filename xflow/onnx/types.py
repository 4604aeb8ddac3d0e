"""Element types and shapes of all values of an ONNX model, by ONNX's own inference.

What a model says about its intermediate values may be out of date (tools that change the batch
size often leave it behind), so it counts only for operators that inference does not know.
"""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from xflow.core.node import TensorType
from xflow.core.size import INDEX, Size, symbol
from xflow.onnx.inference import infer_shapes
from xflow.onnx.interface import is_dimension_name
from xflow.onnx.nodes import constant_tensor
from xflow.onnx.proto_compat import from_message, restore, to_message

UNKNOWN = TensorType("?", ())
"""The type of a value that is no tensor, or of which not even the rank is known."""

_SMALL = 1024
"""Bytes up to which a constant takes part in inference: it may be a shape."""

LONGEST = 60
"""Characters of a dimension's name that its size symbol has: sizes are told in texts."""

_INVENTED = "unk__"
"""How the names begin that inference invents for dimensions."""

DISTRUSTED = "xflow.distrusted"
"""What holds, of a model in memory, the names of dimensions that nothing is concluded from."""


@dataclass
class SymbolNames:
    """Size symbols for the names of dimensions; a dimension without a name gets a new symbol."""

    of_dimension: dict[str, str] = field(default_factory=dict)
    distrusted: Collection[str] = ()
    """Names that stand for dimensions which differ: each of them gets a new symbol, too."""
    concluded: Mapping[str, Size] = field(default_factory=dict)
    """Sizes over the symbols of others for names that inference invented, see `size_order`."""
    _names: dict[Size, str] = field(default_factory=dict)
    """The names of dimensions by their symbols."""
    _taken: dict[str, int] = field(default_factory=dict)
    """The names that there are, each with how many were made of it."""

    def size(self, dimension: int | ir.SymbolicDim) -> Size:
        """The size that a dimension of an ONNX shape is."""
        if isinstance(dimension, int) and dimension >= 0:
            return dimension
        name = None if isinstance(dimension, int) else dimension.value
        if name is None or name in self.distrusted or not is_dimension_name(name):
            return self.fresh()
        if name in self.concluded:
            return self.concluded[name]
        if name not in self.of_dimension:
            self.of_dimension[name] = own = self._fresh(name)
            self._names[symbol(own)] = name
        return symbol(self.of_dimension[name])

    def fresh(self) -> Size:
        """A size of which nothing is known."""
        return symbol(self._fresh("unknown"))

    def _fresh(self, name: str) -> str:
        # One form of each character, as the parser of expressions takes it; and not without end.
        letters = unicodedata.normalize("NFKC", name)[:LONGEST]
        base = "".join(each if f"_{each}".isidentifier() else "_" for each in letters)
        # Sizes are written as expressions and read again, in which a keyword is no name.
        base = base if base.isidentifier() and not keyword.iskeyword(base) else f"_{base}"
        fresh, number = base, self._taken.get(base, 1)
        while fresh in self._taken or INDEX.fullmatch(fresh):  # a dimension is no index
            number += 1
            fresh = f"{base}_{number}"
        self._taken[base] = number
        self._taken.setdefault(fresh, 1)
        return fresh

    def invented(self) -> Mapping[str, str]:
        """The names that inference invented, by the symbols that stand for them."""
        names = self.of_dimension.items()
        return {own: name for name, own in names if name.startswith(_INVENTED)}

    def dimension(self, size: Size) -> int | str | None:
        """The dimension of an ONNX shape that is `size`; None for one that has no name."""
        if isinstance(size, int):
            return size
        name = self._names.get(size)
        return None if name is None or name.startswith(_INVENTED) else name


def distrust(model: ir.Model, names: Iterable[str]) -> frozenset[str]:
    """Have nothing concluded from these names, nor from those before; returns all of them."""
    found = frozenset(model.meta.get(DISTRUSTED, ())).union(names)
    model.meta[DISTRUSTED] = found
    return found


def tensor_type(value: ir.Value, names: SymbolNames) -> TensorType:
    """What is known of a value: its element type and shape, or `UNKNOWN`."""
    if not isinstance(value.type, ir.TensorType) or value.shape is None:
        return UNKNOWN
    return TensorType(value.type.dtype.name, tuple(map(names.size, value.shape)))


def infer_types(
    model: ir.Model, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[dict[str, ir.Value], str]:
    """The values of the model's main graph by name, with the types that inference gives them.

    Also returns why inference failed (the types are then those that the model declares), or
    nothing. `shapes` fixes the shapes of inputs. The model is not changed, its weights are not
    read.
    """
    copy = _skeleton(model, shapes or {})
    try:
        inferred = from_message(infer_shapes(to_message(copy)))
        graph, failure = inferred.graph, ""
    except Exception as error:  # a message that cannot be written, too
        graph, failure = model.graph, " ".join(str(error).split())[:200]
    return ir.convenience.create_value_mapping(graph, include_subgraphs=False), failure


def refined(
    node: ir.Node,
    inputs: Sequence[TensorType | None],
    types: Sequence[TensorType],
    opset: int,
    fresh: Callable[[], Size],
) -> list[TensorType]:
    """The types of a node's outputs, with sizes that follow from those of its inputs.

    Inference over a whole model invents names where it cannot compute, and a mask that is made of
    them has none of the sizes of the scores; and where it knows nothing of one value, it knows
    nothing of all that is computed from it. What is known of `inputs` (None: not given) is more;
    inference of the one node carries it on. Sizes of which it tells nothing are `fresh` symbols.
    """
    if node.domain or any(kind is UNKNOWN for kind in inputs if kind is not None):
        return list(types)
    names: dict[str, Size] = {}
    try:
        alone = onnx.ModelProto(ir_version=onnx.IR_VERSION)
        alone.opset_import.add(version=opset)
        alone.graph.node.append(ir.to_proto(node))
        given = zip(node.inputs, inputs, strict=True)
        for value, kind in {v: k for v, k in given if v is not None and k is not None}.items():
            alone.graph.input.add(name=value.name, type=_message(kind, names))
        found = {each.name: each.type for each in infer_shapes(alone).graph.value_info}
    except Exception:  # of a node without sense
        return list(types)
    result = []
    for output, known in zip(node.outputs, types, strict=True):
        told = found.get(output.name or "", onnx.TypeProto()).tensor_type
        sizes = [_told(dimension, names) for dimension in told.shape.dim]
        kind = known
        if known == UNKNOWN and told.elem_type and told.HasField("shape"):
            shape = tuple(fresh() if size is None else size for size in sizes)
            kind = TensorType(ir.DataType(told.elem_type).name, shape)
        elif len(sizes) == len(known.shape):
            pairs = zip(sizes, known.shape, strict=True)
            kind = TensorType(known.dtype, tuple(b if a is None else a for a, b in pairs))
        result.append(kind)
    return result


def _told(dimension: onnx.TensorShapeProto.Dimension, names: Mapping[str, Size]) -> Size | None:
    """What inference tells of a dimension; negative ones come of factors that make no sense."""
    if not dimension.HasField("dim_value"):
        return names.get(dimension.dim_param)
    return dimension.dim_value if dimension.dim_value >= 0 else None


def _message(kind: TensorType, names: dict[str, Size]) -> onnx.TypeProto:
    """A type as a message, in which sizes that are no numbers have `names`."""
    dtype = ir.DataType[kind.dtype].value
    sizes: list[int | str] = []
    for size in kind.shape:
        if isinstance(size, int):
            sizes.append(size)
        else:
            names[str(size)] = size
            sizes.append(str(size))
    return onnx.helper.make_tensor_type_proto(dtype, sizes)


def _skeleton(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> ir.Model:
    """A copy whose large constants are inputs, without what is said of intermediate values."""
    distrusted = model.meta.get(DISTRUSTED, ())
    copy = model.clone()
    graph = copy.graph
    for number, value in enumerate(graph.inputs):
        if (value.name or "") in shapes:
            value.shape = ir.Shape(shapes[value.name or ""])
        elif value.shape is not None:
            value.shape = _told_apart(value.shape, f"{_INVENTED}input_{number}", distrusted)
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None:
            value.shape, value.type = ir.Shape(tensor_shape(tensor)), ir.TensorType(tensor.dtype)
        # One that is also an input may be replaced by the caller: its data says nothing.
        if tensor is None or tensor.nbytes > _SMALL or value.is_graph_input():
            graph.initializers.pop(name)
            if not value.is_graph_input():
                graph.inputs.append(value)
    known = _is_known(copy)
    for node in graph:
        _leave_out_empty_parts(node)
    for node in list(graph):
        tensor = constant_tensor(node)
        if tensor is not None and tensor.nbytes > _SMALL and not _is_output(node.outputs[0]):
            (value,) = node.outputs
            stand_in = ir.Value(
                name=value.name,
                shape=ir.Shape(tensor_shape(tensor)),
                type=ir.TensorType(tensor.dtype),
            )
            value.replace_all_uses_with(stand_in)
            graph.remove(node)
            graph.inputs.append(stand_in)
        elif known(node):
            for output in node.outputs:
                output.shape = None
                if not _is_output(output):
                    output.type = None
    return copy


def _leave_out_empty_parts(node: ir.Node) -> None:
    """Let a Concat join only parts with elements, as the runtime does.

    Inference takes the extents of the others for those of the result, too.
    """
    if node.op_type != "Concat" or node.domain:
        return
    parts = [value for value in node.inputs if value is not None and not _is_empty(value)]
    if 0 < len(parts) < len(node.inputs):
        for position, value in enumerate(parts):
            node.replace_input_with(position, value)
        node.resize_inputs(len(parts))


def _is_empty(value: ir.Value) -> bool:
    """Whether a constant or an input is known to have no element."""
    producer = value.producer()
    tensor = value.const_value if producer is None else constant_tensor(producer)
    shape = value.shape if tensor is None else tensor_shape(tensor)
    known = tensor is not None or producer is None
    return known and shape is not None and 0 in tuple(shape)


def _told_apart(shape: ir.Shape, prefix: str, distrusted: Collection[str]) -> ir.Shape:
    """The shape of an input, in which dimensions whose names say nothing have names of their own.

    Inference would take those with the same name for equal.
    """

    def known(axis: int, size: int | ir.SymbolicDim) -> int | str | None:
        if isinstance(size, int):
            return size
        name = size.value
        if name is None or (is_dimension_name(name) and name not in distrusted):
            return name
        return f"{prefix}_{axis}"

    return ir.Shape([known(axis, size) for axis, size in enumerate(shape)])


def _is_output(value: ir.Value) -> bool:
    return bool(value.is_graph_output())


def _is_known(model: ir.Model) -> Callable[[ir.Node], bool]:
    """Whether inference can say what a node's outputs are."""

    def known(node: ir.Node) -> bool:
        if node.op_identifier() in model.functions:
            return True
        version = model.graph.opset_imports.get(node.domain, 1)
        return bool(onnx.defs.has(node.op_type, version, node.domain))

    return known


def interface(model: ir.Model) -> onnx.ModelProto:
    """A message that has what callers of a model see: inputs and outputs, opsets, metadata."""
    proto = onnx.ModelProto()
    for domain, version in model.graph.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    for key, text in model.metadata_props.items():
        proto.metadata_props.add(key=key, value=text)
    proto.graph.name = model.graph.name or ""
    proto.graph.input.extend(ir.to_proto(value) for value in model.graph.inputs)
    proto.graph.output.extend(ir.to_proto(value) for value in model.graph.outputs)
    restore(proto)
    for value in model.graph.inputs:
        if value.name in model.graph.initializers:
            proto.graph.initializer.add(name=value.name)
    return proto


def tensor_shape(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    """The shape of a tensor."""
    return tuple(size for size in tensor.shape if isinstance(size, int))
