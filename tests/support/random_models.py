"""Random ONNX models that are valid by construction, of operators that are common in models.

Values are typed as they are made, and each operator is drawn from those that fit the shapes that
are there, as in NNSmith (Liu et al., ASPLOS 2023), with the constraints solved by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

Draw: TypeAlias = Callable[[st.SearchStrategy[int]], int]
Size: TypeAlias = int | str
OPSETS = (13, 15, 17, 18, 20, 21)
UNARY = ("Relu", "Neg", "Sigmoid", "Tanh", "Abs", "Softplus", "Identity", "LeakyRelu", "Erf")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax")
MINE = "tests.functions"
FUNCTIONS = ("Twice", "Squared", "Leaky", "Nested", "Choose")


@dataclass(frozen=True)
class Typed:
    """A value of floats, and its shape; a name stands for a dynamic dimension."""

    name: str
    shape: tuple[Size, ...]

    @property
    def is_static(self) -> bool:
        """Whether all sizes are known."""
        return all(isinstance(size, int) for size in self.shape)


@dataclass
class Builder:
    """One graph that grows; inner graphs see what the `outer` one has computed."""

    draw: Draw
    opset: int
    outer: Builder | None = None
    prefix: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Typed] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    uses_functions: bool = False

    def number(self, low: int, high: int) -> int:
        """A number between two, both included."""
        return self.draw(st.integers(low, high))

    def pick(self, items: Sequence[Typed]) -> Typed:
        """One of several values, late ones more often: deep graphs find more."""
        return items[len(items) - 1 - min(self.number(0, 2 * len(items) - 1) // 2, len(items) - 1)]

    @property
    def seen(self) -> list[Typed]:
        """The values that an operator may read."""
        return [*(self.outer.seen if self.outer else []), *self.values]

    def some(self, suits: Callable[[Typed], bool] = lambda _: True) -> Typed | None:
        """A value that fits, if there is one."""
        fitting = [value for value in self.seen if suits(value)]
        return self.pick(fitting) if fitting else None

    def fresh(self, kind: str) -> str:
        """A new name; sometimes one that is unpleasant."""
        number = len(self.nodes) + len(self.constants) + len(self.weights) + len(self.values)
        odd = ("", "/", "::", " ", ".", "_folded_")[number % 6]
        return f"{self.prefix}{kind}{odd}{number}"

    def weight(self, shape: tuple[int, ...]) -> str:
        """An initializer; one that is there already where it has the shape."""
        same = [each for each in self.weights if tuple(each.dims) == shape]
        if same and self.number(0, 1):
            return str(same[0].name)
        random = np.random.default_rng(self.number(0, 7))
        array = random.integers(-4, 5, shape).astype(np.float32) / 4
        tensor = numpy_helper.from_array(array, self.fresh("w"))
        self.weights.append(tensor)
        return str(tensor.name)

    def integers(self, values: Sequence[int]) -> str:
        """A constant vector of integers: an initializer, or a Constant node."""
        tensor = numpy_helper.from_array(np.array(values, np.int64), self.fresh("k"))
        if self.number(0, 1):
            self.constants.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
        return str(tensor.name)

    def node(
        self, kind: str, inputs: Sequence[str], shape: tuple[Size, ...], **attributes: object
    ) -> Typed:
        """Add an operator with one output."""
        made = Typed(self.fresh(kind), shape)
        domain = str(attributes.pop("domain", ""))
        node = helper.make_node(kind, inputs, [made.name], domain=domain, **attributes)
        if self.number(0, 3):
            node.name = f"node {made.name}"
        self.nodes.append(node)
        self.values.append(made)
        return made

    def grow(self, steps: int, depth: int = 1) -> None:
        """Add so many operators, where they fit; control flow down to a depth."""
        kinds = [*SIMPLE, *SIMPLE, *SIMPLE, *(CONTROL if depth else ())]
        for _ in range(steps):
            kinds[self.number(0, len(kinds) - 1)](self)

    def graph(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed]
    ) -> onnx.GraphProto:
        """The graph as a message."""
        return helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in inputs],
            [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in outputs],
            [*self.weights, *self.constants],
        )


def unary(b: Builder) -> None:
    if x := b.some():
        b.node(UNARY[b.number(0, len(UNARY) - 1)], [x.name], x.shape)


def binary(b: Builder) -> None:
    if x := b.some():
        y = b.some(lambda v: v.shape == x.shape)
        b.node(BINARY[b.number(0, len(BINARY) - 1)], [x.name, (y or x).name], x.shape)


def with_constant(b: Builder) -> None:
    if x := b.some():
        last = x.shape[-1:]
        whole = last if last and isinstance(last[0], int) and b.number(0, 1) else ()
        names = [x.name, b.weight(tuple(n for n in whole if isinstance(n, int)))]
        b.node(BINARY[b.number(0, 2)], names[:: 1 - 2 * b.number(0, 1)], x.shape)


def product(b: Builder) -> None:
    if x := b.some(lambda v: len(v.shape) >= 2 and isinstance(v.shape[-1], int)):
        inner = x.shape[-1]
        assert isinstance(inner, int)
        columns = b.number(1, 4)
        b.node("MatMul", [x.name, b.weight((inner, columns))], (*x.shape[:-1], columns))


def two_products(b: Builder) -> None:
    """Two products of one value, added, which rules merge."""
    if x := b.some(lambda v: len(v.shape) >= 2 and isinstance(v.shape[-1], int)):
        inner = x.shape[-1]
        assert isinstance(inner, int)
        p = b.node("MatMul", [x.name, b.weight((inner, 3))], (*x.shape[:-1], 3))
        q = b.node("MatMul", [x.name, b.weight((inner, 3))], (*x.shape[:-1], 3))
        b.node("Add", [p.name, q.name], p.shape)


def transpose(b: Builder) -> None:
    if x := b.some(lambda v: len(v.shape) >= 2):
        order = list(range(len(x.shape)))
        turn = b.number(1, len(order) - 1)
        order = order[turn:] + order[:turn]
        b.node("Transpose", [x.name], tuple(x.shape[i] for i in order), perm=order)


def reshape(b: Builder) -> None:
    if x := b.some(lambda v: v.is_static):
        total = int(np.prod([n for n in x.shape if isinstance(n, int)]))
        shape = (total,) if not total or b.number(0, 1) else (1, total)
        if total and total % 2 == 0 and b.number(0, 1):
            shape = (2, total // 2)
        asked = list(shape) if 0 in shape or b.number(0, 1) else [*shape[:-1], -1]
        if 0 in shape and b.opset < 14:  # there, 0 means as many as before
            return
        extra = {"allowzero": 1} if 0 in shape else {}
        b.node("Reshape", [x.name, b.integers(asked)], shape, **extra)


def shape_arithmetic(b: Builder) -> None:
    """The detour by which exporters flatten."""
    if x := b.some(lambda v: len(v.shape) == 2 and v.is_static and 0 not in v.shape):
        shape, part = b.fresh("s"), b.fresh("t")
        b.nodes.append(helper.make_node("Shape", [x.name], [shape]))
        b.nodes.append(helper.make_node("Gather", [shape, b.integers([0])], [part], axis=0))
        whole = f"{part} and the rest"
        b.nodes.append(helper.make_node("Concat", [part, b.integers([-1])], [whole], axis=0))
        b.node("Reshape", [x.name, whole], x.shape)


def concat(b: Builder) -> None:
    if x := b.some(lambda v: bool(v.shape) and isinstance(v.shape[-1], int)):
        y = b.some(
            lambda v: (
                bool(v.shape) and v.shape[:-1] == x.shape[:-1] and isinstance(v.shape[-1], int)
            )
        )
        y = y or x
        size = int(x.shape[-1]) + int(y.shape[-1])
        b.node("Concat", [x.name, y.name], (*x.shape[:-1], size), axis=-1)


def slice_(b: Builder) -> None:
    if x := b.some(lambda v: bool(v.shape) and isinstance(v.shape[-1], int) and v.shape[-1] >= 2):
        start = b.number(0, 1)
        end = int(x.shape[-1]) - b.number(0, 1)
        names = [x.name, *(b.integers([n]) for n in (start, end, len(x.shape) - 1))]
        b.node("Slice", names, (*x.shape[:-1], max(0, end - start)))


def split(b: Builder) -> None:
    """Two outputs, of which both or one is used."""
    if x := b.some(lambda v: bool(v.shape) and isinstance(v.shape[-1], int) and v.shape[-1] >= 2):
        first = int(x.shape[-1]) // 2
        parts = [first, int(x.shape[-1]) - first]
        names = [b.fresh("left"), b.fresh("right")]
        b.nodes.append(
            helper.make_node("Split", [x.name, b.integers(parts)], names, axis=len(x.shape) - 1)
        )
        made = [Typed(n, (*x.shape[:-1], size)) for n, size in zip(names, parts, strict=True)]
        b.values += made[b.number(0, 1) :]


def reduction(b: Builder) -> None:
    if x := b.some(lambda v: bool(v.shape) and 0 not in v.shape):
        kind = REDUCTIONS[b.number(0, 2)]
        keep = b.number(0, 1)
        shape = (*x.shape[:-1], 1) if keep else x.shape[:-1]
        as_input = b.opset >= 18 or kind == "ReduceSum"
        names = [x.name, b.integers([-1])] if as_input else [x.name]
        extra = {} if as_input else {"axes": [-1]}
        b.node(kind, names, shape, keepdims=keep, **extra)


def softmax(b: Builder) -> None:
    if x := b.some(lambda v: bool(v.shape) and 0 not in v.shape):
        b.node("Softmax", [x.name], x.shape, axis=-1)


def unsqueeze(b: Builder) -> None:
    if x := b.some(lambda v: len(v.shape) < 4):
        y = b.node("Unsqueeze", [x.name, b.integers([0])], (1, *x.shape))
        if b.number(0, 1):
            b.node("Squeeze", [y.name, b.integers([0])], x.shape)


def gather(b: Builder) -> None:
    if x := b.some(lambda v: bool(v.shape) and isinstance(v.shape[-1], int) and v.shape[-1] >= 1):
        last = int(x.shape[-1]) - 1
        places = [b.number(0, last), last, -1]
        b.node("Gather", [x.name, b.integers(places)], (*x.shape[:-1], 3), axis=-1)


def choice(b: Builder) -> None:
    if x := b.some():
        y = b.some(lambda v: v.shape == x.shape) or x
        test = b.fresh("test")
        b.nodes.append(helper.make_node("Greater", [x.name, b.weight(())], [test]))
        b.node("Where", [test, x.name, y.name], x.shape)


def cast(b: Builder) -> None:
    if x := b.some():
        middle = b.fresh("cast")
        kind = (TensorProto.INT32, TensorProto.DOUBLE, TensorProto.BOOL)[b.number(0, 2)]
        b.nodes.append(helper.make_node("Cast", [x.name], [middle], to=kind))
        b.node("Cast", [middle], x.shape, to=TensorProto.FLOAT)


def convolution(b: Builder) -> None:
    def is_image(v: Typed) -> bool:
        return len(v.shape) == 4 and all(isinstance(n, int) and n >= 1 for n in v.shape[1:])

    if x := b.some(is_image):
        channels = int(x.shape[1])
        kernel = b.number(0, 1) * 2 + 1
        made = b.number(1, 4)
        b.node(
            "Conv",
            [x.name, b.weight((made, channels, kernel, kernel))],
            (x.shape[0], made, *x.shape[2:]),
            pads=[kernel // 2] * 4,
        )


def twin_convolutions(b: Builder) -> None:
    """Two convolutions of one image with kernels of unlike sizes, added."""
    before = len(b.values)
    convolution(b)
    if len(b.values) > before:
        made = b.values[-1]
        source = b.nodes[-1].input[0]
        kernel = b.weight((int(made.shape[1]), _channels(b, source), 1, 1))
        other = b.node("Conv", [source, kernel], made.shape)
        b.node("Add", [made.name, other.name], made.shape)


def _channels(b: Builder, name: str) -> int:
    return next(int(v.shape[1]) for v in b.seen if v.name == name)


def random_numbers(b: Builder) -> None:
    """Random numbers without influence on results, so that these can be compared."""
    if x := b.some():
        drawn = b.node("RandomNormalLike", [x.name], x.shape)
        b.values.pop()
        zero = numpy_helper.from_array(np.zeros((), np.float32), b.fresh("zero"))
        b.constants.append(zero)
        nothing = b.node("Mul", [drawn.name, zero.name], x.shape)
        b.values.pop()
        b.node("Add", [x.name, nothing.name], x.shape)


def sequence(b: Builder) -> None:
    if x := b.some():
        y = b.some() or x
        several = b.fresh("several")
        b.nodes.append(helper.make_node("SequenceConstruct", [x.name, y.name], [several]))
        place = numpy_helper.from_array(np.array(0, np.int64), b.fresh("place"))
        b.constants.append(place)
        b.node("SequenceAt", [several, place.name], x.shape)


def call(b: Builder) -> None:
    if x := b.some():
        b.uses_functions = True
        name = FUNCTIONS[b.number(0, len(FUNCTIONS) - 1)]
        given = {"alpha": 0.25} if name == "Leaky" and b.number(0, 1) else {}
        b.node(name, [x.name], x.shape, domain=MINE, **given)


def conditional(b: Builder) -> None:
    x = b.some()
    if x is None:
        return
    graphs = []
    for branch in ("then", "else"):
        inner = Builder(b.draw, b.opset, b, f"{b.prefix}{len(b.nodes)} {branch} ")
        inner.values.append(x)
        inner.grow(b.number(1, 3), depth=0)
        fitting = [v for v in inner.values[1:] if v.shape == x.shape]
        last = fitting[-1] if fitting else inner.node("Neg", [x.name], x.shape)
        b.uses_functions |= inner.uses_functions
        graphs.append(inner.graph(branch, [], [last]))
    total, test = b.fresh("total"), b.fresh("test")
    b.nodes.append(helper.make_node("ReduceSum", [x.name], [total], keepdims=0))
    b.nodes.append(helper.make_node("Greater", [total, b.weight(())], [test]))
    b.node("If", [test], x.shape, then_branch=graphs[0], else_branch=graphs[1])


def loop(b: Builder) -> None:
    x = b.some()
    if x is None:
        return
    prefix = f"{b.prefix}{len(b.nodes)} body "
    inner = Builder(b.draw, b.opset, b, prefix)
    state = Typed(f"{prefix}state", x.shape)
    inner.values += [x, state]
    inner.grow(b.number(1, 3), depth=0)
    fitting = [v for v in inner.values[2:] if v.shape == x.shape]
    last = fitting[-1] if fitting else inner.node("Tanh", [state.name], x.shape)
    held = f"{prefix}on"
    inner.nodes.append(helper.make_node("Identity", [f"{prefix}go"], [held]))
    end = inner.node("Tanh", [last.name], x.shape)  # so that values stay bounded
    b.uses_functions |= inner.uses_functions
    body = inner.graph("body", [state], [end])
    flags = [("count", TensorProto.INT64), ("go", TensorProto.BOOL)]
    typed = [helper.make_tensor_value_info(f"{prefix}{n}", kind, []) for n, kind in flags]
    given, made = list(body.input), list(body.output)
    del body.input[:], body.output[:]
    body.input.extend([*typed, *given])
    body.output.extend([helper.make_tensor_value_info(held, TensorProto.BOOL, []), *made])
    trips = numpy_helper.from_array(np.array(b.number(0, 3), np.int64), b.fresh("trips"))
    b.constants.append(trips)
    b.node("Loop", [trips.name, "", x.name], x.shape, body=body)


SIMPLE: tuple[Callable[[Builder], None], ...] = (
    *(unary, unary, binary, binary, with_constant, product, two_products, transpose, reshape),
    *(shape_arithmetic, concat, slice_, split, reduction, softmax, unsqueeze, gather, choice, cast),
    *(convolution, twin_convolutions, random_numbers, sequence, call),
)
CONTROL = (conditional, loop)

SHAPES: tuple[tuple[Size, ...], ...] = (
    *((), (3,), ("N", 4), (2, 3, 4), ("N", "M", 2), (1, 2, 5, 5), ("N", 2, 4, 4), (0, 3), (4, 4)),
)


def _functions(opset: int) -> list[onnx.FunctionProto]:
    """Functions of one value: with an attribute, calls of one another, and control flow."""

    def node(kind: str, *names: str, **attributes: object) -> onnx.NodeProto:
        domain = MINE if kind in FUNCTIONS else ""
        return helper.make_node(kind, names[:-1], names[-1:], domain=domain, **attributes)

    leaky = node("LeakyRelu", "x", "l")
    leaky.attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    branches = [
        helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=nodes[-1].output[0])])
        for name, nodes in (
            ("then", [node("Twice", "h", "t"), node("Relu", "t", "r"), node("Relu", "r", "u")]),
            ("else", [node("Neg", "x", "v")]),
        )
    ]
    choice = node("If", "c", "i", then_branch=branches[0], else_branch=branches[1])
    yes = numpy_helper.from_array(np.array(True))
    bodies = {
        "Twice": [node("Add", "x", "x", "y")],
        "Squared": [node("Mul", "x", "x", "y")],
        "Leaky": [leaky, node("Relu", "l", "r"), node("Relu", "r", "y")],
        "Nested": [node("Twice", "x", "t"), node("Leaky", "t", "s"), node("Neg", "s", "y")],
        "Choose": [
            *(node("Constant", "c", value=yes), node("Tanh", "x", "h"), choice),
            node("Add", "i", "x", "y"),
        ],
    }
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MINE, 1)]
    return [
        helper.make_function(
            MINE, name, ["x"], ["y"], body, opsets, ["alpha"] if name == "Leaky" else []
        )
        for name, body in bodies.items()
    ]


@st.composite
def models(draw: Draw, most: int = 10) -> onnx.ModelProto:
    """A model of up to so many operators, apart from those inside its control flow."""
    opset = OPSETS[draw(st.integers(0, len(OPSETS) - 1))]
    b = Builder(draw, opset)
    shapes = [SHAPES[b.number(0, len(SHAPES) - 1)] for _ in range(b.number(1, 3))]
    inputs = [Typed(f"input {k}", shape) for k, shape in enumerate(shapes)]
    b.values += inputs
    b.grow(b.number(2, most))
    several = [b.pick(b.values) for _ in range(b.number(1, 3))]
    outputs = list(dict.fromkeys([b.values[-1], *several]))
    graph = b.graph("random", inputs, outputs)
    functions: list[onnx.FunctionProto] = []
    if b.uses_functions:
        functions = _functions(opset)
    ids = [helper.make_opsetid("", opset)]
    ids += [helper.make_opsetid(MINE, 1)] if functions else []
    # A graph inside an operator cannot have weights in IR version 3.
    flat = not any(node.op_type in ("If", "Loop") for node in graph.node)
    old = flat and b.number(0, 7) == 0 and not functions
    model = helper.make_model(
        graph, opset_imports=ids, functions=functions, ir_version=3 if old else 8
    )
    if old or b.number(0, 7) == 0:  # weights that are inputs, too
        for tensor in graph.initializer:
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            model.graph.input.append(value)
    model.metadata_props.add(key="made by", value="chance")
    return model
