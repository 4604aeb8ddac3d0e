"""Checks which elements of inputs the sides read, and whether NaN or infinities can get lost.

A rule is shown for inputs of numbers, and used on inputs whose elements may be NaN, infinite or not
defined at all. It may be, where each element that matters is a number whenever the left side has a
value. What matters is each element that the right side reads, and each that the left side reads by
way of a comparison or a function that may make a number of an infinity. That an element is a number
follows from the conditions on its input, or because the left side reads it with nothing like that
on the way: then the left side has no value where the element is none.

Elements may also be -inf where both sides converge as such an element goes to -inf. They do if it
is only added, and compared by maxima and minima, and if no function above an exponential of that
jumps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

from xflow.core.constraint import Constraint, Relation, equal
from xflow.core.size import Size, coefficient_of, divide, free_symbols, substitute, symbol
from xflow.core.spec import (
    ARBITRARY,
    Bottom,
    Call,
    Element,
    If,
    Index,
    Literal,
    MaxOver,
    OfSize,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    all_comparisons,
)
from xflow.core.value_conditions import BELOW_INFINITY, SIGNS, Fact
from xflow.verifier.recheck.comparisons import Known, decided, orders
from xflow.verifier.recheck.defined import BOUNDED, read_whole
from xflow.verifier.recheck.digits import without_quotients
from xflow.verifier.recheck.expand import Expansion, cases_of, span_of
from xflow.verifier.recheck.forms import Read, Unreplayable, fresh, term
from xflow.verifier.recheck.hidden import RESULTS, Shown
from xflow.verifier.recheck.replay import Replay
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.tidy import Tidying, quotients_in

ORDERED = ("max", "min")
"""Functions that give the least that they may be where an argument goes to -inf, or another one."""
UNSTEADY = ("sign", "floor", "round", "nearest", "power", *ARBITRARY)
"""Functions that jump."""
MAX_SOLUTIONS = 24
"""Places on the left side that are tried for each element."""
MAX_PARTS = 12
"""Places that may have to be put together to cover one."""
MAX_DIGITS = 4
Guards = tuple[Constraint, ...]
Values = Mapping[str, Size]


@dataclass(frozen=True)
class Use:
    """That a side reads ``tensor[index]`` for all values of `variables` on the path."""

    tensor: str
    index: tuple[Size, ...]
    path: Guards = ()
    variables: tuple[str, ...] = ()
    is_lost: bool = False
    """Whether there may be a number all the same where the element is none, see `BOUNDED`."""
    is_steady: bool = True
    """Whether the side goes to a limit as the element goes to -inf."""

    @property
    def name(self) -> str:
        """The input, as `where` and `limits` name it."""
        return self.tensor

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class _Context:
    """The context in which a part of a side is read."""

    path: Guards = ()
    variables: tuple[str, ...] = ()
    is_lost: bool = False
    is_added: bool = True
    """Whether nothing is around it but sums, maxima and minima, up to an exponential at least."""
    is_steady: bool = True
    """Whether nothing around it jumps."""

    def under(self, *guards: Constraint) -> _Context:
        return replace(self, path=(*self.path, *guards))

    def over(self, variable: str, extent: Size) -> _Context:
        span = span_of(variable, extent, self.path)
        return replace(self, path=(*self.path, *span), variables=(*self.variables, variable))


def uses(scalar: Scalar, expansion: Expansion, around: _Context = _Context()) -> Iterator[Use]:
    """The elements that `scalar`, from `read_whole`, reads. Raises Unreplayable.

    It is to be made, and looked into, where comparisons of a number with itself are kept, see
    `xflow.core.spec.all_comparisons`.
    """
    match scalar:
        case Literal() | OfSize() | Bottom():
            return
        case Element(tensor, index):
            if not tensor.startswith("%"):  # numbers: those of attributes, and the constant 0
                yield Use(
                    tensor,
                    tuple(index),
                    around.path,
                    around.variables,
                    around.is_lost,
                    around.is_added,
                )
        case Plus(args):
            for arg in args:
                yield from uses(arg, expansion, around)
        case Times(args):
            scales = [a for a in args if isinstance(a, Literal) and a.value > 0]
            multiplied = len(args) - len(scales) != 1
            inside = replace(around, is_added=around.is_added and not multiplied)
            for arg in args:
                yield from uses(arg, expansion, inside)
        case SumOver(variable, extent, body):
            yield from uses(body, expansion, around.over(variable, extent))
        case MaxOver(variable, extent, body):
            inside = around.over(variable, extent)
            yield from uses(body, expansion, replace(inside, is_lost=inside.is_lost or extent != 1))
        case ProductOver(variable, extent, body):
            inside = replace(around.over(variable, extent), is_added=False)
            yield from uses(body, expansion, inside)
        case If(conditions, then, other):
            if any(orders(conditions)):
                yield from _uses_of_comparison(scalar, expansion, around)
                return
            for guards, branch in cases_of(conditions, then, other, around.path):
                yield from uses(branch, expansion, around.under(*guards))
        case Call(function, args):
            inside = replace(
                around,
                is_lost=around.is_lost or function in BOUNDED,
                is_steady=around.is_steady and function not in UNSTEADY,
                # Whatever is around an exponential, of -inf it is the number 0.
                is_added=(
                    around.is_steady
                    if function == "exp"
                    else around.is_added and function in ORDERED
                ),
            )
            for arg in args:
                yield from uses(arg, expansion, inside)
        case _:
            raise Unreplayable(f"{type(scalar).__name__} has no replay")


def _uses_of_comparison(choice: If, expansion: Expansion, around: _Context) -> Iterator[Use]:
    """The elements that a choice by comparisons reads: operands, and those of one branch."""
    inside = replace(around, is_lost=True, is_added=False, is_steady=False)
    for found in orders(choice.conditions):
        for side in (found.left, found.right):
            yield from uses(side, expansion, inside)
    try:
        made = decided(choice, expansion, around.path)
    except Unreplayable:  # if an operand cannot be read, either branch may be selected
        for branch in (choice.then, choice.other):
            yield from uses(branch, expansion, inside)
    else:
        yield from uses(made, expansion, inside)


def elements_of(
    shown: Shown,
    index: Index,
    questions: Questions,
    facts: Iterable[Fact],
    *,
    in_digits: bool = False,
) -> Elements:
    """The elements that both sides of an output read at `index`.

    Raises Unreplayable.
    """
    facts = tuple(facts)
    tidying = Tidying(questions)
    signs = {f.name: f.relation for f in facts if f.relation in SIGNS}
    replay = Replay(questions, tidying, facts=signs)
    known = Known(lambda a, b: replay.equal(a, b, ()))
    expansion = Expansion(questions.contradictory, tidying.tidy, known.sign, questions.codes)
    with all_comparisons():
        left, right = (read_whole(side, index) for side in shown.sides)
        if in_digits:
            left, right = (without_quotients(side, questions) for side in (left, right))
        return Elements(
            left, right, expansion, questions, facts, hidden=shown.hidden, unsteady=shown.unsteady
        )


class Elements:
    """The elements that the two sides of an output read, and which of them are numbers.

    `facts` are the conditions on inputs. Of the inputs in `hidden`, the left side may be a number
    all the same where an element is none, and of those in `unsteady` none may be -inf, see
    `xflow.verifier.recheck.hidden`. Raises Unreplayable where a side cannot be read.
    """

    def __init__(
        self,
        left: Scalar,
        right: Scalar,
        expansion: Expansion,
        questions: Questions,
        facts: Iterable[Fact],
        *,
        hidden: frozenset[str] = frozenset(),
        unsteady: frozenset[str] = frozenset(),
    ):
        facts = tuple(facts)
        self._questions = questions
        self._tidying = Tidying(questions)
        self._numbers = {f.name for f in facts if f.relation != BELOW_INFINITY} | {*questions.codes}
        read = (
            replace(use, is_lost=True, is_steady=use.is_steady and use.name in self._numbers)
            if use.name in hidden
            else use
            for use in uses(left, expansion)
        )
        self._left = list(dict.fromkeys(read))
        self._right = list(dict.fromkeys(uses(right, expansion)))
        everything = (*self._left, *self._right)
        self.unsteady = unsteady | {use.name for use in everything if not use.is_steady}
        """The inputs of which no element may be -inf: a side need not go to a limit there."""
        below = {f.name for f in facts if f.relation == BELOW_INFINITY}
        self._below_infinity = frozenset(below - self.unsteady)
        self._given: dict[str, list[Use]] = {}
        for use in self._left:
            if not use.is_lost:
                self._given.setdefault(use.name, []).extend(self._in_digits(use))

    def unshown(self) -> str | None:
        """An element that matters and is not shown to be a number, in words; None if all are."""
        if any(use.name == RESULTS and use.is_lost for use in self._left):
            return "what a kernel computes may be lost"  # which one that is, is not told apart
        owed = [*self._right, *(use for use in self._left if use.is_lost)]
        for use in dict.fromkeys(replace(u, is_lost=False, is_steady=True) for u in owed):
            if use.name in self._numbers or use.name in self._below_infinity:
                continue
            if not self._is_number(use):
                return f"{use} is not shown to be a number"
        return None

    def unbounded(self, limits: Iterable[str]) -> frozenset[str]:
        """The inputs of which elements may be -inf by the conditions or by the line ``limits``."""
        names = self._below_infinity | frozenset(limits)
        return names - self._numbers - self.unsteady

    def _is_number(self, use: Use) -> bool:
        """Whether the left side has no value wherever the element is none."""
        *_, use = self._in_digits(use)
        given = self._given.get(use.name, ())
        if self._is_covered([(each, use) for each in given]):
            return True
        given = [each for each in given if len(each.index) == len(use.index)]
        for pieces in (_independent(each, use) for each in given if len(each.variables) > 1):
            if all(self._is_covered([piece]) for piece in pieces):
                return True
        return self._questions.contradictory(use.path)  # mostly it is not, which takes long

    def _is_covered(self, pairs: Iterable[tuple[Use, Use]]) -> bool:
        """Whether wherever the second of each pair, of one path, is read, the first of one is."""
        parts: dict[Guards, None] = {}
        path: Guards = ()
        for given, use in pairs:
            path = use.path
            for values in islice(_solutions(given, use), MAX_SOLUTIONS):
                needed = _needed(given, use, values)
                if needed is not None:
                    parts[needed] = None
                if not needed and needed is not None:
                    return True
        # Places with the fewest conditions that are not known as they stand come first.
        known = {*path, *self._questions.assumed}
        rest = sorted(parts, key=lambda needed: sum(c not in known for c in needed))
        if any(all(self._questions.implied(c, path) for c in needed) for needed in rest):
            return True
        return len(rest) > 1 and self._questions.covered(path, rest[:MAX_PARTS])

    def _in_digits(self, use: Use) -> list[Use]:
        """The same places as they are, and with bound variables in digits if that is another way.

        Bound variables of what is returned occur nowhere else.
        """
        read = Read(use.tensor, use.index)
        names = [fresh() for _ in use.variables]
        values = dict(zip(use.variables, map(symbol, names), strict=True))
        part = term(
            Fraction(1),
            names,
            (g.substitute(values) for g in use.path),
            [(Read(read.tensor, tuple(substitute(i, values) for i in read.index)), 1)],
        )
        made = [part]
        for _ in range(MAX_DIGITS):
            if not any(True for i in use.index for _ in quotients_in(i)):
                break
            split = self._tidying.in_digits(made[-1], ())
            if split is None:
                break
            made.append(split)
        found = []
        for each in (made[0], made[-1]):
            ((factor, _),) = each.factors
            assert isinstance(factor, Read)
            found.append(Use(use.tensor, factor.index, each.guards, each.variables))
        return list(dict.fromkeys(found))


def _independent(given: Use, use: Use) -> list[tuple[Use, Use]]:
    """Pairs of parts of `given` and of `use`, in which different variables of `given` occur.

    No condition connects these. So there are values for all of them at which `given` is `use`, if
    there are for each part, as for each axis of a window.
    """
    variables = frozenset(given.variables)
    groups = [frozenset[str](), *(frozenset({name}) for name in given.variables)]
    for names in (*map(free_symbols, given.index), *(guard.symbols for guard in given.path)):
        joined = frozenset[str]().union(*(group for group in groups if group & names))
        groups = [*(group for group in groups if not group & names), *([joined] if joined else ())]
    pairs = []
    for group in groups:

        def belongs(names: frozenset[str], group: frozenset[str] = group) -> bool:
            return bool(names & group) if group else not names & variables

        places = [k for k, i in enumerate(given.index) if belongs(free_symbols(i))]
        part = Use(
            given.tensor,
            tuple(given.index[k] for k in places),
            tuple(guard for guard in given.path if belongs(guard.symbols)),
            tuple(name for name in given.variables if name in group),
        )
        pairs.append((part, replace(use, index=tuple(use.index[k] for k in places))))
    return pairs


def _needed(given: Use, use: Use, values: Values) -> Guards | None:
    """Conditions under which `given`, at values of its variables, is `use`; None for never."""
    try:
        needed = [g.substitute(values) for g in given.path]
        needed += [
            equal(substitute(a, values), b) for a, b in zip(given.index, use.index, strict=True)
        ]
    except ZeroDivisionError:
        return None
    if any(c.decided is False for c in needed):
        return None
    return tuple(c for c in dict.fromkeys(needed) if c.decided is None)


def _solutions(given: Use, use: Use) -> Iterator[Values]:
    """Values of the variables of `given` at which it may be `use`, the likeliest first.

    They are only guesses: what they must satisfy is asked afterwards.
    """
    if len(given.index) != len(use.index):
        return
    equations = list(zip(given.index, use.index, strict=True))
    equations += [(g.difference, 0) for g in given.path if g.relation is Relation.EQUAL]
    yield from _solved(given, use, equations, {})


def _solved(
    given: Use, use: Use, equations: Sequence[tuple[Size, Size]], known: Values
) -> Iterator[Values]:
    unknown = [v for v in given.variables if v not in known]
    if not unknown:
        yield known
        return
    try:
        rest = [(substitute(a, known), b) for a, b in equations]
    except ZeroDivisionError:
        return
    for a, b in rest:
        names = free_symbols(a) & set(unknown)
        if len(names) == 1:
            (name,) = names
            value = _root(a, b, name)
            if value is not None:
                yield from _solved(given, use, equations, {**known, name: value})
                return
    # A variable in no equation is tried at its bounds, and at variables of the other side. A name
    # in several equations comes first: with its value they can be solved for others.
    counts = {v: sum(v in free_symbols(a) for a, _ in rest) for v in unknown}
    name = max(unknown, key=lambda v: counts[v])
    for value in dict.fromkeys(_candidates(name, given, use, rest, known)):
        yield from _solved(given, use, equations, {**known, name: value})


def _root(size: Size, value: Size, name: str) -> Size | None:
    """The size that makes `size`, which is linear in `name`, equal to `value`, if one does."""
    rest = substitute(size, {name: 0})
    slope = substitute(size, {name: 1}) - rest
    if slope == 0 or size != slope * symbol(name) + rest:
        return None
    whole, remainder = divide(value - rest, slope)
    return whole if remainder == 0 else (value - rest) // slope


def _candidates(
    name: str, given: Use, use: Use, equations: Sequence[tuple[Size, Size]], known: Values
) -> Iterator[Size]:
    unknown = [v for v in given.variables if v not in known]
    bounds = {v: _bounds(v, given.path, known, set(unknown)) for v in unknown}
    least, greatest = bounds[name]
    pinned = [value for value in least if value in greatest]
    if pinned:
        yield pinned[0]
        return
    # With the least values for the other variables of an equation.
    lowest = {v: low[0] for v, (low, _) in bounds.items() if low and v != name}
    for a, b in equations:
        rest = substitute(a, lowest)
        if free_symbols(rest) & set(unknown) == {name}:
            value = _root(rest, b, name)
            if value is not None:
                yield value
    yield from least
    yield from greatest
    yield from map(symbol, use.variables)


def _bounds(
    name: str, path: Guards, known: Values, unknown: set[str]
) -> tuple[list[Size], list[Size]]:
    """The least and the greatest that a variable may be, by conditions without other unknowns."""
    least: list[Size] = []
    greatest: list[Size] = []
    for guard in path:
        split = coefficient_of(guard.substitute(known).difference, name)
        if split is None or free_symbols(split[1]) & unknown:
            continue
        if split[0] == 1 or (abs(split[0]) == 1 and guard.relation is Relation.EQUAL):
            least.append(-split[0] * split[1])
        if split[0] == -1 or (abs(split[0]) == 1 and guard.relation is Relation.EQUAL):
            greatest.append(-split[0] * split[1])
    return least, greatest
