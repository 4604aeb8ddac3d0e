"""Repeats the applications of rules that were written down, and believes nothing of them.

A rule's left side is held against the graph as it is instantiated by what the log says: there is
no matching, and so nothing to get wrong by searching. What does not hold is an `Unfounded`, which
names the application.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from xflow.analysis.observers import Observed, contexts, sensitive_outside
from xflow.analysis.on_codes import OnCodes, anew
from xflow.analysis.ranges import Ranges
from xflow.analysis.refinement import objection
from xflow.analysis.value_rewrites.basis import fault
from xflow.analysis.value_rewrites.least_float_masks import RAISED, raised
from xflow.analysis.value_rewrites.nan_tests import decided
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.constraint import follows
from xflow.core.errors import RuleFileError, ShapeError, SizeError
from xflow.core.fold import ConstantLookup, Folder
from xflow.core.graph import Graph, demands, rebuild, rebuild_all, requirements, walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Array, Attribute, Operator
from xflow.core.sorts import REAL, admits, is_of_sort
from xflow.core.value_conditions import NEEDS
from xflow.recheck.facts import Facts
from xflow.rewriting.admission import Places
from xflow.rewriting.cancellation import hazard_of, loses_digits
from xflow.rewriting.constants import as_number, is_exact, is_same, scalar
from xflow.rewriting.derivation import Application, ValueNumber, abstract, local_leaves, value_at
from xflow.rewriting.folding import NO_NUMBERS, loses_numbers
from xflow.rewriting.index import refused_types
from xflow.rewriting.instance import Instance
from xflow.rewriting.match import MAX_PERMUTED, Match, NoMatch, StandIn, computed, fits, is_told
from xflow.rewriting.rewrite import replacement
from xflow.rewriting.rule import Rule
from xflow.rewriting.unify import instantiate, same_literal, same_shape


@dataclass(frozen=True)
class Rewrite:
    """Values `before` of a graph and the values `inputs` under them, and the applications of rules
    that turn what lies between them into something else; None where these were not told.

    Without steps, a `fact` about values by which one value of the graph is another, see `decided`;
    with steps, that masks were raised behind the last one, see `masks`.
    """

    before: tuple[ValueNumber, ...]
    inputs: tuple[ValueNumber, ...]
    steps: tuple[Application, ...] | None
    fact: str = ""


Exchange = tuple[tuple[Value, ...], tuple[Value, ...]]
"""What a rewrite replaces, and by what."""
Round = Sequence[Rewrite]
"""Rewrites that all refer to one graph, and are made at once."""


class Unfounded(Exception):  # noqa: N818 - a verdict, not a mishap
    """A step of a log that does not follow: in words, which one and why."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where, self.why = where, why


def replay(
    graph: Graph,
    rounds: Sequence[Round],
    rules: Mapping[str, Rule],
    constants: ConstantLookup,
    *,
    assumption: Assumption = DEFAULT,
    outside: Observed = Observed.NOWHERE,
) -> Graph:
    """What the rewrites make of `graph`.

    `rules` are directions of rules by their names, `constants` the data of the graph's constants.
    `assumption` is what may be taken for granted of values, `outside` what is sensitive to the
    graph's outputs. Raises Unfounded.
    """
    made = Replay(rules, constants, assumption=assumption, outside=outside)
    for items in rounds:
        graph = made.round(graph, items)
    return graph


