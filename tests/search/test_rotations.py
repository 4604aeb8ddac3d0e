"""Rotary embeddings by computed tables: all layers read them, and each is one operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import onnx
import onnx_ir as ir
import pytest
from recognition import computed, searched
from spellings import rules_over

from xflow.blocks.find import find_blocks, find_spelled_out
from xflow.blocks.rotations import rotation_at
from xflow.core.registry import Operator
from xflow.cost.estimate import EstimatedCost
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.rewriting.index import index_of
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.search.backtrack import Explorer, Limits
from xflow.search.constants import Constants
from xflow.search.cutting import blocks_of, cut, region_of
from xflow.search.explorers import Exploration
from xflow.search.policy import POLICY
from xflow.search.region import Region
from xflow.search.states import KnownWay, State, cheapest, operators_in
from xflow.search.ways import Ways

CONCERNED = {
    *("Add", "Mul", "Neg", "Slice", "Split", "Concat", "Unsqueeze", "Expand", "Cos", "Sin"),
    "RotaryEmbedding",
}
TABLES = "e = Concat<axis = -1>(angles, angles)"
HALVES = ("i0, half, last", "half, end, last")


def rotated(name: str, *, parts: tuple[str, str] = HALVES, turned: str = "{n}3, {n}1") -> str:
    """A rotation of `name` to `{name}y`: by halves, of which the second one is negated."""
    first, second = parts
    return f"""{name}1 = Slice({name}, {first}) {name}2 = Slice({name}, {second})
        {name}3 = Neg({name}2) {name}4 = Concat<axis = -1>({turned.format(n=name)})
        {name}5 = Mul({name}4, sin) {name}6 = Mul({name}, cos) {name}y = Add({name}6, {name}5)"""


def model(
    bodies: str,
    names: str,
    tables: str = TABLES,
    *,
    width: int = 16,
    half: int = 16,
    behind: str = "",
    others: str = "",
) -> Imported:
    """Rotations of heads by the cosines and sines of angles, for any batch and length.

    What is `behind` them, with `others` as inputs, leads to a single output `y`.
    """
    inputs = ", ".join(f"float[b, 4, s, 32] {name}" for name in names)
    results = ["y"] if behind else [f"{name}y" for name in names]
    outputs = ", ".join(f"float[b, 4, s, 32] {name}" for name in results)
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    g ({inputs}, {others}float[1, s, {width}] angles) => ({outputs})
    <int64[1] i0 = {{0}}, int64[1] half = {{{half}}}, int64[1] end = {{9223372036854775807}},
     int64[1] last = {{3}}, int64[1] one = {{1}}, float part = {{0.5}}> {{
        {tables} c = Cos(e) d = Sin(e) cos = Unsqueeze(c, one) sin = Unsqueeze(d, one)
        {bodies} {behind} }}"""
    return import_model(ir.from_proto(onnx.parser.parse_model(text)))


@cache
def rules() -> list[Rule]:
    return rules_over(*CONCERNED)


def optimized(source: Imported) -> Counter[str]:
    return computed(searched(source, rules()).graph)


def kinds(source: Imported) -> list[tuple[str, str]]:
    found = find_blocks(source.graph, source.constants, {})
    return [(block.kind, block.name) for block in found if block.kind == "rotation"]


def test_rotations_by_one_table_become_operators() -> None:
    source = model(" ".join(map(rotated, "xz")), "xz")
    assert kinds(source) == [("rotation", "RotaryEmbedding")] * 2
    found = optimized(source)
    assert found == {"RotaryEmbedding": 2, "Cos": 1, "Sin": 1, "Expand": 2}


