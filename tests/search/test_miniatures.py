"""Miniatures of well-known architectures: each stays right, keeps its interface, and ends in time.

All of them take some 40 minutes: `make miniatures`.
"""

import time
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from miniatures import BUILT

import xflow
from xflow.feeds.dimension_equalities import with_ties
from xflow.onnx import files
from xflow.onnx.exporter import export_model
from xflow.onnx.importer import import_model
from xflow.validation.equivalence import check_equivalent

SAMPLE = ("odd_names", "mistral", "shufflenet_v2", "tf2onnx_resnet", "greedy_decoder", "trees")
BUDGET_S = 20
AFTERWARDS_S = 60
"""What a run may take besides its budget, on a machine that does other work."""


@pytest.mark.parametrize("name", SAMPLE)
def test_a_miniature_is_read_and_written_unchanged(name: str) -> None:
    model = BUILT[name]()
    imported = import_model(ir.from_proto(model))
    written = ir.to_proto(export_model(imported, imported.graph))
    assert [node.op_type for node in written.graph.node] == [n.op_type for n in model.graph.node]
    assert [*written.graph.input, *written.graph.output] == [
        *model.graph.input,
        *model.graph.output,
    ]


@pytest.mark.miniatures
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUILT)
def test_a_miniature_stays_right(name: str, tmp_path: Path) -> None:
    model = BUILT[name]()
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    onnx.save(model, before)
    start = time.monotonic()
    result = xflow.optimize(before, cost="estimated", budget=BUDGET_S)
    assert time.monotonic() - start < BUDGET_S + AFTERWARDS_S
    files.write_model_atomically(result.model, after, source=before)
    onnx.checker.check_model(str(after), full_check=True)
    written = onnx.load(after)
    assert list(written.graph.input) == list(model.graph.input)
    assert list(written.graph.output) == list(model.graph.output)
    shapes = with_ties(import_model(ir.from_proto(model)), {})
    found = check_equivalent(before, after, shapes=shapes)
    assert found.ok, found.reason
    print(f"\n{name}: {len(model.graph.node)} > {len(written.graph.node)} nodes")
