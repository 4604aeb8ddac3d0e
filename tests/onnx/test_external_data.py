"""Data in files beside the model: wherever a tensor stands, and never outside the folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode, ModelError, OutputError
from xflow.onnx import files
from xflow.onnx.external_data import all_tensors, embedded_tensors, external_tensors, misplaced

DATA = "w.bin"
VALUES = np.arange(1, 5, dtype=np.float32)
DOMAINS = ("", "ai.onnx")


def external(location: str = DATA, name: str = "w") -> TensorProto:
    """A tensor of four elements whose data lies in a file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def node(op: str, inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


def model_of(*nodes: onnx.NodeProto, weights: tuple[TensorProto, ...] = ()) -> onnx.ModelProto:
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph(list(nodes), "g", kinds[:1], kinds[1:], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def in_the_graph(tensor: TensorProto) -> onnx.ModelProto:
    return model_of(node("Add", ["x", "w"], ["y"]), weights=(tensor,))


def in_an_attribute(tensor: TensorProto) -> onnx.ModelProto:
    return model_of(node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["y"]))


def _branches(*nodes: onnx.NodeProto, weights: tuple[TensorProto, ...] = ()) -> onnx.ModelProto:
    kind = helper.make_tensor_value_info("o", TensorProto.FLOAT, [4])
    then = helper.make_graph(list(nodes), "then", [], [kind], list(weights))
    other = helper.make_graph([node("Neg", ["x"], ["o"])], "else", [], [kind])
    yes = numpy_helper.from_array(np.array(True), "yes")
    return model_of(node("If", ["yes"], ["y"], then_branch=then, else_branch=other), weights=(yes,))


def in_a_body(tensor: TensorProto) -> onnx.ModelProto:
    return _branches(node("Add", ["x", "w"], ["o"]), weights=(tensor,))


def in_an_attribute_in_a_body(tensor: TensorProto) -> onnx.ModelProto:
    return _branches(node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["o"]))


def _with_function(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    model = model_of(node("Own", ["x"], ["y"], domain="own"))
    model.opset_import.add(domain="own", version=1)
    opsets = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "Own", ["x"], ["y"], list(nodes), opsets))
    return model


def in_a_function(tensor: TensorProto) -> onnx.ModelProto:
    return _with_function(node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["y"]))


def in_a_default_of_a_function(tensor: TensorProto) -> onnx.ModelProto:
    constant = node("Constant", [], ["w"])
    constant.attribute.add(name="value", ref_attr_name="v", type=onnx.AttributeProto.TENSOR)
    model = _with_function(constant, node("Add", ["x", "w"], ["y"]))
    model.functions[0].attribute_proto.append(helper.make_attribute("v", tensor))
    return model


def _sparse(tensor: TensorProto) -> onnx.SparseTensorProto:
    places = numpy_helper.from_array(np.arange(4, dtype=np.int64), "places")
    return helper.make_sparse_tensor(tensor, places, [4])


def in_a_sparse_attribute(tensor: TensorProto) -> onnx.ModelProto:
    sparse = _sparse(tensor)
    constant = node("Constant", [], ["w"], sparse_value=sparse)
    return model_of(constant, node("Add", ["x", "w"], ["y"]))


def in_a_sparse_weight(tensor: TensorProto) -> onnx.ModelProto:
    model = model_of(node("Add", ["x", "w"], ["y"]))
    model.graph.sparse_initializer.append(_sparse(tensor))
    return model


def in_a_list_of_an_attribute(tensor: TensorProto) -> onnx.ModelProto:
    own = node("Own", ["x"], ["o"], domain="com.example", tensors=[tensor])
    model = model_of(own, node("Neg", ["o"], ["y"]))
    model.opset_import.add(domain="com.example", version=1)
    return model


def in_the_training(tensor: TensorProto) -> onnx.ModelProto:
    model = model_of(node("Neg", ["x"], ["y"]))
    model.training_info.add().initialization.initializer.append(tensor)
    return model


PLACES: tuple[Callable[[TensorProto], onnx.ModelProto], ...] = (
    in_the_graph,
    in_an_attribute,
    in_a_body,
    in_an_attribute_in_a_body,
    in_a_function,
    in_a_default_of_a_function,
    in_a_sparse_attribute,
    in_a_sparse_weight,
    in_a_list_of_an_attribute,
    in_the_training,
)
NOT_RUN = (in_a_list_of_an_attribute, in_the_training)
every_place = pytest.mark.parametrize("place", PLACES, ids=lambda each: each.__name__)


