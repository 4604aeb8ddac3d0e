"""Rules: proven equations between two graphs, as text that a person can read and re-check.

A rule is written for all sizes and, where it has *vectors*, for all lengths of these. A name with
a star is a vector: ``x[N, C, *S]`` has as many axes behind C as the rule's rank says, and
``pads=[*(e + p), *f]`` splices vectors into a list, element by element; an integer in a starred
expression stands for itself in every element, and ``axis`` for 0, 1, 2, ... The line ``rank``
lists the ranks at which it holds; three dots behind them say that it holds at all higher ones, too,
because it touches no axis of a vector. An input ``x[...]`` has any shape and is read with ONNX
broadcasting; such a rule contains elementwise operators alone. ``c[N]:bool`` is a tensor of
Booleans, ``i[K]:int`` one of integers, ``w[K]:code`` one of codes of quantized numbers; all others
are of one element type, which the line ``types`` tells: ``reals`` (also where there is no such
line), ``reals, integers`` (which wrap around), or ``any``. A condition ``s != 0``, ``s > 0``,
``s >= 0``, ``finite(s)`` or ``s < inf`` on an input or a real attribute speaks of every element's
value, see `xflow.core.value_conditions`. `Rule.instance` spells a rule out at one rank.

The line ``exact`` says that the sides agree to the last bit: ``bits``, whatever the inputs hold, or
``numbers``, where they hold numbers; without it they may differ by roundings. The line ``limits``
names inputs of which elements may be -inf, as those of masks are: where that makes -inf of what is
a number on the left side if they are, it does so on the right side, too.

``Elementwise`` and ``ZeroPreserving`` stand for any elementwise operator of one or two inputs, or
for any that is 0 at 0: for the same one, with equal attributes, wherever they occur in a rule. See
`xflow.ops.schematic`.

A rule is one of the base, from which the others follow, and one that the search uses, unless the
line ``set`` says that it is one of these alone: ``base``, ``search``, or ``search; follows from
one, another``.

A line that is indented further than the one before it, and begins with no key, goes on with it.

Rules that differ in few places may share a stanza, see `xflow.rewriting.cases`; terms that a side
contains several times may have names, see `xflow.rewriting.abbreviations`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import starmap

from xflow.core.errors import RuleFileError
from xflow.core.graph import walk
from xflow.core.node import TensorType, Value, leaf
from xflow.core.registry import Operator
from xflow.core.sorts import REALS_ONLY, SORTS
from xflow.core.value_conditions import fact_of
from xflow.rewriting.abbreviations import LET, abbreviated
from xflow.rewriting.declarations import Names, declared_names, parse_inputs, parse_sorts
from xflow.rewriting.instance import ANY_SHAPE, Instance, leaves_of
from xflow.rewriting.instantiation import Scope, conditions_at, parsed, read_side
from xflow.rewriting.numerics import Numerics, parse_numerics

MAX_RANK = 6
"""The largest rank at which a rule that holds at any rank is instantiated."""

WIDTH = 100
"""Columns of a stanza; what is longer goes on in the next line."""
INDENTED = 11
"""Columns in front of what a line says."""

SIDES = 2**14
"""Sides of rules that are kept, at each rank: the database has some 3,000 at two or three each."""

NOTES = ("set", "origin", "proof", "numerics")
"""Keys of lines that say nothing of the sides."""
KEYS = (
    *("in", "param", "rank", LET, "from", "to", "where", "reverse", "types", "exact", "limits"),
    *NOTES,
)
"""With which the lines of a stanza begin, behind the first."""
CASE = "case"
"""With which the line of one of several rules of a stanza begins, see `xflow.rewriting.cases`."""

BITS, NUMBERS = "bits", "numbers"
EXACT = (BITS, NUMBERS)
"""How sides may agree beyond what they are as real numbers, see above."""

LEARNED = "learned"
"""The origin of a rule that was found around a region of a model."""
BASE = "base"
"""The line ``set`` of a rule that the search does without."""
SEARCH = "search"
"""The line ``set`` of a rule that is for the search alone."""


@dataclass(frozen=True)
class Rule:
    """A proven equation ``lhs = rhs``, to be used from left to right.

    The texts are in the syntax of rule files. `reverse` holds the conditions for the use from
    right to left, or None where that was not proved. A direction may leave numbers open, which are
    for its user to choose: it is not determined, see `Instance`.
    """

    name: str
    inputs: str
    lhs: str
    rhs: str
    params: str = ""
    ranks: tuple[int, ...] = (0,)
    where: tuple[str, ...] = ()
    reverse: tuple[str, ...] | None = None
    notes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Further lines of the stanza, such as `proof` and `numerics`."""
    types: str | None = None
    """The element types for which it holds, one of `HOLDS_FOR`; None: not said, so reals."""
    any_rank: bool = False
    """Whether what holds at the first of `ranks` holds at every higher one, slice by slice."""
    exact: str | None = None
    """One of `EXACT`; None: the sides may differ by roundings."""
    limits: tuple[str, ...] = ()
    """Names of the inputs of which elements may be -inf."""

    @cached_property
    def root(self) -> str | None:
        """The name of the operator that gives the left side's first output; None for an input."""
        tree = parsed(self.lhs)
        tree = tree.elts[0] if isinstance(tree, ast.Tuple) else tree
        tree = tree.value if isinstance(tree, ast.Subscript) else tree
        return (
            tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else None
        )

    def instance(self, rank: int) -> Instance:
        """The rule at one rank. Raises RuleFileError where it makes no sense."""
        return _instance(self, rank)

    def instances(self) -> Iterator[Instance]:
        """The rule at each of the ranks at which it is proved one by one."""
        return map(self.instance, self.ranks)

    def usable_instances(self) -> Iterator[Instance]:
        """The rule at each rank at which it may be applied."""
        return map(self.instance, self.usable_ranks)

    @property
    def usable_ranks(self) -> tuple[int, ...]:
        """The ranks at which it may be applied."""
        further = range(max(self.ranks) + 1, MAX_RANK + 1) if self.any_rank else ()
        return (*self.ranks, *further)

    def reversed(self) -> Rule:
        """The rule from right to left, named `NAME.reverse`. It must have a `reverse`."""
        assert self.reverse is not None, self.name
        return replace(
            self,
            name=f"{self.name}.reverse",
            lhs=self.rhs,
            rhs=self.lhs,
            where=self.reverse,
            reverse=None,
            notes=self._turned_notes(),
        )

    def _turned_notes(self) -> dict[str, str]:
        if self.numerics is None:
            return dict(self.notes)
        return {**self.notes, "numerics": str(self.numerics.turned())}

    @cached_property
    def numerics(self) -> Numerics | None:
        """What rounding does to its sides; None where nobody measured. Raises RuleFileError."""
        text = self.notes.get("numerics")
        return None if text is None else parse_numerics(text)

    @cached_property
    def statement(self) -> str:
        """What it says, as a stanza without its name and notes, which say nothing of its sides."""
        lines = abbreviated(dict(self.lines()))
        return "\n".join(("rule rule", *starmap(_line, lines.items()), ""))

    @property
    def is_base(self) -> bool:
        """Whether it is one of those from which the others follow."""
        return self.notes.get("set", BASE) == BASE

    @property
    def is_searched(self) -> bool:
        """Whether the search uses it."""
        return self.notes.get("set") != BASE

    @property
    def is_apart(self) -> bool:
        """Whether it is for the search alone: derivations of other rules do without it."""
        return self.notes.get("set") == SEARCH

    @property
    def explains(self) -> bool:
        """Whether others of the search may follow from it."""
        return self.is_searched and not self.is_apart

    @property
    def origin(self) -> str:
        """How it was found, where that is said: `LEARNED`."""
        return self.notes.get("origin", "")

    def __hash__(self) -> int:
        # Rules are looked up thousands of times in a search: what tells them apart is enough.
        return hash((self.name, self.lhs, self.rhs))

    def directions(self) -> tuple[Rule, ...]:
        """The rule in each direction that was proved, as rules to be used from left to right."""
        return _directions(self)

    @cached_property
    def names(self) -> Names:
        """The names that the rule declares. Raises RuleFileError."""
        return _names(self.inputs, self.params)

    @cached_property
    def value_names(self) -> frozenset[str]:
        """Names of which a condition may state a fact: the inputs and the real attributes."""
        return frozenset(name for name, _ in parse_inputs(self.inputs)) | self.names.reals

    @cached_property
    def operators(self) -> frozenset[str]:
        """Names of the operators on either side."""
        instance = self.instance(self.ranks[0])
        return frozenset(
            node.op.name
            for node in walk((*instance.lhs, *instance.rhs))
            if isinstance(node.op, Operator)
        )

    def lines(self) -> Iterator[tuple[str, str]]:
        """The keys of its stanza and what they say, but for its notes."""
        yield "in", self.inputs
        if self.params:
            yield "param", self.params
        if self.ranks != (0,):
            yield "rank", " ".join(map(str, self.ranks)) + (" ..." if self.any_rank else "")
        yield "from", self.lhs
        yield "to", self.rhs
        if self.where:
            yield "where", ", ".join(self.where)
        if self.reverse is not None:
            yield "reverse", ", ".join(self.reverse) or "always"
        if self.types is not None:
            yield "types", self.types
        if self.exact is not None:
            yield "exact", self.exact
        if self.limits:
            yield "limits", " ".join(self.limits)

    def __str__(self) -> str:
        lines = [f"rule {self.name}"]
        for key, text in (*abbreviated(dict(self.lines())).items(), *self.notes.items()):
            lines += spelled(key, text)
        return "\n".join(lines) + "\n"


