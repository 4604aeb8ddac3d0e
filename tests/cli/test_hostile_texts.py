"""Reports, rules and sizes that were made to take for ever: one sentence, and soon.

Each case has a limit of time by itself: what would hang is a failure.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from products import separated

from xflow.cli import entry, proving
from xflow.cli.commands import report as report_command
from xflow.core import limits
from xflow.core.constraint import parse_constraint
from xflow.core.errors import ExitCode, ReportError, RuleFileError, SizeError, XflowError
from xflow.core.expressions import DEPTH, DIGITS, EXPONENT, LENGTH, expression, fraction
from xflow.core.size import PRODUCTS, TERMS, Expr, product, symbol, symbols
from xflow.core.size_text import parse_size, reads_back
from xflow.pipeline import certify
from xflow.pipeline.log import MOST_RULES, MOST_STEPS, read_report
from xflow.rewriting.text import (
    HIGHEST_RANK,
    MOST_NAMES,
    MOST_OPERATORS,
    MOST_SPELLED_OUT,
    parse_rules,
)
from xflow.verifier import database

pytestmark = pytest.mark.timeout(30)

Json = dict[str, Any]

SUMS = "*".join(f"(a{k} + b{k})" for k in range(24))
LONG_SUM = " + ".join(f"a{k}" for k in range(5_000))
HALF = "\ud800"
"""Half of a character, as a text of JSON may hold it."""


# Numbers


@pytest.mark.parametrize(
    "text",
    [
        "1e999999999",
        "-1E-99999999999999999999",
        f"1e{EXPONENT + 1}",
        "9" * (DIGITS + 1),
        "1/" + "9" * (DIGITS + 1),
        "1/0",
        "1/-2",
        "",
        " 1",
        "1_000",
        "٣",
        "inf",
        "nan",
        "0x10",
        "1e",
        None,
        1,
        True,
        [],
    ],
    ids=lambda text: repr(text)[:20],
)
def test_what_is_no_number_or_too_long_a_one_is_refused(text: object) -> None:
    with pytest.raises(SizeError) as caught:
        fraction(text)
    assert len(str(caught.value)) < 200


@given(st.fractions())
def test_what_is_written_of_a_number_is_read(number: Fraction) -> None:
    assert fraction(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_read_as_python_writes_them(number: float) -> None:
    assert fraction(str(number)) == Fraction(str(number))
    assert fraction(str(Fraction(number))) == Fraction(number)


# Sizes

ENDLESS = {
    "a product of 24 sums": SUMS,
    "a sum of 5,000 sizes": LONG_SUM,
    "a long product": "*".join("a" * 200),
    "nested brackets": "(" * 5000 + "a" + ")" * 5000,
    "signs": "-" * 5000 + "a",
    "nested quotients": "//".join("a" * (DEPTH + 50)).replace("//", "//(") + ")" * (DEPTH + 49),
    "lookups": "t[" * 5000 + "a" + "]" * 5000,
    "a number": "9" * 5000,
    "a number in base 16": "0x" + "f" * 10_000,
    "a product of numbers": "*".join(["9" * 3000] * 5),
    "a text": "a" * (LENGTH + 1),
    "a power": "a ** 999999999",
    "a power of numbers": "9 ** 9 ** 9 ** 9",
    "a division by zero": "a // (b - b)",
    "a division by 0": "a // 0",
    "NUL": "a\0",
    "half of a character": f"a + {HALF}",
    "a call": "__import__('os')",
    "conditions": "a if a else " * 2000 + "a",
    "functions": "lambda: " * 2000 + "a",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_size_without_end_is_refused(kind: str) -> None:
    start = time.process_time()
    for read, text in ((parse_size, ENDLESS[kind]), (parse_constraint, f"{ENDLESS[kind]} >= 0")):
        with pytest.raises(SizeError) as caught:
            read(text)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200
    assert time.process_time() - start < 10


def test_sizes_as_long_as_those_of_models_are_read() -> None:
    long = sum(symbols(" ".join(f"n{k}" for k in range(300))), start=0)
    assert parse_size(str(long)) == long
    assert reads_back(long)
    a, b, c = symbols("a b c")
    assert parse_size("(a + b)*(a - b)//(c + 1)") == (a + b) * (a - b) // (c + 1)


def test_a_size_that_would_be_too_large_is_no_size() -> None:
    """However it comes about: by arithmetic, too, which models and rules cause."""
    sums = [symbol(f"a{k}") + symbol(f"b{k}") for k in range(24)]
    with pytest.raises(SizeError):
        product(sums)
    wide = sum((symbol(f"n{k}") for k in range(TERMS)), start=symbol("m") * 0)
    with pytest.raises(SizeError):
        _ = wide + symbol("one_more")
    assert len(sums[0].terms if isinstance(sums[0], Expr) else ()) ** 2 < PRODUCTS


def outcome(kind: type[Exception], function: Callable[..., Any], *arguments: object) -> Any:
    """What a function gives; None where it raises an error of one sentence, and of this kind."""
    try:
        return function(*arguments)
    except kind as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 2_000
    return None


_names = st.sampled_from(["a", "b", "n", "t", "x1"])
_sizes = st.recursive(
    st.one_of(_names, st.integers(-(10**6), 10**6).map(lambda n: f"({n})")),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "**", "/", "@"]), inner).map(
            lambda each: f"({each[0]} {each[1]} {each[2]})"
        ),
        st.tuples(_names, inner).map(lambda each: f"{each[0]}[{each[1]}]"),
        st.tuples(st.sampled_from(["-", "~", "not "]), inner).map(
            lambda each: f"{each[0]}{each[1]}"
        ),
    ),
    max_leaves=60,
)


@settings(deadline=5_000, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(_sizes, st.text(max_size=60), st.text("ab()[]+-*/%., 0123456789", max_size=60)))
def test_any_text_is_a_size_or_none(text: str) -> None:
    size = outcome(SizeError, parse_size, text)
    assert isinstance(size, int) or size is None or reads_back(size)


# Rules


def rule(**lines: str) -> str:
    """The text of a rule with these lines in place of ordinary ones."""
    known = {"in": "x[n]", "from": "Relu(Relu(x))", "to": "Relu(x)", **lines}
    return "rule one\n" + "".join(f"  {key} {text}\n" for key, text in known.items())


HOSTILE_RULES: dict[str, str] = {
    "a product of 24 sums": rule(**{"in": f"x[{SUMS}]"}),
    "a sum of sizes": rule(**{"in": f"x[{LONG_SUM[:9000]}]"}),
    "a condition on a product of sums": rule(
        param="m", where=f"{SUMS[:140]} >= 0".replace("a", "n")
    ),
    "many factors": rule(where=f"{'*'.join('n' * 50)} >= 0"),
    "a deep side": rule(**{"from": "Relu(" * 90 + "x" + ")" * 90 + " + " + "1" * 4000}),
    "a deeper side": rule(**{"from": "Relu(" * 5000 + "x" + ")" * 5000}),
    "a wide side": rule(**{"from": "Concat(" + ", ".join(["Relu(x)"] * 500) + ", axis=0)"}),
    "many inputs": rule(**{"in": " ".join(f"x{k}[n]" for k in range(500))}),
    "many parameters": rule(param=" ".join(f"p{k}" for k in range(500))),
    "many conditions": rule(where=", ".join(["n >= 1"] * 500)),
    "a high rank": rule(**{"in": "x[*n]", "rank": "1000000000"}),
    "a rank of many digits": rule(**{"in": "x[*n]", "rank": "9" * 5000}),
    "many ranks": rule(**{"in": "x[*n]", "rank": " ".join(map(str, range(500)))}),
    "a number": rule(to="Mul(x, 1e999999999)"),
    "a number of many digits": rule(to=f"Mul(x, {'9' * 5000})"),
    "a number in base 16": rule(to=f"Mul(x, 0x{'f' * 9000})"),
    "a chain of divisions": rule(to=f"Mul(x, {'/'.join(['1'] * 3000)})"),
    "a power": rule(to="Mul(x, 9 ** 9 ** 9)"),
    "a line": rule(to="x" * (LENGTH + 1)),
    "a name": "rule " + "a-" * 50_000 + "a\n  in x[n]\n  from Relu(Relu(x))\n  to Relu(x)\n",
    "a division by zero": rule(where="n // 0 >= 1"),
    "a dimension divided by zero": rule(**{"in": "x[n // 0]"}),
    "NUL": rule(**{"in": "x[\0]"}),
    "half of a character": rule(**{"in": f"x[{HALF}]"}),
    "brackets that do not match": rule(**{"in": "x[n] y[n), (m]"}),
    "code": rule(to="__import__('os').system('true')"),
}


@pytest.mark.parametrize("kind", HOSTILE_RULES)
def test_a_rule_without_end_is_refused(kind: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        parse_rules(HOSTILE_RULES[kind])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("kind", HOSTILE_RULES)
def test_a_file_of_it_is_one_sentence_of_prove(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hostile.rules"
    path.write_text(HOSTILE_RULES[kind], errors="surrogatepass")
    assert entry.main(["prove", str(path)]) in (ExitCode.ERROR, ExitCode.USAGE)
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "internal error" not in said


@pytest.mark.parametrize(
    "line",
    [
        ["--in", f"x[{LONG_SUM}]", "x", "x"],
        ["--in", f"x[{SUMS}]", "Relu(x)", "x"],
        ["--in", "x[n]", "Add(x, 1e999999999)", "x"],
        ["--in", "x[n]", "Relu(" * 3000 + "x" + ")" * 3000, "x"],
        ["--in", "x[n]", "x", "x", "--rank", "1000000000"],
        ["--in", "x[n]", "Relu(x)", "x", "--where", f"{SUMS} >= 0"],
        ["--in", "x[n]", "Relu(x)", "x", "--where", "n // 0 >= 0"],
        ["--in", "x[n // 0]", "Relu(x)", "x"],
        ["--in", "x[n]", "Relu(x)", "x", "--param", "p" * 100_000],
    ],
    ids=lambda line: " ".join(line)[:40],
)
def test_arguments_of_prove_are_one_sentence(
    line: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["prove", *line]) in (ExitCode.ERROR, ExitCode.USAGE)
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "internal error" not in said


def endless(*_: object, **__: object) -> None:
    """Work that is done step by step, and whose interruption is lost now and then."""
    interruptions = 0
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            interruptions += 1
            if interruptions > 1:
                raise


def test_a_proof_that_takes_too_long_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And so are those behind it: the solver was interrupted."""
    monkeypatch.setattr(proving, "prove", endless)
    monkeypatch.setattr(proving, "LIMIT_S", 0.2)
    path = tmp_path / "two.rules"
    path.write_text(rule() + "\n" + rule().replace("rule one", "rule two"))
    assert entry.main(["prove", str(path)]) == ExitCode.UNKNOWN
    said = capfd.readouterr().out
    assert "more than 0.2 s" in said
    assert "not looked at" in said
    assert "2 unknown" in said


