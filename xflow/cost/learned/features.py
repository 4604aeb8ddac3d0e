"""What the learned cost knows of a kernel: numbers that say what it computes, on what, and how.

Sizes and seconds are logarithms to the base of 2, so that doubling any of them is one step whatever
the scale. A number that says nothing about a kernel, such as the row of a convolution, is left out
and counts as 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from xflow.core.registry import Attribute

Features = dict[str, float]
MICROSECOND = 1e-6
WIDTH = 8
"""Elements that fill a vector register of 32 bytes."""


class Sort(Enum):
    """How the estimate counts a kernel."""

    OPERATOR = "operator"
    PATTERN = "pattern"
    """Several operators that the runtime fuses into a kernel of its own."""
    FUSED = "fused"
    """An operator that the runtime fuses into the kernel before it: what it adds to that."""
    CODED = "coded"
    """An operator that is computed on codes of quantized numbers."""
    CONVERSION = "conversion"
    """An image from one layout to the other."""


@dataclass(frozen=True)
class Tensor:
    """A tensor that a kernel reads or writes; `width` is in bytes of an element."""

    shape: tuple[int, ...]
    width: int = 4
    constant: bool = False

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of all of them."""
        return self.elements * self.width


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel as the estimate counts it, which takes `seconds` by that."""

    sort: Sort
    name: str
    """Of its operator or pattern."""
    seconds: float
    threads: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    flops: int = 0
    tasks: int = 0
    """How many parts are shared out among threads, where that is known."""
    blocked: bool = False
    """Whether it gives the runtime's own layout of images."""
    inside: int = 0
    """How many operators a pattern has, the last one aside."""


def features(kernel: KernelCall) -> Features:
    """The numbers by which a kernel is known."""
    out = kernel.outputs[0]
    computed = [tensor for tensor in kernel.inputs if not tensor.constant]
    constants = [tensor for tensor in kernel.inputs if tensor.constant]
    moved = sum(tensor.bytes for tensor in (*kernel.inputs, *kernel.outputs))
    largest = max((tensor.bytes for tensor in computed), default=0)
    found = {
        f"is {kernel.name}": 1.0,
        f"counted as {kernel.sort.value}": 1.0,
        "seconds": _log(kernel.seconds / MICROSECOND),
        "threads": float(kernel.threads),
        "moved": _log(moved),
        "flops": _log(kernel.flops),
        "flops per byte": _log(kernel.flops) - _log(moved) if kernel.flops else 0.0,
        "tasks": _log(kernel.tasks),
        "blocked": float(kernel.blocked),
        "inputs": float(len(computed)),
        "constants": float(len(constants)),
        "outputs": float(len(kernel.outputs)),
        "inside": float(kernel.inside),
        "largest input": _log(largest),
        "output": _log(out.bytes),
        "constant bytes": _log(sum(tensor.bytes for tensor in constants)),
        "grows": _log(out.bytes) - _log(largest),
        "width": float(out.width),
        "rank": float(len(out.shape)),
        "last": _log(out.shape[-1]) if out.shape else 0.0,
        "last fills registers": float(bool(out.shape) and out.shape[-1] % WIDTH == 0),
        **_broadcast(kernel.inputs, out),
    }
    described = DESCRIBED.get(kernel.name)
    if described is not None and kernel.sort is not Sort.PATTERN:
        found |= described(kernel)
    elif isinstance(axis := kernel.attributes.get("axis"), int) and kernel.inputs:
        found |= _along(kernel.inputs[0].shape, (axis,))
    return {name: number for name, number in found.items() if number}


def _log(number: float) -> float:
    """The logarithm to the base of 2; 0 for what is not there."""
    return math.log2(number) if number > 0 else 0.0


def _broadcast(inputs: Sequence[Tensor], out: Tensor) -> Features:
    """How an operand that is repeated lies in the result: its run, and how often it is repeated."""
    fewer = [t for t in inputs if 1 < t.elements < out.elements and len(t.shape) <= len(out.shape)]
    if not fewer:
        return {}
    small = min(fewer, key=lambda tensor: tensor.elements)
    shape = (1,) * (len(out.shape) - len(small.shape)) + small.shape
    run = 1
    for mine, whole in zip(reversed(shape), reversed(out.shape), strict=True):
        if mine != whole:
            break
        run *= whole
    return {"repeated run": _log(run), "repeated": _log(out.elements / small.elements)}


def _along(shape: Sequence[int], axes: Sequence[int]) -> Features:
    """What lies along some axes, and behind the last of them: each is read in one run."""
    if not axes:
        return {}
    last = max(axes)
    return {
        "row": _log(math.prod(shape[axis] for axis in axes if axis < len(shape))),
        "run": _log(math.prod(shape[last + 1 :])),
    }


