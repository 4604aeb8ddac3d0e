"""Compiles scalars to Python functions that compute as `xflow.core.spec.evaluate`, but faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from xflow.core.constraint import Constraint, Relation
from xflow.core.size import OpaqueInteger, Quotient, Size, Symbol, symbol
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
    bound_by_depth,
    free_of_scalar,
    substitute_scalar,
)
from xflow.verifier.recheck.forms import Unreplayable

Compiled: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, int]], Any]


def compiled(scalar: Scalar) -> Compiled:
    """A function of tensors and sizes that computes `scalar`; None stands for `Bottom`.

    It raises IndexError for an access out of bounds and ZeroDivisionError, as `evaluate` does.
    Raises Unreplayable for kinds of scalars that are not known here.
    """
    try:
        return _compiled(scalar, _Writer(shares=True))
    except (MemoryError, RecursionError, SyntaxError):
        pass  # it is nested less deeply without
    try:
        return _compiled(scalar, _Writer())
    except (MemoryError, RecursionError, SyntaxError):
        raise Unreplayable("an expression too deep to evaluate") from None


def _compiled(scalar: Scalar, writer: _Writer) -> Compiled:
    body = writer.scalar(scalar)
    names = "".join(f", {name}" for name in writer.free.values())
    function = eval(f"lambda _tensors, _at, _once{names}: {body}", dict(writer.constants))
    needed = list(writer.free)

    def run(tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        values = (sizes[name] for name in needed)
        return function(tensors, _accessor(tensors), _once(), *values)

    return run


def compiled_steps(scalar: Scalar) -> Callable[[Mapping[str, int]], int]:
    """About how many elements are read to evaluate `scalar`, as a function of sizes.

    The variable of a range is taken for 0 where another range depends on it. Raises Unreplayable.
    """
    writer = _Writer()
    body = writer.steps(scalar)
    names = ", ".join(writer.free.values())
    try:
        function = eval(f"lambda {names}: {body}", {"_count": _count})
    except (MemoryError, RecursionError, SyntaxError):
        raise Unreplayable("an expression too deep to evaluate") from None
    needed = list(writer.free)

    def run(sizes: Mapping[str, int]) -> int:
        return int(function(*(sizes[name] for name in needed)))

    return run


def _count(extent: Callable[[], int]) -> int:
    try:
        return max(extent(), 0)
    except ZeroDivisionError:
        return 4


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


def _once() -> Callable[[Hashable, Callable[[], Any]], Any]:
    """What is computed for a key, the first time anew."""
    known: dict[Hashable, Any] = {}

    def once(key: Hashable, compute: Callable[[], Any]) -> Any:
        if key not in known:
            known[key] = compute()
        return known[key]

    return once


def _maximum(values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


class _Writer:
    """Writes Python; `free` gives the parameters, `constants` other names in it.

    `shares`: sums, products and maxima over ranges are computed once for the same values of the
    variables around them, also where they differ by the names of variables.
    """

    def __init__(self, *, shares: bool = False) -> None:
        self._shares = shares
        self._shared: dict[Scalar, int] = {}
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
                each = self._each(variable, extent, body)
                return self._computed_once(scalar, f"_sum({each}, start=_zero)")
            case ProductOver(variable, extent, body):
                each = self._each(variable, extent, body)
                return self._computed_once(scalar, f"_product({each}, start=_one)")
            case MaxOver(variable, extent, body):
                each = self._each(variable, extent, body)
                return self._computed_once(scalar, f"_maximum({each})")
            case Bottom():
                return "None"
            case If(conditions, then, other):
                holds = " and ".join(map(self.condition, conditions))
                return f"({self.scalar(then)} if {holds} else {self.scalar(other)})"
            case Call(function, args):
                return f"{self._constant(FUNCTIONS[function])}({', '.join(map(self.scalar, args))})"
        raise Unreplayable(f"{type(scalar).__name__} has no replay")

    def steps(self, scalar: Scalar) -> str:
        """See `compiled_steps`."""
        match scalar:
            case Plus(args) | Times(args) | Call(_, args):
                return self._total(args)
            case SumOver(v, extent, body) | MaxOver(v, extent, body) | ProductOver(v, extent, body):
                outer = dict(self._bound)
                span = self._size(extent)
                self._bound[v] = "0"
                count = self.steps(body)
                self._bound = outer
                return f"(_count(lambda: {span}) * {count})"
            case If(_, then, other):
                return self._total((then, other))
        return "1"

    def _total(self, parts: Iterable[Scalar]) -> str:
        texts = list(map(self.steps, parts))
        many = [text for text in texts if not text.isdigit()]
        number = sum(int(text) for text in texts if text.isdigit())
        return f"({' + '.join([*many, str(number)])})" if many else str(number)

    def _computed_once(self, scalar: Scalar, text: str) -> str:
        """The text of a sum, product or maximum, computed once for each value of what it reads."""
        if not self._shares:
            return text
        free = free_of_scalar(scalar)
        around = [name for name in self._bound if name in free]
        places = {name: symbol(f"_p{number}") for number, name in enumerate(around)}
        plain = bound_by_depth(substitute_scalar(scalar, places))
        key = self._shared.setdefault(plain, len(self._shared))
        values = "".join(f", {self._bound[name]}" for name in around)
        return f"_once(({key}{values},), lambda: {text})"

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
