"""Dimensions that a model declares to be dynamic, but of which only one size runs.

An export by tracing has the sizes of its example in the targets of some Reshapes, whatever it
declares of its inputs: a tensor of `64*b*t` elements that is given the shape `[20, 4*b, 16]` has
`t = 20`, or there is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir

from xflow.core.size import Size, Symbol, divide, factor_of, free_symbols, substitute

MEASURING = frozenset({"Shape", "Size"})
"""Operators that the runtime may compute without the tensor whose shape they read."""


def fixed_dimensions(
    graph: ir.Graph, differences: Mapping[ir.Node, Size], given: Collection[str]
) -> dict[str, tuple[int, ir.Node]]:
    """The only size of each symbol that has one, with the node that runs with no other.

    `differences` are sizes that must be 0 for a node to run, `given` the symbols of the inputs'
    dimensions, which are at least 1. Nodes on which no output depends may be left out by the
    runtime, and do not count. Empty where two nodes want different sizes.
    """
    found: dict[str, tuple[int, ir.Node]] = {}
    needed = _computed(graph) if differences else set()
    waiting = {node: size for node, size in differences.items() if node in needed}
    while True:
        known = {name: size for name, (size, _) in found.items()}
        for node, difference in waiting.items():
            left = substitute(difference, known)
            if _is_never_zero(left, given):
                return {}
            only = _only(left, given)
            if only is not None:
                name, size = only
                found[name] = size, node
                break
        else:
            return found


def _computed(graph: ir.Graph) -> set[ir.Node]:
    """The nodes that are computed, whatever the runtime leaves out."""
    found: set[ir.Node] = set()
    waiting = [value.producer() for value in graph.outputs]
    while waiting:
        node = waiting.pop()
        if node is None or node in found:
            continue
        found.add(node)
        if node.op_type not in MEASURING:
            waiting += [value.producer() for value in node.inputs if value is not None]
    return found


def _only(difference: Size, given: Collection[str]) -> tuple[str, int] | None:
    """A symbol, and its only size for which the difference is 0; None if none is found."""
    for name in sorted(free_symbols(difference).intersection(given)):
        parts = factor_of(difference, name)
        if parts is None or not _is_never_zero(parts[0], given):
            continue
        factor, rest = parts
        size, remainder = divide(-rest, factor)
        if remainder == 0 and isinstance(size, int) and size >= 1:
            return name, size
    return None


def _is_never_zero(size: Size, given: Collection[str]) -> bool:
    """Whether a polynomial is never 0 since all its terms have one sign, and sizes are given."""
    if isinstance(size, int):
        return size != 0
    atoms = (atom for monomial, _ in size.terms for atom in monomial)
    known = all(isinstance(atom, Symbol) and atom.name in given for atom in atoms)
    return known and len({coefficient > 0 for _, coefficient in size.terms}) == 1