class Replay:
    """Rewrites repeated round by round; for the arguments see `replay`."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        constants: ConstantLookup,
        *,
        assumption: Assumption = DEFAULT,
        outside: Observed = Observed.NOWHERE,
    ) -> None:
        self._rules = rules
        self._folder = Folder(constants)
        self._outside = outside
        self._assumption = assumption
        self._ranges = {
            level: Ranges(constants, level) for level in Assumption if level <= assumption
        }
        self.made: list[Exchange] = []
        """What the rewrites have replaced so far, and by what."""

    def round(self, graph: Graph, items: Round) -> Graph:
        """What one round of rewrites makes of `graph`. Raises Unfounded."""
        surroundings = self._surroundings(graph, self._assumption)
        for item in items:
            self.made.append(_made(surroundings, item, self._next()))
        return self._applied(surroundings, len(items))

    def weakest(self, graph: Graph, items: Round) -> tuple[Graph, tuple[Assumption, ...]]:
        """What one round makes of `graph`, and the least to take for granted for each rewrite.

        Raises Unfounded.
        """
        surroundings = {level: self._surroundings(graph, level) for level in sorted(self._ranges)}
        weakest: list[Assumption] = []
        for item in items:
            where = self._next()
            least, exchange = _at_least(surroundings, item, where)
            if item.fact and least < self._assumption:  # by which less may be done where more holds
                whole = _made(surroundings[self._assumption], item, where)
                if whole != exchange:
                    least, exchange = self._assumption, whole
            self.made.append(exchange)
            weakest.append(least)
        return self._applied(surroundings[self._assumption], len(items)), tuple(weakest)

    def _next(self) -> str:
        """Which rewrite is the next one, in words."""
        return f"rewrite {len(self.made) + 1}"

    def _applied(self, surroundings: Surroundings, count: int) -> Graph:
        """The graph after the last `count` rewrites, all of one round. Raises Unfounded."""
        mapping: dict[Value, Value] = {}
        moved: dict[Value, Value] = {}
        first = len(self.made) - count
        for number, (before, after) in enumerate(self.made[first:], first + 1):
            if not mapping.keys().isdisjoint(before):
                where = f"rewrite {number}"
                raise Unfounded(where, "it replaces what another one of its round does")
            mapping.update(zip(before, after, strict=True))
        where = f"the round up to rewrite {len(self.made)}"
        try:
            graph = Graph(rebuild_all(surroundings.graph.outputs, mapping, moved))
        except ShapeError as error:
            raise Unfounded(where, str(error)) from None
        reason = anew(surroundings.on_codes, OnCodes(graph, surroundings.ranges), moved)
        if reason:
            raise Unfounded(where, reason)
        return graph

    def _surroundings(self, graph: Graph, level: Assumption) -> Surroundings:
        return Surroundings(graph, self._ranges[level], self._outside, self._rules, self._folder)


def _at_least(
    surroundings: Mapping[Assumption, Surroundings], item: Rewrite, where: str
) -> tuple[Assumption, Exchange]:
    """The first of some levels at which a rewrite is founded, and what it replaces by what there.

    Raises Unfounded with the reason at the last one.
    """
    *weaker, strongest = surroundings
    for level in weaker:
        with contextlib.suppress(Unfounded):
            return level, _made(surroundings[level], item, where)
    return strongest, _made(surroundings[strongest], item, where)


def _made(surroundings: Surroundings, item: Rewrite, where: str) -> Exchange:
    """What a rewrite replaces, and by what. Raises Unfounded."""
    if item.fact and item.steps is None:
        return _by_fact(surroundings, item, where)
    return _rewritten(surroundings, item, where)


def _by_fact(surroundings: Surroundings, item: Rewrite, where: str) -> Exchange:
    """What a fact about values replaces in a graph, and by what."""
    try:
        before = tuple(value_at(surroundings.graph, place) for place in item.before)
    except LookupError:
        raise Unfounded(where, "it speaks of a place that the model does not have") from None
    for old, new, name in surroundings.facts:
        if before == (old,) and name == item.fact:
            reason = fault(surroundings.checks, name, old, new)
            if reason:
                raise Unfounded(where, f"{name} is not confirmed: {reason}")
            return before, (new,)
    raise Unfounded(where, f"it does not follow from the values that {item.fact}")


@dataclass(frozen=True)
class Surroundings:
    """A graph in which rewrites are made, and what counts for a part of it that is taken out."""

    graph: Graph
    ranges: Ranges
    outside: Observed
    """What is sensitive to the graph's outputs."""
    rules: Mapping[str, Rule]
    """The directions of rules, by their names."""
    constants: Folder
    """The data of constants, and of constant expressions."""

    @cached_property
    def facts(self) -> Sequence[tuple[Value, Value, str]]:
        """What is known of the values: found anew, and not believed."""
        return list(decided(self.graph, self.ranges))

    @cached_property
    def checks(self) -> Facts:
        """The checkers of facts, which share no code with what finds them."""
        return Facts(self.graph, self.ranges.constants, self.ranges.assumption)

    @cached_property
    def on_codes(self) -> OnCodes:
        """What the runtime may compute on codes."""
        return OnCodes(self.graph, self.ranges)

    @cached_property
    def _sensitive(self) -> Mapping[Value, Observed]:
        return contexts(self.graph, [self.outside] * len(self.graph.outputs))

    def places(
        self, before: Sequence[Value], inputs: Sequence[Value], constants: ConstantLookup
    ) -> Places:
        """What the places of the part between `inputs` and `before` allow, once taken out."""
        inside = set(walk(before, set(inputs)))
        graph, sensitive, whole = self.graph, self._sensitive, self.outside
        return Places(
            Ranges(constants, self.ranges.assumption),
            [sensitive_outside(graph, value, inside, sensitive, whole) for value in before],
            self.on_codes.border({str(n): v for n, v in enumerate(inputs)}, before, inside),
        )


