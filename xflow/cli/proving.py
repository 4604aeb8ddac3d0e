"""The implementation of `xflow prove`: proves rules, shrinks counterexamples, prints verdicts."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xflow.cli.equations import read_rules
from xflow.core.constraint import Relation
from xflow.core.errors import ExitCode, SizeError
from xflow.core.graph import requirements
from xflow.core.limits import bounded_memory, bounded_time
from xflow.onnx.files import check_output, write_text_atomically
from xflow.rewriting.rule import Rule
from xflow.verifier.certificate import count_obligations
from xflow.verifier.proof.types import claims_too_much
from xflow.verifier.prove import Proved, Refuted, Unknown, Verdict, prove
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.planted import search_planted
from xflow.verifier.refutation.refute import search_counterexample
from xflow.verifier.refutation.runnable import save_counterexample
from xflow.verifier.refutation.shrink import shrink

LIMIT_S = 300.0
"""Seconds that one rule may take; the slowest of the database takes some."""
MEMORY = 4 * 2**30
"""Bytes that one rule may take."""

EXIT_CODES = {
    Proved: ExitCode.OK,
    Unknown: ExitCode.UNKNOWN,
    Refuted: ExitCode.REFUTED,
}
"""From the best verdict to the worst."""

WORDS = {Proved: "proved", Unknown: "unknown", Refuted: "refuted"}


@dataclass(frozen=True)
class Outcome:
    """The verdict on one rule; the counterexample of a refuted one is shrunk."""

    rule: Rule
    verdict: Verdict
    seconds: float
    without: Counterexample | None = None
    """Why conditions that were found are needed, for a rule proved under these."""
    late: bool = False
    """Whether it was interrupted."""

    @property
    def name(self) -> str:
        return self.rule.name


def run(options: argparse.Namespace) -> ExitCode:
    """Prove the given rules, print the verdicts, and return the worst one."""
    rules = read_rules(options)
    if options.certificate:
        check_output(options.certificate)
    folder = Path(options.save_counterexample) if options.save_counterexample else None
    single = len(rules) == 1
    outcomes: list[Outcome] = []
    late = False
    for rule in rules:
        outcome = skipped(rule) if late else examine(rule, infer=not options.no_infer)
        late = late or outcome.late
        outcomes.append(outcome)
        if not options.quiet:
            full = single or options.verbose
            lines = report(outcome, options) if full else [row(outcome)]
            print("\n".join(lines), flush=True)
        if folder is not None and isinstance(outcome.verdict, Refuted):
            where = folder if single else folder / outcome.name
            save(outcome.verdict.counterexample, where, options.quiet)
    if options.certificate:
        write_certificates(outcomes, options.certificate)
    if not single and not options.quiet:
        print(summary(outcomes))
    kinds = {type(outcome.verdict) for outcome in outcomes}
    return [code for kind, code in EXIT_CODES.items() if kind in kinds][-1]


# Proving


def examine(rule: Rule, *, infer: bool) -> Outcome:
    """Prove one rule, with `infer` under the weakest conditions found; shrink a counterexample."""
    start = time.monotonic()
    try:
        with bounded_time(LIMIT_S), bounded_memory(MEMORY):
            verdict, without = verdict_on(rule, infer=infer)
    except TimeoutError as error:
        return Outcome(rule, Unknown(str(error)), time.monotonic() - start, late=True)
    except (MemoryError, RecursionError, SizeError) as error:
        reason = f"it is too large ({shorten(str(error), 100) or type(error).__name__})"
        return Outcome(rule, Unknown(reason), time.monotonic() - start)
    return Outcome(rule, verdict, time.monotonic() - start, without)


def verdict_on(rule: Rule, *, infer: bool) -> tuple[Verdict, Counterexample | None]:
    """The verdict on one rule, and why it needs conditions that were found, if any."""
    verdict = prove(rule, infer=infer, weaken=infer)
    without = None
    if isinstance(verdict, Proved) and claims_too_much(replace(rule, where=verdict.where)):
        verdict = Unknown(f"it is shown for {verdict.types}, not for {rule.types}")
    if isinstance(verdict, Refuted):
        verdict = Refuted(shrink(rule, verdict.counterexample))
    elif isinstance(verdict, Proved) and set(verdict.where) - set(rule.where):
        found = search_counterexample(rule)
        if not isinstance(found, Counterexample):  # it needs elements to be numbers
            found = search_planted(rule)
        without = shrink(rule, found) if isinstance(found, Counterexample) else None
    return verdict, without


def skipped(rule: Rule) -> Outcome:
    """The outcome of a rule after one that took too long, which is not tried.

    A solver that was interrupted in the middle of a question is in an unknown state.
    """
    return Outcome(rule, Unknown("not looked at, since a rule before it took too long"), 0.0)


# Printing


def row(outcome: Outcome) -> str:
    """One line for a rule of many."""
    verdict = outcome.verdict
    match verdict:
        case Proved():
            found = f"where {', '.join(verdict.where)}" if verdict.where else ""
        case Refuted():
            found = str(verdict.counterexample)
        case Unknown():
            found = verdict.reason
    words = f"{WORDS[type(verdict)]:<8} {outcome.seconds:7.2f} s  {outcome.name}"
    return f"{words}  {shorten(found, 100)}".rstrip()


def summary(outcomes: Sequence[Outcome]) -> str:
    """The counts of a run over several rules."""
    counts = [
        f"{count} {word}"
        for kind, word in WORDS.items()
        if (count := sum(isinstance(outcome.verdict, kind) for outcome in outcomes))
    ]
    seconds = sum(outcome.seconds for outcome in outcomes)
    return f"{len(outcomes)} rules: {', '.join(counts)} in {seconds:.2f} s"


def report(outcome: Outcome, options: argparse.Namespace) -> list[str]:
    """Everything about one rule, line by line."""
    rule, verdict = outcome.rule, outcome.verdict
    lines = [f"{WORDS[type(verdict)]} ({outcome.seconds:.2f} s)"]

    def line(label: str, text: str) -> None:
        lines.append(f"  {label:<14}{text}".rstrip())

    if rule.name != "command-line":
        line("rule", rule.name)
    line("in", rule.inputs)
    line("from", rule.lhs)
    line("to", rule.rhs)
    match verdict:
        case Proved():
            for label, text in proved_lines(rule, verdict):
                line(label, text)
                if label == "where" and outcome.without is not None:
                    line("or else", shorten(str(outcome.without), 400))
            if options.verbose:
                lines += certificate_lines(verdict.certificate, "  ")
        case Refuted():
            if rule.names.vectors:
                line("rank", str(verdict.counterexample.rank))
            for label, text in refuted_lines(verdict.counterexample):
                line(label, text)
            lines += ["", "To run it:", "", verdict.counterexample.snippet().rstrip()]
        case Unknown():
            if rule.names.vectors:
                line("ranks", " ".join(map(str, rule.ranks)))
            if rule.where:
                line("given", ", ".join(rule.where))
            line("reason", verdict.reason)
    return lines


def proved_lines(rule: Rule, verdict: Proved) -> Iterator[tuple[str, str]]:
    """The facts of a proof."""
    assumed = list(dict.fromkeys(assumptions(rule)))
    if assumed:
        yield "assumes", ", ".join(assumed)
    given = [text for text in verdict.where if text in rule.where]
    found = [text for text in verdict.where if text not in rule.where]
    if given:
        yield "given", ", ".join(given)
    if found or not given:
        yield "where", ", ".join(found) or "always"
    if verdict.reverse is None:
        yield "reverse", "not shown"
    else:
        yield "reverse", f"where {', '.join(verdict.reverse)}" if verdict.reverse else "always"
    if rule.names.vectors:
        higher = ", and every higher one" if verdict.any_rank else ""
        yield "ranks", f"{' '.join(map(str, rule.ranks))}{higher}"
    yield "types", verdict.types
    yield "obligations", str(count_obligations(verdict.certificate))
    if not all(instance.is_determined for instance in rule.instances()):
        yield "note", "the left side does not determine all of the right side"


def assumptions(rule: Rule) -> Iterator[str]:
    """What the left side requires of sizes, as that two of them are equal, beyond that they are."""
    for condition in requirements(next(iter(rule.instances())).lhs):
        difference = condition.difference
        counts = isinstance(difference, int) or all(factor > 0 for _, factor in difference.terms)
        if condition.decided is None and not (counts and condition.relation is Relation.AT_LEAST):
            yield str(condition)


def refuted_lines(found: Counterexample) -> Iterator[tuple[str, str]]:
    """The facts of a counterexample."""
    yield "because", found.reason
    if found.numbers:
        yield "with", ", ".join(f"{name} = {value}" for name, value in found.numbers.items())
    for name, array in found.inputs.items():
        yield name, shorten(str(array.tolist()), 400)
    yield "left", found.left
    for array in found.left_outputs:
        yield "", f"= {shorten(str(array.tolist()), 400)}"
    yield "right", found.right
    if found.right_outputs is None:
        yield "", "is not defined"
    for array in found.right_outputs or ():
        yield "", f"= {shorten(str(array.tolist()), 400)}"


def certificate_lines(certificate: object, indent: str) -> Iterator[str]:
    """A certificate as an outline, with long texts in full."""
    match certificate:
        case dict():
            for key, value in certificate.items():
                if isinstance(value, dict) or (
                    isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
                ):
                    yield f"{indent}{key}"
                    yield from certificate_lines(value, f"{indent}  ")
                else:
                    yield f"{indent}{key:<14}{_flat(value)}".rstrip()
        case list():
            for item in certificate:
                if isinstance(item, dict):
                    inner = list(certificate_lines(item, f"{indent}  "))
                    yield from [f"{indent}- {inner[0].strip()}", *inner[1:]] if inner else []
                else:
                    yield f"{indent}- {_flat(item)}"


def _flat(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_flat, value)) or "-"
    return str(value)


def shorten(text: str, length: int) -> str:
    """`text`, cut off where it is longer than `length`."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


# Writing


def save(found: Counterexample, folder: Path, quiet: bool) -> None:
    """Write a counterexample as models, and report what was written."""
    saved = save_counterexample(found, folder)
    if quiet:
        return
    print(f"\nwritten to {folder}: {', '.join(saved.files)}")
    if saved.confirmed:
        print("ONNX Runtime, too, gives different outputs")
    for remark in saved.remarks:
        print(remark)


def write_certificates(outcomes: Sequence[Outcome], path: str) -> None:
    """Write the certificate, or those of several rules by name; null for rules not proved."""
    found = {
        outcome.name: outcome.verdict.certificate if isinstance(outcome.verdict, Proved) else None
        for outcome in outcomes
    }
    content = found if len(outcomes) > 1 else next(iter(found.values()))
    write_text_atomically(json.dumps(content, indent=1) + "\n", path)
