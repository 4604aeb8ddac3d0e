"""Hash-consed nodes and values of graphs, the same for models, rule sides and candidates.

A `Node` applies an operator to values; a `Value` is one output of a node. Nodes are interned, so
structurally equal nodes are one object and comparing them is comparing identities. A leaf is a
node without inputs whose operator is a `Leaf`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from xflow.core.errors import ShapeError
from xflow.core.intervals import Range
from xflow.core.registry import Attribute, Attributes, Need, Operator, Shape, operator
from xflow.core.sorts import CODES, REAL


@dataclass(frozen=True)
class TensorType:
    """Element type (an ONNX name such as ``FLOAT``; in rules a sort such as ``REAL``) and shape."""

    dtype: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class MayBe(Enum):
    """What the elements of a float input may be."""

    NUMBERS = "numbers"
    NEGATIVE_INFINITY = "numbers or -inf"
    ANYTHING = "anything"


@dataclass(frozen=True)
class Leaf:
    """What a leaf stands for: an input, or a constant (weight) where `constant` is set.

    `key` tells leaves apart; two leaves with the same key are the same tensor. `blocked` says that
    it comes in the layout with blocks of channels that the runtime uses between some operators.
    `known` is what is known of its elements, see `xflow.analysis.ranges`; None: what is taken for
    granted of inputs of the model that hold what `may_be` says. `exact_sums` says that sums of
    products with codes are exact, less the zero points of those that read them, see
    `xflow.core.value_conditions`.
    """

    key: str
    constant: bool = False
    blocked: bool = False
    known: Range | None = None
    may_be: MayBe = MayBe.NUMBERS
    exact_sums: bool = False


@dataclass(frozen=True, eq=False)
class Opaque:
    """A node of a model that no operator of the registry describes.

    `key` names it; the nodes with equal keys and inputs are the same computation. An operator
    with state or randomness gets a key of its own for every node, and is not `pure`: what it gives
    is no constant, whatever it is given. `known` is what is known of the floats that it gives,
    whatever these are made of, see `xflow.analysis.ranges`.
    """

    key: str
    op_type: str = ""
    """The name of the operator in ONNX, where that is all that tells what it does.

    Of one of the runtime's own, with its domain and two colons before it.
    """
    pure: bool = True
    known: Range | None = None
    tests: bool = False
    """Whether graphs inside of it, or a function that it calls, ask whether values are numbers."""
    axis: int | None = None
    """Its attribute of that name, where `op_type` tells what it does and it has one."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque) or other.key != self.key:
            return False
        # What is random has the number of its node as a key, which others have in other models.
        known = other.op_type, other.pure, other.known, other.tests, other.axis
        return known == (self.op_type, self.pure, self.known, self.tests, self.axis)

    def __hash__(self) -> int:
        return hash(self.key)


class NodeKind:
    """Operator, attributes and what else tells a node apart, its inputs aside.

    Interned as nodes are: equal ones are one object, so that looking nodes up does not hash their
    attributes again.
    """

    __slots__ = ("__weakref__",)


class Node:
    """An operator applied to values. Make nodes with `apply`, `leaf` and `opaque`."""

    __slots__ = (
        "__weakref__",
        "attributes",
        "constant",
        "inputs",
        "kind",
        "op",
        "outputs",
        "types",
    )
    op: Operator | Leaf | Opaque
    inputs: tuple[Value, ...]
    attributes: Attributes
    types: tuple[TensorType, ...]
    outputs: tuple[Value, ...]
    constant: bool
    kind: NodeKind
    """What tells it apart from other nodes, its inputs aside."""

    @property
    def role(self) -> str:
        """What its operator is for, see `Operator.role`; empty for leaves and what is opaque."""
        return self.op.role if isinstance(self.op, Operator) else ""

    def is_operator(self, *names: str) -> bool:
        """Whether its operator is one of the registry's, by one of these names."""
        return isinstance(self.op, Operator) and self.op.name in names

    @property
    def codes(self) -> tuple[str, ...]:
        """The types of codes of quantized numbers among its inputs, by which kernels differ."""
        return tuple([v.type.dtype for v in self.inputs if v.type.dtype in CODES])

    @property
    def is_schematic(self) -> bool:
        """Whether its operator stands in a rule for others, see `Operator.schematic`."""
        return isinstance(self.op, Operator) and self.op.schematic

    def __repr__(self) -> str:
        return str(self.outputs[0])


