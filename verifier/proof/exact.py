"""Bitwise equality: whether the sides of a rule agree in floats and not only as real numbers.

Two classes, each with a proof of its own:

``bits``: at each index of the output both sides apply the same floating-point operations to the
same elements. Only operations that agree for all floats count as the same: either order of two
summands or factors, ``x - y`` and ``x + (-y)``, ``Relu(x)`` and ``Max(x, 0)``. So the sides agree
whatever the elements are, infinities and NaN among them (but for the sign of a zero).

Sums of a few codes are integers that every float holds, and are the same in any order.

``numbers``: no operation on either side rounds. What is equal as real numbers is equal as
floating-point numbers then, where the elements are numbers.

Otherwise the sides may differ by roundings, and nothing discrete may depend on them:
`decides_by_rounded` tells whether a side compares what was computed with roundings, or makes an
integer of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from xflow.core.constraint import Constraint, equal
from xflow.core.errors import ShapeError
from xflow.core.evaluation import read, read_leaf
from xflow.core.graph import walk
from xflow.core.node import Leaf, Value, format_attribute, hidden_positions
from xflow.core.registry import Attributes, Operator, Reader, broadcast_index
from xflow.core.size import OpaqueInteger, Size, atom_size, replace_opaque, symbol
from xflow.core.sorts import BOOL, CODE, INT, sort_of
from xflow.core.spec import (
    ARBITRARY,
    FIXING_ZERO,
    ONE,
    ZERO,
    Call,
    Element,
    If,
    Index,
    Literal,
    MaxOver,
    Order,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    order,
    truth,
    where,
)
from xflow.rewriting.rule import BITS, NUMBERS
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.choices import branches
from xflow.verifier.algebra.comparisons import orders
from xflow.verifier.algebra.terms import Guards
from xflow.verifier.proof.codes import marked_sums

EXACT_FUNCTIONS = frozenset({"max", "min", "abs", "sign", "floor", "round"})
"""Functions whose value is a floating-point number where the arguments are."""
JUMPS = ARBITRARY | {"sign", "floor", "round"}
"""Functions with jumps: a rounding of the argument can change the result by 1."""
LATTICE = frozenset({"max", "min"})
"""Functions of a set of arguments: neither order nor repetition counts."""
COMPARE = "compare"
COMMUTATIVE = frozenset({"+", "*", f"{COMPARE} [0]"})
MAX_PERMUTED = 4
"""Most arguments that are compared in every order."""
MINUS_ONE = Literal(Fraction(-1))


def weakest(classes: Iterable[str | None]) -> str | None:
    """The weakest of several classes: those of a rule's outputs, or of it at its ranks."""
    found = set(classes)
    return None if None in found else NUMBERS if NUMBERS in found else BITS


def roundings(scalar: Scalar) -> int:
    """How many operations in `scalar` may round their result; a sum over a range counts as two."""
    match scalar:
        case Plus(args):
            return len(args) - 1 + sum(map(roundings, args))
        case Times(args):
            inverse = [a for a in args if isinstance(a, Call) and a.function == "reciprocal"]
            others = [arg for arg in args if arg not in (ONE, MINUS_ONE)]
            # A product with one inverse is a quotient.
            own = max(len(others) - 1 - min(len(inverse), 1), 0)
            return own + sum(map(roundings, others))
        case SumOver(_, extent, body) | ProductOver(_, extent, body):
            return roundings(body) + (0 if extent == 1 else 2)
        case MaxOver(_, _, body):
            return roundings(body)
        case If(conditions, then, other):
            compared = (side for found in orders(conditions) for side in (found.left, found.right))
            return max(roundings(then), roundings(other)) + sum(map(roundings, compared))
        case Call(function, args):
            return (function not in EXACT_FUNCTIONS) + sum(map(roundings, args))
    return 0


def decides_by_rounded(scalar: Scalar) -> bool:
    """Whether a choice or an integer in `scalar` depends on what was computed with roundings."""
    match scalar:
        case Plus(args) | Times(args):
            return any(map(decides_by_rounded, args))
        case SumOver(_, _, body) | ProductOver(_, _, body) | MaxOver(_, _, body):
            return decides_by_rounded(body)
        case If(conditions, then, other):
            compared = (side for found in orders(conditions) for side in (found.left, found.right))
            return any(map(roundings, compared)) or any(map(decides_by_rounded, (then, other)))
        case Call(function, args):
            rounded = function in JUMPS and any(map(roundings, args))
            return rounded or any(map(decides_by_rounded, args))
    return False


