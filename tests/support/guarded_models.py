"""Random models with partial operators under guards, and inputs at which the guards matter.

Each model is made from a number alone: quotients, roots, logarithms and exponentials behind
choices, clamps, masks and paddings; discrete operators; and affine layers, sums and movements
around, so that many rules match. The inputs hold zeros, equal elements, the model's constants and
their neighbouring floats, and large offsets with small deviations; NaN and infinities only where a
model must accept them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from xflow.core.registry import Array

SEED = 2024
OPSETS = (18, 20, 21)
FEWEST, MOST = 3, 15
"""Operators of a model."""
ORDINARY = (0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -2.0, 0.1, 10.0, 0.25, 100.0, -0.3)
EXTREME = (1e-6, 1e6, -1e6, 1e-3, 1e3, -1e4, -1e-6, 3e5)
LARGEST_CONSTANT = {"float16": 100.0, "float32": 1e6, "float64": 1e6}
UNARY = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "LeakyRelu", "Sign", "Identity")
COMPARISONS = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL2",
              "ReduceL1", "ReduceLogSumExp", "ReduceLogSum", "ReduceProd")  # fmt: skip
SHAPES: tuple[tuple[int, ...], ...] = (
    (4,), (6,), (3, 4), (4, 3), (2, 3, 4), (4, 4), (1, 2, 5, 5), (2, 4, 4, 4), (1, 2, 3, 4),
    (1, 6), (48,), (4, 16),
)  # fmt: skip
FEEDS, OFFSETS = 20, 4
"""Sets of inputs for each model, and how many of them are all offsets with small deviations."""


@dataclass(frozen=True)
class Typed:
    """A value with its shape; `kind` is "f", "i" or "b", as of arrays.

    `sources` are the float inputs from which it is computed element by element.
    """

    name: str
    shape: tuple[int, ...]
    kind: str = "f"
    sources: frozenset[str] = frozenset()


@dataclass
class Guarded:
    """A model, and the floats that inputs may hold: any where `tested`, also -inf in `masks`."""

    model: onnx.ModelProto
    dtype: np.dtype[np.floating]
    inputs: list[Typed]
    tested: set[str]
    masks: set[str]
    numbers: list[float]
    """The elements of its constants."""


@dataclass
class Builder:
    """One model that grows; everything that is random is drawn by `rng`."""

    rng: np.random.Generator
    dtype: np.dtype[np.floating]
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Typed] = field(default_factory=list)
    inputs: list[Typed] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    tested: set[str] = field(default_factory=set)
    masks: set[str] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)

    # Choices ------------------------------------------------------------------------------------

    def number(self, low: int, high: int) -> int:
        """A number between two, both included."""
        return int(self.rng.integers(low, high + 1))

    def flip(self, chance: float = 0.5) -> bool:
        """Something that is true with that probability."""
        return bool(self.rng.random() < chance)

    def among(self, items: Sequence[str]) -> str:
        """One of several names."""
        return items[self.number(0, len(items) - 1)]

    def some(self, suits: Callable[[Typed], bool] = lambda _: True) -> Typed:
        """A value of floats that fits, late ones more often; the first input where none does."""
        fitting = [v for v in (*self.inputs, *self.values) if v.kind == "f" and suits(v)]
        if not fitting:
            return self.inputs[0]
        return fitting[len(fitting) - 1 - min(self.number(0, 2 * len(fitting) - 1) // 2,
                                              len(fitting) - 1)]  # fmt: skip

    def like(self, x: Typed) -> Typed:
        """Another value of the shape, if there is one."""
        return self.some(lambda v: (v.shape == x.shape and v.name != x.name) or v == x)

    def scalar(self) -> float:
        """A number for constants: one at which operators change, or an extreme one."""
        most = LARGEST_CONSTANT[self.dtype.name]
        pool = ORDINARY if self.flip(0.8) else EXTREME
        value = pool[self.number(0, len(pool) - 1)]
        return value if abs(value) <= most else math.copysign(most, value)

    # Parts --------------------------------------------------------------------------------------

    def input(self, shape: tuple[int, ...], kind: str = "f") -> Typed:
        """An input of the model."""
        name = f"x{len(self.inputs)}"
        sources = frozenset((name,)) if kind == "f" else frozenset[str]()
        made = Typed(name, shape, kind, sources)
        self.inputs.append(made)
        return made

    def constant(self, array: object) -> Typed:
        """An initializer of floats."""
        data = np.asarray(array, self.dtype)
        self.numbers.update(data.astype(np.float64).reshape(-1)[:32].tolist())
        return self._initializer(data)

    def integers(self, *values: int) -> Typed:
        """An initializer of a vector of integers."""
        return self._initializer(np.asarray(values, np.int64))

    def _initializer(self, data: Array) -> Typed:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(data, name))
        return Typed(name, data.shape, data.dtype.kind)

    def parameter(self, x: Typed, *, nonzero: bool = False) -> Typed:
        """A constant for each element of a value: one for all, or one for each channel."""
        while True:
            if not x.shape or self.flip(0.6):
                data = np.asarray(self.scalar())
            else:
                axis = 1 if len(x.shape) == 4 else len(x.shape) - 1
                shape = (x.shape[axis],) + (1,) * (len(x.shape) - axis - 1)
                data = np.asarray([self.scalar() for _ in range(shape[0])]).reshape(shape)
            if not nonzero or np.all(data != 0):
                return self.constant(data)

    def weight(self, *shape: int) -> Typed:
        """A matrix or a kernel of small numbers, or of telling ones."""
        data = self.rng.integers(-4, 5, shape) / 4
        if self.flip(0.2):
            data = np.asarray([self.scalar() for _ in range(math.prod(shape))]).reshape(shape)
        return self.constant(data)

    def node(
        self,
        op: str,
        inputs: Sequence[Typed],
        shape: tuple[int, ...],
        kind: str = "f",
        *,
        mixes: bool = False,
        **attributes: object,
    ) -> Typed:
        """Add an operator with one output; it `mixes` elements unless each is made of one each."""
        found = frozenset[str]() if mixes else frozenset().union(*(v.sources for v in inputs))
        made = Typed(f"v{len(self.nodes)}", shape, kind, found)
        self.nodes.append(helper.make_node(op, [v.name for v in inputs], [made.name], **attributes))
        self.values.append(made)
        return made

    def apply(self, op: str, *inputs: Typed) -> Typed:
        """Add an elementwise operator of floats."""
        return self.node(op, inputs, np.broadcast_shapes(*(v.shape for v in inputs)))

    def holds(self, op: str, *inputs: Typed) -> Typed:
        """Add an elementwise operator that gives Booleans."""
        shape = np.broadcast_shapes(*(v.shape for v in inputs))
        floats = [v for v in inputs if v.kind == "f"]
        if op in ("IsNaN", "IsInf") or (len(floats) == 2 and floats[0].sources & floats[1].sources):
            self.tested |= frozenset().union(*(v.sources for v in floats))
        return self.node(op, inputs, shape, "b")

    def cast(self, x: Typed, kind: str) -> Typed:
        """A Cast to the model's floats, integers or Booleans."""
        to = {
            "f": helper.np_dtype_to_tensor_dtype(self.dtype),
            "i": TensorProto.INT64,
            "b": TensorProto.BOOL,
        }[kind]
        return self.node("Cast", [x], x.shape, kind, to=to)

    def where(self, condition: Typed, yes: Typed, no: Typed) -> Typed:
        """A choice."""
        shape = np.broadcast_shapes(condition.shape, yes.shape, no.shape)
        return self.node("Where", [condition, yes, no], shape)

    def reduced(self, op: str, x: Typed, axis: int = -1, *, keep: bool = True) -> Typed:
        """A reduction along one axis."""
        axis %= len(x.shape)
        shape = (*x.shape[:axis], *((1,) if keep else ()), *x.shape[axis + 1 :])
        return self.node(op, [x, self.integers(axis)], shape, mixes=True, keepdims=int(keep))

    def is_full(self) -> bool:
        """Whether there are as many operators as a model has."""
        return len(self.nodes) >= MOST - 3

    def proto(self) -> onnx.ModelProto:
        """The model; its outputs are all values that nothing reads."""
        element = helper.np_dtype_to_tensor_dtype(self.dtype)
        types = {"f": element, "i": TensorProto.INT64, "b": TensorProto.BOOL}
        read = {name for node in self.nodes for name in node.input}
        made = [v for v in self.values if v.name not in read]
        typed = {v.name: helper.make_tensor_value_info(v.name, types[v.kind], v.shape)
                 for v in (*self.inputs, *made)}  # fmt: skip
        graph = helper.make_graph(
            self.nodes,
            "guarded",
            [typed[v.name] for v in self.inputs],
            [typed[v.name] for v in made],
            self.weights,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9
        )


