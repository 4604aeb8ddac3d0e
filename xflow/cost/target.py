"""The target description for the estimate: a machine's speeds, and the runtime's kernels.

The default numbers are those of a machine of today with ONNX Runtime; `xflow calibrate` measures
those that differ between machines. Which operators the runtime fuses, and which it computes in its
own layout, depends on its version alone and is listed here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import TypeAlias

from xflow.core.size import UNKNOWN_SIZE
from xflow.cost.learned.correction import Correction
from xflow.ops import operators

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu", "Clip")


class Stage(IntEnum):
    """The stage of a chain of fused operators: weights absorb, a tensor is added, it ends."""

    WEIGHTS = 0
    SUM = 1
    ACTIVATION = 2


Term: TypeAlias = "str | Call"
"""A part of a fusion's pattern: an operator with its arguments, or a name for any value."""


@dataclass(frozen=True)
class Call:
    """An operator in a fusion's pattern, with the patterns of its arguments."""

    op: str
    arguments: tuple[Term, ...]


@dataclass(frozen=True)
class Fusion:
    """Operators that the runtime computes by one kernel, if no other reads the values inside.

    `pattern` is an expression such as ``Mul(x, Sigmoid(x))``. A name stands for any value, the same
    one wherever it occurs; a name that starts with ``c`` for a constant. `kernel` is the name under
    which the table of kernels has it. An `inner` fusion does not fire where its result is an output
    of the model.
    """

    kernel: str
    pattern: str
    inner: bool = False

    @cached_property
    def root(self) -> Call:
        """The pattern, read."""
        term = _read(ast.parse(self.pattern, mode="eval").body)
        assert isinstance(term, Call), self.pattern
        return term


def _read(tree: ast.expr) -> Term:
    if isinstance(tree, ast.Name):
        return tree.id
    assert isinstance(tree, ast.Call), ast.dump(tree)
    assert isinstance(tree.func, ast.Name), ast.dump(tree)
    return Call(tree.func.id, tuple(map(_read, tree.args)))


_CENTRED = "Sub(x, ReduceMean(x))"
_NORMAL = f"Add(Mul(Div({_CENTRED}, Sqrt(Add(ReduceMean(Pow({_CENTRED}, c)), c0))), c1), c2)"
_CUBIC = "Add(x, Mul(Pow(x, c), c1))"
_SLOPE = "Add(Mul(Mul(x, c1), x), c5)"

FUSIONS = (
    Fusion("SkipLayerNormalization", "LayerNormalization(Add(x, y), c1, c2)"),
    Fusion("SkipLayerNormalization", re.sub(r"\bx\b", "Add(x, y)", _NORMAL)),
    Fusion("LayerNormalization", _NORMAL),
    Fusion("RMSNormalization", "Mul(Div(x, Sqrt(Add(ReduceMean(Pow(x, c)), c0))), c1)"),
    Fusion("Gelu", "Mul(Mul(x, Add(Erf(Div(x, c)), c1)), c2)"),
    Fusion("Gelu", "Mul(Mul(x, c2), Add(Erf(Div(x, c)), c1))"),
    Fusion("Gelu", f"Mul(Mul(x, c2), Add(Tanh(Mul({_CUBIC}, c3)), c4))", inner=True),
    Fusion("Gelu", f"Mul(Mul(x, c2), Add(Tanh(Mul(Mul(x, c3), {_SLOPE})), c4))", inner=True),
    Fusion("QuickGelu", "Mul(x, Sigmoid(x))"),
    Fusion("QuickGelu", "Mul(x, Sigmoid(Mul(x, c)))"),
)
"""Fusions of ONNX Runtime into kernels of their own, each seen to fire. Where several match, the
first one counts."""


