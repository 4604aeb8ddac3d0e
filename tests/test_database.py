"""The committed database: what `xflow rules generate` wrote, and nothing else."""

import json
from pathlib import Path

import pytest

from xflow.generator.run import generate
from xflow.rule import parse_rules
from xflow.rule_files import default_directory, load_rules
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
    """Each fifth: the generation from nothing, below, proves them all; so does `make verify`."""
    assert verify_rules(RULES[::5]) == []


@pytest.mark.timeout(900)
def test_generating_from_nothing_gives_the_committed_bytes(tmp_path: Path) -> None:
    generate(tmp_path)
    committed = default_directory()
    written = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    kept = sorted(
        p.relative_to(committed) for p in committed.rglob("*") if p.suffix in (".rules", ".json")
    )
    assert written == kept
    for path in written:
        assert (tmp_path / path).read_bytes() == (committed / path).read_bytes(), path
