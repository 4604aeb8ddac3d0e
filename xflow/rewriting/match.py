"""Where a rule's left side occurs in a graph.

Matching has two steps. The structure first: operators, shared subterms, orders of commutative
arguments, and for rules with several outputs the further roots, which are looked for among the
users of what is bound already. Then the sizes, see `unify`. Nothing is assumed: the conditions of
the rule and the requirements of both its sides must be decided true by the sizes of the graph, with
what the runtime demands before it runs the operators that are there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from xflow.core.constraint import Constraint, follows_at, is_true
from xflow.core.errors import ShapeError
from xflow.core.fold import ConstantLookup, no_constants
from xflow.core.graph import Graph, demands
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Array, Attribute, Attributes, Operator, RealSymbol
from xflow.core.size import Size, free_symbols, substitute
from xflow.core.sorts import REAL, admits, is_of_sort
from xflow.core.value_conditions import EXACT_SUMS, NEEDS, Fact
from xflow.rewriting.constants import as_fraction, as_number, is_exact, is_same
from xflow.rewriting.instance import Instance, leaf_name
from xflow.rewriting.unify import (
    Equation,
    attribute_equations,
    instantiate,
    may_equal,
    same_shape,
    solve,
)

MAX_PERMUTED = 4
"""Commutative operators of more inputs than this are matched in the order given."""


@dataclass(frozen=True)
class StandIn:
    """What a schematic operator of a rule stands for at a place."""

    op: Operator
    attributes: Attributes
    turned: bool = False
    """Whether its two inputs are there the other way round: that is a function of two, too."""

    def order(self, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """The inputs in the graph for those in the rule, and the other way round."""
        return inputs[::-1] if self.turned else inputs


@dataclass(frozen=True)
class Match:
    """An occurrence of a rule's left side: the values of its outputs, inputs and symbols."""

    roots: tuple[Value, ...]
    bindings: Mapping[str, Value]
    sizes: Mapping[str, Size]
    reals: Mapping[str, Fraction]
    nodes: frozenset[Node]
    """The nodes of the graph that the left side's operators stand for."""
    dtype: str = "FLOAT"
    """The element type that stands for ``REAL``."""
    operators: Mapping[Operator, StandIn] = field(default_factory=dict)
    """What the schematic operators of the rule stand for there."""


@dataclass(frozen=True)
class NoMatch:
    """A rule does not apply after all; `reason` says why.

    It is put into words only where somebody asks.
    """

    what: str
    about: tuple[object, ...] = ()
    """What `what` speaks of, in its braces."""

    @property
    def reason(self) -> str:
        """The sentence."""
        return self.what.format(*self.about) if self.about else self.what


_OTHER_TYPES = NoMatch("the rule is not shown for these element types, or not for several at once")


def find_matches(
    instance: Instance,
    graph: Graph,
    constants: ConstantLookup = no_constants,
    at: Iterable[Value] | None = None,
    block: int | None = None,
) -> Iterator[Match]:
    """All occurrences of the left side of `instance` in `graph`, where the rule applies.

    `at` narrows the values that the first output may be. A size that only the right side has is
    chosen so that channels come to fill blocks of `block`; without that there is no match.
    """
    if not instance.is_determined and (block is None or not instance.is_fillable):
        return
    if at is None:
        at = (value for node in graph.nodes for value in node.outputs)
    for target in at:
        if not may_match(instance.lhs[0], target):
            continue
        state = Matcher(instance, graph, constants)
        for roots in state.outputs((), target):
            found = state.finish(roots)
            if isinstance(found, NoMatch):
                continue
            match = found if block is None else _filled(instance, found, block)
            if match is not None:
                yield match


def _filled(instance: Instance, match: Match, block: int) -> Match | None:
    """`match` with the one size that only the right side has, if there is one.

    It is chosen such that the channels of an image, the second axis, come to fill blocks of that
    many. None where that is so anyway, where no image has it, or where the rule forbids it.
    """
    if not instance.free_symbols:
        return match
    (name,) = instance.free_symbols
    for node in instance.rhs_nodes:
        for type in node.types:
            channels = type.shape[1] if len(type.shape) > 2 else 0
            if name not in free_symbols(channels):
                continue
            base = substitute(channels, {**match.sizes, name: 0})
            if (
                not isinstance(base, int)
                or substitute(channels, {**match.sizes, name: 1}) != base + 1
            ):
                continue
            chosen = replace(match, sizes={**match.sizes, name: -base % block})
            if base % block and all(is_true(c.substitute(chosen.sizes)) for c in instance.where):
                return chosen
    return None


