"""The regions that a graph is cut into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xflow.analysis.observers import Observed, sensitive_outside
from xflow.blocks.find import find_spelled_out, find_with_pasts
from xflow.blocks.rotations import repeating, rotation_at
from xflow.core.graph import Graph
from xflow.core.node import Node, Opaque, Value, apply
from xflow.core.registry import Operator
from xflow.core.sorts import CODES
from xflow.cost import Layouts, Use
from xflow.ops.quantized import SUM
from xflow.rewriting.numerics import Hazard
from xflow.search.constants import Constants
from xflow.search.ordering import ordered
from xflow.search.region import Region, passes_blocks
from xflow.search.seams import parts_of


def cut(
    graph: Graph, constants: Constants, shifted: bool = False, layouts: Layouts | None = None
) -> list[Region]:
    """The regions of `graph`, in an order in which none reads from a later one.

    `shifted` cuts at other places, so that what lay on a seam comes to lie inside a region.
    `layouts` decides which images cross the regions' borders in the runtime's own layout, and which
    operators the runtime fuses.
    """
    regions: list[Region] = []
    sensitive = constants.contexts(graph)
    blocks = find_spelled_out(graph, constants.lookup)
    # All layers read the tables of a rotation, of which most regions cannot hold both.
    larger = [*dict.fromkeys((*blocks, *map(_without_tables, blocks)))]
    kernels = larger + ([] if layouts is None else [*layouts.fused(graph)]) + [*_parted(graph)]
    kernels += find_with_pasts(graph, constants.lookup)  # one operator concatenates them, too
    for nodes in levels_of(graph, late=not shifted):
        for component in components_of(nodes):
            in_order = ordered(component, larger, constants.policy.region_nodes)
            for part in parts_of(in_order, shifted, kernels, constants.policy):
                regions.extend(
                    region_of(graph, members, constants, layouts, sensitive)
                    for members in components_of(part)
                )
    return [region for region in regions if region.outputs]


def blocks_of(
    graph: Graph,
    regions: Iterable[Region],
    constants: Constants,
    layouts: Layouts | None = None,
    opset: int | None = None,
) -> list[Region]:
    """The blocks that `regions` of a graph spell out beside others, each as a region of its own.

    They may overlap. A rotation reads its tables, as regions do, see `region_of`.
    """
    found: list[Region] = []
    sensitive = constants.contexts(graph)
    place = {node: number for number, node in enumerate(graph.nodes)}
    wholes = [region.nodes for region in regions]
    for block in find_spelled_out(graph, constants.lookup, opset):
        own = _without_tables(block)
        if any(own < whole for whole in wholes):
            members = sorted(own, key=place.__getitem__)
            found.append(region_of(graph, members, constants, layouts, sensitive))
    return found


def _without_tables(block: frozenset[Node]) -> frozenset[Node]:
    """A block without what repeats the angles of its rotations, if there are any."""
    return block.difference(
        *(each.repeated for each in map(rotation_at, block) if each is not None)
    )


def _parted(graph: Graph) -> Iterable[frozenset[Node]]:
    """Operators that take a result apart, with what computes that alone: it may be computed in
    parts instead, if nothing else reads it as a whole."""
    for node in graph.nodes:
        if not isinstance(node.op, Operator) or node.op.name != "Split" or node.constant:
            continue
        found, waiting = {node}, [node.inputs[0].node]
        while waiting:
            source = waiting.pop()
            if source in found or source.constant or not isinstance(source.op, Operator):
                continue
            found.add(source)
            users = (user for value in source.outputs for user in graph.users.get(value, ()))
            if source.op.elementwise and found.issuperset(users):
                waiting += [value.node for value in source.inputs]
        yield frozenset(found)


def levels_of(graph: Graph, late: bool) -> list[list[Node]]:
    """Registry nodes parted by the opaque ones: on no level does a way lead through one of them.

    Each is on its earliest level, or on its latest if `late`: only then two operands of an operator
    are on one level if one of them depends on an opaque node, as a mask may, and the other on none.
    Constant expressions are left out.
    """
    level_of = _level_of(graph, late)
    levels: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.op, Operator) and not node.constant:
            levels.setdefault(level_of[node], []).append(node)
    return [levels[level] for level in sorted(levels)]


def _level_of(graph: Graph, late: bool) -> dict[Node, int]:
    """How many opaque nodes lead to each, or the most that may, see `_levels`."""
    early: dict[Node, int] = {}
    for node in graph.nodes:
        early[node] = max(
            (
                early[value.node] + isinstance(value.node.op, Opaque)
                for value in node.inputs
                if not value.is_constant
            ),
            default=0,
        )
    if not late:
        return early
    last = max(early.values(), default=0)
    latest: dict[Node, int] = {}
    for node in reversed(graph.nodes):
        values = node.outputs
        users = (user for value in values for user in graph.users.get(value, ()))
        before = isinstance(node.op, Opaque)
        latest[node] = min((latest[user] - before for user in users), default=last)
    return latest


def components_of(nodes: Sequence[Node]) -> list[list[Node]]:
    """Sets of nodes that are connected by edges or by reading a common input, in given order."""
    parent: dict[Node, Node] = {node: node for node in nodes}

    def root(node: Node) -> Node:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    first: dict[Value, Node] = {}
    for node in nodes:
        for value in node.inputs:
            if not value.is_constant:
                other = value.node if value.node in parent else first.setdefault(value, node)
                parent[root(node)] = root(other)
    groups: dict[Node, list[Node]] = {}
    for node in nodes:
        groups.setdefault(root(node), []).append(node)
    return list(groups.values())


def region_of(
    graph: Graph,
    members: Sequence[Node],
    constants: Constants,
    layouts: Layouts | None,
    sensitive: Mapping[Value, Observed],
) -> Region:
    """The region of `members`; `sensitive` says what is sensitive to each value of the graph.

    Where it reads a table that repeats a value, its graph has the operators that repeat it, though
    they are not in it: all layers read the angles of a rotary embedding, and each has to know that
    those of a pair are equal. What a form still reads of the table is computed once, since equal
    nodes are one.
    """
    inside = set(members)
    read = {v for node in members for v in node.inputs if v.node not in inside}
    shown = inside.union(*map(repeating, read))
    ends = set(graph.outputs)
    outputs = tuple(
        value
        for node in members
        for value in node.outputs
        if value in ends or any(user not in inside for user in graph.users.get(value, ()))
    )

    def is_wanted(value: Value) -> bool:
        return (
            layouts is not None
            and any(layouts.wants_blocks(u) for u in graph.users.get(value, ()) if u not in inside)
            and passes_blocks(value, layouts)
        )

    types = {value.type.dtype for node in inside for value in (*node.inputs, *node.outputs)}
    of_codes = not types.isdisjoint((*CODES, SUM))  # others are one region, however they are read

    def is_shared(value: Value) -> bool:
        outside = [user for user in graph.users.get(value, ()) if user not in inside]
        return len(outside) + (value in ends) > 1

    made: dict[Value, Value] = {}
    inputs: list[Value] = []
    for value in _walk_inside(outputs, shown):
        if isinstance(value, Value):
            key = constants.key(value) if value.is_constant else None
            name = f"{len(inputs)}" if key is None else f"{len(inputs)}={key}"
            blocked = (
                layouts is not None
                and not value.is_constant
                and layouts.is_blocked(value.node)
                and passes_blocks(value, layouts)
            )
            users = graph.users.get(value, ())
            readers = [user for user in users if user in shown or user.constant]
            made[value] = constants.leaf(name, value, readers, blocked)
            inputs.append(value)
        else:
            assert isinstance(value.op, Operator)
            results = apply(
                value.op,
                [made[source] for source in value.inputs],
                value.attributes,
                dtype=value.types[0].dtype,
            )
            made.update(zip(value.outputs, results, strict=True))
    return Region(
        Graph(tuple(made[value] for value in outputs)),
        tuple(made[value] for value in inputs),
        tuple(inputs),
        outputs,
        tuple(
            (Use.RESULT if value in ends else Use.PLAIN)
            | (Use.BLOCKS if is_wanted(value) else Use.PLAIN)
            | (Use.SEVERAL if of_codes and is_shared(value) else Use.PLAIN)
            for value in outputs
        ),
        frozenset(inside),
        tuple(
            sensitive_outside(graph, value, inside, sensitive, constants.outside)
            for value in outputs
        ),
        constants.on_codes(graph).border(
            {str(made[value]): value for value in inputs}, outputs, inside
        ),
        max((constants.careful.get(node, Hazard.NONE) for node in inside), default=Hazard.NONE),
    )


def _walk_inside(outputs: Iterable[Value], inside: set[Node]) -> Iterable[Value | Node]:
    """Nodes and input values of a region, each once, sources before users."""

    def belongs(value: Value) -> bool:
        node = value.node
        return node in inside or (node.constant and isinstance(node.op, Operator))

    seen: set[Value | Node] = set()
    stack: list[tuple[Value | Node, bool]] = [(v.node, False) for v in reversed(list(outputs))]
    while stack:
        item, expanded = stack.pop()
        if expanded:
            yield item
        elif item not in seen:
            seen.add(item)
            stack.append((item, True))
            if isinstance(item, Node):
                stack.extend((v.node if belongs(v) else v, False) for v in reversed(item.inputs))
