"""Sums of products of codes that neither round nor wrap around, where a rule asks for that.

Codes are integers of 8 bits. A condition ``exact_sums(w)`` bounds the elements of w such
that sums of products with ``x - z``, for one code z and codes x of its type, are integers of less
than 25 bits, and so are all parts of these sums: see `xflow.core.value_conditions`. Operators give
the same integer then, whether they compute with integers of 32 bits or with floats of 32 bits or
more, in any order; and the nearest float is the integer itself. So what is equal as a real number
is equal to the bit.

Only what operators are is looked at, not how they are specified.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from xflow.core.graph import rebuild, walk
from xflow.core.node import Leaf, Node, Value, apply
from xflow.core.registry import Operator
from xflow.core.sorts import CODE, INT, REAL
from xflow.core.value_conditions import EXACT_SUMS, Fact
from xflow.rewriting.instance import Instance, leaf_name

OPERANDS = 2
"""How many inputs of a product are its operands; zero points follow, or what is added."""
NEAREST, AS_REAL = "NearestFloat", "AsReal"


@dataclass(frozen=True)
class Codes:
    """That a value holds codes of a leaf, less one other code where that is given."""

    leaf: Value
    less: Value | None = None


@dataclass(frozen=True)
class Sums:
    """That a value holds sums of products of codes, which are integers of less than 25 bits."""


def exact_values(instance: Instance) -> dict[Value, Codes | Sums]:
    """The values of both sides that are exact integers, with what is known of them."""
    nodes = list(walk((*instance.lhs, *instance.rhs)))
    bounded = {fact.names for fact in instance.facts if fact.relation == EXACT_SUMS}
    alike = set(_of_one_type(nodes))
    found: dict[Value, Codes | Sums] = {}
    for node in nodes:
        kind = _kind(node, found, bounded, alike)
        if kind is not None:
            found[node.outputs[0]] = kind
    return found


def _kind(
    node: Node,
    known: Mapping[Value, Codes | Sums],
    bounded: Collection[tuple[str, ...]],
    alike: Collection[tuple[Value, Value]],
) -> Codes | Sums | None:
    if isinstance(node.op, Leaf):
        return Codes(node.outputs[0]) if node.types[0].dtype == CODE else None
    assert isinstance(node.op, Operator)
    if _is_one(node.outputs[0]):
        return Sums()
    inputs = [known.get(source) for source in node.inputs]
    match node.op.name, inputs:
        case (("Cast" | "NearestFloat" | "AsReal"), [same]):
            return same if node.types[0].dtype == REAL else None
        case "Sub", [Codes(leaf, None), Codes(code, None)] if not code.shape:
            return Codes(leaf, code)
        case "DequantizeLinear", [Codes(leaf, None), _, Codes(code, None)] if not code.shape:
            return Codes(leaf, code) if _is_one(node.inputs[1]) else None
        case "Conv", [Codes() as image, Codes() as weights]:
            pass
        case "ConvInteger", [Codes(leaf, None), Codes(other, None), *zeros] if None not in zeros:
            less = [*node.inputs[OPERANDS:], None, None]
            image, weights = Codes(leaf, less[0]), Codes(other, less[1])
        case _:
            return None
    of_one_type = image.less is None or (image.leaf, image.less) in alike
    names = tuple(leaf_name(v) for v in (weights.leaf, weights.less) if v is not None)
    return Sums() if of_one_type and names in bounded else None


def _is_one(value: Value) -> bool:
    is_number = isinstance(value.node.op, Operator) and value.node.op.name == "Scalar"
    return is_number and value.node.attributes["value"] == 1


def _of_one_type(nodes: Iterable[Node]) -> Iterator[tuple[Value, Value]]:
    """Images of codes, and their zero points, which an operator takes of one type alone."""
    for node in nodes:
        if isinstance(node.op, Operator) and node.op.name == "ConvInteger":
            image, _, *zeros = node.inputs
            if zeros:
                yield image, zeros[0]


def without_roundings(instance: Instance) -> Instance:
    """An instance with the integers themselves where the nearest float is nothing else."""
    known = exact_values(instance)
    exact = {
        node.outputs[0]: apply(AS_REAL, node.inputs)[0]
        for node in walk((*instance.lhs, *instance.rhs))
        if isinstance(node.op, Operator) and node.op.name == NEAREST and node.inputs[0] in known
    }
    if not exact:
        return instance
    lhs, rhs = (rebuild(side, exact) for side in (instance.lhs, instance.rhs))
    return replace(instance, lhs=lhs, rhs=rhs)


def is_exact(instance: Instance) -> bool:
    """Whether all that both sides compute are exact integers."""
    known = exact_values(instance)
    nodes = walk((*instance.lhs, *instance.rhs))
    return all(output in known for node in nodes for output in node.outputs)


def wanting(instance: Instance) -> tuple[str, ...]:
    """Conditions under which the floats nearest to sums would be these sums."""
    nodes = list(walk((*instance.lhs, *instance.rhs)))
    if not any(isinstance(node.op, Operator) and node.op.name == NEAREST for node in nodes):
        return ()
    weights = {
        (node.inputs[1], *node.inputs[OPERANDS + 1 :])
        for node in nodes
        if isinstance(node.op, Operator) and node.op.name == "ConvInteger"
    }
    names = [tuple(map(leaf_name, values)) for values in weights if all(v.is_leaf for v in values)]
    return tuple(str(Fact(name, EXACT_SUMS, *less)) for name, *less in sorted(names))


def wrapping(instance: Instance) -> bool:
    """Whether a side computes integers of the sort ``INT`` that may wrap around."""
    known = exact_values(instance)
    return any(
        value.type.dtype == INT and value not in known
        for node in walk((*instance.lhs, *instance.rhs))
        if node.inputs
        for value in node.outputs
    )
