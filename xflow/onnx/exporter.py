"""A rewritten graph as an ONNX model: the old model, with other nodes where it was rewritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import onnx
import onnx_ir as ir

from xflow.analysis.observers import Observed, deciding_constants
from xflow.core.fold import Folder, byte_size
from xflow.core.graph import Graph
from xflow.core.limits import GROWTH
from xflow.core.lineage import lineage
from xflow.core.node import Node, Opaque, TensorType, Value
from xflow.core.registry import Array, Attribute, Operator, is_concrete
from xflow.core.size import Size
from xflow.onnx.copying import copy_attribute, copy_meta, describe
from xflow.onnx.freeze import CONSTANTS
from xflow.onnx.imported import Imported
from xflow.onnx.nodes import captured_values, sorted_nodes, subgraphs
from xflow.onnx.opset import Raising, Renewal, current_opset
from xflow.onnx.sizes import WITH_INTEGERS, Dimensions, Places, SizeWriter, Told, places
from xflow.onnx.types import UNKNOWN
from xflow.onnx.writer import Plan, UnwritableError, Writer, foreign_domains


def export_model(
    imported: Imported,
    graph: Graph,
    raised: int | None = None,
    growth: int = GROWTH,
    *,
    outside: Observed = Observed.NOWHERE,
) -> ir.Model:
    """A new model that computes `graph`, with everything else as in the imported model.

    Its opset is the model's own, unless the graph needs a newer one: then it is that, or `raised`
    if that is given.

    Nodes that were not rewritten keep their names, attributes and metadata, also where their
    inputs were. Weights are shared with the imported model, which is never changed. A graph that
    is the model's own gives a copy of the model. What constant expressions are folded to may take
    `growth` bytes beyond what it replaces. They are computed as exactly as can be, but as the
    runtime would have where their last bit may decide something, in the graph or, by what is
    sensitive to its outputs, `outside`. Raises UnwritableError.
    """
    source = imported.model
    if graph.outputs == imported.graph.outputs:
        return source.clone()
    if source.device_configurations:
        raise UnwritableError("the model is laid out over several devices")
    raising = _raising(imported, graph, raised)
    writer = _ModelWriter(imported, graph, raising, growth, deciding_constants(graph, outside))
    inputs = [writer.leaf(value) for value in source.graph.inputs]
    outputs = writer.name_outputs(writer.write(graph.outputs))
    made = ir.Graph(
        inputs,
        outputs,
        nodes=sorted_nodes(writer.nodes, writer.order),
        initializers=writer.kept_initializers(),
        doc_string=source.graph.doc_string,
        opset_imports=dict(writer.opsets),
        name=source.graph.name,
        metadata_props=dict(source.graph.metadata_props),
    )
    copy_meta(source.graph, made)
    model = ir.Model(
        made,
        ir_version=max(_ir_version(source, writer.opsets), CONSTANTS if writer.initializers else 0),
        producer_name=source.producer_name,
        producer_version=source.producer_version,
        domain=source.domain,
        model_version=source.model_version,
        doc_string=source.doc_string,
        functions=[function.clone() for function in source.functions.values()],
        metadata_props=dict(source.metadata_props),
    )
    copy_meta(source, model)
    return model


def _raising(imported: Imported, graph: Graph, raised: int | None) -> Raising | None:
    """What raising the opset means, if `graph` needs it. Raises UnwritableError."""
    opset, needed = current_opset(imported.model), graph.needed_opset
    if opset is None or needed <= opset:
        return None
    raising = Raising(imported, max(needed, raised or 0))
    obstacle = raising.obstacle()
    if obstacle:
        raise UnwritableError(f"{obstacle} cannot be raised to opset {raising.target}")
    return raising


def _ir_version(source: ir.Model, opsets: Mapping[str, int]) -> int:
    """The version of the format: the model's own, unless it is too old for a raised opset."""
    if opsets.get("") == source.graph.opset_imports.get(""):
        return source.ir_version
    own = [onnx.helper.make_opsetid("", opsets[""])]
    return max(source.ir_version, int(onnx.helper.find_min_ir_version_for(own)))


