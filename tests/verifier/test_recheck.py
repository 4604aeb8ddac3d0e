# ruff: noqa: E501 - rules are lines
"""The recheck: certificates are replayed by a checker that shares nothing with the prover."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from dying import rechecks_some
from imports import imports
from places import CORPUS

from xflow.cli import entry
from xflow.core.constraint import Constraint, at_least, equal, in_range, less
from xflow.core.errors import MissingSolver
from xflow.core.graph import requirements
from xflow.core.size import Size, symbol, symbols
from xflow.core.spec import Element, call, max_over
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Proved, prove
from xflow.verifier.recheck import check, database, solver
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.finite import is_finite
from xflow.verifier.recheck.forms import Factor, Nested, Read, Sum, Term, sum_key, term
from xflow.verifier.recheck.groups import Group, is_bijection
from xflow.verifier.recheck.replay import Replay
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.tidy import Tidying
from xflow.verifier.recheck.verdicts import Confirmed, NotConfirmed, Wrong
from xflow.verifier.recheck.witness import present_values

MUTANTS = CORPUS / "bad-mutants.rules"

RULES = """
rule matmul-associates
  in     a[n, m] b[m, k] c[k, l]
  from   MatMul(MatMul(a, b), c)
  to     MatMul(a, MatMul(b, c))

rule matmul-of-a-concatenation
  in     a[n, m] b[n, k] c[m, l] d[k, l]
  from   MatMul(Concat(a, b, axis=1), Concat(c, d, axis=0))
  to     Add(MatMul(a, c), MatMul(b, d))

rule transpose-of-a-product
  in     a[n, m] b[m, k]
  from   Transpose(MatMul(a, b), perm=[1, 0])
  to     MatMul(Transpose(b, perm=[1, 0]), Transpose(a, perm=[1, 0]))

rule attention-with-a-past
  in     q[B, H, S, D] k[B, H, L, D] v[B, H, L, E] x[B, H, P, D] y[B, H, P, E] a[S, L + P]:bool
  from   MaskedAttention(q, Concat(x, k, axis=2), Concat(y, v, axis=2), a, scale=1)
  to     CachedMaskedAttention(q, k, v, x, y, a, scale=1)[0]

rule convolutions-of-different-kernels-added
  in     x[N, C, *S] w[O, I, *R] v[O, I, *(R + p + q)]
  param  *e *f *s *d g *p *q
  rank   1
  from   Add(Conv(x, w, pads=[*e, *f], strides=[*s], dilations=[*d], group=g), Conv(x, v, pads=[*(d*p + e), *(d*q + f)], strides=[*s], dilations=[*d], group=g))
  to     Conv(x, Add(v, Pad(w, pads=[0, 0, *p, 0, 0, *q])), pads=[*(d*p + e), *(d*q + f)], strides=[*s], dilations=[*d], group=g)
  where  p >= 0, q >= 0

rule two-pads-are-one
  in     x[n]
  param  p q
  from   Pad(Pad(x, pads=[p, p]), pads=[q, q])
  to     Pad(x, pads=[p + q, p + q])
  where  p >= 0

rule normalization-folded
  in     x[N, C, *S] w[O, c, *R] s[O] b[O] m[O] v[O]
  param  *e *f *t *d g eps:real
  rank   1
  from   BatchNormalization(Conv(x, w, pads=[*e, *f], strides=[*t], dilations=[*d], group=g), s, b, m, v, epsilon=eps)
  to     Conv(x, Mul(w, Unsqueeze(Div(s, Sqrt(Add(v, Scalar(value=eps)))), axes=[1, *(axis + 2)])), Sub(b, Mul(m, Div(s, Sqrt(Add(v, Scalar(value=eps)))))), pads=[*e, *f], strides=[*t], dilations=[*d], group=g)

rule relu-through-max-pool
  in     x[N, C, *S]
  param  *e *f *s *k
  rank   1
  from   Relu(MaxPool(x, kernel_shape=[*k], pads=[*e, *f], strides=[*s]))
  to     MaxPool(Relu(x), kernel_shape=[*k], pads=[*e, *f], strides=[*s])

rule relu-through-a-dilated-max-pool
  in     x[N, C, *S]
  param  *k *e *f *s *d
  rank   1
  from   Relu(MaxPool(x, kernel_shape=[*k], pads=[*e, *f], strides=[*s], dilations=[*d]))
  to     MaxPool(Relu(x), kernel_shape=[*k], pads=[*e, *f], strides=[*s], dilations=[*d])

