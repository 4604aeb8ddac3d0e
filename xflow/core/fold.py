"""Constant folding: the arrays that constant subexpressions of a graph are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import ml_dtypes
import numpy as np
import onnx_ir as ir

from xflow.core.errors import ShapeError, SizeError
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, TensorType, Value, hidden_positions
from xflow.core.pages import release
from xflow.core.registry import Array, Operator, Shape
from xflow.core.rounding import limits, loses_numbers
from xflow.core.size import Expr, product
from xflow.core.sorts import FLOATS

ConstantLookup = Callable[[Value], Array | None]
"""Gives the data of a constant; None where it is not known or is not to be looked at."""


def no_constants(value: Value) -> None:
    """A `ConstantLookup` that knows nothing."""
    return


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy type of an ONNX element type."""
    dtype: np.dtype[np.generic] = ir.DataType[name].numpy()
    return dtype


def byte_size(value: Value) -> int | None:
    """Bytes that a value takes; None where a symbol decides."""
    total = ir.DataType[value.type.dtype].itemsize
    for size in value.shape:
        if isinstance(size, Expr):
            return None
        total *= size
    return int(total)


def constant_leaves(value: Value) -> tuple[Value, ...]:
    """The leaves that a value depends on."""
    return tuple(node.outputs[0] for node in walk([value]) if isinstance(node.op, Leaf))


INTERMEDIATE = 2**16
"""Most elements of what is computed on the way to a small expression: it is done while matching."""


def with_expressions(constants: ConstantLookup, limit: int) -> ConstantLookup:
    """`constants`, and what expressions of at most `limit` elements over them are.

    And larger ones that have one value everywhere, since all that they are computed from has.
    """
    fold = Folder(constants)
    even: dict[Value, Array | None] = {}

    def find(value: Value) -> Array | None:
        if value.is_leaf:
            return constants(value)
        if not value.is_constant:
            return None
        if not _is_small(value.shape, limit):
            if value not in even:
                even[value] = _even(value, constants)
            return even[value]
        return fold(value) if is_soon_folded(value) else None

    return find


def is_soon_folded(value: Value) -> bool:
    """Whether nothing on the way to an expression is large."""
    shapes = (type.shape for node in walk([value]) for type in node.types)
    return all(_is_small(shape, INTERMEDIATE) for shape in shapes)


def _even(value: Value, constants: ConstantLookup) -> Array | None:
    """The array that an elementwise expression is if each of its leaves has one value everywhere.

    Computed from an element of each. None for all others.
    """
    shape = tuple(size for size in value.shape if isinstance(size, int))
    if len(shape) < len(value.shape):
        return None
    nodes = list(walk([value]))
    single: dict[Node, Array] = {}
    for node in nodes:
        if isinstance(node.op, Leaf):
            array = constants(node.outputs[0])
            if array is None or not array.size or not np.all(array == array.flat[0]):
                return None
            single[node] = array.reshape(-1)[:1]
        elif not isinstance(node.op, Operator) or not node.op.elementwise:
            return None
    try:
        with np.errstate(all="ignore"):
            return np.broadcast_to(_computed(value, nodes, single), shape)
    except FAILURES:
        return None


def _is_affordable(nodes: Sequence[Node]) -> bool:
    """Whether nothing on the way to a constant is much larger than what it is computed from.

    An operator may blow up what it gets: Tile, Expand, or the product of a column and a row.
    """
    sizes = [(node, sum(map(_folded_bytes, node.types))) for node in nodes]
    sources = sum(size for node, size in sizes if isinstance(node.op, Leaf))
    return all(size <= SCRATCH + 4 * sources for _, size in sizes)


def _folded_bytes(kind: TensorType) -> int:
    """Bytes that a value takes while it is folded; of symbols nothing is known."""
    size = product(kind.shape)
    return 8 * size if isinstance(size, int) else 0


def _is_small(shape: Shape, limit: int) -> bool:
    size = product(shape)
    return isinstance(size, int) and size <= limit


