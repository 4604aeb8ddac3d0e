"""Recognises elementwise functions of one tensor by their values at some points.

A part of a graph that consists of elementwise operators, with single numbers for constants, and
that reads one computed tensor, is a function of one real variable. It is evaluated at some points,
by the operators' numpy implementations, and compared with the activations of the registry there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from xflow.core.errors import ShapeError
from xflow.core.evaluation import run
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph, walk
from xflow.core.node import Leaf, Node, Value, complete_attributes
from xflow.core.registry import Array, Attribute, Kind, Operator
from xflow.ops import operators

POINTS = np.concatenate([np.linspace(-8.0, 8.0, 61), [-0.013, 0.007, 0.31, 30.0, -30.0]])
"""Where functions are compared: around zero, where they bend, and where they have settled."""

CLOSE = 2e-5
"""How far a function may be off, relative to its own size, for one activation: constants such as
the root of 2 are rounded in many ways, and the two forms of Gelu are 25 times as far apart."""

FURTHEST = 32
"""How many tensors below a value are tried as the variable of the function."""

DEEPEST = 64
"""Most operators, one behind the other, from the variable of a function to its value."""

LARGEST = 2**16
"""Elements up to which a tensor is computed to find a number that depends on it."""

_LINES = np.linalg.qr(np.stack([np.ones_like(POINTS), POINTS], axis=1))[0]
"""An orthonormal basis of the lines at `POINTS`."""

_STEPS = 12


@dataclass(frozen=True)
class Function:
    """A value as a function of another one: the nodes in between, and the activation that it is.

    `operator` is empty for a function that bends but is no activation of the registry.
    """

    root: Node
    source: Value
    nodes: frozenset[Node]
    operator: str


class Functions:
    """The functions of one variable in a graph. `constants` serves its leaves."""

    def __init__(self, graph: Graph, constants: ConstantLookup) -> None:
        self._constants = constants
        self._numbers: dict[Value, Array | None] = {}
        self._below: dict[Node, Mapping[Value, int]] = {}
        self._values: dict[tuple[Value, Value], Array] = {}
        for node in graph.nodes:
            self._below[node] = self._sources(node)

    def ending_at(self, node: Node) -> Iterator[Function]:
        """The functions that end at `node`, those of the most nodes first."""
        found = []
        for source in self._below[node]:
            nodes = frozenset(walk([node.outputs[0]], {source}))
            inside = frozenset(each for each in nodes if not each.constant)
            found.append((len(inside), source, inside))
        for _, source, inside in sorted(found, key=lambda each: -each[0]):
            name = self._classify(node, source)
            if name is not None:
                yield Function(node, source, inside, name)

    def number(self, value: Value) -> Array | None:
        """The only element of a constant, as an array without axes; None for any other value."""
        if value not in self._numbers:
            self._numbers[value] = self._evaluate(value)
        return self._numbers[value]

    def _evaluate(self, value: Value) -> Array | None:
        if not value.is_constant or any(size != 1 for size in value.shape):
            return None
        if any(not _is_quick(node) for node in walk([value])):
            return None
        feeds: dict[str, Array] = {}
        for leaf in Graph((value,)).leaves:
            array = self._constants(leaf)
            if array is None:
                return None
            assert isinstance(leaf.node.op, Leaf)
            is_real = array.dtype.kind == "f" or array.dtype.itemsize == 2
            feeds[leaf.node.op.key] = array.astype(np.float64) if is_real else array
        return np.asarray(run([value], feeds)[0]).reshape(())

    def _sources(self, node: Node) -> Mapping[Value, int]:
        """The tensors of which alone a node is a function, the nearest first.

        With each, how many operators there are from it to the node, on the longest way.
        """
        if not isinstance(node.op, Operator) or not node.op.elementwise or node.constant:
            return {}
        computed = [value for value in dict.fromkeys(node.inputs) if not value.is_constant]
        if any(self.number(value) is None for value in node.inputs if value.is_constant):
            return {}
        common: dict[Value, int] = {}
        for number, value in enumerate(computed):
            ways = {value: 0, **self._below[value.node]}
            earlier = ways if not number else common
            common = {
                each: max(depth, ways[each]) for each, depth in earlier.items() if each in ways
            }
        shape = node.types[0].shape
        near = [each for each in common if each.shape == shape and common[each] < DEEPEST]
        return {each: common[each] + 1 for each in near[:FURTHEST]}

    def _classify(self, node: Node, source: Value) -> str | None:
        """The activation that `node` is of `source`, or ""; None for one that does not bend."""
        values = self._at_points(node.outputs[0], source)
        if values.dtype.kind != "f" or values.shape != POINTS.shape:
            return None
        if not np.isfinite(values).all() or _is_straight(values):
            return None
        with np.errstate(over="ignore"):  # no activation makes numbers so large
            rounded = np.round(values.astype(np.float64), 9)
        return _activation(rounded.tobytes())

    def _at_points(self, value: Value, source: Value) -> Array:
        """A value as a function of another one, at `POINTS`."""
        if value == source:
            return POINTS
        if (value, source) not in self._values:
            node = value.node
            assert isinstance(node.op, Operator)
            arrays = [
                self.number(each) if each.is_constant else self._at_points(each, source)
                for each in node.inputs
            ]
            with np.errstate(all="ignore"):
                found = node.op.numpy([a for a in arrays if a is not None], node.attributes)
            self._values[value, source] = found[0]
        return self._values[value, source]


def _is_quick(node: Node) -> bool:
    """Whether numpy computes a constant node quickly: some were too large to fold."""
    for kind in node.types:
        sizes = [size for size in kind.shape if isinstance(size, int)]
        if len(sizes) < len(kind.shape) or math.prod(sizes) > LARGEST:
            return False
    return isinstance(node.op, Operator | Leaf)


def _is_straight(values: Array) -> bool:
    """Whether a function is a line, judged by its values."""
    return _is_close(_LINES @ (_LINES.T @ values), values)


def _is_close(one: Array, other: Array) -> bool:
    scale = np.maximum(1e-2, np.abs(other))
    return bool((np.abs(one - other) <= CLOSE * scale).all())


@functools.lru_cache(4096)
def _activation(rounded: bytes) -> str:
    """`activation` of values as bytes, cached since it is asked before and after rewriting."""
    return activation(np.frombuffer(rounded))


def activation(values: Array) -> str:
    """ONNX's activation that has these values at `POINTS`; empty where there is none.

    Its real attributes are found by Gauss and Newton's method, from its defaults and from its
    declaration's examples.
    """
    known = (op for op in operators() if op.role == "activation" and op.arity == (1, 1))
    # Those without a number to fit come first: Relu is a LeakyRelu, too, but is not called so.
    tried = sorted(
        (op for op in known if not op.domain),
        key=lambda op: (bool(_reals(op)), op.since, op.name),
    )
    starts = [(op, given) for op in tried for given in _starts(op)]
    for op, given in starts:
        if _is_close(_reading(op, given), values):
            return op.name
    for op, given in starts:
        if _fits(op, given, values):
            return op.name
    return ""


def _starts(op: Operator) -> Iterator[Mapping[str, Attribute]]:
    """Attributes of an operator from which a search for others starts."""
    tried: list[Mapping[str, Attribute]] = []
    for given in ({}, *(example.attributes for example in op.examples)):
        try:
            whole = complete_attributes(op, given, [(1,)])
        except ShapeError:
            continue
        if whole not in tried:
            tried.append(whole)
            yield whole


def _reading(op: Operator, attributes: Mapping[str, Attribute]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(op.numpy([POINTS], attributes)[0])


def _reals(op: Operator) -> list[str]:
    return [name for name, spec in op.attributes.items() if spec.kind is Kind.REAL]


def _fits(op: Operator, given: Mapping[str, Attribute], values: Array) -> bool:
    """Whether some real attributes give these values."""
    names = [name for name in _reals(op) if isinstance(given[name], Fraction)]
    if not names:
        return False

    def reading(found: Array) -> Array:
        parts: dict[str, Attribute] = dict(given)
        parts.update(zip(names, map(Fraction, found.tolist()), strict=True))
        return _reading(op, parts)

    at = np.array([float(Fraction(str(given[name]))) for name in names])
    for _ in range(_STEPS):
        now = reading(at)
        ahead = np.stack([reading(at + 1e-6 * unit) for unit in np.eye(len(at))], axis=1)
        with np.errstate(all="ignore"):
            slope = (ahead - now[:, None]) / 1e-6
        if not (np.isfinite(slope).all() and np.isfinite(now).all()):
            return False
        step = np.linalg.lstsq(slope, values - now, rcond=None)[0]
        at = at + step
        if not np.isfinite(at).all() or math.hypot(*step) < 1e-12:
            break
    return bool((np.isfinite(at) & (np.abs(at) > CLOSE)).all()) and _is_close(reading(at), values)
