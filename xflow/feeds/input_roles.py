"""The roles of a model's integer and Boolean inputs, from which valid values follow.

An integer that is used as an index must lie inside the table, a sequence length inside the
sequence; a mask is mostly ones.  The roles are found by following the input through operators
that only move or shift it to the operators that use it.
"""

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto
from onnx.inliner import inline_local_functions

from xflow.core.registry import CONTRIB
from xflow.onnx.checker import OWN_DOMAIN
from xflow.onnx.inference import infer_shapes
from xflow.onnx.interface import is_dimension_name

INT_TYPES = {TensorProto.INT64, TensorProto.INT32}
REAL_TYPES = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16}
MOST_VIEWS = 10_000
SMALL_TENSOR = 1024  # elements; a larger initializer cannot be a shape, a depth or an offset


@dataclass(frozen=True)
class Role:
    """The values that an input may take: from `low` to `high` inclusive, or a mask of 0 and 1.

    `fixed` is the one value to use for an input that gives an extent or a step.
    `length`: the values are numbers of valid elements along an axis of so many.  `choices` are
    what a single number is compared with.  `bound`: `high` is what indexed tables allow, from
    which indices may also be counted backwards; it is false where nothing is known of the table.
    """

    low: int | None = None
    high: int | None = None
    mask: bool = False
    fixed: int | None = None
    length: int | None = None
    choices: tuple[int, ...] = ()
    bound: bool = False
    extent: bool = False


# (operator, position) of an input that is an index, and how many elements it indexes: the
# position of the table; None for the axis means the attribute `axis`, "last" GatherND's rule.
INDEXED: Mapping[tuple[str, int], tuple[int, int | str | None]] = {
    ("Gather", 1): (0, None),
    ("GatherElements", 1): (0, None),
    ("ScatterElements", 1): (0, None),
    ("GatherND", 1): (0, "last"),
    ("ScatterND", 1): (0, "last"),
    ("GatherBlockQuantized", 1): (0, None),
    ("EmbedLayerNormalization", 0): (2, 0),
    ("EmbedLayerNormalization", 1): (4, 0),
}
KNOWN_DOMAINS = ("", OWN_DOMAIN, CONTRIB)
"""The domains whose operators these are."""
TABLES = ("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND")
"""Operators of which the first input is indexed by the second."""
# Sequence lengths of the recurrent operators: from 1 to the extent of the first axis of X.
LENGTHS = {("RNN", 4), ("GRU", 4), ("LSTM", 4)}
# Inputs that give an extent, a position, a step or a ratio: the value with which the operator does
# least.
FIXED: Mapping[tuple[str, int], int] = {
    ("Reshape", 1): -1,
    ("Expand", 1): 1,
    ("Tile", 1): 1,
    ("ConstantOfShape", 0): 1,
    ("TopK", 1): 1,
    ("Pad", 1): 0,
    ("Slice", 1): 0,
    ("Slice", 2): 2**31 - 1,
    ("Slice", 4): 1,
    ("Range", 0): 0,
    ("Range", 1): 16,
    ("Range", 2): 1,
    ("CumSum", 1): 0,
    ("Dropout", 1): 0,
    ("Loop", 0): 3,
}
LENGTH_NAME = re.compile(r"(^|[\W_])len(gth)?$|length$|lengths$|lens$")
"""Names of inputs that give lengths."""
# Operators whose result holds elements of this input and nothing else that matters here.
MOVES: Mapping[str, tuple[int, ...] | None] = {
    "Identity": (0,), "Reshape": (0,), "Unsqueeze": (0,), "Squeeze": (0,), "Flatten": (0,),
    "Transpose": (0,), "Expand": (0,), "Tile": (0,), "Slice": (0,), "Split": (0,), "Pad": (0,),
    "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "Clip": (0,), "Cast": (0,),
    "DepthToSpace": (0,), "SpaceToDepth": (0,), "ReverseSequence": (0,), "Compress": (0,),
    "ScatterElements": (0, 2), "ScatterND": (0, 2), "Trilu": (0,),
    "Concat": None, "Max": None, "Min": None, "Where": (1, 2), "EmbedLayerNormalization": (),
}  # fmt: skip


