"""An elementwise operator that is declared anew has every law of elementwise operators at once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from xflow.core import registry
from xflow.core.arguments import declare
from xflow.core.composite import ElementwiseComposite, made, real
from xflow.core.node import Value
from xflow.core.registry import Array, Attributes, AttributeSpec, Kind
from xflow.generator.saturation.derivation import Derived, NotDerived, derive_claim
from xflow.generator.saturation.directions import Database
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Refuted, prove

DATABASE = Database.of(load_rules(default_directory()))


class Shrink(ElementwiseComposite):
    """``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, 0 in between."""

    name: ClassVar[str] = "Shrink"
    attributes = declare(
        bias=AttributeSpec(Kind.REAL, Fraction(0)), lambd=AttributeSpec(Kind.REAL, Fraction(1, 2))
    )

    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        (x,) = inputs
        bias, lambd = real(attributes, "bias"), real(attributes, "lambd")
        below = made("Where", made("Less", made("Add", x, lambd), 0), made("Add", x, bias), 0)
        return made("Where", made("Greater", x, lambd), made("Sub", x, bias), below)

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = arrays
        bias, lambd = float(attributes["bias"]), float(attributes["lambd"])  # type: ignore[arg-type]
        return np.where(x > lambd, x - bias, np.where(x < -lambd, x + bias, 0)).astype(x.dtype)


@pytest.fixture(autouse=True)
def _declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    registry.register(Shrink)


SHRINK, NOT_0_AT_0 = "Shrink({}, bias=1/4, lambd=1/2)", "Shrink({}, bias=1/4, lambd=-1)"
MOVES = {
    "Transpose": ("x[a, b]", "Transpose({}, perm=[1, 0])"),
    "Transpose of images": ("x[a, b, c, d]", "Transpose({}, perm=[0, 2, 3, 1])"),
    "Reshape": ("x[a, 6, b]", "Reshape({}, shape=[a, 2, 3, b])"),
    "Slice": ("x[a, 9, b]", "Slice({}, starts=[2], ends=[7], axes=[1], steps=[1])"),
    "Split": ("x[a, 9]", "Split({}, axis=1, split=[4, 5])[1]"),
    "Squeeze": ("x[a, b, 1, c]", "Squeeze({}, axes=[2])"),
    "Unsqueeze": ("x[a, b]", "Unsqueeze({}, axes=[0])"),
    "Resize": ("x[a, b, c, d]", "Resize({}, scales=[1, 1, 2, 2])"),
    "Gather": ("x[a, b] i[c]:int", "Gather({}, i, axis=0)"),
    "DepthToSpace": ("x[a, 4*b, c, d]", "DepthToSpace({}, blocksize=2)"),
    "Pad": ("x[a, b]", "Pad({}, pads=[1, 0, 2, 0])"),
}
"""Operators that move elements, at axes for which there are rules, and the inputs of each."""


def law(inputs: str, left: str, right: str) -> Rule:
    """An equation, of which nothing is known."""
    text = f"rule law\n  in {inputs}\n  from {left}\n  to {right}\n  reverse always\n"
    (rule,) = parse_rules(text)
    return rule


def past(name: str, function: str = SHRINK) -> Rule:
    """That a function of elements is applied before a move, or behind it."""
    inputs, move = MOVES[name]
    return law(inputs, move.format(function.format("x")), function.format(move.format("x")))


@pytest.mark.parametrize("name", MOVES)
def test_it_passes_what_moves_elements(name: str) -> None:
    found = derive_claim(past(name), DATABASE, 2)
    assert isinstance(found, Derived), found.reason


def test_it_passes_what_joins_parts() -> None:
    """One function before and behind Concat."""
    parts = ", ".join(map(SHRINK.format, "xy"))
    whole = SHRINK.format("Concat(x, y, axis=1)")
    found = derive_claim(
        law("x[n, a, b] y[n, c, b]", f"Concat({parts}, axis=1)", whole), DATABASE, 2
    )
    assert isinstance(found, Derived), found.reason


def test_what_is_not_0_at_0_does_not_pass_borders() -> None:
    rule = past("Pad", NOT_0_AT_0)
    assert isinstance(derive_claim(rule, DATABASE, 2), NotDerived)
    assert isinstance(prove(rule), Refuted)
    assert isinstance(derive_claim(past("Gather", NOT_0_AT_0), DATABASE, 2), Derived)


@pytest.mark.parametrize("outer", ["ReduceSum({}, axes=[1], keepdims=1)", "Add({}, x)", "Exp({})"])
def test_what_is_computed_of_elements_it_does_not_pass(outer: str) -> None:
    rule = law("x[n, m]", outer.format(SHRINK.format("x")), SHRINK.format(outer.format("x")))
    assert isinstance(derive_claim(rule, DATABASE, 2), NotDerived)
