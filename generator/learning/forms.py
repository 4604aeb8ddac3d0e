"""Forms of a region from which rules are stated: more general ones first.

One elementwise operator among others becomes any of its kind; two axes that all operators treat
alike become one, which stands for any number of them; a batch of one sample becomes a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.node import Node, TensorType, Value, leaf
from xflow.core.registry import Attribute, Attributes, Kind, Operator
from xflow.core.size import Size, evaluate
from xflow.generator.learning.regions import Region
from xflow.generator.learning.sizes import axes, inputs_of, shrunk
from xflow.generator.learning.terms import Call, called, extents, remade
from xflow.generator.runner.codec import Code, decode, encode
from xflow.generator.vocabulary import Input
from xflow.ops.schematic import is_function

SPACE, BATCH = (1, 2, 3), (0, 1, 2)
"""The numbers of axes that a vector stands for."""


@dataclass(frozen=True)
class Form:
    """A term at small sizes, and how its axes are named in rules."""

    root: Value
    weights: frozenset[str]
    reals: Mapping[Fraction, str]
    dims: Mapping[str, str]
    """For each leaf its axes, see `Input.dims`."""
    ranks: tuple[int, ...] = (0,)

    @property
    def key(self) -> str:
        """Equal for forms that state the same."""
        leaves = Graph((self.root,)).leaves
        types = "; ".join(
            f"{each}:{each.type}:{self.dims[str(each)]}:{str(each) in self.weights}"
            for each in leaves
        )
        return f"{self.root} | {types} | {self.ranks} | {sorted(self.reals.items())}"

    def inputs(self) -> tuple[Input, ...]:
        """Its leaves as inputs of a vocabulary, with their axes under the names of this form."""
        return tuple(
            replace(item, dims=self.dims[item.name]) for item in inputs_of(self.root, self.weights)
        )

    def code(self) -> FormCode:
        """This form as plain data."""
        return FormCode(
            encode((self.root,)),
            tuple(sorted(self.weights)),
            tuple(sorted(self.reals.items())),
            tuple(sorted(self.dims.items())),
            self.ranks,
        )


@dataclass(frozen=True)
class FormCode:
    """A form as plain data, which can be pickled and hashed."""

    root: Code
    weights: tuple[str, ...]
    reals: tuple[tuple[Fraction, str], ...]
    dims: tuple[tuple[str, str], ...]
    ranks: tuple[int, ...]

    def form(self) -> Form:
        """The form of which this was made."""
        (root,) = decode(self.root)
        return Form(root, frozenset(self.weights), dict(self.reals), dict(self.dims), self.ranks)


@dataclass(frozen=True)
class Lesson:
    """The forms of a region as one term: the one that states most, and others that state less.

    They are made when they are asked for: most often the first one suffices.
    """

    first: Form
    others: Iterator[Form]


def lessons_of(region: Region, seed: int) -> Iterator[Lesson]:
    """What a region may teach: as it is, and with any function in the place of one."""
    wide = widened(region.root, region.weights)
    for term in (schematic(wide), wide):
        made = iter(()) if term is None else _sized(term, region, seed)
        first = next(made, None)
        if first is not None:
            yield Lesson(first, made)


def _sized(term: Value, region: Region, seed: int) -> Iterator[Form]:
    weights, reals = region.weights, region.reals
    small = shrunk(term, weights, seed)
    if small is None:
        return
    if all(_is_elementwise(node) for node in _operators(term)):
        flat = _flat(small)
        if flat is not None:
            leaves = Graph((flat,)).leaves
            dims = {str(each): "..." if each.shape else "" for each in leaves}
            yield Form(flat, weights, reals, dims)
    for drop, ranks in ((3, SPACE), (1, BATCH)):
        less = without_axis(term, drop)
        if less is None and drop == 1 and max(len(v.shape) for v in _values(term)) == 3:
            less = term
        fewer = None if less is None else shrunk(less, weights, seed)
        if fewer is None:
            continue
        dims = {
            str(each): _starred(len(each.shape), str(each) in weights, drop)
            for each in Graph((fewer,)).leaves
        }
        if any("*" in text for text in dims.values()):
            yield Form(fewer, weights, reals, dims, ranks)
    yield Form(small, weights, reals, {str(v): axes(len(v.shape)) for v in Graph((small,)).leaves})


def _starred(rank: int, is_weight: bool, drop: int) -> str:
    """The axes of a leaf of a term in which one axis stands for several."""
    if rank == 3 and drop == 3:
        return "O I *R" if is_weight else "N C *S"
    return "*B n m" if rank == 3 and not is_weight else axes(rank)


def _values(root: Value) -> list[Value]:
    return [value for node in Graph((root,)).nodes for value in node.outputs]


def _operators(root: Value) -> list[Node]:
    return [n for n in Graph((root,)).nodes if isinstance(n.op, Operator) and n.inputs]


def _is_elementwise(node: Node) -> bool:
    return isinstance(node.op, Operator) and node.op.elementwise


def _flat(root: Value) -> Value | None:
    """An elementwise term over leaves of one axis, or none."""

    def shape(value: Value) -> tuple[int, ...]:
        return () if prod(extents(value)) == 1 else (5,)

    return _rebuilt(root, shape, lambda node, args: node.attributes)


def schematic(root: Value) -> Value | None:
    """The term with the one elementwise operator among others as any operator of its kind.

    None where there is none, or several that differ.
    """
    nodes = _operators(root)
    found = [n for n in nodes if isinstance(n.op, Operator) and is_function(n.op)]
    kinds = {(node.op, len(node.inputs), tuple(sorted(node.attributes.items()))) for node in found}
    if len(kinds) != 1 or len(found) == len(nodes) or len(found[0].inputs) > 2:
        return None

    def call_for(node: Node, args: list[Value]) -> Call:
        op, attributes, dtype = called(node)
        return ("Elementwise", {}, dtype) if node in found else (op, attributes, dtype)

    try:
        return remade(root, call_for=call_for)
    except ShapeError:
        return None


def widened(root: Value, weights: frozenset[str]) -> Value:
    """The term at batches of two where it is stated for one alone, if it can be; else itself.

    An extent of 1 stands for itself in every rule, and models are often exported for one sample.
    """

    def shape(value: Value) -> tuple[int, ...]:
        now = extents(value)
        is_one = str(value) not in weights and len(now) > 2 and now[0] == 1
        return (2, *now[1:]) if is_one else now

    def attributes(node: Node, args: list[Value]) -> Attributes:
        made = dict(node.attributes)
        target = made.get("shape")
        if args and isinstance(target, tuple) and target:
            before, after = (prod(extents(v)) for v in (node.inputs[0], args[0]))
            assert isinstance(node.op, Operator)
            if node.op.name == "Reshape":
                made["shape"] = (_number(target[0]) * after // before, *target[1:])
            elif _number(target[0]) == 1 and after > before:
                made["shape"] = (2, *target[1:])
        return made

    return _rebuilt(root, shape, attributes) or root


def without_axis(root: Value, drop: int) -> Value | None:
    """The term with axis `drop` of all tensors of four axes left out, where it can be.

    Operators must treat it as they treat the axis before it.
    """
    leaves = Graph((root,)).leaves
    if not any(len(each.shape) == 4 for each in leaves):
        return None

    def shape(value: Value) -> tuple[int, ...]:
        now = extents(value)
        return (*now[:drop], *now[drop + 1 :]) if len(now) == 4 else now

    def attributes(node: Node, args: list[Value]) -> Attributes:
        assert isinstance(node.op, Operator)
        wide = max(len(v.shape) for v in (*node.inputs, *node.outputs))
        if wide < 4:
            return node.attributes
        if wide > 4:
            raise ShapeError("more axes")
        return {name: _less(node.op, name, value, drop) for name, value in node.attributes.items()}

    return _rebuilt(root, shape, attributes)


def _less(op: Operator, name: str, value: Attribute, drop: int) -> Attribute:
    """An attribute without its entry for an axis of four. Raises ShapeError."""
    kind = op.attributes[name].kind
    if kind is Kind.AXIS:
        if value == drop:
            raise ShapeError("an axis that is left out")
        return value - 1 if isinstance(value, int) and value > drop else value
    if not isinstance(value, tuple):
        return value
    if kind is Kind.PERMUTATION:
        if len(value) != 4:
            return value
        if value[drop] != drop or value[drop - 1] != drop - 1:
            raise ShapeError("it is moved")
        return tuple(v - (v > drop) for k, v in enumerate(value) if k != drop)  # type: ignore[operator]
    if kind is Kind.AXES:
        if (drop in value) != (drop - 1 in value):
            raise ShapeError("an axis that is left out")
        return tuple(v - (v > drop) for v in value if v != drop)  # type: ignore[operator]
    if name in ("starts", "ends", "steps", "split"):
        return value
    if len(value) in (4, 8):
        half = 4 if name == "pads" and len(value) == 8 else len(value)
        if name == "pads" and len(value) == 4:  # of two axes of space, before and after
            if drop != 3 or (value[0], value[2]) != (value[1], value[3]):
                raise ShapeError("other borders")
            return (value[0], value[2])
        entries = [value[k : k + half] for k in range(0, len(value), half)]
        return tuple(v for part in entries for k, v in enumerate(part) if k != drop)
    if len(value) == 2 and drop == 3:
        if value[0] != value[1] and name not in ("kernel_shape", "kernel"):
            raise ShapeError("another step")
        return (value[0],)
    return value


def _rebuilt(
    root: Value,
    shape: Callable[[Value], tuple[int, ...]],
    attributes: Callable[[Node, list[Value]], Attributes],
) -> Value | None:
    """A term over leaves of other shapes, with other attributes; None where they do not suit."""

    def leaf_for(value: Value) -> Value:
        return leaf(str(value), TensorType(value.type.dtype, shape(value)))

    def call_for(node: Node, args: list[Value]) -> Call:
        op, _, dtype = called(node)
        return op, attributes(node, args), dtype

    try:
        return remade(root, leaf_for, call_for)
    except (ShapeError, ValueError, IndexError, ZeroDivisionError):
        return None


def _number(size: Size) -> int:
    return evaluate(size, {})
