"""Sizes: integers, or polynomials over size symbols; one arithmetic for both.

Shapes, attributes and tensor indices are all written with ``+ - * // %`` and work alike on
``int`` and on `Expr`. An `Expr` is kept canonical (a sum of monomials with integer coefficients
over symbols, floor quotients and opaque integers), so equal polynomials are equal objects, and an
expression without these is an ``int``.
"""

from __future__ import annotations

import contextlib
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, total_ordering
from typing import Any, TypeAlias, Union

from xflow.core.errors import ShapeError, SizeError
from xflow.core.expressions import DIGITS
from xflow.core.hash_once import hash_once

Size: TypeAlias = Union[int, "Expr"]

UNKNOWN_SIZE = 16
"""What a symbolic size is taken to be where amounts of data or work are compared."""

TERMS = 1_000
"""Most terms of a size. Those of models and rules have a handful; a product of sums that is
multiplied out has as many as the product of their numbers."""
PRODUCTS = 2**16
"""Most terms that are multiplied with one another at once."""
DEGREE = 100
"""Most factors of a term."""
DIVIDED = 1_000
"""The same for a division of polynomials: what has more is not simplified."""
LARGEST = 10**DIGITS
"""What no coefficient exceeds."""


class TooLargeSize(ShapeError, SizeError):  # noqa: N818 - what it is about
    """A size has too many terms, factors or digits to be computed with."""


@dataclass(frozen=True)
class Symbol:
    """An unknown integer: a size, an attribute or an index variable."""

    name: str

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def key(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


INDEX = re.compile(r"_?i\d+|_k\d+")
"""Symbols of indices: those that analyses give names to, and those that specifications bind."""


@hash_once
@dataclass(frozen=True)
class Quotient:
    """The floor of ``numerator / denominator`` where it does not simplify."""

    numerator: Size
    denominator: Size

    @cached_property
    def key(self) -> str:
        return f"~({self.numerator})//({self.denominator})"

    def __str__(self) -> str:
        return f"{_operand(self.numerator)}//{_operand(self.denominator)}"


class OpaqueInteger:
    """An integer of which is known only that it is the same wherever its arguments are.

    It depends on the data of tensors, and never occurs in shapes and attributes.
    """

    @property
    @abstractmethod
    def key(self) -> str:
        """A text that identifies it."""

    @property
    @abstractmethod
    def symbols(self) -> frozenset[str]:
        """The names of the size symbols that it depends on."""

    @abstractmethod
    def substitute(self, values: Mapping[str, Size]) -> Size:
        """It with symbols replaced. Raises ZeroDivisionError."""

    @abstractmethod
    def evaluate(self, values: Mapping[str, int], tensors: Mapping[str, Any]) -> int:
        """The integer that it is for these sizes and tensors. Raises IndexError."""

    def __str__(self) -> str:
        return self.key


@hash_once
@dataclass(frozen=True)
class Lookup(OpaqueInteger):
    """The element of an integer or Boolean `tensor` at `index`: printed ``tensor[index]``.

    A Boolean is 0 or 1. Out of bounds it is some integer, and not read.
    """

    tensor: str
    index: tuple[Size, ...]

    @cached_property
    def key(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.index)) or '()'}]"

    @cached_property
    def symbols(self) -> frozenset[str]:
        return frozenset[str]().union(*map(free_symbols, self.index))

    def substitute(self, values: Mapping[str, Size]) -> Size:
        return _single(Lookup(self.tensor, tuple(substitute(i, values) for i in self.index)))

    def evaluate(self, values: Mapping[str, int], tensors: Mapping[str, Any]) -> int:
        position = tuple(evaluate(i, values, tensors) for i in self.index)
        array = tensors[self.tensor]
        if any(not 0 <= p < n for p, n in zip(position, array.shape, strict=True)):
            raise IndexError(f"{self.tensor}{list(position)} of shape {list(array.shape)}")
        return int(array[position])

    def __str__(self) -> str:
        return self.key


Atom: TypeAlias = Symbol | Quotient | OpaqueInteger
Monomial: TypeAlias = tuple[Atom, ...]


