"""From specifications to normal forms."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import reduce
from math import gcd, lcm

from xflow.constraint import Constraint, Relation, at_least, in_range, less
from xflow.ops import spec
from xflow.ops.spec import (
    Bottom,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    OfSize,
    Plus,
    Scalar,
    SumOver,
    Times,
    plus,
    where,
)
from xflow.size import Expr, Quotient, Size, coefficient_of, free_symbols, substitute, symbol
from xflow.verifier.arithmetic import Arithmetic
from xflow.verifier.terms import (
    Base,
    Function,
    Group,
    Guards,
    Maximum,
    Normal,
    Option,
    SizeAtom,
    Term,
    free_of_base,
    make_normal,
    make_term,
    multiply,
    scale,
    substitute_term,
)

MAX_TERMS = 400
ONE_TERM = Term(Fraction(1))


class TooLargeError(Exception):
    """The normal form has too many terms; the verdict is `Unknown`."""


class Normalizer:
    """Brings scalars to normal form under the assumptions of an `Arithmetic`."""

    def __init__(self, arithmetic: Arithmetic):
        self.arithmetic = arithmetic

    def normal(self, scalar: Scalar, path: Guards = ()) -> Normal:
        """The normal form of `scalar` where `path` holds. Raises TooLargeError."""
        return make_normal(self.simplify(self._terms(scalar, path), path))

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
                if extent == 1:
                    return self._terms(substitute_scalar(body, {variable: 0}), path)
                span = in_range(symbol(variable), extent)
                inner = self._terms(body, (*path, *span))
                return [
                    make_term(t.coefficient, (variable, *t.variables), (*span, *t.guards), t.powers)
                    for t in inner
                ]
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
                factor = inner if power > 0 else self._reciprocal(Normal(tuple(inner)))
                for _ in range(abs(power)):
                    left = self.times(left, factor)
                return left
        return [term]

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
            return self._maximum(self._options(scalar, path), path)
        assert isinstance(scalar, Call)
        name, args = scalar.function, scalar.args
        if name == "min":
            negated = Call("max", tuple(spec.times(-1, arg) for arg in args))
            return scale(self._terms(negated, path), Fraction(-1))
        if name == "max":
            return self._maximum(self._options(scalar, path), path)
        if name == "abs":
            return self._terms(Call("max", (args[0], spec.times(-1, args[0]))), path)
        normal = self.normal(args[0], path)
        if name == "reciprocal":
            return self._reciprocal(normal)
        if name == "exp":
            return [exponential(normal)]
        constant = constant_of(normal)
        if constant is not None and (name, constant) in KNOWN_VALUES:
            value = KNOWN_VALUES[name, constant]
            return [Term(value)] if value else []
        sign = Fraction(1)
        if name in ODD_FUNCTIONS and normal.terms and normal.terms[0].coefficient < 0:
            sign, normal = Fraction(-1), make_normal(scale(normal.terms, Fraction(-1)))
        return [make_term(sign, powers=[(Function(name, (normal,)), 1)])]

    def _reciprocal(self, normal: Normal) -> list[Term]:
        if len(normal.terms) == 1:
            (term,) = normal.terms
            if not term.variables and not term.guards:
                inverse = [(base, -exponent) for base, exponent in term.powers]
                return [make_term(1 / term.coefficient, powers=inverse)]
        if not normal.terms:
            raise TooLargeError("a reciprocal of zero")
        lead = normal.terms[0].coefficient
        unit = make_normal(scale(normal.terms, 1 / lead))
        return [make_term(1 / lead, powers=[(Group(unit), -1)])]

    # Maxima ------------------------------------------------------------------------------------

    def _options(self, scalar: Scalar, path: Guards) -> list[Option]:
        match scalar:
            case Bottom():
                return []
            case Call("max", args):
                return [option for arg in args for option in self._options(arg, path)]
            case MaxOver(variable, extent, body):
                if extent == 1:
                    return self._options(substitute_scalar(body, {variable: 0}), path)
                span = in_range(symbol(variable), extent)
                return [
                    Option((variable, *o.variables), (*span, *o.guards), o.body)
                    for o in self._options(body, (*path, *span))
                ]
            case If(conditions, then, other):
                return [
                    Option(o.variables, (*guards, *o.guards), o.body)
                    for guards, branch in branches(conditions, then, other)
                    if not self.arithmetic.contradictory((*path, *guards))
                    for o in self._options(branch, (*path, *guards))
                ]
        normal = self.normal(scalar, path)
        if len(normal.terms) == 1:
            (term,) = normal.terms
            if len(term.powers) == 1 and not term.variables and not term.guards:
                base, exponent = term.powers[0]
                if isinstance(base, Maximum) and exponent == 1 and term.coefficient > 0:
                    return [
                        Option(
                            o.variables,
                            o.guards,
                            make_normal(scale(o.body.terms, term.coefficient)),
                        )
                        for o in base.options
                    ]
        return [Option((), (), normal)]

    def _maximum(self, options: list[Option], path: Guards) -> list[Term]:
        kept: dict[Option, None] = {}
        for option in options:
            if not self.arithmetic.contradictory((*path, *option.guards)):
                kept[option] = None
        if not kept:
            raise TooLargeError("a maximum over nothing")
        if len(kept) == 1:
            (option,) = kept
            if not option.variables and not option.guards:
                return list(option.body.terms)
        content = common_content(o.body for o in kept)
        unit = [
            Option(o.variables, o.guards, make_normal(scale(o.body.terms, 1 / content)))
            for o in kept
        ]
        base = Maximum(tuple(sorted(unit, key=lambda o: o.key)))
        return [make_term(content, powers=[(base, 1)])]

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
        for change in (self._resolve_quotients, self._pin, self._drop_unused):
            changed = change(term, path)
            if changed is not None:
                return self.simplify(changed, path)
        return self._expand_sizes(term)

    def _resolve_quotients(self, term: Term, path: Guards) -> list[Term] | None:
        """Replace quotients that the guards determine: ``k // m = 0`` where ``0 <= k < m``."""
        guards = (*path, *term.guards)
        for quotient in sorted(quotients_of(term), key=lambda q: q.key):
            for value in (0, -1, 1):
                low = at_least(quotient.numerator, value * quotient.denominator)
                high = less(quotient.numerator, (value + 1) * quotient.denominator)
                positive = at_least(quotient.denominator, 1)
                if all(self.arithmetic.implied(c, guards) for c in (low, high, positive)):
                    return [replace_quotient(term, quotient, value)]
        return None

    def _pin(self, term: Term, path: Guards) -> list[Term] | None:
        """Eliminate a variable that an equality among the guards determines."""
        for guard in term.guards:
            for variable in term.variables:
                value = pinned_value(guard, variable, term.guards)
                if value is None:
                    continue
                rest = tuple(v for v in term.variables if v != variable)
                reduced = Term(term.coefficient, rest, term.guards, term.powers)
                return [substitute_term(reduced, {variable: value})]
        return None

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


