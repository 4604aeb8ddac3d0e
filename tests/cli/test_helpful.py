"""Commands that explain: what would be done, what a rule looks like, what there is to work with."""

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from known_rules import saying
from products import RULES, separated, two_products

import xflow
from xflow.cli import entry
from xflow.cli.foreign_flags import ANSWERS, SAME
from xflow.core.errors import ExitCode
from xflow.rewriting.sketch import draw, draw_sides
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules

QUICK: dict[str, Any] = {"rules": RULES, "budget": 5.0, "threads": 1, "check": 1}


def test_explain_names_the_regions_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(separated(), "in.onnx")
    Path("own.rules").write_text("\n".join(map(str, RULES)))
    assert entry.main(["explain", "in.onnx", "--rules", ".", "--budget", "5"]) == ExitCode.OK
    out = capfd.readouterr().out
    assert "1 region of the main graph would be rewritten; operators: 7 > 4" in out
    assert "Region 1: left to once" in out
    assert "before  MatMul 2, Add 1, Relu 1" in out
    assert "by      relu-of-relu, merge-products" in out or "merge-products, relu-of-relu" in out
    assert "CumSum" in out.partition("Left as it is")[2]
    assert max(map(len, out.splitlines())) <= 80
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx", "own.rules"]


def test_explain_in_python_has_the_same() -> None:
    told = xflow.explain(two_products(), **QUICK)
    (region,) = told.regions
    assert region.names == ("left", "right", "sum", "once")
    assert dict(region.rules) == {"merge-products": 1, "relu-of-relu": 1}
    assert (region.before["MatMul"], region.after["MatMul"]) == (2, 1)
    assert "Region 1: left to once" in told._repr_html_()
    twice = xflow.Explanation(told.report, (region, region), ())
    assert "1 more like it" in str(twice)
    assert "Region 2" not in str(twice)
    nothing = xflow.explain(two_products(), **{**QUICK, "rules": []})
    assert nothing.regions == ()
    assert "Nothing would be done" in str(nothing)


def test_two_models_are_compared_in_python_whatever_was_loaded_before() -> None:
    model = two_products()
    result = xflow.optimize(model, cost="estimated", **QUICK)
    agreed = xflow.check(model, result.model, samples=2)
    assert agreed.ok
    assert agreed.samples >= 2
    assert agreed.max_rel < 1e-4
    model.graph.node[-1].op_type = "Sigmoid"
    other = xflow.check(two_products(), model, samples=1)
    assert not other.ok
    assert "differs" in other.reason
    model.graph.output[0].name = model.graph.node[-1].output[0] = "other"
    assert "output" in xflow.check(two_products(), model).reason
    wider = xflow.check(two_products(96), two_products(128)).reason
    assert re.search(r"was float\[.*96\] and is now float\[.*128\]", wider)
    assert {"check", "explain", "optimize", "OptimizePass"} <= set(dir(xflow))
    for name in xflow.__all__:  # a module of that name would take its place once it is loaded
        assert importlib.util.find_spec(f"xflow.{name}") is None


def test_a_notebook_shows_the_verdict_and_no_markup_of_the_model() -> None:
    result = xflow.optimize(two_products(), cost="estimated", **QUICK)
    shown = result._repr_html_()
    assert "merge-products" in shown
    assert shown.count("<table>") == shown.count("</table>") == 2


def test_xflow_is_a_pass_among_others() -> None:
    model = ir.from_proto(two_products())
    before = [node.op_type for node in model.graph]
    made = xflow.OptimizePass(cost="estimated", **QUICK)
    idle = xflow.OptimizePass(cost="estimated", **{**QUICK, "rules": []})
    result = ir.passes.Sequential(made, idle)(model)
    assert result.modified
    assert [node.op_type for node in result.model.graph] == ["MatMul", "Relu"]
    assert [node.op_type for node in model.graph] == before
    assert made.report is not None
    assert idle.report is not None
    assert (made.report.changed, idle.report.changed) == (True, False)


def test_the_sides_of_a_rule_are_drawn() -> None:
    assert draw("Add(Conv(x, w, pads=[*e]), x)") == [
        "Add",
        "├─ Conv",
        "│  │  pads=[*e]",
        "│  ├─ x",
        "│  └─ w",
        "└─ x",
    ]
    assert draw("Mul(Exp(Neg(x)), Exp(Neg(x)))") == [
        "Mul",
        "├─ Exp (1)",
        "│  └─ Neg",
        "│     └─ x",
        "└─ Exp (1)",
    ]
    assert draw("Split(x, axis=0)[1], x") == ["Split[1]", "│  axis=0", "└─ x", "x"]