def test_a_time_limit_ends_what_it_bounds_and_nothing_else() -> None:
    with limits.bounded_time(60):
        pass
    with pytest.raises(TimeoutError), limits.bounded_time(0.05):
        endless()
    with pytest.raises(KeyboardInterrupt), limits.bounded_time(60):
        raise KeyboardInterrupt
    time.sleep(2 * limits.AGAIN_S)  # no interrupt is left over


def test_a_time_limit_holds_where_interrupts_are_ignored_and_in_each_thread() -> None:
    """As under `nohup`, or behind a shell's `&`."""
    late: list[TimeoutError] = []

    def bounded() -> None:
        try:
            with limits.bounded_time(0.05):
                endless()
        except TimeoutError as error:
            late.append(error)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        bounded()
        thread = threading.Thread(target=bounded)
        thread.start()
        thread.join(10)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(late) == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["rule", "in", "param", "rank", "from", "to", "where", "reverse"]),
            st.one_of(
                st.text(max_size=30),
                st.sampled_from(
                    [
                        "one",
                        "x[n] y[n]",
                        "x[*n]",
                        "x[...]",
                        "*n p:real",
                        "1 2 ...",
                        "Relu(x)",
                        "Add(x, 1/3)",
                        "Reshape(x, shape=[n, -1])",
                        "Split(x, axis=0, split=[n, n])[1]",
                        "Slice(x, starts=[p], ends=[9223372036854775807], axes=[0], steps=[-1])",
                        "n >= 1, n // p == 2",
                        "x != 0",
                        "always",
                    ]
                ),
            ),
        ),
        max_size=9,
    )
)
@settings(deadline=5_000, suppress_health_check=[HealthCheck.too_slow])
def test_any_text_is_rules_or_none(lines: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{'' if key == 'rule' else '  '}{key} {value}" for key, value in lines)
    outcome(RuleFileError, parse_rules, text)


# Reports


@pytest.fixture(scope="module")
def run_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Json]:
    """A model, what it was rewritten to, and the report."""
    folder = tmp_path_factory.mktemp("run")
    before, after, report = folder / "in.onnx", folder / "out.onnx", folder / "r.json"
    (folder / "rules").mkdir()
    (folder / "rules" / "own.rules").write_text(rule(**{"in": "x[...]"}))
    onnx.save(separated(), before)
    line = [str(before), str(after), "--rules", str(folder / "rules"), "--cost", "estimated"]
    assert entry.main([*line, "--budget", "5", "--report", str(report), "-q"]) == ExitCode.OK
    told = json.loads(report.read_text())
    assert told["log"]["rounds"]
    return before, after, told


