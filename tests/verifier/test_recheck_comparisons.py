"""The recheck of comparisons, indices that are data, and maxima."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from certificates import Data, bare
from places import CORPUS

from xflow.core.constraint import Constraint, at_least, equal, in_range, less
from xflow.core.size import Size, lookup, symbol, symbols
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Proved, prove
from xflow.verifier.recheck import check
from xflow.verifier.recheck.abstraction import is_nonnegative, is_positive, vanishes
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.comparisons import sign_of
from xflow.verifier.recheck.digits import covers
from xflow.verifier.recheck.forms import Choice, Factor, Most, Read, Sum, Term, term
from xflow.verifier.recheck.integers import Range
from xflow.verifier.recheck.replay import Replay
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.tidy import Tidying
from xflow.verifier.recheck.verdicts import Confirmed, NotConfirmed, Wrong

TYPED = """
rule greater-of-products
  in       a[n, m] b[m, k] c[k, l]
  from     Greater(MatMul(MatMul(a, b), c), 0)
  to       Greater(MatMul(a, MatMul(b, c)), 0)

rule comparison-shifted
  in       x[...] y[...] z[...]
  from     Where(Less(Add(x, z), Add(y, z)), x, y)
  to       Where(Less(x, y), x, y)

rule choice-or-maximum
  in       x[...] y[...]
  from     Where(GreaterOrEqual(x, y), x, y)
  to       Max(x, y)
  types    reals, integers

rule choices-multiplied
  in       x[n, m] w[m, k]
  from     MatMul(Where(Greater(x, 0), x, 0), w)
  to       MatMul(Relu(x), w)

rule looked-up-twice
  in       x[n, m] i[k]:int j[l]:int
  from     Gather(Gather(x, i), j)
  to       Gather(x, Gather(i, j))
  types    any

rule product-of-chosen-rows
  in       x[n, m] w[m, l] i[k]:int
  from     Gather(MatMul(x, w), i, axis=0)
  to       MatMul(Gather(x, i, axis=0), w)

rule logarithm-where-it-is-read
  in       x[...] y[...]
  from     Where(Less(y, x), 0, 1)
  to       Where(Less(y, x), Mul(0, Log(Sub(x, y))), 1)

rule relu-of-a-sum-of-squares
  in       x[n, m]
  from     Relu(ReduceSum(Mul(x, x), axes=[1], keepdims=0))
  to       ReduceSum(Mul(x, x), axes=[1], keepdims=0)

rule positive-scale-through-a-maximum
  in       x[n, m] s[n, 1]
  from     ReduceMax(Mul(x, Exp(s)), axes=[1], keepdims=1)
  to       Mul(ReduceMax(x, axes=[1], keepdims=1), Exp(s))

rule exponential-of-a-maximum
  in       x[...]
  from     Tanh(Relu(x))
  to       Relu(Tanh(x))

rule exponentials-of-opposite-numbers
  in       x[...]
  from     Tanh(Abs(x))
  to       Abs(Tanh(x))

rule choices-that-differ-at-a-tie
  in       x[...]
  from     Where(Greater(x, 0), Sub(Exp(x), 1), x)
  to       Where(Less(x, 0), x, Sub(Exp(x), 1))

rule sum-of-products-at-ranks-without-a-certificate
  in       x[*B, l, n] w[n, m] y[*B, l, k] v[k, m]
  rank     0 ...
  from     Add(MatMul(x, w), MatMul(y, v))
  to       MatMul(Concat(x, y, axis=-1), Concat(w, v, axis=0))
  types    reals, integers

rule composite-unfolded
  in       x[...]
  from     Sigmoid(x)
  to       Reciprocal(Add(1, Exp(Neg(x))))
