"""Models of packages are taken out of archives, and fed as the catalogue says."""

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import deployed
from tables import Row
from tools import Attempt

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]>\n'
    "g (float[N, 4] x, int64[2] ids, float rate, uint8[2] image) => (float[N, 4] y) <float[4] b> {"
    " s = Mul(x, rate) y = Add(s, b) }"
)
DATA = MODEL.SerializeToString()
HALF = len(DATA) // 2
SHIPPED = deployed.Shipped(
    "one",
    "family",
    "adds",
    "MIT",
    "fp32",
    "pip",
    ("a==1", "b==2"),
    ("a/part.bin", "b/part.bin"),
    hashlib.sha256(DATA).hexdigest(),
    {
        "x": {"shape": [3, 4], "from": -0.5, "to": 0.5},
        "ids": {"from": 1, "to": 3},
        "rate": {"value": 2},
        "image": {"from": 0, "to": 255},
    },
)


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with the first half of the model, and a package of npm with the other."""
    wheel, package = tmp_path / "a-1.whl", tmp_path / "b-2.tgz"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("a/part.bin", DATA[:HALF])
        made.writestr("a/weights", b"beside")
    with tarfile.open(package, "w:gz") as made:
        info = tarfile.TarInfo("b/part.bin")
        info.size = len(DATA) - HALF
        made.addfile(info, io.BytesIO(DATA[HALF:]))
    known = {"a==1": wheel, "b==2": package}
    monkeypatch.setattr(deployed, "download", lambda client, name, folder: known[name])
    return tmp_path


def test_parts_are_joined_and_what_lies_beside_is_there(archives: Path) -> None:
    path = deployed.take_out(replace(SHIPPED, beside=("a/weights",)), archives)
    assert path.read_bytes() == DATA
    assert (path.parent / "weights").read_bytes() == b"beside"


def test_another_model_is_refused(archives: Path) -> None:
    with pytest.raises(SystemExit, match="one is not the model"):
        deployed.take_out(replace(SHIPPED, sha256="0" * 64), archives)


def test_inputs_have_the_shapes_ranges_and_types(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "model.onnx")
    files = deployed.draw_inputs(SHIPPED, tmp_path / "model.onnx", tmp_path)
    assert len(files) == deployed.DRAWN
    sets = [dict(np.load(file)) for file in files]
    assert not np.array_equal(sets[0]["x"], sets[1]["x"])
    for values in sets:
        kinds = {name: (value.dtype.name, value.shape) for name, value in values.items()}
        assert kinds == {
            "x": ("float32", (3, 4)),
            "ids": ("int64", (2,)),
            "rate": ("float32", ()),
            "image": ("uint8", (2,)),
        }
        assert np.abs(values["x"]).max() <= 0.5
        assert set(values["ids"].tolist()) <= {1, 2, 3}
        assert values["rate"] == 2


def test_the_catalogue_names_models_of_many_families() -> None:
    models = deployed.catalogue()
    assert len(models) >= 40
    assert len({model.family for model in models.values()}) >= 25
    for model in models.values():
        assert all("==" in package for package in model.packages), model.name
        assert len(model.packages) in (1, len(model.parts)), model.name
        assert model.client in deployed.CLIENTS
        assert len(model.sha256) == 64
        assert model.feeds


def test_families_count_alike_whatever_their_number() -> None:
    def row(name: str, ratio: float) -> Row:
        return Row(name, False, [Attempt("xflow", ratio=ratio)])

    models = {
        name: replace(SHIPPED, name=name, family=family)
        for name, family in (("a", "f"), ("b", "f"), ("c", "g"))
    }
    rows = [row("a", 2.0), row("b", 2.0), row("c", 0.5)]
    assert deployed.mean(rows, models, "xflow") == pytest.approx(1.0)