@dataclass(frozen=True)
class Layout:
    """A layout of images with their channels in blocks, which the runtime converts to and from."""

    block: int = 16
    """Channels of a block: as many as a vector register holds."""
    blocks_at_once: int = 4
    """Blocks of channels that a convolution computes at once, but for one of each channel."""
    aligned: int = 4
    """Number of which a convolution's channels must be a multiple for images to be converted."""
    dtype: str = "FLOAT"
    rank: int = 4
    enters: frozenset[str] = frozenset({"Conv", "MaxPool", "AveragePool", "GlobalAveragePool"})
    """Operators for which the runtime converts inputs that are not in the layout."""
    stays: frozenset[str] = frozenset(
        {"Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu",
         "Add", "Sum", "Mul", "Concat", "BatchNormalization", "Resize"}
    )  # fmt: skip
    """Operators that give the layout if all that they read is in it."""
    behind: frozenset[str] = frozenset({"LeakyRelu", "Clip"})
    """Operators that give the layout as a part of the convolution that they read, and only so."""
    to_last: tuple[int, ...] = (0, 2, 3, 1)
    """The transpose that puts the channels last. A conversion from the layout does it on the way,
    and one to the layout its opposite."""
    reorder: float = 1.1
    """How many times as long as a product of tensors a conversion takes for the same bytes."""
    turning: float = 2.3
    """How many times as long a conversion takes that transposes on the way."""
    outside: Mapping[str, float] = field(
        default_factory=lambda: {
            "Conv": 2.2, "AveragePool": 50.0, "MaxPool": 2.7, "GlobalAveragePool": 1.6,
        }
    )  # fmt: skip
    """How many times as long operators take outside of the layout."""

    @cached_property
    def to_first(self) -> tuple[int, ...]:
        """The transpose that undoes `to_last`."""
        return tuple(self.to_last.index(axis) for axis in range(self.rank))

    @property
    def inside(self) -> frozenset[str]:
        """Operators that the runtime may compute in the layout."""
        return self.enters | self.stays


