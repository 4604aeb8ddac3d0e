"""Models that the command line optimizes with rules of their own, and the proofs of these."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import onnx
from products import RULES

from xflow.cli import entry
from xflow.core.errors import ExitCode
from xflow.pipeline.certify import prove_again
from xflow.rewriting.text import parse_rules

Json = dict[str, Any]
RULE_FILE = "\n".join(map(str, RULES))


def optimized(
    model: onnx.ModelProto, folder: Path, rules: str = RULE_FILE, *more: str
) -> tuple[Path, Path, Path]:
    """The model, what it is rewritten to, and the report, in files of a folder."""
    (folder / "rules").mkdir()
    (folder / "rules" / "own.rules").write_text(rules)
    before, after, report = folder / "in.onnx", folder / "out.onnx", folder / "r.json"
    onnx.save(model, before)
    options = [
        "--rules",
        folder / "rules",
        "--cost",
        "estimated",
        "--budget",
        5,
        "--check",
        1,
        "-q",
    ]
    line = [before, after, *options, *more, "--report", report]
    assert entry.main(list(map(str, line))) == ExitCode.OK
    return before, after, report


@cache
def proved(text: str) -> str:
    (rule,) = parse_rules(text)
    return prove_again(rule)
