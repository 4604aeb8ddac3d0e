"""Calls of a model's own functions, replaced by what is in these where a rule gains by it.

Which calls to inline is known once the search has seen what is in all of them: those whose
operators a rewrite has replaced. The others stay calls, and their functions stay what they are,
byte for byte. The inlining itself is onnx-ir's, one level of calls at a time.
"""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from xflow.onnx.copying import copy_meta
from xflow.onnx.imported import Imported
from xflow.onnx.nodes import is_defined_elsewhere, subgraphs
from xflow.rewriting.replacement import Replacement
from xflow.rewriting.trace import traced

Call: TypeAlias = tuple[int, ...]
"""The number of a node in the main graph, then of one in its function, and so on inwards."""

MOST = 20_000
"""Operators that a model may have with all of its calls inlined."""
_KEY = "xflow.call"
"""The metadata by which the operators of a call are known again, for as long as it is inlined."""
_DOMAIN = "xflow.inlined."
"""Before the domain of functions whose calls are to be inlined."""


@dataclass(frozen=True)
class Inlined:
    """A model in which some calls are inlined: which ones, and whence each node of its graph is."""

    model: ir.Model
    calls: frozenset[Call]
    origin: tuple[Call | None, ...]


def has_calls(model: ir.Model) -> bool:
    """Whether the main graph calls functions of the model that can be inlined, not too large."""
    if not model.functions or not any(_can_be_inlined(node, model) for node in model.graph):
        return False
    sizes = _sizes(model)
    if sizes is None:
        return False
    return sum(sizes.get(node.op_identifier(), 1) for node in model.graph.all_nodes()) <= MOST


def inlined(model: ir.Model, wanted: Collection[Call] | None = None) -> Inlined:
    """A copy of the model with the wanted calls inlined; with all that can be, if that is None.

    Those inside others count only if the others are inlined, too. Functions that are no longer
    called are left out. The model is not changed; weights are shared.
    """
    copy = model.clone()
    copy_meta(model, copy)
    used = _reachable(copy)
    origin: dict[ir.Node, Call] = {}
    waiting: dict[ir.Node, Call] = {node: (number,) for number, node in enumerate(copy.graph)}
    made: set[Call] = set()
    while True:
        wave = {
            node: call
            for node, call in waiting.items()
            if (wanted is None or call in wanted) and _can_be_inlined(node, copy)
        }
        if not wave:
            break
        made.update(wave.values())
        waiting = _inline(copy, wave)
        origin.update((node, call[:-1]) for node, call in waiting.items())
    for identifier in used - _reachable(copy):
        del copy.functions[identifier]
    return Inlined(copy, frozenset(made), tuple(origin.get(node) for node in copy.graph))


def worthwhile(
    whole: Inlined,
    imported: Imported,
    replacements: Sequence[Replacement],
    bodies: Collection[int],
) -> frozenset[Call]:
    """The calls of which operators were replaced, and those that these are in.

    `imported` is the model with these calls inlined; `bodies` are the numbers of its nodes whose
    graphs have become better.
    """
    trace, _ = traced(imported.graph, replacements)
    gone = {imported.graph.nodes[number] for number in trace.replaced}
    found: set[Call] = set()
    for number, node in enumerate(imported.model.graph):
        call = whole.origin[number]
        values = (imported.values[output] for output in node.outputs if output in imported.values)
        if call is not None and (number in bodies or any(value.node in gone for value in values)):
            found.update(call[:length] for length in range(1, len(call) + 1))
    return frozenset(found)


def _inline(model: ir.Model, wave: dict[ir.Node, Call]) -> dict[ir.Node, Call]:
    """Inline calls in the main graph of `model`; the nodes that come of them, as calls are told."""
    taken = set(_names(model))
    kept: set[str] = set()
    calls = list(wave.values())
    for number, node in enumerate(wave):
        identifier = domain, name, overload = node.op_identifier()
        function = model.functions[identifier]
        marked = (_DOMAIN + domain, name, overload)
        if marked not in model.functions:
            model.functions[marked] = _copy(function, marked[0], model)
        node.domain = marked[0]
        node.metadata_props[_KEY] = str(number)
        for output in node.outputs:
            output.name = output.name or _fresh("unused", taken)
            kept.add(output.name)
    InlinePass(lambda function: function.domain.startswith(_DOMAIN))(model)
    counters = [itertools.count() for _ in calls]
    result = {}
    for node in model.graph:
        mark = node.metadata_props.pop(_KEY, None)
        if mark is None:
            continue
        call = calls[int(mark)]
        result[node] = (*call, next(counters[int(mark)]))
        for value in _values(node):
            name = value.name or ""
            if value in node.outputs and name in kept:
                continue  # what the call made
            if name:
                value.name = name if name not in taken else _fresh(name, taken)
                taken.add(value.name)
        for graph in subgraphs(node):
            for inner in graph:
                inner.metadata_props.pop(_KEY, None)
    return result


