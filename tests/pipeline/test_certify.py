"""Reports can be replayed and certified, and whatever does not follow is caught."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files as resources
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx.parser
import pytest
from attention_models import A_ROW_COVERED, CAUSAL, attention
from certified import Json, optimized, proved
from known_rules import saying
from onnx import helper, numpy_helper
from products import listed, separated, two_products

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode, NotCertified, ReportError
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.onnx import files
from xflow.pipeline.certify import Rechecked, certify, replayed, same_digest
from xflow.pipeline.log import digest_of, read_report
from xflow.rewriting.derivation import Application, abstract
from xflow.rewriting.replacement import (
    Replacement,
    apply_replacements,
    apply_round,
    rounds,
    without,
)
from xflow.rewriting.replay import Rewrite, Unfounded, replay
from xflow.rewriting.text import parse_rules


@pytest.fixture(scope="module")
def run_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """One optimized model that all tests of this module read."""
    return optimized(separated(), tmp_path_factory.mktemp("run"))


def verdict(before: Path, after: Path, report: Path) -> str:
    """The objection of `certify`; nothing where it certifies."""
    try:
        found = certify(before, after, read_report(report)[1], lambda rule: proved(str(rule)))
    except NotCertified as error:
        return str(error)
    assert (found.rules, found.steps) == (2, 2)
    return ""


def test_a_report_follows_its_schema(run_files: tuple[Path, Path, Path]) -> None:
    schema = json.loads((resources("xflow") / "report.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    report = json.loads(run_files[2].read_text())
    jsonschema.validate(report, schema)
    assert report["log"]["rounds"]
    report["version"] += 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, schema)


def test_replay_writes_the_same_bytes(run_files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    before, after, report = run_files
    again = tmp_path / "again.onnx"
    assert entry.main(["replay", str(report), str(before), str(again), "-q"]) == ExitCode.OK
    assert again.read_bytes() == after.read_bytes()


def test_replay_refuses_another_model(
    run_files: tuple[Path, Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(two_products(64), other)
    line = ["replay", str(run_files[2]), str(other), str(tmp_path / "out.onnx")]
    assert entry.main(line) == ExitCode.ERROR
    assert "not the model that the report speaks of" in capfd.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_an_optimized_model_is_certified(
    run_files: tuple[Path, Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    before, after, report = run_files
    assert entry.main(["certify", str(before), str(after), str(report)]) == ExitCode.OK
    assert "2 rules proved, 1 rewrite in 2 steps replayed" in capfd.readouterr().out


def test_an_unchanged_model_is_certified_and_replayed(tmp_path: Path) -> None:
    model = two_products()
    del model.graph.node[1:]
    model.graph.node[0].output[0] = "y"
    before, after, report = optimized(model, tmp_path)
    assert after.read_bytes() == before.read_bytes()
    certify(before, after, read_report(report)[1], lambda rule: proved(str(rule)))
    again = tmp_path / "again.onnx"
    assert entry.main(["replay", str(report), str(before), str(again), "-q"]) == ExitCode.OK
    assert again.read_bytes() == before.read_bytes()


def test_weights_that_were_inputs_are_told_of_and_certified(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, after, report = optimized(listed(), tmp_path)
    assert entry.main(["certify", str(before), str(after), str(report)]) == ExitCode.OK
    assert "2 weights that could be given as inputs made constant" in capfd.readouterr().out
    again = tmp_path / "again.onnx"
    assert entry.main(["replay", str(report), str(before), str(again), "-q"]) == ExitCode.OK
    assert again.read_bytes() == after.read_bytes()
    told = json.loads(report.read_text())
    told["log"]["frozen"] = False
    report.write_text(json.dumps(told))
    assert "input" in verdict(before, after, report) or "rewrite" in verdict(before, after, report)


GUARD = """
rule false-condition
  in       x[...] y[...]
  from     Where(Cast(0, to='BOOL'), x, y)
  to       y
  types    any
