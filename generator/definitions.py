"""Definitional rules: each composite operator equals what it is declared to be.

The examples of an operator say which numbers of axes its inputs may have; flags take all their
values, and real attributes are symbols, or 1 where that is their default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product

from xflow.errors import ShapeError
from xflow.generator.generalize import Generalizer
from xflow.generator.skeleton import take_apart
from xflow.generator.vocabulary import Input, Vocabulary
from xflow.graph import apply
from xflow.ops.composite import Composite
from xflow.ops.registry import Attribute, Kind, RealSymbol, operators
from xflow.rule import Rule

NAMES = ("x", "a", "b", "c", "u", "v", "w")
DIMS = {0: "", 1: "C", 2: "N C", 3: "N C *S"}


def definitional_rules(seed: int) -> Iterator[Rule]:
    """The definition of every composite operator, at the ranks that its examples show."""
    for op in operators():
        if isinstance(op, Composite):
            for shapes, attributes in _cases(op):
                rule = _rule(op, shapes, attributes, seed)
                if rule is not None:
                    yield rule


def _cases(
    op: Composite,
) -> Iterator[tuple[tuple[tuple[int, ...], ...], Mapping[str, Attribute]]]:
    """Shapes and attributes, one for each pattern of ranks without extents of 1."""
    seen: set[tuple[int, ...]] = set()
    for example in op.examples:
        shapes = tuple(shape[:3] for shape in example.shapes)  # one axis stands for the rest
        ranks = tuple(map(len, shapes))
        extents = [size for shape in shapes for size in shape]
        if ranks in seen or min(ranks) < 1 or min(extents) < 2:
            continue
        seen.add(ranks)
        options: list[list[tuple[str, Attribute]]] = []
        flags = False
        for name, spec in op.attributes.items():
            if spec.flag:
                flags = True
            elif spec.kind is Kind.REAL:
                symbolic: list[Attribute] = [RealSymbol(name.lower())]
                literal: list[Attribute] = [Fraction(1)] if spec.default == 1 else []
                options.append([(name, value) for value in literal + symbolic])
            elif name in example.attributes:
                options.append([(name, example.attributes[name])])
        for chosen in product(*options):
            reals = [value for _, value in chosen]
            if len({type(value) for value in reals}) > 1:
                continue  # all symbols or all 1
            attributes = dict(chosen)
            if flags:
                yield from _with_flags(op, shapes, attributes)
            else:
                yield shapes, attributes


def _with_flags(
    op: Composite, shapes: tuple[tuple[int, ...], ...], attributes: Mapping[str, Attribute]
) -> Iterator[tuple[tuple[tuple[int, ...], ...], Mapping[str, Attribute]]]:
    """Every choice of the flags; extents are made equal, so that every choice is defined."""
    names = [name for name, spec in op.attributes.items() if spec.flag]
    square = tuple(tuple(4 for _ in shape) for shape in shapes)
    for values in product((0, 1), repeat=len(names)):
        yield square, {**attributes, **dict(zip(names, values, strict=True))}


def _rule(
    op: Composite,
    shapes: tuple[tuple[int, ...], ...],
    attributes: Mapping[str, Attribute],
    seed: int,
) -> Rule | None:
    inputs = tuple(
        Input(NAMES[i], NAMES[i], DIMS[len(shape)], shape) for i, shape in enumerate(shapes)
    )
    ranks = (1, 2, 3) if any("*" in item.dims for item in inputs) else (0,)
    vocabulary = Vocabulary(op.name, inputs, (), (), ranks=ranks)
    leaves = [item.value for item in inputs]
    try:
        (source,) = apply(op, leaves, attributes)
        (target,) = op.define(leaves, source.node.attributes)
    except (ShapeError, ValueError):
        return None
    skeleton, point = take_apart(source, target, vocabulary)
    return next(Generalizer(vocabulary, seed).rules(skeleton, [point]), None)
