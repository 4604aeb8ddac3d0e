"""What stands in a graph after a rule is applied at a match."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from xflow.core.constraint import follows
from xflow.core.errors import ShapeError
from xflow.core.graph import Graph, demands, walk
from xflow.core.node import Leaf, Node, Value, apply
from xflow.core.registry import Attribute, Need, Operator
from xflow.core.rounding import is_kept
from xflow.core.sorts import BOOL, CODE, FLOATS, INT, REAL, integer_range
from xflow.rewriting.instance import Instance
from xflow.rewriting.match import Match, NoMatch
from xflow.rewriting.unify import instantiate


@dataclass(frozen=True)
class BuiltSide:
    """A side of a rule at a match: its outputs, and all its nodes, inputs first."""

    values: tuple[Value, ...]
    nodes: tuple[Node, ...]


def replacement(instance: Instance, match: Match) -> BuiltSide | NoMatch:
    """What the outputs of the rule are to be replaced by at `match`."""
    after = build(instance.rhs, match, instance.rhs_nodes, there=match.nodes)
    if isinstance(after, NoMatch):
        return after
    if after.values == match.roots:
        return NoMatch("nothing changes")
    if any(new.type != old.type for new, old in zip(after.values, match.roots, strict=True)):
        return NoMatch("the type of an output changes")
    if len(after.values) > 1 and _reads(match.bindings.values(), match.roots):
        return NoMatch("one output depends on another through what the rule does not see")
    return after


def build(
    values: tuple[Value, ...],
    match: Match,
    order: Iterable[Node] | None = None,
    *,
    there: Collection[Node] = (),
) -> BuiltSide | NoMatch:
    """What a side of a rule is where its inputs and symbols are what `match` says.

    `order` are the nodes under `values`, inputs first, where they are known. `there` are nodes of
    the graph that the side replaces: what the runtime demands of sizes for these is known.
    """
    dtypes = {REAL: match.dtype, INT: "INT64", CODE: "INT8", BOOL: BOOL}
    made: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in walk(values) if order is None else order:
        if isinstance(node.op, Leaf):
            made[node.outputs[0]] = match.bindings[node.op.key]
            continue
        assert isinstance(node.op, Operator)
        need = Need()
        try:
            attributes: dict[str, Attribute] = {}
            used = match.operators.get(node.op)
            op, given = (node.op, node.attributes) if used is None else (used.op, used.attributes)
            for name, attribute in given.items():
                value = instantiate(attribute, match.sizes, match.reals, dtypes)
                if value is None:
                    return NoMatch(f"the left side does not say what {attribute} is")
                attributes[name] = value
            inputs = tuple([made[source] for source in node.inputs])
            if used is not None:
                inputs = used.order(inputs)
            dtype = dtypes[node.types[0].dtype]
            if not _has_numbers(op, dtype, attributes):
                return NoMatch(f"there are no such numbers of type {dtype}")
            outputs = apply(op, inputs, attributes, dtype=dtype, need=need)
        except ShapeError as error:
            return NoMatch(str(error))
        except ZeroDivisionError:
            return NoMatch("a size is divided by 0")
        for condition in need.conditions:
            if not follows(condition, demands(there)):
                return NoMatch(f"it is not known whether {condition}")
        made.update(zip(node.outputs, outputs, strict=True))
        nodes.append(outputs[0].node)
    return BuiltSide(tuple(made[value] for value in values), tuple(nodes))


def _has_numbers(op: Operator, dtype: str, attributes: Mapping[str, Attribute]) -> bool:
    """Whether real attributes are elements of a type; floats may round them, see `is_kept`."""
    reals = {name: value for name, value in attributes.items() if isinstance(value, Fraction)}
    if not reals:
        return True
    if dtype in FLOATS:
        return all(is_kept(value, op.stored(name, dtype), dtype) for name, value in reals.items())
    if any(value.denominator != 1 for value in reals.values()):
        return False
    low, high = (0, 1) if dtype == BOOL else integer_range(dtype)
    return all(low <= value <= high for value in reals.values())


def _reads(values: Iterable[Value], roots: tuple[Value, ...]) -> bool:
    """Whether one of `values` depends on one of `roots`."""
    roots_nodes = {root.node for root in roots}
    return any(node in roots_nodes for node in walk(values))


def rewrite(graph: Graph, instance: Instance, match: Match) -> Graph | NoMatch:
    """`graph` with the rule applied at `match`."""
    after = replacement(instance, match)
    if isinstance(after, NoMatch):
        return after
    return graph.replace(dict(zip(match.roots, after.values, strict=True)))
