"""Which rules a run may use: by the domains of their operators, and by where the model runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal, get_args

from xflow.core.value_conditions import EXACT_SUMS, fact_of
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


def on_provider(rules: Iterable[Rule], provider: str) -> list[Rule]:
    """The rules that hold for the kernels of an execution provider.

    Sums of products that 32-bit floats hold are exact on processors. Kernels for GPUs may take
    fewer digits of the factors, or transform images so that there are other sums.
    """
    return [rule for rule in rules if provider == "cpu" or not _asks_for_exact_sums(rule)]


def _asks_for_exact_sums(rule: Rule) -> bool:
    facts = (fact_of(text, rule.value_names) for text in (*rule.where, *(rule.reverse or ())))
    return any(fact is not None and fact.relation == EXACT_SUMS for fact in facts)


def _standard(rule: Rule, foreign: frozenset[str]) -> Iterator[Rule]:
    if not foreign & _mentioned(f"{rule.lhs} {rule.rhs}"):
        yield rule
        return
    yield from (each for each in rule.directions() if not foreign & _mentioned(each.rhs))


@cache
def _mentioned(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"(\w+)\(", text))
