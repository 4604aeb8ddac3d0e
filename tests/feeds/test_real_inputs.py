"""Real inputs: in all forms in which they are given, and one sentence where they do not suit."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from products import RULES, two_products
from small_models import small_model

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode, UsageError
from xflow.cost.measure import Measurer
from xflow.feeds.real_inputs import real_inputs
from xflow.rewriting.text import parse_rules

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)


def message(folder: Path, number: int, value: Any, name: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensor = numpy_helper.from_array(value, name)
    (folder / f"input_{number}.pb").write_bytes(tensor.SerializeToString())


def test_a_file_a_folder_and_arrays_give_the_same(tmp_path: Path) -> None:
    model = small_model()
    np.savez(tmp_path / "one.npz", x=X)
    message(tmp_path / "zoo" / "test_data_set_0", 0, X)
    (tmp_path / "zoo" / "test_data_set_0" / "output_0.pb").write_bytes(b"is not read")
    given = [
        tmp_path / "one.npz",
        str(tmp_path / "one.npz"),
        tmp_path / "zoo",
        tmp_path / "zoo" / "test_data_set_0",
        {"x": X},
        [{"x": X}],
    ]
    for each in given:
        (found,) = real_inputs(model, each)  # type: ignore[arg-type]
        assert np.array_equal(found.values["x"], X)
        assert found.shapes == {"x": (3, 4)}
        assert not found.ordinary
    assert real_inputs(model, None) == []


def test_a_folder_holds_several_and_several_may_be_given(tmp_path: Path) -> None:
    for number in (10, 9, 2):
        message(tmp_path / f"test_data_set_{number}", 0, X[:1] * number)
    np.savez(tmp_path / "b.npz", x=Y)
    np.savez(tmp_path / "a.npz", x=X)
    found = real_inputs(small_model(), [tmp_path, {"x": Y}])
    first = [float(each.values["x"][0, 0] / X[0, 0]) for each in found[2:5]]
    assert [each.shapes["x"][0] for each in found] == [3, 5, 1, 1, 1, 5]
    assert first == pytest.approx([2, 9, 10])
    assert found[0].what.endswith("a.npz")
    assert found[2].what.endswith("test_data_set_2")


def test_messages_are_numbered_with_or_without_weights_or_named(tmp_path: Path) -> None:
    model = two_products(4)
    names = ["a", "x", "b"]
    items = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "ab"]
    del model.graph.input[:]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    model.graph.input.extend([items[0], x, items[1]])
    assert [item.name for item in model.graph.input] == names
    message(tmp_path / "without", 0, X)
    message(tmp_path / "with", 1, X)
    message(tmp_path / "named", 0, X, "x")
    for folder in ("without", "with", "named"):
        (found,) = real_inputs(model, tmp_path / folder)
        assert list(found.values) == ["x"]


def test_short_floats_strings_and_sequences_can_be_given(tmp_path: Path) -> None:
    text = "g (bfloat16[2] a, string[2] b, seq(float[2]) c) => (bfloat16[2] y) { y = Identity(a) }"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    a = np.array([0.5, 3]).astype(ml_dtypes.bfloat16)
    c = [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]
    del model.graph.input[2]
    np.savez(tmp_path / "short.npz", a=a, b=np.array(["one", "three"]))
    (found,) = real_inputs(model, tmp_path / "short.npz")
    assert found.values["a"].dtype == ml_dtypes.bfloat16
    assert found.values["a"].tolist() == [0.5, 3]
    assert found.values["b"].tolist() == ["one", "three"]
    del model.graph.input[:]
    kind = helper.make_tensor_sequence_value_info("c", TensorProto.FLOAT, [2])
    model.graph.input.append(kind)
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(numpy_helper.from_list(c).SerializeToString())
    for each in (tmp_path / "test_data_set_0", {"c": c}):
        (found,) = real_inputs(model, each)
        assert [value.tolist() for value in found.values["c"]] == [[1, 2], [3, 4]]


TWO = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]>\n'
    "g (float[N, 3] a, float[N] b) => (float[N, 3] y) { y = Neg(a) }"
)
GOOD = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.float32)}
BAD = {
    "another name": ({**GOOD, "c": X}, "the model has no input 'c'; its inputs are: 'a', 'b'"),
    "a name too few": ({"a": GOOD["a"]}, "there is no value for input 'b'"),
    "another type": ({**GOOD, "b": np.zeros(2)}, "'b' is of float64, and the model takes float32"),
    "another rank": ({**GOOD, "b": GOOD["a"]}, "has the shape 2,3, and the model takes 1 dim"),
    "another size": ({**GOOD, "a": X}, "dimension 1 of input 'a' is 4, and 3 in the model"),
    "nothing": ({**GOOD, "b": None}, "without a value"),
    "no arrays": (3, "files, folders or mappings, and not int"),
}


@pytest.mark.parametrize("what", BAD)
def test_arrays_that_do_not_suit_the_model_are_refused(what: str) -> None:
    given, said = BAD[what]
    with pytest.raises(UsageError) as caught:
        real_inputs(TWO, [given])  # type: ignore[list-item]
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def garbage(path: Path) -> None:
    path.mkdir()
    (path / "input_0.pb").write_bytes(b"\xff\xff\xff")


def pickled(path: Path) -> None:
    np.savez(path, a=np.array([{"a": 1}], dtype=object))


def claiming(shape: str, length: int, name: str = "a") -> Callable[[Path], None]:
    """A file of one array whose header says that it has this shape, with so many bytes of data."""

    def make(path: Path) -> None:
        said = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
        header = b"\x93NUMPY\x01\x00" + (len(said) + 1).to_bytes(2, "little") + said + b"\n"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}.npy", header + bytes(length))

    return make


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda path: None, "no such file or folder"),
    "text": (lambda path: path.write_text("a,b"), "this is no .npz file; make it with numpy.savez"),
    "single": (
        lambda path: np.save(path.open("wb"), X),
        "a single array; make it with numpy.savez",
    ),
    "pickle": (pickled, "holds Python objects"),
    "empty": (lambda path: path.mkdir(), "no inputs in this folder"),
    "hollow": (lambda path: (path / "test_data_set_0").mkdir(parents=True), "no input_0.pb"),
    "garbage": (garbage, "no message for input 'a', which is a tensor"),
    "more": (lambda path: message(path, 7, X), "has 2 inputs, and this is number 7"),
    "huge": (claiming("(1000000000, 3)", 0), "'a' has 79 bytes where 12000000000 are needed"),
    "large": (claiming("(6, 10000000)", 240_000_000), "dimension 1 of input 'a' is 10000000"),
    "unknown, large": (claiming("(6, 10000000)", 240_000_000, "c"), "the model has no input 'c'"),
    "nested": (claiming("(" * 3000, 0), "this .npz file cannot be read"),
    "negative": (claiming("(-1, 3)", 0), "this .npz file cannot be read"),
    "no array": (lambda path: zipfile.ZipFile(path, "w").writestr("a", b"text"), "cannot be read"),
    "weight": (lambda path: np.savez(path, w=X, a=GOOD["a"], b=GOOD["b"]), "has a value in the"),
}


@pytest.mark.parametrize("what", FILES)
def test_files_that_cannot_be_read_end_in_one_sentence(
    what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make, said = FILES[what]
    given = tmp_path / "given.npz"
    make(given)
    model = onnx.ModelProto()
    model.CopyFrom(TWO)
    model.graph.initializer.append(numpy_helper.from_array(X, "w"))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 4]))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    commands = (["check", str(path), str(path)], ["optimize", str(path), str(tmp_path / "out")])
    for command in commands:
        assert entry.main([*command, "--inputs", str(given)]) == ExitCode.USAGE
        (line,) = capfd.readouterr().err.splitlines()
        assert said in line
        assert str(given) in line


def saved(path: Path, fill: float) -> str:
    onnx.save(small_model(fill=fill), path)
    return str(path)


def test_a_difference_that_only_real_inputs_show_is_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The models are the same for all but one value."""
    text = (
        "g (float[N] x) => (float[N] y) { a = Mul(x, big) s = Sin(a) e = Equal(s, magic)"
        " c = Cast<to = 1>(e) m = Mul(c, FACTOR) y = Add(x, m) }"
    )
    x = np.array([0.123], np.float32)
    magic = np.sin(x * np.float32(1e3))
    paths = []
    for factor in ("one", "two"):
        body = text.replace("FACTOR", factor)
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{body}')
        for name, value in (("big", 1e3), ("one", 1.0), ("two", 2.0), ("magic", magic[0])):
            model.graph.initializer.append(numpy_helper.from_array(np.float32(value), name))
        paths.append(tmp_path / f"{factor}.onnx")
        onnx.save(model, paths[-1])
    np.savez(tmp_path / "given.npz", x=x)
    command = ["check", *map(str, paths)]
    assert entry.main(command) == ExitCode.OK
    assert entry.main([*command, "--inputs", str(tmp_path / "given.npz")]) == ExitCode.DIFFERENT
    assert "given.npz" in capfd.readouterr().err
    assert not xflow.check(*paths, inputs={"x": x}).ok
    assert xflow.check(*paths, inputs={"x": x + 1}).given == 1


