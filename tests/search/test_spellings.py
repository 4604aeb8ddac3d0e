"""Composites become one operator, or one kernel of the runtime, in whichever way they are spelled.

A sample of the spellings runs with the rules that concern them; `make spellings` runs all of them,
at fixed and at dynamic sizes, with the whole database.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from longer import first
from spellings import COMPOSITES, rules_over

import xflow
from xflow.report.report import Block
from xflow.rewriting.rule import Rule

ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Neg", "Pow", "Sqrt", "Reciprocal", "Scalar", "Pi")
MOMENTS = (*ELEMENTWISE, "ReduceMean", "ReduceSum", "ReduceSumSquare", "Ones", "Zeros")
SAMPLE = {
    ("LayerNormalization", "times a reciprocal"): (*MOMENTS, "LayerNormalization"),
    ("RMSNormalization", "one over a root"): (*MOMENTS, "RMSNormalization"),
    ("Gelu", "half inside"): (*ELEMENTWISE, "Erf", "Gelu"),
    ("Gelu", "by tanh, factored"): (*ELEMENTWISE, "Tanh", "Gelu"),
    ("Swish", "divided"): (*ELEMENTWISE, "Exp", "Sigmoid", "Swish"),
    ("HardSwish", "by Min and Max"): (
        *(*ELEMENTWISE, "Min", "Max", "Relu", "Clip", "HardSigmoid", "HardSwish"),
    ),
    ("Softmax", "shifted by the maximum"): (
        *(*ELEMENTWISE, "Exp", "Log", "ReduceSum", "ReduceMax", "Softmax"),
    ),
    ("Attention", "keys transposed at once"): (
        *("MatMul", "Softmax", "Attention", "Mul", "Transpose", "Reshape", "Scalar"),
    ),
}
"""Spellings, and the operators of the rules that they need."""

TOGETHER = {"N": 2, "S": 64}
"""The sizes for which models of dynamic sizes are optimized."""

EVERY = [
    pytest.param(
        name,
        spelling,
        dynamic,
        id=f"{name}-{spelling}-{'dynamic' if dynamic else 'static'}",
        marks=pytest.mark.xfail(strict=True, reason=composite.missed[spelling])
        if spelling in composite.missed
        else (),
    )
    for name, composite in COMPOSITES.items()
    for spelling in composite.spellings
    for dynamic in (False, True)
]


def recognised(name: str, spelling: str, *, dynamic: bool, rules: Sequence[Rule] | None) -> Block:
    """The one block that `xflow optimize --cost estimated` reports of a spelling."""
    model = COMPOSITES[name].model(spelling, dynamic=dynamic)
    shapes = {
        value.name: [
            TOGETHER.get(dim.dim_param, dim.dim_value) for dim in value.type.tensor_type.shape.dim
        ]
        for value in model.graph.input
    }
    result = xflow.optimize(
        model, cost="estimated", budget=60, check=1, rules=rules, input_shapes=shapes
    )
    (block,) = result.report.blocks
    return block


@pytest.mark.parametrize("dynamic", first([False, True], 1), ids=["static", "dynamic"])
@pytest.mark.parametrize(("name", "spelling"), SAMPLE)
def test_a_sample_of_spellings_is_recognised(name: str, spelling: str, dynamic: bool) -> None:
    rules = rules_over(*SAMPLE[name, spelling])
    block = recognised(name, spelling, dynamic=dynamic, rules=rules)
    assert (block.kind, block.recognised) == (COMPOSITES[name].kind, True), block.reason


@pytest.mark.spellings
@pytest.mark.parametrize(("name", "spelling", "dynamic"), EVERY)
def test_every_spelling_is_recognised(name: str, spelling: str, dynamic: bool) -> None:
    block = recognised(name, spelling, dynamic=dynamic, rules=None)
    assert (block.kind, block.recognised) == (COMPOSITES[name].kind, True), block.reason


@pytest.mark.parametrize("name", COMPOSITES)
def test_there_are_at_least_three_other_spellings(name: str) -> None:
    assert len(COMPOSITES[name].spellings) - len(COMPOSITES[name].missed) >= 4