def read_operations(value: Value, index: Index) -> Scalar:
    """The element of `value` at `index` as floating-point operations on elements of the leaves.

    An operation is a `Call`: ``+``, ``*``, ``/`` and ``-`` of what is so written in the operator's
    specification, as long as it rounds once at most and hides nothing; otherwise the operator's own
    name, since its kernel may compute in any way. A conversion that a specification names, as that
    of an integer to the nearest float, is an operation by itself. What an operator selects is what
    it selects. Anything else is an element of a tensor that is named after its node.
    """
    node = value.node
    if isinstance(node.op, Leaf):
        return read_leaf(value, index)
    op = node.op
    assert isinstance(op, Operator)
    if not node.inputs:
        return read(value, index)
    shapes = [source.shape for source in node.inputs]

    def reader(source: Value) -> Reader:
        return lambda i: read_operations(source, i)

    def at(readers: Sequence[Reader], attributes: Attributes = node.attributes) -> Scalar:
        return op.at(readers, shapes, attributes, value.index, tuple(index))

    readers = [reader(source) for source in node.inputs]
    markers = [_marker(position, source) for position, source in enumerate(node.inputs)]
    plain = at(markers)
    # Any other conversion is an operation: its operand is computed in another type.
    own = _marked(_converting(plain, lambda _: ZERO))
    kept = {node.inputs[k].type.dtype for k in own} <= {value.type.dtype}
    kept = kept and not hidden_positions(node)
    if kept and _selects(at(markers, _without_zeros(node.attributes))):
        try:
            return at(readers)
        except ShapeError:  # a choice by results of a kernel
            pass
    if _reads_codes(op):
        return _on_codes(value, index)
    if not op.elementwise:
        return _unread(value, index)
    args = [r(broadcast_index(s, index)) for r, s in zip(readers, shapes, strict=True)]
    if value.type.dtype == BOOL:
        compared = _comparison(plain, args)
        if compared is not None:
            return compared
    elif kept:
        inside = _converting(at(markers, _without_zeros(node.attributes)), lambda element: element)
        made = _single_operation(at, markers, args) if roundings(inside) <= 1 else None
        if made is not None:
            return made
    attributes = ", ".join(f"{k}={format_attribute(v)}" for k, v in node.attributes.items())
    return Call(f"{op.name} {attributes}", tuple(args))


def _unread(value: Value, index: Index) -> Scalar:
    """An element of what is computed in a way of which nothing is known."""
    return Element(f"{id(value.node)}.{value.index}", tuple(index))


def _reads_codes(op: Operator) -> bool:
    """Whether an operator reads codes as the numbers that they are; sums of many are no codes."""
    return CODE in op.takes and INT not in op.gives


def _on_codes(value: Value, index: Index) -> Scalar:
    """`read_operations` of an operator that reads codes, whose sums round nothing."""
    node = value.node
    op = node.op
    assert isinstance(op, Operator)
    shapes = [source.shape for source in node.inputs]
    marks: list[Scalar] = []

    def marked(scalar: Scalar) -> Scalar:
        marks.append(scalar)
        return Element(f"#{len(marks) - 1}", ())

    def reader(source: Value) -> Reader:
        if sort_of(source.type.dtype) == CODE:
            return lambda i: read_operations(source, i)
        return lambda i: marked(read_operations(source, i))

    roundings_inside = 0

    def counted(scalar: Scalar) -> Scalar:
        nonlocal roundings_inside
        roundings_inside += roundings(scalar)
        return scalar

    def at(readers: Sequence[Reader]) -> Scalar:
        return op.at(readers, shapes, node.attributes, value.index, tuple(index))

    plain = at([_marker(position, source) for position, source in enumerate(node.inputs)])
    own = {f"#{k}" for k, v in enumerate(node.inputs) if sort_of(v.type.dtype) == CODE}
    outside = roundings(marked_sums(plain, frozenset(own), counted, lambda _: ZERO))
    if outside + roundings_inside > 1:
        return _unread(value, index)
    leaves = (found.outputs[0] for found in walk([value]) if isinstance(found.op, Leaf))
    codes = frozenset(str(leaf) for leaf in leaves if sort_of(leaf.type.dtype) == CODE)
    scalar = at([reader(source) for source in node.inputs])
    try:
        sums = marked_sums(scalar, codes, lambda part: _operations(part, marks), marked)
        return _operations(sums, marks)
    except ShapeError:
        return _unread(value, index)


def _converting(scalar: Scalar, replaced: Callable[[Element], Scalar]) -> Scalar:
    """A specification with other terms for the elements that are converted to the nearest float."""

    def within(args: Sequence[Scalar]) -> tuple[Scalar, ...]:
        return tuple(_converting(arg, replaced) for arg in args)

    match scalar:
        case Call("nearest", (Element() as element,)):
            return replaced(element)
        case Plus(args):
            return Plus(within(args))
        case Times(args):
            return Times(within(args))
        case Call(function, args):
            return Call(function, within(args))
    return scalar


