"""Checks that the right side is defined wherever the left side is.

Over the reals a reciprocal needs an argument that is not 0, a root one that is not negative, a
logarithm a positive one. The needs of the left side may be assumed, unless the runtime has an
infinity where one is not met and makes a number of it; the needs of the right side must be among
these, or follow from signs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from xflow.core.composite import Composite
from xflow.core.constraint import Constraint, at_least, equal
from xflow.core.evaluation import read
from xflow.core.node import Leaf, Node, Value, hidden_positions
from xflow.core.registry import Operator, Reader
from xflow.core.size import Size, symbol
from xflow.core.sorts import BOOL, REAL
from xflow.core.spec import (
    ARBITRARY,
    FIXING_ZERO,
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
)
from xflow.verifier.recheck.abstraction import is_nonnegative, is_not_zero, is_positive
from xflow.verifier.recheck.comparisons import decided, orders, signed
from xflow.verifier.recheck.expand import NOTHING, Expansion, cases_of, changed, span_of
from xflow.verifier.recheck.forms import (
    Apply,
    Atom,
    Factor,
    Most,
    Nested,
    Read,
    Sum,
    Term,
    Unreplayable,
    replace_sum,
    scaled,
    term,
)
from xflow.verifier.recheck.groups import least_point
from xflow.verifier.recheck.laws import (
    constant_of,
    function_terms,
    inverse,
    may_vanish,
    without_exponentials,
)
from xflow.verifier.recheck.replay import Replay
from xflow.verifier.recheck.unknowns import Given

DOMAINS: Mapping[str, str] = {
    "reciprocal": "not 0",
    "sqrt": "not negative",
    "log": "positive",
    "power": "in its domain",
    **dict.fromkeys(ARBITRARY, "in its domain"),
}
"""The functions that are not defined everywhere, and what their argument must be."""
RELATIONS: Mapping[str, str] = {"reciprocal": "!=", "sqrt": ">=", "log": ">"}
"""The same as relations to 0."""
ENDLESS = ("reciprocal", "log", "power", *ARBITRARY)
"""The functions that are infinite in floating-point arithmetic where their domain ends."""
BOUNDED = ("exp", "tanh", "erf", "sign", "max", "min", "reciprocal", "power", *ARBITRARY)
"""The functions that may make a number of an infinity, as comparisons do."""
MAX_VALUES = 64
"""Values of bound variables that are tried for each thing that the left side needs."""
Guards = tuple[Constraint, ...]


def read_whole(value: Value, index: Index) -> Scalar:
    """`xflow.core.evaluation.read` with `NOTHING` for 0: it still has every factor that must be
    defined."""
    node = value.node
    if isinstance(node.op, Leaf):
        return read(value, index)
    assert isinstance(node.op, Operator), node.op
    if isinstance(node.op, Composite):
        return read_whole(node.op.define(node.inputs, node.attributes)[value.index], index)

    def reader(source: Value) -> Reader:
        return lambda i: read_whole(source, i)

    shapes = [source.shape for source in node.inputs]
    inputs = [reader(source) for source in node.inputs]
    made = node.op.at(inputs, shapes, node.attributes, value.index, tuple(index))
    # Booleans and indices are not multiplied: their zeros make nothing disappear.
    return NOTHING if made == ZERO and value.type.dtype == REAL else made


def loses_partial(values: Iterable[Value]) -> bool:
    """Whether an operator compares or hides real numbers that are not defined everywhere.

    It has a result for NaN and infinities, too. So it does not show that they are numbers.
    """
    seen = set[Node]()
    stack = [value.node for value in values]
    while stack:
        node = stack.pop()
        if node in seen or isinstance(node.op, Leaf):
            continue
        seen.add(node)
        assert isinstance(node.op, Operator), node.op
        if any(_is_undefined(node.inputs[k], sizes=False) for k in hidden_positions(node)):
            return True
        if isinstance(node.op, Composite):
            stack += [each.node for each in node.op.define(node.inputs, node.attributes)]
            continue
        for source in node.inputs:
            compared = source.type.dtype == REAL and node.types[0].dtype == BOOL
            if compared and _is_undefined(source):
                return True
            stack.append(source.node)
    return False


def _is_undefined(value: Value, *, sizes: bool = True) -> bool:
    index = tuple(symbol(f"_i{axis}") for axis in range(len(value.shape)))
    return is_partial(read_whole(value, index), sizes=sizes)


def without_nothing(scalar: Scalar) -> Scalar:
    """A scalar of `read_whole` with 0 as 0 again."""
    if isinstance(scalar, Element):
        return ZERO if scalar == NOTHING else scalar
    return changed(scalar, without_nothing)


@dataclass(frozen=True)
class Need:
    """That `argument` lies in the domain of a function wherever `path` holds."""

    function: str
    argument: Sum
    path: Guards
    variables: tuple[str, ...] = ()
    """The bound variables around it: it is needed for each of their values on the path."""
    is_masked: bool = False
    """Whether there may be a number all the same where it is not met, see `BOUNDED`."""

    def at(self, values: Mapping[str, Size]) -> Need:
        """The need at some values of the bound variables."""
        path = tuple(g.substitute(values) for g in self.path)
        return Need(self.function, replace_sum(self.argument, values), path)


def needs(
    scalar: Scalar,
    expansion: Expansion,
    path: Guards = (),
    variables: tuple[str, ...] = (),
    masked: bool = False,
) -> Iterator[Need]:
    """The needs of `scalar`, from `read_whole`, to be defined. Raises Unreplayable.

    `masked` says that it is read by what may make a number of an infinity.
    """
    if not is_partial(scalar):
        return
    match scalar:
        case Plus(args) | Times(args):
            for arg in args:
                yield from needs(arg, expansion, path, variables, masked)
        case (
            SumOver(variable, extent, body)
            | MaxOver(variable, extent, body)
            | ProductOver(variable, extent, body)
        ):
            inside = (*path, *span_of(variable, extent, path))
            below = masked or (isinstance(scalar, MaxOver) and extent != 1)
            yield from needs(body, expansion, inside, (*variables, variable), below)
        case If(conditions, then, other):
            for count, condition in enumerate(conditions):
                # A condition is asked where those before it hold.
                inside = (*path, *_before(conditions[:count]))
                for found in orders((condition,)):
                    for side in (found.left, found.right):
                        yield from needs(side, expansion, inside, variables, masked=True)
            if any(orders(conditions)):
                made = decided(If(conditions, then, other), expansion, path)
                yield from needs(made, expansion, path, variables, masked=True)
                return
            for guards, branch in cases_of(conditions, then, other, path):
                yield from needs(branch, expansion, (*path, *guards), variables, masked)
        case Call(function, args):
            for arg in args:
                yield from needs(arg, expansion, path, variables, masked or function in BOUNDED)
            for need in _needs_of_call(scalar, expansion, path):
                infinite = need.function in ENDLESS
                yield replace(need, variables=variables, is_masked=masked and infinite)


def known_of(given: Sequence[Need]) -> list[Given]:
    """The needs of the left side at the output's index itself."""
    return [
        Given(RELATIONS[need.function], need.argument, need.path)
        for need in given
        if not need.variables and need.function in RELATIONS
    ]


