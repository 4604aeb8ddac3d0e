"""Ranges of indices that are data: assumed for the left side, to be shown for the right side.

An operator that looks elements up, such as Gather, is not defined where one of its indices is out
of range, whether or not the element is used. So the ranges of all the left side's indices may be
assumed everywhere, and those of the right side's must follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xflow.core.composite import Composite
from xflow.core.constraint import at_least, in_range, less
from xflow.core.evaluation import read
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Operator
from xflow.core.size import Size, lookup, substitute, symbol
from xflow.core.spec import Element, Literal, OfSize
from xflow.verifier.algebra.affine import solve_indices
from xflow.verifier.algebra.arithmetic import Arithmetic, Range
from xflow.verifier.algebra.comparisons import Comparisons, with_signs
from xflow.verifier.algebra.terms import Guards


@dataclass(frozen=True)
class Indices:
    """That every element of `value` is an index in ``low <= element < high``."""

    value: Value
    low: Size
    high: Size


def indices_of(values: Iterable[Value]) -> Iterator[Indices]:
    """The indices that the operators under `values` read, those inside of composites included."""
    for node in _nodes(values):
        assert isinstance(node.op, Operator)
        shapes = [source.shape for source in node.inputs]
        for position, (low, high) in node.op.ranges(shapes, node.attributes).items():
            yield Indices(node.inputs[position], low, high)


def _nodes(values: Iterable[Value]) -> Iterator[Node]:
    for node in walk(values):
        if isinstance(node.op, Composite):
            yield from _nodes(node.op.define(node.inputs, node.attributes))
        elif isinstance(node.op, Operator):
            yield node


def take_for_granted(values: Iterable[Value], arithmetic: Arithmetic) -> list[str]:
    """Declare the ranges of the integer inputs that the left side uses as indices; in words."""
    words = []
    for indices in dict.fromkeys(indices_of(values)):
        source = _covered(indices.value, arithmetic)
        if source is None:
            continue
        assert isinstance(source.node.op, Leaf)
        arithmetic.declare_range(source.node.op.key, Range(source.shape, indices.low, indices.high))
        words.append(f"{indices.low} <= {source.node.op.key}[...] < {indices.high}")
    return words


def _covered(value: Value, arithmetic: Arithmetic) -> Value | None:
    """The input of which `value` holds every element, if there is one."""
    if value.is_leaf:
        return value
    places = tuple(symbol(f"_p{axis}") for axis in range(len(value.shape)))
    element = read(value, places)
    leaves = [node.outputs[0] for node in walk([value]) if isinstance(node.op, Leaf)]
    if not isinstance(element, Element) or len(leaves) != 1:
        return None
    (source,) = leaves
    wanted = tuple(symbol(f"_q{axis}") for axis in range(len(source.shape)))
    unknown = frozenset(str(place) for place in places)
    # Every element at q is that of `value` at p, if p can be solved for and lies in bounds.
    found = solve_indices(element.index, wanted, unknown, {})
    if found is None:
        return None
    for place in places:  # one without influence may be anywhere
        found.setdefault(str(place), 0)
    here = tuple(c for q, n in zip(wanted, source.shape, strict=True) for c in in_range(q, n))
    inside = [
        c for p, n in zip(places, value.shape, strict=True) for c in in_range(found[str(p)], n)
    ]
    same = all(substitute(i, found) == q for i, q in zip(element.index, wanted, strict=True))
    covered = same and all(arithmetic.implied(c, here) for c in inside)
    return source if covered else None


def out_of_range(
    lhs: Iterable[Value], rhs: Iterable[Value], arithmetic: Arithmetic, cases: Comparisons
) -> str | None:
    """An index of the right side that is not shown to be in range, in words; None if all are."""
    given = set(indices_of(lhs))
    for indices in dict.fromkeys(indices_of(rhs)):
        if indices not in given and not _in_range(indices, arithmetic, cases):
            return f"an index in {indices.value} may be out of range"
    return None


def _in_range(indices: Indices, arithmetic: Arithmetic, cases: Comparisons) -> bool:
    places = tuple(symbol(f"_p{axis}") for axis in range(len(indices.value.shape)))
    path: Guards = tuple(
        c
        for p, n in zip(places, indices.value.shape, strict=True)
        for c in in_range(p, n)
        if c.decided is not True
    )
    element = with_signs(read(indices.value, places), cases, path)
    for guards, case in cases.split(element, path):
        place: Size
        match case:
            case Literal(number) if number.denominator == 1:
                place = int(number)
            case OfSize(size):
                place = size
            case Element(tensor, index):
                place = lookup(tensor, index)
            case _:
                return False
        here = (*path, *guards)
        for bound in (at_least(place, indices.low), less(place, indices.high)):
            if not arithmetic.implied(bound, here):
                return False
    return True
