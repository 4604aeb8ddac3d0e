"""Raising a model's opset: to which version, and what that means for each of its nodes.

Nodes of the model stay as they are where their operator means the same in the new opset: where its
schema is the same one, or where the converter of the onnx package leaves the node alone and the
registry, if it knows the operator, writes it alike in both. What the registry understands is
otherwise written anew, by its own declaration; of other operators, attributes may have become
inputs, and a Resize says in attributes what was the only way before. Anything else stands in the
way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import version_converter

from xflow.core.errors import ShapeError, SizeError, UsageError
from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.core.registry import Array, OnnxCall, Operator
from xflow.onnx.imported import Imported
from xflow.onnx.nodes import constant_tensor, subgraphs
from xflow.ops import operators
from xflow.ops.resize import MODES, SCALES, UPSAMPLE, name_before
from xflow.rewriting.replacement import Replacements, apply_replacements, without_any


def current_opset(model: ir.Model) -> int | None:
    """The version of ONNX's own operators that a model imports; None: it has none of these."""
    return model.graph.opset_imports.get("")


KEPT_BYTES = 64 * 2**10
"""Size of the largest nodes for which the converter's answer is kept: attributes may hold data."""
GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


MOVED: Mapping[str, Sequence[str]] = {
    "Slice": ("starts", "ends", "axes"),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), ("axes",)),
    **{
        f"Reduce{kind}": ("axes",)
        for kind in (
            *("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum"),
            "SumSquare",
        )
    },
}
"""Attributes that became inputs behind the first one and nothing else, by operator, in order."""


@dataclass(frozen=True)
class Renewal:
    """What a node becomes at a newer opset, in which its operator says the same in other words."""

    op_type: str
    inputs: Sequence[tuple[int, str, Array]] = ()
    """Constants that become inputs: the position, a name, and the data, in order."""
    dropped: Collection[str] = ()
    """Attributes that it has no more."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that it has besides."""


@dataclass(frozen=True)
class Ceiling:
    """How far a model's opset may be raised: to `opset`; `obstacle` says why not further."""

    opset: int | None
    obstacle: str = ""


def ceiling(imported: Imported, *, keep: bool = False, target: int | None = None) -> Ceiling:
    """To which opset a model may be raised: as far as there are new operators, and as all goes.

    With `keep` not at all; with a `target` to that one or not at all. Raises UsageError for a
    target that is older than the model, or that the installed onnx does not know.
    """
    opset = current_opset(imported.model)
    if target is not None:
        newest = onnx.defs.onnx_opset_version()
        if opset is not None and target < opset:
            raise UsageError(
                f"the model's opset is {opset}, and {target} is older",
                do="give a target that is as new",
            )
        if target > newest:
            raise UsageError(f"opset {target} is not known", do=f"give one up to {newest}")
    if opset is None or keep or opset == target:
        return Ceiling(opset)
    newer = {op.since for op in operators() if not op.domain and opset < op.since}
    obstacle = ""
    alone: dict[ir.Node, bytes] = {}
    for version in sorted(newer, reverse=True) if target is None else [target]:
        obstacle = Raising(imported, version, alone).obstacle()
        if not obstacle:
            return Ceiling(version)
    return Ceiling(opset, obstacle)


def keeping_opset(graph: Graph, replacements: Replacements, opset: int) -> Replacements:
    """The replacements in `graph` less those that need operators of a newer opset."""
    try:
        rest = without_any(replacements, lambda item: Graph(item.after).needed_opset > opset)
    except ShapeError:
        return ()
    return rest if apply_replacements(graph, rest).needed_opset <= opset else ()