def _copy(function: ir.Function, domain: str, model: ir.Model) -> ir.Function:
    """The function under another domain, with the opsets of the model."""
    graph = function.graph.clone()
    for name in graph.opset_imports:
        graph.opset_imports[name] = model.graph.opset_imports.get(name, graph.opset_imports[name])
    attributes = list(function.attributes.values())
    return ir.Function(domain, function.name, function.overload, graph=graph, attributes=attributes)


def _can_be_inlined(node: ir.Node, model: ir.Model) -> bool:
    """Whether a node calls a function that can stand in its place and means the same there."""
    function = model.functions.get(node.op_identifier())
    if function is None or is_defined_elsewhere(node):
        return False
    produced = [value for value in function.outputs if value.producer() is not None]
    return (
        len(node.inputs) <= len(function.inputs)
        and len(node.outputs) == len(function.outputs)
        # An output that is an input, or is there twice, would lose one of its names.
        and len(set(produced)) == len(function.outputs)
        and not any(
            attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
            for attribute in (*node.attributes.values(), *function.attributes.values())
        )
        and not any(attribute.is_ref() for attribute in node.attributes.values())
        and _means_the_same(function, model)
    )


def _means_the_same(function: ir.Function, model: ir.Model) -> bool:
    """Whether the operators in a function are the same with the opsets that the model imports."""
    here = model.graph.opset_imports
    for node in function.all_nodes():
        own, other = function.opset_imports.get(node.domain), here.get(node.domain)
        if own == other or other is None or node.op_identifier() in model.functions:
            continue
        try:
            schemas = [
                onnx.defs.get_schema(node.op_type, v or 1, node.domain) for v in (own, other)
            ]
        except onnx.defs.SchemaError:
            return False
        if schemas[0].since_version != schemas[1].since_version:
            return False
    return True


def _sizes(model: ir.Model) -> dict[ir.OperatorIdentifier, int] | None:
    """How many operators each function has with all calls inlined; None where one calls itself."""
    called = {
        identifier: [node.op_identifier() for node in function.all_nodes()]
        for identifier, function in model.functions.items()
    }
    sizes: dict[ir.OperatorIdentifier, int] = {}
    try:
        order = list(graphlib.TopologicalSorter(called).static_order())
    except graphlib.CycleError:
        return None
    for identifier in order:
        if identifier in called:
            sizes[identifier] = sum(sizes.get(each, 1) for each in called[identifier])
    return sizes


def _reachable(model: ir.Model) -> set[ir.OperatorIdentifier]:
    """The functions that the main graph needs."""
    found: set[ir.OperatorIdentifier] = set()
    pending = [node.op_identifier() for node in model.graph.all_nodes()]
    while pending:
        identifier = pending.pop()
        if identifier in model.functions and identifier not in found:
            found.add(identifier)
            inner = model.functions[identifier].all_nodes()
            pending += [node.op_identifier() for node in inner]
    return found


def _names(model: ir.Model) -> Iterator[str]:
    """All names of values in the main graph and in the graphs inside it."""
    for graph in (model.graph, *(each for node in model.graph for each in subgraphs(node))):
        yield from (value.name or "" for value in graph.inputs)
        yield from graph.initializers
        yield from (output.name or "" for node in graph for output in node.outputs)


def _values(node: ir.Node) -> Iterator[ir.Value]:
    """The values that a node makes, and those of the graphs inside it."""
    yield from node.outputs
    for graph in subgraphs(node):
        yield from dict.fromkeys((*graph.inputs, *graph.initializers.values()))
        yield from (output for inner in graph for output in inner.outputs)


def _fresh(name: str, taken: set[str]) -> str:
    number = next(k for k in itertools.count(1) if f"{name}_{k}" not in taken)
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"
