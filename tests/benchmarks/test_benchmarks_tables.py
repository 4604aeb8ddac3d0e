"""The benchmark's tables, chart and files, from rows that are given."""

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from figures import BENCH, README, VERIFIER, bench_block, exported, main, needs_block, summary

from chart import draw
from judge import Fault
from run import failure, recognised, save
from tables import Row, geometric_mean, markdown, means, rows_of
from tools import NORMWISE, VARIANTS, XFLOW, Attempt, Failure
from xflow.rewriting.store import default_directory, load_rules


def attempt(tool: str, ratio: float, spread: float = 0.0, /, **more: Any) -> Attempt:
    figures = {"ratio": ratio, "low": ratio - spread, "high": ratio + spread, "before_s": 0.01}
    return Attempt(tool, **{"seconds": 1.0, **figures, **more})


BLOCKS = [
    {"kind": "attention", "recognised": True},
    {"kind": "activation", "recognised": True},
    {"kind": "attention", "recognised": False},
]
ROWS = [
    Row(
        "first",
        False,
        [attempt(XFLOW, 2.0, 0.1), attempt("peer", 0.5), Attempt("other", Failure.MISSING)],
        headroom=0.4,
        removed=0.25,
        recognised=recognised({"blocks": BLOCKS}),
        spent_on="not said, since it gains",
    ),
    Row(
        "second",
        False,
        [
            Attempt(XFLOW, is_unchanged=True, ratio=1.0),
            attempt("peer", 1.01, 0.02),
            attempt("other", 1.1, 0.05, fault=Fault.NOT_VALID, wrong="not valid: a | b"),
        ],
        spent_on="all of its time is Conv",
    ),
    Row(
        "third",
        True,
        [
            Attempt(XFLOW, Fault.WRONG, "wrong: differs by 1"),
            attempt("peer", 0.9, 0.2),
            Attempt("other", Failure.CRASHES, "crashed"),
        ],
    ),
]
TOOLS = (XFLOW, "peer", "other")


def test_the_best_tool_is_faster_than_its_spread() -> None:
    assert [row.best for row in ROWS] == [XFLOW, "other", "none"]


def test_a_tool_that_fails_counts_as_one_in_the_mean() -> None:
    averages = means(ROWS, TOOLS)
    assert averages["exported"][XFLOW] == pytest.approx(math.sqrt(2))
    assert averages["exported"]["other"] == pytest.approx(math.sqrt(1.1))
    assert averages["exported"]["best peer"] == pytest.approx(math.sqrt(1.1))
    assert averages["built after the papers"] == pytest.approx(
        {XFLOW: 1.0, "peer": 0.9, "other": 1.0, "best peer": 1.0}
    )
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_the_page_has_ratios_costs_failures_and_what_time_is_spent_on() -> None:
    page = "\n".join(markdown(ROWS, TOOLS))
    assert "| first |  | 10.0 | 2.000 (1.900-2.100) | 0.500 (0.500-0.500) | not installed |" in page
    assert "| xflow | 40 % | 25 % |" in page
    assert "| 1 | 1.010 (0.990-1.030) | 1.100* (1.050-1.150) | other |" in page
    assert "| geometric mean, 2 exported |" in page
    assert "| geometric mean, 1 built after the papers |" in page
    assert "second: not valid: a \\| b; third: crashed" in page
    assert "- second: all of its time is Conv." in page
    assert "not said" not in page
    assert "| model | activation | attention |" in page
    assert "| first | 1 of 1 | 1 of 2 |" in page
    assert "| second |  |  |" in page


