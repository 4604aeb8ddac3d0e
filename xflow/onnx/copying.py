"""Copies of attributes, subgraphs and metadata of an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from xflow.onnx.writer import UnwritableError


def copy_attribute(attribute: ir.Attr, outer: Mapping[ir.Value, ir.Value]) -> ir.Attr:
    """An attribute whose graphs read `outer`'s values instead of its keys."""
    if attribute.is_ref():
        return attribute
    if attribute.type == ir.AttributeType.GRAPH:
        return ir.AttrGraph(attribute.name, _copy_graph(attribute.as_graph(), outer))
    if attribute.type == ir.AttributeType.GRAPHS:
        graphs = [_copy_graph(graph, outer) for graph in attribute.as_graphs()]
        return ir.AttrGraphs(attribute.name, graphs)
    return attribute


def _copy_graph(graph: ir.Graph, outer: Mapping[ir.Value, ir.Value]) -> ir.Graph:
    try:
        copy = graph.clone(allow_outer_scope_values=True)
    except Exception as error:  # a subgraph whose output is a value from outside
        raise UnwritableError(f"the subgraph {graph.name} cannot be copied") from error
    for node in copy.all_nodes():
        for position, value in enumerate(node.inputs):
            if value is not None and value in outer:
                node.replace_input_with(position, outer[value])
    return copy


def describe(value: ir.Value, source: ir.Value) -> None:
    """Give `value` the type, documentation and metadata of `source`."""
    value.type = source.type
    value.shape = None if source.shape is None else source.shape.copy()
    value.doc_string = source.doc_string
    value.metadata_props.update(source.metadata_props)
    copy_meta(source, value)


def copy_meta(
    source: ir.Value | ir.Node | ir.Graph | ir.Model,
    target: ir.Value | ir.Node | ir.Graph | ir.Model,
) -> None:
    """Give `target` what tools have noted about `source`."""
    for key, item in source.meta.items():
        target.meta[key] = item
