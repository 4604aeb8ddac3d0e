"""Rechecks whole folders of rules, each against the certificate that lies beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from xflow.rule import Rule, parse_rules
from xflow.rule_files import load_rules, select_rules
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.solver import require_solver
from xflow.verifier.recheck.verdicts import NotConfirmed, Verdict, Wrong

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Result:
    """The verdict on one rule."""

    rule_name: str
    verdict: Verdict


def recheck_directory(
    directory: Path,
    only: Sequence[str] = (),
    progress: Progress | None = None,
    jobs: int | None = None,
) -> list[Result]:
    """The verdicts on the rules of a folder, or on those among them that `only` names, in order.

    Works in `jobs` processes (by default one a core). Raises RuleFileError, UnknownRuleError and
    MissingSolver. A process that dies leaves its rule not confirmed.
    """
    require_solver()
    rules = select_rules(load_rules(directory), only=only)
    jobs = max(1, min(jobs or os.cpu_count() or 1, len(rules)))
    results: list[Result] = []
    # Fresh processes: a forked solver would share state with its parent.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [
            pool.submit(_recheck_text, str(rule), certificate_path(directory, rule.name))
            for rule in rules
        ]
        for number, (rule, future) in enumerate(zip(rules, futures, strict=True)):
            verdict: Verdict
            try:
                verdict = future.result()
            except BrokenProcessPool:
                verdict = NotConfirmed("a process died")
            except Exception as error:
                verdict = NotConfirmed(f"{type(error).__name__}: {error}")
            results.append(Result(rule.name, verdict))
            if progress:
                progress(number + 1, len(rules))
    return results


def certificate_path(directory: Path, name: str) -> Path:
    """Where the certificate of a rule lies."""
    return directory / "certificates" / f"{name}.json"


def recheck_file(rule: Rule, directory: Path) -> Verdict:
    """The verdict on one rule of a folder, in this process."""
    return _recheck_text(str(rule), certificate_path(directory, rule.name))


def _recheck_text(text: str, path: Path) -> Verdict:
    (rule,) = parse_rules(text)
    try:
        certificate = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Wrong(f"there is no certificate {path.name}")
    except (OSError, ValueError) as error:
        return Wrong(f"the certificate {path.name} cannot be read: {error}")
    return recheck_rule(rule, certificate)
