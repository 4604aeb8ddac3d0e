"""Rules about any elementwise operator, applied to models."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from certified import optimized, proved
from graphs import assert_same, call, tensor
from onnx import parser

from xflow.core import registry
from xflow.core.graph import Graph
from xflow.core.node import Node
from xflow.core.registry import Array
from xflow.core.spec import Scalar, times
from xflow.ops import operator
from xflow.ops.functions import Unary
from xflow.pipeline.certify import certify
from xflow.pipeline.log import read_report
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.match import find_matches
from xflow.rewriting.rewrite import rewrite
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules

TEXT = """
rule elementwise-past-a-transpose
  in       x[a, b]
  from     Transpose(Elementwise(x), perm=[1, 0])
  to       Elementwise(Transpose(x, perm=[1, 0]))
  reverse  always
  types    reals
  exact    bits

rule elementwise-of-parts
  in       x[a, *S] y[b, *S]
  rank     0 1 2 3 ...
  from     Concat(Elementwise(x), Elementwise(y), axis=0)
  to       Elementwise(Concat(x, y, axis=0))
  types    reals
  exact    bits

rule elementwise-of-parts-beside-a-row
  in       x[a, m] y[b, m] r[1, m]
  from     Concat(Elementwise(x, r), Elementwise(y, r), axis=0)
  to       Elementwise(Concat(x, y, axis=0), r)
  types    reals
  exact    bits

rule two-transposes
  in       x[a, b]
  from     Transpose(Transpose(x, perm=[1, 0]), perm=[1, 0])
  to       x
  types    any
  exact    bits
"""
RULES = parse_rules(TEXT)
PAST, PARTS, BESIDE, _ = RULES
X, Y = tensor("x", 3, 4), tensor("y", 2, 4)


def results(rule: Rule, graph: Graph, rank: int = 0) -> list[Graph]:
    instance = rule.instance(rank)
    found = [rewrite(graph, instance, match) for match in find_matches(instance, graph)]
    assert all(isinstance(each, Graph) for each in found)
    return [each for each in found if isinstance(each, Graph)]


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("Mish", {}),
        ("Softplus", {}),
        ("Erf", {}),
        ("Elu", {"alpha": Fraction(3, 2)}),
        ("Clip", {"min": Fraction(-1, 2), "max": Fraction(1, 3)}),
    ],
)
def test_the_operator_that_is_there_goes_along_with_its_attributes(
    name: str, attributes: dict[str, Fraction]
) -> None:
    before = Graph((call("Transpose", call(name, X, **attributes), perm=(1, 0)),))
    (after,) = results(PAST, before)
    (root,) = (value.node for value in after.outputs)
    assert (root.op, root.attributes) == (operator(name), before.nodes[1].attributes)
    assert_same(before, after)
    (back,) = results(PAST.reversed(), after)
    assert back.outputs == before.outputs


def test_several_places_hold_one_operator_with_equal_attributes() -> None:
    def joined(one: Node, other: Node) -> Graph:
        return Graph((call("Concat", one.outputs[0], other.outputs[0], axis=0),))

    def elu(value: object, alpha: Fraction) -> Node:
        return call("Elu", value, alpha=alpha).node  # type: ignore[arg-type]

    relu, mish = call("Relu", X).node, call("Mish", Y).node
    half = Fraction(1, 2)
    assert not results(PARTS, joined(relu, mish), 1)
    assert not results(PARTS, joined(elu(X, half), elu(Y, Fraction(1, 3))), 1)
    (after,) = results(PARTS, joined(elu(X, half), elu(Y, half)), 1)
    assert [node.op for node in after.nodes[2:]] == [operator("Concat"), operator("Elu")]


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Max", "Sum"])
def test_operators_of_two_inputs_are_taken_along_in_their_order(name: str) -> None:
    k = tensor("k", 1, 4)
    before = Graph((call("Concat", call(name, X, k), call(name, Y, k), axis=0),))
    (after,) = results(BESIDE, before)
    (root,) = (value.node for value in after.outputs)
    assert (root.op, root.inputs[1]) == (operator(name), k)
    assert_same(before, after)
    turned = Graph((call("Concat", call(name, k, X), call(name, k, Y), axis=0),))
    (after,) = results(BESIDE, turned)
    (root,) = (value.node for value in after.outputs)
    assert root.inputs[1 if operator(name).commutative else 0] is k
    assert_same(turned, after)
    both = Graph((call("Concat", call(name, k, X), call(name, Y, k), axis=0),))
    assert bool(results(BESIDE, both)) == operator(name).commutative


def test_operators_of_more_inputs_or_other_broadcasting_are_not() -> None:
    k = tensor("k", 1, 4)
    three = (call("Max", X, k, k), call("Max", Y, k, k))
    slopes = (call("PRelu", X, k), call("PRelu", Y, k))
    for parts in (three, slopes):
        assert not results(BESIDE, Graph((call("Concat", *parts, axis=0),)))


def test_the_index_gives_them_for_what_they_stand_for_alone() -> None:
    index = RuleIndex(RULES)
    names = {entry.name for entry in index.single(operator("Mish"), 2)}
    assert names == {"elementwise-past-a-transpose.reverse"}
    assert not list(index.single(operator("Softmax"), 2))
    assert {entry.name for entry in index.single(operator("Transpose"), 2)} == {
        "elementwise-past-a-transpose",
        "two-transposes",
    }


def test_a_rule_that_is_not_equal_to_the_bit_is_not_used() -> None:
    """Its errors would depend on the operator, and are measured of none."""
    index = RuleIndex([replace(PAST, exact=None)])
    assert not list(index.single(operator("Transpose"), 2))
    assert not list(index.single(operator("Mish"), 2))


MODEL = """<ir_version: 8, opset_import: ["" : 18]>
main (float[6, 5] x) => (float[6, 5] y) {
    a = Transpose<perm = [1, 0]>(x)
    b = Mish(a)
    c = HardSigmoid<alpha = 0.3>(b)
    d = Transpose<perm = [1, 0]>(c)
    y = Neg(d)
}"""


def test_a_model_is_rewritten_by_them_and_certified(tmp_path: Path) -> None:
    model = parser.parse_model(MODEL)
    before, after, report = optimized(model, tmp_path, TEXT, "--objective", "nodes")
    assert [n.op_type for n in onnx.load(after).graph.node] == ["Mish", "HardSigmoid", "Neg"]
    certify(before, after, read_report(report)[1], lambda rule: proved(str(rule)))


def test_a_match_keeps_what_it_found() -> None:
    """Though the matcher that found it goes on to others."""
    k = tensor("k", 1, 4)
    graph = Graph((call("Concat", call("Sub", X, k), call("Sub", Y, k), axis=0),))
    instance = BESIDE.instance(0)
    (match,) = list(find_matches(instance, graph))
    (found,) = match.operators.values()
    assert (found.op, found.turned) == (operator("Sub"), False)
    assert isinstance(rewrite(graph, instance, match), Graph)


BESIDE_A_NUMBER = """
rule elementwise-of-a-number-past-a-transpose
  in       x[a, b] k[]
  from     Transpose(Elementwise(x, k), perm=[1, 0])
  to       Elementwise(Transpose(x, perm=[1, 0]), k)
  types    reals
  exact    bits
