"""The benchmark's exports with dynamic sizes; `make spellings` optimizes these and static ones."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import xflow
from export_dynamic import empty
from hydrate import hydrate
from run import DYNAMIC, STATIC, shapes_of, stored
from xflow.feeds.inputs import default_shapes, load_proto

NAMES = stored(DYNAMIC)


@pytest.mark.parametrize("name", NAMES)
def test_an_export_takes_the_sizes_of_the_static_one_and_others(name: str) -> None:
    given = shapes_of(name)
    dynamic, static = load_proto(DYNAMIC / f"{name}.onnx"), load_proto(STATIC / f"{name}.onnx")
    assert default_shapes(dynamic, given) == default_shapes(static) == given
    others = default_shapes(dynamic, variant=1)
    assert all(others[value] != shape for value, shape in given.items())


def test_weights_are_emptied_and_masks_and_small_constants_are_kept() -> None:
    arrays: dict[str, np.ndarray] = {
        "weight": np.linspace(-1, 1, 800, dtype=np.float32).reshape(20, 40),
        "ones": np.ones(100, np.float32),
        "mask": np.triu(np.full((20, 20), -100, np.float32)),
        "scale": np.asarray(0.125, np.float32),
        "table": np.arange(1000),
    }
    model = onnx.ModelProto()
    for name, values in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    for tensor in model.graph.initializer:
        empty(tensor)
    assert [t.name for t in model.graph.initializer if t.doc_string] == ["weight", "ones"]
    found = {t.name: numpy_helper.to_array(t) for t in hydrate(model).graph.initializer}
    for name, values in arrays.items():
        assert found[name].shape == values.shape
    for name in ("mask", "scale", "table"):
        assert np.array_equal(found[name], arrays[name])
    assert found["weight"].std() == pytest.approx(arrays["weight"].std(), rel=0.2)
    assert 0 < found["ones"].std() < 0.05


@pytest.mark.spellings
@pytest.mark.timeout(300)
@pytest.mark.parametrize("folder", [DYNAMIC, STATIC], ids=["dynamic", "static"])
@pytest.mark.parametrize("name", NAMES)
def test_all_blocks_of_an_export_are_recognised(name: str, folder: Path, tmp_path: Path) -> None:
    onnx.save(hydrate(onnx.load(folder / f"{name}.onnx")), tmp_path / "model.onnx")
    model, shapes = tmp_path / "model.onnx", shapes_of(name)
    result = xflow.optimize(model, input_shapes=shapes, cost="estimated")
    blocks = result.report.blocks
    assert blocks
    assert not [str(block) for block in blocks if not block.recognised]
