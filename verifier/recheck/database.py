"""Rechecks whole folders of rules, each against the certificate that lies beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xflow.core.processes import answers
from xflow.core.progress import CountProgress
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import load_rules, select_rules
from xflow.rewriting.text import parse_rules
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.solver import require_solver
from xflow.verifier.recheck.verdicts import Confirmed, NotConfirmed, RecheckVerdict, Wrong


@dataclass(frozen=True)
class Result:
    """The verdict on one rule."""

    rule_name: str
    verdict: RecheckVerdict


LIMIT = 120.0
"""Seconds for one rule."""


def recheck_text(text: str, path: Path) -> RecheckVerdict:
    """The verdict on a rule, given as text, by the certificate at `path`."""
    (rule,) = parse_rules(text)
    try:
        certificate = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Wrong(f"there is no certificate {path.name}")
    except OSError as error:
        return NotConfirmed(f"the certificate {path.name} cannot be read: {error}")
    except ValueError as error:
        return Wrong(f"the certificate {path.name} is no JSON: {error}")
    return recheck_rule(rule, certificate)


def recheck_directory(
    directory: Path,
    only: Sequence[str] = (),
    progress: CountProgress | None = None,
    jobs: int | None = None,
    *,
    limit: float = LIMIT,
    recheck: Callable[[str, Path], RecheckVerdict] = recheck_text,
) -> list[Result]:
    """The verdicts on the rules of a folder, or on those among them that `only` names, in order.

    Works in `jobs` processes (by default one a core). Raises RuleFileError, UnknownRuleError and
    MissingSolver. A rule that takes more than `limit` seconds is not confirmed, nor is one whose
    process dies.
    """
    require_solver()
    rules = select_rules(load_rules(directory), only=only)
    tasks = [(str(rule), certificate_path(directory, rule.name)) for rule in rules]
    verdicts: dict[int, RecheckVerdict] = {}
    for number, answer in answers(recheck, tasks, jobs or os.cpu_count() or 1, limit):
        if isinstance(answer, Confirmed | NotConfirmed | Wrong):
            verdicts[number] = answer
        else:
            verdicts[number] = NotConfirmed(str(answer))
        if progress:
            progress(len(verdicts), len(rules))
    return [Result(rule.name, verdicts[number]) for number, rule in enumerate(rules)]


def certificate_path(directory: Path, name: str) -> Path:
    """Where the certificate of a rule lies."""
    return directory / "certificates" / f"{name}.json"


def recheck_file(rule: Rule, directory: Path) -> RecheckVerdict:
    """The verdict on one rule of a folder, in this process."""
    return recheck_text(str(rule), certificate_path(directory, rule.name))