"""
"""Each asks for another kind of step."""
KINDS = {rule.name: rule for rule in parse_rules(TYPED)}
Proofs = Callable[[str], tuple[Rule, Data]]


@pytest.fixture(scope="module")
def proofs() -> Proofs:
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


@pytest.mark.parametrize("name", KINDS)
def test_a_proved_rule_is_confirmed(name: str, proofs: Proofs) -> None:
    verdict = recheck_rule(*proofs(name), cases=3)
    assert isinstance(verdict, Confirmed), str(verdict)
    assert verdict.points > 0


# Tampering ---------------------------------------------------------------------------------------


def output(certificate: Data) -> Data:
    result: Data = certificate["ranks"][0]["outputs"][0]
    return result


def edited(certificate: Data, old: str, new: str) -> None:
    text = json.dumps(output(certificate))
    assert old in text
    certificate["ranks"][0]["outputs"][0] = json.loads(text.replace(old, new, 1))


def change_what_is_compared(certificate: Data) -> None:
    signs = output(certificate)["signs"]
    signs[next(iter(signs))][0]["of"] = ["x[_i0]", "y[_i0]"]


def negate_what_is_compared(certificate: Data) -> None:
    signs = output(certificate)["signs"]
    for part in signs[next(iter(signs))]:
        part["times"] = str(-Fraction(part.get("times", "1")))


def drop_what_is_compared(certificate: Data) -> None:
    del output(certificate)["signs"]


def change_relation(certificate: Data) -> None:
    edited(certificate, ") >= 0", ") >= 1")


def add_value(certificate: Data) -> None:
    for side in ("left", "right"):
        for part in output(certificate)[side]:
            for factor in part.get("of", []):
                if isinstance(factor, dict):
                    factor["maximum"].append({"value": [{}]})


def drop_value(certificate: Data) -> None:
    edited(certificate, '{"value": [{"of": ["y[_i0]"]}]}', '{"value": [{"of": ["x[_i0]"]}]}')


@pytest.mark.parametrize(
    "tamper",
    [
        change_what_is_compared,
        negate_what_is_compared,
        drop_what_is_compared,
        change_relation,
        add_value,
        drop_value,
    ],
    ids=lambda tamper: tamper.__name__,
)
def test_a_tampered_comparison_or_maximum_is_not_confirmed(
    tamper: Callable[[Data], None], proofs: Proofs
) -> None:
    rule, certificate = proofs("choice-or-maximum")
    before = json.dumps(certificate)
    tamper(certificate)
    assert json.dumps(certificate) != before
    verdict = recheck_rule(rule, certificate, cases=2)
    assert isinstance(verdict, Wrong | NotConfirmed)
    assert "Error" not in str(verdict)


@pytest.mark.parametrize(("old", "new"), [("x[i[_i0]", "x[i[_i1]"), ("i[_i0] >= 0", "i[_i0] >= 1")])
def test_a_tampered_index_is_not_confirmed(old: str, new: str, proofs: Proofs) -> None:
    rule, certificate = proofs("product-of-chosen-rows")
    edited(certificate, old, new)
    assert isinstance(recheck_rule(rule, certificate, cases=2), Wrong | NotConfirmed)


FALSE = [
    rule
    for name in ("typed-bad", "bad_maxima", "bad_boundaries")
    for rule in parse_rules((CORPUS / f"{name}.rules").read_text(encoding="utf-8"))
    if rule.name not in ("mean-against-a-threshold", "roots-in-order")  # the solver takes minutes
]


@pytest.mark.parametrize("rule", FALSE, ids=lambda rule: rule.name)
def test_a_false_rule_is_not_confirmed_by_any_step(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor if the evaluation at random sizes is left out, and whatever the certificate says."""
    monkeypatch.setattr(check, "compare_at_random", lambda *_: 1)
    rule = replace(rule, reverse=None)
    assert isinstance(recheck_rule(rule, bare(rule)), Wrong | NotConfirmed)


def test_integers_that_wrap_around_are_not_real_numbers() -> None:
    (rule,) = parse_rules(
        "rule r\n in i[n]:int x[n]\n from Less(Add(i, 1), Add(i, 2))\n to Less(i, Add(i, 1))"
    )
    verdict = recheck_rule(rule, bare(rule))
    assert isinstance(verdict, NotConfirmed)
    assert "wrap" in verdict.reason


# What the checker believes -----------------------------------------------------------------------

n, m, k, i, j = symbols("n m k i j")
ONE = Fraction(1)


def element(name: str, *index: Size) -> Factor:
    return Read(name, index)


def total(*parts: tuple[int, tuple[Factor, ...]]) -> Sum:
    return Sum(tuple(term(Fraction(c), factors=[(f, 1) for f in fs]) for c, fs in parts))


def greatest(*values: Sum) -> Factor:
    return Most(tuple(Choice((), (), value) for value in values))


def replay(*assumed: Constraint) -> Replay:
    questions = Questions(assumed)
    return Replay(questions, Tidying(questions))


X, Y = element("x", i), element("y", i)