rule reshape-of-a-reshape-of-any-shape
  in     x[n, m]
  param  k l i j h p q
  from   Reshape(Reshape(x, shape=[k, l, i]), shape=[j, h, p, q])
  to     Reshape(x, shape=[j, h, p, q])

rule greatest-in-any-order
  in     x[...] y[...] z[...]
  from   Max(Max(x, y), z)
  to     Max(Max(z, x), y)

rule gelu-by-tanh-of-a-gathered-row
  in     x[n, m] i[]:int
  from   Gelu(Gather(x, i, axis=0), approximate='tanh')
  to     Gather(Gelu(x, approximate='tanh'), i, axis=0)

rule sigmoid-as-a-tanh
  in     x[...]
  from   Mul(Add(Tanh(Mul(x, 1/2)), 1), 1/2)
  to     Sigmoid(x)

rule denominator-of-a-softmax-late
  in     x[n, m] w[m, k]
  from   MatMul(Div(Exp(x), ReduceSum(Exp(x), axes=[1], keepdims=1)), w)
  to     Div(MatMul(Exp(x), w), ReduceSum(Exp(x), axes=[1], keepdims=1))
  where  m >= 1

rule rows-reduced-twice
  in     x[*N, m, k]
  rank   1
  from   ReduceSum(ReduceSum(x, axes=[-1], keepdims=0), axes=[-1], keepdims=0)
  to     ReduceSum(ReduceSum(x, axes=[-2], keepdims=0), axes=[-1], keepdims=0)

rule quotients-added
  in     x[...] y[...] z[...]
  from   Add(Div(x, z), Div(y, z))
  to     Div(Add(x, y), z)
