"""Codes that become reals and codes again, and reals that are rounded to codes: no class is bits.

What is true is in the table of `docs/quantization.md`, and its verdicts in `test_qdq.py`; here are
neighbours of true equations that no proof may let in.
"""

from __future__ import annotations

import pytest

from xflow.core.sorts import CODES
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.proof.code_types import code_ranges, typings
from xflow.verifier.prove import Proved, Refuted, prove

TRUE = {
    "codes within both types": "in c[n]:code\n from Clip(Cast(c, to='REAL'), min=-128, max=255)\n"
    " to Cast(c, to='REAL')",
    "codes of one type": "in c[n]:code\n"
    " from Clip(Cast(Recoded(c, to='unsigned'), to='REAL'), min=0, max=255)\n"
    " to Cast(Recoded(c, to='unsigned'), to='REAL')",
    "sums": "in c[n]:code d[n]:code\n"
    " from Clip(Add(Cast(c, to='REAL'), Cast(d, to='REAL')), min=-256, max=510)\n"
    " to Add(Cast(c, to='REAL'), Cast(d, to='REAL'))",
    "integers are rounded": "in c[n]:code d[n]:code\n"
    " from Round(Mul(Cast(c, to='REAL'), Sub(Cast(d, to='REAL'), 3)))\n"
    " to Mul(Cast(c, to='REAL'), Sub(Cast(d, to='REAL'), 3))",
    "rounding keeps the order": "in x[n] y[n] t[]\n from Round(Mul(Max(x, y), t))\n"
    " to Max(Round(Mul(x, t)), Round(Mul(y, t)))\n where t >= 0",
    "rounding is odd": "in x[n] y[n]\n from Round(Neg(Max(x, y)))\n"
    " to Neg(Max(Round(x), Round(y)))",
    "rounding down keeps the order": "in x[n] y[n]\n from Floor(Min(x, y))\n"
    " to Min(Floor(x), Floor(y))",
    "the greatest of codes": "in c[n, m]:code\n"
    " from Round(ReduceMax(Cast(c, to='REAL'), axes=[1]))\n"
    " to ReduceMax(Cast(c, to='REAL'), axes=[1])",
    "order": "in c[n]:code d[n]:code s[] z[]:code\n"
    " from Less(DequantizeLinear(c, s, z), DequantizeLinear(d, s, z))\n"
    " to Less(Cast(c, to='REAL'), Cast(d, to='REAL'))\n where s > 0",
}
PAIR = "in c[n]:code s[] t[] z[]:code v[]:code\n from QuantizeLinear(DequantizeLinear(c, s, z), "
FALSE = {
    "another scale": f"{PAIR}t, z, to='signed')\n to c\n where s > 0, t > 0",
    "another zero point": f"{PAIR}s, v, to='signed')\n to c\n where s > 0",
    "halves": "in c[n]:code\n from Round(Add(Cast(c, to='REAL'), 1/2))\n"
    " to Add(Cast(c, to='REAL'), 1/2)",
    "halves of codes": "in c[n]:code\n from Round(Mul(Cast(c, to='REAL'), 1/2))\n"
    " to Mul(Cast(c, to='REAL'), 1/2)",
    "quotients": "in c[n]:code d[n]:code\n"
    " from Round(Div(Cast(c, to='REAL'), Cast(d, to='REAL')))\n"
    " to Div(Cast(c, to='REAL'), Cast(d, to='REAL'))\n where d > 0",
    "reals are rounded": "in c[n]:code x[n]\n from Round(Mul(Cast(c, to='REAL'), x))\n"
    " to Mul(Cast(c, to='REAL'), x)",
    "cut off above": "in c[n]:code\n from Clip(Cast(c, to='REAL'), min=-128, max=254)\n"
    " to Cast(c, to='REAL')",
    "cut off below": "in c[n]:code\n from Clip(Cast(c, to='REAL'), min=-127, max=255)\n"
    " to Cast(c, to='REAL')",
    "codes of the other type": "in c[n]:code\n"
    " from Clip(Cast(Recoded(c, to='signed'), to='REAL'), min=0, max=255)\n"
    " to Cast(Recoded(c, to='signed'), to='REAL')",
    "cut off sums": "in c[n]:code d[n]:code\n"
    " from Clip(Add(Cast(c, to='REAL'), Cast(d, to='REAL')), min=-255, max=510)\n"
    " to Add(Cast(c, to='REAL'), Cast(d, to='REAL'))",
    "cut off differences": "in c[n]:code d[n]:code\n"
    " from Clip(Sub(Cast(c, to='REAL'), Cast(d, to='REAL')), min=-128, max=383)\n"
    " to Sub(Cast(c, to='REAL'), Cast(d, to='REAL'))",
    "sums over a range": "in c[n, m]:code\n"
    " from Clip(ReduceSum(Cast(c, to='REAL'), axes=[1]), min=-1000, max=1000)\n"
    " to ReduceSum(Cast(c, to='REAL'), axes=[1])",
    "a factor of any sign": "in x[n] y[n] t[]\n from Round(Mul(Max(x, y), t))\n"
    " to Max(Round(Mul(x, t)), Round(Mul(y, t)))",
    "rounding down is not odd": "in x[n] y[n]\n from Floor(Neg(Max(x, y)))\n"
    " to Neg(Max(Floor(x), Floor(y)))",
    "rounding is not additive": "in c[n]:code x[n]\n from Round(Add(Cast(c, to='REAL'), x))\n"
    " to Add(Cast(c, to='REAL'), Round(x))",
    "a zero point above the least code": "in x[n] s[] z[]:code\n"
    " from QuantizeLinear(Relu(x), s, z, to='unsigned')\n"
    " to QuantizeLinear(x, s, z, to='unsigned')\n where s > 0",
    "bounds within the range": "in x[n] s[]\n"
    " from Clip(Round(Div(Clip(x, min=0, max=6), s)), min=0, max=255)\n"
    " to Clip(Round(Div(x, s)), min=0, max=255)\n where s > 0",
    "order turned round": "in c[n]:code d[n]:code s[] z[]:code\n"
    " from Less(DequantizeLinear(c, s, z), DequantizeLinear(d, s, z))\n"
    " to Less(Cast(c, to='REAL'), Cast(d, to='REAL'))\n where s != 0",
    "the order of other scales": "in c[n]:code d[n]:code s[] t[] z[]:code\n"
    " from Less(DequantizeLinear(c, s, z), DequantizeLinear(d, t, z))\n"
    " to Less(Cast(c, to='REAL'), Cast(d, to='REAL'))\n where s > 0, t > 0",
    "least where greatest was": "in c[n, m]:code s[] z[]:code\n"
    " from Cast(QuantizeLinear(ReduceMax(DequantizeLinear(c, s, z), axes=[1]), s, z, to='signed'),"
    " to='REAL')\n to ReduceMin(Cast(c, to='REAL'), axes=[1])\n where s > 0, m >= 1",
}


