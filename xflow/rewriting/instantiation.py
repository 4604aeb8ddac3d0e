"""The sides and conditions of a rule at one rank, read from their text."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from xflow.core.constraint import Constraint, constraint_from_ast
from xflow.core.errors import RuleFileError
from xflow.core.expressions import expression, fraction
from xflow.core.node import Value, apply
from xflow.core.registry import Attribute, Kind, Operator, RealSymbol
from xflow.core.size import Expr, Size, free_symbols, opaque_integers, substitute, symbol
from xflow.core.size_text import from_ast, readable
from xflow.core.sorts import ELEMENT, REAL
from xflow.ops import operator, operators

MOST_TERMS, MOST_FACTORS = 100, 16
"""Most terms of a size in a rule, and most factors of a term; in the database 8 and 3."""


@dataclass(frozen=True)
class Scope:
    """The names of a rule at one rank."""

    rank: int
    scalars: frozenset[str]
    vectors: frozenset[str]
    reals: frozenset[str]
    leaves: Mapping[str, Value]

    def sizes(self, tree: ast.expr) -> Size:
        """The size that an expression over single sizes is. Raises RuleFileError."""
        size = _size(tree)
        self._check(size, self.scalars)
        return size

    def component(self, size: Size, position: int) -> Size:
        """Element number `position` of a size expression over vectors."""
        self._check(size, self.scalars | self.vectors | {"axis"})
        values: dict[str, Size] = {name: symbol(f"{name}_{position}") for name in self.vectors}
        return substitute(size, {**values, "axis": position})

    def items(self, trees: Iterable[ast.expr]) -> tuple[Size, ...]:
        """The sizes of a list, with each vector spelled out."""
        result: list[Size] = []
        for tree in trees:
            if isinstance(tree, ast.Starred):
                size = _size(tree.value)
                result.extend(self.component(size, j) for j in range(self.rank))
            else:
                result.append(self.sizes(tree))
        return tuple(result)

    def _check(self, size: Size, known: frozenset[str]) -> None:
        if isinstance(size, Expr) and (
            len(size.terms) > MOST_TERMS or any(len(m) > MOST_FACTORS for m, _ in size.terms)
        ):
            raise RuleFileError(
                f"a size has more than {MOST_TERMS} terms, or a term more than {MOST_FACTORS} "
                "factors, when it is multiplied out"
            )
        if any(opaque_integers(size)):
            raise RuleFileError(f"the size {size} depends on the data of a tensor")
        unknown = sorted(free_symbols(size) - known)
        if unknown:
            raise RuleFileError(
                f"{unknown[0]} is not declared"
                + (" as a single size: write *" + unknown[0] if unknown[0] in self.vectors else "")
            )


def conditions_at(texts: Iterable[str], scope: Scope) -> Iterator[Constraint]:
    """Conditions spelled out; one that speaks of vectors holds in every element."""
    for text in texts:
        condition = _condition(text)
        if condition.symbols & scope.vectors:
            for position in range(scope.rank):
                yield Constraint(
                    scope.component(condition.difference, position), condition.relation
                )
        else:
            scope.component(condition.difference, 0)  # checks the names
            yield condition


@cache
def _condition(text: str) -> Constraint:
    return constraint_from_ast(expression(text))


@cache
def parsed(text: str) -> ast.expr:
    """An expression of a rule, parsed once for all ranks."""
    return expression(text)


@cache
def _size(tree: ast.expr) -> Size:
    """The size that a part of a rule is, read once for all ranks: trees are kept, see `parsed`."""
    return from_ast(tree)


def read_side(text: str, scope: Scope) -> tuple[Value, ...]:
    """The outputs of a side of a rule, as values over the leaves. Raises RuleFileError."""
    tree = parsed(text)
    trees = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return tuple(_value(item, scope) for item in trees)


def _value(tree: ast.expr, scope: Scope, dtype: str = REAL) -> Value:
    """The value of an expression; `dtype` is what a number or a constant operator is then."""
    match tree:
        case ast.Name(id=name) if name in scope.leaves:
            return scope.leaves[name]
        case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int(position))):
            outputs = _call(call, scope, dtype)
            if position >= len(outputs):
                raise RuleFileError(f"{readable(call)} has no output {position}")
            return outputs[position]
        case ast.Call():
            outputs = _call(tree, scope, dtype)
            if len(outputs) != 1:
                raise RuleFileError(f"{readable(tree)} has several outputs", do="choose one: [0]")
            return outputs[0]
        case ast.Constant() | ast.UnaryOp() | ast.BinOp():
            return apply("Scalar", (), {"value": _real(tree, scope)}, dtype=dtype)[0]
    raise RuleFileError(f"{readable(tree)!r} is no declared input, operator or number")


def _arguments(op: Operator, trees: list[ast.expr], scope: Scope, dtype: str) -> list[Value]:
    """The inputs of an operator; a constant has the element type that its place asks for."""
    found: dict[int, Value] = {}
    for position, tree in enumerate(trees):
        if not _is_constant(tree, scope):
            found[position] = _value(tree, scope, dtype)
            if op.taken(position) == ELEMENT:
                dtype = found[position].type.dtype
    for position, tree in enumerate(trees):
        if position not in found:
            taken = op.taken(position)
            found[position] = _value(tree, scope, dtype if taken == ELEMENT else taken)
    return [found[position] for position in range(len(trees))]


def _is_constant(tree: ast.expr, scope: Scope) -> bool:
    """Whether an expression reads no input, so that its place says its element type."""
    match tree:
        case ast.Call(args=args):
            return all(_is_constant(arg, scope) for arg in args)
        case ast.Subscript(value=value):
            return _is_constant(value, scope)
        case ast.Name(id=name):
            return name not in scope.leaves
    return True


def _call(tree: ast.Call, scope: Scope, dtype: str) -> tuple[Value, ...]:
    name = tree.func.id if isinstance(tree.func, ast.Name) else ast.unparse(tree.func)
    try:
        op = operator(name)
    except KeyError:
        close = difflib.get_close_matches(name, [op.name for op in operators()], n=3)
        advice = f"did you mean {' or '.join(close)}?" if close else ""
        raise RuleFileError(f"there is no operator {name}", do=advice) from None
    args = _arguments(op, tree.args, scope, dtype)
    attributes: dict[str, Attribute] = {}
    for keyword in tree.keywords:
        if keyword.arg is None or keyword.arg not in op.attributes:
            raise RuleFileError(f"{name} has no attribute {keyword.arg}")
        spec = op.attributes[keyword.arg]
        attributes[keyword.arg] = _attribute(keyword.value, spec.kind, args, scope, op.adds_axes)
    return apply(op, args, attributes, dtype=dtype)


def _attribute(
    tree: ast.expr, kind: Kind, args: list[Value], scope: Scope, adds_axes: bool
) -> Attribute:
    if kind is Kind.REAL:
        return _real(tree, scope)
    if kind is Kind.TEXT:
        if not isinstance(tree, ast.Constant) or not isinstance(tree.value, str):
            raise RuleFileError(f"{readable(tree)!r} is no text in quotes")
        return tree.value
    if kind in (Kind.INT, Kind.AXIS):
        size = scope.sizes(tree)
        negative = isinstance(size, int) and size < 0
        return size + len(args[0].shape) if kind is Kind.AXIS and negative else size
    if not isinstance(tree, ast.List):
        raise RuleFileError(f"{readable(tree)!r} is no list")
    items = scope.items(tree.elts)
    if kind in (Kind.AXES, Kind.PERMUTATION):
        rank = len(args[0].shape) + (len(items) if adds_axes else 0)
        items = tuple(i + rank if isinstance(i, int) and i < 0 else i for i in items)
    return items


def _real(tree: ast.expr, scope: Scope) -> Fraction | RealSymbol:
    if isinstance(tree, ast.Name) and tree.id in scope.reals:
        return RealSymbol(tree.id)
    value = _number(tree)
    if value is None:
        raise RuleFileError(f"{readable(tree)!r} is no number")
    return value


def _number(tree: ast.expr) -> Fraction | None:
    match tree:
        case ast.Constant(value=int() | float() as value):
            return fraction(str(value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _number(operand)
            return None if number is None else -number
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            a, b = _number(left), _number(right)
            return a / b if a is not None and b else None
    return None