def _rewritten(surroundings: Surroundings, item: Rewrite, where: str) -> Exchange:
    """What a rewrite replaces in a graph, and by what."""
    graph, ranges = surroundings.graph, surroundings.ranges
    if item.steps is None:
        raise Unfounded(where, "the log does not say how it came about")
    try:
        before = tuple(value_at(graph, place) for place in item.before)
        inputs = tuple(value_at(graph, place) for place in item.inputs)
    except LookupError:
        raise Unfounded(where, "it speaks of a place that the model does not have") from None
    if len(set(inputs)) < len(inputs) or len(set(before)) < len(before):
        raise Unfounded(where, "it names a place twice")
    if any(isinstance(node.op, Leaf) for node in walk(before, set(inputs))):
        # A leaf of the model might be taken for one that stands for an input.
        raise Unfounded(where, "it reads an input or a weight that it does not name")
    own = dict(zip(local_leaves(inputs, ranges), inputs, strict=True))
    local = repeated(surroundings, before, inputs, item.steps, where)
    after = shown = rebuild(local, own)
    original = abstract(before, inputs, ranges)
    outputs = raised(local, original, own, ranges)
    if item.fact and (item.fact != RAISED or outputs == local):
        raise Unfounded(where, f"behind its steps, nothing is done by {item.fact}")
    if not item.fact and outputs != local:
        raise Unfounded(where, f"a mask may cover a row and is not raised by {RAISED}")
    if item.fact:
        after = rebuild(outputs, own)
        reason = surroundings.checks.raised_masks(shown, after)
        if reason:
            raise Unfounded(where, f"{RAISED} is not confirmed: {reason}")
        shown = rebuild(raised(local, original, own, ranges, wholly=True), own)
    reason = objection(before, shown, set(inputs), ranges)
    if not reason and loses_numbers(before, after, inputs, surroundings.constants):
        reason = NO_NUMBERS
    if reason:
        raise Unfounded(where, reason)
    if any(new.type != old.type for new, old in zip(after, before, strict=True)):
        raise Unfounded(where, "the type of a value changes")
    return before, after


def repeated(
    surroundings: Surroundings,
    before: Sequence[Value],
    inputs: Sequence[Value],
    steps: Sequence[Application],
    where: str,
) -> tuple[Value, ...]:
    """What the steps make of the part of a graph between `inputs` and `before`.

    Over leaves that stand for the inputs, see `local_leaves`. Raises Unfounded.
    """
    graphs = list(passed(surroundings, before, inputs, steps, where))
    last = graphs[-1] if graphs else abstract(before, inputs, surroundings.ranges)
    return last.outputs


