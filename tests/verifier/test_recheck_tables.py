"""The recheck of tables of constants, written as choices, and of the algorithms that read them."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xflow.core.constraint import Constraint, Relation, at_least, equal, in_range, less
from xflow.core.size import Size, symbol, symbols
from xflow.core.spec import ZERO, Element, Literal, MaxOver, Scalar, SumOver, evaluate, times, where
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.verifier.prove import Proved, prove
from xflow.verifier.recheck import check
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.clashes import clash
from xflow.verifier.recheck.elements import uses
from xflow.verifier.recheck.expand import Expansion, cases_of
from xflow.verifier.recheck.forms import Read, Term, Unreplayable, term
from xflow.verifier.recheck.replay import Replay
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.tidy import Tidying
from xflow.verifier.recheck.verdicts import Confirmed, NotConfirmed, Wrong

Data = dict[str, Any]
Guards = tuple[Constraint, ...]

i, j, k, n = symbols("i j k n")
POINTS = [
    dict(zip("ij", point, strict=True)) for point in itertools.product(range(-4, 5), repeat=2)
]

sizes = st.tuples(*[st.integers(-2, 2)] * 2, st.integers(-4, 4)).map(
    lambda drawn: drawn[0] * i + drawn[1] * j + drawn[2]
)
conditions = st.builds(Constraint, sizes, st.sampled_from(Relation))
paths = st.lists(conditions, max_size=4).map(tuple)


# Contradictions without a solver -----------------------------------------------------------------


@given(paths, paths)
def test_what_clashes_holds_nowhere_together(new: Guards, known: Guards) -> None:
    if clash(new, known):
        for point in POINTS:
            assert not all(c.holds(point) for c in (*new, *known)), point


@pytest.mark.parametrize(
    ("new", "known", "clashes"),
    [
        ([equal(i, 2)], [equal(i, 3)], True),
        ([equal(i, 2)], [equal(i, 2)], False),
        ([equal(2, i)], [less(i, 2)], True),
        ([equal(2, i)], [less(i, 3)], False),
        ([at_least(i, 3)], [at_least(2, i)], True),
        ([at_least(i, 3)], [at_least(3, i)], False),
        ([at_least(i - j, n)], [less(i, j + n)], True),
        ([at_least(i - j, n)], [less(j, i + n)], False),
        ([less(i, j), less(j, i)], [], True),
        ([at_least(-1, 0)], [], True),
        ([at_least(1, 0)], [], False),
        ([at_least(i, 0)], [equal(j, 2), equal(j, 3)], False),  # of what is known alone
        ([at_least(i * j, 1)], [less(i * j, 1)], True),
        ([at_least(i // n, 1)], [less(i // n, 1)], True),
        ([at_least(i // n, 1)], [less(j // n, 1)], False),
    ],
)
def test_bounds_of_one_sum_are_compared(
    new: Sequence[Constraint], known: Sequence[Constraint], clashes: bool
) -> None:
    assert clash(new, known) is clashes


@given(paths, paths)
def test_of_the_cases_of_a_choice_exactly_one_holds(chosen: Guards, path: Guards) -> None:
    cases = cases_of(chosen, Literal(Fraction(1)), ZERO, path)
    for point in POINTS:
        if all(c.holds(point) for c in path):
            (branch,) = (then for guards, then in cases if all(g.holds(point) for g in guards))
            assert (branch == ZERO) is not all(c.holds(point) for c in chosen)


# Expansion ---------------------------------------------------------------------------------------


def _expansion() -> Expansion:
    return Expansion(lambda _: False, lambda part, _: [part])


def _table(values: Sequence[int], index: Size) -> Scalar:
    result: Scalar = ZERO
    for place, value in enumerate(values):
        result = where((equal(index, place),), Literal(Fraction(value)), result)
    return result


def _value(terms: Sequence[Term], point: dict[str, int]) -> Fraction:
    """What constant terms without variables sum to."""
    assert not any(t.variables or t.factors for t in terms)
    held = (t.coefficient for t in terms if all(g.holds(point) for g in t.guards))
    return sum(held, Fraction(0))


choices = st.recursive(
    st.integers(-3, 3).map(lambda value: Literal(Fraction(value))),
    lambda inner: st.builds(
        where, st.lists(conditions, min_size=1, max_size=2).map(tuple), inner, inner
    ),
    max_leaves=12,
)


@given(choices, paths)
def test_choices_are_what_their_cases_are_wherever_the_path_holds(
    choice: Scalar, path: Guards
) -> None:
    terms = _expansion().terms(choice, path)
    for point in POINTS:
        if all(c.holds(point) for c in path):
            assert _value(terms, point) == evaluate(choice, {}, point)


@given(st.lists(st.integers(-9, 9), max_size=12), st.booleans())
def test_a_table_has_one_term_for_each_of_its_numbers(values: list[int], bounded: bool) -> None:
    path = in_range(i, len(values)) if bounded else ()
    terms = _expansion().terms(_table(values, i), path)
    assert len(terms) == sum(map(bool, values))
    for place in range(len(values)):
        assert _value(terms, {"i": place}) == values[place]
    if not bounded:
        assert _value(terms, {"i": -1}) == _value(terms, {"i": len(values)}) == 0


@pytest.mark.parametrize("over", [SumOver, MaxOver])
def test_a_path_that_speaks_of_another_variable_of_that_name_leaves_nothing_out(
    over: type[SumOver] | type[MaxOver],
) -> None:
    """At ``k >= 5`` outside, an element that is read at ``k == 0`` inside is read all the same."""
    inside = where((equal(k, 0),), Element("x", (k,)), ZERO)
    bound = over("k", 3, inside)
    path = (at_least(k, 5),)
    with pytest.raises(Unreplayable, match="bound twice"):
        _expansion().terms(bound, path)
    outer = SumOver("k", 9, where(path, times(bound, Element("y", ())), ZERO))
    with pytest.raises(Unreplayable, match="bound twice"):
        list(uses(outer, _expansion()))


# Elements at digits ------------------------------------------------------------------------------


def _pieces(coefficient: int = 1, offset: int = 0) -> list[Term]:
    """The terms of ``x[2*q] if r <= 0 else x[2*q + 1]``, and ``-x[2*q + r]``."""
    q, r = symbols("q r")
    return [
        term(Fraction(1), (), [at_least(0, r)], [(Read("x", (2 * q,)), 1)]),
        term(Fraction(coefficient), (), [at_least(r, 1)], [(Read("x", (2 * q + 1 + offset,)), 1)]),
        term(Fraction(-1), (), (), [(Read("x", (2 * q + r,)), 1)]),
    ]


def _replay(remainders: int = 2) -> Replay:
    questions = Questions(in_range(symbol("r"), remainders))
    return Replay(questions, Tidying(questions))


def _vanishes(terms: Sequence[Term], remainders: int = 2) -> bool:
    return _replay(remainders).vanishes(terms, ())


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_an_element_at_digits_is_one_of_those_at_remainders(order: Sequence[int]) -> None:
    """Whichever of them comes first; and none of them may be missing, or be another."""
    assert _vanishes([_pieces()[place] for place in order])
    assert not _vanishes([_pieces(coefficient=2)[place] for place in order])
    assert not _vanishes([_pieces(offset=1)[place] for place in order])
    assert not _vanishes([_pieces()[place] for place in order], remainders=3)
    for missing in range(3):
        assert not _vanishes([_pieces()[place] for place in order if place != missing])
    once = [_pieces()[place] for place in order]
    for twice in once:
        assert not _vanishes([*once, twice])
        assert not _vanishes([twice, *once])
        assert _replay()._by_pairs([twice, *once], ())  # of the same object, too
        assert _replay()._by_pairs([*once, twice], ())


# Minimal filtering -------------------------------------------------------------------------------


SMALL = "conv-to-slice-reshape-concat-unsqueeze-no-b"
NAMES = (
    SMALL,
    "conv-to-slice-reshape-concat-unsqueeze-b-o",
    "conv-to-slice-reshape-concat-unsqueeze-group-c-no-b",
    "conv-to-slice-reshape-concat-unsqueeze-group-c-b-o",
)


@cache
def _rules() -> dict[str, Rule]:
    return {rule.name: rule for rule in load_rules(default_directory()) if rule.name in NAMES}


@cache
def _text(name: str) -> str:
    return (default_directory() / "certificates" / f"{name}.json").read_text(encoding="utf-8")


def _stored(name: str) -> tuple[Rule, Data]:
    return _rules()[name], json.loads(_text(name))


def _output(certificate: Data) -> Data:
    (rank,) = certificate["ranks"]
    (output,) = rank["outputs"]
    result: Data = output
    return result


@pytest.mark.parametrize("name", NAMES)
def test_minimal_filtering_is_confirmed(name: str) -> None:
    verdict = recheck_rule(*_stored(name), cases=2)
    assert isinstance(verdict, Confirmed), verdict


def test_minimal_filtering_is_confirmed_from_right_to_left() -> None:
    rule, _ = _stored(SMALL)
    where = ("C >= 1", "W >= 1", "q >= 0")
    rule = replace(rule, lhs=rule.rhs, rhs=rule.lhs, where=where, notes={}, limits=())
    verdict = prove(rule, infer=False, both_ways=False)
    assert isinstance(verdict, Proved), verdict
    certificate = json.loads(json.dumps(verdict.certificate))
    assert isinstance(recheck_rule(rule, certificate, cases=2), Confirmed)
    part = _output(certificate)["left"][3]
    assert "- p + 1," in part["of"][1]
    part["of"][1] = part["of"][1].replace("- p + 1,", "- p + 2,")
    assert isinstance(recheck_rule(rule, certificate, cases=2), NotConfirmed)


def _wrong_coefficient(output: Data) -> None:
    part = output["right"][3]
    part["times"] = "3/2"


def _opposite_coefficient(output: Data) -> None:
    part = output["right"][3]
    part["times"] = "-1/2"


def _wrong_offset(output: Data) -> None:
    part = output["right"][3]
    assert "- p + 1," in part["of"][1]
    part["of"][1] = part["of"][1].replace("- p + 1,", "- p + 2,")


def _wrong_range(output: Data) -> None:
    part = output["right"][3]
    assert "2*_i2q + 1 >= p" in part["where"]
    part["where"] = part["where"].replace("2*_i2q + 1 >= p", "2*_i2q + 2 >= p")


def _wrong_weight(output: Data) -> None:
    part = output["right"][3]
    assert ", 1, " in part["of"][0]
    part["of"][0] = part["of"][0].replace(", 1, ", ", 2, ")


def _no_term(output: Data) -> None:
    output["right"].pop()
    output["groups"] = output["obligations"] = []


def _no_left_term(output: Data) -> None:
    output["left"].pop()
    output["groups"] = output["obligations"] = []


def _no_member(output: Data) -> None:
    output["groups"][0].pop()


def _another_member(output: Data) -> None:
    groups = output["groups"]
    groups[0][-1], groups[1][-1] = groups[1][-1], groups[0][-1]


def _wrong_change(output: Data) -> None:
    change = output["groups"][0][1][1]
    name = next(iter(change))
    change[name] = f"{change[name]} + 1"


def _wrong_obligation(output: Data) -> None:
    output["obligations"][0]["sum is zero"][0][0] = "2"


def _no_remainder(output: Data) -> None:
    """That the last index may have a remainder of 0 only."""
    assert "_i2r <= 1" in output["where"]
    output["where"] = [c.replace("_i2r <= 1", "_i2r <= 0") for c in output["where"]]


def _other_digits(output: Data) -> None:
    output["index"][2] = "3*_i2q + _i2r"


@pytest.mark.parametrize(
    "change",
    [
        _wrong_coefficient,
        _opposite_coefficient,
        _wrong_offset,
        _wrong_range,
        _wrong_weight,
        _no_term,
        _no_left_term,
        _no_member,
        _another_member,
        _wrong_change,
        _wrong_obligation,
        _no_remainder,
        _other_digits,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_minimal_filtering_is_not_confirmed_by_a_changed_certificate(
    change: Callable[[Data], None],
) -> None:
    rule, certificate = _stored(SMALL)
    before = copy.deepcopy(certificate)
    change(_output(certificate))
    assert certificate != before
    verdict = recheck_rule(rule, certificate, cases=2)
    assert isinstance(verdict, Wrong | NotConfirmed), verdict
    assert "Error" not in str(verdict)


WRONG = (
    ("values=[-1, 0, 1, 0]", "values=[-1, 0, 1, 1]"),
    ("values=[-1, 0, 1, 0]", "values=[-1, 1, 0, 0]"),
    ("values=[0, 1, 1, 0]", "values=[0, 1, -1, 0]"),
    ("values=[0, 0, 1]", "values=[0, 0, 2]"),
    ("values=[1, -1, 1]", "values=[1, -1, 0]"),
    ("1 / 2", "1 / 3"),
    ("pads=[p, 0, q + 1, 0]", "pads=[p, 0, q, 0]"),
    ("pads=[p, 0, q + 1, 0]", "pads=[p + 1, 0, q, 0]"),
    ("strides=[2, 1]", "strides=[1, 1]"),
    ("starts=[0]", "starts=[1]"),
    ("Sub(", "Add("),
)


@pytest.mark.parametrize("evaluated", [True, False])
@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_wrong_filtering_is_not_confirmed_by_the_certificate_of_the_right_one(
    right: str, wrong: str, evaluated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it if the evaluation at random sizes is left out."""
    rule, certificate = _stored(SMALL)
    assert right in rule.rhs
    rule = replace(rule, rhs=rule.rhs.replace(right, wrong))
    if not evaluated:
        monkeypatch.setattr(check, "compare_at_random", lambda *_: 1)
    verdict = recheck_rule(rule, certificate | check.statement_of(rule), cases=2)
    assert isinstance(verdict, Wrong | NotConfirmed), verdict
    assert "Error" not in str(verdict)


@pytest.mark.parametrize("recorded", [True, False])
def test_wrong_filtering_is_not_confirmed_by_what_it_computes(
    recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record says truly what the wrong right side is, with the groups of the right one or none.

    Both elements are counted twice that the last product reads.
    """
    monkeypatch.setattr(check, "compare_at_random", lambda *_: 1)
    rule, certificate = _stored(SMALL)
    rule = replace(rule, rhs=rule.rhs.replace("values=[0, 0, 1]", "values=[0, 0, 2]"))
    output = _output(certificate)
    for number, count in ((14, "-2"), (15, "2")):
        assert Fraction(output["right"][number].get("times", "1")) == Fraction(count) / 2
        output["right"][number]["times"] = count
    if not recorded:
        output["groups"] = output["obligations"] = []
    verdict = recheck_rule(rule, certificate | check.statement_of(rule))
    assert isinstance(verdict, NotConfirmed), verdict
    assert "normal form of the right" not in verdict.reason
    if not recorded:
        assert "the normal forms are not shown equal" in verdict.reason