SCRATCH = 256 * 2**20
"""Bytes that what is computed on the way to a constant may take beyond four times its sources."""
LARGE = 32 * 2**20
"""Bytes from which a constant is kept in a file, and computed a part at a time if it can be."""


FAILURES = (
    *(ShapeError, SizeError, ArithmeticError, AssertionError, IndexError, TypeError),
    MemoryError,
)
"""What ends a computation: a size or a real without a value, an index out of range, or more than
there is room for."""


class Folder:
    """Evaluates constant values: floats in float64, rounded once to the value's own element type.

    Integers and Booleans are computed with in their own types, as the runtime does, and what is
    only moved stays as it is. Results are remembered, those of `large` bytes in files; intermediate
    ones are not: weights are large. `stepwise`, each operator's results are rounded, as the runtime
    does it where it computes the constant itself: less exact, and what the model's values
    depend on. It may also be the values of which that is true; in any case it is true of those
    that an operator decides or converts on the way.
    """

    def __init__(
        self,
        constants: ConstantLookup,
        *,
        stepwise: bool | Container[Value] = False,
        large: int = LARGE,
    ) -> None:
        self._constants = constants
        self._stepwise = stepwise
        self._large = large
        self._done: dict[Value, Array | None] = {}
        self._losses: dict[Value, bool | None] = {}

    def __call__(self, value: Value) -> Array | None:
        """The array that `value` is; None where it is not constant or cannot be computed."""
        if value not in self._done:
            self._done[value] = self._fold(value) if value.is_constant else None
        return self._done[value]

    def up_to(self, limit: int, value: Value) -> Array | None:
        """The data of a constant that is a leaf, or an expression of at most `limit` elements."""
        if not value.is_constant:
            return None
        if value.is_leaf:
            return self._constants(value)
        return self(value) if _is_small(value.shape, limit) else None

    def _fold(self, value: Value) -> Array | None:
        if value.is_leaf:
            return self._constants(value)
        nodes = list(walk([value]))
        sources = self._sources(nodes)
        if sources is None:
            return None
        stepwise = self._stepwise if isinstance(self._stepwise, bool) else value in self._stepwise
        try:
            with np.errstate(all="ignore"):
                array = _by_parts(value, nodes, sources, stepwise=stepwise, large=self._large)
                if array is None:
                    array = _computed(value, nodes, sources, stepwise=stepwise)
        except FAILURES:
            return None
        finally:
            self._release(sources)
        return in_file(array) if array.nbytes >= self._large else array

    def _sources(self, nodes: Sequence[Node]) -> dict[Node, Array] | None:
        """The data of the leaves among `nodes`; None where what they make cannot be computed."""
        if not _is_affordable(nodes):
            return None
        sources: dict[Node, Array] = {}
        for node in nodes:
            if isinstance(node.op, Leaf):
                array = self._constants(node.outputs[0])
                if array is None:
                    return None
                sources[node] = array
            elif not isinstance(node.op, Operator):
                return None
        return sources

    def _release(self, sources: Mapping[Node, Array]) -> None:
        for source in sources.values():
            if source.nbytes >= self._large:
                release(source)

    def loses_numbers(self, value: Value) -> bool | None:
        """Whether a constant expression is too small or too large for its type, where it matters.

        That is where elements become infinite that are computed from numbers, or 0 or subnormal so
        that it shows, see `rounding.loses_numbers`. What is subnormal beside other numbers in the
        data has few digits before. None where the array cannot be computed.
        """
        if value not in self._losses:
            self._losses[value] = self._lost(value)
        return self._losses[value]

    def _lost(self, value: Value) -> bool | None:
        if value.type.dtype not in FLOATS:
            return False
        nodes = list(walk([value]))
        sources = self._sources(nodes)
        if sources is None:
            return None
        try:
            with np.errstate(all="ignore"):
                overflows, underflows = self._checked(value, nodes, sources)
                if underflows:
                    plain = {node: _without_subnormal(array) for node, array in sources.items()}
                    if any(plain[node] is not array for node, array in sources.items()):
                        _, underflows = self._checked(value, nodes, plain)
        except FAILURES:
            return None
        finally:
            self._release(sources)
        return overflows or underflows

    def _checked(
        self, value: Value, nodes: Sequence[Node], sources: Mapping[Node, Array]
    ) -> tuple[bool, bool]:
        """Whether an expression overflows for this data, and whether it loses numbers else."""
        shape = _large_shape(value, nodes, sources, self._large)
        if shape is None:
            rounded, lost = _rounded_and_lost(value, nodes, sources)
        else:
            rounded = np.empty(shape, numpy_dtype(value.type.dtype))
            lost = np.empty(shape, np.bool_)
            for part, those in _row_parts(value, shape, sources, self._large):
                rounded[part], lost[part] = _rounded_and_lost(value, nodes, those)
        if not lost.any():
            return False, False
        if not np.isfinite(rounded[lost]).all():
            return True, False
        return False, loses_numbers(rounded, lost, value.type.dtype)


