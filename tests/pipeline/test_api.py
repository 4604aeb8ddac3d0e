"""Optimising whole models: right and better, or the input's own graph with the reason."""

import dataclasses
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from products import RULES, Unmeasured, one_relu, operators, separated, two_products

import xflow
from xflow.cli import entry
from xflow.core.deadline import Deadline
from xflow.core.errors import ExitCode, ModelError, UnknownRuleError, UsageError, ValidationFailed
from xflow.core.graph import Graph, rebuild
from xflow.core.node import Node, Opaque, apply
from xflow.core.registry import CONTRIB, Operator
from xflow.cost import measure
from xflow.cost.comparison import Comparison, Timing
from xflow.cost.target import TargetModel
from xflow.cost.worker import OUT_OF_TIME, Failed, Lost
from xflow.onnx.importer import import_model
from xflow.pipeline import api, attempts, context
from xflow.report.sentences import profile_lines
from xflow.rewriting.replacement import Replacement, apply_replacements
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.search.driver import SearchResult
from xflow.search.processes import SearchProcesses
from xflow.validation.equivalence import check_equivalent
from xflow.validation.reference import Reference, edge_case_seconds

WRONG = parse_rules(
    """
rule drop-relu
  in       x[...]
  from     Relu(x)
  to       Mul(x, 1)
"""
)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Measurements go to a store of the test's own; temporary files must be gone afterwards."""
    monkeypatch.setenv("XFLOW_CACHE", str(tmp_path / "costs.sqlite"))
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def estimated(model: api.Model, rules: list[Rule], **settings: object) -> api.Result:
    options = {"budget": 5.0, "threads": 1, "cost": "estimated", "check": 1, **settings}
    return xflow.optimize(model, rules=rules, **options)  # type: ignore[arg-type]


def test_a_model_is_rewritten_checked_and_reported() -> None:
    model = two_products()
    before = model.SerializeToString()
    phases: list[str] = []
    result = estimated(model, RULES, progress=lambda phase, details: phases.append(phase))
    assert operators(result) == ["MatMul", "Relu"]
    assert model.SerializeToString() == before
    report = result.report
    assert report.changed
    assert (report.before.nodes, report.after.nodes) == (5, 2)
    assert {use.name for use in report.rules} == {"merge-products", "relu-of-relu"}
    assert report.largest_error is not None
    assert report.largest_error < 1e-3
    assert report.latency_before is None
    assert report.shapes == {"x": (1, 96)}
    assert set(report.phases) == {"load", "import", "search", "check", "log"}
    assert set(report.phases) <= set(phases)
    assert result.model.metadata_props == {"licence": "free"}
    onnx.checker.check_model(ir.to_proto(result.model), full_check=True)


def test_path_message_and_ir_model_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(two_products(), path)
    content = path.read_bytes()
    results = [
        estimated(model, RULES)
        for model in (path, str(path), two_products(), ir.from_proto(two_products()))
    ]
    texts = {ir.to_proto(result.model).SerializeToString() for result in results}
    assert len(texts) == 1
    assert path.read_bytes() == content


@pytest.mark.parametrize("cost", ["estimated", "learned"])
def test_an_estimated_run_is_deterministic(cost: str) -> None:
    first, second = (estimated(two_products(), RULES, seed=3, cost=cost) for _ in range(2))
    assert first.report.cost == cost
    assert any("learned" in text for text in first.report.messages) == (cost == "learned")
    assert operators(first) == ["MatMul", "Relu"]
    one, two = (dataclasses.replace(r.report, phases={}) for r in (first, second))
    assert one == two
    assert ir.to_proto(first.model) == ir.to_proto(second.model)


def test_without_a_rewrite_the_user_gets_the_input_back() -> None:
    model = two_products()
    result = estimated(model, RULES, only_rules=["relu-of-relu"], skip_rules=["relu-of-relu"])
    assert not result.report.changed
    assert ir.to_proto(result.model) == ir.to_proto(ir.from_proto(model))
    assert any("No rewrite" in text for text in result.report.messages)