def _line(key: str, text: str) -> str:
    return f"  {key:<{INDENTED - 2}}{text}"


def spelled(key: str, text: str, depth: int = 0, *, wrap: bool = True) -> list[str]:
    """A line of a stanza as lines of a file, each `depth` columns further to the right."""
    first, *others = _wrapped(text) if wrap else [text]
    lines = [_line(key, first).rstrip(), *(f"{'':{INDENTED + 2}}{part}" for part in others)]
    return [f"{'':{depth}}{line}" for line in lines]


def _wrapped(text: str) -> list[str]:
    """A text in parts that fit into the lines of a stanza, broken behind commas and semicolons.

    No part but the first begins as another line of a rule file does, which it would be taken for.
    """
    parts: list[str] = []
    room = WIDTH - INDENTED
    for piece in re.split(r"(?<=[,;]) ", text):
        fits = parts and len(parts[-1]) + 1 + len(piece) <= room
        if fits or (parts and begins_a_line(piece)):
            parts[-1] += f" {piece}"
        else:
            room = WIDTH - INDENTED - (2 if parts else 0)
            parts.append(piece)
    return parts


def begins_a_line(text: str) -> bool:
    """Whether a line of a rule file that reads so does not go on with the one before it."""
    first, _, _ = text.strip().partition(" ")
    return not first or first.startswith("#") or first in ("rule", CASE, *KEYS)


