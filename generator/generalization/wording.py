"""Wording: a typed pair as the text of a rule, with readable names and stars on vectors.

Pairs are enumerated with one axis where a rule has a vector. An axis of that kind has a fixed
place among the axes of a tensor of each rank, which says what to star in lists of attributes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, count

from xflow.core.expressions import expression
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Attribute, Kind, Operator, RealSymbol
from xflow.core.size import Expr, Size, free_symbols, substitute, symbol
from xflow.core.sorts import REAL, sort_of
from xflow.generator.generalization.skeleton import Skeleton
from xflow.generator.generalization.typing import Typing
from xflow.generator.vocabulary import Vocabulary
from xflow.rewriting.declarations import SUFFIXES
from xflow.rewriting.rule import Rule

PADDING = ("e", "f")
PREFERRED = {
    "pads": PADDING,
    "strides": ("s",),
    "dilations": ("d",),
    "group": ("g",),
    "kernel_shape": ("k",),
    "kernel": ("k",),
    "split": ("k", "l"),
    "starts": ("h",),
    "ends": ("j",),
    "scales": ("s",),
}
SPATIAL = frozenset({"pads", "strides", "dilations", "kernel_shape", "kernel"})
UPPER = "CDEFGHIJKLMNOPQRSTUVWXYZ"
LOWER = "nmklijhpqrtuvefgdsabc"

WORDS = 4
"""Most operators of one side that are in a name."""
LONGEST_STEM = 60
"""Most characters of the operators in a name; there are fewer of them where it would have more."""


class NotUniformError(Exception):
    """The pair does not treat the axes of a vector alike; it holds at the enumerated rank only."""


def vector_axes(vocabulary: Vocabulary) -> dict[int, int]:
    """For each rank of tensors the place of the axis that stands for a vector."""
    places: dict[int, int] = {}
    for item in vocabulary.inputs:
        for axis, starred in enumerate(item.vector):
            if starred:
                assert places.setdefault(len(item.sizes), axis) == axis, vocabulary.name
    return places


@dataclass
class Wording:
    """Writes one pair. `text` raises NotUniformError."""

    skeleton: Skeleton
    typing: Typing
    vocabulary: Vocabulary
    places: dict[int, int] = field(init=False)
    vectors: set[str] = field(default_factory=set)
    singles: set[str] = field(default_factory=set)
    names: dict[str, Size] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = vector_axes(self.vocabulary)

    def rule(self, name: str = "candidate") -> Rule:
        """The pair as a rule. Raises NotUniformError."""
        built = self.typing.built
        leaves = self._leaf_names()
        self._sort_symbols()
        self._choose_names({*leaves.values(), *self._reals()})
        inputs = []
        for i, item in enumerate(self.skeleton.inputs):
            shape = self.typing.shapes[i]
            dims = [
                self._item(size, starred) for size, starred in zip(shape, item.vector, strict=True)
            ]
            text = "..." if item.any_shape else ", ".join(dims)
            inputs.append(f"{leaves[f't{i}']}[{text}]{SUFFIXES[sort_of(item.dtype) or REAL]}")
        lhs, rhs = (self._value(value, leaves) for value in (built.source, built.target))
        declared = {n for shape in self.typing.shapes for size in shape for n in free_symbols(size)}
        bare = {
            str(size)
            for shape in self.typing.shapes
            for size in shape
            if len(free_symbols(size)) == 1 and str(size) in declared
        }
        # A vector that inputs name only inside an expression must be declared too.
        used = [name for name in self.names if name not in bare]
        params = [("*" if name in self.vectors else "") + str(self.names[name]) for name in used]
        params += [f"{name}:real" for name in self._reals()]
        ranks = self.vocabulary.ranks if self.places else (0,)
        where = tuple(self._signs(leaves))
        return Rule(name, " ".join(inputs), lhs, rhs, " ".join(params), ranks, where)

    def _signs(self, leaves: Mapping[str, str]) -> Iterator[str]:
        """The signs that the rule may ask of inputs and of real symbols."""
        for i, item in enumerate(self.skeleton.inputs):
            if item.sign:
                yield f"{leaves[f't{i}']} {item.sign}"
        for name in self._reals():
            if name in self.vocabulary.signs:
                yield f"{name} {self.vocabulary.signs[name]}"

    def _leaf_names(self) -> dict[str, str]:
        letters: dict[str, list[str]] = {}
        for item in self.vocabulary.inputs:
            letter = re.sub(r"\d+$", "", item.name)
            known = letters.setdefault(item.sort, [])
            if letter not in known:
                known.append(letter)
        taken: list[str] = []
        result: dict[str, str] = {}
        for i, item in enumerate(self.skeleton.inputs):
            options = [*letters[item.sort], *(f"{item.sort}{n}" for n in range(9))]
            chosen = next(option for option in options if option not in taken)
            taken.append(chosen)
            result[f"t{i}"] = chosen
        return result

    def _reals(self) -> list[str]:
        built = self.typing.built
        values = [
            value
            for node in walk((built.source, built.target))
            for value in node.attributes.values()
        ]
        return list(dict.fromkeys(v.name for v in values if isinstance(v, RealSymbol)))

    def _lists(self) -> Iterator[tuple[Node, str, tuple[bool, ...], tuple[Size, ...]]]:
        """Every list of integers and which of its items are starred; single integers likewise."""
        built = self.typing.built
        for node in walk((built.source, built.target)):
            if not isinstance(node.op, Operator):
                continue
            for name, value in node.attributes.items():
                kind = node.op.attributes[name].kind
                if kind is Kind.INTS:
                    assert isinstance(value, tuple)
                    yield node, name, self._stars(node, name, len(value)), value
                elif kind is Kind.INT:
                    assert isinstance(value, int | Expr)
                    yield node, name, (False,), (value,)

    def _stars(self, node: Node, name: str, length: int) -> tuple[bool, ...]:
        axes = node.attributes.get("axes")
        rank = len(node.inputs[0].shape) if node.inputs else 0
        place = self.places.get(rank, -1)
        if name in ("starts", "ends", "steps") and isinstance(axes, tuple):
            return tuple(axis == place for axis in axes)
        if name == "shape":
            return tuple(i == self.places.get(length, -1) for i in range(length))
        if name == "split" or not self.places:
            return (False,) * length
        if rank and length in (rank, 2 * rank):
            return tuple(i % rank == place for i in range(length))
        if name in SPATIAL and length <= 2:
            return (True,) * length
        return (False,) * length

    def _sort_symbols(self) -> None:
        """Tell vectors from single sizes; an attribute's symbol is what its position says."""
        for item, shape in zip(self.skeleton.inputs, self.typing.shapes, strict=True):
            for size, starred in zip(shape, item.vector, strict=True):
                for name in sorted(free_symbols(size)):
                    if name.startswith("n"):
                        (self.vectors if starred else self.singles).add(name)
        lists = list(self._lists())
        for _, _, stars, sizes in lists:
            for size, starred in zip(sizes, stars, strict=True):
                for name in sorted(free_symbols(size)):
                    if starred and name not in self.singles:
                        self.vectors.add(name)
        for _, _, stars, sizes in lists:
            for size, starred in zip(sizes, stars, strict=True):
                if not starred:
                    self.singles |= free_symbols(size) - self.vectors
                    if free_symbols(size) & self.vectors:
                        raise NotUniformError(str(size))
        for item, shape in zip(self.skeleton.inputs, self.typing.shapes, strict=True):
            for size, starred in zip(shape, item.vector, strict=True):
                if not starred and free_symbols(size) & self.vectors:
                    raise NotUniformError(str(size))
                self.singles |= free_symbols(size) - self.vectors
        if self.vectors & self.singles:
            raise NotUniformError(", ".join(sorted(self.vectors & self.singles)))

    def _choose_names(self, taken: set[str]) -> None:
        def choose(name: str, options: Sequence[str]) -> None:
            if name not in self.names:
                numbered = (f"n{number}" for number in count(1))  # where letters do not suffice
                chosen = next(each for each in chain(options, numbered) if each not in taken)
                taken.add(chosen)
                self.names[name] = symbol(chosen)

        pending: list[str] = []
        for item, shape in zip(self.skeleton.inputs, self.typing.shapes, strict=True):
            if item.any_shape:
                continue
            for preferred, size in zip(item.names, shape, strict=True):
                found = sorted(free_symbols(size))
                if len(found) == 1 and str(size) == found[0]:
                    choose(found[0], [preferred, *(UPPER if preferred.isupper() else LOWER)])
                else:
                    pending += found
        for slot, number in zip(self.skeleton.slots, self.typing.numbers, strict=True):
            options = PREFERRED.get(slot.attribute, ())
            if slot.attribute == "pads":
                options = ("p", "q", "r") if slot.op == "Pad" else PADDING
                last = slot.position is not None and self._second_half(slot.node, slot.position)
                options = options[1:] if last else options
            for name in sorted(free_symbols(number)):
                if str(number) == name:
                    choose(name, [*options, *LOWER])
                else:
                    pending.append(name)
        for name in pending:
            choose(name, LOWER)

    def _second_half(self, node: int, position: int) -> bool:
        length = sum(s.node == node and s.attribute == "pads" for s in self.skeleton.slots)
        return 2 * position >= length

    def _size(self, size: Size) -> str:
        return str(substitute(size, self.names))

    def _item(self, size: Size, starred: bool) -> str:
        text = self._size(size)
        if not starred:
            return text
        return f"*{text}" if text.isidentifier() or text.isdigit() else f"*({text})"

    def _value(self, value: Value, leaves: Mapping[str, str]) -> str:
        node = value.node
        if isinstance(node.op, Leaf):
            return leaves[node.op.key]
        assert isinstance(node.op, Operator)
        if node.op.name == "Scalar" and isinstance(node.attributes["value"], Fraction):
            return str(node.attributes["value"])
        args = [self._value(source, leaves) for source in node.inputs]
        shapes = [source.shape for source in node.inputs]
        for name, attribute in node.attributes.items():
            spec = node.op.attributes[name]
            if attribute != spec.default_for(shapes):
                args.append(f"{name}={self._attribute(node, name, spec.kind, attribute)}")
        suffix = f"[{value.index}]" if len(node.types) > 1 else ""
        return f"{node.op.name}({', '.join(args)}){suffix}"

    def _attribute(self, node: Node, name: str, kind: Kind, attribute: Attribute) -> str:
        rank = len(node.inputs[0].shape) if node.inputs else 0
        place = self.places.get(rank)
        if kind in (Kind.AXES, Kind.PERMUTATION):
            assert isinstance(attribute, tuple)
            # What these name are axes of the output where the output has more of them.
            widest = max(rank, len(node.types[0].shape)) if name == "axes" else rank
            place = self.places.get(widest)
            return f"[{', '.join(self._axis(axis, place, widest) for axis in attribute)}]"
        if kind is Kind.AXIS:
            text = self._axis(attribute, place, rank)
            if text.startswith("*"):
                raise NotUniformError(f"{node.op} along a vector")
            return text
        if kind is Kind.INTS:
            assert isinstance(attribute, tuple)
            stars = self._stars(node, name, len(attribute))
            return f"[{', '.join(map(self._item, attribute, stars))}]"
        if kind is Kind.INT:
            assert isinstance(attribute, int | Expr)
            return self._size(attribute)
        return repr(attribute) if kind is Kind.TEXT else str(attribute)

    def _axis(self, axis: object, place: int | None, rank: int) -> str:
        assert isinstance(axis, int)
        if place is None:
            return str(axis)
        if axis == place:
            return f"*(axis + {place})" if place else "*axis"
        return str(axis) if axis < place else str(axis - rank)


def stem_of(lhs: str, rhs: str, names: Mapping[str, str] | None = None) -> str:
    """The operators of both sides as a name, outermost first; equal parts of a side count once.

    `names` are words for what stands in the place of an operator.
    """
    sides = [_operators(side, names or {}) for side in (lhs, rhs)]
    stems = (
        "-to-".join("-".join(side[:count] or ["input"]) for side in sides)
        for count in range(WORDS, 0, -1)
    )
    return next((stem for stem in stems if len(stem) <= LONGEST_STEM), sides[0][0])


def _operators(side: str, names: Mapping[str, str]) -> list[str]:
    seen: set[str] = set()
    words: list[str] = []

    def visit(tree: ast.AST) -> None:
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            text = ast.unparse(tree)
            if text in seen:
                return
            seen.add(text)
            words.append(names.get(tree.func.id) or kebab(tree.func.id))
        for child in ast.iter_child_nodes(tree):
            visit(child)

    visit(expression(side))
    return words


def kebab(name: str) -> str:
    """``ReduceMax`` as ``reduce-max``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
