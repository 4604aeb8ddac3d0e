"""Regions: the parts of a graph that are searched on their own.

A region is a connected, convex set of registry nodes with the constant expressions that they read:
nothing leaves it and comes back. Its graph stands over numbered leaves, and since graphs are
hash-consed, regions that are equal up to names and weights have one and the same graph: a
solution of one holds for all of them. The data of constants on which rules could depend belongs to
the leaf's key; all other data is hidden from the search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from xflow.analysis.assumptions import DEFAULT, Assumption
from xflow.analysis.observers import Observed, contexts, sensitive_outside
from xflow.analysis.ranges import Ranges, coarse, without_sign
from xflow.blocks.find import find_larger
from xflow.core.fold import with_expressions
from xflow.core.graph import Graph, Leaf, Node, Opaque, Value, apply, leaf, rebuild
from xflow.core.registry import Array, Operator
from xflow.core.size import UNKNOWN_SIZE, product, with_all
from xflow.core.sorts import FLOATS
from xflow.cost import Layouts, Use
from xflow.cost.fusion import operator_name
from xflow.cost.layout import fills_blocks, may_be_blocked
from xflow.cost.target import Layout
from xflow.rewriting.match import ConstantLookup
from xflow.search.policy import POLICY, Policy


@dataclass(frozen=True)
class Region:
    """A part of a graph.

    `graph` is over numbered leaves; `leaves` and `inputs` are these leaves and the values of the
    whole graph that they stand for; `outputs` are the values that `graph.outputs` stand for.
    """

    graph: Graph
    leaves: tuple[Value, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    uses: tuple[Use, ...]
    """How the outputs are used outside, as far as costs depend on it."""
    nodes: frozenset[Node]
    """The nodes of the whole graph that are in it, constant expressions aside."""
    outside: tuple[Observed, ...]
    """How the outputs are observed outside."""
    careful: bool = False
    """Whether a form of it lost digits, so that no step is tried that might lose some."""

    @property
    def own(self) -> dict[Value, Value]:
        """The value that each leaf stands for."""
        return dict(zip(self.leaves, self.inputs, strict=True))

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for regions that share a solution."""
        return self.graph.outputs, self.uses, self.outside, self.careful

    def instantiate(self, outputs: Sequence[Value]) -> tuple[Value, ...]:
        """Values over the region's leaves as values of the whole graph."""
        return rebuild(outputs, self.own)

    def with_weights(self, outputs: Sequence[Value]) -> tuple[Value, ...]:
        """Values over the region's leaves with the graph's own weights; inputs stay leaves.

        Constants that an opaque node computes become inputs.
        """
        own: dict[Value, Value] = {}
        for mine, source in zip(self.leaves, self.inputs, strict=True):
            if source.is_constant:
                key = str(mine)
                own[mine] = source if source.is_leaf else leaf(key, source.type)
        return rebuild(outputs, own)

    def in_place(self, outputs: Sequence[Value]) -> Graph:
        """A graph with the region's own weights that costs what `outputs` cost in their place.

        Images that come in the runtime's own layout, or are wanted in it, pass an operator at the
        border that the runtime computes in that layout and that changes nothing.
        """
        border = {mine: _in_blocks(mine) for mine in self.leaves if _is_blocked_leaf(mine)}
        inner = rebuild(outputs, border)
        return Graph(
            self.with_weights(
                [
                    _in_blocks(value) if Use.BLOCKS in use else value
                    for value, use in zip(inner, self.uses, strict=True)
                ]
            )
        )


def _is_blocked_leaf(value: Value) -> bool:
    return isinstance(value.node.op, Leaf) and value.node.op.blocked


def _in_blocks(image: Value) -> Value:
    """An image unchanged, but computed by a pool of single elements."""
    return apply("MaxPool", [image], {"kernel_shape": (1,) * (len(image.shape) - 2)})[0]


def _passes_blocks(image: Value, layouts: Layouts) -> bool:
    """Whether the runtime computes `_in_blocks` of an image in its own layout."""
    return layouts.is_blocked(_in_blocks(image).node)


