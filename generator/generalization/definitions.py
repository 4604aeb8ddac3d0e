"""Definitional rules: each composite operator equals what it is declared to be.

The examples of an operator say which numbers of axes its inputs may have, and the texts of its
attributes, as an equation is; flags take all their values, and real attributes are symbols, or 1
where that is their default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import TypeAlias

from xflow.core.composite import Composite
from xflow.core.errors import ShapeError
from xflow.core.node import apply
from xflow.core.registry import Attribute, Kind, Operator, RealSymbol
from xflow.generator.generalization.generalize import Generalizer
from xflow.generator.generalization.skeleton import take_apart
from xflow.generator.vocabulary import Input, Vocabulary
from xflow.ops import operators
from xflow.rewriting.rule import Rule

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
Pattern: TypeAlias = tuple[object, ...]

NAMES = ("x", "a", "b", "c", "u", "v", "w")
DIMS = {0: "", 1: "C", 2: "N C", 3: "N C *S"}
FIXED_DIMS = {0: "", 1: "C", 2: "N C", 3: "N C L", 4: "N C H W", 5: "N G C H W"}
"""Where an operator does not treat the axes behind the second alike."""
LENGTHS = {"*S": (1, 2, 3), "*B": (0, 1, 2, 3)}
"""The numbers of axes that a vector stands for, by its place: space, or a batch before the last."""


def definitional_rules(seed: int, among: Iterable[Operator] | None = None) -> Iterator[Rule]:
    """The definition of every composite operator, at the ranks that its examples show."""
    for op in operators() if among is None else among:
        if isinstance(op, Composite):
            rules = _rules(op, DIMS, seed)
            if not any("*" in rule.inputs for _, rule in rules):  # not at any number of axes
                stated = {pattern for pattern, _ in rules}
                fixed = _rules(op, FIXED_DIMS, seed)
                rules += [
                    (pattern, rule)
                    for pattern, rule in fixed
                    if pattern not in stated and not _leaves_sizes_open(rule)
                ]
            yield from (rule for _, rule in rules)


def _rules(op: Composite, dims: Mapping[int, str], seed: int) -> list[tuple[Pattern, Rule]]:
    """The rules that can be stated, with the patterns of the cases that they were made from."""
    made = []
    for shapes, attributes in _cases(op, max(dims)):
        rule = _rule(op, _inputs(op, shapes, attributes, dims), attributes, seed)
        if rule is not None:
            made.append((_pattern(shapes, attributes), rule))
    return made


def _leaves_sizes_open(rule: Rule) -> bool:
    """Whether a size in it is no extent: one example does not show which product it is."""
    return any(":" not in word for word in rule.params.split())


def _pattern(shapes: Shapes, attributes: Mapping[str, Attribute]) -> Pattern:
    """The ranks of inputs and the texts of attributes: what a case shows that others do not."""
    texts = ((name, value) for name, value in attributes.items() if isinstance(value, str))
    return (*map(len, shapes), *texts)


def _inputs(
    op: Composite,
    shapes: tuple[tuple[int, ...], ...],
    attributes: Mapping[str, Attribute],
    dims: Mapping[int, str],
) -> tuple[Input, ...]:
    """Inputs of these shapes, with vectors for axes that the operator treats alike."""
    given = {len(shape): dims[len(shape)] for shape in shapes}
    if op.elementwise:
        given = dict.fromkeys(given, "...")
    elif len(shapes[0]) == 2:
        along = [
            attributes.get(name, spec.default_for(shapes))
            for name, spec in op.attributes.items()
            if spec.kind in (Kind.AXIS, Kind.AXES)
        ]
        if along and all(value in (1, (1,)) for value in along):
            given[2] = "*B C"  # along the last axis, whatever is before it
    return tuple(
        Input(NAMES[i], NAMES[i], given[len(shape)], shape) for i, shape in enumerate(shapes)
    )


def _cases(
    op: Composite, rank: int
) -> Iterator[tuple[tuple[tuple[int, ...], ...], Mapping[str, Attribute]]]:
    """Shapes of `rank` axes at most, one for each pattern of ranks without extents of 1."""
    seen: set[object] = set()
    for example in op.examples:
        shapes = tuple(shape[:rank] for shape in example.shapes)  # one axis stands for the rest
        if op.elementwise:
            shapes = ((4,),) * len(shapes)
        pattern = _pattern(shapes, example.attributes)
        extents = [size for shape in shapes for size in shape]
        if pattern in seen or not all(shapes) or min(extents) < 2:
            continue
        if any(example.attributes.get(name) for name in _divisors(op)):
            continue
        seen.add(pattern)
        options: list[list[tuple[str, Attribute]]] = []
        flags = False
        for name, spec in op.attributes.items():
            if spec.flag:
                flags = True
            elif spec.kind is Kind.REAL:
                symbolic: list[Attribute] = [RealSymbol(name.lower())]
                literal: list[Attribute] = [Fraction(1)] if spec.default == 1 else []
                literal += [()] if spec.default == () else []
                options.append([(name, value) for value in literal + symbolic])
            elif name in example.attributes:
                options.append([(name, example.attributes[name])])
        for chosen in product(*options):
            reals = [value for _, value in chosen if isinstance(value, Fraction | RealSymbol)]
            if len({type(value) for value in reals}) > 1:
                continue  # all symbols or all 1
            attributes = dict(chosen)
            if flags:
                yield from _with_flags(op, shapes, attributes)
            else:
                yield shapes, attributes


def _divisors(op: Composite) -> Iterator[str]:
    """The attributes that say into how many parts axes are split, as heads and groups.

    How the sizes depend on these, only an example with different sizes shows, as families have.
    """
    for name, spec in op.attributes.items():
        if spec.kind is Kind.INT and not spec.flag:
            yield name


def _with_flags(
    op: Composite, shapes: tuple[tuple[int, ...], ...], attributes: Mapping[str, Attribute]
) -> Iterator[tuple[tuple[tuple[int, ...], ...], Mapping[str, Attribute]]]:
    """Every choice of the flags; extents are made equal, so that every choice is defined."""
    names = [name for name, spec in op.attributes.items() if spec.flag]
    square = tuple(tuple(4 for _ in shape) for shape in shapes)
    for values in product((0, 1), repeat=len(names)):
        yield square, {**attributes, **dict(zip(names, values, strict=True))}


def _rule(
    op: Composite, inputs: tuple[Input, ...], attributes: Mapping[str, Attribute], seed: int
) -> Rule | None:
    words = [name for item in inputs for name in item.dims.split()]
    ranks = next((lengths for name, lengths in LENGTHS.items() if name in words), (0,))
    vocabulary = Vocabulary(op.name, inputs, (), (), ranks=ranks)
    leaves = [item.value for item in inputs]
    try:
        (source,) = apply(op, leaves, attributes)
        (target,) = op.define(leaves, source.node.attributes)
    except (ShapeError, ValueError):
        return None
    skeleton, point = take_apart(source, target, vocabulary)
    return next(Generalizer(vocabulary, seed).rules(skeleton, [point]), None)