def _needs_of_call(scalar: Call, expansion: Expansion, path: Guards) -> Iterator[Need]:
    """The need of a function itself, its arguments being defined."""
    if scalar.function == "power":
        yield from _needs_of_power(scalar, expansion, path)
    elif scalar.function in DOMAINS:
        # Of what may be any function, its value is to be defined.
        subject = scalar if scalar.function in ARBITRARY else scalar.args[0]
        for guards, case in expansion.lifted(
            signed(without_nothing(subject), expansion, path), path
        ):
            here = (*path, *guards)
            yield Need(scalar.function, expansion.sum_of(case, here), here)


def _needs_of_power(scalar: Call, expansion: Expansion, path: Guards) -> Iterator[Need]:
    """The needs of roots and quotients for a literal exponent; else the power itself."""
    for guards, case in expansion.lifted(signed(without_nothing(scalar), expansion, path), path):
        here = (*path, *guards)
        assert isinstance(case, Call)
        base, exponent = (expansion.sum_of(arg, here) for arg in case.args)
        constant = constant_of(exponent)
        if constant is None or constant.denominator > 2:
            yield Need("power", expansion.sum_of(case, here), here)
            continue
        if constant < 0:
            yield Need("reciprocal", base, here)
        if constant.denominator == 2:
            yield Need("sqrt", base, here)


