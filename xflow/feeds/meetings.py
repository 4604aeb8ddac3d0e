"""Finds the constants that a model compares its inputs with or subtracts from them.

Thresholds and bounds tell values apart; what is subtracted leaves differences of few digits.  An
input is followed element by element through operators that move its elements, and through
invertible elementwise ones, to each operator that combines it so with a constant.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from xflow.feeds.input_roles import INT_TYPES, Tracer, attribute_of, input_of, skeleton
from xflow.onnx.nodes import COMPARISONS

MOST_ELEMENTS = 2**21
"""Elements of the largest input that is followed."""
MOST_STEPS = 500
MOST_MEETINGS = 64

MOVES = {
    *("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Tile", "Slice"),
    *("Split", "Pad", "Gather", "Concat", "DepthToSpace", "SpaceToDepth", "GatherElements"),
    *("GatherND", "ReverseSequence", "Compress"),
}
"""Operators whose results hold elements of their inputs."""
KEEPS = {
    *("Identity", "Cast", "Clip", "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Dropout"),
    *("Softplus", "Gelu", "HardSwish", "Swish", "Mish", "Max", "Min", "Where"),
}
"""Operators whose result may equal the input in part of its range."""
INVERSES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "Neg": np.negative,
    "Exp": np.log,
    "Log": np.exp,
    "Sqrt": np.square,
    "Abs": np.abs,
    "Reciprocal": np.reciprocal,
    "Tanh": np.arctanh,
    "Sigmoid": lambda v: -np.log(1 / v - 1),
}
WHOLE = (-2.0, -1.0, 0.0, 1.0, 2.0)
BENDS: Mapping[tuple[str, int], tuple[float, ...]] = {
    **{
        (op, 0): (0.0,)
        for op in ("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Abs", "Softplus")
    },
    ("HardSwish", 0): (-3.0, 3.0),
}
"""Values at which operators have a bend, without a jump."""
LEAPS: Mapping[tuple[str, int], tuple[float, ...]] = {
    **{(op, 0): (0.0,) for op in ("Sign", "Log", "Sqrt", "Reciprocal")},
    **{(op, 0): WHOLE for op in ("Floor", "Ceil")},
    ("Round", 0): (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5),
    ("Div", 1): (0.0,),
    ("Mod", 1): (0.0,),
    ("Pow", 0): (0.0, 1.0),
    ("Asin", 0): (-1.0, 1.0),
    ("Acos", 0): (-1.0, 1.0),
    ("Atanh", 0): (-1.0, 1.0),
    ("Acosh", 0): (1.0,),
}
"""Values at which their results jump, or stop being defined."""


@dataclass(frozen=True)
class Meeting:
    """The values at which the elements of one input meet a constant.

    `centers` has the input's shape, NaN for elements that meet none.  With a `spread` of the same
    shape, the centers are subtracted, and values differ from them by so much; without, they are
    thresholds.  At one that is not `sharp`, the result has a bend and no jump: values right beside
    it show nothing.
    """

    centers: np.ndarray
    spread: np.ndarray | None = None
    sharp: bool = False


def meetings(
    model: ModelProto, shapes: Mapping[str, tuple[int, ...]], names: Sequence[str]
) -> dict[str, list[Meeting]]:
    """Return the meetings of each of the inputs `names`, at concrete shapes of all inputs.

    The model is not changed; its external data need not be loaded.
    """
    tracer = Tracer(skeleton(model, shapes))
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    found = {}
    for name in names:
        if 0 < np.prod(shapes[name], dtype=float) <= MOST_ELEMENTS:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = _Follower(tracer, name, shapes[name], version).found()
    return {name: each for name, each in found.items() if each}


@dataclass(frozen=True)
class _View:
    """A tensor that holds elements of an input, each put through invertible steps.

    `places` has the tensor's shape: which element of the input each comes from, -1 for none.
    `steps` are pairs (a, b) for `a * x + b`, or inverses of functions.
    """

    tensor: str
    places: np.ndarray
    steps: tuple[tuple[np.ndarray, np.ndarray] | Callable[[np.ndarray], np.ndarray], ...] = ()

    def back(self, values: np.ndarray) -> np.ndarray:
        """The values that the input's elements must have for the tensor to have these."""
        for step in reversed(self.steps):
            values = step(values) if callable(step) else (values - step[1]) / step[0]
        return np.broadcast_to(values, self.places.shape)

    def moved(self, tensor: str, local: np.ndarray) -> _View:
        """The view of a tensor whose elements are those at `local` of this one, -1 for none."""
        inside = np.maximum(local, 0)

        def move(values: np.ndarray) -> np.ndarray:
            full = np.broadcast_to(values, self.places.shape).reshape(-1)
            return values if values.ndim == 0 else full[inside]

        places = np.where(local >= 0, self.places.reshape(-1)[inside], -1)
        steps = tuple(
            step if callable(step) else (move(step[0]), move(step[1])) for step in self.steps
        )
        return _View(tensor, places, steps)

    def then(
        self, tensor: str, step: tuple[np.ndarray, np.ndarray] | Callable[[np.ndarray], np.ndarray]
    ) -> _View:
        """The view of a tensor that an invertible step makes of this one."""
        return _View(tensor, self.places, (*self.steps, step))

    def as_tensor(self, tensor: str) -> _View:
        """The same view of another tensor."""
        return _View(tensor, self.places, self.steps)


