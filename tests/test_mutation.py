"""Mutants of true rules: none is proved and false."""

from collections import Counter
from itertools import islice
from pathlib import Path

import mutate
import pytest
from mutate import HERE, Mutant, Outcome, hand_picked, judge, mutants, sample, true_rules

from xflow.rule import Rule, parse_rules
from xflow.verifier import prove as prover
from xflow.verifier.prove import Proved
from xflow.verifier.refutation.refute import Survived, search_counterexample

ONCE_PROVED = parse_rules((HERE / "corpus" / "bad-mutants.rules").read_text("utf-8"))

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


def test_outputs_are_exchanged() -> None:
    first, second = CONCATENATED.lhs.split(", MatMul")
    exchanged = f"MatMul{second}, {first}"
    assert exchanged in {mutant.rule.lhs for mutant in mutants(CONCATENATED)}


def test_no_mutant_of_a_sample_is_proved_and_false() -> None:
    judged = [judge(mutant) for mutant in sample(true_rules(*QUICK), SAMPLE, seed=0)]
    wrong = [str(judgement) for judgement in judged if judgement.outcome is Outcome.FALSE]
    assert not wrong, "\n".join(wrong)
    counts = Counter(judgement.outcome for judgement in judged)
    assert counts[Outcome.CONFIRMED], "no mutant is true, so none was confirmed"
    assert counts[Outcome.REFUTED] > SAMPLE / 4


@pytest.mark.parametrize("rule", ONCE_PROVED, ids=lambda rule: rule.name)
def test_a_mutant_that_was_once_proved_wrongly_is_refuted(rule: Rule) -> None:
    assert judge(Mutant(rule, "as it is")).outcome is Outcome.REFUTED


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


def test_a_journal_that_was_cut_short_says_what_is_done(tmp_path: Path) -> None:
    rules = [
        one(f"rule {name.lower()}\n  in x[n]\n  from Neg({name}(x))\n  to x\n") for name in NAMES
    ]
    tallies = [mutate.Tally(Counter({Outcome.REFUTED: n}), ("hole",) * n) for n in range(1, 4)]
    path = tmp_path / "folder" / "journal.jsonl"
    mutate.Journal(path)[rules[0], True] = tallies[0]
    with path.open("a", encoding="utf-8") as file:
        file.write('{"key": "cut sh')
    mutate.Journal(path)[rules[1], False] = tallies[1]
    known = mutate.Journal(path)
    assert [known[rule, True] for rule in rules] == [tallies[0], None, None]
    assert [known[rule, False] for rule in rules] == [None, tallies[1], None]


def test_every_kind_of_step_has_its_turn_and_every_mutant_is_in_one_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = mutate.in_turn(CONCATENATED)
    assert Counter(map(str, turns)) == Counter(map(str, mutants(CONCATENATED)))
    kinds = {mutate._kind(mutant.step) for mutant in turns}
    assert {mutate._kind(mutant.step) for mutant in turns[: len(kinds)]} == kinds
    small = one("rule small\n  in x[n] y[n]\n  from Sub(x, y)\n  to Add(x, Neg(y))\n")
    judged: list[Mutant] = []

    def judge_quickly(mutant: Mutant) -> mutate.Judgement:
        judged.append(mutant)
        return mutate.Judgement(mutant, Outcome.REFUTED)

    monkeypatch.setattr(mutate, "judge", judge_quickly)
    halves = [mutate._judge(small, first).counts for first in (True, False)]
    assert halves[0].total() - halves[0][Outcome.ILL_TYPED] == mutate.FIRST
    assert sum(halves, Counter()).total() == len(mutate.in_turn(small))
    assert len(judged) == len({str(mutant) for mutant in judged})


@pytest.mark.mutation
@pytest.mark.timeout(0)
def test_no_mutant_is_proved_and_false() -> None:
    journal = mutate.Journal(mutate.JOURNAL)
    counts = mutate.run(true_rules(), mutate.cores(), journal)
    print(mutate.words(counts))
    assert counts.total() >= 2000
    assert counts[Outcome.CONFIRMED]
    assert not counts[Outcome.FALSE]
