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
from collections.abc import Iterable, Mapping, Sequence

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
        made[key] = ", ".join(map(ast.unparse, roots_of(_Insert(terms).visit(tree))))
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


def abbreviated(lines: Mapping[str, str]) -> dict[str, str]:
    """The lines of a stanza, with a line `let` before its sides if these are long.

    A term gets a name where several others use it.
    """
    sides = {key: lines[key] for key in ("from", "to")}
    if max(side.count("(") for side in sides.values()) < LONG:
        return dict(lines)
    roots = {key: roots_of(expression(side)) for key, side in sides.items()}
    repeated = {*repeated_calls([root for each in roots.values() for root in each])}
    taken = {*re.findall(r"\w+", " ".join(lines.values()))}
    terms: dict[str, str] = {}
    names: dict[str, str] = {}

    def written(tree: ast.expr) -> ast.expr:
        text = ast.unparse(tree)
        if text in names:
            return ast.Name(names[text])
        match tree:
            case ast.Subscript(value=value, slice=index):
                return ast.Subscript(written(value), index)
            case ast.Call(func=func, args=args, keywords=keywords):
                made = ast.Call(func, [written(arg) for arg in args], keywords)
            case _:
                return tree
        if text not in repeated:
            return made
        number = len(names) + 1
        while (name := f"t{number}") in taken or name in terms:
            number += 1
        names[text] = name
        terms[name] = ast.unparse(made)
        return ast.Name(name)

    short = {
        key: ", ".join(ast.unparse(written(root)) for root in each) for key, each in roots.items()
    }
    let = {LET: "; ".join(f"{name} = {term}" for name, term in terms.items())} if terms else {}
    made: dict[str, str] = {}
    for key, text in lines.items():
        made |= (let if key == "from" else {}) | {key: short.get(key, text)}
    return made


def roots_of(tree: ast.expr) -> list[ast.expr]:
    """The outputs of a side of a rule."""
    return tree.elts if isinstance(tree, ast.Tuple) else [tree]


def repeated_calls(roots: Iterable[ast.expr]) -> list[str]:
    """The calls that occur several times; not those that only do inside of such ones."""
    counts: dict[str, int] = {}

    def count(tree: ast.expr) -> None:
        if isinstance(tree, ast.Call):
            text = ast.unparse(tree)
            counts[text] = counts.get(text, 0) + 1
            if counts[text] == 1:
                for source in tree.args:
                    count(source)
        elif isinstance(tree, ast.Subscript):
            count(tree.value)

    for root in roots:
        count(root)
    return [text for text, times in counts.items() if times > 1]
