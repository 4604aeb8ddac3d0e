"""The search: what it finds, that it finds it again, and that a measurement has the last word."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from graphs import assert_same, call, tensor, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from noting import Noting

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.deadline import Deadline
from xflow.core.fold import no_constants
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Opaque, TensorType, Value, apply, leaf, opaque
from xflow.core.registry import Array, Operator
from xflow.core.size import Size, symbol
from xflow.cost import Use
from xflow.cost.estimate import EstimatedCost, Estimator
from xflow.cost.fusion import operator_name
from xflow.cost.learned.correction import Correction
from xflow.cost.learned.trees import Trees
from xflow.cost.target import TargetModel
from xflow.report.summary import rule_uses
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.replacement import Replacement, apply_replacements, without
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.search.constants import Constants
from xflow.search.context import DEFAULTS, Context
from xflow.search.cutting import cut
from xflow.search.driver import OVER, SLOW, SearchResult, search
from xflow.search.explorers import Exploration, Explorers
from xflow.search.policy import POLICY, Policy
from xflow.search.processes import SearchProcesses
from xflow.search.region import Region
from xflow.search.states import State
from xflow.search.steps import Steps

RULES = parse_rules("""
rule bias-apart
  in       x[N, C, *S] w[O, c, *R] b[O]
  param    *e *f *s *d g
  rank     2
  from     Conv(x, w, b, pads=[*e, *f], strides=[*s], dilations=[*d], group=g)
  to       Add(Conv(x, w, pads=[*e, *f], strides=[*s], dilations=[*d], group=g), \
Reshape(b, shape=[O, *1]))
  reverse  always

rule associativity
  in       x[...] y[...] z[...]
  from     Add(Add(x, y), z)
  to       Add(x, Add(y, z))
  reverse  always

rule merge
  in       x[N, C, *S] w[O, c, *R] v[O, c, *(R + p + q)]
  param    *e *f *p *q *s *d g
  rank     2
  from     Add(Conv(x, w, pads=[*e, *f], strides=[*s], dilations=[*d], group=g), \
Conv(x, v, pads=[*(e + d*p), *(f + d*q)], strides=[*s], dilations=[*d], group=g))
  to       Conv(x, Add(Pad(w, pads=[0, 0, *p, 0, 0, *q]), v), pads=[*(e + d*p), *(f + d*q)], \
strides=[*s], dilations=[*d], group=g)
  where    p >= 0, q >= 0

rule mul-as-conv
  in       x[N, C, *S] k[C]
  rank     2
  from     Mul(x, Reshape(k, shape=[C, *1]))
  to       Conv(x, Mul(IdentityKernel(channels=C, kernel=[*1]), Reshape(k, shape=[C, 1, *1])))

rule double
  in       x[...]
  from     Add(x, x)
  to       Mul(x, 2)
  reverse  always

rule matmul-associativity
  in       x[N, K] w[K, M] v[M, P]
  from     MatMul(MatMul(x, w), v)
  to       MatMul(x, MatMul(w, v))

rule relu-of-relu
  in       x[...]
  from     Relu(Relu(x))
  to       Relu(x)
  exact    bits
""")


def block(x: Value, name: str) -> Value:
    """Three branches: kernels of two sizes with bias, and a scaled identity."""
    n = x.shape[1]
    kernel = tensor(f"{name}.kernel", n, n, 3, 3, constant=True)
    point = tensor(f"{name}.point", n, n, 1, 1, constant=True)
    first, second = (tensor(f"{name}.{key}", n, constant=True) for key in "bc")
    scale = call("Reshape", tensor(f"{name}.scale", n, constant=True), shape=(n, 1, 1))
    branches = call(
        "Add",
        call("Conv", x, kernel, first, pads=(1, 1, 1, 1)),
        call("Conv", x, point, second),
    )
    return call("Relu", call("Add", branches, call("Mul", x, scale)))


def network(blocks: int, size: int = 6, channels: int = 8) -> Graph:
    value = tensor("x", 1, channels, size, size)
    for number in range(blocks):
        value = block(value, f"block{number}")
    return Graph((value,))


def found(
    graph: Graph,
    cost: object = None,
    seconds: float = 60.0,
    *,
    processes: int | SearchProcesses = 1,
    policy: Policy = POLICY,
) -> SearchResult:
    model = EstimatedCost() if cost is None else cost
    deadline = Deadline.after(seconds)
    return search(
        graph,
        RULES,
        model,  # type: ignore[arg-type]
        deadline=deadline,
        constants=weights,
        processes=processes,
        context=Context(policy=policy),
    )


def count(graph: Graph, name: str) -> int:
    return sum(not node.constant and getattr(node.op, "name", "") == name for node in graph.nodes)


def test_three_branches_become_one_convolution() -> None:
    graph = network(1)
    result = found(graph)
    assert count(result.graph, "Conv") == 1
    assert count(result.graph, "Mul") == 0
    assert_same(graph, result.graph)
    rules = {name for item in result.replacements for name in item.rules}
    assert {"merge", "mul-as-conv"} <= rules
    assert all(item.gain > 0 for item in result.replacements)


def test_blocks_that_differ_in_weights_alone_are_solved_once() -> None:
    class Counting(Estimator):
        asked = 0

        def __call__(self, graph: Graph, uses: Sequence[Use] = ()) -> float:
            Counting.asked += 1
            return super().__call__(graph, uses)

    def cost() -> EstimatedCost:
        model = EstimatedCost()
        model.layouts = Counting()
        return model

    found(network(6, channels=32), cost())
    six, Counting.asked = Counting.asked, 0
    twelve = network(12, channels=32)
    result = found(twelve, cost())
    assert Counting.asked < 1.1 * six
    assert count(result.graph, "Conv") == 12
    assert_same(twelve, result.graph)


def test_search_is_deterministic() -> None:
    graph = network(2)
    first, second = found(graph), found(graph)
    assert first.graph == second.graph
    assert [item.rules for item in first.replacements] == [
        item.rules for item in second.replacements
    ]


def test_without_rules_nothing_changes() -> None:
    graph = network(1)
    result = search(graph, [], EstimatedCost(), deadline=Deadline.after(10))
    assert result.graph is graph
    assert result.replacements == ()


def test_past_deadline_leaves_the_graph_alone() -> None:
    graph = network(1)
    assert found(graph, seconds=-1.0).graph == graph


def test_replacements_lead_from_the_graph_to_the_result() -> None:
    graph = network(3)
    result = found(graph)
    assert apply_replacements(graph, result.replacements) == result.graph
    for dropped in range(len(result.replacements)):
        rest = without(result.replacements, dropped)
        assert len(rest) == len(result.replacements) - 1
        assert_same(graph, apply_replacements(graph, rest))
    rest = without(result.replacements, 0)
    kept = apply_replacements(graph, rest)
    assert count(kept, "Conv") > count(result.graph, "Conv")
    assert count(kept, "Conv") < count(graph, "Conv")


class Stopwatch:
    """A measurement that says what a test wants it to."""

    measures = True

    def __init__(self, times: Sequence[float | None]) -> None:
        self.estimate = EstimatedCost().estimate
        self.layouts: Estimator | None = None
        self.notebook = self.settings = None
        self.times = times
        self.graphs: list[Graph] = []

    def measure(
        self, graphs: Sequence[Graph], seconds: float, *, again: int = 0
    ) -> list[float | None]:
        self.graphs.extend(graphs)
        return [*self.times, *[self.times[-1]] * len(graphs)][: len(graphs)]


def test_measurement_decides_against_the_estimate() -> None:
    graph = network(1)
    assert found(graph, Stopwatch([1.0, 1.05])).graph == graph
    assert found(graph, Stopwatch([1.0, None])).graph == graph
    assert found(graph, Stopwatch([None, 0.5])).graph == graph
    faster = found(graph, Stopwatch([1.0, 0.5]))
    assert faster.graph != graph
    assert faster.replacements[-1].gain == 0.5
    assert_same(graph, faster.graph)


class Notes:
    """A store of solutions that forgets them at the end of a test."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        return self.kept.get(key)

    def put(self, key: str, text: str) -> None:
        self.kept[key] = text


