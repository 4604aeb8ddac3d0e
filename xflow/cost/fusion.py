"""Finds the patterns of operators in a graph that the runtime computes by one fused kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from xflow.core.graph import Graph
from xflow.core.node import Node, Value
from xflow.core.registry import Operator
from xflow.cost.target import Call, Fusion, Term


@dataclass(frozen=True)
class Kernel:
    """A match of a fusion's pattern: the kernel, the nodes that it replaces, and its inputs."""

    name: str
    inside: frozenset[Node]
    inputs: tuple[Value, ...]
    inner: bool = False
    """Whether the runtime does not fuse where the result is an output of the model."""


class Fusions:
    """Finds where fusions fire, and caches the matches of nodes."""

    def __init__(self, fusions: tuple[Fusion, ...]) -> None:
        self._roots: dict[str, list[tuple[frozenset[str], Fusion]]] = {}
        """By the operator at the root: fusions, with the operators that the root has to read."""
        for fusion in fusions:
            read = frozenset(each.op for each in fusion.root.arguments if isinstance(each, Call))
            self._roots.setdefault(fusion.root.op, []).append((read, fusion))
        self._at: dict[Node, tuple[Kernel, ...]] = {}

    def chosen(
        self, graph: Graph, readers: Mapping[Value, int], results: Container[Value]
    ) -> dict[Node, Kernel]:
        """The fused kernels of `graph`, by the node that ends each, the later ones first.

        `readers` says how often each value is read, see `count_readers`; `results` are those of the
        graph's outputs that the model gives.
        """
        kernels: dict[Node, Kernel] = {}
        inside: set[Node] = set()
        for node in reversed([node for node in graph.nodes if self.ending_at(node)]):
            for kernel in () if node in inside else self._at[node]:
                if kernel.inner and node.outputs[0] in results:
                    continue
                if inside.isdisjoint(kernel.inside) and _only_read(kernel, node, readers):
                    kernels[node] = kernel
                    inside.update(kernel.inside)
                    break
        return kernels

    def ending_at(self, node: Node) -> tuple[Kernel, ...]:
        """The fusions whose pattern ends at `node`, even if other nodes read values inside."""
        found = self._at.get(node)
        if found is None:
            patterns = () if node.constant else self._roots.get(operator_name(node), ())
            present = {operator_name(value.node) for value in node.inputs} if patterns else ()
            found = self._at[node] = tuple(
                Kernel(fusion.kernel, inside - {node}, tuple(bound.values()), fusion.inner)
                for read, fusion in patterns
                if read.issubset(present)
                for bound, inside in _first_match(fusion, node)
            )
        return found


def count_readers(graph: Graph) -> dict[Value, int]:
    """How often each value is read; by more than one for an output, which must exist."""
    readers: dict[Value, int] = dict.fromkeys(graph.outputs, 2)
    for node in graph.nodes:
        for value in node.inputs:
            readers[value] = readers.get(value, 0) + 1
    return readers


def operator_name(node: Node) -> str:
    """The name of a node's operator; empty for leaves and opaque nodes."""
    return node.op.name if isinstance(node.op, Operator) else ""


def _first_match(fusion: Fusion, node: Node) -> list[tuple[Mapping[str, Value], frozenset[Node]]]:
    """The first way in which a fusion's pattern fits at `node`, if there is one."""
    return list(islice(_match(fusion.root, node.outputs[0], {}, frozenset()), 1))


def _match(
    term: Term, value: Value, bound: Mapping[str, Value], inside: frozenset[Node]
) -> Iterator[tuple[Mapping[str, Value], frozenset[Node]]]:
    """The ways in which a pattern fits at `value`: values by name, and the nodes that it covers."""
    if isinstance(term, str):
        if bound.get(term, value) == value and (term[0] != "c" or value.is_constant):
            yield {**bound, term: value}, inside
        return
    node = value.node
    if operator_name(node) != term.op or node.constant or len(node.inputs) != len(term.arguments):
        return
    assert isinstance(node.op, Operator)
    # The kernels that the runtime has reduce rows.
    if node.op.name.startswith("Reduce") and node.attributes["axes"] != (len(value.shape) - 1,):
        return
    swapped = [node.inputs[::-1]] if node.op.commutative and len(node.inputs) == 2 else []
    for inputs in (node.inputs, *swapped):
        ways = [(bound, inside | {node})]
        for argument, source in zip(term.arguments, inputs, strict=True):
            ways = [more for way in ways for more in _match(argument, source, *way)]
        yield from ways


def _only_read(kernel: Kernel, node: Node, readers: Mapping[Value, int]) -> bool:
    """Whether values inside the kernel that ends at `node` are read by no other node."""
    own: Counter[Value] = Counter(v for n in (*kernel.inside, node) for v in n.inputs)
    return all(own[value] == readers.get(value, 0) for value in own if value.node in kernel.inside)
