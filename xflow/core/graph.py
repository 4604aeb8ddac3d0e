"""Immutable graphs: what a list of values depends on, and the same with values replaced."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xflow.core.constraint import Constraint
from xflow.core.node import Leaf, Node, TensorType, Value, apply, format_value, leaf, with_inputs
from xflow.core.registry import Attribute, Need, Operator, Shape, is_concrete
from xflow.core.size import Expr, Size, substitute


@dataclass(frozen=True)
class Graph:
    """A graph: what it computes. Leaves are found by walking; `outputs` fix their order."""

    outputs: tuple[Value, ...]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, leaves included, inputs before users."""
        return in_order(self.outputs)

    @cached_property
    def leaves(self) -> tuple[Value, ...]:
        """The leaves in the order in which they are met."""
        return tuple(node.outputs[0] for node in self.nodes if isinstance(node.op, Leaf))

    @cached_property
    def users(self) -> dict[Value, tuple[Node, ...]]:
        """For each value the nodes that read it."""
        users: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                users.setdefault(value, []).append(node)
        return {value: tuple(nodes) for value, nodes in users.items()}

    @cached_property
    def needed_opset(self) -> int:
        """The oldest opset of ONNX that has all operators that are computed each time."""
        return max(
            (
                node.op.since
                for node in self.nodes
                if isinstance(node.op, Operator) and not node.constant and not node.op.domain
            ),
            default=1,
        )

    def is_in_opset(self, opset: int | None) -> bool:
        """Whether that version of ONNX has all its operators; None: any does."""
        return opset is None or self.needed_opset <= opset

    @cached_property
    def has_forms(self) -> bool:
        """Whether ONNX has all operators that are computed each time, with their attributes.

        Of a constant that is made of nothing, all sizes have to be known.
        """
        return all(map(_has_form, self.nodes))

    def replace(self, replace: Mapping[Value, Value]) -> Graph:
        """This graph with values replaced, see `rebuild`."""
        return Graph(rebuild(self.outputs, replace))

    def __str__(self) -> str:
        return ", ".join(map(format_value, self.outputs))


def _has_form(node: Node) -> bool:
    if not isinstance(node.op, Operator):
        return True
    if not node.constant:
        return node.op.has_form(node.attributes)
    return bool(node.inputs) or is_concrete(node.attributes)


def in_order(values: Sequence[Value]) -> tuple[Node, ...]:
    """All nodes that `values` depend on, as `walk` gives them; faster where all are wanted."""
    found: list[Node] = []
    done: set[Node] = set()
    opened: set[Node] = set()
    stack = [value.node for value in reversed(values)]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
        elif node in opened or not node.inputs:
            done.add(node)
            found.append(node)
            stack.pop()
        else:
            opened.add(node)
            for value in reversed(node.inputs):
                if value.node not in done:
                    stack.append(value.node)
    return tuple(found)


def walk(values: Iterable[Value], cut: Container[Value] = ()) -> Iterator[Node]:
    """The nodes that `values` depend on, each once, inputs before users.

    What they depend on through values of `cut` alone is left out.
    """
    done: set[Node] = set()
    opened: set[Node] = set()
    stack = [value.node for value in reversed(list(values)) if value not in cut]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
        elif node in opened or not node.inputs:
            done.add(node)
            stack.pop()
            yield node
        else:
            opened.add(node)
            stack += [
                value.node
                for value in reversed(node.inputs)
                if value.node not in done and value not in cut
            ]


def rebuild(values: Sequence[Value], replace: Mapping[Value, Value]) -> tuple[Value, ...]:
    """`values` with every occurrence of a key of `replace` replaced, at any depth.

    Replacements are not searched again. Raises ShapeError where a replacement's shape does not
    suit a user.
    """
    new: dict[Value, Value] = dict(replace)
    for node in walk(values, replace):
        if all(output in new for output in node.outputs):
            continue
        inputs = tuple([new.get(value, value) for value in node.inputs])
        if inputs == node.inputs:
            continue
        made = with_inputs(node, inputs)
        for output, other in zip(node.outputs, made.outputs, strict=True):
            new.setdefault(output, other)
    return tuple(new.get(value, value) for value in values)


def rebuild_all(
    values: Sequence[Value],
    replace: Mapping[Value, Value],
    moved: dict[Value, Value] | None = None,
) -> tuple[Value, ...]:
    """`values` with every occurrence of a key of `replace` replaced, in replacements too.

    That is `rebuild` with one key after the other, in a single walk. A key in its own replacement
    stays. `moved` collects what became of all values on the way that were not replaced. Raises
    ShapeError where a replacement's shape does not suit a user.
    """
    new: dict[Value, Value] = {}
    stay: dict[Value, Value] = {}
    moved = {} if moved is None else moved
    opened: set[Value] = set()
    stack = list(reversed(values))
    while stack:
        value = stack[-1]
        target = replace.get(value, value)
        if target != value and target in new:
            new[value] = new[target]
        if value in new or value in stay:
            stack.pop()
        elif target != value and opened.isdisjoint((value, target)):
            opened.add(value)
            stack.append(target)
        else:
            inputs = [new.get(source, stay.get(source)) for source in value.node.inputs]
            if None in inputs:
                pairs = zip(value.node.inputs, inputs, strict=True)
                stack.extend(source for source, made in reversed(list(pairs)) if made is None)
                continue
            found = tuple(made for made in inputs if made is not None)
            is_same = found == value.node.inputs
            node = value.node if is_same else with_inputs(value.node, found)
            moved[value] = (stay if value in opened else new)[value] = node.outputs[value.index]
            stack.pop()
    return tuple(new[value] for value in values)


def with_sizes(values: Sequence[Value], sizes: Mapping[str, Size]) -> tuple[Value, ...]:
    """`values` with symbols replaced in the shapes of leaves and in attributes.

    Raises ShapeError and ZeroDivisionError where an operator is not defined at these sizes.
    """
    done: dict[Value, Value] = {}
    for node in walk(values):
        if isinstance(node.op, Leaf):
            kind = TensorType(node.types[0].dtype, _replaced(node.types[0].shape, sizes))
            made: tuple[Value, ...] = (
                leaf(node.op.key, kind, constant=node.op.constant, blocked=node.op.blocked),
            )
        else:
            assert isinstance(node.op, Operator), node.op
            attributes = {k: _attribute_at(v, sizes) for k, v in node.attributes.items()}
            sources = [done[source] for source in node.inputs]
            made = apply(node.op, sources, attributes, dtype=node.types[0].dtype)
        done.update(zip(node.outputs, made, strict=True))
    return tuple(done[value] for value in values)


def _replaced(shape: Shape, sizes: Mapping[str, Size]) -> Shape:
    return tuple(substitute(size, sizes) for size in shape)


def _attribute_at(attribute: Attribute, sizes: Mapping[str, Size]) -> Attribute:
    if isinstance(attribute, tuple):
        return _replaced(attribute, sizes)
    return substitute(attribute, sizes) if isinstance(attribute, Expr) else attribute


def demands(nodes: Iterable[Node]) -> Iterator[Constraint]:
    """What holds of symbolic sizes wherever these nodes are run, see `Operator.demanded`."""
    for node in nodes:
        if isinstance(node.op, Operator):
            yield from node.op.demanded([v.shape for v in node.inputs], node.attributes)


def requirements(values: Iterable[Value]) -> list[Constraint]:
    """What the operators under `values` require of symbolic sizes, in order of the nodes."""
    need = Need()
    for node in walk(values):
        if isinstance(node.op, Operator):
            node.op.shape([value.shape for value in node.inputs], node.attributes, need)
    return need.conditions