class Constants:
    """The constants of a graph as the search may see them, and analyses of its values.

    `assumption` says what these may assume, `outside` how the graph's outputs are observed, where
    it is a part of another.
    """

    def __init__(
        self,
        lookup: ConstantLookup,
        assumption: Assumption = DEFAULT,
        outside: Observed = Observed.NOWHERE,
        policy: Policy = POLICY,
    ) -> None:
        self.lookup = lookup
        self.policy = policy
        self.ranges = Ranges(lookup, assumption)
        self.outside = outside
        self.careful: set[Node] = set()
        """The nodes of regions of which a form lost digits."""
        self._keys: dict[Value, str | None] = {}

    def contexts(self, graph: Graph) -> Mapping[Value, Observed]:
        """How each value of a graph is observed."""
        return contexts(graph, [self.outside] * len(graph.outputs))

    def leaf(
        self, name: str, value: Value, readers: Iterable[Node], blocked: bool = False
    ) -> Value:
        """A leaf that stands for a value, with the facts about it that matter to `readers`.

        These are the nodes that read it. Whether weights are positive, say, matters only where
        values computed from them are numbers for that reason: weights of other layers may not be.
        """
        dtype = value.type.dtype
        if dtype not in FLOATS:
            return leaf(name, value.type, constant=value.is_constant, blocked=blocked)
        known = self.ranges.of(value)
        least = coarse(known, dtype)
        if value.is_constant and known.is_real:
            plain = without_sign(least, dtype)
            if not any(node.constant for node in readers) and all(
                self.ranges.is_real_with(node, value, plain) for node in readers
            ):
                least = plain
        return leaf(
            name,
            value.type,
            constant=value.is_constant,
            blocked=blocked,
            known=least,
        )

    def key(self, value: Value) -> str | None:
        """A key of the data of `value`; None if rules must not depend on it."""
        if value not in self._keys:
            array = self.lookup(value) if value.is_leaf else None
            self._keys[value] = None if array is None else self._digest(array)
        return self._keys[value]

    def of(self, region: Region) -> ConstantLookup:
        """The lookup for the leaves of a region, and for small expressions over them."""
        own = region.own

        def find(value: Value) -> Array | None:
            source = own.get(value)
            if source is None or not source.is_constant or self.key(source) is None:
                return None
            return self.lookup(source)

        return with_expressions(find, self.policy.told_apart)

    def _digest(self, array: Array) -> str | None:
        """A hash of data that a rule could recognise: small, uniform, or of zeros and ones."""
        if array.size == 0 or array.dtype.kind not in "biuf":
            return None
        if array.size > self.policy.told_apart:
            sample = array.reshape(-1)[:64]
            if np.all(sample == sample[0]) and np.all(array == sample[0]):
                array = array.reshape(-1)[:1]
            elif not (_is_mask(sample) and _is_mask(array)):
                return None
        data = np.ascontiguousarray(array).tobytes()
        return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + data).hexdigest()[:16]


def _is_mask(array: Array) -> bool:
    """Whether an array is of zeros and ones."""
    return bool(np.all((array == 0) | (array == 1)))


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
    kernels = find_larger(graph, constants.lookup)
    kernels += [] if layouts is None else layouts.fused(graph)
    for nodes in _levels(graph, late=not shifted):
        for component in _components(nodes):
            for part in _parts(component, shifted, kernels, constants.policy):
                regions.extend(
                    _region(graph, members, constants, layouts, sensitive)
                    for members in _components(part)
                )
    return [region for region in regions if region.outputs]


def cut_unfilled(graph: Graph, constants: Constants, layouts: Layouts) -> list[Region]:
    """The parts of `graph` with images that are outside of the target's layout for their channels.

    However large: with all nodes that have to take part if such images are to fill blocks of the
    layout, from the convolutions that make them to those that read them, and with the nodes on
    ways between two such images. In an order as that of `cut`.
    """
    layout = layouts.target.layout
    if layout is None:
        return []
    regions: list[Region] = []
    sensitive = constants.contexts(graph)
    for nodes in _levels(graph, late=False):
        between = _between(nodes, _kept_outside(nodes, layout, layouts))
        regions += [
            _region(graph, part, constants, layouts, sensitive) for part in _components(between)
        ]
    return [region for region in regions if region.outputs]


