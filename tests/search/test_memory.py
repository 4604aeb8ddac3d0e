"""What a search leaves behind for later ones: the same result, without searching again."""

import contextlib
import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import call, tensor
from noting import Noting

import xflow.ops  # noqa: F401 - fills the registry
from xflow.analysis.ranges import Ranges
from xflow.core.deadline import Deadline
from xflow.core.fold import no_constants
from xflow.core.graph import Graph
from xflow.core.node import Value, apply
from xflow.core.registry import Array
from xflow.cost.estimate import Estimator
from xflow.cost.learned.correction import Correction
from xflow.cost.learned.trees import Trees
from xflow.cost.model import StoredNotes
from xflow.cost.store import SOLUTIONS, Platform, Store
from xflow.cost.target import TargetModel
from xflow.rewriting.admission import Places
from xflow.rewriting.replacement import Replacement
from xflow.rewriting.replay import apply_step
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules
from xflow.search.constants import Constants
from xflow.search.context import Context
from xflow.search.cutting import cut
from xflow.search.driver import SearchResult, search
from xflow.search.region import Region
from xflow.search.solution_cache import Memory, Remembered, Solution

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


def network(name: str = "x") -> Graph:
    x = call("Add", *[call("Relu", call("Relu", tensor(name, 4, 64)))] * 2)
    return Graph((call("MatMul", x, tensor(f"{name}.w", 64, 8, constant=True)),))


class Timing(Noting):
    """The same where forms are measured, and every other one takes half of the time."""

    measures = True

    def measure(
        self, graphs: Sequence[Graph], seconds: float, *, again: int = 0
    ) -> list[float | None]:
        return [1.0, *[0.5] * (len(graphs) - 1)]


def found(
    cost: Noting, graph: Graph, rules: Sequence[Rule] = RULES, seconds: float = 30.0
) -> SearchResult:
    return search(graph, rules, cost, deadline=Deadline.after(seconds))


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


def test_what_the_estimate_decided_is_kept_apart_from_what_was_measured() -> None:
    cost = Noting()
    first, second = (found(cost, network()) for _ in range(2))
    for result in (first, second):
        assert {item.estimated for item in result.replacements} == {True}
    assert second.graph == first.graph
    kept = len(cost.notes)
    timed = Timing()
    timed.notes = cost.notes
    for _ in range(2):
        measured = found(timed, network())
        assert {item.estimated for item in measured.replacements} == {False}
    assert len(cost.notes) == 2 * kept


def test_forms_by_the_estimate_and_by_what_was_learned_are_kept_apart() -> None:
    notes: dict[str, str] = {}
    for number in (None, 0.0, 0.5):  # of so many trees, texts of arrays show the ends alone
        each = [[0.0] * 2000 + [number or 0.0] + [0.0] * 2000]
        learned = None if number is None else Correction(Trees.of(("a",), each), {})
        cost = Noting()
        cost.layouts = Estimator(TargetModel(learned=learned))
        cost.settings, cost.notes = (cost.layouts.target, {}), notes
        before = len(notes)
        found(cost, network())
        assert len(notes) > before
        assert asked_again(cost) == 0


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
    search(network(), RULES, cost, deadline=Deadline.after(10.0), context=Context(seed=1))
    assert cost.asked > asked


FLOATS_FROM_CODES = [
    rule for rule in load_rules(default_directory()) if rule.lhs.startswith("Conv(Sub(Cast(")
]


def test_a_solution_that_rests_on_exact_sums_of_weights_is_used_again() -> None:
    """Regions do not show the data of weights, only whether their sums are exact."""
    x, z = tensor("x", 1, 64, 32, 32, dtype="UINT8"), tensor("z", dtype="UINT8")
    weights = tensor("w", 64, 64, 3, 3, dtype="INT8", constant=True)
    zero = tensor("v", dtype="INT8", constant=True)
    sums = call("ConvInteger", x, weights, z, zero, pads=(1, 1, 1, 1))
    graph = Graph((call("Relu", call("NearestFloat", sums)),))
    codes = np.random.default_rng(0).integers(-9, 9, (64, 64, 3, 3)).astype(np.int8)
    data: dict[Value, Array] = {weights: codes, zero: np.array(1, np.int8)}
    cost = Noting()
    first, second = (
        search(graph, FLOATS_FROM_CODES, cost, deadline=Deadline.after(30.0), constants=data.get)
        for _ in range(2)
    )
    assert first.replacements
    assert second.graph == first.graph
    assert second.warnings == ()