def passed(
    surroundings: Surroundings,
    before: Sequence[Value],
    inputs: Sequence[Value],
    steps: Sequence[Application],
    where: str,
) -> Iterator[Graph]:
    """The part of a graph between `inputs` and `before` behind each of the steps, see `repeated`.

    Raises Unfounded.
    """
    ranges = surroundings.ranges
    own = dict(zip(local_leaves(inputs, ranges), inputs, strict=True))

    def known(value: Value) -> Array | None:
        return surroundings.constants(own[value]) if value in own else None

    local = abstract(before, inputs, ranges)
    lookup = Folder(known)
    places = surroundings.places(before, inputs, lookup)
    for number, step in enumerate(steps, 1):
        place = f"{where}, step {number} ({step.rule})"
        rule = surroundings.rules.get(step.rule)
        if rule is None:
            raise Unfounded(place, "there is no such rule")
        local = apply_step(local, step, rule, lookup, place, places=places)
        yield local


def apply_step(
    graph: Graph,
    step: Application,
    rule: Rule,
    constants: ConstantLookup,
    where: str,
    *,
    places: Places,
    digits: bool = True,
) -> Graph:
    """`graph` with a rule applied as `step` says, if the rule allows that. Raises Unfounded.

    `places` tells what the places of the graph allow. Unless `digits`, the data of constants is not
    asked whether digits are lost, see `cancellation`: it is elsewhere, where it is known.
    """
    try:
        match = Match(
            tuple(value_at(graph, place) for place in step.at),
            {
                **{name: value_at(graph, place) for name, place in step.inputs.items()},
                **{name: scalar(value, step.dtype) for name, value in step.numbers.items()},
            },
            step.sizes,
            step.reals,
            frozenset(),
            step.dtype,
        )
    except LookupError:
        raise Unfounded(where, "it speaks of a place that is not there") from None
    if step.rank not in rule.usable_ranks:
        raise Unfounded(where, f"the rule is not proved at rank {step.rank}")
    try:
        instance = rule.instance(step.rank)
        reason, operators = _objection(instance, match, constants)
        below = walk(match.roots, cut={*match.bindings.values()})
        inside = frozenset(node for node in below if not node.constant)
        match = replace(match, operators=operators, nodes=inside)
        after = replacement(instance, match) if not reason else None
    except (RuleFileError, ShapeError, SizeError, KeyError, ZeroDivisionError) as error:
        raise Unfounded(where, f"the rule does not apply ({error})") from None
    if after is None or isinstance(after, NoMatch):
        raise Unfounded(where, reason if after is None else after.reason)
    reason = refusal(graph, rule, instance, match, after.values, places=places)
    if not reason and digits:
        reason = lost_digits(graph, rule, instance, match, constants=constants, places=places)
    if reason:
        raise Unfounded(where, reason)
    try:
        return graph.replace(dict(zip(match.roots, after.values, strict=True)))
    except ShapeError as error:
        raise Unfounded(where, str(error)) from None


def refusal(
    graph: Graph,
    rule: Rule,
    instance: Instance,
    match: Match,
    after: Sequence[Value],
    *,
    places: Places,
) -> str:
    """Why a rule must not make `after` of its results where it matches; nothing where it may."""
    normwise = places.ranges.assumption >= Assumption.NORMWISE
    refused = refused_types(rule, instance, normwise=normwise)
    touched = (value.type.dtype for value in (*match.roots, *match.bindings.values()))
    dtype = next((dtype for dtype in touched if dtype in refused), None)
    if dtype is not None:
        return f"rounding forbids this direction of the rule in {dtype}"
    told = places.forbidden(instance, match, after)
    if isinstance(told, str):
        return told
    if not places.allows(told, match.roots, graph):
        return SENSITIVE
    return places.brings_together(match, after, graph)


