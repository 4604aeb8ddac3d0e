"""Pooling: averages and maxima over windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xflow.core.arguments import declare, flag, integers, literals, quotient, sizes
from xflow.core.constraint import Constraint, at_least, less
from xflow.core.intervals import Floats, Range
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Operator,
    Reader,
    Shape,
    register,
    require,
)
from xflow.core.size import Size, product
from xflow.core.spec import (
    ONE,
    ZERO,
    Bottom,
    Index,
    Scalar,
    max_over,
    over_box,
    sum_over,
    times,
    where,
)
from xflow.ops.pad import pad
from xflow.ops.window import Axis, Window, patches, repeated, resolve_pads

KERNEL = AttributeSpec(Kind.INTS)
PADS = AttributeSpec(Kind.INTS, repeated(0, 2))
ONES = AttributeSpec(Kind.INTS, repeated(1))
FLAG = AttributeSpec(Kind.INT, 0, flag=True)
EXAMPLES = (
    Example(((1, 2, 4, 3),), {"kernel_shape": (2, 2)}),
    Example(((2, 1, 3, 4),), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    Example(((1, 2, 5, 4),), {"kernel_shape": (3, 2), "pads": (0, 1, 2, 0), "strides": (2, 3)}),
    Example(((1, 1, 3, 3),), {"kernel_shape": (1, 1), "strides": (2, 2)}),
    Example(((2, 2, 4),), {"kernel_shape": (3,), "pads": (2, 0)}),
    Example(((1, 1, 1),), {"kernel_shape": (3,), "pads": (1, 1)}),
    Example(((1, 1, 2, 3, 2),), {"kernel_shape": (1, 2, 2), "pads": (0, 1, 0, 0, 0, 1)}),
)


class Pool(Operator):
    """A reduction over each position of a window on the trailing axes of [N, C, *S].

    With `ceil_mode` a last window may reach beyond the padded input, but not begin behind the
    input. As it covers no more of the input, that is the same as larger pads at the end.
    """

    def window(self, shapes: Sequence[Shape], attributes: Attributes) -> Window:
        """The geometry, with pads at the end as far as `ceil_mode` reaches. Raises ShapeError."""
        return _extended(self._padded(shapes, attributes), self._beyond(shapes, attributes))

    def _padded(self, shapes: Sequence[Shape], attributes: Attributes) -> Window:
        """The geometry with the pads that are given."""
        rank = len(shapes[0]) - 2
        return Window.of(shapes[0], sizes(attributes, "kernel_shape", rank), attributes)

    def _beyond(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[Size, ...]:
        """How far the last windows reach beyond the padded input, for each axis."""
        window = self._padded(shapes, attributes)
        up = flag(attributes, "ceil_mode")
        return tuple(axis.beyond if up else 0 for axis in window.axes)

    def canonical(self, attributes: Attributes, shapes: Sequence[Shape]) -> Attributes:
        if not flag(attributes, "ceil_mode") or len(shapes[0]) < 3:
            return attributes
        if any(isinstance(p, int) and p < 0 for p in sizes(attributes, "pads")):
            return attributes  # which is wrong, and must not look right after rounding up
        padded, beyond = self._padded(shapes, attributes), self._beyond(shapes, attributes)
        counted = flag(attributes, "count_include_pad") if "count_include_pad" in attributes else 0
        if counted and not all(n == 0 for n in beyond):
            # Pads count as elements, positions beyond them do not: only without pads it is equal.
            if any(p != 0 for p in sizes(attributes, "pads")):
                return attributes
            attributes = {**attributes, "count_include_pad": 0}
        axes = _extended(padded, beyond).axes
        pads = (*(axis.begin for axis in axes), *(axis.end for axis in axes))
        return {**attributes, "pads": pads, "ceil_mode": 0}

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        x = shapes[0]
        require(3 <= len(x) <= 5, f"{self.name} takes 1 to 3 spatial axes, not {len(x) - 2}")
        self._padded(shapes, attributes).check(need)
        window = self.window(shapes, attributes)
        for axis in filter(lambda axis: axis.bordered, window.axes):
            # No window lies in the border alone: it starts less than a kernel before the input,
            # and of positions `dilation` apart one is among the first `dilation` of the input.
            for border in (axis.begin, axis.end):
                need(less(border, axis.kernel), f"pad {border} for a kernel of {axis.kernel}")
            need(at_least(axis.extent, axis.dilation), f"only border under {self.name}'s window")
        return [(*x[:2], *window.output)]

    def demanded(self, shapes: Sequence[Shape], attributes: Attributes) -> Sequence[Constraint]:
        """No axis is empty, as follows from the above; a window that does not fit is let pass.

        For an empty batch the runtime lets an empty axis pass as well: then the result is empty.
        """
        return [at_least(extent, 1) for extent in shapes[0][2:]]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return product(outputs[0]) * product(sizes(attributes, "kernel_shape"))

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        known = {*self.attributes, "auto_pad", "ceil_mode", "dilations", "storage_order"}
        x, kernel = call.shapes[0], tuple(call.attributes.get("kernel_shape", ()))
        if x is None or set(call.attributes) - known or call.outputs > 1:
            return None
        rank = len(x) - 2
        strides = tuple(call.attributes.get("strides", [1] * rank))
        dilations = tuple(call.attributes.get("dilations", [1] * rank))
        if any(len(row) != rank for row in (kernel, strides, dilations)):
            return None
        if "dilations" not in self.attributes and any(d != 1 for d in dilations):
            return None
        same = str(call.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
        if same and any(d != 1 for d in dilations):
            return None  # the runtime chooses pads for a kernel without holes
        pads = resolve_pads(call.attributes, x, kernel, strides, dilations)
        if pads is None:
            return None
        found: dict[str, Attribute] = {"kernel_shape": kernel, "pads": pads, "strides": strides}
        if "dilations" in self.attributes:
            found["dilations"] = dilations
        if "count_include_pad" in self.attributes:
            found["count_include_pad"] = int(call.attributes.get("count_include_pad", 0))
        # Pads that are chosen for the output's extent leave nothing to round.
        found["ceil_mode"] = 0 if same else int(call.attributes.get("ceil_mode", 0))
        if found["ceil_mode"] and literals(x[2:]) is None:
            return None  # the pads that this amounts to could not be written
        return found, (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        call = super().to_onnx(attributes, shapes, opset)
        if call is None:
            return None
        # Attributes that came later say nothing at their defaults, and are then left out.
        plain = dict(call.attributes)
        if "dilations" in plain and all(d == 1 for d in plain["dilations"]):
            del plain["dilations"]
        for name in ("count_include_pad", "ceil_mode"):
            if plain.get(name) == 0:
                del plain[name]
        since = {"dilations": 10, "ceil_mode": 10, "count_include_pad": 7}
        if any(name in plain and opset < first for name, first in since.items()):
            return None
        return replace(call, attributes=plain)


def greatest(known: Range, floats: Floats) -> Range | None:
    """The range of a maximum by a pooling kernel; None where no element may be NaN or -inf.

    ONNX Runtime's kernels begin with the least float and ignore NaN: that float is their result
    where all elements are NaN or -inf.
    """
    if not known.nan and not known.minus:
        return None
    least = -floats.largest
    return replace(known.plain, low=min(known.low, least), high=max(known.high, least))


def greatest_of(elements: Array, over: tuple[int, ...], *, keepdims: bool = False) -> Array:
    """The maxima along axes as pooling kernels compute them, see `greatest`."""
    if elements.dtype.kind != "f":
        return np.asarray(elements.max(axis=over, keepdims=keepdims))
    found: Array = np.fmax.reduce(elements, axis=over, keepdims=keepdims)  # type: ignore[call-overload]
    return np.asarray(np.fmax(found, np.finfo(elements.dtype).min))


def _extended(window: Window, beyond: Sequence[Size]) -> Window:
    """The window with so much more border at the end of each axis."""
    rows = zip(window.axes, beyond, strict=True)
    return Window(tuple(replace(axis, end=axis.end + more) for axis, more in rows))


@register
class MaxPool(Pool):
    """The maximum over each window; borders never win."""

    name = op_type = "MaxPool"
    nan_by_place = True
    attributes = declare(
        kernel_shape=KERNEL, pads=PADS, strides=ONES, dilations=ONES, ceil_mode=FLAG
    )
    examples = (
        *EXAMPLES,
        Example(((1, 1, 5),), {"kernel_shape": (2,), "dilations": (3,)}),
        Example(((1, 2, 4),), {"kernel_shape": (3,), "dilations": (2,), "pads": (1, 2)}),
        Example(((1, 1, 6, 5),), {"kernel_shape": (3, 2), "strides": (2, 2), "ceil_mode": 1}),
    )

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        window = self.window(shapes, attributes)
        i = index[2:]

        def element(k: Index) -> Scalar:
            here = inputs[0]((*index[:2], *window.positions(i, k)))
            return where(window.guards(i, k), here, Bottom())

        return over_box(max_over, window.kernel, element)

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range | None:
        """A number, if only a border is -inf and every window reaches beyond it."""
        (known,) = inputs
        if not known.minus or len(known.border) != len(shapes[0]):
            return greatest(known, floats)
        outer, inner = known.border[:2], known.border[2:]
        axes = self.window(shapes, attributes).axes
        if any(widths != (0, 0) for widths in outer):
            return greatest(known, floats)
        if not all(axis.enters(*widths) for axis, widths in zip(axes, inner, strict=True)):
            return greatest(known, floats)
        return greatest(replace(known.plain, reached=None), floats)

    def hides(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[int, ...]:
        """See `greatest`."""
        return (0,)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        kernel = integers(attributes, "kernel_shape")
        assert not flag(attributes, "ceil_mode"), "is written as pads"
        covered = patches(arrays[0], kernel, attributes, -np.inf)
        return [greatest_of(covered, tuple(range(-len(kernel), 0)))]


@register
class AveragePool(Pool):
    """The mean over each window; borders count as elements if `count_include_pad` is 1."""

    name = op_type = "AveragePool"
    attributes = declare(
        kernel_shape=KERNEL,
        pads=PADS,
        strides=ONES,
        count_include_pad=FLAG,
        ceil_mode=FLAG,
    )
    examples = (
        *EXAMPLES,
        *(replace(e, attributes={**e.attributes, "count_include_pad": 1}) for e in EXAMPLES[:6]),
        Example(((1, 2, 6, 5),), {"kernel_shape": (3, 2), "strides": (2, 2), "ceil_mode": 1}),
        Example(
            ((1, 1, 4, 5),),
            {
                "kernel_shape": (3, 2),
                "pads": (1, 0, 1, 0),
                "strides": (2, 2),
                "ceil_mode": 1,
                "count_include_pad": 1,
            },
        ),
        Example(
            ((1, 2, 6),),
            {
                "kernel_shape": (4,),
                "pads": (1, 1),
                "strides": (3,),
                "ceil_mode": 1,
                "count_include_pad": 1,
            },
        ),
    )

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        window = self.window(shapes, attributes)
        i = index[2:]

        def element(k: Index) -> Scalar:
            here = inputs[0]((*index[:2], *window.positions(i, k)))
            return where(window.guards(i, k), here, ZERO)

        total = over_box(sum_over, window.kernel, element)
        # Not counted are the borders, or only what lies beyond them.
        include = flag(attributes, "count_include_pad")
        beyond = self._beyond(shapes, attributes)
        rows = zip(window.axes, beyond, strict=True)
        limits = [axis.within(axis.end - more) if include else axis for axis, more in rows]
        counts = [_count(axis, here) for axis, here in zip(limits, i, strict=True)]
        inside = [n for n in counts if n is not None]
        # Where no border is left out, the number of elements is the kernel's extent.
        columns = zip(window.axes, counts, strict=True)
        mean = quotient(total, product(axis.kernel for axis, n in columns if n is None))
        return mean / times(*inside) if inside else mean

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range | None:
        """Between the least and the greatest element, and 0: no window lies in the border alone."""
        (known,) = inputs
        count = product(self.window(shapes, attributes).kernel)
        total = floats.repeated(known, count if isinstance(count, int) else None)
        if not known.is_real or not total.is_real:
            return None
        low, high = min(known.low, 0.0), max(known.high, 0.0)
        if isinstance(count, int):  # a mean of equal elements may be greater than they are
            low, high = floats.rounded(low, high, count + 1)
        return Range(max(low, -floats.largest), min(high, floats.largest))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        kernel = integers(attributes, "kernel_shape")
        over = tuple(range(-len(kernel), 0))
        ones = np.ones((1, 1, *arrays[0].shape[2:]), dtype=arrays[0].dtype)
        if not flag(attributes, "ceil_mode"):
            total = patches(arrays[0], kernel, attributes, 0).sum(axis=over)
            if flag(attributes, "count_include_pad"):
                return [total / int(np.prod(kernel))]
            return [total / patches(ones, kernel, attributes, 0).sum(axis=over)]
        # The given pads are made elements, so that those beyond them are the only border.
        rank, given = len(kernel), integers(attributes, "pads")
        borders = (0, 0, *given[:rank], 0, 0, *given[rank:])
        beyond = (*(0,) * rank, *self._beyond([arrays[0].shape], attributes))
        rest = {**attributes, "pads": beyond}
        total = patches(pad(arrays[0], borders), kernel, rest, 0).sum(axis=over)
        return [total / patches(pad(ones, borders, 1), kernel, rest, 0).sum(axis=over)]


def _count(axis: Axis, i: Size) -> Scalar | None:
    """How many positions of the window lie in the input; None where all do."""
    if not axis.bordered:
        return None
    return sum_over(axis.kernel, lambda k: where(axis.guards(i, k), ONE, ZERO))