"""
KINDS = {rule.name: rule for rule in parse_rules(RULES)}
Data = dict[str, Any]


@pytest.fixture(scope="module")
def proofs() -> Callable[[str], tuple[Rule, Data]]:
    """The rule of that name and its certificate, as files would hold them.

    The rule has the conditions that the prover finds, that elements are numbers, and says how its
    sides agree.
    """
    made: dict[str, tuple[Rule, Data]] = {}

    def proof(name: str) -> tuple[Rule, Data]:
        if name not in made:
            verdict = prove(KINDS[name], both_ways=False)
            assert isinstance(verdict, Proved), str(verdict)
            rule = replace(
                KINDS[name], where=verdict.where, exact=verdict.exact, limits=verdict.limits
            )
            made[name] = rule, json.loads(json.dumps(verdict.certificate))
        rule, certificate = made[name]
        return rule, copy.deepcopy(certificate)

    return proof


Proofs = Callable[[str], tuple[Rule, Data]]


@pytest.mark.parametrize("name", KINDS)
def test_a_proved_rule_is_confirmed(name: str, proofs: Proofs) -> None:
    rule, certificate = proofs(name)
    verdict = recheck_rule(rule, certificate)
    assert isinstance(verdict, Confirmed), str(verdict)
    assert verdict.points > 0


def test_both_directions_are_checked() -> None:
    rule = KINDS["matmul-associates"]
    verdict = prove(rule)
    assert isinstance(verdict, Proved)
    assert verdict.reverse is not None
    rule = replace(rule, where=verdict.where, reverse=verdict.reverse)
    certificate = json.loads(json.dumps(verdict.certificate))
    assert isinstance(recheck_rule(rule, certificate), Confirmed)
    del certificate["reverse"]
    assert isinstance(recheck_rule(rule, certificate), Wrong)


def test_a_certificate_is_the_same_for_the_same_rule(proofs: Proofs) -> None:
    rule, certificate = proofs("matmul-of-a-concatenation")
    again = prove(rule, infer=False, both_ways=False)
    assert isinstance(again, Proved)
    assert json.dumps(again.certificate) == json.dumps(certificate)


# Tampering ---------------------------------------------------------------------------------------


def output(certificate: Data) -> Data:
    result: Data = certificate["ranks"][0]["outputs"][0]
    return result


def summed(side: list[Data]) -> Data:
    return next(term for term in side if "sum" in term)


def change_coefficient(certificate: Data) -> None:
    summed(output(certificate)["left"])["times"] = "2"


def change_coefficient_on_both_sides(certificate: Data) -> None:
    for side in ("left", "right"):
        summed(output(certificate)[side])["times"] = "2"


def change_guard(certificate: Data) -> None:
    part = summed(output(certificate)["right"])
    part["where"] = part["where"].replace(" + 1", " + 2", 1)


def drop_guard(certificate: Data) -> None:
    part = summed(output(certificate)["left"])
    part["where"] = ", ".join(part["where"].split(", ")[1:])


def change_index(certificate: Data) -> None:
    part = summed(output(certificate)["left"])
    part["of"][0] = part["of"][0].replace("_i1", "_i0")


def change_tensor(certificate: Data) -> None:
    part = summed(output(certificate)["left"])
    part["of"][0] = part["of"][0].replace("w[", "v[")


def drop_term(certificate: Data) -> None:
    output(certificate)["right"].pop()


def map_of(certificate: Data) -> Data:
    groups = output(certificate)["groups"]
    result: Data = next(m[1] for group in groups for m in group if isinstance(m, list))
    return result


def shift_map(certificate: Data) -> None:
    change = map_of(certificate)
    name = next(iter(change))
    change[name] += " + 1"


def stretch_map(certificate: Data) -> None:
    change = map_of(certificate)
    name = next(iter(change))
    change[name] = f"2*({change[name]})"


def collapse_map(certificate: Data) -> None:
    change = map_of(certificate)
    first, second = list(change)[:2]
    change[second] = change[first]


def swap_map(certificate: Data) -> None:
    change = map_of(certificate)
    first, second = list(change)[:2]
    change[first], change[second] = change[second], change[first]


def drop_map(certificate: Data) -> None:
    change = map_of(certificate)
    del change[next(iter(change))]


def mix_groups(certificate: Data) -> None:
    groups = output(certificate)["groups"]
    groups[0][1], groups[1][1] = groups[1][1], groups[0][1]


def drop_obligation(certificate: Data) -> None:
    output(certificate)["obligations"].pop()


def change_obligation(certificate: Data) -> None:
    output(certificate)["obligations"][0]["sum is zero"][0][0] = "3"


def drop_assumption(certificate: Data) -> None:
    certificate["ranks"][0]["assume"].pop()


def add_assumption(certificate: Data) -> None:
    certificate["ranks"][0]["assume"].append("S_0 >= 7")


def drop_requirement(certificate: Data) -> None:
    certificate["ranks"][0]["require"].pop()


def drop_index_range(certificate: Data) -> None:
    output(certificate)["where"].append("_i0 >= 1")


def drop_output(certificate: Data) -> None:
    certificate["ranks"][0]["outputs"].pop()


def drop_rank(certificate: Data) -> None:
    certificate["ranks"].pop()


def change_statement(certificate: Data) -> None:
    certificate["to"] = certificate["to"].replace("Add(v", "Sub(v")


TAMPERED = (
    change_coefficient,
    change_coefficient_on_both_sides,
    change_guard,
    drop_guard,
    change_index,
    change_tensor,
    drop_term,
    shift_map,
    stretch_map,
    collapse_map,
    swap_map,
    drop_map,
    mix_groups,
    drop_obligation,
    change_obligation,
    drop_assumption,
    add_assumption,
    drop_requirement,
    drop_index_range,
    drop_output,
    drop_rank,
    change_statement,
)


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__)
def test_a_tampered_certificate_is_not_confirmed(
    tamper: Callable[[Data], None], proofs: Proofs
) -> None:
    rule, certificate = proofs("convolutions-of-different-kernels-added")
    before = json.dumps(certificate)
    tamper(certificate)
    assert json.dumps(certificate) != before
    verdict = recheck_rule(rule, certificate, cases=2)
    assert isinstance(verdict, Wrong | NotConfirmed)
    reason = verdict.step if isinstance(verdict, Wrong) else verdict.reason
    assert "Error" not in reason, reason
    assert reason


def test_a_certificate_of_another_rule_is_refused(proofs: Proofs) -> None:
    rule, _ = proofs("matmul-associates")
    _, other = proofs("transpose-of-a-product")
    verdict = recheck_rule(rule, other)
    assert isinstance(verdict, Wrong)
    assert "another rule" in verdict.step


@pytest.mark.parametrize("nothing", [None, [], {}, "yes", {"ranks": []}])
def test_what_is_no_certificate_confirms_nothing(nothing: object) -> None:
    assert isinstance(recheck_rule(KINDS["matmul-associates"], nothing), Wrong)


def test_a_changed_condition_needs_another_certificate(proofs: Proofs) -> None:
    rule, certificate = proofs("two-pads-are-one")
    verdict = recheck_rule(replace(rule, where=()), certificate)
    assert isinstance(verdict, Wrong)


FALSE = """
rule matmul-commutes
  in     a[n, n] b[n, n]
  from   MatMul(a, b)
  to     MatMul(b, a)