KNOWN_VALUES = {
    ("sqrt", Fraction(1)): Fraction(1),
    ("sqrt", Fraction(0)): Fraction(0),
    ("log", Fraction(1)): Fraction(0),
    ("tanh", Fraction(0)): Fraction(0),
    ("erf", Fraction(0)): Fraction(0),
}
ODD_FUNCTIONS = frozenset({"tanh", "erf"})


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


def branches(conditions: Guards, then: Scalar, other: Scalar) -> list[tuple[Guards, Scalar]]:
    """A choice as disjoint cases that cover everything."""
    cases = [(conditions, then)]
    for position, condition in enumerate(conditions):
        cases += [((*conditions[:position], piece), other) for piece in condition.negation()]
    return cases


def exponential(normal: Normal) -> Term:
    """``exp`` of a sum as a product of powers: ``exp(2a + b) = exp(a)^2 exp(b)``."""
    powers: list[tuple[Base, int]] = []
    for term in normal.terms:
        numerator, denominator = term.coefficient.numerator, term.coefficient.denominator
        unit = make_term(Fraction(1, denominator), term.variables, term.guards, term.powers)
        powers.append((Function("exp", (Normal((unit,)),)), numerator))
    return make_term(Fraction(1), powers=powers)


def constant_of(normal: Normal) -> Fraction | None:
    """The rational number that a normal form is, if it is one."""
    if not normal.terms:
        return Fraction(0)
    (term, *others) = normal.terms
    if others or term.variables or term.guards or term.powers:
        return None
    return term.coefficient


