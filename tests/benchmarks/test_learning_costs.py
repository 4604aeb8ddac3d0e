"""The data of the learned cost, and its training: `benchmarks/forms.py` and `learn_cost.py`."""

import argparse
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from graphs import call, tensor, weights

import learn_cost
from forms import BEST, FORMS, Sample, digest, drawn, lines_of, pack, place, read, timed, written
from learn_cost import Data, Form, Group, Learner, choice, folds_of, kinds_of, tau
from xflow.core.graph import Graph
from xflow.cost.learned.correction import kind_of
from xflow.cost.measure import Measurer, Target
from xflow.search.states import State
from zoo import ZOO

X = tensor("x", 4, 128, 64)
W = tensor("w", 64, 32, constant=True)
GRAPH = Graph((call("Relu", call("MatMul", call("Transpose", X, perm=(0, 1, 2)), W)),))


def test_forms_are_written_with_their_leaves_and_read_again() -> None:
    plain = written(GRAPH)
    assert plain is not None
    again = read(json.loads(json.dumps(plain)))
    assert again is not None
    assert written(again) == plain
    assert [value.is_constant for value in again.leaves] == [v.is_constant for v in GRAPH.leaves]


def test_a_digest_does_not_depend_on_names() -> None:
    other = tensor("another", 4, 128, 64)
    assert digest(Graph((call("Relu", X),))) == digest(Graph((call("Relu", other),)))
    assert digest(Graph((call("Relu", X),))) != digest(Graph((call("Abs", X),)))


def test_the_cheapest_forms_and_some_of_the_others_are_drawn() -> None:
    states = [State(GRAPH, float(number)) for number in range(50)]
    chosen = drawn(states, random.Random(0))
    assert len(chosen) == FORMS
    assert [state.cost for state in chosen[:BEST]] == [0, 1, 2]
    assert sorted({state.cost for state in chosen}) == [state.cost for state in chosen]
    assert len(drawn(states[:2], random.Random(0))) == 2


def test_forms_are_timed_beside_the_original() -> None:
    slower = Graph((call("Abs", call("Softplus", call("Softplus", GRAPH.outputs[0]))),))
    sample = Sample(20, [GRAPH, slower], [(), ("rule",)])
    with Measurer(Target("cpu", 1)) as measurer:
        times = timed(sample, weights, [measurer])
    assert times is not None
    assert times["1"]["seconds"] > 0
    assert all(row[1] > 1 for row in times["1"]["passes"])


def test_files_are_packed_into_one(tmp_path: Path) -> None:
    options = argparse.Namespace(folder=tmp_path, threads=[1, 2], regions=3)
    target = place("mine", options)
    assert target.name == "mine.1-2-threads.3-regions.jsonl.gz"
    target.parent.mkdir()
    with gzip.open(target, "wt", encoding="utf-8") as file:
        file.write(json.dumps({"network": "mine", "forms": [written(GRAPH)]}) + "\n")
    assert pack(tmp_path, tmp_path / "all.jsonl.xz") == 1
    (line,) = lines_of(tmp_path / "all.jsonl.xz")
    assert line["network"] == "mine"


def test_networks_of_the_zoo_have_families_and_inputs() -> None:
    assert len(ZOO) >= 60
    assert all(network.family and network.examples for network in ZOO.values())


# Training


def invented(count: int = 60) -> Data:
    """Forms of kernels that the estimate prices alike, of which those of one kind take 4 times."""
    draw = np.random.default_rng(0)
    kinds = [{"is Slow": 1.0}, {"is Fast": 1.0}]
    groups = []
    for number in range(count):
        forms = []
        for position in range(6):
            mine = draw.integers(0, 2, 5)
            took = float((3e-4 + 9e-4 * (mine == 0)).sum()) + learn_cost.CALL_S
            forms.append((mine, took, position))
        first = forms[0][1]
        groups.append(
            Group(
                f"network {number % 6}",
                f"family {number % 6}",
                2,
                first,
                [
                    Form(mine, 0.0, 1.0, float(np.log2(took / first)), 0.0)
                    for mine, took, _ in forms
                ],
            )
        )
    return Data(groups, kinds, np.array([3e-4, 3e-4]))


def test_training_finds_which_kernels_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(learn_cost.PARAMETERS, "min_data_in_leaf", 5)
    monkeypatch.setattr(learn_cost, "RARE", 1)
    data = invented()
    folds = folds_of(data.groups, 3)
    learner = Learner(data, data.groups, folds, 200)
    found = learner.correction()
    slow, fast = (found.trees(found.trees.row(kernel)) for kernel in data.kernels)
    assert [a - b for a, b in zip(slow, fast, strict=True)] == pytest.approx([2.0] * 3, abs=0.2)
    assert found.usual == {
        kind_of(kernel): pytest.approx(told, abs=1e-5)
        for kernel, told in zip(data.kernels, (slow, fast), strict=True)
    }
    assert found == Learner(data, data.groups, folds, 200).correction(), "it is deterministic"
    assert len(learner.correction([0]).trees.parts) == 2


def test_kinds_that_few_families_have_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    data = invented()
    assert len(kinds_of(data, data.groups)) == 2
    monkeypatch.setattr(learn_cost, "FEW", 7)
    assert not kinds_of(data, data.groups)


def test_a_cost_chooses_a_form_that_gains_enough() -> None:
    assert choice([0.0, -0.5, -0.7, 0.2]) == 2
    assert choice([0.0, -0.01]) == 0


def test_families_are_held_out_as_a_whole() -> None:
    data = invented(12)
    folds = folds_of(data.groups, 3)
    assert sorted(family for fold in folds for family in fold) == sorted(
        {group.family for group in data.groups}
    )


def test_tau_says_whether_the_order_is_right() -> None:
    logs, seconds = [0.1, 0.2, -0.3, 0.4, 0.5], [1.0] * 5
    assert tau(logs, logs, seconds, range(5)) == pytest.approx(1)
    assert tau(logs, [-x for x in logs], seconds, range(5)) == pytest.approx(-1)
    assert tau(logs, logs, seconds, range(4)) is None
