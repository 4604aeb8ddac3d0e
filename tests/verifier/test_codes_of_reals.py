"""Codes that become reals and codes again: what rounds, is cut off and is compared of integers.

That the neighbours of these equations are refuted, and not let in by the algebra, is tested in
`test_wrong_rules.py`; what the runtime makes of such equations is in `test_qdq.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from places import CORPUS

from xflow.core.errors import RuleFileError
from xflow.core.sorts import CODES
from xflow.rewriting.instance import Instance
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.proof.code_types import code_ranges, typings
from xflow.verifier.prove import Proved, Refuted, prove
from xflow.verifier.recheck import check
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.forms import Unreplayable
from xflow.verifier.recheck.steps import ranges_of_codes
from xflow.verifier.recheck.verdicts import Confirmed

GOOD = parse_rules((CORPUS / "codes-of-reals-good.rules").read_text(), "codes-of-reals-good.rules")
BAD = parse_rules((CORPUS / "codes-of-reals-bad.rules").read_text(), "codes-of-reals-bad.rules")


@pytest.mark.parametrize("rule", GOOD, ids=lambda rule: rule.name)
def test_a_true_rule_is_proved_and_confirmed(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    claimed = replace(
        rule,
        where=verdict.where,
        exact=verdict.exact,
        types=verdict.types,
        limits=verdict.limits,
    )
    found = recheck_rule(claimed, verdict.certificate)
    assert isinstance(found, Confirmed), str(found)


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.name)
def test_the_second_checker_shows_no_wrong_rule_even_without_evaluation(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows each by itself, as at ranks of which a certificate says nothing."""
    monkeypatch.setattr(check, "compare_at_random", lambda *_, **__: 10**6)
    for instance in rule.instances():
        with pytest.raises(Unreplayable):
            check._Rank(instance, None, 0).check()


def instance_of(text: str) -> Instance:
    (rule,) = parse_rules(f"rule r\n  {text}\n")
    (instance,) = rule.instances()
    return instance


def test_types_are_those_for_which_both_sides_are_defined() -> None:
    instance = instance_of(
        "in c[n]:code d[n]:code s[] z[]:code v[]:code\n"
        " from DequantizeLinear(c, s, z), QuantizeLinear(s, s, v, to='signed'), d\n"
        " to DequantizeLinear(c, s, z), QuantizeLinear(s, s, v, to='signed'), d"
    )
    found = list(typings(instance.lhs))
    assert {chosen["v"] for chosen in found} == {"INT8"}
    assert all(chosen["c"] == chosen["z"] for chosen in found)
    assert len({(chosen["c"], chosen["d"]) for chosen in found}) == len(CODES) ** 2
    either = (-128, 255)
    ranges = {"c": either, "z": either, "d": either, "v": (-128, 127)}
    assert code_ranges(instance.lhs) == ranges_of_codes(instance) == ranges


def test_sides_that_no_types_suit_have_no_ranges() -> None:
    instance = instance_of(
        "in c[n]:code\n from Recoded(Recoded(c, to='signed'), to='signed')\n to c"
    )
    assert not list(typings(instance.lhs))
    assert code_ranges(instance.lhs) == ranges_of_codes(instance) == {}


def test_a_code_that_a_condition_bounds_is_drawn_whole() -> None:
    (rule,) = parse_rules(
        "rule r\n  in c[n]:code\n  from Relu(Sub(Cast(c, to='REAL'), 1))\n"
        "  to Sub(Cast(c, to='REAL'), 1)\n  where c > 0\n"
    )
    assert not isinstance(prove(rule, both_ways=False, infer=False), Refuted)


def test_a_parameter_with_the_name_of_an_input_is_refused() -> None:
    with pytest.raises(RuleFileError, match="c is declared twice"):
        parse_rules(
            "rule r\n  in c[n]:code\n  param c:real\n"
            "  from Mul(Cast(c, to='REAL'), Scalar(value=c))\n"
            "  to Mul(Scalar(value=c), Cast(c, to='REAL'))\n"
        )
