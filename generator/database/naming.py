"""The names and proof lines that accepted rules get in the files of the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from xflow.generator.derive import Derivation, Kept
from xflow.rewriting.rule import Rule
from xflow.verifier.certificate import count_obligations


def name_rules(results: Iterable[Derivation], others: Iterable[Rule] = ()) -> dict[str, list[Kept]]:
    """Give every rule a name of its own, in the order of acceptance; by family.

    `others` are the rules of other families. A rule gets the smallest number that is free, so one
    family generated again gets the names that it had.
    """
    others = list(others)
    names = {rule.statement: rule.name for rule in others}
    taken = {rule.name for rule in others}
    numbers: Counter[str] = Counter()
    named: dict[str, list[tuple[Kept, str]]] = {}
    for derivation in results:
        kept: list[tuple[Kept, str]] = []
        for item in derivation.kept:
            name = item.rule.name
            while not numbers[item.rule.name] or name in taken:
                numbers[item.rule.name] += 1
                number = numbers[item.rule.name]
                name = item.rule.name if number == 1 else f"{item.rule.name}-{number}"
            taken.add(name)
            names.setdefault(item.rule.statement, name)
            kept.append((item, name))
        named[derivation.family] = kept
    return {
        family: sorted((_finish(*pair, names) for pair in kept), key=lambda item: item.rule.name)
        for family, kept in named.items()
    }


def _finish(item: Kept, name: str, names: Mapping[str, str]) -> Kept:
    """The rule under its name, with its set and its proof line; the certificate likewise."""
    certificate = _renamed(item.certificate, name)
    obligations = count_obligations(certificate)
    word = "obligation" if obligations == 1 else "obligations"
    proof = f"reals, all sizes; {obligations} {word}; certificates/{name}.json"
    notes = {"set": item.rule.notes.get("set", ""), "proof": proof, **item.rule.notes}
    if item.follows:
        notes["set"] = f"search; follows from {', '.join(names[key] for key in item.follows)}"
    notes = {key: text for key, text in notes.items() if text}
    return Kept(replace(item.rule, name=name, notes=notes), certificate)


def _renamed(certificate: Mapping[str, object], name: str) -> dict[str, object]:
    result = dict(certificate)
    result["rule"] = name
    reverse = result.get("reverse")
    if isinstance(reverse, dict):
        result["reverse"] = {**reverse, "rule": f"{name}.reverse"}
    return result