def spelled(model: onnx.ModelProto, domain: str) -> onnx.ModelProto:
    """The model with ONNX's own domain spelled in that way."""
    graphs = [
        model.graph,
        *(attribute.g for each in model.graph.node for attribute in each.attribute),
    ]
    nodes = [each for graph in graphs for each in graph.node]
    nodes += [each for function in model.functions for each in function.node]
    imports = [*model.opset_import, *(o for f in model.functions for o in f.opset_import)]
    for part in (*nodes, *imports):
        if part.domain == "":
            part.domain = domain
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with data in it, and more of the same outside."""
    inside = tmp_path / "NAME"
    (inside / "sub").mkdir(parents=True)
    for path in (inside / DATA, inside / "sub" / DATA, tmp_path / DATA):
        path.write_bytes(VALUES.tobytes())
    return inside


def write(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@every_place
def test_every_tensor_of_a_message_is_found(
    place: Callable[[TensorProto], onnx.ModelProto],
) -> None:
    model = place(external())
    (found,) = external_tensors(model)
    assert found.name == "w"
    assert len(list(all_tensors(model))) >= 1
    assert len(list(embedded_tensors(model))) <= len(list(all_tensors(model)))


@every_place
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize(
    "location",
    [
        "../NAME/w.bin",
        "../w.bin",
        "sub/../w.bin",
        "sub/../../NAME/w.bin",
        "{absolute}",
        "C:w.bin",
        "C:/w.bin",
        "sub\\w.bin",
        "..\\w.bin",
        "\\\\host\\share\\w.bin",
        "w.bin\0.txt",
        "",
        ".",
        "..",
        "*/_ORT_MEM_ADDR_/*",
        "w" * 5000,
        "missing.bin",
        "sub",
        "short.bin",
        "link.bin",
        "folder/w.bin",
        "circle",
        "pipe",
    ],
)
def test_data_that_may_lie_elsewhere_is_refused(
    place: Callable[[TensorProto], onnx.ModelProto], domain: str, location: str, folder: Path
) -> None:
    """In any spelling of the operators' domain: it decides which checks of others are passed."""
    (folder / "short.bin").write_bytes(b"123")
    (folder / "link.bin").symlink_to(folder.parent / DATA)
    (folder / "folder").symlink_to(folder.parent, target_is_directory=True)
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "pipe")
    location = location.format(absolute=folder / DATA) if "{" in location else location
    path = write(spelled(place(external(location)), domain), folder)
    with pytest.raises(ModelError) as caught:
        files.load_model(path)
    assert "\n" not in str(caught.value)
    assert "external data" in str(caught.value)
    assert len(str(caught.value)) < 1000