"""


@pytest.mark.parametrize("change", ["none", "another fact", "another place", "no fact"])
def test_a_fact_is_found_anew(
    change: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, after, report = optimized(attention(CAUSAL), tmp_path, GUARD)
    told = json.loads(report.read_text())
    (item,) = (item for items in told["log"]["rounds"] for item in items if item["fact"])
    assert item["fact"] == "no-number-is-nan"
    if change == "another fact":
        item["fact"] = "no-number-is-infinite"
    if change == "another place":
        item["before"] = [[0, 0]]
    if change == "no fact":
        item["fact"] = None
    report.write_text(json.dumps(told))
    code = entry.main(["certify", str(before), str(after), str(report)])
    said = capfd.readouterr()
    if change == "none":
        assert code == ExitCode.OK, said.err
        assert "1 rewrite by interval analysis: a test that no element can pass" in said.out
    else:
        assert code == ExitCode.NOT_CERTIFIED
        assert "rewrite 1" in said.err


def test_a_fact_is_not_believed_of_another_mask(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same log, forged to be about a model of which a row is covered, and what it leads to."""
    before, after, report = optimized(attention(CAUSAL), tmp_path, GUARD)
    for path in (before, after):
        model = onnx.load(path)
        (mask,) = [each for each in model.graph.initializer if each.name == "mask"]
        mask.CopyFrom(numpy_helper.from_array(A_ROW_COVERED, "mask"))
        onnx.save(model, path)
    told = json.loads(report.read_text())
    told["log"]["input"] = digest_of(before)
    report.write_text(json.dumps(told))
    assert entry.main(["certify", str(before), str(after), str(report)]) == ExitCode.NOT_CERTIFIED
    assert "no-number-is-nan" in capfd.readouterr().err


def test_bases_are_counted_and_only_rules_remain_where_nothing_else_is_wanted(
    tmp_path: Path,
) -> None:
    model = attention(CAUSAL)
    bases = []
    for number, options in enumerate(((), ("--only-proved",))):
        (tmp_path / str(number)).mkdir()
        _, after, report = optimized(model, tmp_path / str(number), GUARD, *options)
        told = json.loads(report.read_text())
        rewrites = [item for items in told["log"]["rounds"] for item in items]
        assert {each["basis"]: each["rewrites"] for each in told["bases"]} == Counter(
            name for item in rewrites for name in item["basis"]
        )
        bases.append({each["basis"] for each in told["bases"]})
        guarded = "IsNaN" in {node.op_type for node in onnx.load(after).graph.node}
        assert guarded == bool(options)
    assert "interval analysis" in bases[0]
    assert bases[1] <= {"rule"}


GREATEST_AND_LEAST = """
rule greatest-and-least
  in       x[...] y[...]
  from     Add(Max(x, y), Min(x, y))
  to       Add(x, y)
  where    x < inf, y < inf
  types    reals
"""
SUM = (
    "(float[4] x, float[4] y) => (float[4] z)"
    "{ s = Sigmoid(x) t = Sigmoid(y) a = Max(s, t) b = Min(s, t) z = Add(a, b) }"
)
SCORES = """(float[1,4,4] x) => (float[1,4,4] y)
<float[4,4] w = {1, 2, 3, 4, -5, 6, 7, 8, 9, 1, -2, 3, 4, 5, 6, 7},
 float[4,4] mask = {0, -1e9, -1e9, -1e9, 0, 0, -1e9, -1e9, 0, 0, 0, -1e9, 0, 0, 0, 0},
 float zero = {0}> {
    scores = MatMul(x, w) masked = Add(scores, mask) p = Softmax<axis = -1>(masked)
    odd = IsNaN(p) y = Where(odd, zero, p)
}"""
RESTING: dict[str, tuple[str, str, str]] = {
    "a rule": (SUM, GREATEST_AND_LEAST, "finite-inputs"),
    "a fact": (SCORES, GUARD, "moderate"),
}