def test_rules_can_be_chosen_by_name() -> None:
    assert operators(estimated(two_products(), RULES, only_rules=["relu-of-relu"])) == [
        "MatMul",
        "MatMul",
        "Add",
        "Relu",
    ]
    assert operators(estimated(two_products(), RULES, skip_rules=["relu-of-relu"])) == [
        "MatMul",
        "Relu",
        "Relu",
    ]
    with pytest.raises(UnknownRuleError, match="relu-of-rel"):
        estimated(two_products(), RULES, only_rules=["relu-of-rel"])


def eager_search(graph: Graph, *_: object, **__: object) -> SearchResult:
    """A search that proposes a wrong replacement and then a right one."""
    relus = [node.outputs[0] for node in graph.nodes if _is_relu(node)]
    (lone,) = (v for v in relus if isinstance(v.node.inputs[0].node.op, Opaque))
    wrong = apply("Add", [lone.node.inputs[0]] * 2)
    (twice,) = (v for v in relus if v.node.inputs[0] in relus)
    steps = (
        Replacement((lone,), wrong, ("wrong-rule",), 1e-6),
        one_relu(twice),
    )
    return SearchResult(apply_replacements(graph, steps), steps)


def _is_relu(node: Node) -> bool:
    return isinstance(node.op, Operator) and node.op.name == "Relu"


def test_a_guilty_rewrite_is_dropped_and_named_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempts, "search", eager_search)
    result = estimated(separated(), RULES)
    assert result.report.changed
    assert [use.name for use in result.report.rules] == ["relu-of-relu"]
    assert operators(result).count("Relu") == 2
    (warning,) = result.report.warnings
    assert "wrong-rule" in warning
    assert "relu-of-relu" not in warning


