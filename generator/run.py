"""The whole job: every family, in parallel, and the database written to a folder."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from xflow.errors import UsageError
from xflow.generator.derive import Derivation, Kept, derive
from xflow.generator.families import FAMILIES
from xflow.generator.vocabulary import Family

Progress = Callable[[str, Mapping[str, object]], None]

BASE = "elementwise"
"""The family whose rules all others take as known."""

COLUMNS = ("graphs", "classes", "proposed", "proved", "refuted", "unknown", "kept")


@dataclass
class Summary:
    """What the job did, in total and for each family."""

    families: list[Derivation] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Labels and values for a table."""
        total: Counter[str] = Counter()
        for derivation in self.families:
            total.update(derivation.counts)
        labels = {"graphs": "graphs enumerated"}
        rows = [(labels.get(name, name), f"{total[name]:,}") for name in COLUMNS]
        rows.append(("seconds", f"{self.seconds:.0f}"))
        for derivation in self.families:
            counts = derivation.counts
            text = ", ".join(f"{counts[name]:,} {name}" for name in COLUMNS if name != "classes")
            rows.append((derivation.family, f"{text}, {derivation.seconds:.0f} s"))
        return rows


def generate(
    out: Path,
    *,
    seed: int = 0,
    families: Sequence[str] | None = None,
    max_ops: int = 3,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Write the rules of `families` (all if None) to `out`, with their certificates.

    What is written depends on `seed` and `max_ops` alone. Files of other families stay as they
    are. Raises UsageError for a family that does not exist.
    """
    start = time.monotonic()
    chosen = _choose(families)
    note = progress or (lambda phase, details: None)
    results = _derive_all(chosen, seed, max_ops, jobs or multiprocessing.cpu_count(), note)
    named = _name(results)
    write(out, named)
    return Summary(results, time.monotonic() - start)


def _choose(names: Sequence[str] | None) -> list[Family]:
    known = {family.name: family for family in FAMILIES}
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise UsageError(
            f"there is no family {unknown[0]}", do=f"choose among {', '.join(sorted(known))}"
        )
    return [family for family in FAMILIES if not names or family.name in names]


def _derive_all(
    families: Sequence[Family], seed: int, max_ops: int, jobs: int, note: Progress
) -> list[Derivation]:
    """Derive each family; in processes of their own if there are jobs for it."""
    base = next(family for family in FAMILIES if family.name == BASE)

    def noticed(family: str) -> Callable[[str], None]:
        return lambda text: note(family, {"at": text})

    first = derive(base, seed, max_ops, notice=noticed(BASE))
    known = [kept.rule for kept in first.kept]
    rest = [family for family in families if family.name != BASE]
    if jobs == 1 or len(rest) < 2:
        made = [derive(family, seed, max_ops, known, noticed(family.name)) for family in rest]
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            futures: list[Future[Derivation]] = [
                pool.submit(derive, family, seed, max_ops, known, _silent) for family in rest
            ]
            made = []
            for family, future in zip(rest, futures, strict=True):
                made.append(future.result())
                note(family.name, {"kept": made[-1].counts["kept"]})
    return [*([first] if base in families else []), *made]


def _silent(text: str) -> None:
    """Worker processes do not report."""


def _name(results: Iterable[Derivation]) -> dict[str, list[Kept]]:
    """Give every rule a name of its own, in the order of acceptance."""
    taken: Counter[str] = Counter()
    named: dict[str, list[Kept]] = {}
    for derivation in results:
        kept = []
        for item in derivation.kept:
            taken[item.rule.name] += 1
            number = taken[item.rule.name]
            name = item.rule.name if number == 1 else f"{item.rule.name}-{number}"
            kept.append(_finish(item, name))
        named[derivation.family] = sorted(kept, key=lambda item: item.rule.name)
    return named


def _finish(item: Kept, name: str) -> Kept:
    """The rule under its name, with its proof line; the certificate likewise."""
    certificate = _renamed(item.certificate, item.rule.name, name)
    obligations = _count(certificate)
    word = "obligation" if obligations == 1 else "obligations"
    proof = f"reals, all sizes; {obligations} {word}; certificates/{name}.json"
    rule = replace(item.rule, name=name, notes={"proof": proof, **item.rule.notes})
    return Kept(rule, certificate)


def _renamed(certificate: Mapping[str, object], old: str, name: str) -> dict[str, object]:
    result = dict(certificate)
    result["rule"] = name
    reverse = result.get("reverse")
    if isinstance(reverse, dict):
        result["reverse"] = {**reverse, "rule": f"{name}.reverse"}
    return result


def _count(certificate: object) -> int:
    """How many obligations a certificate lists, at any depth."""
    if isinstance(certificate, dict):
        return sum(
            len(value) if key == "obligations" and isinstance(value, list) else _count(value)
            for key, value in certificate.items()
        )
    if isinstance(certificate, list):
        return sum(map(_count, certificate))
    return 0


def write(out: Path, families: Mapping[str, Sequence[Kept]]) -> None:
    """Write one file for each family, and a certificate for each rule.

    Certificates that belong to no rule of the folder are removed.
    """
    certificates = out / "certificates"
    certificates.mkdir(parents=True, exist_ok=True)
    about = {family.name: family.about for family in FAMILIES}
    for family, kept in families.items():
        head = f"# {about[family]}\n# Written by `xflow rules generate`; not by hand.\n\n"
        text = "\n".join(str(item.rule) for item in kept)
        (out / f"{family}.rules").write_text(head + text, encoding="utf-8")
        for item in kept:
            path = certificates / f"{item.rule.name}.json"
            path.write_text(json.dumps(item.certificate, indent=1) + "\n", encoding="utf-8")
    from xflow.rule_files import load_rules  # noqa: PLC0415

    names = {rule.name for rule in load_rules(out)}
    for path in sorted(certificates.glob("*.json")):
        if path.stem not in names:
            path.unlink()
