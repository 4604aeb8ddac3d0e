"""The generator's job: the same bytes on any workers and after any kill, within its memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from places import SUPPORT
from small_jobs import (
    FAMILIES,
    GB,
    Deadly,
    Faulty,
    Hungry,
    contents,
    entries,
    generate_small,
    results,
    run_logged,
)

from xflow.cli import entry
from xflow.core.errors import ExitCode, WorkerError
from xflow.generator import run
from xflow.generator.derive import derive
from xflow.generator.runner.desk import Desk
from xflow.generator.runner.engine import InlineEngine
from xflow.generator.runner.journal import Journal
from xflow.generator.runner.local import LocalEngine
from xflow.generator.runner.memory import DRIVER, WORKER, resident
from xflow.generator.runner.ray_engine import RayEngine
from xflow.generator.standing import Standing
from xflow.rewriting.store import load_rules
from xflow.rewriting.text import parse_rules

SMALL_JOBS = SUPPORT / "small_jobs.py"
OTHER = "rule one\n  in    x[...]\n  from  Relu(Relu(x))\n  to    Relu(x)\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the journals of one test."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("XFLOW_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the small job writes, undisturbed and on one worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XFLOW_CACHE", str(tmp_path_factory.mktemp("cache")))
        out = tmp_path_factory.mktemp("expected") / "rules"
        generate_small(out, jobs=1)
    return contents(out)


def kill_when(process: subprocess.Popen[bytes], ripe: Callable[[], bool]) -> None:
    """Kill a process and its workers at once as soon as `ripe`, before it ends by itself."""
    deadline = time.monotonic() + 60
    while not ripe():
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def start(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(SMALL_JOBS), *map(str, arguments)]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)


@pytest.mark.many
def test_the_number_of_workers_does_not_change_a_byte(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    summary = generate_small(tmp_path / "out", jobs=2)
    assert contents(tmp_path / "out") == expected
    assert summary.workers == 2
    assert len(load_rules(tmp_path / "out")) > 5


@pytest.mark.many
def test_what_is_proved_ahead_of_time_does_not_change_what_is_kept(
    expected: dict[str, bytes],
) -> None:
    """In one process each proof is made at its turn, as the algorithm is told."""
    first = derive(FAMILIES[0], 0, 2, notice=lambda text: None)
    known = [kept.rule for kept in first.kept]
    second = derive(FAMILIES[1], 0, 2, known, notice=lambda text: None)
    written = parse_rules(expected["squares.rules"].decode())
    assert {(rule.lhs, rule.rhs) for rule in written} == {
        (kept.rule.lhs, kept.rule.rhs) for kept in second.kept
    }
    assert second.counts["derived"] > 0


def test_a_killed_run_is_taken_up_and_writes_the_same_bytes(
    tmp_path: Path, cache: Path, expected: dict[str, bytes]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "squares.rules").write_text("# the old ones\n")
    kill_when(start("rules", out), lambda: entries(cache) >= 8)
    assert contents(out) == {"squares.rules": b"# the old ones\n"}
    done = entries(cache)
    summary = generate_small(out, jobs=2)
    # What was proved ahead of its turn may turn out not to be needed.
    assert 0 < sum(tally.recalled for tally in summary.tallies.values()) <= done
    assert contents(out) == expected
    assert entries(cache) == 0, "the journal of a finished job is deleted"
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.many  # CI takes up a killed run, above
def test_a_kill_costs_at_most_one_chunk_per_worker(tmp_path: Path) -> None:
    log, journal = tmp_path / "log", tmp_path / "journal"
    kill_when(start("chunks", tmp_path), lambda: journal.exists() and entries(journal) >= 10)
    assert run_logged(tmp_path) == list(range(40))
    begun = log.read_text().split()
    assert sorted(set(begun), key=int) == [str(number) for number in range(40)]
    assert len(begun) <= 40 + 2


def test_a_killed_worker_is_replaced_and_its_chunk_run_again(tmp_path: Path) -> None:
    engine = LocalEngine(1, 4 * GB, None)
    try:
        desk = Desk(engine, 0, 0)
        assert results(desk, [Deadly(str(tmp_path / "log"), 2)]) == ["alive"]
    finally:
        engine.close()
    assert engine.usage.lost == 2


def test_a_chunk_that_kills_three_workers_is_named_in_one_sentence(tmp_path: Path) -> None:
    engine = LocalEngine(1, 4 * GB, None)
    try:
        with pytest.raises(WorkerError, match=r"family tests, Deadly: 3 workers .*signal 9"):
            results(Desk(engine, 0, 0), [Deadly(str(tmp_path / "log"), 100)])
    finally:
        engine.close()


def test_an_exception_in_a_chunk_is_one_sentence(tmp_path: Path) -> None:
    desk = Desk(InlineEngine(), 0, 0, Journal(tmp_path / "journal"))
    with pytest.raises(WorkerError, match="ValueError: no such luck"):
        results(desk, [Faulty()])
    assert entries(tmp_path) == 0, "a failure is not remembered"


def test_chunks_that_are_too_large_together_run_one_after_the_other() -> None:
    size = 400_000_000  # beside the 100 MB or so that every worker holds
    limit = resident() + 2 * size
    engine = LocalEngine(2, limit, None)
    try:
        chunks = [Hungry(size, 1.0, number) for number in range(2)]
        assert results(Desk(engine, 0, 0), list(chunks)) == [size, size]
    finally:
        engine.close()
    assert engine.usage.peak_memory > limit, "they were together once, and noticed"
    assert engine.usage.lost == 0, "which is nobody's fault"


def test_a_chunk_that_is_too_large_alone_is_one_sentence() -> None:
    engine = LocalEngine(2, DRIVER + WORKER, None)
    try:
        with pytest.raises(WorkerError, match=r"needs more memory than the 700MB .*--max-memory"):
            results(Desk(engine, 0, 0), [Hungry(DRIVER + WORKER, 20.0)])
    finally:
        engine.close()


def test_other_files_of_the_folder_stay(tmp_path: Path, expected: dict[str, bytes]) -> None:
    out = tmp_path / "out"
    (out / "certificates").mkdir(parents=True)
    (out / "note.txt").write_text("mine")
    (out / "other.rules").write_text(OTHER)
    (out / "certificates" / "one.json").write_text("{}")
    (out / "certificates" / "gone.json").write_text("{}")
    generate_small(out, families=["elementwise"], jobs=1)
    found = contents(out)
    assert found["note.txt"] == b"mine"
    assert "certificates/one.json" in found
    assert "certificates/gone.json" not in found
    assert found["elementwise.rules"] == expected["elementwise.rules"]
    assert "squares.rules" not in found


@pytest.mark.many
def test_a_family_generated_again_gets_the_names_that_it_had(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    out = tmp_path / "out"
    for name, data in expected.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)
    assert b"-2\n" in expected["squares.rules"], "the families share names"
    generate_small(out, families=["squares"], jobs=1)
    assert contents(out) == expected


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line finds small families."""
    monkeypatch.setattr(run, "FAMILIES", FAMILIES)