def common_content(normals: Iterable[Normal]) -> Fraction:
    """The greatest positive rational that divides every coefficient; 1 if all are 0."""
    numerator, denominator = 0, 1
    for normal in normals:
        for term in normal.terms:
            numerator = gcd(numerator, abs(term.coefficient.numerator))
            denominator = lcm(denominator, term.coefficient.denominator)
    return Fraction(numerator, denominator) if numerator else Fraction(1)


def substitute_scalar(scalar: Scalar, values: dict[str, Size]) -> Scalar:
    """Replace symbols in a scalar; bound variables are never among them."""

    def again(e: Scalar) -> Scalar:
        return substitute_scalar(e, values)

    match scalar:
        case OfSize(size):
            result = substitute(size, values)
            return OfSize(result) if isinstance(result, Expr) else Literal(Fraction(result))
        case Element(tensor, index):
            return Element(tensor, tuple(substitute(i, values) for i in index))
        case Plus(args):
            return plus(*map(again, args))
        case Times(args):
            return spec.times(*map(again, args))
        case SumOver(variable, extent, body):
            return SumOver(variable, substitute(extent, values), again(body))
        case MaxOver(variable, extent, body):
            return MaxOver(variable, substitute(extent, values), again(body))
        case If(conditions, then, other):
            return where(tuple(c.substitute(values) for c in conditions), again(then), again(other))
        case Call(function, args):
            return Call(function, tuple(map(again, args)))
    return scalar


def outer_condition(scalar: Scalar, bound: frozenset[str]) -> Constraint | None:
    """The first condition of a choice inside `scalar` that no variable of `bound` occurs in."""
    match scalar:
        case If(conditions, then, other):
            for condition in conditions:
                if not condition.symbols & bound:
                    return condition
            return outer_condition(then, bound) or outer_condition(other, bound)
        case Plus(args) | Times(args) | Call(_, args):
            for arg in args:
                inner = outer_condition(arg, bound)
                if inner is not None:
                    return inner
        case SumOver(variable, _, body) | MaxOver(variable, _, body):
            return outer_condition(body, bound | {variable})
    return None


def assume(scalar: Scalar, condition: Constraint, holds: bool) -> Scalar:
    """`scalar` with the choices on `condition` made; `holds` says which way."""

    def again(e: Scalar) -> Scalar:
        return assume(e, condition, holds)

    match scalar:
        case If(conditions, then, other):
            if condition in conditions:
                if not holds:
                    return again(other)
                rest = tuple(c for c in conditions if c != condition)
                return where(rest, again(then), again(other))
            return If(conditions, again(then), again(other))
        case Plus(args):
            return plus(*map(again, args))
        case Times(args):
            return spec.times(*map(again, args))
        case SumOver(variable, extent, body):
            return SumOver(variable, extent, again(body))
        case MaxOver(variable, extent, body):
            return MaxOver(variable, extent, again(body))
        case Call(function, args):
            return Call(function, tuple(map(again, args)))
    return scalar


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


def pinned_value(guard: Constraint, variable: str, guards: Guards) -> Size | None:
    """The value that `guard` (with the others) forces on `variable`, free of the variable."""
    split = coefficient_of(guard.difference, variable)
    if split is None or abs(split[0]) != 1:
        return None
    coefficient, rest = split
    value = -rest if coefficient == 1 else rest
    if guard.relation is Relation.EQUAL:
        return value
    # v >= value together with v <= value
    opposite = Constraint(-guard.difference, Relation.AT_LEAST)
    return value if opposite in guards else None


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
