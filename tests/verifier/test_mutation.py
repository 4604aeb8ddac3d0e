"""Mutants of true rules: none is proved and false."""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import mutate
import mutation_run
import pytest
from mutate import (
    HOLES,
    Judgement,
    Mutant,
    Outcome,
    hand_picked,
    judge,
    mutants,
    sample,
    true_rules,
)
from mutation_run import ROUNDS, Journal, Part, Tally
from places import CORPUS

from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier import prove as prover
from xflow.verifier.proof import instance as proof_of_instance
from xflow.verifier.prove import Proved
from xflow.verifier.refutation.refute import Survived, search_counterexample

ONCE_PROVED = parse_rules((CORPUS / "bad-mutants.rules").read_text("utf-8"))

NAMES = ("Neg", "Abs", "Exp")

SAMPLE = 90
"""Mutants in the fast suite; `pytest -m mutation` takes all."""

QUICK = ("good.rules", "taso-axioms.rules")
"""The corpora that they are of: mutants of harder rules may take half a minute each."""


def one(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return rule


CONCATENATED = one(
    "rule concatenated\n"
    "  in x[n, m] y[n, k] v[m, l] w[m, h]\n"
    "  param p\n"
    "  from Pad(Concat(x, y, axis=1), pads=[p, 0, 1, 0]), MatMul(x, Concat(v, w, axis=1))\n"
    "  to Concat(Pad(x, pads=[p, 0, 1, 0]), Pad(y, pads=[p, 0, 1, 0]), axis=1),"
    " Concat(MatMul(x, v), MatMul(x, w), axis=1)\n"
    "  where p >= 0\n"
)


def test_there_are_two_thousand_mutants_of_a_hundred_hand_picked_rules() -> None:
    rules = hand_picked()
    assert len(rules) >= 100
    found = [mutant for rule in rules for mutant in islice(mutants(rule), 20)]
    assert len({str(mutant.rule) for mutant in found}) >= 2000


@pytest.mark.parametrize(
    "change",
    [
        ("Concat(x, y, axis=1)", "Concat(x, y, axis=0)"),
        ("Concat(x, y, axis=1)", "Concat(y, x, axis=1)"),
        ("Concat(x, y, axis=1)", "Concat(x, axis=1)"),
        ("Concat(x, y, axis=1)", "Concat(x, v, axis=1)"),
        ("Concat(x, y, axis=1)", "Concat(x, y, w, axis=1)"),
        ("Concat(x, y, axis=1)", "x"),
        ("MatMul(x, Concat", "Div(x, Concat"),
        ("pads=[p, 0, 1, 0]), MatMul", "pads=[p + 1, 0, 1, 0]), MatMul"),
        ("pads=[p, 0, 1, 0]), MatMul", "pads=[m, 0, 1, 0]), MatMul"),
        ("pads=[p, 0, 1, 0]), MatMul", "pads=[p, 0, 0, 0]), MatMul"),
        ("pads=[p, 0, 1, 0]), MatMul", "pads=[0, p, 1, 0]), MatMul"),
        ("y[n, k]", "y[m, k]"),
        ("y[n, k]", "y[n, k + 1]"),
        ("y[n, k]", "y[k, n]"),
        ("  where    p >= 0\n", ""),
        ("p >= 0", "p >= -1"),
    ],
    ids=str,
)
def test_every_single_step_is_taken(change: tuple[str, str]) -> None:
    before, after = change
    text = str(CONCATENATED)
    assert before in text
    expected = str(one(text.replace(before, after, 1)))
    assert expected in {str(mutant.rule) for mutant in mutants(CONCATENATED)}


MASKED = one(
    "rule masked\n"
    "  in x[n, k] m[n, k] r[n, 1]\n"
    "  from Softmax(Add(Add(x, m), r), axis=1)\n"
    "  to Softmax(Add(x, Add(r, m)), axis=1)\n"
    "  where x < inf, m < inf, finite(r)\n"
    "  limits x m\n"
)


def test_what_is_said_of_elements_that_are_no_numbers_is_mutated() -> None:
    found = {mutant.step: mutant.rule for mutant in mutants(MASKED) if mutant.as_it_stands}
    assert found.keys() == {
        "asks not for x < inf",
        "asks not for m < inf",
        "asks not for finite(r)",
        "asks for r < inf instead",
        "exact: numbers",
        "exact: bits",
        "limits: r",
    }
    assert found["asks not for finite(r)"].where == ("x < inf", "m < inf")
    assert found["asks for r < inf instead"].where == ("x < inf", "m < inf", "r < inf")
    assert found["exact: bits"].exact == "bits"
    assert found["limits: r"].limits == ("x", "m", "r")
    numbers = {m.step for m in mutants(replace(MASKED, exact="numbers")) if m.as_it_stands}
    assert "exact: bits" in numbers
    assert "exact: numbers" not in numbers


@pytest.mark.parametrize("kind", ["lacking", "same_bits", "jumps"])
def test_a_prover_that_is_wrong_of_what_is_no_number_is_found_out(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the wrong answer to one question, mutants are proved and false; else none is."""
    rule = one(
        "rule guarded\n  in c[...]:bool x[...] m[...] z[...]\n"
        "  from Add(Where(c, x, 0), Add(m, z))\n  to Add(m, Add(Mul(x, Cast(c, to='REAL')), z))\n"
        "  where finite(x)\n  limits m z\n"
    )
    nothing = one("rule nothing\n  in m[n]\n  from m\n  to Add(m, Sub(m, m))\n")
    told = [m for r in (rule, nothing) for m in mutants(r) if m.as_it_stands]
    assert not any(judge(mutant).outcome in HOLES for mutant in told)
    wrong: dict[str, Callable[..., object]] = {
        "lacking": lambda *_: (),
        "same_bits": lambda *_: True,
        "jumps": lambda *_: frozenset(),
    }
    monkeypatch.setattr(proof_of_instance, kind, wrong[kind])
    assert any(judge(mutant).outcome is Outcome.FALSE for mutant in told)


def test_outputs_are_exchanged() -> None:
    first, second = CONCATENATED.lhs.split(", MatMul")
    exchanged = f"MatMul{second}, {first}"
    assert exchanged in {mutant.rule.lhs for mutant in mutants(CONCATENATED)}


def test_no_mutant_of_a_sample_is_proved_and_false() -> None:
    judged = [judge(mutant) for mutant in sample(true_rules(*QUICK), SAMPLE, seed=2)]
    wrong = [str(judgement) for judgement in judged if judgement.outcome in HOLES]
    assert not wrong, "\n".join(wrong)
    counts = Counter(judgement.outcome for judgement in judged)
    assert counts[Outcome.CONFIRMED], "no mutant is true, so none was confirmed"
    assert counts[Outcome.REFUTED] > SAMPLE / 4


@pytest.mark.parametrize("rule", ONCE_PROVED, ids=lambda rule: rule.name)
def test_a_mutant_that_was_once_proved_wrongly_is_refuted(rule: Rule) -> None:
    assert judge(Mutant(rule, "as it is")).outcome is Outcome.REFUTED


def test_a_flag_that_is_a_symbol_is_evaluated_where_it_is_one() -> None:
    """A mutant may have any number there, of which an operator takes two."""
    rule = one(
        "rule flag\n"
        "  in x[N, C, S]\n"
        "  param p\n"
        "  from AveragePool(x, kernel_shape=[2], count_include_pad=p)\n"
        "  to AveragePool(x, kernel_shape=[2])\n"
    )
    assert isinstance(search_counterexample(rule), Survived)


def test_a_prover_that_proves_everything_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover, "prove", lambda rule, **_: Proved({}, rule.where))
    wrong = one("rule w\n  in x[n] y[n]\n  from Sub(x, y)\n  to Sub(y, x)\n")
    assert judge(Mutant(wrong, "as it is")).outcome is Outcome.FALSE


def test_a_condition_that_does_not_help_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("q >= 1",)
    monkeypatch.setattr(prover, "prove", lambda rule, **_: Proved({}, where))
    monkeypatch.setattr(mutate, "search_counterexample", _blind_without(where))
    wrong = one("rule w\n  in x[n]\n  param q\n  from Pad(x, pads=[q, 0])\n  to x\n")
    assert judge(Mutant(wrong, "as it is")).outcome is Outcome.FALSE


def _blind_without(where: tuple[str, ...]) -> object:
    """Evaluation that sees nothing in a rule without the conditions `where`."""

    def search(rule: Rule, **options: int) -> object:
        return search_counterexample(rule, **options) if rule.where == where else Survived(24)

    return search


def test_a_proof_that_evaluation_can_hardly_follow_is_not_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = Survived(2 * prover.MIN_CASES)
    monkeypatch.setattr(mutate, "search_counterexample", lambda *_, **__: few)
    monkeypatch.setattr(mutate, "CONFIRMATIONS", (mutate.SEARCHES + 2) * few.cases)
    twice = one("rule w\n  in x[n]\n  from Neg(Neg(x))\n  to x\n")
    assert judge(Mutant(twice, "as it is")).outcome is Outcome.UNCONFIRMED


def test_a_journal_that_was_cut_short_says_what_is_done(tmp_path: Path) -> None:
    parts = [
        Part(one(f"rule {name.lower()}\n  in x[n]\n  from Neg({name}(x))\n  to x\n"), number)
        for number in range(2)
        for name in NAMES
    ]
    tallies = [Tally(Counter({Outcome.REFUTED: n}), ["hole"] * n) for n in (1, 2)]
    path = tmp_path / "folder" / "journal.jsonl"
    Journal(path)[parts[0]] = tallies[0]
    with path.open("a", encoding="utf-8") as file:
        file.write('{"key": "cut sh')
    Journal(path)[parts[4]] = tallies[1]
    known = Journal(path)
    assert [known[part] for part in parts] == [tallies[0], None, None, None, tallies[1], None]


def test_every_kind_of_step_has_its_turn_and_every_mutant_is_in_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = mutate.in_turn(CONCATENATED)
    assert Counter(map(str, turns)) == Counter(map(str, mutants(CONCATENATED)))
    kinds = {mutate._kind(mutant.step) for mutant in turns}
    assert {mutate._kind(mutant.step) for mutant in turns[: len(kinds)]} == kinds
    small = one("rule small\n  in x[n] y[n]\n  from Sub(x, y)\n  to Add(x, Neg(y))\n")
    monkeypatch.setattr(mutation_run, "judge", lambda each, _: Judgement(each, Outcome.REFUTED))
    rounds = [list(Part(small, number).judged()) for number in range(len(ROUNDS) - 1)]
    typed = [sum(each.outcome is Outcome.REFUTED for each in judged) for judged in rounds]
    assert typed[:2] == [ROUNDS[1], ROUNDS[2] - ROUNDS[1]]
    assert [str(each.mutant) for judged in rounds for each in judged] == list(
        map(str, mutate.in_turn(small))
    )
    assert list(Part(small, 1).judged(skip=3)) == rounds[1][3:]


def test_a_mutant_without_an_end_is_cut_off_and_the_next_ones_are_judged(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    small = one("rule small\n  in x[n]\n  from Neg(Neg(x))\n  to x\n")
    turns = list(filter(lambda mutant: mutate.is_typed(mutant.rule), mutate.in_turn(small)))

    def judge_some(mutant: Mutant, tell_proved: Callable[[], None]) -> Judgement:
        if mutant == turns[1]:
            time.sleep(60)
        if mutant == turns[2]:
            tell_proved()
            time.sleep(60)
        if mutant == turns[3]:
            os._exit(1)
        return Judgement(mutant, Outcome.FALSE if mutant == turns[4] else Outcome.REFUTED)

    monkeypatch.setattr(mutation_run, "judge", judge_some)
    monkeypatch.setattr(mutation_run, "CONTEXT", get_context("fork"))  # so that it judges like that
    monkeypatch.setattr(mutation_run, "START", 0)
    report = mutation_run.run([small], 1, limit=0.3)
    assert report.counts.total() == len(mutate.in_turn(small))
    assert report.counts[Outcome.CUT_OFF] == 2
    assert report.counts[Outcome.FALSE] == 1
    assert report.counts[Outcome.UNCONFIRMED] == 1
    assert report.counts[Outcome.REFUTED] == len(turns) - 4
    assert turns[4].step in capfd.readouterr().out
    assert report.reached([small]) == 1


@pytest.mark.mutation
@pytest.mark.timeout(0)
def test_no_mutant_is_proved_and_false() -> None:
    report = mutation_run.run(true_rules(), mutation_run.cores(), Journal(mutation_run.JOURNAL))
    print(report.summary())
    assert report.counts.total() >= 2000
    assert report.counts[Outcome.CONFIRMED]
    assert not any(report.counts[outcome] for outcome in HOLES)