# Guards ------------------------------------------------------------------------------------------


def _comparison(b: Builder, x: Typed, y: Typed) -> Typed:
    return b.holds(b.among(COMPARISONS), *((x, y) if b.flip(0.7) else (y, x)))


def _condition(b: Builder, x: Typed) -> Typed:
    """A comparison of a value with a constant or another one, and perhaps its negation."""
    other = b.parameter(x) if b.flip(0.8) else b.like(x)
    found = _comparison(b, x, other)
    if b.flip(0.2):
        found = b.holds("Not", found)
    if b.flip(0.15):
        found = b.holds(b.among(("And", "Or")), found, _comparison(b, x, b.parameter(x)))
    return found


def _partial(b: Builder, x: Typed) -> Typed:
    """A value that may be NaN or infinite where `x` is a number."""
    kind = b.number(0, 8)
    if kind <= 2:
        top = b.like(x) if b.flip(0.7) else b.parameter(x)
        return b.apply("Div", top, x)
    if kind == 3:
        return b.apply("Pow", x, b.constant((0.5, -1.0, 2.0, -0.5, 3.0)[b.number(0, 4)]))
    if kind == 4:
        return b.apply("Pow", b.constant((2.0, 10.0)[b.number(0, 1)]), x)
    return b.apply(("Sqrt", "Log", "Exp", "Reciprocal")[kind - 5], x)


def _layer(b: Builder, x: Typed) -> Typed:
    """A step that keeps the shape and that rules move about, or nothing."""
    kind = b.number(0, 5)
    if kind == 0:
        return x
    if kind <= 3:
        return affine(b, x)
    return b.apply(b.among(("Neg", "Abs", "Relu")), x)


def guarded_partial(b: Builder) -> None:
    """``Where(x > c, h(1 / x), fill)``"""
    x = b.some()
    condition = _condition(b, x)
    made = _layer(b, _partial(b, x))
    fill = b.constant(b.scalar()) if b.flip(0.7) else b.like(x)
    sides = (made, fill) if b.flip(0.7) else (fill, made)
    _ = _layer(b, b.where(condition, *sides)) if b.flip() else b.where(condition, *sides)


