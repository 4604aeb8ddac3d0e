"""Expressions of rules as drawings in text."""

from __future__ import annotations

import ast
from itertools import zip_longest

from xflow.rewriting.abbreviations import repeated_calls, roots_of

WIDTH = 80


def draw_sides(lhs: str, rhs: str) -> str:
    """Both sides of a rule as trees, side by side where they fit into 80 columns.

    An operator stands above what it reads. What occurs several times is drawn once, with a number
    that stands for it elsewhere.
    """
    left, right = draw(lhs), draw(rhs)
    width = max(map(len, left))
    if width + 6 + max(map(len, right)) > WIDTH:
        return "\n".join([*left, "", "=>", "", *right])
    rows = zip_longest(left, right, fillvalue="")
    lines = [
        f"{a:{width}}  {'=>' if number == 0 else '  '}  {b}" for number, (a, b) in enumerate(rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def draw(text: str) -> list[str]:
    """One side of a rule as lines."""
    tree = ast.parse(text, mode="eval").body
    roots = roots_of(tree)
    shared = {text: number for number, text in enumerate(repeated_calls(roots), 1)}
    lines: list[str] = []
    for root in roots:
        lines += _lines(root, shared, set())
    return lines


def _lines(tree: ast.expr, shared: dict[str, int], drawn: set[str]) -> list[str]:
    output = ""
    if isinstance(tree, ast.Subscript):
        output = f"[{ast.unparse(tree.slice)}]"
        tree = tree.value
    text = ast.unparse(tree)
    if not isinstance(tree, ast.Call):
        return [text + output]
    label = ast.unparse(tree.func) + output
    if text in shared:
        label += f" ({shared[text]})"
        if text in drawn:
            return [label]
        drawn.add(text)
    settings = [f"{each.arg}={ast.unparse(each.value)}" for each in tree.keywords]
    lines = [label]
    bar = "│  " if tree.args else "   "
    lines += [f"{bar}{setting}" for setting in settings]
    for number, source in enumerate(tree.args, 1):
        first, *rest = _lines(source, shared, drawn)
        last = number == len(tree.args)
        lines.append(f"{'└─ ' if last else '├─ '}{first}")
        lines += [f"{'   ' if last else '│  '}{line}" for line in rest]
    return lines
