"""Finds the parts of a graph that are attention, a rotation, a normalization, a softmax or an
activation.

They are recognised by structure, whatever operators they are written with:

- **activation**: a function of one tensor, known by its values (`xflow.blocks.functions`);
- **normalization**: a tensor multiplied or divided by a root of its own second moment, with its
  mean subtracted before or not; scale and shift after it belong to it;
- **rotation**: a rotary position embedding (`xflow.blocks.rotations`);
- **softmax**: exponentials divided by their own sum;
- **attention**: a softmax that lies between two contractions of computed tensors, with nothing
  in between that is not elementwise or a movement of data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import inf, isclose

from xflow.blocks.functions import Functions
from xflow.blocks.rotations import rotation_at
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph, walk
from xflow.core.node import Node, Opaque, Value
from xflow.core.registry import Operator
from xflow.core.size import product
from xflow.ops import operators
from xflow.ops.cached_attention import DerivedAttention
from xflow.ops.global_pool import GlobalAveragePool
from xflow.ops.reduce import Reduction
from xflow.ops.shape import Movement

KINDS = ("attention", "rotation", "normalization", "activation", "softmax")

FARTHEST = 12
"""Operators between a softmax and a contraction, and between others that belong together."""

LARGE = 3
"""Operators of an activation from which the way to one operator may be longer than one step."""

UNIT_LENGTH = "LpNormalization"
"""A tensor over the root of the sum of its squares; over that of their mean, it is an RMSNorm."""

OF_LAST_AXES = ("LayerNormalization", "RMSNormalization")
"""Normalizations whose operators take the last axes alone."""

UNDECLARED = {
    "attention": ("Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention",
                  "DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention"),
    "normalization": (UNIT_LENGTH, "MeanVarianceNormalization", "LRN", "GroupNorm",
                      "SimplifiedLayerNormalization", "SkipLayerNormalization",
                      "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization"),
    "activation": ("FastGelu", "BiasGelu", "QuickGelu", "ThresholdedRelu", "Shrink"),
}  # fmt: skip
"""Operators of ONNX and of the runtime that the registry need not describe, by role."""


@dataclass(frozen=True)
class FoundBlock:
    """A block of a graph: its nodes, the last of which is `root`.

    `name` is the operator that it is, or seems to be equal to; empty where there is none.
    `axes` are those that a normalization reduces, from the end where they are negative.
    """

    kind: str
    name: str
    root: Node
    nodes: frozenset[Node]
    axes: tuple[int, ...] = ()
    products: int = 0
    """How many contractions make up the scores of an attention."""
    is_operator: bool = False
    """Whether it is one operator of that role."""

    @property
    def is_over_last_axes(self) -> bool:
        """Whether it normalizes the last axes, as most operators do, or is no normalization."""
        return self.axes == tuple(range(-len(self.axes), 0))

    def may_be_operator(self, opset: int | None) -> bool:
        """Whether it is none, and ONNX has an operator for it up to that version (None: ever)."""
        if self.is_operator or self.products > 1 or not self.name:
            return False
        if self.name in OF_LAST_AXES and not self.is_over_last_axes:
            return False
        newest = inf if opset is None else opset
        return any(op.name == self.name and op.since <= newest for op in operators())


def find_blocks(
    graph: Graph, constants: ConstantLookup, passed_through: Mapping[str, str]
) -> list[FoundBlock]:
    """The blocks of a graph, in its order; no two share a node.

    `constants` serves its leaves; `passed_through` has the names of opaque operators by their keys.
    """
    return _Finder(graph, constants, passed_through).run()


def find_larger(graph: Graph, constants: ConstantLookup) -> list[frozenset[Node]]:
    """The nodes of each attention, rotation and normalization that is written in several operators.

    Each attention once more with the scales of inputs of its products, which belong to it but may
    stand far before; a rotation with what repeats the angles of its tables; an operator with the
    concatenations behind a past that another one computes besides.
    """
    return _larger(_Finder(graph, constants, {}))


def find_spelled_out(
    graph: Graph, constants: ConstantLookup, opset: int | None = None
) -> list[frozenset[Node]]:
    """The same, and the nodes of each activation of `LARGE` operators or more that could be one.

    Up to that opset; None: in any.
    """
    finder = _Finder(graph, constants, {})
    for node in reversed(finder.nodes):
        finder.add(finder.activation_at(node))
    activations = (block for block in finder.found if block.may_be_operator(opset))
    return [
        *_larger(finder),
        *(block.nodes for block in activations if len(block.nodes) >= LARGE),
    ]


def _larger(finder: _Finder) -> list[frozenset[Node]]:
    attentions = [*filter(None, map(finder.attention_around, finder.softmaxes()))]
    normalizations = filter(None, map(finder.normalization_by, finder.nodes))
    rotations = ((node, rotation_at(node)) for node in finder.nodes)
    return [
        *(block.nodes for block in attentions),
        *(block.nodes.union(*map(_scales_before, block.nodes)) for block in attentions),
        *filter(None, map(_behind_a_past, finder.nodes)),
        *(
            finder.between([rotation.source], node) | rotation.repeated
            for node, rotation in rotations
            if rotation is not None
        ),
        *(block.nodes for block in normalizations),
    ]


def find_with_pasts(graph: Graph, constants: ConstantLookup) -> list[frozenset[Node]]:
    """The nodes of each attention that is spelled out, with concatenations of past and new ones.

    These are along the sequence, and are its keys and values. Attentions without are left out.
    """
    finder = _Finder(graph, constants, {})
    found = []
    for block in filter(None, map(finder.attention_around, finder.softmaxes())):
        products = [node for node in block.nodes if node.role == "contraction"]
        inputs = (value for node in products for value in node.inputs)
        pasts = [_joined(value) for value in inputs if value.node not in block.nodes]
        if any(pasts):
            found.append(block.nodes.union(*pasts))
    return found


def _behind_a_past(node: Node) -> frozenset[Node]:
    """An attention, and the concatenations of past and new ones that are its keys and values.

    Empty for other operators, and where there is no attention that has those of the past as inputs.
    """
    if node.constant or not node.is_operator(*_with_a_past()):
        return frozenset()
    pasts = [_joined(value) for value in node.inputs[1:3]]
    return frozenset({node}).union(*pasts) if all(pasts) else frozenset()


def _joined(value: Value) -> frozenset[Node]:
    """The concatenation along the sequence that a value is, and what moves or scales it.

    Between are transpositions, and copies of shared heads. Empty where there is none.
    """
    found = set()
    for _ in range(FARTHEST):
        node = value.node
        found.add(node)
        parts = [each for each in node.inputs if not each.is_constant]
        if node.is_operator("Concat"):
            is_past = node.attributes["axis"] == len(value.shape) - 2
            return frozenset(found) if is_past and len(parts) > 1 else frozenset()
        if len(parts) != 1 or not _carries(node):
            break
        (value,) = parts
    return frozenset()


@cache
def _with_a_past() -> frozenset[str]:
    """The attentions of which another one is the same, with keys and values of the past."""
    derived = (op for op in operators() if isinstance(op, DerivedAttention))
    return frozenset(op.plain.name for op in derived if op.cached and not op.causal)


def may_be_operators(graph: Graph, constants: ConstantLookup, opset: int | None) -> bool:
    """Whether a block of a graph is written in several operators, and could be one, up to an opset.

    None: in any opset.
    """
    return any(block.may_be_operator(opset) for block in find_blocks(graph, constants, {}))


def _scales_before(node: Node) -> frozenset[Node]:
    """The operators that multiply or divide an input of a contraction by a constant."""
    if node.role != "contraction":
        return frozenset()
    factors = (value.node for value in node.inputs if value.node.is_operator("Mul", "Div"))
    return frozenset(f for f in factors if any(v.is_constant for v in f.inputs) and not f.constant)


class _Finder:
    def __init__(
        self, graph: Graph, constants: ConstantLookup, passed_through: Mapping[str, str]
    ) -> None:
        self.graph = graph
        self.passed_through = passed_through
        self.place = {node: k for k, node in enumerate(graph.nodes)}
        self.nodes = [node for node in graph.nodes if not node.constant]
        self.functions = Functions(graph, constants)
        self.found: list[FoundBlock] = []
        self.taken: set[Node] = set()

    def run(self) -> list[FoundBlock]:
        softmaxes = [*self.softmaxes()]
        for one in softmaxes:
            self.add(self.attention_around(one))
        for node in self.nodes:
            self.add(self.operator_at(node, "attention"))
        for one in softmaxes:
            self.add(one)
        for node in self.nodes:
            self.add(self.operator_at(node, "rotation"))
            self.add(self.rotation_at(node))
        for node in self.nodes:
            self.add(self.operator_at(node, "normalization"))
        for node in self.nodes:
            self.add(self.normalization_by(node))
        for node in reversed(self.nodes):
            self.add(self.activation_at(node))
        self.found.sort(key=lambda block: self.place[block.root])
        return self.found

    def add(self, block: FoundBlock | None) -> None:
        if block is not None and self.taken.isdisjoint(block.nodes):
            self.taken |= block.nodes
            self.found.append(block)

    def operator_at(self, node: Node, kind: str) -> FoundBlock | None:
        """The block that a single operator is; None for operators of other roles."""
        name, role = self.known(node)
        alone = frozenset({node})
        return FoundBlock(kind, name, node, alone, is_operator=True) if role == kind else None

    def known(self, node: Node) -> tuple[str, str]:
        """The name and the role of an operator, be it declared or only passed through."""
        if isinstance(node.op, Operator):
            return node.op.name, node.role
        name = self.passed_through.get(node.op.key, "") if isinstance(node.op, Opaque) else ""
        roles = [role for role, names in UNDECLARED.items() if name in names]
        roles += [op.role for op in operators() if name and op.op_type == name]
        return name, roles[0] if roles else ""

    def saturates(self, node: Node) -> bool:
        """Whether an operator is what gates are made of."""
        return self.known(node)[1] == "activation" or node.is_operator("Erf", "Exp")

    # Walks ------------------------------------------------------------------------------------

    def users(self, value: Value) -> tuple[Node, ...]:
        return self.graph.users.get(value, ())

    def between(self, sources: Iterable[Value], root: Node) -> frozenset[Node]:
        """`root` and the nodes above it that depend on one of the sources."""
        ends = set(sources)
        first = min(self.place[value.node] for value in ends)
        inside: dict[Node, bool] = {}
        for node in walk([root.outputs[0]], ends | self._before(root, first)):
            inside[node] = not node.constant and any(
                value in ends or inside.get(value.node, False) for value in node.inputs
            )
        return frozenset(node for node, own in inside.items() if own) | {root}

    def _before(self, root: Node, first: int) -> set[Value]:
        """Values at which a walk up from `root` can stop: they cannot depend on later ones."""
        cut: set[Value] = set()
        seen = {root}
        stack = [root]
        while stack:
            for value in stack.pop().inputs:
                if value.is_constant or self.place[value.node] <= first:
                    cut.add(value)
                elif value.node not in seen:
                    seen.add(value.node)
                    stack.append(value.node)
        return cut

    def statistics_of(self, starts: Iterable[Value]) -> set[Value]:
        """Values that depend on the reductions `starts` and on constants alone."""
        known = set(starts)
        stack = list(known)
        while stack:
            for user in self.users(stack.pop()):
                value = user.outputs[0]
                computed = (v for v in user.inputs if not v.is_constant)
                if value not in known and _is_plain(user) and all(v in known for v in computed):
                    known.add(value)
                    stack.append(value)
        return known

    def is_made_of(self, value: Value, sources: set[Value], depth: int = 4) -> bool:
        """Whether a value is one of the sources, or these and constants combined by elements."""
        if value in sources:
            return True
        computed = [v for v in value.node.inputs if not v.is_constant]
        return (
            depth > 0
            and _is_plain(value.node)
            and bool(computed)
            and all(self.is_made_of(v, sources, depth - 1) for v in computed)
        )

    # Softmax and attention --------------------------------------------------------------------

    def softmaxes(self) -> Iterator[FoundBlock]:
        for node in self.nodes:
            whole = self.operator_at(node, "softmax")
            if whole is not None:
                powers = [user for user in self.users(node.outputs[0]) if user.is_operator("Exp")]
                if whole.name == "LogSoftmax" and powers:
                    yield FoundBlock("softmax", "Softmax", powers[0], frozenset({node, powers[0]}))
                yield whole
            elif node.is_operator("ReduceSum") and node.inputs[0].node.is_operator("Exp"):
                yield from self._divided(node)
            elif node.is_operator("ReduceLogSumExp"):
                for user in self.users(node.outputs[0]):
                    for last in self.users(user.outputs[0]):
                        if user.is_operator("Sub") and last.is_operator("Exp"):
                            nodes = self.between([node.inputs[0]], last)
                            yield FoundBlock("softmax", "Softmax", last, nodes)

    def _divided(self, total: Node) -> Iterator[FoundBlock]:
        powers = total.inputs[0]
        sums = self.statistics_of([total.outputs[0]])
        for user in (user for value in sums for user in self.users(value)):
            if user.is_operator("Div", "Mul") and powers in user.inputs:
                source = powers.node.inputs[0]
                if source.node.is_operator("Sub"):
                    shifted = source.node.inputs[0]
                    if shifted in self.reduced_by(source.node.inputs[1]):
                        source = shifted
                yield FoundBlock("softmax", "Softmax", user, self.between([source], user))
                return

    def reduced_by(self, value: Value) -> set[Value]:
        """The tensors of which a value may be a statistic: a reduction and what follows it."""
        found: set[Value] = set()
        stack = [(value, 0)]
        while stack:
            each, depth = stack.pop()
            if _is_reduction(each.node):
                found.add(each.node.inputs[0])
            elif depth < FARTHEST and _is_plain(each.node):
                stack += [(v, depth + 1) for v in each.node.inputs if not v.is_constant]
        return found

    def attention_around(self, softmax: FoundBlock) -> FoundBlock | None:
        """The attention whose weights a softmax computes; None where it has no such neighbours."""
        ends = {v for n in softmax.nodes for v in n.inputs} - {
            node.outputs[0] for node in softmax.nodes
        }
        scores = self._contractions(
            [v.node for v in ends if not v.is_constant],
            lambda node: [v.node for v in node.inputs if not v.is_constant],
        )
        weighted = self._contractions(
            self.users(softmax.root.outputs[0]), lambda node: self.users(node.outputs[0])
        )
        if not scores or not weighted:
            return None
        root = min(weighted, key=self.place.__getitem__)
        nodes = self.between([node.outputs[0] for node in scores], root) | scores
        return FoundBlock(
            "attention", "Attention", root, nodes | softmax.nodes, products=len(scores)
        )

    def _contractions(
        self, starts: Iterable[Node], following: Callable[[Node], Iterable[Node]]
    ) -> frozenset[Node]:
        """The first contractions of computed tensors, beyond operators that only carry data."""
        found: set[Node] = set()
        stack = [(node, 0) for node in starts]
        seen: set[Node] = set()
        while stack:
            node, depth = stack.pop()
            if node in seen or depth > FARTHEST:
                continue
            seen.add(node)
            if self.known(node)[1] == "contraction":
                if sum(not value.is_constant for value in node.inputs) >= 2:
                    found.add(node)
            elif _carries(node):
                stack += [(each, depth + 1) for each in following(node)]
        return frozenset(found)

    # Rotations --------------------------------------------------------------------------------

    def rotation_at(self, node: Node) -> FoundBlock | None:
        """The rotary position embedding that ends at `node`."""
        found = rotation_at(node)
        if found is None:
            return None
        return FoundBlock("rotation", found.name, node, self.between([found.source], node))

    # Normalizations ---------------------------------------------------------------------------

    def normalization_by(self, node: Node) -> FoundBlock | None:
        """The normalization of which `node` computes the second moment; None if it does not."""
        if not _is_reduction(node):
            return None
        tensor = self._squared(node)
        if tensor is None:
            return None
        source, centred = self._uncentred(tensor)
        moment = node.outputs[0]
        means = [
            user.outputs[0]
            for value in {source, tensor}
            for user in self.users(value)
            if _is_reduction(user)
        ]
        statistics = self.statistics_of([moment, *means])
        spreads = self._rooted(moment, statistics)
        for value in sorted(spreads, key=lambda value: self.place[value.node]):
            for user in self.users(value):
                others = [v for v in user.inputs if v not in statistics and not v.is_constant]
                if (
                    user.is_operator("Mul", "Div")
                    and others
                    and all(self.is_made_of(v, {source, tensor, *statistics}) for v in others)
                    and user.types[0].shape == source.shape
                ):
                    root = self._scaled(user, statistics)
                    nodes = self.between([source], root)
                    axes = _axes(node)
                    centred = centred or self._mixes(nodes, statistics, source)
                    behind = self.users(root.outputs[0])
                    averages = centred or self._averages(node, nodes.union(behind))
                    name = _normalization(axes, source, centred) if averages else UNIT_LENGTH
                    return FoundBlock("normalization", name, root, nodes, axes)
        return None

    def _squared(self, node: Node) -> Value | None:
        """The tensor of whose squares `node` is the sum or the mean."""
        value = node.inputs[0]
        if node.is_operator("ReduceSumSquare", "ReduceL2"):
            return value
        source = value.node
        if source.is_operator("Mul") and source.inputs[0] == source.inputs[1]:
            return source.inputs[0]
        if source.is_operator("Pow"):
            power = self.functions.number(source.inputs[1])
            return source.inputs[0] if power is not None and float(power) == 2 else None
        return None

    def _uncentred(self, tensor: Value) -> tuple[Value, bool]:
        """A tensor before its own mean was subtracted, and whether one was."""
        computed = [value for value in tensor.node.inputs if not value.is_constant]
        if _is_plain(tensor.node) and len(computed) == 2:
            for one, other in (computed, computed[::-1]):
                if one in self.reduced_by(other):
                    return one, True
        return tensor, False

    def _rooted(self, moment: Value, statistics: set[Value]) -> set[Value]:
        """The statistics that depend on a root of `moment`, that itself included if it is one."""
        behind, rooted = {moment}, set()
        for value in sorted(statistics, key=lambda value: self.place[value.node]):
            node = value.node
            if value == moment or not behind.isdisjoint(node.inputs):
                behind.add(value)
                if node.is_operator("ReduceL2") or self._is_root(node):
                    rooted.add(value)
                if not rooted.isdisjoint(node.inputs):
                    rooted.add(value)
        return rooted

    def _is_root(self, node: Node) -> bool:
        if node.is_operator("Sqrt"):
            return True
        power = self.functions.number(node.inputs[1]) if node.is_operator("Pow") else None
        return power is not None and Fraction(float(power)).denominator == 2

    def _scaled(self, node: Node, statistics: set[Value]) -> Node:
        """The last of the operators that scale and shift a normalized tensor."""
        for names in (("Mul",), ("Add", "Sub")):
            users = self.users(node.outputs[0])
            if len(users) == 1 and users[0].is_operator(*names):
                others = [v for v in users[0].inputs if v != node.outputs[0]]
                if all(_is_parameter(v) or v in statistics for v in others):
                    (node,) = users
        return node

    def _mixes(self, nodes: frozenset[Node], statistics: set[Value], source: Value) -> bool:
        """Whether the mean of `source` itself takes part."""
        return any(
            node.is_operator("ReduceMean", "GlobalAveragePool") and node.inputs[0] == source
            for node in nodes
            if node.outputs[0] in statistics
        )

    def _averages(self, node: Node, nodes: frozenset[Node]) -> bool:
        """Whether the squares that `node` sums up are divided by their number, as far as is known.

        The number, or its root, is then a factor of what the sum becomes, or of what is read of
        the whole.
        """
        shape, ends = node.inputs[0].shape, _axes(node)
        count = product(shape[axis] for axis in ends)
        if not node.is_operator("ReduceL2", "ReduceSumSquare", "ReduceSum") or not isinstance(
            count, int
        ):
            return True
        factors = {float(count) ** power for power in (-1, -0.5, 0.5, 1)}
        numbers = (
            self.functions.number(value)
            for each in nodes
            if each.is_operator("Mul", "Div")
            for value in each.inputs
        )
        return any(
            isclose(float(number), factor, rel_tol=1e-5)
            for number in numbers
            if number is not None
            for factor in factors
        )

    # Activations ------------------------------------------------------------------------------

    def activation_at(self, node: Node) -> FoundBlock | None:
        """The activation that ends at `node`."""
        if node in self.taken or node.is_operator("Cast", "Identity"):  # blocks end before these
            return None
        seems = None
        whole = self.operator_at(node, "activation")
        for function in self.functions.ending_at(node):
            if not self.taken.isdisjoint(function.nodes):
                continue
            if whole is None and len(function.nodes) == 1:
                continue  # an operator of its own: Abs is a LeakyRelu, too, but not spelled out
            if function.operator:
                # Relu of a Cast is the Relu, and Relu of Relu is both.
                if whole is not None and not any(map(self.saturates, function.nodes - {node})):
                    return whole
                return FoundBlock("activation", function.operator, node, function.nodes)
            gated = [each for each in function.nodes if function.source in each.inputs]
            is_gate = node.is_operator("Mul") and len(gated) > 1
            if is_gate and any(map(self.saturates, function.nodes)):
                seems = seems or FoundBlock("activation", "", node, function.nodes)
        return seems or whole


def _is_plain(node: Node) -> bool:
    """Whether an operator acts on elements alone, or only changes the shape."""
    return node.role == "view" or (isinstance(node.op, Operator) and node.op.elementwise)


def _carries(node: Node) -> bool:
    """Whether an operator lies between a softmax and the contractions around it at all."""
    return _is_plain(node) or isinstance(node.op, Movement)


def _is_reduction(node: Node) -> bool:
    return isinstance(node.op, Reduction | GlobalAveragePool) and not node.constant


def _is_parameter(value: Value) -> bool:
    """Whether a value is a weight of more than a single number, as far as there can be more."""
    return value.is_constant and any(size != 1 for size in value.shape)


def _axes(node: Node) -> tuple[int, ...]:
    """The axes that are reduced, from the end."""
    rank = len(node.inputs[0].shape)
    axes = node.attributes.get("axes", tuple(range(2, rank)))
    assert isinstance(axes, tuple)
    return tuple(axis - rank for axis in axes if isinstance(axis, int))


def _normalization(axes: tuple[int, ...], source: Value, centred: bool) -> str:
    """The operator that normalizes by these moments."""
    rank = len(source.shape)
    if not centred:
        return "RMSNormalization"
    spatial = rank > 2 and axes == tuple(range(2 - rank, 0)) and len(axes) > 1
    return "InstanceNormalization" if spatial else "LayerNormalization"
