"""`xflow prove`: verdicts, exit codes, sentences about mistakes, counterexamples that run."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from compare_verifiers import FOREIGN, HEADER, MARK, PAGE, markdown
from compare_verifiers import main as compare
from places import CORPUS

from xflow.cli.entry import main
from xflow.core.errors import ExitCode
from xflow.core.registry import Array
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.preconditions import left_conditions
from xflow.verifier.refutation.counterexample import Counterexample, evaluate
from xflow.verifier.refutation.refute import Survived, compare_on, search_counterexample
from xflow.verifier.refutation.runnable import save_counterexample
from xflow.verifier.refutation.shrink import shrink

BAD = parse_rules((CORPUS / "bad.rules").read_text(), "bad.rules")
ASSOCIATIVITY = ("a[n,m] b[m,k] c[k,l]", "MatMul(MatMul(a, b), c)", "MatMul(a, MatMul(b, c))")
COMMUTED = ("a[n,n] b[n,n]", "MatMul(a, b)", "MatMul(b, a)")
PADS = ("x[n]", "Pad(Pad(x, pads=[p, p]), pads=[q, q])", "Pad(x, pads=[p + q, p + q])")
CLIPPED = ("x[n]", "Erf(Erf(x))", "Erf(Min(Erf(x), 2))")
"""True, but the prover does not know that Erf is below 2."""


def prove(sides: Sequence[str], *options: str) -> int:
    inputs, left, right = sides
    return main(["prove", "--in", inputs, left, right, *options])


def one(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return rule


def found_for(rule: Rule) -> Counterexample:
    found = search_counterexample(rule)
    assert isinstance(found, Counterexample)
    return found


# Verdicts


def test_a_true_rule_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(ASSOCIATIVITY) == 0
    out = capsys.readouterr().out
    assert out.startswith("proved (")
    assert re.search(r"^  where +finite\(a\)$", out, re.MULTILINE)
    assert re.search(r"^  reverse +where finite\(c\)$", out, re.MULTILINE)


def test_a_wrong_rule_is_refuted(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(COMMUTED) == 10
    out = capsys.readouterr().out
    assert out.startswith("refuted (")
    assert "n = 2" in out


def test_what_is_neither_proved_nor_refuted_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(CLIPPED) == 11
    assert re.search(r"^  reason +\S", capsys.readouterr().out, re.MULTILINE)


def test_conditions_that_are_needed_are_found_and_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert prove(PADS, "--param", "p q") == ExitCode.OK
    out = capsys.readouterr().out
    assert re.search(r"^  where +p >= 0$", out, re.MULTILINE)
    assert re.search(r"^  or else +with .*p = -1", out, re.MULTILINE)


def test_without_inference_the_rule_must_hold_as_it_stands() -> None:
    assert prove(PADS, "--param", "p q", "--no-infer") == ExitCode.REFUTED
    assert prove(PADS, "--param", "p", "--param", "q", "--no-infer", "--where", "p >= 0") == 0


def test_given_conditions_are_not_said_to_be_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(PADS, "--param", "p q", "--where", "p >= 0") == ExitCode.OK
    out = capsys.readouterr().out
    assert re.search(r"^  given +p >= 0$", out, re.MULTILINE)
    assert "or else" not in out


def test_what_the_left_side_requires_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a broadcast of one element nothing is said."""
    sums = ("ReduceSum(Add(x, y))", "Add(ReduceSum(x), ReduceSum(y))")
    assert prove(("x[n] y[m]", *sums)) == 0
    assert "  assumes       n == m\n" in capsys.readouterr().out
    assert prove(("x[n] y[n]", *sums)) == 0
    assert "assumes" not in capsys.readouterr().out


def test_ranks_are_those_that_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    sides = ("x[N, C, *S]", "Relu(Relu(x))", "Relu(x)")
    assert prove(sides, "--rank", "1 2") == ExitCode.OK
    assert re.search(r"^  ranks +1 2\b", capsys.readouterr().out, re.MULTILINE)