def test_what_was_found_with_less_effort_is_not_the_last_word() -> None:
    cost = Noting()
    memory = Memory(cost, RULES, 10.0)
    region, *_ = cut(network(), Constants(no_constants))
    memory.put(region, Remembered(None, final=False, effort=1))
    assert memory.get(region, 1) == Remembered(None, effort=1)
    assert memory.get(region, 10) is None
    memory.put(region, Remembered(None, effort=10))
    assert memory.get(region, 1) == memory.get(region, 10) == Remembered(None, effort=10)


def solved_note(cost: Noting) -> tuple[str, dict[str, Any]]:
    """The note that holds a solution, and its key."""
    notes = {key: json.loads(text) for key, text in cost.notes.items()}
    ((key, note),) = ((key, note) for key, note in notes.items() if note["form"] is not None)
    return key, note


def _a_form_without_the_relu(note: dict[str, Any]) -> None:
    """What a row of the cache looks like from which somebody has taken an operator."""
    sums = note["form"]["nodes"]
    (number,) = (k for k, node in enumerate(sums) if node[0] == "Relu")
    for node in sums[number + 1 :]:
        if len(node) > 1:
            node[1] = [[0, 0] if place == [number, 0] else place for place in node[1]]


def _an_operator_that_is_not_there(note: dict[str, Any]) -> None:
    note["form"]["nodes"][-1][0] = "NoSuchOperator"


def _no_trail(note: dict[str, Any]) -> None:
    note["trail"], note["rules"] = [], []


def _another_place(note: dict[str, Any]) -> None:
    note["trail"][0]["at"] = [[0, 0]]


def _a_place_that_is_not_there(note: dict[str, Any]) -> None:
    note["trail"][0]["at"] = [[10**30, 0]]


def _a_rule_that_is_not_there(note: dict[str, Any]) -> None:
    note["trail"][0]["rule"] = note["rules"][0] = "no-such-rule"


def _the_wrong_direction(note: dict[str, Any]) -> None:
    note["trail"][0]["rule"] = note["rules"][0] = "relu-of-relu.reverse"


def _another_step(note: dict[str, Any]) -> None:
    note["trail"] = note["trail"][:1] * len(note["trail"])


def _too_many_steps(note: dict[str, Any]) -> None:
    note["trail"] *= 1000
    note["rules"] *= 1000


def _other_rules_than_in_the_trail(note: dict[str, Any]) -> None:
    note["rules"] = note["rules"][::-1] * 2


def _a_gain_that_is_no_number(note: dict[str, Any]) -> None:
    note["gain"] = math.nan


def _a_gain_of_text(note: dict[str, Any]) -> None:
    note["gain"] = "1"


def _a_number_that_never_ends(note: dict[str, Any]) -> None:
    note["trail"][0]["reals"] = {"a": "1e999999999"}


def _a_list_for_a_rule(note: dict[str, Any]) -> None:
    note["trail"][0]["rule"] = ["relu-of-relu"]


FORGERIES = (
    _a_form_without_the_relu,
    _an_operator_that_is_not_there,
    _no_trail,
    _another_place,
    _a_place_that_is_not_there,
    _a_rule_that_is_not_there,
    _the_wrong_direction,
    _another_step,
    _too_many_steps,
    _other_rules_than_in_the_trail,
    _a_gain_that_is_no_number,
    _a_gain_of_text,
    _a_number_that_never_ends,
    _a_list_for_a_rule,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda each: each.__name__.strip("_"))
