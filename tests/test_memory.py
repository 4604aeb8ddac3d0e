"""What a search leaves behind for later ones: the same result, without searching again."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from graphs import call, tensor
from operator_cases import cases

import xflow.ops  # noqa: F401 - fills the registry
from xflow.cost.estimate import EstimatedCost
from xflow.graph import Graph, TensorType, apply, leaf, opaque
from xflow.match import no_constants
from xflow.memory import Memory, Remembered
from xflow.plain import from_plain, to_plain
from xflow.region import Constants, cut
from xflow.rule import Rule, parse_rules
from xflow.search import SearchResult, search
from xflow.size import symbol

RULES = parse_rules("""
rule relu-of-relu
  in       x[...]
  from     Relu(Relu(x))
  to       Relu(x)

rule double
  in       x[...]
  from     Add(x, x)
  to       Mul(x, 2)
  reverse  always
""")


class Noting(EstimatedCost):
    """An estimate that remembers solutions, and counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, str] = {}
        self.asked = 0
        self.notebook = self  # type: ignore[assignment]

    def get(self, key: str) -> str | None:
        return self.notes.get(key)

    def put(self, key: str, text: str) -> None:
        self.notes[key] = text

    def estimate(self, graph: Graph) -> float:
        self.asked += 1
        return super().estimate(graph)


def network(name: str = "x") -> Graph:
    x = call("Add", *[call("Relu", call("Relu", tensor(name, 4, 64)))] * 2)
    return Graph((call("MatMul", x, tensor(f"{name}.w", 64, 8, constant=True)),))


def found(
    cost: Noting, graph: Graph, rules: Sequence[Rule] = RULES, seconds: float = 30.0
) -> SearchResult:
    return search(graph, rules, cost, deadline=time.monotonic() + seconds)


def asked_again(cost: Noting, **settings: object) -> int:
    before = cost.asked
    found(cost, network(), **settings)  # type: ignore[arg-type]
    return cost.asked - before


def test_second_search_finds_the_same_without_searching() -> None:
    cost = Noting()
    first = found(cost, network())
    asked = cost.asked
    assert first.replacements
    second = found(cost, network())
    assert second.graph == first.graph
    assert [r.rules for r in second.replacements] == [r.rules for r in first.replacements]
    assert [r.gain for r in second.replacements] == [r.gain for r in first.replacements]
    assert all(r.trail for r in first.replacements)  # how each rule was applied is remembered, too
    assert [r.trail for r in second.replacements] == [r.trail for r in first.replacements]
    assert cost.asked == asked


def test_equal_parts_of_other_models_are_known() -> None:
    cost = Noting()
    found(cost, network())
    asked = cost.asked
    assert found(cost, network("other")).replacements
    assert cost.asked == asked


def test_other_rules_seeds_and_budgets_are_other_searches() -> None:
    cost = Noting()
    found(cost, network(), seconds=10.0)
    assert asked_again(cost, seconds=5.0) == 0  # less time would not find more
    assert asked_again(cost, seconds=20.0) > 0
    assert asked_again(cost, rules=RULES[:1]) > 0
    changed = [replace(RULES[0], where=("1 >= 0",)), RULES[1]]
    assert asked_again(cost, rules=changed) > 0
    asked = cost.asked
    search(network(), RULES, cost, deadline=time.monotonic() + 10.0, seed=1)
    assert cost.asked > asked


def test_what_was_found_with_less_effort_is_not_the_last_word() -> None:
    cost = Noting()
    memory = Memory(cost, RULES, 10.0)
    region, *_ = cut(network(), Constants(no_constants))
    memory.put(region, Remembered(None, final=False, effort=1))
    assert memory.get(region, 1) == Remembered(None, effort=1)
    assert memory.get(region, 10) is None
    memory.put(region, Remembered(None, effort=10))
    assert memory.get(region, 1) == memory.get(region, 10) == Remembered(None, effort=10)


def test_damaged_notes_are_not_believed() -> None:
    cost = Noting()
    first = found(cost, network())
    for key, text in cost.notes.items():
        form = json.loads(text)
        if form["form"] is not None:
            form["form"]["nodes"][-1][0] = "NoSuchOperator"
        cost.notes[key] = json.dumps(form)
    assert found(cost, network()).graph == first.graph


@pytest.mark.parametrize(
    "case", [c for c in cases() if c[1].shapes][::7], ids=lambda case: case[0].name
)
def test_graphs_survive_being_written_down(case: tuple[object, ...]) -> None:
    op, example = case
    inputs = [
        leaf(f"in{number}", TensorType(sort, shape))
        for number, (sort, shape) in enumerate(zip(example.types, example.shapes, strict=True))  # type: ignore[attr-defined]
    ]
    outputs = apply(op, inputs, example.attributes)  # type: ignore[arg-type, attr-defined]
    plain = json.loads(json.dumps(to_plain(outputs)))
    assert from_plain(plain, {str(value): value for value in inputs}) == outputs


def test_attributes_of_every_kind_survive() -> None:
    x = leaf("x", TensorType("FLOAT", (symbol("batch"), 8)))
    scale, bias = tensor("s", 8, constant=True), tensor("b", 8, constant=True)
    normal = call("LayerNormalization", x, scale, bias, axis=1, epsilon=Fraction(1, 3))
    flat = call("Reshape", normal, shape=(8 * symbol("batch"),))
    gelu = call("Gelu", flat, approximate="tanh")
    plain = json.loads(json.dumps(to_plain([gelu])))
    assert from_plain(plain, {str(v): v for v in (x, scale, bias)}) == (gelu,)


def test_what_has_no_plain_form_is_not_written_down() -> None:
    x = leaf("x", TensorType("FLOAT", (symbol("batch size"), 8)))
    assert to_plain([call("Reshape", x, shape=(8 * symbol("batch size"),))]) is None
    assert to_plain(opaque("Custom", [x], [x.type])) is None
    assert from_plain({"nodes": [["y"]], "outputs": [[0, 0]]}, {"x": x}) is None
