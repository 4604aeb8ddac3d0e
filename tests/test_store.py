"""The store of measurements: kept, shared, and never in the way."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from xflow.cost.store import Place, Store, default_path, processor_name

PLACE = Place("a processor", "cpu", 2, "1.0")
WRITER = """
import sys
from pathlib import Path
from xflow.cost.store import Place, Store
store = Store(Path(sys.argv[1]))
for number in range(100):
    store.put(Place("a processor", "cpu", 2, "1.0"), f"{sys.argv[2]}-{number}", 1.0, 3)
assert not store.warnings, store.warnings
print("done", flush=True)
if sys.argv[3] == "wait":
    sys.stdin.read()
"""


def write_in_process(path: Path, name: str, end: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_measurement_is_found_again_in_the_same_place_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "costs.sqlite"
    with Store(path) as store:
        assert store.get(PLACE, "r") is None
        store.put(PLACE, "r", 0.5, 7)
        store.put(PLACE, "r", 0.25, 9)
    with Store(path) as store:
        cost = store.get(PLACE, "r")
        assert cost is not None
        assert (cost.seconds, cost.samples) == (0.25, 9)
        assert cost.measured > 0
        for other in (
            Place("another", "cpu", 2, "1.0"),
            Place("a processor", "cuda", 2, "1.0"),
            Place("a processor", "cpu", 1, "1.0"),
            Place("a processor", "cpu", 2, "1.1"),
        ):
            assert store.get(other, "r") is None
        assert store.warnings == []


@pytest.mark.parametrize("damage", ["garbage", "scrambled pages", "truncated"])
def test_a_damaged_file_is_set_aside_and_rebuilt(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "costs.sqlite"
    with Store(path) as store:
        for number in range(200):
            store.put(PLACE, f"{number:0200}", 0.5, 7)
    content = path.read_bytes()
    assert len(content) > 8 * 4096
    broken = {
        "garbage": b"this is no database" * 100,
        "scrambled pages": content[:4096] + b"\x5a" * (len(content) - 4096),
        "truncated": content[: len(content) // 2 + 100],
    }[damage]
    (tmp_path / "costs.sqlite.corrupt-1").write_bytes(b"an older one")
    path.write_bytes(broken)
    with Store(path) as store:
        assert len(store.warnings) == 1
        assert "costs.sqlite.corrupt-2" in store.warnings[0]
        store.put(PLACE, "new", 0.5, 7)
    assert (tmp_path / "costs.sqlite.corrupt-2").read_bytes() == broken
    with Store(path) as store:
        assert store.warnings == []
        assert store.get(PLACE, "new") is not None


def test_a_file_that_is_damaged_while_in_use_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    with Store(path) as store:
        store.put(PLACE, "r", 0.5, 7)
        # Checkpointed, so that the next read goes to the damaged file and not to the log.
        with sqlite3.connect(path) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        with path.open("r+b") as file:
            file.write(b"\x00" * path.stat().st_size)
        store.put(PLACE, "s", 0.5, 7)
        assert store.get(PLACE, "s") is not None
        assert len(store.warnings) <= 1


def test_a_place_that_cannot_be_written_is_replaced_by_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "costs.sqlite", tmp_path):
        with Store(path) as store:
            store.put(PLACE, "r", 0.5, 7)
            assert store.get(PLACE, "r") is not None
            assert len(store.warnings) == 1
            assert str(path) in store.warnings[0]


def test_two_processes_write_at_once_and_a_killed_one_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    first, second = (write_in_process(path, name, "wait") for name in "ab")
    for process in (first, second):
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        process.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        process.communicate()
    with Store(path) as store:
        assert store.warnings == []
        for name in "ab":
            assert all(store.get(PLACE, f"{name}-{number}") for number in range(100))


def test_wrong_values_and_a_closed_store_are_mistakes_and_damage_nothing(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    store = Store(path)
    with pytest.raises(ValueError, match="nan"):
        store.put(PLACE, "r", float("nan"), 1)
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        store.get(PLACE, "r")
    assert [each.name for each in tmp_path.iterdir()] == ["costs.sqlite"]


def test_the_default_place_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XFLOW_CACHE", str(tmp_path))
    assert default_path() == tmp_path / "costs.sqlite"
    monkeypatch.setenv("XFLOW_CACHE", str(tmp_path / "mine.db"))
    assert default_path() == tmp_path / "mine.db"
    monkeypatch.delenv("XFLOW_CACHE")
    assert default_path().parts[-2:] == ("xflow", "costs.sqlite")
    assert os.path.isabs(default_path())


def test_the_processor_has_a_name() -> None:
    assert processor_name()
    assert processor_name() == processor_name()
