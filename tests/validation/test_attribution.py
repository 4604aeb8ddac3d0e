"""Which rewrites help the whole model, and that those which do harm are left out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from graphs import call, tensor
from products import RULES, Unmeasured, one_relu, operators, separated, two_products

import xflow
from xflow.core.deadline import NEVER, Deadline
from xflow.core.graph import Graph
from xflow.core.node import Opaque, TensorType, Value, apply, leaf
from xflow.core.registry import Operator
from xflow.cost.comparison import Comparison, Timing
from xflow.cost.estimate import Estimator
from xflow.cost.measure import Measurer, Setting
from xflow.cost.model import CostsAtSettings
from xflow.pipeline import api, attempts
from xflow.rewriting.replacement import Replacement, Replacements, apply_replacements
from xflow.search.driver import SearchResult
from xflow.validation import attribution, validate
from xflow.validation.attribution import (
    Contest,
    attribute_time,
    groups,
    leave_out,
    only_measured,
)
from xflow.validation.equivalence import CheckResult, check_equivalent

X = leaf("x", TensorType("FLOAT", (4,)))


def compared(before: float, after: float) -> Comparison:
    ratio = before / after
    timings = Timing((before, before)), Timing((after, after))
    return Comparison(ratio, ratio - 0.01, ratio + 0.01, *timings, passes=2)


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements go to a store of the test's own."""
    monkeypatch.setenv("XFLOW_CACHE", str(tmp_path / "costs.sqlite"))


def unary(op: str, value: Value) -> Value:
    return apply(op, [value])[0]


def chain() -> tuple[Graph, Replacements]:
    """Two equal regions, which are one group, and another one between them."""
    names = ("Relu", "Relu", "Tanh", "Neg", "Relu", "Relu")
    values = [X]
    for name in names:
        values.append(unary(name, values[-1]))
    first = Replacement((values[2],), (values[1],), ("relu",), 1.0)
    odd = Replacement((values[4],), (unary("Tanh", unary("Neg", values[2])),), ("odd",), 3.0)
    last = Replacement((values[6],), (values[5],), ("relu",), 1.0)
    return Graph((values[-1],)), (last, odd, first)


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if isinstance(node.op, Operator)]


def test_a_group_is_left_out_whole_and_the_most_gainful_comes_first() -> None:
    graph, replacements = chain()
    assert groups(replacements) == [("odd",), ("relu",)]
    assert names(apply_replacements(graph, replacements)) == ["Relu", "Neg", "Tanh", "Relu"]
    without = leave_out(replacements, ("relu",))
    assert without is not None
    assert names(apply_replacements(graph, without)) == [
        "Relu", "Relu", "Neg", "Tanh", "Relu", "Relu",
    ]  # fmt: skip
    without = leave_out(replacements, ("odd",))
    assert without is not None
    assert names(apply_replacements(graph, without)) == ["Relu", "Tanh", "Neg", "Relu"]


def test_gains_are_those_of_leaving_out_and_harm_is_dropped() -> None:
    graph, replacements = chain()
    costs = {"Neg": 1.0, "Relu": 1.0, "Tanh": 5.0}

    def seconds(items: Replacements) -> float:
        made = names(apply_replacements(graph, items))
        slow = 2.0 if made.index("Neg") < made.index("Tanh") else 0.0
        return slow + sum(costs[name] for name in made)

    found = attribute_time(
        replacements,
        lambda rest, whole: compared(seconds(rest), seconds(whole)),
        lambda _: 0.005,
        deadline=NEVER,
        step_s=0.0,
    )
    assert found.dropped == (("odd",),)
    assert found.gains == {("relu",): 2.0}
    assert names(apply_replacements(graph, found.replacements)) == ["Relu", "Tanh", "Neg", "Relu"]