def test_opposite_comparisons_share_an_atom_and_others_do_not() -> None:
    difference = total((2, (X,)), (-2, (Y,)))
    opposite = total((3, (Y,)), (-3, (X,)))
    assert sign_of(difference) == -1 * sign_of(opposite)
    assert sign_of(difference) != sign_of(total((2, (X,)), (-1, (Y,))))
    assert [sign_of(total((c, ()))) for c in (5, -5)] == [1, -1]
    assert sign_of(Sum(())) == 0


def test_what_a_comparison_binds_is_not_confused_with_what_is_bound_around_it() -> None:
    def row(inner: str, index: str) -> Sum:
        v = symbol(inner)
        guards = (at_least(v, 0), less(v, n))
        return Sum((term(ONE, [inner], guards, [(Read("x", (v, symbol(index))), 1)]),))

    def around(body: Sum) -> Term:
        return term(ONE, ["_a"], [*in_range(symbol("_a"), n), at_least(sign_of(body), 1)], [])

    assert around(row("_b", "_a")).key == around(row("_c", "_a")).key
    assert around(row("_b", "_a")).key != around(row("_a", "_a")).key


def test_equal_places_hold_equal_integers_and_only_those_in_bounds_are_in_range() -> None:
    questions = Questions([at_least(n, 1)], ranges={"p": [Range((n,), -m, m)]})
    same = equal(lookup("p", [i]), lookup("p", [j]))
    assert questions.implied(same, [equal(i, j)])
    assert not questions.implied(same)
    below = less(lookup("p", [i]), m)
    assert questions.implied(below, in_range(i, n))
    assert not questions.implied(below, [at_least(i, 0)])
    assert not questions.implied(less(lookup("q", [i]), m), in_range(i, n))


def test_digits_reach_each_index_only_if_none_is_left_out() -> None:
    q, r, s = symbols("_iq _ir _is")
    under = Questions([at_least(m, 1), *in_range(i, 2 * m * n)])
    for count, whole in ((2, True), (1, False)):
        conditions = [*in_range(q, n), *in_range(r, count), *in_range(s, m)]
        assert covers([2 * m * q + m * r + s], conditions, [i], under) is whole


def test_real_arithmetic_knows_maxima_and_signs() -> None:
    x, y = total((1, (X,))), total((1, (Y,)))
    least = greatest(total((-1, (X,))), total((-1, (Y,))))
    both = total((1, (greatest(x, y),)), (-1, (least,)), (-1, (X,)), (-1, (Y,)))
    assert vanishes(both, (), replay())
    assert not vanishes(total((1, (greatest(x, y),)), (-1, (X,))), (), replay())
    assert vanishes(
        total((1, (greatest(x, y),)), (-1, (X,))),
        (at_least(sign_of(total((1, (X,)), (-1, (Y,)))), 0),),
        replay(),
    )
    assert is_nonnegative(total((1, (X, X))), (), replay())
    assert not is_positive(total((1, (X, X))), (), replay())
    assert not is_nonnegative(x, (), replay())


def test_a_sum_is_not_negative_only_if_no_summand_is() -> None:
    v = symbol("_a")
    for factors, holds in ((((Read("x", (v,)), 2),), True), (((Read("x", (v,)), 1),), False)):
        summed = Sum((term(ONE, ["_a"], in_range(v, n), factors),))
        assert is_nonnegative(summed, (), replay(at_least(n, 0))) is holds
        assert not is_positive(summed, (), replay(at_least(n, 0)))


def test_a_factor_of_unknown_sign_is_not_taken_out_of_a_maximum() -> None:
    v = symbol("_a")

    def row(*factors: Factor) -> Factor:
        return Most((Choice(("_a",), in_range(v, n), total((1, (Read("x", (v,)), *factors)))),))

    def taken_out(factor: Factor) -> bool:
        difference = total((1, (row(factor),)), (-1, (factor, row())))
        return vanishes(difference, (), replay(at_least(n, 1)))

    square = greatest(total((1, (Y,))), total((-1, (Y,))))
    assert taken_out(square)
    assert not taken_out(Y)
    bound = Read("y", (v,))  # it is not the same for all values
    assert not vanishes(total((1, (row(bound),)), (-1, (bound, row()))), (), replay(at_least(n, 1)))


def test_a_named_value_that_need_not_be_there_is_not_assumed(proofs: Proofs) -> None:
    rule, certificate = proofs("choice-or-maximum")
    output(certificate)["witness"] = ["_w0 >= 0", "any >= _w0 + 1"]
    verdict = recheck_rule(rule, certificate, cases=2)
    assert isinstance(verdict, NotConfirmed)
    assert "named" in verdict.reason