def _monomial_key(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return (-len(monomial), tuple(atom.key for atom in monomial))


@total_ordering
class Expr:
    """A polynomial with integer coefficients that contains at least one symbol."""

    __slots__ = ("_hash", "_key", "_symbols", "terms")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]):
        self.terms = terms
        self._hash = hash(terms)
        self._key: str | None = None
        self._symbols: frozenset[str] | None = None

    def __reduce__(self) -> tuple[type[Expr], tuple[tuple[tuple[Monomial, int], ...]]]:
        """Made anew where it is read: in another process, texts have other hashes."""
        return Expr, (self.terms,)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols, those inside quotients and opaque integers included."""
        if self._symbols is None:
            self._symbols = frozenset[str]().union(
                *(symbols_of_atom(atom) for monomial, _ in self.terms for atom in monomial)
            )
        return self._symbols

    @property
    def name(self) -> str | None:
        """The name of the symbol that it is; None where it is anything else."""
        if len(self.terms) == 1:
            monomial, coefficient = self.terms[0]
            if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol):
                return monomial[0].name
        return None

    def __lt__(self, other: Expr) -> bool:
        return str(self) < str(other)

    def __add__(self, other: Size) -> Size:
        if isinstance(other, int) and other == 0:
            return self
        total = dict(self.terms)
        for monomial, coefficient in _terms(other):
            total[monomial] = total.get(monomial, 0) + coefficient
        return _make(total)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Expr(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: Size) -> Size:
        return self + (-other)

    def __rsub__(self, other: Size) -> Size:
        return -self + other

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, int):
            if other == 1:
                return self
            return _make({monomial: c * other for monomial, c in self.terms})
        others = _terms(other)
        if len(self.terms) * len(others) > PRODUCTS:
            raise TooLargeSize(f"a product of sums with {len(self.terms)} and {len(others)} terms")
        if others and len(self.terms[0][0]) + len(others[0][0]) > DEGREE:  # the longest are first
            raise TooLargeSize(f"a product of more than {DEGREE} sizes")
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in others:
                product = tuple(sorted(left + right, key=lambda atom: atom.key))
                total[product] = total.get(product, 0) + a * b
        return _make(total)

    __rmul__ = __mul__

    def __pow__(self, power: int) -> Size:
        result: Size = 1
        for _ in range(power):
            result = self * result
        return result

    def __floordiv__(self, other: Size) -> Size:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return floor_divide(other, self)

    def __mod__(self, other: Size) -> Size:
        return self - floor_divide(self, other) * other

    def __rmod__(self, other: Size) -> Size:
        return other - floor_divide(other, self) * self

    def __bool__(self) -> bool:
        raise SizeError(f"the truth of the symbolic size {self} is not known")

    def __repr__(self) -> str:
        return f"Expr({self})"

    def __str__(self) -> str:
        if self._key is None:
            self._key = _print(self.terms)
        return self._key


def _operand(size: Size) -> str:
    text = str(size)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _print(terms: Iterable[tuple[Monomial, int]]) -> str:
    text = ""
    for monomial, coefficient in terms:
        factors = [f"({atom})" if isinstance(atom, Quotient) else str(atom) for atom in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        body = "*".join(factors)
        if text:
            text += (" + " if coefficient > 0 else " - ") + body
        else:
            text = body if coefficient > 0 else f"-{body}"
    return text


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(size, Expr):
        return size.terms
    return (((), int(size)),) if size else ()


def _make(total: Mapping[Monomial, int]) -> Size:
    kept = {monomial: c for monomial, c in total.items() if c}
    if not kept:
        return 0
    if max(kept.values()) > LARGEST or min(kept.values()) < -LARGEST:
        raise TooLargeSize(f"a coefficient of more than {DIGITS:,} digits")
    if len(kept) == 1 and () in kept:
        return kept[()]
    if len(kept) == 1:
        return Expr(tuple(kept.items()))
    if len(kept) > TERMS:
        raise TooLargeSize(f"a sum of {len(kept)} terms")
    return Expr(tuple(sorted(kept.items(), key=lambda term: _monomial_key(term[0]))))


@lru_cache(maxsize=4096)
def symbol(name: str) -> Expr:
    """The symbol `name` as an expression."""
    return Expr((((Symbol(name),), 1),))


def atom_size(atom: Atom) -> Expr:
    """An atom as an expression."""
    return _single(atom)


def lookup(tensor: str, index: Iterable[Size]) -> Expr:
    """The element of an integer or Boolean tensor as an expression."""
    return _single(Lookup(tensor, tuple(index)))


def symbols(names: str) -> tuple[Expr, ...]:
    """Several symbols at once: ``n, m = symbols("n m")``."""
    return tuple(symbol(name) for name in names.split())


def floor_divide(numerator: Size, denominator: Size) -> Size:
    """The floor of a quotient; exact multiples of `denominator` are divided out.

    ``(a*m + b) // m = a + b // m`` holds for every m != 0, so this needs no assumption
    beyond the one that the quotient is defined.
    """
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if isinstance(denominator, int) and denominator == 1:
        return numerator
    whole, rest = divide(numerator, denominator)
    if isinstance(rest, int) and rest == 0:
        return whole
    if isinstance(rest, int) and isinstance(denominator, int):
        return whole + rest // denominator
    return whole + Expr((((Quotient(rest, denominator),), 1),))


def divide(numerator: Size, denominator: Size) -> tuple[Size, Size]:
    """Polynomial division by the leading monomial: ``numerator = whole * denominator + rest``.

    For an integer denominator the coefficients of `rest` lie in ``[0, denominator)``.
    """
    if isinstance(denominator, int) and denominator == 0:
        raise ZeroDivisionError(f"({numerator}) // 0")
    lead, lead_coefficient = _terms(denominator)[0]
    whole: Size = 0
    rest = numerator
    for monomial, coefficient in _terms(numerator):
        quotient = _divide_monomial(monomial, lead)
        if quotient is None or coefficient // lead_coefficient == 0:
            continue
        if lead and coefficient % lead_coefficient:
            continue
        part = _make({quotient: coefficient // lead_coefficient})
        whole = whole + part
        rest = rest - part * denominator
    if len(_terms(denominator)) > 1 and not (isinstance(rest, int) and rest == 0):
        return _divide_exactly(numerator, denominator)
    return whole, rest


def _divide_exactly(numerator: Size, denominator: Size) -> tuple[Size, Size]:
    """Division by a denominator of several terms; (0, numerator) unless it comes out even.

    Nor where it would take long.
    """
    if len(_terms(numerator)) * len(_terms(denominator)) > DIVIDED:
        return 0, numerator
    import sympy  # noqa: PLC0415 - takes half a second and is rarely needed

    atoms = sorted(
        {
            atom
            for size in (numerator, denominator)
            for monomial, _ in _terms(size)
            for atom in monomial
        },
        key=lambda atom: atom.key,
    )
    unknowns = sympy.symbols(f"a:{len(atoms)}")

    def polynomial(size: Size) -> Any:
        powers = {
            tuple(monomial.count(atom) for atom in atoms): coefficient
            for monomial, coefficient in _terms(size)
        }
        return sympy.Poly(powers, *unknowns, domain="ZZ")

    quotient, rest = sympy.div(polynomial(numerator), polynomial(denominator))
    if not rest.is_zero or not quotient.domain.is_ZZ:
        return 0, numerator
    whole: Size = 0
    for powers, coefficient in quotient.terms():
        part: Size = int(coefficient)
        for atom, power in zip(atoms, powers, strict=True):
            part = part * _single(atom) ** power
        whole = whole + part
    return whole, 0


def _divide_monomial(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def free_symbols(size: Size) -> frozenset[str]:
    """The names of all symbols of `size`, those inside quotients and opaque integers included."""
    return size.symbols if isinstance(size, Expr) else frozenset()


def symbols_of_atom(atom: Atom) -> frozenset[str]:
    """The names of all symbols of an atom."""
    if isinstance(atom, Symbol):
        return frozenset((atom.name,))
    if isinstance(atom, OpaqueInteger):
        return atom.symbols
    return free_symbols(atom.numerator) | free_symbols(atom.denominator)


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """Replace symbols by sizes, everywhere at once.

    Raises ZeroDivisionError where a denominator becomes 0.
    """
    if isinstance(size, int):
        return size
    name = size.name
    if name is not None:  # most sizes of rules are single symbols
        return values.get(name, size)
    if size.symbols.isdisjoint(values):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        product: Size = coefficient
        for atom in monomial:
            if isinstance(atom, Symbol):
                value = values.get(atom.name)
                product = product * (_single(atom) if value is None else value)
            elif isinstance(atom, OpaqueInteger):
                product = product * atom.substitute(values)
            else:
                numerator = substitute(atom.numerator, values)
                denominator = substitute(atom.denominator, values)
                product = product * floor_divide(numerator, denominator)
        total = total + product
    return total


def with_all(size: Size, number: int) -> int:
    """What `size` is where all of its symbols are the same number, or 0 if that is negative."""
    if not isinstance(size, int):
        size = substitute(size, dict.fromkeys(free_symbols(size), number))
    assert isinstance(size, int)
    return max(0, size)


def _single(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def atoms(size: Size) -> Iterator[Atom]:
    """The atoms of a size, those inside quotients and lookups included, innermost first."""
    for monomial, _ in _terms(size):
        for atom in monomial:
            if isinstance(atom, Quotient):
                yield from atoms(atom.numerator)
                yield from atoms(atom.denominator)
            elif isinstance(atom, Lookup):
                for i in atom.index:
                    yield from atoms(i)
            yield atom


def opaque_integers(size: Size) -> Iterator[OpaqueInteger]:
    """The opaque integers in a size, innermost first."""
    return (atom for atom in atoms(size) if isinstance(atom, OpaqueInteger))


def replace_opaque(size: Size, change: Callable[[OpaqueInteger], Size]) -> Size:
    """`size` with every outermost opaque integer replaced. Raises ZeroDivisionError."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        product: Size = coefficient
        for atom in monomial:
            if isinstance(atom, OpaqueInteger):
                product = product * change(atom)
            elif isinstance(atom, Quotient):
                numerator = replace_opaque(atom.numerator, change)
                denominator = replace_opaque(atom.denominator, change)
                product = product * floor_divide(numerator, denominator)
            else:
                product = product * _single(atom)
        total = total + product
    return total