def _before(conditions: Guards) -> Guards:
    """The conditions before another one. Raises Unreplayable where one of them compares."""
    if any(orders(conditions)):
        raise Unreplayable("a condition that is asked only after a comparison")
    return conditions


def is_partial(scalar: Scalar, *, sizes: bool = True) -> bool:
    """Whether it may be undefined; with `sizes`, also for some sizes alone."""

    def inside(part: Scalar) -> bool:
        return is_partial(part, sizes=sizes)

    match scalar:
        case Plus(args) | Times(args):
            return any(map(inside, args))
        case SumOver(_, _, body) | MaxOver(_, _, body) | ProductOver(_, _, body):
            return inside(body)
        case If(conditions, then, other):
            compared = (s for found in orders(conditions) for s in (found.left, found.right))
            return any(map(inside, (*compared, then, other)))
        case Call(function, args):
            own = function in DOMAINS and (sizes or any(map(tensors, args)))
            return own or any(map(inside, args))
    return False


def tensors(scalar: Scalar) -> frozenset[str]:
    """The inputs of which elements are in `scalar`, also those that are compared."""
    parts: Sequence[Scalar] = ()
    match scalar:
        case Element(tensor, _):
            return frozenset() if tensor.startswith("%") else frozenset({tensor})
        case Plus(args) | Times(args) | Call(_, args):
            parts = args
        case SumOver(_, _, body) | MaxOver(_, _, body) | ProductOver(_, _, body):
            parts = (body,)
        case If(conditions, then, other):
            compared = [s for found in orders(conditions) for s in (found.left, found.right)]
            parts = (then, other, *compared)
    return frozenset[str]().union(*map(tensors, parts))


def _of_like_sign(need: Need) -> Iterator[Need]:
    """That what is positive where the argument is, and nowhere else, is in the same domain."""
    if need.function not in ("sqrt", "log") or not need.argument.terms:
        return
    yield replace(need, argument=Sum((inverse(need.argument),)))
    if need.function == "log":
        match need.argument.terms:
            case (Term(coefficient, (), (), ((Apply("sqrt", (inside,)), 1),)),) if coefficient > 0:
                yield replace(need, argument=inside)
        yield replace(need, argument=Sum(tuple(function_terms("sqrt", [need.argument]))))