def test_where_there_is_no_time_to_measure_the_estimate_decides_for_this_run_alone() -> None:
    graph, watch = network(1), Stopwatch([1.0, 1.05])
    watch.notebook = notes = Notes()  # type: ignore[assignment]
    hurried = replace(POLICY, measure_s=(1000.0, 1000.0))
    result = found(graph, watch, policy=hurried)
    assert result.graph != graph
    assert {item.estimated for item in result.replacements} == {True}
    assert not watch.graphs
    assert not any('"trail"' in text for text in notes.kept.values())
    patient = found(graph, watch)
    assert patient.graph == graph
    assert watch.graphs


def test_a_report_tells_gains_that_were_not_measured_from_those_that_were() -> None:
    value = tensor("x", 2)
    items = [
        Replacement((value,), (value,), rules, 1.0, estimated=estimated)
        for rules, estimated in ((("one", "both"), False), (("other", "both"), True))
    ]
    uses = rule_uses(items, {}, "region")
    assert {use.name: use.gain_from for use in uses} == {
        "one": "region",
        "both": "estimate",
        "other": "estimate",
    }


class Race(Stopwatch):
    """A measurement that knows the times of each operator that is computed last.

    One for each session; the last one is that of all others.
    """

    def __init__(self, times: Mapping[str, Sequence[float]]) -> None:
        super().__init__([1.0])
        self.known = times
        self.sessions: list[int] = []
        self.raced: list[list[str]] = []
        """The operators that were computed last, for each measurement."""

    def measure(
        self, graphs: Sequence[Graph], seconds: float, *, again: int = 0
    ) -> list[float | None]:
        self.sessions.append(again)
        self.raced.append([operator_name(graph.outputs[0].node) for graph in graphs])
        known = [self.known[name] for name in self.raced[-1]]
        return [times[min(again, len(times) - 1)] for times in known]


def winner(graph: Graph, rules: Sequence[Rule], race: Race) -> str:
    """The operator that is computed last in what the search chooses."""
    result = search(graph, rules, race, deadline=Deadline.after(60.0))
    return operator_name(result.graph.outputs[0].node)


@pytest.mark.parametrize(("first", "chosen"), [(0.955, "Abs"), (0.985, "Neg"), (1.02, "Neg")])
def test_of_forms_about_as_fast_the_one_that_should_be_is_taken_if_it_gains(
    first: float, chosen: str
) -> None:
    """The estimate calls the first one the better one by a hair."""
    rules = parse_rules("""
rule first
  in       x[...]
  from     Relu(Relu(x))
  to       Abs(x)

rule second
  in       x[...]
  from     Relu(Relu(x))
  to       Neg(x)
""")
    graph = Graph((call("Relu", call("Relu", tensor("x", 4))),))
    race = Race({"Relu": [1.0], "Abs": [first], "Neg": [0.94]})
    assert winner(graph, rules, race) == chosen


@pytest.mark.parametrize(("slow", "left"), [("Add", "Mul"), ("Mul", "Add")])
def test_the_form_is_chosen_that_is_cheaper_by_what_was_learned(slow: str, left: str) -> None:
    x = tensor("x", 64, 4096)
    graph = Graph((call("Add", x, x),))
    rules = parse_rules("""
rule double
  in       x[...]
  from     Add(x, x)
  to       Mul(x, 2)
""")
    kinds = [f"counted as operator, is {name}, 4 bytes" for name in ("Add", "Mul")]
    trees = Trees.of((f"is {slow}",), [[(0, 0.5, 0.0, 2.0)]])
    learned = Correction(trees, {kind: [0.0] for kind in kinds})
    cost = EstimatedCost(Estimator(TargetModel(learned=learned)))
    result = search(graph, rules, cost, deadline=Deadline.after(10))
    assert result.graph.outputs[0].node.op.name == left  # type: ignore[union-attr]