class _Follower:
    """Follows one input through a model."""

    def __init__(self, tracer: Tracer, name: str, shape: tuple[int, ...], opset: int) -> None:
        self.tracer = tracer
        self.shape = shape
        self.opset = opset
        size = int(np.prod(shape))
        self.pending = [_View(name, np.arange(size).reshape(shape))]
        self.meetings: list[Meeting] = []
        self.known: set[bytes] = set()

    def found(self) -> list[Meeting]:
        """All meetings, first those that come first."""
        seen = {self.pending[0].tensor}
        steps = 0
        while self.pending and steps < MOST_STEPS and len(self.meetings) < MOST_MEETINGS:
            view = self.pending.pop(0)
            for node, position in self.tracer.uses.get(view.tensor, ()):
                steps += 1
                # A model may be odd in any way; operators not understood are not followed.
                with contextlib.suppress(Exception):
                    self.meet(node, position, view)
                    for onward in self.onward(node, position, view):
                        if onward.tensor not in seen and onward.places.size <= MOST_ELEMENTS:
                            seen.add(onward.tensor)
                            self.pending.append(onward)
        return self.meetings

    def meet(self, node: NodeProto, position: int, view: _View) -> None:
        """Note the constants that a node combines with the view."""
        kind = node.op_type
        other = self.constant(node, 1 - position) if len(node.input) == 2 else None
        if kind in COMPARISONS or kind in ("Max", "Min"):
            for place in range(len(node.input)):
                value = self.constant(node, place)
                if place != position and value is not None:
                    self.threshold(view, value, sharp=kind in COMPARISONS)
        elif kind == "Clip" and position == 0:
            for place, name in ((1, "min"), (2, "max")):
                bound = self.constant(node, place)
                given = attribute_of(node, name, None)
                if bound is not None or given is not None:
                    self.threshold(view, np.asarray(given) if bound is None else bound)
        elif kind in ("Add", "Sub") and other is not None:
            self.offset(view, node, other if kind == "Sub" else -other)
        elif kind == "BatchNormalization" and position == 0:
            mean, deviation = self.statistics(node)
            self.note(view, mean, deviation)
        elif kind in ("HardSigmoid", "ThresholdedRelu", "Shrink"):
            for at in _bounds(node):
                self.threshold(view, np.asarray(at), sharp=kind != "HardSigmoid")
        elif kind == "Cast" and attribute_of(node, "to", 0) in INT_TYPES:
            for at in WHOLE:
                self.threshold(view, np.asarray(at), sharp=True)
        for at in BENDS.get((kind, position), ()):
            self.threshold(view, np.asarray(at))
        for at in LEAPS.get((kind, position), ()):
            self.threshold(view, np.asarray(at), sharp=True)

    def threshold(self, view: _View, value: np.ndarray, *, sharp: bool = False) -> None:
        """Note a threshold."""
        self.note(view, value.astype(np.float64), None, sharp=sharp)

    def offset(self, view: _View, node: NodeProto, value: np.ndarray) -> None:
        """Note a subtracted constant; the spread is what the difference is divided by."""
        value = value.astype(np.float64)
        if not (np.abs(value) > 0).any():
            return
        size = np.abs(value)
        spread = np.where(size > 0, np.minimum(size, 1.0), 1.0)
        for reader, position in self.tracer.uses.get(node.output[0], ()):
            by = self.constant(reader, 1 - position) if len(reader.input) == 2 else None
            if by is None or not (by != 0).all():
                continue
            if reader.op_type == "Div" and position == 0:
                spread = np.abs(by.astype(np.float64))
            elif reader.op_type == "Mul":
                spread = np.abs(1 / by.astype(np.float64))
        self.note(view, value, spread)

    def note(
        self,
        view: _View,
        value: np.ndarray,
        spread: np.ndarray | None,
        *,
        sharp: bool = False,
    ) -> None:
        """Note at which values of the input the view has a value."""
        if np.broadcast_shapes(value.shape, view.places.shape) != view.places.shape:
            view = self.broadcast(view, view.tensor, value.shape)
        inside = view.places >= 0

        def of_input(values: np.ndarray) -> np.ndarray:
            found = np.full(int(np.prod(self.shape)), np.nan)
            found[view.places[inside]] = np.broadcast_to(values, view.places.shape)[inside]
            return found.reshape(self.shape)

        back = view.back(value)
        centers = of_input(back)
        centers[~np.isfinite(centers)] = np.nan
        width = None
        if spread is not None:
            width = np.abs(of_input(view.back(value + spread)) - centers)
            centers[~np.isfinite(width)] = np.nan
        if np.isnan(centers).all():
            return
        key = centers.tobytes() + (bytes([sharp]) if width is None else width.tobytes())
        if key not in self.known:
            self.known.add(key)
            self.meetings.append(Meeting(centers, width, sharp))

    def onward(self, node: NodeProto, position: int, view: _View) -> Iterator[_View]:
        """Yield views of the outputs that hold what the view holds."""
        kind, output = node.op_type, node.output[0]
        if kind in MOVES:
            yield from self.moves(node, position, view)
        elif kind in ("Add", "Sub", "Mul", "Div"):
            yield from self.arithmetic(node, position, view)
        elif kind == "Pow" and position == 0:
            power = self.constant(node, 1)
            if power is not None and (power != 0).all():
                yield self.elementwise(view, output, power, lambda v: v ** (1 / power))
        elif kind in INVERSES:
            yield view.then(output, INVERSES[kind])
        elif kind == "BatchNormalization" and position == 0:
            mean, deviation = self.statistics(node)
            gamma, beta = (self.constant(node, place) for place in (1, 2))
            if gamma is not None and beta is not None:
                scale = gamma.reshape(mean.shape) / deviation
                yield view.then(output, (scale, beta.reshape(mean.shape) - mean * scale))
        elif kind == "Where" and position == 0:
            return
        elif kind in KEEPS:
            shape = self.tracer.shapes.get(output)
            if shape is None or shape == view.places.shape:
                yield view.as_tensor(output)
            else:
                yield self.broadcast(view, output, shape)

    def arithmetic(self, node: NodeProto, position: int, view: _View) -> Iterator[_View]:
        """Yield the view of a sum, difference, product or quotient with a constant."""
        kind, output = node.op_type, node.output[0]
        if kind == "Mul" and input_of(node, 0) == input_of(node, 1):
            yield view.then(output, np.sqrt)
            return
        other = self.constant(node, 1 - position)
        if other is None:
            return
        other = other.astype(np.float64)
        one, zero = np.asarray(1.0), np.asarray(0.0)
        if kind == "Div" and position == 1:
            yield self.elementwise(view, output, other, lambda v: other / v)
        elif kind in ("Mul", "Div"):
            scale = other if kind == "Mul" else 1 / other
            yield self.elementwise(view, output, other, (scale, zero))
        elif kind == "Sub" and position == 1:
            yield self.elementwise(view, output, other, (-one, other))
        else:
            yield self.elementwise(view, output, other, (one, other if kind == "Add" else -other))

    def elementwise(
        self,
        view: _View,
        output: str,
        other: np.ndarray,
        step: tuple[np.ndarray, np.ndarray] | Callable[[np.ndarray], np.ndarray],
    ) -> _View:
        """The view behind a step with a constant, to whose shape it is broadcast."""
        if np.broadcast_shapes(other.shape, view.places.shape) != view.places.shape:
            view = self.broadcast(view, output, other.shape)
        return view.then(output, step)

    def broadcast(self, view: _View, tensor: str, shape: tuple[int, ...]) -> _View:
        """The view with each element in all places to which it is broadcast."""
        whole = np.broadcast_shapes(shape, view.places.shape)
        local = np.arange(view.places.size).reshape(view.places.shape)
        return view.moved(tensor, np.broadcast_to(local, whole))

    def moves(self, node: NodeProto, position: int, view: _View) -> Iterator[_View]:
        """Yield the views of the outputs of a node that moves elements, by moving their places."""
        local = np.arange(view.places.size).reshape(view.places.shape)
        shape = self.tracer.shapes.get(node.output[0])
        if node.op_type in ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand") and shape:
            if position == 0:
                spread = node.op_type == "Expand"
                moved = np.broadcast_to(local, shape) if spread else local.reshape(shape)
                yield view.moved(node.output[0], moved)
            return
        if node.op_type != "Concat" and position != 0:
            return
        feeds = {}
        for place, name in enumerate(node.input):
            if place == position or name == view.tensor:
                feeds[name] = local
            elif node.op_type == "Concat":
                feeds[name] = np.full(self.tracer.shapes[name], -1, np.int64)
            elif node.op_type == "Pad" and place == 2:
                feeds[name] = np.asarray(-1)
            elif name:
                value = self.constant(node, place)
                if value is None:
                    return
                feeds[name] = value
        alone = NodeProto()
        alone.CopyFrom(node)
        if node.op_type == "Pad" and len(node.input) < 3:
            if len(node.input) < 2 or attribute_of(node, "mode", b"constant") != b"constant":
                return
            alone.input.append("xflow/none")
            feeds["xflow/none"] = np.asarray(-1)
        graph = helper.make_graph(
            [alone],
            "moves",
            [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in feeds],
            [helper.make_tensor_value_info(n, TensorProto.INT64, None) for n in node.output],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets)
        for name, places in zip(
            node.output, ReferenceEvaluator(model).run(None, feeds), strict=True
        ):
            yield view.moved(name, places)

    def constant(self, node: NodeProto, place: int) -> np.ndarray | None:
        """The constant at a place among a node's inputs, if there is one and it is known."""
        if not 0 <= place < len(node.input):
            return None
        return self.tracer.constants.get(node.input[place])

    def statistics(self, node: NodeProto) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each channel, to be broadcast over an image."""
        mean, variance = self.constant(node, 3), self.constant(node, 4)
        if mean is None or variance is None:
            raise LookupError(node.name)
        rank = len(self.tracer.shapes[node.input[0]])
        shape = (-1, *[1] * (rank - 2))
        deviation = np.sqrt(variance.astype(np.float64) + attribute_of(node, "epsilon", 1e-5))
        return mean.astype(np.float64).reshape(shape), deviation.reshape(shape)


def _bounds(node: NodeProto) -> tuple[float, ...]:
    """The bounds among an operator's attributes, at which its result has a bend."""
    if node.op_type == "HardSigmoid":
        alpha, beta = attribute_of(node, "alpha", 0.2), attribute_of(node, "beta", 0.5)
        return (-beta / alpha, (1 - beta) / alpha)
    if node.op_type == "Shrink":
        bound = attribute_of(node, "lambd", 0.5)
        return (-bound, bound)
    return (attribute_of(node, "alpha", 1.0),)
