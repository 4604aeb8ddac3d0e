"""Model files: what cannot be read is said in one sentence; writing is whole or not at all."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import numpy_helper
from places import SUPPORT
from small_models import small_model

from xflow.core.atomic import ENDINGS
from xflow.core.errors import ModelError, OutputError
from xflow.onnx import external_data, files
from xflow.onnx.proto_compat import PROTOBUF_LIMIT, serialized


def weights(path: Path) -> dict[str, np.ndarray]:
    """Return the initializers of the model in `path`, external or not, after the checker."""
    onnx.checker.check_model(str(path))
    onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    model = onnx.load(path)
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def is_one_sentence(error: BaseException) -> bool:
    text = str(error)
    return bool(text) and "\n" not in text and "Traceback" not in text


def broken_models() -> dict[str, bytes]:
    """Return files that are no models, by what is wrong with them."""
    whole = small_model(64).SerializeToString()
    without_opset = small_model()
    del without_opset.opset_import[:]
    unknown_operator = small_model()
    unknown_operator.graph.node[0].op_type = "NoSuchOperator"
    circle = small_model()
    circle.graph.node[0].input[0] = "b"
    noise = random.Random(0)
    return {
        "empty": b"",
        "truncated early": whole[:10],
        "truncated in the weights": whole[: len(whole) // 2],
        "truncated by one byte": whole[:-1],
        "text": b"This is not a model.\n" * 50,
        "python source": Path(__file__).read_bytes(),
        "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(100),
        "zip": b"PK\x03\x04" + bytes(100),
        "zeros": bytes(1000),
        "noise": noise.randbytes(1000),
        "noise that begins like a model": b"\x08\x08" + noise.randbytes(1000),
        "only an IR version": b"\x08\x08",
        "no operator set": without_opset.SerializeToString(),
        "unknown operator": unknown_operator.SerializeToString(),
        "nodes in a circle": circle.SerializeToString(),
    }


BROKEN = broken_models()


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_model_is_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(BROKEN[kind])
    with pytest.raises(ModelError) as caught:
        files.load_model(path)
    assert is_one_sentence(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (onnx.printer.to_text(small_model(1)).encode(), "format='onnxtxt'"),
        (str(small_model(1)).encode(), "format='textproto'"),
        (b'{\n "irVersion": "10", "graph": {}}', "format='json'"),
        (b"\x20\0\0\0ORTM" + bytes(100), ".ort format"),
        (b"\x1f\x8b\x08" + bytes(100), "decompress"),
        (b"PK\x03\x04" + bytes(100), "export the network"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    ],
)
def test_other_formats_are_told(data: bytes, advice: str, tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=re.escape(advice)) as caught:
        files.load_model(path)
    assert is_one_sentence(caught.value)


def test_every_prefix_of_a_model_is_refused(tmp_path: Path) -> None:
    whole = small_model(3).SerializeToString()
    path = tmp_path / "prefix.onnx"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            files.load_model(path)


def test_noise_never_raises_anything_but_a_model_error(tmp_path: Path) -> None:
    noise = random.Random(1)
    whole = small_model(3).SerializeToString()
    path = tmp_path / "noise.onnx"
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(noise.randint(1, 8)):
            damaged[noise.randrange(len(damaged))] = noise.randrange(256)
        path.write_bytes(damaged)
        with contextlib.suppress(ModelError):
            files.load_model(path)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        files.load_model(tmp_path / "absent.onnx")
    with pytest.raises(ModelError, match="directory"):
        files.load_model(tmp_path)


def test_missing_and_truncated_external_data_are_refused(external_model_file: Path) -> None:
    data = external_model_file.with_name("weights.bin")
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    with pytest.raises(ModelError, match="truncated"):
        files.load_model(external_model_file)
    data.unlink()
    with pytest.raises(ModelError, match="missing"):
        files.load_model(external_model_file)


def test_external_data_outside_the_folder_is_refused(external_model_file: Path) -> None:
    data = external_model_file.with_name("weights.bin")
    elsewhere = external_model_file.parent.parent / "elsewhere.bin"
    data.rename(elsewhere)
    data.symlink_to(elsewhere)
    with pytest.raises(ModelError, match="outside"):
        files.load_model(external_model_file)
    data.unlink()
    inside = external_model_file.with_name("inside")
    inside.symlink_to(elsewhere.parent, target_is_directory=True)
    for location in (str(elsewhere), "../elsewhere.bin", "inside/elsewhere.bin", "/etc/passwd"):
        claim(external_model_file, location=location)
        with pytest.raises(ModelError, match="outside"):
            files.load_model(external_model_file)


def test_external_data_with_another_hard_link_is_refused(external_model_file: Path) -> None:
    data = external_model_file.with_name("weights.bin")
    data.with_name("linked.bin").hardlink_to(data)
    with pytest.raises(ModelError, match="hard links") as caught:
        files.load_model(external_model_file)
    assert is_one_sentence(caught.value)
    assert "weights.bin" in caught.value.where
    assert "copy" in caught.value.do


def claim(path: Path, dims: Sequence[int] = (), **entries: str) -> None:
    """Let the first weight of the model claim other dimensions or another place in a file."""
    model = onnx.load(path, load_external_data=False)
    tensor = model.graph.initializer[0]
    if dims:
        tensor.dims[:] = dims
    for item in tensor.external_data:
        item.value = entries.get(item.key, item.value)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("dims", "entries"),
    [
        ([2**40, 2**20], {}),
        ([64, 65], {}),
        ([64, 63], {}),
        ([-1, 64], {}),
        ([64, 64], {"length": "9" * 5000}),
        ([64, 64], {"length": "-1"}),
        ([64, 64], {"length": "16"}),
        ([64, 64], {"offset": "-4096"}),
        ([64, 64], {"offset": str(2**62)}),
        ([64, 64], {"offset": "1e3"}),
        ([64, 64], {"location": ""}),
        ([64, 64], {"location": "."}),
    ],
    ids=str,
)
def test_what_a_header_says_of_external_data_is_not_believed(
    dims: list[int], entries: dict[str, str], external_model_file: Path
) -> None:
    claim(external_model_file, dims, **entries)
    with pytest.raises(ModelError) as caught:
        files.load_model(external_model_file)
    assert str(caught.value).count("\n") == 0


def test_a_written_model_reads_back(model_file: Path, tmp_path: Path) -> None:
    model = files.load_model(model_file)
    for form in (model, ir.to_proto(model), model_file.read_bytes()):
        out = tmp_path / "out.onnx"
        files.write_model_atomically(form, out, source=model_file)
        assert weights(out).keys() == {"w", "c"}
        read, original = onnx.load(out).graph, onnx.load(model_file).graph
        for field in ("node", "initializer", "input", "output"):
            assert list(getattr(read, field)) == list(getattr(original, field))
    assert sorted(os.listdir(tmp_path)) == ["input", "out.onnx"]


def test_bytes_are_written_as_they_are(model_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    files.write_model_atomically(model_file.read_bytes(), out, source=model_file)
    assert out.read_bytes() == model_file.read_bytes()


def test_bad_outputs_are_refused_and_nothing_changes(
    model_file: Path, external_model_file: Path, tmp_path: Path
) -> None:
    model = files.load_model(external_model_file)
    link = tmp_path / "link.onnx"
    link.symlink_to(external_model_file)
    data = external_model_file.with_name("weights.bin")
    before = {path: path.read_bytes() for path in (external_model_file, data)}
    bad: dict[str | Path, str] = {
        tmp_path: "directory",
        f"{tmp_path}/new/": "directory",
        tmp_path / "absent" / "out.onnx": "folder does not exist",
        model_file / "out.onnx": "folder does not exist",
        external_model_file: "input",
        link: "input",
        data: "external data",
        "/dev/null": "not a regular file",
        "": "no name",
        tmp_path / ("x" * 300): "cannot be written",
    }
    for path, reason in bad.items():
        with pytest.raises(OutputError, match=reason) as caught:
            files.write_model_atomically(model, path, source=external_model_file)
        assert is_one_sentence(caught.value)
    assert before == {path: path.read_bytes() for path in before}
    assert sorted(os.listdir(tmp_path)) == ["external", "input", "link.onnx"]


def test_an_output_link_is_followed_and_its_mode_kept(model_file: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.onnx"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link = tmp_path / "link.onnx"
    link.symlink_to(real)
    files.write_model_atomically(model_file.read_bytes(), link)
    assert link.is_symlink()
    assert real.read_bytes() == model_file.read_bytes()
    assert real.stat().st_mode & 0o777 == 0o640


def test_external_data_keeps_its_name_in_another_folder(
    external_model_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out" / "fast.onnx"
    out.parent.mkdir()
    model = files.load_model(external_model_file)
    files.write_model_atomically(model, out, source=external_model_file)
    assert sorted(os.listdir(out.parent)) == ["fast.onnx", "weights.bin"]
    expected = weights(external_model_file)
    external_model_file.unlink()
    external_model_file.with_name("weights.bin").unlink()
    for name, value in weights(out).items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize("as_bytes", [True, False])
def test_external_data_beside_the_input_gets_the_output_s_name(
    as_bytes: bool, external_model_file: Path
) -> None:
    data = external_model_file.with_name("weights.bin")
    before = data.read_bytes()
    out = external_model_file.with_name("fast.onnx")
    model = files.load_model(external_model_file)
    form = external_model_file.read_bytes() if as_bytes else model
    files.write_model_atomically(form, out, source=external_model_file)
    assert data.read_bytes() == before
    names = ["fast.data", "fast.onnx", "model.onnx", "weights.bin"]
    assert sorted(os.listdir(out.parent)) == names
    assert weights(out).keys() == {"w", "c"}
    for value in model.graph.initializers.values():  # the argument is as it was
        assert isinstance(value.const_value, ir.ExternalTensor)
        assert value.const_value.location == "weights.bin"


def test_writing_again_never_touches_the_old_data_before_the_new_model_stands(
    external_model_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "fast.onnx"
    model = files.load_model(external_model_file)
    seen = []
    for _ in range(4):
        files.write_model_atomically(model, out, source=external_model_file)
        seen.append(sorted(os.listdir(folder)))
        assert weights(out).keys() == {"w", "c"}
    assert seen[0] == seen[2] == ["fast.onnx", "weights.bin"]
    assert seen[1] == seen[3] == ["fast.onnx", "weights.1.bin"]


@pytest.mark.parametrize("name", ["weights.bin", "Weights.bin"])
def test_data_never_gets_the_name_of_the_model(
    name: str, external_model_file: Path, tmp_path: Path
) -> None:
    """Neither that of the input's data nor one after the output; nor when it is written again."""
    model = files.load_model(external_model_file)
    elsewhere = tmp_path / name
    beside = external_model_file.with_name("fast.data")
    for out in (elsewhere, beside):
        for _ in range(3):
            files.write_model_atomically(model, out, source=external_model_file)
            assert weights(out).keys() == {"w", "c"}


