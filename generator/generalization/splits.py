"""Rules of two outputs that follow from rules about concatenations.

From ``Concat(A, B) = T``, where A and B are the same operator: ``A, B = Split(T)``. And where T
reads ``Concat(x, y)``, the inputs x and y may be parts of one tensor: ``Split(T) = A, B`` of the
parts of z, so that a part alone is computed where only that is wanted, or in a better layout.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from xflow.ops import operator
from xflow.rewriting.declarations import SUFFIXES, parse_inputs, parse_sorts
from xflow.rewriting.rule import Rule


def split_rules(rules: Iterable[Rule]) -> Iterator[Rule]:
    """The rules of two outputs that follow from each rule, see above; they are to be proved."""
    for rule in rules:
        for lhs, rhs in ((rule.lhs, rule.rhs), (rule.rhs, rule.lhs)):
            made = _split_rule(rule, lhs, rhs)
            if made is not None:
                yield made
                parts = _rule_of_parts(made)
                if parts is not None:
                    yield parts


def _split_rule(rule: Rule, lhs: str, rhs: str) -> Rule | None:
    tree = ast.parse(lhs, mode="eval").body
    if not (isinstance(tree, ast.Call) and ast.unparse(tree.func) == "Concat"):
        return None
    calls = [arg for arg in tree.args if isinstance(arg, ast.Call)]
    if len(tree.args) != 2 or len(calls) != 2 or rhs.startswith("Concat"):
        return None
    names = {ast.unparse(arg.func) for arg in calls}
    if len(names) != 1 or operator(*names).role == "view":
        return None  # what moves no element is not worth making once for both
    first, second = map(ast.unparse, calls)
    axis = next((ast.unparse(k.value) for k in tree.keywords if k.arg == "axis"), "0")
    sizes = []
    for part in (first, second):
        extents = set()
        for rank in rule.ranks:
            probe = replace(rule, lhs=part, rhs=part, where=(), reverse=None)
            shape = probe.instance(rank).lhs[0].shape
            extents.add(str(shape[int(axis)]))
        if len(extents) != 1:
            return None
        sizes.append(extents.pop())
    split = f"Split({rhs}, axis={axis}, split=[{', '.join(sizes)}])"
    return replace(
        rule,
        lhs=f"{first}, {second}",
        rhs=f"{split}[0], {split}[1]",
        where=(),
        reverse=None,
        notes={},
    )


class _Whole(NamedTuple):
    """A tensor of which two inputs are parts."""

    first: str
    """The input that it takes the place of, and whose name it has."""
    second: str
    axis: int
    extents: tuple[str, str]


def _rule_of_parts(rule: Rule) -> Rule | None:
    """From ``A, B = Split(T)`` the rule ``Split(T) = A, B`` in which inputs are parts of others.

    All pairs of inputs that T concatenates become one input each. None where there are none, or
    one of a pair is read elsewhere as well.
    """
    left = ast.parse(rule.lhs, mode="eval").body
    right = ast.parse(rule.rhs, mode="eval").body
    assert isinstance(left, ast.Tuple)
    joining = _Joining({name: dims for name, dims in parse_inputs(rule.inputs) if dims})
    whole = joining.visit(right)
    firsts = {each.first: each for each in joining.found}
    seconds = {each.second: each for each in joining.found}
    one, other = left.elts
    if not joining.found or firsts.keys() & seconds.keys():
        return None
    if joining.alone & (firsts.keys() | seconds.keys()):
        return None
    if _names(one) & seconds.keys() or _names(other) & firsts.keys():
        return None
    pieces = [_Parting(firsts, 0).visit(one), _Parting(seconds, 1).visit(other)]
    sorts = parse_sorts(rule.inputs)
    inputs = []
    for name, dims in parse_inputs(rule.inputs):
        if name in seconds or dims is None:
            continue
        words = [ast.unparse(dim) for dim in dims]
        if name in firsts:
            words[firsts[name].axis] = " + ".join(firsts[name].extents)
        inputs.append(f"{name}[{', '.join(words)}]{SUFFIXES[sorts[name]]}")
    return replace(
        rule,
        inputs=" ".join(inputs),
        lhs=ast.unparse(whole)[1:-1],
        rhs=", ".join(map(ast.unparse, pieces)),
        limits=tuple(name for name in rule.limits if name not in seconds),
    )


def _names(tree: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


class _Joining(ast.NodeTransformer):
    """Puts the first of two inputs in the place of their concatenation; notes which they are."""

    def __init__(self, dims: dict[str, tuple[ast.expr, ...]]) -> None:
        self._dims = dims
        self.found: list[_Whole] = []
        self.alone: set[str] = set()
        """Names that are read outside of concatenations."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """An input, or the name of an operator."""
        self.alone.add(node.id)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """An operator: the first input where it concatenates two."""
        whole = self._whole(node)
        if whole is None:
            return self.generic_visit(node)
        if whole not in self.found:
            self.found.append(whole)
        return ast.Name(whole.first, ast.Load())

    def _whole(self, node: ast.Call) -> _Whole | None:
        names = [arg.id for arg in node.args if isinstance(arg, ast.Name)]
        if ast.unparse(node.func) != "Concat" or len(node.args) != 2 or len(set(names)) != 2:
            return None
        first, second = names
        if first not in self._dims or second not in self._dims:
            return None
        axis = next((ast.literal_eval(k.value) for k in node.keywords if k.arg == "axis"), 0)
        mine, yours = self._dims[first], self._dims[second]
        up_to_it = mine[: axis + 1] if axis >= 0 else mine[axis:]
        if len(mine) != len(yours) or any(isinstance(dim, ast.Starred) for dim in up_to_it):
            return None
        extents = ast.unparse(mine[axis]), ast.unparse(yours[axis])
        return _Whole(first, second, axis, extents)


class _Parting(ast.NodeTransformer):
    """Puts a part of the whole in the place of an input that is one."""

    def __init__(self, wholes: dict[str, _Whole], part: int) -> None:
        self._wholes = wholes
        self._part = part

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The part, where it is an input of that name."""
        whole = self._wholes.get(node.id)
        if whole is None:
            return node
        split = f"Split({whole.first}, axis={whole.axis}, split=[{', '.join(whole.extents)}])"
        return ast.parse(f"{split}[{self._part}]", mode="eval").body