def _transposed(kernel: KernelCall) -> Features:
    """How long the runs are that stay together, and how many groups of axes change places."""
    shape, perm = kernel.inputs[0].shape, _ints(kernel, "perm")
    kept = [axis for axis in perm if shape[axis] != 1]
    order = sorted(kept)
    run = 1
    while order and kept[-1] == order[-1]:
        run *= shape[order.pop()]
        kept.pop()
    groups = sum(after != before + 1 for before, after in itertools.pairwise(kept)) + 1
    ends = {} if not kept else {"read stride": _log(math.prod(shape[kept[-1] + 1 :]))}
    return {"run": _log(run), "groups": float(groups if kept else 0), **ends}


def _reduced(kernel: KernelCall) -> Features:
    return _along(kernel.inputs[0].shape, _ints(kernel, "axes"))


def _sliced(kernel: KernelCall) -> Features:
    steps = [step for step in _ints(kernel, "steps") if step != 1]
    cut = _along(kernel.outputs[0].shape, _ints(kernel, "axes"))
    return {**cut, "steps": float(len(steps))}


def _padded(kernel: KernelCall) -> Features:
    pads, rank = _ints(kernel, "pads"), len(kernel.outputs[0].shape)
    axes = [axis for axis in range(rank) if any(pads[axis::rank])]
    return _along(kernel.outputs[0].shape, axes)


def _multiplied(kernel: KernelCall) -> Features:
    """The sizes of a product of matrices: rows, columns, what is summed, and how many there are."""
    first, second = (tensor.shape for tensor in kernel.inputs[:2])
    out = kernel.outputs[0].shape
    summed = first[-2 if kernel.attributes.get("transA") else -1] if first else 1
    rows = out[-2] if len(out) > 1 else 1
    columns = out[-1] if out else 1
    return {
        "rows": _log(rows),
        "columns": _log(columns),
        "summed": _log(summed),
        "products": _log(math.prod(out[:-2])),
        "one matrix": float(math.prod(second[:-2]) == 1),
        "weights": float(kernel.inputs[1].constant),
    }


def _convolved(kernel: KernelCall) -> Features:
    weights, out = kernel.inputs[1].shape, kernel.outputs[0].shape
    group = kernel.attributes.get("group", 1)
    groups = group if isinstance(group, int) else 1
    return {
        "channels in": _log(weights[1]),
        "channels out": _log(weights[0] / groups),
        "groups": _log(groups),
        "each channel": float(weights[1] == 1 and groups > 1),
        "pixels": _log(math.prod(out[2:])),
        "window": _log(math.prod(weights[2:])),
        "stride": _log(math.prod(_ints(kernel, "strides"))),
        "dilated": float(any(step > 1 for step in _ints(kernel, "dilations"))),
        "padded": float(any(_ints(kernel, "pads"))),
        "row pixels": _log(out[-1]),
    }


def _pooled(kernel: KernelCall) -> Features:
    out = kernel.outputs[0].shape
    return {
        "channels out": _log(out[1]),
        "pixels": _log(math.prod(out[2:])),
        "window": _log(math.prod(_ints(kernel, "kernel_shape"))),
        "stride": _log(math.prod(_ints(kernel, "strides"))),
    }


def _attended(kernel: KernelCall) -> Features:
    """Heads, queries, keys and what each has, in both forms of the operator."""
    query, key = kernel.inputs[0].shape, kernel.inputs[1].shape
    heads = kernel.attributes.get("q_num_heads")
    if len(query) == 4:
        heads, size = query[1], query[3]
    else:
        heads = heads if isinstance(heads, int) and heads else 1
        size = query[-1] // heads
    return {
        "products": _log(query[0] * heads),
        "rows": _log(query[-2]),
        "columns": _log(key[-2]),
        "summed": _log(size),
        "packed": float(len(query) == 3),
        "masked": float(len(kernel.inputs) > 3),
    }


def _ints(kernel: KernelCall, name: str) -> tuple[int, ...]:
    value = kernel.attributes.get(name, ())
    return (
        tuple(size for size in value if isinstance(size, int)) if isinstance(value, tuple) else ()
    )


DESCRIBED: Mapping[str, Callable[[KernelCall], Features]] = {
    "Transpose": _transposed,
    "Slice": _sliced,
    "Pad": _padded,
    **dict.fromkeys(("MatMul", "MatMulInteger", "Gemm", "FusedMatMul"), _multiplied),
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose"), _convolved),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pooled),
    "Attention": _attended,
    **dict.fromkeys(
        (
            *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"),
            *("ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
        ),
        _reduced,
    ),
}
"""What else is known of the kernels of some operators, by name."""
