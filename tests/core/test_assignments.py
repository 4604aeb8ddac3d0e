"""Assignments that are remembered answer questions as evaluation does, and no others."""

from __future__ import annotations

from xflow.core.assignments import MOST, Assignment, Assignments, independent
from xflow.core.constraint import at_least, equal, less
from xflow.core.size import Lookup, atom_size, lookup, symbol, symbols
from xflow.verifier.algebra.arithmetic import Arithmetic, Effort, Range
from xflow.verifier.recheck import integers
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


def test_conditions_without_a_common_symbol_are_satisfied_apart() -> None:
    known = Assignments()
    known.learn(Assignment({"n": 3, "m": 5}, {}), [])
    known.learn(Assignment({"n": 7, "m": 2}, {}), [])
    low, high = less(n, 4), less(m, 3)
    assert known.satisfy([low, high])
    assert not known.satisfy([low, high, at_least(m, n - 1)])  # 3 and 2 are in no assignment
    assert known.unsatisfied([low], [less(m, 0)]) == [(less(m, 0),)]


def test_elements_of_a_tensor_are_not_told_apart() -> None:
    element = lookup("t", (0,))
    low, high = less(element, 3), at_least(element, 3)
    known = Assignments()
    for number in (2, 3):
        known.learn(Assignment({}, {Lookup("t", (0,)): number}), [])
    assert independent([low, high]) == [(low, high)]
    assert not known.satisfy([low, high])
    assert Questions([], satisfying=known).contradictory([low, high])
    with Arithmetic(satisfying=known) as arithmetic:
        assert arithmetic.contradictory([low, high])


def test_sizes_that_bound_elements_are_not_told_apart_from_these() -> None:
    element = lookup("t", (n,))
    wanted, few = at_least(element, 5), less(k, 4)
    known = Assignments()
    known.learn(Assignment({"k": 9}, {Lookup("t", (n,)): 5}), [])
    known.learn(Assignment({"k": 3}, {}), [])
    inside = [at_least(n, 0), less(n, m)]
    assert independent([wanted, few]) == [(wanted, few)]
    ranges = {"t": [integers.Range((m,), 0, k)]}
    assert Questions(inside, ranges=ranges, satisfying=known).contradictory([wanted, few])
    with Arithmetic(satisfying=known) as arithmetic, arithmetic.assuming(inside):
        arithmetic.declare_range("t", Range((m,), 0, k))
        assert arithmetic.contradictory([wanted, few])


def test_parts_keep_the_order_of_their_conditions() -> None:
    first, second, third = at_least(n, 1), at_least(k, 2), at_least(m, n)
    assert independent([first, second, third, less(k, 9)]) == [
        (first, third),
        (second, less(k, 9)),
    ]


def test_each_axis_is_asked_about_by_itself() -> None:
    axes = [symbols(f"s_{a} k_{a} i_{a}") for a in range(4)]
    assumed = [at_least(s, 1) for s, _, _ in axes] + [at_least(size, 2) for _, size, _ in axes]
    inside = [c for s, size, i in axes for c in (at_least(i * s, size), less(i * s, size + 2))]
    questions = Questions(assumed)
    assert not questions.contradictory(inside)
    s, size, i = axes[2]
    assert questions.contradictory([*inside, less(i, 0)])
    assert questions.contradictory([*inside, less(i * s, size)])
    assert Questions([*assumed, less(s, 1)]).contradictory(inside[:1])
