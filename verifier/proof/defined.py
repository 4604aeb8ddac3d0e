"""Definedness: the right side must be defined wherever the left side is.

Over the reals a reciprocal needs an argument that is not 0, a square root one that is not
negative, a logarithm a positive one. The needs of the left side may be assumed, unless the runtime
computes a number where they are not met: Relu(-1/0), say, is 0 there. The needs of the right side
must follow.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from types import MappingProxyType

from xflow.core.composite import Composite
from xflow.core.constraint import equal, in_range
from xflow.core.evaluation import read_leaf
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value, apply, hidden_positions, leaf
from xflow.core.registry import Operator, Reader
from xflow.core.size import atom_size, opaque_integers, symbol
from xflow.core.sorts import BOOL, REAL
from xflow.core.spec import (
    ARBITRARY,
    FIXING_ZERO,
    LOSING,
    PARTIAL,
    ZERO,
    Call,
    Element,
    If,
    Index,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    plus,
    substitute_scalar,
    times,
    where,
)
from xflow.verifier.algebra.affine import least_points
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.choices import branches
from xflow.verifier.algebra.comparisons import Sign, decided, orders, with_signs
from xflow.verifier.algebra.factors import (
    canonical,
    common_powers,
    split_exponentials,
    without_powers,
)
from xflow.verifier.algebra.functions import constant_of
from xflow.verifier.algebra.signs import Signs
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Group,
    Guards,
    Normal,
    SizeAtom,
    Term,
    elements,
    free_of_normal,
    make_normal,
    scale,
    substitute_normal,
)
from xflow.verifier.matching.match import Equality

MAX_INSTANCES = 4
INFINITE = ARBITRARY | {"reciprocal", "log", "power"}
"""Partial functions that the runtime gives an infinity for, on the edge of their domain."""
NO_READERS: Mapping[Value, Reader] = MappingProxyType({})
UNFOLDED_ZERO = Element("%0", ())
"""Stands for 0 in what `read_unfolded` returns; no input has this name."""


def read_unfolded(
    value: Value, index: Index, readers: Mapping[Value, Reader] = NO_READERS
) -> Scalar:
    """`xflow.core.evaluation.read` with every constant 0 as `UNFOLDED_ZERO`.

    A product with 0 is 0 at once, and would hide that its other factors may be undefined. What is
    in `readers` is read by these.
    """
    if value in readers:
        return readers[value](index)
    node = value.node
    if isinstance(node.op, Leaf):
        return read_leaf(value, index)
    assert isinstance(node.op, Operator), node.op
    if isinstance(node.op, Composite):
        inner = node.op.define(node.inputs, node.attributes)[value.index]
        return read_unfolded(inner, index, readers)
    shapes = [source.shape for source in node.inputs]
    inputs = [_unfolded_reader(source, readers) for source in node.inputs]
    return unfolded(node.op.at(inputs, shapes, node.attributes, value.index, tuple(index)), value)


def unfolded(element: Scalar, value: Value) -> Scalar:
    """An element of `value`, `UNFOLDED_ZERO` for 0."""
    # Booleans and indices are not multiplied: their zeros hide nothing.
    return UNFOLDED_ZERO if element == ZERO and value.type.dtype == REAL else element


def _unfolded_reader(source: Value, readers: Mapping[Value, Reader]) -> Reader:
    return lambda index: read_unfolded(source, index, readers)


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
        case ProductOver(variable, extent, body):
            return ProductOver(variable, extent, folded(body))
        case If(conditions, then, other):
            return where(conditions, folded(then), folded(other))
        case Call(function, args):
            return Call(function, tuple(map(folded, args)))
    return scalar


def tensors(scalar: Scalar) -> frozenset[str]:
    """The inputs of which elements are in `scalar`, from `read_unfolded`, also compared ones."""
    match scalar:
        case Element(tensor, _):
            # Those are real attributes, and the constant 0.
            return frozenset() if tensor.startswith("%") else frozenset({tensor})
        case Plus(args) | Times(args) | Call(_, args):
            parts = args
        case SumOver(_, _, body) | MaxOver(_, _, body) | ProductOver(_, _, body):
            parts = (body,)
        case If(conditions, then, other):
            compared = (side for order in orders(conditions) for side in (order.left, order.right))
            parts = (then, other, *compared)
        case _:
            parts = ()
    return frozenset[str]().union(*map(tensors, parts))


def is_partial(scalar: Scalar, *, sizes: bool = True) -> bool:
    """Whether a function that is not defined everywhere occurs in `scalar`.

    Also one of sizes alone, such as the inverse of a length, unless `sizes` is False.
    """

    def again(part: Scalar) -> bool:
        return is_partial(part, sizes=sizes)

    match scalar:
        case Plus(args) | Times(args):
            return any(map(again, args))
        case SumOver(_, _, body) | MaxOver(_, _, body) | ProductOver(_, _, body):
            return again(body)
        case If(conditions, then, other):
            compared = (side for order in orders(conditions) for side in (order.left, order.right))
            return any(map(again, (then, other, *compared)))
        case Call(function, args):
            own = function in PARTIAL and (sizes or any(map(tensors, args)))
            return own or any(map(again, args))
    return False


def is_partial_node(node: Node) -> bool:
    """Whether an operator is not defined for all its inputs."""
    op = node.op
    if not isinstance(op, Operator):
        return False
    shapes = [source.shape for source in node.inputs]
    if op.ranges(shapes, node.attributes):
        return True
    leaves = [leaf(f"%{k}", source.type) for k, source in enumerate(node.inputs)]
    outputs = apply(op, leaves, node.attributes, dtype=node.types[0].dtype)
    return any(
        is_partial(read_unfolded(value, tuple(symbol(f"%i{k}") for k in range(len(value.shape)))))
        for value in outputs
    )


def loses_undefined(values: Iterable[Value], inputs: Container[Value] = ()) -> bool:
    """Whether one of `values` compares operands not defined everywhere, down to `inputs`.

    At run time, such a comparison is made with an infinity or NaN and has a result, as has a kernel
    that hides them. So here the operands of a left side cannot be assumed to be defined, as they
    can elsewhere.
    """
    for node in walk(values, inputs):
        op = node.op
        compares = isinstance(op, Operator) and any(given.dtype == BOOL for given in node.types)
        compared = node.inputs if compares and not isinstance(op, Composite) else ()
        if any(value.type.dtype == REAL and _is_partial_value(value) for value in compared):
            return True
        hidden = [node.inputs[position] for position in hidden_positions(node)]
        if any(_is_partial_value(value, sizes=False) for value in hidden):
            return True
        if isinstance(op, Composite) and loses_undefined(
            op.define(node.inputs, node.attributes), node.inputs
        ):
            return True
    return False


def _is_partial_value(value: Value, *, sizes: bool = True) -> bool:
    index = tuple(symbol(f"_c{axis}") for axis in range(len(value.shape)))
    return is_partial(read_unfolded(value, index), sizes=sizes)


_DOMAINS = {
    "reciprocal": frozenset({-1, 1}),
    "sqrt": frozenset({0, 1}),
    "log": frozenset({1}),
}
"""The signs of numbers at which partial functions are defined."""


@dataclass(frozen=True)
class Demand:
    """That `argument` lies in the domain of a partial function wherever `path` holds.

    Of a power, and of what may be any function, `argument` is the value, which is to be defined.
    """

    function: str
    argument: Normal
    path: Guards
    hidden: bool = False
    """Whether an infinity in its place would be hidden from the result, see `LOSING`."""

    @property
    def facts(self) -> tuple[str, ...]:
        """Conditions on the values of inputs that would meet it, see
        `xflow.core.value_conditions`."""
        if len(self.argument.terms) != 1:
            return ()
        (term,) = self.argument.terms
        relation = {"reciprocal": "!=", "sqrt": ">=", "log": ">"}.get(self.function)
        names = [base.tensor.lstrip("%") for base, _ in term.powers if isinstance(base, Element)]
        if relation is None or len(names) < len(term.powers):
            return ()
        return tuple(dict.fromkeys(f"{name} {relation} 0" for name in names))


def demands(
    scalar: Scalar, equality: Equality, path: Guards = (), hidden: bool = False
) -> Iterator[Demand]:
    """The demands of `scalar`, from `read_unfolded`, under which it is defined."""
    if not is_partial(scalar):
        return
    match scalar:
        case Plus(args) | Times(args):
            for arg in args:
                yield from demands(arg, equality, path, hidden)
        case SumOver(variable, 1, body) | MaxOver(variable, 1, body):
            yield from demands(substitute_scalar(body, {variable: 0}), equality, path, hidden)
        case (
            SumOver(variable, extent, body)
            | MaxOver(variable, extent, body)
            | ProductOver(variable, extent, body)
        ):
            inner = (*path, *in_range(symbol(variable), extent))
            yield from demands(body, equality, inner, hidden or isinstance(scalar, MaxOver))
        case If(conditions, _, _) if any(orders(conditions)):
            # What is compared is read first. Only then there are conditions that say something.
            for order in orders(conditions):
                yield from demands(order.left, equality, path, hidden=True)
                yield from demands(order.right, equality, path, hidden=True)
            choice = decided(scalar, equality.comparisons, path, folded)
            yield from demands(choice, equality, path, hidden=True)
        case If(conditions, then, other):
            for guards, branch in branches(conditions, then, other):
                if not equality.arithmetic.contradictory((*path, *guards)):
                    yield from demands(branch, equality, (*path, *guards), hidden)
        case Call(function, args):
            for arg in args:
                yield from demands(arg, equality, path, hidden or function in LOSING)
            if function in PARTIAL:
                # Of what may be any function, the demand is on the value itself.
                subjects = [(function, scalar if function in ARBITRARY else args[0])]
                if function == "power":
                    subjects = list(_power_subjects(scalar, equality, path))
                for partial, subject in subjects:
                    plain = with_signs(folded(subject), equality.comparisons, path, folded)
                    for guards, case in equality.normalizer.split(plain, path):
                        inner = (*path, *guards)
                        normal = equality.normalizer.normal(case, inner)
                        yield Demand(partial, normal, inner, hidden and partial in INFINITE)


def _power_subjects(power: Call, equality: Equality, path: Guards) -> Iterator[tuple[str, Scalar]]:
    """The arguments that must lie in the domain of a function for a power to be defined."""
    base, exponent = power.args
    plain = with_signs(folded(exponent), equality.comparisons, path, folded)
    constant = constant_of(equality.normalizer.normal(plain, path))
    if constant is None or constant.denominator > 2:
        # The domain depends on both arguments: the demand is on the power itself.
        yield "power", power
        return
    if constant.denominator == 2:
        yield "sqrt", base
    if constant < 0:
        yield "reciprocal", base


def outside(demand: Demand) -> Iterator[Demand]:
    """`demand` where a sum that it is read in, without its variable, has a summand."""
    symbols = frozenset[str]().union(*(guard.symbols for guard in demand.path))
    bound = {name for name in symbols if name.startswith("_k")}
    unused = sorted(bound - free_of_normal(demand.argument))
    for point in least_points(unused, demand.path) if unused else ():
        path = tuple(guard.substitute(point) for guard in demand.path)
        yield Demand(demand.function, demand.argument, path)


def _of_like_sign(base: Base, *, positive: bool) -> Iterator[Normal]:
    """What is positive where `base` is and nowhere else: its inverse, and its root."""
    yield make_normal([Term(Fraction(1), powers=((base, -1),))])
    if positive and isinstance(base, Function) and base.name == "sqrt":
        yield base.args[0]
    elif positive:
        inside = canonical(make_normal([Term(Fraction(1), powers=((base, 1),))]))
        yield make_normal([Term(Fraction(1), powers=((Function("sqrt", (inside,)), 1),))])


class Domain:
    """The demands of the left side, which may be assumed since it is defined.

    Elements of inputs in `unbounded` may be -inf.
    """

    def __init__(
        self,
        given: Iterable[Demand],
        equality: Equality,
        unbounded: frozenset[str] = frozenset(),
    ):
        self._equality = equality
        self._unbounded = unbounded
        self._given = [d for demand in dict.fromkeys(given) for d in (demand, *outside(demand))]

    @property
    def _arithmetic(self) -> Arithmetic:
        return self._equality.arithmetic

    def unmet(self, wanted: Iterable[Demand]) -> Demand | None:
        """The first demand that does not follow; None if all do."""
        return next((d for d in dict.fromkeys(wanted) if not self._met(d)), None)

    def _met(self, demand: Demand) -> bool:
        if self._is_given(demand):
            return True
        if demand.function not in PARTIAL:
            return False
        if demand.function in ARBITRARY:
            return demand.function in FIXING_ZERO and not demand.argument.terms
        domain = _DOMAINS.get(demand.function, frozenset())
        if self._possible_signs(demand.argument, demand.path) <= domain:
            return True
        if demand.function in ("sqrt", "log") and self._is_product_within(demand):
            return True
        if demand.function == "sqrt":
            return self._signs.is_nonnegative(demand.argument, demand.path)
        if demand.function == "log":
            return self._signs.is_positive(demand.argument, demand.path)
        if demand.function == "power":
            return self._power_defined(demand.argument, demand.path)
        return self._not_zero(demand.argument, demand.path)

    def _is_product_within(self, demand: Demand) -> bool:
        """Whether each factor of a product is in the domain of a root or a logarithm.

        As the left side takes the root or the logarithm of each: a product of numbers that are not
        negative is not, and one of positive numbers is positive. Quotients are products.
        """
        if len(demand.argument.terms) != 1:
            return False
        (term,) = demand.argument.terms
        if term.variables or term.guards or term.coefficient <= 0:
            return False
        positive = demand.function == "log"
        for base, exponent in term.powers:
            unit = make_normal([Term(Fraction(1), powers=((base, 1),))])
            if exponent % 2 == 0:
                if positive and not self._base_not_zero(base, demand.path):
                    return False
                continue
            functions = ("log",) if positive else ("sqrt", "log")
            given = any(
                self._is_given(replace(demand, function=function, argument=argument))
                for function in functions
                for argument in (unit, *_of_like_sign(base, positive=positive))
            )
            signs = self._signs
            shown = signs.is_positive if positive else signs.is_nonnegative
            if not given and not shown(unit, demand.path):
                return False
        return True

    def _is_given(self, demand: Demand) -> bool:
        """Whether the left side makes the same demand there, in one piece or in several."""
        parts: list[Guards] = []
        alike = [given for given in self._given if given.function == demand.function]
        for given in sorted(alike, key=lambda each: each.argument != demand.argument):
            for each in self._at(given, demand):
                both = (*demand.path, *each.path)
                if self._arithmetic.contradictory(both):
                    continue
                if self._says(each, demand, both):
                    if self._reaches(demand.path, each.path):
                        return True
                    parts.append(each.path)
        # As of one choice on the left side, where both branches ask for it.
        return len(parts) > 1 and self._arithmetic.covered(demand.path, parts)

    def _says(self, given: Demand, demand: Demand, path: Guards) -> bool:
        """Whether the argument of `demand` is in the domain since that of `given` is."""
        if given.function in ARBITRARY:
            return self._equality.equal(demand.argument, given.argument, path)
        return self._multiple(demand.argument, given.argument, path, given.function)

    def _possible_signs(self, normal: Normal, path: Guards) -> frozenset[int]:
        """The signs that the comparisons on `path` leave to a number."""
        for guard in path:
            for atom in opaque_integers(guard.difference):
                if not isinstance(atom, Sign):
                    continue
                negated = make_normal(scale(atom.normal.terms, Fraction(-1)))
                for factor, compared in ((1, atom.normal), (-1, negated)):
                    if self._multiple(normal, compared, path):
                        sign = factor * atom_size(atom)
                        return frozenset(
                            value
                            for value in (-1, 0, 1)
                            if not self._arithmetic.contradictory((*path, equal(sign, value)))
                        )
        return frozenset({-1, 0, 1})

    def _power_defined(self, power: Normal, path: Guards) -> bool:
        """Whether a power is one of a positive number, which is defined for any exponent."""
        if len(power.terms) != 1 or len(power.terms[0].powers) != 1:
            return False
        base, _ = power.terms[0].powers[0]
        return (
            isinstance(base, Function)
            and base.name == "power"
            and not power.terms[0].guards
            and not power.terms[0].variables
            and self._signs.is_positive(base.args[0], path)
        )

    def _at(self, given: Demand, demand: Demand) -> Iterator[Demand]:
        """What is given for all values of bound variables, at values that may give `demand`."""
        yield given
        symbols = free_of_normal(given.argument).union(*(guard.symbols for guard in given.path))
        names = {name: f"{name}'" for name in sorted(symbols) if name.startswith("_k")}
        if not names or given.function != demand.function:
            return
        renamed = substitute_normal(given.argument, {k: symbol(v) for k, v in names.items()})
        sources = [e for term in renamed.terms for e in elements(term.powers)]
        targets = [e for term in demand.argument.terms for e in elements(term.powers)]
        unknown = frozenset(names.values())
        for solution in islice(self._equality.solve(sources, targets, unknown, {}), MAX_INSTANCES):
            values = {old: solution[new] for old, new in names.items()}
            path = tuple(guard.substitute(values) for guard in given.path)
            yield Demand(given.function, substitute_normal(given.argument, values), path)

    def _reaches(self, path: Guards, given: Guards) -> bool:
        return all(self._arithmetic.implied(guard, path) for guard in given)

    def _multiple(self, left: Normal, right: Normal, path: Guards, given: str = "") -> bool:
        """Whether `left` is a positive multiple of `right`, which a function `given` is applied to.

        Exponentials that both sides have apart do not count. One that may be 0 does; but where a
        product is not 0, neither are its factors.
        """
        if not left.terms or not right.terms:
            return left == right
        left = self._without_exponentials(left)
        if given in ("reciprocal", "log"):
            right = split_exponentials(right)[1]
        else:
            right = self._without_exponentials(right)
        a, b = abs(left.terms[0].coefficient), abs(right.terms[0].coefficient)
        return self._equality.equal(
            make_normal(scale(left.terms, 1 / a)), make_normal(scale(right.terms, 1 / b)), path
        )

    def _without_exponentials(self, normal: Normal) -> Normal:
        """`normal` divided by common exponentials that are positive: of -inf they are 0."""
        powers: dict[Base, int] = {
            base: exponent
            for base, exponent in split_exponentials(normal)[0].items()
            if isinstance(base, Function) and not self._signs.may_vanish(base.args[0])
        }
        return without_powers(normal, powers) if powers else normal

    def _not_zero(self, normal: Normal, path: Guards) -> bool:
        if len(normal.terms) == 1:
            (term,) = normal.terms
            if not term.variables and not term.guards:
                return all(self._base_not_zero(base, path) for base, _ in term.powers)
        return self._group_not_zero(normal, path)

    def _base_not_zero(self, base: Base, path: Guards) -> bool:
        if isinstance(base, SizeAtom) and self._arithmetic.contradictory(
            (*path, equal(base.size, 0))
        ):
            return True
        if isinstance(base, Group):
            return True  # it occurs in a denominator already
        if isinstance(base, Element) and self._signs.fact(base) in ("!=", ">"):
            return True
        match base:
            case Function("exp", (argument,)):
                return not self._signs.may_vanish(argument)
            case Function("sqrt", (argument,)) if self._not_zero(argument, path):
                return True
        unit = make_normal([Term(Fraction(1), powers=((base, 1),))])
        return self._group_not_zero(unit, path)

    def _group_not_zero(self, normal: Normal, path: Guards) -> bool:
        for given in self._given:
            if given.function not in ("reciprocal", "log") or not self._reaches(path, given.path):
                continue
            if self._multiple(normal, given.argument, path, given.function):
                return True
            # A product that is not 0 has no factor that is. That its divisors are not 0 is a
            # demand of its own.
            for base, exponent in common_powers(given.argument.terms).items():
                if exponent < 0:
                    continue
                unit = make_normal([Term(Fraction(1), powers=((base, 1),))])
                if self._equality.equal(normal, unit, path):
                    return True
                # Nor does it have the root of one.
                if (
                    isinstance(base, Function)
                    and base.name == "sqrt"
                    and self._equality.equal(normal, base.args[0], path)
                ):
                    return True
        return self._signs.is_positive(normal, path)

    @property
    def _signs(self) -> Signs:
        known = self._equality.normalizer
        return Signs(self._arithmetic, known.facts, self._unbounded, known.ranges)