def test_random_inputs_have_the_sizes_of_the_real_ones(tmp_path: Path) -> None:
    text = "g (float[N, T] x) => (float[A, 6] y) { y = Reshape(x, s) }"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 6]), "s"))
    found = xflow.check(model, model, inputs={"x": np.zeros((2, 9), np.float32)})
    assert found.ok
    assert found.given == 1
    assert found.samples >= 3
    assert found.shapes == {"x": (2, 9)}


def test_real_inputs_may_hold_what_is_no_number() -> None:
    def model(body: str) -> onnx.ModelProto:
        text = f"g (float[4] x) => (float[4] y) {{ {body} }}"
        return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')

    x = np.array([1, np.nan, np.inf, 2], np.float32)
    one, two = model("y = Sub(x, x)"), model("a = Neg(x) y = Add(x, a)")
    assert xflow.check(one, two, inputs={"x": x}).ok
    summed = model("a = Sub(x, x) b = ReduceSum(a) c = Mul(b, a) y = Add(a, c)")
    assert not xflow.check(one, summed, inputs={"x": x}, planted=False).ok


def test_real_inputs_on_which_the_input_model_fails_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "g (int64[N] i, float[4] t) => (float[N] y) { y = Gather(t, i) }"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    np.savez(tmp_path / "given.npz", i=np.array([9]), t=np.zeros(4, np.float32))
    command = ["check", str(path), str(path), "--inputs", str(tmp_path / "given.npz")]
    assert entry.main(command) == ExitCode.ERROR
    said = capfd.readouterr().err
    assert "given.npz" in said
    assert "Gather fails" in said


