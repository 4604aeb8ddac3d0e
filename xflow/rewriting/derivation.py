"""How a rewritten graph follows from another: applications of rules, one after the other.

An application names a rule, a place in a graph, and what the rule's inputs and symbols are there.
Places are counted in the order in which `walk` meets the nodes of the graph as it stands at that
moment, so they mean the same in every process, and to every region with the same graph. Nothing
here searches or matches; `replay` checks and repeats what was written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from xflow.analysis.ranges import Ranges
from xflow.core.expressions import fraction, shortened
from xflow.core.graph import Graph, rebuild
from xflow.core.node import Leaf, Node, Value, leaf
from xflow.core.size import Size
from xflow.core.size_text import parse_size, reads_back
from xflow.core.sorts import FLOATS
from xflow.rewriting.match import Match

ValueNumber: TypeAlias = tuple[int, int]
"""A value of a graph: the number of its node in `Graph.nodes`, and which output of that it is."""

LONGEST_NAME = 1_000
"""Most characters of the name of a rule, of one of its inputs or symbols, or of a type."""
LARGEST_SIZE = 2**64
"""What no size or attribute of a model exceeds."""


@dataclass(frozen=True)
class Application:
    """One direction of a rule, applied in a graph.

    `rule` is its name, with ``.reverse`` behind it from right to left. `at` are the outputs of its
    left side, `inputs` the rule's inputs, and `numbers` those of them that are numbers read from
    constants of one element. `sizes` and `reals` are its symbols, those included that only its
    right side has; `dtype` is the element type that stands for reals.
    """

    rule: str
    rank: int
    at: tuple[ValueNumber, ...]
    inputs: Mapping[str, ValueNumber]
    sizes: Mapping[str, Size]
    reals: Mapping[str, Fraction]
    dtype: str
    numbers: Mapping[str, Fraction] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it."""
        return {
            "rule": self.rule,
            "rank": self.rank,
            "at": [list(place) for place in self.at],
            "inputs": {name: list(place) for name, place in self.inputs.items()},
            "sizes": {
                name: size if isinstance(size, int) else str(size)
                for name, size in self.sizes.items()
            },
            "reals": {name: str(number) for name, number in self.reals.items()},
            "type": self.dtype,
            "numbers": {name: str(number) for name, number in self.numbers.items()},
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Application:
        """What `to_json` wrote. Raises KeyError, TypeError, ValueError for anything else."""
        return cls(
            _text(plain["rule"]),
            _integer(plain["rank"]),
            tuple(map(read_place, plain["at"])),
            {_text(name): read_place(place) for name, place in plain["inputs"].items()},
            {
                _text(name): parse_size(size) if isinstance(size, str) else _integer(size)
                for name, size in plain["sizes"].items()
            },
            {_text(name): fraction(number) for name, number in plain["reals"].items()},
            _text(plain["type"]),
            {_text(name): fraction(number) for name, number in plain.get("numbers", {}).items()},
        )


def _text(plain: object) -> str:
    if not isinstance(plain, str) or len(plain) > LONGEST_NAME:
        raise TypeError("a name is no text, or too long a one")
    return plain


def _integer(plain: object) -> int:
    if type(plain) is not int or abs(plain) > LARGEST_SIZE:
        raise TypeError("a size or a rank is no integer of 64 bits")
    return plain


def read_place(plain: Sequence[int]) -> ValueNumber:
    """A place from plain data. Raises TypeError and ValueError for anything else."""
    number, index = plain
    if type(number) is not int or type(index) is not int or number < 0 or index < 0:
        raise ValueError(f"{shortened(repr(plain))} is no place")
    return number, index


def application(graph: Graph, rule: str, rank: int, match: Match) -> Application | None:
    """The application of a rule at a match in `graph`.

    None where a symbolic size of the graph cannot be read again once it is written.
    """
    numbers = numbering(graph)
    read = {
        name: value.node.attributes.get("value")
        for name, value in match.bindings.items()
        if value.node not in numbers
    }
    exact = {name: value for name, value in read.items() if isinstance(value, Fraction)}
    if len(exact) < len(read) or not all(map(reads_back, match.sizes.values())):
        return None
    return Application(
        rule,
        rank,
        tuple(place_of(value, numbers) for value in match.roots),
        {
            name: place_of(value, numbers)
            for name, value in match.bindings.items()
            if name not in exact
        },
        match.sizes,
        match.reals,
        match.dtype,
        exact,
    )


def numbering(graph: Graph) -> dict[Node, int]:
    """The number of each node of a graph."""
    return {node: number for number, node in enumerate(graph.nodes)}


def place_of(value: Value, numbers: Mapping[Node, int]) -> ValueNumber:
    """Where a value stands in a graph, of which the nodes have these numbers."""
    return numbers[value.node], value.index


def value_at(graph: Graph, place: ValueNumber) -> Value:
    """The value at a place. Raises LookupError where there is none."""
    node = graph.nodes[place[0]]
    if place[1] >= len(node.types):
        raise IndexError(f"the operator has no output {place[1]}")
    return node.outputs[place[1]]


def abstract(
    values: Sequence[Value], inputs: Sequence[Value], ranges: Ranges | None = None
) -> Graph:
    """`values` as a graph over numbered leaves, which stand for `inputs`, see `local_leaves`."""
    return Graph(rebuild(values, dict(zip(inputs, local_leaves(inputs, ranges), strict=True))))


def local_leaves(inputs: Iterable[Value], ranges: Ranges | None = None) -> tuple[Value, ...]:
    """Leaves that stand for `inputs` in `abstract`, with what `ranges` know of these.

    Integers that are inputs of the model stay such: nothing is known of them, see `Leaf`.
    """
    return tuple(
        leaf(
            f"{number}",
            value.type,
            constant=value.is_constant,
            known=None if ranges is None or _is_input(value) else ranges.of(value),
        )
        for number, value in enumerate(inputs)
    )


def _is_input(value: Value) -> bool:
    """Whether a value is an input of integers, and does not stand for what is computed."""
    op = value.node.op
    return isinstance(op, Leaf) and op.known is None and value.type.dtype not in FLOATS
