"""Operators of rules that stand for any operator with a property.

``Elementwise(Transpose(x))`` is ``Transpose(Elementwise(x))``: the rule is proved once, for a
function of which nothing is known, and is used for each elementwise operator of one input that is
declared anywhere; likewise of two inputs. The idea is that of traits in MLIR (Lattner et al., CGO
2021) and of rules over uninterpreted functions in Tate et al., POPL 2009.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import prod
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
from xflow.core.sorts import ELEMENT, INT, NUMBERS, REAL, suits
from xflow.core.spec import FUNCTIONS, Scalar, call, evaluate, scalar
from xflow.ops.elementwise import BINARY_EXAMPLES, Accumulation, Binary, Elementwise, Variadic
from xflow.ops.functions import Unary


class Schematic(Elementwise):
    """Stands for any elementwise operator of one or two inputs of which `holds` is true."""

    schematic = True
    sorts = NUMBERS
    since = Binary.since
    arity = (1, 2)
    examples = (*Unary.examples, *BINARY_EXAMPLES)
    function: ClassVar[str]
    """The function of the language that it applies to each element."""

    def of(self, *elements: Scalar) -> Scalar:
        return call(self.function, *elements)

    def compute(self, *arrays: Array) -> Array:
        kept = np.result_type(*arrays)
        wide = kept if kept.kind in "iu" else np.dtype(np.float64)
        made = FUNCTIONS[self.function](*(array.astype(wide) for array in arrays))
        return np.asarray(made, wide).astype(kept)

    def stands_for(self, op: object, attributes: Attributes, dtype: str) -> bool:
        if isinstance(op, Schematic):
            return isinstance(op, type(self))
        if not isinstance(op, Operator) or not is_function(op):
            return False
        return suits(dtype, op.sorts) and self.holds(op, attributes)

    def holds(self, op: Operator, attributes: Attributes) -> bool:
        """Whether an elementwise operator has the property."""
        return True


@cache
def is_function(op: Operator) -> bool:
    """Whether an operator applies a function to each element, or to each two, keeping their type.

    Two inputs are broadcast to each other, whatever their shapes are.
    """
    return (
        op.elementwise
        and not op.schematic
        and op.role != "view"
        and (op.arity == (1, 1) or isinstance(op, Binary | Variadic | Accumulation))
        and op.takes == op.gives == (ELEMENT,)
        and REAL in op.sorts
        and type(op).element_types is Operator.element_types
    )


@cache
def standing_for(op: Operator) -> tuple[Operator, ...]:
    """The others that may stand for an operator, depending on its attributes."""
    known = [each for each in operators() if isinstance(each, Schematic) and each is not op]
    if isinstance(op, Schematic):
        return tuple(each for each in known if isinstance(op, type(each)))
    return tuple(known) if is_function(op) else ()


@register
class AnyFunction(Schematic):
    """Stands for any elementwise operator of one or two inputs."""

    name = "Elementwise"
    function = "any"


@register
class AnyFunctionOfZero(AnyFunction):
    """Stands for any elementwise operator of one or two inputs that is 0 where these are 0."""

    name = "ZeroPreserving"
    function = "any_of_zero"

    def holds(self, op: Operator, attributes: Attributes) -> bool:
        return _is_zero_at_zero(op, tuple(sorted(attributes.items())))


MOST = 2**15
"""The largest product of real attributes that every type of floats holds."""


@cache
def _is_zero_at_zero(op: Operator, attributes: tuple[tuple[str, object], ...]) -> bool:
    """Whether both readings of an operator are 0 at 0."""
    given: Attributes = dict(attributes)  # type: ignore[arg-type]
    reals = [abs(value) for value in given.values() if isinstance(value, Fraction)]
    # Kernels multiply attributes by each other, which must not overflow: inf * 0 is NaN.
    if not is_concrete(given) or prod(max(value, Fraction(1)) for value in reals) > MOST:
        return False
    count = 1 if op.arity == (1, 1) else 2
    try:
        zeros = op.at([lambda index: scalar(0)] * count, [()] * count, given, 0, ())
        value = evaluate(zeros, {}, {})
    except (ArithmeticError, ValueError, AssertionError):
        return False
    types = (np.float32, *((np.int32,) if INT in op.sorts else ()))
    with np.errstate(all="ignore"):
        made = [op.numpy([np.zeros((), type)] * count, given) for type in types]
    return value == 0 and all(bool(computed == 0) for (computed,) in made)
