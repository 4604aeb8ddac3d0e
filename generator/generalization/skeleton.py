"""Skeletons: pairs of graphs with their sizes and integer attributes taken out.

Pairs with one skeleton differ in numbers alone. `Skeleton.build` puts numbers, or symbols, back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from xflow.core.constraint import Constraint, equal
from xflow.core.graph import walk
from xflow.core.node import Leaf, TensorType, Value, apply, leaf
from xflow.core.registry import Attribute, Kind, Need, Operator, RealSymbol, Shape
from xflow.core.size import Size
from xflow.core.sorts import REAL, sort_of
from xflow.generator.vocabulary import Input, Vocabulary, type_made

SIZE_ATTRIBUTES = frozenset(
    {
        *("shape", "n", "channels", "split", "kernel", "repeats"),
        *("num_groups", "num_heads", "q_num_heads", "kv_num_heads"),
    }
)
"""Integer attributes that are extents of axes; typing determines most of them."""
PLACE_ATTRIBUTES = frozenset({"offset"})
"""Integer attributes that are places of axes: no type says which, only an example."""


@dataclass(frozen=True)
class Slot:
    """An integer of an attribute: `position` is None where the attribute is one integer."""

    node: int
    op: str
    attribute: str
    position: int | None
    costs: bool
    """Whether the node depends on an activation."""

    @property
    def is_size(self) -> bool:
        return self.attribute in SIZE_ATTRIBUTES

    @property
    def is_place(self) -> bool:
        return self.attribute in PLACE_ATTRIBUTES


@dataclass(frozen=True)
class _Step:
    op: Operator
    inputs: tuple[tuple[int, int], ...]
    """Steps (leaves come first) and their outputs."""
    fixed: Mapping[str, Attribute]
    lengths: Mapping[str, int | None]
    """Attributes that consist of slots: their length, None for a single integer."""
    to_end: frozenset[int] = frozenset()
    """Positions in `ends` that are no slots: the part reaches to the end of its axis."""


@dataclass(frozen=True)
class Skeleton:
    """A pair of graphs without its numbers. Equal `key`, equal skeleton."""

    key: str
    inputs: tuple[Input, ...]
    """The inputs in the order in which they are met; sizes are those of the first pair."""
    slots: tuple[Slot, ...]
    steps: tuple[_Step, ...]
    roots: tuple[tuple[int, int], tuple[int, int]]

    def build(
        self, names: Sequence[str], shapes: Sequence[Shape], numbers: Sequence[Size]
    ) -> Built:
        """Both sides with these leaves and slots. Raises ShapeError."""
        made: list[tuple[Value, ...]] = [
            (leaf(name, TensorType(sort_of(item.dtype) or REAL, tuple(shape))),)
            for name, shape, item in zip(names, shapes, self.inputs, strict=True)
        ]
        rest = iter(numbers)
        need = Need()
        for step in self.steps:
            attributes = dict(step.fixed)
            args = [made[position][output] for position, output in step.inputs]
            for name, length in step.lengths.items():
                if length is None:
                    attributes[name] = next(rest)
                else:
                    attributes[name] = tuple(
                        _end(args[0], step.fixed, i)
                        if name == "ends" and i in step.to_end
                        else next(rest)
                        for i in range(length)
                    )
            dtype = sort_of(type_made(step.op.name))
            made.append(apply(step.op, args, attributes, dtype=dtype, need=need))
        source, target = (made[position][output] for position, output in self.roots)
        steps = tuple(outputs[0] for outputs in made)
        conditions = list(need.conditions)
        if len(source.shape) == len(target.shape):
            conditions += [equal(a, b) for a, b in zip(source.shape, target.shape, strict=True)]
        return Built(source, target, tuple(conditions), steps)


@dataclass(frozen=True)
class Built:
    """A skeleton with numbers or symbols put in, and what its operators require of these."""

    source: Value
    target: Value
    conditions: tuple[Constraint, ...]
    steps: tuple[Value, ...]
    """The leaves, and the first output of each operator; the same places in all of a skeleton."""


@dataclass(frozen=True)
class Point:
    """The numbers of one pair: those of its slots, and the shapes of its leaves."""

    numbers: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]


def _end(value: Value, attributes: Mapping[str, Attribute], position: int) -> Size:
    """The extent of `value` along entry `position` of the attribute `axes`."""
    axes = attributes["axes"]
    assert isinstance(axes, tuple)
    axis = axes[position]
    assert isinstance(axis, int)
    return value.shape[axis]


def _generic(value: Attribute, vocabulary: Vocabulary) -> Attribute:
    """The form of an attribute in rules: a symbol for a number that stands for any, a sort."""
    if isinstance(value, Fraction) and value in vocabulary.reals:
        return RealSymbol(vocabulary.reals[value])
    return (sort_of(value) or value) if isinstance(value, str) else value


def take_apart(source: Value, target: Value, vocabulary: Vocabulary) -> tuple[Skeleton, Point]:
    """The skeleton of a pair, and its numbers."""
    declared = {item.name: item for item in vocabulary.inputs}
    nodes = list(walk((source, target)))
    leaves = [node for node in nodes if isinstance(node.op, Leaf)]
    inputs = tuple(declared[node.op.key] for node in leaves if isinstance(node.op, Leaf))
    position = {node: index for index, node in enumerate(leaves)}
    active = {
        node: item.sort not in vocabulary.free for node, item in zip(leaves, inputs, strict=True)
    }
    steps: list[_Step] = []
    slots: list[Slot] = []
    numbers: list[int] = []
    key: list[str] = []
    for item in inputs:
        mask = "".join("1" if size == 1 else "n" for size in item.sizes)
        key.append(f"{item.sort}:{item.dims}:{mask}")
    for node in nodes:
        if isinstance(node.op, Leaf):
            continue
        assert isinstance(node.op, Operator)
        active[node] = any(active[value.node] for value in node.inputs)
        position[node] = len(position)
        fixed: dict[str, Attribute] = {}
        lengths: dict[str, int | None] = {}
        ends = node.attributes.get("ends", ())
        assert isinstance(ends, tuple)
        to_end = frozenset(
            i for i, end in enumerate(ends) if end == _end(node.inputs[0], node.attributes, i)
        )
        for name, value in node.attributes.items():
            spec = node.op.attributes[name]
            is_number = spec.kind in (Kind.INT, Kind.INTS) and not spec.flag
            if is_number and node.op.name not in vocabulary.literal:
                values = value if isinstance(value, tuple) else (value,)
                lengths[name] = len(values) if isinstance(value, tuple) else None
                for index, number in enumerate(values):
                    assert isinstance(number, int)
                    if name == "ends" and index in to_end:
                        continue
                    numbers.append(number)
                    slots.append(
                        Slot(
                            position[node],
                            node.op.name,
                            name,
                            index if isinstance(value, tuple) else None,
                            active[node],
                        )
                    )
            else:
                fixed[name] = _generic(value, vocabulary)
        refs = tuple((position[value.node], value.index) for value in node.inputs)
        steps.append(_Step(node.op, refs, fixed, lengths, to_end))
        shown = ",".join(f"{name}={value}" for name, value in sorted(fixed.items()))
        key.append(f"{node.op.name}{list(refs)}{shown}{sorted(lengths.items())}{sorted(to_end)}")
    roots = tuple((position[value.node], value.index) for value in (source, target))
    assert len(roots) == 2
    key.append(str(roots))
    # An extent of 1 stands for itself, so pairs that differ in which extents are 1 stay apart.
    key += [
        f"{i}=1"
        for i, (slot, n) in enumerate(zip(slots, numbers, strict=True))
        if slot.is_size and n == 1
    ]
    skeleton = Skeleton("; ".join(key), inputs, tuple(slots), tuple(steps), roots)
    return skeleton, Point(tuple(numbers), tuple(item.sizes for item in inputs))
