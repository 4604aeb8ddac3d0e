"""The rules by where they can apply: what the search asks first of each node."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from threading import Lock
from typing import NamedTuple, TypeAlias

from xflow.core.graph import Graph, walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.pause_gc import without_collector
from xflow.core.registry import Operator, Shape
from xflow.ops.schematic import standing_for
from xflow.rewriting.cancellation import hazard_of
from xflow.rewriting.instance import Instance
from xflow.rewriting.numerics import EVERYWHERE, NARROW, Hazard
from xflow.rewriting.rule import BITS, Rule

VIEWED = 2
"""Operators one above the other that a view of a node shows, see `xflow.search.steps`."""


class Entry(NamedTuple):
    """A direction of a rule at one rank, as the index has it."""

    name: str
    instance: Instance
    refused: frozenset[str]
    """The element types in which it loses too many digits, see `xflow.rewriting.numerics`."""
    refused_normwise: frozenset[str]
    """Those in which it does so where errors are measured by the largest elements of a tensor."""
    needs: tuple[frozenset[Operator], frozenset[Operator]]
    """The operators that the root must read, and those that these must read."""
    grows: bool
    """Whether it adds operators to the elementwise ones that it finds, unless some of its inputs
    are constants."""
    deep: bool
    """Whether its left side reaches further than a `View` shows."""
    expands: bool
    """Whether it may put several elementwise operators in the place of one. That is done only where
    that alone gains, since the runtime has a slow kernel for the one."""
    cancels: Hazard
    """Where it may lose digits, see `xflow.rewriting.cancellation`."""
    roots: Counter[Operator]
    """The operators that must be there for its outputs."""
    renames: bool
    """Whether it puts elementwise operators in the place of others, one for one. There is such a
    place at nearly every operator, and most detours over another name lead nowhere: it is done only
    where that gains, or another step right behind it does."""
    moves: int
    """1 where operators that move elements go from before any elementwise operator to behind it, -1
    where they go the other way, else 0."""


Index: TypeAlias = dict[tuple[Operator, int | None], list[Entry]]
"""By root operator and the number of axes of its output, None where it may be any."""


class RuleIndex:
    """Rules by the operator at the root of their left side.

    Left out: sides that are a mere input, since they match everywhere, instances whose right side
    needs inputs, or several sizes, that the left side does not have, directions that rounding
    forbids everywhere, and elementwise rules that only add operators: there are many of these, they
    apply everywhere, and what they lead to is cheaper to reach by rules that move operators without
    adding any. Two kinds of them are taken: those that add operators on constants alone (``x / c``
    is ``x * (1 / c)``), and those that spell out one operator, see `Entry.expands`. Left out are
    also those that stack the operands of one elementwise operator to reduce the stack: there is
    such a place at every sum; and those that bring in an operator which the runtime spells out.

    Rules are read when a graph has the operator at their root, and at a rank when it gives that
    many axes there: most models have few of all. Those that do not suit are left out, too.
    """

    def __init__(
        self, rules: Iterable[Rule], suits: Callable[[Instance], bool] = lambda instance: True
    ) -> None:
        self._suits = suits
        self._rules = tuple(rules)
        self._lock = Lock()
        self._begin()
        self.roots = frozenset(self._waiting)
        """The names of the operators at the roots of the rules."""

    @without_collector
    def _begin(self) -> None:
        """Forget what was read."""
        self._waiting: dict[str, list[Rule]] = {}
        """The rules by the name of the operator at the root, until it is asked for."""
        self._at_ranks: dict[tuple[str, int], list[tuple[Rule, int]]] = {}
        """Rules and ranks by the root and how many axes it gives at that rank, likewise."""
        self._single: Index = {}
        self._several: Index = {}
        for rule in self._rules:
            for direction in rule.directions() if rule.is_searched else ():
                if direction.root is not None:
                    self._waiting.setdefault(direction.root, []).append(direction)

    def single(self, op: Operator, rank: int) -> Iterator[Entry]:
        """The rules of a single output that `op` gives, with `rank` axes."""
        return self._at(self._single, op, rank)

    def several(self, op: Operator, rank: int) -> Iterator[Entry]:
        """The rules of several outputs whose first one `op` gives, with `rank` axes."""
        return self._at(self._several, op, rank)

    def read(self, graph: Graph) -> None:
        """Read the rules with an operator of `graph` at their root."""
        self.read_at(roots_of(graph))

    @without_collector
    def read_at(self, roots: Iterable[tuple[str, int]]) -> None:
        """Read the rules with one of these at their root, see `roots_of`."""
        for name, rank in roots:
            self._read(name, rank)

    def _read(self, name: str, rank: int) -> None:
        at_rank = name, rank
        if name not in self._waiting and at_rank not in self._at_ranks:
            return
        with self._lock:  # nobody is to find an index in which some of the rules are missing
            try:
                for direction in self._waiting.get(name, ()):
                    if not _refused_anyway(direction):
                        self._sort(direction)
                self._waiting.pop(name, None)
                for direction, at in self._at_ranks.get(at_rank, ()):
                    self._add(direction, at)
                self._at_ranks.pop(at_rank, None)
            except BaseException:  # a wrong rule, or an interruption: other searches go on with it
                self._begin()
                raise

    def _at(self, index: Index, op: Operator, rank: int) -> Iterator[Entry]:
        for each in (op, *standing_for(op)):
            self._read(each.name, rank)
            yield from index.get((each, rank), ())
            yield from index.get((each, None), ())

    def _sort(self, rule: Rule) -> None:
        """Note at which ranks of its root a rule is to be read.

        Each vector in the shape of the root has as many elements as the rule's rank, so two ranks
        tell all.
        """
        assert rule.root is not None
        first, *others = rule.usable_ranks
        shape = self._add(rule, first)
        if shape is None or not others:
            return
        axes = len(shape)
        slope = (len(rule.instance(others[0]).lhs[0].shape) - axes) // (others[0] - first)
        for rank in others:
            waiting = self._at_ranks.setdefault((rule.root, axes + slope * (rank - first)), [])
            waiting.append((rule, rank))

    def _add(self, rule: Rule, at: int) -> Shape | None:
        """Index a rule at one rank; returns the shape of its root, None where that may be any."""
        instance = rule.instance(at)
        shape = None if instance.broadcast else instance.lhs[0].shape
        entry = _entry(rule, at)
        if entry is not None and self._suits(instance):
            root = instance.lhs[0].node.op
            assert isinstance(root, Operator)
            index = self._single if len(instance.lhs) == 1 else self._several
            index.setdefault((root, None if shape is None else len(shape)), []).append(entry)
        return shape

    def __bool__(self) -> bool:
        return bool(self.roots)


def roots_of(graph: Graph) -> list[tuple[str, int]]:
    """The names of the operators of `graph`, and those that stand for them, with their ranks."""
    return list(
        dict.fromkeys(
            (op.name, len(kind.shape))
            for node in graph.nodes
            if isinstance(node.op, Operator) and not node.constant
            for op, kind in itertools.product((node.op, *standing_for(node.op)), node.types)
        )
    )


@cache
def _entry(rule: Rule, rank: int) -> Entry | None:
    """A direction at one rank; None where it is left out, see `RuleIndex`."""
    instance = rule.instance(rank)
    root = instance.lhs[0].node
    usable = instance.is_determined or instance.is_fillable
    if not isinstance(root.op, Operator) or not usable:
        return None
    left, right = _operators(instance.lhs_nodes), _operators(instance.rhs_nodes)
    refused = refused_types(rule, instance)
    refused_normwise = refused_types(rule, instance, normwise=True)
    if refused_normwise >= EVERYWHERE:
        return None
    pointwise = _is_pointwise(left, right)
    grows = pointwise and len(right) > len(left)
    expands = grows and len(left) == 1
    if grows and not expands and not _may_stay(instance):
        return None
    if len(left) == 1 and left[0].elementwise and any(op.name == "Concat" for op in right):
        return None
    if any(op.is_spelled_out for op in right) and not any(op.is_spelled_out for op in left):
        return None
    read = below([root])
    roots = {value.node for value in instance.lhs}
    return Entry(
        rule.name,
        instance,
        refused,
        refused_normwise,
        (operators_of(read), operators_of(below(read))),
        grows,
        _depth(instance.lhs_nodes, instance.lhs) > VIEWED,
        expands,
        hazard_of(rule),
        Counter(op for node in roots for op in operators_of([node])),
        pointwise and len(right) == len(left) and Counter(left) != Counter(right),
        int(root.is_schematic) - int(instance.rhs[0].node.is_schematic),
    )


@lru_cache(maxsize=4)
def index_of(rules: tuple[Rule, ...]) -> RuleIndex:
    """The index of these rules, which all searches of a process share: to read them takes long."""
    return RuleIndex(rules)


def _refused_anyway(rule: Rule) -> bool:
    """Whether rounding forbids a direction in all element types, however errors are measured."""
    return rule.numerics is not None and rule.numerics.refused_by(normwise=True) >= EVERYWHERE


def refused_types(rule: Rule, instance: Instance, *, normwise: bool = False) -> frozenset[str]:
    """ONNX names of the element types in which rounding forbids a rule from left to right.

    Errors are measured by each element, or `normwise`, by the largest ones of a tensor. Refused is
    what its `numerics` line refuses, and narrow types where it `narrows`; and all where it
    speaks of any operator and is not equal to the bit, since its errors depend on which that is.
    """
    if rule.exact != BITS and instance.is_schematic:
        return EVERYWHERE
    numerics = rule.numerics
    refused = numerics.refused_by(normwise=normwise) if numerics else frozenset[str]()
    return refused | NARROW if narrows(instance) else refused


def adds_operators(instance: Instance) -> bool:
    """Whether it puts more elementwise operators in the place of elementwise ones."""
    left, right = _operators(instance.lhs_nodes), _operators(instance.rhs_nodes)
    return len(right) > len(left) and _is_pointwise(left, right)


def _is_pointwise(left: Iterable[Operator], right: Iterable[Operator]) -> bool:
    return all(op.elementwise for op in (*left, *right))


def narrows(instance: Instance) -> bool:
    """Whether it brings in an operator whose kernel overflows before what it replaces, in fp16."""
    return _narrows(_operators(instance.lhs_nodes), _operators(instance.rhs_nodes))


def _narrows(left: Iterable[Operator], right: Iterable[Operator]) -> bool:
    return any(op.narrow for op in right) and not any(op.narrow for op in left)


def _depth(nodes: Iterable[Node], values: Iterable[Value]) -> int:
    """The most operators on a way down from `values` through `nodes`; constants are none."""
    depths: dict[Node, int] = {}
    for node in nodes:
        inner = max((depths[value.node] for value in node.inputs), default=0)
        depths[node] = 0 if node.constant or isinstance(node.op, Leaf) else inner + 1
    return max((depths[value.node] for value in values), default=0)


def _may_stay(instance: Instance) -> bool:
    """Whether it adds no operators if all inputs but one are constants."""
    leaves = [node for node in walk(instance.lhs) if isinstance(node.op, Leaf)]
    return any(
        len(_readers(instance.rhs, leaf)) <= len(_readers(instance.lhs, leaf)) for leaf in leaves
    )


def below(nodes: Iterable[Node]) -> list[Node]:
    """What `nodes` read, constants aside: these may have been computed before."""
    return [value.node for node in nodes for value in node.inputs if not value.is_constant]


def operators_of(nodes: Iterable[Node]) -> frozenset[Operator]:
    """The operators of nodes, but for those that stand for others."""
    found = (node.op for node in nodes)
    return frozenset(op for op in found if isinstance(op, Operator) and not op.schematic)


def _readers(values: Iterable[Value], source: Node) -> set[Node]:
    """The operators under `values` whose results depend on `source`."""
    found = {source}
    for node in walk(values):
        if any(value.node in found for value in node.inputs):
            found.add(node)
    return found - {source}


def _operators(nodes: Iterable[Node]) -> list[Operator]:
    """The operators of one side of a rule, those left out that depend on constants alone."""
    return [node.op for node in nodes if isinstance(node.op, Operator) and not node.constant]
