"""The page of a report: whole, safe, and alive in a real browser."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from products import RULES, separated

from xflow.cli import entry
from xflow.core.errors import ExitCode
from xflow.report.page import page, verdict

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run that rewrote a model, with a page beside it."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "rules").mkdir()
    (folder / "rules" / "own.rules").write_text("\n".join(map(str, RULES)))
    onnx.save(separated(), folder / "in.onnx")
    models = [str(folder / name) for name in ("in.onnx", "out.onnx")]
    options = [
        "--cost",
        "estimated",
        "--check",
        "1",
        "--budget",
        "5",
        "--rules",
        str(folder / "rules"),
    ]
    written = ["--report", str(folder / "r.json"), "--html", str(folder / "r.html")]
    assert entry.main([*models, *options, *written, "-q"]) == ExitCode.OK
    return folder / "r.json"


def told(report_file: Path, **changes: object) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(report_file.read_text())
    return {**report, **changes}


def test_a_page_is_made_with_the_model_or_later(report_file: Path, tmp_path: Path) -> None:
    later = tmp_path / "later.html"
    assert entry.main(["report", str(report_file), "--html", str(later), "-q"]) == ExitCode.OK
    made = [path.read_text() for path in (report_file.with_suffix(".html"), later)]
    # The seconds that writing took are known only behind the page.
    assert len({re.sub(r'"write": [\d.e-]+', "", text) for text in made}) == 1
    assert "merge-products" in made[0]
    assert "{{" not in re.sub(r"<script>.*?</script>", "", made[0], flags=re.DOTALL)


def test_a_name_in_the_model_is_no_markup(report_file: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    report = told(report_file, input=evil, messages=[evil])
    report["drawing"]["before"]["nodes"][0]["name"] = evil
    assert "<script>alert" not in page(report)


LATENCY = {"median": 0.002, "spread": 0.0001, "runs": 2, "samples": [0.002, 0.002]}


def test_the_verdict_is_one_sentence(report_file: Path) -> None:
    assert "estimate alone" in verdict(told(report_file))
    ratio = {"value": 1.25, "low": 1.2, "high": 1.3}
    timed = told(report_file, ratio=ratio, latency_before=LATENCY, latency_after=LATENCY)
    assert verdict(timed).startswith(
        "1.250 times as fast (95 % confidence: 1.200 to 1.300), 2.00 ms"
    )
    smaller = told(report_file, objective="size", amount_before=2048.0, amount_after=1024.0)
    assert verdict(smaller).startswith("1.00 KiB instead of 2.00 KiB")
    assert "the input's own graph" in verdict(told(report_file, changed=False))


@pytest.fixture
def browser() -> Iterator[Any]:
    """A real browser, as `.ci/run` installs it."""
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.mark.browser
def test_the_page_lives_in_a_browser(report_file: Path, browser: Any) -> None:
    view = browser.new_page(viewport={"width": 1400, "height": 1000})
    faults: list[str] = []
    view.on("pageerror", lambda error: faults.append(str(error)))
    view.on("console", lambda entry: faults.append(entry.text) if entry.type != "log" else None)
    view.on("request", lambda asked: faults.append(asked.url) if "file:" not in asked.url else None)
    view.goto(report_file.with_suffix(".html").as_uri())
    view.wait_for_selector("html[data-ready=yes]")
    assert "estimate alone" in view.inner_text("#verdict")

    # A click, by the mouse, on an operator that was rewritten: its rules, and both sides of one.
    at = view.evaluate("xflowModels[0].cy.nodes('[region >= 0]')[0].renderedPosition()")
    frame = view.locator("#before").bounding_box()
    view.mouse.click(frame["x"] + at["x"], frame["y"] + at["y"])
    assert view.locator("#detail ol li").count() == 2
    assert view.locator("#detail .sides svg").count() == 2
    view.locator("#detail ol li button", has_text="relu-of-relu").click()
    assert "Relu(Relu(x))" in view.inner_text("#detail pre")

    # The blocks of the model, and where they are.
    assert view.inner_text("#recognised").startswith("2 of 2 activations: one operator")
    assert view.locator("#blocks tr", has_text="several operators").count() == 1
    view.locator("#blocks details summary").first.click()
    view.locator("#blocks details button").first.click()
    assert view.inner_text("#hits").endswith("after")

    view.fill("#search", "matmul")
    assert view.inner_text("#hits") == "2 before, 1 after"
    assert view.evaluate("xflowModels[0].cy.nodes('.hit').length") == 2

    shown = "xflowModels[0].cy.nodes().length"
    whole = view.evaluate(shown)
    view.evaluate("xflowModels[0].folded.add(xflowModels[0].blocks[2]); xflowModels[0].draw()")
    assert view.evaluate(shown) < whole
    view.click("#unfold")
    assert view.evaluate(shown) == whole

    zoom = view.evaluate("xflowModels[0].cy.zoom()")
    frame = view.locator("#before").bounding_box()  # the page has scrolled since
    view.mouse.move(frame["x"] + 100, frame["y"] + 100)
    # The drawing takes no wheel for a moment after the page has scrolled. Asked from here, because
    # `wait_for_function` evaluates its text in the page, whose policy forbids that.
    for _ in range(20):
        view.mouse.wheel(0, 240)
        view.wait_for_timeout(100)
        if view.evaluate("xflowModels[0].cy.zoom()") != zoom:
            break
    assert view.evaluate("xflowModels[0].cy.zoom()") != zoom

    # What a narrow window shows is no wider than it is, and the graph begins where its box does.
    view.set_viewport_size({"width": 400, "height": 800})
    view.reload()
    view.wait_for_selector("html[data-ready=yes]")
    assert view.evaluate("document.documentElement.scrollWidth") <= 400
    top = view.evaluate("Math.min(...xflowModels[0].cy.nodes().map(n => n.renderedPosition().y))")
    assert 0 < top < view.locator("#before").bounding_box()["height"] / 3
    picture = view.screenshot()
    assert len(picture) > 20_000  # an empty page is much smaller
    assert faults == []


@pytest.mark.browser
def test_a_page_without_graphs_says_so(report_file: Path, browser: Any, tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "drawing": None,
        "log": None,
        "changed": False,
        "rules": [],
        "ratio": None,
    }
    path = tmp_path / "bare.html"
    path.write_text(
        page(told(report_file, latency_before=LATENCY, latency_after=LATENCY, **changes))
    )
    view = browser.new_page()
    faults: list[str] = []
    view.on("pageerror", lambda error: faults.append(str(error)))
    view.goto(path.as_uri())
    view.wait_for_selector("html[data-ready=yes]")
    assert "not drawn" in view.inner_text("#models")
    assert view.locator("#latency svg").count() == 1
    assert faults == []