def command(out: Path, *more: object) -> int:
    arguments = ["rules", "generate", "--out", out, "--max-ops", 2, "--jobs", 1, *more]
    return entry.main([str(argument) for argument in arguments])


@pytest.mark.many
@pytest.mark.usefixtures("small")
def test_the_nightly_job_says_by_its_exit_code_whether_anything_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, report = tmp_path / "out", tmp_path / "report.json"
    sums = ["--families", "elementwise", "--report", report]
    assert command(out, *sums) == ExitCode.OK
    told = json.loads(report.read_text())
    assert [family["family"] for family in told["families"]] == ["elementwise"]
    assert told["families"][0]["proved"] >= told["families"][0]["kept"] > 0
    assert told["peak_memory"] > 0
    assert told["false_rate"] == 0
    assert "difference" not in told
    assert command(tmp_path / "again", "--against", out, *sums) == ExitCode.OK
    assert "0 gained, 0 lost, 0 changed" in capsys.readouterr().out
    path = out / "elementwise.rules"
    rules = parse_rules(path.read_text())
    path.write_text("\n".join(map(str, rules[1:])))
    assert command(out, "--diff", "--against", out, *sums) == ExitCode.CHANGED
    assert f"+ {rules[0].name}" in capsys.readouterr().out
    (gained,) = json.loads(report.read_text())["difference"]["gained"]
    assert gained == str(rules[0])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--max-memory", "12"], ExitCode.USAGE, "'12' is not a size such as 12GB"),
        (["--max-memory", "0GB"], ExitCode.USAGE, "not a size"),
        (["--max-memory", "100MB"], ExitCode.USAGE, "give --max-memory 700MB or more"),
        (["--engine", "threads"], ExitCode.USAGE, "there is no"),
        (["--address", "host:1"], ExitCode.USAGE, "--engine ray"),
        (["--families", "nonsense"], ExitCode.USAGE, "there is no family nonsense"),
        (["--against", "/nowhere"], ExitCode.ERROR, "there is no such folder of rules"),
        (["--report", "/nowhere/r.json"], ExitCode.ERROR, "/nowhere"),
    ],
)
def test_a_mistake_in_the_command_is_one_sentence_before_any_work(
    arguments: list[str],
    code: ExitCode,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(tmp_path / "out", *arguments) == code
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("small")
def test_a_missing_ray_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert command(tmp_path / "out", "--engine", "ray") == ExitCode.ERROR
    told = capsys.readouterr().err
    assert "pip install '.[ray]' in a checkout" in told
    assert told.count("\n") == 1


@pytest.mark.usefixtures("small")
def test_progress_tells_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path / "out", "-v", "--families", "elementwise") == ExitCode.OK
    told = capsys.readouterr().err
    assert "writing the rules" in told
    assert "GB" in told


@pytest.mark.ray
def test_a_ray_cluster_that_loses_a_machine_writes_the_same_bytes(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        cluster.wait_for_nodes()
        done = 0

        def watch(standing: Standing) -> None:
            nonlocal done
            done += 1
            if done == 2:
                cluster.remove_node(nodes[0], allow_graceful=False)

        summary = generate_small(
            tmp_path / "out", engine="ray", address=cluster.address, progress=watch
        )
    finally:
        cluster.shutdown()
    assert done > 2
    assert contents(tmp_path / "out") == expected
    assert summary.engine == "ray"
    assert summary.moved > 0


@pytest.mark.ray
def test_ray_runs_a_chunk_again_whose_worker_died_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    paths = [str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    engine = RayEngine(None, 1, None)
    try:
        desk = Desk(engine, 0, 0)
        assert results(desk, [Deadly(str(tmp_path / "twice"), 2)]) == ["alive"]
        with pytest.raises(WorkerError, match="family tests, Deadly: 3 workers"):
            results(desk, [Deadly(str(tmp_path / "always"), 100)])
        with pytest.raises(WorkerError, match="ValueError: no such luck"):
            results(desk, [Faulty()])
    finally:
        engine.close()


@pytest.mark.ray
def test_a_cluster_that_is_not_there_is_one_sentence() -> None:
    pytest.importorskip("ray")
    for address in ("127.0.0.1:1", "nonsense"):
        with pytest.raises(WorkerError, match=f"--address {address}: no Ray cluster answers"):
            RayEngine(address, None, None)