@pytest.mark.parametrize(("taken", "last"), [(0.985, "Gemm"), (0.995, "MatMul")])
def test_which_kernel_multiplies_faster_is_measured_and_not_estimated(
    taken: float, last: str
) -> None:
    """The estimate has it that both take the same time. In other cases that would be noise."""
    rules = parse_rules("""
rule other-kernel
  in       a[m,k] b[k,n]
  from     MatMul(a, b)
  to       Gemm(a, b)
""")
    graph = Graph((call("MatMul", tensor("a", 64, 64), tensor("b", 64, 64)),))
    race = Race({"MatMul": [1.0], "Gemm": [taken]})
    assert winner(graph, rules, race) == last


def test_of_spellings_that_the_runtime_fuses_into_one_kernel_luck_does_not_decide() -> None:
    rules = parse_rules("""
rule operator
  in       x[...]
  from     Relu(Relu(x))
  to       QuickGelu(x, alpha=1)

rule spelled-out
  in       x[...]
  from     Relu(Relu(x))
  to       Mul(x, Sigmoid(x))
""")
    graph = Graph((call("Relu", call("Relu", tensor("x", 4))),))
    race = Race({"Relu": [1.0], "QuickGelu": [0.9], "Mul": [0.8]})
    race.layouts = Estimator()
    assert winner(graph, rules, race) == "QuickGelu"


@pytest.mark.parametrize(
    ("times", "sessions", "last"),
    [
        ((0.98, 0.9), 1, "Abs"),
        ((0.98, 1.02), 1, "Exp"),
        ((0.98, 0.985, 1.04), 2, "Exp"),
        ((0.98, 0.995, 0.98, 0.98), 3, "Abs"),
        ((0.98, 0.98, 0.98, 1.02), 3, "Exp"),
        ((1.0,), 0, "Exp"),
    ],
)
def test_what_is_not_clear_is_measured_in_further_sessions(
    times: Sequence[float], sessions: int, last: str
) -> None:
    rules = parse_rules("""
rule other
  in       x[...]
  from     Exp(Sigmoid(x))
  to       Abs(Neg(x))
""")
    graph = Graph((call("Exp", call("Sigmoid", tensor("x", 1024, 1024))),))
    race = Race({"Exp": [1.0], "Abs": times})
    assert winner(graph, rules, race) == last
    assert max(race.sessions) == sessions


@pytest.mark.parametrize(
    ("times", "sessions", "last"),
    [
        ((1.01, 0.9), 1, "Abs"),
        ((1.01, 1.01, 0.99, 0.99), 3, "Abs"),
        ((1.0, 1.01), 3, "Relu"),
        ((1.0, 1.03), 1, "Relu"),
        ((1.03,), 0, "Relu"),
    ],
)
def test_what_is_simpler_and_promised_to_be_faster_must_not_be_slower(
    times: Sequence[float], sessions: int, last: str
) -> None:
    rules = parse_rules("""
rule simpler
  in       x[...]
  from     Relu(Relu(x))
  to       Abs(x)
""")
    graph = Graph((call("Relu", call("Relu", tensor("x", 4))),))
    race = Race({"Relu": [1.0], "Abs": times})
    assert winner(graph, rules, race) == last
    assert max(race.sessions) == sessions


@pytest.mark.parametrize(
    ("rule", "time", "sessions"),
    [("Relu(x)", 0.6, 0), ("Relu(x)", 0.8, 1), ("Neg(Sigmoid(x))", 0.6, 1)],
    ids=["promised", "too little", "not promised"],
)
def test_what_gains_much_as_it_was_promised_needs_no_further_session(
    rule: str, time: float, sessions: int
) -> None:
    rules = parse_rules(f"""
rule other
  in       x[...]
  from     Exp(Sigmoid(x))
  to       {rule}
""")
    graph = Graph((call("Exp", call("Sigmoid", tensor("x", 1024, 1024))),))
    race = Race({"Exp": [1.0], "Relu": [time], "Neg": [time]})
    assert winner(graph, rules, race) == rule[: rule.index("(")]
    assert max(race.sessions) == sessions


def test_forms_that_cost_far_more_than_the_best_are_measured_if_that_does_not_gain() -> None:
    rules = parse_rules("""
rule a-dear-one
  in       x[...]
  from     Exp(Sigmoid(x))
  to       Sigmoid(x)

rule best
  in       x[...]
  from     Exp(Sigmoid(x))
  to       Relu(x)
""")
    graph = Graph((call("Exp", call("Sigmoid", tensor("x", 1024, 1024))),))
    race = Race({"Exp": [1.0], "Sigmoid": [0.6], "Relu": [0.5]})
    assert winner(graph, rules, race) == "Relu"
    assert race.raced == [["Exp", "Relu"]]
    race = Race({"Exp": [1.0], "Sigmoid": [0.6], "Relu": [1.5]})
    assert winner(graph, rules, race) == "Sigmoid"
    assert race.raced == [["Exp", "Relu"], ["Exp", "Sigmoid"]]