class Matcher:
    """The state of one structural match; generators undo on resumption what they bound."""

    def __init__(self, instance: Instance, graph: Graph, constants: ConstantLookup):
        self.instance = instance
        self.graph = graph
        self.constants = constants
        self.leaves: dict[Value, Value] = {}
        self.nodes: dict[Node, Node] = {}
        self.data: dict[Node, Value] = {}
        """Constant expressions of the pattern that a constant leaf of the graph stands for."""
        self.operators: dict[Operator, StandIn] = {}
        """What the schematic operators of the pattern stand for, as far as it is matched."""

    def outputs(self, roots: tuple[Value, ...], target: Value) -> Iterator[tuple[Value, ...]]:
        """Match output number len(roots) with `target`, then all further ones."""
        pattern = self.instance.lhs[len(roots)]
        for _ in self.value(pattern, target):
            found = (*roots, target)
            if len(found) == len(self.instance.lhs):
                yield found
                continue
            for candidate in self.candidates(self.instance.lhs[len(found)]):
                if candidate not in found:
                    yield from self.outputs(found, candidate)

    def candidates(self, pattern: Value) -> list[Value]:
        """The values that a further output can be."""
        return self.reached(pattern)

    def reached(self, pattern: Value) -> list[Value]:
        """The values that `pattern` can be, given that some of what it reads is bound."""
        if pattern in self.leaves:
            return [self.leaves[pattern]]
        if pattern.node in self.nodes:
            return [self.same(self.nodes[pattern.node].outputs[pattern.index])]
        found: dict[Value, None] = {}
        for source in pattern.node.inputs:
            for bound in self.reached(source):
                for user in self.users(bound):
                    if fits(pattern.node, user) and pattern.index < len(user.types):
                        found[self.same(user.outputs[pattern.index])] = None
            if found:
                break
        return list(found)

    def users(self, value: Value) -> Iterable[Node]:
        """The nodes that read a value."""
        return self.graph.users.get(value, ())

    def same(self, value: Value) -> Value:
        """The value that stands for all that are known to equal this one."""
        return value

    def value(self, pattern: Value, target: Value) -> Iterator[None]:
        """Match one value; yields once for each way to do it."""
        node, other = pattern.node, target.node
        if isinstance(node.op, Leaf):
            yield from self.leaf(pattern, target)
            return
        if node in self.nodes:
            if self.nodes[node] is other and pattern.index == target.index:
                yield
            return
        if node in self.data:
            if self.data[node] == target:
                yield
            return
        # A constant of the graph may be a constant expression of the pattern, computed before.
        if node.constant and len(node.types) == 1 and node.op is not other.op:
            if other.constant and self.constants(target) is not None:
                self.data[node] = target
                yield
                del self.data[node]
            return
        if (
            not fits(node, other)
            or pattern.index != target.index
            or len(node.inputs) != len(other.inputs)
            or len(node.types) != len(other.types)
            or not all(
                may_equal(v, other.attributes[k], other.types[0].dtype)
                for k, v in node.attributes.items()
            )
        ):
            return
        self.nodes[node] = other
        if node.is_schematic:
            yield from self.schematic(node, other)
        else:
            for order in _orders(other):
                yield from self.sequence(node.inputs, order, 0)
        del self.nodes[node]

    def schematic(self, pattern: Node, other: Node) -> Iterator[None]:
        """Match the inputs of a node whose operator stands for another, the same everywhere."""
        assert isinstance(pattern.op, Operator)
        known = self.operators.get(pattern.op)
        for found in stand_ins(other):
            if known not in (None, found):
                continue
            self.operators[pattern.op] = found
            for order in _orders(other):
                yield from self.sequence(pattern.inputs, found.order(order), 0)
            if known is None:
                del self.operators[pattern.op]

    def leaf(self, pattern: Value, target: Value) -> Iterator[None]:
        """Match an input of the rule: anything, but always the same."""
        if not self.instance.broadcast and not pattern.shape:
            target = as_number(target, self.constants)
        if pattern in self.leaves:
            if is_same(self.leaves[pattern], target, self.constants, self.instance.broadcast):
                yield
        elif self.is_of_sort(pattern, target) and (
            self.instance.broadcast or len(pattern.shape) == len(target.shape)
        ):
            self.leaves[pattern] = target
            yield
            del self.leaves[pattern]

    def is_of_sort(self, pattern: Value, target: Value) -> bool:
        """Whether a value of the graph has an element type for which the rule holds there."""
        sort, dtype = pattern.type.dtype, target.type.dtype
        if sort == REAL:
            return admits(self.instance.types, dtype)
        return is_of_sort(dtype, sort)

    def element_type(self) -> str | None:
        """What ``REAL`` is in the graph, the same everywhere; None where the types do not fit."""
        types = set[str]()
        for pattern, target in self.leaves.items():  # of their sorts, or they would not be bound
            if pattern.type.dtype == REAL:
                types.add(target.type.dtype)
        pairs = [(node.outputs[0], target) for node, target in self.data.items()]
        for node, other in self.nodes.items():
            pairs += zip(node.outputs, other.outputs, strict=True)
        for pattern, target in pairs:
            if not self.is_of_sort(pattern, target):
                return None
            if pattern.type.dtype == REAL:
                types.add(target.type.dtype)
        return next(iter(types), "FLOAT") if len(types) <= 1 else None

    def sequence(
        self, patterns: tuple[Value, ...], targets: tuple[Value, ...], start: int
    ) -> Iterator[None]:
        """Match values one after the other."""
        if start == len(patterns):
            yield
            return
        for _ in self.value(patterns[start], targets[start]):
            yield from self.sequence(patterns, targets, start + 1)

    def finish(self, roots: tuple[Value, ...]) -> Match | NoMatch:
        """The match, if the sizes fit and everything that the rule asks for holds."""
        dtype = self.element_type()
        if dtype is None:
            return _OTHER_TYPES
        equations: list[Equation] = []
        reals: dict[str, Fraction] = {}
        if not self.instance.broadcast:
            for pattern, target in self.leaves.items():
                equations.extend(zip(pattern.shape, target.shape, strict=True))
        for node, other in self.nodes.items():
            for name, attribute in node.attributes.items():
                given = other.attributes[name]
                if not attribute_equations(
                    attribute, given, other.types[0].dtype, equations, reals
                ):
                    return NoMatch("{} of {} is {} and not {}", (name, node.op, given, attribute))
        for node, target in self.data.items():
            if not self.observe(node, target, equations, reals):
                return NoMatch("{} is no constant that {} can be", (target, node.outputs[0]))
        sizes = solve(equations)
        if sizes is None:
            return NoMatch("its sizes do not fit: no single one makes all of {}", (equations,))
        match = Match(
            roots,
            {leaf_name(pattern): value for pattern, value in self.leaves.items()},
            sizes,
            reals,
            frozenset(self.nodes.values()),
            dtype,
            dict(self.operators),
        )
        return self.fault(match) or match

    def observe(
        self, node: Node, target: Value, equations: list[Equation], reals: dict[str, Fraction]
    ) -> bool:
        """Take from a constant of the graph what it says about the symbols of `node`."""
        shape = node.types[0].shape
        if shape:  # a constant of shape [] may stand for any uniform one
            if len(shape) != len(target.shape):
                return False
            equations.extend(zip(shape, target.shape, strict=True))
        array = self.constants(target)
        for attribute in node.attributes.values():
            if isinstance(attribute, RealSymbol):
                if array is None or array.size == 0 or not np.isfinite(array.flat[0]):
                    return False
                value = as_fraction(array.flat[0])
                if reals.setdefault(attribute.name, value) != value:
                    return False
        assert isinstance(node.op, Operator)
        observed = None if array is None else node.op.observed(array)
        if observed is None:
            return False
        return all(
            attribute_equations(node.attributes[name], value, target.type.dtype, equations, reals)
            for name, value in observed.items()
        )

    def fault(self, match: Match) -> NoMatch | None:
        """What is not as the rule says: conditions, requirements, interior shapes, constants."""
        try:
            for condition in (*self.instance.where, *self.instance.requirements):
                if not follows_at(condition, match.sizes, self.demanded()):
                    return NoMatch("it is not known whether {}, with {}", (condition, match.sizes))
            for node, other in () if self.instance.broadcast else self.nodes.items():
                for mine, theirs in zip(node.types, other.types, strict=True):
                    # A uniform constant of a larger shape has enlarged something.
                    if not same_shape(mine.shape, theirs.shape, match.sizes):
                        return NoMatch("{} gives {} and not {}", (other.op, theirs, mine))
            for fact in self.instance.facts:
                if not self.is_fact(fact, match):
                    return NoMatch("it is not shown that {}", (fact,))
            for node, target in self.data.items():
                if not self.same_data(node, target, match):
                    return NoMatch("{} does not hold what {} is", (target, node.outputs[0]))
        except (ZeroDivisionError, ShapeError) as error:
            return NoMatch("a size is none: {}", (error,))
        return None

    def demanded(self) -> Iterable[Constraint]:
        """What is known of sizes since the nodes of the match are in the graph."""
        return demands(self.nodes.values())

    def is_fact(self, fact: Fact, match: Match) -> bool:
        """Whether a condition on values holds of what is matched.

        Those that ask for numbers alone are left to who applies the rule, unless data tells: they
        hold wherever all is a number, see `xflow.rewriting.admission`.
        """
        if fact.name in match.reals:
            return fact.holds(match.reals[fact.name])
        value, *less = (match.bindings.get(name) for name in fact.names)
        arrays = [
            None if each is None or not each.is_constant else self.constants(each)
            for each in (value, *less)
        ]
        known = [array for array in arrays if array is not None]
        if len(known) == len(arrays):
            return fact.holds(*known)
        return is_told(fact, value) or fact.relation in NEEDS

    def same_data(self, node: Node, target: Value, match: Match) -> bool:
        """Whether a constant of the graph holds what the constant expression `node` is."""
        array = self.constants(target)
        assert array is not None
        with np.errstate(all="ignore"):
            outputs = computed(node, match)
            if outputs is None:
                return False
            expected = outputs[0].astype(array.dtype)
            if array.dtype.kind in "biu" and not is_exact(outputs[0], expected):
                return False
            return bool(np.all(array == expected))


