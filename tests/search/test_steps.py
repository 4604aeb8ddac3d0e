"""Steps: those that are moved along from one node to another are those that are found there."""

from graphs import call
from hypothesis import given, settings
from hypothesis import strategies as st

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.fold import no_constants
from xflow.core.graph import Graph, walk
from xflow.core.node import Node, TensorType, Value, leaf
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.text import parse_rules
from xflow.search.steps import Step, Steps, View

RULES = parse_rules("""
rule associativity
  in       x[...] y[...] z[...]
  from     Add(Add(x, y), z)
  to       Add(x, Add(y, z))
  reverse  always

rule double
  in       x[...]
  from     Add(x, x)
  to       Mul(x, 2)

rule relu-of-relu
  in       x[...]
  from     Relu(Relu(x))
  to       Relu(x)

rule transposes
  in       x[M, N]
  from     Transpose(Transpose(x, perm=[1, 0]), perm=[1, 0])
  to       Relu(Neg(x))

rule deep
  in       x[...]
  from     Relu(Neg(Add(x, x)))
  to       Neg(x)

rule product
  in       x[N, M] y[M, L] z[L, K]
  from     MatMul(MatMul(x, y), z)
  to       MatMul(x, MatMul(y, z))
  reverse  always
""")
INDEX = RuleIndex(RULES)


def tensor(key: str, *, constant: bool = False) -> Value:
    return leaf(key, TensorType("FLOAT", (4, 4)), constant=constant)


@st.composite
def values(draw: st.DrawFn) -> Value:
    """A deep expression over few tensors, so that much of it looks alike."""
    known = [tensor("x"), tensor("y"), tensor("w", constant=True)]
    for _ in range(draw(st.integers(4, 14))):
        name = draw(st.sampled_from(["Add", "MatMul", "Relu", "Neg", "Transpose"]))
        first, second = (known[-draw(st.integers(1, min(5, len(known))))] for _ in range(2))
        match name:
            case "Add" | "MatMul":
                known.append(call(name, first, second))
            case "Transpose":
                known.append(call(name, first, perm=(1, 0)))
            case _:
                known.append(call(name, first))
    return known[-1]


def told(step: Step) -> tuple[object, ...]:
    """All that a step says."""
    match = step.match
    return (
        *(step.rule, step.before, step.after, step.rank, step.near, step.made),
        *(step.expands, step.renames, step.shrinks, step.lightens, step.fills),
        *(match.roots, frozenset(match.bindings.items()), frozenset(match.sizes.items())),
        *(match.nodes, match.dtype),
    )


def afresh(node: Node, graph: Graph) -> set[tuple[object, ...]]:
    """The steps at a node, found by somebody who has seen no other."""
    return set(map(told, Steps(INDEX, no_constants).at(node, graph)))


@settings(max_examples=200)
@given(st.lists(values(), min_size=1, max_size=3))
def test_moved_steps_are_those_that_are_found(outputs: list[Value]) -> None:
    graph = Graph(tuple(outputs))
    steps = Steps(INDEX, no_constants)
    for node in graph.nodes:
        assert set(map(told, steps.at(node, graph))) == afresh(node, graph)


@settings(max_examples=100)
@given(st.lists(values(), min_size=1, max_size=3), st.booleans())
def test_the_steps_by_one_rule_are_those_of_all_that_are_by_it(
    outputs: list[Value], known: bool
) -> None:
    graph = Graph(tuple(outputs))
    everything = [each.step for each in Steps(INDEX, no_constants).candidates(graph)]
    steps = Steps(INDEX, no_constants)
    if known:  # some nodes were asked for all rules before
        for node in graph.nodes[::2]:
            steps.candidates_at(node, graph)
    for rule in {step.rule for step in everything} | {"no-rule"}:
        by_rule = [told(step) for step in everything if step.rule == rule]
        for _ in range(2):  # the second time from what is kept
            assert [told(each.step) for each in steps.candidates_by(rule, graph)] == by_rule


@given(st.lists(values(), min_size=1, max_size=3))
def test_nodes_come_in_the_order_of_a_walk(outputs: list[Value]) -> None:
    assert Graph(tuple(outputs)).nodes == tuple(walk(outputs))


def test_a_view_ends_below_what_the_node_reads() -> None:
    x, y = tensor("x"), tensor("y")
    one, other = (call("Relu", call("Neg", call("Add", x, v))) for v in (x, y))
    assert View(one.node).key == View(other.node).key
    steps = Steps(INDEX, no_constants)
    graph = Graph((one, other))
    found = [[step.rule for step in steps.at(value.node, graph)] for value in (other, one)]
    assert found == [[], ["deep"]]  # what looks further down is looked for at each


def test_what_a_rule_makes_is_not_taken_for_what_happens_to_stand_there() -> None:
    x, y = tensor("x"), tensor("y")
    product = call("MatMul", y, y)
    # From the first of these, x (y y) and y y y look like what the rule makes of them: what stood
    # at the edge in its place, such as the Neg in the second one, would be wrong.
    one = call("MatMul", call("MatMul", x, y), call("MatMul", product, y))
    other = call("MatMul", call("MatMul", x, y), call("MatMul", call("Neg", y), y))
    assert [View(value.node).tangled for value in (one, other)] == [True, True]
    apart = call("MatMul", call("MatMul", x, y), call("MatMul", tensor("z"), y))
    assert not View(apart.node).tangled
    graph = Graph((one, other))
    steps = Steps(INDEX, no_constants)
    for value in (one, other):
        assert set(map(told, steps.at(value.node, graph))) == afresh(value.node, graph)


def test_a_view_tells_what_is_the_same() -> None:
    x, y = tensor("x"), tensor("y")
    once, twice = call("Relu", call("Neg", x)), call("Relu", call("Neg", y))
    keys = [
        View(call("Add", a, b).node).key for a, b in ((once, once), (once, twice), (twice, once))
    ]
    assert keys[0] != keys[1] == keys[2]
    # Read once as an operator's input and once by the node itself, it is an operator of the view.
    mixed = View(call("Add", call("Relu", once), once).node)
    assert mixed.nodes[2:] == (once.node, call("Neg", x).node)
