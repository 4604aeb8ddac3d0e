"""ONNX models as graphs: what the registry understands, and opaque nodes for the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import onnx_ir as ir

from xflow.analysis.inputs import special_inputs
from xflow.analysis.ranges import LARGEST, Ranges, of_array
from xflow.analysis.value_rewrites.least_float_masks import deviates
from xflow.core.assumptions import Assumption, moderate
from xflow.core.constraint import Relation, is_true
from xflow.core.errors import ModelError, ShapeError
from xflow.core.graph import Graph
from xflow.core.intervals import Range
from xflow.core.node import Leaf, MayBe, Node, Opaque, TensorType, Value, apply, leaf, opaque
from xflow.core.registry import CONTRIB, Need, OnnxCall, Shape
from xflow.core.size import Expr, Size, TooLargeSize, free_symbols, product
from xflow.core.sorts import INT, sort_of
from xflow.onnx.freeze import listed, overridable
from xflow.onnx.imported import Imported, constant_data
from xflow.onnx.inner_tests import tests_inside
from xflow.onnx.known_integers import SMALL, KnownIntegers
from xflow.onnx.nodes import (
    PLAIN,
    captured_values,
    computation_key,
    constant_tensor,
)
from xflow.onnx.schema import without_defaults
from xflow.onnx.shape_arithmetic import spectra
from xflow.onnx.size_order import SizeOrder
from xflow.onnx.types import (
    DISTRUSTED,
    UNKNOWN,
    SymbolNames,
    infer_types,
    refined,
    tensor_shape,
    tensor_type,
)
from xflow.ops import by_onnx

RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
MOST_TERMS = 30
"""Terms of the number of elements of a tensor, multiplied out, from which on its sizes are not
told by those of others."""
SIZED = frozenset({"Concat", "Reshape", "Resize"})
"""Operators of ONNX that give what their first input is made of, in sizes that may be computed."""
ROUNDS = 3
"""How often a model is read again where sizes have become known."""
SHAPES = frozenset({"If", "Loop", "Scan", "Shape", "Size"})
"""Operators of ONNX for which the runtime may not compute what they read."""
MALFORMED = (ShapeError, ArithmeticError, LookupError, TypeError, ValueError)
"""What reading an operator raises where it is none: the checker knows neither the attributes of the
runtime's own operators, nor which axes and extents there are. The runtime has a word on it."""
NORMAL = frozenset({"RandomNormal", "RandomNormalLike"})
UNIFORM = frozenset({"RandomUniform", "RandomUniformLike"})
DEVIATIONS = 40.0
"""By how many standard deviations no number that is drawn is off: that happens once in 1e348."""
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze"})
"""Operators before which the runtime leaves out a Reshape."""


def _check_order(graph: ir.Graph) -> None:
    """Raise ModelError unless everything that is read has been computed before."""
    defined = {*graph.inputs, *graph.initializers.values()}
    for node in graph:
        for value in (*node.inputs, *captured_values(node)):
            if value is not None and value not in defined:
                what = f"nothing before it computes its input {value.name}, or it is sparse"
                raise ModelError(what, f"node {node.name or node.op_type}")
        defined.update(node.outputs)
    for value in graph.outputs:
        if value not in defined:
            raise ModelError("no operator computes it", f"output {value.name}")


def is_shape_arithmetic(value: Value) -> bool:
    """Whether a value is likely a shape or part of one: a scalar or a vector of integers.

    To rewrite how such are computed pays nothing.
    """
    return sort_of(value.type.dtype) == INT and len(value.shape) <= 1


def _filled_with(node: ir.Node) -> Range | None:
    """The numbers that an operator gives by its attributes alone; None for other operators."""
    given = node.attributes
    if any(attribute.is_ref() for attribute in given.values()):
        return None
    if node.op_type == "ConstantOfShape":
        value = given.get("value")
        return Range(0.0, 0.0) if value is None else of_array(value.as_tensor().numpy())
    if node.op_type in NORMAL:
        middle, spread = given.get_float("mean", 0.0), DEVIATIONS * abs(given.get_float("scale", 1))
        low, high = middle - spread, middle + spread
    elif node.op_type in UNIFORM:
        low, high = sorted((given.get_float("low", 0.0), given.get_float("high", 1.0)))
    else:
        return None
    most = LARGEST["FLOAT16"]  # of whatever type they are
    return Range(low, high) if -most <= low <= high <= most else None