def is_told(fact: Fact, value: Value | None) -> bool:
    """Whether the leaf of a region says that its sums are exact, which only data can tell."""
    op = None if value is None else value.node.op
    return fact.relation == EXACT_SUMS and isinstance(op, Leaf) and op.exact_sums


def may_match(pattern: Value, target: Value) -> bool:
    """A quick test that rejects most values that a pattern does not match: by operators alone.

    Nothing is bound, so that it takes a tenth of the time that matching takes.
    """
    node, other = pattern.node, target.node
    if isinstance(node.op, Leaf):
        return True
    if node.constant and len(node.types) == 1 and node.op is not other.op:
        return other.constant
    if (
        pattern.index != target.index
        or not fits(node, other)
        or len(node.inputs) != len(other.inputs)
    ):
        return False
    if len(other.inputs) > 1 and (node.is_schematic or _is_turned(other)):
        return all(
            any(may_match(value, source) for source in other.inputs) for value in node.inputs
        )
    return all(map(may_match, node.inputs, other.inputs))


def fits(pattern: Node, other: Node) -> bool:
    """Whether a node has the operator of the pattern, or one for which that stands."""
    if pattern.op is other.op:
        return True
    op = pattern.op
    if not (isinstance(op, Operator) and op.schematic):
        return False
    return op.stands_for(other.op, other.attributes, other.types[0].dtype)