CLIPPED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[64, 256] x) => (float[64, 256] y) <float low = {-2}, float high = {2}>
{ t = Tanh(x) c = Clip(t, low, high) r = Relu(c) y = Relu(r) }"""
"""No input tells what the Clip is for."""


def forgetful_search(graph: Graph, *_: object, **__: object) -> SearchResult:
    """A search that takes a Clip away, and says that it was a step of another rule."""
    item = one_relu(graph.outputs[0])
    clip = _clip(graph).outputs[0]
    made = rebuild(item.after, {clip: clip.node.inputs[0]})
    return SearchResult(graph, (dataclasses.replace(item, after=made),))


def _clip(graph: Graph) -> Node:
    (clip,) = (n for n in graph.nodes if isinstance(n.op, Operator) and n.op.name == "Clip")
    return clip


@pytest.mark.parametrize("known", [True, False], ids=["another trail", "no trail"])
def test_a_rewrite_that_does_not_follow_by_its_steps_is_dropped(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def without_trail(graph: Graph, *_: object, **__: object) -> SearchResult:
        (item,) = forgetful_search(graph).replacements
        return SearchResult(graph, (dataclasses.replace(item, trail=None),))

    monkeypatch.setattr(attempts, "search", forgetful_search if known else without_trail)
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(onnx.parser.parse_model(CLIPPED), source)
    line = [str(source), str(target), "--cost", "estimated", "--budget", "1"]
    assert entry.main(line) == ExitCode.OK
    told = " ".join(capfd.readouterr().out.split())
    assert "A rewrite by relu-of-relu was dropped: what was done does not follow" in told
    assert target.read_bytes() == source.read_bytes()


def test_others_stay_beside_a_rewrite_that_does_not_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CLIPPED.replace("float[64, 256] y)", "float[64, 256] y, float[64, 256] w)").replace(
        "y = Relu(r)", "y = Relu(r) e = Erf(x) f = Relu(e) w = Relu(f)"
    )

    def search(graph: Graph, *_: object, **__: object) -> SearchResult:
        (item,) = forgetful_search(graph).replacements
        return SearchResult(graph, (item, one_relu(graph.outputs[1])))

    monkeypatch.setattr(attempts, "search", search)
    result = estimated(onnx.parser.parse_model(text), RULES)
    (warning,) = result.report.warnings
    assert "does not follow by the rules" in warning
    assert [use.count for use in result.report.rules] == [1]
    assert sorted(operators(result)) == ["Clip", "Erf", "Relu", "Relu", "Relu", "Tanh"]


def test_after_several_that_do_not_follow_nothing_is_given_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 5
    clipped = " ".join(
        f"t{n} = Tanh(x) c{n} = Clip(t{n}, low, high) r{n} = Relu(c{n}) y{n} = Relu(r{n})"
        for n in range(count)
    )
    outputs = ", ".join(f"float[64, 256] y{n}" for n in range(count))
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[64, 256] x) => ({outputs})
    <float low = {{-2}}, float high = {{2}}> {{ {clipped} }}"""
    model = onnx.parser.parse_model(text)
    for number, node in enumerate(model.graph.node):
        if node.op_type == "Tanh":
            node.op_type = ("Tanh", "Erf", "Sin", "Cos", "Sigmoid")[number // 4]

    def search(graph: Graph, *_: object, **__: object) -> SearchResult:
        items = []
        for output in graph.outputs[1:]:
            item = one_relu(output)
            clip = item.after[0].node.inputs[0]
            made = rebuild(item.after, {clip: clip.node.inputs[0]})
            items.append(dataclasses.replace(item, after=made))
        return SearchResult(graph, (one_relu(graph.outputs[0]), *items))

    monkeypatch.setattr(attempts, "search", search)
    result = estimated(model, RULES)
    assert not result.report.changed
    assert len([text for text in result.report.warnings if "does not follow" in text]) > 1
    assert "All others were dropped with it" in result.report.warnings[-1]


def test_so_is_one_in_a_graph_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[64, 256] x, bool b) => (float[64, 256] z) {
      z = If (b) <
        then_branch = t () => (float[64, 256] y) {
          low = Constant <value_float = -2.0> () high = Constant <value_float = 2.0> ()
          t = Tanh(x) c = Clip(t, low, high) r = Relu(c) y = Relu(r) },
        else_branch = e () => (float[64, 256] w) { w = Neg(x) }> }"""

    def search(graph: Graph, *args: object, **settings: object) -> SearchResult:
        inner = any(isinstance(n.op, Operator) and n.op.name == "Clip" for n in graph.nodes)
        return forgetful_search(graph) if inner else SearchResult(graph, ())

    monkeypatch.setattr(attempts, "search", search)
    result = estimated(onnx.parser.parse_model(text), RULES)
    assert not result.report.changed


def test_models_that_show_a_wrong_rewrite_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold what was rewritten and nothing else, and the checks tell them apart."""
    monkeypatch.setattr(attempts, "search", eager_search)
    result = estimated(separated(), RULES, save_repro=tmp_path / "repro")
    assert any("rewrite-1" in text for text in result.report.warnings)
    place = tmp_path / "repro" / "rewrite-1"
    before, after = (onnx.load(place / f"{name}.onnx") for name in ("before", "after"))
    assert [node.op_type for node in before.graph.node] == ["Relu"]
    assert [node.op_type for node in after.graph.node] == ["Add"]
    assert before.graph.input == after.graph.input
    assert not check_equivalent(place / "before.onnx", place / "after.onnx").ok
    about = (place / "about.txt").read_text()
    assert "wrong-rule" in about
    assert about.count("differs") == 2, "in the whole model, and in these"


def test_a_wrong_rule_alone_changes_nothing() -> None:
    model = two_products()
    result = estimated(model, WRONG)
    assert not result.report.changed
    assert ir.to_proto(result.model) == ir.to_proto(ir.from_proto(model))


def test_a_rewrite_that_has_no_onnx_form_is_dropped() -> None:
    rules = parse_rules(
        """
rule through-identity
  in       x[N, M]
  from     Relu(Relu(x))
  to       MatMul(Eye(n=N), Relu(x))
"""
    )
    result = estimated(two_products(), rules)
    assert not result.report.changed


