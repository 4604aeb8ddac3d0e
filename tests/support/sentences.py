"""Checks of the error messages of the command line."""

from __future__ import annotations


def assert_one_sentence(stderr: str) -> None:
    lines = stderr.splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("xflow: ")
    assert "Traceback" not in stderr
    assert "internal error" not in stderr
