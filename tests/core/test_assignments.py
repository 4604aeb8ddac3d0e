"""Assignments that are remembered answer questions as evaluation does, and no others."""

from __future__ import annotations

from xflow.core.assignments import MOST, Assignment, Assignments
from xflow.core.constraint import at_least, equal, less
from xflow.core.size import Lookup, atom_size, lookup, symbol, symbols
from xflow.verifier.algebra.arithmetic import Arithmetic, Effort
from xflow.verifier.recheck.solver import Questions

n, m, k = symbols("n m k")


def test_an_assignment_satisfies_what_holds_for_its_integers() -> None:
    found = Assignment({"n": 7, "m": -2}, {})
    assert found.satisfies(at_least(n, 7))
    assert not found.satisfies(less(n, 7))
    assert found.satisfies(equal(n * m, -14))
    assert found.satisfies(equal(n // m, -4))
    assert found.satisfies(equal(k, 0))


def test_an_assignment_satisfies_nothing_that_divides_by_zero() -> None:
    found = Assignment({"n": 7}, {})
    assert not found.satisfies(at_least(n // m, 0))
    assert not found.satisfies(at_least(-(n // m), 0))


def test_an_assignment_says_nothing_of_elements_that_it_does_not_have() -> None:
    element, other = Lookup("i", (n,)), lookup("i", (n + 1,))
    found = Assignment({}, {element: 3})
    assert found.satisfies(equal(atom_size(element), 3))
    assert not found.satisfies(at_least(other, 0))
    assert not found.satisfies(less(other, 0))


def test_what_does_not_satisfy_the_conditions_is_not_remembered() -> None:
    known = Assignments()
    assert not known.learn(Assignment({"n": 0}, {}), [at_least(n, 1)])
    assert not known.satisfy([at_least(n, 0)])
    assert known.learn(Assignment({"n": 2}, {}), [at_least(n, 1)])
    assert known.satisfy([at_least(n, 0)], [less(n, 3)])
    assert not known.satisfy([at_least(n, 0)], [less(n, 2)])


def test_assignments_that_are_used_are_remembered_longer() -> None:
    known = Assignments()
    known.learn(Assignment({"n": -1}, {}), [])
    for value in range(MOST - 1):
        known.learn(Assignment({"n": value}, {}), [])
    assert known.satisfy([less(n, 0)])
    known.learn(Assignment({"n": MOST}, {}), [])
    assert known.satisfy([less(n, 0)])
    assert not known.satisfy([equal(n, 0)])


def test_answers_do_not_depend_on_what_is_remembered() -> None:
    """Also where a product that is taken for an unknown has no factors: n*n is not 2."""
    square = equal(n * n, 2)
    questions = [
        ([at_least(n, 5)], False),
        ([at_least(n, 5), less(n, 5)], True),
        ([less(n * m, 0), at_least(m, 0), at_least(n, 0)], True),
        ([at_least(n * m, 6), less(n, 3), less(m, 3)], False),
        ([square, at_least(n, 0), less(n, 5)], True),
        ([equal(n // 2, 3), less(n, 6)], True),
        ([equal(n // 2, 3), less(n, 7)], False),
    ]
    with Arithmetic() as arithmetic, arithmetic.assuming([at_least(k, 1)]):
        second = Questions([at_least(k, 1)])
        for _ in range(2):
            for conditions, answer in questions:
                assert arithmetic.contradictory(conditions, Effort.NONLINEAR) == answer
                assert second.contradictory(conditions) == answer


def test_an_assignment_from_elsewhere_refutes_no_contradiction() -> None:
    known = Assignments()
    known.learn(Assignment({"n": 3}, {}), [])
    with Arithmetic(satisfying=known) as arithmetic, arithmetic.assuming([at_least(n, 4)]):
        assert arithmetic.contradictory([less(n, 4)])
        assert not arithmetic.contradictory([less(n, 5)])
    assert Questions([at_least(n, 4)], satisfying=known).contradictory([less(symbol("n"), 4)])
