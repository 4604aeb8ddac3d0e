"""Operators of rules that stand for any operator with a property: which ones, and what follows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from graphs import call, tensor

from xflow.core.registry import Operator
from xflow.core.size import symbol
from xflow.core.spec import Element
from xflow.ops import operator, operators
from xflow.ops.schematic import is_function, standing_for

ANY, OF_ZERO = operator("Elementwise"), operator("ZeroPreserving")
FUNCTIONS = [op for op in operators() if is_function(op) and op.arity == (1, 1)]


@pytest.mark.parametrize(
    "name", ["Relu", "Mish", "Erf", "Elu", "Clip", "HardSigmoid", "Log", "Sub", "Pow", "Max", "Sum"]
)
def test_it_stands_for_functions_of_one_number_or_two(name: str) -> None:
    op = operator(name)
    assert ANY.stands_for(op, {}, "FLOAT")
    assert ANY in standing_for(op)


@pytest.mark.parametrize(
    "name",
    ["PRelu", "Softmax", "Not", "Equal", "Cast", "Identity", "Transpose"],
)
def test_it_stands_for_nothing_else(name: str) -> None:
    """Other numbers of inputs, Booleans, other types, rows; what is a mere name for its input."""
    assert not standing_for(operator(name))
    assert not ANY.stands_for(operator(name), {}, "FLOAT")


def test_what_is_general_stands_for_what_is_less_so() -> None:
    assert ANY.stands_for(OF_ZERO, {}, "REAL")
    assert standing_for(OF_ZERO) == (ANY,)
    assert not OF_ZERO.stands_for(ANY, {}, "REAL")
    assert not standing_for(ANY)


@pytest.mark.parametrize(("name", "expected"), [("Add", True), ("Max", True), ("Div", False)])
def test_of_integers_it_stands_for_what_is_declared_for_them(name: str, expected: bool) -> None:
    """The runtime stops where an integer is divided by 0, which a rule might bring about."""
    assert ANY.stands_for(operator(name), {}, "INT32") == expected


@pytest.mark.parametrize("op", FUNCTIONS, ids=str)
def test_what_it_stands_for_reads_one_element_alone(op: Operator) -> None:
    """By both readings: the declaration, and what numpy computes of elements in another order."""
    attributes = call(op.name, tensor("x", 7, 5), **op.examples[0].attributes).node.attributes
    read: list[tuple[object, ...]] = []

    def element(index: tuple[object, ...]) -> Element:
        read.append(index)
        return Element("x", index)  # type: ignore[arg-type]

    index = symbol("i"), symbol("j")
    op.at([element], [(symbol("n"), symbol("m"))], attributes, 0, index)
    assert read
    assert set(read) == {index}
    numbers = np.random.default_rng(0).standard_normal((7, 5))
    order = np.random.default_rng(1).permutation(numbers.size)
    with np.errstate(all="ignore"):
        (there,) = op.numpy([numbers], attributes)
        (turned,) = op.numpy([numbers.reshape(-1)[order]], attributes)
    np.testing.assert_array_equal(there.reshape(-1)[order], turned)


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("Relu", {}, True),
        ("Tanh", {}, True),
        ("Mish", {}, True),
        ("Selu", {"alpha": Fraction(10) ** 38, "gamma": Fraction(10) ** 38}, False),  # inf * 0
        ("HardSwish", {}, True),
        ("Sigmoid", {}, False),
        ("Exp", {}, False),
        ("Log", {}, False),
        ("Reciprocal", {}, False),
        ("HardSigmoid", {"alpha": Fraction(1, 5), "beta": Fraction(1, 2)}, False),
        ("HardSigmoid", {"alpha": Fraction(1, 5), "beta": Fraction(0)}, True),
        ("Clip", {"min": Fraction(-1), "max": Fraction(1)}, True),
        ("Clip", {"min": Fraction(1), "max": Fraction(2)}, False),
        ("Sub", {}, True),
        ("Max", {}, True),
        ("Div", {}, False),
        ("Pow", {}, False),
    ],
)
def test_what_is_0_at_0_depends_on_the_attributes(
    name: str, attributes: dict[str, Fraction], expected: bool
) -> None:
    assert OF_ZERO.stands_for(operator(name), attributes, "FLOAT") == expected
