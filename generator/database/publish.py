"""Writes the database of rules to a folder, which is replaced as a whole or left unchanged."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xflow.core.atomic import sync_directory
from xflow.core.errors import OutputError
from xflow.generator.database.naming import Stanza
from xflow.rewriting.store import load_rules

_NEW, _OLD = ".xflow-new", ".xflow-old"


@dataclass(frozen=True)
class Page:
    """The contents of one family's file: its comment, its rules and the rules left undecided."""

    about: str
    stanzas: Sequence[Stanza]
    unknown: str = ""
    """Rules that were neither proved nor refuted, with their causes, as text."""
    command: str = "xflow rules generate"
    """What writes the file."""


def prepare(out: Path) -> None:
    """See that `out` can be replaced, and clean up after a run that was killed doing so.

    Raises OutputError.
    """
    out = out.resolve()
    if out.exists() and not out.is_dir():
        raise OutputError("this is not a folder", str(out))
    here = Path.cwd()
    if out in (here, *here.parents):  # this process would be left in a deleted folder
        raise OutputError(
            "it is replaced as a whole, and this is run from within", str(out), "change the folder"
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        old = sorted(out.parent.glob(f".{out.name}.*{_OLD}"))
        if old and not out.exists():
            old.pop().replace(out)
        for left in (*old, *out.parent.glob(f".{out.name}.*{_NEW}")):
            shutil.rmtree(left, ignore_errors=True)
        probe = _beside(out, _NEW)
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise OutputError(f"it cannot be written: {error.strerror}", str(out)) from None


def publish(out: Path, families: Mapping[str, Page], base: Path | None = None) -> None:
    """Put the rules of `families` and their certificates into `out`, all at once.

    Other families' files stay, and those of the folder `base` come with them if one is given;
    certificates that belong to no rule of the folder are removed. Raises OutputError.
    """
    out = out.resolve()
    staging = _beside(out, _NEW)
    try:
        if out.exists():
            shutil.copytree(out, staging, symlinks=True)
        else:
            staging.mkdir()
        if base is not None:
            _copy(base, staging)
        _fill(staging, families)
        _sync(staging)
        _exchange(staging, out)
        sync_directory(out.parent)
    except OSError as error:
        raise OutputError(f"it cannot be written: {error.strerror}", str(out)) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _beside(out: Path, ending: str) -> Path:
    return out.with_name(f".{out.name}.{secrets.token_hex(4)}{ending}")


def _fill(folder: Path, families: Mapping[str, Page]) -> None:
    certificates, unknown = folder / "certificates", folder / "unknown"
    certificates.mkdir(exist_ok=True)
    for family, page in families.items():
        head = f"# {page.about}\n# Written by `{page.command}`; not by hand.\n\n"
        text = "\n".join(stanza.text for stanza in page.stanzas)
        (folder / f"{family}.rules").write_text(head + text, encoding="utf-8")
        for item in (item for stanza in page.stanzas for item in stanza.kept):
            path = certificates / f"{item.rule.name}.json"
            path.write_text(json.dumps(item.certificate, indent=1) + "\n", encoding="utf-8")
        apart = unknown / f"{family}.txt"
        if page.unknown:
            unknown.mkdir(exist_ok=True)
            apart.write_text(page.unknown, encoding="utf-8")
        else:
            apart.unlink(missing_ok=True)
    names = {rule.name for rule in load_rules(folder)}
    for path in sorted(certificates.glob("*.json")):
        if path.stem not in names:
            path.unlink()


def _copy(base: Path, folder: Path) -> None:
    """Copy the files of a database, and nothing else that lies beside them."""
    for kind in ("*.rules", "certificates/*.json", "unknown/*.txt"):
        for path in sorted(base.glob(kind)):
            to = folder / path.relative_to(base)
            to.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, to)


def _sync(folder: Path) -> None:
    """Have the contents on disk before their names are."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _exchange(new: Path, out: Path) -> None:
    """Let `new` take the place of `out`; what was there is at `new` then, or gone."""
    if not out.exists():
        new.rename(out)
        return
    if _swap(new, out):
        return
    # Two steps, where the system has no such call; `prepare` repairs a kill between them.
    old = _beside(out, _OLD)
    out.rename(old)
    try:
        new.rename(out)
    except BaseException:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _swap(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of linux/fs.h
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an old C library, or another one
        return False
    if call(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS):  # which say that this file system cannot
        raise OSError(code, os.strerror(code))
    return False
