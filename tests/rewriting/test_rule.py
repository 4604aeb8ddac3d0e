"""Rules as text: what is printed reads back, and what is wrong is said in one sentence."""

import operator
from pathlib import Path

import pytest

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.errors import RuleFileError, UnknownRuleError
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.rule import CASE, KEYS, WIDTH, Rule
from xflow.rewriting.store import count_stanzas, default_directory, load_rules, select_rules
from xflow.rewriting.text import parse_rules

MERGE = """\
rule merge-convolutions
  in       x[N, C, *S] w[O, c, *R] v[O, c, *(R + p + q)]
  param    *e *f *p *q *s *d g
  rank     1 2 3
  from     Add(Conv(x, w, pads=[*e, *f], strides=[*s], dilations=[*d], group=g), \
Conv(x, v, pads=[*(e + d * p), *(f + d * q)], strides=[*s], dilations=[*d], group=g))
  to       Conv(x, Add(Pad(w, pads=[0, 0, *p, 0, 0, *q]), v), \
pads=[*(e + d * p), *(f + d * q)], strides=[*s], dilations=[*d], group=g)
  where    p >= 0, q >= 0
  proof    reals, all sizes
"""
SIMPLE = "rule {name}\n  in x[...] y[...]\n  from Add(x, y)\n  to Add(y, x)\n"


def test_printed_rule_reads_back_equal() -> None:
    (rule,) = parse_rules(MERGE)
    (again,) = parse_rules(str(rule))
    assert again == rule
    assert str(again) == str(rule)
    assert dict(again.notes) == {"proof": "reals, all sizes"}


def test_long_lines_go_on_in_the_next_one() -> None:
    side = "Add(x, y)"
    for _ in range(9):
        side = f"Concat({side}, x, y, axis=1)"
    rule = Rule("joined", "x[n, m] y[n, m]", side, side, notes={"set": "search; follows from one"})
    lines = str(rule).splitlines()
    assert len(lines) > 6
    assert max(map(len, lines)) <= WIDTH
    assert parse_rules(str(rule)) == [rule]
    assert side in rule.statement


@pytest.mark.parametrize("name", sorted({*KEYS, CASE, "rule"} - {"in", "from"}))
def test_a_symbol_that_is_called_as_a_key_loses_no_condition(name: str) -> None:
    conditions = (*(f"n >= {number}" for number in range(1, 12)), f"{name} >= 5")
    rule = Rule("named", f"x[n, {name}]", "Relu(x)", "x", where=conditions)
    (again,) = parse_rules(str(rule))
    assert again.where == conditions
    assert again == rule


def test_notes_are_read_as_they_were_written() -> None:
    long = "a" * WIDTH
    for text in (f"{long}; # remark", f"{long}; rule b", f"{long}; to be shown", f"{long},  b"):
        (rule,) = parse_rules(f"rule noted\n  in x[n]\n  from x\n  to x\n  proof {text}\n")
        (again,) = parse_rules(str(rule))
        assert again.notes == rule.notes == {"proof": " ".join(text.split())}


def test_an_operator_without_inputs_is_told_in_a_sentence() -> None:
    with pytest.raises(RuleFileError):
        parse_rules(
            "rule none\n  in x[n]\n  from Reshape(Relu(Transpose()), shape=[k, l])\n  to x\n"
        )


def test_rule_has_one_instance_for_each_rank() -> None:
    (rule,) = parse_rules(MERGE)
    assert [len(instance.inputs[0].shape) for instance in rule.instances()] == [3, 4, 5]
    assert not any(instance.free_symbols for instance in rule.instances())


def test_negative_axes_of_an_unsqueeze_are_those_of_its_output() -> None:
    text = "rule r\n in x[*B, n]\n rank 1\n from Unsqueeze(x, axes=[-2, -1])\n to x"
    (rule,) = parse_rules(text)
    assert rule.instance(1).lhs[0].node.attributes["axes"] == (2, 3)