def test_every_rule_of_the_database_can_be_drawn() -> None:
    for rule in load_rules(default_directory()):
        assert draw_sides(rule.lhs, rule.rhs)


def test_rules_are_listed_by_operator(capfd: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["rules", "list", "--op", "einsum", "-q"]) == ExitCode.OK
    names = capfd.readouterr().out.split()
    rules = {rule.name: rule for rule in load_rules(default_directory())}
    assert names
    assert set(names) == {name for name, rule in rules.items() if "Einsum(" in rule.lhs + rule.rhs}
    assert entry.main(["rules", "list", "--op", "Covn"]) == ExitCode.USAGE
    assert "did you mean Conv" in capfd.readouterr().err


def test_a_rule_is_shown_with_its_drawing(capfd: pytest.CaptureFixture[str]) -> None:
    shown = saying("Relu(Relu(x))", "Relu(x)")
    assert entry.main(["rules", "show", shown.name]) == ExitCode.OK
    text, _, drawing = capfd.readouterr().out.partition("\n\n")
    (rule,) = parse_rules(text)
    assert (rule, rule.notes) == (shown, shown.notes)
    assert drawing.splitlines()[0] == "Relu     =>  Relu"


def test_doctor_says_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XFLOW_CACHE", str(tmp_path / "costs.sqlite"))
    assert entry.main(["doctor", "--threads", "3"]) == ExitCode.OK
    out = capfd.readouterr().out
    for part in ("xflow ", "ONNX Runtime", "cpu works", "3 threads", "costs.sqlite"):
        assert part in out
    assert "calibrated   no;" in out


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_is_a_script_that_knows_the_commands(
    shell: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["completion", shell]) == ExitCode.OK
    script = capfd.readouterr().out
    for word in ("certify", "input-shapes", "derive"):
        assert word in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_bash_completes_commands_flags_and_files_also_without_a_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["completion", "bash"]) == ExitCode.OK
    script = [
        capfd.readouterr().out,
        'try() { COMP_WORDS=(xflow "$@"); COMP_CWORD=$#; _xflow; echo ${COMPREPLY[@]}; }',
        "try ''; try rep; try repv; try a b --budg; try a b --rules d",
        "try certify rep; try rules sh",
    ]
    (tmp_path / "repvgg.onnx").touch()
    (tmp_path / "data").mkdir()
    done = subprocess.run(
        ["bash"], input="\n".join(script), text=True, capture_output=True, cwd=tmp_path, check=True
    )
    first, *others = done.stdout.splitlines()
    assert sorted(first.split()) == sorted(entry.NAMES)
    file = "repvgg.onnx"
    assert [set(line.split()) for line in others] == [
        *({"report", "replay", file}, {file}, {"--budget"}, {"data"}, {file}, {"show"})
    ]


@pytest.mark.parametrize("flag", sorted(ANSWERS))
def test_flags_of_other_tools_are_answered_with_ours(
    flag: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["in.onnx", "out.onnx", flag, "x"]) == ExitCode.USAGE
    (line,) = capfd.readouterr().err.splitlines()
    assert flag in line
    assert "unrecognized" not in line


def test_flags_of_other_tools_that_mean_the_same_are_ours() -> None:
    parser = entry.build_parser()
    line = ["in", "out", "--model-check", "--test-input-shape", "x:1,2", "--check-n=7"]
    options = parser.parse_args(entry.complete(line))
    assert options.input_shapes == [("x", (1, 2))]
    assert options.check == 7
    line = ["--input-shapes", "x:1,2", "y:3", "in", "out", "--check-rtol", "1"]
    options = parser.parse_args(entry.complete(line))
    assert options.input_shapes == [("x", (1, 2)), ("y", (3,))]
    assert (options.input, options.rtol) == ("in", 1.0)
    known = {word for action in _optimize_options(parser) for word in action}
    assert set(SAME.values()) <= known
    assert not known & {*SAME, *ANSWERS}  # ours must not be hidden by theirs


def _optimize_options(parser: Any) -> list[list[str]]:
    (commands,) = (action for action in parser._actions if action.dest == "command")
    return [action.option_strings for action in commands.choices["optimize"]._actions]


def test_a_log_level_is_what_the_short_flags_say() -> None:
    parser = entry.build_parser()
    for level, quiet, verbose in (
        ("error", True, False),
        ("info", False, False),
        ("debug", False, True),
    ):
        options = parser.parse_args(["optimize", "in", "out", "--log-level", level])
        assert (options.quiet, options.verbose) == (quiet, verbose)
    with pytest.raises(xflow.core.errors.UsageError):
        parser.parse_args(["optimize", "in", "out", "--log-level", "loud"])