@pytest.mark.parametrize("kind", RESTING)
def test_what_rests_on_an_assumption_is_told_and_refused_without_it(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body, rules, option = RESTING[kind]
    text = f'<ir_version: 9, opset_import: ["" : 20]> g {body}'
    model = onnx.parser.parse_model(text)
    before, after, report = optimized(model, tmp_path, rules)
    told = json.loads(report.read_text())
    jsonschema.validate(told, json.loads((resources("xflow") / "report.schema.json").read_text()))
    (assumed,) = told["assumed"]
    assert assumed["option"] == option
    assert assumed["rewrites"] == sum(
        item["assume"] == option for items in told["log"]["rounds"] for item in items
    )
    line = ["certify", str(before), str(after), str(report)]
    assert entry.main(line) == ExitCode.OK
    assert f"that {assumed['sentence']}" in capfd.readouterr().out
    assert entry.main([*line, "--assume", option]) == ExitCode.OK
    capfd.readouterr()
    assert entry.main([*line, "--assume", "none"]) == ExitCode.NOT_CERTIFIED
    said = capfd.readouterr().err
    assert "rewrite 1" in said
    assert said.count("\n") == 1


def test_what_rests_on_an_assumption_is_not_done_without_it(tmp_path: Path) -> None:
    body, rules, _ = RESTING["a rule"]
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> g {body}')
    _, after, report = optimized(model, tmp_path, rules, "--assume", "none")
    assert [node.op_type for node in onnx.load(after).graph.node] == [
        *("Sigmoid", "Sigmoid", "Max", "Min", "Add")
    ]
    assert json.loads(report.read_text())["assumed"] == []


SCALED = """
rule scale-later
  in       x[N, K] s[] w[K, M]
  from     MatMul(Mul(x, s), w)
  to       Mul(MatMul(x, w), s)
  where    finite(s)
"""


@pytest.mark.parametrize("change", [False, True])
def test_a_number_that_is_read_from_a_constant_is_certified(change: bool, tmp_path: Path) -> None:
    """The constant has the shape [1, 1], and the rule's input is a number."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[512, 256] x) => (float[512, 2] y) <float[1, 1] c = {0.3}>
    { a = Mul(x, c) y = MatMul(a, w) }"""
    model = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((256, 2)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    before, after, report = optimized(model, tmp_path, SCALED)
    told = json.loads(report.read_text())
    (step,) = _steps(told["log"])
    assert step["numbers"] == {"s": "5033165/16777216"}
    if change:
        step["numbers"]["s"] = "1/4"
        report.write_text(json.dumps(told))
    code = entry.main(["certify", str(before), str(after), str(report)])
    assert code == (ExitCode.NOT_CERTIFIED if change else ExitCode.OK)


MASKED = """
rule mul-cast-to-where
  in       x[...] c[...]:bool
  from     Mul(x, Cast(c, to='REAL'))
  to       Where(c, x, 0)

rule where-less-to-max
  in       x[...] y[...]
  from     Where(Less(x, y), y, x)
  to       Max(x, y)
  where    finite(x), finite(y)
  exact    numbers
"""


def test_a_number_of_the_model_and_the_same_of_a_rule_are_certified(tmp_path: Path) -> None:
    """The second rule reads the 0 of the model and the one that the first rule brought in."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[64, 512] x) => (float[64, 512] y) <float zero = {0.0}>
    { c = Less(zero, x) m = Cast <to = 1> (c) y = Mul(x, m) }"""
    before, after, report = optimized(onnx.parser.parse_model(text), tmp_path, MASKED)
    assert [node.op_type for node in onnx.load(after).graph.node] == ["Max"]
    assert entry.main(["certify", str(before), str(after), str(report)]) == ExitCode.OK


def _weight(model: onnx.ModelProto) -> onnx.TensorProto:
    (weight,) = (each for each in model.graph.initializer if len(each.dims) == 2)
    return weight


def _initializer(model: onnx.ModelProto, change: Callable[[np.ndarray], None]) -> None:
    weight = _weight(model)
    array = numpy_helper.to_array(weight).copy()
    change(array)
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))


def _more(array: np.ndarray) -> None:
    array[3, 4] *= np.float32(1 + 1e-6)


def _a_weight(model: onnx.ModelProto) -> None:
    _initializer(model, _more)


def _a_weight_to_zero(model: onnx.ModelProto) -> None:
    _initializer(model, lambda array: array.__setitem__((0, 0), 0))