def test_what_there_is_no_time_for_is_not_tried() -> None:
    _, replacements = chain()
    found = attribute_time(
        replacements,
        lambda rest, whole: compared(1.0, 2.0),
        lambda _: 0.005,
        deadline=Deadline.after(5),
        step_s=10.0,
    )
    assert (found.replacements, found.gains, found.dropped) == (replacements, {}, ())


def proposing(*chosen: str) -> Any:
    """A search that proposes to leave out the second Relu of the products, and doubles the lone.

    The one that measures behind it, of a graph that has an `origin`, proposes nothing.
    """

    def search(graph: Graph, *_: object, origin: Graph | None = None, **__: object) -> SearchResult:
        if origin is not None:
            return SearchResult(graph, ())
        relus = [
            node.outputs[0]
            for node in graph.nodes
            if isinstance(node.op, Operator) and node.op.name == "Relu"
        ]
        (lone,) = (v for v in relus if isinstance(v.node.inputs[0].node.op, Opaque))
        (twice,) = (v for v in relus if v.node.inputs[0] in relus)
        steps = {
            "more": Replacement((lone,), (unary("Relu", lone),), ("more",), 1e-6),
            "fewer": replace(one_relu(twice), rules=("fewer",)),
        }
        made = tuple(steps[name] for name in chosen)
        return SearchResult(apply_replacements(graph, made), made)

    return search


def relus(path: Path) -> int:
    model = onnx.load(path)
    return sum(node.op_type == "Relu" for node in model.graph.node)


def time_by_relus(
    self: Measurer, before: Path, after: Path, _: float, settings: Sequence[Setting], **__: object
) -> Any:
    return (compared(float(relus(before)), float(relus(after))),) * len(settings)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Models take a second for each Relu; nothing else is measured."""
    monkeypatch.setattr(Measurer, "compare_at_each", time_by_relus)
    monkeypatch.setattr(attempts, "CostsAtSettings", lambda *_: Unmeasured())
    path = tmp_path / "model.onnx"
    onnx.save(separated(), path)
    return path


def optimized(model: api.Model, **settings: Any) -> api.Result:
    return xflow.optimize(model, rules=RULES, budget=2, threads=1, check=1, **settings)


def test_what_was_measured_is_left_as_it_is_without_what_was_estimated() -> None:
    """What was measured stands on what was estimated, and on what stood there before as well."""
    x = tensor("x", 2)
    inner = call("Relu", call("Relu", x))
    before = call("Neg", call("Neg", inner))
    short = call("Relu", x)
    guess = Replacement((inner,), (short,), ("guess",), 1.0, estimated=True)
    moved = call("Neg", call("Neg", short))
    known = Replacement((moved,), (short,), ("known",), 1.0)
    rest = only_measured((guess, known))
    assert [item.rules for item in rest] == [("known",)]
    assert apply_replacements(Graph((before,)), rest).outputs == (inner,)
    assert only_measured((guess,)) == ()
    assert only_measured((known,)) == (known,)


def test_a_group_that_slows_the_model_down_is_dropped(
    staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "search", proposing("more", "fewer"))
    report = optimized(staged).report
    assert report.changed
    assert [(use.name, use.gain, use.gain_from) for use in report.rules] == [
        ("fewer", 1.0, "model")
    ]
    assert any("by more were left out" in text for text in report.messages)
    assert report.ratio is not None
    assert report.ratio.value == 1.5


def test_harm_alone_changes_nothing(staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "search", proposing("more"))
    report = optimized(staged).report
    assert not report.changed
    assert any("not measurably faster" in text for text in report.messages)


def test_what_is_known_to_help_is_kept_where_there_was_no_time_for_what_does_harm(
    staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All together gain nothing, and of one group nothing is known."""

    def hurried(replacements: Replacements, contest: Contest, *rest: Any, **more: Any) -> Any:
        def some(fewer: Replacements, whole: Replacements) -> Comparison | None:
            return contest(fewer, whole) if ("more",) in groups(fewer) else None

        return attribute_time(replacements, some, *rest, **more)

    monkeypatch.setattr(attribution, "attribute_time", hurried)
    monkeypatch.setattr(attempts, "search", proposing("more", "fewer"))
    report = optimized(staged).report
    assert report.changed
    assert [use.name for use in report.rules] == ["fewer"]
    assert any("by more were left out" in text for text in report.messages)


