"""Rules on codes of quantized numbers: the true ones are proved, and counterexamples can be run.

That the wrong ones are refuted is tested in `test_wrong_rules.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from places import CORPUS

from xflow.core.errors import RuleFileError
from xflow.rewriting.rule import BITS, Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Proved, Refuted, prove
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.verdicts import Confirmed
from xflow.verifier.refutation.runnable import save_counterexample

GOOD = parse_rules((CORPUS / "quantized-good.rules").read_text(), "quantized-good.rules")
BAD = parse_rules((CORPUS / "quantized-bad.rules").read_text(), "quantized-bad.rules")


@pytest.mark.parametrize("rule", GOOD, ids=lambda rule: rule.name)
def test_a_true_rule_is_proved_to_hold_to_the_bit_and_confirmed(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    assert verdict.exact == BITS
    assert verdict.where == rule.where
    claimed = replace(rule, exact=verdict.exact, types=verdict.types)
    assert isinstance(recheck_rule(claimed, verdict.certificate), Confirmed)


@pytest.mark.parametrize("sum_of", ["Add(w, u)", "Max(w, u)", "Neg(w)", "Mul(w, 2)"])
def test_nothing_is_computed_of_codes(sum_of: str) -> None:
    """A sum of two codes wraps around in 8 bits, and their products are added up in 32."""
    text = (
        "rule r\n  in x[N, C, H, W]:code w[O, C, R, S]:code u[O, C, R, S]:code\n"
        f"  from ConvInteger(x, {sum_of})\n  to ConvInteger(x, {sum_of})\n"
    )
    with pytest.raises(RuleFileError, match="CODE"):
        parse_rules(text)


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "INT8", "UINT8", "INT64"])
def test_rules_speak_of_no_single_element_type(dtype: str) -> None:
    """Each rounds or wraps around in its own way, of which a proof about numbers says nothing."""
    side = f"Add(Cast(b, to='{dtype}'), Cast(b, to='{dtype}'))"
    with pytest.raises(RuleFileError, match="single element type"):
        parse_rules(f"rule r\n  in b[n]:bool\n  from {side}\n  to {side}\n")


@pytest.mark.parametrize(
    ("left", "right", "proved"),
    [
        ("NearestFloat(Transpose(k))", "Transpose(NearestFloat(k))", True),
        ("NearestFloat(Add(k, k))", "NearestFloat(Mul(k, 2))", False),
        ("NearestFloat(Sub(Add(k, k), k))", "NearestFloat(k)", False),
        ("NearestFloat(Add(k, k))", "Add(NearestFloat(k), NearestFloat(k))", False),
    ],
)
def test_integers_become_the_same_floats_wherever_they_are_moved(
    left: str, right: str, proved: bool
) -> None:
    """What is computed of them wraps around, which a proof about numbers does not see."""
    (rule,) = parse_rules(f"rule r\n  in k[n, n]:int\n  from {left}\n  to {right}\n")
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved) == proved, str(verdict)
    if isinstance(verdict, Proved):
        claimed = replace(rule, exact=verdict.exact, types=verdict.types)
        assert isinstance(recheck_rule(claimed, verdict.certificate), Confirmed)


UNRUNNABLE = "zero-point-not-recoded"
"""A rule with an operator that ONNX does not have."""


@pytest.mark.parametrize(
    "name", [UNRUNNABLE, "zero-points-exchanged", "not-rounded", "codes-of-two-scales"]
)
def test_a_counterexample_can_be_run(name: str, tmp_path: Path) -> None:
    (rule,) = (rule for rule in BAD if rule.name == name)
    verdict = prove(rule, both_ways=False, infer=False)
    assert isinstance(verdict, Refuted)
    saved = save_counterexample(verdict.counterexample, tmp_path)
    assert saved.confirmed == (name != UNRUNNABLE)
