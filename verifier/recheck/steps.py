"""Codes, and functions that round to integers: what the checker knows of both.

A code is an integer of 8 bits, of the type that the operators of a rule take where it is used. What
is an integer is rounded to itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from math import prod

from xflow.core.errors import ShapeError
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Operator
from xflow.core.sorts import CODE, CODES, REAL, integer_range
from xflow.core.spec import Bottom, Call, Element, If, Literal, MaxOver, Scalar, Times, times
from xflow.rewriting.instance import Instance, leaf_name
from xflow.verifier.recheck.forms import Apply, Atom, Factor, Most, Read, Sum

STEPS = ("round", "floor")
"""Functions that keep the order and leave integers as they are."""
WHOLE = (*STEPS, "sign")
"""Functions that give integers."""
MAX_CODES = 8
"""Inputs of codes beyond which nothing is known of their types."""

Relations = Mapping[str, str]
"""Relations to 0 of all elements of some inputs."""
CodeRanges = Mapping[str, tuple[int, int]]
"""The least and the greatest element of inputs of codes."""
NO_CODES: CodeRanges = {}


def types_of_codes(instance: Instance) -> list[Mapping[str, str]]:
    """The types of the inputs of codes that suit all operators, each way to choose them."""
    nodes = list(walk((*instance.lhs, *instance.rhs)))
    names = [leaf_name(value) for value in instance.inputs if value.type.dtype == CODE]
    return list(_assignments(nodes, names, {})) if 0 < len(names) <= MAX_CODES else []


def ranges_of_codes(instance: Instance) -> CodeRanges:
    """Where the elements of each input of codes are, whatever types suit all operators."""
    ranges: dict[str, tuple[int, int]] = {}
    for chosen in types_of_codes(instance):
        for name, dtype in chosen.items():
            low, high = integer_range(dtype)
            known = ranges.get(name, (low, high))
            ranges[name] = min(low, known[0]), max(high, known[1])
    return ranges


def _assignments(
    nodes: Sequence[Node], names: Sequence[str], chosen: Mapping[str, str]
) -> Iterator[Mapping[str, str]]:
    """The ways to give each of `names` a type of codes, beside those that are `chosen`."""
    if not _may_be(nodes, chosen):
        return
    if not names:
        yield chosen
        return
    for dtype in CODES:
        yield from _assignments(nodes, names[1:], {**chosen, names[0]: dtype})


def _may_be(nodes: Sequence[Node], chosen: Mapping[str, str]) -> bool:
    """Whether no operator refuses what it reads, as far as types are chosen."""
    types: dict[Value, str | None] = {}
    for node in nodes:
        if isinstance(node.op, Leaf):
            (value,) = node.outputs
            is_code = value.type.dtype == CODE
            types[value] = chosen.get(leaf_name(value)) if is_code else value.type.dtype
            continue
        assert isinstance(node.op, Operator)
        reads = [types[source] for source in node.inputs]
        makes = [value.type.dtype for value in node.outputs]
        codes = CODE in makes or CODE in node.op.takes
        if not codes or None in reads:
            types |= {v: None if v.type.dtype == CODE else v.type.dtype for v in node.outputs}
            continue
        try:
            made = node.op.element_types([str(each) for each in reads], node.attributes, REAL)
        except ShapeError:
            return False
        last = len(made) - 1
        types |= {value: made[min(k, last)] for k, value in enumerate(node.outputs)}
    return True


def is_whole(total: Sum, codes: Collection[str]) -> bool:
    """Whether a sum is an integer, where elements of the inputs `codes` are."""
    return all(
        part.coefficient.denominator == 1
        and all(exponent >= 1 and _is_whole(factor, codes) for factor, exponent in part.factors)
        for part in total.terms
    )


def _is_whole(factor: Factor, codes: Collection[str]) -> bool:
    match factor:
        case Read(tensor, _):
            return tensor in codes
        case Most(choices):
            return all(is_whole(choice.body, codes) for choice in choices)
        case Apply(name, _):
            return name in WHOLE
    return isinstance(factor, Atom)


def stepped(function: str, argument: Scalar, facts: Relations) -> Scalar | None:
    """A function that rounds to integers of each value of a maximum or minimum.

    That takes factors of a known sign; None where `argument` is something else. Where they are
    negative, ``f(-x)`` has to be ``-f(x)``, as it is for what is rounded to the nearest.
    """
    parts = argument.args if isinstance(argument, Times) else (argument,)
    extremes = [part for part in parts if _is_extreme(part)]
    if len(extremes) != 1:
        return None
    others = [part for part in parts if part is not extremes[0]]
    sign = prod(_sign(part, facts) for part in others)
    if not sign or (sign < 0 and function != "round"):
        return None
    factor = times(sign, *others)

    def inside(part: Scalar) -> Scalar:
        match part:
            case MaxOver(variable, extent, body):
                return MaxOver(variable, extent, inside(body))
            case Call("max" | "min" as name, args):
                return Call(name, tuple(map(inside, args)))
            case If(conditions, then, other):
                return If(conditions, inside(then), inside(other))
            case Bottom():
                return part
        return Call(function, (times(factor, part),))

    return times(sign, inside(extremes[0]))


def _is_extreme(scalar: Scalar) -> bool:
    match scalar:
        case MaxOver() | Call("max" | "min", _):
            return True
    return False


def _sign(scalar: Scalar, facts: Relations) -> int:
    """The sign of a factor; 1 also where it may be 0, and 0 where it is not known."""
    match scalar:
        case Literal(value):
            return (value > 0) - (value < 0)
        case Element(tensor, _):
            return int(facts.get(tensor.lstrip("%")) in (">", ">="))
        case Call("reciprocal", (inner,)):
            return _sign(inner, facts)
        case Times(args):
            return prod(_sign(arg, facts) for arg in args)
    return 0


def bounds_of(total: Sum, codes: CodeRanges) -> tuple[Fraction, Fraction] | None:
    """Between what a sum of codes is; None where it is anything else."""
    low = high = Fraction(0)
    for part in total.terms:
        ends = [part.coefficient]
        match part.factors:
            case ():
                pass
            case ((Read(tensor, _), 1),) if tensor in codes:
                ends = [part.coefficient * end for end in codes[tensor]]
            case _:
                return None
        if part.variables:
            return None
        if part.guards:
            ends.append(Fraction(0))
        low, high = low + min(ends), high + max(ends)
    return low, high
