"""Rules of all outputs of an operator that follow from rules about its first one.

From ``Attention(q, Concat(p, k), Concat(u, v)) = CachedAttention(q, k, v, p, u)[0]`` and the
definition of the operator on the right follows which values its other outputs are. Where the left
side computes them on its way, as the results of the two concatenations, or has an operator with as
many outputs, these are equated besides, so that a rewrite need not compute them again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from xflow.core.composite import Composite
from xflow.core.node import Node, Value
from xflow.core.registry import Operator
from xflow.rewriting.rule import Rule


def output_rules(rule: Rule) -> Iterator[Rule]:
    """The rule of all outputs that follows from a rule about the first one; it is to be proved."""
    trees = [ast.parse(side, mode="eval").body for side in (rule.lhs, rule.rhs)]
    if any(isinstance(tree, ast.Tuple) for tree in trees):
        return
    instance = rule.instance(rule.ranks[0])
    sides = []
    for tree, (value,) in zip(trees, (instance.lhs, instance.rhs), strict=True):
        written = _written(tree, value)
        if written is None:
            return
        sides.append(written)
    calls = [_several(written) for written in sides]
    if any(len(found) > 1 for found in calls) or not any(calls):
        return
    further: list[list[str]] = []
    for written, own, others in zip(sides, calls, reversed(calls), strict=True):
        node = (own or others)[0]
        outputs = node.outputs if own else _defined(node)
        texts = [_text(written, value) for value in outputs[1:]]
        further.append([text for text in texts if text is not None])
    if not further[0] or len(further[0]) != len(further[1]):
        return
    lhs, rhs = (
        ", ".join((side, *texts)) for side, texts in zip((rule.lhs, rule.rhs), further, strict=True)
    )
    yield replace(rule, lhs=lhs, rhs=rhs, where=(), reverse=None, notes={})


def _written(tree: ast.expr, value: Value) -> dict[Value, str] | None:
    """How a rule writes each value of a side; None where it abbreviates inputs of operators."""
    found: dict[Value, str] = {value: ast.unparse(tree)}
    stack = [(tree, value)]
    while stack:
        term, made = stack.pop()
        inner = term.value if isinstance(term, ast.Subscript) else term
        if not isinstance(inner, ast.Call):
            continue
        if len(inner.args) != len(made.node.inputs):
            return None
        for part, source in zip(inner.args, made.node.inputs, strict=True):
            found[source] = ast.unparse(part)
            stack.append((part, source))
    return found


def _several(written: dict[Value, str]) -> list[Node]:
    """The operators of several outputs that others define, where the first output is read alone."""
    read: dict[Node, set[int]] = {}
    for value in written:
        read.setdefault(value.node, set()).add(value.index)
    return [
        node
        for node, indices in read.items()
        if isinstance(node.op, Composite) and len(node.outputs) > 1 and indices == {0}
    ]


def _defined(node: Node) -> tuple[Value, ...]:
    assert isinstance(node.op, Composite)
    return node.op.define(node.inputs, node.attributes)


def _text(written: dict[Value, str], value: Value) -> str | None:
    """A value as the side writes it, or as another output of an operator that it has."""
    if value in written:
        return written[value]
    node = value.node
    if isinstance(node.op, Operator) and node.outputs[0] in written:
        return written[node.outputs[0]].removesuffix("[0]") + f"[{value.index}]"
    return None