def test_what_is_spelled_out_gets_a_larger_share_of_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two regions that take the same time the one that may become one kernel."""
    x = tensor("x", 8, 256)
    square = call("ReduceMean", call("Mul", x, x), axes=(1,), keepdims=1)
    normal = call("Div", x, call("Sqrt", square))
    (middle,) = opaque("Custom", [normal], [normal.type])
    shares: dict[bool, float] = {}

    def explore(
        _: Explorers,
        regions: Sequence[Region],
        weights: Sequence[float],
        *__: object,
        **___: object,
    ) -> Iterator[tuple[int, Exploration]]:
        for number, (region, weight) in enumerate(zip(regions, weights, strict=True)):
            cost = EstimatedCost().estimate(region.graph)
            shares[count(region.graph, "Sqrt") > 0] = weight / cost**0.5
            yield number, Exploration([State(region.graph, cost)], exhausted=True)

    monkeypatch.setattr(Explorers, "explore", explore)
    found(Graph((call("Relu", call("Relu", middle)),)))
    assert shares[True] > shares[False]


def test_what_takes_long_to_load_and_gains_next_to_nothing_is_not_measured() -> None:
    """Rows of a large table, beside a product that takes the time of the model."""
    table = tensor("table", 50_000, 768, constant=True)
    rows = call("Gather", table, tensor("i", 4, dtype="INT64"), axis=0)
    rows = call("Relu", call("Relu", rows))
    (middle,) = opaque("Custom", [rows], [TensorType("FLOAT", (4096, 4096))])
    weights = tensor("w", 4096, 4096, constant=True)
    last = call("Relu", call("Relu", call("MatMul", middle, weights)))
    watch = Stopwatch([1.0, 0.5])
    found(Graph((last,)), watch, seconds=20.0)
    assert watch.graphs
    assert all(table not in graph.leaves for graph in watch.graphs)
    alone = Stopwatch([1.0, 0.5])
    found(Graph((rows,)), alone, seconds=20.0)
    assert alone.graphs


def test_other_operators_have_to_gain_and_fewer_of_the_same_do_not() -> None:
    x = tensor("x", 4, 64)
    renamed = Graph((call("Add", x, x),))
    assert found(renamed, Stopwatch([1.0, 0.99])).graph == renamed
    twice = Graph((call("Relu", call("Relu", x)),))
    assert count(found(twice, Stopwatch([1.0, 1.0])).graph, "Relu") == 1


def test_a_gain_beside_a_product_that_stays_is_compared_with_what_does_not() -> None:
    """However large the product is: it takes as long in both forms."""
    rules = parse_rules("""
rule absolute
  in       x[...]
  from     Sqrt(Mul(x, x))
  to       Abs(x)
""")
    x, vocabulary = tensor("x", 1, 64), tensor("w", 64, 400_000, constant=True)
    root = call("Sqrt", call("Mul", x, x))
    logits = call("MatMul", root, vocabulary)
    cost = EstimatedCost()

    def absolutes(value: Value) -> int:
        result = search(Graph((value,)), rules, cost, deadline=Deadline.after(60.0))
        return count(result.graph, "Abs")

    least = POLICY.least_gain * cost.estimate(Graph((logits,)))
    assert cost.estimate(Graph((root,))) < least
    assert absolutes(logits) == 1
    other = call("Mul", root, tensor("y", 100_000, 64))
    assert cost.estimate(Graph((root,))) < POLICY.least_gain * cost.estimate(Graph((other,)))
    assert absolutes(other) == 0, "what is no product counts, however alike it is in both"


def test_an_attention_with_its_past_takes_as_long_as_that_on_all_keys() -> None:
    """However large it is, what copies the past gains beside it."""
    rules = parse_rules("""
rule attention-with-a-past
  in       q[B, H, S, D] x[B, C, P, D] k[B, C, L, D] y[B, C, P, E] v[B, C, L, E]
  param    s:real
  from     Attention(q, Concat(x, k, axis=2), Concat(y, v, axis=2), scale=s),
             Concat(x, k, axis=2), Concat(y, v, axis=2)
  to       CachedAttention(q, k, v, x, y, scale=s)[0], CachedAttention(q, k, v, x, y, scale=s)[1],
             CachedAttention(q, k, v, x, y, scale=s)[2]
  types    reals
  limits   q x k
""")
    past, other = (tensor(name, 1, 1, 512, 64) for name in ("past", "other"))
    keys = call("Concat", past, tensor("k", 1, 1, 64, 64), axis=2)
    values = call("Concat", other, tensor("v", 1, 1, 64, 64), axis=2)
    heads = call("Attention", tensor("q", 1, 8, 64, 64), keys, values, scale=Fraction(1, 8))
    graph, cost = Graph((heads, keys, values)), EstimatedCost()
    result = search(graph, rules, cost, deadline=Deadline.after(60.0))
    assert count(result.graph, "CachedAttention") == 1
    gained = cost.estimate(graph) - cost.estimate(result.graph)
    assert 0 < gained < POLICY.least_gain * cost.estimate(graph)


@pytest.mark.parametrize("offset", [1.0, -1e6])
def test_where_the_cheapest_form_loses_digits_the_next_one_is_taken(offset: float) -> None:
    """Two offsets that cancel each other: not so the two roots beside them."""
    rules = parse_rules("""
rule offsets
  in       x[...] b[...] c[...]
  from     Add(Add(x, b), c)
  to       Add(x, Add(b, c))
  numerics fp32 2^-24 2^-24, extreme 2^-24 2^-1; cancels: forward; refused: none

rule absolute
  in       x[...]
  from     Sqrt(Mul(x, x))
  to       Abs(x)
""")
    x = tensor("x", 4, 64)
    first, second = (tensor(name, 64, constant=True) for name in "bc")
    data = {"b": np.full(64, offset, np.float32), "c": np.linspace(1, 2, 64, dtype=np.float32)}

    def constants(value: Value) -> Array | None:
        return data.get(value.node.op.key) if isinstance(value.node.op, Leaf) else None

    root = call("Sqrt", call("Mul", x, x))
    graph = Graph((call("Add", call("Add", root, first), second),))
    one_pass = Context(policy=replace(POLICY, passes=1))
    result = search(
        graph,
        rules,
        EstimatedCost(),
        deadline=Deadline.after(60.0),
        constants=constants,
        context=one_pass,
    )
    first_round = result.replacements[0].rules
    assert "absolute" in first_round
    assert count(result.graph, "Abs") == 1
    assert count(result.graph, "Add") == (1 if offset == 1.0 else 2)
    assert ("offsets" in first_round) == (offset == 1.0)


def test_fewer_of_the_same_may_have_other_numbers() -> None:
    """An attention takes no longer for its scale, and the product does nothing any more."""
    rules = parse_rules("""