def _rounded_and_lost(
    value: Value, nodes: Sequence[Node], sources: Mapping[Node, Array]
) -> tuple[Array, Array]:
    """What an expression is in its type, and where it is no number, or too small a one, by that."""
    dtype = value.type.dtype
    underflows: list[object] = []
    with np.errstate(under="call", call=lambda *told: underflows.append(told)):
        exact = np.asarray(_unrounded(value, nodes, sources)).astype(np.float64)
    rounded = exact.astype(numpy_dtype(dtype))
    sizes, from_numbers = np.abs(rounded), all(map(_is_real, sources.values()))
    small = sizes < limits(dtype).smallest_normal
    lost = np.asarray(small & (rounded != exact))
    if underflows:  # even with 64 bits, so that what is 0 may be none
        lost |= np.abs(exact) < np.finfo(np.float64).smallest_normal
    lost |= ~np.isfinite(rounded) & (np.isfinite(exact) | from_numbers)
    return rounded, lost


def _has_largest(array: Array) -> bool:
    """Whether an element is the largest or the least number of the array's type."""
    return array.dtype.kind == "f" and bool(np.any(np.abs(array) == np.finfo(array.dtype).max))


def _is_real(array: Array) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array).all())


def _without_subnormal(array: Array) -> Array:
    """Floats of which those with few digits are 0, where others have all."""
    if array.dtype.kind in "biu":
        return array
    few = np.abs(array) < ml_dtypes.finfo(array.dtype).smallest_normal  # type: ignore[no-untyped-call]
    if few.all() or not array[few].any():
        return array
    return np.where(few, np.zeros_like(array), array)


def _computed(
    value: Value, nodes: Sequence[Node], sources: Mapping[Node, Array], *, stepwise: bool = False
) -> Array:
    """What `value` is, for this data of the leaves among the `nodes` that it depends on.

    What shows roundings on the way is computed `stepwise` in any case.
    """
    stepwise = stepwise or any(map(_shows_roundings, nodes))
    exact = _unrounded(value, nodes, sources, stepwise=stepwise)
    return exact.astype(numpy_dtype(value.type.dtype))


def _unrounded(
    value: Value, nodes: Sequence[Node], sources: Mapping[Node, Array], *, stepwise: bool = False
) -> Array:
    """What `value` is before it is rounded to its element type."""
    remaining: dict[Node, int] = {}
    for node in nodes:
        for source in node.inputs:
            remaining[source.node] = remaining.get(source.node, 0) + 1
    moved = all(moves(node) for node in nodes if node.inputs)
    results: dict[Node, list[Array]] = {}
    for node in nodes:
        if not isinstance(node.op, Operator):
            array = sources[node]
            exact = moved or array.dtype.kind in "biu"
            results[node] = [array if exact else array.astype(np.float64)]
            continue
        inputs = [results[source.node][source.index] for source in node.inputs]
        if _decides(node):  # a sigmoid of 1 - 2e-10 is 1 for whoever compares it
            inputs = [
                _rounded(array, source.type.dtype)
                for array, source in zip(inputs, node.inputs, strict=True)
            ]
        results[node] = node.op.numpy(inputs, node.attributes)
        if hidden_positions(node) and any(map(_has_largest, results[node])):
            raise ArithmeticError("what a kernel makes of no number depends on the type")
        if not inputs and (moved or node.types[0].dtype not in FLOATS):
            kind = numpy_dtype(node.types[0].dtype)
            results[node] = [result.astype(kind) for result in results[node]]
        elif stepwise:
            results[node] = [
                _rounded(result, kind.dtype)
                for result, kind in zip(results[node], node.types, strict=True)
            ]
        for source in node.inputs:
            remaining[source.node] -= 1
            if not remaining[source.node]:
                del results[source.node]
    return np.asarray(results[value.node][value.index])


