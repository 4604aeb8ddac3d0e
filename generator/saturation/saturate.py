"""Equality saturation: applies all rules to terms, step by step, in one e-graph.

In a step every rule, from either side and at every rank (see `directions`), is matched against all
classes, and only then are all matches applied. A rule is applied where `xflow.rewriting.match` says
that it holds: its conditions and the requirements of both its sides are decided by the sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import islice, product
from math import prod

from xflow.core.constraint import Constraint
from xflow.core.errors import ShapeError
from xflow.core.evaluation import read
from xflow.core.fold import no_constants
from xflow.core.graph import Graph, walk
from xflow.core.node import Leaf, Node, TensorType, Value, apply
from xflow.core.registry import Operator, is_concrete
from xflow.core.size import Size, free_symbols, symbol
from xflow.core.spec import evaluate
from xflow.core.value_conditions import NEEDS, Fact
from xflow.generator.saturation.directions import Database, Direction
from xflow.generator.saturation.egraph import Applied, Computed, EGraph, says_its_type
from xflow.ops import operator
from xflow.ops.schematic import standing_for
from xflow.rewriting.instance import Instance, leaves_of
from xflow.rewriting.match import Match, Matcher, NoMatch, StandIn
from xflow.rewriting.rewrite import build

MAX_NODES = 10_000
"""Nodes of an e-graph at which it is not grown any further."""

MAX_MATCHES = 100_000
"""Matches in one step at which no more are looked for."""

MAX_ELEMENTS = 1_000
"""Elements of a constant up to which it is computed, and compared with others."""

MAX_EXPONENT = 64
MAX_NUMBER = 2**100
"""Bounds of computed numbers: larger exponents take long, and no type has larger numbers."""


@lru_cache(maxsize=10_000)
def _nodes(values: tuple[Value, ...]) -> tuple[Node, ...]:
    """The nodes under a side of a rule, inputs first."""
    return tuple(walk(values))


@lru_cache(maxsize=10_000)
def _extents(value: Value) -> tuple[str | Size | None, ...]:
    """Of each axis the extent: a number, the name of a symbol, or None for other expressions."""

    def simple(size: Size) -> str | Size | None:
        names = free_symbols(size)
        name = next(iter(names)) if len(names) == 1 else ""
        return size if not names else name if size == symbol(name or "_") else None

    return tuple(map(simple, value.shape))


@dataclass(frozen=True, eq=False)
class _Place:
    """Where a rule's left side is found: what its inputs and nodes stand for."""

    direction: Direction
    instance: Instance
    roots: tuple[Value, ...]
    leaves: dict[Value, Value]
    nodes: dict[Node, Node]
    operators: dict[Operator, StandIn]


class _EMatcher(Matcher):
    """Matches against the classes of an e-graph: a value may be any of those that equal it."""

    def __init__(self, instance: Instance, search: Saturation, place: _Place | None = None):
        super().__init__(instance, _NOTHING, no_constants)
        self.egraph = search.egraph
        self.search = search
        self.extents: dict[str, Size] = {}
        """The symbols that are an extent of an input."""
        if place is not None:
            self.leaves, self.nodes = place.leaves, place.nodes
            self.operators = place.operators

    def value(self, pattern: Value, target: Value) -> Iterator[None]:
        target = self.egraph.canonical(target)
        op, bound = pattern.node.op, self.nodes.get(pattern.node)
        if not isinstance(op, Operator):
            yield from self.leaf(pattern, target)
        elif bound is not None:
            if self.egraph.canonical(bound.outputs[pattern.index]) is target:
                yield
        else:
            for each in [*self.egraph.operators(target)] if op.schematic else (op,):
                for member in self.egraph.members(target, each):
                    yield from super().value(pattern, member)

    def leaf(self, pattern: Value, target: Value) -> Iterator[None]:
        """As in any graph, but at once without those whose extents do not fit those before."""
        if self.instance.broadcast or pattern in self.leaves:
            yield from super().leaf(pattern, target)
            return
        new: list[str] = []
        for name, extent in zip(_extents(pattern), target.shape, strict=False):
            known = self.extents.get(name, name) if isinstance(name, str) else name
            if isinstance(known, str):
                self.extents[known] = extent
                new.append(known)
            elif known is not None and known != extent:
                break
        else:
            yield from super().leaf(pattern, target)
        for name in new:
            del self.extents[name]

    def candidates(self, pattern: Value) -> list[Value]:
        if any(value in self.leaves for value in leaves_of([pattern])):
            return self.reached(pattern)
        return self.search.outputs

    def users(self, value: Value) -> Iterable[Node]:
        return self.egraph.users(value)

    def same(self, value: Value) -> Value:
        return self.egraph.canonical(value)

    def demanded(self) -> Iterable[Constraint]:
        """Nothing: rules are derived for all sizes."""
        return ()

    def is_fact(self, fact: Fact, match: Match) -> bool:
        if fact.name in match.reals:
            return fact.holds(match.reals[fact.name])
        return self.search.is_fact(fact, match.bindings[fact.name])


