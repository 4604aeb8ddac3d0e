"""The vocabulary around a region: terms over its leaves by its own operators and their relatives.

Relatives are operators that known rules put in the place of the region's, and composite operators
whose definitions have no others. Attributes take the values that the region shows, and what these
lead to: other axes, the inverse of a permutation, the shapes of other values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations, permutations, product
from math import prod

from xflow.core.graph import Graph
from xflow.core.node import Node, Value
from xflow.core.registry import Attribute, Kind, Operator
from xflow.core.sorts import BOOL, CODE, ELEMENT, INT
from xflow.generator.learning.numbers import composites, operators_of
from xflow.generator.learning.sizes import WEIGHTS, inputs_of
from xflow.generator.learning.terms import extents
from xflow.generator.production import Production
from xflow.generator.vocabulary import Vocabulary
from xflow.ops import operator
from xflow.ops.schematic import standing_for
from xflow.rewriting.rule import Rule

RELATIVES = 6
"""Operators that a region does not have, of which terms are tried."""
MOST_CHOICES = 40
"""Choices of attributes of one operator."""
MOST_ARGUMENTS = 6
FREE = frozenset(WEIGHTS.values())
SORTS = {ELEMENT: "x", BOOL: "p", INT: "i"}


@dataclass
class Relations:
    """Which operators known rules put in the place of which."""

    sides: list[tuple[frozenset[str], frozenset[str]]] = field(default_factory=list)

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> Relations:
        """Those of some rules, in both directions."""
        made = cls()
        for rule in rules:
            instance = rule.instance(max(rule.ranks))
            left, right = (operators_of(side) for side in (instance.lhs, instance.rhs))
            made.sides += [(left, right), (right, left)]
        return made

    def relatives(self, names: frozenset[str]) -> tuple[str, ...]:
        """Operators that may take the place of these, the likeliest first.

        Composite operators that have no others in their definitions, and then those that known
        rules put there, the ones of most rules first.
        """
        wide = names | {each.name for name in names for each in standing_for(operator(name))}
        score: Counter[str] = Counter()
        for left, right in self.sides:
            if left and left <= wide:
                score.update(right - wide)
        ranked = sorted(score, key=lambda name: (-score[name], name))
        whole = [name for name, needed in composites() if needed <= names]
        found = dict.fromkeys((*whole, *ranked))
        own = [
            name
            for name in found
            if name not in names and not operator(name).schematic and not operator(name).domain
        ]
        return tuple(own[:RELATIVES])


@dataclass(frozen=True)
class Surroundings:
    """Makes the vocabulary around one term at small sizes."""

    root: Value
    weights: frozenset[str]
    relatives: tuple[str, ...]
    """Operators that it does not have, of which terms are tried."""
    reals: Mapping[Fraction, str] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> list[Node]:
        """Its operators, those of its numbers aside."""
        nodes = Graph((self.root,)).nodes
        return [n for n in nodes if isinstance(n.op, Operator) and Graph(n.outputs).leaves]

    @cached_property
    def names(self) -> frozenset[str]:
        """Their names."""
        return operators_of((self.root,))

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of all values."""
        values = (value for node in Graph((self.root,)).nodes for value in node.outputs)
        return list(dict.fromkeys(extents(value) for value in values))

    @cached_property
    def fractions(self) -> list[Fraction]:
        """The real attributes in it, and the numbers that stand for any."""
        values = [v for node in Graph((self.root,)).nodes for v in node.attributes.values()]
        return list(dict.fromkeys(v for v in (*values, *self.reals) if isinstance(v, Fraction)))

    def vocabulary(self, limits: tuple[int, ...]) -> Vocabulary:
        """Terms of these limits; see `Vocabulary.limits`."""
        return Vocabulary(
            "around a region",
            inputs_of(self.root, self.weights),
            self._productions,
            limits,
            free=FREE,
            exact=False,
            roots=frozenset({"p" if self.root.type.dtype == "BOOL" else "x"}),
            reals=dict(self.reals),
            by_example=True,
        )

    @cached_property
    def _productions(self) -> tuple[Production, ...]:
        ops = map(operator, (*sorted(self.names), *self.relatives))
        applied = (
            production
            for op in ops
            if CODE not in op.takes
            for production in self._applied(op, tuple(self._choices(op)))
        )
        return (*applied, *self._views(), *self._constants())

    def _applied(
        self, op: Operator, options: tuple[Mapping[str, Attribute], ...]
    ) -> Iterator[Production]:
        low, high = op.arity
        low = max(low, 2) if high is None else low  # of one input it changes nothing
        most = min(MOST_ARGUMENTS, high if high is not None else max(self._arity(op), 2))
        for count in range(max(1, low), most + 1):
            kinds = [SORTS[op.taken(position)] for position in range(count)]
            result = SORTS[op.gives[0]]
            every = (
                product(*((kind, WEIGHTS[kind]) for kind in kinds))
                if count <= 2
                else self._patterns(op, kinds)
            )
            for args in every:
                if not FREE.issuperset(args):
                    yield Production(op.name, tuple(args), result, options)
                elif _is_light(op):
                    yield Production(op.name, tuple(args), WEIGHTS[result], options)

    def _arity(self, op: Operator) -> int:
        return max((len(node.inputs) for node in self.nodes if node.op is op), default=0)

    def _patterns(self, op: Operator, kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """The sorts of many arguments: as in the region, all computed, or the first alone."""
        found: dict[tuple[str, ...], None] = {}
        for node in self.nodes:
            if node.op is op and len(node.inputs) == len(kinds):
                pairs = zip(kinds, node.inputs, strict=True)
                args = (WEIGHTS[kind] if self._is_weight(value) else kind for kind, value in pairs)
                found[tuple(args)] = None
        found[tuple(kinds)] = None
        found[(kinds[0], *(WEIGHTS[kind] for kind in kinds[1:]))] = None
        if len(kinds) > 3:
            found[(*kinds[:3], *(WEIGHTS[kind] for kind in kinds[3:]))] = None
        yield from found

    def _is_weight(self, value: Value) -> bool:
        return all(str(each) in self.weights for each in Graph((value,)).leaves)

    def _choices(self, op: Operator) -> Iterator[Mapping[str, Attribute]]:
        """The attributes with which an operator is tried, those in the region first."""
        shown = [dict(node.attributes) for node in self.nodes if node.op is op]
        found: list[Mapping[str, Attribute]] = []
        for given in (*shown, {}):
            options = [(name, self._values(op, name, given.get(name))) for name in op.attributes]
            names = [name for name, values in options if values]
            for values in product(*(values for _, values in options if values)):
                made = {n: v for n, v in zip(names, values, strict=True) if v is not None}
                if made not in found:
                    found.append(made)
                if len(found) >= MOST_CHOICES:
                    break
        yield from found[:MOST_CHOICES]

    def _values(self, op: Operator, name: str, given: Attribute | None) -> list[Attribute | None]:
        """The values of an attribute that are tried; None: its default."""
        spec = op.attributes[name]
        ranks = sorted({len(shape) for shape in self.shapes}, reverse=True)
        made: list[Attribute | None] = [given] if given is not None else []
        if spec.kind is Kind.INTS and name not in ("pads", "shape"):  # a stride of a pool, say
            made += [each.attributes[name] for each in self.nodes if name in each.attributes]
        if given is None and spec.default is not None:
            made.append(None)  # the default
        if spec.flag:
            made += [0, 1]
        elif spec.kind is Kind.PERMUTATION:
            if isinstance(given, tuple):
                inverse = tuple(given.index(axis) for axis in range(len(given)))
                made.append(inverse)
            made += [p for rank in ranks if 2 <= rank <= 4 for p in permutations(range(rank))]
        elif spec.kind is Kind.AXIS:
            made += list(range(max(ranks, default=0)))
        elif spec.kind is Kind.AXES:
            width = len(given) if isinstance(given, tuple) else 1
            most = max(ranks, default=0) + (1 if op.adds_axes else 0)
            for count in dict.fromkeys((width, 1, 2)):
                made += list(combinations(range(most), count))
        elif name == "shape":
            made += self.shapes
            made += [shape for shape in self._merged() if shape not in self.shapes]
        elif spec.kind is Kind.REAL:
            made += self.fractions
        result: list[Attribute | None] = []
        for value in made:
            if value not in result:
                result.append(value)
        return result

    def _merged(self) -> Iterator[tuple[int, ...]]:
        """Shapes with two neighbouring axes as one."""
        for shape in self.shapes:
            for axis in range(len(shape) - 1):
                yield (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])

    def _views(self) -> Iterator[Production]:
        """Weights with other extents of 1, and transposed."""
        ranks = {len(shape) for shape in self.shapes}
        shapes: dict[tuple[int, ...], None] = {}
        for leaf in Graph((self.root,)).leaves:
            if str(leaf) not in self.weights:
                continue
            plain = tuple(size for size in extents(leaf) if size != 1)
            shapes[plain or (1,)] = None
            for rank in sorted(ranks):
                for places in combinations(range(rank), len(plain)):
                    at = dict(zip(places, plain, strict=True))
                    shapes[tuple(at.get(axis, 1) for axis in range(rank))] = None
        if shapes:
            yield Production("Reshape", ("w",), "w", tuple({"shape": s} for s in shapes if prod(s)))
            if any(len(leaf.shape) == 2 for leaf in Graph((self.root,)).leaves):
                yield Production("Transpose", ("w",), "w", ({"perm": (1, 0)},))

    def _constants(self) -> Iterator[Production]:
        for node in Graph((self.root,)).nodes:
            if isinstance(node.op, Operator) and not node.inputs:
                value = node.attributes.get("value")
                if node.op.name != "Scalar" or value not in self.reals:
                    yield Production(node.op.name, (), "w", (dict(node.attributes),))
        if self.reals:
            yield Production("Scalar", (), "w", tuple({"value": value} for value in self.reals))


def _is_light(op: Operator) -> bool:
    """Whether it is applied to weights alone: no convolution of weights stands for another one."""
    return op.role not in ("attention", "convolution", "contraction") or op.name == "MatMul"