@dataclass
class Raising:
    """What becomes of the nodes of a model at a newer opset."""

    imported: Imported
    target: int
    alone: dict[ir.Node, bytes] = field(default_factory=dict)
    """Nodes as models of their own, see `_alone`, serialized: the same for every target."""

    @property
    def opset(self) -> int:
        """The model's own opset."""
        return self.imported.model.graph.opset_imports[""]

    def obstacle(self) -> str:
        """Which operator of the model has no counterpart at the new opset; empty if all have."""
        for function in self.imported.model.functions.values():
            for node in _all_nodes(function):
                if not self.is_same_schema(node, function.opset_imports.get("")):
                    return f"{node.op_type} in the function {function.name}"
        for node in self.imported.model.graph:
            if not self.stays(node) and not self._can_be_written(node):
                return f"{node.op_type} {node.name or ''}".strip()
        return ""

    def _can_be_written(self, node: ir.Node) -> bool:
        """Whether a node has a counterpart at the new opset: the registry's, or `renewed`.

        Or is a constant in the graph, though the model computes it from shapes.
        """
        made = [self.imported.values.get(output) for output in node.outputs]
        if constant_tensor(node) is None and all(v is not None and v.is_leaf for v in made):
            return True
        if node in self.imported.positions:
            return self._written(node, self.target) is not None
        return self.renewed(node) is not None

    def renewed(self, node: ir.Node) -> Renewal | None:
        """How a node that the registry does not describe says the same at the new opset.

        By attributes that have become inputs, as in arithmetic on shapes, or by attributes that
        name what was the only way before. None where more has changed, or nothing.
        """
        moved = self._moved(node)
        if moved:
            arrays = [(name, np.asarray(numbers, np.int64)) for name, numbers in moved.items()]
            inputs = [(k, name, array) for k, (name, array) in enumerate(arrays, 1)]
            return Renewal(node.op_type, inputs, moved.keys())
        return self._enlarged(node)

    def _is_undescribed(self, node: ir.Node) -> bool:
        """Whether a node is an operator of ONNX that the registry does not describe."""
        of_onnx = not node.domain and node.op_identifier() not in self.imported.model.functions
        return of_onnx and node not in self.imported.positions

    def _enlarged(self, node: ir.Node) -> Renewal | None:
        """A Resize of the new opset for one of opset 10, or for an Upsample before that.

        These take a place in the result for one of the input by a quotient. To the nearest element
        they round it down where they enlarge; where they do not, ONNX does not say how.
        """
        version = node.version or self.opset
        mode = node.attributes.get_string("mode", "nearest")
        name = name_before(version)
        if (
            not self._is_undescribed(node)
            or (node.op_type, len(node.inputs)) != (name, 1 if version < SCALES else 2)
            or not UPSAMPLE <= version < MODES <= self.target
            or mode not in ("nearest", "linear")
            or any(given.is_ref() for given in node.attributes.values())
        ):
            return None
        inputs = [(1, "roi", np.zeros(0, np.float32))]
        if version < SCALES:
            scales = np.asarray(node.attributes["scales"].as_floats(), np.float32)
            inputs.append((2, "scales", scales))
            factors: Array | None = scales
        else:
            factors = self.imported.known.get(node.inputs[1]) if node.inputs[1] else None
        enlarges = name == "Upsample"
        if factors is not None and not np.isfinite(factors).all():
            return None
        if factors is None and mode == "nearest" and not enlarges:
            return None  # an Upsample does not run where what is computed is less than 1
        if factors is not None and (enlarges or mode == "nearest") and not (factors >= 1).all():
            return None
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return Renewal("Resize", inputs, ["scales"], how)

    def _moved(self, node: ir.Node) -> Mapping[str, Sequence[int]] | None:
        """The same; None where something else has changed, or may have."""
        names = MOVED.get(node.op_type, ())
        if not names or not self._is_undescribed(node):
            return None
        try:
            old, new = (
                onnx.defs.get_schema(node.op_type, version, "")
                for version in (node.version or self.opset, self.target)
            )
        except onnx.defs.SchemaError:
            return None
        there = [name for name in names if name in node.attributes]
        if (
            new.deprecated
            or len(node.inputs) != 1
            or there != list(names[: len(there)])
            or [each.name for each in new.inputs][1 : 1 + len(names)] != list(names)
            or any(node.attributes[name].is_ref() for name in there)
            or not _keeps_defaults(old, new, but=names)
        ):
            return None
        found = {name: list(node.attributes[name].as_ints()) for name in there}
        return found if all(found.values()) else None

    def stays(self, node: ir.Node) -> bool:
        """Whether a node means the same at the new opset as it stands."""
        return all(map(self._stays_alone, (node, *_inner_nodes(node))))

    def is_same_schema(self, node: ir.Node, opset: int | None = None) -> bool:
        """Whether an operator has not been touched since: one schema serves both opsets."""
        if node.domain != "" or node.op_identifier() in self.imported.model.functions:
            return True
        try:
            old, new = (
                onnx.defs.get_schema(node.op_type, version, "")
                for version in (node.version or opset or self.opset, self.target)
            )
        except onnx.defs.SchemaError:
            return False
        return bool(old.since_version == new.since_version) and not new.deprecated

    def _stays_alone(self, node: ir.Node) -> bool:
        if self.is_same_schema(node):
            return True
        if self._moved(node) == {}:
            return True
        if node in self.imported.positions and not _equal_calls(
            self._written(node, self.opset), self._written(node, self.target)
        ):
            return False
        data = self.alone.get(node) or _alone(node).SerializeToString(deterministic=True)
        if len(data) > KEPT_BYTES:
            return _is_left_alone.__wrapped__(data, self.opset, self.target)
        self.alone[node] = data
        return _is_left_alone(data, self.opset, self.target)

    def _written(self, node: ir.Node, opset: int) -> OnnxCall | None:
        """How the registry writes a node that it understands."""
        value: Value = self.imported.values[node.outputs[0]]
        op = value.node.op
        if not isinstance(op, Operator) or op.since > opset:
            return None
        try:
            shapes = [source.shape for source in value.node.inputs]
            return op.to_onnx(value.node.attributes, shapes, opset)
        except (TypeError, SizeError, ShapeError):
            return None


