"""Values rebuilt with others in their place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xflow.core.graph import TensorType, Value, apply, leaf, rebuild_all

X = leaf("x", TensorType("FLOAT", (3,)))


@st.composite
def rebuilt(draw: st.DrawFn) -> tuple[list[Value], dict[Value, Value]]:
    """Some values, each computed from earlier ones, and earlier ones to put in place of some."""
    values = [X]
    for _ in range(draw(st.integers(2, 8))):
        sources = [draw(st.sampled_from(values)) for _ in range(draw(st.integers(1, 2)))]
        values += apply("Add" if len(sources) == 2 else "Identity", sources)
    values = list(dict.fromkeys(values))
    replaced = {
        value: draw(st.sampled_from(values[:place]))
        for place, value in enumerate(values)
        if place and draw(st.booleans())
    }
    return values, replaced


@given(rebuilt())
def test_what_takes_a_values_place_does_not_depend_on_who_is_asked_first(
    case: tuple[list[Value], dict[Value, Value]],
) -> None:
    values, replaced = case
    alone = [rebuild_all([value], replaced)[0] for value in values]
    assert list(rebuild_all(values, replaced)) == alone
    assert list(rebuild_all(values[::-1], replaced))[::-1] == alone


def test_what_was_replaced_itself_is_replaced_where_it_takes_a_place() -> None:
    copied = apply("Identity", [X])[0]
    joined = apply("Add", [copied, X])[0]
    again = apply("Identity", [joined])[0]
    simple = apply("Add", [X, X])[0]
    assert rebuild_all([joined, again], {again: joined, joined: simple}) == (simple, simple)
