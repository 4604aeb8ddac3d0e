"""Whether a rule may be applied at a place: what its conditions ask of values there.

A direction of a rule is proved for inputs of numbers, and, under its conditions, for inputs that
may hold anything: the right side is a number wherever the left side is, and the same one. What
stands at a place is asked in this order:

1. Sides that agree to the bit need nothing, whatever the inputs hold, but for functions of which
   the runtime's kernels give other last digits at other places of a tensor: nothing discrete may
   depend on these. Nor may it depend, with constants between, on sums of floats that take the place
   of what has none, as of integers, or the other way round: the runtime folds such constants into
   the weights of products, see `Observed.MERGED`. And where codes are made later, at whatever
   distance, no DequantizeLinear takes the place of what has none, see `Observed.QUANTIZED`.
2. Otherwise the conditions on values have to be known: of constants by their data, of what is
   computed by its range. What may be NaN, but not infinite, may stand for a number where the new
   results read no element of it that the old ones do not, see `xflow.analysis.nan_spread`.
3. If each result is a number anyway, what stands there afterwards must be known to be one: it must
   not overflow where the original does not.
4. If a result may be -inf, as masks are, both sides have to agree at that limit. That is said of
   inputs that are -inf, and not of infinities that the old nodes make of numbers, as of a quotient
   by 0: with numbers in place of these inputs, the result must be one.
5. If a result may be anything, nothing that depends on it may make a number of what is none; if it
   is a number or NaN, nothing may make one of NaN. Where sums and products of moderate numbers are
   not assumed not to overflow, it must not need any that what stands there does not need.

And unless the sides agree to the bit where they are numbers, nothing discrete may depend on the
result, see `xflow.analysis.observers`; nor may what was not squared before be squared, see
`xflow.rewriting.squares`; nor may anything divide by it where digits of small
differences are lost, see `xflow.rewriting.cancellation`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from xflow.analysis.elements import approximates
from xflow.analysis.nan_spread import reads_no_more
from xflow.analysis.observers import TO_THE_BIT, Observed, contexts, observes, sums_floats
from xflow.analysis.on_codes import WHOLE, Border, OnCodes, anew, is_conversion
from xflow.analysis.ranges import Ranges
from xflow.analysis.refinement import objection
from xflow.core import value_conditions
from xflow.core.assumptions import Assumption
from xflow.core.graph import Graph, rebuild_all, walk
from xflow.core.intervals import Range
from xflow.core.node import Node, Value
from xflow.core.registry import Array, Operator
from xflow.core.rounding import limits
from xflow.core.sorts import FLOATS, HALVES
from xflow.core.value_conditions import BELOW_INFINITY, EXACT_SUMS, FINITE, Fact
from xflow.rewriting.folding import folded
from xflow.rewriting.instance import Instance
from xflow.rewriting.match import Match
from xflow.rewriting.rule import BITS
from xflow.rewriting.squares import SQUARES, squares_anew

KEPT = 64
"""Graphs of which it is kept what is sensitive to their values."""
_SELDOM = {
    TO_THE_BIT: TO_THE_BIT,
    Observed.MERGED: TO_THE_BIT,
    Observed.RELATIVE: Observed.RELATIVE,
}
"""By what is forbidden, what few graphs have an operator for that depends on a value so."""


class Places:
    """What the places of graphs over the same leaves allow, whose `ranges` are known.

    `outside` is what is sensitive to the outputs, where the graphs are parts of another, and
    `border` what there is of codes around it.
    """

    def __init__(
        self,
        ranges: Ranges,
        outside: Sequence[Observed] = (),
        border: Border = WHOLE,
    ) -> None:
        self.ranges = ranges
        self._outside = tuple(outside)
        self._border = border
        self._on_codes: dict[Graph, OnCodes] = {}
        self._origins: dict[Value, tuple[str, ...]] = {}
        self._contexts: dict[Graph, dict[Value, Observed]] = {}
        self._observing: dict[tuple[Node, Observed], bool] = {}
        self._coded: tuple[Graph | None, bool] = (None, False)
        """Whether the graph that was asked for last has codes."""
        self._seldom: dict[tuple[Graph, Observed], bool] = {}

    def allows(self, forbidden: Observed, values: Iterable[Value], graph: Graph) -> bool:
        """Whether nothing of what is forbidden is sensitive to these values of a graph."""
        seldom = _SELDOM.get(forbidden)
        if seldom is not None and not self._may_observe(graph, seldom):
            return True
        known = self._contexts.get(graph)
        if known is None:
            if len(self._contexts) >= KEPT:
                self._contexts.clear()
            outside = self._outside or (Observed.NOWHERE,) * len(graph.outputs)
            known = self._contexts[graph] = contexts(graph, outside)
        return not any(known.get(value, Observed.NOWHERE) & forbidden for value in values)

    def brings_together(self, match: Match, after: Sequence[Value], graph: Graph) -> str:
        """What the runtime computes on codes once a rule is applied, and not before; or nothing.

        `after` is what its results become. In words, see `xflow.analysis.on_codes`.
        """
        made = tuple(walk(after, {*match.bindings.values()}))
        if not (any(map(is_conversion, made)) or self._has_codes(graph)):
            return ""
        before = self.on_codes(graph)
        read = {value for node in made for value in node.inputs} | {*after}
        bound = [value for value in match.bindings.values() if not value.is_constant]
        if not (
            any(map(is_conversion, made))
            or any(map(before.end, match.roots))
            or any(before.origin(value) or value not in read for value in bound)
        ):
            return ""
        moved: dict[Value, Value] = {}
        replaced = dict(zip(match.roots, after, strict=True))
        new = Graph(rebuild_all(graph.outputs, replaced, moved))
        return anew(before, OnCodes(new, self.ranges, self._border, self._origins), moved)

    def _has_codes(self, graph: Graph) -> bool:
        """Whether there are codes in a graph, or at its border; kept for the last one."""
        if self._coded[0] is not graph:
            self._coded = graph, self._border.has_codes(graph.nodes)
        return self._coded[1]

    def on_codes(self, graph: Graph) -> OnCodes:
        """What the runtime may compute on codes in a graph."""
        known = self._on_codes.get(graph)
        if known is None:
            if len(self._on_codes) >= KEPT:
                self._on_codes.clear()
                self._origins = {}
            known = OnCodes(graph, self.ranges, self._border, self._origins)
            self._on_codes[graph] = known
        return known

    def _may_observe(self, graph: Graph, what: Observed) -> bool:
        """Whether anything in a graph, or behind its outputs, is sensitive in that way."""
        if any(outside & what for outside in self._outside):
            return True
        found = self._seldom.get((graph, what))
        if found is None:
            if len(self._seldom) >= KEPT:
                self._seldom.clear()
            found = self._seldom[graph, what] = any(
                self._observes(node, what) for node in graph.nodes
            )
        return found

    def _observes(self, node: Node, what: Observed) -> bool:
        key = node, what
        known = self._observing.get(key)
        if known is None:
            known = self._observing[key] = observes(node, what)
        return known

    def forbidden(self, instance: Instance, match: Match, after: Sequence[Value]) -> Observed | str:
        """What must not be sensitive to the results of a rule at `match`; or why it does not apply.

        `after` is what the results become.
        """
        if match.dtype not in FLOATS:
            return Observed.NOWHERE
        made = tuple(walk(after, {*match.bindings.values()}))
        served = _served_otherwise(match.nodes, made)
        if instance.exact == BITS:
            differs = any(map(_may_differ, match.nodes)) or self._rounds_once(match, after)
            return TO_THE_BIT | served if differs else served
        for fact in instance.facts:
            source = match.bindings.get(fact.name)
            if source is None or self.holds(fact, source):
                continue
            if fact.relation != FINITE or not self._spreads_no_nan(match, after, source):
                return f"it is not known whether {fact}"
        if any(map(self._rounds_to_integers, match.nodes)):
            return "a sum of it rounds to integers, as a large constant is added"
        if squares_anew(match.nodes, made):
            return SQUARES
        forbidden = served if instance.exact else TO_THE_BIT | served
        for old, new in zip(match.roots, after, strict=True):
            if old.type.dtype in FLOATS:
                found = self._of_result(instance, match, old, new)
                if isinstance(found, str):
                    return found
                forbidden |= found
        return forbidden

    def _rounds_to_integers(self, node: Node) -> bool:
        """Whether an operator adds a constant that leaves no digits behind the point.

        What adds it and takes it off again rounds, as is done before there are codes.
        """
        adds = isinstance(node.op, Operator) and node.op.name in ("Add", "Sub")
        if not adds or node.constant or node.types[0].dtype not in FLOATS:
            return False
        constants = [self.ranges.data(value) for value in node.inputs if value.is_constant]
        least = 2.0 ** limits(node.types[0].dtype).nmant
        return any(
            data is not None and data.size > 0 and bool(np.all(_is_between(data, least, 4 * least)))
            for data in constants
        )

    def _rounds_once(self, match: Match, after: Sequence[Value]) -> bool:
        """Whether a constant is folded in half precision that the runtime need not round.

        It computes operators of 16 bits with 32, and leaves out the roundings between them.
        """
        if match.dtype not in HALVES:
            return False
        inputs = [*match.bindings.values()]
        return any(True for _ in folded(match.roots, after, inputs))

    def _of_result(
        self, instance: Instance, match: Match, old: Value, new: Value
    ) -> Observed | str:
        ranges = self.ranges
        before, after = ranges.of(old), ranges.of(new)
        if before.is_real:
            return Observed.NOWHERE if after.is_real else "the result might not be a number"
        if ranges.assumption < Assumption.MODERATE:
            reason = objection((old,), (new,), {*match.bindings.values()}, ranges, overflow=True)
            if reason:
                return reason
        if (
            before.is_below_infinity
            and after.is_below_infinity
            and self._agree_at_limits(instance, match)
        ):
            return Observed.NOWHERE
        return Observed.LOST if before.is_infinite else Observed.HIDDEN

    def _spreads_no_nan(self, match: Match, after: Sequence[Value], source: Value) -> bool:
        """Whether results are NaN where they were, if elements of `source` are numbers or NaN.

        And none is infinite that was not.
        """
        if self.ranges.of(source).is_infinite:
            return False
        inputs = {*match.bindings.values()}
        return all(
            reads_no_more(old, new, source, inputs)
            and (self.ranges.of(old).is_infinite or not self.ranges.of(new).is_infinite)
            for old, new in zip(match.roots, after, strict=True)
        )

    def _agree_at_limits(self, instance: Instance, match: Match) -> bool:
        """Whether no input holds more than numbers and, where the sides agree there, -inf.

        And whether the results would be numbers if the inputs were.
        """
        for name, value in match.bindings.items():
            if value.type.dtype in FLOATS:
                known = self.ranges.of(value)
                if not known.is_below_infinity or (known.minus and name not in instance.limits):
                    return False
                if known.minus and value.node in match.nodes:  # an infinity of the nodes themselves
                    return False
        inputs = {*match.bindings.values()}
        return all(
            self.ranges.with_numbers(root, inputs).is_real
            for root in match.roots
            if root.type.dtype in FLOATS
        )

    def holds(self, fact: Fact, value: Value) -> bool:
        """Whether a condition on values holds of a value.

        Those on sums of codes, of which data tells alone, have been looked at by the match.
        """
        if fact.relation == EXACT_SUMS:
            return True
        if value.type.dtype not in FLOATS and fact.relation in (FINITE, BELOW_INFINITY):
            return True
        array = self.ranges.data(value) if value.is_constant else None
        if array is not None:
            return fact.holds(array)
        return _is_so(fact, self.ranges.of(value))


def _is_between(data: Array, least: float, beyond: float) -> Array:
    sizes = np.abs(data.astype(np.float64))
    return np.asarray((sizes >= least) & (sizes < beyond))


def _may_differ(node: Node) -> bool:
    """Whether the last digit of a result may depend on where its element stands."""
    op = node.op
    if not isinstance(op, Operator) or not op.elementwise or node.constant:
        return False
    return approximates(op, tuple(sorted(node.attributes.items())), len(node.inputs))


def _served_otherwise(old: Collection[Node], new: Collection[Node]) -> Observed:
    """Where the runtime, as it loads a model, makes other bits of `new` operators than of `old`.

    That is where sums of floats take the place of what has none, as of sums of integers, or the
    other way round; and where a DequantizeLinear takes the place of what has none.
    """
    found = Observed.NOWHERE
    if any(map(sums_floats, new)) != any(map(sums_floats, old)):
        found |= Observed.MERGED
    if any(map(_makes_reals_of_codes, new)) and not any(map(_makes_reals_of_codes, old)):
        found |= Observed.QUANTIZED
    return found


def _makes_reals_of_codes(node: Node) -> bool:
    return isinstance(node.op, Operator) and node.op.op_type == "DequantizeLinear"


def _is_so(fact: Fact, known: Range) -> bool:
    if fact.relation == BELOW_INFINITY:
        return known.is_below_infinity
    if not known.is_real:
        return False
    match fact.relation:
        case value_conditions.FINITE:
            return True
        case value_conditions.POSITIVE:
            return known.low > 0
        case value_conditions.NONNEGATIVE:
            return known.low >= 0
    return not known.has_zero