def _all_nodes(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    for node in graph:
        yield node
        yield from _inner_nodes(node)


def _inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    return (inner for graph in subgraphs(node) for inner in graph)


def _equal_calls(old: OnnxCall | None, new: OnnxCall | None) -> bool:
    """Whether two ways to write an operator are one, the opset aside."""
    if old is None or new is None:
        return old is new
    same: tuple[Mapping[str, Any], ...] = (old.attributes, new.attributes)
    return (
        (old.op_type, old.domain, old.shapes) == (new.op_type, new.domain, new.shapes)
        and same[0] == same[1]
        and old.constants.keys() == new.constants.keys()
        and all(np.array_equal(old.constants[k], new.constants[k]) for k in old.constants)
    )


def _alone(node: ir.Node) -> onnx.ModelProto:
    """A model of one node like `node`, without names, subgraphs and data."""
    inputs = ["" if value is None else f"i{k}" for k, value in enumerate(node.inputs)]
    outputs = [f"o{k}" for k in range(len(node.outputs))]
    kept = []
    for attribute in node.attributes.values():
        if attribute.is_ref() or attribute.type in GRAPHS:
            continue
        if attribute.type == ir.AttributeType.TENSOR:  # what it holds has no say in what it means
            kind = onnx.TensorProto.DataType.Value(attribute.as_tensor().dtype.name)
            blank = onnx.TensorProto(data_type=kind, dims=[0])
            kept.append(onnx.helper.make_attribute(attribute.name, blank))
        else:
            kept.append(ir.to_proto(attribute))
    proto = onnx.NodeProto(op_type=node.op_type, input=inputs, output=outputs, attribute=kept)
    types = [
        onnx.helper.make_tensor_value_info(
            name, int(value.dtype if value.dtype is not None else ir.DataType.FLOAT), None
        )
        for name, value in zip(inputs, node.inputs, strict=True)
        if value is not None
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    return onnx.helper.make_model(onnx.helper.make_graph([proto], "alone", types, results))


def _keeps_defaults(
    old: onnx.defs.OpSchema, new: onnx.defs.OpSchema, but: Sequence[str] = ()
) -> bool:
    """Whether a schema only adds to an older one, `but` for some attributes.

    For some changes the converter has no step.
    """
    return all(
        name in new.attributes and new.attributes[name].default_value == known.default_value
        for name, known in old.attributes.items()
        if name not in but
    )


@lru_cache(maxsize=1_000)
def _is_left_alone(data: bytes, opset: int, target: int) -> bool:
    """Whether the converter takes the one node of a serialized model to the new opset as it is."""
    model = onnx.ModelProto.FromString(data)
    (node,) = model.graph.node
    try:
        old, new = (onnx.defs.get_schema(node.op_type, version, "") for version in (opset, target))
        if old.deprecated or not _keeps_defaults(old, new):
            return False
        del model.opset_import[:]
        model.opset_import.append(onnx.helper.make_opsetid("", opset))
        converted = version_converter.convert_version(model, target).graph
    except Exception:  # the converter raises what its C++ side throws
        return False

    def said(node: onnx.NodeProto) -> object:
        attributes = sorted(item.SerializeToString() for item in node.attribute)
        return node.op_type, list(node.input), list(node.output), attributes

    return (
        len(converted.node) == 1
        and not converted.initializer
        and said(converted.node[0]) == said(node)
    )