_NOTHING = Graph(())


def _is_number(term: Value) -> bool:
    return isinstance(term.node.op, Operator) and term.node.op.name == "Scalar"


def _elements(term: Value) -> tuple[Fraction, ...] | None:
    """The elements of a term without leaves; None where they are too many, or not rational."""
    extents = [size for size in term.shape if isinstance(size, int)]
    if len(extents) < len(term.shape) or prod(extents) > MAX_ELEMENTS:
        return None
    made: list[Fraction] = []
    for index in product(*map(range, extents)):
        try:
            element = evaluate(read(term, index), {}, {})
        except (ArithmeticError, ValueError, ShapeError):
            return None
        if isinstance(element, bool) or not isinstance(element, Fraction | int):
            return None
        made.append(Fraction(element))
    return tuple(made)


class Saturation:
    """An e-graph that grows by rules.

    Rules of several outputs that have no input in common are tried on the given `outputs` alone,
    since they match any two values. `facts` are known of leaves. With `folds`, tensors that are
    made of constants alone are equal where their elements are.
    """

    def __init__(
        self,
        database: Database,
        outputs: Sequence[Value],
        facts: Iterable[tuple[Value, Fact]] = (),
        max_nodes: int = MAX_NODES,
        *,
        folds: bool = False,
    ):
        self.egraph = EGraph()
        self.database = database
        self.max_nodes = max_nodes
        self.folds = folds
        self._elements: dict[Value, tuple[Fraction, ...] | None] = {}
        """Of terms of constants; None where they are too many, or not rational."""
        self._outputs = tuple(outputs)
        self._seen: set[object] = set()
        self.is_full = False
        """Whether a step ended early because the limit was reached."""
        self.is_finished = False
        """Whether no further step is to be made: it would change nothing, or it is full."""
        for value in outputs:
            self.egraph.add(value)
        self.egraph.rebuild()
        self._facts = [(leaf, fact) for leaf, fact in facts if leaf in self.egraph]
        self._compute()

    def has_met(self, pairs: Iterable[tuple[Value, Value]]) -> bool:
        """Whether the values of each pair are known to be equal."""
        return all(self.egraph.are_equal(left, right) for left, right in pairs)

    @property
    def outputs(self) -> list[Value]:
        """The classes of the given outputs."""
        return list(dict.fromkeys(map(self.egraph.canonical, self._outputs)))

    def is_fact(self, fact: Fact, value: Value) -> bool:
        """Whether all elements of a class are known to satisfy a condition.

        They are assumed to be numbers here, since an equation of numbers is derived.
        """
        if fact.relation in NEEDS:
            return True
        known = (f for leaf, f in self._facts if self.egraph.canonical(leaf) is value)
        if any(replace(f, name=fact.name).implies(fact) for f in known):
            return True
        number = self._number(value)
        return number is not None and fact.holds(number)

    def _number(self, value: Value) -> Fraction | None:
        """The real number that a class is known to be."""
        scalars = self.egraph.members(self.egraph.canonical(value), operator("Scalar"))
        numbers = (scalar.node.attributes["value"] for scalar in scalars)
        return next((number for number in numbers if isinstance(number, Fraction)), None)

    def _compute(self) -> None:
        """Find the numbers that operators on numbers give, where these are rational."""
        for value in list(self.egraph.classes()):
            known = self.egraph.canonical(value) is not value or self._number(value) is not None
            if known or value.type != TensorType("FLOAT", ()):
                continue
            operators = list(self.egraph.operators(value))
            members = [member for op in operators for member in self.egraph.members(value, op)]
            any(map(self._compute_node, members))  # one is enough
        self.egraph.rebuild()
        if self.folds:
            self._fold()

    def _fold(self) -> None:
        """Unite the classes of constants that have the same elements."""
        egraph = self.egraph
        constants: dict[Value, Value] = {}
        """For a class a term of constants alone that it contains."""
        alike: dict[object, list[Value]] = {}
        """Such terms by their type and elements."""
        pending = [value for value in egraph.classes() if value.type.dtype == "FLOAT"]
        while True:
            rest = []
            for value in pending:
                term = self._constant_term(value, constants)
                if term is None:
                    rest.append(value)
                    continue
                constants[value] = term
                elements = self._elements_of(term)
                if elements is not None:
                    alike.setdefault((value.type, elements), []).append(term)
            if len(rest) == len(pending) or all(map(_is_number, constants.values())):
                break
            pending = rest
        for first, *others in alike.values():
            for other in others:
                egraph.union(egraph.add(other), egraph.add(first), Computed())
        egraph.rebuild()

    def _constant_term(self, value: Value, known: Mapping[Value, Value]) -> Value | None:
        """A member of a class whose inputs are in classes of `known` constants, made of these."""
        egraph = self.egraph
        for op in egraph.operators(value):
            if not isinstance(op, Operator) or op.schematic:
                continue
            for member in egraph.members(value, op):
                node = member.node
                sources = [known.get(egraph.canonical(source)) for source in node.inputs]
                terms = [term for term in sources if term is not None]
                if len(terms) == len(sources):
                    return apply(op, terms, node.attributes, dtype="FLOAT")[member.index]
        return None

    def _elements_of(self, term: Value) -> tuple[Fraction, ...] | None:
        """The elements of a term of constants, exactly."""
        if term not in self._elements:
            self._elements[term] = _elements(term)
        return self._elements[term]

    def _compute_node(self, value: Value) -> bool:
        """Find the number that a node gives for numbers; False if there is none."""
        node = value.node
        numbers = [self._number(source) for source in node.inputs]
        if not isinstance(node.op, Operator) or not numbers or None in numbers:
            return False
        if node.op.name == "Pow" and any(n is None or abs(n) > MAX_EXPONENT for n in numbers):
            return False
        try:
            scalars = [
                apply("Scalar", (), {"value": n}, dtype=source.type.dtype)[0]
                for n, source in zip(numbers, node.inputs, strict=True)
                if n is not None
            ]
            term = apply(node.op, scalars, node.attributes, dtype="FLOAT")[value.index]
            result = evaluate(read(term, ()), {}, {})
        except (ArithmeticError, ValueError, ShapeError):
            return False
        if not isinstance(result, Fraction) or abs(result) > MAX_NUMBER:
            return False
        number = apply("Scalar", (), {"value": result}, dtype="FLOAT")[0]
        self.egraph.union(self.egraph.add(term), self.egraph.add(number), Computed())
        return True

    def step(self) -> None:
        """Match all rules, then apply all matches."""
        if self.is_finished:
            return
        found = list(islice(self._matches(), MAX_MATCHES))
        self.is_full = len(found) == MAX_MATCHES
        found.sort(key=lambda item: item.direction.growth)
        self.is_finished = True
        for place in found:
            if len(self.egraph) >= self.max_nodes:
                self.is_full = True
                break
            if self._apply(place):
                self.is_finished = False
                self.egraph.rebuild()  # at once, so that later matches are recognised as known
        self.egraph.rebuild()
        self._compute()
        self.is_finished |= self.is_full

    def _matches(self) -> Iterator[_Place]:
        """The structural matches that were not met before, each once."""
        egraph = self.egraph
        heights = self._heights()
        places: dict[object, list[tuple[Value, int]]] = {}
        everything = [(value, heights.get(value, 99)) for value in egraph.classes()]
        for value, height in everything:
            found = {
                each: None
                for op in egraph.operators(value)
                for each in (op, *(standing_for(op) if isinstance(op, Operator) else ()))
            }
            for op in found:
                places.setdefault(op, []).append((value, height))
        for direction in self.database.directions:
            if not all(op in places for op in direction.operators):
                continue
            is_leaf = not isinstance(direction.root, Operator)
            targets = everything if is_leaf else places.get(direction.root, [])
            if direction.is_disconnected:
                outputs = frozenset(map(id, self.outputs))
                targets = [item for item in targets if id(item[0]) in outputs]
            elif direction.outputs == 1:
                targets = [item for item in targets if item[1] <= direction.depth]
            if targets:
                for instance in direction.instances:
                    yield from self._matches_of(direction, instance, targets)

    def _matches_of(
        self, direction: Direction, instance: Instance, targets: list[tuple[Value, int]]
    ) -> Iterator[_Place]:
        pattern = instance.lhs[0]
        rank = None if instance.broadcast else len(pattern.shape)
        for target, _ in targets:
            if rank is not None and len(target.shape) != rank:
                continue
            matcher = _EMatcher(instance, self)
            for roots in matcher.outputs((), target):
                parts = (*roots, *matcher.leaves.values(), *matcher.nodes.values())
                key = (id(instance), *map(id, parts))
                if key in self._seen:
                    continue
                self._seen.add(key)
                if not self._is_known(instance, roots, matcher.leaves):
                    leaves, nodes = dict(matcher.leaves), dict(matcher.nodes)
                    operators = dict(matcher.operators)
                    yield _Place(direction, instance, roots, leaves, nodes, operators)

    def _is_known(
        self, instance: Instance, roots: tuple[Value, ...], leaves: Mapping[Value, Value]
    ) -> bool:
        """Whether the right side is there and equal already; False where that is hard to see."""
        found = dict(leaves)
        for node in _nodes(instance.rhs):
            if isinstance(node.op, Leaf):
                continue
            if not (is_concrete(node.attributes) and says_its_type(node)) or node.is_schematic:
                return False
            other = self.egraph.find(node, [found[source] for source in node.inputs])
            if other is None:
                return False
            found.update(zip(node.outputs, other.outputs, strict=True))
        return all(
            self.egraph.are_equal(found[value], root)
            for value, root in zip(instance.rhs, roots, strict=True)
        )

    def _heights(self) -> dict[Value, int]:
        """How far below each class the next one lies that is new or has grown."""
        heights: dict[Value, int] = {}
        layer = self.egraph.take_touched()
        for height in range(1, 1 + max((d.depth for d in self.database.directions), default=0)):
            heights.update((value, height) for value in layer)
            above = (
                self.egraph.canonical(output)
                for value in layer
                for user in self.egraph.users(value)
                for output in user.outputs
            )
            layer = [value for value in dict.fromkeys(above) if value not in heights]
        return heights

    def _apply(self, place: _Place) -> bool:
        """Apply a rule where it matches; whether that made a difference."""
        instance = place.instance
        if self._is_known(instance, place.roots, place.leaves):
            return False
        match = _EMatcher(instance, self, place).finish(place.roots)
        if isinstance(match, NoMatch):
            return False
        after = build(instance.rhs, match, _nodes(instance.rhs))
        if isinstance(after, NoMatch):
            return False
        egraph = self.egraph
        pairs = list(zip(match.roots, after.values, strict=True))
        if any(old.type != new.type for old, new in pairs):
            return False
        for new in after.values:
            egraph.add(new)
        if all(egraph.are_equal(old, new) for old, new in pairs):
            return False
        before = build(instance.lhs, match, _nodes(instance.lhs))
        assert not isinstance(before, NoMatch), before.reason
        for old, new in zip(before.values, after.values, strict=True):
            egraph.add(old)
            egraph.union(old, new, Applied(place.direction.name))
        return True
