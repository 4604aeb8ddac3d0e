"""Parses the normal forms of a certificate, see `xflow.verifier.certificate` for the format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from xflow.core.constraint import Constraint, parse_constraint
from xflow.core.errors import SizeError
from xflow.core.size import Expr, Lookup, OpaqueInteger, Size, atom_size, replace_opaque
from xflow.core.size_text import parse_size
from xflow.verifier.recheck.comparisons import sign_of
from xflow.verifier.recheck.forms import (
    Apply,
    Atom,
    Choice,
    Factor,
    Most,
    Nested,
    Read,
    Sum,
    Term,
    Unreplayable,
    canonical,
    collect,
    term,
)


@lru_cache(100_000)
def read_size(text: str) -> Size:
    """A size. Raises Unreplayable."""
    try:
        return parse_size(text)
    except (SizeError, ZeroDivisionError):
        raise Unreplayable(f"{text!r} is no size") from None


@lru_cache(100_000)
def read_condition(text: str) -> Constraint:
    """A condition that compares no real numbers. Raises Unreplayable."""
    try:
        return canonical(parse_constraint(text))
    except (SizeError, ZeroDivisionError):
        raise Unreplayable(f"{text!r} is no condition") from None


def split(text: str) -> list[str]:
    """The parts between commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


SIGN = "_sign"
"""A list of integers by this name, which no input has, stands for the comparisons of a record."""


class Reader:
    """Reads the parts of a record that may contain comparisons.

    `signs` maps each text of a comparison to the normal form whose sign it is. `sign` makes the
    integer that stands for a sign. Raises Unreplayable.
    """

    def __init__(self, signs: object, sign: Callable[[Sum], Size] = sign_of):
        if not isinstance(signs, dict | None):
            raise Unreplayable("the comparisons of a record are no table")
        self._texts: list[str] = []
        self._signs: list[Size] = []
        # A comparison inside another one has the shorter text.
        for text in sorted(signs or {}, key=lambda text: (len(text), text)):
            value = sign(self.sum((signs or {})[text]))
            self._texts.append(text)
            self._signs.append(value)

    def conditions(self, text: str) -> tuple[Constraint, ...]:
        """Conditions with commas between them."""
        for number in reversed(range(len(self._texts))):
            text = text.replace(self._texts[number], f"{SIGN}[{number}]")
        return tuple(map(self._condition, split(text)))

    def _condition(self, text: str) -> Constraint:
        plain = read_condition(text)
        if not self._signs:
            return plain
        return canonical(Constraint(replace_opaque(plain.difference, self._sign), plain.relation))

    def _sign(self, atom: OpaqueInteger) -> Size:
        match atom:
            case Lookup(name, (int(number),)) if name == SIGN and number < len(self._signs):
                return self._signs[number]
        return atom_size(atom)

    def sum(self, data: object) -> Sum:
        """A normal form."""
        if not isinstance(data, list):
            raise Unreplayable(f"{data!r} is no sum of terms")
        return collect(self.term(item) for item in data)

    def term(self, data: object) -> Term:
        """A term."""
        if not isinstance(data, dict) or not data.keys() <= {"times", "sum", "where", "of"}:
            raise Unreplayable(f"{data!r} is no term")
        factors: list[tuple[Factor, int]] = []
        for item in data.get("of", []):
            body, exponent = item if isinstance(item, list) else (item, 1)
            if not isinstance(exponent, int):
                raise Unreplayable(f"{exponent!r} is no exponent")
            factors.append((self._factor(body), exponent))
        try:
            coefficient = Fraction(data.get("times", "1"))
        except (ValueError, TypeError, ZeroDivisionError):
            raise Unreplayable(f"{data.get('times')!r} is no number") from None
        variables = _words(data.get("sum", ""))
        return term(coefficient, variables, self.conditions(data.get("where", "")), factors)

    def _factor(self, data: object) -> Factor:
        if isinstance(data, str):
            match = re.fullmatch(r"([^\[\]]+)\[(.*)\]", data)
            if match is None:
                raise Unreplayable(f"{data!r} is no element of an input")
            name, index = match.groups()
            return Read(name, tuple(map(read_size, split(index))))
        match data:
            case {"size": str(text)}:
                size = read_size(text)
                if not isinstance(size, Expr):
                    raise Unreplayable(f"{text!r} has no symbol")
                return Atom(size)
            case {"function": str(name), "args": list(args)}:
                return Apply(name, tuple(map(self.sum, args)))
            case {"inverse of": body}:
                return Nested(self.sum(body))
            case {"maximum": list(choices)}:
                return Most(tuple(map(self._choice, choices)))
            case {"unknown": kind}:
                raise Unreplayable(f"a factor of kind {kind} has no replay")
        raise Unreplayable(f"{data!r} is no factor")

    def _choice(self, data: Any) -> Choice:
        if not isinstance(data, dict) or "value" not in data:
            raise Unreplayable(f"{data!r} is no value under a maximum")
        return Choice(
            _words(data.get("over", "")),
            self.conditions(data.get("where", "")),
            self.sum(data["value"]),
        )


def _words(text: object) -> tuple[str, ...]:
    words = tuple(str(text).split())
    if len(set(words)) < len(words):
        raise Unreplayable(f"{text!r} binds a variable twice")
    return words


def read_map(data: object) -> Mapping[str, Size]:
    """A change of variables. Raises Unreplayable."""
    if not isinstance(data, dict):
        raise Unreplayable(f"{data!r} is no change of variables")
    return {str(name): read_size(str(text)) for name, text in data.items()}
