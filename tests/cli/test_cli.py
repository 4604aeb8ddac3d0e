"""The command line: one sentence for each mistake, the right exit code, nothing touched."""

import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from known_rules import saying
from rich.console import Console
from sentences import assert_one_sentence

from xflow.cli import entry
from xflow.core.errors import ExitCode, ValidationFailed
from xflow.onnx import files
from xflow.pipeline.pipeline import Result
from xflow.report.report import Deployment, Latency, ModelStats, Ratio, Report, RuleUse, Setting
from xflow.report.tables import render
from xflow.rewriting import store

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file below `folder` with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def workplace(model_file: Path, tmp_path: Path) -> Path:
    """A folder with a model, an older output, and several files that are no models."""
    whole = model_file.read_bytes()
    (tmp_path / "old.onnx").write_bytes(b"an older output")
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "truncated.onnx").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.onnx").write_text("This is not a model.\n" * 20)
    (tmp_path / "picture.onnx").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    return tmp_path


BAD_FILES = {
    "missing": ("absent.onnx", "old.onnx", "no such file"),
    "empty": ("empty.onnx", "old.onnx", "empty"),
    "truncated": ("truncated.onnx", "old.onnx", "truncated"),
    "text": ("text.onnx", "old.onnx", "not an ONNX model"),
    "picture": ("picture.onnx", "old.onnx", "not an ONNX model"),
    "input is a directory": ("input", "old.onnx", "directory"),
    "output is a directory": ("input/model.onnx", "input", "directory"),
    "output in no folder": ("input/model.onnx", "absent/out.onnx", "folder does not exist"),
    "output is the input": ("input/model.onnx", "input/model.onnx", "input"),
    "output is not a file": ("input/model.onnx", "/dev/null", "not a regular file"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_one_sentence_and_exit_code_1(
    kind: str, workplace: Path, run_xflow: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    before = snapshot(workplace)
    source, target, reason = BAD_FILES[kind]
    done = run_xflow(source, target)
    assert done.returncode == ExitCode.ERROR
    assert_one_sentence(done.stderr)
    assert reason in done.stderr
    assert done.stdout == ""
    assert snapshot(workplace) == before


BAD_USAGE = [
    [],
    ["--budget", "-1", "OLD"],
    ["OLD", "--budget", "-1"],
    ["OLD", "--budget", "0"],
    ["OLD", "--budget", "nan"],
    ["OLD", "--budget", "inf"],
    ["OLD", "--budget", "soon"],
    ["OLD", "--threads", "0"],
    ["OLD", "--threads", "1.5"],
    ["OLD", "--provider", "abacus"],
    ["OLD", "--cost", "guessed"],
    ["OLD", "--check", "0"],
    ["OLD", "--rtol", "-1e-3"],
    ["OLD", "--atol", "x"],
    ["OLD", "--seed", "-1"],
    ["OLD", "--seed", "9" * 5000],
    ["OLD", "--input-shapes", "x"],
    ["OLD", "--input-shapes", ":1,2"],
    ["OLD", "--input-shapes", "x:1,-2"],
    ["OLD", "--input-shapes", "x:1,,2"],
    ["OLD", "--input-shapes", "x:1", "--input-shapes", "x:2"],
    ["OLD", "--objective", "beauty"],
    ["OLD", "--no-such-option"],
    ["OLD", "third"],
    ["OLD", "-q", "-v"],
    ["OLD", "--report", "OLD"],
]


@pytest.mark.parametrize("arguments", BAD_USAGE, ids=lambda a: " ".join(a)[:40] or "no output")
def test_a_usage_error_is_one_sentence_and_exit_code_2(
    arguments: list[str], workplace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(workplace)
    old = str(workplace / "old.onnx")
    given = [old if item == "OLD" else item for item in arguments]
    assert entry.main([str(workplace / "input" / "model.onnx"), *given]) == ExitCode.USAGE
    out, err = capfd.readouterr()
    assert out == ""
    assert_one_sentence(err)
    assert snapshot(workplace) == before


@pytest.mark.parametrize(
    "arguments",
    [["rules"], ["rules", "burn"], ["rules", "show"], ["rules", "generate", "--jobs", "0"]],
)
def test_a_usage_error_of_the_rules_command_is_exit_code_2(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(arguments) == ExitCode.USAGE
    assert_one_sentence(capfd.readouterr().err)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_help_fits_on_a_screen(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        entry.main(arguments)
    assert caught.value.code == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_help_loads_neither_the_runtime_nor_onnx() -> None:
    script = (
        "import sys, contextlib\n"
        "from xflow import cli\n"
        "with contextlib.suppress(SystemExit): cli.main(['optimize', '--help'])\n"
        "heavy = {'onnx', 'onnxruntime', 'numpy', 'z3', 'rich', 'sympy'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)


def test_the_bare_form_means_optimize() -> None:
    assert entry.complete(["a", "b"]) == ["optimize", "a", "b"]
    assert entry.complete(["--budget", "5", "a", "b"]) == ["optimize", "--budget", "5", "a", "b"]
    assert entry.complete(["-v", "a", "b"]) == ["optimize", "-v", "a", "b"]
    assert entry.complete(["optimize", "a", "b"]) == ["optimize", "a", "b"]
    assert entry.complete(["-q", "rules", "list"]) == ["rules", "list", "-q"]


def test_shapes_are_read_whatever_the_name_holds() -> None:
    parse = entry.build_parser().parse_args
    shapes = ["--input-shapes", "x:1,3,224,224", "--input-shapes", "scope/in:0:7"]
    options = parse(["optimize", "a", "b", *shapes, "--input-shapes", "scalar:"])
    assert options.input_shapes == [
        ("x", (1, 3, 224, 224)),
        ("scope/in:0", (7,)),
        ("scalar", ()),
    ]


def test_the_kth_shapes_of_all_inputs_are_the_kth_setting(
    fake: types.SimpleNamespace, model_file: Path, tmp_path: Path
) -> None:
    arguments = ["-q", str(model_file), str(tmp_path / "out.onnx")]
    assert entry.main(arguments) == ExitCode.OK
    assert fake.options["input_shapes"] == [{}]
    for shape in ("x:1,4", "z:7", "x:8,4"):
        arguments += ["--input-shapes", shape]
    assert entry.main(arguments) == ExitCode.OK
    assert fake.options["input_shapes"] == [{"x": (1, 4), "z": (7,)}, {"x": (8, 4), "z": (7,)}]
    assert entry.main([*arguments, *(["--input-shapes", "z:1", "--input-shapes", "z:2"])]) == 2


RULES = """\
rule swap
  in       x[...] y[...]
  from     Add(x, y)
  to       Add(y, x)

rule merge-matmuls
  in       x[m, k] a[k, n] b[k, n]
  from     Add(MatMul(x, a), MatMul(x, b))
  to       MatMul(x, Add(a, b))
  where    k >= 1
"""


def report(**changes: Any) -> Report:
    """Return a report of a run that changed something."""
    facts: dict[str, Any] = {
        "changed": True,
        "before": ModelStats({"Conv": 3, "Add": 2, "BatchNormalization": 4}),
        "after": ModelStats({"Conv": 1, "Relu": 1}),
        "target": Deployment("cpu", 2),
        "latency_before": Latency(0.02, 0.001),
        "latency_after": Latency(0.01, 0.001),
        "ratio": Ratio(2.0, 1.9, 2.1),
        "largest_error": 1e-6,
        "rules": (RuleUse("swap", 2, 0.01),),
        "phases": {"search": 1.0},
    }
    return Report(**{**facts, **changes})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> types.SimpleNamespace:
    """The parts below the command line replaced by ones that tests control."""
    state = types.SimpleNamespace(report=report(), model=None, error=None, options=None)
    state.failures, state.rules = [], tmp_path / "the-rules"
    state.rules.mkdir()
    (state.rules / "some.rules").write_text(RULES)

    def optimize(model: str, **options: Any) -> Result:
        state.options = options
        if state.error is not None:
            raise state.error
        options["progress"]("search", {"best": 0.5})
        result = state.model or files.load_model(model)
        return Result(result, state.report, Path(model))

    def generate(out: Path, **options: Any) -> types.SimpleNamespace:
        state.options = {"out": out, **options}
        return types.SimpleNamespace(rows=[("kept", 7), ("seconds", 1.5)])

    def verify_directory(_: Path, progress: Callable[[int, int], None], __: int) -> list[Any]:
        progress(1, 2)
        failures: list[Any] = state.failures
        return failures

    modules: Mapping[str, dict[str, Any]] = {
        "xflow.pipeline.api": {"optimize": optimize},
        "xflow.verifier.database": {"verify_directory": verify_directory},
        "xflow.generator.run": {"generate": generate},
    }
    for name, members in modules.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
        # `from package import name` looks at the package first.
        package, _, last = name.rpartition(".")
        monkeypatch.setattr(importlib.import_module(package), last, module, raising=False)
    monkeypatch.setattr(store, "default_directory", lambda: state.rules)
    return state


def test_a_run_writes_the_model_and_the_report_and_shows_the_table(
    fake: types.SimpleNamespace,
    model_file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out, written = tmp_path / "out.onnx", tmp_path / "report.json"
    code = entry.main([str(model_file), str(out), "--report", str(written), "--threads", "3"])
    assert code == ExitCode.OK
    files.load_model(out)
    table = capfd.readouterr().out
    assert max(map(len, table.splitlines())) <= 80
    for word in (
        "Conv",
        "BatchNormalization",
        "20.00 ± 1.00 ms",
        "2.000 (1.900 to",
        "swap",
        "1e-06",
    ):
        assert word in table
    content = json.loads(written.read_text())
    assert content["version"] == 3
    assert content["output"] == str(out)
    assert content["rules"] == [{"name": "swap", "count": 2, "gain": 0.01, "gain_from": "region"}]
    assert set(content["phases"]) == {"search", "write"}
    assert fake.options["threads"] == 3
    assert fake.options["budget"] == 60.0


def test_an_unchanged_model_is_written_byte_for_byte(
    fake: types.SimpleNamespace,
    model_file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out.onnx"
    said = "nothing could be gained: the output is the input's own graph"
    fake.report = report(changed=False, messages=(said,))
    assert entry.main([str(model_file), str(out)]) == ExitCode.OK
    assert out.read_bytes() == model_file.read_bytes()
    assert said in capfd.readouterr().out
    out.unlink()
    assert entry.main([str(model_file), str(out), "--fail-if-not-faster"]) == ExitCode.NOT_FASTER
    assert out.read_bytes() == model_file.read_bytes()


def test_quiet_says_nothing(
    fake: types.SimpleNamespace,
    model_file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert entry.main(["-q", str(model_file), str(tmp_path / "out.onnx")]) == ExitCode.OK
    assert capfd.readouterr() == ("", "")


def test_a_failed_validation_is_exit_code_3_and_writes_nothing(
    fake: types.SimpleNamespace, model_file: Path, tmp_path: Path
) -> None:
    fake.error = ValidationFailed("the outputs differ by 0.3")
    old = tmp_path / "old.onnx"
    old.write_bytes(b"old")
    assert entry.main([str(model_file), str(old)]) == ExitCode.VALIDATION_FAILED
    assert old.read_bytes() == b"old"


def test_an_unexpected_exception_is_one_sentence(
    fake: types.SimpleNamespace,
    model_file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fake.error = KeyError("some\nname")
    arguments = [str(model_file), str(tmp_path / "out.onnx")]
    assert entry.main(arguments) == ExitCode.ERROR
    err = capfd.readouterr().err
    assert len(err.splitlines()) == 1
    assert "internal error: KeyError: 'some\\nname'; rerun with -v" in err
    assert entry.main([*arguments, "-v"]) == ExitCode.ERROR
    assert "Traceback" in capfd.readouterr().err
    fake.error = KeyboardInterrupt()
    assert entry.main(arguments) == ExitCode.INTERRUPTED
    assert_one_sentence(capfd.readouterr().err)


@pytest.mark.parametrize("option", ["--only-rules", "--skip-rules"])
def test_an_unknown_rule_is_one_sentence_with_proposals(
    option: str,
    fake: types.SimpleNamespace,
    model_file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out.onnx"
    assert entry.main([str(model_file), str(out), option, "swap", "merge-matmul"]) == ExitCode.ERROR
    err = capfd.readouterr().err
    assert_one_sentence(err)
    assert "did you mean merge-matmuls?" in err
    assert not out.exists()


def test_a_missing_folder_of_rules_is_one_sentence(
    fake: types.SimpleNamespace,
    model_file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out.onnx"
    for folder in (tmp_path / "absent", model_file):
        assert entry.main([str(model_file), str(out), "--rules", str(folder)]) == ExitCode.ERROR
        assert_one_sentence(capfd.readouterr().err)


def test_rules_are_listed_and_shown(
    fake: types.SimpleNamespace, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["rules", "list"]) == ExitCode.OK
    assert capfd.readouterr().out.splitlines() == [
        "swap           Add(x, y) => Add(y, x)",
        "merge-matmuls  Add(MatMul(x, a), MatMul(x, b)) => MatMul(x, Add(a, b)) where k >= 1",
    ]
    assert entry.main(["rules", "list", "-q"]) == ExitCode.OK
    assert capfd.readouterr().out == "swap\nmerge-matmuls\n"
    assert entry.main(["rules", "show", "swap"]) == ExitCode.OK
    shown = capfd.readouterr().out
    assert shown.partition("\n\nAdd ")[0] == RULES.partition("\n\n")[0]
    assert entry.main(["rules", "show", "swop"]) == ExitCode.ERROR
    assert "did you mean swap?" in capfd.readouterr().err


def test_verify_counts_the_rules_or_fails_on_the_first(
    fake: types.SimpleNamespace, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["rules", "verify"]) == ExitCode.OK
    assert capfd.readouterr().out == "2 rules in 2 stanzas proved again\n"
    failure = types.SimpleNamespace(rule_name="swap", verdict_text="refuted at\nx = 1: 2 and 3")
    fake.failures = [failure]
    assert entry.main(["rules", "verify"]) == ExitCode.ERROR
    err = capfd.readouterr().err
    assert_one_sentence(err)
    assert "rule swap" in err
    assert "x = 1: 2 and 3" in err


WRONG = """\
rule commute-matmul
  in       a[n, n] b[n, n]
  from     MatMul(a, b)
  to       MatMul(b, a)
"""


def test_a_wrong_rule_fails_with_a_counterexample(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.rules"
    path.write_text(RULES)
    assert entry.main(["rules", "verify", str(tmp_path)]) == ExitCode.OK
    assert capfd.readouterr().out == "2 rules in 2 stanzas proved again\n"
    path.write_text(RULES + "\n" + WRONG)
    assert entry.main(["rules", "verify", str(tmp_path)]) == ExitCode.ERROR
    err = capfd.readouterr().err
    assert_one_sentence(err)
    assert "rule commute-matmul" in err
    assert "refuted" in err
    path.write_text("rule broken\n  from\n")
    assert entry.main(["rules", "verify", str(tmp_path)]) == ExitCode.ERROR
    assert_one_sentence(capfd.readouterr().err)


def test_generate_shows_its_summary(
    fake: types.SimpleNamespace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rules"
    assert entry.main(["rules", "generate", "--out", str(out), "--max-ops", "2"]) == ExitCode.OK
    assert "kept" in capfd.readouterr().out
    assert fake.options["out"] == out
    assert fake.options["max_ops"] == 2


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "xflow", "optimize", "--help"]
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end) as pipe:
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert "Traceback" not in done.stderr


SLOW = """
import signal, sys, time, types
from pathlib import Path
from xflow import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell has no terminal
api = types.ModuleType("xflow.pipeline.api")
def optimize(*_, **__):
    print("ready", flush=True)
    for _ in range(12_000):  # Python sleeps on where a signal comes just before it falls asleep
        time.sleep(0.005)
api.optimize = optimize
sys.modules["xflow.pipeline.api"] = api
import xflow
import xflow.pipeline
xflow.pipeline.api = api
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_searching_touches_nothing(kind: signal.Signals, workplace: Path) -> None:
    before = snapshot(workplace)
    arguments = [str(workplace / "input" / "model.onnx"), str(workplace / "old.onnx")]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(kind)
        _, err = child.communicate(timeout=60)
    assert child.returncode == (ExitCode.INTERRUPTED if kind == signal.SIGINT else -kind)
    assert "Traceback" not in err
    assert snapshot(workplace) == before


SEARCHING = """
import os, signal, sys, time, types
from xflow import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
from xflow.pipeline import api
from xflow.onnx import files
from xflow.pipeline.pipeline import Result
from xflow.report.report import Deployment, ModelStats, Report
def optimize(model, *, progress, stop, **_):
    progress("search", {})
    print("ready", flush=True)
    while not stop():
        time.sleep(0.005)
    progress("check", {})
    print("stopped", flush=True)
    for _ in range(int(os.environ["LONGER"])):
        time.sleep(0.005)
    stats = ModelStats({})
    return Result(files.load_model(model), Report(True, stats, stats, Deployment("cpu", 1)))
api.optimize = optimize
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("twice", [False, True])
def test_the_first_interruption_ends_the_search_and_the_second_one_all(
    twice: bool, workplace: Path
) -> None:
    before = snapshot(workplace)
    arguments = [str(workplace / "input" / "model.onnx"), str(workplace / "new.onnx"), "-q"]
    with subprocess.Popen(
        [sys.executable, "-c", SEARCHING, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LONGER": "12000" if twice else "0"},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "stopped\n"
        if twice:
            child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert "stopping the search" in err
    assert "Traceback" not in err
    if twice:
        assert child.returncode == ExitCode.INTERRUPTED
        assert snapshot(workplace) == before
    else:
        assert child.returncode == ExitCode.OK
        assert (workplace / "new.onnx").exists()


def test_a_model_in_external_data_comes_out_whole(
    fake: types.SimpleNamespace, external_model_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.onnx"
    for changed in (True, False):
        fake.report = report(changed=changed)
        assert entry.main(["-q", str(external_model_file), str(out)]) == ExitCode.OK
    shutil.rmtree(external_model_file.parent)
    model = files.load_model(out)
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    assert (tensor.numpy() == 1.0).all()


def test_a_report_is_json_whatever_the_numbers_are() -> None:
    facts = report(largest_error=float("inf"), ratio=Ratio(float("nan"), 0.0, 1.0))
    content = json.loads(facts.to_json())
    assert content["largest_error"] == "inf"
    assert content["ratio"]["value"] == "nan"


def test_the_table_shows_the_objective_the_settings_and_where_gains_come_from() -> None:
    slow, fast = Latency(0.02, 0.001), Latency(0.01, 0.001)
    facts = report(
        objective="memory",
        amount_before=3 * 2**20,
        amount_after=2**20,
        settings=(
            Setting({"x": (1, 4)}, slow, fast, Ratio(2.0, 1.9, 2.1)),
            Setting({"x": (8, 4), "z": ()}, slow, slow, Ratio(1.0, 0.9, 1.1)),
        ),
        rules=(
            RuleUse("swap", 2, 2**21, "model"),
            RuleUse("merge", 1, 512, "region"),
        ),
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(facts))
    shown = console.export_text()
    for text in ("Peak memory", "3.00 MiB", "at x:1,4", "at x:8,4 z:", "2.00 MiB", "~ 512 B"):
        assert text in shown
    assert "~ by measuring the rewritten regions alone" in shown
    assert json.loads(facts.to_json())["settings"][1]["shapes"] == {"x": [8, 4], "z": []}


def test_settings_of_many_inputs_are_told_from_each_other_by_a_few() -> None:
    caches = [f"past.{number}" for number in range(48)]
    facts = report(
        settings=tuple(
            Setting({"scale": (1,), "ids": (1, new), **dict.fromkeys(caches, (1, 2, past, 64))})
            for new, past in ((128, 0), (1, 512))
        ),
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(facts))
    shown = console.export_text()
    for text in ("at ids:1,128", "at ids:1,1 ", "past.0:1,2,0,64", "past.1:1,2,512,64"):
        assert text in shown
    assert shown.count("and 46") == 2  # the others are folded into that
    assert "past.2:" not in shown
    assert "scale" not in shown


def test_a_table_of_many_long_names_fits_80_columns() -> None:
    name = "very-long-name-of-an-operator-or-rule-" * 4
    operators = {f"{name}{number}": number for number in range(40)}
    facts = report(
        before=ModelStats(operators),
        latency_before=Latency(123.456, 99.5),
        rules=tuple(RuleUse(f"{name}{number}", number, 1e-7) for number in range(20)),
        messages=("word " * 60,),
        warnings=(name * 2,),
        phases={f"phase {number}": 1000.0 for number in range(12)},
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(facts))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["optimise", "a", "b"], "did you mean optimize?"),
        (["doctr"], "did you mean doctor?"),
        (["a", "b", "--buget", "5"], "did you mean --budget"),
        (["check", "a", "b", "--max-regres=5"], "did you mean --max-regress?"),
        (["rules", "lst"], "did you mean list?"),
        (["a", "b", "--objective", "speed"], "choose from latency, memory, size, nodes"),
        (["a", "b", "c"], "'c' is one argument too many; see xflow optimize --help"),
    ],
)
def test_a_misspelled_word_is_answered_with_what_was_meant(
    arguments: list[str], meant: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(arguments) == ExitCode.USAGE
    err = capfd.readouterr().err
    assert_one_sentence(err)
    assert meant in err


def through(monkeypatch: pytest.MonkeyPatch, model: onnx.ModelProto, *arguments: str) -> int:
    """The exit code of a command that reads a model from the standard input."""
    data = io.TextIOWrapper(io.BytesIO(model.SerializeToString()))
    monkeypatch.setattr(sys, "stdin", data)
    return entry.main(arguments)


def test_check_and_explain_read_a_pipe(
    model_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model = onnx.load(model_file)
    assert through(monkeypatch, model, "check", str(model_file), "-") == ExitCode.OK
    assert through(monkeypatch, model, "explain", "-", "--budget", "1") == ExitCode.OK
    model.graph.output[0].name = "other"
    model.graph.node[-1].output[0] = "other"
    assert through(monkeypatch, model, "check", "-", str(model_file)) == ExitCode.DIFFERENT
    assert "outputs were 'other'" in capfd.readouterr().err
    for words in (["check", "-", "-"], ["certify", "-", "b", "c"], ["a", "b", "--report", "-"]):
        assert through(monkeypatch, model, *words) == ExitCode.USAGE
        assert_one_sentence(capfd.readouterr().err)


def test_page_and_report_do_not_go_to_one_file(
    model_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told, out = str(tmp_path / "told"), str(tmp_path / "out.onnx")
    line = [str(model_file), out, "--report", told, "--html", told]
    assert entry.main(line) == ExitCode.USAGE
    assert_one_sentence(capfd.readouterr().err)


def test_what_comes_through_a_pipe_and_is_no_model_is_told_without_a_file_of_ours() -> None:
    line = [sys.executable, "-m", "xflow", "-", "-"]
    done = subprocess.run(line, input=b"no model", capture_output=True, check=False)
    assert done.returncode == ExitCode.ERROR
    assert done.stdout == b""
    assert done.stderr.decode().strip() == "xflow: standard input: this is not an ONNX model"


PROGRAM = """
import sys
from xflow import cli

if __name__ == "__main__":
    code = cli.main()
    import loky
    with loky.ProcessPoolExecutor(1) as pool:  # as the search starts them
        print(pool.submit(len, "abc").result(60))
    sys.exit(code)
"""


def test_no_module_is_taken_from_the_folder_at_hand(tmp_path: Path) -> None:
    """Nor by the processes that are started: models lie in folders of other people."""
    folder, program = tmp_path / "models", tmp_path / "program.py"
    folder.mkdir()
    program.write_text(PROGRAM)
    trap = f"open({str(tmp_path / 'sprung')!r}, 'w').close()\nraise ImportError('a trap')\n"
    for name in ("loky", "multiprocessing", "onnx", "numpy", "z3", "cvc5", "pickle"):
        (folder / f"{name}.py").write_text(trap)
    line = ["rules", "recheck", "--rule", saying("Relu(Relu(x))", "Relu(x)").name, "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-P", program, *line],
        cwd=folder,
        env={key: text for key, text in os.environ.items() if key != "PYTHONSAFEPATH"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stdout.endswith("3\n")
    assert not (tmp_path / "sprung").exists()
