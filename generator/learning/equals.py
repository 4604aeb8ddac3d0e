"""Terms that equal a region: enumerated around it, and compared by fingerprint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.core.registry import Operator
from xflow.generator.enumeration.enumerate import TooManyTermsError, enumerate_terms
from xflow.generator.enumeration.fingerprint import Evaluator
from xflow.generator.enumeration.level import Enumeration
from xflow.generator.learning.forms import FormCode
from xflow.generator.learning.regions import FEW_OPERATORS
from xflow.generator.learning.surroundings import Surroundings
from xflow.generator.runner.chunks import Chunk, Equated
from xflow.generator.runner.codec import encode

LIMITS = (((1, 1, 1, 1), (0, 0, 0, 0)), ((2, 2, 2), (1, 1, 1), (2, 2)))
"""Free operators in terms of 0, 1, 2 operators that cost; in each row the first feasible."""
LIMITS_OF_LARGE = (((1, 1, 1), (0, 0, 0), (1, 1)),)
"""The same around larger regions, which one or two operators may replace."""
MOST_WORK = 800_000
"""Of one enumeration, see `enumerate_terms`."""
MOST_BETTER, MOST_OTHERS = 3, 2
"""Terms that cost less than a region, and those that cost as much, of which rules are stated."""


@dataclass(frozen=True)
class Equal(Chunk[Equated]):
    """Enumerate terms around a form, and find those that equal it and cost no more."""

    kind: ClassVar[str] = "equals"
    form: FormCode
    relatives: tuple[str, ...]
    seed: int

    @property
    def about(self) -> str:
        return f"the region {self.form.form().root}"

    def run(self) -> Equated:
        form = self.form.form()
        around = Surroundings(form.root, form.weights, self.relatives, form.reals)
        found = equals(around, self.seed)
        return Equated(tuple(encode((each,)) for each in found))


def equals(around: Surroundings, seed: int) -> list[Value]:
    """Terms with the values of a region, at no more cost, that no part of it alone explains.

    Those that save something come first, smaller ones before larger ones.
    """
    found: dict[Value, None] = {}
    few = len(around.nodes) <= FEW_OPERATORS
    own, weights = cost(around.root, around.weights), around.weights
    most = max(own[1], 1) + 1
    ways = (around, replace(around, relatives=()))
    for row in LIMITS if few else LIMITS_OF_LARGE:
        feasible = (limits for limits in row if len(limits) <= most)
        for limits, tried in product(feasible, ways):
            vocabulary = tried.vocabulary(limits)
            try:
                made = enumerate_terms(
                    vocabulary, seed, len(limits) - 1, wanted=around.root.type, most=MOST_WORK
                )
            except (TooManyTermsError, IndexError):
                continue
            found |= dict.fromkeys(_equal(around.root, min(vocabulary.roots), made))
            break
    better = [each for each in found if cost(each, weights) < own]
    others = [
        each
        for each in found
        if cost(each, weights) == own and is_another_way(around.root, each, weights)
    ]
    return [*better[:MOST_BETTER], *others[:MOST_OTHERS]]


def is_another_way(one: Value, other: Value, weights: frozenset[str]) -> bool:
    """Whether a term that costs as much as another may lead the search on.

    It ends in another operator. A single operator is not made of views of weights.
    """
    if one.node.op is other.node.op:
        return False
    _, computed = cost(one, weights)
    return computed > 1 or _count(other) <= _count(one)


def _count(root: Value) -> int:
    return sum(isinstance(node.op, Operator) for node in Graph((root,)).nodes)


def cost(root: Value, weights: frozenset[str]) -> tuple[int, int]:
    """How many operators compute something each time, and how many there are with views."""
    nodes = [node for node in Graph((root,)).nodes if isinstance(node.op, Operator)]
    computed = [
        node
        for node in nodes
        if any(str(each) not in weights for each in Graph(node.outputs).leaves)
    ]
    return sum(node.role != "view" for node in computed), len(computed)


def _equal(root: Value, sort: str, made: Enumeration) -> Iterator[Value]:
    try:
        first = made.representative(root, sort)
    except ShapeError:
        return
    if first is None:
        return
    assert made.state is not None
    evaluator = made.state.evaluator
    table = first.table
    terms = [first, *(c.source for c in made.candidates if c.target.row == first.row)]
    met: set[str] = set()
    for term in sorted(terms, key=lambda each: each.order):
        is_wrapped = term.row != first.row and first.row in table.args(term.row)
        value = term.value
        text = _canonical(value)
        if is_wrapped or text in met or text == _canonical(root):
            continue
        met.add(text)
        if not is_congruent(root, value, evaluator):
            yield value


def _canonical(value: Value) -> str:
    """The text of a term with the inputs of commutative operators in order."""
    if value.is_leaf:
        return str(value)
    node = value.node
    assert isinstance(node.op, Operator)
    args = [_canonical(source) for source in node.inputs]
    if node.op.commutative:
        args.sort()
    return f"{node.op.name}({args},{sorted(node.attributes.items())})[{value.index}]"


def is_congruent(one: Value, other: Value, evaluator: Evaluator) -> bool:
    """Whether two terms apply one operator to equal values: what their arguments explain."""
    a, b = one.node, other.node
    if a.op is not b.op or a.attributes != b.attributes or len(a.inputs) != len(b.inputs):
        return False
    pairs = list(zip(a.inputs, b.inputs, strict=True))
    if isinstance(a.op, Operator) and a.op.commutative and len(pairs) == 2:
        crossed = list(zip(a.inputs, reversed(b.inputs), strict=True))
        if all(_agree(x, y, evaluator) for x, y in crossed):
            return True
    return all(_agree(x, y, evaluator) for x, y in pairs)


def _agree(one: Value, other: Value, evaluator: Evaluator) -> bool:
    if one is other:
        return True
    return one.type == other.type and evaluator.key(one) == evaluator.key(other)