def computed(node: Node, match: Match) -> list[Array] | None:
    """The outputs of a constant expression of a pattern; None where a symbol has no value."""
    attributes: dict[str, Attribute] = {}
    for name, attribute in node.attributes.items():
        value = instantiate(attribute, match.sizes, match.reals)
        if value is None:
            return None
        attributes[name] = value
    inputs: list[Array] = []
    for source in node.inputs:
        made = computed(source.node, match)
        if made is None:
            return None
        inputs.append(made[source.index])
    assert isinstance(node.op, Operator)
    return node.op.numpy(inputs, attributes)


def stand_ins(node: Node) -> tuple[StandIn, ...]:
    """What a schematic operator may stand for at a node."""
    assert isinstance(node.op, Operator)
    found = StandIn(node.op, node.attributes)
    if len(node.inputs) != 2 or node.op.commutative:
        return (found,)
    return found, replace(found, turned=True)


def _is_turned(node: Node) -> bool:
    """Whether the inputs of a node are matched in any order."""
    assert isinstance(node.op, Operator)
    return node.op.commutative and 2 <= len(node.inputs) <= MAX_PERMUTED


def _orders(node: Node) -> Iterable[tuple[Value, ...]]:
    if _is_turned(node):
        return dict.fromkeys(itertools.permutations(node.inputs))
    return (node.inputs,)