def input_roles(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Role]:
    """Return the role of every integer and boolean input in `shapes` that has one.

    And of every real number that gives an extent, a step or a ratio. `shapes` are the concrete
    shapes of the inputs.  The model is not changed; its external data need not be loaded.
    """
    kinds = {
        item.name: item.type.tensor_type.elem_type
        for item in model.graph.input
        if item.name in shapes
    }
    discrete = {name for name, kind in kinds.items() if kind in INT_TYPES | {TensorProto.BOOL}}
    numbers = {
        name for name, kind in kinds.items() if kind in REAL_TYPES and math.prod(shapes[name]) == 1
    }
    wanted = [name for name in kinds if name in discrete or name in numbers]
    if not wanted:
        return {}
    tracer = Tracer(skeleton(model, shapes))
    roles = {name: tracer.role(name) for name in wanted}
    for name in discrete:
        role = roles[name] or Role()
        if kinds[name] in INT_TYPES and role.high is None and len(shapes[name]) <= 1:
            roles[name] = _length_role(model, name, shapes) or roles[name]
    return {
        name: role
        for name, role in roles.items()
        if role is not None and (name in discrete or role.fixed is not None)
    }


def _length_role(
    model: ModelProto, name: str, shapes: Mapping[str, tuple[int, ...]]
) -> Role | None:
    """Return the role of an input whose name says that it gives lengths.

    They are lengths along the shortest axis of the other inputs that has no fixed size and is no
    batch, or else along the second axis.
    """
    if not LENGTH_NAME.search(name.lower()):
        return None
    dynamic: list[tuple[int, int]] = []
    fixed: list[tuple[int, int]] = []
    for item in model.graph.input:
        shape = shapes.get(item.name, ())
        for axis, dim in enumerate(item.type.tensor_type.shape.dim):
            if 0 < axis < len(shape) and item.name != name:
                (fixed if dim.dim_value > 0 else dynamic).append((axis, shape[axis]))
    sizes = [size for _, size in dynamic] or [size for axis, size in fixed if axis == 1]
    return Role(length=min(sizes)) if sizes else None


def place_name(name: str, axis: int) -> str:
    """Return what a dimension without a name is called, by its place."""
    return f"{name}/{axis}"


