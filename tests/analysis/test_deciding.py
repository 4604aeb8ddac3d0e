"""Which constants have to be what the runtime would compute, to the bit."""

import onnx.parser
import onnx_ir as ir
import pytest

from xflow.analysis.observers import TO_THE_BIT, Observed, contexts, deciding_constants
from xflow.core.graph import Graph
from xflow.onnx.importer import import_model

WEIGHTS = "float[4] a = {1, 2, 3, 4}, float[4] b = {5, 6, 7, 8}, int64[1] four = {4}"


def graph_of(body: str, functions: str = "") -> Graph:
    """A graph of x [4] with the constants a and b, from a body that gives y."""
    text = f"""<ir_version: 9, opset_import: ["" : 20, "own" : 1]>
    g (float[4] x) => (y) <{WEIGHTS}> {{ {body} }} {functions}"""
    return import_model(ir.from_proto(onnx.parser.parse_model(text))).graph


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("p = Mul(a, b) y = Add(x, p)", set()),
        ("p = Mul(a, b) y = Less(x, p)", {"a", "b", "Mul(a, b)"}),
        ("p = Mul(a, b) q = Add(x, p) y = Floor(q)", {"a", "b", "Mul(a, b)"}),
        # What the runtime computes, it computes from what was folded.
        (
            "p = Mul(a, b) u = Unique(p) r = Reshape(u, four) y = Add(x, r)",
            {"a", "b", "Mul(a, b)"},
        ),
    ],
)
def test_constants_that_something_decides_by_are_computed_step_by_step(
    body: str, names: set[str]
) -> None:
    assert set(map(str, deciding_constants(graph_of(body), Observed.NOWHERE))) == names


def test_constants_behind_outputs_decide_where_these_do() -> None:
    graph = graph_of("p = Mul(a, b) y = Add(x, p)")
    assert {"a", "b"} <= set(map(str, deciding_constants(graph, TO_THE_BIT)))


@pytest.mark.parametrize("test", ["", "n = IsNaN(d) e = Where(n, s, d)"])
def test_a_function_may_make_codes_whether_it_tests_them_or_not(test: str) -> None:
    named = "e" if test else "d"
    graph = graph_of(
        "m = Mul(x, a) s = Constant<value_float = 0.1>() y = own.Fake(m, s)",
        f"""<domain: "own", opset_import: ["" : 20]> Fake (v, s) => (o) {{
            q = QuantizeLinear(v, s) d = DequantizeLinear(q, s) {test} o = Identity({named}) }}""",
    )
    known = contexts(graph, [Observed.NOWHERE])
    (product,) = [value for value in known if str(value) == "Mul(x, a)"]
    assert known[product] & Observed.CODED
