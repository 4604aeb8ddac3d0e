"""Proofs for each remainder of an index by itself, and what the second checker asks of them."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from certificates import Data, bare
from equations import one
from hypothesis import given
from hypothesis import strategies as st

from xflow.core.size import Size, symbol
from xflow.rewriting.rule import Rule
from xflow.verifier.prove import Proved, prove
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.digits import are_all_remainders
from xflow.verifier.recheck.verdicts import Confirmed


def mean(rows: int, columns: int) -> str:
    """The mean of so many rows and columns that end at each pixel, zeros before the first."""
    pads = f"[{rows - 1}, {columns - 1}, 0, 0]"
    return f"AveragePool(x, kernel_shape=[{rows}, {columns}], pads={pads}, count_include_pad=1)"


def interleaved(*parts: str, mode: str = "DCR") -> Rule:
    """Means over an image whose pixels are there twice along both axes, by four images."""
    return one(
        "x[N, C, H, W]",
        mean(2, 2).replace("(x,", "(Resize(x, scales=[1, 1, 2, 2]),"),
        f"DepthToSpace(Concat({', '.join(parts)}, axis=1), blocksize=2, mode='{mode}')",
    )


TRUE = interleaved(mean(2, 2), mean(2, 1), mean(1, 2), "x")


@pytest.fixture(scope="module")
def proof() -> Callable[[], tuple[Rule, Data]]:
    """The rule with the conditions that it needs, and its certificate, as files hold them."""
    verdict = prove(TRUE, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    rule = replace(TRUE, where=verdict.where, exact=verdict.exact, limits=verdict.limits)
    text = json.dumps(verdict.certificate)
    return lambda: (rule, json.loads(text))


def cases_of(certificate: Data) -> list[Data]:
    found: list[Data] = certificate["ranks"][0]["outputs"][0]["cases"]
    return found


def test_neighbours_that_are_computed_in_different_ways_are_proved_one_by_one(
    proof: Callable[[], tuple[Rule, Data]],
) -> None:
    rule, certificate = proof()
    indices = [case["index"][2:] for case in cases_of(certificate)]
    rests = ["{}", "{} + 1"]
    assert indices == [
        [row.format("2*_i2q"), column.format("2*_i3q")] for row in rests for column in rests
    ]
    assert isinstance(recheck_rule(rule, certificate), Confirmed)


@pytest.mark.parametrize(
    "wrong",
    [
        interleaved(mean(2, 2), mean(1, 2), mean(2, 1), "x"),
        interleaved(mean(2, 2), mean(2, 1), mean(1, 2), "Neg(x)"),
        interleaved(mean(2, 2), mean(2, 1), mean(1, 2), mean(2, 2)),
        interleaved(mean(2, 2), mean(2, 1), mean(1, 2), "x", mode="CRD"),
    ],
)
def test_what_holds_for_some_remainders_only_is_not_proved(wrong: Rule) -> None:
    assert not isinstance(prove(wrong, both_ways=False), Proved)


def test_a_certificate_has_each_case_once_and_all_of_its_indices(
    proof: Callable[[], tuple[Rule, Data]],
) -> None:
    rule, whole = proof()
    *others, even, odd = cases_of(whole)

    def confirmed(*cases: Data) -> bool:
        certificate = copy.deepcopy(whole)
        certificate["ranks"][0]["outputs"][0]["cases"] = [*others, *cases]
        return isinstance(recheck_rule(rule, certificate, cases=2), Confirmed)

    def changed(case: Data, old: str, new: str) -> Data:
        made: Data = json.loads(json.dumps(case).replace(old, new))
        return made

    assert confirmed(odd, even)
    assert not confirmed(even)
    assert not confirmed(even, even)
    assert not confirmed()
    assert not confirmed(even, changed(odd, "2*_i3q + 1", "2*_i3q + 3"))
    assert not confirmed(even, changed(odd, "2*_i3q", "2*W"))
    assert not confirmed(even, odd | {"where": [*odd["where"], "_i3q >= 1"]})
    assert not confirmed(even, odd | {"right": [odd["right"][0], odd["right"][0]]})


def stacked(result: str) -> Rule:
    stack = "Concat(Unsqueeze(x, axes=[1]), Unsqueeze(y, axes=[1]), axis=1)"
    return one("x[n] y[n]", f"ReduceMax({stack}, axes=[1], keepdims=0)", result)


def test_a_maximum_over_a_few_places_is_that_of_the_values_there() -> None:
    rule = stacked("Max(x, y)")
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved)
    rule = replace(rule, where=verdict.where, exact=verdict.exact, limits=verdict.limits)
    certificate = json.loads(json.dumps(verdict.certificate))
    assert isinstance(recheck_rule(rule, certificate), Confirmed)
    for wrong in ("Max(x, x)", "Max(Max(x, y), 0)", "x"):
        rule = stacked(wrong)
        assert not isinstance(recheck_rule(rule, bare(rule), cases=2), Confirmed)


@given(
    st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=3),
    st.data(),
)
def test_remainders_are_all_there_only_if_none_is_missing(
    radices: list[int], data: st.DataObject
) -> None:
    plain = [symbol(f"_i{axis}") for axis in range(len(radices))]

    def index(rests: tuple[int, ...]) -> list[Size]:
        return [
            i if radix == 1 else radix * symbol(f"{i}q") + rest
            for i, radix, rest in zip(plain, radices, rests, strict=True)
        ]

    cases = [index(rests) for rests in itertools.product(*map(range, radices))]
    assert are_all_remainders(data.draw(st.permutations(cases)), plain, ())
    left_out = data.draw(st.integers(0, len(cases) - 1))
    others = cases[:left_out] + cases[left_out + 1 :]
    assert not are_all_remainders(others, plain, ())
    if others:
        assert not are_all_remainders([*others, others[0]], plain, ())
        taken = {f"{i}q" for i, radix in zip(plain, radices, strict=True) if radix > 1}
        assert not are_all_remainders(cases, plain, taken)


def test_one_symbol_does_not_stand_for_two_axes() -> None:
    i, j, q = symbol("_i0"), symbol("_i1"), symbol("_i0q")
    diagonal = [[2 * q + a, 2 * q + b] for a in (0, 1) for b in (0, 1)]
    assert not are_all_remainders(diagonal, [i, j], ())
