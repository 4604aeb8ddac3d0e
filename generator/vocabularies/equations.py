"""Productions that are written as equations of sorts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from textwrap import dedent

from xflow.core.registry import Attribute, Kind
from xflow.generator.vocabularies.common import OTHER_SYMBOL, SYMBOL, numbers
from xflow.generator.vocabulary import Production, choices
from xflow.ops import operator

NAMES = {"SYMBOL": SYMBOL, "OTHER_SYMBOL": OTHER_SYMBOL}
"""The numbers that stand for real symbols."""


def steps(text: str) -> tuple[Production, ...]:
    """Productions as equations, one a line: ``gate = Sigmoid(x) | Div(one, denominator)``.

    The sort on the left is made by each of the terms on the right that ``|`` separates. In the
    place of an argument there may be several sorts, and in that of an attribute several values,
    likewise separated, of which every combination is meant. A number, such as ``1/2``, is a
    constant of shape []. ``_`` stands for a space in the name of a sort.

    Raises SyntaxError for what is no equation, KeyError for an operator or attribute that does not
    exist, ValueError for another value.
    """
    return tuple(
        made for equation in ast.parse(dedent(text)).body for made in _productions(equation)
    )


def _productions(equation: ast.stmt) -> Iterator[Production]:
    if not isinstance(equation, ast.Assign):
        raise SyntaxError(f"no equation: {ast.unparse(equation)}")
    result = _sort(equation.targets[0])
    terms = _alternatives(equation.value)
    constants = [_number(term) for term in terms if not isinstance(term, ast.Call)]
    if constants:
        yield numbers(result, *constants)
    for term in terms:
        if isinstance(term, ast.Call):
            op = ast.unparse(term.func)
            lists = {
                str(given.arg): [
                    _attribute(op, str(given.arg), value) for value in _alternatives(given.value)
                ]
                for given in term.keywords
            }
            for args in product(*map(_alternatives, term.args)):
                yield Production(op, tuple(map(_sort, args)), result, choices(**lists))


def _alternatives(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return [*_alternatives(value.left), *_alternatives(value.right)]
    return [value]


def _sort(name: ast.expr) -> str:
    if not isinstance(name, ast.Name):
        raise SyntaxError(f"no sort: {ast.unparse(name)}")
    return name.id.replace("_", " ")


def _number(value: ast.expr) -> Fraction:
    text = ast.unparse(value).replace(" ", "")
    return NAMES[text] if text in NAMES else Fraction(text)


def _attribute(op: str, name: str, value: ast.expr) -> Attribute:
    if operator(op).attributes[name].kind is Kind.REAL:
        return _number(value)
    made: Attribute = ast.literal_eval(value)
    return made
