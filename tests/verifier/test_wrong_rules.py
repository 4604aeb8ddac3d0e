"""Wrong rules about codes of quantized numbers and about attention: refuted, and never proved."""

import pytest
from places import CORPUS

from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier import prove as prover
from xflow.verifier.prove import Refuted, Unknown, prove
from xflow.verifier.refutation.refute import Survived

FILES = ("quantized-bad.rules", "codes-of-reals-bad.rules", "bad_attention.rules")
BAD = [rule for name in FILES for rule in parse_rules((CORPUS / name).read_text(), name)]


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.name)
def test_a_wrong_rule_is_refuted(rule: Rule) -> None:
    assert isinstance(prove(rule, both_ways=False, infer=False), Refuted)


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.name)
def test_a_wrong_rule_is_not_proved_even_without_evaluation(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prover, "search_counterexample", lambda *_, **__: Survived(10**6))
    assert isinstance(prove(rule, both_ways=False, infer=False), Unknown)
