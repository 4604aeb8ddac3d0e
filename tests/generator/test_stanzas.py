"""Rules of one form share a stanza, under names that say what tells them apart."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xflow.generator.database.grouping import group_rules
from xflow.generator.database.naming import Stanza, name_rules, rules_of
from xflow.generator.derive import Derivation, Kept
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules


def rule(inputs: str, left: str, right: str, more: str = "") -> Rule:
    (made,) = parse_rules(f"rule r\n  in {inputs}\n  from {left}\n  to {right}\n{more}")
    return made


def reduced(op: str, axis: int) -> Rule:
    return rule("x[n, m] r[n, 1]", f"{op}(Neg(x), axes=[{axis}])", f"Neg({op}(x, axes=[{axis}]))")


def named(*rules: Rule, family: str = "made", others: list[Stanza] | None = None) -> list[Stanza]:
    others = others or []
    made = Derivation(family)
    made.kept = [Kept(each, {}) for each in rules]
    reserved = [stanza.name for stanza in others]
    return name_rules([made], rules_of(others), reserved)[family]


@cache
def database() -> list[Rule]:
    return [each for each in load_rules(default_directory()) if len(each.lhs) < 80][::5]


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.data())
def test_what_is_written_reads_back(data: st.DataObject) -> None:
    """Whatever rules there are, and in whatever order."""
    known = database()
    start = data.draw(st.integers(0, len(known) - 1))
    near = known[start : start + 40]
    rules = list({each.statement: each for each in data.draw(st.permutations(near))[:20]}.values())
    stanzas = named(*rules)
    made = rules_of(stanzas)
    assert list(map(str, parse_rules("\n".join(stanza.text for stanza in stanzas)))) == [
        str(each) for each in made
    ]
    assert sorted(each.statement for each in made) == sorted(each.statement for each in rules)
    assert len({each.name for each in made}) == len(made)
    assert [stanza.text for stanza in named(*rules[::-1])] == [stanza.text for stanza in stanzas]


def test_axes_and_operators_of_one_kind_are_cases() -> None:
    rules = [reduced(op, axis) for op in ("ReduceSum", "ReduceMean") for axis in (0, 1)]
    (stanza,) = named(*rules)
    template = stanza.template
    assert (template.lhs, template.rhs) == ("OP(Neg(x))", "Neg(OP(x))")
    assert [item.rule.name for item in stanza.kept] == [
        "reduce-neg-to-neg-reduce-reduce-mean-first-axis",
        "reduce-neg-to-neg-reduce-reduce-mean-second-axis",
        "reduce-neg-to-neg-reduce-reduce-sum-first-axis",
        "reduce-neg-to-neg-reduce-reduce-sum-second-axis",
    ]


def test_masks_of_several_shapes_are_cases() -> None:
    masked = [
        rule(f"x[B, S, L] {name}[{sizes}]", f"Add({name}, x)", f"Add(x, {name})")
        for name, sizes in (("a", "S, L"), ("b", "1, S, L"), ("c", "L"))
    ]
    (stanza,) = named(*masked)
    assert stanza.template.inputs == "x[B, S, L] INPUT"
    assert {item.rule.name for item in stanza.kept} == {
        f"add-to-add-{label}" for label in ("a-s-l", "b-1-s-l", "c-l")
    }


def test_what_may_be_missing_is_a_case() -> None:
    """A bias here, which one rule lacks on both sides; not one that takes part in more."""
    bare = rule("x[N, C, S] w[O, C, K]", "Conv(Neg(x), w)", "Neg(Conv(x, w))")
    biased = rule("x[N, C, S] w[O, C, K] b[O]", "Conv(Neg(x), w, b)", "Neg(Conv(x, w, b))")
    moved = rule("x[N, C, S] w[O, C, K] b[O]", "Conv(Neg(x), w, b)", "Neg(Conv(x, w, Neg(b)))")
    (stanza,) = named(bare, biased)
    assert stanza.template.rhs == "Neg(Conv(x, w, INPUT))" or stanza.template.inputs.endswith(" B")
    assert [item.rule.name.rpartition("conv-")[2] for item in stanza.kept] == ["no-b", "b-o"]
    assert parse_rules(stanza.text) == [item.rule for item in stanza.kept]
    assert len(named(bare, moved)) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (rule("x[n, m]", "Relu(Neg(x))", "x"), rule("x[n, m]", "Transpose(Neg(x))", "x")),
        (rule("x[n, m]", "Relu(x)", "x"), rule("x[n, m]", "Relu(Relu(x))", "x")),
        (rule("x[n] y[n]", "Sub(x, y)", "x"), rule("x[n] y[n]", "Sub(y, x)", "x")),
    ],
    ids=["operators of two kinds", "another form", "inputs the other way round"],
)
def test_rules_that_say_different_things_stand_alone(one: Rule, other: Rule) -> None:
    assert len(group_rules([one, other])) == 2
    assert len({item.name for item in rules_of(named(one, other))}) == 2


def test_a_family_named_again_gets_its_names() -> None:
    first, second = reduced("ReduceSum", 0), reduced("ReduceSum", 1)
    third = rule("x[n, m]", "ReduceSum(Neg(x), axes=[1])", "Neg(ReduceSum(x, axes=[1]))")
    before = named(first, second, family="before")
    own = named(third, family="own", others=before)
    assert rules_of(own)[0].name not in {each.name for each in rules_of(before)}
    assert named(first, second, family="before", others=own) == before


def test_stanzas_of_the_database_fit_on_a_page() -> None:
    for path in sorted(default_directory().glob("*.rules")):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert max(map(len, lines)) <= 120, path.name
