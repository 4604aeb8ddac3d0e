"""The difference between two databases of rules, which are compared by content, not by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xflow.core.errors import RuleFileError
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules

Statement = tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """A rule with the same two sides in both databases, and the names of its lines that differ."""

    before: Rule
    after: Rule
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """The rules that were added, those that were removed, and those whose other lines changed."""

    gained: tuple[Rule, ...]
    lost: tuple[Rule, ...]
    changed: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.gained or self.lost or self.changed)

    def lines(self) -> Iterable[str]:
        """For people, one line for each rule: with ``+``, ``-`` or ``~`` in front."""
        for rule in self.gained:
            yield f"+ {_spell(rule)}"
        for rule in self.lost:
            yield f"- {_spell(rule)}"
        for change in self.changed:
            yield f"~ {_spell(change.after)}"
            before, after = _facets(change.before), _facets(change.after)
            for line in change.lines:
                yield f"    {line}: {before[line]} -> {after[line]}"
        counts = (len(self.gained), len(self.lost), len(self.changed))
        yield "{} gained, {} lost, {} changed".format(*counts)


def compare(before: Iterable[Rule], after: Iterable[Rule]) -> Difference:
    """The difference of two lists of rules; their order and their names do not matter."""
    old, new = map(_as_read, (before, after))
    everything = [_statement(rule) for rule in old], [_statement(rule) for rule in new]
    _cancel(old, new, *everything)
    changes: list[Change] = []
    # First rules with the same inputs, since one pair of sides may be stated for several.
    for narrow in (True, False):
        for rule in list(new):
            match = next((other for other in old if _alike(other, rule, narrow)), None)
            if match is not None:
                old.remove(match)
                new.remove(rule)
                changes.append(Change(match, rule, _differing(match, rule)))
    return Difference(_sorted(new), _sorted(old), tuple(changes))


def load_families(folder: Path, families: Sequence[str]) -> list[Rule]:
    """The rules of these families in a database. Raises RuleFileError."""
    if not folder.is_dir():
        raise RuleFileError("there is no such folder of rules", str(folder))
    rules: list[Rule] = []
    for family in families:
        path = folder / f"{family}.rules"
        if path.exists():
            try:
                rules += parse_rules(path.read_text(encoding="utf-8"), str(path))
            except (OSError, UnicodeDecodeError) as error:
                raise RuleFileError(f"the file cannot be read ({error})", str(path)) from None
    return rules


def _as_read(rules: Iterable[Rule]) -> list[Rule]:
    """Rules as their file has them: reading spells conditions anew, as in ``4 * (C // 4)``."""
    return [read for rule in rules for read in parse_rules(str(rule), "the rules")]


def _facets(rule: Rule) -> dict[str, str]:
    """The other lines of a rule than its two sides, by their names."""
    return {
        "in": rule.inputs,
        "param": rule.params or "-",
        "rank": " ".join(map(str, rule.ranks)) + (" ..." if rule.any_rank else ""),
        "where": ", ".join(rule.where) or "always",
        "reverse": "never" if rule.reverse is None else ", ".join(rule.reverse) or "always",
        "types": rule.types or "-",
        "numerics": rule.notes.get("numerics", "-"),
    }


def _statement(rule: Rule) -> Statement:
    return (rule.lhs, rule.rhs, *_facets(rule).values())


def _cancel(
    old: list[Rule], new: list[Rule], before: list[Statement], after: list[Statement]
) -> None:
    """Remove what both have, as often as both have it."""
    common = Counter(before) & Counter(after)
    for rules, statements in ((old, before), (new, after)):
        rest = Counter(common)
        kept = []
        for rule, statement in zip(rules, statements, strict=True):
            if rest[statement]:
                rest[statement] -= 1
            else:
                kept.append(rule)
        rules[:] = kept


def _alike(one: Rule, other: Rule, narrow: bool) -> bool:
    sides = (one.lhs, one.rhs) == (other.lhs, other.rhs)
    return sides and (not narrow or one.inputs == other.inputs)


def _differing(before: Rule, after: Rule) -> tuple[str, ...]:
    old, new = _facets(before), _facets(after)
    return tuple(name for name in old if old[name] != new[name])


def _sorted(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(sorted(rules, key=lambda rule: (_statement(rule), rule.name)))


def _spell(rule: Rule) -> str:
    condition = f" where {', '.join(rule.where)}" if rule.where else ""
    return f"{rule.name}: {rule.lhs} => {rule.rhs}{condition}"
