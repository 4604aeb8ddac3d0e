"""Constants of one element in regions: numbers that operators are defined by, symbols, or leaves.

A definition of GELU says ``Sqrt(1/2)``, and a model says 0.70710677: the constant is that term. An
epsilon is a symbol of the rule, since attributes are numbers, too. Any other is a leaf of no axes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cache

from xflow.core.composite import Composite
from xflow.core.evaluation import run
from xflow.core.graph import Graph, walk
from xflow.core.node import Value, apply
from xflow.core.registry import Operator
from xflow.generator.generalization.definitions import definitional_rules
from xflow.generator.learning.terms import typed
from xflow.generator.vocabulary import DTYPE
from xflow.rewriting.rule import Rule

PLACEHOLDERS = (Fraction(3, 8), Fraction(5, 8), Fraction(7, 16), Fraction(11, 16))
"""Numbers that stand for symbols: no sum or product of few numbers meets them by chance."""
LARGEST_DENOMINATOR = 16
CLOSE = 1e-6
"""Relative difference of a constant in single precision and the number that it stands for."""


class Style(Enum):
    """What constants of one element become."""

    NUMBERS = "numbers"
    SYMBOLS = "symbols"
    LEAVES = "leaves"


@dataclass
class Numbers:
    """Reads the constants of one region, and the real attributes of its operators."""

    style: Style
    reals: dict[Fraction, str] = field(default_factory=dict)
    """The symbols that placeholders stand for."""
    met: int = 0
    """How many constants there were."""
    _placeholders: dict[Fraction, Fraction] = field(default_factory=dict)

    def constant(self, number: float) -> Value | None:
        """The term for a constant; None: it is a leaf."""
        self.met += 1
        if self.style is Style.LEAVES:
            return None
        if self.style is Style.SYMBOLS:
            held = self._held(Fraction(number), "s")
            return None if held is None else _scalar(held)
        known = (value for value, each in _constants() if _is_close(each, number))
        near = Fraction(number).limit_denominator(LARGEST_DENOMINATOR)
        if _is_close(float(near), number):
            return _scalar(near)
        return next(known, None)

    def attribute(self, name: str, number: Fraction) -> Fraction:
        """What a real attribute is in a region: itself if it is 0 or 1, else any number."""
        if number in (0, 1):
            return number
        held = self._held(number, name.lower())
        return number if held is None else held

    def _held(self, number: Fraction, name: str) -> Fraction | None:
        """The placeholder of a number; None where there are too many."""
        number = number.limit_denominator(10**12)
        if number not in self._placeholders:
            if len(self._placeholders) == len(PLACEHOLDERS):
                return None
            held = PLACEHOLDERS[len(self._placeholders)]
            self._placeholders[number] = held
            taken = set(self.reals.values())
            options = (name, *(f"{name}{k}" for k in range(len(PLACEHOLDERS))))
            self.reals[held] = next(each for each in options if each not in taken)
        return self._placeholders[number]


def _scalar(number: Fraction) -> Value:
    return apply("Scalar", [], {"value": number}, dtype=DTYPE)[0]


def _is_close(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * abs(one) if one else other == 0


@cache
def definitions() -> tuple[Rule, ...]:
    """The definition of each composite operator as a rule."""
    return tuple(definitional_rules(0))


@cache
def _constants() -> tuple[tuple[Value, float], ...]:
    """The numbers in definitions: terms without inputs and without axes."""
    found: dict[Value, float] = {}
    for rule in definitions():
        instance = rule.instance(max(rule.ranks))
        for node in walk(instance.rhs):
            value = node.outputs[0]
            if not _is_number(value):
                continue
            term = typed(value, {})
            (array,) = run([term], {})
            found[term] = float(array)
    return tuple(found.items())


def _is_number(value: Value) -> bool:
    op = value.node.op
    if not isinstance(op, Operator) or value.shape or Graph((value,)).leaves:
        return False
    reals = (a for node in walk((value,)) for a in node.attributes.values())
    return all(isinstance(each, Fraction) for each in reals)


@cache
def composites() -> tuple[tuple[str, frozenset[str]], ...]:
    """Each composite operator, and the operators of which one of its definitions is made."""
    found: dict[tuple[str, frozenset[str]], None] = {}
    for rule in definitions():
        instance = rule.instance(max(rule.ranks))
        op, needed = instance.lhs[0].node.op, operators_of(instance.rhs)
        if isinstance(op, Composite) and needed:  # else it changes nothing, as a Sum of one
            found[op.name, needed] = None
    return tuple(found)


def operators_of(values: tuple[Value, ...]) -> frozenset[str]:
    """The operators in a term that have inputs, those of its numbers aside."""
    return frozenset(
        node.op.name
        for node in walk(values)
        if isinstance(node.op, Operator) and node.inputs and Graph(node.outputs).leaves
    )
