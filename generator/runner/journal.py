"""The journal: results of chunks on disk, from which a run that was killed is resumed.

It lies in the user's folder for caches, never among the rules. Each job has a folder of its own,
named by all that its chunks depend on besides themselves; it is deleted when the job is done.
A file holds a digest of what follows and appears whole, so that what reads back was written.

What is read there decides what counts as proved. So the folder has to belong to the user alone; and
it holds data, see `kept`, of which nothing is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from xflow.core.atomic import replacing
from xflow.core.errors import OutputError
from xflow.cost.private_folders import make_private, objection
from xflow.cost.store import default_path
from xflow.generator.runner.codec import digest
from xflow.generator.runner.kept import from_text, to_text
from xflow.generator.runner.outcome import Outcome
from xflow.generator.runner.source import source_digest

STALE_DAYS = 14
"""Seconds after which the journal of a run that was not resumed is deleted."""

DECISIONS = "decisions"
_LINE = 42  # 40 digits, the answer, a line feed


def journal_folder(seed: int, max_ops: int, families: tuple[str, ...]) -> Path:
    """The folder of the journal of a job, named by a digest of all that its results depend on."""
    name = digest(source_digest(), seed, max_ops, sorted(families))
    return default_path().parent / "generate" / name


class Journal:
    """Results by the keys of chunks, and short answers by theirs. Raises OutputError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _remove_stale(folder.parent)
        try:
            _claim(folder)
            self._decided = dict(_read_decisions(folder / DECISIONS))
            self._append = (folder / DECISIONS).open("ab")
            # A line that a kill cut short would garble the next one.
            self._append.truncate(self._append.tell() // _LINE * _LINE)
        except OSError as error:
            raise OutputError(
                f"the journal cannot be written ({error.strerror})", str(folder)
            ) from None

    def find(self, key: str) -> Outcome | None:
        """The outcome of the chunk `key`, if it was written whole."""
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        head, body = data[:32], data[32:]
        if hashlib.sha256(body).digest() != head:
            return None
        try:
            return from_text(body.decode())
        except ValueError:  # none of this program's
            return None

    def write(self, key: str, outcome: Outcome) -> None:
        """Remember an outcome. A full disk is an error now rather than lost work later."""
        write_entry(self._path(key), entry(outcome))

    def decided(self, key: str) -> bool | None:
        """The answer to the question `key`, if it was given."""
        return self._decided.get(key)

    def decide(self, key: str, answer: bool) -> None:
        """Remember a short answer."""
        self._decided[key] = answer
        self._append.write(f"{key}{int(answer)}\n".encode())
        self._append.flush()

    def close(self) -> None:
        """Close the files, which stay for another run."""
        self._append.close()

    def delete(self) -> None:
        """Delete the journal, since the job is done."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, key: str) -> Path:
        return self.folder / key


def entry(outcome: Outcome) -> bytes:
    """The contents of a file of the journal. Raises TypeError for what cannot be kept."""
    body = to_text(outcome).encode()
    return hashlib.sha256(body).digest() + body


def write_entry(path: Path, data: bytes) -> None:
    """Write a file of the journal whole. Raises OutputError."""
    try:
        make_private(path.parent)
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise OutputError(
            f"the journal cannot be written ({error.strerror})", str(path.parent)
        ) from None


def _claim(folder: Path) -> None:
    """Create the folder, and see that it and the one above are this user's alone.

    Raises OSError, and OutputError where they are not.
    """
    make_private(folder)
    for each in (folder, folder.parent):
        reason = objection(each)
        if reason:
            advice = f"chmod 700 {each}" if "write" in reason else "name another in XFLOW_CACHE"
            raise OutputError(f"the journal cannot be kept here: {reason}", str(each), advice)


def _read_decisions(path: Path) -> Iterator[tuple[str, bool]]:
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            if len(line) == _LINE - 1 and line[-1] in "01":
                yield line[:-1], line[-1] == "1"


def _remove_stale(folder: Path) -> None:
    """Delete the journals that were not written to for a long time."""
    limit = time.time() - STALE_DAYS * 86400
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if not re.fullmatch("[0-9a-f]{40}", path.name):
                continue  # not a journal
            newest = max((entry.stat().st_mtime for entry in os.scandir(path)), default=0.0)
            if max(newest, path.stat().st_mtime) < limit:
                shutil.rmtree(path, ignore_errors=True)