def _is_moderate(tensor: ir.TensorProtocol | None) -> bool:
    """Whether a tensor consists of moderate numbers, as inputs are taken to do."""
    if tensor is None or tensor.dtype.name not in LARGEST:
        return True
    known = of_array(tensor.numpy())
    return known.is_real and known.within(moderate(tensor.dtype.name))


def is_tractable(type: TensorType) -> bool:
    """Whether sizes are simple enough to reckon with how many elements there are.

    Where a hundred images of unknown sizes are put side by side, the sum of these is only a size
    like another one.
    """
    terms = math.prod(len(size.terms) for size in type.shape if isinstance(size, Expr))
    return terms <= MOST_TERMS


def _computed(graph: Graph) -> set[Node]:
    """The nodes of which the runtime computes the elements, and not only shapes, in every run.

    It folds a Shape, also behind other operators and in functions, and a branch with a condition
    that is constant.
    """
    found: set[Node] = set()
    left = [value.node for value in graph.outputs]
    while left:
        node = left.pop()
        name = _name_of(node)
        if node in found or name in SHAPES or (isinstance(node.op, Opaque) and not name.isalnum()):
            continue
        found.add(node)
        left += [value.node for value in node.inputs]
    return found


def _name_of(node: Node) -> str:
    """The type of a node's operator in ONNX; empty for leaves and what has none."""
    return "" if isinstance(node.op, Leaf) else node.op.op_type


def import_model(model: ir.Model, *, inner: bool = False) -> Imported:
    """The graph of a model. Never changes `model`; raises ModelError for one without sense.

    The inputs of a graph that is `inner` to an operator are computed, and may be anything.
    """
    inferred = infer_types(model)
    sizes: Mapping[str, Size] = {}
    importer = _Importer(model, inner, inferred, {}, sizes)
    imported = importer.run()
    for _ in range(0 if inner else ROUNDS):
        found = {**importer.concluded(), **sizes}
        if len(found) == len(sizes):
            break
        sizes = found
        importer = _Importer(model, inner, inferred, {}, sizes)
        imported = importer.run()
    special = {} if inner else special_inputs(imported.graph, imported.constants)
    return _Importer(model, inner, inferred, special, sizes).run() if special else imported