def test_verbose_prints_the_certificate_and_quiet_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert prove(ASSOCIATIVITY, "-v") == ExitCode.OK
    out = capsys.readouterr().out
    assert "a[_i0," in out
    assert "assume" in out
    assert prove(COMMUTED, "-q") == ExitCode.REFUTED
    assert capsys.readouterr().out == ""


def test_the_certificate_is_written(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    assert prove(ASSOCIATIVITY, "--certificate", str(path)) == ExitCode.OK
    assert json.loads(path.read_text())["ranks"]


# Files


RULES = """\
# ideas
rule relu-twice
  in       x[...]
  from     Relu(Relu(x))
  to       Relu(x)

rule relu-dropped
  in       x[...]
  from     Relu(x)
  to       x
"""


def test_a_file_gets_a_line_for_each_rule_and_the_worst_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ideas.rules"
    path.write_text(RULES)
    certificates = tmp_path / "proofs.json"
    arguments = ["prove", str(path), "--certificate", str(certificates)]
    assert main([*arguments, "--save-counterexample", str(tmp_path / "wrong")]) == ExitCode.REFUTED
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if " s  relu-" in line] == ["proved", "refuted"]
    assert lines[-1].startswith("2 rules: 1 proved, 1 refuted in ")
    assert (tmp_path / "wrong" / "relu-dropped" / "run.py").exists()
    written = json.loads(certificates.read_text())
    assert written["relu-twice"]
    assert written["relu-dropped"] is None
    unknown = f"{RULES.split('rule relu-dropped', maxsplit=1)[0]}rule u\n  in x[n]\n"
    path.write_text(f"{unknown}  from {CLIPPED[1]}\n  to {CLIPPED[2]}\n")
    assert main(["prove", str(path)]) == ExitCode.UNKNOWN


def test_a_claimed_reverse_is_proved_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.rules"
    text = "rule q\n  in x[...] y[...]\n  from Div(Mul(x, y), y)\n  to x\n  reverse always\n"
    path.write_text(text)
    assert main(["prove", str(path), "--no-infer"]) == ExitCode.REFUTED
    assert re.search(r"^refuted .* q\.reverse", capsys.readouterr().out, re.MULTILINE)


# Mistakes