def _set(*path: str | int, to: object) -> Callable[[Json], None]:
    """Put a value at a place of a log."""

    def change(log: Json) -> None:
        part: Any = log
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = to

    return change


STEP: tuple[str | int, ...] = ("rounds", 0, 0, "steps", 0)


def _nested(log: Json) -> None:
    inner = copy.deepcopy(log)
    for number in range(60):
        inner = {**log, "bodies": [{"node": number, "attribute": "body", "log": inner}]}
    log.update(inner)


HOSTILE_LOGS: dict[str, Callable[[Json], None]] = {
    "a number": _set(*STEP, "reals", to={"a": "1e999999999"}),
    "a number of a constant": _set(*STEP, "numbers", to={"x": "-1e-999999999"}),
    "a number of many digits": _set(*STEP, "reals", to={"a": "9" * 10**6}),
    "no number": _set(*STEP, "reals", to={"a": 1e300}),
    "a product of 24 sums": _set(*STEP, "sizes", to={"n": SUMS}),
    "a sum of 5,000 sizes": _set(*STEP, "sizes", to={"n": LONG_SUM}),
    "a huge size": _set(*STEP, "sizes", to={"n": 10**4000}),
    "a size that is true": _set(*STEP, "sizes", to={"n": True}),
    "a size in brackets": _set(*STEP, "sizes", to={"n": "(" * 9000 + "a" + ")" * 9000}),
    "a list for a rule": _set(*STEP, "rule", to=["one"]),
    "a rule's name without end": _set(*STEP, "rule", to="a" * 10**6),
    "a list for a type": _set(*STEP, "type", to=["FLOAT"]),
    "a type that is none": _set(*STEP, "type", to="NO_SUCH_TYPE"),
    "a list for a rank": _set(*STEP, "rank", to=[0]),
    "a huge rank": _set(*STEP, "rank", to=10**30),
    "a place far away": _set(*STEP, "at", to=[[10**18, 10**18]]),
    "a place that is text": _set(*STEP, "at", to=["ab"]),
    "inputs that are a list": _set(*STEP, "inputs", to=[["x", [0, 0]]]),
    "steps that are text": _set("rounds", 0, 0, "steps", to="none"),
    "more steps than any run": _set("rounds", 0, 0, "steps", to=[{}] * (MOST_STEPS + 1)),
    "more rules than any run": _set("rules", to={f"r{k}": "x" for k in range(MOST_RULES + 1)}),
    "rounds that are a text": _set("rounds", to="abc"),
    "an opset without end": _set("target_opset", to=10**100),
    "an opset below all": _set("target_opset", to=-5),
    "an opset that is true": _set("target_opset", to=True),
    "a threshold without end": _set("size_threshold", to=10**100),
    "a threshold below all": _set("size_threshold", to=-1),
    "calls that are no calls": _set("inlined", to=["ab"]),
    "a call of nothing": _set("inlined", to=[[10**9, 3]]),
    "bodies that are none": _set("bodies", to=[{"node": "x", "attribute": 1, "log": {}}]),
    "bodies without end": _nested,
    "two rules in one text": _set("rules", to={"one": rule() + rule().replace("one", "two")}),
    "a rule under another name": _set("rules", to={"two": rule()}),
    **{
        f"a rule with {kind}": _set("rules", to={"one": text})
        for kind, text in HOSTILE_RULES.items()
    },
}


