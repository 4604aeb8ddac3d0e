"""Sizes as text: read from what `str` prints, or from a Python expression tree."""

from __future__ import annotations

import ast
from collections.abc import Callable

from xflow.core.errors import SizeError
from xflow.core.expressions import check_digits, expression, shortened
from xflow.core.size import Size, floor_divide, lookup, symbol

READ = 500
"""Most terms of a size that is read from a text."""


def parse_size(text: str) -> Size:
    """Read a size as `str` prints it. Raises SizeError for anything else."""
    try:
        tree = expression(text.strip())
    except SyntaxError:
        raise SizeError(f"{shortened(repr(text))} is no size expression") from None
    return from_ast(tree)


def reads_back(size: Size) -> bool:
    """Whether `parse_size` reads `size` as `str` prints it: a model's names may be any words."""
    try:
        return isinstance(size, int) or parse_size(str(size)) == size
    except SizeError:
        return False


def from_ast(tree: ast.expr) -> Size:
    """The size that a Python expression tree denotes, which `expressions.expression` has read.

    It consists of names, integers, ``+ - * // %`` and lookups ``tensor[index]``. Raises SizeError,
    also where it would have too many terms.
    """
    spine: list[ast.BinOp] = []
    while isinstance(tree, ast.BinOp):  # what is added up one by one may be long
        spine.append(tree)
        tree = tree.left
    made = _operand_of(tree)
    for part in reversed(spine):
        if type(part.op) not in _OPERATORS:
            raise SizeError(f"{readable(part)!r} is no size expression")
        try:
            made = _OPERATORS[type(part.op)](made, from_ast(part.right))
        except ZeroDivisionError:
            raise SizeError(f"{readable(part)!r} divides by zero") from None
        if isinstance(made, int):
            check_digits(made)
        elif len(made.terms) > READ:
            raise SizeError(f"a size of more than {READ} terms")
    return made


def _operand_of(tree: ast.expr) -> Size:
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -from_ast(operand)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=parts)):
            return lookup(name, map(from_ast, parts))
        case ast.Subscript(value=ast.Name(id=name), slice=part):
            return lookup(name, (from_ast(part),))
    raise SizeError(f"{readable(tree)!r} is no size expression")


def readable(tree: ast.expr) -> str:
    """A tree as text for a message."""
    try:
        return shortened(ast.unparse(tree))
    except RecursionError:
        return "this"


_OPERATORS: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floor_divide,
    ast.Mod: lambda a, b: a - floor_divide(a, b) * b,
}