def indexed_dimensions(model: ModelProto) -> frozenset[str]:
    """Return the names of those dimensions of inputs along which another input indexes.

    That is, of the nodes of a graph that is given by a list of edges.  The dimensions of the index
    itself do not count, as where a batch is put into another order.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    nodes = list(_known_nodes(model, model.graph))
    constants |= {n.output[0] for n in nodes if n.op_type == "Constant"}
    sizes = {n.output[0] for n in nodes if n.op_type == "Shape"}
    if not any(
        node.op_type in TABLES
        and input_of(node, 0) not in constants | sizes
        and input_of(node, 1) not in constants
        for node in nodes
    ):
        return frozenset()
    named = skeleton(model, {})
    own: dict[str, set[str]] = {}
    for item in named.graph.input:
        for axis, dim in enumerate(item.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 0:
                if not is_dimension_name(dim.dim_param):
                    dim.dim_param = place_name(item.name, axis)
                own.setdefault(item.name, set()).add(dim.dim_param)
    if not own:
        return frozenset()
    tracer = Tracer(named)
    found: set[str] = set()
    for item in named.graph.input:
        if item.type.tensor_type.elem_type in INT_TYPES and item.name not in constants:
            for node, position, _ in tracer.walk(item.name):
                found |= tracer.indexed(node, position) - own.get(item.name, set())
    return frozenset(found & set().union(*own.values()))


class Tracer:
    """Follows tensors forwards through one model."""

    def __init__(self, model: ModelProto) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dimensions: dict[str, tuple[int | str, ...]] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.uses: dict[str, list[tuple[NodeProto, int]]] = {}
        with contextlib.suppress(Exception):  # if inference fails, the declared shapes are used
            model = infer_shapes(model)
        for graph in graphs(model.graph):
            self._read(graph, _known_nodes(model, graph))

    def _read(self, graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
        for item in (*graph.input, *graph.value_info, *graph.output):
            dims = item.type.tensor_type.shape.dim
            ranked = item.type.tensor_type.HasField("shape")
            if ranked:
                self.dimensions[item.name] = tuple(
                    d.dim_param if is_dimension_name(d.dim_param) else d.dim_value for d in dims
                )
            if ranked and all(dim.HasField("dim_value") for dim in dims):
                self.shapes[item.name] = tuple(dim.dim_value for dim in dims)
        for tensor in graph.initializer:
            self.shapes[tensor.name] = tuple(tensor.dims)
            self._constant(tensor.name, tensor)
        for node in nodes:
            for position, name in enumerate(node.input):
                if name:
                    self.uses.setdefault(name, []).append((node, position))
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    self._literal(node.output[0], attribute)

    def _literal(self, name: str, attribute: AttributeProto) -> None:
        if attribute.name == "value":
            self.shapes[name] = tuple(attribute.t.dims)
            self._constant(name, attribute.t)
        elif attribute.name in {"value_int", "value_ints", "value_float", "value_floats"}:
            self.constants[name] = np.asarray(onnx.helper.get_attribute_value(attribute))
            self.shapes[name] = self.constants[name].shape

    def _constant(self, name: str, tensor: TensorProto) -> None:
        if tensor.data_location != TensorProto.EXTERNAL and np.prod(tensor.dims) <= SMALL_TENSOR:
            with contextlib.suppress(Exception):
                self.constants[name] = onnx.numpy_helper.to_array(tensor)

    def role(self, name: str) -> Role | None:
        """Return what the model does with a tensor, by all the ways that lead from it."""
        lows, highs = [0], list[int]()
        fixed: list[int] = []
        mask = counted = unknown = extent = False
        choices: set[int] = set()
        for node, position, view in self.walk(name):
            place = (node.op_type, position)
            size = self._extent(node, position)
            if size is not None:
                counted |= place in LENGTHS
                lows.append(view.least(int(place in LENGTHS)))
                highs.append(view.most(size - 1 + int(place in LENGTHS)))
            elif place in INDEXED:
                unknown = True
            elif place in FIXED:
                extent = True
                if view.tensor == name:
                    fixed.append(FIXED[place])
            elif self._is_mask_use(node, position):
                mask = True
            if node.op_type == "Equal":
                choices.update(self._compared(node, position, view))
        if highs:
            low = max(lows)
            return Role(low, max(low, min(highs)), bound=not counted)
        if fixed:
            return Role(fixed=fixed[0])
        if mask:
            return Role(mask=True)
        if unknown:  # 0 is valid in nearly every table
            return Role(0, 0)
        if math.prod(self.shapes.get(name, (2,))) != 1:
            choices = set()
        return Role(choices=tuple(sorted(choices)), extent=extent) if choices or extent else None

    def walk(self, name: str) -> Iterator[tuple[NodeProto, int, "_View"]]:
        """Yield each use of a tensor's elements, also after operators that move them."""
        start = _View(name)
        pending, seen = [start], {start}
        while pending:
            view = pending.pop()
            for node, position in self.uses.get(view.tensor, ()):
                yield node, position, view
                for step in self._onward(node, position, view):
                    if step not in seen and len(seen) < MOST_VIEWS:
                        seen.add(step)
                        pending.append(step)

    def _compared(self, node: NodeProto, position: int, view: "_View") -> Iterator[int]:
        """Yield the integers that the elements of an input have to be for a comparison to hold."""
        other = self.constants.get(input_of(node, 1 - position))
        if other is not None and other.dtype.kind in "iu":
            for value in other.reshape(-1)[:8].tolist():
                if (value - view.low) % view.scale == 0:
                    yield (value - view.low) // view.scale

    def _extent(self, node: NodeProto, position: int) -> int | None:
        """Return how many elements the input at `position` indexes or counts, if it does."""
        place = (node.op_type, position)
        if place in LENGTHS:
            shape = self.shapes.get(node.input[0])
            return shape[0] if shape else None
        if place == ("OneHot", 0):
            depth = self.constants.get(input_of(node, 1))
            return int(depth.reshape(-1)[0]) if depth is not None and depth.size else None
        if place not in INDEXED:
            return None
        table, axis = INDEXED[place]
        shape = self.shapes.get(input_of(node, table))
        if not shape:
            return None
        if axis == "last":
            indices = self.shapes.get(node.input[position], ())
            first = int(attribute_of(node, "batch_dims", 0))
            count = indices[-1] if indices else len(shape)
            return min(shape[first : first + count], default=1)
        place_of_axis = int(attribute_of(node, "axis", 0)) if axis is None else int(axis)
        return shape[place_of_axis] if -len(shape) <= place_of_axis < len(shape) else None

    def indexed(self, node: NodeProto, position: int) -> set[str]:
        """Return the names of the dimensions that the input at `position` indexes."""
        table, axis = INDEXED.get((node.op_type, position), (None, None))
        dims = self.dimensions.get(input_of(node, table), ()) if table is not None else ()
        if not dims:
            return set()
        if axis == "last":
            indices = self.dimensions.get(node.input[position], ())
            first = int(attribute_of(node, "batch_dims", 0))
            count = indices[-1] if indices and isinstance(indices[-1], int) else len(dims)
            named = dims[first : first + count]
        else:
            place = int(attribute_of(node, "axis", 0)) if axis is None else int(axis)
            named = (dims[place],) if -len(dims) <= place < len(dims) else ()
        return {name for name in named if isinstance(name, str)}

    def _is_mask_use(self, node: NodeProto, position: int) -> bool:
        """Tell whether the use is typical of a mask: read as a truth value, or as `1 - mask`."""
        if node.op_type == "Cast":
            return bool(attribute_of(node, "to", 0) == TensorProto.BOOL)
        if node.op_type == "Sub" and position == 1:
            one = self.constants.get(node.input[0])
            return one is not None and one.size > 0 and bool(np.all(one == 1))
        return False

    def _onward(self, node: NodeProto, position: int, view: "_View") -> Iterator["_View"]:
        """Yield the tensors that the input's elements go on to, and what was made of them."""
        if node.op_type in MOVES:
            positions = MOVES[node.op_type]
            if positions is None or position in positions:
                yield from (replace(view, tensor=output) for output in node.output if output)
        elif node.op_type in {"Add", "Sub", "Mul"} and len(node.input) == 2:
            other = self.constants.get(node.input[1 - position])
            if other is None or not other.size or other.dtype.kind not in "iu":
                return
            low, high = int(other.min()), int(other.max())
            if node.op_type == "Mul":
                if low == high and low > 0:
                    scaled = (view.scale * low, view.low * low, view.high * low)
                    yield _View(node.output[0], *scaled)
            elif node.op_type == "Add":
                yield _View(node.output[0], view.scale, view.low + low, view.high + high)
            elif position == 0:
                yield _View(node.output[0], view.scale, view.low - high, view.high - low)
        elif node.op_type in {"Loop", "Scan"}:
            body = attribute_of(node, "body", None)
            if (
                body is not None
                and position < len(body.input)
                and position >= 2 * (node.op_type == "Loop")
            ):
                yield replace(view, tensor=body.input[position].name)