def test_a_region_knows_that_a_table_of_others_repeats_its_angles() -> None:
    names = "xzuvwq"
    source = model(" ".join(map(rotated, names)), names)
    regions = [
        region
        for region in cut(source.graph, Constants(source.constants))
        if any(isinstance(node.op, Operator) and node.op.name == "Neg" for node in region.nodes)
    ]
    assert len(regions) > 1
    for region in regions:
        operators = computed(region.graph)
        assert (operators["Cos"], operators["Sin"]) == (1, 1)
        assert any(
            isinstance(node.op, Operator)
            and node.op.name == "Concat"
            and node.inputs[0] == node.inputs[1]
            for node in region.graph.nodes
        )
    inside = [node for region in regions for node in region.nodes]
    assert len(inside) == len(set(inside))
    found = optimized(source)
    assert found == {"RotaryEmbedding": len(names), "Cos": 1, "Sin": 1, "Expand": 2}


def test_the_way_of_one_rotation_by_itself_leads_all_rotations_of_a_region() -> None:
    source = model(" ".join(map(rotated, "xz")), "xz")
    constants = Constants(source.constants)
    (region,) = cut(source.graph, constants)
    first, second = blocks_of(source.graph, [region], constants)
    assert first.key == second.key
    assert len(first.outputs) == 1, "tables are read by it, and no results of it"
    index = index_of(tuple(rules()))

    def explored(whole: Region, limits: Limits, ways: Sequence[KnownWay] = ()) -> list[State]:
        lookup = constants.of(whole)
        explorer = Explorer(index, EstimatedCost().estimate, lookup, limits, of_blocks=ways)
        return explorer.explore(whole.graph, keep=6)

    ways = Ways(POLICY)
    assert ways.new_blocks([first, second]) == [first]
    found = Exploration(explored(first, Limits()), exhausted=False)
    ways.note_block(first, found, is_operator=True)
    assert not ways.new_blocks([first, second])
    nothing = Limits(expansions=0)
    assert "RotaryEmbedding" not in computed(cheapest(explored(region, nothing)).graph)
    best = cheapest(explored(region, nothing, ways.of_blocks))
    assert computed(best.graph)["RotaryEmbedding"] == 2
    assert best.trail is not None


def test_what_is_found_for_another_block_adds_to_that_whose_way_is_known() -> None:
    """The way to an operator takes several steps that gain nothing, also beside a rotation."""
    attention = """k1 = Transpose<perm = [0, 1, 3, 2]>(k) q1 = Mul(xy, part) k2 = Mul(k1, part)
        a1 = MatMul(q1, k2) a2 = Add(a1, mask) a3 = Softmax<axis = -1>(a2) y = MatMul(a3, v)"""
    others = "float[b, 4, t, 32] k, float[b, 4, t, 32] v, float[s, t] mask, "
    source = model(rotated("x"), "x", behind=attention, others=others)
    constants = Constants(source.constants)
    nodes = [
        node for node in source.graph.nodes if isinstance(node.op, Operator) and not node.constant
    ]
    region = region_of(source.graph, nodes, constants, None, constants.contexts(source.graph))
    blocks = blocks_of(source.graph, [region], constants)
    rotation = next(block for block in blocks if computed(block.graph)["Neg"])
    concerned = {"MatMul", "Softmax", "Attention", "Transpose", "Scalar"}
    index = index_of(tuple(rules_over(*CONCERNED, *concerned)))

    def explored(whole: Region, limits: Limits, ways: Sequence[KnownWay] = ()) -> State:
        lookup = constants.of(whole)
        explorer = Explorer(index, EstimatedCost().estimate, lookup, limits, of_blocks=ways)
        return cheapest(explorer.explore(whole.graph, keep=6))

    way = KnownWay(operators_in(rotation.graph.nodes), explored(rotation, Limits()).path)
    found = computed(explored(region, Limits(expansions=4), [way]).graph)
    assert (found["RotaryEmbedding"], found["Attention"]) == (1, 1)