def test_a_note_that_does_not_follow_from_the_rules_is_forgotten_and_said(
    forge: Callable[[dict[str, Any]], None],
) -> None:
    cost = Noting()
    first = found(cost, network())
    key, note = solved_note(cost)
    told = json.dumps([note["form"], note["trail"]])
    forge(note)
    cost.notes[key] = json.dumps(note)
    second = found(cost, network())
    assert second.graph == first.graph
    (warning,) = second.warnings
    assert "1 stored solution" in warning
    _, note = solved_note(cost)
    assert json.dumps([note["form"], note["trail"]]) == told, (
        "what is searched anew takes its place"
    )
    assert found(cost, network()).warnings == ()


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "null", "7", '"form"', "{}", "[" * 10**5, '{"form": null}', "\x00"]
)
def test_a_note_that_is_none_is_forgotten(text: str) -> None:
    cost = Noting()
    first = found(cost, network())
    cost.notes = dict.fromkeys(cost.notes, text)
    second = found(cost, network())
    assert second.graph == first.graph
    assert len(second.warnings) == 1


def test_a_note_by_a_direction_that_rounding_forbids_is_not_used() -> None:
    cost = Noting()
    memory = Memory(cost, RULES, 10.0)
    first, *_ = cut(network(), Constants(no_constants))
    solution = next(item for item in found(cost, network()).replacements)
    memory.put(first, Remembered(Solution(*_as_in(first, solution, RULES))))
    assert memory.get(first, 1) is not None
    refused = [
        replace(rule, notes={"numerics": "exact; refused: forward (error)"}) for rule in RULES
    ]
    strict = Memory(cost, refused, 10.0)
    strict.put(first, Remembered(Solution(*_as_in(first, solution, RULES))))
    assert strict.get(first, 1) is None
    assert strict.refused == 1


def _as_in(region: Region, item: Replacement, rules: Sequence[Rule]) -> tuple[Any, ...]:
    """The outputs, rules, gain and trail of a replacement over the leaves of its region."""
    assert item.trail is not None
    graph = region.graph
    for step in item.trail:
        (rule,) = (rule for rule in rules if rule.name == step.rule)
        places = Places(Ranges(no_constants), region.outside)
        graph = apply_step(graph, step, rule, no_constants, "here", places=places)
    return graph.outputs, item.rules, item.gain, item.trail


def test_a_solution_with_operators_of_a_newer_opset_is_not_used() -> None:
    rules = parse_rules("""
rule gelu
  in       x[...]
  from     Mul(x, Mul(1/2, Add(1, Erf(Div(x, Sqrt(2))))))
  to       Gelu(x)
""")
    x = tensor("x", 4, 64)
    inner = call("Erf", call("Div", x, call("Sqrt", _number(2))))
    y = call("Mul", x, call("Mul", _number(Fraction(1, 2)), call("Add", _number(1), inner)))
    cost = Noting()
    assert found(cost, Graph((y,)), rules).replacements
    region, *_ = cut(Graph((y,)), Constants(no_constants))
    (text,) = cost.notes.values()
    for opset, known in ((20, True), (19, False)):
        memory = Memory(cost, rules, 10.0, opset=opset)
        cost.notes = {memory._key(region): text}  # type: ignore[dict-item]
        assert (memory.get(region, 1) is not None) is known


def _number(value: int | Fraction) -> Value:
    return apply("Scalar", (), {"value": Fraction(value)}, dtype="FLOAT")[0]


def test_a_row_that_is_edited_in_the_database_changes_no_model(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    place = Platform("a processor", "cpu", 1, "1.0")
    graphs = []
    for turn in range(3):
        if turn == 1:
            with contextlib.closing(sqlite3.connect(path)) as connection, connection:
                rows = connection.execute(f"SELECT region, solution FROM {SOLUTIONS}").fetchall()
                for region, text in rows:
                    note = json.loads(text)
                    if note["form"] is not None:
                        _a_form_without_the_relu(note)
                        change = f"UPDATE {SOLUTIONS} SET solution = ? WHERE region = ?"
                        connection.execute(change, (json.dumps(note), region))
        with Store(path) as store:
            cost = Noting()
            cost.notebook = StoredNotes(store, place)
            result = found(cost, network())
        assert len(result.warnings) == (turn == 1)
        graphs.append(result.graph)
    assert graphs[0] != network()
    assert graphs[0] == graphs[1] == graphs[2]