class _ModelWriter(Writer):
    """Writes values of a rewritten graph, by copies of the model's own nodes where it has them."""

    def __init__(
        self,
        imported: Imported,
        graph: Graph,
        raising: Raising | None,
        growth: int,
        deciding: Container[Value],
    ) -> None:
        self.imported = imported
        self.source = imported.model.graph
        self.raising = raising
        super().__init__(
            Folder(imported.constants, stepwise=deciding),
            {
                **foreign_domains(graph),
                **self.source.opset_imports,
                **({"": raising.target} if raising else {}),
            },
            allowance=growth + _freed_bytes(imported.graph, graph),
            taken=_names(self.source),
        )
        self.parents = lineage(imported.graph, graph)
        self.numbers = {node: number for number, node in enumerate(self.source)}
        self.order: dict[ir.Node, int] = {}
        """The place in the model of the node that a copy was made from."""
        self.given = [imported.values[given] for given in self.source.inputs]
        self.graph = graph
        self.places_of_inputs = places(self.given)
        self.size_writer = SizeWriter(self)
        self.read_beside: dict[Value, set[Node]] = {}
        """The nodes that are written with sizes of a value, beside their inputs."""
        self.copies: dict[ir.Value, ir.Value] = {}
        """Leaves of the model and their copies."""
        self.inherited: set[ir.Node] = set()
        """Nodes of the model whose names a copy has already."""
        self.present = set(graph.nodes)
        self.gone = set(imported.graph.nodes) - self.present
        """What the rewritten graph does not compute any more."""
        self.remains: dict[Value, bool] = {}
        self.read_at_hand()

    def plan(self, value: Value) -> Plan:
        origin = self.imported.origin.get(value)
        if origin is not None:
            producer = origin.producer()
            if producer is None:
                return Plan((), lambda: self.put_leaf(value, origin))
            if self.stays(producer):
                return self.plan_copy(value.node, producer, inherit=True)
            return self.plan_new(value)
        number = self.imported.constants(value)
        if number is not None:  # that the model computes, see `_Importer.known`
            return Plan((), lambda: self.put_constant(value, number))
        parent = self.parents.get(value.node)
        if parent is not None and not value.is_constant:
            node = self.imported.origin[parent.outputs[0]].producer()
            assert node is not None
            if self.stays(node):
                return self.plan_copy(value.node, node, inherit=True)
        if isinstance(value.node.op, Opaque):
            node = self.imported.opaque_nodes[value.node.op.key]
            return self.plan_copy(value.node, node, inherit=False)
        return self.plan_computed(value) or self.plan_new(value)

    def plan_computed(self, value: Value) -> Plan | None:
        """How to write a node with sizes that the model computes somewhere.

        Or of which each follows from the dimensions of what is computed anyway. None where numbers
        say it as well, or they do not.
        """
        op = value.node.op
        if not isinstance(op, Operator) or not op.computed:
            return None
        if value.is_constant and is_concrete(value.node.attributes):
            return None  # it is folded
        if self.call(value.node) is not None:
            return None
        ((name, position),) = op.computed.items()
        sizes = value.node.attributes[name]
        vectors = (v for v, array in self.imported.computed.items() if _is(array, sizes))
        known = [self.imported.values[vector] for vector in vectors]
        sources = [source for source in known if source.type.dtype == "INT64"]
        if position != len(value.node.inputs):
            return None
        call = op.with_computed(value.node.attributes, self.opsets[op.domain])
        if call is None:
            return None
        usable = (v for v in filter(self.is_at_hand, sources) if self.is_before(v, value.node))
        at_hand = next(usable, None)
        told = None if at_hand is not None else self.told(sizes, value.node)
        if told is None and not sources:
            return None
        beside = (at_hand or sources[0],) if told is None else told.read
        self.read_for(value.node, beside)

        def build() -> None:
            computed = beside[0] if told is None else self.size_writer.vector(told)
            self.put_call(value.node, call, computed)

        return Plan((*value.node.inputs, *beside), build)

    def told(self, sizes: Attribute, node: Node) -> Told | None:
        """Sizes of a node that follow from dimensions, if they can be written.

        From those of the model's inputs, or else of any value of the graph that is not computed
        from the node. What is not in the graph has the inputs alone.
        """
        opset = self.opsets.get("", 0)
        if opset < WITH_INTEGERS:
            return None
        found = Dimensions(self.places_of_inputs).tell(sizes)
        if found is None and node in self.present and Dimensions(self.places, opset).tell(sizes):
            found = Dimensions(self.places, opset, self.behind(node)).tell(sizes)
        return found

    @cached_property
    def places(self) -> Places:
        """The dimensions of the model's inputs, and of what the graph computes anyway.

        First those that are read at no cost: a value that one operator reads alone may be fused
        with it, unless its sizes are read, and one that nobody reads may not be computed.
        """
        readers = Counter(self.graph.outputs)
        for value, nodes in self.graph.users.items():
            readers[value] += len(nodes)
        values = (value for node in self.graph.nodes for value in node.outputs)
        found = [value for value in values if readers[value] and not _is_concrete_constant(value)]
        return places([*self.given, *sorted(found, key=lambda value: readers[value] == 1)])

    def read_for(self, node: Node, values: Iterable[Value]) -> None:
        """Keep in mind that a node is written with such values beside its inputs."""
        for value in self.under(values):
            self.read_beside.setdefault(value, set()).add(node)

    def under(self, values: Iterable[Value]) -> set[Value]:
        """Values, and what those that are not in the graph are computed from, up to the graph."""
        found: set[Value] = set()
        stack = list(values)
        while stack:
            value = stack.pop()
            if value not in found:
                found.add(value)
                if value.node not in self.present:
                    stack.extend(value.node.inputs)
        return found

    def is_before(self, value: Value, node: Node) -> bool:
        """Whether a value can be computed without a node of the graph."""
        return {each.node for each in self.under([value])}.isdisjoint(self.behind(node))

    def read_at_hand(self) -> None:
        """Keep in mind which sizes the nodes of the graph are written with that are at hand."""
        for node in self.graph.nodes:
            source = self.source_of(node)
            sought = () if source is None else self._sought(source).values()
            known = (self.imported.values[value] for value in sought)
            self.read_for(node, filter(self.is_at_hand, known))

    def source_of(self, node: Node) -> ir.Node | None:
        """The node of the model that a node of the graph is, or is made of; None for a new one."""
        known = self.parents.get(node, node)
        origin = self.imported.origin.get(known.outputs[0]) if known.outputs else None
        return None if origin is None else origin.producer()

    def behind(self, node: Node) -> set[Node]:
        """A node of the graph and all that is computed from it, be it for its sizes alone.

        As far as it is known by now what nodes are written with.
        """
        found: set[Node] = set()
        stack = [node]
        while stack:
            each = stack.pop()
            if each not in found:
                found.add(each)
                for value in each.outputs:
                    stack.extend(self.graph.users.get(value, ()))
                    stack.extend(self.read_beside.get(value, ()))
        return found

    def is_at_hand(self, value: Value) -> bool:
        """Whether a value is computed from what the rewritten graph computes anyway.

        Sizes may be read off tensors that nobody needs any more.
        """
        stack = [value]
        while stack:
            last = stack[-1]
            waiting = [v for v in last.node.inputs if v not in self.remains]
            if last.node in self.gone:
                self.remains[last] = False
            elif waiting and last not in self.remains:
                stack.extend(waiting)
                continue
            else:
                self.remains[last] = all(self.remains[v] for v in last.node.inputs)
            stack.pop()
        return self.remains[value]

    def counted(self, node: Node, source: ir.Node, written: Container[int]) -> Mapping[int, Told]:
        """The parameters of a copy that are read off dimensions, as nobody needs them any more.

        By their positions, less those that are `written`. They are vectors of sizes.
        """
        found: dict[int, Told] = {}
        for position, value in self._sought(source).items():
            if position in written:
                continue
            array, known = self.imported.computed[value], self.imported.values[value]
            if array.ndim != 1 or known.type.dtype != "INT64" or self.is_at_hand(known):
                continue
            told = self.told(tuple(array.tolist()), node)
            if told is not None:
                found[position] = told
        return found

    def stays(self, node: ir.Node) -> bool:
        """Whether a node of the model may be copied at the opset that is written."""
        return self.raising is None or self.raising.stays(node) or self.renewed(node) is not None

    def renewed(self, node: ir.Node) -> Renewal | None:
        """What else a node that is copied becomes at the opset that is written."""
        return None if self.raising is None else self.raising.renewed(node)

    def plan_copy(self, node: Node, source: ir.Node, *, inherit: bool) -> Plan:
        """How to write `node` as a copy of a node of the model, with other inputs."""
        positions = self.imported.positions.get(source)
        parameters: list[Value] = []
        written: Mapping[int, Array] = {}
        counted: Mapping[int, Told] = {}
        if positions is not None:
            written = self._written(node, source)
            counted = self.counted(node, source, written)
            parameters = [
                self.imported.values[value]
                for position, value in enumerate(source.inputs)
                if value is not None
                and position not in positions
                and position not in written
                and position not in counted
                and not self._is_folded(value)
            ]
            parameters += [value for told in counted.values() for value in told.read]
            self.read_for(node, parameters)
        needs = (*node.inputs, *parameters)
        return Plan(needs, lambda: self.put_copy(node, source, inherit, written, counted))

    def _is_folded(self, value: ir.Value) -> bool:
        """Whether a parameter is computed from constants, and written as its result."""
        return value in self.imported.known and not self.imported.values[value].is_leaf

    def _written(self, node: Node, source: ir.Node) -> Mapping[int, Array]:
        """The parameters that the model computes from shapes, and that can be written as numbers.

        What computes them may read what the rewritten model would else not compute any more.
        """
        sought = self._sought(source)
        call = self.call(node) if sought and isinstance(node.op, Operator) else None
        if call is None:
            return {}
        plain = {name: item.value for name, item in source.attributes.items()}
        if call.attributes.get("allowzero", 0) != plain.get("allowzero", 0):
            return {}
        return {k: call.constants[k] for k in sought if k in call.constants}

    def _sought(self, source: ir.Node) -> dict[int, ir.Value]:
        """The parameters of a node that the model computes from shapes, by their positions."""
        positions = self.imported.positions.get(source, ())
        return {
            position: value
            for position, value in enumerate(source.inputs)
            if value is not None
            and value in self.imported.computed
            and position not in positions
            and not self._is_folded(value)
        }

    def put_copy(
        self,
        node: Node,
        source: ir.Node,
        inherit: bool,
        written: Mapping[int, Array],
        counted: Mapping[int, Told],
    ) -> None:
        """Write `node` as a copy of `source`; if it `inherits`, under its names, once.

        `written` and `counted` are the parameters that are numbers, and that follow from
        dimensions, now.
        """
        inherit = inherit and source not in self.inherited
        if inherit:
            self.inherited.add(source)
        given = iter(node.inputs)
        positions = self.imported.positions.get(source)
        inputs: list[ir.Value | None] = []
        own = {} if positions is None else dict(zip(positions, node.inputs, strict=True))
        for position, value in enumerate(source.inputs):
            if value is None:
                inputs.append(None)
            elif positions is None:
                inputs.append(self.made[next(given)])
            elif position in own:
                inputs.append(self.made[own[position]])
            elif position in written:
                inputs.append(self.parameter(written[position], f"{value.name}_written"))
            elif position in counted:
                inputs.append(self.size_writer.vector(counted[position]))
            elif self._is_folded(value):
                array = np.asarray(self.imported.known[value])
                inputs.append(self.parameter(array, value.name or "parameter"))
            else:
                inputs.append(self.made[self.imported.values[value]])
        renewed = self.renewed(source) or Renewal(source.op_type)
        for position, name, array in renewed.inputs:
            inputs.insert(position, self.parameter(array, f"{source.name}_{name}"))
        outer = {value: self.made[next(given)] for value in captured_values(source)}
        copy = ir.Node(
            source.domain,
            renewed.op_type,
            inputs,
            [
                *(
                    copy_attribute(attribute, outer)
                    for name, attribute in source.attributes.items()
                    if name not in renewed.dropped
                ),
                *(ir.AttrString(name, value) for name, value in renewed.attributes.items()),
            ],
            overload=source.overload,
            num_outputs=len(source.outputs),
            version=source.version,
            name=source.name if inherit else self.fresh(source.name or f"xflow_{source.op_type}"),
            doc_string=source.doc_string,
            metadata_props=dict(source.metadata_props),
        )
        copy_meta(source, copy)
        for number, (mine, theirs) in enumerate(zip(copy.outputs, source.outputs, strict=True)):
            describe(mine, theirs)
            known = self.imported.values.get(theirs)
            kind = node.types[number] if number < len(node.types) else UNKNOWN
            if known is not None and kind not in (known.type, UNKNOWN):
                # The same operator with other inputs, of another type or of other sizes.
                mine.type = ir.TensorType(ir.DataType[kind.dtype])
                mine.shape = self.known_shape(kind)
            elif theirs.shape is not None and not source.domain:
                mine.shape = None if known is None else self.known_shape(known.type)
            mine.name = theirs.name if inherit or not theirs.name else self.fresh(theirs.name)
        self.made.update(zip(node.outputs, copy.outputs, strict=False))
        self.order[copy] = self.numbers[source]
        self.nodes.append(copy)

    def known_shape(self, kind: TensorType) -> ir.Shape | None:
        """The shape of a value as far as inference knows it, whatever the model declares.

        The runtime reuses the memory of a value for another that is declared to have the same
        sizes. Where a declaration is wrong, whether that happens depends on the nodes around.
        """
        if kind == UNKNOWN:
            return None
        return ir.Shape([self.dimension(size) for size in kind.shape])

    def put_leaf(self, value: Value, source: ir.Value) -> None:
        self.made[value] = self.leaf(source)

    def leaf(self, source: ir.Value) -> ir.Value:
        """The copy of an input or initializer of the model."""
        if source not in self.copies:
            copy = ir.Value(name=source.name, const_value=source.const_value)
            describe(copy, source)
            self.copies[source] = copy
            if source in self.imported.values:
                self.made.setdefault(self.imported.values[source], copy)
        return self.copies[source]

    def name_outputs(self, made: Sequence[ir.Value]) -> list[ir.Value]:
        """The model's outputs under the names of old; a copy where a value has a name already."""
        names = [value.name or "" for value in self.source.outputs]
        holders = {output.name: output for node in self.nodes for output in node.outputs}
        named = {name: value for name, value in zip(names, made, strict=True) if value.name == name}
        for name, value in zip(names, made, strict=True):
            if name in named:
                continue
            if (holder := holders.get(name)) is not None and holder.name == name:
                holder.name = self.fresh(name)  # an inner value now, and no output any more
            if value.producer() is not None and value not in named.values():
                value.name = name
            elif name in {copy.name for copy in self.copies.values()}:
                raise UnwritableError(f"the output {name} has the name of an input")
            else:
                value = self.identity(value, name)  # noqa: PLW2901
            named[name] = value
        for source in self.source.outputs:
            if named[source.name or ""].producer() is not None:
                describe(named[source.name or ""], source)
        return [named[name] for name in names]

    def kept_initializers(self) -> list[ir.Value]:
        """The initializers that are read, and those that nobody read before either."""
        kept = []
        for source in self.source.initializers.values():
            idle = not source.uses() and not source.is_graph_output()
            if source in self.copies or idle:
                kept.append(self.leaf(source))
        return kept + self.initializers

    def dimension(self, size: Size) -> int | str | None:
        return self.imported.names.dimension(size)


