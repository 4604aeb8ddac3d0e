"""Productions that are written as equations of sorts."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from fractions import Fraction
from itertools import product
from textwrap import dedent

from xflow.core.registry import Attribute, Attributes, Kind
from xflow.generator.production import OTHER_SYMBOL, SYMBOL, Production, choices, combined
from xflow.ops import operator

NAMES = {"SYMBOL": SYMBOL, "OTHER_SYMBOL": OTHER_SYMBOL}
"""The numbers that stand for real symbols."""


def steps(text: str, **given: Sequence[Attributes]) -> tuple[Production, ...]:
    """Productions as equations, one a line: ``gate = Sigmoid(x) | Div(one, denominator)``.

    The sort on the left is made by each of the terms on the right that ``|`` separates. In the
    place of an argument there may be several sorts, and in that of an attribute several values,
    likewise separated, of which every combination is meant. A number, such as ``1/2``, is a
    constant of shape []. ``_`` stands for a space in the name of a sort.

    - ``Conv(x, kernel, [bias])`` is ``Conv(x, kernel) | Conv(x, kernel, bias)``: arguments in
      brackets may be absent.
    - ``f, g = Neg((x, pooled))`` is ``f = Neg(x)`` and then ``g = Neg(pooled)``: an equation of
      several sorts is one for each of them, with the sorts at their place in each tuple.
    - ``Conv(x, kernel, **windows)`` has any of the attributes that are `given` as ``windows``.

    Raises SyntaxError for what is no equation, KeyError for an operator, an attribute or a name
    that does not exist, ValueError for another value.
    """
    return tuple(
        made
        for equation in ast.parse(dedent(text)).body
        for result, value in _equations(equation)
        for made in _productions(result, _alternatives(value), given)
    )


def _equations(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The sort on the left and the terms on the right, for each sort that is on the left."""
    if not isinstance(statement, ast.Assign):
        raise SyntaxError(f"no equation: {ast.unparse(statement)}")
    (target,) = statement.targets
    if not isinstance(target, ast.Tuple):
        yield _sort(target), statement.value
        return
    for place, result in enumerate(target.elts):
        choose = _Choose(place, len(target.elts))
        yield _sort(result), choose.visit(deepcopy(statement.value))


class _Choose(ast.NodeTransformer):
    """Puts the sort at a place in the stead of each tuple of sorts."""

    def __init__(self, place: int, length: int) -> None:
        self.place, self.length = place, length

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        if len(node.elts) != self.length:
            raise SyntaxError(f"not {self.length} sorts: {ast.unparse(node)}")
        return node.elts[self.place]

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        return node


def _productions(
    result: str, terms: Sequence[ast.expr], given: Mapping[str, Sequence[Attributes]]
) -> Iterator[Production]:
    constants = [_number(term) for term in terms if not isinstance(term, ast.Call)]
    if constants:
        yield Production("Scalar", (), result, choices(value=constants))
    for term in terms:
        if isinstance(term, ast.Call):
            op = ast.unparse(term.func)
            attributes = combined(_options(op, keyword, given) for keyword in term.keywords)
            for args in _arguments(term.args):
                for sorts in product(*map(_alternatives, args)):
                    yield Production(op, tuple(map(_sort, sorts)), result, attributes)


def _arguments(args: Sequence[ast.expr]) -> Iterator[list[ast.expr]]:
    """The lists of arguments that are meant where those at the end may be absent."""
    known = [arg for arg in args if not isinstance(arg, ast.List)]
    yield known
    for arg in args[len(known) :]:
        if not isinstance(arg, ast.List):
            raise SyntaxError(f"behind what may be absent: {ast.unparse(arg)}")
        known = [*known, *arg.elts]
        yield known


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


def _options(
    op: str, keyword: ast.keyword, given: Mapping[str, Sequence[Attributes]]
) -> Sequence[Attributes]:
    """The attributes that ``name=value | value`` and ``**given`` say."""
    name, known = keyword.arg, operator(op).attributes
    if name is None:
        options = given[ast.unparse(keyword.value)]
        unknown = {name for option in options for name in option} - set(known)
        if unknown:
            raise KeyError(f"{op} has no {', '.join(sorted(unknown))}")
        return options
    return [{name: _attribute(op, name, value)} for value in _alternatives(keyword.value)]


def _attribute(op: str, name: str, value: ast.expr) -> Attribute:
    if operator(op).attributes[name].kind is Kind.REAL:
        return _number(value)
    made: Attribute = ast.literal_eval(value)
    return made