def _an_operator(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Sigmoid"


def _an_operator_more(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Neg", ["x"], ["idle"]))


def _a_connection(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if node.op_type == "CumSum").input[0] = "x"


def _an_attribute(model: onnx.ModelProto) -> None:
    sums = next(node for node in model.graph.node if node.op_type == "CumSum")
    sums.attribute.append(helper.make_attribute("exclusive", 1))


def _the_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 18


@pytest.mark.parametrize(
    "change",
    [
        _a_weight,
        _a_weight_to_zero,
        _an_operator,
        _an_operator_more,
        _a_connection,
        _an_attribute,
        _the_opset,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_a_changed_output_is_not_certified(
    change: Callable[[onnx.ModelProto], None],
    run_files: tuple[Path, Path, Path],
    tmp_path: Path,
) -> None:
    before, after, report = run_files
    assert verdict(before, after, report) == ""
    model = onnx.load(after)
    change(model)
    changed = tmp_path / "changed.onnx"
    onnx.save(model, changed)
    assert "behind the last step" in verdict(before, changed, report)


def test_an_output_with_other_names_is_certified(
    run_files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    before, after, report = run_files
    model = onnx.load(after)
    for node in model.graph.node:
        node.name = f"other_{node.name}"
    weight = _weight(model)
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            if name == weight.name:
                node.input[position] = "renamed"
    weight.name = "renamed"
    del model.graph.value_info[:]
    onnx.save(model, tmp_path / "renamed.onnx")
    assert verdict(before, tmp_path / "renamed.onnx", report) == ""


def test_another_input_is_not_certified(run_files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    before, after, report = run_files
    model = onnx.load(before)
    model.doc_string = "changed"
    onnx.save(model, tmp_path / "in.onnx")
    assert "not the model that the report speaks of" in verdict(tmp_path / "in.onnx", after, report)


def _steps(log: Json) -> list[Json]:
    return log["rounds"][0][0]["steps"]  # type: ignore[no-any-return]


def _drop(number: int) -> Callable[[Json], None]:
    return lambda log: _steps(log).__delitem__(number)


def _no_steps(log: Json) -> None:
    log["rounds"][0][0]["steps"] = None


def _no_rewrites(log: Json) -> None:
    log["rounds"] = []


def _another_place(log: Json) -> None:
    _steps(log)[0]["at"] = [[0, 0]]


def _no_place(log: Json) -> None:
    _steps(log)[0]["at"] = [[99, 0]]


def _another_input(log: Json) -> None:
    step = next(step for step in _steps(log) if step["rule"] == "merge-products")
    step["inputs"]["a"] = step["inputs"]["b"]


def _another_size(log: Json) -> None:
    step = next(step for step in _steps(log) if step["rule"] == "merge-products")
    step["sizes"]["K"] = 95


def _another_rank(log: Json) -> None:
    _steps(log)[0]["rank"] = 7


def _an_unproved_rule(log: Json) -> None:
    """A rule that fits, and says something false."""
    rules = log["rules"]
    rules["merge-products"] = rules["merge-products"].replace("Add(a, b)", "Sub(a, b)")


def _a_rule_that_is_not_there(log: Json) -> None:
    del log["rules"]["relu-of-relu"]


def _another_rule(log: Json) -> None:
    """A true rule, which is not the one that was applied."""
    log["rules"]["relu-of-relu"] = (
        "rule relu-of-relu\n  in x[...]\n  from Abs(Abs(x))\n  to Abs(x)\n"
    )


def _twice(log: Json) -> None:
    log["rounds"][0].append(log["rounds"][0][0])


CHANGES = {
    "first step dropped": (_drop(0), "rewrite 1|last step"),
    "last step dropped": (_drop(-1), "last step"),
    "no steps": (_no_steps, "rewrite 1: the log does not say how"),
    "no rewrites": (_no_rewrites, "last step"),
    "another place": (_another_place, "rewrite 1, step 1"),
    "no place": (_no_place, "rewrite 1, step 1"),
    "another input": (_another_input, "left side is not there"),
    "another size": (_another_size, "left side is not there"),
    "another rank": (_another_rank, "not proved at rank 7"),
    "an unproved rule": (_an_unproved_rule, "rule merge-products: not shown to be true"),
    "a missing rule": (_a_rule_that_is_not_there, "no such rule"),
    "another rule": (_another_rule, "left side is not there"),
    "twice": (_twice, "replaces what another one"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_changed_log_is_not_certified(
    kind: str, run_files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    before, after, report = run_files
    change, reason = CHANGES[kind]
    told = json.loads(report.read_text())
    change(told["log"])
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(told))
    objection = verdict(before, after, changed)
    assert any(part in objection for part in reason.split("|")), objection


def test_a_model_that_does_not_follow_is_exit_code_13(
    run_files: tuple[Path, Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, after, report = run_files
    told = json.loads(report.read_text())
    _no_rewrites(told["log"])
    told["log"]["rules"] = {}
    (tmp_path / "r.json").write_text(json.dumps(told))
    line = ["certify", str(before), str(after), str(tmp_path / "r.json")]
    assert entry.main(line) == ExitCode.NOT_CERTIFIED
    err = capfd.readouterr().err
    assert len(err.splitlines()) == 1
    assert "operators where" in err


BAD_REPORTS = {
    "text": "nothing",
    "a list": "[]",
    "another format": '{"version": 1}',
    "no log": '{"version": 2, "log": null}',
    "an empty log": '{"version": 2, "log": {}}',
    "no rule": '{"version": 2, "log": {"rules": {"a": "x"}, "rounds": [], "input": {}}}',
}


@pytest.mark.parametrize("kind", BAD_REPORTS)
def test_a_bad_report_is_one_sentence(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(BAD_REPORTS[kind])
    with pytest.raises(ReportError, match=r"r\.json") as caught:
        read_report(path)
    assert "\n" not in str(caught.value)


TWO_DIVISORS = """
rule two-divisors
  in       x[...] b[...] c[...]
  from     Div(Div(x, b), c)
  to       Div(x, Mul(b, c))
  where    b != 0, c != 0
"""
"""True over the reals; in float16 the product of two divisors may be infinite."""
FEWER = ("--objective", "nodes")


def divided_twice(dtype: str) -> onnx.ModelProto:
    """y = x / b / c, of elements of that type."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g ({dtype}[64, 2] x) => ({dtype}[64, 2] y) <{dtype}[2] b, {dtype}[2] c>
    {{ a = Div(x, b) y = Div(a, c) }}"""
    model = onnx.parser.parse_model(text)
    kind = np.float16 if dtype == "float16" else np.float32
    for name in "bc":
        value = numpy_helper.from_array(np.array([1.5, 3.25], kind), name)
        model.graph.initializer.append(value)
    return model


@pytest.mark.parametrize("line", ["none", "a wrong one", "its own"])
def test_a_direction_that_rounding_forbids_is_not_certified(
    line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the report says of it: the rounding of each rule is measured anew."""
    before, after, report = optimized(divided_twice("float16"), tmp_path, TWO_DIVISORS, *FEWER)
    assert [node.op_type for node in onnx.load(after).graph.node] == ["Div"]
    told = json.loads(report.read_text())
    numerics = {
        "none": "",
        "a wrong one": "  numerics exact; refused: none\n",
        "its own": "  numerics not measured; refused: forward (overflow)\n",
    }
    told["log"]["rules"]["two-divisors"] += numerics[line]
    report.write_text(json.dumps(told))
    assert entry.main(["certify", str(before), str(after), str(report)]) == ExitCode.NOT_CERTIFIED
    said = capfd.readouterr().err
    assert "rewrite 1, step 1 (two-divisors)" in said
    assert "rounding forbids this direction of the rule in FLOAT16" in said
    assert said.count("\n") == 1
    again = ["replay", str(report), str(before), str(tmp_path / "again.onnx"), "-q"]
    expected = ExitCode.NOT_CERTIFIED if line == "its own" else ExitCode.OK
    assert entry.main(again) == expected


def test_a_direction_that_one_element_type_forbids_is_certified_in_others(tmp_path: Path) -> None:
    before, after, report = optimized(divided_twice("float"), tmp_path, TWO_DIVISORS, *FEWER)
    assert [node.op_type for node in onnx.load(after).graph.node] == ["Div"]
    assert entry.main(["certify", str(before), str(after), str(report)]) == ExitCode.OK


def test_a_direction_that_the_rechecked_folder_forbids_is_not_certified(tmp_path: Path) -> None:
    """The rule has a certificate: it is true, and still not to be used."""
    prover = Rechecked(xflow.rewriting.store.default_directory())
    own = saying("Div(Div(x, b), c)", "Div(x, Mul(b, c))", "refused: forward in fp16")
    bare = str(replace(own, notes={}))
    before, after, report = optimized(divided_twice("float16"), tmp_path, bare, *FEWER)
    assert [node.op_type for node in onnx.load(after).graph.node] == ["Div"]
    with pytest.raises(NotCertified, match="rounding forbids"):
        certify(before, after, read_report(report)[1], lambda rule: "", rounding=prover.rounding)


def test_a_recheck_asks_for_the_certificate_of_this_very_rule(tmp_path: Path) -> None:
    prover = Rechecked(xflow.rewriting.store.default_directory())
    rule = saying("Relu(Relu(x))", "Relu(x)")
    assert prover(rule) == prover(replace(rule, name="its-former-name")) == ""
    (other,) = parse_rules(str(rule).replace("Relu(Relu(x))", "Relu(Abs(x))"))
    assert "no certificate" in prover(other)


X = leaf("x", TensorType("FLOAT", (4,)))
STEP = Application("one", 0, ((0, 0),), {}, {}, {}, "FLOAT")


def unary(op: str, value: Value) -> Value:
    return apply(op, [value])[0]


def test_what_took_up_a_dropped_rewrite_goes_with_it() -> None:
    """Relu(Relu(x)) became Relu(x), and Neg of that became Abs: without the first, neither is."""
    twice = unary("Relu", unary("Relu", X))
    graph = Graph((unary("Neg", twice),))
    once = unary("Relu", X)
    first = Replacement((twice,), (once,), ("one",), 1.0, (X,), ())
    takes_up = Replacement((unary("Neg", once),), (unary("Abs", X),), ("two",), 1.0, (X,), (STEP,))
    stands_on = Replacement(
        (unary("Neg", once),), (unary("Abs", once),), ("two",), 1.0, (once,), (STEP,)
    )
    assert without((first, takes_up), 0) == ()
    (kept,) = without((first, stands_on), 0)
    assert kept.before == graph.outputs
    assert kept.inputs == (twice,)
    assert abstract(kept.before, kept.inputs) == abstract(stands_on.before, stands_on.inputs)


def test_all_that_took_up_a_dropped_rewrite_go_with_it() -> None:
    """Two rewrites that begin inside what the first one made, at a place that is then no more."""
    twice = unary("Relu", unary("Relu", X))
    inside = unary("Abs", X)
    made = unary("Relu", inside)
    first = Replacement((twice,), (made,), ("one",), 1.0, (X,), ())
    others = [
        Replacement((unary(op, made),), (unary("Exp", inside),), (op,), 1.0, (inside,), (STEP,))
        for op in ("Neg", "Tanh")
    ]
    assert without((first, *others), 0) == ()


def test_a_rewrite_of_what_lies_above_values_that_are_gone_is_not_made() -> None:
    """The log could not say where it is."""
    graph = Graph((unary("Relu", unary("Relu", X)),))
    gone = unary("Abs", X)
    item = Replacement(graph.outputs, (unary("Relu", X),), ("one",), 1.0, (gone,), (STEP,))
    assert apply_replacements(graph, (item,)) == graph
    assert list(rounds(graph, (item,))) == []


def test_an_output_that_a_rewrite_leaves_as_it_was_is_followed_like_any_other() -> None:
    kept, changed = unary("Neg", X), unary("Relu", unary("Relu", X))
    graph = Graph((kept, changed))
    item = Replacement(graph.outputs, (kept, unary("Relu", X)), ("one",), 1.0, (X,), ())
    moved: dict[Value, Value] = {}
    assert apply_round(graph, [item], moved).outputs == (kept, unary("Relu", X))
    assert moved[kept] == kept


def test_rounds_are_what_apply_replacements_makes() -> None:
    values = [X]
    for name in ("Relu", "Relu", "Tanh", "Neg"):
        values.append(unary(name, values[-1]))
    graph = Graph((values[-1],))
    one = Replacement((values[2],), (values[1],), (), 0.0)
    seam = unary("Tanh", values[1])
    two = Replacement((unary("Neg", seam),), (unary("Abs", seam),), (), 0.0)
    gone = Replacement((unary("Exp", X),), (X,), (), 0.0)
    found = list(rounds(graph, (one, gone, two)))
    assert [items for _, items in found] == [(one,), (two,)]
    assert apply_replacements(graph, (one, gone, two)).outputs == (unary("Abs", seam),)


def test_a_replayed_model_needs_the_model_of_the_log(run_files: tuple[Path, Path, Path]) -> None:
    before, after, report = run_files
    log = read_report(report)[1]
    assert same_digest(before, log)
    assert not same_digest(after, log)
    model = replayed(files.load_model(before), log).model
    assert [node.op_type for node in model.graph].count("MatMul") == 1


def test_an_input_of_the_model_is_not_taken_for_one_of_a_rewrite() -> None:
    """x - y is not x - x, though y is called as the leaf that stands for x."""
    (rule,) = parse_rules("rule nothing\n  in x[...]\n  from Sub(x, x)\n  to Mul(x, 0)\n")
    y = leaf("0", X.type)
    graph = Graph(apply("Sub", [X, y]))
    places = {node: (number, 0) for number, node in enumerate(graph.nodes)}
    step = Application("nothing", 0, ((1, 0),), {"x": (0, 0)}, {}, {}, "FLOAT")
    for inputs in ((X,), (X, y)):
        named = tuple(places[value.node] for value in inputs)
        item = Rewrite((places[graph.outputs[0].node],), named, (step,))
        with pytest.raises(Unfounded):
            replay(graph, [[item]], {"nothing": rule}, lambda value: None)


def test_replacements_with_a_trail_can_be_told_apart_in_a_table() -> None:
    """Attribution keeps files by replacements."""
    one = Replacement((X,), (X,), ("one",), 1.0, (), (STEP,))
    assert {(one,): "file"}[(one,)] == "file"