@dataclass(frozen=True)
class TargetModel:
    """The model of the target: the machine's numbers, and the runtime's fusions and layout."""

    threads: int = 2
    peak: Mapping[str, float] = field(
        default_factory=lambda: {
            "Conv": 170e9, "Conv.pixels": 180e9, "ConvTranspose": 110e9, "Gemm": 160e9,
            "MatMul": 160e9, "MatMul.computed": 95e9, "FusedMatMul": 95e9, "Attention": 100e9,
            "ConvInteger": 255e9, "ConvInteger.signed": 58e9,
            "MatMulInteger": 255e9, "MatMulInteger.signed": 58e9,
            "Conv.codes": 250e9, "Conv.codes.signed": 600e9,
            "MatMul.codes": 240e9, "MatMul.codes.signed": 550e9,
        }
    )  # fmt: skip
    """Operations per second and thread, by operator; `other_peak` for the rest. With ``.computed``
    it is that of the operator where none of its inputs is constant: it packs them each time; with
    ``.pixels`` that of convolutions of one pixel in the layout; with ``.codes`` that where it is
    computed on codes, see `coded_products`; with ``.signed`` that where its weights are integers
    with a sign, for which the runtime may have other kernels."""
    other_peak: float = 35e9
    coded_products: Mapping[str, str] = field(
        default_factory=lambda: {
            "Conv": "Conv.codes", "MatMul": "MatMul.codes", "Gemm": "MatMul.codes",
        }
    )  # fmt: skip
    """Products that the runtime computes on codes where they stand between conversions from codes
    and to codes, and the names of their peaks."""
    cuts_off: bool = True
    """Whether its kernels for codes without a sign by weights with one cut sums of two products off
    at 16 bits, as they do on x86 processors without VNNI. Such products do not count as computed on
    codes then."""
    coded: Mapping[str, float] = field(
        default_factory=lambda: {
            "Add": 1.8, "Mul": 3.0, "AveragePool": 1.0, "GlobalAveragePool": 1.0,
            "LeakyRelu": 6.0, "Sigmoid": 6.0, "Softmax": 45.0, "Concat": 1.0,
            "MaxPool": 1.0, "MaxPool.signed": 400.0,
            "Reshape": 1.0, "Transpose": 1.0, "Squeeze": 1.0, "Unsqueeze": 1.0, "Flatten": 1.0,
        }
    )  # fmt: skip
    """Other operators that it computes on codes, and how many times as long as a product of tensors
    they take for the same bytes. ``.signed`` is with codes with a sign: beside convolutions on
    codes, the runtime has a pool of images with their channels last for those without one alone,
    and pools others element by element."""
    products: Mapping[str, str] = field(
        default_factory=lambda: {
            "Einsum": "MatMul",
            **{
                op.name: op.op_type
                for op in operators()
                if op.role == "attention" and op.name != op.op_type
            },
        }
    )
    """Operators that the runtime computes by another one's kernel, with data moved around it."""
    bandwidth: float = 45e9
    """Bytes per second and thread, of tensors that the processor's own caches hold."""
    slow: Mapping[str, float] = field(
        default_factory=lambda: {
            "Div": 1.15, "Reciprocal": 1.5, "Sqrt": 2.5, "Pow": 4.0, "PRelu": 35.0,
            "Max": 1.4, "Min": 1.4, "Mean": 1.4, "Where": 2.7,
            "Greater": 1.2, "GreaterOrEqual": 1.2, "Less": 1.2, "LessOrEqual": 1.2, "Equal": 1.1,
            "Ceil": 2.3, "Floor": 2.3, "Sign": 7.5, "Log": 12.0, "Sin": 13.0, "Cos": 12.0,
            "Erf": 2.9, "Sigmoid": 2.2, "Tanh": 2.1, "HardSigmoid": 1.25, "HardSwish": 2.7,
            "LeakyRelu": 1.9, "Celu": 14.0, "Elu": 12.0, "Selu": 12.0, "Softsign": 1.5,
            "Softplus": 70.0, "Mish": 73.5, "Gelu": 4.1, "Swish": 4.3, "QuickGelu": 3.6,
            "FastGelu": 4.1, "BiasGelu": 4.1, "Softmax": 2.4, "LogSoftmax": 2.6,
            "ReduceSum": 1.3, "ReduceMean": 1.3, "ReduceMax": 1.4, "ReduceMin": 1.4,
            "ReduceProd": 13.0, "ReduceL1": 9.0, "ReduceL2": 9.0, "ReduceSumSquare": 9.0,
            "ReduceLogSum": 9.0, "ReduceLogSumExp": 55.0, "GlobalMaxPool": 3.1,
            "LayerNormalization": 3.8, "SkipLayerNormalization": 19.0,
            "SkipSimplifiedLayerNormalization": 19.0, "RMSNormalization": 2.0,
            "InstanceNormalization": 2.3, "GroupNormalization": 10.0, "Transpose": 2.1,
            "Slice": 0.55, "Tile": 0.65, "Pad": 1.6, "DepthToSpace": 16.0, "SpaceToDepth": 2.6,
            "Resize": 1.4, "Einsum": 4.0,
        }
    )  # fmt: skip
    """How many times as long as a product the runtime's kernels take for the same bytes, where they
    do not compute as well; operators and fusions by name. It is more than their arithmetic."""
    packing: float = 2.2
    """How many times as long as a product of tensors it takes, in one thread, to put the operands
    of products of codes into another order, for the same bytes."""
    overhead: float = 1e-6
    """Seconds for each call of an operator, over and over again."""
    cold_overhead: float = 3e-6
    """Seconds more where other operators run in between: threads are woken, caches are cold."""
    calls: Mapping[str, int] = field(
        default_factory=lambda: {"GroupNormalization": 18, "Mish": 3, "Swish": 4}
    )
    """Operators that the runtime has no kernel for, and how many it calls instead. HardSwish, for
    which it calls HardSigmoid and Mul, is left out: a model has these two instead, and at equal
    cost the single activation is preferred."""
    copied: frozenset[str] = frozenset({"DequantizeLinear"})
    """Operators that the runtime copies, so that each of their readers has one of its own."""
    several: int = 3
    """How many readers stand for several that are not seen."""
    pairwise: frozenset[str] = frozenset({"Sum", "Mean", "Max", "Min"})
    """Operators of any number of inputs that the runtime computes two at a time, so that a partial
    result is read and written again for each further one."""
    views: frozenset[str] = frozenset(
        {"Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten", "Dropout"}
    )
    view_overhead: float = 2.5e-7
    """Seconds for an operator of `views`, which moves no data, over and over again."""
    cold_view_overhead: float = 7.5e-7
    """Seconds more where other operators run in between."""
    fused_overhead: float = 2e-7
    """Seconds for an operator that is fused into another: not quite nothing."""
    group_overhead: float = 6.5e-7
    """Seconds for each group of a convolution that the runtime computes outside of its layout."""
    full_channels: int = 8
    """Channels of a group, in and out, from which a convolution reaches its peak."""
    single_pixels: float = 0.6
    """The part of its peak that a convolution with borders reaches in the layout where each row of
    the result has one pixel: the kernel computes several pixels of a row at once."""
    fused: Mapping[str, Mapping[str, Stage]] = field(
        default_factory=lambda: {
            "Conv": {
                "BatchNormalization": Stage.WEIGHTS, "Mul": Stage.WEIGHTS, "Add": Stage.WEIGHTS,
                **dict.fromkeys(_ACTIVATIONS, Stage.ACTIVATION),
            },
            "MatMul": {"Add": Stage.WEIGHTS},
            "MatMulInteger": dict.fromkeys(("NearestFloat", "Mul", "Add"), Stage.WEIGHTS),
            "Gemm": dict.fromkeys(_ACTIVATIONS, Stage.ACTIVATION),
        }
    )  # fmt: skip
    """Operators that the runtime fuses into the one before, if no other operator reads that."""
    fused_in_layout: Mapping[str, Mapping[str, Stage]] = field(
        default_factory=lambda: {
            "BatchNormalization": dict.fromkeys(
                ("Relu", "Sigmoid", "Tanh", "HardSigmoid"), Stage.ACTIVATION
            )
        }
    )
    """The same in the layout of images alone, where a normalization is a convolution."""
    bounds: frozenset[str] = frozenset({"Relu", "Clip"})
    """Operators that take no time where they are fused, however slow they are by themselves."""
    summed: frozenset[tuple[str, str]] = frozenset({("Conv", "Add")})
    """The fusions whose other operand may also be a computed tensor of the same shape.

    If the runtime has a layout of its own, it makes them there alone.
    """
    scaled: frozenset[tuple[str, str]] = frozenset({("MatMulInteger", "Mul")})
    """The fusions whose other operand has to be one number, which such an operator computes for it
    alone: the product of two scales."""
    channels: Mapping[str, int] = field(
        default_factory=lambda: {"Conv": 1, "MatMul": -1, "MatMulInteger": -1, "Gemm": -1}
    )
    """By operator, the axis along which constants that are folded into its weights may differ."""
    fusions: tuple[Fusion, ...] = FUSIONS
    """Larger patterns for which the runtime has kernels of their own."""
    layout: Layout | None = Layout()
    """The layout that the runtime prefers for images; None: it has none."""
    learned: Correction | None = None
    """By how much the seconds of a kernel are off, where that was learned from measurements."""
    unknown_size: int = UNKNOWN_SIZE
    """The default value of a symbolic size of the model."""

    def with_block(self, channels: int | None) -> TargetModel:
        """The same with so many channels in a block of the layout, if that is known."""
        if self.layout is None or channels is None:
            return self
        return replace(self, layout=replace(self.layout, block=channels))

    def with_equal_products(self) -> TargetModel:
        """The same where convolutions of pixels and products of matrices are equally fast.

        Which of them is faster differs by kind of machine. On another kind than the default numbers
        are of, and where nothing was measured, a rewrite of one into the other is to promise
        nothing.
        """
        names = ("Conv", "Conv.pixels", "Gemm", "MatMul")
        return replace(self, peak={**self.peak, **dict.fromkeys(names, self.peak["MatMul"])})
