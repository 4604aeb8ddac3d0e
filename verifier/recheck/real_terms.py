"""Terms of cvc5 for real numbers, with facts about the functions in them.

Each fact is true whatever finite value a function is given where it is not defined.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

from xflow.core.sorts import CODES, integer_range
from xflow.verifier.recheck.laws import AT_POINT

try:
    import cvc5
except ImportError:  # see `solver`
    cvc5 = None


VALUES = {
    **{at: value for at, value in AT_POINT.items() if at[0] != "sqrt"},  # it follows from squares
    ("exp", Fraction(0)): Fraction(1),
}
"""Values of functions at some points."""
STEPS = frozenset({"round", "floor"})
"""Functions that keep the order, of which integers are fixed points."""
MAX_STEPS = 4
"""Applications of one of them whose order is spelled out."""
ENDS = frozenset(end for dtype in CODES for end in integer_range(dtype)) - {0}
"""The least and the greatest code of each type."""
MAX_ORDERED = 5
"""Exponentials, and 1, whose order is spelled out."""


class RealTerms:
    """Makes terms; `facts` holds what is true of them.

    `of_elements` holds what functions of elements are at some points, which are worth a fact only
    where elements are compared.
    """

    def __init__(self) -> None:
        self.manager = cvc5.TermManager()
        self.real = self.manager.getRealSort()
        self.facts: list[Any] = []
        self.of_elements: list[Any] = []
        self._functions: dict[tuple[str, int], Any] = {}
        self._exponentials: dict[Any, Any] = {}
        self._steps: dict[str, dict[Any, Any]] = {}
        """What functions that round to integers were applied to, with the results."""
        self._whole: list[Any] = []
        """Integers that may be ends of ranges."""

    def make(self, kind: Any, *args: Any) -> Any:
        """A term; a sum or a product of one is that one."""
        if len(args) == 1 and kind in (cvc5.Kind.ADD, cvc5.Kind.MULT, cvc5.Kind.OR, cvc5.Kind.AND):
            return args[0]
        return self.manager.mkTerm(kind, *args)

    def number(self, value: Fraction | int) -> Any:
        """A rational number."""
        value = Fraction(value)
        return self.manager.mkReal(value.numerator, value.denominator)

    def related(self, value: Any, relation: str) -> Any:
        """That a number is in a relation to 0: ``!=``, ``>`` or ``>=``."""
        kinds = {">": cvc5.Kind.GT, ">=": cvc5.Kind.GEQ, "!=": cvc5.Kind.DISTINCT}
        return self.make(kinds[relation], value, self.number(0))

    def differs(self, a: Any, b: Any) -> Any:
        """That two numbers differ."""
        return self.make(cvc5.Kind.DISTINCT, a, b)

    def implies(self, premise: Any, conclusion: Any) -> None:
        """Know that `conclusion` holds where `premise` does."""
        self.facts.append(self.make(cvc5.Kind.IMPLIES, premise, conclusion))

    def tie(self, sign: Any, value: Any) -> None:
        """Know that an integer is the sign of a real number."""
        kinds, nothing = cvc5.Kind, self.number(0)
        for kind, number in ((kinds.GT, 1), (kinds.EQUAL, 0), (kinds.LT, -1)):
            is_number = self.make(kinds.EQUAL, sign, self.manager.mkInteger(number))
            self.facts.append(self.make(kinds.EQUAL, is_number, self.make(kind, value, nothing)))

    def inverse(self, value: Any) -> Any:
        """One divided by a number; any number where that one is 0."""
        inverse = self.apply("inverse", value)
        one = self.make(cvc5.Kind.EQUAL, self.make(cvc5.Kind.MULT, inverse, value), self.number(1))
        self.implies(self.differs(value, self.number(0)), one)
        # Follows, but not easily.
        for kind in (cvc5.Kind.GT, cvc5.Kind.LT):
            self.implies(
                self.make(kind, value, self.number(0)), self.make(kind, inverse, self.number(0))
            )
        return inverse

    def apply(self, name: str, *args: Any) -> Any:
        """A function of which nothing is known."""
        key = name, len(args)
        if key not in self._functions:
            sort = self.real
            if args:
                sort = self.manager.mkFunctionSort([self.real] * len(args), self.real)
            self._functions[key] = self.manager.mkConst(sort, f"f{len(self._functions)}")
        known = self._functions[key]
        return self.make(cvc5.Kind.APPLY_UF, known, *args) if args else known

    def function(self, name: str, args: list[Any]) -> Any:
        """A function of the language; some number where it is not defined."""
        kinds, nothing = cvc5.Kind, self.number(0)
        if name == "sign":
            (arg,) = args
            less = self.make(kinds.ITE, self.make(kinds.LT, arg, nothing), self.number(-1), nothing)
            return self.make(kinds.ITE, self.make(kinds.GT, arg, nothing), self.number(1), less)
        value = self.apply(name, *args)
        if name in STEPS:
            self._steps.setdefault(name, {})[args[0]] = value
        for (known, point), there in VALUES.items() if args else ():
            if known == name:
                at_point = self.make(kinds.EQUAL, args[0], self.number(point))
                is_there = self.make(kinds.EQUAL, value, self.number(there))
                fact = self.make(kinds.IMPLIES, at_point, is_there)
                of_element = args[0].getKind() == kinds.CONSTANT
                (self.of_elements if of_element else self.facts).append(fact)
        if name == "exp":
            self._exponentials[args[0]] = value
            self.facts.append(self.make(kinds.GT, value, nothing))
        elif name == "sqrt":
            (under,) = args
            self.facts.append(self.make(kinds.GEQ, value, nothing))
            square = self.make(kinds.EQUAL, self.make(kinds.MULT, value, value), under)
            self.implies(self.make(kinds.GEQ, under, nothing), square)
        return value

    def know_order(self) -> None:
        """Know that ``a > c`` just where ``exp a > exp c``, and ``exp a exp c = 1`` for ``a = -c``.

        It is said where what they are of holds maxima, where it says more than that equal ones
        are equal, and of few exponentials: it makes questions harder.
        """
        known = [(self.number(0), self.number(1)), *self._exponentials.items()]
        if len(known) > MAX_ORDERED or not any(map(_has_choice, self._exponentials)):
            return
        kinds = cvc5.Kind
        for (a, b), (c, d) in itertools.combinations(known, 2):
            for kind in (kinds.GT, kinds.EQUAL):
                self.facts.append(
                    self.make(kinds.EQUAL, self.make(kind, a, c), self.make(kind, b, d))
                )
            opposite = self.make(kinds.EQUAL, a, self.make(kinds.NEG, c))
            one = self.make(kinds.EQUAL, self.make(kinds.MULT, b, d), self.number(1))
            self.implies(opposite, one)

    def know_integer(self, value: Any, low: int, high: int) -> None:
        """Know that a code is in a range; with the ends of types it makes further integers."""
        kinds = cvc5.Kind
        self.facts.append(self.make(kinds.GEQ, value, self.number(low)))
        self.facts.append(self.make(kinds.LEQ, value, self.number(high)))
        for end in map(self.number, (0, *sorted(ENDS))):
            self._whole += [self.make(kinds.SUB, end, value), self.make(kinds.SUB, value, end)]

    def know_steps(self) -> None:
        """Know that functions that round to integers keep the order, between integers as well.

        It is said of few of them: it makes questions harder.
        """
        kinds = cvc5.Kind
        for known in self._steps.values():
            if len(known) > MAX_STEPS:
                continue
            fixed = [(each, each) for each in (self.number(0), *self._whole)]
            between = itertools.combinations(known.items(), 2)
            for (a, b), (c, d) in (*between, *itertools.product(known.items(), fixed)):
                for kind in (kinds.GEQ, kinds.LEQ):
                    self.implies(self.make(kind, a, c), self.make(kind, b, d))


def _has_choice(value: Any) -> bool:
    return value.getKind() == cvc5.Kind.ITE or any(map(_has_choice, value))