def guarded_total(b: Builder) -> None:
    """A quotient by a sum of a row, unless that is 0; or a norm."""
    x = b.some(lambda v: len(v.shape) >= 2)
    if not x.shape:
        return
    total = b.reduced(b.among(("ReduceSum", "ReduceL2", "ReduceL1", "ReduceMax")), x)
    zero = b.constant(0.0)
    condition = b.holds("Equal", total, zero) if b.flip(0.3) else b.holds("Greater", total, zero)
    top = _layer(b, x) if b.flip(0.3) else x
    quotient = _layer(b, b.apply("Div", top, total))
    inverse = b.nodes[-1].op_type == "Equal" or b.flip(0.2)
    b.where(condition, *((zero, quotient) if inverse else (quotient, zero)))


def clamped_partial(b: Builder) -> None:
    """``y / max(x, c)``, ``exp(min(x, c))``, ``y / (abs(x) + c)``"""
    x = b.some()
    kind = b.number(0, 4)
    small = b.constant((1e-6, 1e-3, 1.0, 0.0, 2.0, 1e-12)[b.number(0, 5)])
    if kind == 0:
        safe = b.apply("Max", *((x, small) if b.flip() else (small, x)))
    elif kind == 1:
        safe = b.node("Clip", [x, small, b.constant((10.0, 80.0, 100.0, 6.0)[b.number(0, 3)])],
                      x.shape)  # fmt: skip
    elif kind == 2:
        safe = b.apply("Add", b.apply("Abs", x), small)
    elif kind == 3:
        safe = b.apply("Min", x, b.constant((10.0, 80.0, 0.0, -1.0)[b.number(0, 3)]))
    else:
        safe = b.apply("Add", b.apply("Mul", x, x), small)
    _layer(b, _partial(b, safe))


def tested(b: Builder) -> None:
    """``Where(IsNaN(p), fill, p)`` for a value that may be NaN or infinite, or for an input."""
    p = b.some() if b.flip(0.3) else _layer(b, _partial(b, b.some()))
    kind = b.number(0, 4)
    if kind <= 1:
        test = b.holds("IsNaN", p)
    elif kind == 2:
        test = b.holds("IsInf", p)
    elif kind == 3:
        test = b.holds("Not", b.holds("Equal", p, p))
    else:
        test = b.holds("Or", b.holds("IsNaN", p), b.holds("IsInf", p))
    fill = b.constant(b.scalar())
    if b.flip(0.2):
        b.where(b.holds("Not", test), p, fill)
    else:
        b.where(test, fill, p)


def tested_input(b: Builder) -> None:
    """An input that the model tests, and another value that is computed from it."""
    x = b.inputs[b.number(0, len(b.inputs) - 1)]
    if x.kind != "f" or x.name in b.masks:
        return
    c = b.constant(b.scalar())
    b.where(b.holds("IsNaN" if b.flip(0.7) else "IsInf", x), c, x)
    kind = b.number(0, 2)
    if kind == 0:
        _comparison_kept(b, x)
    elif kind == 1:
        b.holds("Not", b.holds(b.among(COMPARISONS[:4]), x, b.parameter(x)))
    else:
        b.apply("Mul", x, b.cast(_comparison(b, b.like(x), c), "f"))


def cancelling_pair(b: Builder) -> None:
    """``x * y / y``, ``log(exp(x))``, ``sqrt(x) ** 2`` and so on, and an observer of it."""
    x = b.some()
    y = b.like(x) if b.flip(0.6) else b.parameter(x)
    kind = b.number(0, 9)
    if kind == 0:
        r = b.apply("Div", b.apply("Mul", x, y), y)
    elif kind == 1:
        r = b.apply("Mul", b.apply("Div", x, y), y)
    elif kind == 2:
        r = b.apply("Log", b.apply("Exp", x))
    elif kind == 3:
        root = b.apply("Sqrt", x)
        r = b.apply("Mul", root, root)
    elif kind == 4:
        r = b.apply("Sqrt", b.apply("Mul", x, x))
    elif kind == 5:
        r = b.apply("Sub", b.apply("Add", x, y), y)
    elif kind == 6:
        z = _partial(b, x)
        r = b.apply(b.among(("Sub", "Div")), z, z)
    elif kind == 7:
        r = b.apply("Mul", _partial(b, x), b.constant(0.0))
    elif kind == 8:
        r = b.apply("Reciprocal", b.apply("Reciprocal", x))
    else:
        r = b.apply("Exp", b.apply("Log", x))
    if b.flip(0.6):
        observed(b, r)


def observed(b: Builder, r: Typed) -> None:
    """An operator that may give a number for NaN or an infinity."""
    kind = b.number(0, 9)
    one = b.constant(b.scalar())
    if kind == 0:
        b.where(b.holds("IsNaN", r), one, r)
    elif kind == 1:
        b.where(b.holds("IsInf", r), one, r)
    elif kind == 2:
        b.where(b.holds("Equal", r, r), r, one)
    elif kind == 3:
        b.where(_comparison(b, r, one), r, one)
    elif kind == 4:
        b.apply(b.among(("Min", "Max")), r, one)
    elif kind == 5:
        b.apply(b.among(("Tanh", "Sigmoid")), r)
    elif kind == 6:
        b.cast(b.holds(b.among(("Less", "Greater")), r, one), "f")
    elif kind == 7:
        b.apply("Div", one, r)
    else:
        _comparison(b, r, one)