def _kept_outside(nodes: Sequence[Node], layout: Layout, layouts: Layouts) -> set[Node]:
    """The nodes around unfilled images, without groups that are in the layout throughout.

    A group reads or gives the same images, up to the convolutions that make new channels: where all
    of it is in the layout, channels that fill blocks gain nothing.
    """
    images = _unfilled_images(nodes, layout)
    touching: dict[Value, list[Node]] = {}
    for node, values in images.items():
        for value in values:
            touching.setdefault(value, []).append(node)
    waiting = [
        node
        for node in images
        if operator_name(node) in layout.inside and not layouts.is_blocked(node)
    ]
    found = set(waiting)
    while waiting:
        for value in images[waiting.pop()]:
            for other in touching[value]:
                if other not in found:
                    found.add(other)
                    if not _mixes(other):
                        waiting.append(other)
    return found


def _unfilled_images(nodes: Sequence[Node], layout: Layout) -> dict[Node, list[Value]]:
    """The nodes that read or give images whose channels do not fill blocks, with these images.

    Also images that other operators than convolutions compute from these.
    """
    found: dict[Node, list[Value]] = {}
    made: set[Value] = set()
    """Images made of such."""
    for node in nodes:
        read = [
            value
            for value in node.inputs
            if not value.is_constant and (value in made or _is_unfilled(value, layout))
        ]
        if read and not _mixes(node):
            given = [value for value in node.outputs if may_be_blocked(value, layout)]
            made.update(given)
        else:
            given = [value for value in node.outputs if _is_unfilled(value, layout)]
        if read or given:
            found[node] = [*read, *given]
    return found


def _mixes(node: Node) -> bool:
    """Whether it is a convolution that makes new channels of all that it reads."""
    return node.role == "convolution" and node.attributes.get("group", 1) == 1


def _is_unfilled(value: Value, layout: Layout) -> bool:
    """Whether it is known to be an image whose channels do not fill blocks."""
    if not may_be_blocked(value, layout):
        return False
    channels = value.shape[1]
    return isinstance(channels, int) and not fills_blocks(channels, layout)


def _between(nodes: Sequence[Node], some: set[Node]) -> list[Node]:
    """Those of `nodes` that are some of them, or lie on a way from one of these to another."""
    behind, before = set(some), set(some)
    for node in nodes:
        if any(value.node in behind for value in node.inputs):
            behind.add(node)
    for node in reversed(nodes):
        if node in before:
            before.update(value.node for value in node.inputs)
    return [node for node in nodes if node in behind and node in before]


def _levels(graph: Graph, late: bool) -> list[list[Node]]:
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


def _components(nodes: Sequence[Node]) -> list[list[Node]]:
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