def evaluate(
    size: Size, values: Mapping[str, int], tensors: Mapping[str, Any] | None = None
) -> int:
    """The integer that `size` is under `values`, where it looks up elements of `tensors`.

    Raises SizeError where a symbol has no value, IndexError for a lookup out of bounds.
    """
    if isinstance(size, int):
        return size
    with contextlib.suppress(KeyError):  # a symbol without a value, which may not matter
        return _evaluated(size, values, tensors)
    if tensors is not None:
        size = replace_opaque(size, lambda atom: atom.evaluate(values, tensors))
    result = substitute(size, values)
    if not isinstance(result, int):
        raise SizeError(f"{', '.join(sorted(free_symbols(result)))} has no value in {size}")
    return result


def _evaluated(size: Expr, values: Mapping[str, int], tensors: Mapping[str, Any] | None) -> int:
    """The integer that a size is where all of its symbols have values; else raises KeyError."""
    total = 0
    for monomial, coefficient in size.terms:
        number = coefficient
        for atom in monomial:
            if isinstance(atom, Symbol):
                number *= values[atom.name]
            elif isinstance(atom, Quotient):
                dividend = evaluate(atom.numerator, values, tensors)
                number *= dividend // evaluate(atom.denominator, values, tensors)
            elif tensors is None:
                raise KeyError(atom.key)
            else:
                number *= atom.evaluate(values, tensors)
        total += number
    return total