def negated(b: Builder) -> None:
    """Comparisons that are equivalent unless an operand is NaN."""
    x = _partial(b, b.some()) if b.flip(0.6) else b.some()
    y = b.like(x) if b.flip(0.4) else b.parameter(x)
    kind = b.number(0, 3)
    if kind == 0:
        test = b.holds("Not", b.holds(b.among(("Less", "Greater")), x, y))
    elif kind == 1:
        test = b.holds("Not", b.holds(b.among(("LessOrEqual", "GreaterOrEqual")), x, y))
    elif kind == 2:
        test = b.holds(b.among(COMPARISONS), b.apply("Sub", x, y), b.constant(0.0))
    else:
        test = b.holds(b.among(("Equal", "LessOrEqual")), x, x)
    if b.flip(0.3):
        b.where(test, b.constant(b.scalar()), b.constant(b.scalar()))


def collapsing(b: Builder) -> None:
    """A term that simplifies for numbers, on a value that may be none, and an observer of it."""
    x = b.some()
    y = _partial(b, b.like(x)) if b.flip(0.7) else b.like(x)
    kind = b.number(0, 9)
    if kind == 0:
        r = b.apply("Div", x, b.apply("Div", x, y))
    elif kind == 1:
        r = b.apply("Div", x, b.apply("Mul", x, y))
    elif kind == 2:
        r = b.apply("Reciprocal", b.apply("Div", x, y))
    elif kind == 3:
        r = b.apply("Sub", y, b.apply("Min", y, b.constant(0.0)))
    elif kind == 4:
        r = b.apply(b.among(("Max", "Min")), b.apply("Sub", y, y), x)
    elif kind == 5:
        r = b.apply("Max", b.apply("Sub", x, y), b.apply("Sub", b.like(x), y))
    elif kind == 6:
        r = b.apply("Log", b.apply("Exp", y))
    elif kind == 7:
        r = b.apply("Reciprocal", b.apply("Reciprocal", y))
    elif kind == 8:
        r = b.apply("Sub", x, b.apply("Max", x, y))
    else:
        r = b.where(b.holds(b.among(("Greater", "Less")), y, b.constant(0.0)), y, b.apply("Neg", y))
    observed(b, r)


def behind_infinity(b: Builder) -> None:
    """A term that overflows, or not if rewritten, and an operator that hides an infinity."""
    x = b.some()
    e = b.apply("Exp", x)
    if b.flip(0.7):
        r = b.apply("Log", e)
    else:
        big = LARGEST_CONSTANT[b.dtype.name]
        r = b.apply("Mul", b.apply("Mul", e, b.constant(big)), b.constant(1 / big))
    kind = b.number(0, 3)
    if kind == 0:
        b.apply("Reciprocal", r)
    elif kind == 1 or len(b.inputs) > 3 or b.dtype.name != "float32":
        b.apply("Div", b.constant(b.scalar()), r)
    else:  # with bounds that are computed, nothing but the name of a Clip is known
        low, high = b.constant(0.0), b.input(())
        b.node("Clip", [r, low, high], r.shape)


# Masks -------------------------------------------------------------------------------------------


def masked_softmax(b: Builder) -> None:
    """Masked scores, their softmax, and the values weighted by it."""
    x = b.some(lambda v: len(v.shape) in (2, 3))
    if len(x.shape) not in (2, 3):
        return
    scores = _layer(b, x)
    low = float(np.finfo(b.dtype).min)
    fills = (low, low, low, -1e4 if b.dtype.itemsize == 2 else -1e9, -math.inf, 0.0)
    fill = fills[b.number(0, 5)]
    kind = b.number(0, 3)
    if kind == 0 and len(b.inputs) < 5:
        scores = b.where(
            b.input(x.shape[-2:], "b"), scores, b._initializer(np.asarray(fill, b.dtype))
        )
    elif kind == 1 and len(b.inputs) < 5:
        mask = b.input((1, x.shape[-1]))
        b.masks.add(mask.name)
        scores = b.apply("Add", scores, mask)
    elif kind == 2:
        seen = b.cast(_condition(b, b.like(x)), "f")
        left = b.apply("Sub", b.constant(1.0), seen)
        scores = b.apply("Add", scores, b.apply("Mul", left, b.constant(max(fill, -1e4))))
    else:
        scores = b.where(
            _condition(b, b.like(x)), scores, b._initializer(np.asarray(fill, b.dtype))
        )
    p = b.node("Softmax", [scores], x.shape, mixes=True, axis=-1)
    if b.flip(0.3):
        p = b.where(b.holds("IsNaN", p), b.constant(0.0), p)
    if b.flip(0.6):
        w = b.weight(x.shape[-1], 2)
        b.node("MatMul", [p, w], (*x.shape[:-1], 2), mixes=True)


def masked_mean(b: Builder) -> None:
    """A mean over the elements that a mask selects, if there are any."""
    x = b.some(lambda v: len(v.shape) >= 2)
    if len(x.shape) < 2:
        return
    w = b.cast(_condition(b, b.like(x)), "f") if b.flip(0.6) else b.like(x)
    total = b.reduced("ReduceSum", b.apply("Mul", x, w))
    count = b.reduced("ReduceSum", w)
    if b.flip():
        b.apply("Div", total, b.apply("Max", count, b.constant((1.0, 1e-6)[b.number(0, 1)])))
    else:
        zero = b.constant(0.0)
        b.where(b.holds("Greater", count, zero), _layer(b, b.apply("Div", total, count)), zero)


def cast_mask(b: Builder) -> None:
    """A Boolean as a number, times a value that may be NaN or infinite."""
    x = b.some()
    seen = b.cast(_condition(b, x), "f")
    b.apply("Mul", _partial(b, x) if b.flip() else x, seen)


