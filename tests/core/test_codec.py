"""Graphs survive being written down as plain data, and what cannot is told."""

import json
from fractions import Fraction

import pytest
from graphs import call, tensor
from operator_cases import cases, element_types

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.codec import from_plain, to_plain
from xflow.core.node import TensorType, apply, leaf, opaque
from xflow.core.registry import Example, Operator
from xflow.core.size import symbol


@pytest.mark.parametrize(
    "case", [c for c in cases() if c[1].shapes][::7], ids=lambda case: case[0].name
)
def test_graphs_survive_being_written_down(case: tuple[Operator, Example]) -> None:
    op, example = case
    types, _ = element_types(op, example, "FLOAT")
    inputs = [
        leaf(f"in{number}", TensorType(dtype, shape))
        for number, (dtype, shape) in enumerate(zip(types, example.shapes, strict=True))
    ]
    outputs = apply(op, inputs, example.attributes)
    plain = json.loads(json.dumps(to_plain(outputs)))
    assert from_plain(plain, {str(value): value for value in inputs}) == outputs


def test_attributes_of_every_kind_survive() -> None:
    x = leaf("x", TensorType("FLOAT", (symbol("batch"), 8)))
    scale, bias = tensor("s", 8, constant=True), tensor("b", 8, constant=True)
    normal = call("LayerNormalization", x, scale, bias, axis=1, epsilon=Fraction(1, 3))
    flat = call("Reshape", normal, shape=(8 * symbol("batch"),))
    gelu = call("Gelu", flat, approximate="tanh")
    plain = json.loads(json.dumps(to_plain([gelu])))
    assert from_plain(plain, {str(v): v for v in (x, scale, bias)}) == (gelu,)


def test_what_has_no_plain_form_is_not_written_down() -> None:
    x = leaf("x", TensorType("FLOAT", (symbol("batch size"), 8)))
    assert to_plain([call("Reshape", x, shape=(8 * symbol("batch size"),))]) is None
    assert to_plain(opaque("Custom", [x], [x.type])) is None
    assert from_plain({"nodes": [["y"]], "outputs": [[0, 0]]}, {"x": x}) is None