def test_the_best_form_is_led_along_the_ways_of_blocks_that_it_spells_out() -> None:
    """A block that is hidden at first: its way is longer than the search goes by itself."""
    twice = "xm = Neg(x2) xn = Neg(xm) x3 = Neg(xn)"
    source = model(rotated("x").replace("x3 = Neg(x2)", twice), "x")
    assert not kinds(source)
    constants = Constants(source.constants)
    plain = model(rotated("x"), "x")
    (block,) = find_spelled_out(plain.graph, plain.constants)
    nodes = [
        node for node in source.graph.nodes if isinstance(node.op, Operator) and not node.constant
    ]
    region = region_of(source.graph, nodes, constants, None, constants.contexts(source.graph))
    index = index_of(tuple(rules()))

    def explored(whole: Region, limits: Limits, ways: Sequence[KnownWay] = ()) -> State:
        lookup = constants.of(whole)
        explorer = Explorer(index, EstimatedCost().estimate, lookup, limits, of_blocks=ways)
        return cheapest(explorer.explore(whole.graph, keep=6))

    (whole,) = cut(plain.graph, Constants(plain.constants))
    way = KnownWay(operators_in(block), explored(whole, Limits()).path)
    few = Limits(expansions=1)
    assert "RotaryEmbedding" not in computed(explored(region, few).graph)
    best = explored(region, few, [way])
    assert computed(best.graph)["RotaryEmbedding"] == 1
    assert best.trail is not None


def test_no_region_has_a_part_of_a_rotation() -> None:
    """Nor where there are more rotations by one table than a region can hold."""
    names = "xzuvwqrp"
    source = model(" ".join(map(rotated, names)), names)
    regions = [region.nodes for region in cut(source.graph, Constants(source.constants))]
    rotations = [found for found in map(rotation_at, source.graph.nodes) if found is not None]
    assert len(rotations) == len(names)
    for rotation in rotations:
        readers = source.graph.users[rotation.source]
        assert sum(not region.isdisjoint(readers) for region in regions) == 1


def test_a_block_whose_search_was_cut_short_is_searched_again() -> None:
    source = model(rotated("x"), "x")
    constants = Constants(source.constants)
    blocks = blocks_of(source.graph, cut(source.graph, constants), constants)
    ways = Ways(POLICY)
    alone = [State(blocks[0].graph, 1.0)]
    for limits in ({"starved": True}, {"late": True}):
        ways.note_block(blocks[0], Exploration(alone, False, **limits), is_operator=True)
        assert ways.new_blocks(blocks) == blocks
    ways.note_block(blocks[0], Exploration(alone, exhausted=True), is_operator=True)
    assert not ways.new_blocks(blocks)
    assert not ways.of_blocks, "it leads nowhere"


def test_a_way_that_ends_in_a_block_still_spelled_out_is_not_taken() -> None:
    source = model(rotated("x"), "x")
    constants = Constants(source.constants)
    block, *_ = blocks_of(source.graph, cut(source.graph, constants), constants)
    found = Exploration([State(block.graph, 2.0), State(block.graph, 1.0, ("a",))], exhausted=True)
    ways = Ways(POLICY)
    ways.note_block(block, found, is_operator=False)
    assert not ways.of_blocks
    ways.note_block(block, found, is_operator=True)
    assert [each.way for each in ways.of_blocks] == [("a",)]