def lost_digits(
    graph: Graph,
    rule: Rule,
    instance: Instance,
    match: Match,
    *,
    constants: ConstantLookup,
    places: Places,
) -> str:
    """Why a rule would lose digits where it matches, see `cancellation`; nothing where it does not.

    Where something counts errors relative to the results, also near constants.
    """
    hazard = hazard_of(rule)
    if not hazard:
        return ""
    lost = loses_digits(instance, match, constants, hazard)
    if lost or places.allows(Observed.RELATIVE, match.roots, graph):
        return lost
    return loses_digits(instance, match, constants, hazard, near=True)


MAX_STAND_INS = 256
"""Most ways to choose what schematic operators stand for that are tried."""

SENSITIVE = "something that depends on the result would notice that it is not the same to the bit"
"""Why a place does not allow a rule."""


def _objection(
    instance: Instance, match: Match, constants: ConstantLookup
) -> tuple[str, dict[Operator, StandIn]]:
    """Why a rule must not be applied, if so; what its schematic operators stand for there."""
    patterns = {
        node.op: len(node.inputs)
        for node in walk(instance.lhs)
        if isinstance(node.op, Operator) and node.is_schematic
    }
    depth = sum(isinstance(node.op, Operator) for node in walk(instance.lhs))
    around = _around(match.roots, depth) if patterns else []
    choices = [_stand_ins(op, count, around) for op, count in patterns.items()]
    first = ""
    for chosen in itertools.islice(itertools.product(*choices), MAX_STAND_INS):
        operators = dict(zip(patterns, chosen, strict=True))
        reason = _Check(instance, match, constants, operators).objection()
        if not reason:
            return "", operators
        first = first or reason
    return first or "the rule's left side is not there", {}


def _around(roots: Iterable[Value], depth: int) -> list[Node]:
    """The nodes that values are computed by, at most so many below one another, next ones first."""
    found: dict[Node, None] = {}
    level = [value.node for value in roots]
    for _ in range(depth):
        level = [node for node in dict.fromkeys(level) if node not in found]
        found.update(dict.fromkeys(level))
        level = [value.node for node in level for value in node.inputs]
    return list(found)


def _stand_ins(pattern: Operator, count: int, nodes: Iterable[Node]) -> list[StandIn]:
    """What a schematic operator of so many inputs may stand for among `nodes`.

    Two inputs may be there the other way round.
    """
    found: list[StandIn] = []
    for node in nodes:
        if len(node.inputs) != count or not isinstance(node.op, Operator):
            continue
        if not pattern.stands_for(node.op, node.attributes, node.types[0].dtype):
            continue
        for turned in (False, True)[:count]:
            there = StandIn(node.op, node.attributes, turned)
            if there not in found:
                found.append(there)
    return found