class Value:
    """Output number `index` of `node`, one of `node.outputs`.

    There is one object for each, made with its node: values are compared, and looked up, by
    identity, which is most of what matching and rewriting do.
    """

    __slots__ = ("index", "is_constant", "is_leaf", "node", "shape", "type")
    node: Node
    index: int
    type: TensorType
    shape: Shape
    is_leaf: bool
    is_constant: bool
    """Whether it depends on constants alone: computed once, when the model is written."""

    def __str__(self) -> str:
        return format_value(self)

    __repr__ = __str__


def _output(node: Node, index: int) -> Value:
    """The object for one output of a node, all else of which is known."""
    value = Value()
    value.node, value.index = node, index
    value.type = node.types[index]
    value.shape = value.type.shape
    value.is_leaf = isinstance(node.op, Leaf)
    value.is_constant = node.constant
    return value


_nodes: weakref.WeakValueDictionary[object, Node] = weakref.WeakValueDictionary()
_kinds: weakref.WeakValueDictionary[object, NodeKind] = weakref.WeakValueDictionary()


def _intern(
    op: Operator | Leaf | Opaque,
    inputs: tuple[Value, ...],
    attributes: Attributes,
    types: Callable[[], tuple[TensorType, ...]],
    extra: object = None,
) -> Node:
    description = (op, tuple(sorted(attributes.items())), extra)
    kind = _kinds.get(description)
    if kind is None:
        kind = _kinds[description] = NodeKind()
    node = _nodes.get((kind, inputs))
    return _made(kind, op, inputs, dict(attributes), types()) if node is None else node


def _made(
    kind: NodeKind,
    op: Operator | Leaf | Opaque,
    inputs: tuple[Value, ...],
    attributes: Attributes,
    types: tuple[TensorType, ...],
) -> Node:
    """A node that there is not yet."""
    node = Node()
    node.op, node.inputs, node.attributes = op, inputs, attributes
    node.kind, node.types = kind, types
    if isinstance(op, Leaf):
        node.constant = op.constant
    else:
        node.constant = op.pure and bool(inputs) if isinstance(op, Opaque) else op.folds
        for value in inputs:
            if not value.is_constant:
                node.constant = False
                break
    node.outputs = tuple([_output(node, index) for index in range(len(types))])
    _nodes[kind, inputs] = node
    return node


def leaf(
    key: str,
    type: TensorType,
    *,
    constant: bool = False,
    blocked: bool = False,
    known: Range | None = None,
    may_be: MayBe = MayBe.NUMBERS,
    exact_sums: bool = False,
) -> Value:
    """A leaf: an input of the graph, or a constant; see `Leaf`."""
    op = Leaf(key, constant, blocked, known, may_be, exact_sums)
    return _intern(op, (), {}, lambda: (type,), type).outputs[0]


def opaque(
    key: str,
    inputs: Sequence[Value],
    types: Sequence[TensorType],
    op_type: str = "",
    *,
    pure: bool = True,
    known: Range | None = None,
    tests: bool = False,
    axis: int | None = None,
) -> tuple[Value, ...]:
    """The outputs of an operator that is passed through as it is; see `Opaque`."""
    op = Opaque(key, op_type, pure, known, tests, axis)
    return _intern(op, tuple(inputs), {}, lambda: tuple(types), tuple(types)).outputs


