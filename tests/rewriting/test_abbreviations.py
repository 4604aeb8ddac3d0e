"""The line `let` of a rule: the same rule with it and without."""

from __future__ import annotations

import pytest

from xflow.core.errors import RuleFileError
from xflow.rewriting.abbreviations import LONG
from xflow.rewriting.text import parse_rules

SHORT = """
rule eight
  in       x[N]
  let      twice = Add(x, x); four = Add(twice, twice)
  from     Add(four, four)
  to       Mul(x, 8)
"""


def test_terms_stand_for_what_they_are() -> None:
    (rule,) = parse_rules(SHORT)
    assert rule.lhs == "Add({0}, {0})".format("Add(Add(x, x), Add(x, x))")
    assert rule.rhs == "Mul(x, 8)"


def test_terms_may_have_placeholders() -> None:
    text = (
        SHORT.replace("Add(x, x)", "Add(x, Y)")
        + """
  case     same  Y = x
  case     one   Y = 1
"""
    )
    same, one = parse_rules(text)
    assert same.lhs.count("Add(x, x)") == 4
    assert one.lhs.count("Add(x, 1)") == 4


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("four =", "twice =", "second meaning"),
        ("twice =", "x =", "second meaning"),
        ("twice =", "Twice =", "no term"),
        ("four = Add(twice, twice)", "four", "no term"),
        ("Add(twice, twice)", "Add(later, twice)", "later"),
        ("Add(twice, twice)", "Add(twice", "never closed"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, what: str) -> None:
    with pytest.raises(RuleFileError, match=what):
        parse_rules(SHORT.replace(old, new, 1))


def test_terms_of_terms_have_an_end() -> None:
    terms = "; ".join(f"t{n + 1} = Add(t{n}, t{n})" for n in range(60))
    text = SHORT.replace("twice = Add(x, x); four = Add(twice, twice)", f"t0 = Add(x, x); {terms}")
    with pytest.raises(RuleFileError, match="where 40,000 are allowed"):
        parse_rules(text.replace("Add(four, four)", "t60"))


def test_what_is_long_is_abbreviated_and_reads_back() -> None:
    terms = "; ".join(f"t{n + 1} = Add(t{n}, t{n})" for n in range(6))
    text = SHORT.replace("twice = Add(x, x); four = Add(twice, twice)", f"t0 = Add(x, x); {terms}")
    (rule,) = parse_rules(text.replace("Add(four, four)", "t6").replace("8", "128"))
    assert rule.lhs.count("(") > LONG
    written = str(rule)
    assert "  let " in written
    assert max(map(len, written.splitlines())) <= 100
    assert parse_rules(written) == [rule]
    assert "  let " not in str(parse_rules(SHORT)[0])