rule scale
  in       q[B, H, S, D] k[B, H, L, D] v[B, H, L, E]
  param    s:real
  from     Attention(Mul(q, Scalar(value=s)), k, v, scale=1)
  to       Attention(q, k, v, scale=s)
""")
    queries, keys, values = (tensor(name, 1, 2, 8, 4) for name in "qkv")
    (quarter,) = apply("Scalar", (), {"value": Fraction(1, 4)}, dtype="FLOAT")
    scaled = call("Mul", queries, quarter)
    graph = Graph((call("Attention", scaled, keys, values, scale=Fraction(1)),))
    clock = Stopwatch([1.0, 1.01])
    result = search(graph, rules, clock, deadline=Deadline.after(60.0))
    assert count(result.graph, "Mul") == 0


def test_measurements_that_contradict_each_other_do_not_go_on_for_ever() -> None:
    """Whatever stands there, the other form seems to be faster, seen from another cut."""
    value = tensor("x", 1, 8, 6, 6)
    for number in range(30):
        kernel = tensor(f"w{number}", 8, 8, 3, 3, constant=True)
        bias = tensor(f"b{number}", 8, constant=True)
        value = call("Tanh", call("Conv", value, kernel, bias, pads=(1, 1, 1, 1)))
    result = found(Graph((value,)), Stopwatch([1.0, 0.5]), seconds=30.0)
    assert OVER not in result.notes


def test_measured_graphs_have_the_weights_of_the_model_and_free_inputs() -> None:
    graph = network(1)
    watch = Stopwatch([1.0])
    found(graph, watch)
    weights = {value for value in graph.leaves if value.is_constant}
    for measured in watch.graphs:
        assert {value for value in measured.leaves if value.is_constant} <= weights
        assert sum(not value.is_constant for value in measured.leaves) == 1


def test_opaque_nodes_are_kept_and_searched_around() -> None:
    x = tensor("x", 4, 4)
    (middle,) = opaque("Custom", [call("Relu", call("Relu", x))], [x.type])
    result = found(Graph((call("Relu", call("Relu", middle)),)))
    (expected,) = opaque("Custom", [call("Relu", x)], [x.type])
    assert result.graph == Graph((call("Relu", expected),))


def test_pattern_across_a_seam_is_found() -> None:
    value = tensor("x", 16, 16)
    for _ in range(60):
        value = call("Tanh", call("Relu", call("Relu", value)))
    result = found(Graph((value,)))
    assert count(result.graph, "Relu") == 60


def test_regions_are_convex_and_cover_every_node_once() -> None:
    graph = network(7)
    for shifted in (False, True):
        regions = cut(graph, Constants(lambda value: None), shifted)
        position = {node: i for i, node in enumerate(graph.nodes)}
        done: set[Value] = set()
        total = 0
        for region in regions:
            assert region.instantiate(region.graph.outputs) == region.outputs
            for value in region.inputs:
                assert value.is_leaf or value.is_constant or value in done
            done.update(region.outputs)
            total += sum(not n.constant and bool(n.inputs) for n in region.graph.nodes)
        assert total == sum(not n.constant and bool(n.inputs) for n in position)


@given(st.lists(st.tuples(*[st.integers(0, 30)] * 2, st.booleans()), min_size=2, max_size=25))
def test_no_way_out_of_a_region_through_an_opaque_node_leads_back(
    steps: list[tuple[int, int, bool]],
) -> None:
    values = [tensor("x", 4), tensor("y", 4)]
    for one, other, is_opaque in steps:
        left, right = values[one % len(values)], values[other % len(values)]
        (made,) = (
            opaque("Custom", [left, right], [left.type])
            if is_opaque
            else [call("Add", left, right)]
        )
        values.append(made)
    graph = Graph(tuple(values[-3:]))
    for shifted in (False, True):
        done: set[Value] = set()
        covered: list[Node] = []
        for region in cut(graph, Constants(no_constants), shifted):
            pending = list(region.inputs)
            while pending:
                value = pending.pop()
                if isinstance(value.node.op, Opaque):
                    pending += value.node.inputs
                else:
                    assert value.is_leaf or value in done
            done.update(region.outputs)
            covered += region.nodes
        assert Counter(covered) == Counter(n for n in graph.nodes if isinstance(n.op, Operator))


def test_what_an_opaque_node_makes_is_searched_with_what_it_meets() -> None:
    (mask,) = opaque("Custom", [tensor("m", 4, 4)], [tensor("m", 4, 4).type])
    scores = call("MatMul", call("Relu", tensor("x", 4, 4)), tensor("y", 4, 4))
    graph = Graph((call("Softmax", call("Add", scores, call("Relu", mask)), axis=1),))
    (region,) = cut(graph, Constants(no_constants))
    assert len(region.nodes) == 5


def test_no_cut_goes_through_what_the_runtime_computes_by_one_kernel() -> None:
    weight = leaf("w", TensorType("FLOAT", (16,)), constant=True)
    (two,), (small,) = (
        apply("Scalar", (), {"value": Fraction(*v)}, dtype="FLOAT") for v in ((2, 1), (1, 9))
    )
    value = tensor("x", 4, 16)
    kernels = []
    for size in (1, 4, 2, 7, 3):
        for _ in range(size):
            value = call("Tanh", value)
        mean = call("ReduceMean", call("Pow", value, two), axes=(1,), keepdims=1)
        scaled = call("Div", value, call("Sqrt", call("Add", mean, small)))
        value = call("Mul", scaled, weight)
        kernels.append({scaled.node, value.node})
    layouts = EstimatedCost().layouts
    for shifted in (False, True):
        regions = cut(Graph((value,)), Constants(lambda value: None), shifted, layouts)
        for kernel in kernels:
            assert sum(not kernel.isdisjoint(region.nodes) for region in regions) == 1


@settings(deadline=None)
@given(
    before=st.integers(1, 50),
    apart=st.integers(0, 30),
    behind=st.integers(1, 30),
    shifted=st.booleans(),
)
def test_no_cut_goes_through_an_attention(
    before: int, apart: int, behind: int, shifted: bool
) -> None:
    """However many operators stand before it, none of which is a bottleneck.

    Nor through what scales the queries, unless it is so far before that no region holds both: where
    angles are turned, and keys are repeated for several heads, many operators lie between.
    """
    x = tensor("x", 4, 16, 8)
    queries = keys = x
    for _ in range(before):
        queries = call("Tanh", queries)
    scale = leaf("scale", TensorType("FLOAT", ()), constant=True)
    queries = call("Mul", queries, scale)
    for _ in range(apart):
        keys = call("Sigmoid", keys)
    scores = call("MatMul", queries, call("Transpose", keys, perm=(0, 2, 1)))
    weights = call("Softmax", call("Add", scores, tensor("mask", 16, 16)), axis=2)
    values = x
    for _ in range(behind):  # which is made between the scores and the product with them
        values = call("Tanh", values)
    attended = call("MatMul", weights, values)
    graph = Graph((call("Add", attended, x),))
    inside = {scores.node, weights.node.inputs[0].node, weights.node, attended.node}
    if apart + behind < 30:
        inside.add(queries.node)
    regions = cut(graph, Constants(no_constants), shifted)
    assert any(inside <= region.nodes for region in regions)


def test_a_large_part_is_cut_where_the_least_data_passes() -> None:
    first = value = call("Relu", tensor("x", 2, 64))
    for number in range(90):
        if number % 20 == 10:
            value = call("Slice", value, starts=(0,), ends=(4,), axes=(1,), steps=(1,))
        elif number % 20 == 19:
            value = call("Concat", *[value] * 16, axis=1)
        else:
            value = call("Tanh" if number % 2 else "Sigmoid", value)
    graph = Graph((call("Add", value, first),))  # which passes all of it: there is no bottleneck
    regions = cut(graph, Constants(no_constants))
    assert len(regions) > 1
    for region in regions[1:]:
        assert all(value == first or value.shape == (2, 4) for value in region.inputs)


def test_constants_that_rules_can_see_tell_regions_apart() -> None:
    x = tensor("x", 2, 3)
    constants = {
        "two": np.full((3,), 2.0, np.float32),
        "three": np.full((3,), 3.0, np.float32),
        "large": np.arange(100, dtype=np.float32),
        "another": np.arange(100, dtype=np.float32)[::-1],
    }

    def lookup(value: Value) -> Array | None:
        assert isinstance(value.node.op, Leaf)
        return constants.get(value.node.op.key)

    def region(value: Value) -> Graph:
        return cut(Graph((value,)), Constants(lookup))[0].graph

    two = region(call("Mul", x, tensor("two", 3, constant=True)))
    assert two == region(call("Mul", tensor("y", 2, 3), tensor("two", 3, constant=True)))
    assert two != region(call("Mul", x, tensor("three", 3, constant=True)))
    y = tensor("y", 100)
    assert region(call("Mul", y, tensor("large", 100, constant=True))) == region(
        call("Mul", y, tensor("another", 100, constant=True))
    )


def test_rule_that_looks_at_a_value_applies_only_where_the_value_is() -> None:
    constants = {"two": np.full((3,), 2.0, np.float32), "three": np.full((3,), 3.0, np.float32)}

    def lookup(value: Value) -> Array | None:
        assert isinstance(value.node.op, Leaf)
        return constants.get(value.node.op.key)

    rules = parse_rules("rule halve\n  in x[...]\n  from Relu(Mul(x, 2))\n  to Relu(x)\n")
    first = call("Relu", call("Mul", tensor("x", 2, 3), tensor("two", 3, constant=True)))
    second = call("Relu", call("Mul", tensor("y", 2, 3), tensor("three", 3, constant=True)))
    graph = Graph((first, second))  # the rule is false, which is not what is tested
    result = search(graph, rules, EstimatedCost(), deadline=Deadline.after(10), constants=lookup)
    assert result.graph.outputs == (call("Relu", tensor("x", 2, 3)), second)


@pytest.mark.parametrize("batch", [1, symbol("batch")])
def test_several_processes_find_what_one_does(batch: Size) -> None:
    x = tensor("x", batch, 8, 6, 6)
    small, large = block(x, "a"), call("Relu", call("Relu", tensor("y", 3, 5)))
    graph = Graph((small, large, call("Add", *[tensor("z", 7)] * 2)))
    alone = found(graph)
    together = found(graph, processes=2)
    assert alone.replacements
    assert together.graph == alone.graph
    assert [r.rules for r in together.replacements] == [r.rules for r in alone.replacements]


def test_a_way_through_one_slow_kernel_is_found_for_what_can_be_put_in_its_place() -> None:
    rules = parse_rules("""
