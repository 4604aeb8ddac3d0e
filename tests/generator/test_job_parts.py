"""The parts of the generator's job: keys, journal, memory, differences, and the folder of rules."""

from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from graphs import call, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from small_jobs import GB, MATRICES, SUMS, contents

from xflow.core.errors import OutputError, UsageError
from xflow.generator.database.difference import compare
from xflow.generator.database.publish import prepare
from xflow.generator.enumeration.enumerate import enumerate_terms
from xflow.generator.runner.chunks import Consequence, Explore, Judged, Settle
from xflow.generator.runner.codec import canonical, decode, encode
from xflow.generator.runner.engine import Queue, Urgency
from xflow.generator.runner.journal import Journal, journal_folder
from xflow.generator.runner.kept import to_text
from xflow.generator.runner.memory import DRIVER, WORKER, default_limit, granted, workers_within
from xflow.generator.runner.outcome import Outcome
from xflow.generator.settle import cause_of
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules

RULES = parse_rules(
    "rule one\n in x[...]\n from Relu(Relu(x))\n to Relu(x)\n\n"
    "rule two\n in x[...] y[...]\n from Add(x, Sub(y, x))\n to y\n reverse always\n\n"
    "rule three\n in x[n, m]\n from Relu(Transpose(x, perm=[1, 0]))\n"
    " to Transpose(Relu(x), perm=[1, 0])\n"
)

ACTIVATED = call(
    "Gelu",
    call(
        "LayerNormalization",
        *(tensor("x", 2, 8), tensor("s", 8), tensor("b", 8)),
        axis=1,
        epsilon=Fraction(1, 3),
    ),
    approximate="tanh",
)
"""A value with attributes of several kinds."""


def test_what_is_needed_at_the_end_keeps_nobody_from_looking_ahead() -> None:
    queue, chunk = Queue(), Settle("", 0)
    last = queue.add(chunk, "last", "sums", Urgency.LAST)
    queue.add(chunk, "other", "sums", Urgency.LAST)
    assert queue.pressing == 0
    soon = queue.add(chunk, "soon", "sums", Urgency.SOON)
    queue.hurry(last, Urgency.NOW)
    assert queue.pressing == 2
    assert [queue.take(), queue.take()] == [last, soon]
    assert queue.pressing == 0
    queue.put_back(soon)
    assert queue.pressing == 1


def test_a_damaged_journal_is_not_believed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.write("a" * 40, Outcome(7))
    found = journal.find("a" * 40)
    assert found is not None
    assert found.result == 7
    path = tmp_path / "journal" / ("a" * 40)
    path.write_bytes(path.read_bytes()[:-1])
    assert journal.find("a" * 40) is None
    journal.decide("b" * 40, True)
    journal.close()
    with (tmp_path / "journal" / "decisions").open("ab") as file:
        file.write(b"c" * 17)  # cut short by a kill
    journal = Journal(tmp_path / "journal")
    journal.decide("d" * 40, False)
    journal.close()
    again = Journal(tmp_path / "journal")
    assert again.decided("b" * 40) is True
    assert again.decided("d" * 40) is False
    again.delete()
    assert not (tmp_path / "journal").exists()


def test_a_journal_that_nobody_takes_up_is_deleted_in_the_end(tmp_path: Path) -> None:
    old, young, foreign = tmp_path / ("a" * 40), tmp_path / ("b" * 40), tmp_path / "mine"
    for folder in (old, young, foreign):
        folder.mkdir()
        (folder / "entry").write_text("")
    for path in (old / "entry", foreign / "entry", old, foreign):
        os.utime(path, (0, 0))
    Journal(tmp_path / ("c" * 40)).close()
    assert not old.exists()
    assert young.exists()
    assert foreign.exists()


def test_journals_of_different_jobs_are_apart() -> None:
    folders = {
        journal_folder(seed, max_ops, families)
        for seed in (0, 1)
        for max_ops in (2, 3)
        for families in (("linear",), ("linear", "pooling"))
    }
    assert len(folders) == 8
    assert journal_folder(0, 3, ("a", "b")) == journal_folder(0, 3, ("b", "a"))


