"""Which domains of operators a rewritten model may use: ONNX's alone, or the runtime's, too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

from xflow.ops import operators
from xflow.rewriting.rule import Rule

Domains = Literal["onnx", "ort"]
"""``onnx``: rewrites bring in standard operators only; ``ort``: those of com.microsoft as well."""

DOMAINS: tuple[Domains, ...] = get_args(Domains)


def within(rules: Iterable[Rule], domains: Domains) -> list[Rule]:
    """The rules, or those directions of them, that bring in no operators of other domains.

    Those that only take such operators away serve a model that has them.
    """
    if domains == "ort":
        return list(rules)
    foreign = frozenset(op.name for op in operators() if op.domain)
    return [each for rule in rules for each in _standard(rule, foreign)]


def _standard(rule: Rule, foreign: frozenset[str]) -> Iterator[Rule]:
    if not foreign & _mentioned(f"{rule.lhs} {rule.rhs}"):
        yield rule
        return
    yield from (each for each in rule.directions() if not foreign & _mentioned(each.rhs))


def _mentioned(text: str) -> set[str]:
    return set(re.findall(r"(\w+)\(", text))