def kept(b: Builder) -> None:
    """``Where(x < c, x, c)``, which is a Clip of numbers only, and ``Where(c, x, 0)``."""
    x = _partial(b, b.some()) if b.flip(0.4) else b.some()
    _comparison_kept(b, x)


def _comparison_kept(b: Builder, x: Typed) -> None:
    c = b.constant(b.scalar())
    condition = _comparison(b, x, c)
    b.where(condition, *((x, c) if b.flip() else (c, x)))


# Normalizations ----------------------------------------------------------------------------------


def normalized(b: Builder) -> None:
    """LayerNormalization, spelled out or not, and lengths of 1."""
    x = b.some(lambda v: bool(v.shape))
    # An attribute of ONNX has 32 bits: the number must be exact in these.
    epsilon = (2.0**-17, 2.0**-40, 2.0**-10, 0.0)[b.number(0, 3)]
    kind = b.number(0, 3)
    if kind == 0 and epsilon:
        scale = b.constant([b.scalar() for _ in range(x.shape[-1])])
        bias = b.constant([b.scalar() for _ in range(x.shape[-1])])
        b.node(
            "LayerNormalization", [x, scale, bias], x.shape, mixes=True, axis=-1, epsilon=epsilon
        )
    elif kind == 1:
        centred = b.apply("Sub", x, b.reduced("ReduceMean", x))
        variance = b.reduced("ReduceMean", b.apply("Mul", centred, centred))
        root = b.apply("Sqrt", b.apply("Add", variance, b.constant(epsilon)))
        _layer(b, b.apply("Div", centred, root))
    elif kind == 2:
        norm = b.reduced("ReduceL2", x)
        b.apply("Div", x, b.apply("Max", norm, b.constant(max(epsilon, 1e-12))))
    else:
        norm = b.apply("Sqrt", b.reduced("ReduceSum", b.apply("Mul", x, x)))
        zero = b.constant(0.0)
        b.where(b.holds("Greater", norm, zero), b.apply("Div", x, norm), zero)


def spelled_softmax(b: Builder) -> None:
    """A softmax from exponentials, with the maximum taken off or not; or its logarithm."""
    x = b.some(lambda v: bool(v.shape))
    if b.flip(0.6):
        x = b.apply("Sub", x, b.reduced("ReduceMax", x))
    e = b.apply("Exp", x)
    total = b.reduced("ReduceSum", e)
    if b.flip(0.3):
        b.apply("Sub", x, b.apply("Log", total))
    else:
        b.apply("Div", e, total)


def sigmoid(b: Builder) -> None:
    """``1 / (1 + exp(-x))`` and ``log(1 + exp(x))``"""
    x = b.some()
    one = b.constant(1.0)
    if b.flip(0.6):
        e = b.apply("Add", one, b.apply("Exp", b.apply("Neg", x)))
        made = b.apply("Div", one, e) if b.flip() else b.apply("Reciprocal", e)
        if b.flip(0.3):
            b.apply("Mul", x, made)
    else:
        b.apply("Log", b.apply("Add", b.apply("Exp", x), one))


# What is discrete --------------------------------------------------------------------------------


def discrete(b: Builder) -> None:
    """Integers, orders and Booleans, most often behind two scalings."""
    x = b.some()
    if b.flip(0.7):
        x = scaled_twice(b, b.inputs[0] if b.flip() else x)
    kind = b.number(0, 8)
    if kind <= 2:
        b.apply(b.among(("Floor", "Ceil", "Round", "Sign")), x)
    elif kind == 3:
        whole = b.cast(b.node("Clip", [x, b.constant(-100.0), b.constant(100.0)], x.shape), "i")
        if b.flip():
            b.cast(whole, "f")
    elif kind == 4:
        b.cast(b.holds("Equal", x, b.parameter(x)), "f")
    elif kind == 5:
        _comparison(b, x, b.parameter(x))
    elif kind == 6 and x.shape:
        b.node("ArgMax", [x], (*x.shape[:-1], 1), "i", mixes=True, axis=-1)
    elif kind == 7 and x.shape:
        name = f"v{len(b.nodes)}"
        names = [name, f"{name}places"]
        b.nodes.append(helper.make_node("TopK", [x.name, b.integers(1).name], names, axis=-1))
        b.values += [Typed(names[0], (*x.shape[:-1], 1)), Typed(names[1], (*x.shape[:-1], 1), "i")]
    else:
        b.where(_comparison(b, x, b.parameter(x)), x, b.constant(b.scalar()))


SCALES = (
    ("Div", 1 / 3, "Div", 0.1), ("Div", 0.1, "Div", 1 / 3), ("Mul", 10.0, "Div", 1 / 0.9),
    ("Div", 1 / 7, "Mul", 10.0), ("Div", 0.01, "Div", 10 / 3), ("Mul", 0.1, "Mul", 10.0),
    ("Mul", 3.0, "Mul", 1 / 3), ("Mul", 1 / 7, "Mul", 7.0), ("Div", 0.2, "Div", 1 / 3),
)  # fmt: skip
"""Pairs of scalings after which a whole number is one again, or is not by a rounding error."""


def scaled_twice(b: Builder, x: Typed) -> Typed:
    """Two scalings by ordinary numbers that cancel, or nearly."""
    first, one, second, other = SCALES[b.number(0, len(SCALES) - 1)]
    return b.apply(second, b.apply(first, x, b.constant(one)), b.constant(other))


# Surroundings ------------------------------------------------------------------------------------


