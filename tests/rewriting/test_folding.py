"""Constants of rewritten graphs are numbers of their type, whether folded or in attributes."""

from fractions import Fraction

import numpy as np
import pytest

import xflow.ops  # noqa: F401 - fills the registry
from xflow.analysis.ranges import Ranges
from xflow.core.fold import numpy_dtype
from xflow.core.graph import Graph
from xflow.core.node import TensorType, apply, leaf
from xflow.core.registry import Kind, Operator, RealSymbol
from xflow.core.sorts import DOUBLE, REAL, SINGLE
from xflow.ops import operators
from xflow.rewriting.derivation import abstract, application, local_leaves, numbering, place_of
from xflow.rewriting.folding import folded
from xflow.rewriting.match import Match, NoMatch, find_matches
from xflow.rewriting.replay import Rewrite, Unfounded, replay
from xflow.rewriting.rewrite import build
from xflow.rewriting.text import parse_rules

(PRODUCTS,) = parse_rules(
    "rule products\n  in x[...] a[...] b[...]\n  from Mul(Mul(x, a), b)\n  to Mul(x, Mul(a, b))\n"
)
WITH_REALS = [
    (op, name)
    for op in operators()
    for name, spec in op.attributes.items()
    if spec.kind is Kind.REAL
]


@pytest.mark.parametrize(
    ("dtype", "a", "b", "founded"),
    [
        ("FLOAT", 1e-25, 1e-25, False),
        ("FLOAT", 1e30, 1e30, False),
        ("FLOAT", 1e-10, 1e-10, True),
        ("FLOAT16", 5e-4, 5e-4, False),
        ("FLOAT16", 5e-4, 50, True),
        ("DOUBLE", 1e-200, 1e-200, False),
        ("DOUBLE", 1e-25, 1e-25, True),
    ],
)
def test_a_log_that_folds_constants_to_nothing_is_unfounded(
    dtype: str, a: float, b: float, founded: bool
) -> None:
    kind = TensorType(dtype, (4,))
    x, one, other = leaf("x", kind), *(leaf(key, kind, constant=True) for key in "ab")
    graph = Graph(apply("Mul", [apply("Mul", [x, one])[0], other]))
    data = {v: np.full(4, n, numpy_dtype(dtype)) for v, n in ((one, a), (other, b))}
    inputs = (x, one, other)
    local = abstract(graph.outputs, inputs, Ranges(data.get))
    bindings = dict(zip("xab", local_leaves(inputs, Ranges(data.get)), strict=True))
    step = next(
        application(local, "products", 0, match)
        for match in find_matches(PRODUCTS.instance(0), local)
        if match.bindings == bindings
    )
    assert step is not None
    numbers = numbering(graph)
    places = [place_of(value, numbers) for value in (*graph.outputs, *inputs)]
    log = [[Rewrite((places[0],), tuple(places[1:]), (step,))]]
    if founded:
        (made,) = replay(graph, log, {"products": PRODUCTS}, data.get).outputs
        assert made.node.inputs[1].is_constant
        return
    with pytest.raises(Unfounded, match="too small or too large"):
        replay(graph, log, {"products": PRODUCTS}, data.get)


def test_what_is_only_moved_is_not_folded() -> None:
    kind = TensorType("FLOAT", (2, 2))
    x, a = leaf("x", kind), leaf("a", kind, constant=True)
    (moved,) = apply("Transpose", [a], {"perm": (1, 0)})
    (twice,) = apply("Add", [moved, moved])
    before = apply("Mul", [x, a])
    assert list(folded(before, apply("Mul", [x, moved]), [x, a])) == []
    assert list(folded(before, apply("Mul", [x, twice]), [x, a])) == [twice]
    assert list(folded(apply("Mul", [x, twice]), apply("Add", [x, twice]), [x, a])) == []


@pytest.mark.parametrize(("op", "name"), WITH_REALS, ids=str)
def test_a_real_is_kept_in_what_onnx_stores_it_in(op: Operator, name: str) -> None:
    """Attributes have 32 bits, whatever the elements are; numbers in tensors have their type's."""
    assert op.stored(name, DOUBLE) == (SINGLE if op.op_type and op.name != "Clip" else DOUBLE)
    example = op.examples[0]
    given = {**example.attributes, name: RealSymbol("e")}
    sorts = [(str(k), op.sort(k), shape) for k, shape in enumerate(example.shapes)]
    inputs = [leaf(key, TensorType(sort, shape)) for key, sort, shape in sorts]
    pattern = apply(op, inputs, given)
    for dtype in ("FLOAT", "DOUBLE"):
        own = {
            key: leaf(key, TensorType(dtype if sort == REAL else sort, shape))
            for key, sort, shape in sorts
        }
        for number in (0.1, 1e-60, 1e60, 0.125, float(np.float32(0.1))):
            match = Match((), own, {}, {"e": Fraction(number)}, frozenset(), dtype)
            stored = np.float32 if op.stored(name, dtype) == SINGLE else np.float64
            with np.errstate(all="ignore"):
                exact = float(stored(number)) == number
            kept = exact or (number == 0.1 and dtype == "FLOAT")
            assert isinstance(build(pattern, match), NoMatch) != kept, (dtype, number)


def test_a_constant_in_double_is_no_literal_that_32_bits_take_for_it() -> None:
    """Beside float64 elements, 1e-60 is not 0, and 1 + 1e-10 is not 1."""
    (rule,) = parse_rules("rule nothing\n  in x[...]\n  from Add(x, 0)\n  to x\n")
    for dtype, found in (("FLOAT", 1), ("DOUBLE", 0)):
        x = leaf("x", TensorType(dtype, (2,)))
        (small,) = apply("Scalar", [], {"value": Fraction(1e-60)}, dtype=dtype)
        graph = Graph(apply("Add", [x, small]))
        assert len(list(find_matches(rule.instance(0), graph))) == found
