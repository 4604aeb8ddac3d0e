"""What the ONNX checker passes though it has no one meaning, or no end: such models are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import onnx

from xflow.core.errors import ModelError
from xflow.core.expressions import shortened
from xflow.onnx.checker import OWN_DOMAIN
from xflow.onnx.proto_compat import inner_graphs
from xflow.onnx.repairs import weights

MOST_OPERATORS = 1_000_000
"""Operators that the calls of a model's functions may come to, which the runtime inlines."""

_Key: TypeAlias = tuple[str, str, str]
"""The domain, name and overload of a function."""


def refuse(proto: onnx.ModelProto) -> None:
    """Raise ModelError, in one sentence, for a valid message that cannot be worked on."""
    _refuse_two_versions(proto.opset_import, "")
    for function in proto.functions:
        _refuse_two_versions(function.opset_import, _called(function))
    _refuse_large_calls(proto)
    for part in (proto.graph, *proto.functions):
        for name in _shadowed(part, set()):
            what = (
                f"a weight of a graph inside an operator is named {shortened(name)!r} like a value "
                "around it, which ONNX forbids and runtimes do not read in one way"
            )
            raise ModelError(what, do="rename one of the two")


def _refuse_two_versions(imports: Iterable[onnx.OperatorSetIdProto], where: str) -> None:
    """Raise ModelError if a domain is imported in two versions: runtimes take one or the other."""
    versions: dict[str, int] = {}
    for each in imports:
        domain = "" if each.domain == OWN_DOMAIN else each.domain
        known = versions.setdefault(domain, each.version)
        if known != each.version:
            name = shortened(domain or OWN_DOMAIN)
            what = (
                f"the operator set {name} is imported in two versions, {known} and {each.version}"
            )
            raise ModelError(what, where, "import one of them")


def _refuse_large_calls(proto: onnx.ModelProto) -> None:
    """Raise ModelError if functions call themselves, or one another so often that it never ends."""
    functions = {_key(each): each for each in proto.functions}
    if not functions:
        return
    nodes = {key: list(_nodes(function)) for key, function in functions.items()}
    calls = {
        key: [_callee(node) for node in own if _callee(node) in functions]
        for key, own in nodes.items()
    }
    sizes: dict[_Key, int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            sizes[key] = len(nodes[key]) + sum(sizes[callee] for callee in calls[key])
    except CycleError as error:
        function = functions[error.args[1][0]]
        raise ModelError("this function calls itself", _called(function)) from None
    size = sum(sizes.get(_callee(node), 0) for node in _nodes(proto.graph))
    if size > MOST_OPERATORS:
        what = (
            "the calls of its functions come to more operators than can be worked on "
            f"({MOST_OPERATORS:,} at most)"
        )
        raise ModelError(what)


def _shadowed(part: onnx.GraphProto | onnx.FunctionProto, visible: set[str]) -> Iterator[str]:
    """The names of weights of inner graphs that values have which the graph could read instead."""
    if isinstance(part, onnx.FunctionProto):
        own = set(part.input)
    else:
        own = {*(each.name for each in part.input), *weights(part)}
    added = own - visible
    visible |= added
    for node in part.node:
        for graph in inner_graphs(node):
            yield from weights(graph) & visible
            yield from _shadowed(graph, visible)
        fresh = {name for name in node.output if name} - visible
        visible |= fresh
        added |= fresh
    visible -= added


def _nodes(part: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """All nodes of a graph or a function, those of graphs inside operators included."""
    for node in part.node:
        yield node
        for graph in inner_graphs(node):
            yield from _nodes(graph)


def _key(function: onnx.FunctionProto) -> _Key:
    return _plain(function.domain), function.name, function.overload


def _callee(node: onnx.NodeProto) -> _Key:
    return _plain(node.domain), node.op_type, node.overload


def _plain(domain: str) -> str:
    return "" if domain == OWN_DOMAIN else domain


def _called(function: onnx.FunctionProto) -> str:
    return shortened(f"function {function.domain}.{function.name}".replace(" .", " "))
