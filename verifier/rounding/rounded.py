"""Element types of limited precision, and graphs evaluated in them, the same on every machine.

A graph is evaluated by the operators' numpy readings in float64, and the result of every operator
is rounded to the element type. This is what a runtime does that accumulates in a wider type, as
runtimes do for 16-bit types. In fp32 a runtime adds up sums in an order and with a vector width of
its own; that error is bounded by the number of terms on either side of a rule, and would make the
figures depend on the machine. float64 itself may differ by some of its last bits from machine to
machine (functions, the order of sums), which hardly ever changes a rounded value, and then by one
unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from xflow.analysis.ranges import sums
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Array, Operator


@dataclass(frozen=True)
class Precision:
    """A floating-point element type."""

    name: str
    """As the rules' `numerics` lines call it."""
    element: Any
    """Its numpy type."""
    digits: int
    """Bits of the significand; half a unit in the last place is ``2 ** -digits``."""
    largest: float
    negligible: float
    """Errors below this, of underflow, are ignored. Runtimes may flush subnormal numbers
    of 32-bit exponents to 0; those of fp16, which reach up to 6e-5, are computed with."""
    spread: int
    """Inputs of one graph differ by factors of up to ``2 ** (2 * spread)``. In fp16 products of
    three of them stay in range, since models that are served in fp16 are scaled so that they do."""

    @property
    def unit(self) -> float:
        """The relative error of rounding once, at most."""
        return 2.0**-self.digits

    def round(self, array: Array) -> Array:
        """`array` rounded to the nearest numbers of this type, again in float64; what is no
        floating-point array stays as it is."""
        if array.dtype.kind != "f":
            return array
        rounded: Array = array.astype(self.element).astype(np.float64)
        return rounded


FP32 = Precision("fp32", np.float32, 24, float(np.finfo(np.float32).max), 2.0**-126, 13)
FP16 = Precision("fp16", np.float16, 11, 65504.0, 2.0**-24, 5)
BF16 = Precision("bf16", ml_dtypes.bfloat16, 8, (2 - 2.0**-7) * 2.0**127, 2.0**-126, 13)
PRECISIONS = (FP32, FP16, BF16)


def run_rounded(
    values: Sequence[Value], feeds: Mapping[str, Array], precision: Precision | None
) -> list[Array]:
    """`values` in float64, with the result of every operator rounded to `precision` if given.

    `feeds` maps the keys of leaves to arrays.
    """
    return _run(values, feeds, precision, lambda node, arrays, made: made)


def run_accumulating(
    values: Sequence[Value], feeds: Mapping[str, Array], precision: Precision | None
) -> list[Array]:
    """`run_rounded` with sums that are added up in that precision, too.

    What an operator gives that sums up products or elements is off by a rounding of the sum of
    their magnitudes: so much, and hardly more, a runtime loses on the way.
    """

    def off(node: Node, arrays: Sequence[Array], made: list[Array]) -> list[Array]:
        assert isinstance(node.op, Operator)
        if precision is None or node.role in NOT_LINEAR or not sums(node):
            return made
        sizes = [np.abs(array) if array.dtype.kind == "f" else array for array in arrays]
        total = node.op.numpy(sizes, node.attributes)
        return [a + precision.unit * b for a, b in zip(made, total, strict=True)]

    return _run(values, feeds, precision, off)


NOT_LINEAR = frozenset({"normalization", "softmax", "attention"})
"""Roles of operators that sum up what they have computed otherwise before."""


def _run(
    values: Sequence[Value],
    feeds: Mapping[str, Array],
    precision: Precision | None,
    change: Callable[[Node, Sequence[Array], list[Array]], list[Array]],
) -> list[Array]:
    done: dict[Node, list[Array]] = {}
    for node in walk(values):
        if isinstance(node.op, Leaf):
            done[node] = [feeds[node.op.key]]
            continue
        assert isinstance(node.op, Operator), node.op
        arrays = [done[source.node][source.index] for source in node.inputs]
        made = change(node, arrays, node.op.numpy(arrays, node.attributes))
        done[node] = [precision.round(array) for array in made] if precision else made
    return [done[value.node][value.index] for value in values]
