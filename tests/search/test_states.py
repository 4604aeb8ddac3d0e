"""Which of the states that a search has reached are measured."""

from collections.abc import Iterable

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.search.states import Signature, State, choice

X, W = (leaf(name, TensorType("FLOAT", (4, 4))) for name in "xw")


def stacked(*names: str) -> Graph:
    value: Value = X
    for name in names:
        (value,) = apply(name, [value])
    return Graph((value,))


def state(cost: float, path: str, *names: str) -> State:
    return State(stacked(*names), cost, tuple(path.split()))


def by_signature(states: Iterable[State]) -> dict[Signature, State]:
    return {each.signature: each for each in states}


ROOT = state(10.0, "", "Exp", "Tanh")
BEST = state(5.0, "a b c", "Abs")


def test_the_best_of_each_exploration_is_measured_however_many_are_cheaper() -> None:
    others = [state(6.0 + i, f"a {i}", name) for i, name in enumerate(("Neg", "Sin", "Cos"))]
    doubtful = state(9.5, "d", "Relu")
    found = by_signature([ROOT, BEST, *others, doubtful])
    assert choice(found, ROOT, [BEST, doubtful], 3) == [ROOT, BEST, others[0], doubtful]
    assert choice(found, ROOT, [BEST], 3) == [ROOT, BEST, others[0], doubtful]  # without a
    assert doubtful not in choice(by_signature([ROOT, BEST, *others]), ROOT, [BEST], 3)


def test_the_way_to_the_best_is_measured_too() -> None:
    first, last = state(8.0, "a", "Sin"), state(7.0, "a b", "Cos")
    found = by_signature([ROOT, BEST, first, last, state(6.0, "a e", "Neg")])
    assert choice(found, ROOT, [BEST], 3) == [ROOT, BEST, last, first]


def test_what_only_adds_operators_to_a_cheaper_state_is_not_measured() -> None:
    longer = state(5.5, "a b c d", "Abs", "Neg")
    around = state(10.5, "e", "Exp", "Tanh", "Abs")
    cheaper = state(9.0, "f", "Exp", "Tanh", "Relu")  # as the runtime fuses it, perhaps
    found = by_signature([ROOT, BEST, longer, around, cheaper])
    assert choice(found, ROOT, [BEST], 6) == [ROOT, BEST, cheaper]


def test_other_kernels_for_the_products_are_measured_before_other_ways_around_them() -> None:
    def product(cost: float, path: str, name: str, *around: str) -> State:
        (value,) = apply(name, [X, W])
        for each in around:
            (value,) = apply(each, [value])
        return State(Graph((value,)), cost, tuple(path.split()))

    root, best = product(10.0, "", "MatMul", "Exp"), product(9.0, "a", "MatMul", "Abs")
    names = ("Neg", "Sin", "Cos", "Tanh", "Relu", "Sqrt")
    around = [product(9.1 + i / 100, f"a {i}", "MatMul", name) for i, name in enumerate(names)]
    other = product(10.4, "b", "Gemm", "Exp")
    (twice,) = apply("MatMul", [*product(0.0, "", "Gemm").graph.outputs, W])
    more = State(Graph((twice,)), 10.5, ("c",))
    found = by_signature([root, best, *around, more, other])
    chosen = choice(found, root, [best], 3)
    assert chosen == [root, best, around[0], other]
    assert other.has_other_kernels(root)
    assert not best.has_other_kernels(root)
    assert not more.has_other_kernels(root)  # it has one product more, and no other one for it


def test_nothing_but_the_original_where_nothing_was_found() -> None:
    assert choice(by_signature([ROOT]), ROOT, [ROOT], 6) == [ROOT]


def test_the_heaviest_step_is_the_one_said_to_gain_most() -> None:
    assert ROOT.heaviest is None
