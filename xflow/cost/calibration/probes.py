"""Probes of a calibration: small graphs, each of which shows one number of the target.

They are made of operators as they are declared and of the patterns of the target's fusions, at
sizes that are usual in models. Everything occurs several times in a graph, or in a chain, so that
its time is not lost in that of calling a session.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.core.registry import Array, Attribute, Operator
from xflow.core.sorts import BOOL, CODE, ELEMENT, INT, REAL
from xflow.cost.target import Fusion, TargetModel, Term
from xflow.ops import operator, operators

ROWS = (1, 128, 768)
"""As between the blocks of a transformer."""
SCORES = (1, 12, 128, 128)
IMAGE = (1, 64, 56, 56)
"""As in the first stages of a convolution net; the channels fill blocks of any size."""
TINY = (1, 4, 4, 4)
"""For what a call takes besides the data."""
COPIES = 2
BATCHES = {"cpu": 1, "cuda": 64}
"""Samples at a time, by provider. A GPU takes longer to queue a call than for the work on a sample,
of which nothing would be seen."""
CALLS = 8
"""The same for operators that take next to nothing."""
_REFERENCE = "Mul"


@dataclass(frozen=True)
class Probe:
    """A number of the target, and the graph whose time beyond that of `base` shows it.

    `base` is None where that is the call of a session alone. Numbers are called as in
    `calibrate.with_numbers`.
    """

    name: str
    graph: Graph
    base: Graph | None = None


class Constants:
    """Makes the leaves of probes, and the data of those that are constant.

    Inputs, but for tiny ones, have `batch` samples where they are asked for with one; of so large
    ones there are fewer `copies`.
    """

    def __init__(self, batch: int = 1) -> None:
        self._batch = batch
        self.copies = COPIES if batch == 1 else 1
        self._random = np.random.default_rng(0)
        self._arrays: dict[Value, Array] = {}
        self._count = 0

    def __call__(self, value: Value) -> Array | None:
        """The data of a constant leaf."""
        return self._arrays.get(value)

    def input(self, shape: Sequence[int], dtype: str = "FLOAT") -> Value:
        """A new input."""
        self._count += 1
        sizes = tuple(shape)
        if len(sizes) > 1 and sizes != TINY:
            sizes = (self._batch * sizes[0], *sizes[1:])
        return leaf(f"x{self._count}", TensorType(dtype, sizes))

    def weight(self, *shape: int) -> Value:
        """New weights: between 0.5 and 1.5, or of a magnitude that products of them keep."""
        if len(shape) > 1:
            inner = math.prod(shape[1:]) if len(shape) > 2 else shape[0]
            return self.constant(self._random.standard_normal(shape) / math.sqrt(inner))
        return self.constant(self._random.uniform(0.5, 1.5, shape))

    def codes(self, dtype: str, *shape: int) -> Value:
        """New codes of quantized weights, or of a zero point."""
        return self._new(np.asarray(self._random.integers(0, 128, shape), dtype.lower()), dtype)

    def full(self, dtype: str, value: int, *shape: int) -> Value:
        """New codes that are all the same."""
        return self._new(np.full(shape, value, dtype.lower()), dtype)

    def constant(self, data: Array | float) -> Value:
        """A new constant of 32-bit floats."""
        return self._new(np.asarray(data, np.float32), "FLOAT")

    def _new(self, array: Array, dtype: str) -> Value:
        self._count += 1
        made = leaf(f"c{self._count}", TensorType(dtype, array.shape), constant=True)
        self._arrays[made] = array
        return made


def reference(constants: Constants) -> Graph:
    """Products of tensors: the reference for operators that are bound by memory."""
    return Graph(tuple(_elementwise(_REFERENCE, constants)))


def nothing(constants: Constants) -> Graph:
    """A graph with as little work as a session can have."""
    x = constants.input(TINY)
    return Graph((call("Mul", x, x),))


def calls(constants: Constants) -> Probe:
    """A chain of small operators of all sorts, whose time is that of the calls, not of the data."""
    value, other = constants.input(TINY), constants.input(TINY)
    for _ in range(CALLS):
        value = call("Softmax", call("MatMul", value, other))
        value = call("Transpose", call("Add", value, other), perm=(0, 1, 3, 2))
        value = call("Mul", call("Sigmoid", value), other)
        value = call("Sub", value, call("ReduceMean", value, axes=(3,)))
    return Probe("overhead", Graph((value,)))


def views(constants: Constants) -> Probe:
    """Small tensors multiplied in a row, with and without a view in between."""
    value = plain = constants.input(TINY)
    other, size = constants.input(TINY), math.prod(TINY)
    flat = constants.input((size,))
    for number in range(2 * CALLS):
        to, factor = (((size,), flat), (TINY, other))[number % 2]
        value = call("Mul", call("Reshape", value, shape=to), factor)
        plain = call("Mul", plain, other)
    return Probe("view_overhead", Graph((value,)), Graph((plain,)))


def elementwise(target: TargetModel, constants: Constants) -> Iterator[Probe]:
    """Every operator that acts on elements alone."""
    others = {_REFERENCE, *target.views}
    for op in operators():
        if op.elementwise and op.arity[0] and op.op_type and op.name not in others:
            yield Probe(f"slow.{op.name}", Graph(tuple(_elementwise(op.name, constants))))


_PARAMETERS = {"PRelu": 1, "BiasGelu": -1, "FastGelu": -1}
"""Operators whose second input is a parameter, and the axis along which that differs."""


def _elementwise(name: str, constants: Constants) -> Iterator[Value]:
    """An operator on rows and on images, as it mostly occurs."""
    op = operator(name)
    attributes = op.examples[0].attributes if op.examples else {}
    count = op.arity[0] if op.arity[1] is not None else 2
    for shape in (ROWS, IMAGE) * constants.copies:
        inputs = [
            constants.input(() if _is_one_number(op, k) else shape, kind)
            for k, kind in enumerate(_elements(op, attributes, count))
        ]
        if name == "Pow":  # a square: powers of tensors are rare, and another kernel
            inputs[1] = constants.constant(2.0)
        if name in _PARAMETERS:
            along = _PARAMETERS[name] % len(shape)
            parameter = tuple(n if axis == along else 1 for axis, n in enumerate(shape))[along:]
            inputs[1] = constants.constant(np.full(parameter, 0.25))
        yield from apply(op, inputs, attributes, dtype="FLOAT")


def _is_one_number(op: Operator, position: int) -> bool:
    """Whether an input is one number where the first is a tensor, as examples have it."""
    first = op.examples[0].shapes if op.examples else ()
    return position < len(first) and bool(first[0]) and not first[position]


def _elements(op: Operator, attributes: Mapping[str, Attribute], count: int) -> list[str]:
    """The element types of the inputs; integers have 32 bits where an operator takes no others."""
    kinds = [_element(op, position) for position in range(count)]
    try:
        op.element_types(kinds, attributes, "FLOAT")
    except ShapeError:
        return ["INT32" if kind == "INT64" else kind for kind in kinds]
    return kinds


def _element(op: Operator, position: int) -> str:
    """The element type of an input, floats where it takes any."""
    sort = op.taken(position)
    if sort == ELEMENT:
        sort = REAL if REAL in op.sorts else min(op.sorts)
    return {REAL: "FLOAT", BOOL: "BOOL", INT: "INT64", CODE: "UINT8"}[sort]


_Shapes = tuple[tuple[int, ...], ...]
_MOVED: Sequence[tuple[str, _Shapes, Mapping[str, Attribute]]] = (
    *(
        (f"Reduce{name}", (shape,), {"axes": axes})
        for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum")
        for shape, axes in ((ROWS, (2,)), (IMAGE, (2, 3)))
    ),
    ("ReduceLogSumExp", (SCORES,), {"axes": (3,)}),
    ("Softmax", (SCORES,), {}),
    ("LogSoftmax", (SCORES,), {}),
    ("Transpose", ((1, 128, 12, 64),), {"perm": (0, 2, 1, 3)}),
    ("Transpose", ((1, 12, 128, 64),), {"perm": (0, 1, 3, 2)}),
    ("Transpose", (IMAGE,), {"perm": (0, 2, 3, 1)}),
    ("Transpose", ((1, 56, 56, 64),), {"perm": (0, 3, 1, 2)}),
    ("Concat", (ROWS, ROWS), {"axis": 2}),
    ("Concat", (ROWS, ROWS), {"axis": 1}),
    ("Slice", (ROWS,), {"starts": (0,), "ends": (384,), "axes": (2,), "steps": (1,)}),
    ("Slice", (IMAGE,), {"starts": (8,), "ends": (40,), "axes": (1,), "steps": (1,)}),
    ("Split", (ROWS,), {"axis": 2, "split": (256, 256, 256)}),
    ("Gather", (ROWS, (128,)), {"axis": 1}),
    ("Expand", ((1, 128, 1),), {"shape": ROWS}),
    ("Expand", ((1, 1, 768),), {"shape": ROWS}),
    ("Tile", ((1, 32, 768),), {"repeats": (1, 4, 1)}),
    ("Pad", (IMAGE,), {"pads": (0, 0, 1, 1, 0, 0, 1, 1)}),
    ("DepthToSpace", (IMAGE,), {"blocksize": 2}),
    ("SpaceToDepth", (IMAGE,), {"blocksize": 2}),
    ("Resize", (IMAGE,), {"scales": (1, 1, 2, 2)}),
    ("GlobalMaxPool", (IMAGE,), {}),
)
"""Operators that move data or add it up, where and how they mostly occur."""
_NORMALIZED: Sequence[tuple[str, tuple[int, ...], int, int, Mapping[str, Attribute]]] = (
    ("LayerNormalization", ROWS, 2, 2, {}),
    ("RMSNormalization", ROWS, 2, 1, {}),
    ("BatchNormalization", IMAGE, 1, 4, {}),
    ("InstanceNormalization", IMAGE, 1, 2, {}),
    ("GroupNormalization", IMAGE, 1, 2, {"num_groups": 8}),
)
"""The same with parameters: the axis along which they differ, and how many there are."""


def moved(constants: Constants) -> Iterator[Probe]:
    """Operators that are bound by the data that they move."""
    for name, shapes, attributes in _MOVED:
        op = operator(name)
        copies = [
            [constants.input(shape, _element(op, k)) for k, shape in enumerate(shapes)]
            for _ in range(2 * constants.copies)
        ]
        results = [value for inputs in copies for value in apply(op, inputs, attributes)]
        yield Probe(f"slow.{name}", Graph(tuple(results)))
    for name, shape, axis, count, attributes in _NORMALIZED:
        results = [
            value
            for _ in range(2 * constants.copies)
            for value in apply(
                name,
                [
                    constants.input(shape),
                    *(constants.weight(shape[axis]) for _ in range(count)),
                ],
                attributes,
            )[:1]
        ]
        yield Probe(f"slow.{name}", Graph(tuple(results)))


_ROW = math.nan
"""Stands for parameters: one number for each element of a row."""
_NORMAL = {"c": 2.0, "c0": 1e-5, "c1": _ROW, "c2": _ROW}
FUSED_CONSTANTS: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("SkipLayerNormalization", "Add"): _NORMAL,
    ("LayerNormalization", "Add"): _NORMAL,
    ("RMSNormalization", "Add"): _NORMAL,
    ("Gelu", "Erf"): {"c": math.sqrt(2), "c1": 1.0, "c2": 0.5},
    ("Gelu", "Tanh"): {
        "c": 3.0, "c1": 0.044715, "c2": 0.5, "c3": math.sqrt(2 / math.pi), "c4": 1.0,
        "c5": 1.0,
    },
    ("QuickGelu", "Sigmoid"): {"c": 1.702},
}  # fmt: skip
"""The values of constants for which the runtime fuses a pattern: by the kernel, and by an
operator in which its patterns differ."""


def fused(target: TargetModel, constants: Constants) -> Iterator[Probe]:
    """The patterns for which the runtime has kernels of its own."""
    for fusion in target.fusions:
        if fused_constants(fusion) is not None:
            yield fused_probe(fusion, constants, 2 * constants.copies)


def fused_constants(fusion: Fusion) -> Mapping[str, float] | None:
    """The constants of a fusion's pattern by name; None where they are not known."""
    for (kernel, op), found in FUSED_CONSTANTS.items():
        if fusion.kernel == kernel and f"{op}(" in fusion.pattern:
            return found
    return None