@pytest.mark.parametrize(("otherwise", "searched"), [(0.0, 20.0), (5.0, 15.0), (90.0, 5.0)])
def test_a_search_leaves_time_for_what_is_done_with_large_weights(
    otherwise: float, searched: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is part of the budget, as reading the model is; but a quarter of the budget remains."""
    assert attempts.search_seconds(20.0, otherwise) == searched
    given = []

    def unsuccessful(graph: Graph, *_: object, deadline: Deadline, **__: object) -> SearchResult:
        given.append(deadline.left)
        return SearchResult(graph, ())

    monkeypatch.setattr(attempts, "search", unsuccessful)
    monkeypatch.setattr(attempts, "afterwards", lambda *_: otherwise)
    xflow.optimize(two_products(), budget=20)
    assert 0 < given[-1] <= searched, "what came before the search takes some time, too"


@pytest.mark.parametrize(
    ("timed", "runs_s"),
    [
        ((Timing((0.25, 0.5, 0.25)),), 0.25),
        (Failed("ran out of time"), attempts.TRIAL_S / 2),  # two runs take as long at least
    ],
)
def test_a_search_leaves_time_for_the_runs_of_a_check(
    timed: tuple[Timing, ...] | Failed, runs_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []

    def once(*_: object, deadline: Deadline, min_rounds: int, **__: object) -> list[object]:
        assert min_rounds == 1
        assert deadline.left <= attempts.TRIAL_S
        if isinstance(timed, Failed):
            monkeypatch.setattr(Deadline, "passed", True)
        return [timed]

    def planned(seconds: float, otherwise: float) -> float:
        monkeypatch.undo()
        left.append(otherwise)
        return 1.0

    monkeypatch.setattr(measure.Measurer, "time_at_each", once)
    monkeypatch.setattr(attempts, "calibrated", lambda *_: None)
    monkeypatch.setattr(attempts, "search_seconds", planned)
    result = xflow.optimize(two_products(), budget=20)
    assert left[0] >= attempts.RUNS * runs_s
    assert "trial" in result.report.phases


@pytest.mark.parametrize(("budget", "asked"), [(24, "stored"), (26, "calibrated")])
def test_short_runs_do_not_measure_the_machine_first(
    monkeypatch: pytest.MonkeyPatch, budget: float, asked: str
) -> None:
    for name in ("stored", "calibrated"):

        def ends(*_: object, name: str = name) -> object:
            raise InterruptedError(name)

        monkeypatch.setattr(attempts, name, ends)
    with pytest.raises(InterruptedError, match=asked):
        xflow.optimize(two_products(), budget=budget)


def test_a_search_leaves_time_for_edge_cases_at_each_setting() -> None:
    check_s = 1000.0
    cases = attempts.EDGE_CASES
    one = attempts.checked([1.0], check_s, cases)
    assert one == attempts.RUNS / 2 + 2 * edge_case_seconds(check_s)
    assert attempts.checked([1.0, 1.0, 0.0], check_s, cases) == 2 * one
    assert attempts.checked([1e-3], check_s, cases) == pytest.approx(
        1e-3 * (attempts.RUNS / 2 + 2 * cases)
    )
    assert attempts.checked([10.0], 1.0, cases) == attempts.RUNS * 10.0


def test_of_floats_there_are_more_edge_cases() -> None:
    shape = [2, 3]
    floats = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    codes = helper.make_tensor_value_info("y", TensorProto.UINT8, shape)
    counts = []
    for inputs in ([codes], [codes, floats]):
        node = helper.make_node("Identity", [inputs[-1].name], ["z"])
        output = onnx.ValueInfoProto(name="z")
        proto = helper.make_model(helper.make_graph([node], "g", inputs, [output]))
        counts.append(attempts.edge_cases(import_model(ir.from_proto(proto))))
    assert counts == [attempts.WITHOUT_FLOATS, attempts.EDGE_CASES]


@pytest.mark.parametrize(("seconds", "waited"), [(1e-4, False), (1.0, True)])
def test_nothing_waits_for_the_search_to_be_ready_to_know_that_a_run_is_short(
    monkeypatch: pytest.MonkeyPatch, seconds: float, waited: bool
) -> None:
    done: list[str] = []

    def timed(*_: object, **__: object) -> list[object]:
        done.append("timed")
        return [(Timing((seconds,)),)]

    def planned(runs_s: Sequence[float], *_: float) -> float:
        if "searched" not in done:
            assert runs_s == [seconds]
        return 4.0 if seconds == 1.0 else 0.0

    def unsuccessful(graph: Graph, *_: object, **__: object) -> SearchResult:
        done.append("searched")
        return SearchResult(graph, ())

    monkeypatch.setattr(SearchProcesses, "settle", lambda *_: done.append("waited"))
    monkeypatch.setattr(measure.Measurer, "time_at_each", timed)
    monkeypatch.setattr(attempts, "checked", planned)
    monkeypatch.setattr(attempts, "search", unsuccessful)
    xflow.optimize(two_products(), budget=20)
    before = done[: done.index("searched")]
    assert before == (["timed", "waited", "timed"] if waited else ["timed"])


def test_the_runs_of_all_settings_are_reckoned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[N, 8] x) => (float[N, 8] y)'
        " { a = Tanh(x) y = Tanh(a) }"
    )
    told: list[Sequence[float]] = []

    def planned(runs_s: Sequence[float], *_: float) -> float:
        told.append(runs_s)
        return 0.0

    monkeypatch.setattr(attempts, "checked", planned)
    xflow.optimize(model, budget=5, input_shapes=[{"x": (4, 8)}, {"x": (100_000, 8)}])
    assert told
    for small, large in told:
        assert 0 < small < large


def test_a_model_that_loads_slowly_is_not_run_to_know_how_long_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempts, "TRIED", 0)
    monkeypatch.setattr(attempts, "calibrated", lambda *_: None)
    assert "trial" not in xflow.optimize(two_products(), budget=20).report.phases


@pytest.mark.parametrize(
    ("op_type", "domain", "inputs", "heavy"),
    [
        ("IsNaN", "", 1, False),
        ("GRU", "", 3, True),
        ("QLinearMatMul", "", 8, True),
        ("MatMulNBits", CONTRIB, 3, True),
        ("Resample", "of.a.vendor", 1, True),
    ],
)
def test_what_opaque_operators_take_is_known_only_of_some_of_onnx(
    op_type: str, domain: str, inputs: int, heavy: bool
) -> None:
    model = two_products()
    node = helper.make_node(op_type, ["y"] * inputs, ["z"], domain=domain, name="opaque")
    model.graph.node.append(node)
    model.graph.output.append(helper.make_empty_tensor_value_info("z"))
    model.opset_import.extend(helper.make_opsetid(name, 1) for name in ("of.a.vendor", CONTRIB))
    imported = import_model(ir.from_proto(model))
    assert len(attempts.opaque(imported)) == 1
    assert attempts.may_be_heavy(imported) == heavy


def test_how_long_loading_took_tells_how_long_writing_will_take() -> None:
    slow, fast = (1e9 / rate for rate in attempts.HANDLED_PER_S)
    assert attempts.afterwards(1e9, load_s=0.0) == fast
    between = (slow + fast) / 2
    assert attempts.afterwards(1e9, load_s=between / attempts.LOADINGS) == pytest.approx(between)
    assert attempts.afterwards(1e9, load_s=60.0) == slow, "it had to wait for its disk"


@pytest.mark.parametrize("vnni", [False, True])
def test_that_products_on_codes_are_exact_here_counts_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, vnni: bool
) -> None:
    """A model may be served elsewhere than it was optimized."""
    seen: list[bool] = []

    def costs(*_: object, model: TargetModel, **__: object) -> object:
        seen.append(model.cuts_off)
        return Unmeasured()

    exact = dataclasses.replace(TargetModel(), cuts_off=False)
    monkeypatch.setattr(attempts, "calibrated", lambda *_: exact)
    monkeypatch.setattr(attempts, "stored", lambda *_: exact)
    monkeypatch.setattr(attempts, "Costs", costs)
    monkeypatch.setattr(attempts, "CostsAtSettings", lambda *a, **k: Unmeasured())
    xflow.optimize(two_products(), budget=5, vnni=vnni)
    assert set(seen) == {not vnni}


def compared(ratio: float, low: float, passes: int) -> Comparison:
    return Comparison(ratio, low, ratio + 0.1, Timing((2.0, 2.0)), Timing((1.0, 1.0)), passes)


def test_the_final_timing_has_time_to_load_what_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def timed(*_: object, deadline: Deadline, **__: object) -> tuple[Comparison]:
        given.append(deadline.left)
        return (compared(1.05, 1.04, 9),)

    monkeypatch.setattr(measure.Measurer, "compare_at_each", timed)
    monkeypatch.setattr(attempts, "CostsAtSettings", lambda *a, **k: Unmeasured())
    monkeypatch.setattr(context, "CHECKED_PER_S", 1.0)  # bytes
    result = xflow.optimize(two_products(), budget=2, threads=1, rules=RULES, check=1)
    assert given[0] > result.report.before.weight_bytes


@pytest.mark.parametrize(
    ("low", "passes", "changed"),
    [
        (1.02, 2, True),
        (1.04, 1, True),
        (1.02, 1, False),
        (1.01, 2, False),
        (1.01, 4, True),
        (1.001, 9, False),
        (0.99, 9, False),
    ],
)
def test_the_rewritten_model_is_given_only_if_it_is_measurably_faster(
    low: float, passes: int, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (compared(1.05, low, passes),)
    monkeypatch.setattr(measure.Measurer, "compare_at_each", lambda *a, **k: found)
    monkeypatch.setattr(attempts, "CostsAtSettings", lambda *a, **k: Unmeasured())
    result = xflow.optimize(two_products(), budget=2, threads=1, rules=RULES, check=1)
    assert result.report.changed is changed
    assert len(operators(result)) == (2 if changed else 5)
    assert (result.report.ratio is not None) is changed
    assert result.report.latency_before is not None
    if not changed:
        assert any("not measurably faster" in text for text in result.report.messages)


def test_a_measured_run_goes_all_the_way() -> None:
    result = xflow.optimize(two_products(256), budget=2, threads=1, rules=RULES)
    assert {"search", "check", "timing"} <= set(result.report.phases)
    assert result.report.latency_before is not None
    assert result.report.target.runtime


def test_a_search_that_is_stopped_gives_what_it_has_found() -> None:
    phases: list[str] = []
    result = xflow.optimize(
        two_products(256),
        budget=20.0,
        threads=1,
        rules=RULES,
        progress=lambda phase, _: phases.append(phase),
        stop=lambda: "measure" in phases,
    )
    (message,) = (text for text in result.report.messages if "stopped" in text)
    assert "before its budget was spent" in message
    assert "check" in phases


def test_a_search_that_is_stopped_at_once_finds_nothing() -> None:
    result = estimated(two_products(), RULES, stop=lambda: True)
    assert not result.report.changed
    assert any("stopped" in text for text in result.report.messages)


def test_where_nothing_is_gained_the_report_says_where_the_time_goes() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[64, 64] x) => (float[64, 64] y, int64[64] z)
        { p = MatMul(x, x) y = Tanh(p) z = ArgMax<axis = 0, keepdims = 0>(y) }""")
    report = xflow.optimize(model, budget=2.0, threads=1).report
    assert not report.changed
    parts = {each.operator: each.opaque for each in report.profile}
    assert parts == {"MatMul": 0, "Tanh": 0, "ArgMax": 1}
    assert all(each.seconds > 0 for each in report.profile)
    named, shared = profile_lines(report.profile)
    assert "ArgMax" in named
    assert re.search(r"\d+ % is convolutions and matrix products, \d+ % what no rule", shared)