MISTAKES = {
    "MatMul(a, ": (["a[n,m]", "MatMul(a, ", "a"], "left side at column 7", "never closed"),
    "unknown operator": (["a[n,m]", "a", "Relu(Matmull(a, a))"], "column 6", "mean MatMul"),
    "undeclared input": (["a[n,m]", "Relu(Relu(b))", "a"], "left side at column 11", "'b'"),
    "undeclared size": (
        ["a[n]", "a", "Pad(a, pads=[q, 0])"],
        "right side at column 1",
        "q is not declared",
    ),
    "rank mismatch": (["a[n,m]", "a", "ReduceSum(a, axes=[1], keepdims=0)"], "[n]", "ranks"),
    "shapes": (["a[n,m]", "a", "Concat(a, a, axis=5)"], "right side", "axis 5"),
    "attribute": (["a[n]", "a", "Relu(a, slope=3)"], "right side", "no attribute slope"),
    "two outputs": (["a[n]", "a", "a, a"], "", "numbers of outputs"),
    "inputs": (["a[n,m", "a", "a"], "in the inputs", "is no input"),
    "input twice": (["a[n] a[m]", "a", "a"], "in the inputs", "a is declared twice"),
    "no right side": (["a[n]", "a"], "", "not 1"),
    "empty side": (["a[n]", "", "a"], "left side", "no expression"),
    "condition": (["a[n]", "a", "a", "--where", "n >"], "condition", "cannot be read"),
    "condition's symbol": (["a[n]", "a", "a", "--where", "q > 1"], "'q > 1'", "q is not declared"),
    "parameter": (["a[n]", "a", "a", "--param", "7"], "in the parameters", "'7' is no name"),
    "rank": (["a[*n]", "a", "a", "--rank", "two"], "in the ranks", "'two' is no number"),
    "types": (["a[n]", "a", "a", "--types", "floats"], "", "'floats' are no types"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_sentence_that_says_where(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, where, what = MISTAKES[kind]
    assert main(["prove", "--in", *arguments]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    (sentence,) = captured.err.splitlines()
    assert sentence.startswith("xflow: ")
    assert where in sentence
    assert what in sentence


def test_a_mistake_in_a_file_names_the_file_the_line_and_the_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ideas.rules"
    path.write_text(RULES.replace("to       x", "to       Rellu(x)"))
    assert main(["prove", str(path)]) == ExitCode.USAGE
    (sentence,) = capsys.readouterr().err.splitlines()
    assert f"{path}:7, rule relu-dropped, in the right side at column 1" in sentence
    assert "did you mean Relu" in sentence


@pytest.mark.parametrize(
    "arguments", [[], ["--param", "p", "f.rules"], ["no-such-file.rules"], ["Relu(a)", "a"]]
)
def test_a_command_that_makes_no_sense_is_one_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", *arguments]) in (ExitCode.USAGE, ExitCode.ERROR)
    assert len(capsys.readouterr().err.splitlines()) == 1


# Counterexamples


def test_a_saved_counterexample_runs_in_onnx_runtime_and_differs(tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    assert prove(COMMUTED, "--save-counterexample", str(folder)) == ExitCode.REFUTED
    inputs = dict(np.load(folder / "inputs.npz"))
    outputs = [
        ort.InferenceSession(folder / f"{side}.onnx", providers=["CPUExecutionProvider"]).run(
            None, inputs
        )[0]
        for side in ("left", "right")
    ]
    assert not np.allclose(*outputs)
    command = [sys.executable, str(folder / "run.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the sides differ" in done.stdout


def test_a_side_without_an_onnx_form_of_its_own_is_folded(tmp_path: Path) -> None:
    rule = one("rule i\n  in x[n, n]\n  from x\n  to MatMul(x, Mul(2, Ones(shape=[n, n])))\n")
    saved = save_counterexample(shrink(rule, found_for(rule)), tmp_path)
    assert saved.confirmed, saved.remarks


def test_a_right_side_that_is_not_defined_is_said_to_be_so(tmp_path: Path) -> None:
    (rule,) = [rule for rule in BAD if rule.name == "mean-of-a-possibly-empty-axis"]
    found = shrink(rule, found_for(rule))
    assert found.right_outputs is None
    assert "(it needs m >= 1)" in found.reason
    saved = save_counterexample(found, tmp_path)
    assert saved.files == ("inputs.npz", "left.onnx")
    assert "there is no right.onnx" in saved.remarks[0]


def test_the_expression_that_is_not_defined_is_named() -> None:
    rule = one("rule q\n  in x[...]\n  from x\n  to Mul(x, Mul(x, Reciprocal(x)))\n")
    found = shrink(rule, found_for(rule))
    assert found.reason.endswith("where Reciprocal(x) is not defined")
    assert found.inputs["x"].tolist() == 0


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.name)
def test_a_shrunk_counterexample_is_one_and_is_not_larger(rule: Rule) -> None:
    found = found_for(rule)
    small = shrink(rule, found)
    assert size_of(small) <= size_of(found) or 0 in found.sizes.values()
    instance = rule.instance(small.rank)
    again = compare_on(instance, small.sizes, small.reals, small.inputs)
    assert isinstance(again, Counterexample)
    assert again.reason == small.reason
    if not instance.broadcast:
        assert all(c.substitute(small.sizes).decided for c in left_conditions(instance))
    assert small.to_json() == shrink(rule, found).to_json()


def size_of(found: Counterexample) -> int:
    return sum(array.size for array in found.inputs.values())


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.name)
def test_the_snippet_computes_both_outputs_from_its_text_alone(rule: Rule) -> None:
    found = shrink(rule, found_for(rule))
    json.dumps(found.to_json(), allow_nan=False)
    left = evaluate(found.left, **found.inputs)
    assert all(map(same, left, found.left_outputs))
    if found.right_outputs is not None:
        assert all(map(same, evaluate(found.right, **found.inputs), found.right_outputs))


def same(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True))


def test_the_snippet_is_python_that_runs() -> None:
    snippet = shrink(BAD[0], found_for(BAD[0])).snippet()
    command = [sys.executable, "-c", snippet]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 2


SUBTLE = {
    "stride-three-and-uneven-pads": """
  in       x[N, C, S] w[O, C, R]
  param    s e f
  from     Conv(x, w, strides=[s], pads=[e, f])
  to       Conv(x, w, strides=[s], pads=[e, f + (s - 1)*(s - 2)*(e - f)])
  where    e >= 0, f >= 0, s <= 3, f + (s - 1)*(s - 2)*(e - f) >= 0
""",
    "stride-three-and-dilation-two": """
  in       x[N, C, S] w[O, C, R]
  param    s d
  from     Conv(x, w, strides=[s], dilations=[d])
  to       Conv(x, w, strides=[s + (s - 1)*(s - 2)*(d - 1)], dilations=[d])
  where    s <= 3, d <= 2
""",
    "clipped-at-six": "\n  in x[...]\n  from Relu(x)\n  to Min(Relu(x), 6)\n",
    "clipped-at-twenty": "\n  in x[n]\n  from x\n  to Min(x, 20)\n",
    "wrong-from-eight-on": """
  in       a[n]
  from     a
  to       Pad(Slice(Pad(a, pads=[0, 7]), starts=[0], ends=[7], axes=[0], steps=[1]), pads=[0, n-7])
  where    n >= 7
""",
    "wrong-for-equal-elements": """
  in       x[n] y[n]
  from     Relu(Sub(x, y))
  to       Mul(Div(Sub(x, y), Sub(x, y)), Relu(Sub(x, y)))
""",
}


@pytest.mark.parametrize("name", SUBTLE)
def test_sampling_meets_rare_cases(name: str) -> None:
    rule = one(f"rule {name}{SUBTLE[name]}")
    found = [search_counterexample(rule, seed=seed) for seed in range(3)]
    assert not all(isinstance(result, Survived) for result in found)
    assert isinstance(found[0], Counterexample)


# The table of verifiers


def test_every_figure_of_the_others_has_a_source_and_stands_in_the_page() -> None:
    page = PAGE.read_text()
    rows = markdown(FOREIGN, ()).splitlines()
    for system in FOREIGN:
        assert system.sources
        assert all(source.url.startswith("https://") for source in system.sources)
    assert page.count(f"<!-- {MARK} -->") == page.count(f"<!-- /{MARK} -->") == 1
    assert all(row in page for row in rows if row.startswith("|")), "run make compare"


def test_the_table_of_verifiers_is_measured_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "a.rules").write_text(RULES.split("\nrule relu-dropped", maxsplit=1)[0])
    page = tmp_path / "page.md"
    page.write_text(f"before\n<!-- {MARK} -->\nold\n<!-- /{MARK} -->\nafter\n")
    arguments = ["--rules", str(folder), "--page", str(page), "--jobs", "1"]
    arguments += ["--axioms", str(tmp_path / "none")]
    assert compare(arguments) == 0
    text = page.read_text()
    assert text.startswith(f"before\n<!-- {MARK} -->\n| {' | '.join(HEADER)} |")
    assert text.endswith(f"\n<!-- /{MARK} -->\nafter\n")
    assert "old" not in text.splitlines()
    (own,) = [line for line in text.splitlines() if line.startswith("| xflow")]
    assert "1 of 1" in own
    assert "confirmed 0 of 1" in own
    assert "\n- wrong: there is no certificate" in text
    assert own in capsys.readouterr().out
    (folder / "b.rules").write_text(f"rule relu-dropped{RULES.split('rule relu-dropped')[1]}")
    assert compare(arguments) == 1
    assert "relu-dropped" in capsys.readouterr().err