class Definedness:
    """The facts that hold because the left side is defined, and what they imply.

    `facts` holds relations to 0 of all elements of some inputs: ``!=``, ``>`` or ``>=``. Elements
    of inputs in `unbounded` may be -inf: an exponential of them is not positive then, but 0.
    """

    def __init__(
        self,
        replay: Replay,
        given: list[Need],
        facts: Mapping[str, str],
        unbounded: frozenset[str] = frozenset(),
    ):
        self._unbounded = unbounded
        self._replay = replay
        self._questions = replay.questions
        self._given = given
        self._bound: set[str] = set()
        """The bound variables of the right side."""
        self._facts = facts

    def unmet(self, need: Need) -> str | None:
        """Why `need` does not follow; None if it does."""
        self._bound |= set(need.variables)
        if self._questions.contradictory(need.path) or self._is_met(need):
            return None
        return f"the argument of {need.function} is not shown to be {DOMAINS[need.function]}"

    def _is_met(self, need: Need) -> bool:
        # What is seen from signs comes first: that two sums are not the same takes seconds.
        if need.function in RELATIONS and self._positive(need.argument, need.path):
            return True
        if any(
            self._same(each, given)
            for each in (need, *_of_like_sign(need))
            for given in self._known(need.variables)
        ):
            return True
        if need.function in ("sqrt", "log") and self._factors_are_met(need):
            return True
        match need.function:
            case "sqrt":
                return self._at_least_zero(need.argument, need.path) or is_nonnegative(
                    need.argument, need.path, self._replay, self._unbounded
                )
            case "log":
                return is_positive(need.argument, need.path, self._replay, self._unbounded)
            case "power":
                return False
            case name if name in ARBITRARY:
                # It is 0 at 0, or nothing is known of it.
                return name in FIXING_ZERO and not need.argument.terms
        return self._not_zero(need.argument, need.path)

    def _factors_are_met(self, need: Need) -> bool:
        """Whether the argument of a root or a logarithm is a product of numbers in its domain."""
        if len(need.argument.terms) != 1:
            return False
        (only,) = need.argument.terms
        if only.variables or only.guards or only.coefficient <= 0:
            return False
        if [exponent for _, exponent in only.factors] == [1] and only.coefficient == 1:
            return False  # it is the number itself
        for factor, exponent in only.factors:
            if exponent % 2 == 0:
                if need.function == "log" and not self._factor_not_zero(factor, need.path):
                    return False
                continue
            alone = Sum((term(Fraction(1), factors=[(factor, 1)]),))
            if not self._is_met(replace(need, argument=alone)):
                return False
        return True

    def _known(self, variables: Sequence[str]) -> Iterator[Need]:
        """The needs of the left side, at values of its variables over some of the right side's."""
        for given in self._given:
            choices: list[Size] = [*map(symbol, variables), 0]
            values = itertools.product(choices, repeat=len(given.variables))
            for chosen in itertools.islice(values, MAX_VALUES):
                yield given.at(dict(zip(given.variables, chosen, strict=True)))

    def _same(self, need: Need, given: Need) -> bool:
        """Whether `given` asks for as much of a positive multiple of the same argument.

        Of a function of which nothing is known, for the same value of it: of the same arguments.
        """
        enough = {
            "reciprocal": ("reciprocal", "log"),
            "sqrt": ("sqrt", "log"),
        }.get(need.function, (need.function,))
        if given.function not in enough or not all(
            self._questions.implied(g, need.path) for g in given.path
        ):
            return False
        if need.function in ARBITRARY:
            return self._replay.equal(need.argument, given.argument, need.path)
        return self._proportional(need.argument, given, need.path, need.function == "reciprocal")

    def _proportional(self, left: Sum, given: Need, path: Guards, any_sign: bool) -> bool:
        """Whether `left` is a multiple of the argument of `given`, by a factor that is not 0."""
        left = without_exponentials(left, self._unbounded)
        # Where a product is not 0, its factors are not; that one is not negative tells nothing.
        vanishing = self._unbounded if given.function == "sqrt" else frozenset[str]()
        right = without_exponentials(given.argument, vanishing)
        if not left.terms or not right.terms:
            return False
        for a in dict.fromkeys(abs(t.coefficient) for t in left.terms):
            ratio = abs(right.terms[0].coefficient) / a
            signs = (1, -1) if any_sign else (1,)
            if any(self._replay.equal(scaled(left, ratio * s), right, path) for s in signs):
                return True
        return False

    def _not_zero(self, total: Sum, path: Guards) -> bool:
        return self._plainly_not_zero(total, path) or is_not_zero(
            total, path, self._replay, self._unbounded
        )

    def _plainly_not_zero(self, total: Sum, path: Guards) -> bool:
        if len(total.terms) == 1:
            (only,) = total.terms
            if not only.variables and not only.guards:
                # a reciprocal is never 0
                return all(e < 0 or self._factor_not_zero(f, path) for f, e in only.factors)
        return self._positive(total, path) or self._known_not_zero(total, path)

    def _factor_not_zero(self, factor: Factor, path: Guards) -> bool:
        match factor:
            case Atom(size):
                return self._questions.contradictory((*path, equal(size, 0)))
            case Apply("pi", _):
                return True
            case Apply("exp", (argument,)) if not may_vanish(argument, self._unbounded):
                return True
            case Apply("sqrt", (argument,)):
                if self._not_zero(argument, path):
                    return True
            case Read(tensor, _) if self._facts.get(tensor.lstrip("%")) in ("!=", ">"):
                return True
        alone = Sum((term(Fraction(1), factors=[(factor, 1)]),))
        return self._positive(alone, path) or self._known_not_zero(alone, path)

    def _known_not_zero(self, total: Sum, path: Guards) -> bool:
        """Whether the left side divides by `total`, or by a product with it as a factor."""
        bound = sorted(set().union(*(g.symbols for g in path)) & self._bound)
        for given in self._known(bound):
            if given.function not in ("reciprocal", "log"):
                continue
            if not all(self._questions.implied(g, path) for g in given.path):
                continue
            if self._proportional(total, given, path, True):
                return True
            if len(given.argument.terms) == 1:
                (only,) = given.argument.terms
                if not only.variables and not only.guards:
                    for factor, exponent in only.factors:
                        if exponent < 0:
                            continue  # the divisor has a need of its own, masked perhaps
                        alone = Sum((term(Fraction(1), factors=[(factor, 1)]),))
                        if self._replay.equal(total, alone, path):
                            return True
                        # A number is not 0 where its root is not.
                        match factor:
                            case Apply("sqrt", (argument,)) if self._replay.equal(
                                total, argument, path
                            ):
                                return True
        return False

    def _at_least_zero(self, total: Sum, path: Guards) -> bool:
        return all(
            t.coefficient > 0
            and all(e % 2 == 0 or self._factor_at_least_zero(f, path, t) for f, e in t.factors)
            for t in total.terms
        )

    def _factor_at_least_zero(self, factor: Factor, path: Guards, part: Term) -> bool:
        here = (*path, *part.guards)
        match factor:
            case Apply("exp" | "pi" | "sqrt", _):
                return True
            case Atom(size):
                return self._questions.implied(at_least(size, 0), here)
            case Read(tensor, _):
                return self._facts.get(tensor.lstrip("%")) in (">", ">=")
            case Nested(body):
                return self._at_least_zero(body, here)
            case Most(choices):
                return any(
                    not c.variables and not c.guards and self._at_least_zero(c.body, here)
                    for c in choices
                )
        return False

    def _positive(self, total: Sum, path: Guards) -> bool:
        return self._at_least_zero(total, path) and any(
            self._term_positive(t, path) for t in total.terms
        )

    def _term_positive(self, part: Term, path: Guards) -> bool:
        """Whether all summands of a term are positive, and there is one."""
        reached = least_point(part)
        here = (*path, *part.guards)
        return (
            reached is not None
            and all(self._questions.implied(g, path) for g in reached)
            and all(self._factor_positive(f, here) for f, _ in part.factors)
        )

    def _factor_positive(self, factor: Factor, path: Guards) -> bool:
        match factor:
            case Apply("pi", _):
                return True
            case Apply("exp", (argument,)):
                return not may_vanish(argument, self._unbounded)
            case Apply("sqrt", (arg,)):
                return self._positive(arg, path)
            case Atom(size):
                return self._questions.implied(at_least(size, 1), path)
            case Read(tensor, _):
                return self._facts.get(tensor.lstrip("%")) == ">"
            case Nested(body):
                return self._positive(body, path)
        return False
