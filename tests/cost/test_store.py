"""The store of measurements: kept, shared, and never in the way."""

import contextlib
import errno
import math
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from xflow.cost.store import (
    CALIBRATIONS,
    COSTS,
    SOLUTIONS,
    Platform,
    Store,
    default_path,
    processor_name,
)

PLACE = Platform("a processor", "cpu", 2, "1.0")
WRITER = """
import sys
from pathlib import Path
from xflow.cost.store import Platform, Store
store = Store(Path(sys.argv[1]))
for number in range(100):
    store.put(Platform("a processor", "cpu", 2, "1.0"), f"{sys.argv[2]}-{number}", 1.0, 3)
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
            Platform("another", "cpu", 2, "1.0"),
            Platform("a processor", "cuda", 2, "1.0"),
            Platform("a processor", "cpu", 1, "1.0"),
            Platform("a processor", "cpu", 2, "1.1"),
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


@pytest.mark.parametrize("given", ["~no-such-user/costs", "x" * 300, "x" * 300 + ".sqlite"])
def test_an_unusable_place_in_the_environment_is_replaced_by_memory(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XFLOW_CACHE", given)
    with Store() as store:
        store.put(PLACE, "r", 0.5, 7)
        assert store.get(PLACE, "r") is not None
        (warning,) = store.warnings
        assert given in warning
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_looked_at_is_replaced_by_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setenv("XFLOW_CACHE", str(tmp_path / "costs"))
    monkeypatch.setattr(Path, "stat", refuse)
    with Store() as store:
        (warning,) = store.warnings
        assert "Permission denied" in warning


def test_the_processor_has_a_name() -> None:
    assert processor_name()
    assert processor_name() == processor_name()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for caches of a user, in which nothing is yet."""
    monkeypatch.delenv("XFLOW_CACHE", raising=False)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "caches"))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path / "caches" / "xflow"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes of files")


