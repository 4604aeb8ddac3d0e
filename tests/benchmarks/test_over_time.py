"""The benchmark of gain over time: what its table and its chart say."""

import argparse
import json
from pathlib import Path

import over_time
import pytest
from over_time import CACHE, Row, measure, ratio, save, summary

from tools import Attempt, Failure

BUDGETS = (8.0, 30.0)
ROWS = [
    Row(
        "first",
        [
            Attempt("8 s", seconds=10.0, is_unchanged=True, ratio=1.0),
            Attempt("30 s", seconds=50.0, ratio=1.21, low=1.2, high=1.22),
        ],
        [8.0, 29.0],
    ),
    Row(
        "second",
        [
            Attempt("8 s", seconds=14.0, ratio=0.97, low=0.96, high=0.98),
            Attempt("30 s", seconds=70.0, fault=Failure.CRASHES, wrong="out of memory"),
        ],
        [9.0, 31.0],
    ),
]


def test_each_budget_has_a_line_of_what_all_models_come_to() -> None:
    short, long = summary(ROWS, BUDGETS)
    assert short == ("8 s", "0.985", "12.0", "14.0", "0 of 2", "1", "1", "0")
    # Where a run has failed, the user keeps the input.
    assert long == ("30 s", "1.100", "60.0", "70.0", "1 of 2", "0", "0", "1")


def test_a_cell_tells_the_ratio_and_the_seconds_or_what_went_wrong() -> None:
    (unchanged, faster), (_, failed) = (row.attempts for row in ROWS)
    assert ratio(unchanged) == "1.000, 10 s"
    assert ratio(faster) == "1.210 (1.200-1.220), 50 s"
    assert ratio(failed) == "crashes"


def test_a_model_that_stays_as_it_is_with_every_budget_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "costs.sqlite"))
    (tmp_path / "costs.sqlite").write_bytes(b"")
    monkeypatch.setattr(over_time, "prepare", lambda *_: None)
    monkeypatch.setattr(over_time, "optimize", lambda *_: Attempt("", is_unchanged=True, ratio=1.0))
    row = measure("resnet50", BUDGETS, argparse.Namespace(threads=1, seconds=1.0))
    assert [made.tool for made in row.attempts] == ["8 s", "30 s"]
    assert {made.gain for made in row.attempts} == {1.0}


def test_the_same_figures_make_the_same_page_and_chart(tmp_path: Path) -> None:
    written = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        options = argparse.Namespace(provider="cpu", threads=2, budget=30.0, out=folder)
        save(ROWS, BUDGETS, options)
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1]
    plain = json.loads(written[0]["over-time-cpu-2-threads.json"])
    assert plain["budgets"] == [8.0, 30.0]
    assert [row["model"] for row in plain["rows"]] == ["first", "second"]
    assert "| second | 0.970 (0.960-0.980), 14 s | crashes |" in (
        written[0]["over-time-cpu-2-threads.md"].decode()
    )