def _single_operation(
    at: Callable[[Sequence[Reader]], Scalar], markers: Sequence[Reader], args: Sequence[Scalar]
) -> Scalar | None:
    """An elementwise operator as the operation in its specification; None where that fails.

    Numbers among the operands may be put in, as long as that makes no other one disappear, and no
    other function of it: ``x + 0`` is x, but ``x * 0`` is not always 0, and kernels do not compute
    a power by a root or an inverse: of -inf the root is NaN, and ``pow(-inf, 0.5)`` is inf.
    """
    given = [
        _always(arg) if isinstance(arg, Literal) else marker
        for arg, marker in zip(args, markers, strict=True)
    ]
    wanted = {k for k, arg in enumerate(args) if not isinstance(arg, Literal)}
    scalar = at(given)
    plain = at(markers)
    if not _marked(scalar) >= wanted or not _functions(scalar) <= _functions(plain):
        scalar = plain
    try:
        return _operations(scalar, args)
    except ShapeError:
        return None


def _without_zeros(attributes: Attributes) -> Attributes:
    """The attributes with another number for each that is 0.

    A factor 0 makes a product disappear from the specification that the kernel computes all the
    same: a LeakyRelu of slope 0 is NaN at -inf, where Relu is 0.
    """
    return {
        name: Fraction(3, 7) if isinstance(value, Fraction) and not value else value
        for name, value in attributes.items()
    }


def _always(scalar: Scalar) -> Reader:
    return lambda index: scalar


def _comparison(plain: Scalar, args: Sequence[Scalar]) -> Scalar | None:
    """A comparison as an operation; None where `plain`, its specification, is none.

    It is named after the signs of the difference at which it is true. It is false where one of the
    two is NaN, which the specification, being about numbers, does not say: ``x >= y`` is not the
    opposite of ``x < y``.
    """
    if len(args) != 2 or not isinstance(plain, If) or len(plain.conditions) != 1:
        return None
    (test,) = plain.conditions
    found = list(orders((test,)))
    if len(found) != 1 or not {plain.then, plain.other} <= {ONE, ZERO}:
        return None

    def holds(sign: int) -> bool:
        difference = replace_opaque(test.difference, lambda _: sign)
        return (plain.then if Constraint(difference, test.relation).decided else plain.other) == ONE

    try:
        one, other = (_operations(side, args) for side in (found[0].left, found[0].right))
    except ShapeError:  # they are choices by Booleans
        return None
    signs = [sign for sign in (-1, 0, 1) if holds(sign)]
    if 1 in signs:
        one, other, signs = other, one, sorted(-sign for sign in signs)
    return Call(f"{COMPARE} {signs}", (one, other))


def _marker(position: int, source: Value) -> Reader:
    if source.type.dtype == BOOL:
        return lambda index: truth(f"#{position}", index)
    return lambda index: Element(f"#{position}", index)


def _marked(scalar: Scalar) -> frozenset[int]:
    """The positions of the inputs whose elements occur in `scalar`, but for Booleans."""
    match scalar:
        case Element(name, _) if name.startswith("#"):
            return frozenset({int(name[1:])})
        case Plus(args) | Times(args) | Call(_, args):
            return frozenset[int]().union(*map(_marked, args))
        case If(conditions, then, other):
            compared = (side for found in orders(conditions) for side in (found.left, found.right))
            return frozenset[int]().union(*map(_marked, (then, other, *compared)))
    return frozenset()


def _functions(scalar: Scalar) -> frozenset[str]:
    """The functions that `scalar` calls."""
    match scalar:
        case Call(function, args):
            return frozenset({function}).union(*map(_functions, args))
        case Plus(args) | Times(args):
            return frozenset[str]().union(*map(_functions, args))
        case If(conditions, then, other):
            compared = (side for found in orders(conditions) for side in (found.left, found.right))
            return frozenset[str]().union(*map(_functions, (then, other, *compared)))
    return frozenset()


def _selects(scalar: Scalar) -> bool:
    """Whether `scalar` is one of its elements or a number, by conditions that compare none."""
    match scalar:
        case Element() | Literal():
            return True
        case If(conditions, then, other):
            return not any(orders(conditions)) and _selects(then) and _selects(other)
    return False


