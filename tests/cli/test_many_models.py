"""Models through pipes, and folders of models."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from products import RULES, two_products
from rich.console import Console
from sentences import assert_one_sentence
from small_models import small_model

from xflow.cli.entry import build_parser, complete
from xflow.cli.folder import Outcome, restated, table
from xflow.core.errors import ExitCode

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def quick(tmp_path: Path) -> list[str]:
    """Options with which a run is short."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "two.rules").write_text("\n".join(map(str, RULES)))
    options = ["--cost", "estimated", "--budget", "10", "--threads", "1", "--check", "1"]
    return [*options, "--rules", str(rules)]


def pipe(data: bytes, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "xflow", "optimize", *arguments]
    return subprocess.run(command, input=data, capture_output=True, timeout=120, check=False)


def test_a_model_goes_through_pipes(quick: list[str]) -> None:
    data = two_products().SerializeToString()
    done = pipe(data, "-", "-", *quick)
    assert done.returncode == 0, done.stderr
    model = onnx.ModelProto.FromString(done.stdout)
    onnx.checker.check_model(model)
    assert len(model.graph.node) < 5
    assert b"in all" in done.stderr, "the table goes to stderr"


@pytest.mark.parametrize("data", [b"", b"This is not a model."])
def test_what_is_no_model_gives_nothing_to_the_reader(data: bytes) -> None:
    done = pipe(data, "-", "-")
    assert done.returncode == ExitCode.ERROR
    assert done.stdout == b""
    assert_one_sentence(done.stderr.decode())


def test_weights_beside_a_model_do_not_go_through_a_pipe(
    external_model_file: Path, quick: list[str]
) -> None:
    done = pipe(b"", str(external_model_file), "-", *quick)
    assert done.returncode == ExitCode.ERROR
    assert done.stdout == b""
    assert "does not fit through a pipe" in done.stderr.decode()


def test_a_model_that_is_not_faster_goes_through_the_pipe_all_the_same(
    model_file: Path, quick: list[str]
) -> None:
    done = pipe(b"", str(model_file), "-", *quick, "--fail-if-not-faster")
    assert done.returncode == ExitCode.NOT_FASTER
    assert done.stdout == model_file.read_bytes()