def test_reverse_swaps_the_sides_and_the_conditions() -> None:
    text = "rule r\n  in x[N, M]\n  from Relu(Relu(x))\n  to Relu(x)\n  where N >= 1\n"
    (rule,) = parse_rules(text + "  reverse M >= 2\n")
    back = rule.reversed()
    assert (back.name, back.lhs, back.rhs) == ("r.reverse", rule.rhs, rule.lhs)
    assert back.where == ("M >= 2",)
    assert parse_rules(str(rule)) == [rule]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rule Bad_Name\n  in x[N]\n  from Relu(x)\n  to Relu(x)\n", "no rule name"),
        ("rule a\n  in x[N]\n  to Relu(x)\n", "has no line 'from'"),
        ("rule a\n  in x[N]\n  from Relu(x)\n  from Relu(x)\n  to x\n", "a second line 'from'"),
        ("rule a\n  in x[N]\n  wher N >= 1\n", "'wher' is no line of a rule"),
        ("rule a\n    wher N >= 1\n", "'wher' is no line of a rule"),
        ("rule a\n  in x[N]\n    y[N]\n  wher N >= 1\n", "'wher' is no line of a rule"),
        ("rule a\n  in x[N]\n    y[N]\n    in z[N]\n", "a second line 'in'"),
        ("  in x[N]\n", "'in' is no line of a rule"),
        ("rule a\n  in x[N]\n  from Relu(y)\n  to x\n", "'y' is no declared input"),
        ("rule a\n  in x[N]\n  from Rleu(x)\n  to x\n", "there is no operator Rleu"),
        ("rule a\n  in x[N] x[M]\n  from Relu(x)\n  to x\n", "a second input x"),
        ("rule a\n  in x[N]\n  from Relu(x, slope=2)\n  to x\n", "no attribute slope"),
        ("rule a\n  in x[N]\n  from (Relu(x), x)\n  to x\n", "different numbers of outputs"),
        ("rule a\n  in x[...]\n  from MatMul(x, x)\n  to x\n", "inputs of any shape"),
        ("rule a\n  in x[N, M]\n  from Transpose(x, perm=[p, 0])\n  to x\n", "p is not declared"),
        ("rule a\n  in x[N]\n  from Relu(x\n  to x\n", "never closed"),
        (2 * "rule a\n  in x[N]\n  from x\n  to x\n", ":5: there is another rule a in line 1"),
    ],
)
def test_malformed_rule_is_named_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(RuleFileError, match=r"some\.rules:") as error:
        parse_rules(text, "some.rules")
    assert complaint in str(error.value)


def test_folder_is_read_in_the_order_of_file_names(tmp_path: Path) -> None:
    (tmp_path / "b.rules").write_text(SIMPLE.format(name="one"))
    (tmp_path / "a.rules").write_text("# a remark\n\n  " + SIMPLE.format(name="two"))
    (tmp_path / "notes.txt").write_text("no rules")
    assert [rule.name for rule in load_rules(tmp_path)] == ["two", "one"]
    assert count_stanzas(tmp_path) == 2


def test_empty_folder_has_no_rules(tmp_path: Path) -> None:
    assert load_rules(tmp_path) == []


def test_missing_folder_and_file_in_its_place_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RuleFileError, match="there is no such folder"):
        load_rules(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(RuleFileError, match="not a folder"):
        load_rules(tmp_path / "file")


def test_two_rules_of_one_name_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text(SIMPLE.format(name="one"))
    (tmp_path / "b.rules").write_text(SIMPLE.format(name="one"))
    with pytest.raises(RuleFileError, match=r"another rule one in .*a\.rules"):
        load_rules(tmp_path)


def test_installed_folder_exists() -> None:
    assert default_directory().is_dir()


def test_unknown_rule_name_comes_with_close_ones() -> None:
    rules = parse_rules(SIMPLE.format(name="swap-terms") + SIMPLE.format(name="other"))
    assert [rule.name for rule in select_rules(rules, ["other"])] == ["other"]
    assert [rule.name for rule in select_rules(rules, skip=["other"])] == ["swap-terms"]
    assert select_rules(rules) == rules
    with pytest.raises(UnknownRuleError, match="did you mean swap-terms"):
        select_rules(rules, ["swap-term"])
    with pytest.raises(UnknownRuleError, match="there is no such rule"):
        select_rules(rules, (), ["zzz"])
    cases = parse_rules(SIMPLE.format(name="cases") + "  case one\n  case two\n")
    with pytest.raises(UnknownRuleError, match="did you mean cases-one or cases-two"):
        select_rules(cases, ["cases"])


def test_a_rule_says_to_which_set_it_belongs() -> None:
    def rule(line: str) -> Rule:
        (made,) = parse_rules(f"rule r\n  in x[n]\n  from Neg(Neg(x))\n  to x\n{line}")
        assert parse_rules(str(made)) == [made]
        return made

    sets = [rule(line) for line in ("", "  set base\n", "  set search; follows from a, b\n")]
    assert [one.is_base for one in sets] == [True, True, False]
    assert [one.is_searched for one in sets] == [True, False, True]
    assert not RuleIndex([sets[1]])
    with pytest.raises(RuleFileError, match="no set of rules"):
        rule("  set neither\n")


def test_rules_of_the_package_are_read_once_and_those_of_a_folder_whenever_asked(
    tmp_path: Path,
) -> None:
    first, second = (load_rules(default_directory()) for _ in range(2))
    assert first is not second  # to be changed by whoever asked
    assert all(map(operator.is_, first, second))
    own = tmp_path / "own.rules"
    for text, count in ((str(first[0]), 1), ("", 0), ("\n".join(map(str, first[:3])), 3)):
        own.write_text(text)
        assert len(load_rules(tmp_path)) == count
