"""Arithmetic on shapes: what integer tensors are, as polynomials over the names of dimensions.

Exporters compute the targets of Reshape and Expand from the shapes of tensors: Shape, Gather,
Concat and arithmetic. With dynamic dimensions these have no numbers, but sizes: ``[n, s, 12, 64]``.
An element is known exactly or not at all, at every size that the dimensions may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from xflow.core.constraint import at_least, is_true
from xflow.core.registry import Array, Shape
from xflow.core.size import Expr, Size, divide, product
from xflow.ops.resize import whole_factors

LIMIT = 1024
"""Most elements of an integer tensor that is followed."""


def shape_of(node: ir.Node, shape: Shape) -> Array:
    """What a Shape node gives for an input of this shape."""
    start = node.attributes.get_int("start", 0)
    end = node.attributes.get_int("end", len(shape))
    return _sizes(shape[start:end])


def computed(node: ir.Node, inputs: Sequence[Array | None]) -> Array | None:
    """The sizes that a node computes from sizes; None where they are not determined.

    Arrays of objects hold a `Size` each, others integers and Booleans.
    """
    function = _FUNCTIONS.get(node.op_type)
    if node.domain != "" or function is None or any(array is None for array in inputs):
        return None
    try:
        found = function(node, *inputs)
    except (ArithmeticError, IndexError, TypeError, ValueError, _UndecidedError):
        return None
    return found if found is not None and found.size <= LIMIT else None


def extents(node: ir.Node, inputs: Sequence[Array | None]) -> Shape | None:
    """The shape of the output of an operator that makes a tensor of given sizes, where it tells."""
    if node.domain:
        return None
    if node.op_type == "ConstantOfShape" and len(inputs) == 1 and inputs[0] is not None:
        return as_shape(inputs[0])
    if node.op_type == "Range" and len(inputs) == 3 and all(a is not None for a in inputs):
        start, limit, step = (np.asarray(a).reshape(-1)[0] for a in inputs)
        if isinstance(step, int | np.integer) and step == 1:
            length = limit - start
            if is_true(at_least(length, 0)):
                return (length if isinstance(length, Expr) else int(length),)
    return None


def resized(node: ir.Node, shape: Shape, inputs: Sequence[Array | None]) -> Shape | None:
    """The shape of what a Resize, or an Upsample, makes of a tensor of this `shape`.

    By sizes that are given, or by whole factors; None where these do not tell all of it. `inputs`
    are those behind the tensor.
    """
    given = node.attributes
    if "axes" in given or given.get_string("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    if len(inputs) > 2 and node.inputs[3] is not None and (inputs[2] is None or inputs[2].size):
        told = None if inputs[2] is None else as_shape(inputs[2])
        return told if told is not None and len(told) == len(shape) else None
    if given.get_string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return None
    scales = inputs[min(len(inputs) - 1, 1)] if inputs else None
    if scales is None or scales.shape != (len(shape),) or scales.dtype.kind != "f":
        return None
    factors = whole_factors(scales, shape)
    return None if factors is None else tuple(n * s for n, s in zip(shape, factors, strict=True))


def cut_shape(
    shape: Shape, inputs: Sequence[Array | None], inferred: Shape
) -> tuple[Shape, Mapping[Size, Size]]:
    """The shape of what a Slice cuts off the beginning of a tensor of this `shape`.

    And which of its sizes are clipped: the lesser of a number and of the size that they go with.
    BERT's positions, cut from 512 that it knows, are ``min(512, s)``. `inputs` are those behind the
    tensor; `inferred` is what else is known of the result, and remains where this tells no more.
    """
    told = [None if array is None else array.reshape(-1).tolist() for array in inputs]
    starts, ends, *rest = told
    axes, steps = (*rest, None, None)[:2]
    if starts is None or ends is None or len(shape) != len(inferred) or None in rest:
        return inferred, {}
    axes = list(range(len(starts))) if axes is None else axes
    if not all(isinstance(n, int) and -len(shape) <= n < len(shape) for n in axes):
        return inferred, {}
    axes = [n % len(shape) for n in axes]
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) == len(set(axes)):
        return inferred, {}  # it does not run
    result = [n if axis in axes else shape[axis] for axis, n in enumerate(inferred)]
    clipped: dict[Size, Size] = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if (start, step) != (0, 1) or not is_true(at_least(end, 0)):
            continue
        extent = shape[axis]
        if is_true(at_least(extent, end)):
            result[axis] = end
        elif is_true(at_least(end, extent)):
            result[axis] = extent
        elif isinstance(extent, int) and isinstance(result[axis], Expr) and result[axis] != end:
            clipped[result[axis]] = end
    return tuple(result), clipped


def joined_shape(shapes: Sequence[Shape], inferred: Shape, clipped: Mapping[Size, Size]) -> Shape:
    """What tensors of these shapes have in common where they are stretched to each other.

    A clipped size goes with no other size than that which it was clipped to, see `cut_shape`: if
    they differ, the model does not run. `inferred` remains where this tells no more.
    """
    rank = len(inferred)
    if any(len(shape) > rank for shape in shapes):
        return inferred
    wide = [(*[1] * (rank - len(shape)), *shape) for shape in shapes]
    result: list[Size] = []
    for sizes, known in zip(zip(*wide, strict=True), inferred, strict=True):
        apart = {size for size in sizes if size != 1}
        whole = apart - {size for size in apart if clipped.get(size) in apart}
        result.append(whole.pop() if len(whole) == 1 else known if whole else 1)
    return tuple(result)


def reshaped(node: ir.Node, shape: Shape, target: Array) -> Shape | None:
    """The shape that a Reshape gives a tensor of this `shape`, where its target says all of it."""
    left = [axis for axis, size in enumerate(target.tolist()) if size == -1]
    sizes = as_shape(np.where(target == -1, 1, target)) if target.ndim == 1 else None
    if sizes is None or len(left) > 1:
        return None
    if node.attributes.get_int("allowzero", 0) == 0:
        if any(size == 0 and axis >= len(shape) for axis, size in enumerate(sizes)):
            return None
        sizes = tuple(shape[axis] if size == 0 else size for axis, size in enumerate(sizes))
    for axis in left:
        try:
            whole, rest = divide(product(shape), product(sizes))
        except (ArithmeticError, ValueError):
            return None
        if rest != 0:
            return None
        sizes = (*sizes[:axis], whole, *sizes[axis + 1 :])
    return sizes


def spectra(
    node: ir.Node, shapes: Sequence[Shape | None], inputs: Sequence[Array | None]
) -> tuple[Size | None, ...] | None:
    """The shape that a STFT gives: batch, frames, frequencies, and 2 for real and imaginary parts.

    Inference tells none for a signal of unknown length. `shapes` and `inputs` have None for what is
    left out. How many frames there are is None: the runtime divides in floats.
    """
    signal = shapes[0] if shapes else None
    window = shapes[2] if len(shapes) > 2 else None
    length = inputs[3] if len(inputs) > 3 else None
    if signal is None or len(signal) not in (2, 3):
        return None
    # A frame of another length than the window's is refused.
    told = window if window is not None else () if length is None else length.reshape(-1).tolist()
    if len(told) != 1 or not isinstance(told[0], int) or told[0] < 1:
        return None
    bins = told[0]
    if node.attributes.get_int("onesided", 1):
        if len(signal) == 3 and signal[2] != 1:  # of complex numbers all are needed
            return None
        bins = bins // 2 + 1
    return signal[0], None, bins, 2


def concatenated(node: ir.Node, shapes: Sequence[Shape]) -> Shape | None:
    """The shape of tensors joined along an axis, which are equal along all others or do not run.

    Of sizes that have to be equal, a number says most. The runtime takes parts without elements of
    whatever extents.
    """
    shapes = [shape for shape in shapes if 0 not in shape] or shapes
    rank, axis = len(shapes[0]), node.attributes.get_int("axis", 0)
    if any(len(shape) != rank for shape in shapes) or not -rank <= axis < rank:
        return None
    result: list[Size] = []
    for place, sizes in enumerate(zip(*shapes, strict=True)):
        numbers = [size for size in sizes if isinstance(size, int)]
        result.append(sum(sizes) if place == axis % rank else [*numbers, sizes[0]][0])
    return tuple(result)


def tiled(shape: Shape, repeats: Array) -> Shape | None:
    """The shape of a tensor that is repeated so often along each axis."""
    times = as_shape(repeats)
    if times is None or len(times) != len(shape):
        return None
    return tuple(size * count for size, count in zip(shape, times, strict=True))


def as_shape(array: Array) -> Shape | None:
    """A vector of sizes as a shape; None for one with elements that may be negative, or floats."""
    if array.ndim != 1 or array.dtype.kind not in "iuO":
        return None
    sizes = tuple(n if isinstance(n, Expr) else int(n) for n in array.tolist())
    return sizes if all(is_true(at_least(n, 0)) for n in sizes) else None


class _UndecidedError(Exception):
    """A comparison whose outcome depends on the sizes."""


def _sizes(values: Sequence[Size]) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = [n if isinstance(n, Expr) else int(n) for n in values]
    return array


def _each(function: Callable[[Any, Any], Size]) -> Callable[..., Array]:
    """A function of two sizes on tensors of them."""

    def apply(node: ir.Node, left: Array, right: Array) -> Array:
        a, b = np.broadcast_arrays(left.astype(object), right.astype(object))
        result = np.empty(a.shape, dtype=object)
        for position in np.ndindex(a.shape):
            result[position] = function(a[position], b[position])
        return result

    return apply


def _quotient(a: Size, b: Size) -> Size:
    """An exact quotient: it is the same however a program rounds."""
    whole, rest = divide(a, b)
    if rest != 0:
        raise _UndecidedError
    return whole


def _is_equal(a: Size, b: Size) -> bool:
    if is_true(at_least(a - b, 1)) or is_true(at_least(b - a, 1)):
        return False
    if a - b != 0:
        raise _UndecidedError
    return True


def _gather(node: ir.Node, data: Array, indices: Array) -> Array:
    axis = node.attributes.get_int("axis", 0)
    return np.asarray(np.take(data, indices.astype(np.int64), axis=axis))


def _concat(node: ir.Node, *parts: Array) -> Array:
    return np.concatenate([p.astype(object) for p in parts], axis=node.attributes.get_int("axis"))


def _slice(node: ir.Node, data: Array, *given: Array) -> Array:
    if not given:  # attributes, before opset 10
        names = ("starts", "ends", "axes")
        found = (node.attributes.get_ints(name, None) for name in names)
        given = tuple(np.asarray(each) for each in found if each is not None)
    starts, ends, *rest = given
    axes = rest[0].tolist() if rest else list(range(starts.size))
    steps = rest[1].tolist() if len(rest) > 1 else [1] * starts.size
    index = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts.tolist(), ends.tolist(), steps, strict=True):
        if step < 1:
            raise _UndecidedError
        index[axis] = slice(start, end, step)
    return np.asarray(data[tuple(index)])


def _axes(node: ir.Node, given: Sequence[Array]) -> tuple[int, ...] | None:
    if given:
        return tuple(int(n) for n in given[0].reshape(-1))
    listed = node.attributes.get_ints("axes", None)
    return None if listed is None else tuple(listed)


def _unsqueeze(node: ir.Node, data: Array, *axes: Array) -> Array:
    return np.expand_dims(data, _axes(node, axes) or ())


def _squeeze(node: ir.Node, data: Array, *axes: Array) -> Array:
    return np.squeeze(data, _axes(node, axes))


def _reshape(node: ir.Node, data: Array, shape: Array) -> Array:
    target = [int(n) for n in shape.reshape(-1)]
    if any(n == 0 for n in target):
        raise _UndecidedError
    return data.reshape(target)


def _cast(node: ir.Node, data: Array) -> Array | None:
    whole = (ir.DataType.INT64.value, ir.DataType.INT32.value)
    return data if node.attributes.get_int("to") in whole else None


def _where(node: ir.Node, condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition.astype(bool), yes.astype(object), no.astype(object))


def _product(node: ir.Node, data: Array, *axes: Array) -> Array:
    over_nothing = node.attributes.get_int("noop_with_empty_axes", 0) and not any(
        array.size for array in axes
    )
    if data.ndim != 1 or over_nothing:
        raise _UndecidedError
    total = math.prod(data.tolist(), start=1)
    result = np.empty((1,) if node.attributes.get_int("keepdims", 1) else (), dtype=object)
    result[...] = total
    return result


_FUNCTIONS: Mapping[str, Callable[..., Array | None]] = {
    "Add": _each(lambda a, b: a + b),
    "Sub": _each(lambda a, b: a - b),
    "Mul": _each(lambda a, b: a * b),
    "Div": _each(_quotient),
    "Equal": _each(_is_equal),
    "Where": _where,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Cast": _cast,
    "Identity": lambda node, data: data,
    "ReduceProd": _product,
}
"""What operators of ONNX do to tensors of sizes."""