rule where-greater-mul-to-prelu
  in       x[N, C, *S] a[C, *1]
  rank     2
  from     Where(Greater(x, 0), x, Mul(x, a))
  to       PRelu(x, a)

rule prelu-to-add-relu-mul-min
  in       x[...] a[...]
  from     PRelu(x, a)
  to       Add(Relu(x), Mul(a, Min(x, 0)))
""")
    x, slope = tensor("x", 1, 64, 56, 56), tensor("a", 64, 1, 1, constant=True)
    (zero,) = apply("Scalar", (), {"value": Fraction(0)}, dtype="FLOAT")
    graph = Graph((call("Where", call("Greater", x, zero), x, call("Mul", x, slope)),))
    cost = EstimatedCost()
    assert cost.estimate(Graph((call("PRelu", x, slope),))) > 4 * cost.estimate(graph)
    result = search(graph, rules, cost, deadline=Deadline.after(60), constants=weights)
    assert count(result.graph, "Min") == 1
    assert not search(
        graph, rules[:1], cost, deadline=Deadline.after(60), constants=weights
    ).replacements


def test_no_tensor_without_elements_is_made() -> None:
    rules = parse_rules("""
rule add-nothing
  in       x[N, M]
  from     Relu(x)
  to       Concat(Relu(x), Zeros(shape=[N, 0]), axis=1)