class _Importer:
    def __init__(
        self,
        model: ir.Model,
        inner: bool,
        inferred: tuple[Mapping[str, ir.Value], str],
        special: Mapping[str, MayBe],
        sizes: Mapping[str, Size],
    ) -> None:
        self.model = model
        self.inferred, self.failure = inferred
        self.others = MayBe.ANYTHING if inner else MayBe.NUMBERS
        self.special = special
        """What inputs may be, by their names, where that is not what others may be."""
        self.names = SymbolNames(distrusted=model.meta.get(DISTRUSTED, ()), concluded=sizes)
        self.values: dict[ir.Value, Value] = {}
        self.origin: dict[Value, ir.Value] = {}
        self.opaque_nodes: dict[str, ir.Node] = {}
        self.tensors: dict[str, ir.TensorProtocol] = {}
        self.positions: dict[ir.Node, tuple[int, ...]] = {}
        self.small: dict[object, Value] = {}
        self.warnings: list[str] = []
        self.equations: dict[Size, None] = {}
        self.needed: dict[ir.Value, Iterable[Size]] = {}
        """What Reshapes need to be zero, by what they make."""
        self.uncertain = False
        """Whether a size that is taken for known may be another where the model runs."""
        self.stretched: dict[ir.Value, Sequence[Shape]] = {}
        """The shapes of what is stretched to one, by what is made of them."""
        self.ranges = Ranges(partial(constant_data, self.tensors), Assumption.NONE)

    def run(self) -> Imported:
        graph = self.model.graph
        _check_order(graph)
        self.integers = KnownIntegers(self.model, self.inferred, self.values)
        if self.failure:
            self.warnings.append(f"The shapes in the model could not be inferred: {self.failure}.")
        names = overridable(self.model)
        for value in graph.inputs:
            kind = self.type(value)
            name = value.name or ""
            may_be = self.special.get(name, self.others)
            if name in names and not _is_moderate(graph.initializers[name].const_value):
                may_be = MayBe.ANYTHING  # without anybody who feeds it
            self.put(value, leaf(name, kind, may_be=may_be))
        if names:
            self.warnings.append(
                f"{len(names)} of the model's weights are also inputs ({listed(names)}), so they "
                "cannot be taken as constants."
            )
        for name, value in graph.initializers.items():
            if value in self.values:
                continue
            if value.const_value is None:
                self.put(value, leaf(name, self.type(value)))
            else:
                self.put(value, self.constant(name, value.const_value, value))
        for number, node in enumerate(graph):
            self.node(node, number)
        self.graph = Graph(tuple(self.values[value] for value in graph.outputs))
        return Imported(
            self.model,
            self.graph,
            self.values,
            self.origin,
            self.opaque_nodes,
            self.positions,
            self.integers.known,
            self.names,
            self.integers.computed,
            tuple(self.warnings),
            tuple(self.equations),
            self.tensors,
        )

    def concluded(self) -> Mapping[str, Size]:
        """Sizes for names that inference invented, over those of the inputs, after `run`."""
        if self.failure or self.uncertain or not self.needed:
            return {}
        computed, outputs = _computed(self.graph), set(self.graph.outputs)
        order = SizeOrder()
        for source, differences in self.needed.items():
            value = self.values[source]
            readers = [node for node in self.graph.users.get(value, ()) if node in computed]
            if value in outputs or any(_name_of(node) not in VIEWS for node in readers):
                order.zero(differences)
        for source, shapes in self.stretched.items():
            value = self.values[source]
            if value.node in computed:
                order.stretched(shapes, value.shape)
        inputs = (self.values[value].type.shape for value in self.model.graph.inputs)
        given = {name for shape in inputs for size in shape for name in free_symbols(size)}
        names = self.names.invented()
        found = order.concluded(names.keys() - given, given)
        return {names[own]: size for own, size in found.items()}

    def put(self, source: ir.Value, value: Value) -> None:
        self.values[source] = value
        self.origin.setdefault(value, source)

    def type(self, value: ir.Value) -> TensorType:
        inferred = self.inferred.get(value.name or "")
        return UNKNOWN if inferred is None else tensor_type(inferred, self.names)

    def constant(self, name: str, tensor: ir.TensorProtocol, source: ir.Value) -> Value:
        """A leaf for a constant; small ones with the same data share one."""
        kind = TensorType(tensor.dtype.name, tensor_shape(tensor))
        value = leaf(name, kind, constant=True)
        if tensor.size <= SMALL and tensor.dtype != ir.DataType.STRING:
            array = tensor.numpy()
            self.integers.known[source] = array
            value = self.small.setdefault((kind, array.tobytes()), value)
        if value.node.op == Leaf(name, True):
            self.tensors[name] = tensor
        return value

    def node(self, node: ir.Node, number: int) -> None:
        tensor = constant_tensor(node)
        if tensor is not None:
            (output,) = node.outputs
            self.put(output, self.constant(output.name or f"constant {number}", tensor, output))
            return
        made = self.registered(node)
        if made is None:
            made = self.opaque(node, number)
        for output, value in zip(node.outputs, made, strict=False):
            self.put(output, value)
        self.integers.note(node)
        self.known(node)

    def known(self, node: ir.Node) -> None:
        """Put a constant in the place of integers that are computed from shapes, and are known.

        So a number of a shape that does not depend on the inputs is one for all that reads it, such
        as the number of features from which exporters compute the scale of an attention.
        """
        if len(node.outputs) != 1:
            return
        (output,) = node.outputs
        data, made = self.integers.known.get(output), self.values[output]
        folds = made.is_constant and not isinstance(made.node.op, Opaque)
        if data is None or folds or output.is_graph_output():
            return
        if data.size <= SMALL and made.type == TensorType(data.dtype.name.upper(), data.shape):
            name = output.name or ""  # and no origin, of which it would be a copy
            self.values[output] = self.constant(name, ir.tensor(data, name=name), output)

    def registered(self, node: ir.Node) -> tuple[Value, ...] | None:
        """The node as an operator of the registry; None where none describes it."""
        version = node.version or self.model.graph.opset_imports.get(node.domain)
        if version is None or node.op_identifier() in self.model.functions:
            return None
        sources = [None if v is None else self.values.get(v) for v in node.inputs]
        if any(s is None and v is not None for s, v in zip(sources, node.inputs, strict=True)):
            return None
        call: OnnxCall | None = None
        for op in by_onnx(node.op_type, node.domain, version):
            call = call or self.call(node, version, sources)
            if call is None:
                return None
            try:
                read = op.from_onnx(call)
            except MALFORMED:
                continue
            if read is None or not read[1]:
                continue
            attributes, positions = read
            inputs = [sources[i] for i in positions]
            taken = [value for value in inputs if value is not None]
            if len(taken) < len(inputs):
                continue
            need = Need()
            try:
                made = apply(op, taken, attributes, need=need)
            except ShapeError:
                continue
            if any(map(is_shape_arithmetic, made)) or not all(is_tractable(v.type) for v in made):
                continue
            # In ONNX a dimension of unknown size may be 1 and broadcast.
            equal = [each for each in need.conditions if each.relation is Relation.EQUAL]
            differences = dict.fromkeys(condition.difference for condition in equal)
            self.equations |= differences
            if equal and op.name == "Reshape":
                sure = all(map(is_true, (c for c in need.conditions if c not in equal)))
                if sure and call.attributes.get("allowzero"):
                    self.needed[node.outputs[0]] = differences
                else:  # the runtime puts -1 where a size is computed, and runs at others
                    self.uncertain = True
            elif equal and op.name == "Concat":
                self.uncertain = True  # it leaves out parts without elements, of whatever extents
            if equal or deviates(op, taken, self.ranges):
                continue
            if self.agrees(node, made):
                self.positions[node] = positions
                return made
        return None

    def call(self, node: ir.Node, version: int, sources: Sequence[Value | None]) -> OnnxCall | None:
        attributes: dict[str, Any] = {}
        for name, attribute in node.attributes.items():
            if attribute.is_ref() or attribute.type not in PLAIN:
                return None
            value = attribute.value
            attributes[name] = list(value) if isinstance(value, tuple | list) else value
        known = self.integers.known
        constants = {i: known[v] for i, v in enumerate(node.inputs) if v is not None and v in known}
        if any(s is not None and s.type.dtype == UNKNOWN.dtype for s in sources):
            return None
        shapes = tuple(None if value is None else value.shape for value in sources)
        types = tuple(None if value is None else value.type.dtype for value in sources)
        return OnnxCall(
            node.op_type,
            version,
            node.domain,
            without_defaults(node.op_type, node.domain, version, attributes),
            shapes,
            constants,
            len(node.outputs),
            types,
            self.integers.vectors(node),
        )

    def agrees(self, node: ir.Node, made: tuple[Value, ...]) -> bool:
        """Whether the outputs are those of the node, with the types that ONNX infers."""
        if len(made) > len(node.outputs):
            return False
        for output in node.outputs[len(made) :]:
            if output.uses() or output.is_graph_output():
                return False
        for output, value in zip(node.outputs, made, strict=False):
            inferred = self.inferred.get(output.name or "")
            if inferred is None or inferred.shape is None:
                continue  # not needed: ours says it all
            if inferred.dtype is None or inferred.dtype.name != value.type.dtype:
                return False
            if len(inferred.shape) != len(value.shape):
                return False
            for size, dimension in zip(value.shape, inferred.shape, strict=True):
                if isinstance(dimension, int) and dimension >= 0 and size != dimension:
                    return False
        return True

    def opaque(self, node: ir.Node, number: int) -> tuple[Value, ...]:
        captured = captured_values(node)
        inputs = [self.values[v] for v in node.inputs if v is not None]
        inputs += [self.values[v] for v in captured]
        self.equations |= dict.fromkeys(self.expected(node))
        known_key = computation_key(node, self.model)
        key = known_key or f"{node.domain}::{node.op_type}#{number}"
        self.opaque_nodes.setdefault(key, node)
        try:
            types = self.types_of(node, captured)
        except (TooLargeSize, *MALFORMED):
            types = [self.type(output) for output in node.outputs]
        types = [
            known if is_tractable(known) else self.type(output)
            for known, output in zip(types, node.outputs, strict=True)
        ]
        plain = node.domain == "" and node.op_identifier() not in self.model.functions
        if plain and self.integers.stretches(node):
            shapes = [self.values[v].shape for v in node.inputs if v is not None]
            self.stretched[node.outputs[0]] = shapes
        # What scatters by a reduction computes with elements, and does not only move them.
        reduces = plain and node.attributes.get_string("reduction", "none") != "none"
        op_type = node.op_type if plain and not reduces else ""
        if node.domain == CONTRIB and node.op_identifier() not in self.model.functions:
            op_type = f"{CONTRIB}::{node.op_type}"
        known = _filled_with(node) if plain else None
        tests = tests_inside(node, self.model)
        given = node.attributes.get("axis") if plain else None
        axis = None if given is None or given.type != ir.AttributeType.INT else given.as_int()
        pure = known_key is not None
        return opaque(key, inputs, types, op_type, pure=pure, known=known, tests=tests, axis=axis)

    def expected(self, node: ir.Node) -> Iterator[Expr]:
        """Differences of sizes that are 0 where a node runs, or most likely so.

        A recurrent network has weights for each of its features. What is flattened to rows of a
        given length, `view(-1, 9216)`, has one row for each element of the batch.
        """
        values = [value for value in node.inputs[:2] if value is not None]
        types = [self.values[value].type for value in values]
        if node.domain or len(values) < 2 or not all(map(is_tractable, types)):
            return
        first, second = (kind.shape for kind in types)
        difference: Size = 0
        if node.op_type in RECURRENT and len(first) == len(second) == 3:
            difference = first[2] - second[2]
        elif node.op_type == "Reshape":
            target = self.integers.known.get(values[1])
            if target is not None and target.ndim == 1 and target.size > 1 and target[0] == -1:
                rows = math.prod(target[1:].tolist())
                difference = product(first[1:]) - rows if rows > 0 else 0
        if isinstance(difference, Expr):
            yield difference

    def types_of(self, node: ir.Node, captured: Sequence[ir.Value]) -> list[TensorType]:
        """The types of a node's outputs, with sizes that follow from others where they do."""
        types = [self.type(output) for output in node.outputs]
        opset = self.model.graph.opset_imports.get("")
        if (
            opset is not None
            and not captured
            and any(t == UNKNOWN or any(isinstance(n, Expr) for n in t.shape) for t in types)
        ):
            sources = [None if v is None else self.values[v].type for v in node.inputs]
            types = refined(node, sources, types, opset, self.names.fresh)
        if len(types) == 1 and types[0].dtype != UNKNOWN.dtype:
            shape = self.integers.output_shape(node, types[0].shape)
            if len(shape) == len(types[0].shape):
                types = [TensorType(types[0].dtype, shape)]
        elif len(types) == 1 and node.op_type in SIZED and node.inputs[0]:
            # Where a target is computed, inference tells nothing, and then nothing behind it.
            shape = self.integers.output_shape(node, ())
            if shape:
                types = [TensorType(self.values[node.inputs[0]].type.dtype, shape)]
        elif len(types) == 1 and node.op_type == "STFT" and not node.domain:
            types = self.spectra(node) or types
        return types

    def spectra(self, node: ir.Node) -> list[TensorType]:
        """The type of what a STFT gives; empty where that is not known."""
        kinds = [None if v is None else self.values[v].type for v in node.inputs]
        if not kinds or any(kind == UNKNOWN for kind in kinds):
            return []
        arrays = [None if v is None else self.integers.of(v) for v in node.inputs]
        sizes = spectra(node, [None if k is None else k.shape for k in kinds], arrays)
        if kinds[0] is None or sizes is None:
            return []
        shape = tuple(self.names.fresh() if size is None else size for size in sizes)
        return [TensorType(kinds[0].dtype, shape)]