def test_less_memory_means_fewer_workers_and_too_little_an_error() -> None:
    assert workers_within(DRIVER + 2 * WORKER, 8) == 2
    assert workers_within(100 * GB, 8) == 8
    with pytest.raises(UsageError, match=r"600MB .* one worker needs 700MB"):
        workers_within(600_000_000, 8)
    assert 0 < default_limit() < granted()


def test_terms_arrive_as_the_same_interned_values() -> None:
    for vocabulary in (SUMS, MATRICES):
        for candidate in enumerate_terms(vocabulary, 0, 2).candidates[:50]:
            pair = (candidate.source.value, candidate.target.value)
            assert decode(encode(pair)) == pair
    assert decode(encode((ACTIVATED,))) == (ACTIVATED,)


@given(st.dictionaries(st.text(max_size=3), st.integers()), st.frozensets(st.text(max_size=3)))
def test_the_order_of_mappings_and_sets_is_not_in_a_key(
    mapping: dict[str, int], names: frozenset[str]
) -> None:
    turned = dict(reversed(list(mapping.items())))
    assert canonical((mapping, names)) == canonical((turned, frozenset(sorted(names)[::-1])))


def test_a_chunk_has_another_key_if_anything_of_it_differs() -> None:
    chunks = [
        Explore(SUMS, 0, 2),
        Explore(SUMS, 1, 2),
        Explore(SUMS, 0, 3),
        Explore(replace(SUMS, limits=(0, 0)), 0, 2),
        Explore(replace(SUMS, free=frozenset({"x"})), 0, 2),
    ]
    assert len({chunk.key for chunk in chunks}) == len(chunks)
    assert Explore(replace(SUMS), 0, 2).key == chunks[0].key


@settings(deadline=None)
@given(st.permutations(RULES), st.integers(0, 10))
def test_neither_order_nor_names_make_a_difference(rules: list[Rule], number: int) -> None:
    renamed = [replace(rule, name=f"{rule.name}-{number}") for rule in rules]
    assert not compare(RULES, renamed)


def test_a_difference_tells_gained_lost_and_changed_rules() -> None:
    one, two, three = RULES
    fewer = replace(two, reverse=None)
    difference = compare([one, two], [fewer, three])
    assert difference.gained == (three,)
    assert difference.lost == (one,)
    (change,) = difference.changed
    assert (change.before, change.after, change.lines) == (two, fewer, ("reverse",))
    lines = list(difference.lines())
    assert "    reverse: always -> never" in lines
    assert lines[-1] == "1 gained, 1 lost, 1 changed"
    assert compare([one, one], [one]).lost == (one,)
    wider = replace(one, inputs="x[n]")
    assert compare([one], [wider]).changed[0].lines == ("in",)


def test_how_a_condition_is_spelled_makes_no_difference() -> None:
    one, other = (replace(RULES[0], reverse=(text,)) for text in ("n >= 2*1", "n >= 2 * 1"))
    assert not compare([one], [other])
    assert not compare([], [])


def test_a_run_that_died_while_it_exchanged_folders_is_mended(tmp_path: Path) -> None:
    (tmp_path / ".rules.12345678.xflow-old").mkdir()
    (tmp_path / ".rules.12345678.xflow-old" / "a.rules").write_text("# whole\n")
    (tmp_path / ".rules.87654321.xflow-new").mkdir()
    prepare(tmp_path / "rules")
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["rules"]
    assert contents(tmp_path / "rules") == {"a.rules": b"# whole\n"}
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="not a folder"):
        prepare(tmp_path / "file")


def test_the_working_folder_is_not_pulled_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "rules" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    for folder in (Path(), Path(".."), Path("/")):
        with pytest.raises(OutputError, match="run from within"):
            prepare(folder)
    prepare(inner / "below")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("not shown: vacuous: the conditions contradict each other", "vacuous: hardly any sizes"),
        ("not shown: the right side needs p >= 0", "conditions of the right side"),
        ("not shown: KeyError: 3", "the prover failed with KeyError"),
        ("not shown: no idea", "other"),
    ],
)
def test_unknown_verdicts_are_told_by_cause(reason: str, cause: str) -> None:
    assert cause_of(reason).startswith(cause)


