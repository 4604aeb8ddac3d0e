"""Random ONNX models whose sizes and attributes a solver finds, after NNSmith (ASPLOS 2023).

An operator is put in with symbols for its attributes and for all sizes. What it requires of them
are constraints: it stays if the solver finds sizes for the whole graph, and is taken out again if
not. In the end each size is asked to lie in an interval that is drawn (the binning of NNSmith), as
far as the others allow: a solver by itself answers with ones and zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
import z3
from hypothesis import reject
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

Draw: TypeAlias = Callable[[st.SearchStrategy[int]], int]
Shape: TypeAlias = tuple[z3.ArithRef, ...]
Solved: TypeAlias = Callable[[z3.ArithRef], int]
"""The number that a symbol stands for."""

OPSET = 18
LARGEST, MOST_AXES, MOST_ELEMENTS = 12, 4, 4000
EFFORT = 300_000
"""Steps of the solver for one question, not seconds, so that the same is drawn for the same
choices. Without an answer the operator is taken out."""
BINS = ((2, 3), (4, 6), (7, LARGEST))
UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "Softplus", "HardSwish", "Elu", "Floor")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")


@dataclass(frozen=True)
class Tensor:
    """A value of floats; its sizes are symbols until they are solved."""

    name: str
    shape: Shape


@dataclass
class Network:
    """A graph that grows as long as there are sizes for it."""

    draw: Draw
    context: z3.Context = field(default_factory=z3.Context)
    """Of its own, since what a solver does depends on all that it has seen."""
    solver: z3.Solver = field(init=False)
    values: list[Tensor] = field(default_factory=list)
    sizes: list[z3.ArithRef] = field(default_factory=list)
    emitted: list[Callable[[Solved], onnx.NodeProto | onnx.TensorProto]] = field(
        default_factory=list
    )
    constraints: list[Any] = field(default_factory=list)
    """Of the operator that is being put in."""
    count: int = 0

    def __post_init__(self) -> None:
        self.solver = z3.Solver(ctx=self.context)
        self.solver.set("rlimit", EFFORT)

    def number(self, low: int, high: int) -> int:
        """A number between two, both included."""
        return self.draw(st.integers(low, high))

    def one(self, items: Sequence[Any]) -> Any:
        """One of several things."""
        return items[self.number(0, len(items) - 1)]

    def fresh(self, kind: str) -> str:
        """A new name."""
        self.count += 1
        return f"{kind}_{self.count}"

    def symbol(self, low: int = 1, high: int = LARGEST) -> z3.ArithRef:
        """A new unknown between two numbers."""
        made = z3.Int(self.fresh("n"), self.context)
        self.constraints += [made >= low, made <= high]
        self.sizes.append(made)
        return made

    def term(self, size: z3.ArithRef | int) -> z3.ArithRef:
        """A size as the solver takes it."""
        return z3.IntVal(size, self.context) if isinstance(size, int) else size

    def tensor(self, rank: int, kind: str = "x") -> Tensor:
        """A new value of unknown sizes."""
        return Tensor(self.fresh(kind), tuple(self.symbol() for _ in range(rank)))

    def some(self, low: int = 0, high: int = MOST_AXES) -> Tensor:
        """A value with so many axes, late ones more often."""
        fitting = [value for value in self.values if low <= len(value.shape) <= high]
        if not fitting:
            raise UnfitError
        return fitting[max(self.number(0, len(fitting) - 1), self.number(0, len(fitting) - 1))]

    def require(self, *constraints: Any) -> None:
        """Add a constraint on sizes that the operator being put in requires."""
        self.constraints += constraints

    def weights(self, *shape: z3.ArithRef | int, positive: bool = False) -> str:
        """An initializer of floats, drawn once its sizes are known."""
        name, terms, seed = self.fresh("w"), tuple(map(self.term, shape)), self.number(0, 7)

        def emit(solved: Solved) -> onnx.TensorProto:
            random = np.random.default_rng(seed)
            array = random.integers(1 if positive else -4, 5, [*map(solved, terms)])
            return numpy_helper.from_array(array.astype(np.float32) / 4, name)

        self.emitted.append(emit)
        return name

    def integers(self, *values: z3.ArithRef | int) -> str:
        """An initializer of integers, known once the sizes are."""
        name = self.fresh("k")
        terms = tuple(map(self.term, values))
        self.emitted.append(
            lambda solved: numpy_helper.from_array(np.array([*map(solved, terms)], np.int64), name)
        )
        return name

    def node(
        self, kind: str, inputs: Sequence[str], *shapes: Sequence[Any], **attributes: Any
    ) -> list[Tensor]:
        """An operator with outputs of these shapes; attributes may be symbols, or lists of them."""
        made = [Tensor(self.fresh(kind.lower()), tuple(map(self.term, shape))) for shape in shapes]
        names = [value.name for value in made]

        def emit(solved: Solved) -> onnx.NodeProto:
            known = {key: _known(value, solved) for key, value in attributes.items()}
            return helper.make_node(kind, inputs, names, **known)

        self.emitted.append(emit)
        self.values += made
        for value in made:
            self.require(*(size >= 1 for size in value.shape))
            self.require(*(size <= 3 * LARGEST for size in value.shape))
            if len(value.shape) > 2:
                self.require(z3.Product(*value.shape) <= MOST_ELEMENTS)
        return made

    def grow(self, operators: int) -> None:
        """Put in so many operators, as far as there are sizes for them."""
        for _ in range(operators):
            kind = self.one(OPERATORS)
            values, sizes, emitted = len(self.values), len(self.sizes), len(self.emitted)
            self.constraints = []
            try:
                kind(self)
                fits = self._holds(self.constraints)
            except UnfitError:
                fits = False
            if fits:
                self.solver.add(*self.constraints)
            else:
                del self.values[values:], self.sizes[sizes:], self.emitted[emitted:]

    def spread(self) -> None:
        """Have sizes and attributes lie in intervals that are drawn, where that is possible."""
        for size in self.sizes:
            low, high = self.one(BINS)
            wish = [size >= low, size <= high]
            if self._holds(wish):
                self.solver.add(*wish)

    def _holds(self, constraints: Sequence[Any]) -> bool:
        self.solver.push()
        self.solver.add(*constraints)
        answer = self.solver.check()
        self.solver.pop()
        return bool(answer == z3.sat)


class UnfitError(Exception):
    """There is no value that the operator could read."""


def _known(value: Any, solved: Solved) -> Any:
    if isinstance(value, z3.ArithRef):
        return solved(value)
    return [_known(each, solved) for each in value] if isinstance(value, list) else value


def unary(b: Network) -> None:
    x = b.some()
    b.node(b.one(UNARY), [x.name], x.shape)


def binary(b: Network) -> None:
    """Two values that broadcast, or a value and a constant."""
    x, y = b.some(), b.some()
    if b.number(0, 2) == 0:
        shape = [b.one([size, 1]) for size in x.shape[b.number(0, len(x.shape)) :]]
        b.node(b.one(BINARY), [x.name, b.weights(*shape)], x.shape)
        return
    long, short = sorted((x.shape, y.shape), key=len, reverse=True)
    lead = len(long) - len(short)
    shape = list(long[:lead])
    for m, n in zip(long[lead:], short, strict=True):
        b.require(z3.Or(m == n, m == 1, n == 1))
        shape.append(z3.If(m == 1, n, m))
    b.node(b.one(BINARY), [x.name, y.name], shape)


def choice(b: Network) -> None:
    x = b.some()
    test = b.fresh("test")
    bound = b.weights()
    b.emitted.append(lambda _: helper.make_node("Less", [x.name, bound], [test]))
    b.node("Where", [test, x.name, b.weights()], x.shape)


def product(b: Network) -> None:
    x, y = b.some(2), b.some(2)
    b.require(x.shape[-1] == y.shape[-2])
    long, short = sorted((x.shape[:-2], y.shape[:-2]), key=len, reverse=True)
    lead = len(long) - len(short)
    b.require(*(m == n for m, n in zip(long[lead:], short, strict=True)))
    b.node("MatMul", [x.name, y.name], [*long, x.shape[-2], y.shape[-1]])


def layer(b: Network) -> None:
    x = b.some(2)
    columns = b.symbol()
    made = b.node("MatMul", [x.name, b.weights(x.shape[-1], columns)], [*x.shape[:-1], columns])
    if b.number(0, 1):
        b.node("Add", [made[0].name, b.weights(columns)], made[0].shape)


def gemm(b: Network) -> None:
    x = b.some(2, 2)
    by_rows, turned, columns = b.number(0, 1), b.number(0, 1), b.symbol()
    rows, inner = (x.shape[1], x.shape[0]) if by_rows else x.shape
    weights = b.weights(*((columns, inner) if turned else (inner, columns)))
    bias = [b.weights(*b.one([(columns,), (1, columns), (rows, 1), ()]))] if b.number(0, 1) else []
    b.node(
        "Gemm",
        [x.name, weights, *bias],
        [rows, columns],
        transA=by_rows,
        transB=turned,
        alpha=b.one([1.0, 0.5]),
    )


def _window(
    b: Network, sizes: Sequence[z3.ArithRef], *, dilated: bool = True
) -> tuple[list[z3.ArithRef], dict[str, Any]]:
    """The sizes that a window leaves, and its attributes; strides and dilations are drawn."""
    kernels, starts, ends, strides, dilations, left = [], [], [], [], [], []
    for size in sizes:
        kernel, start, end = b.symbol(1, 4), b.symbol(0, 2), b.symbol(0, 2)
        stride, dilation = b.number(1, 2), b.number(1, 2) if dilated else 1
        b.require(start < kernel, end < kernel)
        span = size + start + end - dilation * (kernel - 1) - 1
        b.require(span >= 0)
        output = b.symbol(1, 3 * LARGEST)
        b.require(stride * (output - 1) <= span, span < stride * output)
        kernels.append(kernel)
        starts.append(start)
        ends.append(end)
        strides.append(stride)
        dilations.append(dilation)
        left.append(output)
    window = {"kernel_shape": kernels, "pads": [*starts, *ends], "strides": strides}
    return left, {**window, "dilations": dilations} if dilated else window


def convolution(b: Network) -> None:
    x = b.some(3)
    group = b.one([1, 1, 2, 3])
    inner, outer = b.symbol(1, 6), b.symbol(1, 6)
    b.require(x.shape[1] == group * inner)
    left, window = _window(b, x.shape[2:])
    kernel = b.weights(group * outer, inner, *window["kernel_shape"])
    bias = [b.weights(group * outer)] if b.number(0, 1) else []
    b.node(
        "Conv", [x.name, kernel, *bias], [x.shape[0], group * outer, *left], group=group, **window
    )


def twin_convolutions(b: Network) -> None:
    """A large and a small kernel on one image, added, which rules merge."""
    x = b.some(4)
    outer = b.symbol(1, 6)
    large, small = b.weights(outer, x.shape[1], 3, 3), b.weights(outer, x.shape[1], 1, 1)
    shape = [x.shape[0], outer, *x.shape[2:]]
    (first,) = b.node("Conv", [x.name, large], shape, pads=[1, 1, 1, 1])
    (second,) = b.node("Conv", [x.name, small], shape)
    b.node("Add", [first.name, second.name], shape)


def transposed_convolution(b: Network) -> None:
    x = b.some(3)
    outer, kernel, stride = b.symbol(1, 6), b.symbol(1, 3), b.number(1, 2)
    sizes = x.shape[2:]
    weights = b.weights(x.shape[1], outer, *[kernel] * len(sizes))
    b.node(
        "ConvTranspose",
        [x.name, weights],
        [x.shape[0], outer, *(stride * (size - 1) + kernel for size in sizes)],
        strides=[stride] * len(sizes),
        kernel_shape=[kernel] * len(sizes),
    )


def pool(b: Network) -> None:
    x = b.some(3)
    if b.number(0, 3) == 0:
        kind = b.one(["GlobalAveragePool", "GlobalMaxPool"])
        b.node(kind, [x.name], [*x.shape[:2], *[1] * len(x.shape[2:])])
        return
    kind = b.one(["MaxPool", "AveragePool"])
    left, window = _window(b, x.shape[2:], dilated=kind == "MaxPool")
    if kind == "AveragePool":
        window["count_include_pad"] = b.number(0, 1)
    b.node(kind, [x.name], [*x.shape[:2], *left], **window)


def transpose(b: Network) -> None:
    x = b.some(2)
    order = list(range(len(x.shape)))
    for i in range(len(order) - 1, 0, -1):
        j = b.number(0, i)
        order[i], order[j] = order[j], order[i]
    b.node("Transpose", [x.name], [x.shape[i] for i in order], perm=order)


def reshape(b: Network) -> None:
    x = b.some(1)
    shape = [b.symbol(1, 3 * LARGEST) for _ in range(b.number(1, 3))]
    b.require(z3.Product(*shape) == z3.Product(*x.shape))
    b.node("Reshape", [x.name, b.integers(*shape)], shape)


def flatten(b: Network) -> None:
    x = b.some(2)
    axis = b.number(1, len(x.shape) - 1)
    b.node(
        "Flatten", [x.name], [z3.Product(*x.shape[:axis]), z3.Product(*x.shape[axis:])], axis=axis
    )


def squeeze(b: Network) -> None:
    x = b.some(2)
    axis = b.number(0, len(x.shape) - 1)
    b.require(x.shape[axis] == 1)
    b.node("Squeeze", [x.name, b.integers(axis)], [*x.shape[:axis], *x.shape[axis + 1 :]])


def unsqueeze(b: Network) -> None:
    x = b.some(0, MOST_AXES - 1)
    axis = b.number(0, len(x.shape))
    b.node("Unsqueeze", [x.name, b.integers(axis)], [*x.shape[:axis], 1, *x.shape[axis:]])


def concat(b: Network) -> None:
    x = b.some(1)
    y = b.some(len(x.shape), len(x.shape))
    axis = b.number(0, len(x.shape) - 1)
    for place, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)):
        if place != axis:
            b.require(m == n)
    shape = [*x.shape[:axis], x.shape[axis] + y.shape[axis], *x.shape[axis + 1 :]]
    b.node("Concat", [x.name, y.name], shape, axis=axis)


def split(b: Network) -> None:
    x = b.some(1)
    axis = b.number(0, len(x.shape) - 1)
    parts = [b.symbol(), b.symbol()]
    b.require(sum(parts) == x.shape[axis])
    shapes = [[*x.shape[:axis], part, *x.shape[axis + 1 :]] for part in parts]
    b.node("Split", [x.name, b.integers(*parts)], *shapes, axis=axis)


def slice_(b: Network) -> None:
    x = b.some(1)
    axis, step = b.number(0, len(x.shape) - 1), b.number(1, 2)
    start, end, left = b.symbol(0), b.symbol(1), b.symbol()
    b.require(start < end, end <= x.shape[axis])
    b.require(step * (left - 1) < end - start, end - start <= step * left)
    b.node(
        "Slice",
        [x.name, *map(b.integers, (start, end, axis, step))],
        [*x.shape[:axis], left, *x.shape[axis + 1 :]],
    )


def pad(b: Network) -> None:
    x = b.some(1)
    mode = b.one(["constant", "reflect", "edge"])
    starts, ends = ([b.symbol(0, 2) for _ in x.shape] for _ in range(2))
    if mode == "reflect":
        for size, start, end in zip(x.shape, starts, ends, strict=True):
            b.require(start < size, end < size)
    shape = [n + start + end for n, start, end in zip(x.shape, starts, ends, strict=True)]
    b.node("Pad", [x.name, b.integers(*starts, *ends)], shape, mode=mode)


def expand(b: Network) -> None:
    x = b.some(1)
    shape = [b.symbol() for _ in x.shape]
    b.require(*(z3.Or(n == m, n == 1) for n, m in zip(x.shape, shape, strict=True)))
    b.node("Expand", [x.name, b.integers(*shape)], shape)


def tile(b: Network) -> None:
    x = b.some(1)
    times = [b.symbol(1, 3) for _ in x.shape]
    shape = [n * m for n, m in zip(x.shape, times, strict=True)]
    b.node("Tile", [x.name, b.integers(*times)], shape)


def gather(b: Network) -> None:
    x = b.some(1)
    axis = b.number(0, len(x.shape) - 1)
    places = [b.symbol(0) for _ in range(b.number(1, 3))]
    b.require(*(place < x.shape[axis] for place in places))
    shape = [*x.shape[:axis], len(places), *x.shape[axis + 1 :]]
    b.node("Gather", [x.name, b.integers(*places)], shape, axis=axis)


def reduction(b: Network) -> None:
    x = b.some(1)
    axes = [axis for axis in range(len(x.shape)) if b.number(0, 1)] or [len(x.shape) - 1]
    keep = b.number(0, 1)
    kept: list[Any] = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    left = kept if keep else [n for axis, n in enumerate(x.shape) if axis not in axes]
    b.node(b.one(REDUCTIONS), [x.name, b.integers(*axes)], left, keepdims=keep)


def softmax(b: Network) -> None:
    x = b.some(1)
    b.node(b.one(["Softmax", "LogSoftmax"]), [x.name], x.shape, axis=b.number(0, len(x.shape) - 1))


def normalization(b: Network) -> None:
    kind = b.one(["LayerNormalization", "BatchNormalization", "InstanceNormalization"])
    x = b.some(1 if kind == "LayerNormalization" else 3)
    extent = x.shape[-1] if kind == "LayerNormalization" else x.shape[1]
    given = [b.weights(extent), b.weights(extent)]
    if kind == "BatchNormalization":
        given += [b.weights(extent), b.weights(extent, positive=True)]
    extra = {"axis": -1} if kind == "LayerNormalization" else {}
    b.node(kind, [x.name, *given], x.shape, **extra)


def blocks(b: Network) -> None:
    """Blocks of pixels as channels, or the other way."""
    x = b.some(4)
    n, c, h, w = x.shape
    if b.number(0, 1):
        inner = b.symbol()
        b.require(c == 4 * inner)
        mode = b.one(["DCR", "CRD"])
        b.node("DepthToSpace", [x.name], [n, inner, 2 * h, 2 * w], blocksize=2, mode=mode)
    else:
        rows, columns = b.symbol(), b.symbol()
        b.require(h == 2 * rows, w == 2 * columns)
        b.node("SpaceToDepth", [x.name], [n, 4 * c, rows, columns], blocksize=2)


OPERATORS: tuple[Callable[[Network], None], ...] = (
    *(unary, unary, binary, binary, choice, product, layer, gemm, convolution, convolution),
    *(twin_convolutions, transposed_convolution, pool, transpose, reshape, flatten, squeeze),
    *(unsqueeze, concat, split, slice_, pad, expand, tile, gather, reduction, softmax),
    *(normalization, blocks),
)


@st.composite
def solved_models(draw: Draw, most: int = 12) -> onnx.ModelProto:
    """A model of up to so many operators, with sizes and attributes that a solver found."""
    b = Network(draw)
    inputs = [b.tensor(b.one([1, 2, 3, 4, 4]), "input") for _ in range(b.number(1, 3))]
    b.values += inputs
    b.require(*(z3.Product(*x.shape) <= MOST_ELEMENTS for x in inputs))
    b.solver.add(*b.constraints)
    b.grow(b.number(3, most))
    b.spread()
    b.solver.push()  # else it tries another tactic than for the questions before
    if b.solver.check() != z3.sat:
        reject()
    model = b.solver.model()

    def solved(size: z3.ArithRef) -> int:
        return int(model.eval(size, model_completion=True).as_long())

    made = [emit(solved) for emit in b.emitted]
    nodes = [item for item in made if isinstance(item, onnx.NodeProto)]
    read = {name for node in nodes for name in node.input}
    ends = [value for value in b.values if value.name not in read and value not in inputs]
    outputs = list(dict.fromkeys([*ends, b.values[-1]]))

    def typed(values: Sequence[Tensor]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(v.name, TensorProto.FLOAT, [*map(solved, v.shape)])
            for v in values
        ]

    weights = [item for item in made if isinstance(item, onnx.TensorProto)]
    graph = helper.make_graph(nodes, "solved", typed(inputs), typed(outputs), weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
