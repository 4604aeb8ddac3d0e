"""What ONNX Runtime computes on codes, around DequantizeLinear and QuantizeLinear.

The transformers of its `core/optimizer/qdq_transformer` look at what stands next to a conversion
from codes or to codes. Where they find what they look for, they compute on codes, and other numbers
come out than operator by operator: ties that are rounded otherwise, weights that were floats and
become codes, sums of 32 bits that are cut off at 8. The tables here say what they look for, in the
words of the runtime's operators; docs/quantization.md says of each what it does to numbers.

A rewrite may bring such operators next to each other where something stood between: `anew` compares
a graph with another. An operator has a place in a graph, as far as the runtime may compute it on
codes: what it reads of codes, and what makes codes of it, with all that stands between and that the
runtime may remove or fuse. Where a place stays as it was, the runtime does what it did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from xflow.analysis.opaque import BY_GIVEN_SCALE
from xflow.analysis.ranges import Ranges
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import CONTRIB

FROM_CODES: Final = frozenset({"DequantizeLinear", f"{CONTRIB}::DequantizeLinear"})
TO_CODES: Final = frozenset(BY_GIVEN_SCALE)
CARRYING: Final = frozenset({"MaxPool", "Reshape", "Squeeze", "Slice", "Transpose", "Unsqueeze"})
"""QDQPropagation puts a pair of conversions behind these, with the parameters of the conversion
before them, or before them, with those of the one behind, if these are one number each. Flatten,
Expand and the like need not be here: they are no way to what stands next to them."""
PRODUCTS: Final = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""QDQSelectorAction and WeightBiasQuantization: products that are computed on codes. Codes are made
of weights and of a bias that are floats."""
FREE_PRODUCTS: Final = frozenset({"Gemm", "MatMul"})
"""Those of them for which nothing need make codes of the result."""
BEFORE_SUMS: Final = frozenset({"MatMul"})
"""Those of whose weights codes are made only if something is added behind: they become a Gemm."""
KERNELS: Final[Mapping[str, tuple[int, ...] | None]] = {
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"), (0,)),
    **dict.fromkeys(("Add", "Mul"), (0, 1)),
    "Concat": None,
    "Where": (1, 2),
}
"""QDQSelectorAction: other operators that are computed on codes, with the inputs that have to come
from codes (None: all)."""
WITH_NUMBERS: Final = frozenset({"Where"})
"""WhereDummyDq: those of them of which one input may be a constant number, which becomes a code."""
BY_ORDER: Final = frozenset({"ArgMax", "MaxPool", "ReduceMax", "ReduceMin"})
"""Operators that are computed on codes as if their scale were positive."""
CLIPS: Final = frozenset({"Clip", "Relu"})
"""ReluQuantFusion and ClipQuantFusion: left out before QuantizeLinear, if its scale is positive."""
FOLDED: Final = frozenset({"Add", "BatchNormalization", "Mul"})
"""What is done to a product by constants is folded into its weights and its bias before."""
FUSED_BEFORE: Final = frozenset({"Pad"})
"""Fused into what stands behind it before."""
IDLE: Final[Mapping[str, float | None]] = {
    **dict.fromkeys(("Add", "Sub"), 0.0),
    **dict.fromkeys(("Div", "Mul"), 1.0),
    **dict.fromkeys(("Cast", "Dropout", "Identity"), None),
}
"""Operators that are removed before, if the other operand is that number, and the type stays."""
SECOND: Final = frozenset({"Div", "Sub"})
"""Those of them whose second operand that has to be."""

LOOKED_FOR: Final = TO_CODES | CARRYING | PRODUCTS | frozenset(KERNELS) | BY_ORDER | CLIPS
"""All operators that may be computed on codes, or left out for codes."""

EXACT: Final = frozenset({"INT8", "UINT8", "INT16", "UINT16"})
"""Types of codes of which a conversion and one back give the same codes, with a zero point."""
SHIFT: Final = 128
"""The difference of the codes of a number in 8 bits, with a sign and without."""
PLAIN: Final = "UINT8"
"""The type of codes of a QuantizeLinear without a zero point."""

Way: TypeAlias = tuple[str, ...]
"""A conversion and what stands between it and a value, by names; nothing where there is none."""
NO_WAY: Final[Way] = ()
ROWS, SUMS, SIGNS, CONSTANT, AGAIN = "by rows", "sums", "of any sign", "of constants", "again"
"""Properties of a conversion: several scales or computed ones, codes that do not survive a
conversion to codes and back, scales that may be negative, codes that are constants, codes that were
made of what other codes are. What the runtime makes of the latter by DoubleQDQPairsRemover depends
on each movement beside them, behind which it puts further pairs."""


