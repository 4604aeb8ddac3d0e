"""The committed database: what `xflow rules generate` wrote, and nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from xflow.generator.run import generate
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules
from xflow.verifier.database import verify_rules

RULES = load_rules(default_directory())


def test_every_rule_reads_back_as_it_is_written() -> None:
    for rule in RULES:
        assert parse_rules(str(rule)) == [rule]


def test_no_two_rules_say_the_same() -> None:
    equations = [(rule.inputs, rule.lhs, rule.rhs) for rule in RULES]
    assert len(set(equations)) == len(equations)


def test_every_rule_has_its_certificate_and_no_certificate_is_left_over() -> None:
    folder = default_directory() / "certificates"
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert set(found) == {rule.name for rule in RULES}
    for rule in RULES:
        assert f"certificates/{rule.name}.json" in rule.notes["proof"]
        proved = [record["rank"] for record in found[rule.name]["ranks"]]
        assert tuple(proved) == rule.ranks
        assert ("reverse" in found[rule.name]) >= (rule.reverse is not None)


def test_rules_are_proved_again_from_their_text() -> None:
    """A sample: `make verify` proves them all, and so does the generation from nothing."""
    assert verify_rules(RULES[::200]) == []


def test_what_a_rule_follows_from_is_there() -> None:
    names = {rule.name for rule in RULES}
    for rule in RULES:
        sources = rule.notes.get("set", "base").partition("follows from ")[2]
        assert {name.strip() for name in sources.split(",") if name} <= names
    assert any(rule.is_base and not rule.is_searched for rule in RULES)
    assert any(rule.is_searched and not rule.is_base for rule in RULES)


@pytest.mark.many
def test_generating_a_family_again_gives_the_committed_bytes(tmp_path: Path) -> None:
    """One that enumerates few graphs; `make regeneration` does so with all."""
    committed = default_directory()
    copy = tmp_path / "rules"
    shutil.copytree(committed, copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for path in copy.rglob("decided.*"):
        path.unlink()
    generate(copy, families=("decided",))
    assert_same(copy, committed)


@pytest.mark.regeneration
@pytest.mark.timeout(0)
def test_generating_from_nothing_gives_the_committed_bytes(tmp_path: Path) -> None:
    summary = generate(tmp_path / "rules")
    assert_same(tmp_path / "rules", default_directory())
    counts = {each.family: each.counts for each in summary.families}["definitions"]
    assert counts["proved"] == counts["proposed"] > 20


def assert_same(written: Path, committed: Path) -> None:
    suffixes = (".rules", ".json", ".txt")
    names = [
        sorted(p.relative_to(folder) for p in folder.rglob("*") if p.suffix in suffixes)
        for folder in (written, committed)
    ]
    assert names[0] == names[1]
    for name in names[0]:
        assert (written / name).read_bytes() == (committed / name).read_bytes(), name