rule cropping-then-padding
  in     x[n]
  param  p q
  from   Pad(Pad(x, pads=[p, p]), pads=[q, q])
  to     Pad(x, pads=[p + q, p + q])

rule quotient-of-nothing
  in     x[...] y[...]
  from   x
  to     Div(Mul(x, y), y)
"""


@pytest.mark.parametrize("evaluated", [True, False])
@pytest.mark.parametrize(
    "rule",
    [*parse_rules(FALSE), *parse_rules(MUTANTS.read_text(), MUTANTS.name)],
    ids=lambda rule: rule.name,
)
def test_a_false_rule_is_not_confirmed_whatever_its_certificate_says(
    rule: Rule, evaluated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate claims, in the right form, that the right side is what the left side is.

    Nor is it confirmed if the evaluation at random sizes is left out.
    """
    true = prove(replace(rule, rhs=f"Identity({rule.lhs})"), infer=False, both_ways=False)
    assert isinstance(true, Proved)
    certificate = json.loads(json.dumps(true.certificate)) | check.statement_of(rule)
    needed = requirements(rule.instance(rule.ranks[0]).rhs)
    certificate["ranks"][0]["require"] = [str(condition) for condition in needed]
    if not evaluated:
        monkeypatch.setattr(check, "compare_at_random", lambda *_: 1)
    verdict = recheck_rule(rule, certificate)
    assert isinstance(verdict, Wrong | NotConfirmed)
    assert "Error" not in str(verdict)


def test_a_claim_of_more_types_or_ranks_is_checked(proofs: Proofs) -> None:
    rule, certificate = proofs("matmul-associates")
    assert isinstance(recheck_rule(replace(rule, types="reals, integers"), certificate), Confirmed)
    assert isinstance(recheck_rule(replace(rule, types="any"), certificate), NotConfirmed)
    rule, certificate = proofs("quotients-added")
    more = replace(rule, types="reals, integers")
    assert isinstance(recheck_rule(more, certificate), NotConfirmed)
    rule, certificate = proofs("rows-reduced-twice")
    assert isinstance(recheck_rule(replace(rule, any_rank=True), certificate), Confirmed)


# What the checker believes -----------------------------------------------------------------------

n, m, k, i, j = symbols("n m k i j")


def test_only_a_contradiction_is_an_answer() -> None:
    questions = Questions([at_least(n, 1)])
    assert questions.contradictory([less(n, 1)])
    assert not questions.contradictory([less(n, 2)])
    assert questions.implied(at_least(n * n, 1))
    assert not questions.implied(at_least(n * n, 2))