def _parts(
    nodes: Sequence[Node],
    shifted: bool,
    kernels: Iterable[frozenset[Node]],
    policy: Policy,
) -> list[list[Node]]:
    """Consecutive stretches of `nodes`, cut where few values or little data passes.

    No cut goes through operators that the runtime computes by one kernel, or may after a rewrite:
    the costs of its parts do not add up to that of the whole.
    """
    most, merged = policy.region_nodes, policy.merged_nodes
    seams = _seams(nodes, most)
    place = {node: i for i, node in enumerate(nodes)}
    for kernel in kernels:
        places = [place[node] for node in kernel if node in place]
        if places and max(places) - min(places) < most:
            for i in range(min(places), max(places)):
                seams[i] = replace(seams[i], within=seams[i].within + 1)
    stretches: list[list[Node]] = [[]]
    for node, seam in zip(nodes, seams, strict=True):
        stretches[-1].append(node)
        if seam.is_bottleneck:
            stretches.append([])
    parts: list[list[Node]] = []
    limit = merged // 2 if shifted else merged
    start = 0
    for stretch in filter(None, stretches):
        those = seams[start : start + len(stretch)]
        start += len(stretch)
        if parts and len(parts[-1]) + len(stretch) <= limit:
            parts[-1].extend(stretch)
            continue
        if parts:
            limit = merged
        parts.extend(_split(stretch, those, most // 2 if shifted else most, most))
        if len(parts[-1]) > merged and not shifted:
            limit = len(parts[-1]) + policy.tail_nodes
    return parts


def _split(nodes: list[Node], seams: Sequence[_Seam], limit: int, most: int) -> list[list[Node]]:
    """Stretches of at most `most` nodes, the first of at most `limit`, cut at the best seams."""
    parts = []
    start = 0
    while len(nodes) - start > limit:
        middle = start + limit // 2
        # Before the middle only where all behind it is inside of one kernel. Where everything is,
        # an attention is rather cut from the scales of its factors than in two.
        badness = {
            i: (seams[i].within, i < middle, seams[i].width, -i)
            for i in range(start, start + limit)
        }
        end = min(badness, key=badness.__getitem__) + 1
        parts.append(nodes[start:end])
        start, limit = end, most
    parts.append(nodes[start:])
    return parts


@dataclass(frozen=True)
class _Seam:
    """The place after a node, which values pass that later nodes read from earlier ones."""

    values: int
    elements: int
    """The number of all their elements."""
    within: int = 0
    """Number of kernels of the runtime, present or possible ones, that it lies inside of."""

    @property
    def is_bottleneck(self) -> bool:
        """Whether the graph is always cut here."""
        return self.values <= 1 and not self.within

    @property
    def width(self) -> tuple[int, int]:
        """The order of seams, the best first: the least data passes it.

        Not the fewest values: the scores of an attention are one value, larger than all that they
        are computed from. A region that has large values inside can be rewritten without them.
        """
        return self.elements, self.values


def _seams(nodes: Sequence[Node], most: int) -> list[_Seam]:
    """The places after each of the nodes, of which a region has at most so many.

    Values from outside pass from their first reader to their last, unless that is so far that no
    region would hold both: what every layer reads ties no layers together.
    """
    start = {value: i for i, node in enumerate(nodes) for value in node.outputs}
    outside = {}
    last: dict[Value, int] = {}
    for i, node in enumerate(nodes):
        for value in node.inputs:
            if not value.is_constant:
                if value not in start:
                    outside[value] = start[value] = i
                last[value] = i
    values, elements = [0] * (len(nodes) + 1), [0] * (len(nodes) + 1)  # how many more pass here
    for value, end in last.items():
        if value not in outside or end - start[value] < most:
            size = with_all(product(value.shape), UNKNOWN_SIZE)
            for place, sign in (start[value], 1), (end, -1):
                values[place] += sign
                elements[place] += sign * size
    return [*map(_Seam, accumulate(values[:-1]), accumulate(elements[:-1]))]


def _region(
    graph: Graph,
    members: Sequence[Node],
    constants: Constants,
    layouts: Layouts | None,
    sensitive: Mapping[Value, Observed],
) -> Region:
    inside = set(members)
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
            and _passes_blocks(value, layouts)
        )

    made: dict[Value, Value] = {}
    inputs: list[Value] = []
    for value in _walk_inside(outputs, inside):
        if isinstance(value, Value):
            key = constants.key(value) if value.is_constant else None
            name = f"{len(inputs)}" if key is None else f"{len(inputs)}={key}"
            blocked = (
                layouts is not None
                and not value.is_constant
                and layouts.is_blocked(value.node)
                and _passes_blocks(value, layouts)
            )
            users = graph.users.get(value, ())
            readers = [user for user in users if user in inside or user.constant]
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
            for value in outputs
        ),
        frozenset(inside),
        tuple(
            sensitive_outside(graph, value, inside, sensitive, constants.outside)
            for value in outputs
        ),
        not inside.isdisjoint(constants.careful),
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