def test_a_model_that_names_itself_as_its_data_can_be_replaced(
    external_model_file: Path, tmp_path: Path
) -> None:
    model = files.load_model(external_model_file)
    out = tmp_path / "weights.bin"
    out.write_bytes(external_model_file.read_bytes())
    files.write_model_atomically(model, out, source=external_model_file)
    assert weights(out).keys() == {"w", "c"}


@pytest.mark.parametrize("name", ["other.onnx", "fast.onnx.bak", ".backup"])
def test_data_that_another_model_uses_is_kept(
    name: str, external_model_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    model = files.load_model(external_model_file)
    files.write_model_atomically(model, folder / "fast.onnx", source=external_model_file)
    (folder / name).write_bytes((folder / "fast.onnx").read_bytes())
    files.write_model_atomically(model, folder / "fast.onnx", source=external_model_file)
    assert weights(folder / name).keys() == weights(folder / "fast.onnx").keys()


def test_a_large_file_is_looked_through_only_if_it_begins_like_a_model(
    external_model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SMALL_FILE", 10)
    folder = tmp_path / "out"
    folder.mkdir()
    model = files.load_model(external_model_file)
    files.write_model_atomically(model, folder / "fast.onnx", source=external_model_file)
    (folder / "backup").write_bytes((folder / "fast.onnx").read_bytes())
    files.write_model_atomically(model, folder / "fast.onnx", source=external_model_file)
    assert weights(folder / "backup").keys() == weights(folder / "fast.onnx").keys()
    (folder / "backup").write_bytes(b"data that holds weights.1.bin by chance")
    files.write_model_atomically(model, folder / "fast.onnx", source=external_model_file)
    names = ["backup", "fast.onnx", "weights.2.bin", "weights.bin"]
    assert sorted(os.listdir(folder)) == names


def test_data_is_kept_where_there_is_too_much_to_look_through(
    external_model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOOKED_THROUGH", 10)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "notes.txt").write_text("More than a few bytes.")
    model = files.load_model(external_model_file)
    for _ in range(2):
        files.write_model_atomically(model, folder / "fast.onnx", source=external_model_file)
    names = ["fast.onnx", "notes.txt", "weights.1.bin", "weights.bin"]
    assert sorted(os.listdir(folder)) == names


def test_a_model_over_the_limit_gets_external_data(model_file: Path, tmp_path: Path) -> None:
    big = ir.from_proto(small_model(64, fill=3.0))
    for form in (big, ir.to_proto(big)):
        folder = tmp_path / type(form).__name__
        folder.mkdir()
        out = folder / "out.onnx"
        files.write_model_atomically(form, out, source=model_file, inline_limit=2000)
        assert sorted(os.listdir(folder)) == ["out.data", "out.onnx"]
        assert (weights(out)["w"] == 3.0).all()


def test_a_failure_while_writing_leaves_nothing_behind(
    external_model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "fast.onnx"
    out.write_bytes(b"old")
    model = files.load_model(external_model_file)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for place in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, place, fail)
            with pytest.raises(OutputError, match="No space left"):
                files.write_model_atomically(model, out, source=external_model_file)
        assert os.listdir(folder) == ["fast.onnx"]
        assert out.read_bytes() == b"old"
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)


def test_small_external_tensors_of_attributes_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "attribute"
    folder.mkdir()
    model = small_model(4)
    constant = model.graph.initializer.pop()
    assert constant.name == "c"
    node = onnx.helper.make_node("Constant", [], ["c"], value=constant)
    model.graph.node.insert(0, node)
    path = folder / "model.onnx"
    onnx.save(
        model,
        path,
        save_as_external_data=True,
        location="all.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    assert external_data.has_external_data(onnx.load(path, load_external_data=False))
    out = tmp_path / "out.onnx"
    files.write_model_atomically(files.load_model(path), out, source=path)
    onnx.checker.check_model(str(out))
    onnx.checker.check_model(onnx.load(out))


WRITER = """
import signal, sys
from small_models import small_model
from xflow.onnx import files
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell has no terminal
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
model_size, out, source = int(sys.argv[1]), sys.argv[2], sys.argv[3] or None
models = [small_model(model_size, fill=float(fill)) for fill in (1, 2)]
limit = int(sys.argv[4])
print("ready", flush=True)
while True:
    for model in models:
        files.write_model_atomically(model, out, inline_limit=limit)
"""


def kill_while_writing(kind: signal.Signals, out: Path, limit: int, delay: float) -> int:
    """Write models to `out` over and over in a child, and send it a signal after `delay`."""
    arguments = [sys.executable, "-c", WRITER, "700", str(out), "", str(limit)]
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    child = subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(delay)
        child.send_signal(kind)
        return child.wait(timeout=60)
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_data_files_are_found_once_a_model_has_some(tmp_path: Path) -> None:
    """What is remembered of a file ends with it."""
    path = tmp_path / "model.onnx"
    path.write_bytes(small_model(32).SerializeToString())
    assert files.data_files(path) == []
    files.write_model_atomically(small_model(32), path, inline_limit=0)
    assert files.data_files(path) == [tmp_path / "model.data"]


def test_a_message_is_written_if_it_is_small_enough() -> None:
    proto = small_model()
    data = proto.SerializeToString()
    assert serialized(proto, len(data)) == data
    assert serialized(proto, len(data) - 1) is None


@pytest.mark.parametrize("limit", [PROTOBUF_LIMIT, 0], ids=["inline", "external"])
def test_a_kill_leaves_the_old_or_the_new_model_whole(limit: int, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    files.write_model_atomically(small_model(700), out, inline_limit=limit)
    moments = random.Random(0)
    for _ in range(4):
        kill_while_writing(signal.SIGKILL, out, limit, moments.uniform(0, 0.1))
        values = np.unique(weights(out)["w"])
        assert values.size == 1
        assert values[0] in (1, 2)


@pytest.mark.parametrize("kind", [*ENDINGS, signal.SIGINT])
@pytest.mark.parametrize("limit", [PROTOBUF_LIMIT, 0], ids=["inline", "external"])
def test_an_interrupt_leaves_nothing_but_the_model(
    kind: signal.Signals, limit: int, tmp_path: Path
) -> None:
    out = tmp_path / "out.onnx"
    files.write_model_atomically(small_model(700), out, inline_limit=limit)
    code = kill_while_writing(kind, out, limit, 0.02)
    assert code == -kind
    assert weights(out)["w"].shape == (700, 700)
    left = [name for name in os.listdir(tmp_path) if name != "out.onnx"]
    assert len(left) == (0 if limit else 1), left


class Interruption(BaseException):
    """Comes at a random moment, as an interrupt does."""


@contextlib.contextmanager
def interrupting(after: float) -> Iterator[None]:
    """Raise an Interruption in the main thread `after` seconds, if the block still runs then."""
    main = threading.get_ident()
    armed = True

    def interrupt(_signal: int, _frame: object) -> None:
        if armed:
            raise Interruption

    # pytest-timeout has the alarm clock already.
    previous = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(after, signal.pthread_kill, (main, signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        armed = False
        timer.join()
        signal.signal(signal.SIGUSR1, previous)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to threads")
@pytest.mark.parametrize("limit", [PROTOBUF_LIMIT, 0], ids=["inline", "external"])
def test_an_exception_at_any_moment_leaves_one_whole_model(limit: int, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    models = [small_model(100, fill=fill) for fill in (1.0, 2.0)]
    files.write_model_atomically(models[0], out, inline_limit=limit)
    moments = random.Random(0)
    interrupted = 0

    for turn in range(150):
        try:
            with interrupting(moments.uniform(0, 4e-3)):
                files.write_model_atomically(models[turn % 2], out, inline_limit=limit)
        except Interruption:
            interrupted += 1
        assert len(os.listdir(tmp_path)) == (1 if limit else 2)
        values = np.unique(numpy_helper.to_array(onnx.load(out).graph.initializer[0]))
        assert values.tolist() in ([1.0], [2.0])
    assert interrupted


def test_a_tensor_with_more_bytes_than_its_shape_needs_is_refused(model_file: Path) -> None:
    model = onnx.load(model_file)
    model.graph.initializer[1].raw_data += b"1234"
    onnx.save(model, model_file)
    with pytest.raises(ModelError, match="8 bytes where 4 are needed"):
        files.load_model(model_file)


def test_a_tensor_of_a_type_that_there_is_not_is_refused(model_file: Path) -> None:
    """The checker passes it."""
    model = onnx.load(model_file)
    model.graph.initializer[1].data_type = 58
    model_file.write_bytes(model.SerializeToString())
    onnx.checker.check_model(model_file)
    with pytest.raises(ModelError, match="no element type 58"):
        files.load_model(model_file)


def test_a_name_that_is_no_text_is_refused_in_one_sentence(model_file: Path) -> None:
    """Protobuf gives bytes for it, wherever it is asked for."""
    data = model_file.read_bytes().replace(b"\x05small", b"\x05sm\x80ll")
    model_file.write_bytes(data)
    with pytest.raises(ModelError, match="a name in it is no text"):
        files.load_model(model_file)
