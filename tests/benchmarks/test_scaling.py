"""The growing networks, and what a run of the search on one of them tells."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from places import MODELS

from growing import chain, distinct_layers, equal_layers, nasnet
from hydrate import hydrate
from scaling import SERIES, Point, measure, save, select
from xflow.cost.estimate import EstimatedCost
from xflow.feeds.inputs import random_inputs
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.constants import Constants
from xflow.search.cutting import cut

BUILDERS = {equal_layers: 2, distinct_layers: 2, nasnet: 3, chain: 10}
"""Each with a small size."""


def operators(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in proto.graph.node)


def imported(proto: onnx.ModelProto) -> Imported:
    return import_model(ir.from_proto(hydrate(proto)))


def regions(proto: onnx.ModelProto) -> tuple[int, int]:
    """How many regions there are, and how many distinct ones."""
    model = imported(proto)
    found = cut(model.graph, Constants(model.constants), layouts=EstimatedCost().layouts)
    return len(found), len({region.key for region in found})


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return load_rules(default_directory())


@pytest.mark.parametrize("build", BUILDERS)
def test_a_network_is_valid_and_runs(build: Callable[[int], onnx.ModelProto]) -> None:
    proto = hydrate(build(BUILDERS[build]))
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    assert all(np.isfinite(found).all() for found in session.run(None, random_inputs(proto, 1)))


def test_a_layer_has_the_operators_of_the_exported_bert() -> None:
    exported = onnx.load(MODELS / "bert_base.onnx")
    layer = operators(equal_layers(3)) - operators(equal_layers(2))
    of_all = operators(exported)
    layers = of_all["Softmax"]
    assert layer["MatMul"] * layers == of_all["MatMul"]
    for name in ("Softmax", "Gelu", "Reshape", "IsNaN", "Transpose", "Mul"):
        assert layer[name] * layers == of_all[name]


def test_a_cell_has_the_operators_of_the_exported_nasnet() -> None:
    exported = onnx.load(MODELS / "nasnetalarge.onnx")
    cells = operators(nasnet(9)) - operators(nasnet(3))
    # From the end of one cell to the end of the next; neither follows on a reduction cell.
    ends = [n for n, node in enumerate(exported.graph.node) if node.op_type == "Concat"]
    one = Counter(node.op_type for node in exported.graph.node[ends[5] + 1 : ends[6] + 1])
    assert cells == Counter({name: 6 * count for name, count in one.items()})


def test_equal_layers_are_one_region_and_distinct_ones_are_not() -> None:
    (few, distinct), (more, same), (most, again) = (regions(equal_layers(n)) for n in (3, 6, 9))
    assert most - more == more - few >= 3
    assert again == same == distinct
    assert regions(distinct_layers(6))[1] > distinct


def test_a_part_of_the_rules_is_drawn_without_repetition(rules: list[Rule]) -> None:
    half = select(rules, 0.5)
    assert len(half) == round(len(rules) / 2)
    assert half == select(rules, 0.5)
    assert {rule.name for rule in half} < {rule.name for rule in rules}


def test_doubled_rules_have_names_of_their_own(rules: list[Rule]) -> None:
    assert select(rules, 1.0) == rules
    doubled = select(rules, 2.0)
    assert doubled[: len(rules)] == rules
    assert len({rule.name for rule in doubled}) == 2 * len(rules)
    assert {rule.lhs for rule in doubled} == {rule.lhs for rule in rules}


def test_a_point_is_measured_in_a_process_of_its_own() -> None:
    point = measure("chain", 4, 0.02, limit=120)
    assert not point.fault
    assert (point.nodes, point.regions, point.distinct) == (4, 1, 1)
    assert point.searched >= 1
    assert point.memory > 0


def test_a_point_that_takes_too_long_is_told() -> None:
    assert measure("chain", 4, 1.0, limit=0.1).fault == "more than 0.1 s"


def test_the_same_figures_make_the_same_page_and_chart(tmp_path: Path) -> None:
    points = [
        Point(name, size, nodes=size, search_s=1.0)
        for name, series in SERIES.items()
        for size in series.sizes
    ]
    points.append(Point("chain", 7, fault="more than 1 s"))
    written = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        options = argparse.Namespace(provider="cpu", threads=2, budget=1.0, out=folder)
        save(points, options)
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1]
    assert "| 7 | more than 1 s |" in written[0]["scaling.md"].decode()
    assert len(json.loads(written[0]["scaling.json"])["rows"]) == len(points)
