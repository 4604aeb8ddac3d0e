"""The folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
SUPPORT = TESTS / "support"
CORPUS = TESTS / "corpus"
"""Rules that were picked by hand, true and false ones."""
MODELS = TESTS.parent / "benchmarks" / "models"
"""Exports of architectures, without weights."""