def _operations(scalar: Scalar, args: Sequence[Scalar]) -> Scalar:
    """An operator's specification over markers as operations on `args`. Raises ShapeError."""

    def again(inner: Scalar) -> Scalar:
        return _operations(inner, args)

    match scalar:
        case Element(name, _) if name.startswith("#"):
            return args[int(name[1:])]
        case Literal() | Element():
            return scalar
        case Plus((first, second)):
            return Call("+", (again(first), again(second)))
        case Times(factors):
            sign = [f for f in factors if f == MINUS_ONE]
            rest = [f for f in factors if f != MINUS_ONE]
            below = [f for f in rest if isinstance(f, Call) and f.function == "reciprocal"]
            above = [f for f in rest if f not in below]
            if len(below) > 1 or len(above) > 2 or (below and len(above) > 1):
                raise ShapeError("several operations in one")
            made = again(above[0]) if above else ONE
            if len(above) == 2:
                made = Call("*", (made, again(above[1])))
            if below:
                made = Call("/", (made, again(below[0].args[0])))
            return _negated(made) if len(sign) % 2 else made
        case Call("reciprocal", (argument,)):
            return Call("/", (ONE, again(argument)))
        case Call(function, arguments) if function in LATTICE:
            found: list[Scalar] = []
            for each in map(again, arguments):
                own = isinstance(each, Call) and each.function == function
                found += each.args if own and isinstance(each, Call) else (each,)
            return Call(function, tuple(dict.fromkeys(found)))
        case Call(function, arguments):
            return Call(function, tuple(map(again, arguments)))
        case If(conditions, then, other):
            compared = []
            for condition in conditions:
                if not any(orders((condition,))):
                    raise ShapeError("a choice on a Boolean")

                def replaced(atom: OpaqueInteger) -> Size:
                    if isinstance(atom, Order):
                        return order(again(atom.left), again(atom.right))
                    return atom_size(atom)

                difference = replace_opaque(condition.difference, replaced)
                compared.append(Constraint(difference, condition.relation))
            return where(tuple(compared), again(then), again(other))
    raise ShapeError("no operation")


def _negated(scalar: Scalar) -> Scalar:
    if isinstance(scalar, Call) and scalar.function == "-":
        return scalar.args[0]
    if isinstance(scalar, Literal):
        return Literal(-scalar.value)
    return Call("-", (scalar,))


def same_bits(left: Scalar, right: Scalar, arithmetic: Arithmetic, path: Guards = ()) -> bool:
    """Whether two scalars of `read_operations` are the same wherever `path` holds."""
    for one, other, turned in ((left, right, False), (right, left, True)):
        if isinstance(one, If) and not any(orders(one.conditions)):
            for guards, branch in branches(one.conditions, one.then, one.other):
                inner = (*path, *guards)
                sides = (other, branch) if turned else (branch, other)
                if not arithmetic.contradictory(inner) and not same_bits(*sides, arithmetic, inner):
                    return False
            return True
    if left == right:
        return True
    match left, right:
        case (Call(f, args), Literal() as zero) | (Literal() as zero, Call(f, args)):
            zeros = f in FIXING_ZERO and zero == ZERO
            return zeros and all(same_bits(arg, ZERO, arithmetic, path) for arg in args)
        case (Plus(args), Plus(others)) | (Times(args), Times(others)):  # exact sums of codes
            return len(args) == len(others) and all(
                same_bits(a, b, arithmetic, path) for a, b in zip(args, others, strict=True)
            )
        case Element(a, i), Element(b, j):
            return a == b and len(i) == len(j) and _same_sizes(i, j, arithmetic, path)
        case Call(f, args), Call(g, others) if f == g and len(args) == len(others):
            return any(
                all(same_bits(a, b, arithmetic, path) for a, b in zip(args, turn, strict=True))
                for turn in _orders(f, others)
            )
        case If(), If():
            return _same_choice(left, right, arithmetic, path)
    return False


def _same_sizes(
    left: Sequence[Size], right: Sequence[Size], arithmetic: Arithmetic, path: Guards
) -> bool:
    return all(arithmetic.implied(equal(a, b), path) for a, b in zip(left, right, strict=True))


def _same_choice(left: If, right: If, arithmetic: Arithmetic, path: Guards) -> bool:
    """Whether two choices by comparisons compare the same, and choose between the same."""
    if len(left.conditions) != len(right.conditions):
        return False
    for one, other in zip(left.conditions, right.conditions, strict=True):
        mine, theirs = list(orders((one,))), list(orders((other,)))
        if one.relation is not other.relation or len(mine) != 1 or len(theirs) != 1:
            return False
        plain = [replace_opaque(c.difference, _unnamed) for c in (one, other)]
        if plain[0] != plain[1]:
            return False
        pairs = ((mine[0].left, theirs[0].left), (mine[0].right, theirs[0].right))
        if not all(same_bits(a, b, arithmetic, path) for a, b in pairs):
            return False
    return all(
        same_bits(a, b, arithmetic, path)
        for a, b in ((left.then, right.then), (left.other, right.other))
    )


def _unnamed(atom: OpaqueInteger) -> Size:
    """A comparison without what it compares."""
    return symbol("_order") if isinstance(atom, Order) else atom_size(atom)


def _orders(function: str, args: tuple[Scalar, ...]) -> Iterator[Sequence[Scalar]]:
    if function in COMMUTATIVE | LATTICE and len(args) <= MAX_PERMUTED:
        yield from itertools.permutations(args)
    else:
        yield args