def test_a_block_that_is_a_whole_region_is_not_searched_twice() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[4, 8] x) => (float[4, 8] y)
    <float one = {1.0}> { a = Neg(x) b = Exp(a) c = Add(b, one) y = Div(x, c) }"""
    source = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    constants = Constants(source.constants)
    (region,) = cut(source.graph, constants)
    assert find_spelled_out(source.graph, source.constants) == [region.nodes]
    assert not blocks_of(source.graph, [region], constants)


ALL = "e = Neg(angles)"
"""Angles of their own for each element of a head."""


@pytest.mark.parametrize(
    "source",
    [
        model(rotated("x"), "x", ALL, width=32),
        model(rotated("x", turned="{n}1, {n}3"), "x"),
        model(rotated("x", parts=HALVES[::-1]), "x"),
        model(rotated("x"), "x", half=15),
        model(rotated("x"), "x", "f = Neg(angles) e = Concat<axis = -1>(angles, f)"),
    ],
    ids=[
        *("angles of all elements", "the first half is kept", "the first half is negated"),
        *("halves that differ by one", "the other way round in one half"),
    ],
)
def test_what_only_resembles_a_rotation_stays_as_it_is(source: Imported) -> None:
    assert "RotaryEmbedding" not in optimized(source)


@pytest.mark.parametrize(
    "source",
    [
        model(rotated("x"), "x", ALL, width=32),
        model(rotated("x", turned="{n}1, {n}3"), "x"),
        model(rotated("x", parts=HALVES[::-1]), "x"),
    ],
)
def test_what_only_resembles_a_rotation_is_no_block(source: Imported) -> None:
    assert not kinds(source)


NEIGHBOURS = """<ir_version: 10, opset_import: ["" : 20]>
g (float[b, 4, s, 32] x, float[1, s, 16] angles) => (float[b, 4, s, 32] y)
<int64[1] i0 = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] end = {9223372036854775807},
 int64[1] three = {3}, int64[1] last = {-1}, int64[4] each = {1, 1, 1, 2},
 int64[3] table = {1, -1, 32}> {
    a = Unsqueeze(angles, three) p = Expand(a, each) e = Reshape(p, table)
    c = Cos(e) d = Sin(e) cos = Unsqueeze(c, one) sin = Unsqueeze(d, one)
    x1 = Slice(x, i0, end, three, two) x2 = Slice(x, one, end, three, two) x3 = Neg(x2)
    x4 = Unsqueeze(x3, last) x5 = Unsqueeze(x1, last) x6 = Concat<axis = -1>(x4, x5)
    n = Shape(x) x7 = Reshape(x6, n) x8 = Mul(x7, sin) x9 = Mul(x, cos) y = Add(x9, x8)
}"""


OF_NEIGHBOURS = parse_rules("""
rule rotation-of-neighbours
  in       x[B, H, S, 2*D] c[1, S, D] s[1, S, D]
  from     Add(Mul(x, Unsqueeze(Reshape(Expand(Unsqueeze(c, axes=[3]), shape=[1, 1, 1, 2]),
             shape=[1, S, 2 * D]), axes=[1])), Mul(Reshape(Concat(Unsqueeze(Neg(Slice(x, starts=[1],
             ends=[2 * D], axes=[3], steps=[2])), axes=[4]), Unsqueeze(Slice(x, starts=[0],
             ends=[2 * D], axes=[3], steps=[2]), axes=[4]), axis=4), shape=[B, H, S, 2 * D]),
             Unsqueeze(Reshape(Expand(Unsqueeze(s, axes=[3]), shape=[1, 1, 1, 2]),
             shape=[1, S, 2 * D]), axes=[1])))
  to       InterleavedRotaryEmbedding(x, Expand(c, shape=[B, S, D]), Expand(s, shape=[B, S, D]))

rule repeated-behind
  in       x[B, S, D]
  param    n
  from     Elementwise(Reshape(Expand(Unsqueeze(x, axes=[3]), shape=[1, 1, 1, n]),
             shape=[B, S, D * n]))
  to       Reshape(Expand(Unsqueeze(Elementwise(x), axes=[3]), shape=[1, 1, 1, n]),
             shape=[B, S, D * n])
  exact    bits
""")
"""As the generator proves them."""


def test_a_rotation_of_neighbours_becomes_an_operator() -> None:
    source = import_model(ir.from_proto(onnx.parser.parse_model(NEIGHBOURS)))
    wanted = {"InterleavedRotaryEmbedding": 1, "Cos": 1, "Sin": 1, "Expand": 2}
    assert computed(searched(source, OF_NEIGHBOURS).graph) == wanted
    # The first of each pair for the second one, and the other way round.
    turned = NEIGHBOURS.replace("x1 = Slice(x, i0", "x1 = Slice(x, one").replace(
        "x2 = Slice(x, one", "x2 = Slice(x, i0"
    )
    wrong = import_model(ir.from_proto(onnx.parser.parse_model(turned)))
    assert "InterleavedRotaryEmbedding" not in computed(searched(wrong, OF_NEIGHBOURS).graph)


def test_a_rotation_of_neighbours_is_a_block() -> None:
    source = import_model(ir.from_proto(onnx.parser.parse_model(NEIGHBOURS)))
    assert kinds(source) == [("rotation", "InterleavedRotaryEmbedding")]