@dataclass(frozen=True)
class _View:
    """A tensor of elements `scale * x + offset` of an input, the offset from `low` to `high`."""

    tensor: str
    scale: int = 1
    low: int = 0
    high: int = 0

    def least(self, value: int) -> int:
        """The least x for which no element is below the value."""
        return -((self.low - value) // self.scale)

    def most(self, value: int) -> int:
        """The largest x for which no element is above the value."""
        return (value - self.high) // self.scale


def _known_nodes(model: ModelProto, graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of one of the model's graphs whose operators these are.

    That is none which calls a function of the model, whatever it is named. The runtime's own
    operators have no schema here, so that a node of one may lack inputs.
    """
    functions = {(each.domain, each.name) for each in model.functions}
    for node in graph.node:
        is_known = node.domain in KNOWN_DOMAINS and (node.domain, node.op_type) not in functions
        if is_known and node.output:
            yield node


def input_of(node: NodeProto, position: int) -> str:
    """Return the name of an input, which is empty if it is left out."""
    return node.input[position] if position < len(node.input) else ""


def attribute_of(node: NodeProto, name: str, default: Any) -> Any:
    """Return an attribute's value."""
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and all graphs inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs(attribute.g)
            for inner in attribute.graphs:
                yield from graphs(inner)


def skeleton(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> ModelProto:
    """Return a copy without large weights, functions inlined, its inputs of the given shapes."""
    copy = ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    graph = copy.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(model.graph.node)
    graph.output.extend(model.graph.output)
    weights = {tensor.name for tensor in model.graph.initializer}
    for item in model.graph.input:
        if item.name in shapes:
            kind = item.type.tensor_type.elem_type
            value = onnx.helper.make_tensor_value_info(item.name, kind, shapes[item.name])
            graph.input.append(value)
        elif item.name not in weights:
            graph.input.append(item)
    for tensor in model.graph.initializer:
        if np.prod(tensor.dims) <= SMALL_TENSOR and tensor.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        else:  # as an input, inference knows its shape all the same
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(value)
    if copy.functions:
        with contextlib.suppress(Exception):
            copy = inline_local_functions(copy)
    return copy