def test_where_the_time_goes_is_said_where_it_is_asked_for() -> None:
    assert not estimated(two_products(), RULES).report.profile
    explanation = str(xflow.explain(two_products(), rules=RULES, budget=1.0, profile=True))
    assert "Time of the input model by kernel: " in explanation


def test_a_model_that_does_not_run_is_refused() -> None:
    model = separated()
    for node in model.graph.node:
        node.name = "the same for all"
    with pytest.raises(ValidationFailed, match="does not run"):
        estimated(model, RULES)


def test_a_model_that_is_too_slow_to_be_checked_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That there is no time to run it does not mean that it does not run."""
    monkeypatch.setattr(Reference, "run", lambda *_: Lost(OUT_OF_TIME, 1))
    result = estimated(separated(), RULES)
    assert not result.report.changed
    (told,) = [text for text in result.report.warnings if "dropped" in text]
    assert told == (
        "The rewrites were dropped: the input model is too slow to be compared with: ran out of "
        "time."
    )


def test_a_model_with_operators_of_another_library_is_left_as_it_is() -> None:
    model = separated()
    model.graph.node.insert(0, helper.make_node("Mystery", ["x"], ["m"], domain="nowhere"))
    model.opset_import.append(helper.make_opsetid("nowhere", 1))
    model.graph.output.append(helper.make_tensor_value_info("m", TensorProto.FLOAT, ["N", 96]))
    result = estimated(model, RULES)
    assert not result.report.changed
    assert any("does not run" in text for text in result.report.warnings)


def test_a_random_model_is_left_as_it_is() -> None:
    model = two_products()
    model.graph.node.append(helper.make_node("RandomNormalLike", ["y"], ["r"]))
    model.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, ["N", 96]))
    result = estimated(model, RULES)
    assert not result.report.changed
    assert any("does not agree with itself" in text for text in result.report.warnings)


def test_sparse_weights_stay_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As initializers and as constants, which onnx-ir both does not know."""
    model = two_products()
    values = numpy_helper.from_array(np.ones(2, np.float32), "sparse")
    places = numpy_helper.from_array(np.array([0, 3], np.int64), "places")
    sparse = helper.make_sparse_tensor(values, places, [96])
    model.graph.sparse_initializer.append(sparse)
    nodes = [
        helper.make_node("Constant", [], ["constant"], sparse_value=sparse),
        helper.make_node("Add", ["y", "sparse"], ["half"]),
        helper.make_node("Add", ["half", "constant"], ["z"]),
    ]
    model.graph.node.extend(nodes)
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 96]))
    path, after = tmp_path / "sparse.onnx", tmp_path / "after.onnx"
    onnx.save(model, path)
    result = estimated(path, RULES)
    assert result.report.changed
    result.save(after)
    made = onnx.load(after)
    assert list(made.graph.sparse_initializer) == [sparse]
    assert [node for node in made.graph.node if node.op_type == "Constant"] == nodes[:1]
    assert check_equivalent(path, after).ok
    assert caplog.records == []


