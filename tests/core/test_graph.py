"""Values rebuilt with others in their place."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import xflow.ops  # noqa: F401 - operators are known by their names
from xflow.core.fold import Folder
from xflow.core.graph import rebuild_all
from xflow.core.node import Opaque, TensorType, Value, apply, leaf, opaque

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


def test_an_impure_operator_of_constants_stays_impure_where_their_types_change() -> None:
    """It is neither folded, nor one with another that has the same inputs."""
    old = leaf("w", TensorType("FLOAT", (3,)), constant=True)
    new = leaf("v", TensorType("FLOAT", (1, 3)), constant=True)
    drawn = [
        opaque(key, [old], [old.type], "RandomUniformLike", pure=False)[0] for key in ("r0", "r1")
    ]
    moved = rebuild_all(drawn, {old: new})
    assert moved[0] != moved[1]
    for value in moved:
        assert value.node.inputs == (new,)
        assert not value.is_constant
        assert isinstance(value.node.op, Opaque)
        assert value.node.op.op_type == "RandomUniformLike"
        assert not value.node.op.pure
        assert Folder(lambda _: np.ones((1, 3), np.float32))(value) is None
