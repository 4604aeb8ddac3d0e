"""What every rule claims, held against ONNX Runtime's kernels on planted inputs.

Proofs are about real numbers, and the cross-check of a proof runs the operators' own readings; here
both sides of every direction that may be applied are run by the runtime that serves the models, on
inputs with NaN, infinities, zeros, ties, and the least and largest floats among their elements, see
`planting`. A sample takes half a minute. All rules at all ranks, with several instances of each:

    pytest -m many -s tests/rewriting/test_rules_in_runtime.py
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from places import CORPUS
from planting import Planted, Tally, Wrong
from runtime import run_model

from xflow.core.node import TensorType, apply, leaf
from xflow.core.registry import Operator
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules

RULES = load_rules(default_directory())
BAD = parse_rules((CORPUS / "undefined-bad.rules").read_text(encoding="utf-8"))
STEP = 12
"""One rule in so many is in the sample."""
LEAST = float(np.finfo(np.float32).min)


def judged(rules: list[Rule], instances: int, places: int, mixtures: int) -> Tally:
    tally = Tally()
    for rule in rules:
        tally.add(rule, instances, places, mixtures)
    return tally


def told(tally: Tally) -> str:
    """The findings, the first of each rule."""
    first: dict[str, str] = {}
    for finding in tally.findings:
        first.setdefault(finding.setting.way.name, str(finding))
    return "\n".join(first.values())


def test_a_sample_of_the_rules_does_in_the_runtime_what_it_claims() -> None:
    tally = judged(RULES[::STEP], instances=1, places=1, mixtures=2)
    assert tally.counts["directions"] > len(RULES) // STEP
    assert tally.counts["ranks without an instance"] == 0
    assert not told(tally)


@pytest.mark.many
@pytest.mark.timeout(0)
def test_all_rules_do_in_the_runtime_what_they_claim() -> None:
    tally = judged(RULES, instances=3, places=2, mixtures=6)
    print(tally)
    assert not told(tally)


def test_what_is_wrong_of_what_is_no_number_is_found() -> None:
    """Of the corpus of rules that lack a condition, or claim too much."""
    unseen = {
        "needs-product-of-no-columns",  # it is wrong of tensors without elements
        "exact-bits-swish",  # the kernels agree that the runtime has today
        "limits-clip-of-a-half",  # numbers as large as these are excused
        "limits-greatest-of-a-pool-of-halves",
    }
    missed = {
        rule.name for rule in BAD if not judged([rule], instances=3, places=3, mixtures=20).findings
    }
    assert missed <= unseen


def test_wrong_numbers_are_found() -> None:
    texts = {
        "a sign": "in x[...] y[...]\n  from Sub(x, y)\n  to Sub(y, x)",
        "a tie": "in x[...] y[...]\n  from Not(Less(x, y))\n  to Greater(x, y)",
        "a digit": "in x[...]\n  from Mul(x, 1)\n  to Mul(x, 16385/16384)",
        "bits": "in x[...]\n  from Div(x, 3)\n  to Mul(x, Div(1, 3))\n  exact bits",
    }
    for name, text in texts.items():
        (rule,) = parse_rules(f"rule r\n  {text}\n")
        found = {finding.wrong for finding in judged([rule], 2, 2, 4).findings}
        assert found & {Wrong.DIFFERENT, Wrong.BITS}, name


def test_overflow_on_the_way_is_told_apart() -> None:
    (rule,) = parse_rules("rule r\n  in x[...] y[...]\n  from x\n  to Div(Mul(x, y), y)\n"
                          "  where y != 0\n")  # fmt: skip
    tally = judged([rule], 2, 2, 6)
    assert tally.excused[Wrong.OVERFLOW] > 0
    assert {finding.wrong for finding in tally.findings} <= {Wrong.DIFFERENT}
    assert all(f.feed.planted is not Planted.NUMBERS for f in tally.findings)


@pytest.mark.parametrize("name", ["MaxPool", "GlobalMaxPool", "Clip"])
def test_kernels_that_hide_what_is_no_number_are_read_as_they_are(name: str) -> None:
    """Pools pass over NaN, and give the least float for -inf; a clip without a bound, as well."""
    attributes = {"kernel_shape": (2,)} if name == "MaxPool" else {}
    written = "<kernel_shape=[2]>" if attributes else ""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 3, 2] x) => (float[A, B, C] y) {{ y = {name} {written} (x) }}""")
    x = np.array([[[-np.inf, -np.inf], [np.nan, np.nan], [np.nan, 1]]], np.float32)
    (y,) = run_model(model, {"x": x})
    node = apply(name, [leaf("x", TensorType("FLOAT", x.shape))], attributes)[0].node
    assert isinstance(node.op, Operator)
    (read,) = node.op.numpy([x], node.attributes)
    assert np.array_equal(y, read, equal_nan=True)
    assert node.op.hides([x.shape], node.attributes) == (0,)
    assert y.ravel()[0] == LEAST
