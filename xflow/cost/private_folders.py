"""Folders and files that only their owner can write, for data that is kept between runs.

Systems that have no owners and modes of files, as Windows, protect the folders of a user by other
means: there, every folder counts as private.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""The bits of a mode by which others than the owner can write."""


def make_private(folder: Path) -> None:
    """Create a folder, and those above it, for this user alone. What exists stays as it is.

    Raises OSError.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)  # an error where it exists and is no folder


def objection(path: Path) -> str:
    """Why others than this user could change a folder or a file; empty where they cannot.

    A link counts as what it leads to, if it is this user's own. Raises OSError.
    """
    if not hasattr(os, "geteuid"):
        return ""
    user = os.geteuid()
    if path.lstat().st_uid != user or path.stat().st_uid != user:
        return "it belongs to another user"
    if stat.S_IMODE(path.stat().st_mode) & OTHERS:
        return "other users can write to it"
    return ""


def create(path: Path, *, shared: bool = False) -> None:
    """Create an empty file that this user alone can read and write, if it does not exist.

    One that exists loses the permissions of others. A `shared` one has those that the user's umask
    leaves. Raises OSError.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if shared else 0o600))
    except FileExistsError:
        mode = stat.S_IMODE(path.stat().st_mode)
        if not shared and mode & ~0o600:
            path.chmod(mode & 0o600)
