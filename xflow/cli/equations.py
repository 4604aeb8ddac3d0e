"""Reads equations that a person states, on the command line or in files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from xflow.core.errors import RuleFileError, UsageError
from xflow.rewriting.diagnose import read_rule
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_stanzas

INLINE = {"param": "--param", "where": "--where", "rank": "--rank", "types": "--types"}


def read_rules(options: argparse.Namespace) -> list[Rule]:
    """The rule on the command line, or those of the files. Raises UsageError, RuleFileError."""
    if options.inputs is None:
        given = [flag for key, flag in INLINE.items() if getattr(options, key)]
        if not options.texts:
            raise UsageError("there is nothing to prove", do="see xflow prove --help")
        if given:
            raise UsageError(f"{given[0]} goes with --in; a file says it itself")
        rules = [rule for name in options.texts for rule in read_file(name)]
        if not rules:
            raise UsageError("there is no rule in it", options.texts[0])
        return rules
    if len(options.texts) != 2:
        count = len(options.texts)
        raise UsageError(f"--in wants two expressions, the left and the right side, not {count}")
    stanza = {
        "rule": "command-line",
        "in": options.inputs,
        "from": options.texts[0],
        "to": options.texts[1],
        "param": " ".join(options.param),
        "where": ", ".join(options.where),
        "rank": " ".join(options.rank),
        "types": options.types or "",
    }
    return [read_rule({key: text for key, text in stanza.items() if text or key in _NEEDED})]


_NEEDED = ("rule", "in", "from", "to")


def read_file(name: str) -> Iterator[Rule]:
    """Each rule of a file, in each direction that it claims; ``-`` is the standard input."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RuleFileError(
            "there is no such file", name, "two expressions go with --in, which declares inputs"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RuleFileError(f"the file cannot be read: {reason}", name) from None
    try:
        stanzas = list(parse_stanzas(text, name))
    except RuleFileError as error:
        raise UsageError(error.what, error.where, error.do) from None
    for line, stanza in stanzas:
        yield from read_rule(stanza, f"{name}:{line}, rule {stanza['rule']}").directions()