@every_place
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("location", [DATA, f"./{DATA}", f"sub/{DATA}"])
@pytest.mark.parametrize("as_bytes", [True, False])
def test_data_beside_the_model_goes_with_it(
    place: Callable[[TensorProto], onnx.ModelProto],
    *,
    domain: str,
    location: str,
    as_bytes: bool,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The written model computes the same where the data of the first one is gone."""
    path = write(spelled(place(external(location)), domain), folder)
    out = folder.parent / "out" / "model.onnx"
    out.parent.mkdir()
    monkeypatch.chdir(folder.parent)  # nothing is read from here
    (folder.parent / DATA).write_bytes(bytes(16))
    form = path.read_bytes() if as_bytes else files.load_model(path)
    files.write_model_atomically(form, out, source=path)
    for file in (folder / DATA, folder / "sub" / DATA):
        file.write_bytes(b"")
    written = [each for each in folder.parent.rglob("*") if each.is_file()]
    both = {folder, out.parent}
    assert {each.parent for each in written} <= {folder.parent, *both, *(f / "sub" for f in both)}
    assert [each.name for each in folder.parent.iterdir() if each.is_file()] == [DATA]
    files.load_model(out)
    if as_bytes or place is not in_the_training:  # which is left out of models in memory
        (held,) = (each for each in all_tensors(onnx.load(out)) if each.data_type == 1)
        np.testing.assert_array_equal(numpy_helper.to_array(held), VALUES)
    if place not in NOT_RUN and not (domain and as_bytes):  # bodies spelled so do not run anyhow
        session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {"x": np.zeros(4, np.float32)})
        np.testing.assert_array_equal(y, VALUES)


def test_a_model_that_names_data_elsewhere_leaves_no_file(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The case that was seen: it was written to a folder of the model's choice."""
    path = write(spelled(in_the_graph(external("../NAME/w.bin")), "ai.onnx"), folder)
    out = folder.parent / "out"
    out.mkdir()
    before = sorted(folder.parent.rglob("*"))
    assert entry.main(["optimize", str(path), str(out / "o.onnx"), "-q"]) == ExitCode.ERROR
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "outside" in said
    assert sorted(folder.parent.rglob("*")) == before


def test_two_places_for_one_tensor_are_refused(folder: Path) -> None:
    """Readers differ in which of them counts."""
    for locations in ((DATA, "../w.bin"), ("../w.bin", DATA)):
        tensor = external(locations[0])
        tensor.external_data.add(key="location", value=locations[1])
        with pytest.raises(ModelError, match="says twice"):
            files.load_model(write(spelled(in_the_graph(tensor), "ai.onnx"), folder))


def test_weights_are_not_written_through_a_link_out_of_the_folder(folder: Path) -> None:
    """A folder of the model's choice may be a link where the output goes."""
    large = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    (folder / "sub" / DATA).write_bytes(large.raw_data)
    tensor = external(f"sub/{DATA}")
    tensor.dims[:] = [64, 64]
    model = in_the_graph(tensor)
    for info in (*model.graph.input, *model.graph.output):
        info.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, [64, 64]))
    path = write(model, folder)
    out, elsewhere = folder.parent / "out", folder.parent / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "sub").symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(OutputError, match="outside the output's folder"):
        files.write_model_atomically(files.load_model(path), out / "o.onnx", source=path)
    assert list(elsewhere.iterdir()) == []
    assert [each.name for each in out.iterdir()] == ["sub"]


@pytest.mark.parametrize("name", ["w.bin", "./w.bin", "a/b/c.bin", "w..bin", "...", "a b", "ä.bin"])
def test_names_of_files_in_the_folder_are_fine(name: str) -> None:
    assert misplaced(name) == ""


def test_a_rewritten_model_with_data_in_a_function_is_right(folder: Path) -> None:
    """Its data is read from the model's folder, wherever the program runs."""
    model = in_a_function(external())
    model.graph.node.insert(0, node("Relu", ["x"], ["r"]))
    model.graph.node.insert(1, node("Relu", ["r"], ["s"]))
    model.graph.node[2].input[0] = "s"
    path = write(model, folder)
    result = xflow.optimize(path, cost="estimated", budget=2, threads=1, objective="nodes")
    assert result.report.changed
    out = folder.parent / "out"
    out.mkdir()
    result.save(out / "o.onnx")
    session = onnxruntime.InferenceSession(out / "o.onnx", providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.array([-1, 0, 1, 2], np.float32)})
    np.testing.assert_array_equal(y, VALUES + np.array([0, 0, 1, 2], np.float32))
    assert isinstance(result.model, ir.Model)


OPEN_FILES = """
import resource, sys
from xflow.core.errors import ModelError
from xflow.onnx.files import load_model
resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[2])))
try:
    model = load_model(sys.argv[1])
    print(sum(float(each.const_value.numpy().sum()) for each in model.graph.initializers.values()))
except ModelError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
@pytest.mark.parametrize(("most", "said"), [(4096, "900.0"), (256, "`ulimit -n 1864`")])
def test_more_tensors_lie_in_files_than_files_may_be_open(
    most: int, said: str, tmp_path: Path
) -> None:
    """Each is mapped by itself. The limit is raised as far as that is allowed."""
    names = [f"w{number}" for number in range(900)]
    weights = [onnx.numpy_helper.from_array(np.ones(512, np.float32) / 512, name) for name in names]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [512])
    sums = onnx.helper.make_node("Sum", names, ["y"])
    graph = onnx.helper.make_graph([sums], "g", [], [output], weights)
    opsets = [onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    command = [sys.executable, "-c", OPEN_FILES, str(tmp_path / "m.onnx"), str(most)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert said in done.stdout, done.stderr