rule slice-of-nothing
  in       x[N, M]
  from     Relu(x)
  to       Concat(Slice(Relu(x), starts=[0], ends=[0], axes=[0], steps=[1]), Relu(x), axis=0)
""")
    graph = Graph((call("Relu", tensor("x", 2, 3)),))
    steps = list(Steps(RuleIndex(rules), no_constants).of(graph))
    assert "slice-of-nothing" not in {step.rule for step in steps}


def test_every_region_gets_its_share_of_the_time() -> None:
    regions = cut(network(12), Constants(no_constants))
    assert len(regions) > 4
    asked: list[float] = []

    class Recording(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
            if args:  # the setting and a region
                asked.append(args[1].share.seconds)
            future: Future[Any] = Future()
            future.set_result(([], Exploration([], exhausted=True)))
            return future

    explorers = Explorers(
        SearchProcesses(RULES, 2, pool=lambda *_, **__: nullcontext(Recording())),
        *(Constants(no_constants), EstimatedCost()),
        replace(DEFAULTS, policy=replace(POLICY, worthwhile_s=0.0)),
    )
    list(explorers.explore(regions, [1.0] * len(regions), Deadline.after(100.0)))
    # Nothing takes any time here, so each has its part of all of it, and two go on at a time.
    left = range(len(regions), 0, -1)
    assert asked == pytest.approx([100.0 * min(1.0, 2 / count) for count in left], rel=0.05)


class Slow(EstimatedCost):
    """The estimate of a machine that takes so many seconds for each."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def estimate(self, graph: Graph) -> float:
        time.sleep(self.seconds)
        return super().estimate(graph)


@pytest.mark.parametrize("work", [50, 2_000, pytest.param(150_000, marks=pytest.mark.many)])
def test_a_search_by_estimates_is_cut_short_at_the_same_place_on_any_machine(
    work: int,
) -> None:
    """However fast it is, and however many processes it has."""
    policy = replace(POLICY, worthwhile_s=0.0, work_per_s=work / 60)
    x = tensor("x", 1, 8, 6, 6)
    layers = 5 if work < 150_000 else 3  # what is not cut short takes long
    graph = Graph((*network(layers).outputs, block(x, "a"), block(call("Relu", x), "b")))
    results = [
        found(graph, cost, processes=processes, policy=policy)
        for cost, processes in ((EstimatedCost(), 1), (Slow(1e-4), 1), (EstimatedCost(), 2))
    ]
    for result in results[1:]:
        assert result.graph == results[0].graph
        assert result.notes == results[0].notes
    assert bool(results[0].notes) == (work < 150_000)


def test_where_a_machine_is_too_slow_for_that_it_is_said() -> None:
    x = tensor("x", 1, 8, 6, 6)
    graph = Graph((*network(5).outputs, block(x, "a")))
    result = found(graph, Slow(0.01), seconds=0.2)
    assert result.notes == (SLOW,)