class _Check:
    """Whether a rule's left side, with inputs and symbols as `match` has them, is what is there.

    `operators` says what the schematic operators of the rule stand for there.
    """

    def __init__(
        self,
        instance: Instance,
        match: Match,
        constants: ConstantLookup,
        operators: Mapping[Operator, StandIn],
    ) -> None:
        self.instance = instance
        self.match = match
        self.constants = constants
        self.operators = operators
        self._known: dict[tuple[Node, Node], bool] = {}

    def objection(self) -> str:
        """Why the rule must not be applied; nothing where it may."""
        instance, match = self.instance, self.match
        roots = match.roots
        if len(roots) != len(instance.lhs) or len(set(roots)) < len(roots):
            return "the rule has another number of outputs"
        if not all(map(self.is_value, instance.lhs, roots)):
            return "the rule's left side is not there"
        conditions = (*instance.where, *requirements(instance.lhs))
        inside = [there for (_, there), same in self._known.items() if same]
        for condition in conditions:
            if not follows(condition.substitute(match.sizes), demands(inside)):
                return f"it is not known whether {condition}"
        for fact in instance.facts:
            given = [match.reals.get(n, self.data(match.bindings.get(n))) for n in fact.names]
            known = [data for data in given if data is not None]
            if not known and fact.relation in NEEDS:
                continue  # whether they are numbers, the place tells
            hidden = len(known) < len(given)
            if not (is_told(fact, match.bindings.get(fact.name)) if hidden else fact.holds(*known)):
                return f"it is not known whether {fact}"
        return ""

    def data(self, value: Value | None) -> Array | None:
        """The data of a constant of the graph; None for another value."""
        return None if value is None or not value.is_constant else self.constants(value)

    def is_value(self, pattern: Value, target: Value) -> bool:
        """Whether a value of the graph is what a value of the left side stands for."""
        if not self.is_of_sort(pattern.type.dtype, target.type.dtype):
            return False
        if isinstance(pattern.node.op, Leaf):
            if not self.instance.broadcast and not pattern.shape:
                target = as_number(target, self.constants)
            bound, broadcast = self.match.bindings.get(pattern.node.op.key), self.instance.broadcast
            if bound is None or not is_same(bound, target, self.constants, broadcast):
                return False
            return broadcast or same_shape(pattern.shape, target.shape, self.match.sizes)
        if pattern.index != target.index:
            return False
        pair = pattern.node, target.node
        if pair not in self._known:
            self._known[pair] = self.is_node(*pair)
        return self._known[pair]

    def is_of_sort(self, sort: str, dtype: str) -> bool:
        if sort == REAL:
            return dtype == self.match.dtype and admits(self.instance.types, dtype)
        return is_of_sort(dtype, sort)

    def is_node(self, pattern: Node, target: Node) -> bool:
        if not fits(pattern, target):
            return self.is_data(pattern, target)
        assert isinstance(pattern.op, Operator)
        assert isinstance(target.op, Operator)
        plain = StandIn(target.op, target.attributes)
        there = self.operators.get(pattern.op, plain)
        if replace(there, turned=False) != plain:
            return False
        if len(pattern.inputs) != len(target.inputs) or len(pattern.types) != len(target.types):
            return False
        if not self.instance.broadcast and not all(
            same_shape(mine.shape, theirs.shape, self.match.sizes)
            for mine, theirs in zip(pattern.types, target.types, strict=True)
        ):
            return False
        if not all(
            self.is_attribute(value, target.attributes[name], target.types[0].dtype)
            for name, value in pattern.attributes.items()
        ):
            return False
        orders = [there.order(target.inputs)]
        if target.op.commutative and len(target.inputs) <= MAX_PERMUTED:
            orders = list(itertools.permutations(target.inputs))
        return any(all(map(self.is_value, pattern.inputs, order)) for order in orders)

    def is_attribute(self, pattern: Attribute, target: Attribute, dtype: str) -> bool:
        if isinstance(pattern, str):
            same = same_literal(pattern, target, dtype)
            return same and (pattern != REAL or target == self.match.dtype)
        value = instantiate(pattern, self.match.sizes, self.match.reals)
        return value is not None and same_literal(value, target, dtype)

    def is_data(self, pattern: Node, target: Node) -> bool:
        """Whether a constant of the graph holds what a constant expression of the rule is."""
        value = target.outputs[0]
        if not pattern.constant or not target.constant or len(pattern.types) != 1:
            return False
        shape = pattern.types[0].shape
        if shape and not same_shape(shape, value.shape, self.match.sizes):
            return False  # one of shape [] may stand for any uniform one
        array, outputs = self.constants(value), computed(pattern, self.match)
        if array is None or outputs is None:
            return False
        with np.errstate(all="ignore"):
            expected = outputs[0].astype(array.dtype)
            if array.dtype.kind in "biu" and not is_exact(outputs[0], expected):
                return False
            return bool(np.all(array == expected))
