"""The line `let` of a rule: terms that a side contains several times, written once.

    rule four-of-one
      in       x[N]
      let      twice = Add(x, x); four = Add(twice, twice)
      from     Add(four, four)
      to       Mul(x, 8)

Each term may use those before it. A rule itself knows nothing of them: its sides are spelled out
when it is read, and abbreviated when it is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from xflow.core.errors import RuleFileError
from xflow.core.expressions import LENGTH, expression

LET = "let"
"""The key of the line."""
LONG = 100
"""Operators of a side that is abbreviated when it is written."""
_DEFINITION = re.compile(r"\s*([a-z]\w*)\s*=(?!=)(.*)", re.DOTALL)


def spelled_out(stanza: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """A stanza without its line `let`; `names` are those of its inputs, which a term must not have.

    Raises RuleFileError, also for sides that are too long when they are spelled out, and
    SyntaxError and SizeError as `expression` does.
    """
    made = {key: text for key, text in stanza.items() if key != LET}
    terms: dict[str, ast.expr] = {}
    lengths: dict[str, int] = {}
    for text in stanza[LET].split(";") if LET in stanza else ():
        match = _DEFINITION.fullmatch(text)
        if match is None:
            raise RuleFileError(f"{text.strip()!r} is no term", do="write NAME = TERM; NAME = TERM")
        name, term = match[1], expression(match[2].strip())
        if name in terms or name in names:
            raise RuleFileError(f"a second meaning of {name}")
        lengths[name] = _length(term, lengths)
        terms[name] = _Insert(terms).visit(term)
    for key in ("from", "to") if terms else ():
        tree = expression(made.get(key, ""))
        _length(tree, lengths)
        tree = _Insert(terms).visit(tree)
        parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        made[key] = ", ".join(map(ast.unparse, parts))
    return made


def _length(tree: ast.expr, lengths: Mapping[str, int]) -> int:
    """About how many characters a term has when it is spelled out, counted before it is."""
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    found = len(ast.unparse(tree)) + sum(lengths.get(name, 0) for name in used)
    if found > LENGTH:
        raise RuleFileError(f"a term of {found:,} characters, where {LENGTH:,} are allowed")
    return found


class _Insert(ast.NodeTransformer):
    """Puts terms in the place of their names."""

    def __init__(self, terms: Mapping[str, ast.expr]) -> None:
        self._terms = terms

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._terms.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Operators and attributes have names of their own."""
        node.args = [self.visit(arg) for arg in node.args]
        return node


def abbreviated(sides: Sequence[str], taken: Sequence[str]) -> tuple[str, list[str]]:
    """The line `let` for sides, and what they are with it: nothing, and as they are, if short.

    A term gets a name where several others use it. `taken` are names that it must not get.
    """
    trees = [expression(side) for side in sides]
    if max(side.count("(") for side in sides) < LONG:
        return "", [*sides]
    users: dict[str, int] = {}

    def count(tree: ast.AST) -> None:
        text = ast.unparse(tree)
        users[text] = users.get(text, 0) + 1
        if users[text] == 1:
            for part in _arguments(tree):
                count(part)

    for tree in trees:
        count(tree)
    terms: dict[str, str] = {}
    names: dict[str, str] = {}

    def written(tree: ast.expr) -> ast.expr:
        text = ast.unparse(tree)
        if text in names:
            return ast.Name(names[text])
        match tree:
            case ast.Call(func=func, args=args, keywords=keywords):
                made: ast.expr = ast.Call(func, [written(arg) for arg in args], keywords)
            case ast.Subscript(value=value, slice=index):
                made = ast.Subscript(written(value), index)
            case ast.Tuple(elts=parts):
                made = ast.Tuple([written(part) for part in parts])
            case _:
                return tree
        if users[text] < 2 or not isinstance(tree, ast.Call):
            return made
        number = len(names) + 1
        while (name := f"t{number}") in taken or name in terms:
            number += 1
        names[text] = name
        terms[name] = ast.unparse(made)
        return ast.Name(name)

    short = []
    for tree in trees:
        made = written(tree)
        parts = made.elts if isinstance(made, ast.Tuple) else [made]
        short.append(", ".join(map(ast.unparse, parts)))
    return "; ".join(f"{name} = {term}" for name, term in terms.items()), short


def _arguments(tree: ast.AST) -> Sequence[ast.AST]:
    match tree:
        case ast.Call(args=args):
            return args
        case ast.Subscript(value=value):
            return [value]
        case ast.Tuple(elts=parts):
            return parts
    return ()
