"""The normalizer, which brings specifications to normal form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import reduce
from typing import TypeGuard

from xflow.core import spec
from xflow.core.constraint import Constraint, Relation, at_least, in_range, less
from xflow.core.size import Expr, Quotient, Size, coefficient_of, free_symbols, symbol
from xflow.core.spec import (
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
    substitute_scalar,
)
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.choices import assume, branches, outer_condition
from xflow.verifier.algebra.digits import merged
from xflow.verifier.algebra.elimination import pinned_by_floor, pinned_value
from xflow.verifier.algebra.factors import canonical
from xflow.verifier.algebra.functions import (
    MAX_POWER,
    apply_function,
    argument_of_log,
    constant_of,
)
from xflow.verifier.algebra.integers import Ranges, is_integer
from xflow.verifier.algebra.maxima import Maxima
from xflow.verifier.algebra.steps import STEPS, distributed
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Guards,
    Normal,
    SizeAtom,
    Term,
    TooLargeError,
    free_of_base,
    make_normal,
    make_term,
    multiply,
    scale,
    substitute_term,
)
from xflow.verifier.algebra.tropical import Tropical

MAX_TERMS = 400
ONE_TERM = Term(Fraction(1))


class Normalizer:
    """Brings scalars to normal form under the assumptions of an `Arithmetic`."""

    def __init__(self, arithmetic: Arithmetic):
        self.arithmetic = arithmetic
        self._tropical = Tropical(self)
        self._maxima = Maxima(self)
        self.facts: Mapping[str, str] = {}
        """Relations to 0 that hold for all elements of some inputs."""
        self.ranges: Ranges = {}
        """The ranges of the inputs whose elements are integers."""
        self.merges = False
        """Whether two variables that are digits of one number become one."""
        self.unrolls = False
        """Whether sums and maxima over a few values are written out."""
        self._copies = 1
        self.tropical = False
        """Whether maxima and roots are simplified, see `tropical`."""
        self._remembered: dict[tuple[object, ...], Normal] = {}

    @contextmanager
    def set(self, *, merges: bool, unrolls: bool, tropical: bool = False) -> Iterator[None]:
        """Set optional simplifications inside the block."""
        before = self.merges, self.unrolls, self.tropical
        self.merges, self.unrolls, self.tropical = merges, unrolls, tropical
        try:
            yield
        finally:
            self.merges, self.unrolls, self.tropical = before

    def normal(self, scalar: Scalar, path: Guards = ()) -> Normal:
        """The normal form of `scalar` where `path` holds. Raises TooLargeError."""
        terms = self.simplify(self._terms(scalar, path), path)
        return make_normal(self._joined_logarithms(terms) if self.tropical else terms)

    def _joined_logarithms(self, terms: list[Term]) -> list[Term]:
        """Rewrite ``log(x) + log(y)`` as ``log(x y)``, which holds wherever both are defined."""
        found = [(term, inside) for term in terms if (inside := argument_of_log(term)) is not None]
        if len(found) < 2 or any(abs(term.coefficient) != 1 for term, _ in found):
            return terms
        product = [ONE_TERM]
        for term, inside in found:
            factor = list(inside.terms)
            if term.coefficient < 0:
                factor = apply_function("reciprocal", inside)
            product = self.times(product, factor)
        logarithms = [term for term, _ in found]
        rest = [term for term in terms if term not in logarithms]
        return [*rest, *apply_function("log", make_normal(product))]

    def remembered(self, scalar: Scalar, path: Guards = ()) -> Normal:
        """`normal`, worked out once for equal scalars where the same is assumed.

        For questions of which no record is kept: of what it relies on, only the first time leaves
        obligations. Raises TooLargeError.
        """
        settings = self.merges, self.unrolls, self.tropical, self._copies
        key = self.arithmetic.assumed, settings, path, scalar
        if key not in self._remembered:
            self._remembered[key] = self.normal(scalar, path)
        return self._remembered[key]

    def _terms(self, scalar: Scalar, path: Guards) -> list[Term]:
        terms = self._expand(scalar, path)
        if len(terms) > MAX_TERMS:
            raise TooLargeError(f"a normal form of more than {MAX_TERMS} terms")
        return terms

    def _expand(self, scalar: Scalar, path: Guards) -> list[Term]:
        match scalar:
            case Literal(value):
                return [Term(value)] if value else []
            case OfSize(size):
                return size_terms(size)
            case Element():
                return [make_term(Fraction(1), powers=[(scalar, 1)])]
            case Plus(args):
                return [term for arg in args for term in self._terms(arg, path)]
            case Times(args):
                return reduce(self.times, (self._terms(arg, path) for arg in args), [ONE_TERM])
            case SumOver(variable, extent, body):
                if self.written_out(extent):
                    return [
                        term
                        for k in self.values(extent)
                        for term in self._terms(substitute_scalar(body, {variable: k}), path)
                    ]
                span = in_range(symbol(variable), extent)
                inner = self._terms(body, (*path, *span))
                return [
                    make_term(t.coefficient, (variable, *t.variables), (*span, *t.guards), t.powers)
                    for t in inner
                ]
            case ProductOver(variable, extent, body):
                return self._terms(unrolled(variable, extent, body), path)
            case If(conditions, then, other):
                terms = []
                for guards, branch in branches(conditions, then, other):
                    if not self.arithmetic.contradictory((*path, *guards)):
                        terms += guarded(self._terms(branch, (*path, *guards)), guards)
                return terms
            case Call() | MaxOver():
                terms = []
                for guards, case in self.split(scalar, path):
                    terms += guarded(self._function(case, (*path, *guards)), guards)
                return terms
        raise TypeError(f"{type(scalar).__name__} has no value of its own")

    def written_out(self, extent: Size) -> TypeGuard[int]:
        """Whether a sum or maximum over this many values is written out, value by value."""
        return isinstance(extent, int) and (
            extent == 1
            or (
                self.unrolls and 0 <= extent <= MAX_UNROLLED and self._copies * extent <= MAX_COPIES
            )
        )

    def values(self, extent: int) -> Iterator[int]:
        """The values of a variable over a range that is written out."""
        copies, self._copies = self._copies, self._copies * max(extent, 1)
        try:
            yield from range(extent)
        finally:
            self._copies = copies

    def times(self, left: list[Term], right: list[Term]) -> list[Term]:
        if len(left) * len(right) > MAX_TERMS:
            raise TooLargeError(f"a product of more than {MAX_TERMS} terms")
        product = [multiply(a, b) for a in left for b in right]
        return [term for part in product for term in self._reduce_powers(part)]

    def _reduce_powers(self, term: Term) -> list[Term]:
        """Rewrite ``sqrt(x)^2`` as x, which holds wherever the root is defined."""
        for base, exponent in term.powers:
            if isinstance(base, Function) and base.name == "sqrt" and abs(exponent) >= 2:
                rest = [(b, e) for b, e in term.powers if b != base]
                odd = exponent % 2
                power = (exponent - odd) // 2
                if odd:
                    rest.append((base, odd))
                left = [make_term(term.coefficient, term.variables, term.guards, rest)]
                inner = list(base.args[0].terms)
                factor = inner if power > 0 else apply_function("reciprocal", base.args[0])
                for _ in range(abs(power)):
                    left = self.times(left, factor)
                return left
        if self.tropical:
            for step in (self._tropical.squared, self._tropical.inverted, self._joined_roots):
                reduced = step(term)
                if reduced is not None:
                    return reduced
        return [term]

    def _joined_roots(self, term: Term) -> list[Term] | None:
        """Rewrite ``sqrt(x) sqrt(y)`` as ``sqrt(x y)``, which holds wherever both are defined."""
        roots = [(b, e) for b, e in term.powers if isinstance(b, Function) and b.name == "sqrt"]
        if len(roots) < 2:
            return None
        rest = [power for power in term.powers if power not in roots]
        factors = [
            list(base.args[0].terms) if exponent > 0 else apply_function("reciprocal", base.args[0])
            for base, exponent in roots
        ]
        inside = [ONE_TERM]
        for factor in factors:
            inside = self.times(inside, factor)
        joined = self._root(make_normal(inside), term.guards)
        return self.times([make_term(term.coefficient, term.variables, term.guards, rest)], joined)

    def _root(self, normal: Normal, path: Guards) -> list[Term]:
        simpler = self._tropical.root(normal, path) if self.tropical else None
        return apply_function("sqrt", normal) if simpler is None else simpler

    # Choices -----------------------------------------------------------------------------------

    def split(self, scalar: Scalar, path: Guards, depth: int = 0) -> list[tuple[Guards, Scalar]]:
        """Cases without a choice on conditions that are known outside of `scalar`'s own sums."""
        condition = outer_condition(scalar, frozenset())
        if condition is None:
            return [((), scalar)]
        if depth > 12:
            raise TooLargeError("more than 12 nested choices under a function")
        cases: list[tuple[Guards, Scalar]] = []
        for piece in (condition, *condition.negation()):
            if self.arithmetic.contradictory((*path, piece)):
                continue
            rest = assume(scalar, condition, piece == condition)
            for guards, case in self.split(rest, (*path, piece), depth + 1):
                cases.append(((piece, *guards), case))
        return cases

    # Functions ---------------------------------------------------------------------------------

    def _function(self, scalar: Scalar, path: Guards) -> list[Term]:
        if isinstance(scalar, MaxOver):
            return self._maxima.normal(scalar, path)
        assert isinstance(scalar, Call)
        name, args = scalar.function, scalar.args
        if name == "min":
            negated = Call("max", tuple(spec.times(-1, arg) for arg in args))
            return scale(self._terms(negated, path), Fraction(-1))
        if name == "max":
            return self._maxima.normal(scalar, path)
        if name == "abs":
            return self._terms(Call("max", (args[0], spec.times(-1, args[0]))), path)
        if name == "power":
            return self._power(args[0], args[1], path)
        if name in spec.FIXING_ZERO and not any(self.normal(arg, path).terms for arg in args):
            return []
        if len(args) != 1:
            normals = tuple(canonical(self.normal(arg, path)) for arg in args)
            return [make_term(Fraction(1), powers=[(Function(name, normals), 1)])]
        if name == "sqrt":
            return self._root(self.normal(args[0], path), path)
        if name == "exp" and self.tropical:
            return self._tropical.exponential(self.normal(args[0], path), path)
        if name in STEPS:
            return self._step(name, args[0], path)
        return apply_function(name, self.normal(args[0], path))

    def _step(self, name: str, argument: Scalar, path: Guards) -> list[Term]:
        """A function that rounds to integers: it keeps the order, and leaves those as they are."""
        if self.tropical:
            made = distributed(name, argument, lambda factor: self._is_nonnegative(factor, path))
            if made is not None:
                return self._terms(made, path)
        normal = self.normal(argument, path)
        if is_integer(normal, self.ranges):
            return list(normal.terms)
        return apply_function(name, normal)

    def _is_nonnegative(self, scalar: Scalar, path: Guards) -> bool:
        return self._tropical.signs().is_nonnegative(self.normal(scalar, path), path)

    def _power(self, base: Scalar, exponent: Scalar, path: Guards) -> list[Term]:
        """A power; one whose exponent is a small literal multiple of 1/2 is multiplied out."""
        normals = self.normal(base, path), self.normal(exponent, path)
        constant = constant_of(normals[1])
        if constant is None or constant.denominator > 2 or abs(constant) > MAX_POWER:
            arguments = tuple(map(canonical, normals))
            return [make_term(Fraction(1), powers=[(Function("power", arguments), 1)])]
        factor = list(normals[0].terms)
        if constant.denominator == 2:
            factor = self._root(normals[0], path)
        if constant < 0:
            factor = apply_function("reciprocal", make_normal(factor))
        return reduce(self.times, [factor] * abs(constant.numerator), [ONE_TERM])

    # Simplification ----------------------------------------------------------------------------

    def simplify(self, terms: Iterable[Term], path: Guards = ()) -> list[Term]:
        """Drop terms whose guards contradict, eliminate pinned and unused variables, quotients."""
        result: list[Term] = []
        for term in terms:
            result.extend(self._simplify(term, path))
        return result

    def _simplify(self, term: Term, path: Guards) -> list[Term]:
        if term.coefficient == 0 or self.arithmetic.contradictory((*path, *term.guards)):
            return []
        for change in (self._resolve_quotients, self._pin, self._drop_unused, self._merge):
            changed = change(term, path)
            if changed is not None:
                return self.simplify(changed, path)
        return self._expand_sizes(term)

    def _resolve_quotients(self, term: Term, path: Guards) -> list[Term] | None:
        """Replace quotients that the guards determine: ``k // m = 0`` where ``0 <= k < m``."""
        guards = (*path, *term.guards)
        for quotient in sorted(quotients_of(term), key=lambda q: q.key):
            if not any(name.startswith("_") for name in free_symbols(quotient.numerator)):
                continue  # guards bound indices: of a quotient of sizes they say nothing
            for value in (0, -1, 1):
                low = at_least(quotient.numerator, value * quotient.denominator)
                high = less(quotient.numerator, (value + 1) * quotient.denominator)
                positive = at_least(quotient.denominator, 1)
                if all(self.arithmetic.implied(c, guards) for c in (low, high, positive)):
                    return [replace_quotient(term, quotient, value)]
        return None

    def _pin(self, term: Term, path: Guards) -> list[Term] | None:
        """Eliminate a variable that an equality among the guards determines."""
        for variable, value in self._pinned(term, path):
            if value is not None:
                rest = tuple(v for v in term.variables if v != variable)
                reduced = Term(term.coefficient, rest, term.guards, term.powers)
                return [substitute_term(reduced, {variable: value})]
        return None

    def _pinned(self, term: Term, path: Guards) -> Iterator[tuple[str, Size | None]]:
        """Variables with the values that guards force on them, those that cost a proof last."""
        for guard in term.guards:
            for variable in term.variables:
                yield variable, pinned_value(guard, variable, term.guards)
        for variable in term.variables:
            yield variable, pinned_by_floor(variable, term, self.arithmetic, path)

    def _merge(self, term: Term, path: Guards) -> list[Term] | None:
        made = merged(term, self.arithmetic, path) if self.merges else None
        return None if made is None else [made]

    def _drop_unused(self, term: Term, path: Guards) -> list[Term] | None:
        """Sum out a variable that no factor mentions: a factor of the length of its range."""
        for variable in term.variables:
            if any(variable in free_of_base(base) for base, _ in term.powers):
                continue
            own = [g for g in term.guards if variable in g.symbols]
            bounds = range_of(variable, own)
            if bounds is None:
                continue
            low, high = bounds
            rest = tuple(g for g in term.guards if g not in own)
            length = high - low
            if not self.arithmetic.implied(at_least(length, 0), (*path, *rest)):
                continue
            variables = tuple(v for v in term.variables if v != variable)
            present = at_least(length, 1)
            if any(exponent < 0 for _, exponent in term.powers) and not self.arithmetic.implied(
                present, (*path, *rest)
            ):
                # Over an empty range the denominator may be 0 (``sum of 1/n for k < n`` is 1 only
                # for n >= 1), so keep that the term is not read there.
                rest = (*rest, present)
            reduced = make_term(term.coefficient, variables, rest, term.powers)
            return [multiply(reduced, factor) for factor in size_terms(length)]
        return None

    def _expand_sizes(self, term: Term) -> list[Term]:
        """Multiply out polynomials over sizes that substitution has made of symbols."""
        for base, exponent in term.powers:
            if isinstance(base, SizeAtom) and len(base.size.terms) > 1 and exponent > 0:
                rest = [(b, e) for b, e in term.powers if b != base]
                terms = [make_term(term.coefficient, term.variables, term.guards, rest)]
                for _ in range(exponent):
                    terms = self.times(terms, size_terms(base.size))
                return [part for t in terms for part in self._expand_sizes(t)]
        return [term]