"""


def test_the_second_input_may_stand_first(tmp_path: Path) -> None:
    """A function of two is one with its inputs turned, too."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        main (float[6, 5] x) => (float[6, 5] y) <float one = {1.0}, float two = {2.0}> {
            a = Transpose<perm = [1, 0]>(x)
            b = Sub(one, a)
            c = Sub(b, two)
            d = Transpose<perm = [1, 0]>(c)
            y = Neg(d)
        }"""
    )
    text = TEXT + BESIDE_A_NUMBER
    before, after, report = optimized(model, tmp_path, text, "--objective", "nodes")
    assert [n.op_type for n in onnx.load(after).graph.node] == ["Sub", "Sub", "Neg"]
    certify(before, after, read_report(report)[1], lambda rule: proved(str(rule)))


BESIDE_A_RELU = """
rule elementwise-beside-a-relu-past-a-transpose
  in       x[a, b] y[a, b]
  from     Mul(Elementwise(Transpose(x, perm=[1, 0])), Relu(Transpose(y, perm=[1, 0])))
  to       Transpose(Mul(Elementwise(x), Relu(y)), perm=[1, 0])
  types    reals
  exact    bits
"""


@pytest.mark.parametrize("factors", ["m, r", "r, m"])
def test_a_step_is_repeated_whatever_the_order_of_operands(factors: str, tmp_path: Path) -> None:
    """What an operator does not stand for in one order of them, it may in another."""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        main (float[6, 5] x, float[6, 5] z) => (float[5, 6] y) {{
            a = Transpose<perm = [1, 0]>(x)
            b = Transpose<perm = [1, 0]>(z)
            m = Mish(a)
            r = Relu(b)
            y = Mul({factors})
        }}"""
    )
    before, after, report = optimized(model, tmp_path, BESIDE_A_RELU, "--objective", "nodes")
    assert len(onnx.load(after).graph.node) == 4
    certify(before, after, read_report(report)[1], lambda rule: proved(str(rule)))


def test_an_operator_that_is_declared_later_has_all_their_laws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    @registry.register
    class Cube(Unary):
        """``x * x * x``."""

        name: ClassVar[str] = "Cube"

        def of(self, *elements: Scalar) -> Scalar:
            return times(elements[0], elements[0], elements[0])

        def compute(self, *arrays: Array) -> Array:
            return np.asarray(arrays[0] ** 3)

    before = Graph((call("Transpose", call("Cube", X), perm=(1, 0)),))
    (after,) = results(PAST, before)
    assert_same(before, after)
    entries = RuleIndex(RULES).single(operator("Cube"), 2)
    assert [entry.name for entry in entries] == ["elementwise-past-a-transpose.reverse"]
    assert operator("ZeroPreserving").stands_for(operator("Cube"), {}, "FLOAT")