def _is_concrete_constant(value: Value) -> bool:
    """Whether a value is a constant whose sizes are numbers, which nobody has to read off it."""
    return value.is_constant and all(isinstance(size, int) for size in value.shape)


def _is(array: Array, sizes: Attribute) -> bool:
    """Whether a tensor of integers that the model computes is this vector of sizes."""
    return array.ndim == 1 and isinstance(sizes, tuple) and tuple(array.tolist()) == sizes


def _freed_bytes(old: Graph, new: Graph) -> int:
    """Bytes of constants of `old` that are read in `new` by constant expressions at most."""

    def read(graph: Graph) -> set[Value]:
        direct = {value for node in graph.nodes if not node.constant for value in node.inputs}
        return {value for value in (*direct, *graph.outputs) if value.is_leaf and value.is_constant}

    return sum(byte_size(value) or 0 for value in read(old) - read(new))


def _names(graph: ir.Graph) -> set[str]:
    """All names of values and nodes in a graph and its subgraphs."""
    names: set[str | None] = set()

    def add(part: ir.Graph) -> None:
        names.update(value.name for value in part.inputs)
        names.update(part.initializers)
        for node in part:
            names.add(node.name)
            names.update(value.name for value in node.outputs)

    add(graph)
    for node in graph:
        for inner in subgraphs(node):
            add(inner)
    return {name for name in names if name}