def redirected(how: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """What becomes of the program where a shell redirects its streams."""
    command = ["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "xflow", *arguments]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.parametrize("how", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_stop_no_run(
    how: str, model_file: Path, tmp_path: Path, quick: list[str]
) -> None:
    done = redirected(how, str(model_file), str(tmp_path / "out.onnx"), *quick)
    assert done.returncode == ExitCode.OK, done.stderr
    assert (tmp_path / "out.onnx").read_bytes() == model_file.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.parametrize(
    ("how", "arguments"),
    [
        ("<&-", ["-", "OUT"]),
        (">&-", ["IN", "-"]),
        ("<&-", ["check", "IN", "-"]),
        ("<&-", ["explain", "-"]),
    ],
)
def test_a_pipe_that_is_closed_is_a_usage_error(
    how: str, arguments: list[str], model_file: Path, tmp_path: Path
) -> None:
    names = {"IN": str(model_file), "OUT": str(tmp_path / "out.onnx")}
    done = redirected(how, *(names.get(word, word) for word in arguments))
    assert done.returncode == ExitCode.USAGE
    assert_one_sentence(done.stderr.decode())
    assert "is closed" in done.stderr.decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_progress_that_cannot_be_displayed_stops_no_run(
    model_file: Path, tmp_path: Path, quick: list[str]
) -> None:
    done = redirected("2>/dev/full", str(model_file), str(tmp_path / "out.onnx"), "-v", *quick)
    assert done.returncode == ExitCode.OK
    assert (tmp_path / "out.onnx").read_bytes() == model_file.read_bytes()
    done = redirected("2>/dev/full", str(model_file), "-", *quick)
    assert done.stdout == model_file.read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models, one of them in a folder of its own, and a file that is none."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    onnx.save(two_products(), tmp_path / "in" / "deep" / "products.onnx")
    onnx.save(small_model(), tmp_path / "in" / "small.onnx")
    (tmp_path / "in" / "notes.txt").write_text("Not looked at.")
    return tmp_path


def test_a_folder_becomes_a_folder_and_a_table(
    folder: Path, quick: list[str], run_xflow: Run
) -> None:
    report = folder / "report.json"
    pages = folder / "pages"
    arguments = (folder / "in", folder / "out", *quick, "--jobs", 2, "--report", report)
    arguments += ("--html", pages)
    done = run_xflow("optimize", *arguments)
    assert done.returncode == ExitCode.OK, done.stderr
    made = sorted(str(path.relative_to(folder / "out")) for path in (folder / "out").rglob("*.*"))
    assert made == ["deep/products.onnx", "small.onnx"]
    assert "2 models: 1 optimized, 0 failed" in done.stdout
    assert [each["changed"] for each in json.loads(report.read_text())["models"]] == [True, False]
    assert "products.onnx" in (pages / "deep" / "products.html").read_text()
    assert "small.onnx" in (pages / "small.html").read_text()


@pytest.mark.parametrize("output", ["in/deep/out", "link/deep/out", "."])
def test_an_output_inside_of_the_input_is_not_optimized_again(
    output: str, folder: Path, quick: list[str], run_xflow: Run
) -> None:
    (folder / "link").symlink_to(folder / "in", target_is_directory=True)
    for _ in range(2):
        done = run_xflow("optimize", folder / "in", folder / output, *quick)
        assert done.returncode == ExitCode.OK, done.stderr
        assert "2 models: 1 optimized, 0 failed" in done.stdout
    made = sorted(str(p.relative_to(folder / output)) for p in (folder / output).rglob("*.onnx"))
    assert {"deep/products.onnx", "small.onnx"} <= set(made)


def test_brackets_in_names_are_shown() -> None:
    names = ["[v2]/a.onnx", "[/b]/c.onnx", "\x1b[31m"]
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(table([Outcome(name, 1, f"in {name}", None) for name in names]))
    text = console.export_text()
    for name in names[:2]:
        assert f"{name} " in text
        assert f"in {name}" in text
    assert "\x1b" not in text


def test_pages_of_a_folder_need_a_folder(folder: Path, run_xflow: Run) -> None:
    page = folder / "page.html"
    page.write_text("Mine.")
    done = run_xflow("optimize", folder / "in", folder / "out", "--html", page)
    assert done.returncode == ExitCode.ERROR
    assert_one_sentence(done.stderr)
    assert page.read_text() == "Mine."
    assert not (folder / "out").exists()


def test_one_model_that_fails_does_not_stop_the_others(
    folder: Path, quick: list[str], run_xflow: Run
) -> None:
    (folder / "in" / "broken.onnx").write_text("This is not a model.")
    done = run_xflow("optimize", folder / "in", folder / "out", *quick)
    assert done.returncode == ExitCode.ERROR
    assert_one_sentence(done.stderr)
    assert "1 of 3 models failed" in done.stderr
    assert "this is not an ONNX model" in " ".join(done.stdout.split())
    assert not (folder / "out" / "broken.onnx").exists()
    assert (folder / "out" / "small.onnx").exists()


def test_the_options_of_a_folder_are_those_of_each_model() -> None:
    given = ["in", "out", "--input-shapes", "x:1,2", "--input-shapes", "y:3,4", "--seed", "7"]
    given += ["--skip-rules", "a", "b", "--keep-initializer-inputs", "--jobs", "2", "-q"]
    given += ["--size-threshold", "1.5MiB", "--html", "pages"]
    options = build_parser().parse_args(complete(given))
    again = build_parser().parse_args(["optimize", "in", "out", *restated(options.parser, options)])
    left, right = vars(options), vars(again)
    assert {k for k in left if left[k] != right[k] and k != "parser"} == {"jobs", "quiet", "html"}


def test_a_folder_without_models_is_one_sentence(tmp_path: Path, run_xflow: Run) -> None:
    (tmp_path / "in").mkdir()
    done = run_xflow("optimize", tmp_path / "in", tmp_path / "out")
    assert done.returncode == ExitCode.ERROR
    assert_one_sentence(done.stderr)