def fused_probe(fusion: Fusion, constants: Constants, copies: int = 1) -> Probe:
    """A fusion's pattern on rows, with constants for which the runtime fuses it.

    Something reads what it gives: not all patterns are fused where they end in an output.
    """
    given = fused_constants(fusion) or {}
    results, others = [], []
    for _ in range(copies):
        bound: dict[str, Value] = {}

        def build(term: Term, bound: dict[str, Value] = bound) -> Value:
            if not isinstance(term, str):
                over = {"axes": (len(ROWS) - 1,)} if term.op.startswith("Reduce") else {}
                return call(term.op, *(build(each, bound) for each in term.arguments), **over)
            if term not in bound:
                if not term.startswith("c"):
                    bound[term] = constants.input(ROWS)
                elif math.isnan(given[term]):
                    bound[term] = constants.weight(ROWS[-1])
                else:
                    bound[term] = constants.constant(given[term])
            return bound[term]

        results.append(call("Neg", build(fusion.root)))
        others.append(call("Neg", bound["x"]))
    return Probe(f"slow.{fusion.kernel}", Graph(tuple(results)), Graph(tuple(others)))


def call(op: str, *inputs: Value, **attributes: Attribute) -> Value:
    """The first output of an operator."""
    return apply(op, inputs, attributes)[0]
