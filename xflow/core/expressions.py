"""Expressions and numbers in texts of unknown origin, read within bounds.

A rule, a size or a step of a report may come from anybody. Python's parser and its numbers take
whatever they are given: a power of ten with nine digits in its exponent, an expression that is
nested ten thousand deep. Here a text is refused before it costs more than a moment.
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction

from xflow.core.errors import SizeError

LENGTH = 40_000
"""Most characters of an expression; the longest of the database has some five thousand."""
DEPTH = 100
"""Most levels of nesting. What is added up or multiplied one after the other is one level."""
DIGITS = 4_000
"""Most digits of a number: fewer than Python prints."""
EXPONENT = 5_000
"""Largest exponent of ten of a number."""

_RATIO = re.compile(r"-?\d+(?:/\d+)?", re.ASCII)
_DECIMAL = re.compile(r"-?\d+(?:\.\d*)?(?:[eE]([-+]?\d+))?", re.ASCII)


def expression(text: str) -> ast.expr:
    """The tree of a Python expression. Raises SyntaxError, and SizeError beyond the bounds."""
    if len(text) > LENGTH:
        raise SizeError(f"an expression of {len(text):,} characters, where {LENGTH:,} are allowed")
    if "\0" in text:
        raise SyntaxError("a text with a NUL character")
    try:
        tree = ast.parse(text, mode="eval").body
    except (RecursionError, MemoryError):
        raise SizeError("the expression is nested too deeply") from None
    except UnicodeEncodeError:  # half of a character, as JSON can hold it
        raise SyntaxError("a text that is none in UTF-8") from None
    except ValueError as error:  # more digits than Python reads
        raise SizeError(f"a number is too long ({shortened(str(error))})") from None
    _check_bounds(tree)
    return tree


def _check_bounds(tree: ast.expr) -> None:
    """Raise SizeError where a tree is too deep, or a number in it too long."""
    waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > DEPTH:
            raise SizeError(f"the expression is nested more than {DEPTH} deep")
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            check_digits(node.value)
        for child in ast.iter_child_nodes(node):
            chain = isinstance(node, ast.BinOp) and child is node.left
            waiting.append((child, depth if chain else depth + 1))


def check_digits(number: int) -> None:
    """Raise SizeError for a number of more than about `DIGITS` digits."""
    if number.bit_length() > DIGITS * 3.32:
        raise SizeError(f"a number has more than {DIGITS:,} digits")


def fraction(text: object) -> Fraction:
    """The number that a text says: ``-3``, ``1/3`` or ``2.5e-3``. Raises SizeError."""
    if not isinstance(text, str) or len(text) > 2 * DIGITS:
        raise SizeError(f"{shortened(repr(text))} is no number, or too long")
    decimal = _DECIMAL.fullmatch(text)
    if not (_RATIO.fullmatch(text) or decimal):
        raise SizeError(f"{shortened(repr(text))} is no number")
    exponent = decimal[1] if decimal else None
    if max(map(len, re.split(r"[/.eE]", text))) > DIGITS or (
        exponent and (len(exponent) > 8 or abs(int(exponent)) > EXPONENT)
    ):
        raise SizeError(f"{shortened(text)} is too long a number")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise SizeError(f"{shortened(text)} divides by zero") from None


def shortened(text: str, length: int = 80) -> str:
    """The beginning of a text that may be long, for a message."""
    return text if len(text) <= length else f"{text[: length - 3]}..."