def test_an_exhausted_limit_is_no_confirmation(
    proofs: Proofs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, certificate = proofs("convolutions-of-different-kernels-added")
    assert isinstance(recheck_rule(rule, certificate, cases=2), Confirmed)
    monkeypatch.setattr(Questions.__init__, "__defaults__", ((1, 1, 1), {}, {}, None))
    assert not Questions([]).contradictory([at_least(n * n * m, 3), less(m, 1), at_least(n, 5)])
    assert not isinstance(recheck_rule(rule, certificate, cases=2), Confirmed)


def test_an_error_of_the_solver_is_no_confirmation(
    proofs: Proofs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, certificate = proofs("matmul-of-a-concatenation")

    def fails(*_: object) -> bool:
        raise RuntimeError("the solver died")

    monkeypatch.setattr(solver._Stage, "refutes", fails)
    assert isinstance(recheck_rule(rule, certificate), NotConfirmed)


def test_a_missing_solver_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(solver, "cvc5", None)
    with pytest.raises(MissingSolver):
        database.recheck_directory(tmp_path)
    assert entry.main(["rules", "recheck", str(tmp_path)]) == 1
    assert "cvc5" in capsys.readouterr().err


def test_weights_cancel_only_if_they_do_everywhere() -> None:
    questions = Questions([at_least(n, 0), at_least(m, 0)])
    whole = (at_least(i, 0), less(i, n + m))
    parts = (at_least(i, 0), less(i, n)), (at_least(i, n), less(i, n + m))
    one = Fraction(1)
    assert questions.vanishes([(one, whole), (-one, parts[0]), (-one, parts[1])])
    assert not questions.vanishes([(one, whole), (-one, parts[0])])
    assert questions.covered(whole, parts)
    assert not questions.covered(whole, parts[:1])


@pytest.mark.parametrize(
    ("values", "bijective"),
    [
        ((i, j), True),
        ((j, i), True),
        ((i + 3 * j + n, j - m), True),
        ((-i, j), True),
        ((2 * i, j), False),
        ((i + j, i + j), False),
        ((i - j, i + j), False),
        ((i * j, j), False),
        ((i // 2, j), False),
        ((i,), False),
    ],
)
def test_a_change_of_variables_is_a_bijection_only_with_determinant_one(
    values: tuple[Any, ...], bijective: bool
) -> None:
    assert is_bijection(values, ("i", "j")) is bijective


def test_terms_are_the_same_up_to_names_of_bound_variables_alone() -> None:
    def row(name: str, other: str) -> Term:
        v = symbol(name)
        return term(
            Fraction(1), [name], [at_least(v, 0), less(v, n)], [(Read("x", (v, symbol(other))), 1)]
        )

    assert row("_a", "_i0").key == row("_b", "_i0").key
    assert row("_a", "_i0").key != row("_a", "_i1").key
    assert sum_key(Sum((row("_a", "_a"),))) != sum_key(Sum((row("_a", "_i0"),)))


def test_a_sum_without_end_has_no_replay() -> None:
    """Shifting ``1 + 1 + ...`` by one would prove that 1 is 0."""
    questions = Questions([at_least(n, 0)])
    v = symbol("_a")
    endless = term(Fraction(1), ["_a"], [at_least(v, 0)])
    shifted = term(Fraction(-1), ["_a"], [at_least(v, 1)])
    replay = Replay(questions, Tidying(questions))
    assert not is_finite(Sum((endless,)), questions)
    bounded = term(Fraction(1), ["_a"], [at_least(v, 0), less(v, n)])
    assert is_finite(Sum((bounded,)), questions)
    assert not replay.equal(Sum((endless,)), Sum((shifted,)), ())


def test_a_bound_variable_is_not_confused_with_an_index_of_that_name() -> None:
    questions = Questions([at_least(i, 0), equal(i, 3)])
    bound = term(Fraction(1), ["i"], [at_least(i, 0), less(i, n)], [(Read("x", (i,)), 1)])
    free = term(Fraction(1), [], [at_least(i, 0), less(i, n)], [(Read("x", (i,)), 1)])
    replay = Replay(questions, Tidying(questions))
    assert not replay.equal(Sum((bound,)), Sum((free,)), ())


def test_a_group_that_is_not_one_is_not_believed() -> None:
    questions = Questions([at_least(n, 1)])
    v = symbol("_a")
    first = term(Fraction(1), ["_a"], [at_least(v, 0), less(v, n)], [(Read("x", (v,)), 1)])
    other = term(Fraction(-1), ["_a"], [at_least(v, 1), less(v, n + 1)], [(Read("x", (v,)), 1)])
    group = Group(((first, {}), (other, {"_a": v + 1})))
    replay = Replay(questions, Tidying(questions), groups=[group])
    assert not replay.vanishes([first, other], ())
    moved = term(Fraction(-1), ["_a"], [at_least(v, 1), less(v, n + 1)], [(Read("x", (v - 1,)), 1)])
    group = Group(((first, {}), (moved, {"_a": v + 1})))
    assert Replay(questions, Tidying(questions), groups=[group]).vanishes([first, moved], ())


def test_a_denominator_is_cleared_only_where_it_is_read() -> None:
    """``x/d - x/d`` is 0, but x is not 0 because ``d * x`` is 0 where d is."""
    rule = replace(KINDS["quotients-added"], lhs="x", rhs="Mul(Div(x, z), z)")
    verdict = prove(replace(rule, lhs=rule.rhs, rhs=rule.lhs), infer=False, both_ways=False)
    assert isinstance(verdict, Proved)
    certificate = json.loads(json.dumps(verdict.certificate)) | check.statement_of(rule)
    out = output(certificate)
    out["left"], out["right"] = out["right"], out["left"]
    assert not isinstance(recheck_rule(rule, certificate), Confirmed)


@pytest.mark.parametrize(("axes", "least", "holds"), [(3, 0, True), (1, -1, False), (2, -1, False)])
def test_a_mean_of_equal_elements_is_one_where_no_window_is_empty(
    axes: int, least: int, holds: bool
) -> None:
    """Each window of three, by steps of two, has a place in the image from index 0 on alone."""
    indices = symbols("_i0 _i1 _i2")[:axes]
    names = ["_a", "_b", "_c"][:axes]

    def inside(places: Sequence[Size]) -> list[Constraint]:
        return [at_least(2 * i + k, 1) for i, k in zip(indices, places, strict=True)]

    def sums(count: Factor | None) -> tuple[Sum, Sum]:
        """As a sum over places, and written out; of one each, or of the element over the count."""
        factors = [] if count is None else [(count, -1), (Read("r", ()), 1)]
        ranges = [c for name in names for c in in_range(symbol(name), 3)]
        whole = term(Fraction(1), names, [*ranges, *inside(symbols(" ".join(names)))], factors)
        written = [
            term(Fraction(1), [], inside(places), factors)
            for places in product(range(3), repeat=axes)
        ]
        return Sum((whole,)), Sum(tuple(written))

    count, counted = map(Nested, sums(None))
    questions = Questions([at_least(i, least) for i in indices])
    (specified, _), (_, written) = sums(count), sums(counted)
    replay = Replay(questions, Tidying(questions), specified=specified.terms)
    element = Sum((term(Fraction(1), factors=[(Read("r", ()), 1)]),))
    assert replay.equal(written, element, (), defined=True) is holds


# Independence ------------------------------------------------------------------------------------

FOLDER = Path(check.__file__).parent


def test_the_checker_imports_nothing_of_the_prover() -> None:
    for path in sorted(FOLDER.glob("*.py")):
        for name, _ in imports(path):
            assert name.split(".")[0] != "z3", path.name
            if name.startswith("xflow.verifier"):
                assert name.startswith("xflow.verifier.recheck"), f"{path.name}: {name}"


def test_the_checker_loads_nothing_of_the_prover_either() -> None:
    program = (
        "import sys, xflow.verifier.recheck.database\n"
        "print([m for m in sys.modules if m == 'z3' or m.startswith('xflow.verifier.')\n"
        "       and not m.startswith('xflow.verifier.recheck')])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert shown.stdout.decode().strip() == "[]"


# Folders -----------------------------------------------------------------------------------------


def test_a_folder_is_rechecked_rule_by_rule(
    tmp_path: Path, proofs: Proofs, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("matmul-associates", "transpose-of-a-product")
    (tmp_path / "certificates").mkdir()
    text = "\n".join(str(proofs(name)[0]) for name in names)
    (tmp_path / "linear.rules").write_text(text, encoding="utf-8")
    for name in names:
        _, certificate = proofs(name)
        path = database.certificate_path(tmp_path, name)
        path.write_text(json.dumps(certificate), encoding="utf-8")
    assert entry.main(["rules", "recheck", str(tmp_path), "--jobs", "1"]) == 0
    assert "2 of 2 rules in 2 stanzas confirmed" in capsys.readouterr().out
    database.certificate_path(tmp_path, names[1]).unlink()
    assert entry.main(["rules", "recheck", str(tmp_path), "--rule", names[0], "--jobs", "1"]) == 0
    assert entry.main(["rules", "recheck", str(tmp_path), "--jobs", "1"]) == 1
    shown = capsys.readouterr()
    assert f"{names[1]}: wrong: there is no certificate" in shown.out
    assert "1 of 2 rules not confirmed" in shown.err


def test_one_of_several_values_may_be_missing_unless_an_operator_gives_it_alone() -> None:
    window = max_over(n, lambda k: Element("x", (k,)))
    among_others = call("max", window, Element("y", ()))
    assert present_values(window)
    assert not present_values(among_others)
    assert present_values(among_others, [window]) == present_values(window)
    assert not present_values(among_others, [call("max", window, 0)])


def test_a_rule_without_an_end_and_one_whose_process_dies_are_not_confirmed(tmp_path: Path) -> None:
    (tmp_path / "all.rules").write_text("\n".join(map(str, KINDS.values())), encoding="utf-8")
    results = database.recheck_directory(tmp_path, jobs=2, limit=0.5, recheck=rechecks_some)
    assert [result.rule_name for result in results] == list(KINDS)
    verdicts = {result.rule_name: result.verdict for result in results}
    assert verdicts.pop("rows-reduced-twice") == NotConfirmed("it took more than 0.5 s")
    assert verdicts.pop("two-pads-are-one") == NotConfirmed("a process died")
    error = "ArithmeticError: of a kind that cannot be foreseen"
    assert verdicts.pop("quotients-added") == NotConfirmed(error)
    assert set(verdicts.values()) == {Confirmed(7)}