def rule_of(text: str) -> Rule:
    (rule,) = parse_rules(f"rule r\n  {text}\n")
    return rule


@pytest.mark.parametrize("name", TRUE)
def test_what_is_true_of_codes_is_proved(name: str) -> None:
    verdict = prove(rule_of(TRUE[name]), both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)


UNSEEN = {"sums over a range"}
"""What is false at sizes that are greater than those that are drawn."""


@pytest.mark.parametrize("name", sorted(FALSE.keys() - UNSEEN))
def test_what_is_not_is_refuted(name: str) -> None:
    rule = rule_of(FALSE[name])
    assert isinstance(prove(rule, infer=False, both_ways=False), Refuted)


@pytest.mark.parametrize("name", FALSE)
def test_no_proof_is_found_without_the_cross_check(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples refute a false rule before a proof counts; the algebra alone has to fail as well."""
    monkeypatch.setattr("xflow.verifier.prove.search_counterexample", _nothing)
    monkeypatch.setattr("xflow.verifier.prove.search_planted", _nothing)
    assert not isinstance(prove(rule_of(FALSE[name]), infer=False, both_ways=False), Proved)


def _nothing(*_: object, **__: object) -> object:
    class Survived:
        cases = 100

    return Survived()


def test_types_are_those_for_which_both_sides_are_defined() -> None:
    (instance,) = rule_of(
        "in c[n]:code d[n]:code s[] z[]:code v[]:code\n"
        " from DequantizeLinear(c, s, z), QuantizeLinear(s, s, v, to='signed'), d\n"
        " to DequantizeLinear(c, s, z), QuantizeLinear(s, s, v, to='signed'), d"
    ).instances()
    found = list(typings(instance.lhs))
    assert {chosen["v"] for chosen in found} == {"INT8"}
    assert all(chosen["c"] == chosen["z"] for chosen in found)
    assert len({(chosen["c"], chosen["d"]) for chosen in found}) == len(CODES) ** 2
    assert code_ranges(instance.lhs) == {
        "c": (-128, 255), "z": (-128, 255), "d": (-128, 255), "v": (-128, 127),
    }  # fmt: skip


def test_sides_that_no_types_suit_have_no_ranges() -> None:
    (instance,) = rule_of(
        "in c[n]:code\n from Recoded(Recoded(c, to='signed'), to='signed')\n to c"
    ).instances()
    assert not list(typings(instance.lhs))
    assert code_ranges(instance.lhs) == {}
