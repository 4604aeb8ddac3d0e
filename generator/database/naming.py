"""The stanzas of the database: accepted rules in groups, with their names and proof lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from xflow.generator.database.grouping import group_rules
from xflow.generator.database.labels import LONGEST, case_labels, stanza_names
from xflow.generator.database.templates import Template, alone, stanza_text, template_of
from xflow.generator.derive import Derivation, Kept
from xflow.rewriting.rule import Rule
from xflow.verifier.certificate import count_obligations


@dataclass(frozen=True)
class Stanza:
    """Rules that are written as one stanza, each of which is a case where there are several."""

    name: str
    template: Template
    labels: tuple[str, ...]
    """Of the cases; a single rule has an empty one."""
    kept: tuple[Kept, ...]
    """The rules under their names, with their certificates."""

    @property
    def text(self) -> str:
        """The stanza as the file has it."""
        rules = [item.rule for item in self.kept]
        return stanza_text(self.name, self.template, self.labels, rules)


def single(item: Kept) -> Stanza:
    """A stanza of one rule that has its name."""
    return Stanza(item.rule.name, alone(item.rule), ("",), (item,))


def rules_of(stanzas: Iterable[Stanza]) -> list[Rule]:
    """The rules of some stanzas."""
    return [item.rule for stanza in stanzas for item in stanza.kept]


def name_rules(
    results: Iterable[Derivation], others: Iterable[Rule] = (), reserved: Iterable[str] = ()
) -> dict[str, list[Stanza]]:
    """Put the rules of each family into stanzas, and give each rule a name of its own.

    `others` are the rules of other families, and `reserved` further names that are not free, such
    as those of their stanzas. A stanza gets the first of its names that is free, so one family
    generated again gets the names that it had.
    """
    others = list(others)
    names = {rule.statement: rule.name for rule in others}
    taken = {*(rule.name for rule in others), *reserved}
    made: dict[str, list[tuple[str, Template, tuple[str, ...], tuple[Kept, ...]]]] = {}
    for derivation in results:
        items = {id(item.rule): item for item in derivation.kept}
        templates = [template_of(group) for group in group_rules(map(_rule_of, derivation.kept))]
        made[derivation.family] = stanzas = []
        for template, possible in zip(
            templates, stanza_names(templates, derivation.family), strict=True
        ):
            labels = tuple(case_labels(template)) if len(template.rules) > 1 else ("",)
            name = _free(possible, labels, taken)
            full = [_joined(name, label) for label in labels]
            taken |= {name, *full}
            for rule, its_name in zip(template.rules, full, strict=True):
                names.setdefault(rule.statement, its_name)
            stanzas.append((name, template, labels, tuple(items[id(r)] for r in template.rules)))
    return {
        family: sorted(
            (_finish(*stanza, names) for stanza in stanzas), key=lambda stanza: stanza.name
        )
        for family, stanzas in made.items()
    }


def _rule_of(item: Kept) -> Rule:
    return item.rule


FEW = 40
"""Names of a stanza that are tried, if they are too long."""


def _joined(name: str, label: str) -> str:
    return f"{name}-{label}" if label else name


def _free(possible: Iterable[str], labels: Sequence[str], taken: set[str]) -> str:
    """The first name that is free with all labels; one of the first few if any is short enough."""

    def free(name: str) -> bool:
        return taken.isdisjoint({name, *(_joined(name, label) for label in labels)})

    first: list[str] = []
    for name in possible:
        if not free(name):
            continue
        if max(len(_joined(name, label)) for label in labels) <= LONGEST:
            return name
        first.append(name)
        if len(first) == FEW:
            break
    return first[0]


def _finish(
    name: str,
    template: Template,
    labels: tuple[str, ...],
    items: Sequence[Kept],
    names: Mapping[str, str],
) -> Stanza:
    kept = tuple(
        _named(item, _joined(name, label), names) for item, label in zip(items, labels, strict=True)
    )
    return Stanza(name, template, labels, kept)


def _named(item: Kept, name: str, names: Mapping[str, str]) -> Kept:
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
