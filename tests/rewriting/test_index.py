"""The index of rules, which all searches of a process share."""

import pytest

from xflow.ops import operator
from xflow.rewriting import index
from xflow.rewriting.index import RuleIndex, index_of
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules

RULES = tuple(
    parse_rules(
        "rule twice\n  in x[...]\n  from Relu(Relu(x))\n  to Relu(x)\n"
        "rule neg\n  in x[...]\n  from Relu(Neg(Relu(x)))\n  to Relu(Neg(Relu(Relu(x))))\n"
        "rule abs\n  in x[...]\n  from Relu(Abs(x))\n  to Abs(x)\n"
    )
)


def names(found: RuleIndex) -> list[str]:
    return [entry.name for entry in found.single(operator("Relu"), 2)]


def test_it_is_made_once_for_equal_rules_and_anew_for_others() -> None:
    again = tuple(parse_rules("\n".join(map(str, RULES))))
    assert again == RULES
    assert index_of(again) is index_of(RULES)
    assert index_of(RULES[:2]) is not index_of(RULES)


def test_after_an_interruption_all_rules_are_read_and_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = names(RuleIndex(RULES))
    assert "abs" in whole
    interrupted = RuleIndex(RULES)
    entry = index._entry

    def fails(rule: Rule, rank: int) -> index.Entry | None:
        if rule.name == "abs":
            raise KeyboardInterrupt
        return entry(rule, rank)

    with monkeypatch.context() as patched:
        patched.setattr(index, "_entry", fails)
        with pytest.raises(KeyboardInterrupt):
            names(interrupted)
    assert names(interrupted) == whole


def test_a_stack_becomes_an_operator_and_no_operator_a_stack() -> None:
    (rule,) = parse_rules(
        "rule stack\n  in x[n] y[n]\n"
        "  from ReduceMax(Concat(Unsqueeze(x, axes=[1]), Unsqueeze(y, axes=[1]), axis=1),"
        " axes=[1], keepdims=0)\n  to Max(x, y)\n  reverse always\n"
    )
    found = RuleIndex([rule])
    assert [entry.name for entry in found.single(operator("ReduceMax"), 1)] == ["stack"]
    assert not list(found.single(operator("Max"), 1))


def test_no_operator_is_brought_in_that_the_runtime_spells_out() -> None:
    (rule,) = parse_rules(
        "rule einsum\n  in x[n, m] y[l, m]\n  from Einsum(x, y, equation='ab,cb->ac')\n"
        "  to MatMul(x, Transpose(y))\n  reverse always\n"
    )
    found = RuleIndex([rule])
    assert [entry.name for entry in found.single(operator("Einsum"), 2)] == ["einsum"]
    assert not list(found.single(operator("MatMul"), 2))


def test_two_outputs_of_one_operator_ask_for_one() -> None:
    split = "Split({}, axis=0, split=[n, m])"
    parts = ", ".join(f"{split.format('Relu(x)')}[{k}]" for k in (0, 1))
    of_parts = ", ".join(f"Relu({split.format('x')}[{k}])" for k in (0, 1))
    (rule,) = parse_rules(f"rule parts\n  in x[n + m]\n  from {parts}\n  to {of_parts}\n")
    (entry,) = RuleIndex([rule]).several(operator("Split"), 1)
    assert entry.roots == {operator("Split"): 1}