@pytest.mark.parametrize("kind", HOSTILE_LOGS)
def test_a_report_without_end_is_one_sentence_of_each_command(
    kind: str,
    run_files: tuple[Path, Path, Json],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before, after, told = run_files
    told = copy.deepcopy(told)
    HOSTILE_LOGS[kind](told["log"])
    path, out = tmp_path / "r.json", tmp_path / "out.onnx"
    path.write_text(json.dumps(told))
    start = time.process_time()
    for line in (
        ["certify", str(before), str(after), str(path)],
        ["replay", str(path), str(before), str(out), "-q"],
    ):
        assert entry.main(line) in (ExitCode.ERROR, ExitCode.NOT_CERTIFIED)
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        assert "internal error" not in said
        assert len(said) < 1_000
    assert not out.exists()
    entry.main(["report", str(path), "--html", str(tmp_path / "page.html")])
    assert "internal error" not in capfd.readouterr().err
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 10**6,
        b'{"version": ' + b"9" * 10**6 + b"}",
        b'{"version": 2, "log": ' + b'{"bodies": [' * 10**5,
        b'{"version": true, "log": {}}',
        b'{"version": 2.0, "log": {}}',
        b'{"version": 2, "log": {"rules": [], "rounds": {}}}',
        b'{"version": 2, "log": {"rules": {"a": 1}, "rounds": [], "input": {"sha256": "x"}}}',
        b"\xff\xfe",
        b"\0" * 100,
        b"",
    ],
    ids=lambda data: repr(data)[:30],
)
def test_what_is_no_report_is_one_sentence(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(data)
    with pytest.raises(ReportError) as caught:
        read_report(path)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_no_report(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.json")
    with pytest.raises(ReportError, match="not a regular file"):
        read_report(tmp_path / "r.json")


def test_a_report_of_hundreds_of_megabytes_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xflow.pipeline.log.LARGEST", 1000)
    path = tmp_path / "r.json"
    path.write_bytes(b" " * 1001)
    with pytest.raises(ReportError, match="MiB"):
        read_report(path)


_anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["1e999999999", SUMS, HALF, "n", "FLOAT", "one", 10**30, -1]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(plain: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all values in plain data."""
    items: Any = ()
    if isinstance(plain, dict):
        items = plain.items()
    elif isinstance(plain, list):
        items = enumerate(plain)
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


@given(st.data())
@settings(
    deadline=10_000,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_report_with_anything_anywhere_is_read_or_one_sentence(
    run_files: tuple[Path, Path, Json], tmp_path: Path, data: st.DataObject
) -> None:
    before, after, told = run_files
    told = copy.deepcopy(told)
    spots = sorted(places(told["log"]), key=repr)
    for _ in range(data.draw(st.integers(1, 3))):
        spot = data.draw(st.sampled_from(spots))
        try:
            _set("log", *spot, to=data.draw(_anything))(told)
        except (LookupError, TypeError):  # no longer there
            continue
    path = tmp_path / "r.json"
    path.write_text(json.dumps(told))
    found = outcome(ReportError, read_report, path)
    if found is not None:
        outcome(XflowError, certify.certify, before, after, found[1], lambda rule: "")


@pytest.mark.parametrize(
    "shapes",
    [
        [],
        "x",
        7,
        None,
        {"x": 1},
        {"x": "ab"},
        {"x": [1.5]},
        {"x": [True]},
        {"x": [-1]},
        {"x": [10**30, 96]},
        {"x": [2**40, 96]},
        {"x": [[1]]},
        {"x": [1] * 10**5},
        {"no such input": [1]},
    ],
    ids=lambda shapes: repr(shapes)[:20],
)
def test_shapes_of_a_report_are_not_believed(
    shapes: object,
    run_files: tuple[Path, Path, Json],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before, _, told = run_files
    path, out = tmp_path / "r.json", tmp_path / "out.onnx"
    path.write_text(json.dumps({**told, "shapes": shapes}))
    assert entry.main(["replay", str(path), str(before), str(out), "-q"]) in (
        ExitCode.ERROR,
        ExitCode.USAGE,
        ExitCode.VALIDATION_FAILED,
    )
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "internal error" not in said
    assert not out.exists()


@given(st.data())
@settings(
    deadline=10_000,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_page_of_anything_is_written_or_one_sentence(
    run_files: tuple[Path, Path, Json], tmp_path: Path, data: st.DataObject
) -> None:
    told = copy.deepcopy(run_files[2])
    spot = data.draw(st.sampled_from(sorted(places(told), key=repr)))
    _set(*spot, to=data.draw(_anything))(told)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(told))
    options = argparse.Namespace(report=str(path), html=str(tmp_path / "r.html"), quiet=True)
    outcome(XflowError, report_command.run, options)


@pytest.mark.parametrize("kind", ["long", "large"])
def test_a_rule_of_a_report_that_takes_too_much_is_not_certified(
    kind: str,
    run_files: tuple[Path, Path, Json],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def grow(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(database, "verify_rule", endless if kind == "long" else grow)
    monkeypatch.setattr(certify, "LIMIT_S", 0.2)
    before, after, told = run_files
    path = tmp_path / "r.json"
    path.write_text(json.dumps(told))
    assert entry.main(["certify", str(before), str(after), str(path)]) == ExitCode.NOT_CERTIFIED
    said = capfd.readouterr().err
    assert "rule one: not shown to be true: it " in said
    assert said.count("\n") == 1


def test_bounds_leave_room_for_what_is_there() -> None:
    """Ten times what the rules of the database need, or more."""
    from xflow.rewriting.store import default_directory, load_rules  # noqa: PLC0415

    rules = load_rules(default_directory())
    assert max(len(each.statement) for each in rules) * 10 < LENGTH
    assert max(len(each.lhs) + len(each.rhs) for each in rules) * 5 < LENGTH
    assert max(each.lhs.count("(") for each in rules) * 3 < MOST_OPERATORS
    assert max(each.rhs.count("(") for each in rules) * 3 < MOST_SPELLED_OUT
    assert max(each.inputs.count("[") for each in rules) * 4 < MOST_NAMES
    assert max(max(each.ranks) for each in rules) * 3 < HIGHEST_RANK
    assert expression("(" * 90 + "a" + ")" * 90)