def _rounded(array: Array, dtype: str) -> Array:
    """An array as one of an element type would hold it."""
    if dtype not in FLOATS or array.dtype == numpy_dtype(dtype):  # a weight that is only moved
        return array
    return array.astype(numpy_dtype(dtype)).astype(array.dtype)


def _decides(node: Node) -> bool:
    """Whether an operator makes integers or Booleans of floats, which a rounding may change."""
    assert isinstance(node.op, Operator)
    floats = any(source.type.dtype in FLOATS for source in node.inputs)
    return floats and (node.op.steps or any(kind.dtype not in FLOATS for kind in node.types))


def _shows_roundings(node: Node) -> bool:
    """Whether an operator makes of floats what shows how each of its operands was rounded.

    That is what decides, and what converts to another type of floats.
    """
    if not isinstance(node.op, Operator):
        return False
    given = {kind.dtype for kind in node.types}
    converts = any(v.type.dtype in FLOATS and v.type.dtype not in given for v in node.inputs)
    return _decides(node) or (converts and not given.isdisjoint(FLOATS))


def moves(node: Node) -> bool:
    """Whether a node only puts elements elsewhere, without arithmetic."""
    assert isinstance(node.op, Operator)
    read, given = [value.shape for value in node.inputs], [kind.shape for kind in node.types]
    return node.op.flops(read, node.attributes, given) == 0


def _by_parts(
    value: Value,
    nodes: Sequence[Node],
    sources: Mapping[Node, Array],
    *,
    stepwise: bool,
    large: int,
) -> Array | None:
    """What `value` is, computed a few rows at a time; None if it is small or not elementwise."""
    shape = _large_shape(value, nodes, sources, large)
    if shape is None:
        return None
    result = np.empty(shape, numpy_dtype(value.type.dtype))
    for part, those in _row_parts(value, shape, sources, large):
        result[part] = _computed(value, nodes, those, stepwise=stepwise)
    return result


def _large_shape(
    value: Value, nodes: Sequence[Node], sources: Mapping[Node, Array], large: int
) -> tuple[int, ...] | None:
    """The shape of a large elementwise expression; None for others."""
    size = byte_size(value)
    operators = [node for node in nodes if node not in sources]
    local = all(isinstance(n.op, Operator) and n.op.elementwise and n.inputs for n in operators)
    if size is None or size < large or not local:
        return None
    return tuple(each for each in value.shape if isinstance(each, int))  # all are: it has a size


def _row_parts(
    value: Value, shape: tuple[int, ...], sources: Mapping[Node, Array], large: int
) -> Iterator[tuple[slice, Mapping[Node, Array]]]:
    """A few rows of an elementwise expression at a time, with those of what it is computed from."""
    spread = {node: np.broadcast_to(array, shape) for node, array in sources.items()}
    rows = max(1, shape[0] * large // (byte_size(value) or 1))
    for start in range(0, shape[0], rows):
        part = slice(start, start + rows)
        yield part, {node: whole[part] for node, whole in spread.items()}
        for array in sources.values():
            release(array)


def in_file(array: Array) -> Array:
    """The array in a file without a name, which the system may drop from memory and read again.

    The array itself where there is no room for it.
    """
    try:
        with tempfile.TemporaryFile(prefix="xflow-") as file:
            np.ascontiguousarray(array).tofile(file)
            return np.memmap(file, array.dtype, mode="r", shape=array.shape)
    except OSError:
        return array