class TestOptimize:
    def test_a_rewrite_that_is_wrong_on_real_inputs_alone_is_dropped(self) -> None:
        """A rule that holds for elements below 10^15."""
        rules = parse_rules(
            """
rule clip-away
  in       x[...]
  from     Relu(Relu(x))
  to       Clip(x, min=0, max=999999999999999)
"""
        )
        model = two_products(8)
        x = np.ones((1, 8), np.float32)
        plain = xflow.optimize(model, rules=rules, cost="estimated", budget=2, objective="nodes")
        huge = xflow.optimize(
            model,
            rules=rules,
            cost="estimated",
            budget=2,
            objective="nodes",
            inputs={"x": x * np.float32(1e20)},
        )
        assert plain.report.changed
        assert not huge.report.changed
        assert any("was dropped" in text for text in huge.report.warnings)

    def test_the_model_is_measured_at_the_sizes_of_the_first_ones_and_timed_on_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        timed: list[Any] = []
        at_each = Measurer.time_at_each

        def noting(
            measurer: Measurer, models: Any, seconds: float, settings: Any, **how: Any
        ) -> Any:
            timed.extend(each.inputs["x"] for each in settings if each.inputs is not None)
            return at_each(measurer, models, seconds, settings, **how)

        monkeypatch.setattr(Measurer, "time_at_each", noting)
        x = np.random.default_rng(0).standard_normal((7, 256)).astype(np.float32)
        inputs = [{"x": x}, {"x": x[:2]}]
        for _ in range(3):  # beside other work, no form of a region may be seen to gain
            result = xflow.optimize(
                two_products(256), rules=RULES, budget=2, threads=1, inputs=inputs
            )
            assert result.report.shapes == {"x": (7, 256)}
            if timed:
                break
        assert all(np.array_equal(each, x) for each in timed)
        assert timed
        shapes = {"x": (3, 256)}
        result = xflow.optimize(
            two_products(256),
            rules=RULES,
            cost="estimated",
            budget=2,
            inputs=inputs,
            input_shapes=shapes,
        )
        assert result.report.shapes == shapes

    def test_a_folder_of_models_may_share_their_inputs(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        onnx.save(two_products(), tmp_path / "in" / "a.onnx")
        np.savez(tmp_path / "given.npz", x=np.zeros((2, 96), np.float32))
        command = ["optimize", str(tmp_path / "in"), str(tmp_path / "out"), "--budget", "0.1"]
        given = ["--inputs", str(tmp_path / "given.npz"), "--cost", "estimated"]
        assert entry.main([*command, *given]) == ExitCode.OK
