"""Stanzas of several cases: each is a rule by itself, and what is wrong is said in one sentence."""

import pytest

from xflow.core.errors import RuleFileError
from xflow.rewriting.cases import Case, written
from xflow.rewriting.text import parse_rules

JOINED = """\
rule concat-concat-to-concat
  from     Concat(Concat(x, y, axis=AXIS), z, axis=AXIS)
  to       Concat(x, y, z, axis=AXIS)
  exact    bits
  proof    reals; certificates/concat-concat-to-concat-CASE.json
  case first-axis  AXIS = 0; in x[n, S] y[m, S] z[k, S]
    set    search; follows from one,
             another
  case last-axis   AXIS = -1; in x[B, n] y[B, m]
             z[B, k]
"""
FIRST = """\
  proof    reals; certificates/concat-concat-to-concat-CASE.json
  case first-axis  AXIS = 0; in x[n, S] y[m, S] z[k, S]"""
REDUCED = """\
rule reduced
  in       X MASK
  from     Add(OP(X, keepdims=KEEP), MASK, P)
  to       Add(OP2(OP2(X), keepdims=KEEP), MASK)
  limits   MASK
  case mean  OP = ReduceMean(axes=[0]); OP2 = Relu; X = x[1, n]; MASK = m[n]; KEEP = 0; P = Ones(n)
  case sum   OP = ReduceSum(axes=[1]); OP2 = Pad(pads=[0, 0, 0, 0]); X = v[n, 1]; MASK = m[n, 1];
             KEEP = default; P = none
"""


def test_each_case_is_a_rule() -> None:
    first, last = parse_rules(JOINED)
    assert (first.name, last.name) == (
        "concat-concat-to-concat-first-axis",
        "concat-concat-to-concat-last-axis",
    )
    assert first.lhs == "Concat(Concat(x, y, axis=0), z, axis=0)"
    assert (last.inputs, last.rhs) == ("x[B, n] y[B, m] z[B, k]", "Concat(x, y, z, axis=-1)")
    assert first.exact == last.exact == "bits"
    assert dict(last.notes) == {"proof": f"reals; certificates/{last.name}.json"}
    assert first.notes["set"] == "search; follows from one, another"


def test_values_may_be_operators_with_attributes_inputs_and_defaults() -> None:
    mean, total = parse_rules(REDUCED, checked=False)
    assert mean.lhs == "Add(ReduceMean(x, keepdims=0, axes=[0]), m, Ones(n))"
    assert mean.rhs == "Add(Relu(Relu(x), keepdims=0), m)"
    assert total.inputs == "v[n, 1] m[n, 1]"
    assert total.lhs == "Add(ReduceSum(v, axes=[1]), m)"
    assert total.rhs == "Add(Pad(Pad(v, pads=[0, 0, 0, 0]), pads=[0, 0, 0, 0]), m)"
    assert mean.limits == total.limits == ("m",)


@pytest.mark.parametrize(
    ("line", "other", "words", "number"),
    [
        ("AXIS = -1; in", "in", "case last-axis gives no value to AXIS", 9),
        ("AXIS = -1; in", "AXIS = -1; B = 2; in", "case first-axis gives no value to B", 6),
        ("axis=AXIS", "axis=0", "gives a value to AXIS, which the rule does not contain", 6),
        ("case last-axis ", "case first-axis", "a second case first-axis", 9),
        ("AXIS = 0; in", "AXIS = 0; AXIS = 1; in", "case first-axis gives two values to AXIS", 6),
        ("AXIS = 0; in", "AXIS = 0; exact bits; in", "'exact', which the rule says for all", 6),
        ("AXIS = 0; in", "AXIS = 0; in y[n]; in", "a second line 'in'", 6),
        ("AXIS = 0; in", "AXIS=0; in", "'AXIS=0' is neither a value nor a line of a rule", 6),
        ("AXIS = 0; in", "AXIS = AXIS; in", "value of AXIS in case first-axis contains AXIS", 6),
        ("AXIS = 0; in", "AXIS = 0; set base; in", "'set' stands beside case first-axis", 6),
        ("case first-axis", "case First", "'First' is no name of a case", 6),
        ("    set    search", "  set    search", "a line 'set' behind cases", 7),
        ("AXIS = 0; in x", "AXIS = OTHER; in x", "OTHER", 6),
        ("AXIS = 0; in x[n", "AXIS = 0; in x[AXIS", "'in' of case first-axis contains AXIS", 6),
        ("= -1; in", f"= {'1' * 20_000}; in", "'from' of case last-axis has 40,0", 9),
        ("= -1; in", "= none; in", "'none' leaves out an input behind another, which AXIS in", 9),
        (FIRST, "  where AXIS > 1\n  case a AXIS = default", "AXIS in the line 'where'", 6),
        (FIRST, "  where AXIS > 1\n  case a AXIS = Relu(n=1)", "AXIS is an operator in case a", 6),
        (FIRST, "  in AXIS\n  case a AXIS = x[n] y[m]", "AXIS in case a is 2 inputs", 6),
    ],
)
def test_a_bad_case_is_told_with_its_line(line: str, other: str, words: str, number: int) -> None:
    with pytest.raises(RuleFileError) as caught:
        parse_rules(JOINED.replace(line, other), "my.rules")
    assert words in str(caught.value)
    assert f"my.rules:{number}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cases_are_written_as_a_table_and_read_back() -> None:
    shared = {"from": "Transpose(x, perm=PERM)", "to": "x"}
    cases = [
        Case("short", {"PERM": "[0, 1]"}, {"in": "x[1, n]", "set": "search; follows from one"}),
        Case("of-three", {"PERM": "[0, 1, 2]"}, {"in": "x[n, 1, 1]", "where": "n >= 1"}),
    ]
    text = written("transposed", shared, cases)
    assert text.splitlines()[3:] == [
        "  case     short    PERM = [0, 1];    in x[1, n]",
        "    set      search; follows from one",
        "  case     of-three PERM = [0, 1, 2]; in x[n, 1, 1]; where n >= 1",
    ]
    assert [rule.name for rule in parse_rules(text)] == ["transposed-short", "transposed-of-three"]


def test_a_value_that_is_an_operand_is_one() -> None:
    text = """
    rule cut
      in       x[n]
      param    p q
      from     Pad(x, pads=[0, 0 - AMOUNT])
      to       Pad(x, pads=[0, -1 * AMOUNT])
      case     two AMOUNT = p + q
      case     one AMOUNT = p
    """
    two, one = parse_rules(text, checked=False)
    assert two.lhs == "Pad(x, pads=[0, 0 - (p + q)])"
    assert two.rhs == "Pad(x, pads=[0, -1 * (p + q)])"
    assert one.rhs == "Pad(x, pads=[0, -1 * p])"
