"""Waves: convolutions with more channels, carried on until what reads them ignores the others."""

from __future__ import annotations

import math
from functools import cache

import pytest
from graphs import assert_same, call, tensor, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from longer import some
from noting import Noting
from spellings import rules_over

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.deadline import Deadline
from xflow.core.fold import no_constants
from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.core.registry import Operator
from xflow.cost.estimate import EstimatedCost
from xflow.rewriting.derivation import numbering, place_of
from xflow.rewriting.replay import Rewrite, replay
from xflow.rewriting.rule import Rule, directions_of
from xflow.search.channel_padding import Waves, index_for_waves
from xflow.search.constants import Constants
from xflow.search.driver import SearchResult, search
from xflow.search.states import State
from xflow.search.unfilled import cut_unfilled

BLOCK = 16
UNFILLED = 168
FILLED = 352


@cache
def rules() -> tuple[Rule, ...]:
    concerned = {"Conv", "Relu", "AveragePool", "Add", "Concat", "Slice", "Pad"}
    return tuple(rules_over(*concerned))


def convolved(name: str, x: Value, channels: int) -> Value:
    return call("Conv", x, tensor(name, channels, int(str(x.shape[1])), 1, 1, constant=True))


def pooled(x: Value) -> Value:
    return call("AveragePool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1))


def joined(*images: Value) -> Value:
    return call("Concat", *images, axis=1)


def cell(name: str, x: Value, parts: int, channels: int) -> Value:
    """Pools of convolutions side by side, in the manner of NASNet."""
    images = [convolved(f"{name}{part}", x, channels) for part in range(parts)]
    sums = [call("Add", pooled(image), images[0]) for image in images[1:]]
    return joined(images[0], *sums)


def network(parts: int = 3, channels: int = UNFILLED) -> Graph:
    """Two cells, and a convolution that reads both."""
    x = tensor("x", 1, FILLED, 14, 14)
    first = cell("a", x, parts, channels)
    second = cell("b", call("Relu", first), parts, channels)
    return Graph((convolved("last", call("Relu", joined(first, second)), FILLED),))


def looking(work: float = math.inf) -> Waves:
    index = index_for_waves(rules())
    return Waves(index, EstimatedCost().estimate, weights, BLOCK, work=work)


def waves(graph: Graph) -> list[State]:
    return looking().found(graph)


def found(graph: Graph, cost: EstimatedCost | None = None) -> SearchResult:
    deadline = Deadline.after(60.0)
    return search(graph, rules(), cost or EstimatedCost(), deadline=deadline, constants=weights)


@cache
def first_search() -> tuple[Noting, SearchResult]:
    """What is found in the network, and the estimate that remembers it; it takes seconds."""
    cost = Noting()
    return cost, found(network(), cost)


def names(graph: Graph) -> list[str]:
    return [
        node.op.name for node in graph.nodes if isinstance(node.op, Operator) and not node.constant
    ]


def outside(graph: Graph) -> list[str]:
    """What is computed outside of the runtime's own layout."""
    layouts = EstimatedCost().layouts
    return [
        node.op.name
        for node in graph.nodes
        if isinstance(node.op, Operator) and not node.constant and not layouts.is_blocked(node)
    ]


@pytest.mark.parametrize("parts", some([4, 2, 3, 6, 8], 5))
def test_a_stage_comes_into_blocks_though_no_step_of_it_gains(parts: int) -> None:
    graph = network(parts)
    assert {"AveragePool", "Concat"} <= set(outside(graph))
    best = min(waves(graph), key=lambda state: state.cost)
    assert outside(best.graph) == []
    assert "Slice" not in names(best.graph)
    assert names(best.graph).count("Conv") == names(graph).count("Conv")
    assert_same(graph, best.graph)


def test_the_search_makes_waves_and_can_repeat_what_they_did() -> None:
    graph = network()
    _, result = first_search()
    assert outside(result.graph) == []
    assert_same(graph, result.graph)
    known = directions_of(rules())
    rounds: list[list[Rewrite]] = []
    again = graph
    for made in result.replacements:  # what waves did, and what follows it
        assert made.trail is not None
        numbers = numbering(again)
        rewrite = Rewrite(
            tuple(place_of(value, numbers) for value in made.before),
            tuple(place_of(value, numbers) for value in made.inputs),
            made.trail,
        )
        rounds.append([rewrite])
        again = replay(graph, rounds, known, weights)
    assert rounds
    assert again.outputs == result.graph.outputs


def test_what_waves_led_to_is_remembered() -> None:
    cost, result = first_search()
    asked = cost.asked
    assert found(network(), cost).replacements == result.replacements
    assert cost.asked - asked < asked / 4


def test_what_fills_blocks_is_left_alone() -> None:
    graph = network(channels=FILLED)
    assert len(waves(graph)) == 1
    assert cut_unfilled(graph, Constants(no_constants), EstimatedCost().layouts) == []


def test_what_is_in_the_layout_whatever_its_channels_is_left_alone() -> None:
    """Convolutions give any number of channels in blocks: there is nothing to bring into them."""
    x = tensor("x", 1, FILLED, 14, 14)
    for number in range(4):
        x = call("Relu", convolved(f"w{number}", x, UNFILLED))
    graph = Graph((x,))
    assert outside(graph) == []
    assert cut_unfilled(graph, Constants(no_constants), EstimatedCost().layouts) == []


def test_a_concatenation_that_somebody_else_reads_stays_as_it_is() -> None:
    """Whoever reads an output of the model knows how many channels it has."""
    first = cell("a", tensor("x", 1, FILLED, 14, 14), 3, UNFILLED)
    graph = Graph((first,))
    best = min(waves(graph), key=lambda state: state.cost)
    assert "AveragePool" not in outside(best.graph)
    assert best.graph.outputs[0].type == first.type
    assert names(best.graph).count("Concat") == 1
    assert_same(graph, best.graph)


def test_a_slice_of_the_model_itself_is_not_carried_on() -> None:
    """Behind it there is less to compute."""
    x = tensor("x", 1, FILLED, 14, 14)
    part = call("Slice", x, starts=(0,), ends=(UNFILLED,), axes=(1,), steps=(1,))
    graph = Graph((convolved("last", pooled(convolved("a", part, UNFILLED)), FILLED),))
    for state in waves(graph):
        (inner,) = [
            node
            for node in state.graph.nodes
            if isinstance(node.op, Operator) and node.op.name == "Slice" and not node.constant
        ]
        assert inner.inputs == (x,)


def test_waves_end_with_their_work_and_say_so() -> None:
    graph = network()
    short = looking(work=100)
    assert len(short.found(graph)) == 1
    assert not short.exhausted
    long = looking()
    assert len(long.found(graph)) > 1
    assert long.exhausted


def test_regions_hold_all_that_lies_between_two_images_that_fill_no_blocks() -> None:
    """The sum in the middle fills blocks; what is before and behind has another region."""
    x = call("Relu", tensor("x", 1, FILLED, 14, 14))
    first = pooled(convolved("a", x, UNFILLED))
    middle = call("Relu", convolved("b", first, FILLED))
    last = convolved("d", pooled(convolved("c", middle, UNFILLED)), FILLED)
    graph = Graph((call("Relu", last),))
    (region,) = cut_unfilled(graph, Constants(no_constants), EstimatedCost().layouts)
    assert middle.node in region.nodes
    assert x.node not in region.nodes
    assert graph.outputs[0].node not in region.nodes
    assert (region.inputs[0], region.outputs) == (x, (last,))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Images of few widths, each made of earlier ones."""
    images = [tensor("x", 1, 32, 5, 5), tensor("y", 1, 24, 5, 5)]
    for number in range(draw(st.integers(3, 14))):
        image = draw(st.sampled_from(images))
        alike = [each for each in images if each.shape == image.shape]
        match draw(st.sampled_from(["Conv", "Conv", "Relu", "Pool", "Add", "Concat", "Slice"])):
            case "Conv":
                width = draw(st.sampled_from([20, 24, 32]))
                images.append(convolved(f"w{number}", image, width))
            case "Relu":
                images.append(call("Relu", image))
            case "Pool":
                images.append(pooled(image))
            case "Add":
                images.append(call("Add", image, draw(st.sampled_from(alike))))
            case "Concat":
                count = draw(st.integers(2, 4))
                images.append(joined(*(draw(st.sampled_from(images)) for _ in range(count))))
            case _ if int(str(image.shape[1])) > 12:
                end = draw(st.integers(12, int(str(image.shape[1]))))
                cut = {"starts": (0,), "ends": (end,), "axes": (1,), "steps": (1,)}
                images.append(call("Slice", image, **cut))
            case _:
                pass
    return Graph((images[-1], draw(st.sampled_from(images[2:]))))


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_every_form_computes_the_same_and_is_estimated_to_gain(graph: Graph) -> None:
    root, *others = waves(graph)
    assert root.graph == graph
    for state in others:
        assert state.cost < root.cost
        assert state.trail is not None
        assert len(state.trail) >= len(state.path)
        assert_same(graph, state.graph)