def affine(b: Builder, x: Typed | None = None) -> Typed:
    """A sum with, or a product or a quotient by, a constant."""
    x = b.some() if x is None else x
    op = b.among(("Mul", "Add", "Sub", "Div"))
    operands = [x, b.parameter(x, nonzero=op == "Div" and b.flip(0.8))]
    return b.apply(op, *(operands if b.flip(0.8) else operands[::-1]))


def offset_layer(b: Builder) -> None:
    """A mean taken off, a division by a deviation, and a product with a matrix or another sum."""
    x = b.some(lambda v: len(v.shape) == 2)
    x = b.inputs[0] if b.flip(0.4) else x
    op = b.among(("Sub", "Add"))
    large = min((1e3, 1e5, 1e6, 3e5)[b.number(0, 3)], LARGEST_CONSTANT[b.dtype.name])
    mean = b.constant(-large if op == "Add" else large) if b.flip(0.6) else b.parameter(x)
    d = b.apply(op, x, mean)
    if b.flip(0.6):
        d = b.apply(b.among(("Div", "Mul")), d, b.parameter(x, nonzero=True))
    if len(d.shape) == 2 and b.flip(0.7):
        w = b.weight(d.shape[1], 2)
        y = b.node("MatMul", [d, w], (d.shape[0], 2), mixes=True)
        if b.flip(0.1):
            b.apply("Add", y, b.constant([b.scalar(), b.scalar()]))
    else:
        b.apply(b.among(("Sub", "Add")), d, b.parameter(x))


def chain(b: Builder) -> None:
    affine(b, affine(b))


def unary(b: Builder) -> None:
    b.apply(b.among(UNARY), b.some())


def binary(b: Builder) -> None:
    x = b.some()
    b.apply(b.among(("Add", "Sub", "Mul", "Max", "Min", "Div")), x, b.like(x))


def distributed(b: Builder) -> None:
    """``x * a + y * a``, and products and quotients that share an operand."""
    x = b.some()
    y, a = b.like(x), b.parameter(x) if b.flip() else b.like(x)
    op = b.among(("Mul", "Div"))
    b.apply(b.among(("Add", "Sub")), b.apply(op, x, a), b.apply(op, y, a))


def product(b: Builder) -> None:
    x = b.some(lambda v: len(v.shape) in (2, 3))
    if len(x.shape) not in (2, 3):
        return
    columns = b.number(1, 4)
    w = b.weight(x.shape[-1], columns)
    if len(x.shape) == 2 and b.flip(0.4):
        bias = b.constant([b.scalar() for _ in range(columns)])
        y = b.node("Gemm", [x, w, bias], (x.shape[0], columns), mixes=True)
    else:
        y = b.node("MatMul", [x, w], (*x.shape[:-1], columns), mixes=True)
    if b.flip():
        _layer(b, y)


def _image(b: Builder) -> Typed | None:
    x = b.some(lambda v: len(v.shape) == 4 and min(v.shape[2:]) >= 3)
    return x if len(x.shape) == 4 and min(x.shape[2:]) >= 3 else None


