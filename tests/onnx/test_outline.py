"""Outlines of models: all but the elements of large weights, without their bytes being read."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper

from xflow.core.errors import ModelError
from xflow.feeds.inputs import random_inputs
from xflow.onnx.outline import LARGE, outline


def model_with(weights: list[TensorProto]) -> onnx.ModelProto:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 3] x, int64[k] i) => (float[k, 3] y)
        <int64[2] shape = {-1, 3}> { r = Reshape(x, shape) y = Gather(r, i) }""")
    model.metadata_props.add(key="author", value="somebody")
    model.graph.initializer.extend(weights)
    model.graph.value_info.add(name="between")
    return model


@given(
    sizes=st.lists(st.integers(0, LARGE // 2), max_size=4),
    raw=st.booleans(),
    dtype=st.sampled_from([np.float32, np.int64, np.float64, np.int8]),
)
def test_all_but_the_elements_of_large_weights_is_there(
    sizes: list[int], raw: bool, dtype: type
) -> None:
    weights = []
    for number, size in enumerate(sizes):
        array: np.ndarray[Any, Any] = (np.arange(size) % 100).astype(dtype)
        tensor = numpy_helper.from_array(array, f"w{number}")
        if not raw:
            kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            tensor = onnx.helper.make_tensor(f"w{number}", kind, [size], array.tolist())
        weights.append(tensor)
    model = model_with(weights)
    found = outline(model.SerializeToString())
    for before, after in zip(model.graph.initializer, found.graph.initializer, strict=True):
        if not before.raw_data or before.ByteSize() < LARGE:
            assert after == before
            continue
        assert after.data_location == TensorProto.EXTERNAL
        assert not after.raw_data
        assert (after.name, after.dims, after.data_type) == (
            *(before.name, before.dims, before.data_type),
        )
    del model.graph.initializer[:], found.graph.initializer[:]
    assert found == model


def test_the_inputs_of_an_outline_are_those_of_the_model(tmp_path: Path) -> None:
    model = model_with([numpy_helper.from_array(np.ones((300, 100), np.float32), "w")])
    onnx.save(model, tmp_path / "m.onnx")
    mine, its = random_inputs(outline(tmp_path / "m.onnx"), 0), random_inputs(model, 0)
    assert mine.keys() == its.keys() == {"x", "i"}
    for name, value in mine.items():
        np.testing.assert_array_equal(value, its[name])


def test_the_elements_are_found_where_the_outline_says(tmp_path: Path) -> None:
    arrays = [np.arange(n, dtype=np.float32) for n in (3, LARGE, 2 * LARGE)]
    weights = [numpy_helper.from_array(array, f"w{n}") for n, array in enumerate(arrays)]
    onnx.save(model_with(weights), tmp_path / "m.onnx")
    _, *found = outline(tmp_path / "m.onnx").graph.initializer
    for array, tensor in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(tensor, str(tmp_path)), array)


def test_external_data_stays_where_it_is(tmp_path: Path) -> None:
    model = model_with([numpy_helper.from_array(np.ones(LARGE, np.float32), "w")])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    kept = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert outline(tmp_path / "m.onnx") == kept


def test_a_file_that_cannot_be_mapped_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_with([numpy_helper.from_array(np.ones(LARGE, np.float32), "w")])
    onnx.save(model, tmp_path / "m.onnx")

    def refused(*_: object, **__: object) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr(mmap, "mmap", refused)
    assert outline(tmp_path / "m.onnx") == model


@pytest.mark.parametrize(
    "data",
    [
        b"\x3a" + b"\x80" * 2**20,
        b"",
        b"\x00",
        b"\xff" * 40,
        b"\x3a\xff\x01",
        b"hello, I am no model",
        b"\x3b\x3c",
    ],
)
def test_what_is_no_model_is_told_so(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    for source in (data, tmp_path / "m.onnx"):
        with pytest.raises(ModelError, match="not an ONNX model"):
            outline(source)
    with pytest.raises(ModelError, match="cannot be read"):
        outline(tmp_path / "other.onnx")


@given(st.binary(max_size=60), st.integers(0, 400))
def test_broken_bytes_are_as_good_as_protobuf_finds_them(data: bytes, place: int) -> None:
    whole = model_with([]).SerializeToString()
    broken = whole[:place] + data + whole[place:]
    try:
        wanted = onnx.load_from_string(broken)
    except Exception:
        wanted = None
    if wanted is None or not wanted.HasField("graph"):
        with pytest.raises(ModelError):
            outline(broken)
    else:
        assert outline(broken) == wanted
