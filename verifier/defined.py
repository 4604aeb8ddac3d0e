"""Definedness: the right side must be defined wherever the left side is.

Over the reals a reciprocal needs an argument that is not 0, a square root one that is not
negative, a logarithm a positive one. What the left side needs may be assumed; what the right
side needs must follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from xflow.constraint import at_least, equal, in_range
from xflow.graph import Leaf, Value
from xflow.ops.composite import Composite
from xflow.ops.registry import Operator, Reader
from xflow.ops.spec import (
    ZERO,
    Call,
    Element,
    If,
    Index,
    MaxOver,
    Plus,
    Scalar,
    SumOver,
    Times,
    plus,
    times,
    where,
)
from xflow.size import symbol
from xflow.verifier.arithmetic import Arithmetic
from xflow.verifier.match import Equality, least_points
from xflow.verifier.normal import branches
from xflow.verifier.terms import (
    Base,
    Function,
    Group,
    Guards,
    Maximum,
    Normal,
    SizeAtom,
    Term,
    free_of_normal,
    make_normal,
    scale,
)

PARTIAL = frozenset({"reciprocal", "sqrt", "log"})
UNFOLDED_ZERO = Element("%0", ())
"""Stands for 0 in what `read_unfolded` returns; no input has this name."""


def read_unfolded(value: Value, index: Index) -> Scalar:
    """`xflow.graph.read` with every constant 0 as `UNFOLDED_ZERO`.

    A product with 0 is 0 at once, and would hide that its other factors may be undefined.
    """
    node = value.node
    if isinstance(node.op, Leaf):
        return Element(node.op.key, tuple(index))
    assert isinstance(node.op, Operator), node.op
    if isinstance(node.op, Composite):
        return read_unfolded(node.op.define(node.inputs, node.attributes)[value.index], index)
    shapes = [source.shape for source in node.inputs]
    inputs = [_unfolded_reader(source) for source in node.inputs]
    result = node.op.at(inputs, shapes, node.attributes, value.index, tuple(index))
    return UNFOLDED_ZERO if result == ZERO else result


def _unfolded_reader(source: Value) -> Reader:
    return lambda index: read_unfolded(source, index)


def folded(scalar: Scalar) -> Scalar:
    """A scalar of `read_unfolded` with zeros as zeros again."""
    match scalar:
        case Element():
            return ZERO if scalar == UNFOLDED_ZERO else scalar
        case Plus(args):
            return plus(*map(folded, args))
        case Times(args):
            return times(*map(folded, args))
        case SumOver(variable, extent, body):
            return SumOver(variable, extent, folded(body))
        case MaxOver(variable, extent, body):
            return MaxOver(variable, extent, folded(body))
        case If(conditions, then, other):
            return where(conditions, folded(then), folded(other))
        case Call(function, args):
            return Call(function, tuple(map(folded, args)))
    return scalar


def is_partial(scalar: Scalar) -> bool:
    """Whether a function that is not defined everywhere occurs in `scalar`."""
    match scalar:
        case Plus(args) | Times(args):
            return any(map(is_partial, args))
        case SumOver(_, _, body) | MaxOver(_, _, body):
            return is_partial(body)
        case If(_, then, other):
            return is_partial(then) or is_partial(other)
        case Call(function, args):
            return function in PARTIAL or any(map(is_partial, args))
    return False


@dataclass(frozen=True)
class Demand:
    """That `argument` lies in the domain of a partial function wherever `path` holds."""

    function: str
    argument: Normal
    path: Guards


def demands(scalar: Scalar, equality: Equality, path: Guards = ()) -> Iterator[Demand]:
    """What `scalar`, from `read_unfolded`, needs to be defined."""
    if not is_partial(scalar):
        return
    match scalar:
        case Plus(args) | Times(args):
            for arg in args:
                yield from demands(arg, equality, path)
        case SumOver(variable, extent, body) | MaxOver(variable, extent, body):
            yield from demands(body, equality, (*path, *in_range(symbol(variable), extent)))
        case If(conditions, then, other):
            for guards, branch in branches(conditions, then, other):
                if not equality.arithmetic.contradictory((*path, *guards)):
                    yield from demands(branch, equality, (*path, *guards))
        case Call(function, args):
            for arg in args:
                yield from demands(arg, equality, path)
            if function in PARTIAL:
                for guards, case in equality.normalizer.split(folded(args[0]), path):
                    inner = (*path, *guards)
                    yield Demand(function, equality.normalizer.normal(case, inner), inner)


def outside(demand: Demand) -> Iterator[Demand]:
    """`demand` where a sum that it is read in, without its variable, has a summand."""
    symbols = frozenset[str]().union(*(guard.symbols for guard in demand.path))
    bound = {name for name in symbols if name.startswith("_k")}
    unused = sorted(bound - free_of_normal(demand.argument))
    for point in least_points(unused, demand.path) if unused else ():
        path = tuple(guard.substitute(point) for guard in demand.path)
        yield Demand(demand.function, demand.argument, path)


class Domain:
    """What may be taken for granted because the left side is defined."""

    def __init__(self, given: Iterable[Demand], equality: Equality):
        self._equality = equality
        self._given = [d for demand in dict.fromkeys(given) for d in (demand, *outside(demand))]

    @property
    def _arithmetic(self) -> Arithmetic:
        return self._equality.arithmetic

    def unmet(self, wanted: Iterable[Demand]) -> str | None:
        """The first demand that does not follow, in words; None if all do."""
        for demand in dict.fromkeys(wanted):
            if not self._met(demand):
                return f"{demand.function} of {demand.argument.key} may be undefined"
        return None

    def _met(self, demand: Demand) -> bool:
        if any(self._same(demand, given) for given in self._given):
            return True
        if demand.function == "sqrt":
            return self._not_negative(demand.argument, demand.path)
        if demand.function == "log":
            return self._positive(demand.argument, demand.path)
        return self._not_zero(demand.argument, demand.path)

    def _same(self, demand: Demand, given: Demand) -> bool:
        return (
            demand.function == given.function
            and self._reaches(demand.path, given.path)
            and self._multiple(demand.argument, given.argument, demand.path)
        )

    def _reaches(self, path: Guards, given: Guards) -> bool:
        return all(self._arithmetic.implied(guard, path) for guard in given)

    def _multiple(self, left: Normal, right: Normal, path: Guards) -> bool:
        """Whether one is a positive multiple of the other."""
        if not left.terms or not right.terms:
            return left == right
        a, b = abs(left.terms[0].coefficient), abs(right.terms[0].coefficient)
        return self._equality.equal(
            make_normal(scale(left.terms, 1 / a)), make_normal(scale(right.terms, 1 / b)), path
        )

    def _not_zero(self, normal: Normal, path: Guards) -> bool:
        if len(normal.terms) == 1:
            (term,) = normal.terms
            if not term.variables and not term.guards:
                return all(self._base_not_zero(base, path) for base, _ in term.powers)
        return self._group_not_zero(normal, path)

    def _base_not_zero(self, base: Base, path: Guards) -> bool:
        if isinstance(base, SizeAtom):
            zero = equal(base.size, 0)
            return self._arithmetic.contradictory((*path, zero))
        if isinstance(base, Group):
            return True  # it occurs in a denominator already
        if isinstance(base, Function) and base.name == "exp":
            return True
        unit = make_normal([Term(Fraction(1), powers=((base, 1),))])
        return self._group_not_zero(unit, path)

    def _group_not_zero(self, normal: Normal, path: Guards) -> bool:
        for given in self._given:
            if given.function != "reciprocal" or not self._reaches(path, given.path):
                continue
            if self._multiple(normal, given.argument, path):
                return True
            terms = given.argument.terms
            if len(terms) == 1 and not terms[0].variables and not terms[0].guards:
                for base, _ in terms[0].powers:
                    unit = make_normal([Term(Fraction(1), powers=((base, 1),))])
                    if self._equality.equal(normal, unit, path):
                        return True
        return self._positive(normal, path)

    def _not_negative(self, normal: Normal, path: Guards) -> bool:
        return all(self._term_not_negative(term, path) for term in normal.terms)

    def _positive(self, normal: Normal, path: Guards) -> bool:
        return self._not_negative(normal, path) and any(
            not term.variables
            and not term.guards
            and all(self._base_positive(base, path) for base, _ in term.powers)
            for term in normal.terms
        )

    def _term_not_negative(self, term: Term, path: Guards) -> bool:
        return term.coefficient >= 0 and all(
            exponent % 2 == 0 or self._base_not_negative(base, (*path, *term.guards))
            for base, exponent in term.powers
        )

    def _base_not_negative(self, base: Base, path: Guards) -> bool:
        match base:
            case Function("exp" | "sqrt", _):
                return True
            case SizeAtom(size):
                return self._arithmetic.implied(at_least(size, 0), path)
            case Group(body):
                return self._not_negative(body, path)
            case Maximum(options):
                return any(
                    not o.guards and not o.variables and self._not_negative(o.body, path)
                    for o in options
                )
            case Element():
                return False
        return False

    def _base_positive(self, base: Base, path: Guards) -> bool:
        match base:
            case Function("exp", _):
                return True
            case SizeAtom(size):
                return self._arithmetic.implied(at_least(size, 1), path)
        return False
