"""Operators of rules that stand for any operator with a property.

``Elementwise(Transpose(x))`` is ``Transpose(Elementwise(x))``: the rule is proved once, for a
function of which nothing is known, and is used for each elementwise operator of one input that is
declared anywhere. The idea is that of traits in MLIR (Lattner et al., CGO 2021) and of rules over
uninterpreted functions in Tate et al., POPL 2009.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import ClassVar

import numpy as np

from xflow.core.registry import (
    Array,
    Attributes,
    Operator,
    is_concrete,
    operators,
    register,
)
from xflow.core.sorts import ELEMENT, REAL
from xflow.core.spec import FUNCTIONS, Scalar, call, evaluate, scalar
from xflow.ops.functions import Unary


class Schematic(Unary):
    """Stands for any elementwise operator of one input of which `holds` is true."""

    schematic = True
    function: ClassVar[str]
    """The function of the language that it applies to each element."""

    def of(self, *elements: Scalar) -> Scalar:
        return call(self.function, elements[0])

    def compute(self, *arrays: Array) -> Array:
        kept = arrays[0].dtype if arrays[0].dtype.kind == "f" else np.float64
        numbers = arrays[0].astype(np.float64)
        return np.asarray(numbers * numbers / 2 - numbers * 1.25 + self._at_zero).astype(kept)

    @property
    def _at_zero(self) -> float:
        return float(FUNCTIONS[self.function](Fraction(0)))

    def stands_for(self, op: object, attributes: Attributes) -> bool:
        if op is self:
            return True
        return isinstance(op, Operator) and is_function(op) and self.holds(op, attributes)

    def holds(self, op: Operator, attributes: Attributes) -> bool:
        """Whether an elementwise operator of one input has the property."""
        return True


@cache
def is_function(op: Operator) -> bool:
    """Whether an operator applies a function of one number to each element, keeping its type."""
    return (
        op.elementwise
        and not op.schematic
        and op.role != "view"
        and op.arity == (1, 1)
        and op.takes == op.gives == (ELEMENT,)
        and REAL in op.sorts
        and type(op).element_types is Operator.element_types
    )


@cache
def standing_for(op: Operator) -> tuple[Operator, ...]:
    """The schematic operators that may stand for an operator, depending on its attributes."""
    if not is_function(op):
        return ()
    return tuple(each for each in operators() if isinstance(each, Schematic))


@register
class AnyFunction(Schematic):
    """Stands for any elementwise operator of one input."""

    name = "Elementwise"
    function = "any"


@register
class AnyFunctionOfZero(Schematic):
    """Stands for any elementwise operator of one input that is 0 at 0."""

    name = "ZeroPreserving"
    function = "any_of_zero"

    def holds(self, op: Operator, attributes: Attributes) -> bool:
        return _is_zero_at_zero(op, tuple(sorted(attributes.items())))


@cache
def _is_zero_at_zero(op: Operator, attributes: tuple[tuple[str, object], ...]) -> bool:
    """Whether both readings of an operator are 0 at 0."""
    given: Attributes = dict(attributes)  # type: ignore[arg-type]
    if not is_concrete(given):
        return False
    try:
        value = evaluate(op.at([lambda index: scalar(0)], [()], given, 0, ()), {}, {})
    except (ArithmeticError, ValueError, AssertionError):
        return False
    with np.errstate(all="ignore"):
        (computed,) = op.numpy([np.zeros((), np.float32)], given)
    return value == 0 and bool(computed == 0)
