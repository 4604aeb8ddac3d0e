"""Names of ONNX Runtime's kernels that are convolutions or matrix products, and of all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "FusedConv", "NhwcFusedConv", "QLinearConv")
PRODUCTS = ("Einsum", "FusedGemm", "FusedMatMul", "FusedMatMulActivation", "Gemm", "MatMul")
SHORT_PRODUCTS = (
    *("DynamicQuantizeMatMul", "GemmFloat8", "MatMulInteger", "MatMulIntegerToFloat"),
    *("MatMulNBits", "QGemm", "QLinearMatMul"),
)
ATTENTIONS = (
    *("Attention", "DecoderMaskedMultiHeadAttention", "GroupQueryAttention", "MultiHeadAttention"),
    *("PackedAttention", "PackedMultiHeadAttention", "QAttention"),
)
RECURRENT = ("GRU", "LSTM", "RNN", "DynamicQuantizeLSTM")
HEAVY = frozenset((*CONVOLUTIONS, *PRODUCTS, *SHORT_PRODUCTS, *ATTENTIONS, *RECURRENT))
"""Operators, ONNX's and the runtime's own, whose kernels are convolutions or matrix products."""

Profile: TypeAlias = Mapping[str, float]
"""Seconds of one run that kernels take, by their operator, the most first."""


def outside(profile: Profile) -> float:
    """The seconds of one run outside convolutions and matrix products."""
    return sum(seconds for name, seconds in profile.items() if name not in HEAVY)
