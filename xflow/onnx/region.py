"""Standalone ONNX models of regions, to be measured."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from xflow.core.fold import ConstantLookup, Folder
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Value
from xflow.core.size import Size
from xflow.onnx.writer import Plan, UnwritableError, Writer, foreign_domains


def region_model(
    graph: Graph,
    constants: ConstantLookup,
    *,
    sizes: Mapping[str, int] | None = None,
    opset: int = 20,
) -> bytes:
    """The bytes of an ONNX model that computes `graph` alone.

    Leaves that are not constant become inputs in the order of `graph.leaves`, constant
    subexpressions become initializers. `sizes` says what the size symbols are; all of them must
    become integers. Raises UnwritableError where the region has no ONNX form.
    """
    opsets = {**foreign_domains(graph), "": opset}
    writer = _RegionWriter(Folder(constants), opsets, sizes=sizes)
    writer.taken.update(f"output_{k}" for k in range(len(graph.outputs)))
    inputs = [writer.input(value) for value in graph.leaves if not value.is_constant]
    outputs = []
    for number, made in enumerate(writer.write(graph.outputs)):
        plain = made.producer() is None or made in outputs
        output = writer.identity(made, f"output_{number}") if plain else made
        output.name = f"output_{number}"
        outputs.append(output)
    region = ir.Graph(
        inputs,
        outputs,
        nodes=writer.nodes,
        initializers=writer.initializers,
        opset_imports=opsets,
        name="region",
    )
    version = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    data: bytes = ir.to_proto(ir.Model(region, ir_version=version)).SerializeToString()
    return data


class _RegionWriter(Writer):
    def input(self, value: Value) -> ir.Value:
        assert isinstance(value.node.op, Leaf)
        self.made[value] = self.new_value(value.type, value.node.op.key)
        return self.made[value]

    def plan(self, value: Value) -> Plan:
        if not value.is_leaf:
            return self.plan_new(value)
        array = self.folder(value)
        if array is None:
            raise UnwritableError(f"the constant {value} has no data")
        return Plan((), lambda: self.put_constant(value, array))

    def dimension(self, size: Size) -> int | str | None:
        if not isinstance(size, int):
            raise UnwritableError(f"the size {size} is not known")
        return size
