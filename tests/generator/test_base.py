"""The base and the working set: what follows from what, and what nothing explains."""

from dataclasses import replace

import pytest

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.generator.database.sets import sources_of
from xflow.generator.runner.chunks import Consequence
from xflow.generator.saturation.base import consequences
from xflow.generator.saturation.gaps import database_of, is_gap, stanzas
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules

X, Y, Z = (leaf(name, TensorType("FLOAT", (3, 4))) for name in "xyz")


def rules(text: str) -> list[Rule]:
    return parse_rules(text)


def one(name: str, lhs: str, rhs: str, inputs: str = "x[...] y[...] z[...]") -> Rule:
    (made,) = parse_rules(
        f"rule {name}\n  in {inputs}\n  from {lhs}\n  to {rhs}\n  reverse always\n"
    )
    return made


ASSOCIATIVE = one("associative", "Add(Add(x, y), z)", "Add(x, Add(y, z))")
DISTRIBUTIVE = one("distributive", "Add(Mul(x, z), Mul(y, z))", "Mul(Add(x, y), z)")
TWICE = one("twice", "Neg(Neg(x))", "x", "x[...]")
SUBTRACTED = one("subtracted", "Add(x, Neg(y))", "Sub(x, y)", "x[...] y[...]")


def test_what_follows_without_a_detour_is_said_to() -> None:
    longer = one("longer", "Add(Add(x, Neg(y)), z)", "Add(x, Sub(z, y))")
    found = consequences([longer, ASSOCIATIVE, DISTRIBUTIVE, SUBTRACTED])
    assert set(found) == {"longer"}
    assert set(found["longer"].rules) == {"associative", "subtracted"}
    assert found["longer"].is_plain


def test_what_saves_several_operators_is_a_shortcut() -> None:
    longer = one("longer", "Add(Add(x, Neg(Neg(y))), z)", "Add(x, Add(y, z))")
    found = consequences([replace(longer, reverse=None), ASSOCIATIVE, TWICE])
    assert set(found) == {"longer"}
    assert not found["longer"].is_plain


def test_what_follows_through_something_larger_is_a_shortcut() -> None:
    shortcut = one("shortcut", "Sub(x, Neg(y))", "Add(x, y)", "x[...] y[...]")
    found = consequences([SUBTRACTED, TWICE, shortcut])
    assert set(found) == {"shortcut"}
    assert not found["shortcut"].is_plain


def test_what_holds_in_one_direction_does_not_lead_back() -> None:
    """A way that meets in the middle is no way for the search."""
    there, back = replace(SUBTRACTED, reverse=None), replace(TWICE, reverse=None)
    equation = replace(
        one("equation", "Neg(Neg(Sub(x, y)))", "Add(x, Neg(y))", "x[...] y[...]"), reverse=None
    )
    found = consequences([equation, there, back])
    assert set(found) == {"equation"}
    assert not found["equation"].is_plain


def test_nothing_follows_from_itself() -> None:
    same = [replace(ASSOCIATIVE, name=name) for name in ("first", "second", "third")]
    found = consequences(same)
    assert set(found) == {"second", "third"}
    assert all(follows.rules == ("first",) for follows in found.values())


def test_what_is_dropped_is_named_by_what_it_follows_from() -> None:
    found = {
        0: Consequence((1, 2), False),
        1: Consequence((3, 4), True),
        4: Consequence((2,), True),
    }
    assert list(sources_of(0, found)) == [3, 2, 2]
    assert not list(sources_of(5, found))


def test_known_rules_are_used_and_not_judged() -> None:
    assert set(consequences([replace(TWICE, name="again")], [TWICE])) == {"again"}


@pytest.mark.parametrize(
    ("op", "expected"),
    [("Mul", False), ("Max", True)],
)
def test_a_gap_is_what_no_rule_explains(op: str, expected: bool) -> None:
    def term(*path: str | Value) -> Value:
        name, *args = path
        assert isinstance(name, str)
        (made,) = apply(name, [arg for arg in args if isinstance(arg, Value)])
        return made

    database = database_of(stanzas(map(str, [ASSOCIATIVE, DISTRIBUTIVE])))
    source = term("Add", term(op, X, Z), term(op, Y, Z))
    target = term(op, term("Add", X, Y), Z)
    assert is_gap(source, target, database) is expected