def test_the_chart_is_the_same_for_the_same_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for file in files:
        assert draw(ROWS, TOOLS, "title", file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert all(f">{row.model}<" in files[0].read_text() for row in ROWS)


def test_a_result_of_xflow_fails_if_it_is_wrong_late_or_slower() -> None:
    options = argparse.Namespace(budget=10.0)

    def told(beside: float = 0.0, **more: Any) -> str:
        phases = {"search": 9.0, "timing": beside / 2, "attribution": beside / 2}
        return failure(Row("model", False, [attempt(XFLOW, 1.0, **more)], phases=phases), options)

    assert told() == told(seconds=11.0) == told(ratio=0.985) == ""
    assert told(seconds=12.0) == "late: 12 s beside the final timing"
    assert told(seconds=12.0, beside=2.0) == ""
    assert told(ratio=0.97) == "slower: 0.970"
    assert told(fault=Fault.WRONG, wrong="wrong: differs by 1") == "wrong: differs by 1"
    assert told(ratio=None, fault=Failure.HANGS) == "times out"


def saving(out: Path, **other: Any) -> argparse.Namespace:
    """The options of a run that writes results."""
    given = {"threads": 2, "provider": "cpu", "budget": 10.0, "seconds": 1.0, "peers": ()}
    given |= {"variants": (), "dynamic": False, "again": False}
    given |= {"busy": False, "twice": False, "normwise": False}
    return argparse.Namespace(**{**given, **other}, out=out)


def test_results_are_a_page_with_a_chart_and_json(tmp_path: Path) -> None:
    options = saving(tmp_path / "new", peers=TOOLS[1:])
    save(ROWS, options)
    page = (options.out / "cpu-2-threads.md").read_text()
    assert "2 threads" in page
    assert "- third: wrong: differs by 1." in page
    plain = json.loads((options.out / "cpu-2-threads.json").read_text())
    assert plain["geometric_means"] == means(ROWS, TOOLS)
    assert [row["model"] for row in plain["rows"]] == ["first", "second", "third"]
    assert ("(cpu-2-threads.svg)" in page) == (options.out / "cpu-2-threads.svg").exists()


def test_variants_have_columns_and_a_file_of_their_own_and_are_no_peers(tmp_path: Path) -> None:
    made = [attempt(name, 1.0 + k / 10) for k, name in enumerate(VARIANTS)]
    rows = [Row("first", False, made), Row("second", False, made[:1])]
    save(rows, saving(tmp_path, variants=("first",)))
    page = (tmp_path / "cpu-2-threads-variants.md").read_text()
    assert "| xflow | xflow --domains ort | xflow --keep-opset |" in page
    assert "| 1.000 (1.000-1.000) | 1.100 (1.100-1.100) | 1.200 (1.200-1.200) |" in page
    assert "Best peer" not in page
    assert "second" not in page
    page = (tmp_path / "cpu-2-threads.md").read_text()
    assert "| model | operators | ms | xflow | best |" in page
    assert "| second |" in page


def test_a_level_of_assumptions_has_a_column_and_a_file_of_its_own(tmp_path: Path) -> None:
    rows = [Row("first", False, [attempt(XFLOW, 1.0), attempt(NORMWISE, 1.25)])]
    save(rows, saving(tmp_path, normwise=True))
    page = (tmp_path / "cpu-2-threads-normwise.md").read_text()
    assert "| xflow | xflow --assume normwise |" in page
    assert "1.250 (1.250-1.250)" in page


def test_a_model_that_is_measured_again_replaces_its_own_row_and_is_named(tmp_path: Path) -> None:
    options = saving(tmp_path)
    save([Row(name, False, [attempt(XFLOW, 1.5)]) for name in ("a", "b", "c")], options)
    options.again = True
    save([Row("b", False, [attempt(XFLOW, 1.25)])], options)
    save([Row("c", False, [attempt(XFLOW, 1.125)])], options)
    plain = json.loads((tmp_path / "cpu-2-threads.json").read_text())
    found = {row.model: row.attempt(XFLOW).ratio for row in rows_of(plain)}
    assert found == {"a": 1.5, "b": 1.25, "c": 1.125}
    assert "Measured again after the others: b, c." in (tmp_path / "cpu-2-threads.md").read_text()


def test_rows_survive_json() -> None:
    plain = json.loads(json.dumps({"rows": [dataclasses.asdict(row) for row in ROWS]}))
    assert rows_of(plain) == list(ROWS)


def test_the_readme_says_what_the_committed_run_of_the_benchmark_wrote() -> None:
    rows = exported(rows_of(json.loads(BENCH.read_text())))
    page = README.read_text()
    assert f"<!-- summary -->\n{summary(rows)}\n<!-- /summary -->" in page
    assert f"<!-- bench -->\n{bench_block(rows)}\n<!-- /bench -->" in page


def test_the_readme_speaks_of_the_models_that_its_mean_is_over() -> None:
    rows = [Row("b", False, [attempt(XFLOW, 1.5)]), Row("built", True, [attempt(XFLOW, 3.0)])]
    rows.append(Row("a", False, [attempt(XFLOW, 1.5)]))
    assert [row.model for row in exported(rows)] == ["a", "b"]
    assert summary(exported(rows)).startswith("2 real architectures")


def test_figures_go_between_the_marks_of_a_page(tmp_path: Path) -> None:
    family = {"family": "linear", "graphs": 1000, "proposed": 40, "proved": 9, "kept": 8}
    counts = {"shortcuts": 3, "gaps": 1, "refuted": 1, "unknown": 0, "seconds": 2.4}
    report = tmp_path / "report.json"
    report.write_text(
        json.dumps(
            {
                **{"families": [family | counts], "busy_seconds": 2.4, "seconds": 61.0},
                **{"false_rate": 0.1, "peak_memory": 2e9, "workers": 2, "stanzas": 5},
            }
        )
    )
    page = tmp_path / "page.md"
    marks = ("summary", "bench", "generation", "needs")
    page.write_text("\n".join(f"<!-- {mark} -->\nold\n<!-- /{mark} -->\nkept" for mark in marks))
    line = ["--page", str(page), "--needs", str(page), "--generation", str(report)]
    assert main(line) == 0
    text = page.read_text()
    assert "old" not in text
    assert text.count("\nkept") == 4
    assert "| linear | 1,000 | 40 | 9 | 5 | 7 | 2 |" in text
    assert "1 min 1 s" in text
    assert "The 8 rules are written in 5 stanzas." in text


def test_the_documents_say_what_the_rules_of_the_database_need() -> None:
    told = needs_block(load_rules(default_directory()))
    assert f"<!-- needs -->\n{told}\n<!-- /needs -->" in VERIFIER.read_text()


def test_a_page_without_marks_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    assert main(["--page", str(page), "--needs", str(page)]) == 1
    assert "no marks" in capsys.readouterr().err
    assert page.read_text() == "nothing"