OUTCOMES = (
    Outcome(7),
    Outcome(None, "no result", 1.5, 2.5, 10**12, "a machine:1"),
    Outcome(Explore(SUMS, 0, 2).run()),
    Outcome(Explore(MATRICES, 0, 2).run()),
    Outcome(Settle(str(RULES[0]), 0).run()),
    Outcome(Settle("rule no\n in x[n]\n from Relu(x)\n to Abs(x)\n", 0).run()),
    Outcome(Judged((), ("rule",))),
    Outcome({3: Consequence((1, 2), True)}),
    Outcome((True, False)),
    Outcome(encode((ACTIVATED,))),
)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda each: type(each.result).__name__)
def test_outcomes_survive_being_kept(outcome: Outcome, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.write("a" * 40, outcome)
    assert journal.find("a" * 40) == outcome
    journal.close()


class Trap:
    """An object that runs code where it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.place,)

    def __init__(self, place: str) -> None:
        self.place = place


def plant(folder: Path, body: bytes) -> Journal:
    """A journal of which somebody has written a file, with its digest."""
    journal = Journal(folder)
    (folder / ("a" * 40)).write_bytes(hashlib.sha256(body).digest() + body)
    return journal


def test_no_code_in_a_journal_is_run(tmp_path: Path) -> None:
    planted = pickle.dumps(Outcome(Trap(str(tmp_path / "made"))))
    journal = plant(tmp_path / "journal", planted)
    assert journal.find("a" * 40) is None
    assert not (tmp_path / "made").exists()
    journal.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "[]",
        "{}",
        '{"os.system": "true"}',
        '{"Worker": {}}',
        '{"Outcome": {"result": 7}}',
        '{"Outcome": []}',
        '{"tuple": {"Outcome": 1}}',
        to_text(OUTCOMES[0]).replace('""', "1", 1),
        to_text(OUTCOMES[0]).replace('"memory": 0', '"memory": true'),
        to_text(OUTCOMES[0]).replace('"result": 7', '"result": [7]'),
        to_text(OUTCOMES[0]).replace('"result": 7', '"result": {"Fate": "unproved"}'),
        to_text(OUTCOMES[0]).replace('"result": 7', '"result": {"Fraction": "1e999999999"}'),
        to_text(OUTCOMES[4]).replace('{"Fate": "proved"}', '"proved"'),
        to_text(OUTCOMES[4]).replace('"ranks": {"tuple": [0]}', '"ranks": {"tuple": ["0"]}'),
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_outcome_is_not_read(text: str, tmp_path: Path) -> None:
    journal = plant(tmp_path / "journal", text.encode())
    assert journal.find("a" * 40) is None
    journal.close()


def test_what_cannot_be_kept_is_an_error_where_it_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with pytest.raises(TypeError, match="Trap cannot be kept"):
        journal.write("a" * 40, Outcome(Trap("")))
    journal.close()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes of files")
@pytest.mark.parametrize("inner", [True, False])
def test_a_journal_that_others_can_write_is_not_used(inner: bool, tmp_path: Path) -> None:
    """What stands there would count as proved."""
    folder = tmp_path / "generate" / ("a" * 40)
    folder.mkdir(parents=True)
    open_to_all = folder if inner else folder.parent
    open_to_all.chmod(0o777)
    with pytest.raises(OutputError, match=f"chmod 700 {open_to_all}"):
        Journal(folder)


def test_the_folder_of_a_journal_is_for_its_user_alone(tmp_path: Path) -> None:
    Journal(tmp_path / "generate" / "job").close()
    for folder in (tmp_path / "generate", tmp_path / "generate" / "job"):
        assert folder.stat().st_mode & 0o777 == 0o700