@cache
def _directions(rule: Rule) -> tuple[Rule, ...]:
    # Kept beside the rules and not in them, since they are sent to other processes.
    forward = replace(rule, reverse=None)
    return (forward,) if rule.reverse is None else (forward, rule.reversed())


@lru_cache(maxsize=4)
def directions_of(rules: tuple[Rule, ...]) -> Mapping[str, Rule]:
    """The directions of rules by their names."""
    return {each.name: each for rule in rules for each in rule.directions()}


@cache
def _instance(rule: Rule, rank: int) -> Instance:
    scope, broadcast = _declared(rule.inputs, rule.params, rank)
    lhs, rhs = (_side(text, rule.inputs, rule.params, rank) for text in (rule.lhs, rule.rhs))
    if len(lhs) != len(rhs):
        raise RuleFileError("the two sides have different numbers of outputs")
    if any(a.type.dtype != b.type.dtype for a, b in zip(lhs, rhs, strict=True)):
        raise RuleFileError("the two sides have different element types")
    facts = {
        text: fact for text in rule.where if (fact := fact_of(text, rule.value_names)) is not None
    }
    return Instance(
        rank,
        tuple(scope.leaves.values()),
        broadcast,
        lhs,
        rhs,
        tuple(conditions_at((text for text in rule.where if text not in facts), scope)),
        rule.types or REALS_ONLY,
        tuple(facts.values()),
        rule.exact,
        frozenset(rule.limits),
    )


@lru_cache(maxsize=SIDES)
def _names(inputs: str, params: str) -> Names:
    return declared_names(parse_inputs(inputs), params)


@lru_cache(maxsize=SIDES)
def _declared(inputs: str, params: str, rank: int) -> tuple[Scope, bool]:
    """What is declared at one rank, and whether the inputs have any shape."""
    declared = parse_inputs(inputs)
    names = _names(inputs, params)
    scope = Scope(rank, names.scalars, names.vectors, names.reals, {})
    broadcast = any(dims is None for _, dims in declared)
    leaves: dict[str, Value] = {}
    sorts = parse_sorts(inputs)
    for name, dims in declared:
        if name in leaves:
            raise RuleFileError(f"a second input {name}")
        shape = ANY_SHAPE if dims is None else scope.items(dims)
        if any(isinstance(size, int) and size < 0 for size in shape):
            raise RuleFileError(f"the input {name} has a negative size")
        if broadcast and dims is not None:
            raise RuleFileError("inputs of any shape do not mix with inputs of a given shape")
        leaves[name] = leaf(name, TensorType(sorts[name], shape))
    return replace(scope, leaves=leaves), broadcast


@lru_cache(maxsize=SIDES)
def _side(text: str, inputs: str, params: str, rank: int) -> tuple[Value, ...]:
    """One side at one rank; it is the left one of one direction and the right one of another."""
    scope, broadcast = _declared(inputs, params, rank)
    side = read_side(text, scope)
    for node in walk(side):
        # Nor constants with a shape: they would tie the one axis that stands for any number.
        if (
            broadcast
            and isinstance(node.op, Operator)
            and not (node.op.elementwise or node.op.name == "Scalar")
        ):
            raise RuleFileError(f"{node.op.name} does not act on inputs of any shape")
        for kind in node.types:
            if kind.dtype not in SORTS:
                raise RuleFileError(
                    f"{kind.dtype} is a single element type", do="write REAL, INT, CODE or BOOL"
                )
        if node.is_schematic and not leaves_of(node.inputs):
            raise RuleFileError(f"{node.op} of constants is no value: it stands for any operator")
    return side