@posix
@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
def test_the_folder_and_its_files_are_for_their_owner_alone(home: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with Store() as store:
            store.put(PLACE, "r", 0.5, 7)
            assert store.warnings == []
            files = {path.name: mode(path) for path in home.iterdir()}
    finally:
        os.umask(before)
    assert mode(home) == mode(home.parent) == 0o700
    assert "costs.sqlite" in files
    assert set(files.values()) == {0o600}


@posix
def test_a_file_that_others_could_read_is_closed_to_them(home: Path) -> None:
    with Store() as store:
        store.put(PLACE, "r", 0.5, 7)
    (home / "costs.sqlite").chmod(0o644)
    with Store() as store:
        assert store.get(PLACE, "r") is not None
    assert mode(home / "costs.sqlite") == 0o600


@posix
@pytest.mark.parametrize("bits", [0o770, 0o777, 0o702])
def test_a_folder_that_others_can_write_is_done_without(home: Path, bits: int) -> None:
    home.mkdir(parents=True)
    home.chmod(bits)
    with Store() as store:
        store.put(PLACE, "r", 0.5, 7)
        assert store.get(PLACE, "r") is not None
    (warning,) = store.warnings
    assert f"chmod 700 {home}" in warning
    assert "\n" not in warning
    assert list(home.iterdir()) == []


@posix
def test_a_folder_of_somebody_else_is_done_without(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)
    with Store() as store:
        store.put(PLACE, "r", 0.5, 7)
    (warning,) = store.warnings
    assert "belongs to another user" in warning
    assert "XFLOW_CACHE" in warning
    assert list(home.iterdir()) == []


@posix
def test_a_folder_that_the_user_names_may_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("XFLOW_CACHE", str(shared))
    before = os.umask(0o002)
    try:
        with Store() as store:
            store.put(PLACE, "r", 0.5, 7)
    finally:
        os.umask(before)
    assert mode(shared / "costs.sqlite") == 0o664, "others may add what they have measured"
    with Store() as store:
        assert store.get(PLACE, "r") is not None
        assert store.warnings == []


@posix
@pytest.mark.parametrize("kind", ["link", "pipe", "link to nothing"])
def test_what_is_no_file_of_its_own_is_done_without(tmp_path: Path, kind: str) -> None:
    """A link would let somebody have another file of this user written, a pipe would wait."""
    shared, other = tmp_path / "shared", tmp_path / "other.db"
    shared.mkdir()
    shared.chmod(0o777)
    path = shared / "costs.sqlite"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(other)
    if kind == "link":
        other.write_bytes(b"")
    with Store(path) as store:
        store.put(PLACE, "r", 0.5, 7)
        assert store.get(PLACE, "r") is not None
    (warning,) = store.warnings
    assert "link" in warning or "not a regular file" in warning
    assert not other.exists() or other.read_bytes() == b""


SENSELESS: dict[str, tuple[object, ...]] = {
    "no number": (math.inf, 7, 0.0),
    "negative": (-0.5, 7, 0.0),
    "zero": (0.0, 7, 0.0),
    "absurdly short": (1e-30, 7, 0.0),
    "absurdly long": (1e30, 7, 0.0),
    "a text": ("soon", 7, 0.0),
    "bytes": (b"\x00\xff", 7, 0.0),
    "no samples": (0.5, 0, 0.0),
    "samples in words": (0.5, "many", 0.0),
    "a time in words": (0.5, 7, "yesterday"),
}


@pytest.mark.parametrize("kind", SENSELESS)
def test_what_cannot_have_been_measured_does_not_count(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    with Store(path) as store:
        store.put(PLACE, "r", 0.5, 7)
        store.put(PLACE, "s", 0.25, 9)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        change = f"UPDATE {COSTS} SET seconds = ?, samples = ?, measured = ? WHERE region = 'r'"
        connection.execute(change, SENSELESS[kind])
    with Store(path) as store:
        assert store.get(PLACE, "r") is None
        assert store.get(PLACE, "r") is None
        (warning,) = store.warnings
        assert str(path) in warning
        assert store.get(PLACE, "s") is not None
        store.put(PLACE, "r", 0.75, 3)
        cost = store.get(PLACE, "r")
        assert cost is not None
        assert cost.seconds == 0.75


@pytest.mark.parametrize("table", [COSTS, SOLUTIONS, CALIBRATIONS])
@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE {} (other TEXT)",
        "CREATE VIEW {} AS WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n)"
        " SELECT 'a processor' AS processor, 'cpu' AS provider, 2 AS threads, '1.0' AS runtime,"
        " 'r' AS region, k AS seconds, k AS samples, k AS measured, k AS solution,"
        " k AS numbers FROM n WHERE k < 0",
    ],
    ids=["other columns", "a view without end"],
)
def test_tables_of_somebody_else_stop_nobody(table: str, made: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(made.format(table))
    with Store(path, statement_s=0.2) as store:
        assert store.get(PLACE, "r") is None
        assert store.solution(PLACE, "r") is None
        assert store.calibration(PLACE) is None
        store.put(PLACE, "r", 0.5, 7)
        store.put_solution(PLACE, "r", "{}")
        store.put_calibration(PLACE, "{}")
        assert store.get(PLACE, "r") is not None
        assert store.solution(PLACE, "r") == "{}"
        assert store.calibration(PLACE) == "{}"
        assert len(store.warnings) == 1


def test_a_text_of_endless_length_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    with Store(path) as store:
        store.put_solution(PLACE, "r", "{}")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {SOLUTIONS} SET solution = zeroblob(200000000)")
    with Store(path) as store:
        assert store.solution(PLACE, "r") is None
        assert len(store.warnings) == 1


def test_a_solution_can_be_forgotten(tmp_path: Path) -> None:
    with Store(tmp_path / "costs.sqlite") as store:
        store.put_solution(PLACE, "r", "{}")
        store.drop_solution(PLACE, "r")
        store.drop_solution(PLACE, "s")
        assert store.solution(PLACE, "r") is None