def test_a_rewrite_that_slows_down_is_dropped_for_other_objectives_too(
    staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "search", proposing("more", "fewer"))
    report = optimized(staged, objective="nodes").report
    assert [use.name for use in report.rules] == ["fewer"]
    assert (report.amount_before, report.amount_after) == (7, 6)


SETTINGS = [{"x": (2, 96)}, {"x": (7, 96)}]


@pytest.mark.parametrize(("slower", "changed"), [(1.2, True), (0.99, False)])
def test_the_worst_setting_decides(
    slower: float, changed: bool, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratios: dict[tuple[int, ...], float] = {(2, 96): 1.5, (7, 96): slower}

    def by_shape(
        _: object, __: Path, ___: Path, ____: float, settings: Sequence[Setting], **_____: object
    ) -> tuple[Comparison, ...]:
        return tuple(compared(ratios[tuple(each.shapes["x"])], 1.0) for each in settings)

    monkeypatch.setattr(Measurer, "compare_at_each", by_shape)
    monkeypatch.setattr(attempts, "search", proposing("fewer"))
    result = optimized(staged, input_shapes=SETTINGS)
    report = result.report
    assert report.changed is changed
    assert report.shapes == {"x": (7, 96)}
    assert [setting.shapes["x"] for setting in report.settings] == [(2, 96), (7, 96)]
    if changed:
        assert report.ratio is not None
        assert report.ratio.value == slower
        assert report.settings[0].ratio is not None
        assert report.settings[0].ratio.value == 1.5
    shapes = [list(value.shape or ()) for value in result.model.graph.inputs]
    assert str(shapes[0][0]) == "N"


def test_models_are_compared_at_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def noting(*sources: Any, **options: Any) -> CheckResult:
        seen.append(options["shapes"])
        return check_equivalent(*sources, **options)

    monkeypatch.setattr(validate, "check_equivalent", noting)
    result = optimized(two_products(), cost="estimated", input_shapes=SETTINGS)
    assert operators(result) == ["MatMul", "Relu"]
    assert seen == SETTINGS


def test_a_measured_run_at_several_settings_goes_all_the_way() -> None:
    for _ in range(4):  # beside other work, no form of a region may be seen to gain
        settings = [{"x": (1, 256)}, {"x": (64, 256)}]
        report = optimized(two_products(256), input_shapes=settings).report
        assert len(report.settings) == 2
        if all(setting.latency_before is not None for setting in report.settings):
            return
    pytest.fail("nothing was timed, four times")


def test_a_form_is_worth_what_it_gains_in_the_mean_unless_it_loses_somewhere() -> None:
    class Fixed(Unmeasured):
        def __init__(self, *times: float | None) -> None:
            super().__init__()
            self.times = list(times)

        def measure(self, graphs: object, seconds: float, *, again: int = 0) -> list[float | None]:
            return self.times

    def measured(*settings: Fixed) -> list[float | None]:
        costs = CostsAtSettings(settings, Estimator())  # type: ignore[arg-type]
        return costs.measure([Graph((X,))] * 4, 1.0)

    times = measured(Fixed(1.0, 0.5, 0.5, 0.5), Fixed(10.0, 8.0, None, 10.5))
    assert times == [1.0, 0.65, None, 1.05]
    lost = measured(Fixed(1.0, 0.5, 0.5, 0.5), Fixed(None, None, None, None))
    assert lost == [None, None, None, None]
    assert measured(Fixed(1.0, 0.5, 0.9, 2.0)) == [1.0, 0.5, 0.9, 2.0]