@dataclass(frozen=True)
class Border:
    """What stands next to a part of a graph: ways from codes to its leaves, by their keys, and from
    its outputs to codes; nothing of a whole graph."""

    leaves: tuple[tuple[str, Way], ...] = ()
    outputs: tuple[Way, ...] = ()

    def has_codes(self, nodes: Iterable[Node]) -> bool:
        """Whether there are codes at the border of a part, or conversions among its nodes."""
        return bool(self.leaves) or any(self.outputs) or any(map(is_conversion, nodes))


WHOLE: Final = Border()


class OnCodes:
    """What the runtime may compute on codes in a graph with that `border`.

    `ranges` know the graph's constants. `origins` are those of graphs over the same leaves with the
    same border, which are added to.
    """

    def __init__(
        self,
        graph: Graph,
        ranges: Ranges,
        border: Border = WHOLE,
        origins: dict[Value, Way] | None = None,
    ) -> None:
        self.graph = graph
        self.is_part = border != WHOLE
        self._ranges = ranges
        self._leaves = dict(border.leaves)
        outside = border.outputs or (NO_WAY,) * len(graph.outputs)
        counts = Counter(graph.outputs)
        self._outside = {
            value: way if counts[value] == 1 else NO_WAY
            for value, way in zip(graph.outputs, outside, strict=True)
        }
        self._origins: dict[Value, Way] = {} if origins is None else origins
        self._ends: dict[Value, Way] = {}
        self._has_codes = border.has_codes(graph.nodes)
        if not self._has_codes:
            return
        for node in graph.nodes:
            if node.outputs[0] not in self._origins:
                self._origins[node.outputs[0]] = self._origin(node)
        for node in reversed(graph.nodes):
            for value in node.outputs:
                self._ends[value] = self._end(value, graph.users.get(value, ()))

    def origin(self, value: Value) -> Way:
        """On which way a value comes from codes; nothing where it does not."""
        return self._origins.get(value, NO_WAY)

    def end(self, value: Value) -> Way:
        """On which way codes are made of a value; nothing where something else reads it, too."""
        return self._ends.get(value, NO_WAY)

    @cached_property
    def places(self) -> Mapping[Node, Way]:
        """The operators that the runtime may compute on codes, with what stands around them."""
        nodes = self.graph.nodes if self._has_codes else ()
        ways = map(self._origins.get, (node.outputs[0] for node in nodes))
        if not any(way and AGAIN in way[0] for way in ways):
            nodes = tuple([node for node in nodes if _name(node) in LOOKED_FOR])
        found = ((node, self._place(node)) for node in nodes)
        return {node: place for node, place in found if place}

    @cached_property
    def readers(self) -> Counter[Way]:
        """How often what stands in each place is read, or is an output."""
        users, ends = self.graph.users, Counter(self.graph.outputs)
        found: Counter[Way] = Counter()
        for node, place in self.places.items():
            found[place] += sum(len(users.get(v, ())) + ends[v] for v in node.outputs)
        return found

    def border(
        self, leaves: Mapping[str, Value], outputs: Sequence[Value], inside: Container[Node]
    ) -> Border:
        """What stands next to the part `inside`, whose leaves stand for values of the graph."""
        users, ends = self.graph.users, frozenset(self.graph.outputs)
        known = ((key, self.origin(value)) for key, value in leaves.items())
        ways = []
        for value in outputs:
            read = [user for user in users.get(value, ()) if user not in inside]
            alone = len(read) == 1 and value not in ends
            ways.append(self._through(read[0], value) if alone else NO_WAY)
        return Border(tuple((key, way) for key, way in known if way), tuple(ways))

    def _origin(self, node: Node) -> Way:
        name = _name(node)
        if name in FROM_CODES:
            return (" ".join((name, *self._properties(node))),)
        if isinstance(node.op, Leaf):
            return self._leaves.get(node.op.key, NO_WAY)
        if not node.inputs:
            return NO_WAY
        if name in CARRYING or name in FUSED_BEFORE:
            way = self.origin(node.inputs[0])
            return (*way, name) if way else way
        source = self._idle_over(node)
        return NO_WAY if source is None else self.origin(source)

    def _properties(self, node: Node) -> Iterator[str]:
        """What of a conversion matters to the runtime, and to what it makes of others."""
        codes, scale = node.inputs[:2]
        of_floats = _name(node) in TO_CODES
        types = {node.types[0].dtype if of_floats else codes.type.dtype}
        exact = EXACT if len(node.inputs) > len((codes, scale)) else {PLAIN}
        if not types <= exact:
            yield SUMS
        if not scale.is_constant or scale.shape:
            yield ROWS
        if not self._ranges.of(scale).low > 0:
            yield SIGNS
        if codes.is_constant:
            yield CONSTANT
        if not of_floats and self._is_again(codes):
            yield AGAIN

    def _is_again(self, codes: Value) -> bool:
        """Whether codes were made of reals that other codes are, by other numbers."""
        end = self._unmoved(codes).node
        from_others = _name(end) in TO_CODES and self.origin(end.inputs[0])
        return bool(from_others) and not self._is_pair(end)

    def _unmoved(self, value: Value) -> Value:
        """What a value is before movements, and operators that do nothing."""
        while _name(value.node) in CARRYING or self._idle_over(value.node) is not None:
            value = self._idle_over(value.node) or value.node.inputs[0]
        return value

    def _end(self, value: Value, users: Sequence[Node]) -> Way:
        if value in self._outside:
            return NO_WAY if users else self._outside[value]
        return self._through(users[0], value) if len(users) == 1 else NO_WAY

    def _through(self, reader: Node, value: Value) -> Way:
        """On which way codes are made of a value by its only reader."""
        name = _name(reader)
        if name in TO_CODES:
            first = reader.inputs[0] == value
            return (" ".join((name, *self._properties(reader))),) if first else NO_WAY
        way = self.end(reader.outputs[0])
        if not way or self._idle_over(reader) == value:
            return way
        if name in CARRYING and reader.inputs[0] == value:
            return (name, *way)
        others = [each for each in reader.inputs if each != value]
        passed = name in CLIPS or name in FOLDED
        return (name, *way) if passed and all(each.is_constant for each in others) else NO_WAY

    def _idle_over(self, node: Node) -> Value | None:
        """What an operator gives as it is, that the runtime removes for that reason."""
        name = _name(node)
        if name not in IDLE or len(node.types) > 1:
            return None
        computed = [value for value in node.inputs if not value.is_constant]
        if len(computed) != 1 or computed[0].type != node.types[0]:
            return None
        neutral = IDLE[name]
        if neutral is None or node.inputs == (computed[0],):
            return computed[0]
        (other,) = (value for value in node.inputs if value is not computed[0])
        if name in SECOND and other is node.inputs[0]:
            return None
        data = self._ranges.data(other)
        # NoopElimination takes single numbers alone, and leaves tensors of zeros or ones where they
        # are.
        is_idle = data is not None and data.size == 1 and bool(np.all(data == neutral))
        return computed[0] if is_idle else None

    def _place(self, node: Node) -> Way:
        """What stands around an operator that may be computed on codes; nothing for others."""
        name = _name(node)
        if not node.inputs or isinstance(node.op, Leaf) or node.constant:
            return NO_WAY
        first, end = self.origin(node.inputs[0]), passed(self.end(node.outputs[0]))
        read = [way[0] for way in map(self.origin, node.inputs) if way]
        if name not in CARRYING and any(AGAIN in conversion for conversion in read):
            return (name, *self._operands(node.inputs), *end)
        if name in TO_CODES:
            return (name, *first) if first and not self._is_pair(node) else NO_WAY
        if name in PRODUCTS:
            return self._product(node, name, end)
        if name in KERNELS and end and CLIPS.issuperset(end[:-1]):
            return self._kernel(node, name, end)
        if first and SUMS in first[0] and name in CARRYING:
            return (name, *passed(first))
        if first and SIGNS in first[0] and name in BY_ORDER:
            return (name, *passed(first))
        if name in CLIPS and end and SIGNS in end[-1]:
            return (name, *end)
        return NO_WAY

    def _product(self, node: Node, name: str, end: Way) -> Way:
        """A product is computed on codes if both factors are codes, or the weights become codes."""
        one, other, *_ = map(self.origin, node.inputs)
        around = (name, *self._operands(node.inputs), *end)
        if one and other and (end or name in FREE_PRODUCTS):
            return around
        if other and not one and not end and name in FREE_PRODUCTS:
            return around if CONSTANT in other[0] else NO_WAY
        weighted = name not in BEFORE_SUMS or not FOLDED.isdisjoint(end)
        coded = one and end and (other or (weighted and node.inputs[1].is_constant))
        return around if coded else NO_WAY

    def _kernel(self, node: Node, name: str, end: Way) -> Way:
        positions = KERNELS[name]
        read = node.inputs if positions is None else [node.inputs[each] for each in positions]
        coded = [bool(self.origin(value)) for value in read]
        numbers = name in WITH_NUMBERS and all(
            of or value.is_constant for of, value in zip(coded, read, strict=True)
        )
        if all(coded) or (numbers and any(coded)):
            return (name, *self._operands(read), *end)
        return NO_WAY

    def _operands(self, values: Sequence[Value]) -> Iterator[str]:
        """What an operator reads: of codes, and on which way, or constants, or anything."""
        for value in values:
            way = passed(self.origin(value))
            yield " ".join(way) if way else "a constant" if value.is_constant else "a value"

    def _is_pair(self, end: Node) -> bool:
        """Whether codes are made of what was made of them by the same numbers.

        The runtime leaves both out, and would get the same codes.
        """
        start = self._unmoved(end.inputs[0]).node
        if _name(start) not in FROM_CODES or len(start.inputs) != len(end.inputs):
            return False
        return all(map(self._are_same, start.inputs[1:], end.inputs[1:]))

    def _are_same(self, one: Value, other: Value) -> bool:
        """Whether two constants are the same numbers, or codes of the same ones in two types."""
        if one is other:
            return True
        found = [self._ranges.data(value) for value in (one, other)]
        if any(data is None for data in found):
            return False
        mine, theirs = (
            data.astype(np.float64) - (SHIFT if data.dtype == np.uint8 else 0)
            for data in found
            if data is not None
        )
        return bool(np.array_equal(mine, theirs))


