"""A cache of measurements and solutions in SQLite, shared by all processes of a user.

Losing it costs time and nothing else.  So no state of its file ever stops the caller: a damaged
file is set aside, a place that cannot be written is replaced by memory, and `warnings` says so.

Its content is not trusted. Its own folder has to belong to the user alone; in a folder that the
user names others may write, too. In both, times and numbers count only within bounds, and
`xflow.search.solution_cache` repeats a solution by the rules before it uses one: a forged entry can
make a search slower or worse, but never a model wrong.
"""

import contextlib
import functools
import math
import os
import platform
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from xflow.core.deadline import NEVER, Deadline
from xflow.cost.private_folders import create, make_private, objection

T = TypeVar("T")
BUSY_TIMEOUT_S = 10.0
ATTEMPTS = 40
STATEMENT_S = 60.0
"""Seconds after which a statement is given up: a table may be a view that never ends."""
STEPS = 100_000
"""Instructions of SQLite between two checks of the time."""
LONGEST_TEXT = 2**24
"""Bytes of the longest value that is read: solutions have some kilobytes."""
SECONDS = (1e-9, 1e5)
"""Least and most seconds of one run; a stored value outside of these is no measurement."""
# The number in a table's name stands for its layout and for how sessions are timed: what other
# versions of this program have measured is left alone.
COSTS, CALIBRATIONS, SOLUTIONS = "region_cost_2", "calibration_4", "solution_2"
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS {COSTS} (
    processor TEXT NOT NULL,
    provider  TEXT NOT NULL,
    threads   INTEGER NOT NULL,
    runtime   TEXT NOT NULL,
    region    TEXT NOT NULL,
    seconds   REAL NOT NULL,     -- median of one run
    samples   INTEGER NOT NULL,  -- how many it is the median of
    measured  REAL NOT NULL,     -- when, in seconds since 1970
    PRIMARY KEY (processor, provider, threads, runtime, region)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS {CALIBRATIONS} (
    processor TEXT NOT NULL,
    provider  TEXT NOT NULL,
    threads   INTEGER NOT NULL,
    runtime   TEXT NOT NULL,
    numbers   TEXT NOT NULL,     -- JSON: what was measured, see xflow.cost.calibration.calibrate
    measured  REAL NOT NULL,     -- when, in seconds since 1970
    PRIMARY KEY (processor, provider, threads, runtime)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS {SOLUTIONS} (
    processor TEXT NOT NULL,
    provider  TEXT NOT NULL,
    threads   INTEGER NOT NULL,
    runtime   TEXT NOT NULL,
    region    TEXT NOT NULL,
    solution  TEXT NOT NULL,     -- JSON: what the search led to, see xflow.search.solution_cache
    found     REAL NOT NULL,     -- when, in seconds since 1970
    PRIMARY KEY (processor, provider, threads, runtime, region)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Platform:
    """The setting of a measurement: processor, provider, threads and runtime version."""

    processor: str
    provider: str
    threads: int
    runtime: str

    @classmethod
    def of(cls, provider: str, threads: int, runtime: str) -> Self:
        """This machine with a provider, so many threads and a runtime."""
        return cls(processor_name(provider), provider, threads, runtime)


@dataclass(frozen=True)
class Cost:
    """A measured region: median seconds of one run, number of samples, time of measurement."""

    seconds: float
    samples: int
    measured: float


class Store:
    """Measured costs of regions, by place and by the region's hash; a calibration for each place.

    Safe for several threads and processes; what `put` returned from survives a kill.
    """

    def __init__(self, path: Path | None = None, *, statement_s: float = STATEMENT_S) -> None:
        self.path: Path | None = path
        self._named = path is not None or bool(os.environ.get("XFLOW_CACHE"))
        self._statement_s = statement_s
        self._deadline = NEVER
        self.warnings: list[str] = []
        self._lock = threading.Lock()
        self._file: tuple[int, int] | None = None
        if path is None:
            try:
                self.path = default_path()
            except OSError as error:
                self.path = Path(os.environ["XFLOW_CACHE"])
                self._fall_back(str(error))
        self._connection = self._open()

    def get(self, place: Platform, region: str) -> Cost | None:
        """Return the stored measurement of a region, or None."""

        def read(connection: sqlite3.Connection) -> Cost | None:
            row = connection.execute(
                f"SELECT seconds, samples, measured FROM {COSTS} WHERE processor = ?"
                " AND provider = ? AND threads = ? AND runtime = ? AND region = ?",
                (*_key(place), region),
            ).fetchone()
            return _cost(*row) if row else None

        found = self._do(read)
        if found is _SENSELESS:
            self._warn_once(
                f"{self.path}: some of the costs in it cannot have been measured; they count as if"
                " they were not there"
            )
            return None
        return found

    def put(self, place: Platform, region: str, seconds: float, samples: int) -> None:
        """Keep a measurement; it replaces an earlier one.

        `seconds` must be positive and finite.
        """
        if not 0 < seconds < math.inf:
            raise ValueError(f"a run cannot take {seconds} s")

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                f"INSERT OR REPLACE INTO {COSTS} VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*_key(place), region, seconds, samples, time.time()),
            )

        self._do(write)

    def solution(self, place: Platform, region: str) -> str | None:
        """Return the stored solution of a region, or None."""

        def read(connection: sqlite3.Connection) -> str | None:
            row = connection.execute(
                f"SELECT solution FROM {SOLUTIONS} WHERE processor = ?"
                " AND provider = ? AND threads = ? AND runtime = ? AND region = ?",
                (*_key(place), region),
            ).fetchone()
            return row[0] if row and isinstance(row[0], str) else None

        return self._do(read)

    def drop_solution(self, place: Platform, region: str) -> None:
        """Delete the solution of a region."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                f"DELETE FROM {SOLUTIONS} WHERE processor = ?"
                " AND provider = ? AND threads = ? AND runtime = ? AND region = ?",
                (*_key(place), region),
            )

        self._do(write)

    def put_solution(self, place: Platform, region: str, solution: str) -> None:
        """Store the solution of a region; it replaces an earlier one."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                f"INSERT OR REPLACE INTO {SOLUTIONS} VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*_key(place), region, solution, time.time()),
            )

        self._do(write)

    def calibration(self, place: Platform) -> str | None:
        """Return the calibration of a place as it was kept, or None."""

        def read(connection: sqlite3.Connection) -> str | None:
            row = connection.execute(
                f"SELECT numbers FROM {CALIBRATIONS} WHERE processor = ?"
                " AND provider = ? AND threads = ? AND runtime = ?",
                _key(place),
            ).fetchone()
            return row[0] if row and isinstance(row[0], str) else None

        return self._do(read)

    def put_calibration(self, place: Platform, numbers: str) -> None:
        """Keep the calibration of a place; it replaces an earlier one."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                f"INSERT OR REPLACE INTO {CALIBRATIONS} VALUES (?, ?, ?, ?, ?, ?)",
                (*_key(place), numbers, time.time()),
            )

        self._do(write)

    def close(self) -> None:
        """Close the file; the store cannot be used any more."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run one statement; if the file turns out to be unusable, replace it and run it again."""
        with self._lock:
            try:
                self._deadline = Deadline.after(self._statement_s)
                return action(self._connection)
            except sqlite3.ProgrammingError:  # a bug here
                raise
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                self._connection.close()
                self._recover(error)
                self._connection = self._open()
            return action(self._connection)

    def _open(self) -> sqlite3.Connection:
        for _ in range(ATTEMPTS):
            if self.path is None:
                break
            try:
                return self._connect(self.path)
            except (sqlite3.DatabaseError, OSError) as error:
                if _is_busy(error):  # SQLite does not wait for its turn to switch the journal
                    time.sleep(0.05)
                else:
                    self._recover(error)
        self._fall_back("it stays locked or damaged")
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(SCHEMA)
        return connection

    def _connect(self, path: Path) -> sqlite3.Connection:
        self._prepare(path)
        self._file = _identity(path)
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            self._restrain(connection)
            # Readers do not wait for writers; where the file system cannot do it (network
            # drives), SQLite stays with its rollback journal, which is as safe.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(SCHEMA)
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise sqlite3.DatabaseError(f"malformed: {verdict}")
            connection.execute("BEGIN IMMEDIATE")  # fails if the file cannot be written
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        self._file = _identity(path)
        return connection

    def _prepare(self, path: Path) -> None:
        """Make the folder and the file, private to this user unless they were named by the user.

        Raises OSError where the place is not to be used.
        """
        folder = path.parent
        make_private(folder)
        reason = objection(folder)
        if reason and not self._named:
            advice = f"chmod 700 {folder}" if "write" in reason else "name another in XFLOW_CACHE"
            raise OSError(f"{reason}: {advice}")
        if path.is_symlink() and reason:
            raise OSError("it is a link in a folder that others can write")
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise OSError("it is not a regular file")
        create(path, shared=bool(reason))

    def _restrain(self, connection: sqlite3.Connection) -> None:
        """Prevent the file's content from making SQLite run code or take much time or memory."""
        self._deadline = Deadline.after(self._statement_s)
        connection.set_progress_handler(lambda: int(self._deadline.passed), STEPS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")

    def _warn_once(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _recover(self, error: Exception) -> None:
        """Set a damaged file aside; continue in memory after any other error."""
        if self.path is None or not _is_damage(error):
            self._fall_back(str(error))
            return
        if self._file is None or _identity(self.path) != self._file:
            return  # another process has set it aside already
        try:
            aside = _set_aside(self.path)
        except OSError as trouble:
            self._fall_back(f"{error}; it cannot be set aside: {trouble.strerror or trouble}")
            return
        self.warnings.append(
            f"{self.path}: the store of measurements was damaged ({error}); it was set aside as"
            f" {aside.name} and begun anew"
        )

    def _fall_back(self, why: str) -> None:
        if self.path is not None:
            self.warnings.append(
                f"{self.path}: measurements are not kept after this run, because the store"
                f" cannot be used ({why})"
            )
        self.path = None


_SENSELESS = Cost(math.nan, 0, math.nan)
"""Stands for a row that holds no measurement."""


def _cost(seconds: Any, samples: Any, measured: Any) -> Cost:
    """The measurement in a row, if valid: a column of SQLite may hold a value of any type."""
    least, most = SECONDS
    numbers = all(isinstance(each, int | float) for each in (seconds, samples, measured))
    if not numbers or not least <= seconds <= most or not 0 < samples < 2**31:
        return _SENSELESS
    return Cost(float(seconds), int(samples), float(measured))


def _is_damage(error: Exception) -> bool:
    """Whether an error means a damaged file; sqlite3 has derived types for all others."""
    return type(error) is sqlite3.DatabaseError


def _is_busy(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF == sqlite3.SQLITE_BUSY


def _key(place: Platform) -> tuple[str, str, int, str]:
    return place.processor, place.provider, place.threads, place.runtime


def _identity(path: Path) -> tuple[int, int] | None:
    """Return an identity of a file that differs for another of the same name, or None."""
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _set_aside(path: Path) -> Path:
    """Rename a damaged database, so that it can be examined, and delete its side files."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    # First the side files: once the file is gone, another process may create a new one.
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    os.replace(path, aside)
    return aside


def default_path() -> Path:
    """Return where the store lies: `$XFLOW_CACHE`, or the platform's folder for caches.

    `$XFLOW_CACHE` names the file itself, or a folder (existing, or without a suffix) for it. Raises
    OSError if it begins with a home folder that is not known.
    """
    name = "costs.sqlite"
    if given := os.environ.get("XFLOW_CACHE"):
        try:
            path = Path(given).expanduser()
        except RuntimeError as error:
            raise OSError(f"XFLOW_CACHE is {given}: there is no such home folder") from error
        return path / name if _is_folder(path) or not path.suffix else path
    try:
        home = Path.home()
    except RuntimeError:  # no home folder: a service, a bare container
        home = Path()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "xflow" / name


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # it lies in a folder of another user, or has too long a name
        return False


@functools.cache
def processor_name(provider: str = "cpu") -> str:
    """Return the name of the processor that a provider runs on, as its maker gives it."""
    if provider == "cuda":
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return (_output(query).splitlines() or ["unknown GPU"])[0].strip()
    name = ""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
                if line.startswith(("model name", "Model", "Hardware")):
                    name = line.partition(":")[2].strip()
                    break
    elif sys.platform == "darwin":
        name = _output(["sysctl", "-n", "machdep.cpu.brand_string"]).strip()
    elif sys.platform == "win32":
        name = os.environ.get("PROCESSOR_IDENTIFIER", "")
    return name or platform.processor() or platform.machine() or "unknown processor"


def _output(command: list[str]) -> str:
    """Return what a command prints, or nothing if it cannot be run."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout
    return ""