def apply(
    op: Operator | str,
    inputs: Sequence[Value],
    attributes: Mapping[str, Attribute] | None = None,
    *,
    dtype: str | None = None,
    need: Need | None = None,
) -> tuple[Value, ...]:
    """The outputs of `op` on `inputs`; attributes that are left out take their defaults.

    `need` collects the operator's requirements on symbolic sizes. `dtype` is the element type of
    outputs of which neither inputs nor attributes say it. Raises ShapeError.
    """
    if isinstance(op, str):
        op = operator(op)
    given = complete_attributes(op, attributes or {}, [value.shape for value in inputs])
    low, high = op.arity
    if len(inputs) < low or (high is not None and len(inputs) > high):
        raise ShapeError(f"{op.name} takes no {len(inputs)} inputs")
    elements = op.element_types([value.type.dtype for value in inputs], given, dtype or REAL)

    def types() -> tuple[TensorType, ...]:
        own = Need() if need is None else need
        shapes = op.shape([value.shape for value in inputs], given, own)
        return tuple(
            TensorType(elements[min(output, len(elements) - 1)], tuple(shape))
            for output, shape in enumerate(shapes)
        )

    if need is not None:  # an interned node would not report its requirements again
        known = types()
        return _intern(op, tuple(inputs), given, lambda: known, elements).outputs
    return _intern(op, tuple(inputs), given, types, elements).outputs


def with_inputs(node: Node, inputs: tuple[Value, ...]) -> Node:
    """The node that does what `node` does to other inputs. Raises ShapeError."""
    for new, old in zip(inputs, node.inputs, strict=True):
        if new.type is not old.type and new.type != old.type:
            break
    else:  # nothing can differ but the inputs: the usual case
        same = _nodes.get((node.kind, inputs))
        if same is None:
            same = _made(node.kind, node.op, inputs, node.attributes, node.types)
        return same
    if isinstance(node.op, Opaque):
        return _intern(node.op, tuple(inputs), {}, lambda: node.types, node.types)
    assert isinstance(node.op, Operator)
    return apply(node.op, inputs, node.attributes, dtype=node.types[0].dtype)[0].node


def hidden_positions(node: Node) -> tuple[int, ...]:
    """The inputs of `node` that `Operator.hides` names; none of leaves and what is opaque."""
    if not isinstance(node.op, Operator):
        return ()
    return node.op.hides([source.shape for source in node.inputs], node.attributes)


def complete_attributes(
    op: Operator, attributes: Attributes, shapes: Sequence[Shape]
) -> dict[str, Attribute]:
    """`attributes` with defaults filled in, in canonical form.

    Raises ShapeError for unknown or missing ones, and for flags that are neither 0 nor 1.
    """
    if not attributes.keys() <= op.attributes.keys():
        unknown = set(attributes) - set(op.attributes)
        raise ShapeError(f"{op.name} has no attribute {', '.join(sorted(unknown))}")
    complete: dict[str, Attribute] = {}
    for name, spec in op.attributes.items():
        if name in attributes:
            complete[name] = attributes[name]
        else:
            default = spec.default_for(shapes)
            if default is None:
                raise ShapeError(f"{op.name} needs the attribute {name}")
            complete[name] = default
        if spec.flag:
            value = complete[name]  # a symbol in rules that hold for both
            if isinstance(value, int) and value not in (0, 1):
                raise ShapeError(f"{name} must be 0 or 1, not {value}")
    return dict(op.canonical(complete, shapes))


def format_attribute(value: Attribute) -> str:
    """An attribute as rules write it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return repr(value) if isinstance(value, str) else str(value)


def format_value(value: Value) -> str:
    """The expression that computes `value`, as rules write it; defaults are left out."""
    node = value.node
    if isinstance(node.op, Leaf | Opaque):
        name = node.op.key
        if isinstance(node.op, Leaf):
            return name
    else:
        name = node.op.name
    args = [format_value(source) for source in node.inputs]
    for key, attribute in node.attributes.items():
        assert isinstance(node.op, Operator)
        default = node.op.attributes[key].default_for([source.shape for source in node.inputs])
        if attribute != default:
            args.append(f"{key}={format_attribute(attribute)}")
    suffix = f"[{value.index}]" if len(node.types) > 1 else ""
    return f"{name}({', '.join(args)}){suffix}"