def factor_of(size: Size, name: str) -> tuple[Size, Size] | None:
    """``(factor, rest)`` with ``size = factor * name + rest``, which are without `name`.

    None where it occurs in any other way.
    """
    atom = Symbol(name)
    factor: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in _terms(size):
        others = list(monomial)
        if atom in others:
            others.remove(atom)
        if any(name in symbols_of_atom(other) for other in others):
            return None
        (rest if len(others) == len(monomial) else factor)[tuple(others)] = coefficient
    return _make(factor), _make(rest)


def solved(difference: Size, name: str) -> tuple[Size, Size] | None:
    """``(value, factor)`` with ``difference = factor * (name - value)`` or its negative.

    None where there is no such value that is a sum of positive terms.
    """
    linear = factor_of(difference, name)
    if linear is None or linear[0] == 0:
        return None
    value, rest = divide(-linear[1], linear[0])
    return None if rest != 0 or "-" in str(value) or value == 0 else (value, linear[0])


def coefficient_of(size: Size, name: str) -> tuple[int, Size] | None:
    """``(c, rest)`` with ``size = c * name + rest``; None where `name` occurs in any other way."""
    found = factor_of(size, name)
    if found is None or not isinstance(found[0], int):
        return None
    return found[0], found[1]


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes; 1 for none."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result
