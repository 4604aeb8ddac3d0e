"""How well each tier of the cost ranks variants of a model: `benchmarks/ranking.py`."""

import argparse
from pathlib import Path

import pytest

import ranking
from ranking import COSTS, Ranking, Row, Variant, markdown, medians, tau
from run import prepare
from xflow.cost.measure import Measurer, Target
from xflow.cost.store import Store
from xflow.cost.target import TargetModel
from xflow.rewriting.store import default_directory, load_rules


def variant(predicted: float, measured: float, *, apart: bool = True) -> Variant:
    low, high = (0.5, 0.9) if apart else (0.9, 1.1)
    return Variant(("rule",), dict.fromkeys(COSTS, predicted), measured, low, high)


def test_tau_says_whether_the_order_is_the_same() -> None:
    sizes = range(1, 7)
    assert tau([variant(size, size**2) for size in sizes], "regions") == pytest.approx(1)
    assert tau([variant(-size, size) for size in sizes], "regions") == pytest.approx(-1)


def test_the_original_is_ranked_with_its_variants() -> None:
    faster = [variant(-size, size) for size in range(1, 7)]
    slower = [variant(size, size) for size in range(1, 7)]
    both = tau([*faster[:3], *slower[:3]], "default")
    assert both is not None
    assert -1 < both < 1


def test_nothing_is_said_of_few_variants_or_of_those_predicted_to_be_the_same() -> None:
    assert tau([variant(1, 1)] * 4, "FLOPs") is None
    assert tau([variant(0, size) for size in range(6)], "FLOPs") is None


def test_the_table_has_a_tau_over_those_that_are_told_apart() -> None:
    apart = [variant(size, size) for size in range(1, 6)]
    noise = [variant(size, -size, apart=False) for size in range(1, 6)]
    row = Row.of("model", [*apart, *noise], 1.0)
    assert row.apart["calibrated"] == pytest.approx(1)
    assert row.taus["calibrated"] != row.apart["calibrated"]
    page = markdown([row], argparse.Namespace(threads=2, provider="cpu"))
    assert "| model | 10 | 5 |" in page
    assert "(1.00)" in page


def test_the_last_line_is_over_models_with_something_to_rank() -> None:
    right = Row.of("right", [variant(size, size) for size in range(1, 7)], 1.0)
    wrong = Row.of("wrong", [variant(-size, size) for size in range(1, 7)], 1.0)
    few = Row.of("few", [variant(1, 1)], 1.0)
    assert medians([right, wrong, few]) == ("median", "13", "13", *["0.00 (0.00)"] * len(COSTS))
    assert medians([few]) == ("median", "1", "1", *["- (-)"] * len(COSTS))


def test_variants_of_a_model_are_priced_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "calibrated", lambda *_: TargetModel())
    options = argparse.Namespace(
        variants=3, budget=3.0, seconds=0.1, threads=1, provider="cpu", seed=0
    )
    prepare("squeezenet1_1", tmp_path / "model.onnx")
    with Measurer(Target("cpu", 1)) as measurer, Store(tmp_path / "costs.sqlite") as store:
        rules = load_rules(default_directory())
        found = Ranking(tmp_path / "model.onnx", rules, measurer, store, options).variants()
    assert len(found) == 3
    for each in found:
        assert each.rules
        assert set(each.predicted) == set(COSTS)
        assert each.low <= each.high