MAX_UNROLLED = 16
MAX_COPIES = 64
"""Copies of one body that nested ranges may make."""


def unrolled(variable: str, extent: Size, body: Scalar) -> Scalar:
    """A product over a range of literal extent, factor by factor. Raises TooLargeError."""
    if not isinstance(extent, int) or extent > MAX_UNROLLED:
        raise TooLargeError(f"a product over {extent} factors")
    # `variable` is bound here alone, so that nothing is captured; no factors make 1.
    return spec.times(*(substitute_scalar(body, {variable: k}) for k in range(extent)))


def has_few(scalar: Scalar) -> bool:
    """Whether a sum or maximum over a few values, of one at least, occurs in `scalar`."""
    match scalar:
        case SumOver(_, extent, body) | MaxOver(_, extent, body):
            return (isinstance(extent, int) and 1 < extent <= MAX_UNROLLED) or has_few(body)
        case Plus(args) | Times(args) | Call(_, args):
            return any(map(has_few, args))
        case If(_, then, other):
            return has_few(then) or has_few(other)
    return False


def size_terms(size: Size) -> list[Term]:
    """A size as a sum of terms over its symbols and quotients."""
    if isinstance(size, int):
        return [Term(Fraction(size))] if size else []
    return [
        make_term(Fraction(c), powers=[(SizeAtom(Expr((((atom,), 1),))), 1) for atom in monomial])
        for monomial, c in size.terms
    ]


