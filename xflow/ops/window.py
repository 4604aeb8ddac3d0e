"""Windows that slide over the trailing axes of a tensor: the geometry of convolution and pooling.

Along one axis, output position i and kernel position k meet at input position
``i * stride + k * dilation - begin``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xflow.core.arguments import integers, literals, sizes
from xflow.core.constraint import Constraint, at_least, less
from xflow.core.registry import Array, Attributes, Need, Shape
from xflow.core.size import Size
from xflow.core.spec import Index
from xflow.ops.pad import pad


def repeated(value: int, times: int = 1) -> Callable[[Sequence[Shape]], tuple[int, ...]]:
    """A default: `value`, `times` for each trailing axis of the first input."""
    return lambda shapes: (value,) * (times * (len(shapes[0]) - 2))


@dataclass(frozen=True)
class Axis:
    """The geometry along one axis."""

    extent: Size
    kernel: Size
    begin: Size
    end: Size
    stride: Size
    dilation: Size

    @property
    def reach(self) -> Size:
        """Distance of the kernel's first position from its last."""
        return self.dilation * (self.kernel - 1)

    @property
    def padded(self) -> Size:
        """The extent with its border."""
        return self.extent + self.begin + self.end

    @property
    def fits(self) -> Constraint:
        """That the kernel fits into the padded extent."""
        return at_least(self.padded, self.reach + 1)

    @property
    def output(self) -> Size:
        """Number of positions of the window."""
        return (self.padded - self.reach - 1) // self.stride + 1

    def position(self, i: Size, k: Size) -> Size:
        """Where output position i and kernel position k meet in the input."""
        return i * self.stride + k * self.dilation - self.begin

    def guards(self, i: Size, k: Size) -> tuple[Constraint, ...]:
        """That this position lies in the input; a side without a border needs no guard."""
        here = self.position(i, k)
        low = () if self.begin == 0 else (at_least(here, 0),)
        high = () if self.end == 0 else (less(here, self.extent),)
        return (*low, *high)

    def within(self, end: Size) -> Axis:
        """The same window over an input that holds its border: all before, and `end` behind."""
        extent = self.begin + self.extent + end
        return replace(self, extent=extent, begin=0, end=self.end - end)

    @property
    def beyond(self) -> Size:
        """How far a last window reaches beyond the borders when output extents are rounded up.

        A window that would begin behind the input is left out. Where sizes are unknown, that is
        not considered: such a border is not smaller than the kernel.
        """
        if self.stride == 0:
            return 0  # the geometry is invalid, which `check` reports
        more = (self.reach + 1 - self.padded) % self.stride
        start = self.padded + more - self.reach - 1 - self.extent - self.begin
        if isinstance(start, int) and start >= 0:
            return 0
        return more

    def enters(self, begin: int, end: int) -> bool:
        """Whether the window has a position at least `begin` from one end of the input, and `end`
        from the other, wherever it stands; False where sizes are unknown."""
        known = literals((self.extent, self.kernel, self.begin, self.stride, self.dilation))
        count = self.output
        if known is None or not isinstance(count, int):
            return False
        extent, kernel, before, stride, dilation = known
        start = np.arange(count)[:, None] * stride - before
        here = start + np.arange(kernel) * dilation
        return bool(np.all(np.any((here >= begin) & (here < extent - end), axis=1)))

    @property
    def bordered(self) -> bool:
        """Whether a window may reach beyond the input."""
        return self.begin != 0 or self.end != 0


