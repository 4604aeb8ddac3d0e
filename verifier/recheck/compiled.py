"""Compiles scalars to Python functions that compute as `xflow.core.spec.evaluate`, but faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from xflow.core.constraint import Constraint, Relation
from xflow.core.size import OpaqueInteger, Quotient, Size, Symbol
from xflow.core.spec import (
    FUNCTIONS,
    Bottom,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    OfSize,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
)
from xflow.verifier.recheck.forms import Unreplayable

Compiled: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, int]], Any]


def compiled(scalar: Scalar) -> Compiled:
    """A function of tensors and sizes that computes `scalar`; None stands for `Bottom`.

    It raises IndexError for an access out of bounds and ZeroDivisionError, as `evaluate` does.
    Raises Unreplayable for kinds of scalars that are not known here.
    """
    writer = _Writer()
    body = writer.scalar(scalar)
    names = "".join(f", {name}" for name in writer.free.values())
    try:
        function = eval(f"lambda _tensors, _at{names}: {body}", dict(writer.constants))
    except (MemoryError, RecursionError, SyntaxError):
        raise Unreplayable("an expression too deep to evaluate") from None
    needed = list(writer.free)

    def run(tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        return function(tensors, _accessor(tensors), *(sizes[name] for name in needed))

    return run


def compiled_conditions(conditions: Iterable[Constraint]) -> Callable[[Mapping[str, int]], bool]:
    """Whether sizes satisfy all `conditions`; a division by 0 counts as no. Raises Unreplayable."""
    writer = _Writer()
    texts = [writer.condition(condition) for condition in conditions]
    names = ", ".join(writer.free.values())
    function = eval(f"lambda {names}: {' and '.join(texts) or 'True'}")
    needed = list(writer.free)

    def run(sizes: Mapping[str, int]) -> bool:
        try:
            return bool(function(*(sizes[name] for name in needed)))
        except ZeroDivisionError:
            return False

    return run


def _accessor(tensors: Mapping[str, Any]) -> Callable[..., Any]:
    def at(tensor: str, *index: int) -> Any:
        array = tensors[tensor]
        if any(not 0 <= i < n for i, n in zip(index, array.shape, strict=True)):
            raise IndexError(f"{tensor}{list(index)} of shape {list(array.shape)}")
        return array[index]

    return at


def _maximum(values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


class _Writer:
    """Writes Python; `free` gives the parameters, `constants` other names in it."""

    def __init__(self) -> None:
        self.free: dict[str, str] = {}
        self.constants: dict[str, Any] = {
            "_sum": sum,
            "_product": math.prod,
            "_maximum": _maximum,
            "_zero": Fraction(0),
            "_one": Fraction(1),
            "_exact": Fraction,
        }
        self._bound: dict[str, str] = {}
        self._count = 0

    def scalar(self, scalar: Scalar) -> str:
        match scalar:
            case Literal(value):
                return self._constant(value)
            case OfSize(size):
                return f"_exact({self._size(size)})"
            case Element(tensor, index):
                places = "".join(f", {self._size(i)}" for i in index)
                return f"_at({tensor!r}{places})"
            case Plus(args):
                return f"({' + '.join(map(self.scalar, args))})"
            case Times(args):
                return f"({' * '.join(map(self.scalar, args))})"
            case SumOver(variable, extent, body):
                return f"_sum({self._each(variable, extent, body)}, start=_zero)"
            case ProductOver(variable, extent, body):
                return f"_product({self._each(variable, extent, body)}, start=_one)"
            case MaxOver(variable, extent, body):
                return f"_maximum({self._each(variable, extent, body)})"
            case Bottom():
                return "None"
            case If(conditions, then, other):
                holds = " and ".join(map(self.condition, conditions))
                return f"({self.scalar(then)} if {holds} else {self.scalar(other)})"
            case Call(function, args):
                return f"{self._constant(FUNCTIONS[function])}({', '.join(map(self.scalar, args))})"
        raise Unreplayable(f"{type(scalar).__name__} has no replay")

    def _constant(self, value: Any) -> str:
        name = f"_c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _each(self, variable: str, extent: Size, body: Scalar) -> str:
        span = self._size(extent)
        outer = self._bound.get(variable)
        self._count += 1
        name = self._bound[variable] = f"_k{self._count}"
        text = self.scalar(body)
        if outer is None:
            del self._bound[variable]
        else:
            self._bound[variable] = outer
        return f"({text} for {name} in range({span}))"

    def condition(self, condition: Constraint) -> str:
        relation = ">=" if condition.relation is Relation.AT_LEAST else "=="
        return f"{self._size(condition.difference)} {relation} 0"

    def _size(self, size: Size) -> str:
        if isinstance(size, int):
            return f"({size})"
        parts = []
        for monomial, coefficient in size.terms:
            factors = [f"({coefficient})"] if coefficient != 1 or not monomial else []
            parts.append("*".join([*factors, *map(self._atom, monomial)]))
        return f"({' + '.join(parts)})"

    def _atom(self, atom: object) -> str:
        match atom:
            case Symbol(name):
                return self._bound.get(name) or self.free.setdefault(name, f"_v{len(self.free)}")
            case Quotient(numerator, denominator):
                return f"({self._size(numerator)}//{self._size(denominator)})"
            case OpaqueInteger():
                names = sorted(atom.symbols)
                values = ", ".join(f"{name!r}: {self._atom(Symbol(name))}" for name in names)
                return f"{self._constant(atom)}.evaluate({{{values}}}, _tensors)"
        raise Unreplayable(f"{type(atom).__name__} has no replay")