def guarded(terms: Iterable[Term], guards: Guards) -> list[Term]:
    """The terms where `guards` hold, 0 elsewhere."""
    return [make_term(t.coefficient, t.variables, (*guards, *t.guards), t.powers) for t in terms]


def quotients_of(term: Term) -> set[Quotient]:
    """The quotients in indices and guards of a term that mention no other quotient inside."""
    found: set[Quotient] = set()

    def collect(size: Size) -> None:
        if isinstance(size, Expr):
            for monomial, _ in size.terms:
                for atom in monomial:
                    if isinstance(atom, Quotient):
                        collect(atom.numerator)
                        collect(atom.denominator)
                        found.add(atom)

    for base, _ in term.powers:
        if isinstance(base, Element):
            for i in base.index:
                collect(i)
    for guard in term.guards:
        collect(guard.difference)
    return found


def replace_quotient(term: Term, quotient: Quotient, value: int) -> Term:
    """The term with a quotient replaced by the integer that it is."""

    def change(size: Size) -> Size:
        if isinstance(size, int):
            return size
        total: Size = 0
        for monomial, coefficient in size.terms:
            product: Size = coefficient
            for atom in monomial:
                if atom == quotient:
                    product = product * value
                elif isinstance(atom, Quotient):
                    product = product * (change(atom.numerator) // change(atom.denominator))
                else:
                    product = product * Expr((((atom,), 1),))
            total = total + product
        return total

    powers: list[tuple[Base, int]] = [
        (Element(b.tensor, tuple(map(change, b.index))) if isinstance(b, Element) else b, e)
        for b, e in term.powers
    ]
    guards = [Constraint(change(g.difference), g.relation) for g in term.guards]
    # Where the guards fail the replacement would be wrong, but there the term is 0: the facts
    # that made it right are kept.
    low = at_least(quotient.numerator, value * quotient.denominator)
    high = less(quotient.numerator, (value + 1) * quotient.denominator)
    return make_term(term.coefficient, term.variables, [*guards, low, high], powers)


def range_of(variable: str, guards: Iterable[Constraint]) -> tuple[Size, Size] | None:
    """``(low, high)`` with the guards saying ``low <= variable < high`` and nothing else."""
    low: Size | None = None
    high: Size | None = None
    for guard in guards:
        split = coefficient_of(guard.difference, variable)
        if guard.relation is not Relation.AT_LEAST or split is None or abs(split[0]) != 1:
            return None
        if variable in free_symbols(split[1]):
            return None
        if split[0] == 1:
            if low is not None:
                return None
            low = -split[1]
        else:
            if high is not None:
                return None
            high = split[1] + 1
    return None if low is None or high is None else (low, high)