def test_dynamic_sizes_are_those_asked_for() -> None:
    result = estimated(two_products(), RULES, input_shapes={"x": (7, 96)})
    assert result.report.shapes == {"x": (7, 96)}
    with pytest.raises(UsageError):
        estimated(two_products(), RULES, input_shapes={"z": (7, 96)})


@pytest.mark.parametrize(
    "settings",
    [
        *({"cost": "guessed"}, {"budget": 0}, {"provider": "abacus"}, {"threads": 0}),
        {"cost": "learned", "provider": "cuda"},
        *({"threads": 10**6}, {"check": 0}, {"rtol": -1.0}, {"atol": float("nan")}, {"seed": -1}),
        *({"input_shapes": each} for each in ("x:1,96", {"x": 1}, {"x": (1.5, 96)}, [("x", 1)])),
    ],
)
def test_settings_without_sense_are_usage_errors(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        estimated(two_products(), RULES, **settings)


def test_a_broken_file_is_a_model_error(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x08nothing")
    with pytest.raises(ModelError):
        estimated(path, RULES)


def test_import_is_light() -> None:
    code = "import sys, xflow; print('onnx' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert xflow.__version__


def test_a_model_that_does_not_run_is_said_to_where_nothing_was_found() -> None:
    model = two_products(8)
    model.graph.initializer[0].dims[:] = [4, 16]
    result = xflow.optimize(model, rules=[], budget=1, threads=1)
    assert not result.report.changed
    assert any("does not run" in text for text in result.report.warnings)


def test_names_and_sizes_may_be_what_they_often_are() -> None:
    """One name instead of a list of them, and numpy's integers."""
    shapes = {"x": np.array([7, 96])}
    result = estimated(two_products(), RULES, only_rules="relu-of-relu", input_shapes=shapes)
    assert {use.name for use in result.report.rules} == {"relu-of-relu"}
    assert '"x": [\n' in result.report.to_json()
    with pytest.raises(UsageError, match="parse_rules"):
        estimated(two_products(), ["relu-of-relu"])  # type: ignore[list-item]


def test_a_script_in_a_checkout_finds_all_parts_however_xflow_is_installed() -> None:
    code = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
        "import xflow.generator, xflow.verifier.prove\n"
        "from xflow.rewriting.store import default_directory\n"
        "print(default_directory())"
    )
    root = Path(xflow.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()) == root / "rules"


def test_sums_that_round_to_integers_stay_where_the_search_does_not_see_why() -> None:
    """The constant that is added has more elements than a search looks at."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4, 8] x) => (float[1, 4, 8] y)'
        " { a = Add(x, b) n = Neg(a) y = Sub(c, n) }"
    )
    random = np.random.default_rng(0)
    for name, least in (("b", 1e7), ("c", 0.1)):
        data = (least * (1 + random.random((4, 8)))).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(data, name))
    result = xflow.optimize(model, budget=5, cost="estimated")
    first, *_ = result.model.graph
    assert {value.name for value in first.inputs if value is not None} == {"x", "b"}
