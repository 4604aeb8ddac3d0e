"""Facts about operators that the registry does not describe: how their results come about.

The results of an opaque operator may be anything. Of ONNX's own operators that are common in
models, and some of the runtime's, this much is known: some give elements of their inputs, or 0;
some give sums and products of them, as interpolations and recurrences do.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from xflow.core.registry import CONTRIB


class Made(Enum):
    """How an operator computes its results from its float inputs."""

    ELEMENTS = "elements of the inputs, or 0"
    SUMS = "sums and products of elements, with bounded weights"
    NUMBERS = "numbers, whatever the inputs are"


BY_GIVEN_SCALE: Final = ("QuantizeLinear", f"{CONTRIB}::QuantizeLinear")
"""Operators that make codes of floats by a scale that is an input."""
QUANTIZERS: Final = ("QuantizeLinear", "DynamicQuantizeLinear")
"""Operators of ONNX that make codes of floats."""
QUANTIZING: Final = tuple(
    f"{CONTRIB}::{name}"
    for name in ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
)
"""Products and recurrences of the runtime's own on codes that are made of floats within."""
_KINDS: Final = {
    Made.ELEMENTS: (
        *("Compress", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements"),
        *("GatherND", "Identity", "MaxUnpool", "Reshape", "ReverseSequence", "ScatterElements"),
        *("Scatter", "ScatterND", "Slice", "SpaceToDepth", "Split", "Squeeze", "TensorScatter"),
        *("Tile", "TopK", "Transpose", "Trilu", "Unique", "Unsqueeze", "Concat", "Clip", "OneHot"),
    ),
    Made.SUMS: (
        *("AffineGrid", "AveragePool", "Col2Im", "Conv", "ConvTranspose", "CumSum", "DeformConv"),
        *("DequantizeLinear", "Einsum", "Gemm", "GlobalAveragePool", "GridSample", "MatMul"),
        *("DynamicQuantizeLinear", *QUANTIZING),
        *("MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul", "Mean", "ReduceMean"),
        *("ReduceSum", "ReduceSumSquare", "ReduceL1", "Resize", "RoiAlign", "Sum", "Upsample"),
        *("Range", "MaxRoiPool", "STFT", "DFT", "RotaryEmbedding", "GRU", "LSTM", "RNN"),
    ),
    Made.NUMBERS: (
        *("Bernoulli", "EyeLike", "Hardmax", "HannWindow", "HammingWindow", "BlackmanWindow"),
        *("Shape", "Size"),
    ),
}
_OF = {name: kind for kind, names in _KINDS.items() for name in names}
MOVES: Final = (frozenset(_KINDS[Made.ELEMENTS]) | {"Pad"}) - {
    "Clip",
    "MaxUnpool",
    "OneHot",
    "TopK",
    "Unique",
}
"""Operators whose results are elements of their inputs, NaN and infinities included."""
_DECIDED_BY: Final = {
    "GridSample": (1,),
    "MaxRoiPool": (1,),
    "OneHot": (0, 1),
    "Resize": (1, 2),
    "RoiAlign": (1,),
    "Upsample": (1,),
}
"""Float inputs that name positions or counts of elements, and are rounded to integers."""
_JUMPING: Final = {
    *QUANTIZING,
    *("DynamicQuantizeLinear", "Hardmax", "MaxUnpool", "Range", "TopK", "Unique"),
}
_STEADY: Final = frozenset(_OF) - _JUMPING | {"Cast"}
"""Operators that are continuous: nearly equal inputs give nearly equal results."""


ACCUMULATING: Final = frozenset(
    (
        *("Col2Im", "Conv", "ConvTranspose", "DeformConv", "Einsum", "Gemm", "MatMul", "STFT"),
        *("AveragePool", "CumSum", "DFT", "GlobalAveragePool", "GRU", "LSTM", "RNN", "ReduceL1"),
        *("ReduceMean", "ReduceSum", "ReduceSumSquare"),
    )
)
"""Operators that sum over a range, so that no result is small because one element is."""


FACTORS: Final = {
    "MatMul": 2, "Gemm": 2, "Conv": 2, "ConvTranspose": 2, "DeformConv": 2, "Mul": 2, "Div": 2,
    "Einsum": 3, "GRU": 3, "LSTM": 3, "RNN": 3,
}  # fmt: skip
"""How many of the first float inputs are factors of a product; the others are added, or scale."""


def is_steady(op_type: str) -> bool:
    """Whether an operator is continuous, and gives small results for small inputs."""
    return op_type in _STEADY


def decides_by(op_type: str, position: int) -> bool:
    """Whether a small difference of an input may make a large one of a float output."""
    return not is_steady(op_type) or position in _DECIDED_BY.get(op_type, ())


def kind_of(op_type: str) -> Made | None:
    """How an operator of that name makes floats; None where that is not known.

    `op_type` is empty for operators of unknown domains, see `xflow.core.node.Opaque`.
    """
    return _OF.get(op_type)