def test_where_work_is_the_most_a_pass_ends_with_its_share_of_the_time_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The regions of the next pass, cut at other places, have their turn on a slow machine, too."""
    until: list[float] = []
    real = Explorers.explore

    def explore(
        self: Explorers, *arguments: Any, **options: Any
    ) -> Iterator[tuple[int, Exploration]]:
        until.append(arguments[2].left)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Explorers, "explore", explore)
    graph = network(2)
    for work in (None, 1e6):
        deadline = Deadline.after(60.0)
        search(graph, RULES, EstimatedCost(), deadline=deadline, work=work, constants=weights)
        assert (until[0] > 55.0) is (work is None)
        assert work is None or until[0] == pytest.approx(POLICY.pass_share * 60.0, rel=0.1)
        until.clear()


def test_work_that_time_may_cut_short_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """At first all regions are searched a little, and then those that went short, kept or not."""
    shares: list[tuple[int, float]] = []

    def explore(
        self: Explorers, regions: Sequence[Region], *_: object, work: float, **__: object
    ) -> Iterator[tuple[int, Exploration]]:
        if regions:
            shares.append((len(regions), work))
        for number, region in enumerate(regions):
            short = number == 0 and len(shares) == 1
            states = [State(region.graph, 1.0)]
            yield number, Exploration(states, not short, 1000, starved=short)

    monkeypatch.setattr(Explorers, "explore", explore)
    search(network(4), RULES, Noting(), deadline=Deadline.after(60.0), work=1e6)
    first, rest = POLICY.deepening
    once = shares[0][1] + shares[1][1]  # of regions that are alike, the others come behind one
    assert once == pytest.approx(POLICY.pass_share * first * 1e6)
    ((_, again),) = [share for share in shares if share[0] == 1 and share[1] > first * 1e6]
    assert again > POLICY.pass_share * rest * 1e6


def test_what_time_cut_short_is_searched_again_and_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def explore(
        self: Explorers, regions: Sequence[Region], *_: object, **__: object
    ) -> Iterator[tuple[int, Exploration]]:
        for number, region in enumerate(regions):
            asked.append(region.key)
            states = [State(region.graph, 1.0)]
            yield number, Exploration(states, exhausted=False, work=1000, late=True)

    monkeypatch.setattr(Explorers, "explore", explore)
    cost = Noting()
    graph = network(2, channels=16)  # blocks of channels are filled: there are no waves
    search(graph, RULES, cost, deadline=Deadline.after(60.0), work=1e6)
    assert min(Counter(asked).values()) > 1
    assert cost.notes == {}


def test_of_regions_that_are_left_when_the_time_is_over_there_are_no_results() -> None:
    """So that a later pass, which has its own time, may search them."""
    graph = network(4)
    regions = cut(graph, Constants(weights))
    here = Explorers(SearchProcesses(RULES, 1), Constants(weights), EstimatedCost(), DEFAULTS)
    for work, count in ((1e6, 0), (None, len(regions))):
        found = here.explore(regions, [1.0] * len(regions), Deadline.after(-1.0), work=work)
        assert len(list(found)) == count


def test_a_region_that_went_short_is_searched_again_with_the_work_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[object, float]] = []

    def explore(
        self: Explorers, regions: Sequence[Region], *_: object, work: float, **__: object
    ) -> Iterator[tuple[int, Exploration]]:
        """The first of all goes short twice; the others need hardly anything."""
        for number, region in enumerate(regions):
            asked.append((region.key, work))
            times = sum(key == region.key for key, _ in asked)
            starved = region.key == asked[0][0] and times < 3
            yield number, Exploration([State(region.graph, 1.0)], not starved, 10, starved)

    monkeypatch.setattr(Explorers, "explore", explore)
    found(network(12))
    first = [work for key, work in asked if key == asked[0][0]]
    assert len(first) == 3
    assert len({key for key, _ in asked}) == len(asked) - 2


def test_only_what_was_cut_short_is_searched_again_with_more_effort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[int, list[object]] = {}
    ended: dict[object, bool] = {}

    def explore(
        self: Explorers, regions: Sequence[Region], *_: object, effort: int, **__: object
    ) -> Iterator[tuple[int, Exploration]]:
        """Every other region is exhausted."""
        for number, region in enumerate(regions):
            asked.setdefault(effort, []).append(region.key)
            exhausted = ended.setdefault(region.key, len(ended) % 2 == 0)
            yield number, Exploration([State(region.graph, 1.0)], exhausted)

    monkeypatch.setattr(Explorers, "explore", explore)
    found(network(12), Stopwatch([1.0]))
    low, high = asked
    assert low < high
    assert set(asked[low]) == set(ended)
    assert sorted(map(hash, asked[high])) == sorted(hash(key) for key in ended if not ended[key])
    asked.clear()
    found(network(12))
    assert list(asked) == [low]  # where nothing is measured there is one effort


@pytest.mark.parametrize(
    ("ratio", "operator", "measured"),
    [(1.03, "Relu", True), (1.2, "Relu", False), (1.2, "Gemm", True), (1.3, "Gemm", False)],
)
def test_other_kernels_are_measured_though_the_estimate_calls_them_slower(
    ratio: float, operator: str, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = leaf("x", TensorType("FLOAT", (64, 64))), leaf("w", TensorType("FLOAT", (64, 64)))
    cost = Stopwatch([1.0])

    def explore(
        self: Explorers, regions: Sequence[Region], *_: object, **__: object
    ) -> Iterator[tuple[int, Exploration]]:
        for number, region in enumerate(regions):
            own = cost.estimate(region.graph)
            (root,) = region.graph.outputs
            inputs = root.node.inputs if operator == "Gemm" else (root,)
            other = Graph((call(operator, *inputs),))
            states = [State(region.graph, own), State(other, own * ratio, ("rule",))]
            yield number, Exploration(states, exhausted=True)

    monkeypatch.setattr(Explorers, "explore", explore)
    found(Graph((call("MatMul", x, w),)), cost)
    assert bool(cost.graphs) == measured


def test_regions_of_the_second_cut_have_no_less_time_than_those_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    def explore(
        self: Explorers,
        regions: Sequence[Region],
        weights: Sequence[float],
        deadline: Deadline,
        **_: object,
    ) -> Iterator[tuple[int, Exploration]]:
        """All are exhausted at once."""
        given.append(deadline.left)
        for number, region in enumerate(regions):
            yield number, Exploration([State(region.graph, 1.0)], exhausted=True)

    monkeypatch.setattr(Explorers, "explore", explore)
    found(network(12), Stopwatch([1.0]))
    first, second, *_ = given
    assert first <= (1 - first / 60) * second, "also if the first pass uses up what it is given"


@pytest.mark.parametrize(("gain", "measured"), [(1e-4, False), (0.9, True)])
def test_behind_the_time_of_a_pass_only_what_promises_much_is_measured(
    gain: float, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = Stopwatch([1.0])
    seen: list[int] = []

    def explore(
        self: Explorers, regions: Sequence[Region], *_: object, **__: object
    ) -> Iterator[tuple[int, Exploration]]:
        """Another form of each region, in more time than the first pass has."""
        seen.append(len(cost.graphs))
        time.sleep(1.3 if len(seen) == 1 else 0.0)
        for number, region in enumerate(regions):
            own = cost.estimate(region.graph)
            other = Graph(tuple(call("Relu", value) for value in region.graph.outputs))
            states = [State(region.graph, own), State(other, own * (1 - gain), ("rule",))]
            yield number, Exploration(states, exhausted=False)

    monkeypatch.setattr(Explorers, "explore", explore)
    found(network(2), cost, seconds=3.0)
    assert (seen[1] > 0) == measured


def test_lost_processes_cost_nothing_but_time() -> None:
    class Broken(Executor):
        def submit(self, fn: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(BrokenProcessPool("killed"))
            return future

    graph = network(2)
    with SearchProcesses(RULES, 2, pool=lambda *_, **__: nullcontext(Broken())) as processes:
        result = found(graph, processes=processes, policy=replace(POLICY, worthwhile_s=0.0))
        assert processes.executor is None, "they are not asked again"
    assert result.graph == found(graph).graph