def anew(before: OnCodes, after: OnCodes, moved: Mapping[Value, Value]) -> str:
    """What the runtime may compute on codes in a graph and not in the one before, in words.

    `moved` says what has become of values that were not replaced, see `rebuild_all`. Their nodes
    keep their places, or lose them; what was replaced leaves its places to what is made instead.
    Nor does more read what is in a place than before: what two read may be in one place then.
    Nothing where all is so.

    Of a part, neither does an output come from codes then, nor are codes made of a leaf, that did
    not: what stands on the other side is not seen. Of any graph, no output comes from codes that
    were made of others on another way.
    """
    fresh = [node for node, place in after.places.items() if before.places.get(node) != place]
    there = frozenset(after.graph.nodes) if fresh else frozenset()
    kept: dict[Node, set[Way]] = {}
    left: Counter[Way] = Counter()
    became = {old.node: new.node for old, new in moved.items()} if fresh else {}
    for node in before.graph.nodes if fresh else ():
        now, place = became.get(node, node), before.places.get(node, NO_WAY)
        if now in there:
            kept.setdefault(now, set()).add(place)
        elif place:
            left[place] += 1
    for node in fresh:
        place = after.places[node]
        if node in kept and place in kept[node]:
            continue
        if node in kept or not left[place]:
            return f"the runtime would compute {place[0]} on codes there, and does not before"
        left[place] -= 1
    read, reads = before.readers, after.readers
    for place, count in reads.items():
        if count > read[place]:
            return f"more would be computed from what {place[0]} gives on codes there"
    ends = zip(before.graph.outputs, after.graph.outputs, strict=True)
    ways = ((passed(before.origin(old)), passed(after.origin(new))) for old, new in ends)
    met = [new not in (NO_WAY, old) and (before.is_part or AGAIN in new[0]) for old, new in ways]
    leaves = before.graph.leaves if before.is_part else ()
    met += [passed(after.end(v)) not in (NO_WAY, passed(before.end(v))) for v in leaves]
    return "what stands beside it might be computed on codes then" if any(met) else ""


def passed(way: Way) -> Way:
    """A way without the movements to which the runtime is indifferent.

    It puts a pair of conversions behind each, or before it, unless there are several scales, or
    one that may be negative; where codes were made of others, these pairs do not leave everything
    as it is.
    """
    kinds = " ".join((*way[:1], *way[-1:]))
    if any(each in kinds for each in (ROWS, AGAIN, SIGNS)):
        return way
    return tuple(name for name in way if name not in CARRYING)


def is_conversion(node: Node) -> bool:
    """Whether an operator makes reals of codes, or codes of reals by a scale that is given."""
    name = _name(node)
    return name in FROM_CODES or name in TO_CODES


def _name(node: Node) -> str:
    """The name of an operator in ONNX, with its domain if that is another; empty for leaves."""
    return "" if isinstance(node.op, Leaf) else node.op.op_type
