"""The table of what the runtime simplifies around codes: current, and each verdict holds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from qdq import (
    MARK,
    PAGE,
    PROVED,
    REFUTED,
    UNKNOWN,
    Outcome,
    Simplification,
    judge,
    judge_model,
    main,
    optimized,
    run,
    simplifications,
    table,
)

from xflow.rewriting.store import default_directory, load_rules

ITEMS = simplifications()
MAX_PRODUCT = 255
"""The largest difference of two codes, with which a scale is multiplied."""


@cache
def outcome_of(number: int) -> Outcome:
    return judge(ITEMS[number], load_rules(default_directory()))


def outcomes() -> list[Outcome]:
    return [outcome_of(number) for number in range(len(ITEMS))]


@pytest.mark.parametrize("number", range(len(ITEMS)), ids=[item.name for item in ITEMS])
def test_each_verdict_is_the_one_that_is_expected(number: int) -> None:
    outcome = outcome_of(number)
    assert outcome.verdict == ITEMS[number].expect, outcome.words
    assert outcome.words


@pytest.mark.many
def test_the_page_is_current() -> None:
    told = table(ITEMS, outcomes())
    assert f"<!-- {MARK} -->\n{told}\n<!-- /{MARK} -->" in PAGE.read_text(encoding="utf-8")


@pytest.mark.many
def test_what_the_search_applies_agrees_to_the_bit() -> None:
    """Codes are discrete: a rule that makes them and rounds is refused, as its numerics say."""
    proved = [outcome for outcome in outcomes() if outcome.verdict == PROVED]
    applied = [outcome for outcome in proved if outcome.words.startswith("to the bit")]
    assert applied
    for outcome in proved:
        assert outcome.confirmed
        assert (outcome.applied == "refused: discrete") == (outcome not in applied)


def test_each_equation_is_one_of_codes_of_both_types() -> None:
    for item in ITEMS:
        rules = list(item.rules())
        assert bool(rules) != bool(item.model)
        if "to='signed'" in item.rule:
            assert "to='unsigned'" in str(rules[1].lhs) + str(rules[1].rhs)


PAIR = """<ir_version: 8, opset_import: ["" : 17]>
m ({codes}[256, 256] c, float[256] s, {codes}[256] z) => ({codes}[256, 256] y) {{
  x = DequantizeLinear<axis = 1>(c, s, z)
  y = QuantizeLinear<axis = 1>(x, s, z)
}}"""


@pytest.mark.parametrize("codes", ["int8", "uint8"])
def test_codes_come_back_by_every_scale_with_which_no_product_overflows(codes: str) -> None:
    """As the page says: of all codes and zero points, scales of all exponents, of either sign."""
    rng = np.random.default_rng(3)
    model = onnx.parser.parse_model(PAIR.format(codes=codes))
    limits = np.iinfo(codes)
    all_codes = np.arange(limits.min, limits.max + 1).astype(codes)
    most = float(np.finfo(np.float32).max) / MAX_PRODUCT
    for _ in range(20):
        scales = np.ldexp(rng.uniform(1, 2, 256), rng.integers(-149, 121, 256))
        scales = np.minimum(scales, most).astype(np.float32) * rng.choice([-1, 1], 256)
        scales[:4] = most, -most, 2.0**-149, 3 * 2.0**-149
        feeds = {
            "c": np.repeat(all_codes[:, None], 256, axis=1),
            "s": scales.astype(np.float32),
            "z": rng.permutation(all_codes),
        }
        assert (feeds["s"] != 0).all()
        (made,) = run(model, feeds)
        np.testing.assert_array_equal(made, feeds["c"])


def test_a_model_that_the_runtime_does_not_change_shows_nothing() -> None:
    (item,) = [item for item in ITEMS if item.of == "Add as QLinearAdd"]
    float_sum = item.model.replace("QuantizeLinear(e, t, z)", "Cast<to = 3>(e)")
    outcome = judge_model(Simplification(item.by, item.of, UNKNOWN, model=float_sum,
                                         feeds=item.feeds, becomes=item.becomes))  # fmt: skip
    assert outcome == Outcome(UNKNOWN, "the runtime does not make it")
    made = optimized(onnx.parser.parse_model(item.model))
    assert [node.op_type for node in made.graph.node] == ["QLinearAdd"]


def test_a_verdict_that_is_not_expected_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- {MARK} -->\n<!-- /{MARK} -->\n")
    equation = "  in x[n] y[n]\n  from {0}(x, y)\n  to {0}(y, x)\n"
    items = [
        Simplification("By", "sums", REFUTED, rule=equation.format("Add")),
        Simplification("By", "differences", PROVED, rule=equation.format("Sub")),
    ]
    monkeypatch.setattr("qdq.simplifications", lambda: items)
    assert main(["--page", str(page)]) == 1
    said = capsys.readouterr().out
    assert "By: sums: proved" in said
    assert "By: differences: refuted" in said
    assert "| By | sums | proved | to the bit |" in page.read_text()
