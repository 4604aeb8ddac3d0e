"""Kernels that may give a number where their specification has none, unlike the other side's.

Some operators declare (`hides`) that their kernels make numbers of NaN and infinities that they
read. A left side with such a kernel may be a number, then, whatever the elements behind it are. So
these show nothing, unless both sides do the same with them. They do if they still agree, at random
sizes and elements, with functions of no meaning, which are not defined everywhere, in the place of
what such kernels compute, and of all steps that lead to what these read: whatever a kernel makes of
a NaN there, the other side has that, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from xflow.core.composite import Composite, made
from xflow.core.constraint import Constraint
from xflow.core.evaluation import read_leaf
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, TensorType, Value, hidden_positions, leaf, with_inputs
from xflow.core.registry import Operator, Reader, broadcast_index
from xflow.core.size import symbol
from xflow.core.sorts import REAL
from xflow.core.spec import (
    ZERO,
    Bottom,
    Call,
    If,
    Index,
    Literal,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    all_comparisons,
    call,
    plus,
    times,
)
from xflow.core.value_conditions import BELOW_INFINITY
from xflow.rewriting.instance import Instance
from xflow.verifier.recheck.comparisons import orders
from xflow.verifier.recheck.defined import is_partial, read_whole, tensors
from xflow.verifier.recheck.evaluate import agree_at_random
from xflow.verifier.recheck.floats import selects, specified
from xflow.verifier.recheck.forms import Unreplayable

RESULTS = "results of kernels"
"""The name of a number that `_without_operands` adds to what such kernels compute."""
LEAST = Literal(Fraction(-103, 107))
"""In the place of the least element in a maximum that is computed step by step."""
SMALL = Literal(Fraction(1, 2**70))
"""Too small a factor to count where two numbers are compared."""
NEARLY_ZERO = Literal(Fraction(1, 2**90))
Sides = tuple[Value, Value]


@dataclass(frozen=True)
class Shown:
    """The two sides of an output as their elements are to be read."""

    sides: Sides
    hidden: frozenset[str]
    """The inputs whose NaN or infinities the left side may hide."""
    unsteady: frozenset[str] = frozenset()
    """The inputs of which no element may be -inf: what a kernel makes of it may be infinite, or too
    large a float to be added to others."""


def what_shows(
    instance: Instance, left: Value, right: Value, assumed: Sequence[Constraint]
) -> list[Shown]:
    """Ways to read the elements of the two sides, of which one has to show what they need.

    Where both do the same with what they hide, they may be read without it, and nothing is hidden.
    Kernels that are those of a definition are read by it.
    """
    left, right = _by_definition(left), _by_definition(right)
    hidden = _leaves(
        node.inputs[position] for node in walk([left]) for position in hidden_positions(node)
    )
    if hidden and _same_kernels(instance, left, right, assumed):
        sides = _without_operands(left), _without_operands(right)
        behind = (n.inputs[k] for n in walk([left, right]) for k in hidden_positions(n))
        moved = _only_moves_results(left) and _only_moves_results(right)
        unsteady = frozenset[str]() if moved else _leaves(behind)
        return [Shown(sides, frozenset(), unsteady), Shown((left, right), hidden)]
    return [Shown((left, right), hidden)]


def _by_definition(value: Value) -> Value:
    """`value` with the definitions of operators whose kernels are those of their definitions."""
    done: dict[Value, Value] = {}
    for node in walk([value]):
        outputs: Iterable[Value] = node.outputs
        if node.inputs:
            sources = tuple(done[source] for source in node.inputs)
            if isinstance(node.op, Composite) and node.op.as_defined:
                outputs = node.op.define(sources, node.attributes)
            else:
                outputs = with_inputs(node, sources).outputs
        done.update(zip(node.outputs, outputs, strict=True))
    return done[value]


def _only_moves_results(side: Value) -> bool:
    """Whether nothing is done with what kernels compute but that it is moved and selected."""
    above = set[Node]()
    for node in walk([side]):
        if not any(v.node in above or hidden_positions(v.node) for v in node.inputs):
            continue
        if hidden_positions(node) or not all(map(_moves, specified(node))):
            return False
        above.add(node)
    return True


def _moves(scalar: Scalar) -> bool:
    """Whether it selects an element, or sums up one element alone: that is the element itself."""
    while isinstance(scalar, SumOver) and scalar.extent == 1:
        scalar = scalar.body
    return selects(scalar)


def _without_operands(value: Value) -> Value:
    """`value` with constants for what its kernels may hide, and a number added to their results."""
    done: dict[Value, Value] = {}
    for node in walk([value]):
        outputs: Iterable[Value] = node.outputs
        if node.inputs:
            hidden = hidden_positions(node)
            sources = tuple(
                leaf("%operand", source.type) if k in hidden else done[source]
                for k, source in enumerate(node.inputs)
            )
            outputs = with_inputs(node, sources).outputs
            if hidden:
                number = leaf(RESULTS, TensorType(REAL, ()))
                outputs = [made("Add", output, number) for output in outputs]
        done.update(zip(node.outputs, outputs, strict=True))
    return done[value]


def _same_kernels(
    instance: Instance, left: Value, right: Value, assumed: Sequence[Constraint]
) -> bool:
    numbers = frozenset(f.name for f in instance.facts if f.relation != BELOW_INFINITY)
    sure = frozenset(f.name for f in instance.facts)
    if any(map(partial(_may_see_nan, sure=sure, numbers=numbers), walk([left, right]))):
        return False  # a maximum tells by the places of elements what it makes of a NaN
    index = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
    try:
        with all_comparisons():
            sides = (_without_meaning(side, index, numbers) for side in (left, right))
            scalars = next(sides), next(sides)
        return agree_at_random(instance, scalars, left.shape, assumed)
    except (Unreplayable, RecursionError):  # kernels in kernels are long
        return False


def _may_see_nan(node: Node, *, sure: frozenset[str], numbers: frozenset[str]) -> bool:
    """Whether a kernel whose result may depend on the place of a NaN reads what may be one.

    What is only moved is none if its input is none, nor is what is computed of numbers.
    """
    if not isinstance(node.op, Operator):
        return False
    inner = node.op.define(node.inputs, node.attributes) if isinstance(node.op, Composite) else ()
    if any(_may_see_nan(each, sure=sure, numbers=numbers) for each in walk(inner, node.inputs)):
        return True
    if not node.op.nan_by_place:
        return False
    operand = node.inputs[0]
    index = tuple(symbol(f"_i{axis}") for axis in range(len(operand.shape)))
    element = read_whole(operand, index)
    moved = tensors(element) if selects(element) else None
    return not (_is_known(element, numbers) or (moved is not None and moved <= sure))


def _without_meaning(value: Value, index: Index, numbers: frozenset[str]) -> Scalar:
    """An element where kernels that may hide something compute functions of no meaning."""
    node = value.node
    if isinstance(node.op, Leaf):
        return read_leaf(value, index)
    op = node.op
    assert isinstance(op, Operator), op
    hidden = hidden_positions(node)
    if isinstance(op, Composite) and not hidden:
        inner = op.define(node.inputs, node.attributes)[value.index]
        return _without_meaning(inner, index, numbers)

    def reader(position: int, source: Value) -> Reader:
        def at(i: Index) -> Scalar:
            element = _without_meaning(source, i, numbers)
            if position not in hidden or source.type.dtype != REAL or _is_known(element, numbers):
                return element
            if op.nan_by_place:
                return element  # which is no NaN, see `_may_see_nan`
            return _function("element", [_steps(element, numbers)])

        return at

    inputs = [reader(position, source) for position, source in enumerate(node.inputs)]
    shapes = [source.shape for source in node.inputs]
    if not hidden:
        element = op.at(inputs, shapes, node.attributes, value.index, tuple(index))
        return _almost(element, value)
    if isinstance(op, Composite):
        leaves, outputs = op.definition(shapes, node.attributes)
        element = _defined(outputs[value.index], index, dict(zip(leaves, inputs, strict=True)))
    else:
        element = op.at(inputs, shapes, node.attributes, value.index, tuple(index))
    # What a kernel hides decides all the same, and half of what it may compute is not defined.
    both = [element, _function("all", [_decisive(node, inputs, element, index, numbers)])]
    domain = call("log", _function(f"domain of {op.name}", both))
    return plus(_function(op.name, both), times(SMALL, domain))


def _almost(element: Scalar, value: Value) -> Scalar:
    """An element, or a number near 0 for 0: a product with it has factors all the same."""
    return NEARLY_ZERO if element == ZERO and value.type.dtype == REAL else element


def _defined(value: Value, index: Index, readers: Mapping[Value, Reader]) -> Scalar:
    """An element of what the definition of an operator computes of its inputs."""
    if value in readers:
        return readers[value](index)
    node = value.node
    assert isinstance(node.op, Operator), node.op
    if isinstance(node.op, Composite):
        inner = node.op.define(node.inputs, node.attributes)[value.index]
        return _defined(inner, index, readers)

    def reader(source: Value) -> Reader:
        return lambda i: _defined(source, tuple(i), readers)

    inputs = [reader(source) for source in node.inputs]
    shapes = [source.shape for source in node.inputs]
    made_of_them = node.op.at(inputs, shapes, node.attributes, value.index, tuple(index))
    return _almost(made_of_them, value)


def _decisive(
    node: Node,
    inputs: Sequence[Reader],
    element: Scalar,
    index: Index,
    numbers: frozenset[str],
) -> Scalar:
    """What decides about the result of a kernel beside its specification: how it is computed."""
    op = node.op
    assert isinstance(op, Operator), op
    if op.nan_by_place or _is_known(element, numbers):
        return ZERO
    if not op.elementwise:
        return _steps(element, numbers)
    read = [r(broadcast_index(v.shape, index)) for r, v in zip(inputs, node.inputs, strict=True)]
    parts = [_function(f"operand {k}", [_steps(e, numbers)]) for k, e in enumerate(read)]
    return _function(f"with {sorted(map(str, node.attributes.items()))}", parts)


def _steps(scalar: Scalar, numbers: frozenset[str]) -> Scalar:
    """Functions of no meaning for all steps by which an element is computed."""
    if isinstance(scalar, Bottom):
        return LEAST
    if _is_known(scalar, numbers):
        return scalar
    match scalar:
        case Plus(args) | Times(args):
            return _function(type(scalar).__name__, [_steps(arg, numbers) for arg in args])
        case MaxOver():
            raise Unreplayable("a kernel reads what a maximum makes of a NaN by its place")
        case SumOver(variable, extent, body):
            inner = _function("part", [_steps(body, numbers)])
            return _function(type(scalar).__name__, [SumOver(variable, extent, inner)])
        case ProductOver(variable, extent, body):
            inner = _function("factor", [_steps(body, numbers)])
            return _function("product", [SumOver(variable, extent, inner)])
        case If(conditions, then, other):
            if any(orders(conditions)):
                raise Unreplayable("a kernel reads what a comparison chooses")
            return If(conditions, _steps(then, numbers), _steps(other, numbers))
        case Call(name, args) if args:
            named = [_function(f"{k}", [_steps(arg, numbers)]) for k, arg in enumerate(args)]
            return _function(name, named)
    return scalar


def _is_known(scalar: Scalar, numbers: frozenset[str]) -> bool:
    """Whether it is a number, since all that it is computed of are."""
    return not is_partial(scalar) and tensors(scalar) <= numbers


def _function(name: str, args: Sequence[Scalar]) -> Scalar:
    """A function of no meaning of `args`, whatever their order is: not monotone, and bounded."""
    number = Fraction(zlib.crc32(name.encode()) % 9973, 9973)
    parts = [times(3 + number, arg) for arg in args]
    if len(parts) > 1:
        parts = [call("sin", plus(part, number)) for part in parts]
    return call("sin", plus(5 * number, *(times(2, part) for part in parts)))


def _leaves(values: Iterable[Value]) -> frozenset[str]:
    return frozenset(
        node.op.key
        for node in walk(list(values))
        if isinstance(node.op, Leaf) and node.types[0].dtype == REAL
    )
