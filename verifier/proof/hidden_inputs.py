"""Kernels that give a number for NaN or infinities, where their specifications have none.

A proof about specifications is not enough then: at run time the left side may be a number where its
definition has none. So an element that such a kernel reads there counts as lost on the way, see
`xflow.verifier.proof.reads`, unless both sides make the same of it: they are equal whatever their
kernels make of what they read, and these read the same, also where it is no number.

`read_kernels` says that in terms. What a kernel computes is any function of its specification and
of the steps to it: a mask of a whole row vanishes from a softmax, and decides all the same.
An element that it may hide is any function of the steps that compute it, and so is each of these:
of ``x`` and ``x + 0 * y`` only the second may be NaN because of y. Steps that are numbers for sure
are what they are. Nothing of the kind can be said of a kernel that makes of a NaN what its place
tells, nor of an element that a maximum or a comparison chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from xflow.core.composite import Composite
from xflow.core.evaluation import read_leaf
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value, format_attribute, hidden_positions
from xflow.core.registry import Operator, Reader, broadcast_index, operator
from xflow.core.sorts import REAL
from xflow.core.spec import (
    ZERO,
    Bottom,
    Call,
    Element,
    If,
    Index,
    Literal,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    call,
    plus,
    where,
)
from xflow.verifier.algebra.comparisons import orders
from xflow.verifier.proof.defined import is_partial, read_unfolded, tensors, unfolded


class UnlikeError(ValueError):
    """A kernel may read what is no number and make of it what is not known."""


class Known(NamedTuple):
    """What is known of the elements of inputs."""

    numbers: frozenset[str]
    """The inputs whose elements are numbers."""
    below_infinity: frozenset[str]
    """Those whose elements are numbers or -inf."""


KERNEL = "kernel"
STEP = "step"
LEAST = Literal(Fraction(int.from_bytes(b"least", "big")))
"""In the place of the least element in a maximum that is computed step by step."""


def hides(value: Value) -> bool:
    """Whether a kernel under `value` may hide something."""
    return any(hidden_positions(node) for node in walk([value]))


def hidden_inputs(side: Value) -> frozenset[str]:
    """The inputs whose NaN or infinities a side may hide at run time."""
    return _under(walk([side]))


def bounded_inputs(sides: Iterable[Value]) -> frozenset[str]:
    """The inputs that kernels other than those of attention may hide where they are -inf."""
    return _under(node for node in walk(sides) if node.role != "attention")


def compared_by_place(sides: Iterable[Value]) -> frozenset[str]:
    """The inputs that kernels read which make of a NaN what its place tells."""
    return _under(
        node for node in walk(sides) if isinstance(node.op, Operator) and node.op.nan_by_place
    )


def _under(nodes: Iterable[Node]) -> frozenset[str]:
    sources = [node.inputs[position] for node in nodes for position in hidden_positions(node)]
    return frozenset(
        node.op.key
        for node in walk(sources)
        if isinstance(node.op, Leaf) and node.types[0].dtype == REAL
    )


def read_kernels(value: Value, index: Index, known: Known) -> Scalar:
    """`read_unfolded` where a kernel that hides something may give anything for what it reads.

    Raises UnlikeError.
    """
    node = value.node
    if isinstance(node.op, Leaf):
        return read_leaf(value, index)
    assert isinstance(node.op, Operator), node.op
    hidden = hidden_positions(node)
    if isinstance(node.op, Composite) and (not hidden or node.op.as_defined):
        defined = node.op.define(node.inputs, node.attributes)[value.index]
        return read_kernels(defined, index, known)
    inputs = [
        _operand(source, known, node.op.nan_by_place) if k in hidden else _reader(source, known)
        for k, source in enumerate(node.inputs)
    ]
    shapes = [source.shape for source in node.inputs]
    if not hidden:
        made = node.op.at(inputs, shapes, node.attributes, value.index, tuple(index))
        return unfolded(made, value)
    if isinstance(node.op, Composite):
        leaves, outputs = node.op.definition(shapes, node.attributes)
        readers = dict(zip(leaves, inputs, strict=True))
        made = read_unfolded(outputs[value.index], tuple(index), readers)
    else:
        made = node.op.at(inputs, shapes, node.attributes, value.index, tuple(index))
    decisive = _decisive(node, inputs, made, index, known)
    return call("any", _any(KERNEL, node.op.name, decisive), made)


def _decisive(
    node: Node, inputs: Sequence[Reader], made: Scalar, index: Index, known: Known
) -> Scalar:
    """What decides about the result of a kernel beside the specification of it, which is `made`.

    That is how it is computed, step by step, unless all of it is a number; of an elementwise
    operator, its operands and attributes.
    """
    op = node.op
    assert isinstance(op, Operator)
    if op.nan_by_place or _is_number(made, known.numbers):
        return ZERO
    if not op.elementwise:
        return _in_steps(made, known.numbers)
    read = (r(broadcast_index(v.shape, index)) for r, v in zip(inputs, node.inputs, strict=True))
    operands = [
        _any(STEP, f"operand {k}", _in_steps(element, known.numbers))
        for k, element in enumerate(read)
    ]
    attributes = ", ".join(f"{k}={format_attribute(v)}" for k, v in node.attributes.items())
    return _any(STEP, attributes or "none", *operands)


def _reader(source: Value, known: Known) -> Reader:
    return lambda index: read_kernels(source, index, known)


def _operand(source: Value, known: Known, nan_by_place: bool) -> Reader:
    """The elements that a kernel may hide."""

    def reader(index: Index) -> Scalar:
        element = read_kernels(source, index, known)
        if nan_by_place:
            if _is_no_nan(element, known):
                return element  # of numbers and -inf, the specification tells the greatest
            raise UnlikeError(f"{source} may be NaN")
        if source.type.dtype != REAL or _is_number(element, known.numbers):
            return element
        return _any(STEP, "read", _in_steps(element, known.numbers))

    return reader


def _is_number(scalar: Scalar, numbers: frozenset[str]) -> bool:
    return not is_partial(scalar) and tensors(scalar) <= numbers


def _is_no_nan(scalar: Scalar, known: Known) -> bool:
    """Whether it is a number or -inf."""
    match scalar:
        case Element(tensor, _):
            return tensor.startswith("%") or tensor in known.numbers | known.below_infinity
        case If(conditions, then, other) if not any(orders(conditions)):
            return _is_no_nan(then, known) and _is_no_nan(other, known)
    return _is_number(scalar, known.numbers)


def kernel_of(scalar: Scalar) -> tuple[Operator, Scalar] | None:
    """The operator, and its specification, if `scalar` is what a kernel computes.

    See `read_kernels`.
    """
    match scalar:
        case Call("any", (Call("any", (Literal(value), _)), made)):
            kind, _, name = _name_of(value).partition(" ")
            return (operator(name), made) if kind == KERNEL else None
    return None


def is_step(scalar: Scalar) -> bool:
    """Whether `scalar` is what `read_kernels` has for a step to an element that is hidden."""
    match scalar:
        case Call("any", (Literal(value), _)):
            return _name_of(value).startswith(f"{STEP} ")
    return False


def _any(kind: str, name: str, *args: Scalar) -> Scalar:
    """Any function of `args` in any order, the same for the same `kind` and `name`."""
    tag = Literal(Fraction(int.from_bytes(f"{kind} {name}".encode(), "big")))
    if len(args) == 1:
        return call("any", tag, args[0])
    # A sum of any function of each is a sum of others, unless the arguments are the same.
    own = Literal(tag.value + Fraction(1, 2))
    return call("any", tag, plus(*(call("any", own, arg) for arg in args)))


def _name_of(value: Fraction) -> str:
    """The kind and name that `_any` was given."""
    number = value.numerator // value.denominator
    text = number.to_bytes((number.bit_length() + 7) // 8, "big") if number > 0 else b""
    return text.decode(errors="replace")


def _in_steps(scalar: Scalar, numbers: frozenset[str]) -> Scalar:
    """Any function in the place of each step that computes something that may be no number."""

    def again(part: Scalar) -> Scalar:
        return _in_steps(part, numbers)

    if isinstance(scalar, Bottom):
        return LEAST
    if _is_number(scalar, numbers):
        return scalar
    match scalar:
        case Plus(args):
            return _any(STEP, "+", *map(again, args))
        case Times(args):
            return _any(STEP, "*", *map(again, args))
        case MaxOver():
            raise UnlikeError("what a maximum makes of a NaN depends on its place")
        case SumOver() | ProductOver():
            body = _any(STEP, "each", again(scalar.body))
            return _any(STEP, type(scalar).__name__, SumOver(scalar.variable, scalar.extent, body))
        case If(conditions, then, other):
            if any(orders(conditions)):
                raise UnlikeError("of what is no number, a kernel makes what a comparison tells")
            return where(conditions, again(then), again(other))
        case Call(function, args) if not is_step(scalar):
            named = [_any(STEP, f"argument {k}", again(arg)) for k, arg in enumerate(args)]
            return _any(STEP, function, *named) if named else scalar
    return scalar