@dataclass(frozen=True)
class Window:
    """The geometry along all trailing axes."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, shape: Shape, kernel: Sequence[Size], attributes: Attributes) -> Window:
        """The window of an operator with `pads`, `strides` and, it may be, `dilations`.

        Raises ShapeError for attributes of a wrong length.
        """
        rank = len(kernel)
        pads = sizes(attributes, "pads", 2 * rank)
        strides = sizes(attributes, "strides", rank)
        dilations = (
            sizes(attributes, "dilations", rank) if "dilations" in attributes else (1,) * rank
        )
        columns = (shape[2:], kernel, pads[:rank], pads[rank:], strides, dilations)
        return cls(tuple(Axis(*row) for row in zip(*columns, strict=True)))

    @property
    def output(self) -> Shape:
        """Extents of the output's trailing axes."""
        return tuple(axis.output for axis in self.axes)

    @property
    def kernel(self) -> Shape:
        """Extents of the window."""
        return tuple(axis.kernel for axis in self.axes)

    def check(self, need: Need) -> None:
        """Require what every sliding window needs."""
        for axis in self.axes:
            need(at_least(axis.kernel, 1), f"a kernel of extent {axis.kernel}")
            need(at_least(axis.stride, 1), f"a stride of {axis.stride}")
            need(at_least(axis.dilation, 1), f"a dilation of {axis.dilation}")
            need(at_least(axis.begin, 0), f"a negative pad {axis.begin}")
            need(at_least(axis.end, 0), f"a negative pad {axis.end}")
            need(axis.fits, f"the kernel exceeds the padded extent {axis.padded}")

    def positions(self, i: Index, k: Index) -> Index:
        """Where output position i and kernel position k meet in the input."""
        rows = zip(self.axes, i, k, strict=True)
        return tuple(axis.position(here, offset) for axis, here, offset in rows)

    def guards(self, i: Index, k: Index) -> tuple[Constraint, ...]:
        """That this position lies in the input."""
        rows = zip(self.axes, i, k, strict=True)
        return tuple(guard for axis, here, offset in rows for guard in axis.guards(here, offset))


def patches(array: Array, kernel: Sequence[int], attributes: Attributes, border: float) -> Array:
    """A view [N, C, *output, *kernel] of `array` with borders: what each window covers."""
    rank = len(kernel)
    pads, strides = integers(attributes, "pads"), integers(attributes, "strides")
    dilations = integers(attributes, "dilations") if "dilations" in attributes else (1,) * rank
    padded = pad(array, (0, 0, *pads[:rank], 0, 0, *pads[rank:]), border)
    extents = tuple(
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(padded.shape[2:], kernel, strides, dilations, strict=True)
    )
    steps = padded.strides[2:]
    shape = (*padded.shape[:2], *extents, *kernel)
    leaps = (
        *padded.strides[:2],
        *(step * s for step, s in zip(steps, strides, strict=True)),
        *(step * d for step, d in zip(steps, dilations, strict=True)),
    )
    if padded.flags.c_contiguous and padded.size and padded.dtype != object:
        # Much faster to make than by `as_strided`, which matters to small tensors.
        return np.ndarray(shape, padded.dtype, padded, 0, leaps)
    return np.lib.stride_tricks.as_strided(padded, shape, leaps, writeable=False)


def resolve_pads(
    attributes: Mapping[str, Any],
    shape: Shape,
    kernel: Shape,
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...] | None:
    """The pads of an ONNX node, `auto_pad` resolved; None where that needs unknown sizes."""
    rank = len(kernel)
    mode = attributes.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        given = attributes.get("pads", [0] * (2 * rank))
        return tuple(int(p) for p in given) if len(given) == 2 * rank else None
    if mode == "VALID":
        return (0,) * (2 * rank)
    known = literals(kernel)
    if mode not in ("SAME_UPPER", "SAME_LOWER") or known is None:
        return None
    less_half, more_half = [], []
    for n, k, s, d in zip(shape[2:], known, strides, dilations, strict=True):
        if s == 1:
            total = d * (k - 1)  # whatever the extent is
        elif isinstance(n, int):
            total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        else:
            return None
        less_half.append(total // 2)
        more_half.append(total - total // 2)
    if mode == "SAME_UPPER":
        return (*less_half, *more_half)
    return (*more_half, *less_half)