def convolution(b: Builder) -> None:
    x = _image(b)
    if x is None or b.dtype.name == "float64":
        return
    if b.flip():
        x = affine(b, x)
    channels, kernel = b.number(1, 3), b.number(0, 1) * 2 + 1
    w = b.weight(channels, x.shape[1], kernel, kernel)
    pads = [kernel // 2] * 4
    y = b.node("Conv", [x, w], (x.shape[0], channels, *x.shape[2:]), mixes=True, pads=pads)
    if b.flip(0.4):
        several = [b.constant(np.abs([b.scalar() for _ in range(channels)])) for _ in range(4)]
        y = b.node("BatchNormalization", [y, *several], y.shape, epsilon=1e-5)
    _layer(b, y)


def pooling(b: Builder) -> None:
    """Maxima and means over windows, of which the runtime's maxima leave NaN out."""
    x = _image(b)
    if x is None:
        return
    if b.flip(0.5):
        x = _partial(b, x)
    if b.flip(0.5):
        x = b.apply("Relu", x) if b.flip() else _layer(b, x)
    if b.flip(0.35):
        b.node("GlobalMaxPool", [x], (*x.shape[:2], 1, 1), mixes=True)
        return
    if b.flip(0.3):
        fill = b._initializer(np.asarray((0.0, -math.inf, 1.0)[b.number(0, 2)], b.dtype))
        shape = (*x.shape[:2], x.shape[2] + 2, x.shape[3] + 2)
        x = b.node("Pad", [x, b.integers(0, 0, 1, 1, 0, 0, 1, 1), fill], shape, mixes=True)
        pads = [0] * 4
    else:
        pads = [b.number(0, 1)] * 4
    shape = (*x.shape[:2], *(n + 2 * pads[0] - 1 for n in x.shape[2:]))
    op = "MaxPool" if b.flip(0.7) else "AveragePool"
    y = b.node(op, [x], shape, mixes=True, kernel_shape=[2, 2], pads=pads)
    if b.flip(0.4):
        b.apply("Relu", y)
    elif b.flip(0.3):
        b.apply(
            "Max", y, b.node(op, [b.like(x)], shape, mixes=True, kernel_shape=[2, 2], pads=pads)
        )


def padding(b: Builder) -> None:
    x = b.some(lambda v: bool(v.shape))
    pads = [0] * (2 * len(x.shape))
    pads[len(x.shape) - 1] = 1
    shape = (*x.shape[:-1], x.shape[-1] + 1)
    y = b.node("Pad", [x, b.integers(*pads), b.constant(b.scalar())], shape, mixes=True)
    _layer(b, y)


def reduction(b: Builder) -> None:
    x = b.some(lambda v: bool(v.shape))
    if x.shape:
        b.reduced(b.among(REDUCTIONS), x, b.number(0, len(x.shape) - 1), keep=b.flip(0.6))


def transpose(b: Builder) -> None:
    x = b.some(lambda v: len(v.shape) >= 2)
    order = b.rng.permutation(len(x.shape)).tolist()
    b.node("Transpose", [x], tuple(x.shape[k] for k in order), perm=order)


def reshape(b: Builder) -> None:
    x = b.some(lambda v: bool(v.shape))
    total = math.prod(x.shape)
    shape = ((total,), (1, total), (total, 1), (2, total // 2))[b.number(0, 3 - total % 2)]
    y = b.node("Reshape", [x, b.integers(*shape)], shape)
    _layer(b, y)


def concat(b: Builder) -> None:
    """Two values beside one another, and perhaps something done to both, or one taken out again."""
    x = b.some(lambda v: bool(v.shape))
    y = b.like(x)
    if b.flip():
        op = b.among(("Exp", "Sqrt", "Reciprocal", "Neg", "Tanh"))
        x, y = b.apply(op, x), b.apply(op, y)
    z = b.node("Concat", [x, y], (*x.shape[:-1], 2 * x.shape[-1]), axis=-1)
    if b.flip(0.4):
        z = _layer(b, z)
    if b.flip(0.4):
        _slice(b, z, b.number(0, 1) * x.shape[-1], x.shape[-1])


def _slice(b: Builder, x: Typed, start: int, size: int) -> Typed:
    axis = len(x.shape) - 1
    places = [b.integers(k) for k in (start, start + size, axis)]
    return b.node("Slice", [x, *places], (*x.shape[:-1], size))


def slice_(b: Builder) -> None:
    x = b.some(lambda v: bool(v.shape) and v.shape[-1] >= 2)
    if x.shape[-1] >= 2:
        y = _layer(b, x) if b.flip() else x
        _slice(b, y, b.number(0, 1), x.shape[-1] - 1)


def split(b: Builder) -> None:
    x = b.some(lambda v: bool(v.shape) and v.shape[-1] >= 2)
    size = x.shape[-1]
    if size < 2:
        return
    parts = [size // 2, size - size // 2]
    names = [f"v{len(b.nodes)}left", f"v{len(b.nodes)}right"]
    b.nodes.append(helper.make_node("Split", [x.name, b.integers(*parts).name], names, axis=-1))
    made = [Typed(n, (*x.shape[:-1], k), "f", x.sources) for n, k in zip(names, parts, strict=True)]
    b.values += made
    if parts[0] == parts[1]:
        b.apply(b.among(("Mul", "Div", "Add", "Max")), *made)


def gather(b: Builder) -> None:
    x = b.some(lambda v: bool(v.shape))
    last = x.shape[-1] - 1
    places = (b.number(0, last), last, 0)
    b.node("Gather", [x, b.integers(*places)], (*x.shape[:-1], 3), axis=-1)


def of_integers(b: Builder) -> None:
    """An input of integers as floats, and a term of it that may overflow."""
    if len(b.inputs) >= 5:
        return
    x = b.some()
    i = b.cast(b.input(x.shape, "i"), "f")
    observed(b, _partial(b, i))


GUARDS: tuple[Callable[[Builder], object], ...] = (
    *(guarded_partial, guarded_partial, guarded_total, clamped_partial, clamped_partial, tested),
    *(negated, negated, collapsing, collapsing, collapsing, discrete),
    *(tested_input, tested_input, behind_infinity, behind_infinity, behind_infinity),
    *(tested, cancelling_pair, cancelling_pair, masked_softmax, masked_softmax, masked_mean),
    *(cast_mask, kept, kept, normalized, spelled_softmax, sigmoid, discrete, discrete, discrete),
    *(of_integers, masked_softmax, masked_softmax),
)
AROUND: tuple[Callable[[Builder], object], ...] = (
    *(affine, chain, chain, offset_layer, offset_layer, offset_layer, unary, binary, distributed),
    *(product, product, convolution, convolution, pooling, pooling, pooling, padding, reduction),
    *(transpose, reshape, concat, slice_, split, gather),
)


def guarded_model(number: int) -> Guarded:
    """The model of that number."""
    rng = np.random.default_rng([SEED, number])
    names = ("float32",) * 8 + ("float64", "float16")
    dtype = np.dtype(names[int(rng.integers(len(names)))])
    opset = OPSETS[int(rng.integers(len(OPSETS)))]
    b = Builder(
        rng, dtype, max(opset, 20) if dtype.itemsize == 2 else opset
    )  # IsInf is newer there
    shape = SHAPES[b.number(0, len(SHAPES) - 1)]
    for _ in range(b.number(1, 3)):
        b.input((*shape[:-1], 1) if b.inputs and b.flip(0.2) else shape)
    least = b.number(FEWEST, MOST - 5)
    while len(b.nodes) < least:
        kinds = GUARDS if b.flip(0.55) else AROUND
        kinds[b.number(0, len(kinds) - 1)](b)
    model = b.proto()
    onnx.checker.check_model(model)
    return Guarded(model, dtype, b.inputs, b.tested, b.masks, sorted(b.numbers))


# Inputs ------------------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, Sequence[float], tuple[int, ...]], Array]


def _zeros(_: np.random.Generator, __: Sequence[float], shape: tuple[int, ...]) -> Array:
    return np.zeros(shape)


def _ordinary(rng: np.random.Generator, _: Sequence[float], shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def _zero_rows(rng: np.random.Generator, _: Sequence[float], shape: tuple[int, ...]) -> Array:
    rows = rng.random((*shape[:-1], 1)) < 0.5
    return np.where(rows, 0.0, rng.standard_normal(shape) * (rng.random(shape) < 0.7))


def _equal(rng: np.random.Generator, numbers: Sequence[float], shape: tuple[int, ...]) -> Array:
    value = rng.choice(numbers) if len(numbers) and rng.random() < 0.5 else rng.integers(-9, 10)
    return np.full(shape, float(value))


def _whole(rng: np.random.Generator, _: Sequence[float], shape: tuple[int, ...]) -> Array:
    return rng.integers(-30, 31, shape).astype(np.float64)


def _counts(rng: np.random.Generator, _: Sequence[float], shape: tuple[int, ...]) -> Array:
    return (int(rng.integers(0, 64)) + np.arange(math.prod(shape))).reshape(shape).astype(float)


def _magnitudes(rng: np.random.Generator, _: Sequence[float], shape: tuple[int, ...]) -> Array:
    return rng.choice((-1.0, 1.0), shape) * 10.0 ** rng.uniform(-6, 6, shape)


def _hundreds(rng: np.random.Generator, _: Sequence[float], shape: tuple[int, ...]) -> Array:
    return rng.uniform(-200, 200, shape)


def _offset(rng: np.random.Generator, numbers: Sequence[float], shape: tuple[int, ...]) -> Array:
    large = [n for n in numbers if 100 <= abs(n) <= 1e6]
    centre = float(rng.choice(large)) if large and rng.random() < 0.7 else 10.0 ** rng.uniform(2, 6)
    sign = float(rng.choice((-1.0, 1.0, 1.0, 1.0)))
    return np.asarray(sign * centre + rng.standard_normal(shape))


def _constants(rng: np.random.Generator, numbers: Sequence[float], shape: tuple[int, ...]) -> Array:
    return rng.choice(numbers, shape) if len(numbers) else np.zeros(shape)


def _positive(rng: np.random.Generator, numbers: Sequence[float], shape: tuple[int, ...]) -> Array:
    return np.abs(_magnitudes(rng, numbers, shape))


def _mixed(rng: np.random.Generator, numbers: Sequence[float], shape: tuple[int, ...]) -> Array:
    drawn = [
        draw(rng, numbers, shape) for draw in (_zeros, _constants, _whole, _hundreds, _ordinary)
    ]
    return np.choose(rng.integers(0, len(drawn), shape), drawn)


DRAWS: tuple[Draw, ...] = (
    *(_ordinary, _zero_rows, _whole, _constants, _mixed, _magnitudes, _offset, _counts, _counts),
    *(_equal, _hundreds, _positive, _zeros, _mixed, _constants, _offset),
)
ODD = (math.nan, math.inf, -math.inf)


def feeds(guarded: Guarded, number: int, *, anything: bool) -> list[dict[str, Array]]:
    """Sets of inputs for a model; with `anything`, all may hold NaN and infinities.

    Every other one then holds the largest floats, too.
    """
    rng = np.random.default_rng([SEED, number, 1])
    return [_feed(guarded, rng, k, anything=anything) for k in range(FEEDS)]


def _feed(
    guarded: Guarded, rng: np.random.Generator, place: int, *, anything: bool
) -> dict[str, Array]:
    kind = np.finfo(guarded.dtype)
    most = min(1e6, float(kind.max) / 64)
    numbers = [n for n in guarded.numbers if math.isfinite(n) and abs(n) <= most]
    made = {}
    for item in guarded.inputs:
        if item.kind == "b":
            made[item.name] = rng.random(item.shape) < rng.choice((0.2, 0.5, 0.8))
            if rng.random() < 0.3:
                made[item.name][..., : max(1, item.shape[-2] // 2), :] = False
            continue
        if item.kind == "i":
            made[item.name] = rng.choice((0, 1, 2, -1, 5, 40, 90, 1000, -200), item.shape)
            continue
        draw = DRAWS[place % len(DRAWS)] if rng.random() < 0.7 else DRAWS[rng.integers(len(DRAWS))]
        draw = _offset if place >= FEEDS - OFFSETS else draw
        drawn = draw(rng, numbers, item.shape or (1,)).reshape(item.shape)
        data = np.clip(drawn, -most, most).astype(guarded.dtype)
        if rng.random() < 0.5:  # one unit in the last place beside
            step = rng.integers(-1, 2, item.shape)
            beside = np.nextafter(data, np.where(step < 0, -most, most).astype(guarded.dtype))
            data = np.where((step != 0) & (data != 0), beside, data)
        if item.name in guarded.masks:
            data = np.where(rng.random(item.shape) < 0.4, -math.inf, 0.0).astype(guarded.dtype)
        elif anything or (item.name in guarded.tested and rng.random() < 0.7):
            data = _planted(
                rng,
                data,
                float(kind.max),
                largest=anything and place % 2 == 1 and data.itemsize < 8,
            )
        made[item.name] = np.asarray(data)
    return made


def _planted(rng: np.random.Generator, data: Array, most: float, *, largest: bool) -> Array:
    """Data with NaN and infinities, and with the largest floats, in some places."""
    odd = (*ODD, most, -most, most / 2) if largest else ODD
    return np.where(rng.random(data.shape) < 0.2, rng.choice(odd, data.shape), data).astype(
        data.dtype
    )
