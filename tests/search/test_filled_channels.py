"""Images padded with channels of zeros: the rules, and cells that come into blocks by them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import assert_same, call, tensor, weights

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.deadline import Deadline
from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.core.registry import Operator
from xflow.cost.estimate import EstimatedCost
from xflow.cost.target import Layout
from xflow.generator.enumeration.enumerate import enumerate_terms
from xflow.generator.generalization.generalize import Generalizer
from xflow.generator.generalization.propose import propose
from xflow.generator.vocabularies import filled_channels
from xflow.generator.vocabulary import Vocabulary
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.text import parse_rules
from xflow.search.backtrack import Explorer, Limits
from xflow.search.context import Context
from xflow.search.driver import search
from xflow.search.policy import POLICY

STEPS = "pads=[*e, *f], strides=[*s]"
ZEROS = "pads=[0, 0, *0, 0, q, *0]"
KERNELS = "Pad(w, pads=[0, 0, *0, q, 0, *0])"
CUT = "starts=[0], ends=[D], axes=[1], steps=[1]"
POOL = (
    "x[N, D, *S]",
    f"Slice(AveragePool(Pad(x, {ZEROS}), kernel_shape=[*k], {STEPS}), {CUT})",
    f"AveragePool(x, kernel_shape=[*k], {STEPS})",
)
DEPTHWISE = (
    "x[N, D, *S] w[D, 1, *R]",
    f"Slice(Conv(Pad(x, {ZEROS}), {KERNELS}, {STEPS}, dilations=[*d], group=D + q), {CUT})",
    f"Conv(x, w, {STEPS}, dilations=[*d], group=D)",
)
DEEPER = (
    "x[N, D, *S] w[O, D, *R]",
    f"Conv(Pad(x, {ZEROS}), Pad(w, {ZEROS}), {STEPS}, dilations=[*d])",
    f"Conv(x, w, {STEPS}, dilations=[*d])",
)
RULES = parse_rules(f"""
rule pool
  in       {POOL[0]}
  param    *k *e *f *s q
  rank     2
  from     {POOL[1]}
  to       {POOL[2]}
  reverse  q >= 0
rule depthwise
  in       {DEPTHWISE[0]}
  param    *e *f *s *d q
  rank     2
  from     {DEPTHWISE[1]}
  to       {DEPTHWISE[2]}
  reverse  q >= 0
rule deeper
  in       x[N, C + q, *S] w[O, C, *R]
  param    *e *f *s *d q
  rank     2
  from     Conv(Slice(x, starts=[0], ends=[C], axes=[1], steps=[1]), w, {STEPS}, dilations=[*d])
  to       Conv(x, Pad(w, {ZEROS}), {STEPS}, dilations=[*d])
rule made-wide
  in       x[N, D, *S] w[O, D, *R]
  param    *e *f *s *d q
  rank     2
  from     Pad(Conv(x, w, {STEPS}, dilations=[*d]), {ZEROS})
  to       Conv(x, {KERNELS}, {STEPS}, dilations=[*d])
rule relu-of-zeros
  in       x[N, D, *S]
  param    q
  rank     2
  from     Pad(Relu(x), {ZEROS})
  to       Relu(Pad(x, {ZEROS}))
""")


def sides(vocabulary: Vocabulary) -> set[tuple[str, str, str]]:
    """The most general plausible rule of each proposal of a vocabulary."""
    generalizer = Generalizer(vocabulary, 0)
    proposals = propose(enumerate_terms(vocabulary, 0, 3).candidates, vocabulary)
    found = (next(generalizer.rules(p.skeleton, p.points), None) for p in proposals)
    return {(rule.inputs, rule.lhs, rule.rhs) for rule in found if rule is not None}


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        (filled_channels.POOLS, POOL),
        (filled_channels.DEPTHWISE, DEPTHWISE),
        (filled_channels.KERNELS, DEEPER),
    ],
    ids=lambda item: item.name if isinstance(item, Vocabulary) else "",
)
def test_any_number_of_zeros_with_any_padding(
    vocabulary: Vocabulary, expected: tuple[str, str, str]
) -> None:
    """The extent of the image is a symbol and what is added another: a match leaves that open."""
    assert expected in sides(vocabulary)


def weight(key: str, *shape: int) -> Value:
    return tensor(key, *shape, constant=True)


def cell(channels: int) -> Graph:
    """A separable convolution and a pool of what comes from somewhere else, as in NASNet."""
    x = tensor("x", 1, channels, 20, 20)
    same = {"pads": (1, 1, 1, 1)}
    value = x
    for step in "ab":
        kernels = weight(f"{step} depthwise", channels, 1, 3, 3)
        value = call("Conv", call("Relu", value), kernels, group=channels, **same)
        value = call("Conv", value, weight(f"{step} pointwise", channels, channels, 1, 1))
    pooled = call("AveragePool", x, kernel_shape=(3, 3), **same)
    return Graph((call("Add", value, pooled),))


def outside(graph: Graph) -> list[str]:
    """The pools and convolutions that the runtime computes outside of its layout."""
    layouts = EstimatedCost().layouts
    return [
        node.op.name
        for node in graph.nodes
        if isinstance(node.op, Operator)
        and node.op.name in ("Conv", "AveragePool")
        and not layouts.is_blocked(node)
    ]


@pytest.mark.parametrize(
    ("channels", "before"), [(42, 5), (24, 1), (32, 0)], ids=["unaligned", "unfilled", "filled"]
)
def test_a_cell_comes_into_blocks_whatever_makes_its_image(channels: int, before: int) -> None:
    """24 channels fill no blocks, which keeps out the pool; 42 are not converted at all."""
    graph = cell(channels)
    assert len(outside(graph)) == before
    result = search(graph, RULES, EstimatedCost(), deadline=Deadline.after(60.0), constants=weights)
    assert outside(result.graph) == []
    assert bool(result.replacements) == bool(before)
    rules = [rule for item in result.replacements for rule in item.rules]
    assert rules.count("depthwise.reverse") == (2 if channels == 42 else 0)
    assert rules.count("pool.reverse") == (before > 0)
    assert_same(graph, result.graph)


def test_what_gains_at_once_is_found_before_any_detour() -> None:
    """A search that is cut short after as many graphs as there are gains has made them all."""
    graph = cell(42)
    cost = EstimatedCost()
    limits = Limits(expansions=1, states=8)
    explorer = Explorer(
        RuleIndex(RULES),
        cost.estimate,
        weights,
        limits,
        Context(replace(POLICY, alpha=1.5)),
        layout=Layout(block=16),
    )
    best = min(explorer.explore(graph, 5), key=lambda state: state.cost)
    assert sorted(best.path) == ["deeper", "depthwise.reverse", "depthwise.reverse", "pool.reverse"]
